"""What a read is said to ask of storage is what it asks, for any archive, any box and any limits on requests."""

from __future__ import annotations

import tempfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property.test_fetcher import archives, build
from property.test_fetcher_tiles import Whole

from drystone.codecs.chain import CodecChain
from drystone.fetch import plain, preview, source
from drystone.fetch.fetcher import Fetcher
from drystone.fetch.preview import Preview, Reader
from drystone.fetch.source import coalesce
from drystone.grid.ranges import count_joined
from drystone.model.placement import CombinedArray
from drystone.plan.layout import TargetLayout
from drystone.plan.occupied import OccupiedBuilder, TargetGrid
from drystone.storage.local import LocalStore


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 90), st.integers(0, 30)), max_size=14), st.integers(0, 9))
@settings(deadline=None)
def test_joined_ranges_are_those_of_the_fetcher(ranges: list[tuple[int, int, int]], gap: int) -> None:
    ranges.sort(key=lambda r: r[:2])
    for span in (40, 1 << 20):
        n = nbytes = 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(source, "MOST_SPAN", span)
            for owner in range(3):
                mine = [(a, k) for o, a, k in ranges if o == owner]
                _, sizes, _ = coalesce([a for a, _ in mine], [k for _, k in mine], gap)
                n, nbytes = n + len(sizes), nbytes + sum(sizes)
        owner, start, length = np.array(ranges, np.int64).reshape(-1, 3).T
        assert count_joined(owner, start, start + length, gap, span) == (n, nbytes)


def check(data: st.DataObject, fetcher: Fetcher, array: CombinedArray) -> None:
    """Read a box while requests are counted, and compare with its preview."""
    start = tuple(data.draw(st.integers(0, n)) for n in array.shape)
    stop = tuple(data.draw(st.integers(a, n)) for a, n in zip(start, array.shape, strict=True))
    with pytest.MonkeyPatch.context() as patch:
        least, most, near = data.draw(st.sampled_from([(1 << 16, 1 << 20, 1 << 16), (0, 8, 0), (0, 20, 6)]))
        for name, value in (("_LEAST_CHUNK", least), ("_MOST_PIECE", most), ("_GAP", near)):
            patch.setattr(plain, name, value)
        span = data.draw(st.sampled_from([60, 1 << 24]))
        for module in (source, preview):
            patch.setattr(module, "MOST_SPAN", span)
        patch.setattr(source, "_LOCAL_GAP", data.draw(st.sampled_from([0, 2, 1 << 16])))
        asked = [0, 0]
        ranges = LocalStore.get_ranges

        def counted(store: LocalStore, key: str, starts: list[int], lengths: list[int]) -> list[bytes]:
            asked[0] += len(starts)
            asked[1] += sum(lengths)
            return ranges(store, key, starts, lengths)

        patch.setattr(LocalStore, "get_ranges", counted)
        fetcher.read_box(array, start, stop)
        reader = Reader(fetcher.threads, fetcher.bytes_in_flight, False)
        said = Preview.of(array, start, [b - a for a, b in zip(start, stop, strict=True)], reader)
        for batch in fetcher.rows.rows(array.inner):
            said.add(batch.at(array.fixed))
        assert (said.ranges, said.fetched) == tuple(asked)
        assert (said.fetched, said.decoded) == (fetcher.bytes_read, fetcher.bytes_decoded)
        assert said.stored <= said.chunks


@given(archives(), st.data())
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
def test_slabs_with_gaps(made: tuple, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        archive, array, _, _ = build(folder, *made)
        check(data, archive.fetcher(threads=data.draw(st.sampled_from([1, 2])), bytes_in_flight=200), array)


@given(st.data())
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
def test_mosaics(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        whole = Whole(folder, data.draw)
        check(data, whole.archive.fetcher(threads=data.draw(st.sampled_from([1, 2])), bytes_in_flight=200), whole.array)


@given(st.data())
@settings(deadline=None, max_examples=150)
def test_targets_with_holes(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 3))
    shape = tuple(data.draw(st.integers(1, 9)) for _ in range(rank))
    chunk = tuple(data.draw(st.integers(1, n + 1)) for n in shape)
    shard = tuple(c * data.draw(st.integers(1, 3)) for c in chunk) if data.draw(st.booleans()) else None
    layout = TargetLayout("/v", tuple("abc"[:rank]), shape, np.dtype("i2"), chunk, shard, CodecChain.of("bytes"), bytes(2))
    grid = TargetGrid.of(layout)
    marks, written = OccupiedBuilder(grid), np.zeros(shape, bool)
    for _ in range(data.draw(st.integers(0, 3))):
        low = np.array([data.draw(st.integers(0, n - 1)) for n in shape])
        high = np.array([data.draw(st.integers(a + 1, n)) for a, n in zip(low, shape, strict=True)])
        marks.add(low[:, None], high[:, None])
        written[tuple(map(slice, low, high))] = True
    start = tuple(data.draw(st.integers(0, n - 1)) for n in shape)
    size = tuple(data.draw(st.integers(1, n - a)) for a, n in zip(start, shape, strict=True))
    asked = marks.done(2.0).read(start, size)
    every, cells = layout.chunk_grid.grid_shape, layout.inner_grid
    touched = [
        c
        for c in np.ndindex(*every)
        if all(a // k <= i <= (a + n - 1) // k for i, a, n, k in zip(c, start, size, chunk, strict=True))
    ]
    there = {
        c: bool(written[tuple(slice(i * k, (i + 1) * k) for i, k in zip(c, chunk, strict=True))].any())
        for c in np.ndindex(*every)
    }
    stored = [c for c in touched if there[c]]
    assert (asked.chunks, asked.stored) == (len(touched), len(stored))
    assert asked.decoded == len(stored) * np.prod(chunk) * 2
    if shard is None:
        assert (asked.requests, asked.probes) == (len(stored), len(touched) - len(stored))
        return
    of = {c: tuple(i // k for i, k in zip(c, cells, strict=True)) for c in np.ndindex(*every)}
    shards = {of[c] for c in touched}
    exist = {s for s in shards if any(there[c] for c in there if of[c] == s)}
    whole = {s for s in shards if sum(of[c] == s for c in touched) == np.prod(cells)}
    # whole shards in one request, of others the index and, these being small, all inner chunks at once
    assert asked.requests == len(exist) + len({of[c] for c in stored} - whole)
    assert (asked.objects, asked.probes) == (len(exist), len(shards - exist))

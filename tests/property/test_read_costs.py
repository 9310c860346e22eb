"""What a read is said to ask of storage is what it asks, for any archive, any box and any limits on requests."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property.test_fetcher import archives, build
from property.test_fetcher_tiles import Whole
from unit.fetch.archive import DEFLATE, Archive, combined, spec

from drystone.codecs.chain import CodecChain
from drystone.fetch import plain, preview, source
from drystone.fetch.fetcher import Fetcher
from drystone.fetch.preview import Preview, Reader
from drystone.fetch.source import coalesce
from drystone.grid.ranges import count_joined
from drystone.model.chunk_rows import State
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


type Draw = Callable[[int, int], int]  # a number between two, both included


def check(draw: Draw, fetcher: Fetcher, array: CombinedArray) -> int:
    """Read a box while requests are counted, and compare with its preview; gives the requests."""
    start, stop = list[int](), list[int]()
    for n in array.shape:
        most = draw(0, 2) == 0  # left to chance, few boxes would touch more than one chunk
        start.append(0 if most else draw(0, n - 1))
        stop.append(n if most else draw(start[-1] + 1, n))
    asked = [0, 0]
    ranges = LocalStore.get_ranges

    def counted(store: LocalStore, key: str, starts: list[int], lengths: list[int]) -> list[bytes]:
        asked[0] += len(starts)
        asked[1] += sum(lengths)
        return ranges(store, key, starts, lengths)

    with pytest.MonkeyPatch.context() as patch:
        least, most, near = [(1 << 16, 1 << 20, 1 << 16), (0, 8, 0), (0, 20, 6)][draw(0, 2)]
        for name, value in (("_LEAST_CHUNK", least), ("_MOST_PIECE", most), ("_GAP", near)):
            patch.setattr(plain, name, value)
        span = (60, 200, 1 << 24)[draw(0, 2)]
        for module in (source, preview):
            patch.setattr(module, "MOST_SPAN", span)
        patch.setattr(source, "_LOCAL_GAP", (0, 2, 50, 1 << 16)[draw(0, 3)])
        patch.setattr(LocalStore, "get_ranges", counted)
        fetcher.read_box(array, start, stop)
        reader = Reader(fetcher.threads, fetcher.bytes_in_flight, False)
        said = Preview.of(array, start, [b - a for a, b in zip(start, stop, strict=True)], reader)
        for batch in fetcher.rows.rows(array.inner):
            said.add(batch.at(array.fixed))
    assert (said.ranges, said.fetched) == tuple(asked)
    assert (said.fetched, said.decoded) == (fetcher.bytes_read, fetcher.bytes_decoded)
    assert said.stored <= said.chunks
    return said.ranges


@pytest.mark.parametrize("chain", [DEFLATE, CodecChain.of("bytes")])
@pytest.mark.parametrize("threads", [1, 2])
def test_many_small_chunks(threads: int, chain: CodecChain, tmp_path: Path) -> None:
    rng, archive, count = np.random.default_rng(5), Archive(tmp_path), list[int]()
    specs = [spec((4, 17, 23), (int(rng.integers(1, 4)), 5, 4), "<i2", chain, sparse=True) for _ in range(5)]
    for g, one in enumerate(specs):
        holes = {(0, int(rng.integers(4)), k) for k in range(3)}
        archive.add(g, one, rng.integers(0, 99, one.shape), holes=holes, states={(0, 0, 5): State.MISSING})
    array = combined(specs, [(g, 0, 4, 5 * g, g) for g in range(5)], (24, 17, 23))
    for _ in range(40):
        fetcher = archive.fetcher(threads=threads, bytes_in_flight=(200, 1 << 20)[int(rng.integers(2))])
        count.append(check(lambda a, b: int(rng.integers(a, b + 1)), fetcher, array))
    assert len(set(count)) > 15


def drawn(data: st.DataObject) -> Draw:
    return lambda a, b: data.draw(st.integers(a, b))


@given(archives(), st.data())
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
def test_slabs_with_gaps(made: tuple, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        archive, array, _, _ = build(folder, *made)
        check(drawn(data), archive.fetcher(threads=data.draw(st.sampled_from([1, 2])), bytes_in_flight=200), array)


@given(st.data())
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
def test_mosaics(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        whole = Whole(folder, data.draw)
        check(drawn(data), whole.archive.fetcher(threads=data.draw(st.sampled_from([1, 2])), bytes_in_flight=200), whole.array)


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

"""References sent as boxes and singly are stored one for one, whatever their order, holes and checksums."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import icechunk
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from zarr.core.sync import sync

from drystone.emit.boxes import ReferenceWriter, checksum_of
from drystone.errors import StorageError
from drystone.model.chunk_rows import RowBatch
from drystone.protocols import PublicRoot
from drystone.storage.repository import manifest_windows
from drystone.storage.stamp import Stamp

RAW = frozenset({"raw"})


@dataclass
class Granules:
    """The part of a view that a writer asks for; granule g changed ``seconds[g]`` after 1970."""

    seconds: list[int]
    name: str = "raw"

    def public_parts(self, granule_id: int) -> tuple[PublicRoot, str]:
        return PublicRoot(self.name, "file:///archive/", {}, remapped=False), f"g{granule_id}.nc"

    def stamp(self, granule_id: int) -> Stamp:
        return Stamp(1, self.seconds[granule_id] * 1_000_000_000)


def session(shape: tuple[int, ...]) -> icechunk.Session:
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer("file:///archive/", icechunk.local_filesystem_store("/archive"), name="raw")
    )
    s = icechunk.Repository.create(icechunk.in_memory_storage(), config=config).writable_session("main")
    zarr.create_array(s.store, name="a", shape=shape, chunks=(1,) * len(shape), dtype="u1", filters=None, compressors=None)
    return s


def stored(s: icechunk.Session) -> dict[tuple[int, ...], tuple[str, int, int]]:
    async def collect(batches: AsyncIterator[tuple[object, ...]]) -> dict[tuple[int, ...], tuple[str, int, int]]:
        out = {}
        async for coords, _, paths, offsets, lengths, _ in batches:
            for c, p, o, n in zip(coords.tolist(), paths, offsets.tolist(), lengths.tolist(), strict=True):
                out[tuple(c)] = (p, o, n)
        return out

    return sync(collect(s.store.array_chunk_iterator("/a", 1000)))


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[int, ...], list[int], list[int], list[int]]:
    """Grid, chunk numbers in any order, granule of each, time of each granule."""
    grid = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    total = int(np.prod(grid))
    numbers = draw(st.lists(st.integers(0, total - 1), unique=True, max_size=total))
    granules = draw(st.lists(st.integers(0, 4), min_size=len(numbers), max_size=len(numbers)))
    seconds = draw(st.lists(st.integers(0, 2), min_size=5, max_size=5))
    return grid, numbers, granules, seconds


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(), st.integers(1, 50), st.sampled_from([1, 16]))
def test_every_reference_arrives_where_it_belongs(
    case: tuple[tuple[int, ...], list[int], list[int], list[int]], batch: int, few: int
) -> None:
    import drystone.emit.boxes as boxes

    grid, numbers, granules, seconds = case
    s = session(grid)
    writer = ReferenceWriter(Granules(seconds), "/a", RAW, lambda remapped: True)  # type: ignore[arg-type]
    before, boxes._FEW = boxes._FEW, few
    try:
        for start in range(0, len(numbers), batch):
            some = np.array(numbers[start : start + batch], np.int64)
            rows = RowBatch(
                np.array(granules[start : start + batch], np.int32),
                np.array(np.unravel_index(some, grid), np.int32),
                some * 10,
                some + 1,
                np.zeros(len(some), np.int8),
            )
            writer.send(s.store, rows, np.arange(len(some)))
    finally:
        boxes._FEW = before
    want = {
        tuple(int(c) for c in np.unravel_index(n, grid)): (f"file:///archive/g{g}.nc", n * 10, n + 1)
        for n, g in zip(numbers, granules, strict=True)
    }
    assert stored(s) == want
    assert writer.count == len(want)


def test_what_icechunk_does_not_take_is_an_error_and_not_a_hole() -> None:
    s = session((4,))
    writer = ReferenceWriter(Granules([0], name="unknown"), "/a", RAW, lambda remapped: False)  # type: ignore[arg-type]
    rows = RowBatch(
        np.zeros(2, np.int32), np.array([[0, 1]], np.int32), np.zeros(2, np.int64), np.ones(2, np.int64), np.zeros(2, np.int8)
    )
    with pytest.raises(StorageError, match="no virtual chunk container 'unknown'"):
        writer.send(s.store, rows, np.arange(2))


@pytest.mark.parametrize("ns", [0, 1, 999_999_999, 1_000_000_000])
def test_a_time_is_rounded_up_to_whole_seconds(ns: int) -> None:
    got = checksum_of(Stamp(1, ns), "https://x")
    assert isinstance(got, dt.datetime)
    assert got.tzinfo is dt.UTC
    assert got.timestamp() - 1 < ns / 1e9 <= got.timestamp()


def test_no_stamp_no_checksum() -> None:
    assert checksum_of(Stamp(1), "file:///a") is None


@pytest.mark.parametrize(
    ("grid", "axis"),
    [
        ((3650, 4, 8), 0),
        ((5, 1000, 1000), 1),
        ((10, 1000, 2000), 0),
        ((7,), 0),
        ((1, 1, 1), None),
        ((10**7,), None),
        ((0, 3), 0),
    ],
)
def test_a_window_holds_at_most_65000_and_is_not_needlessly_small(grid: tuple[int, ...], axis: int | None) -> None:
    cut = manifest_windows(grid, axis)
    per_window = int(np.prod([min(cut.get(i, n), max(n, 1)) for i, n in enumerate(grid)]))
    unclipped = int(np.prod([cut.get(i, max(n, 1)) for i, n in enumerate(grid)]))
    assert per_window <= 65_000
    assert unclipped > 32_000 or unclipped == 1


def test_a_scalar_has_no_window() -> None:
    assert manifest_windows((), None) == {}


def test_writer_sends_nothing_for_no_rows(tmp_path: Path) -> None:
    s = session((2,))
    writer = ReferenceWriter(Granules([0]), "/a", RAW, lambda remapped: True)  # type: ignore[arg-type]
    empty = RowBatch(
        np.zeros(0, np.int32), np.zeros((1, 0), np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int8)
    )
    writer.send(s.store, empty, np.arange(0))
    assert stored(s) == {}

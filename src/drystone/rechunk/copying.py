"""A region of a store from encoded chunks, byte for byte: no codec runs.

A shard's inner chunks are laid granule by granule (in the order in which granules first appear in the shard) and by offset
within each, so that neighbours in a granule are neighbours in the shard and are copied together; the order depends on nothing
but the references. Two write cells are copied at a time, so that one is read while the disk confirms the other.

A chunk that its granule never wrote stays absent, and reads as the same storage fill. A chunk that no granule holds must read
as missing: where that is another value, one chunk of it is encoded, and all such chunks of a shard share its bytes.

The bytes are proved as they go: ranges are read in full or not at all, the sum over what was read is compared with one over
what then lies in the store, and granules are compared with their stamps before and after.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from google_crc32c import extend, value
from numpy.typing import NDArray

from drystone.codecs.encode import encode_chunk
from drystone.codecs.inflate import Buffer
from drystone.errors import DecodeError, StorageError
from drystone.fetch.fetcher import Fetcher, gap_fill
from drystone.fetch.source import GranuleSource
from drystone.grid.shards import ShardGrid
from drystone.model.task import StoredObject
from drystone.plan.layout import TargetLayout
from drystone.rechunk.copy_source import Chunks, region_source
from drystone.rechunk.plan_file import ArrayPlan
from drystone.rechunk.rewrap import Rewrap
from drystone.rechunk.shard import ABSENT
from drystone.rechunk.writer import TargetWriter

__all__ = ["copy_region"]

_PIECE = 8 << 20  # bytes read at a time, unless one chunk is larger
_AT_ONCE = 2  # write cells that are copied at once

type Cell = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Job:
    """What all cells of a region share: the gap chunk's bytes are None where absence says it."""

    writer: TargetWriter
    layout: TargetLayout
    grid: ShardGrid
    sources: dict[int, GranuleSource]
    rewrap: Rewrap
    gap: bytes | None


def copy_region(writer: TargetWriter, plan: ArrayPlan, region: tuple[Cell, Cell], fetcher: Fetcher) -> tuple[StoredObject, ...]:
    """Copy every write cell of a region.

    Parameters
    ----------
    writer
        Of the target.
    plan
        Of the array: what is read and written.
    region
        First and one-past-last element, on edges of write cells or at the array's end.
    fetcher
        Knows granules and rows, and counts what is read.

    Returns
    -------
    One for each write cell, in C order; size -1 where no inner chunk has bytes.

    Raises
    ------
    GranuleChanged, GranuleMissing
        A granule is no longer what was scanned.
    TableError, DecodeError, StorageError
        Rows are not what the plan saw, checksums fail, or bytes are not there.
    """
    layout, array = plan.layout, plan.array
    found = region_source(array, layout, *region, fetcher)
    gap, absent = None, found.absent
    if absent.shape[1]:
        missing = gap_fill(array)
        if missing.astype(layout.stored_dtype).tobytes() == layout.fill:
            absent = absent[:, :0]
        else:
            gap = encode_chunk(np.full(layout.chunk, missing), layout.codecs, layout.stored_dtype)
    rewrap = Rewrap.of(array.codecs, layout.codecs, layout.chunk_bytes)
    job = _Job(writer, layout, ShardGrid(layout.cells, layout.chunk_grid), found.sources, rewrap, gap)
    for source in found.sources.values():
        source.check()
    pool = ThreadPoolExecutor(_AT_ONCE, "drystone-copy")
    try:
        cells = _by_cell(layout, region, found.chunks, absent)
        done = tuple(pool.map(lambda item: _copy_cell(job, *item), cells))
    finally:
        pool.shutdown(cancel_futures=True)
    for source in found.sources.values():
        source.check()
    fetcher.bytes_read += int(found.chunks.length.sum())
    return done


def _by_cell(
    layout: TargetLayout, region: tuple[Cell, Cell], chunks: Chunks, absent: NDArray[np.int64]
) -> Iterator[tuple[Cell, Chunks, NDArray[np.int64]]]:
    """Each write cell of a region in C order, its stored chunks, and the coordinates of its gap chunks."""
    dims = layout.cells.dimensions
    spans = [(d.index_to_chunk(a), d.index_to_chunk(b - 1) + 1) for a, b, d in zip(*region, dims, strict=True)]
    extent = [b - a for a, b in spans]

    def numbers(coords: NDArray[np.int64]) -> NDArray[np.intp]:
        out = np.zeros(coords.shape[1], np.intp)
        for at, c, d, (first, _), n in zip(coords, layout.chunk, dims, spans, extent, strict=True):
            out = out * n + d.indices_to_chunks(at * c) - first
        return out

    held, gaps = numbers(chunks.coords), numbers(absent)
    order, gap_order = np.argsort(held, kind="stable"), np.argsort(gaps, kind="stable")
    edges = np.searchsorted(held[order], np.arange(math.prod(extent) + 1)).tolist()
    gap_edges = np.searchsorted(gaps[gap_order], np.arange(math.prod(extent) + 1)).tolist()
    cells = itertools.product(*(range(a, b) for a, b in spans))
    for cell, (a, b), (c, d) in zip(cells, itertools.pairwise(edges), itertools.pairwise(gap_edges), strict=True):
        yield cell, chunks.take(order[a:b]), absent[:, gap_order[c:d]]


def _copy_cell(job: _Job, cell: Cell, chunks: Chunks, absent: NDArray[np.int64]) -> StoredObject:
    key = job.layout.cell_key(cell)
    gap = job.gap if absent.shape[1] else None
    if not len(chunks) and gap is None:
        job.writer.delete(key)
        return StoredObject(key, -1, 0)
    chunks, index = _laid(job, cell, chunks, absent)
    sums = _Sum()
    parts = itertools.chain(_read(job, chunks), [] if gap is None else [gap], [] if index is None else [index])
    job.writer.put(key, sums.over(parts))
    _check_stored(job, key, sums)
    return StoredObject(key, sums.size, sums.crc)


class _Sum:
    """Size and CRC-32C of what went by."""

    def __init__(self) -> None:
        self.size = 0
        self.crc = 0

    def over(self, parts: Iterator[Buffer]) -> Iterator[bytes | memoryview]:
        """The parts, counted."""
        for part in parts:
            view = memoryview(part).cast("B")
            self.size += len(view)
            if len(view):
                self.crc = int(extend(self.crc, np.frombuffer(view, np.uint8)))
            yield view


def _check_stored(job: _Job, key: str, sums: _Sum) -> None:
    """What lies in the store is what was read from the granules."""
    size, crc = job.writer.stored(key)
    if size != sums.size or crc not in (sums.crc, None):
        read = "" if crc is None else f" with {crc:08x}"
        raise _differs(job, key, f"{sums.size} bytes with CRC-32C {sums.crc:08x} were put, {size}{read} are there")


def _differs(job: _Job, key: str, what: str) -> StorageError:
    return StorageError(
        f"{job.writer.address(key)} does not hold what was written: {what}; the disk or another writer changed it; run again",
        kind="io",
        key=key,
    )


def _laid(job: _Job, cell: Cell, chunks: Chunks, absent: NDArray[np.int64]) -> tuple[Chunks, bytes | None]:
    """The chunks in the order in which they are laid, and the index; None where the cell has no shard."""
    layout = job.layout
    if layout.shard is None:
        return chunks, None
    slots = job.grid.slots(cell)
    first = [d.chunk_offset(i) // c for i, c, d in zip(cell, layout.chunk, layout.cells.dimensions, strict=True)]

    def numbers(coords: NDArray[np.int64]) -> NDArray[np.intp]:
        out = np.zeros(coords.shape[1], np.intp)
        for at, f, n in zip(coords, first, slots, strict=True):
            out = out * n + (at - f)
        return out

    place = numbers(chunks.coords)
    _, which = np.unique(chunks.granule, return_inverse=True)
    leader = np.full(int(which.max()) + 1 if len(which) else 0, math.prod(slots))
    np.minimum.at(leader, which, place)
    order = np.lexsort((place, chunks.offset, leader[which]))
    chunks, place = chunks.take(order), place[order]
    lengths = chunks.length + job.rewrap.added
    ends = np.cumsum(lengths)
    index = np.full((math.prod(slots), 2), ABSENT, "<u8")
    index[place, 0], index[place, 1] = ends - lengths, lengths
    if job.gap is not None:
        index[numbers(absent)] = (int(ends[-1]) if len(ends) else 0, len(job.gap))
    raw = index.tobytes()
    return chunks, raw + int(value(raw)).to_bytes(4, "little")


def _read(job: _Job, chunks: Chunks) -> Iterator[Buffer]:
    """The bytes of chunks, in order, as they go into the store."""
    inline = np.zeros(len(chunks), np.bool_)
    inline[list(chunks.inline)] = True
    n = len(chunks)
    # a run is read as one range: neighbours in one granule, where nothing is done to single chunks
    fresh = np.ones(n, np.bool_)
    if n and job.rewrap.plain:
        follows = chunks.offset[1:] == chunks.offset[:-1] + chunks.length[:-1]
        follows &= (chunks.granule[1:] == chunks.granule[:-1]) & ~inline[1:] & ~inline[:-1]
        follows &= np.diff(np.cumsum(chunks.length) // _PIECE) == 0
        fresh[1:] = ~follows
    first = np.flatnonzero(fresh)
    sizes = np.add.reduceat(chunks.length, first) if n else chunks.length
    turn = np.ones(len(first), np.bool_)  # a new call: another granule, or enough bytes, or bytes from the table
    granule, there = chunks.granule[first], inline[first]
    turn[1:] = (granule[1:] != granule[:-1]) | there[1:] | there[:-1]
    turn[1:] |= (np.diff(np.cumsum(sizes) // _PIECE) != 0) | (chunks.offset[first][1:] < chunks.offset[first][:-1])
    edges = [*np.flatnonzero(turn).tolist(), len(first)] if n else []
    for a, b in itertools.pairwise(edges):
        source = job.sources[int(granule[a])]
        if there[a]:
            parts: list[Buffer] = [chunks.inline[int(first[a])]]
        else:
            parts = [*source.read(chunks.offset[first[a:b]].tolist(), sizes[a:b].tolist())[0]]
        for i, part in enumerate(parts):
            yield from [part] if job.rewrap.plain else _rewrapped(job, source, part, chunks.coords[:, first[a + i]])


def _rewrapped(job: _Job, source: GranuleSource, data: Buffer, coords: NDArray[np.int64]) -> list[Buffer]:
    try:
        return job.rewrap(data)
    except DecodeError as error:
        meant = source.meaning(error)
        if meant is not error:
            raise meant from error
        raise DecodeError(
            f"{source.full_path}: the chunk of {job.layout.path} that is chunk {tuple(coords.tolist())} of the store: "
            f"{error.message}",
            kind=error.kind,
            granule=source.granule.address,
            array=job.layout.path,
        ) from error

"""Which stored chunks a region is made of, in columns: worked out by the request that would read the region.

So gaps, granules off the combine axis, axes that granules lack and duplicates mean to a copy what they mean to a reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from drystone.errors import TableError
from drystone.fetch.fetcher import Fetcher
from drystone.fetch.group import Group
from drystone.fetch.request import Request, make_request
from drystone.fetch.source import GranuleSource
from drystone.fetch.work import check_states
from drystone.grid.selection import Strided
from drystone.model.chunk_rows import RowBatch, State
from drystone.model.placement import CombinedArray
from drystone.plan.layout import TargetLayout

__all__ = ["Chunks", "RegionSource", "region_source"]

type Int64 = NDArray[np.int64]
type _Table = tuple[NDArray[np.intp], ...]


@dataclass(frozen=True, slots=True)
class Chunks:
    """Stored chunks as columns of equal length: where each goes, and where its bytes are.

    Parameters
    ----------
    coords
        int64 (rank, n): inner chunks of the whole.
    granule, offset, length
        int32, int64, int64 (n,).
    inline
        Row to bytes, of chunks that lie in the table.
    """

    coords: Int64
    granule: NDArray[np.int32]
    offset: Int64
    length: Int64
    inline: dict[int, bytes] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.offset)

    def take(self, rows: NDArray[np.intp]) -> Chunks:
        """Some of them, in that order."""
        inline = {i: self.inline[r] for i, r in enumerate(rows.tolist()) if r in self.inline} if self.inline else {}
        return Chunks(self.coords[:, rows], self.granule[rows], self.offset[rows], self.length[rows], inline)

    @classmethod
    def joined(cls, parts: Sequence[Chunks], rank: int) -> Chunks:
        """All parts, one after the other."""
        if not parts:
            none = np.zeros(0, np.int64)
            return cls(np.zeros((rank, 0), np.int64), none.astype(np.int32), none, none)
        inline: dict[int, bytes] = {}
        first = 0
        for p in parts:
            inline |= {first + i: data for i, data in p.inline.items()}
            first += len(p)
        return cls(
            np.concatenate([p.coords for p in parts], axis=1),
            np.concatenate([p.granule for p in parts]),
            np.concatenate([p.offset for p in parts]),
            np.concatenate([p.length for p in parts]),
            inline,
        )


@dataclass(frozen=True, slots=True)
class RegionSource:
    """What a region is made of.

    ``absent`` is int64 (rank, n): inner chunks that no granule holds. ``sources`` are the granules, by id.
    """

    chunks: Chunks
    absent: Int64
    sources: dict[int, GranuleSource]


def region_source(
    array: CombinedArray, layout: TargetLayout, start: Sequence[int], stop: Sequence[int], fetcher: Fetcher
) -> RegionSource:
    """Find the stored chunks of a region whose edges are chunk edges or the array's end.

    Raises
    ------
    TableError
        Rows are missing, or tell of chunks that cannot be copied: the table changed since the plan.
    """
    axes = tuple(Strided(int(a), 1, int(b) - int(a)) for a, b in zip(start, stop, strict=True))
    request = make_request(array, axes)
    sources = {int(g): GranuleSource.of(fetcher.granule(int(g)), fetcher.places) for g in request.granule_ids}
    first = np.array([a // c for a, c in zip(start, layout.chunk, strict=True)], np.int64).reshape(-1, 1)
    held = np.zeros([-(-b // c) - a // c for a, b, c in zip(start, stop, layout.chunk, strict=True)], np.bool_)
    tables = [_places(group, array.placements.axis, layout.chunk, start) for group in request.groups]
    for table in tables:
        held[np.ix_(*(t - f for t, f in zip(table, first[:, 0], strict=True)))] = True
    chunks = _matched(request, tables, fetcher, sources)
    absent = np.stack(np.nonzero(~held)).astype(np.int64) + first if held.ndim else np.zeros((0, int(not held)), np.int64)
    return RegionSource(chunks, absent, sources)


def _places(group: Group, lead: int | None, chunk: Sequence[int], start: Sequence[int]) -> _Table:
    """For each axis the inner chunk of the whole that each entry of the group's tables is."""
    parts = [t.parts for t in group.others]
    if lead is not None:
        parts.insert(lead, group.lead_parts)
    first = [[p.out.start if isinstance(p.out, slice) else int(p.out[0]) for p in some] for some in parts]
    return tuple((np.array(f, np.intp) + a) // c for f, a, c in zip(first, start, chunk, strict=True))


def _matched(request: Request, tables: Sequence[_Table], fetcher: Fetcher, sources: dict[int, GranuleSource]) -> Chunks:
    """The rows of a region's chunks that have bytes."""
    array, parts = request.array, []
    for rows in fetcher.rows.rows(array.inner, request.granule_ids) if request.groups else ():
        batch = rows.at(array.fixed)
        for group, table in zip(request.groups, tables, strict=True):
            part = _of_group(array, batch, group, table, sources)
            if len(part):
                parts.append(part)
    for group in request.groups:
        if not group.spec.sparse and not group.seen.all():
            raise TableError(
                f"the table lacks rows of {array.path} in {sources[int(group.granule_id[0])].granule.address} or granules "
                f"beside it ({int((~group.seen).sum())} chunks have none), and all its chunks have rows; scan again",
                kind="row-missing",
                array=array.path,
            )
    return Chunks.joined(parts, len(array.shape))


def _of_group(array: CombinedArray, batch: RowBatch, group: Group, table: _Table, sources: dict[int, GranuleSource]) -> Chunks:
    found = group.match(batch)
    if not len(found.row):
        return Chunks.joined([], len(array.shape))
    check_states(group, batch, found, sources.__getitem__)
    found = found.take(np.flatnonzero(batch.state[found.row] != State.MISSING))
    row = found.row
    masked = [r for r in row.tolist() if batch.masks.get(r, 0)] if batch.masks else []
    if masked or bool((batch.state[row] == State.LIBRARY).any()):
        raise TableError(
            f"{array.path}: a chunk was stored with filters skipped, or only its format's library can decode it, which the "
            "plan did not see: the table changed since; plan again",
            kind="plan-mismatch",
            array=array.path,
        )
    others = list(found.others)
    if array.placements.axis is not None:
        others.insert(array.placements.axis, found.lead)
    coords = np.zeros((len(table), len(row)), np.int64)
    for axis, (numbers, entry) in enumerate(zip(table, others, strict=True)):
        coords[axis] = numbers[entry]
    inline = {i: batch.inline[r] for i, r in enumerate(row.tolist()) if r in batch.inline} if batch.inline else {}
    length = batch.length[row].astype(np.int64)
    for i, data in inline.items():
        length[i] = len(data)
    return Chunks(coords, batch.granule_id[row], batch.offset[row].astype(np.int64), length, inline)

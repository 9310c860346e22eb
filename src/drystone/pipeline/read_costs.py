"""What the reads that a config names cost, on granules as ``drystone.open`` reads them and on what will be published.

One pass over an array's rows serves every read: each is counted at a few places of the source, and the chunks of the target
that rows will fill are marked. A run does not ask for this.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from drystone.fetch.preview import Preview, Reader
from drystone.model.chunk_rows import RowBatch
from drystone.model.options import ReadPattern
from drystone.model.placement import CombinedArray
from drystone.pipeline.archive import Archive
from drystone.pipeline.combined import Whole, fetcher_for
from drystone.plan.costs import ReadCost, by_grids, counted_cost, stored_itemsize
from drystone.plan.cutting import cut_grid
from drystone.plan.layout import TargetLayout
from drystone.plan.occupied import Asked, Occupied, OccupiedBuilder, TargetGrid
from drystone.plan.reach import AxisRead, axis_reads, n_places, sample
from drystone.plan.stored import Locator, other_boxes

__all__ = ["array_costs", "costs_of"]

type Costs = tuple[tuple[ReadCost, ReadCost], ...]
type Places = NDArray[np.int64]

_MOST_ROWS = 1 << 20  # that reads are counted by
_MOST_PLACES = 64
_ROWS_IN_ALL = 100_000  # gone through for all places of a read: half a second
_MOST_POINTS = 1 << 20  # elements of a read of an array that takes places of another


def costs_of(
    archive: Archive, whole: Whole, array: CombinedArray, layout: TargetLayout | None, encoded: int, form: str
) -> Costs:
    """Source and target cost of every read that a config names, of one array of one output.

    Parameters
    ----------
    layout
        What is written; None: references to the chunks where they lie.
    encoded
        Bytes of the whole in granules.
    form
        Of the output.
    """
    patterns = archive.config.reads
    ids = np.unique(array.holder.placements.granule_id)
    if not patterns or array.made or not len(ids):
        return ()
    ratio = math.prod(array.shape) * stored_itemsize(array) / encoded if encoded else 1.0
    fetcher = fetcher_for(archive, whole.table)
    remote = archive.places.resolve(whole.table.granule(int(ids[0])).address)[0].root is None
    reader = Reader(fetcher.threads, fetcher.bytes_in_flight, remote)
    few = array.holder.grid.n_chunks <= _MOST_ROWS
    rows = (b.at(array.holder.fixed) for b in whole.table.rows(array.inner, ids)) if few else None
    costs = array_costs(array, layout, patterns, rows, reader, ratio)
    return costs if form == "zarr" else tuple((before, _with_index(after)) for before, after in costs)


def _with_index(cost: ReadCost) -> ReadCost:
    """Of a form whose readers know from manifests or references what is there, and ask for nothing else."""
    notes = (cost.note, "manifests or references, which readers fetch first and keep, are not counted")
    return replace(cost, probes=0.0, note="; ".join(n for n in notes if n))


def array_costs(
    array: CombinedArray,
    layout: TargetLayout | None,
    patterns: Sequence[ReadPattern],
    rows: Iterable[RowBatch] | None,
    reader: Reader,
    ratio: float,
) -> Costs:
    """Source and target cost of each pattern.

    Parameters
    ----------
    array, layout
        What is and what is planned; without a layout the source's chunks are published where they lie.
    rows
        Of the granules that the array is placed from, at its fixed places. None: every chunk counts as stored.
    reader
        Of the source.
    ratio
        Raw bytes for each encoded byte, where rows do not say it; targets are taken to be encoded as well as granules.

    Raises
    ------
    PlanError
        ``read-place``: a fixed place is past the array's end.
    """
    grid = cut_grid(array) or array.grid  # chunks of plain bytes may be published in slabs
    target = TargetGrid(grid, None, stored_itemsize(array)) if layout is None else TargetGrid.of(layout)
    reads = [axis_reads(array.path, p, array.dims, array.shape) for p in patterns]
    grids = [by_grids(array, target, p, ratio, ratio) for p in patterns]
    if rows is None:
        return tuple(grids)
    places = [sample(r, _n_counted(array, r)) for r in reads]
    previews = [_previews(array, r, p, reader) for r, p in zip(reads, places, strict=True)]
    occupied = _through(array, layout, target, rows, previews, ratio)
    out = []
    for (before, after), read, starts, seen in zip(grids, reads, places, previews, strict=True):
        name, size = before.name, [r.size for r in read]
        if seen:
            before = counted_cost(name, read, stored_itemsize(array), [_asked(s) for s in seen], _library_note(seen))
        if occupied is not None:
            after = counted_cost(name, read, target.itemsize, [occupied.read(s, size) for s in starts.tolist()])
        out.append((before, after))
    return tuple(out)


def _n_counted(array: CombinedArray, reads: Sequence[AxisRead]) -> int:
    """Places that a read is counted at: as many as half a second or so allows."""
    rows = max(1, array.holder.grid.n_chunks, len(array.holder.placements))
    return min(_MOST_PLACES, max(2, _ROWS_IN_ALL // rows), n_places(reads))


def _previews(array: CombinedArray, reads: Sequence[AxisRead], starts: Places, reader: Reader) -> list[Preview]:
    """One for each place; none where the read is too large to be worked out."""
    size = [r.size for r in reads]
    if array.picked is not None and math.prod(size) > _MOST_POINTS:
        return []
    return [Preview.of(array, start, size, reader) for start in starts.tolist()]


def _through(
    array: CombinedArray,
    layout: TargetLayout | None,
    target: TargetGrid,
    rows: Iterable[RowBatch],
    previews: Sequence[Sequence[Preview]],
    ratio: float,
) -> Occupied | None:
    """Go through the rows once; gives the chunks of the target that they fill, where that can be known."""
    others = () if layout is None or array.picked is not None else other_boxes(array, layout)
    known = target.is_small and array.picked is None and others is not None
    marks, locator = (OccupiedBuilder(target), Locator(array)) if known else (None, None)
    raw = encoded = 0
    for batch in rows:
        for preview in (p for seen in previews for p in seen):
            preview.add(batch)
        if marks is not None and locator is not None:
            boxes = locator.stored(batch)
            marks.add(boxes.start, boxes.stop)
            raw, encoded = raw + int(boxes.cells.sum()), encoded + int(batch.length.sum())
    if marks is None:
        return None
    for start, stop in others or ():
        marks.add(start, stop)
    return marks.done(raw * stored_itemsize(array) / encoded if raw and encoded else ratio)


def _asked(seen: Preview) -> Asked:
    return Asked(seen.chunks, seen.stored, seen.granules, seen.ranges, 2 * seen.granules, seen.fetched, seen.decoded)


def _library_note(seen: Sequence[Preview]) -> str:
    n = sum(s.by_library for s in seen)
    return f"{n / len(seen):,.3g} chunks are read through the HDF5 library, whose requests are not counted" if n else ""

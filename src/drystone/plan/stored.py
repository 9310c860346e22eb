"""Where the chunks that rows name lie in the whole: boxes of elements, as columns, for arrays of any placement.

Tiles, crops, granules that are placed twice and grids that are no Zarr grid need no case of their own: each row is joined to
the placements of its granule, and its chunk cut to what they take of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drystone.errors import DecodeError
from drystone.model.chunk_rows import RowBatch, State
from drystone.model.placement import CombinedArray
from drystone.plan.layout import TargetLayout

__all__ = ["Boxes", "Locator", "other_boxes"]

type Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Boxes:
    """Chunks as columns.

    Parameters
    ----------
    start, stop
        int64 (rank, n), in elements of the whole.
    cells
        int64 (n,): elements of the chunk, those that are not placed too.
    """

    start: Int64
    stop: Int64
    cells: Int64


class Locator:
    """Finds the boxes of rows of one array, which is not picked from another."""

    def __init__(self, array: CombinedArray) -> None:
        self.array = array
        p = array.placements
        used = np.arange(len(p))
        if p.axis is None:  # one granule a tile stands for all
            used = np.unique(p.tile, return_index=True)[1] if len(p.tile) else used[:1]
        ids = p.granule_id[used]
        order = np.argsort(ids, kind="stable")
        self._place, self._ids = used[order], ids[order]
        rank = len(array.shape)
        self._edge = np.array([v.chunk_shape for v in array.variants], np.int64).reshape(-1, rank)
        self._extent = np.array([v.shape for v in array.variants], np.int64).reshape(-1, rank)
        tiles = [(t.src_offset, t.count, t.dest) for t in p.tiles] or [((0,) * rank, array.shape, (0,) * rank)]
        self._tiles = np.array(tiles, np.int64).reshape(-1, 3, rank)

    def stored(self, batch: RowBatch) -> Boxes:
        """The chunks of a batch, at the array's fixed places, that have bytes; one that is placed twice comes twice."""
        array, p = self.array, self.array.placements
        there = np.flatnonzero(batch.state != State.MISSING)
        first = np.searchsorted(self._ids, batch.granule_id[there], "left")
        n = np.searchsorted(self._ids, batch.granule_id[there], "right") - first
        row = np.repeat(there, n)
        place = self._place[np.repeat(first, n) + np.arange(len(row)) - np.repeat(np.cumsum(n) - n, n)]
        variant = p.variant[place]
        chunk = np.zeros((len(array.shape), len(row)), np.int64)
        chunk[[a for a in range(len(chunk)) if a not in array.new_axes]] = batch.coords[:, row]
        source, count, dest = self._tiles[p.tile[place] if len(p.tile) else np.zeros(len(place), np.intp)].transpose(1, 2, 0)
        if p.axis is not None:
            source, count, dest = source.copy(), count.copy(), dest.copy()
            source[p.axis], count[p.axis], dest[p.axis] = p.src_offset[place], p.count[place], p.dest[place]
        edge, extent = self._edge[variant].T, self._extent[variant].T
        begin = chunk * edge
        start, stop = np.maximum(begin, source), np.minimum(np.minimum(begin + edge, extent), source + count)
        kept = np.flatnonzero((start < stop).all(axis=0))
        move = (dest - source)[:, kept]
        cells = np.minimum(edge, extent - begin)[:, kept].prod(axis=0)
        return Boxes(start[:, kept] + move, stop[:, kept] + move, cells)


def other_boxes(array: CombinedArray, layout: TargetLayout) -> Iterator[tuple[Int64, Int64]] | None:
    """Boxes without bytes that are written all the same, since they read as something else than the target's fill.

    Gives starts and stops, (rank, n); None where gaps of tiles read so, and no box says where these are.
    """
    p, shape = array.placements, array.shape
    gap = array.gap_scalar.astype(layout.stored_dtype).tobytes() != layout.fill
    if gap and p.is_tiled:
        return None
    other = [v for v in range(len(array.variants)) if not _reads_as_fill(array, v, layout)]
    return _others(array, np.flatnonzero(np.isin(p.variant, other)), gap, shape)


def _others(array: CombinedArray, places: NDArray[np.intp], gap: bool, shape: tuple[int, ...]) -> Iterator[tuple[Int64, Int64]]:
    p = array.placements
    for i in places.tolist():
        box = p.box(i, shape)
        yield np.array(box.dest, np.int64)[:, None], np.array(box.stop, np.int64)[:, None]
    if gap and p.axis is not None:
        ends = np.concatenate([[0], p.dest + p.count])
        begins = np.concatenate([p.dest, [shape[p.axis]]])
        holes = np.flatnonzero(ends < begins)
        start = np.zeros((len(shape), len(holes)), np.int64)
        stop = np.repeat(np.array(shape, np.int64)[:, None], len(holes), axis=1)
        start[p.axis], stop[p.axis] = ends[holes], begins[holes]
        yield start, stop


def _reads_as_fill(array: CombinedArray, variant: int, layout: TargetLayout) -> bool:
    """Whether a chunk that a granule never wrote becomes the target's fill, bit for bit."""
    spec, recode = array.variants[variant], array.recode(variant)
    if spec.dtype.kind == "T":
        return True
    value = np.frombuffer((spec.fill or b"").ljust(spec.dtype.itemsize, b"\0"), spec.dtype, 1).astype(spec.native_dtype)
    try:
        value = value if recode is None else recode.apply(value)
    except DecodeError:  # it has no place there: where such a chunk is read, that is said with its granule
        return False
    return value.astype(layout.stored_dtype).tobytes() == layout.fill

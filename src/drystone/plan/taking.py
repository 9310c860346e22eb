"""Places of an array taken by moving placements, so that granules' chunks stay what they are.

A run of neighbours clips placements. Runs of whole chunks are placed anew, each place by itself where a chunk has one
element along the axis. Where one such place is taken and the axis goes, its chunks are the only ones whose rows count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.array import ArraySpec
from drystone.model.placement import CombinedArray, Placements, Tile
from drystone.plan.joined import joined_grid

__all__ = ["cropped", "dropped", "regridded", "spread"]

_MOST_PLACEMENTS = 1_000_000
_MOST_TILES = 1_000  # reads go tile by tile


def cropped(array: CombinedArray, d: int, start: int, stop: int) -> CombinedArray:
    """Placements clipped to a run of places of one axis."""
    p = array.placements
    shape = tuple(stop - start if i == d else n for i, n in enumerate(array.shape))
    if d == p.axis:
        first, last = np.maximum(p.dest, start), np.minimum(p.dest + p.count, stop)
        keep = first < last
        shift = (first - p.dest)[keep]
        placements = Placements(
            p.axis, p.granule_id[keep], p.src_offset[keep] + shift, (last - first)[keep], first[keep] - start, p.variant[keep],
            p.tiles, p.tile[keep] if len(p.tile) else p.tile,
        )  # fmt: skip
        return replace(array, shape=shape, placements=placements)
    tiles, kept = [], []
    for number, tile in enumerate(p.tiles or (_whole_tile(array),)):
        begin, end = max(tile.dest[d], start), min(tile.dest[d] + tile.count[d], stop)
        if begin < end:
            kept.append(number)
            tiles.append(_set(tile, d, tile.src_offset[d] + begin - tile.dest[d], end - begin, begin - start))
    numbers = p.tile if len(p.tile) else np.zeros(len(p), np.int32)
    rows = np.flatnonzero(np.isin(numbers, kept))
    new = np.searchsorted(np.array(kept), numbers[rows]).astype(np.int32)
    placements = Placements(
        p.axis, p.granule_id[rows], p.src_offset[rows], p.count[rows], p.dest[rows], p.variant[rows], tuple(tiles), new
    )
    return replace(array, shape=shape, placements=placements)


def _set(tile: Tile, d: int, src: int, count: int, dest: int) -> Tile:
    def put(values: tuple[int, ...], value: int) -> tuple[int, ...]:
        return (*values[:d], value, *values[d + 1 :])

    return Tile(put(tile.src_offset, src), put(tile.count, count), put(tile.dest, dest))


def spread(array: CombinedArray, d: int, places: NDArray[np.int64]) -> CombinedArray | None:
    """Places of one axis in runs of whole chunks; None where a run begins or ends inside one, or there are too many."""
    p = array.placements
    if not len(places) or not array.variants:
        return None
    at = np.concatenate([[0], np.flatnonzero(np.diff(places) != 1) + 1])
    runs = _Runs(places[at], places[at] + np.diff(np.append(at, len(places))), at)
    shape = tuple(len(places) if i == d else n for i, n in enumerate(array.shape))
    placements = _along_lead(array, runs) if d == p.axis else _along_tiles(array, d, runs)
    return None if placements is None else replace(array, shape=shape, placements=placements)


@dataclass(frozen=True, slots=True)
class _Runs:
    """Runs of neighbours among the places taken of an axis, and where each lands."""

    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    dest: NDArray[np.int64]


def _along_lead(array: CombinedArray, runs: _Runs) -> Placements | None:
    p = array.placements
    assert p.axis is not None
    rows, which = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for number in range(max(1, len(p.tiles))):
        mine = p.tile_rows(number)
        low = np.searchsorted(p.dest[mine] + p.count[mine], runs.start, side="right")
        n = np.maximum(np.searchsorted(p.dest[mine], runs.stop, side="left") - low, 0)
        if n.sum() > _MOST_PLACEMENTS:
            return None
        run = np.repeat(np.arange(len(n)), n)
        rows.append(mine.start + low[run] + np.arange(len(run)) - np.repeat(np.cumsum(n) - n, n))
        which.append(run)
    row, run = np.concatenate(rows), np.concatenate(which)
    first = np.maximum(p.dest[row], runs.start[run])
    count = np.minimum(p.dest[row] + p.count[row], runs.stop[run]) - first
    row, run, first, count = (column[count > 0] for column in (row, run, first, count))
    src = p.src_offset[row] + first - p.dest[row]
    if len(row) > _MOST_PLACEMENTS or not _whole_chunks(array, p.axis, p.variant[row], src, count):
        return None
    dest, tile = runs.dest[run] + first - runs.start[run], p.tile[row] if len(p.tile) else p.tile
    return Placements(p.axis, p.granule_id[row], src, count, dest, p.variant[row], p.tiles, tile)


def _along_tiles(array: CombinedArray, d: int, runs: _Runs) -> Placements | None:
    p = array.placements
    parts, tiles = [], []
    for number, t in enumerate(p.tiles or (_whole_tile(array),)):
        first = np.maximum(t.dest[d], runs.start)
        count = np.minimum(t.dest[d] + t.count[d], runs.stop) - first
        rows = p.tile_rows(number)
        for k in np.flatnonzero(count > 0).tolist():
            src = t.src_offset[d] + int(first[k]) - t.dest[d]
            variants = np.unique(p.variant[rows])
            if not _whole_chunks(array, d, variants, np.full(len(variants), src), np.full(len(variants), count[k])):
                return None
            parts.append(np.arange(rows.start, rows.stop))
            tiles.append(_set(t, d, src, int(count[k]), int(runs.dest[k] + first[k] - runs.start[k])))
        if len(tiles) > _MOST_TILES or len(p) * len(tiles) > _MOST_PLACEMENTS:
            return None
    row = np.concatenate([np.zeros(0, np.intp), *parts])
    tile = np.repeat(np.arange(len(parts), dtype=np.int32), [len(part) for part in parts])
    return Placements(
        p.axis, p.granule_id[row], p.src_offset[row], p.count[row], p.dest[row], p.variant[row], tuple(tiles), tile
    )


def _whole_chunks(
    array: CombinedArray, d: int, variant: NDArray[np.int32], src: NDArray[np.int64], count: NDArray[np.int64]
) -> bool:
    """Whether parts of granules along an axis begin and end where chunks do."""
    edge = np.array([v.chunk_shape[d] for v in array.variants], np.int64)[variant]
    have = np.array([v.shape[d] for v in array.variants], np.int64)[variant]
    stop = src + count
    return not np.any((src % edge != 0) | ((stop % edge != 0) & (stop != have)))


def dropped(array: CombinedArray, d: int, place: int) -> CombinedArray | None:
    """One place of an axis, which goes, where a chunk has one element there and all granules the same place; else None."""
    if not _one_by_one(array, d):
        return None
    array = array if array.shape[d] == 1 else cropped(array, d, place, place + 1)
    p = array.placements
    if not len(p):
        return None  # nobody holds it: there is no chunk to refer to
    if d == p.axis:
        sources = set(p.src_offset.tolist())
    else:
        sources = {t.src_offset[d] for t in p.tiles or (_whole_tile(array),)}
    if len(sources) > 1:
        return None
    zero = np.zeros(len(p), np.int64)
    lead = None if p.axis is None or p.axis == d else p.axis - (p.axis > d)
    columns = (zero, zero + 1, zero) if lead is None else (p.src_offset, p.count, p.dest)
    tiles = tuple(Tile(_less(t.src_offset, d), _less(t.count, d), _less(t.dest, d)) for t in p.tiles)
    shape, variants = _less(array.shape, d), tuple(_without(v, d) for v in array.variants)
    if len(tiles) == 1 and all(_is_whole(tiles[0], v.shape, shape, lead) for v in variants):
        tiles = ()
    own = d - sum(n < d for n in array.new_axes)
    for axis, _ in sorted(array.fixed):
        own += axis <= own
    new = d in array.new_axes
    return replace(
        array,
        dims=_less(array.dims, d),
        shape=shape,
        grid=ChunkGrid(_less(array.grid.dimensions, d)),
        placements=Placements(lead, p.granule_id, *columns, p.variant, tiles, p.tile if tiles else p.tile[:0]),
        variants=variants,
        source=array.inner,
        new_axes=tuple(n - (n > d) for n in array.new_axes if n != d),
        fixed=array.fixed if new else tuple(sorted((*array.fixed, (own, int(sources.pop()))))),
    )


def _one_by_one(array: CombinedArray, d: int) -> bool:
    return bool(array.variants) and all(v.chunk_shape[d] == 1 for v in array.variants)


def _whole_tile(array: CombinedArray) -> Tile:
    rank, lead = len(array.shape), array.placements.axis
    return Tile((0,) * rank, tuple(0 if i == lead else n for i, n in enumerate(array.shape)), (0,) * rank)


def _is_whole(tile: Tile, have: tuple[int, ...], shape: tuple[int, ...], lead: int | None) -> bool:
    """Whether a tile is all of a granule and of the array, off the lead axis."""
    axes = [d for d in range(len(shape)) if d != lead]
    return all(tile.src_offset[d] == tile.dest[d] == 0 and tile.count[d] == have[d] == shape[d] for d in axes)


def _less[T](values: tuple[T, ...], d: int) -> tuple[T, ...]:
    return (*values[:d], *values[d + 1 :])


def _without(spec: ArraySpec, d: int) -> ArraySpec:
    return replace(
        spec, dims=_less(spec.dims, d), shape=_less(spec.shape, d), chunk_shape=_less(spec.chunk_shape, d),
        unlimited=_less(spec.unlimited, d),
    )  # fmt: skip


def regridded(array: CombinedArray, names: Mapping[int, str], storage: str | None) -> CombinedArray:
    """The array on the grid that its chunks make where they are placed now; ``storage`` says why no grid would do, if so."""
    grid, unaligned = joined_grid(array.path, array.dims, array.shape, array.placements, array.variants, names)
    return replace(array, grid=grid, unaligned=storage or unaligned)

"""Places of an array taken by moving placements, so that granules' chunks stay what they are.

A run of neighbours clips placements. Where a chunk has one element along an axis, any places do: each is a chunk of its
own, which is placed anew or, where one place is taken and the axis goes, the only one whose rows count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

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
    """The places of one axis where each is a chunk of its own; None where it is not, or they are too many."""
    p = array.placements
    if not len(places) or not _one_by_one(array, d) or len(p) * len(places) > _MOST_PLACEMENTS:
        return None
    shape = tuple(len(places) if i == d else n for i, n in enumerate(array.shape))
    tiles = p.tiles or (_whole_tile(array),)
    if d == p.axis:
        rows, at = [np.zeros(0, np.intp)], [np.zeros(0, np.int64)]
        for number in range(len(tiles)):
            mine = p.tile_rows(number)
            row = mine.start + np.searchsorted(p.dest[mine] + p.count[mine], places, side="right")
            held = np.flatnonzero(row < mine.stop)
            held = held[p.dest[row[held]] <= places[held]]
            rows.append(row[held])
            at.append(held)
        row, new = np.concatenate(rows), np.concatenate(at).astype(np.int64)
        src = p.src_offset[row] + places[new] - p.dest[row]
        placements = Placements(
            d,
            p.granule_id[row],
            src,
            np.ones(len(row), np.int64),
            new,
            p.variant[row],
            p.tiles,
            p.tile[row] if len(p.tile) else p.tile,
        )
        return replace(array, shape=shape, placements=placements)
    wanted = [
        (number, _set(t, d, t.src_offset[d] + place - t.dest[d], 1, k))
        for number, t in enumerate(tiles)
        for k, place in enumerate(places.tolist())
        if t.dest[d] <= place < t.dest[d] + t.count[d]
    ]
    if len(wanted) > _MOST_TILES:
        return None
    parts = [np.arange(p.tile_rows(n).start, p.tile_rows(n).stop) for n, _ in wanted]
    row = np.concatenate([np.zeros(0, np.intp), *parts])
    tile = np.repeat(np.arange(len(parts), dtype=np.int32), [len(part) for part in parts])
    placements = Placements(
        p.axis,
        p.granule_id[row],
        p.src_offset[row],
        p.count[row],
        p.dest[row],
        p.variant[row],
        tuple(t for _, t in wanted),
        tile,
    )
    return replace(array, shape=shape, placements=placements)


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

"""The chunk grid of a joined array, and whether it is a Zarr grid.

Along every joined axis the granules' own chunk edges are laid side by side. They are a regular grid where all are multiples
of one size, a rectilinear one where at least no granule's chunk is cut by another's edge and none decodes to more than it
holds, and else the reason why not, with the granule and the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import DimensionGrid, RectilinearDimension, RegularDimension
from drystone.model.array import ArraySpec
from drystone.model.placement import Placements

__all__ = ["joined_grid"]

type Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Runs:
    """What granules hold along one axis, as columns: where, from where, in chunks of which edge, stored full or short."""

    dest: Int64
    count: Int64
    src: Int64
    edge: Int64
    have: Int64
    padded: NDArray[np.bool_]
    row: NDArray[np.intp]


def joined_grid(
    path: str,
    dims: tuple[str, ...],
    shape: tuple[int, ...],
    placements: Placements,
    variants: tuple[ArraySpec, ...],
    names: Mapping[int, str],
) -> tuple[ChunkGrid, str | None]:
    """The chunks of the whole, and why no Zarr grid holds the granules' chunks as they are, if so."""
    base = variants[int(placements.variant[0]) if len(placements) else 0]
    out: list[DimensionGrid] = []
    reason: str | None = None
    for d, extent in enumerate(shape):
        if d != placements.axis and (
            not placements.tiles or all(t.count[d] == base.shape[d] == extent for t in placements.tiles)
        ):
            out.append(RegularDimension(extent, base.chunk_shape[d]))
            continue
        runs = _runs(placements, variants, d)
        size = _regular(runs, extent)
        if size is not None:
            out.append(RegularDimension(extent, size))
            continue
        dimension, bad = _rectilinear(runs, extent)
        out.append(dimension)
        if bad is not None and reason is None:
            name = names[int(placements.granule_id[runs.row[bad]])]
            reason = (
                f"{path}: {name} lands at {dims[d]} = {runs.dest[bad]} with {runs.count[bad]} elements in chunks of "
                f"{runs.edge[bad]}, off the grid of {int(runs.edge[0])} that the first granule sets, so its bytes are no whole "
                "chunks of one Zarr array; publish it as a store (rechunk)"
            )
    return ChunkGrid(tuple(out)), reason


def _runs(p: Placements, variants: tuple[ArraySpec, ...], d: int) -> _Runs:
    """The distinct runs along an axis, by ``dest``."""
    edge = np.array([v.chunk_shape[d] for v in variants], np.int64)[p.variant]
    have = np.array([v.shape[d] for v in variants], np.int64)[p.variant]
    padded = np.array([v.padded for v in variants], np.bool_)[p.variant]
    if d == p.axis:
        dest, count, src = p.dest, p.count, p.src_offset
    else:
        columns = np.array([(t.dest[d], t.count[d], t.src_offset[d]) for t in p.tiles], np.int64)
        dest, count, src = columns[p.tile if len(p.tile) else np.zeros(len(p), np.intp)].T
    rows = np.arange(len(dest))
    if p.tiles:  # many tiles repeat the same runs
        keys = np.stack([dest, count, src, edge, have, padded.astype(np.int64)], axis=1)
        rows = np.unique(keys, axis=0, return_index=True)[1]
    rows = rows[count[rows] > 0]
    rows = rows[np.argsort(dest[rows], kind="stable")]
    return _Runs(dest[rows], count[rows], src[rows], edge[rows], have[rows], padded[rows], rows)


def _regular(runs: _Runs, extent: int) -> int | None:
    """The one chunk size of an axis, or None."""
    if not len(runs.dest):
        return max(extent, 1)
    size = int(runs.edge[0])
    ends = runs.src + runs.count
    # stored full, a chunk may hang over the end of the whole; anywhere else a run ends with a whole chunk
    last = (runs.dest + runs.count == extent) & (runs.padded | (-(-ends // size) * size <= runs.have))
    good = (runs.edge == size) & (runs.dest % size == 0) & (runs.src % size == 0)
    good &= (ends % size == 0) | last
    return size if good.all() else None


def _rectilinear(runs: _Runs, extent: int) -> tuple[DimensionGrid, int | None]:
    """Every edge that a granule or one of its chunks has, and the first run that does not fit the grid of them."""
    first, last = runs.src // runs.edge, -(-(runs.src + runs.count) // runs.edge)
    n = last - first
    which = np.repeat(np.arange(len(n)), n)
    number = first[which] + np.arange(len(which)) - np.repeat(np.cumsum(n) - n, n)
    shift = (runs.dest - runs.src)[which]
    begin = np.maximum(number * runs.edge[which], runs.src[which]) + shift
    end = np.minimum((number + 1) * runs.edge[which], (runs.src + runs.count)[which]) + shift
    whole = np.minimum((number + 1) * runs.edge[which], runs.have[which]) - number * runs.edge[which]
    decodes = np.where(runs.padded[which], runs.edge[which], whole)
    edges = np.unique(np.concatenate([[0, extent], begin, end]))
    sizes = np.diff(edges)
    at = np.searchsorted(edges, begin)
    encoded = sizes.copy()
    np.maximum.at(encoded, at, decodes)
    # a chunk is cut by another's edge, or a run takes a part of it, or its bytes decode to more than it holds
    cut = edges[at + 1] != end
    cut |= (decodes != end - begin) & ~((end == extent) & (decodes >= end - begin))
    cut |= number * runs.edge[which] + shift != begin
    dimension = RectilinearDimension(tuple(sizes.tolist()), None if (encoded == sizes).all() else tuple(encoded.tolist()))
    bad = np.flatnonzero(cut)
    if len(bad):
        return dimension, int(which[bad[0]])
    # one edge for all but the last would have been regular; an overhang at the end needs no more than the grid says
    return dimension, None

"""Padded chunks in the middle of an axis: the grid that the codec ``drystone.crop`` makes of them.

HDF5 stores the last chunk of a file at full size, whatever of it exists. Joined with the next file it lies in the middle
of the whole, where Zarr has no word for "64 rows of which 24 count". The codec has: it decodes a block and keeps its
first rows. So the whole gets the grid of what counts, and each chunk is stored as a block of the source's chunk shape.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import DimensionGrid, RectilinearDimension, RegularDimension
from drystone.model.placement import CombinedArray

__all__ = ["crop_block", "crop_grid", "cropped"]

type Int64 = NDArray[np.int64]


def crop_block(array: CombinedArray) -> tuple[int, ...] | None:
    """The one shape that every stored chunk of the array has and the codec crops, or None where there is no such shape.

    All granules that count must be padded, of one chunk shape, decode alike and need no rewriting.
    """
    p = array.placements
    used = np.unique(p.variant if p.axis is None else p.variant[p.count > 0]).tolist()
    if not used:
        return None
    block: tuple[int, ...] = array.variants[used[0]].chunk_shape
    for i in used:
        v = array.variants[i]
        full = v.padded or all(n % c == 0 for n, c in zip(v.shape, v.chunk_shape, strict=True))
        if (
            v.chunk_shape != block
            or not full
            or array.recode(i) is not None
            or v.dtype != array.stored_dtype
            or v.dtype.kind == "T"
            or v.codecs.signature() != array.codecs.signature()
            or not array.fills_as(v)
        ):
            return None
    return block


def crop_grid(array: CombinedArray) -> ChunkGrid | None:
    """The grid whose chunks are what counts of each block (``encoded`` sizes are the block's); None where there is none.

    None too where no chunk needs to be cropped: at the end of an axis a padded chunk is what Zarr wants.

    The grid is regular where the lengths allow (files of 24 steps in chunks of 100), although its stored chunks are larger
    than its chunk shape; ``encoded`` tells the two apart.
    """
    if array.unaligned is None or not len(array.placements):
        return None
    block = crop_block(array)
    if block is None:
        return None
    dims: list[DimensionGrid] = []
    cropping = False
    for d, edge in enumerate(block):
        sizes = _sizes(array, d, edge)
        if sizes is None:
            return None
        if np.all(sizes[:-1] == edge):
            dims.append(RegularDimension(array.shape[d], edge))
        else:
            cropping = True
            dims.append(RectilinearDimension(tuple(sizes.tolist()), (edge,) * len(sizes)))
    return ChunkGrid(tuple(dims)) if cropping else None


def cropped(array: CombinedArray) -> CombinedArray | None:
    """The array on its crop grid, or None where it has none."""
    if array.picked is not None:  # its chunks are another array's
        return None
    grid = crop_grid(array)
    return None if grid is None else replace(array, grid=grid, unaligned=None)


def _sizes(array: CombinedArray, d: int, edge: int) -> Int64 | None:
    """Chunks of the whole along an axis, from every placement's; None where placements disagree or start inside a block."""
    p, extent = array.placements, array.shape[d]
    if d == p.axis:
        held = p.count > 0
        columns = p.src_offset[held], p.count[held], p.dest[held]
    elif p.tiles:
        rows = np.array([(t.src_offset[d], t.count[d], t.dest[d]) for t in p.tiles], np.int64)
        columns = rows[:, 0], rows[:, 1], rows[:, 2]
    else:
        columns = np.zeros(1, np.int64), np.full(1, extent, np.int64), np.zeros(1, np.int64)
    src, count, dest = columns
    if extent == 0:
        return np.zeros(0, np.int64)
    if np.any(src % edge):
        return None
    n = -(-count // edge)
    which = np.repeat(np.arange(len(n)), n)
    local = (np.arange(len(which)) - np.repeat(np.cumsum(n) - n, n)) * edge
    starts = dest[which] + local
    stops = np.minimum(starts + edge, dest[which] + count[which])
    edges = np.unique(np.concatenate([[0, extent], starts, stops]))
    # every chunk of every placement must be one interval between neighbouring edges
    if np.any(np.searchsorted(edges, stops) - np.searchsorted(edges, starts) != 1):
        return None
    pieces: list[Int64] = []
    for size in np.diff(edges).tolist():
        whole, rest = divmod(size, edge)  # a gap is cut into blocks as well
        pieces.append(np.array([edge] * whole + [rest] * (rest > 0), np.int64))
    return np.concatenate(pieces)

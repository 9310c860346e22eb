"""Boxes that partition an array, an axis at a time: how large the largest is, and what two partitions have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import DimensionGrid, RectilinearDimension, RegularDimension

__all__ = ["TASK_BYTES", "bounds", "common", "largest", "most", "overlaps", "packed", "stepped", "touched"]

# raw bytes of a region that is worth a task: below, the cost of a message and a receipt shows; above, a death costs more
TASK_BYTES = 512_000_000

type Int64 = NDArray[np.int64]


def largest(dimension: DimensionGrid) -> int:
    """Elements of the largest chunk along an axis."""
    return dimension.size if isinstance(dimension, RegularDimension) else max(dimension.sizes, default=1)


def most(regions: Sequence[DimensionGrid]) -> int:
    """Elements of the largest region."""
    return math.prod(min(largest(d), max(d.extent, 1)) for d in regions)


def overlaps(dimension: DimensionGrid, regions: DimensionGrid) -> int:
    """Pairs of a region and a chunk that share elements, along one axis.

    Examples
    --------
    >>> overlaps(RegularDimension(10, 5), RegularDimension(10, 4))
    4
    """
    inner = max(0, regions.n_chunks - 1)  # region edges inside the axis
    if isinstance(dimension, RegularDimension) and isinstance(regions, RegularDimension):
        on_edge = inner // (math.lcm(regions.size, dimension.size) // regions.size)
    else:
        on_edge = int(dimension.is_edge(regions.edges()[1:-1]).sum()) if inner else 0
    return dimension.n_chunks + inner - on_edge


def bounds(grid: ChunkGrid, index: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """First and one-past-last element of a box, per axis; boxes are numbered in C order.

    Examples
    --------
    >>> bounds(ChunkGrid.regular((10, 7), (8, 4)), 3)
    ((8, 4), (10, 7))
    """
    at = [int(i) for i in np.unravel_index(index, grid.grid_shape)] if grid.dimensions else []
    axes = list(zip(grid.dimensions, at, strict=True))
    start = tuple(d.chunk_offset(i) for d, i in axes)
    return start, tuple(a + d.data_size(i) for a, (d, i) in zip(start, axes, strict=True))


def touched(grid: ChunkGrid, start: Sequence[int], stop: Sequence[int]) -> tuple[range, ...]:
    """Along each axis the numbers of the boxes that share elements with a box that is not empty.

    Examples
    --------
    >>> touched(ChunkGrid.regular((10, 7), (8, 4)), (7, 0), (9, 4))
    (range(0, 2), range(0, 1))
    """
    axes = zip(start, stop, grid.dimensions, strict=True)
    return tuple(range(d.index_to_chunk(a), d.index_to_chunk(b - 1) + 1) for a, b, d in axes)


def stepped(regions: Sequence[DimensionGrid], axis: int, step: int) -> tuple[DimensionGrid, ...]:
    """Regions cut into steps along one axis."""
    d = regions[axis]
    if isinstance(d, RegularDimension) and d.size % step == 0:
        return (*regions[:axis], RegularDimension(d.extent, step), *regions[axis + 1 :])
    sizes = [min(step, n - at) for n in np.diff(d.edges()).tolist() for at in range(0, n, step)]
    return (*regions[:axis], RectilinearDimension(tuple(sizes)), *regions[axis + 1 :])


def common(one: DimensionGrid, other: DimensionGrid) -> DimensionGrid:
    """The partition whose edges are edges of both.

    Examples
    --------
    >>> common(RegularDimension(24, 4), RegularDimension(24, 6))
    RegularDimension(extent=24, size=12)
    """
    if isinstance(one, RegularDimension) and isinstance(other, RegularDimension):
        return RegularDimension(one.extent, max(1, min(math.lcm(one.size, other.size), one.extent)))
    edges = one.edges()
    return _of_edges(edges[other.is_edge(edges)])


def packed(dimension: DimensionGrid, size: int, preferred: DimensionGrid) -> DimensionGrid:
    """Neighbouring chunks put together to at most ``size`` elements, ending on edges of another partition where some are near.

    Examples
    --------
    >>> months = RectilinearDimension((31, 28, 31, 30, 31, 30))
    >>> packed(months, 70, RegularDimension(181, 181)).sizes
    (59, 61, 61)
    >>> packed(RegularDimension(24, 1), 9, RegularDimension(24, 8))
    RegularDimension(extent=24, size=8)
    """
    if size >= dimension.extent:
        return RegularDimension(dimension.extent, max(dimension.extent, 1))
    if isinstance(dimension, RegularDimension) and isinstance(preferred, RegularDimension):
        whole = math.lcm(dimension.size, preferred.size)
        if whole <= size:
            return RegularDimension(dimension.extent, size // whole * whole)
        if whole == preferred.size:  # equal parts of each, where a few more than needed make them so
            units, n = whole // dimension.size, -(-whole // (size // dimension.size * dimension.size))
            parts = next((k for k in range(n, n + n // 4 + 1) if units % k == 0), None)
            if parts is not None:
                return RegularDimension(dimension.extent, whole // parts)
        elif whole > dimension.extent:
            return RegularDimension(dimension.extent, max(1, size // dimension.size) * dimension.size)
    edges = dimension.edges()
    liked = edges[preferred.is_edge(edges)]
    out = [0]
    while out[-1] < dimension.extent:
        reach = out[-1] + size
        near = int(liked[np.searchsorted(liked, reach, "right") - 1])
        if near <= out[-1]:
            at = max(int(np.searchsorted(edges, reach, "right")) - 1, int(np.searchsorted(edges, out[-1], "right")))
            near = int(edges[at])
        out.append(near)
    return _of_edges(np.array(out, np.int64))


def _of_edges(edges: Int64) -> DimensionGrid:
    sizes = np.diff(edges)
    if not len(sizes):
        return RegularDimension(int(edges[-1]) if len(edges) else 0, 1)
    if (sizes[:-1] == sizes[0]).all() and sizes[-1] <= sizes[0]:
        return RegularDimension(int(edges[-1]), int(sizes[0]))
    return RectilinearDimension(tuple(sizes.tolist()))

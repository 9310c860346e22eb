"""What a read will cost, on the grid that is and on the one that is planned.

A :class:`~drystone.model.options.ReadPattern` is a box of given sizes at any position. Per axis the mean number of chunks
that a run of ``k`` elements touches over all positions is exact, from the axis' edges; over axes the product is exact too,
since positions along axes are independent. Bytes come from means, requests assume what our reader and zarr's do: one for
an unsharded chunk; in a shard one for its index and one for the inner chunks wanted of it (they lie near one another and are
fetched together).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import DimensionGrid, RectilinearDimension, RegularDimension
from drystone.model.options import ReadPattern
from drystone.model.placement import CombinedArray
from drystone.plan.layout import TargetLayout

__all__ = ["ReadCost", "read_cost", "read_costs"]


@dataclass(frozen=True, slots=True)
class ReadCost:
    """Means over all positions of a read.

    Parameters
    ----------
    name
        Of the pattern.
    wanted
        Raw bytes asked for.
    chunks
        Chunks decoded.
    objects
        Files, shards or chunk objects opened.
    requests
        Requests to storage.
    fetched, decoded
        Bytes, encoded and raw.
    """

    name: str
    wanted: int
    chunks: float
    objects: float
    requests: float
    fetched: float
    decoded: float

    @property
    def amplification(self) -> float:
        """Raw bytes decoded for each byte wanted."""
        return self.decoded / self.wanted if self.wanted else 1.0


def mean_touched(dimension: DimensionGrid, size: int) -> float:
    """Mean number of chunks that ``size`` neighbouring elements touch, over all positions.

    Examples
    --------
    >>> mean_touched(RegularDimension(100, 10), 1), mean_touched(RegularDimension(100, 10), 100)
    (1.0, 10.0)
    """
    n = dimension.extent
    size = min(size, n)
    if size <= 0:
        return 0.0
    positions = n - size + 1
    # an inner edge e is crossed by the runs that start in e-size+1 .. e-1
    if isinstance(dimension, RegularDimension) and dimension.n_chunks > 1_000_000:
        return 1.0 + (size - 1) / dimension.size  # so many edges that the ends do not matter
    edges = dimension.edges()[1:-1]
    low = np.maximum(edges - size + 1, 0)
    high = np.minimum(edges - 1, positions - 1)
    return 1.0 + float(np.maximum(high - low + 1, 0).sum()) / positions


def _touched(grid: ChunkGrid, sizes: Sequence[int]) -> float:
    return math.prod(mean_touched(d, k) for d, k in zip(grid.dimensions, sizes, strict=True))


def _decoded_cells(grid: ChunkGrid) -> float:
    """Mean elements that a chunk decodes to."""
    cells = 1.0
    for d in grid.dimensions:
        sizes = d.encoded_sizes(np.arange(min(d.n_chunks, 1_000_000)))
        cells *= float(sizes.mean()) if len(sizes) else 1.0
    return cells


def read_cost(
    pattern: ReadPattern,
    dims: Sequence[str],
    grid: ChunkGrid,
    itemsize: int,
    *,
    ratio: float = 1.0,
    objects: ChunkGrid | None = None,
    sharded: bool = False,
    stored: int | None = None,
) -> ReadCost:
    """The cost of one pattern on one grid.

    Parameters
    ----------
    pattern
        Sizes by dimension; dimensions that it leaves out are read whole.
    dims, grid, itemsize
        Of the array: names, chunks, bytes an element.
    ratio
        Raw bytes for each encoded byte.
    objects
        Grid of files or shards; None where each chunk is an object.
    sharded
        Whether an index is read first in each object.
    stored
        Bytes an element as it is stored, where numbers are recoded on their way; None: ``itemsize``.

    Examples
    --------
    >>> g = ChunkGrid.regular((200, 720, 1440), (1, 720, 1440))
    >>> c = read_cost(ReadPattern("point series", {"lat": 1, "lon": 1}), ("time", "lat", "lon"), g, 2)
    >>> c.wanted, c.chunks, c.amplification
    (400, 200.0, 1036800.0)
    """
    sizes = [min(pattern.sizes.get(name, n), n) for name, n in zip(dims, grid.shape, strict=True)]
    chunks = _touched(grid, sizes)
    opened = chunks if objects is None else _touched(objects, sizes)
    decoded = chunks * _decoded_cells(grid) * (itemsize if stored is None else stored)
    requests = 2 * opened if sharded else chunks
    return ReadCost(pattern.name, math.prod(sizes) * itemsize, chunks, opened, requests, decoded / ratio, decoded)


def read_costs(
    array: CombinedArray,
    layout: TargetLayout,
    patterns: Sequence[ReadPattern],
    *,
    source_ratio: float = 1.0,
    target_ratio: float | None = None,
) -> list[tuple[ReadCost, ReadCost]]:
    """Source and target cost of each pattern.

    Parameters
    ----------
    array, layout
        What is and what is planned.
    patterns
        From the config's ``reads:``.
    source_ratio, target_ratio
        Raw bytes for each encoded byte; the target's is taken as the source's where it is not known yet.
    """
    target = source_ratio if target_ratio is None else target_ratio
    files = _granule_grid(array)
    shards = None if layout.shard is None else layout.cells
    itemsize = array.dtype.itemsize
    stored = max((v.dtype.itemsize for v in array.variants), default=itemsize)
    out = []
    for pattern in patterns:
        before = read_cost(pattern, array.dims, array.grid, itemsize, ratio=source_ratio, objects=files, stored=stored)
        after = read_cost(
            pattern,
            layout.dims,
            layout.chunk_grid,
            itemsize,
            ratio=target,
            objects=shards,
            sharded=layout.shard is not None,
        )
        out.append((before, after))
    return out


def _granule_grid(array: CombinedArray) -> ChunkGrid:
    """Granules as a grid: one piece for each placement along the combine axis and each tile along the others."""
    p = array.placements
    dims: list[DimensionGrid] = []
    for axis, n in enumerate(array.shape):
        if axis == p.axis:
            dims.append(_pieces(p.dest[p.count > 0], n))
        else:
            dims.append(_pieces(np.array([t.dest[axis] for t in p.tiles if t.count[axis]], np.int64), n))
    return ChunkGrid(tuple(dims))


def _pieces(starts: NDArray[np.int64], n: int) -> DimensionGrid:
    """Pieces along an axis; a gap belongs to the piece before it, since reading it opens no more files."""
    if not len(starts) or not n:
        return RegularDimension(n, max(n, 1))
    edges = np.append(np.unique(starts), n)
    edges[0] = 0
    sizes = np.diff(edges)
    same = (sizes[:-1] == sizes[0]).all() and sizes[-1] <= sizes[0]
    return RegularDimension(n, int(sizes[0])) if same else RectilinearDimension(tuple(sizes.tolist()))

"""What a read costs, on the grid that is and on the one that is planned.

A :class:`~drystone.model.options.ReadPattern` is a box of given sizes at any place, or at a fixed one. Where the rows of an
array are known, costs are counted at some places, spread evenly: on the source by going through the reader's own steps, on
the target from the chunks that will exist (:mod:`~drystone.plan.occupied`). Where they are too many, costs come from the
grids alone, as if every chunk were stored: per axis the mean number of chunks that a run of ``k`` elements touches over all
places is exact, and so is the product, since places along axes are independent.

Readers are taken to decode whole chunks.
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
from drystone.plan.occupied import Asked, TargetGrid
from drystone.plan.reach import AxisRead, axis_reads, n_places

__all__ = ["ReadCost", "by_grids", "counted_cost", "decoded_cells", "granule_grid", "read_cost", "stored_itemsize"]

_ALL_STORED = "every chunk is taken to be stored"


@dataclass(frozen=True, slots=True)
class ReadCost:
    """Means over places of a read.

    Parameters
    ----------
    name
        Of the pattern.
    wanted
        Raw bytes asked for, as elements are stored.
    chunks
        Chunks that hold what is wanted, stored or not.
    stored
        Those that exist.
    objects
        Files, shards or chunk objects opened.
    requests
        Requests to storage that give bytes.
    probes
        Requests that give none: whether files are what they were, and what turns out not to be there.
    fetched, decoded
        Bytes, encoded and raw.
    counted, places
        How many places the means are over, of how many that there are.
    note
        What is taken to be so.
    """

    name: str
    wanted: int
    chunks: float
    stored: float
    objects: float
    requests: float
    probes: float
    fetched: float
    decoded: float
    counted: int = 1
    places: int = 1
    note: str = ""

    @property
    def amplification(self) -> float:
        """Elements decoded for each one wanted."""
        return self.decoded / self.wanted if self.wanted else 1.0


def mean_touched(dimension: DimensionGrid, size: int, at: int | None = None) -> float:
    """Mean number of chunks that ``size`` neighbouring elements touch, over all places, or at one.

    Examples
    --------
    >>> mean_touched(RegularDimension(100, 10), 1), mean_touched(RegularDimension(100, 10), 100)
    (1.0, 10.0)
    """
    n = dimension.extent
    size = min(size, n)
    if size <= 0:
        return 0.0
    if at is not None:
        first, last = dimension.indices_to_chunks(np.array([at, at + size - 1])).tolist()
        return float(last - first + 1)
    positions = n - size + 1
    # an inner edge e is crossed by the runs that start in e-size+1 .. e-1
    if isinstance(dimension, RegularDimension) and dimension.n_chunks > 1_000_000:
        return 1.0 + (size - 1) / dimension.size  # so many edges that the ends do not matter
    edges = dimension.edges()[1:-1]
    low = np.maximum(edges - size + 1, 0)
    high = np.minimum(edges - 1, positions - 1)
    return 1.0 + float(np.maximum(high - low + 1, 0).sum()) / positions


def _touched(grid: ChunkGrid, reads: Sequence[AxisRead]) -> float:
    axes = zip(grid.dimensions, reads, strict=True)
    return math.prod(mean_touched(d, r.size, r.low if r.count == 1 else None) for d, r in axes)


def decoded_cells(grid: ChunkGrid) -> float:
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
) -> ReadCost:
    """The cost of one pattern on one grid whose chunks are all stored.

    Parameters
    ----------
    pattern
        Sizes by dimension; dimensions that it leaves out are read whole.
    dims, grid, itemsize
        Of the array: names, chunks, bytes an element as it is stored.
    ratio
        Raw bytes for each encoded byte.
    objects
        Grid of files or shards; None where each chunk is an object.
    sharded
        Whether an index is read first in each object.

    Examples
    --------
    >>> g = ChunkGrid.regular((200, 720, 1440), (1, 720, 1440))
    >>> c = read_cost(ReadPattern("point series", {"lat": 1, "lon": 1}), ("time", "lat", "lon"), g, 2)
    >>> c.wanted, c.chunks, c.amplification
    (400, 200.0, 1036800.0)
    """
    reads = axis_reads("the array", pattern, dims, grid.shape)
    chunks = _touched(grid, reads)
    opened = chunks if objects is None else _touched(objects, reads)
    decoded = chunks * decoded_cells(grid) * itemsize
    requests = 2 * opened if sharded else chunks
    wanted, places = math.prod(r.size for r in reads) * itemsize, n_places(reads)
    return ReadCost(
        pattern.name, wanted, chunks, chunks, opened, requests, 0.0, decoded / ratio, decoded, places, places, _ALL_STORED
    )


def stored_itemsize(array: CombinedArray) -> int:
    """Bytes that an element has in granules."""
    return max((v.dtype.itemsize for v in array.variants), default=array.dtype.itemsize)


def by_grids(
    array: CombinedArray, target: TargetGrid, pattern: ReadPattern, source_ratio: float, target_ratio: float
) -> tuple[ReadCost, ReadCost]:
    """Source and target cost where every chunk is stored.

    Parameters
    ----------
    array, target
        What is and what is published, of the same dimensions.
    pattern
        From the config's ``reads:``.
    source_ratio, target_ratio
        Raw bytes for each encoded byte.
    """
    before = read_cost(pattern, array.dims, array.grid, stored_itemsize(array), ratio=source_ratio, objects=granule_grid(array))
    after = read_cost(
        pattern,
        array.dims,
        target.chunks,
        target.itemsize,
        ratio=target_ratio,
        objects=target.shards,
        sharded=target.shards is not None,
    )
    return before, after


def counted_cost(name: str, reads: Sequence[AxisRead], itemsize: int, asked: Sequence[Asked], note: str = "") -> ReadCost:
    """The mean of what a read asks at some of its places.

    Parameters
    ----------
    name, reads
        Of the pattern.
    itemsize
        Bytes an element as it is stored.
    asked
        For each place.
    note
        What is taken to be so.
    """
    columns = [(a.chunks, a.stored, a.objects, a.requests, a.probes, a.fetched, a.decoded) for a in asked]
    chunks, stored, objects, requests, probes, fetched, decoded = np.array(columns, np.float64).mean(axis=0).tolist()
    wanted, places = math.prod(r.size for r in reads) * itemsize, n_places(reads)
    return ReadCost(name, wanted, chunks, stored, objects, requests, probes, fetched, decoded, len(asked), places, note)


def granule_grid(array: CombinedArray) -> ChunkGrid:
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
    ordered = np.sort(starts, kind="stable")  # np.unique would hash a million of them in 2 s
    edges = np.append(ordered[np.diff(ordered, prepend=-1) > 0], n)
    edges[0] = 0
    sizes = np.diff(edges)
    same = (sizes[:-1] == sizes[0]).all() and sizes[-1] <= sizes[0]
    return RegularDimension(n, int(sizes[0])) if same else RectilinearDimension(tuple(sizes.tolist()))

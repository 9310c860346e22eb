"""What a read will cost, on the grid that is and on the one that is planned.

A :class:`~drystone.model.options.ReadPattern` is a box of given sizes at any position, or at a fixed one. Per axis the mean
number of chunks that a run of ``k`` elements touches over all positions is exact, from the axis' edges; over axes the
product is exact too, since positions along axes are independent. Where rows of the table are given, holes count: what is
missing has no bytes (:mod:`~drystone.plan.sourced`), and makes holes in the target (:mod:`~drystone.plan.occupied`).

Readers are taken to decode whole chunks. Requests are those of our reader on the source, which joins neighbours within a
granule, and of zarr-python on the target: one for a chunk; for a shard one for its index and one for each run of inner
chunks that lie near one another, or one in all where it is read whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import DimensionGrid, RectilinearDimension, RegularDimension
from drystone.model.chunk_rows import RowBatch
from drystone.model.options import ReadPattern
from drystone.model.placement import CombinedArray
from drystone.plan.layout import TargetLayout
from drystone.plan.occupied import OccupiedBuilder, TargetReads
from drystone.plan.reach import AxisRead, axis_reads
from drystone.plan.sourced import SourceReads, placed_chances, tally
from drystone.plan.stored import other_boxes

__all__ = ["ReadCost", "decoded_cells", "granule_grid", "read_cost", "read_costs"]


@dataclass(frozen=True, slots=True)
class ReadCost:
    """Means over all positions of a read.

    In bytes of ``stored`` chunks alone: what is missing costs none.

    Parameters
    ----------
    name
        Of the pattern.
    wanted
        Raw bytes asked for.
    chunks
        Chunks that hold what is wanted, stored or not.
    objects
        Files, shards or chunk objects they belong to.
    requests
        Requests to storage that give bytes.
    fetched, decoded
        Bytes, encoded and raw.
    stored
        Chunks that exist, and are decoded; None: as many as ``chunks``.
    misses
        Requests for what is not there: readers of Zarr find out by asking.
    note
        What was not predicted, or is taken to be so.
    """

    name: str
    wanted: int
    chunks: float
    objects: float
    requests: float
    fetched: float
    decoded: float
    stored: float | None = None
    misses: float = 0.0
    note: str = ""

    @property
    def present(self) -> float:
        """Chunks that exist."""
        return self.chunks if self.stored is None else self.stored

    @property
    def amplification(self) -> float:
        """Raw bytes decoded for each byte wanted."""
        return self.decoded / self.wanted if self.wanted else 1.0


def mean_touched(dimension: DimensionGrid, size: int, at: int | None = None) -> float:
    """Mean number of chunks that ``size`` neighbouring elements touch, over all positions, or at one.

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


def _touched(grid: ChunkGrid, reads: Sequence[AxisRead], fixed: Sequence[bool]) -> float:
    axes = zip(grid.dimensions, reads, fixed, strict=True)
    return math.prod(mean_touched(d, r.size, r.low if at else None) for d, r, at in axes)


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
    reads = axis_reads("the array", pattern, dims, grid.shape)
    fixed = [name in pattern.at for name in dims]
    chunks = _touched(grid, reads, fixed)
    opened = chunks if objects is None else _touched(objects, reads, fixed)
    decoded = chunks * decoded_cells(grid) * (itemsize if stored is None else stored)
    requests = 2 * opened if sharded else chunks
    wanted = math.prod(r.size for r in reads) * itemsize
    return ReadCost(pattern.name, wanted, chunks, opened, requests, decoded / ratio, decoded)


def read_costs(
    array: CombinedArray,
    layout: TargetLayout | None,
    patterns: Sequence[ReadPattern],
    *,
    source_ratio: float = 1.0,
    target_ratio: float | None = None,
    rows: Iterable[RowBatch] | None = None,
    gap: int = 64 << 10,
) -> list[tuple[ReadCost, ReadCost]]:
    """Source and target cost of each pattern.

    Parameters
    ----------
    array, layout
        What is and what is planned; without a layout the target has the source's chunks, where they lie.
    patterns
        From the config's ``reads:``.
    source_ratio, target_ratio
        Raw bytes for each encoded byte; the target's is taken as the source's where it is not known yet.
    rows
        Chunk rows of the granules that the array is placed from. None: every chunk counts as stored.
    gap
        The most bytes between two ranges of a granule that are read along with them.

    Raises
    ------
    PlanError
        ``read-place``: a fixed place is past the array's end.
    """
    reads = [axis_reads(array.path, p, array.dims, array.shape) for p in patterns]
    out = [_by_grids(array, layout, p, source_ratio, target_ratio) for p in patterns]
    if array.picked is not None:
        return [(replace(b, note=_PICKED), t if layout else replace(t, note=_PICKED)) for b, t in out]
    if rows is None or not array.variants:
        return [(replace(b, note=_ALL), replace(t, note=_ALL)) for b, t in out]
    marks = None if layout is None else OccupiedBuilder(layout)
    found = tally(array, rows, reads, gap, marks)
    source = [_with_rows(array, b, f) for (b, _), f in zip(out, found, strict=True)]
    if layout is None or marks is None:
        return [(b, b) for b in source]
    others = other_boxes(array, layout)
    for start, stop in () if others is None else others:
        marks.add(start, stop)
    there = None if others is None else marks.done()
    if there is None:
        return [(b, replace(t, note=_ALL)) for b, (_, t) in zip(source, out, strict=True)]
    encoded = sum(f.fetched for f in found)
    ratio = target_ratio or (sum(f.decoded for f in found) / encoded if encoded else source_ratio)
    return [(b, _with_holes(t, there.cost(r, ratio))) for b, (_, t), r in zip(source, out, reads, strict=True)]


_ALL = "every chunk is taken to be stored"
_PICKED = "the array takes places of another one: its reads of the source are not predicted, and every chunk counts as stored"


def _by_grids(
    array: CombinedArray, layout: TargetLayout | None, pattern: ReadPattern, source_ratio: float, target_ratio: float | None
) -> tuple[ReadCost, ReadCost]:
    """Costs where every chunk is stored, from the grids alone."""
    itemsize = array.dtype.itemsize
    stored = max((v.dtype.itemsize for v in array.variants), default=itemsize)
    files = granule_grid(array)
    before = read_cost(pattern, array.dims, array.grid, itemsize, ratio=source_ratio, objects=files, stored=stored)
    if layout is None:
        return before, before
    ratio, sharded = source_ratio if target_ratio is None else target_ratio, layout.shard is not None
    shards = layout.cells if sharded else None
    after = read_cost(pattern, layout.dims, layout.chunk_grid, itemsize, ratio=ratio, objects=shards, sharded=sharded)
    return before, after


def _with_rows(array: CombinedArray, cost: ReadCost, found: SourceReads) -> ReadCost:
    whole = array.codecs.compressed or array.codecs.needs_library or array.dtype.kind == "T"
    return replace(
        cost,
        chunks=placed_chances(array, found.reads),
        stored=found.stored,
        requests=found.requests,
        fetched=found.fetched,
        decoded=found.decoded,
        note="" if whole else "chunks without filters count whole; drystone reads the wanted rows of large ones",
    )


def _with_holes(cost: ReadCost, found: TargetReads) -> ReadCost:
    return replace(
        cost,
        stored=found.stored,
        requests=found.requests,
        misses=found.misses,
        objects=found.objects,
        fetched=found.fetched,
        decoded=found.decoded,
    )


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
    edges = np.append(np.unique(starts), n)
    edges[0] = 0
    sizes = np.diff(edges)
    same = (sizes[:-1] == sizes[0]).all() and sizes[-1] <= sizes[0]
    return RegularDimension(n, int(sizes[0])) if same else RectilinearDimension(tuple(sizes.tolist()))

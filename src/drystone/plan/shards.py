"""Tasks of a one-pass rechunk: which whole write cells one task owns, found by arithmetic, proved before anything runs.

A task's region is a box of whole write cells. Region edges that fall inside source chunks make those chunks be read once
more; reading every chunk once needs the *cover tile*, lcm(source, cell) along each axis. So, per axis, the candidates are
multiples of the cell with the number of source chunks that straddle their edges (exact, from the axis' edges, so that
months of 28 to 31 days are as good as equal chunks), and the plan is the cheapest combination that fits a task's memory:
fewest reads first, then whole rounds over the tasks that run at once, then the smallest region.

Nothing is enumerated: task ``i`` is the box at ``unravel(i)`` of the task grid, and a million tasks are one frozen value.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import cast

import numpy as np

from drystone.errors import PlanError
from drystone.grid.alignment import prove_aligned
from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import DimensionGrid, RegularDimension, grouped
from drystone.model.placement import CombinedArray
from drystone.plan.layout import TargetLayout
from drystone.plan.memory import MemoryModel
from drystone.plan.source_chunks import placed_chunks

__all__ = ["TaskPlan", "plan_tasks"]

# raw bytes of a region that is worth a task: below, the cost of a message and a receipt shows; above, a death costs more
TASK_BYTES = 512_000_000
_IN_FLIGHT = 64_000_000
_TOLERANCE = 1.02  # a region this much more costly but smaller is preferred


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """The tasks of one array.

    Parameters
    ----------
    path
        Of the target array.
    write
        Its write cells.
    regions
        What each task owns: whole write cells, a grid over them.
    source_chunks
        Source chunks of the array; of a tiled one, those that are placed.
    chunk_reads
        Source chunks read in all; each once where it equals ``source_chunks``.
    memory
        Bytes that a task takes at most, above an idle process.
    in_flight
        Encoded source bytes that a task may have on their way.
    threads
        Threads of a task.

    Examples
    --------
    >>> cells, regions = ChunkGrid.regular((10, 7), (4, 4)), ChunkGrid.regular((10, 7), (8, 4))
    >>> plan = TaskPlan("/sst", cells, regions, 10, 20, 1000, 100, 1)
    >>> plan.n_tasks, plan.bounds(3), plan.amplification
    (4, ((8, 4), (10, 7)), 2.0)
    >>> list(plan.cells(0))
    [(0, 0), (1, 0)]
    """

    path: str
    write: ChunkGrid
    regions: ChunkGrid
    source_chunks: int
    chunk_reads: int
    memory: int
    in_flight: int
    threads: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the target array."""
        return self.regions.shape

    @property
    def region(self) -> tuple[int, ...]:
        """The largest region of a task."""
        return tuple(_largest(d) for d in self.regions.dimensions)

    @property
    def n_tasks(self) -> int:
        """Tasks in all; 0 where an axis has no elements."""
        return self.regions.n_chunks

    @property
    def n_cells(self) -> int:
        """Write cells in all: the most objects that the tasks write."""
        return self.write.n_chunks

    @property
    def amplification(self) -> float:
        """Mean number of times a source chunk is read."""
        return self.chunk_reads / self.source_chunks if self.source_chunks else 1.0

    def bounds(self, index: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """First and one-past-last element of a task's region, per axis."""
        if not 0 <= index < self.n_tasks:
            raise IndexError(f"{self.path} has tasks 0 to {self.n_tasks - 1}, not {index}")
        at = [int(i) for i in np.unravel_index(index, self.regions.grid_shape)] if self.shape else []
        axes = list(zip(self.regions.dimensions, at, strict=True))
        start = tuple(d.chunk_offset(i) for d, i in axes)
        return start, tuple(a + d.data_size(i) for a, (d, i) in zip(start, axes, strict=True))

    def cells(self, index: int) -> Iterator[tuple[int, ...]]:
        """Coordinates of a task's write cells, in C order."""
        start, stop = self.bounds(index)
        axes = zip(start, stop, self.write.dimensions, strict=True)
        return itertools.product(*(range(d.index_to_chunk(a), d.index_to_chunk(b - 1) + 1) for a, b, d in axes))

    def to_json(self) -> dict[str, object]:
        """Exact JSON."""
        grids = {"write": self.write.to_json(), "regions": self.regions.to_json()}
        return {f.name: grids.get(f.name, getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def from_json(cls, d: Mapping[str, object]) -> TaskPlan:
        """Read back what :meth:`to_json` wrote."""
        grids = {k: ChunkGrid.from_json(cast(list[object], d[k])) for k in ("write", "regions")}
        return cls(**{**d, **grids})  # type: ignore[arg-type]


def _largest(dimension: DimensionGrid) -> int:
    return dimension.size if isinstance(dimension, RegularDimension) else max(dimension.sizes, default=1)


@dataclass(frozen=True, slots=True)
class _Candidate:
    regions: tuple[DimensionGrid, ...]
    cells: int
    reads: int


def plan_tasks(
    array: CombinedArray,
    layout: TargetLayout,
    memory: int,
    *,
    threads: int = 2,
    slots: int = 1,
    joined: bool = False,
    in_flight: int | None = None,
) -> TaskPlan:
    """Plan one pass from source chunks to write cells within ``memory`` bytes a task.

    Parameters
    ----------
    array
        What is read: its source chunk grid decides how often a chunk is read.
    layout
        What is written.
    memory
        Bytes that one task may take above its idle process; see :func:`drystone.plan.memory.task_memory`.
    threads
        Threads inside a task.
    slots
        Tasks that run at once; fewer tasks than slots would leave some idle.
    joined
        True where the target is an object store, which takes an object in one piece.
    in_flight
        Encoded source bytes on their way; None: an eighth of ``memory``, 1 to 64 MB.

    Raises
    ------
    PlanError
        Not even one write cell fits: the message has the memory and the cell sizes that would do.

    Examples
    --------
    >>> from drystone.codecs.chain import CodecChain
    >>> from drystone.model.attributes import Attributes
    >>> from drystone.model.placement import Placements
    >>> one = np.zeros(1, np.int64)
    >>> where = Placements(None, one.astype("i4"), one, one + 1, one, one.astype("i4"))
    >>> chain, i2 = CodecChain.of("bytes"), np.dtype("i2")
    >>> maps = CombinedArray("/sst", ("t", "y"), (90, 50), i2, i2, None, chain, Attributes(),
    ...                      ChunkGrid.regular((90, 50), (1, 50)), None, where, ())
    >>> wanted = TargetLayout("/sst", ("t", "y"), (90, 50), i2, (30, 10), (30, 10), chain, bytes(2))
    >>> plan_tasks(maps, wanted, 2_000_000).amplification
    1.0
    """
    in_flight = in_flight or min(_IN_FLIGHT, max(1_000_000, memory // 8))
    model = MemoryModel.of(array, layout, threads=threads, in_flight=in_flight, joined=joined)
    sizes = tuple(max(n, 1) for n in layout.shape)
    smallest = math.prod(min(c, n) for c, n in zip(layout.cell, sizes, strict=True))
    if model.peak(smallest) > memory:
        raise _too_small(layout, model, memory, smallest)
    grid = _reading_grid(array)
    fitting = [c for c in _combinations(grid, layout) if model.peak(c.cells) <= memory]
    chosen = _cheapest(fitting, slots)
    regions = ChunkGrid(_grown(chosen.regions, model, memory, slots))
    chunks, reads = _reads(array, grid, regions)
    plan = TaskPlan(
        layout.path, layout.cells, regions, chunks, reads, model.peak(_most(regions.dimensions)), in_flight, threads
    )
    _prove(plan)
    return plan


def _reads(array: CombinedArray, grid: ChunkGrid, regions: ChunkGrid) -> tuple[int, int]:
    """Source chunks, and how many are read: of a tiled array counted, since its grid knows no gaps and no staggered rows."""
    if array.placements.is_tiled and array.variants:
        chunks, rows = placed_chunks(array), grid is not array.grid
        pieces, each = placed_chunks(array, regions.dimensions, rows=rows), placed_chunks(array, rows=rows)
    else:
        chunks, each = array.grid.n_chunks, grid.n_chunks
        pieces = math.prod(_overlaps(d, r) for d, r in zip(grid.dimensions, regions.dimensions, strict=True))
    return chunks, -(-pieces * chunks // max(each, 1))


def _reading_grid(array: CombinedArray) -> ChunkGrid:
    """The source's chunks, or for chunks without filters the rows that can be read apart.

    Of such a chunk the fetcher reads a range of bytes: what is wanted along the slowest axis that has more than one
    element, and whole rows of the faster ones.
    """
    if array.codecs.compressed or array.codecs.needs_library or array.dtype.kind == "T" or array.unaligned is not None:
        return array.grid
    dims: list[DimensionGrid] = list(array.grid.dimensions)
    for axis, d in enumerate(dims):
        largest = d.size if isinstance(d, RegularDimension) else max(d.sizes, default=1)
        if min(largest, d.extent) > 1:
            dims[axis] = RegularDimension(d.extent, 1)
            break
    return ChunkGrid(tuple(dims))


def _prove(plan: TaskPlan) -> None:
    """Regions are the product of one partition an axis, so a proof for each axis is a proof for all."""
    for regions, cells in zip(plan.regions.dimensions, plan.write.dimensions, strict=True):
        edges = regions.edges()
        prove_aligned(edges[:-1, None], edges[1:, None], ChunkGrid((cells,)), what=f"task of {plan.path}")


def _most(regions: Sequence[DimensionGrid]) -> int:
    """Elements of the largest region."""
    return math.prod(min(_largest(d), max(d.extent, 1)) for d in regions)


def _overlaps(dimension: DimensionGrid, regions: DimensionGrid) -> int:
    """Pairs of a region and a source chunk that share elements, along one axis."""
    inner = max(0, regions.n_chunks - 1)  # region edges inside the axis
    if isinstance(dimension, RegularDimension) and isinstance(regions, RegularDimension):
        on_edge = inner // (math.lcm(regions.size, dimension.size) // regions.size)
    else:
        on_edge = int(dimension.is_edge(regions.edges()[1:-1]).sum()) if inner else 0
    return dimension.n_chunks + inner - on_edge


def _axis_candidates(dimension: DimensionGrid, cells: DimensionGrid) -> list[tuple[DimensionGrid, int]]:
    """(regions, overlaps) pairs along one axis, each of larger regions with fewer overlaps than all before it."""
    k = max(1, cells.n_chunks)
    multiples = {1, k} | {2**i for i in range(k.bit_length())} | {-(-k // j) for j in range(1, 33)}
    source = dimension.regular_size
    if source is not None and isinstance(cells, RegularDimension):
        step = math.lcm(source, cells.size) // cells.size
        multiples |= {step * 2**i for i in range(max(0, (k // step).bit_length()))}
    front: list[tuple[DimensionGrid, int]] = []
    for m in sorted(x for x in multiples if 1 <= x <= k):
        regions = grouped(cells, m)
        overlaps = _overlaps(dimension, regions)
        if not front or overlaps < front[-1][1]:
            front.append((regions, overlaps))
    return front


def _combinations(grid: ChunkGrid, layout: TargetLayout) -> list[_Candidate]:
    """Regions such that no smaller one reads as little."""
    front = [_Candidate((), 1, 1)]
    for dimension, cells in zip(grid.dimensions, layout.cells.dimensions, strict=True):
        wider = [
            _Candidate((*c.regions, r), c.cells * _most((r,)), c.reads * o)
            for c in front
            for r, o in _axis_candidates(dimension, cells)
        ]
        wider.sort(key=lambda c: (c.cells, c.reads, tuple(_largest(r) for r in c.regions)))
        front = []
        for c in wider:
            if not front or c.reads < front[-1].reads:
                front.append(c)
    return front


def _cheapest(fitting: list[_Candidate], slots: int) -> _Candidate:
    least = min(c.reads for c in fitting) or 1

    def cost(c: _Candidate) -> float:
        # rounds of tasks, each as long as its raw bytes decoded (once per read) and encoded
        n = math.prod(max(1, r.n_chunks) for r in c.regions)
        return -(-n // slots) * c.cells * (c.reads / least + 1.0)

    best = min(cost(c) for c in fitting)
    return next(c for c in fitting if cost(c) <= best * _TOLERANCE)


def _grown(regions: tuple[DimensionGrid, ...], model: MemoryModel, memory: int, slots: int) -> tuple[DimensionGrid, ...]:
    """Double small regions, last axis first, while tasks stay small and plenty; multiples never read more."""
    for axis in reversed(range(len(regions))):
        while regions[axis].n_chunks > 1:
            larger = (*regions[:axis], grouped(regions[axis], 2), *regions[axis + 1 :])
            cells, n_tasks = _most(larger), math.prod(max(1, r.n_chunks) for r in larger)
            if cells * model.itemsize > TASK_BYTES or model.peak(cells) > memory or n_tasks < 4 * slots:
                break
            regions = larger
    return regions


def _too_small(layout: TargetLayout, model: MemoryModel, memory: int, smallest: int) -> PlanError:
    need = model.peak(smallest)
    what = "shard" if layout.shard is not None else "chunk"
    raw = smallest * model.itemsize
    advice = f"give a task {need} bytes"
    if layout.shard is not None and raw > layout.chunk_bytes:
        advice += (
            f", or shards of fewer than the {math.prod(layout.inner_grid)} inner chunks (of {layout.chunk_bytes} bytes each)"
        )
    return PlanError(
        f"{layout.path}: a task may take {memory} bytes, but one {what} of {layout.cell} elements is {raw} bytes raw and takes "
        f"{need} to read, assemble and encode (source chunks of {model.source_chunk} bytes, {model.threads} threads); {advice}",
        kind="memory",
        array=layout.path,
        memory=memory,
        needed=need,
        cell_bytes=raw,
    )

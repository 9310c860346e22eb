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
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from drystone.errors import PlanError
from drystone.grid.alignment import prove_aligned
from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import DimensionGrid, RegularDimension
from drystone.model.placement import CombinedArray
from drystone.plan.layout import TargetLayout, target_layout, whole_layout
from drystone.plan.memory import MemoryModel
from drystone.plan.source_chunks import placed_chunks

__all__ = ["TargetLayout", "TaskPlan", "plan_tasks", "target_layout", "whole_layout"]

# raw bytes of a region that is worth a task: below, the cost of a message and a receipt shows; above, a death costs more
TASK_BYTES = 512_000_000
_IN_FLIGHT = 64_000_000
_TOLERANCE = 1.02  # a region this much more costly but smaller is preferred


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """The tasks of one array.

    Parameters
    ----------
    path, shape
        Of the target array.
    cell
        Write cell, in elements.
    region
        Region of a task, a multiple of ``cell`` along each axis; clipped at the array's end.
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
    >>> plan = TaskPlan("/sst", (10, 7), (4, 4), (8, 4), 10, 20, 1000, 100, 1)
    >>> plan.n_tasks, plan.bounds(3), plan.amplification
    (4, ((8, 4), (10, 7)), 2.0)
    >>> list(plan.cells(0))
    [(0, 0), (1, 0)]
    """

    path: str
    shape: tuple[int, ...]
    cell: tuple[int, ...]
    region: tuple[int, ...]
    source_chunks: int
    chunk_reads: int
    memory: int
    in_flight: int
    threads: int

    @property
    def grid(self) -> tuple[int, ...]:
        """Tasks along each axis."""
        return tuple(-(-n // r) for n, r in zip(self.shape, self.region, strict=True))

    @property
    def n_tasks(self) -> int:
        """Tasks in all; 0 where an axis has no elements."""
        return math.prod(self.grid)

    @property
    def n_cells(self) -> int:
        """Write cells in all: the most objects that the tasks write."""
        return math.prod(-(-n // c) for n, c in zip(self.shape, self.cell, strict=True))

    @property
    def amplification(self) -> float:
        """Mean number of times a source chunk is read."""
        return self.chunk_reads / self.source_chunks if self.source_chunks else 1.0

    def bounds(self, index: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """First and one-past-last element of a task's region, per axis."""
        if not 0 <= index < self.n_tasks:
            raise IndexError(f"{self.path} has tasks 0 to {self.n_tasks - 1}, not {index}")
        at = np.unravel_index(index, self.grid) if self.grid else ()
        start = tuple(int(i) * r for i, r in zip(at, self.region, strict=True))
        return start, tuple(min(a + r, n) for a, r, n in zip(start, self.region, self.shape, strict=True))

    def cells(self, index: int) -> Iterator[tuple[int, ...]]:
        """Coordinates of a task's write cells, in C order."""
        start, stop = self.bounds(index)
        return itertools.product(*(range(a // c, -(-b // c)) for a, b, c in zip(start, stop, self.cell, strict=True)))


@dataclass(frozen=True, slots=True)
class _Candidate:
    region: tuple[int, ...]
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
    chosen = _cheapest(fitting, sizes, slots)
    region = _grown(chosen.region, layout, model, memory, slots)
    chunks, reads = _reads(array, grid, region)
    cells = math.prod(min(r, n) for r, n in zip(region, sizes, strict=True))
    plan = TaskPlan(layout.path, layout.shape, layout.cell, region, chunks, reads, model.peak(cells), in_flight, threads)
    _prove(plan)
    return plan


def _reads(array: CombinedArray, grid: ChunkGrid, region: tuple[int, ...]) -> tuple[int, int]:
    """Source chunks, and how many are read: of a tiled array counted, since its grid knows no gaps and no staggered rows."""
    if array.placements.is_tiled and array.variants:
        chunks, rows = placed_chunks(array), grid is not array.grid
        pieces, each = placed_chunks(array, region, rows=rows), placed_chunks(array, rows=rows)
    else:
        chunks, each = array.grid.n_chunks, grid.n_chunks
        pieces = math.prod(_overlaps(d, r) for d, r in zip(grid.dimensions, region, strict=True))
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
    for n, r, c in zip(plan.shape, plan.region, plan.cell, strict=True):
        starts = np.arange(0, n, r, dtype=np.int64)
        stops = np.minimum(starts + r, n)
        prove_aligned(starts[:, None], stops[:, None], ChunkGrid.regular((n,), (c,)), what=f"task of {plan.path}")


def _overlaps(dimension: DimensionGrid, region: int) -> int:
    """Pairs of a region and a source chunk that share elements, along one axis."""
    n = dimension.extent
    inner = max(0, -(-n // region) - 1)  # region edges inside the axis
    if isinstance(dimension, RegularDimension):
        on_edge = inner // (math.lcm(region, dimension.size) // region)
    else:
        on_edge = int(dimension.is_edge(np.arange(1, inner + 1, dtype=np.int64) * region).sum())
    return dimension.n_chunks + inner - on_edge


def _axis_candidates(dimension: DimensionGrid, cell: int) -> list[tuple[int, int]]:
    """(region, overlaps) pairs along one axis, each larger region with fewer overlaps than all before it."""
    k = max(1, -(-dimension.extent // cell))
    multiples = {1, k} | {2**i for i in range(k.bit_length())} | {-(-k // j) for j in range(1, 33)}
    source = dimension.regular_size
    if source is not None:
        step = math.lcm(source, cell) // cell
        multiples |= {step * 2**i for i in range(max(0, (k // step).bit_length()))}
    front: list[tuple[int, int]] = []
    for m in sorted(x for x in multiples if 1 <= x <= k):
        overlaps = _overlaps(dimension, m * cell)
        if not front or overlaps < front[-1][1]:
            front.append((m * cell, overlaps))
    return front


def _combinations(grid: ChunkGrid, layout: TargetLayout) -> list[_Candidate]:
    """Regions such that no smaller one reads as little."""
    front = [_Candidate((), 1, 1)]
    for dimension, cell in zip(grid.dimensions, layout.cell, strict=True):
        extent = max(dimension.extent, 1)
        wider = [
            _Candidate((*c.region, r), c.cells * min(r, extent), c.reads * o)
            for c in front
            for r, o in _axis_candidates(dimension, cell)
        ]
        wider.sort(key=lambda c: (c.cells, c.reads, c.region))
        front = []
        for c in wider:
            if not front or c.reads < front[-1].reads:
                front.append(c)
    return front


def _cheapest(fitting: list[_Candidate], sizes: tuple[int, ...], slots: int) -> _Candidate:
    least = min(c.reads for c in fitting) or 1

    def cost(c: _Candidate) -> float:
        # rounds of tasks, each as long as its raw bytes decoded (once per read) and encoded
        n = math.prod(-(-s // r) for s, r in zip(sizes, c.region, strict=True))
        return -(-n // slots) * c.cells * (c.reads / least + 1.0)

    best = min(cost(c) for c in fitting)
    return next(c for c in fitting if cost(c) <= best * _TOLERANCE)


def _grown(region: tuple[int, ...], layout: TargetLayout, model: MemoryModel, memory: int, slots: int) -> tuple[int, ...]:
    """Double small regions, last axis first, while tasks stay small and plenty; multiples never read more."""
    sizes = tuple(max(n, 1) for n in layout.shape)
    for axis in reversed(range(len(region))):
        while region[axis] < sizes[axis]:
            larger = (*region[:axis], 2 * region[axis], *region[axis + 1 :])
            cells = math.prod(min(r, n) for r, n in zip(larger, sizes, strict=True))
            n_tasks = math.prod(-(-n // r) for n, r in zip(sizes, larger, strict=True))
            if cells * model.itemsize > TASK_BYTES or model.peak(cells) > memory or n_tasks < 4 * slots:
                break
            region = larger
    return region


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

"""How an array can be rechunked: candidates, each with what it reads and what it takes.

*One pass.* A task's region is a box of whole write cells. Region edges that fall inside source chunks make those chunks be
read once more; reading every chunk once needs the *cover tile*, lcm(source, cell) along each axis. So, per axis, the
candidates are multiples of the cell with the number of source chunks that straddle their edges (exact, from the axis' edges,
so that months of 28 to 31 days are as good as equal chunks); the best is the cheapest combination that fits a task's memory:
fewest reads first, then whole rounds over the tasks that run at once, then the smallest region.

*Streamed.* A shard whose inner chunks do not span it along its first divided axis is read and encoded in steps along that
axis, and its inner chunks go to the open object in the order in which they lie there. Two steps are held raw, not a shard, and
one is read while the other is encoded.

*Two passes.* The array is read once in large boxes and cut by destination (:mod:`drystone.plan.shuffle`). The copy in between
is written and read; so ``reread`` says how many readings of the source are worth it, and two passes win only where every
other way that fits reads chunks more often than that, or where there is no other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import DimensionGrid, RegularDimension, grouped
from drystone.model.placement import CombinedArray
from drystone.plan.layout import TargetLayout
from drystone.plan.memory import MemoryModel
from drystone.plan.regions import TASK_BYTES, largest, most, overlaps, stepped
from drystone.plan.shuffle import Shuffle, TwoPasses, two_passes
from drystone.plan.source_chunks import placed_chunks

__all__ = ["REREAD", "WAYS", "Candidate", "candidates_of", "stream_axis"]

WAYS: Final = ("one pass", "streamed", "two passes")

# times that a source chunk may be read, on average, before a copy in between costs less: it is written and read, each of
# which takes about as long as reading and decoding the source
REREAD = 3.0
_STEP_BYTES = 64_000_000  # a streamed step larger than this saves nothing any more
_TOLERANCE = 1.02  # a region this much more costly but smaller is preferred
_SOONER = 1.1  # predicted times that differ by less say nothing


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way.

    Parameters
    ----------
    name
        ``one pass``, ``streamed`` or ``two passes``; with ``, re-reading`` where some source chunks are read more than once.
    regions
        What each task that writes the target owns.
    stream
        Axis and elements of a step, where it is streamed.
    held
        Elements held raw at a time.
    source_chunks, chunk_reads
        Source chunks, and how many are read in all.
    memory
        Bytes that a task takes at most, above an idle process.
    cost
        In elements decoded and encoded by the busiest of the tasks' slots; for comparison only.
    seconds
        Predicted, or None: see :mod:`drystone.plan.predict`.
    shuffle
        What lies between two passes, or None.
    """

    name: str
    regions: ChunkGrid
    stream: tuple[int, int] | None
    held: int
    source_chunks: int
    chunk_reads: int
    memory: int
    cost: float
    seconds: float | None = None
    shuffle: Shuffle | None = None

    @property
    def amplification(self) -> float:
        """Mean number of times a source chunk is read."""
        return self.chunk_reads / self.source_chunks if self.source_chunks else 1.0

    @property
    def n_tasks(self) -> int:
        """Tasks in all."""
        return self.regions.n_chunks + (0 if self.shuffle is None else self.shuffle.n_sources)

    @property
    def way(self) -> str:
        """The first words of the name: one of :data:`WAYS`."""
        return self.name.partition(",")[0]


@dataclass(frozen=True, slots=True)
class _Region:
    """Regions of tasks, elements of the largest, and reads by the grid's own count."""

    axes: tuple[DimensionGrid, ...]
    cells: int
    reads: int


type Timer = Callable[[Candidate], float | None]
"""Predicts seconds, or does not know them."""


def candidates_of(
    array: CombinedArray,
    layout: TargetLayout,
    model: MemoryModel,
    memory: int,
    slots: int,
    timer: Timer | None = None,
    reread: float = REREAD,
    *,
    all_ways: bool = False,
) -> tuple[Candidate, ...]:
    """All ways worth naming, the best first: the cheapest that fits, or where none does the one that takes least.

    Parameters
    ----------
    array, layout
        What is read and what is written.
    model
        What a region takes.
    memory
        Bytes of a task.
    slots
        Tasks that run at once.
    timer
        Where it knows the seconds of all that fit, they decide, not the cost.
    reread
        Times that a source chunk may be read, on average, before a copy in between costs less.
    all_ways
        Weigh two passes even where one reads each source chunk once, and with small boxes and in steps too.
    """
    grid = _reading_grid(array)
    found: dict[tuple[ChunkGrid, tuple[int, int] | None], Candidate] = {}

    def add(regions: Sequence[DimensionGrid], stream: tuple[int, int] | None, held: int) -> None:
        whole = ChunkGrid(tuple(regions))
        steps = whole if stream is None else ChunkGrid(stepped(regions, *stream))
        chunks, reads = _reads(array, grid, steps)
        name = ("one pass" if stream is None else "streamed") + (", re-reading" if reads > chunks else "")
        need = model.peak(held) if stream is None else model.streamed(held)
        # rounds of tasks, each as long as its raw bytes decoded (once per read) and encoded
        cost = -(-whole.n_chunks // slots) * most(regions) * (reads / max(chunks, 1) + 1.0)
        way = Candidate(name, whole, stream, held, chunks, reads, need, cost)
        found[whole, stream] = way if timer is None else replace(way, seconds=timer(way))

    front = _combinations(grid, layout)
    fitting = [c for c in front if model.peak(c.cells) <= memory]
    if fitting:
        best = _grown(_cheapest(fitting, slots).axes, model, memory, slots)
        add(best, None, most(best))
    enough = reread * front[-1].reads
    named = [front[0], front[-1]]  # the smallest region, and the one that reads least
    if not any(c.reads <= enough for c in fitting):
        named.insert(1, next(c for c in front if c.reads <= enough))  # and the smallest that does without a second pass
    for region in named:
        add(region.axes, None, region.cells)
    for axis, step in _steps(array, layout, model, memory):
        cells = layout.cells.dimensions
        held = most(cells) // max(1, min(largest(cells[axis]), layout.shape[axis])) * min(step, layout.shape[axis])
        add(cells, (axis, step), held)
    ranked = _ranked(tuple(found.values()), memory)
    if layout.dtype.kind == "T" or not math.prod(layout.shape):
        return ranked
    if not all_ways and ranked[0].memory <= memory and ranked[0].chunk_reads <= ranked[0].source_chunks:
        return ranked
    twice = two_passes(grid, layout, model, memory, slots, stream_axis(layout), every=all_ways)
    two, *more = (_two(array, grid, boxes, slots, reread) for boxes in twice)
    return (*_with_two(ranked, two if timer is None else replace(two, seconds=timer(two)), memory, reread), *more)


def _two(array: CombinedArray, grid: ChunkGrid, found: TwoPasses, slots: int, reread: float) -> Candidate:
    chunks, reads = _reads(array, grid, found.shuffle.sources)
    sources, regions = found.shuffle.sources, found.regions
    between = (reread - 1.0) / 2  # to write an element, and to read it: as long as reading it the times that pay for both
    cost = -(-sources.n_chunks // slots) * most(sources.dimensions) * (reads / max(chunks, 1) + between)
    cost += -(-regions.n_chunks // slots) * most(regions.dimensions) * (between + 1.0)
    name = "two passes" + (", re-reading" if reads > chunks else "")
    return Candidate(name, regions, found.stream, found.held, chunks, reads, found.memory, cost, shuffle=found.shuffle)


def _with_two(ranked: tuple[Candidate, ...], two: Candidate, memory: int, reread: float) -> tuple[Candidate, ...]:
    """Two passes first where nothing else fits or all else reads too much, else after what fits."""
    best, fitting = ranked[0], sum(c.memory <= memory for c in ranked)
    if two.memory > memory:
        return (*ranked, two) if fitting else tuple(sorted((*ranked, two), key=lambda c: c.memory))
    sooner = two.cost < best.cost if two.seconds is None or best.seconds is None else two.seconds < best.seconds
    if not fitting or (best.amplification > reread and sooner):
        return (two, *ranked)
    return (*ranked[:fitting], two, *ranked[fitting:])


def _ranked(candidates: tuple[Candidate, ...], memory: int) -> tuple[Candidate, ...]:
    """One pass before streaming unless streaming is cheaper; what does not fit after what does."""
    fitting = [c for c in candidates if c.memory <= memory]
    if not fitting:
        return tuple(sorted(candidates, key=lambda c: c.memory))
    plain = [c for c in fitting if c.stream is None][:1]  # the first is the cheapest region, grown
    streamed = sorted((c for c in fitting if c.stream is not None), key=lambda c: (c.chunk_reads, -c.held))
    ranked = [*plain, *streamed]
    if plain and streamed and streamed[0].cost * _TOLERANCE < plain[0].cost:
        ranked = [*streamed, *plain]
    ranked += sorted((c for c in candidates if c not in ranked), key=lambda c: c.memory > memory)
    return tuple(_by_time(ranked, memory))


def _by_time(ranked: list[Candidate], memory: int) -> list[Candidate]:
    """The fastest of those that fit first, where the seconds of all of them are known; near ones stay in their order."""
    times = [c.seconds for c in ranked if c.memory <= memory]
    known = [t for t in times if t is not None]
    if len(known) < len(times):
        return ranked
    best = next(c for c in ranked if c.memory <= memory and (c.seconds or 0.0) <= min(known) * _SOONER)
    return [best, *(c for c in ranked if c is not best)]


def stream_axis(layout: TargetLayout) -> int | None:
    """The axis along which a shard's inner chunks come in the order in which they lie in it: its first divided one."""
    if layout.shard is None or layout.dtype.kind == "T" or not math.prod(layout.shape):
        return None
    return next((a for a, n in enumerate(layout.inner_grid) if n > 1), None)


def _steps(array: CombinedArray, layout: TargetLayout, model: MemoryModel, memory: int) -> list[tuple[int, int]]:
    """(axis, elements) of the smallest step, and of the one that reads least among those that fit."""
    axis = stream_axis(layout)
    if axis is None or array.picked is not None:
        return []
    chunk, cell = layout.chunk[axis], min(layout.cell[axis], layout.shape[axis])
    source = array.grid.dimensions[axis].regular_size or chunk
    whole = math.lcm(source, chunk)
    multiples = {chunk * 2**i for i in range((cell // chunk).bit_length())}
    multiples |= {whole * 2**i for i in range(max(0, (cell // whole).bit_length()))}
    others = most(layout.cells.dimensions) // cell
    grid = _reading_grid(array)
    worth = [
        m
        for m in sorted(multiples)
        if m == chunk or (m < cell and m * others * model.itemsize <= 2 * _STEP_BYTES and model.streamed(m * others) <= memory)
    ]
    scored = [(_reads(array, grid, ChunkGrid(stepped(layout.cells.dimensions, axis, m)))[1], -m) for m in worth if m < cell]
    return [(axis, -step) for step in dict.fromkeys((scored[0][1], min(scored)[1]))] if scored else []


def _reads(array: CombinedArray, grid: ChunkGrid, regions: ChunkGrid) -> tuple[int, int]:
    """Source chunks, and how many are read: of a tiled array counted, since its grid knows no gaps and no staggered rows."""
    if array.placements.is_tiled and array.variants:
        chunks, rows = placed_chunks(array), grid is not array.grid
        pieces, each = placed_chunks(array, regions.dimensions, rows=rows), placed_chunks(array, rows=rows)
    else:
        chunks, each = array.grid.n_chunks, grid.n_chunks
        pieces = math.prod(overlaps(d, r) for d, r in zip(grid.dimensions, regions.dimensions, strict=True))
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
        pairs = overlaps(dimension, regions)
        if not front or pairs < front[-1][1]:
            front.append((regions, pairs))
    return front


def _combinations(grid: ChunkGrid, layout: TargetLayout) -> list[_Region]:
    """Regions such that no smaller one reads as little."""
    front = [_Region((), 1, 1)]
    for dimension, cells in zip(grid.dimensions, layout.cells.dimensions, strict=True):
        wider = [
            _Region((*c.axes, r), c.cells * most((r,)), c.reads * o)
            for c in front
            for r, o in _axis_candidates(dimension, cells)
        ]
        wider.sort(key=lambda c: (c.cells, c.reads, tuple(largest(r) for r in c.axes)))
        front = []
        for c in wider:
            if not front or c.reads < front[-1].reads:
                front.append(c)
    return front


def _cheapest(fitting: list[_Region], slots: int) -> _Region:
    least = min(c.reads for c in fitting) or 1

    def cost(c: _Region) -> float:
        # rounds of tasks, each as long as its raw bytes decoded (once per read) and encoded
        n = math.prod(max(1, r.n_chunks) for r in c.axes)
        return -(-n // slots) * c.cells * (c.reads / least + 1.0)

    best = min(cost(c) for c in fitting)
    return next(c for c in fitting if cost(c) <= best * _TOLERANCE)


def _grown(regions: tuple[DimensionGrid, ...], model: MemoryModel, memory: int, slots: int) -> tuple[DimensionGrid, ...]:
    """Double small regions, last axis first, while tasks stay small and plenty; multiples never read more."""
    for axis in reversed(range(len(regions))):
        while regions[axis].n_chunks > 1:
            larger = (*regions[:axis], grouped(regions[axis], 2), *regions[axis + 1 :])
            cells, n_tasks = most(larger), math.prod(max(1, r.n_chunks) for r in larger)
            if cells * model.itemsize > TASK_BYTES or model.peak(cells) > memory or n_tasks < 4 * slots:
                break
            regions = larger
    return regions

"""Tasks of a rechunk: which whole write cells one task owns, found by arithmetic, proved before anything runs.

What is weighed is in :mod:`drystone.plan.candidates`. Nothing is enumerated: task ``i`` is the box at ``unravel(i)`` of the
task grid, and a million tasks are one frozen value.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import cast

from drystone.errors import PlanError
from drystone.grid.alignment import prove_aligned
from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.placement import CombinedArray
from drystone.model.sizes import size_text
from drystone.plan.candidates import REREAD, Candidate, Timer, candidates_of
from drystone.plan.layout import TargetLayout
from drystone.plan.memory import BASELINE, MemoryModel, worker_memory
from drystone.plan.regions import bounds, largest, touched
from drystone.plan.shuffle import Shuffle

__all__ = ["TaskPlan", "Weighed", "weigh"]

_IN_FLIGHT, _LEAST_IN_FLIGHT = 64_000_000, 1_000_000


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
    stream
        Axis and elements along it that are read and encoded at a time, or None: the region is read whole. A streamed task
        owns one shard.
    copies
        Whether encoded chunks are copied as they are (see :mod:`drystone.plan.repack`).
    shuffle
        What lies between two passes, or None. The tasks of the first pass are numbered after those that own regions.

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
    stream: tuple[int, int] | None = None
    copies: bool = False
    shuffle: Shuffle | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the target array."""
        return self.regions.shape

    @property
    def region(self) -> tuple[int, ...]:
        """The largest region of a task."""
        return tuple(largest(d) for d in self.regions.dimensions)

    @property
    def n_regions(self) -> int:
        """Tasks that write the target, numbered from 0."""
        return self.regions.n_chunks

    @property
    def n_tasks(self) -> int:
        """Tasks in all; 0 where an axis has no elements."""
        return self.n_regions + (0 if self.shuffle is None else self.shuffle.n_sources)

    @property
    def n_cells(self) -> int:
        """Write cells in all: the most objects that the tasks write."""
        return self.write.n_chunks

    @property
    def amplification(self) -> float:
        """Mean number of times a source chunk is read."""
        return self.chunk_reads / self.source_chunks if self.source_chunks else 1.0

    def bounds(self, index: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """First and one-past-last element of what a task owns or, in a first pass, reads, per axis."""
        if not 0 <= index < self.n_tasks:
            raise IndexError(f"{self.path} has tasks 0 to {self.n_tasks - 1}, not {index}")
        if self.shuffle is not None and index >= self.n_regions:
            return bounds(self.shuffle.sources, index - self.n_regions)
        return bounds(self.regions, index)

    def cells(self, index: int) -> Iterator[tuple[int, ...]]:
        """Coordinates of a task's write cells, in C order; none of a first pass."""
        if index >= self.n_regions:
            return iter(())
        return itertools.product(*touched(self.write, *self.bounds(index)))

    def to_json(self) -> dict[str, object]:
        """Exact JSON."""
        made: dict[str, object] = {"write": self.write.to_json(), "regions": self.regions.to_json()}
        if self.shuffle is not None:
            made["shuffle"] = self.shuffle.to_json()
        return {f.name: made.get(f.name, getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def from_json(cls, d: Mapping[str, object]) -> TaskPlan:
        """Read back what :meth:`to_json` wrote."""
        grids = {k: ChunkGrid.from_json(cast(list[object], d[k])) for k in ("write", "regions")}
        stream = None if d["stream"] is None else tuple(cast(list[int], d["stream"]))
        shuffle = None if d["shuffle"] is None else Shuffle.from_json(cast(dict[str, object], d["shuffle"]))
        return cls(**{**d, **grids, "stream": stream, "shuffle": shuffle})  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Weighed:
    """A plan, and what it was chosen from."""

    plan: TaskPlan
    candidates: tuple[Candidate, ...]


def weigh(
    array: CombinedArray,
    layout: TargetLayout,
    memory: int,
    *,
    threads: int = 2,
    slots: int = 1,
    joined: bool = False,
    whole: bool = False,
    in_flight: int | None = None,
    timer: Timer | None = None,
    parted: bool = False,
    reread: float = REREAD,
    only: str | None = None,
) -> Weighed:
    """Plan a rechunk within ``memory`` bytes a task, and keep what was weighed: the chosen candidate first.

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
        True where the target is an object store or a repository, for which a cell's parts are joined.
    whole
        True where it is a repository, which takes a streamed cell in one piece as well.
    in_flight
        Encoded source bytes on their way; None: an eighth of ``memory``, 1 to 64 MB, or 1 MB where nothing fits else.
    timer
        Predicts seconds of a candidate.
    parted
        True where what lies between two passes goes to an object store.
    reread
        Times that a source chunk may be read, on average, before a copy in between costs less.
    only
        One of :data:`~drystone.plan.candidates.WAYS`: nothing else is weighed.

    Raises
    ------
    PlanError
        No way fits: the message has the memory and the cell sizes that would do. ``no-way``: ``only`` names none.

    Examples
    --------
    >>> import numpy as np
    >>> from drystone.codecs.chain import CodecChain
    >>> from drystone.model.attributes import Attributes
    >>> from drystone.model.placement import Placements
    >>> one = np.zeros(1, np.int64)
    >>> where = Placements(None, one.astype("i4"), one, one + 1, one, one.astype("i4"))
    >>> chain, i2 = CodecChain.of("bytes"), np.dtype("i2")
    >>> maps = CombinedArray("/sst", ("t", "y"), (90, 50), i2, i2, None, chain, Attributes(),
    ...                      ChunkGrid.regular((90, 50), (1, 50)), None, where, ())
    >>> wanted = TargetLayout("/sst", ("t", "y"), (90, 50), i2, (30, 10), (30, 10), chain, bytes(2))
    >>> weigh(maps, wanted, 2_000_000).plan.amplification
    1.0
    """
    flights = (in_flight,) if in_flight else (min(_IN_FLIGHT, max(_LEAST_IN_FLIGHT, memory // 8)), _LEAST_IN_FLIGHT)
    for flight in flights:
        model = MemoryModel.of(array, layout, threads=threads, in_flight=flight, joined=joined, parted=parted, whole=whole)
        candidates = candidates_of(array, layout, model, memory, slots, timer, reread, all_ways=only is not None)
        candidates = tuple(c for c in candidates if only in (None, c.way))
        if not candidates:
            raise PlanError(f"{layout.path}: there is no way {only!r} to write it", kind="no-way", array=layout.path)
        best = candidates[0]
        if best.memory <= memory:
            break
    else:
        raise _too_small(layout, model, memory, min(candidates, key=lambda c: c.memory))
    plan = TaskPlan(
        layout.path,
        layout.cells,
        best.regions,
        best.source_chunks,
        best.chunk_reads,
        best.memory,
        flight,
        threads,
        best.stream,
        shuffle=best.shuffle,
    )
    _prove(plan)
    return Weighed(plan, candidates)


def _prove(plan: TaskPlan) -> None:
    """Regions are the product of one partition an axis, so a proof for each axis is a proof for all."""
    for regions, cells in zip(plan.regions.dimensions, plan.write.dimensions, strict=True):
        edges = regions.edges()
        prove_aligned(edges[:-1, None], edges[1:, None], ChunkGrid((cells,)), what=f"task of {plan.path}")


def _too_small(layout: TargetLayout, model: MemoryModel, memory: int, least: Candidate) -> PlanError:
    what = "shard" if layout.shard is not None else "chunk"
    smallest = math.prod(min(c, max(n, 1)) for c, n in zip(layout.cell, layout.shape, strict=True))
    raw = smallest * model.itemsize
    worker = worker_memory(least.memory)
    advice = f"write memory_per_worker: {worker} B ({size_text(worker)}; the process itself takes {size_text(BASELINE)})"
    if layout.shard is not None and raw > layout.chunk_bytes:
        inner = math.prod(layout.inner_grid)
        advice += f", or shards of fewer than the {inner:,} inner chunks (of {size_text(layout.chunk_bytes)} each)"
    parts = "" if least.stream is None else f", {least.stream[1]} elements along {layout.dims[least.stream[0]]!r} at a time"
    if least.shuffle is not None:
        parts += ", even in two passes"
    return PlanError(
        f"{layout.path}: a task may take {size_text(memory)} (max_mem), but one {what} of {layout.cell} elements is {raw} "
        f"bytes raw and takes {size_text(least.memory)} to read, assemble and encode{parts} (source chunks of "
        f"{size_text(model.source_chunk)}, {model.threads} threads); {advice}",
        kind="memory",
        array=layout.path,
        memory=memory,
        needed=least.memory,
        memory_per_worker=worker,
        cell_bytes=raw,
    )

"""What a plan tells people beside itself: the ways that were weighed, why one won, and what would make it cheaper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from drystone.model.sizes import duration_text, size_text
from drystone.plan.candidates import REREAD, Candidate
from drystone.plan.layout import TargetLayout
from drystone.plan.memory import worker_memory
from drystone.plan.shuffle import Shuffle

__all__ = ["Ways", "ways_of"]

_SLOW_CHUNK = 32_000  # raw bytes below which handling an inner chunk costs readers more than decoding it
_MANY_OBJECTS = 100_000
_SMALL_PIECE, _MANY_PIECES = 100_000, 10_000  # ranges below this cost more in requests than in bytes; a few do not matter


@dataclass(frozen=True, slots=True)
class Ways:
    """The candidates of one array, the chosen one first.

    Parameters
    ----------
    candidates
        See :class:`~drystone.plan.candidates.Candidate`.
    memory
        Bytes that a task may take.
    why
        Why the first won.
    advice
        One sentence each.
    itemsize
        Bytes of an element.
    """

    candidates: tuple[Candidate, ...]
    memory: int
    why: str
    advice: tuple[str, ...]
    itemsize: int = 1

    def to_json(self) -> dict[str, object]:
        """For ``--json``."""
        rows = [
            {
                "name": c.name,
                "tasks": c.n_tasks,
                "step": None if c.stream is None else list(c.stream),
                "chunk_reads": c.chunk_reads,
                "amplification": c.amplification,
                "held_elements": c.held,
                "memory": c.memory,
                "fits": c.memory <= self.memory,
                "cost": c.cost,
                "seconds": c.seconds,
                "between": None if c.shuffle is None else self._between(c.shuffle),
            }
            for c in self.candidates
        ]
        return {"memory": self.memory, "why": self.why, "advice": list(self.advice), "candidates": rows}

    def _between(self, shuffle: Shuffle) -> dict[str, int]:
        return {
            "first_tasks": shuffle.n_sources,
            "groups": shuffle.groups.n_chunks,
            "objects": shuffle.n_sources,
            "objects_at_once": shuffle.objects_between,
            "bytes_at_once": shuffle.cells_between * self.itemsize,
            "ranges": shuffle.n_pieces,
        }


def ways_of(candidates: Sequence[Candidate], layout: TargetLayout, memory: int, reread: float = REREAD) -> Ways:
    """Put candidates into words.

    Parameters
    ----------
    candidates
        The chosen one first.
    layout
        What is written.
    memory
        Bytes that a task may take.
    reread
        Times that a source chunk may be read before two passes are weighed.
    """
    advice = (*_without_second(candidates, memory, reread, layout.dtype.itemsize), *_advice(candidates, layout, memory))
    return Ways(tuple(candidates), memory, _why(candidates, memory), advice, layout.dtype.itemsize)


def _why(candidates: Sequence[Candidate], memory: int) -> str:
    best, others = candidates[0], candidates[1:]
    fitting = [c for c in others if c.memory <= memory]
    once = "each source chunk is read once" if best.chunk_reads <= best.source_chunks else ""
    slower = [c.seconds for c in fitting if c.seconds is not None]
    if best.seconds is not None and slower and best.seconds < min(slower):
        return f"the soonest done, in {duration_text(best.seconds)} as predicted" + (f"; {once}" if once else "")
    if not fitting:
        alone = "the only way" if not others else "the only way that fits"
        return f"{alone} in {size_text(memory)} a task" + (f"; {once}" if once else "")
    if best.shuffle is not None:
        least = min(c.amplification for c in fitting)
        return f"{once or 'few are read twice'}, where one pass would read it {least:.3g} times; a copy in between costs less"
    if once:
        return once + (", in the smallest memory" if best.memory <= min(c.memory for c in fitting) else "")
    if best.chunk_reads < min(c.chunk_reads for c in fitting):
        return "the fewest reads of those that fit"
    return "the least work for the busiest worker"


def _without_second(candidates: Sequence[Candidate], memory: int, reread: float, itemsize: int) -> list[str]:
    """What the second of two passes is there for."""
    best = candidates[0]
    if best.shuffle is None:
        return []
    said = []
    single = [c for c in candidates if c.shuffle is None and c.memory > memory and c.amplification <= reread]
    if single:
        c = min(single, key=lambda c: (c.memory, c.chunk_reads))
        times = "" if c.chunk_reads <= c.source_chunks else f" (each source chunk is then read {c.amplification:.3g} times)"
        more = worker_memory(c.memory) - worker_memory(memory)
        said.append(f"{size_text(more)} more per worker and the second pass disappears{times}")
    piece = math.prod(best.regions.shape) * itemsize // max(best.shuffle.n_pieces, 1)
    if piece < _SMALL_PIECE and best.shuffle.n_pieces > _MANY_PIECES:
        said.append(f"{best.shuffle.n_pieces:,} ranges of {size_text(piece)} between the passes: more memory makes fewer")
    return said


def _advice(candidates: Sequence[Candidate], layout: TargetLayout, memory: int) -> list[str]:
    best = candidates[0]
    said = []
    better = [c for c in candidates[1:] if c.memory > memory and c.chunk_reads < best.chunk_reads]
    if best.chunk_reads > best.source_chunks and better:
        c = min(better, key=lambda c: (c.chunk_reads, c.memory))
        times = "once" if c.chunk_reads <= c.source_chunks else f"{c.amplification:.3g} times, not {best.amplification:.3g}"
        said.append(f"{size_text(c.memory - memory)} more per task and each source chunk is read {times}")
    if layout.chunk_bytes < _SLOW_CHUNK and layout.chunk_grid.n_chunks > 1 and layout.dtype.kind != "T":
        said.append(f"inner chunks of {size_text(layout.chunk_bytes)} are slow to read: some 100 kB or more is better")
    if layout.n_cells > _MANY_OBJECTS:
        what = "shards" if layout.shard is None else "larger shards"
        said.append(f"{layout.n_cells:,} objects (inodes): {what} would make fewer")
    return said

"""Which chunks of a target will exist, and what reads of them cost.

A target chunk is written where some stored source chunk lies in it: others are all fill, and are left out. What is stored
may still turn out to be all fill, so the prediction is exact for holes and an upper bound for the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drystone.plan.layout import TargetLayout
from drystone.plan.reach import AxisRead, sample

__all__ = ["Occupied", "OccupiedBuilder", "TargetReads"]

type Int64 = NDArray[np.int64]

_MOST_CHUNKS = 1 << 24  # of which a mark of four bytes is kept each
_MOST_TOUCHED = 1 << 22
_POSITIONS = 16
# as zarr-python joins ranges within a shard
_GAP, _SPAN = 1 << 20, 16 << 20
_INDEX_ENTRY, _INDEX_SUM = 16, 4


class OccupiedBuilder:
    """Marks target chunks box by box: corners of boxes are counted, and summed up at the end."""

    def __init__(self, layout: TargetLayout) -> None:
        self._layout = layout
        self._grid = layout.chunk_grid
        self.open = math.prod(n + 1 for n in self._grid.grid_shape) <= _MOST_CHUNKS
        self._marks = np.zeros([n + 1 for n in self._grid.grid_shape] if self.open else [0], np.int32)

    def add(self, start: Int64, stop: Int64) -> None:
        """Mark the chunks of boxes that hold elements; starts and stops are (rank, n)."""
        if not self.open or not start.shape[1]:
            return
        sides = []
        for dimension, a, b in zip(self._grid.dimensions, start, stop, strict=True):
            sides.append((dimension.indices_to_chunks(a), dimension.indices_to_chunks(b - 1) + 1))
        for corner in range(1 << len(sides)):
            ends = [corner >> i & 1 for i in range(len(sides))]
            where = tuple(side[end] for side, end in zip(sides, ends, strict=True))
            np.add.at(self._marks, where, -1 if sum(ends) % 2 else 1)

    def give_up(self) -> None:
        """Which chunks exist cannot be known."""
        self.open = False

    def done(self) -> Occupied | None:
        """What was marked; None where it is not known."""
        if not self.open:
            return None
        total = self._marks
        for axis in range(total.ndim):
            total = np.cumsum(total, axis=axis, dtype=np.int32)
        return Occupied(self._layout, total[tuple(slice(0, n) for n in self._grid.grid_shape)] > 0)


@dataclass(frozen=True, slots=True)
class TargetReads:
    """Means over all positions: chunks that exist, requests answered and not, bytes."""

    stored: float
    requests: float
    misses: float
    objects: float
    fetched: float
    decoded: float


@dataclass(frozen=True, slots=True)
class Occupied:
    """The chunks of a target that will exist: bool, a place a chunk."""

    layout: TargetLayout
    there: NDArray[np.bool_]

    def cost(self, reads: Sequence[AxisRead], ratio: float) -> TargetReads:
        """What a read costs, with raw bytes for each encoded byte."""
        grid = self.layout.chunk_grid
        chances, weights = [], []
        for dimension, read in zip(grid.dimensions, reads, strict=True):
            edges = dimension.edges()
            chances.append(read.chance(edges[:-1], edges[1:]))
            weights.append(chances[-1] * dimension.encoded_sizes(np.arange(dimension.n_chunks)))
        stored = _summed(self.there, chances)
        decoded = _summed(self.there, weights) * self.layout.dtype.itemsize
        if self.layout.shard is None:
            touched = math.prod(float(c.sum()) for c in chances)
            return TargetReads(stored, stored, touched - stored, touched, decoded / ratio, decoded)
        shards = _Shards.of(self.layout, self.there)
        requests, misses, indexes = shards.requests(reads, decoded / ratio / stored if stored else 0.0)
        fetched = decoded / ratio + indexes * (_INDEX_ENTRY * shards.most + _INDEX_SUM)
        return TargetReads(stored, requests, misses, shards.touched(reads), fetched, decoded)


def _summed(there: NDArray[np.bool_], weights: Sequence[NDArray[np.float64]]) -> float:
    total: NDArray[np.float64] | NDArray[np.bool_] = there
    for w in reversed(weights):
        total = total @ w
    return float(total)


@dataclass(frozen=True, slots=True)
class _Shards:
    """Inner chunks by shard: along each axis the shard of each inner chunk and its number in that, and inner chunks in all."""

    layout: TargetLayout
    there: NDArray[np.bool_]
    shard: tuple[Int64, ...]
    local: tuple[Int64, ...]
    keys: Int64

    @classmethod
    def of(cls, layout: TargetLayout, there: NDArray[np.bool_]) -> _Shards:
        shard, local = [], []
        for chunks, cells in zip(layout.chunk_grid.dimensions, layout.cells.dimensions, strict=True):
            at = cells.indices_to_chunks(chunks.edges()[:-1])
            shard.append(at.astype(np.int64))
            local.append(np.arange(len(at)) - np.searchsorted(at, at))
        new = cls(layout, there, tuple(shard), tuple(local), np.zeros(0, np.int64))
        keys = np.sort(new._key(np.nonzero(there)))
        return cls(layout, there, tuple(shard), tuple(local), keys)

    @property
    def most(self) -> int:
        """Inner chunks of a full shard."""
        return math.prod(self.layout.inner_grid)

    def _key(self, where: Sequence[NDArray[np.intp]]) -> Int64:
        """The shard's number times its inner chunks, and the inner chunk's number in C order."""
        shard = np.zeros(len(where[0]) if where else 1, np.int64)
        inner = shard.copy()
        for i, w in enumerate(where):
            shard = shard * self.layout.cell_grid[i] + self.shard[i][w]
            inner = inner * self.layout.inner_grid[i] + self.local[i][w]
        return shard * self.most + inner

    def touched(self, reads: Sequence[AxisRead]) -> float:
        """Mean of shards that a read touches."""
        edges = [d.edges() for d in self.layout.cells.dimensions]
        return math.prod(float(r.chance(e[:-1], e[1:]).sum()) for r, e in zip(reads, edges, strict=True))

    def requests(self, reads: Sequence[AxisRead], nbytes: float) -> tuple[float, float, float]:
        """Means of requests answered and not, and of indexes read; ``nbytes`` is an encoded chunk's size."""
        found = [self._at(start.tolist(), [r.size for r in reads], nbytes) for start in sample(reads, _POSITIONS)]
        answered, missed, indexes = np.array(found, np.float64).mean(axis=0).tolist()
        return answered, missed, indexes

    def _at(self, start: Sequence[int], size: Sequence[int], nbytes: float) -> tuple[int, int, int]:
        """At one position: what :meth:`requests` gives the means of."""
        numbers, whole = [], []
        for i, (chunks, a, n) in enumerate(zip(self.layout.chunk_grid.dimensions, start, size, strict=True)):
            if n < 1:
                return 0, 0, 0
            first, last = chunks.indices_to_chunks(np.array([a, a + n - 1])).tolist()
            numbers.append(np.arange(first, last + 1))
            cells = self.layout.cells.dimensions[i]
            shards, inner = np.unique(self.shard[i][first : last + 1], return_counts=True)
            # a shard is read in one piece where all its inner chunks are wanted, those past the array's end too
            whole.append((shards, inner * self.layout.chunk[i] == cells.encoded_sizes(shards)))
        touched = math.prod(len(s) for s, _ in whole)
        if math.prod(len(n) for n in numbers) > _MOST_TOUCHED:
            full = math.prod(int(w.sum()) for _, w in whole)
            return full + 2 * (touched - full), 0, touched
        near = np.nonzero(self.there[np.ix_(*numbers)])
        keys = np.sort(self._key([n[w] for n, w in zip(numbers, near, strict=True)]))
        total = self._whole(whole, keys // self.most)
        rank = np.searchsorted(self.keys, keys)
        apart = np.diff(keys // self.most) != 0
        apart |= (np.diff(rank) - 1) * nbytes > _GAP
        ranges = np.r_[bool(len(keys)), apart][: len(keys)]
        existing = self._existing([s for s, _ in whole])
        n_ranges = int((ranges & ~total).sum()) + int((~total).sum() * nbytes // _SPAN)
        # for each shard that is there one for its index, or for all of it
        return existing + n_ranges, touched - existing, existing

    def _whole(self, whole: Sequence[tuple[Int64, NDArray[np.bool_]]], shard: Int64) -> NDArray[np.bool_]:
        """For each number of a shard, whether all of that is wanted."""
        out = np.ones(len(shard), np.bool_)
        for i in reversed(range(len(whole))):
            shards, is_whole = whole[i]
            out &= is_whole[np.searchsorted(shards, shard % self.layout.cell_grid[i])]
            shard = shard // self.layout.cell_grid[i]
        return out

    def _existing(self, shards: Sequence[Int64]) -> int:
        """How many of a block of shards hold any chunk."""
        numbers = np.zeros(1, np.int64)
        for i, s in enumerate(shards):
            numbers = (numbers[:, None] * self.layout.cell_grid[i] + s).ravel()
        first = np.searchsorted(self.keys, numbers * self.most)
        return int((first < np.searchsorted(self.keys, (numbers + 1) * self.most)).sum())

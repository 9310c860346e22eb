"""Which chunks of a target will exist, and what a read of them asks of storage.

A target chunk is written where some stored source chunk lies in it: others are all fill, and are left out. What is stored
may still turn out to be all fill, so the prediction is exact for holes and an upper bound for the rest.

Requests are zarr-python's: one for a chunk. Of a shard one for its index and one for each run of inner chunks that lie near
one another, or one in all where it is read whole. What is not there is asked for once, a chunk or a shard each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.ranges import count_joined
from drystone.plan.layout import TargetLayout

__all__ = ["Asked", "Occupied", "OccupiedBuilder", "TargetGrid"]

type Int64 = NDArray[np.int64]

_MOST_CHUNKS = 1 << 24  # of which a mark of four bytes is kept each
# as zarr-python joins ranges within a shard
_GAP, _SPAN = 1 << 20, 16 << 20
_INDEX_ENTRY, _INDEX_SUM = 16, 4


@dataclass(frozen=True, slots=True)
class TargetGrid:
    """What readers of a published array see: chunks, shards or None, and bytes of a decoded element."""

    chunks: ChunkGrid
    shards: ChunkGrid | None
    itemsize: int

    @classmethod
    def of(cls, layout: TargetLayout) -> TargetGrid:
        """Of an array that is written."""
        return cls(layout.chunk_grid, None if layout.shard is None else layout.cells, layout.dtype.itemsize)

    @property
    def is_small(self) -> bool:
        """Whether a mark a chunk is affordable."""
        return math.prod(n + 1 for n in self.chunks.grid_shape) <= _MOST_CHUNKS


@dataclass(frozen=True, slots=True)
class Asked:
    """One read: chunks it touches and those that exist, objects that these lie in, requests with and without bytes, bytes."""

    chunks: int
    stored: int
    objects: int
    requests: int
    probes: int
    fetched: float
    decoded: int


class OccupiedBuilder:
    """Marks chunks of a small grid box by box: corners of boxes are counted, and summed up at the end."""

    def __init__(self, grid: TargetGrid) -> None:
        self._grid = grid
        self._marks = np.zeros([n + 1 for n in grid.chunks.grid_shape], np.int32)

    def add(self, start: Int64, stop: Int64) -> None:
        """Mark the chunks of boxes that hold elements; starts and stops are (rank, n)."""
        if not start.shape[1]:
            return
        sides = []
        for dimension, a, b in zip(self._grid.chunks.dimensions, start, stop, strict=True):
            sides.append((dimension.indices_to_chunks(a), dimension.indices_to_chunks(b - 1) + 1))
        for corner in range(1 << len(sides)):
            ends = [corner >> i & 1 for i in range(len(sides))]
            where = tuple(side[end] for side, end in zip(sides, ends, strict=True))
            np.add.at(self._marks, where, -1 if sum(ends) % 2 else 1)

    def done(self, ratio: float) -> Occupied:
        """What was marked; ``ratio`` is raw bytes for each encoded byte."""
        total = self._marks
        for axis in range(total.ndim):
            total = np.cumsum(total, axis=axis, dtype=np.int32)
        there = total[tuple(slice(0, n) for n in self._grid.chunks.grid_shape)] > 0
        return Occupied(self._grid, there, ratio, None if self._grid.shards is None else _Shards.of(self._grid, there))


@dataclass(frozen=True, slots=True)
class Occupied:
    """The chunks of a target that will exist: bool, a place a chunk."""

    grid: TargetGrid
    there: NDArray[np.bool_]
    ratio: float
    shards: _Shards | None

    def read(self, start: Sequence[int], size: Sequence[int]) -> Asked:
        """A read of ``size`` elements from ``start`` on, one entry an axis."""
        spans, sizes = [], []
        for dimension, a, n in zip(self.grid.chunks.dimensions, start, size, strict=True):
            first, last = dimension.indices_to_chunks(np.array([a, a + max(n, 1) - 1])).tolist()
            spans.append((first, last + (n > 0)))
            sizes.append(dimension.encoded_sizes(np.arange(*spans[-1])))
        block: NDArray[np.bool_] = self.there[tuple(slice(*s) for s in spans)]
        cells: NDArray[np.int64] | NDArray[np.bool_] = block
        for along in reversed(sizes):
            cells = cells @ along
        stored, decoded = int(block.sum()), int(cells) * self.grid.itemsize
        encoded = decoded / self.ratio
        if self.shards is None:
            return Asked(block.size, stored, stored, stored, block.size - stored, encoded, decoded)
        objects, requests, probes, fetched = self.shards.read(spans, block, encoded / stored if stored else 0.0)
        return Asked(block.size, stored, objects, requests, probes, fetched, decoded)


@dataclass(frozen=True, slots=True)
class _Shards:
    """Inner chunks by shard.

    ``shard`` and ``local`` are along each axis the shard of each inner chunk and its number in that; ``whole`` the inner
    chunks of each shard, those past the array's end too; ``keys`` has for each inner chunk that exists its shard's number
    times ``most`` and its own number in C order, ascending.
    """

    grid: tuple[int, ...]
    inner: tuple[int, ...]
    shard: tuple[Int64, ...]
    local: tuple[Int64, ...]
    whole: tuple[Int64, ...]
    keys: Int64

    @classmethod
    def of(cls, grid: TargetGrid, there: NDArray[np.bool_]) -> _Shards:
        assert grid.shards is not None
        shard, local, whole = [], [], []
        for chunks, cells in zip(grid.chunks.dimensions, grid.shards.dimensions, strict=True):
            at = cells.indices_to_chunks(chunks.edges()[:-1]).astype(np.int64)
            shard.append(at)
            local.append(np.arange(len(at)) - np.searchsorted(at, at))
            edge = int(chunks.encoded_sizes(np.arange(1))[0]) if chunks.n_chunks else 1
            whole.append(cells.encoded_sizes(np.arange(cells.n_chunks)) // edge)
        inner = tuple(int(w.max(initial=1)) for w in whole)
        new = cls(grid.shards.grid_shape, inner, tuple(shard), tuple(local), tuple(whole), np.zeros(0, np.int64))
        return cls(new.grid, inner, new.shard, new.local, new.whole, np.sort(new.key(np.nonzero(there))))

    @property
    def most(self) -> int:
        """Inner chunks of the largest shard."""
        return math.prod(self.inner)

    def key(self, where: Sequence[NDArray[np.intp]]) -> Int64:
        """Keys of inner chunks."""
        shard = np.zeros(len(where[0]) if where else 1, np.int64)
        number = shard.copy()
        for i, w in enumerate(where):
            shard = shard * self.grid[i] + self.shard[i][w]
            number = number * self.inner[i] + self.local[i][w]
        return shard * self.most + number

    def read(self, spans: Sequence[tuple[int, int]], block: NDArray[np.bool_], nbytes: float) -> tuple[int, int, int, float]:
        """Shards that exist, requests with and without bytes, and bytes; ``nbytes`` is an encoded chunk's size."""
        touched = np.zeros(1, np.int64)
        full = np.ones(1, np.bool_)
        entries = np.ones(1, np.int64)
        for i, (first, stop) in enumerate(spans):
            numbers, wanted = np.unique(self.shard[i][first:stop], return_counts=True)
            touched = (touched[:, None] * self.grid[i] + numbers).ravel()
            full = (full[:, None] & (wanted == self.whole[i][numbers])).ravel()
            entries = (entries[:, None] * self.whole[i][numbers]).ravel()
        exists = np.searchsorted(self.keys, touched * self.most) < np.searchsorted(self.keys, (touched + 1) * self.most)
        keys = np.sort(self.key([w + first for w, (first, _) in zip(np.nonzero(block), spans, strict=True)]))
        owner = keys // self.most
        apart = ~full[np.searchsorted(touched, owner)]
        # where a chunk lies: behind those that exist before it; gaps are read along
        number = np.searchsorted(self.keys, keys[apart])
        begin, end = ((number + k) * nbytes for k in (0, 1))
        n, between = count_joined(owner[apart], begin.astype(np.int64), end.astype(np.int64), _GAP, _SPAN)
        indexes = float((entries[exists] * _INDEX_ENTRY + _INDEX_SUM).sum())
        n_there = int(exists.sum())
        return n_there, n_there + n, len(exists) - n_there, between + float((~apart).sum()) * nbytes + indexes

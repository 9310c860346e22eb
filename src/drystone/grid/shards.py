"""Two levels: a request over a sharded array as shards, the inner chunks of each, and where their values go.

Inner chunks never straddle shards (Zarr asks for it, :class:`ShardGrid` checks it), so the inner chunks of the whole array
are one chunk grid and a request is planned over that grid as if there were no shards. Per axis the rows of the table are
ascending by inner chunk, hence by shard: a shard is a run of rows on each axis. Everything a shard needs is those runs; no
column is made for the product of shards and inner chunks unless somebody asks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drystone.errors import PlanError
from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.operations import AxisSet, ChunkOperation, ChunkOperations, plan_box, plan_selection
from drystone.grid.selection import Selection

__all__ = ["ShardGrid", "ShardOperation", "ShardOperations", "plan_shard_box", "plan_shard_selection"]

type Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ShardGrid:
    """A grid of shards and the grid of the chunks inside them, both over the whole array.

    Parameters
    ----------
    shards
        The write grid.
    inner
        Chunks of the whole array; every shard edge is one of its edges.

    Raises
    ------
    PlanError
        A shard edge cuts an inner chunk; the message has axis and numbers.

    Examples
    --------
    >>> g = ShardGrid.regular((10, 6), (4, 6), (2, 3))
    >>> g.shards.grid_shape, g.inner.grid_shape, g.slots((0, 0)), g.slots((2, 0))
    ((3, 1), (5, 2), (2, 2), (2, 2))
    """

    shards: ChunkGrid
    inner: ChunkGrid

    def __post_init__(self) -> None:
        if self.shards.shape != self.inner.shape:
            raise PlanError(
                f"shards cover an array of shape {self.shards.shape} and inner chunks one of {self.inner.shape}",
                kind="shard-shape",
            )
        for axis, (shard, inner) in enumerate(zip(self.shards.dimensions, self.inner.dimensions, strict=True)):
            edges = shard.edges()
            cut = ~inner.is_edge(edges)
            size = shard.regular_size
            if size is not None and inner.regular_size is not None and size % inner.regular_size:
                cut[-1] = True  # the last shard is declared whole even where the array ends inside it
            if cut.any():
                at = int(edges[int(np.argmax(cut))]) if size is None else size
                raise PlanError(
                    f"axis {axis}: a shard edge at element {at} cuts an inner chunk (inner chunk sizes: "
                    f"{inner.regular_size or 'rectilinear'}); choose shards whose edges are multiples of the inner chunk",
                    kind="shard-edge",
                    axis=axis,
                    edge=at,
                )

    @classmethod
    def regular(cls, shape: tuple[int, ...], shard_shape: tuple[int, ...], inner_shape: tuple[int, ...]) -> ShardGrid:
        """One shard shape and one inner chunk shape."""
        return cls(ChunkGrid.regular(shape, shard_shape), ChunkGrid.regular(shape, inner_shape))

    def first_inner(self, axis: int, shards: NDArray[np.integer]) -> Int64:
        """The first inner chunk of each shard along an axis, int64."""
        offsets = self.shards.dimensions[axis].chunk_offsets(shards)
        return self.inner.dimensions[axis].indices_to_chunks(offsets).astype(np.int64)

    def slots(self, shard: tuple[int, ...]) -> tuple[int, ...]:
        """Slots of a shard's index along each axis: by its declared size, also where the array ends inside it."""
        out = []
        for shard_axis, inner_axis, s in zip(self.shards.dimensions, self.inner.dimensions, shard, strict=True):
            if shard_axis.regular_size is not None and inner_axis.regular_size is not None:
                out.append(shard_axis.regular_size // inner_axis.regular_size)
            else:
                start = shard_axis.chunk_offset(s)
                last = start + shard_axis.data_size(s) - 1
                out.append(inner_axis.index_to_chunk(last) - inner_axis.index_to_chunk(start) + 1)
        return tuple(out)


@dataclass(frozen=True, slots=True, eq=False)
class ShardOperation:
    """What a request wants of one shard.

    Parameters
    ----------
    shard_coords
        Of the shard.
    first_inner
        Coordinates of the shard's first inner chunk in the grid of the whole: ``coords - first_inner`` is the place of an
        inner chunk within the shard.
    operations
        Over inner chunks, coordinates in the whole; ``out_selection`` is within the result of the whole request.
    coverage_full
        Whether the request takes every element of the shard, each once.
    """

    shard_coords: tuple[int, ...]
    first_inner: tuple[int, ...]
    operations: ChunkOperations
    coverage_full: bool

    @property
    def inner_coords(self) -> Int64:
        """Coordinates of the inner chunks within the shard, int64 (rank, n)."""
        return self.operations.coords - np.array(self.first_inner, np.int64).reshape(-1, 1)

    def __iter__(self) -> Iterator[tuple[tuple[int, ...], ChunkOperation]]:
        """Pairs of coordinates within the shard and the chunk operation."""
        for op in self.operations:
            yield tuple(c - f for c, f in zip(op.chunk_coords, self.first_inner, strict=True)), op


@dataclass(frozen=True, slots=True, eq=False)
class ShardOperations:
    """One request over a sharded array, in C order of shards.

    Parameters
    ----------
    grid
        Both levels.
    operations
        Over the inner chunks of the whole.
    runs
        Per axis: shard, and the run of rows [first, stop) of the axis's table that lies in it; int64 (k,) each.
    """

    grid: ShardGrid
    operations: ChunkOperations
    runs: tuple[tuple[Int64, Int64, Int64], ...]

    def __len__(self) -> int:
        return math.prod(self.touched)

    @property
    def touched(self) -> tuple[int, ...]:
        """Shards touched along each axis."""
        return tuple(len(shard) for shard, _, _ in self.runs)

    @property
    def shard_coords(self) -> Int64:
        """Of each inner operation of :attr:`operations`, int64 (rank, n)."""
        return self.operations.spread(tuple(np.repeat(s, b - a) for s, a, b in self.runs))

    @property
    def inner_coords(self) -> Int64:
        """Of each inner operation of :attr:`operations`, within its shard, int64 (rank, n)."""
        columns = []
        for axis, (shard, a, b) in enumerate(self.runs):
            columns.append(self.operations.sets[axis].chunk - np.repeat(self.grid.first_inner(axis, shard), b - a))
        return self.operations.spread(tuple(columns))

    def __iter__(self) -> Iterator[ShardOperation]:
        for index in np.ndindex(*self.touched):
            rows = [(int(s[i]), int(a[i]), int(b[i])) for i, (s, a, b) in zip(index, self.runs, strict=True)]
            sets = tuple(t.take(slice(a, b)) for t, (_, a, b) in zip(self.operations.sets, rows, strict=True))
            coords = tuple(s for s, _, _ in rows)
            first = tuple(int(self.grid.first_inner(axis, np.array([s]))[0]) for axis, s in enumerate(coords))
            operations = ChunkOperations(sets, self.operations.kept_shape, self.operations.dropped)
            extents = [d.data_size(c) for d, c in zip(self.grid.shards.dimensions, coords, strict=True)]
            whole = all(bool(t.full.all()) and int(t.extent.sum()) == n for t, n in zip(sets, extents, strict=True))
            yield ShardOperation(coords, first, operations, whole)


def _by_shard(operations: ChunkOperations, grid: ShardGrid) -> ShardOperations:
    runs = tuple(_runs(t, axis, grid) for axis, t in enumerate(operations.sets))
    return ShardOperations(grid, operations, runs)


def _runs(table: AxisSet, axis: int, grid: ShardGrid) -> tuple[Int64, Int64, Int64]:
    shard = grid.shards.dimensions[axis].indices_to_chunks(table.chunk_start).astype(np.int64)
    first = np.flatnonzero(np.diff(shard, prepend=-1)).astype(np.int64)
    return shard[first], first, np.append(first[1:], len(shard)).astype(np.int64)[: len(first)]


def plan_shard_selection(selection: Selection, grid: ShardGrid) -> ShardOperations:
    """Plan any orthogonal selection over a sharded array; IndexError where it does not fit.

    Examples
    --------
    >>> plan = plan_shard_selection((slice(3, 9), 1), ShardGrid.regular((10, 6), (4, 6), (2, 3)))
    >>> [(s.shard_coords, s.inner_coords.tolist(), s.coverage_full) for s in plan]
    [((0, 0), [[1], [0]], False), ((1, 0), [[0, 1], [0, 0]], False), ((2, 0), [[0], [0]], False)]
    """
    return _by_shard(plan_selection(selection, grid.inner), grid)


def plan_shard_box(start: tuple[int, ...], stop: tuple[int, ...], grid: ShardGrid) -> ShardOperations:
    """Plan the box [start, stop) over a sharded array; IndexError where it reaches outside.

    Examples
    --------
    >>> plan = plan_shard_box((4, 0), (10, 6), ShardGrid.regular((10, 6), (4, 6), (2, 3)))
    >>> [(s.shard_coords, s.coverage_full) for s in plan]
    [((1, 0), True), ((2, 0), True)]
    """
    return _by_shard(plan_box(start, stop, grid.inner), grid)

"""Selections to chunk operations: which chunks a request touches, which part of each, and where it goes.

A selection resolves one axis at a time into a small table with one row a touched chunk (:class:`StridedSet` for integers
and slices, :class:`IndexedSet` for index arrays); a chunk operation is one row of each table combined. The tables cost the
sum of the axes, the operations their product, so the product is made late and as columns: a box over a million chunks
takes tens of milliseconds, and a Python object an operation exists only while somebody iterates.

Rank is kept: an operation's ``chunk_selection`` and ``out_selection`` have one entry for every axis of the array, also for
axes that an integer drops, and assemble a result of shape ``kept_shape``; reshape it to ``out_shape`` at the end. That way
no mix of integers and arrays ever meets NumPy's rules for moving axes.

The vocabulary is that of the package ``zarr-indexing``, whose ``plan_chunks`` is the oracle of the property tests.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import DimensionGrid
from drystone.grid.parts import AxisPart, as_part, mesh
from drystone.grid.selection import Indexed, NormalAxis, Selection, Strided, normalise

__all__ = ["AxisSet", "ChunkOperation", "ChunkOperations", "IndexedSet", "StridedSet", "plan_box", "plan_selection"]

type Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class StridedSet:
    """One axis read by an integer or a slice: a row a touched chunk, ascending by chunk; columns of equal length.

    Parameters
    ----------
    stride
        Elements of the array from one selected element to the next; negative reads backwards.
    chunk
        Chunk index along the axis.
    chunk_start, chunk_extent
        First element of the chunk in the array, and elements of it that exist.
    local_start
        First selected element within the chunk.
    extent
        Elements selected in the chunk.
    origin
        Place of the first of them in the result.
    full
        Whether every element of the chunk is selected, each once.
    """

    stride: int
    chunk: Int64
    chunk_start: Int64
    chunk_extent: Int64
    local_start: Int64
    extent: Int64
    origin: Int64
    full: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.chunk)

    def take(self, rows: slice) -> StridedSet:
        """Some of the rows."""
        return StridedSet(
            self.stride,
            self.chunk[rows],
            self.chunk_start[rows],
            self.chunk_extent[rows],
            self.local_start[rows],
            self.extent[rows],
            self.origin[rows],
            self.full[rows],
        )

    def moved(self, by: Int64) -> StridedSet:
        """Each chunk's elements counted from ``-by``, one number a row: for chunks that are parts of larger ones."""
        return replace(self, local_start=self.local_start + by)

    def parts(self) -> list[tuple[slice, slice]]:
        """For each row, what it reads within its chunk, and where that goes in the result."""
        step, past = self.stride, 1 if self.stride > 0 else -1
        starts = self.local_start
        stops = starts + step * (self.extent - 1) + past
        rows = zip(starts.tolist(), stops.tolist(), self.origin.tolist(), (self.origin + self.extent).tolist(), strict=True)
        return [(slice(a, None if b < 0 else b, step), slice(first, stop)) for a, b, first, stop in rows]


@dataclass(frozen=True, slots=True, eq=False)
class IndexedSet:
    """One axis read by an index array: a row a touched chunk, ascending by chunk, its points in CSR form.

    Row ``i`` owns ``local[pointer[i]:pointer[i + 1]]`` (elements within the chunk, in the order of the request) and the
    same run of ``positions`` (their places in the result, ascending).
    """

    chunk: Int64
    chunk_start: Int64
    chunk_extent: Int64
    pointer: Int64
    local: Int64
    positions: Int64
    full: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.chunk)

    @property
    def extent(self) -> Int64:
        """Elements selected in each chunk."""
        return np.diff(self.pointer)

    def take(self, rows: slice) -> IndexedSet:
        """Some of the rows; the points are shared."""
        first, last, _ = rows.indices(len(self))
        pointer = self.pointer[first : max(first, last) + 1]
        return IndexedSet(
            self.chunk[rows],
            self.chunk_start[rows],
            self.chunk_extent[rows],
            pointer,
            self.local,
            self.positions,
            self.full[rows],
        )

    def moved(self, by: Int64) -> IndexedSet:
        """Each chunk's elements counted from ``-by``, one number a row: for chunks that are parts of larger ones."""
        local = self.local.copy()
        local[self.pointer[0] : self.pointer[-1]] += np.repeat(by, self.extent)
        return replace(self, local=local)

    def parts(self) -> list[tuple[AxisPart, AxisPart]]:
        """For each row, what it reads within its chunk, and where that goes in the result; slices where both are such."""
        out: list[tuple[AxisPart, AxisPart]] = []
        for a, b in itertools.pairwise(self.pointer.tolist()):
            local, positions = as_part(self.local[a:b]), as_part(self.positions[a:b])
            sliced = isinstance(local, slice) and isinstance(positions, slice)
            out.append((local, positions) if sliced else (self.local[a:b], self.positions[a:b]))
        return out


type AxisSet = StridedSet | IndexedSet


@dataclass(frozen=True, slots=True, eq=False)
class ChunkOperation:
    """One chunk of a plan: ``out[out_selection] = chunk[chunk_selection]``, both of full rank."""

    chunk_coords: tuple[int, ...]
    chunk_selection: tuple[AxisPart, ...]
    out_selection: tuple[AxisPart, ...]
    coverage: Literal["full", "partial"]


@dataclass(frozen=True, slots=True, eq=False)
class ChunkOperations:
    """All operations of one request, in C order of their chunk coordinates; columns are made on demand.

    Parameters
    ----------
    sets
        One table an axis.
    kept_shape
        Of the result, axes dropped by integers kept with length 1.
    dropped
        Per axis, whether the result lacks it.

    Examples
    --------
    >>> ops = plan_selection((slice(3, 9), 1), ChunkGrid.regular((10, 6), (4, 6)))
    >>> len(ops), ops.coords.tolist(), ops.out_shape
    (3, [[0, 1, 2], [0, 0, 0]], (6,))
    >>> ops.operation(1).chunk_selection
    (slice(0, 4, 1), slice(1, 2, 1))
    """

    sets: tuple[AxisSet, ...]
    kept_shape: tuple[int, ...]
    dropped: tuple[bool, ...]

    @property
    def out_shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return tuple(n for n, gone in zip(self.kept_shape, self.dropped, strict=True) if not gone)

    @property
    def touched(self) -> tuple[int, ...]:
        """Chunks touched along each axis."""
        return tuple(len(s) for s in self.sets)

    def __len__(self) -> int:
        return math.prod(self.touched)

    @property
    def strided(self) -> bool:
        """True where no axis is read by an index array."""
        return all(isinstance(s, StridedSet) for s in self.sets)

    def spread(self, columns: tuple[Int64, ...]) -> Int64:
        """Columns of the axes' tables, one an axis, spread over all operations: int64 (rank, n)."""
        out = np.empty((len(columns), *self.touched), np.int64)
        for axis, values in enumerate(columns):
            out[axis] = values.reshape((-1,) + (1,) * (len(columns) - axis - 1))
        return out.reshape(len(columns), -1) if columns else np.empty((0, 1), np.int64)

    @property
    def coords(self) -> Int64:
        """Chunk coordinates, int64 (rank, n)."""
        return self.spread(tuple(s.chunk for s in self.sets))

    @property
    def extents(self) -> Int64:
        """Elements selected in each chunk along each axis, int64 (rank, n)."""
        return self.spread(tuple(s.extent for s in self.sets))

    @property
    def local_start(self) -> Int64:
        """First selected element within each chunk, int64 (rank, n); of strided plans only."""
        return self.spread(tuple(s.local_start for s in self._all_strided()))

    @property
    def origin(self) -> Int64:
        """Place of each operation in the result of shape ``kept_shape``, int64 (rank, n); of strided plans only."""
        return self.spread(tuple(s.origin for s in self._all_strided()))

    def _all_strided(self) -> tuple[StridedSet, ...]:
        found = tuple(s for s in self.sets if isinstance(s, StridedSet))
        if len(found) != len(self.sets):
            raise TypeError("an axis is read by an index array: ask its table for the points")
        return found

    def linear(self, grid_shape: tuple[int, ...]) -> Int64:
        """C-order number of each chunk in a grid of this shape, int64 (n,): the key to join chunk rows by."""
        out = np.zeros(self.touched, np.int64)
        for axis, s in enumerate(self.sets):
            step = math.prod(grid_shape[axis + 1 :])
            out += (s.chunk * step).reshape((-1,) + (1,) * (len(self.sets) - axis - 1))
        return out.reshape(-1)

    @property
    def full(self) -> NDArray[np.bool_]:
        """Whether each chunk is selected whole, every element once, bool (n,)."""
        out = np.ones(self.touched, bool)
        for axis, s in enumerate(self.sets):
            out &= s.full.reshape((-1,) + (1,) * (len(self.sets) - axis - 1))
        return out.reshape(-1)

    def operation(self, i: int) -> ChunkOperation:
        """Operation ``i`` in C order."""
        if not 0 <= i < len(self):
            raise IndexError(f"operation {i} of {len(self)}")
        at = np.unravel_index(i, self.touched) if self.sets else ()
        return next(iter(self._part(tuple(slice(int(k), int(k) + 1) for k in at))))

    def _part(self, rows: tuple[slice, ...]) -> ChunkOperations:
        return ChunkOperations(tuple(s.take(r) for s, r in zip(self.sets, rows, strict=True)), self.kept_shape, self.dropped)

    def __iter__(self) -> Iterator[ChunkOperation]:
        return map(_operation, itertools.product(*(_rows(s) for s in self.sets)))


type _Row = tuple[int, AxisPart, AxisPart, bool]


def _rows(axis: AxisSet) -> list[_Row]:
    """Chunk, what to read within it, where that goes, and whether it is all of the chunk: along one axis."""
    rows = zip(axis.chunk.tolist(), axis.parts(), axis.full.tolist(), strict=True)
    return [(chunk, local, out, full) for chunk, (local, out), full in rows]


def _operation(rows: tuple[_Row, ...]) -> ChunkOperation:
    """The operation made of one row of each axis's table."""
    local, out = tuple([r[1] for r in rows]), tuple([r[2] for r in rows])
    if sum([isinstance(p, np.ndarray) for p in local]) > 1:
        # two arrays side by side would be paired by NumPy; spread them over a mesh
        local, out = mesh(local), mesh(out)
    return ChunkOperation(tuple([r[0] for r in rows]), local, out, "full" if all(r[3] for r in rows) else "partial")


def plan_selection(selection: Selection, grid: ChunkGrid) -> ChunkOperations:
    """Plan any orthogonal selection over a chunk grid.

    Parameters
    ----------
    selection
        As in ``array[selection]``: integers, slices of any stride, index arrays (orthogonal), masks, Ellipsis.
    grid
        Of the array.

    Raises
    ------
    IndexError
        The selection does not fit the array.

    Examples
    --------
    >>> ops = plan_selection(([5, 0, 5],), ChunkGrid.regular((6,), (4,)))
    >>> [(o.chunk_coords, o.coverage) for o in ops]
    [((0,), 'partial'), ((1,), 'partial')]
    """
    axes = normalise(selection, grid.shape)
    sets = tuple(resolve_axis(a, d) for a, d in zip(axes, grid.dimensions, strict=True))
    return ChunkOperations(sets, tuple(a.count for a in axes), tuple(a.dropped for a in axes))


def plan_box(start: tuple[int, ...], stop: tuple[int, ...], grid: ChunkGrid) -> ChunkOperations:
    """Plan the box [start, stop), in elements; it must lie inside the array.

    Raises
    ------
    IndexError
        The box reaches outside the array.

    Examples
    --------
    >>> plan_box((0, 0), (8, 6), ChunkGrid.regular((10, 6), (4, 6))).full.tolist()
    [True, True]
    """
    for axis, (a, b, n) in enumerate(zip(start, stop, grid.shape, strict=True)):
        if not 0 <= a <= b <= n:
            raise IndexError(f"the box {a} to {b} is not inside axis {axis} of {n} elements")
    axes = tuple(Strided(a, 1, b - a) for a, b in zip(start, stop, strict=True))
    sets = tuple(resolve_axis(a, d) for a, d in zip(axes, grid.dimensions, strict=True))
    return ChunkOperations(sets, tuple(a.count for a in axes), (False,) * len(axes))


def resolve_axis(axis: NormalAxis, dimension: DimensionGrid) -> AxisSet:
    """The table of one axis."""
    return _indexed(axis, dimension) if isinstance(axis, Indexed) else _strided(axis, dimension)


def _strided(axis: Strided, dimension: DimensionGrid) -> StridedSet:
    if axis.count == 0:
        none = np.empty(0, np.int64)
        return StridedSet(axis.step, none, none, none, none, none, none, np.empty(0, bool))
    last_element = axis.start + axis.step * (axis.count - 1)
    low, high = min(axis.start, last_element), max(axis.start, last_element)
    step = abs(axis.step)
    if axis.count < _span(dimension, low, high):
        # strides longer than chunks: fewer points than chunks in between, so start from the points
        chunk = np.unique(dimension.indices_to_chunks(np.arange(low, high + 1, step))).astype(np.int64)
    else:
        chunk = np.arange(dimension.index_to_chunk(low), dimension.index_to_chunk(high) + 1, dtype=np.int64)
    chunk_start, chunk_extent = dimension.chunk_offsets(chunk), dimension.data_sizes(chunk)
    # points are low + k * step; those of a chunk are first <= k < stop
    first = np.maximum(0, -((low - chunk_start) // step))
    stop = np.minimum(axis.count, -((low - chunk_start - chunk_extent) // step))
    kept = stop > first
    if not kept.all():
        chunk, chunk_start, chunk_extent, first, stop = (c[kept] for c in (chunk, chunk_start, chunk_extent, first, stop))
    extent = stop - first
    lowest = low + first * step - chunk_start
    full = (extent == chunk_extent) & (lowest == 0) if step == 1 else (extent == 1) & (chunk_extent == 1)
    if axis.step > 0:
        return StridedSet(axis.step, chunk, chunk_start, chunk_extent, lowest, extent, first, full)
    highest = lowest + (extent - 1) * step
    return StridedSet(axis.step, chunk, chunk_start, chunk_extent, highest, extent, axis.count - stop, full)


def _span(dimension: DimensionGrid, low: int, high: int) -> int:
    return dimension.index_to_chunk(high) - dimension.index_to_chunk(low) + 1


def _indexed(axis: Indexed, dimension: DimensionGrid) -> IndexedSet:
    where = dimension.indices_to_chunks(axis.indices).astype(np.int64)
    if np.all(where[1:] >= where[:-1]):
        positions, grouped = np.arange(len(where), dtype=np.int64), where
    else:
        positions = np.argsort(where, kind="stable").astype(np.int64)
        grouped = where[positions]
    first = np.flatnonzero(np.r_[True, grouped[1:] != grouped[:-1]]) if len(grouped) else np.empty(0, np.intp)
    chunk = grouped[first]
    pointer = np.r_[first, len(grouped)].astype(np.int64)
    chunk_start, chunk_extent = dimension.chunk_offsets(chunk), dimension.data_sizes(chunk)
    counts = np.diff(pointer)
    local = axis.indices[positions] - np.repeat(chunk_start, counts)
    full = counts == chunk_extent
    if full.any():
        # as many points as elements: whole only if no element comes twice
        distinct = dimension.indices_to_chunks(np.unique(axis.indices)).astype(np.int64)
        full &= np.diff(np.r_[np.searchsorted(distinct, chunk), len(distinct)]) == chunk_extent
    return IndexedSet(chunk, chunk_start, chunk_extent, pointer, local, positions, full)

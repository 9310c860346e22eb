"""Chunk columns to the rows of one array: coordinates, order, unwritten chunks, and the checks of a hostile index."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drystone.errors import ScanError
from drystone.model.chunk_rows import ChunkRows, State
from drystone.scan.hdf5.chunk_index import ChunkColumns
from drystone.scan.hdf5.dtypes import UnsupportedType

__all__ = ["Grid", "RowSet", "rows_of", "single_row"]

# a chunk that was never written gets a row, unless such rows would be this many times those of the stored chunks
DENSE_RATIO = 10
DENSE_ROWS = 100_000
_MAX_COORD = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Grid:
    """A dataset's chunk grid: shape and chunk shape in elements, bytes of a decoded chunk."""

    path: str
    shape: tuple[int, ...]
    chunk_shape: tuple[int, ...]
    chunk_nbytes: int

    @property
    def grid_shape(self) -> tuple[int, ...]:
        """Chunks along each axis."""
        return tuple(-(-n // c) for n, c in zip(self.shape, self.chunk_shape, strict=True))


@dataclass(frozen=True, slots=True)
class RowSet:
    """Rows with the filter masks beside them; ``outside`` counts index entries beyond the grid, which were left out."""

    rows: ChunkRows
    masks: dict[int, int]
    sparse: bool
    outside: int


def single_row(rank: int, offset: int | None, length: int) -> ChunkRows:
    """The row of a contiguous dataset; without an offset nothing was ever written."""
    if offset is None:
        return ChunkRows.single(rank, -1, 0, State.MISSING)
    return ChunkRows.single(rank, offset, length)


def rows_of(
    columns: ChunkColumns,
    grid: Grid,
    *,
    file_size: int,
    address: str,
    n_filters: int,
    limit: int,
    state: State = State.REFERENCED,
) -> RowSet:
    """Rows of a chunked dataset.

    Parameters
    ----------
    columns
        As the index has them.
    n_filters
        Of the pipeline: without filters a chunk's length is known.
    limit
        Rows at most.
    state
        Of stored chunks: ``REFERENCED``, or ``LIBRARY`` where no codec of ours undoes the pipeline.

    Raises
    ------
    ScanError
        ``truncated``: a chunk lies beyond the end of the file.
    UnsupportedType
        ``chunk-index``: the index contradicts itself; the array is refused, not the file.
    """
    if len(columns.offset) == 1 and state is State.REFERENCED:
        only = _only(columns, grid, file_size, n_filters)
        if only is not None:
            return only
    shape = grid.grid_shape
    if any(n > _MAX_COORD for n in shape):
        raise UnsupportedType("chunk-index", f"its chunk grid {shape} has more than 2^31 chunks along an axis")
    _check_ranges(columns, grid, file_size, address)
    step = np.array(grid.chunk_shape, np.int64)
    coords = columns.start // step if len(step) else columns.start
    inside = (coords < np.array(shape, np.int64)).all(axis=1) & (coords >= 0).all(axis=1)
    outside = int(len(inside) - np.count_nonzero(inside))
    offset, length, mask = columns.offset, columns.length, columns.mask
    start = columns.start
    if outside:
        coords, offset, length, mask, start = (a[inside] for a in (coords, offset, length, mask, start))
    if (start != coords * step).any():
        raise UnsupportedType("chunk-index", "its chunk index has chunks that start between grid lines")
    _check_lengths(length, mask, grid, n_filters)
    total = math.prod(shape)
    if total <= min(DENSE_RATIO * len(offset) + DENSE_ROWS, limit):
        return _dense(coords, offset, length, mask, shape, total, state, outside)
    return _sparse(coords, offset, length, mask, state, outside)


def _only(columns: ChunkColumns, grid: Grid, file_size: int, n_filters: int) -> RowSet | None:
    """The row of an array of one chunk, as most arrays of small files are; None where anything about it is not usual."""
    offset, length = int(columns.offset[0]), int(columns.length[0])
    if any(n > c for n, c in zip(grid.shape, grid.chunk_shape, strict=True)) or columns.start.any() or columns.mask.any():
        return None
    if offset < 0 or not 0 < length <= file_size - offset or (n_filters == 0 and length != grid.chunk_nbytes):
        return None
    rows = ChunkRows(np.zeros((len(grid.shape), 1), np.int32), columns.offset, columns.length, np.zeros(1, np.int8))
    return RowSet(rows, {}, sparse=False, outside=0)


def _check_ranges(columns: ChunkColumns, grid: Grid, file_size: int, address: str) -> None:
    if not len(columns.offset):
        return
    bad = (columns.offset < 0) | (columns.length < 0) | (columns.offset > file_size - columns.length)
    if bad.any():
        i = int(np.argmax(bad))
        raise ScanError(
            f"{address}: truncated: {int(bad.sum())} of {len(bad)} chunks of {grid.path} lie beyond the end of the file; the "
            f"first one at element {tuple(columns.start[i].tolist())} has {int(columns.length[i])} bytes from byte "
            f"{int(columns.offset[i])}, the file has {file_size}",
            kind="truncated",
            granule=address,
            size=file_size,
            array=grid.path,
        )


def _check_lengths(length: NDArray[np.int64], mask: NDArray[np.int64], grid: Grid, n_filters: int) -> None:
    if (length == 0).any():
        raise UnsupportedType("chunk-index", "its chunk index has chunks of 0 bytes")
    everything = (1 << n_filters) - 1
    raw = (mask & everything) == everything
    wrong = raw & (length != grid.chunk_nbytes)
    if wrong.any():
        n = int(length[int(np.argmax(wrong))])
        raise UnsupportedType(
            "chunk-index", f"it has unfiltered chunks of {n} bytes where its shape and type ask for {grid.chunk_nbytes}"
        )


def _dense(
    coords: NDArray[np.int64],
    offset: NDArray[np.int64],
    length: NDArray[np.int64],
    mask: NDArray[np.int64],
    shape: tuple[int, ...],
    total: int,
    state: State,
    outside: int,
) -> RowSet:
    """One row a chunk of the grid, in C order."""
    strides = np.array([math.prod(shape[i + 1 :]) for i in range(len(shape))], np.int64)
    linear = coords @ strides if len(shape) else np.zeros(len(offset), np.int64)
    if len(linear) == total and (total < 2 or (linear[1:] > linear[:-1]).all()):
        # all there and in order: the columns are the rows
        masks = _masks(mask)
        return RowSet(_rows(np.ascontiguousarray(coords.T, np.int32), offset, length, state), masks, False, outside)
    places = np.zeros(total, bool)
    places[linear] = True
    if np.count_nonzero(places) != len(linear):
        raise UnsupportedType("chunk-index", "its chunk index has one chunk twice")
    all_coords = np.array(np.unravel_index(np.arange(total), shape), np.int32).reshape(len(shape), total)
    full_offset = np.full(total, -1, np.int64)
    full_length = np.zeros(total, np.int64)
    full_mask = np.zeros(total, np.int64)
    full_mask[linear] = mask
    if state is State.REFERENCED:
        full_offset[linear] = offset
        full_length[linear] = length
    states = np.where(places, np.int8(state), np.int8(State.MISSING)).astype(np.int8)
    return RowSet(ChunkRows(all_coords, full_offset, full_length, states), _masks(full_mask), False, outside)


def _sparse(
    coords: NDArray[np.int64],
    offset: NDArray[np.int64],
    length: NDArray[np.int64],
    mask: NDArray[np.int64],
    state: State,
    outside: int,
) -> RowSet:
    """Stored chunks only, in C order; the grid may be too large to number."""
    order = np.lexsort(coords.T[::-1])
    coords, offset, length, mask = (a[order] for a in (coords, offset, length, mask))
    if len(order) > 1 and (coords[1:] == coords[:-1]).all(axis=1).any():
        raise UnsupportedType("chunk-index", "its chunk index has one chunk twice")
    return RowSet(_rows(np.ascontiguousarray(coords.T, np.int32), offset, length, state), _masks(mask), True, outside)


def _rows(coords: NDArray[np.int32], offset: NDArray[np.int64], length: NDArray[np.int64], state: State) -> ChunkRows:
    n = len(offset)
    if state is not State.REFERENCED:
        offset, length = np.full(n, -1, np.int64), np.zeros(n, np.int64)
    return ChunkRows(coords, offset, length, np.full(n, state, np.int8))


def _masks(mask: NDArray[np.int64]) -> dict[int, int]:
    at = np.flatnonzero(mask)
    return dict(zip(at.tolist(), mask[at].tolist(), strict=True))

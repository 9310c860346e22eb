"""From chunk coordinates within granules to chunk coordinates of the whole, as columns.

One published array can refer to a granule's chunks only where they fall on its grid. Combining proves that; it is
proved again here, on integers alone, since a shifted reference is a silent wrong value.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from drystone.errors import TableError, UnsupportedError
from drystone.model.array import ArraySpec
from drystone.model.chunk_rows import RowBatch, State
from drystone.model.placement import CombinedArray

__all__ = ["Placer"]


class Placer:
    """Moves rows of one array into the whole's chunk coordinates, and counts them.

    Parameters
    ----------
    array
        A combined array on a regular grid.

    Raises
    ------
    UnsupportedError
        ``unaligned``: a granule's chunks are no whole chunks of the array.
    """

    def __init__(self, array: CombinedArray) -> None:
        self._array = array
        placements = array.placements
        self._axis = placements.axis
        self._order = np.argsort(placements.granule_id, kind="stable")
        self._ids = placements.granule_id[self._order]
        if np.any(self._ids[1:] == self._ids[:-1]):
            raise UnsupportedError(
                f"{array.path}: a granule is placed more than once, which one column of references cannot say; publish the "
                "array as a store (rechunk)",
                kind="unaligned",
                array=array.path,
            )
        self._sparse = np.array([v.sparse for v in array.variants])[placements.variant[self._order]]
        self._first, self._shift, self._n = self._columns()
        self._rows = np.zeros(len(self._ids), np.int64)

    @property
    def granule_ids(self) -> NDArray[np.int32]:
        """The granules that the array is placed from, ascending."""
        return self._ids

    def _columns(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """First chunk used within the granule, shift to the whole, chunks used along the axis: int64 (n,) each."""
        array, axis = self._array, self._axis
        size = array.grid.regular_shape
        if array.unaligned is not None or size is None:
            raise self._refused(array.unaligned or "its chunks have different sizes along an axis")
        p = array.placements
        used = {int(v) for v in np.unique(p.variant[p.count > 0] if axis is not None else p.variant)}
        for i in sorted(used):
            self._check_variant(array.variants[i], size)
        n = len(self._ids)
        if axis is None:
            zero = np.zeros(n, np.int64)
            return zero, zero, zero + (array.grid.grid_shape[0] if array.shape else 1)
        c, extent = size[axis], array.shape[axis]
        src, count, dest = (column[self._order] for column in (p.src_offset, p.count, p.dest))
        have = np.array([v.shape[axis] for v in array.variants], np.int64)[p.variant[self._order]]
        at_end = dest + count == extent
        off = (src % c != 0) | (dest % c != 0) | (((dest + count) % c != 0) & ~at_end)
        # a slab may stop within a chunk of its granule only where that chunk hangs over the array's end
        off |= ((src + count) % c != 0) & (src + count != have) & ~at_end
        off |= (src + count > have) | (dest + count > extent)
        bad = np.flatnonzero(off & (count > 0))
        if len(bad):
            i = int(bad[0])
            raise self._refused(
                f"granule {self._ids[i]} gives elements {src[i]} to {src[i] + count[i]} of its {have[i]} along "
                f"{array.dims[axis]}, to land at {dest[i]}, off the chunk edges of {c}"
            )
        return src // c, dest // c - src // c, -(-count // c)

    def _check_variant(self, variant: ArraySpec, size: tuple[int, ...]) -> None:
        array = self._array
        if variant.chunk_shape != size:
            raise self._refused(f"a granule has chunks {variant.chunk_shape} where the array has {size}")
        if variant.codecs.signature() != array.codecs.signature() or variant.dtype != array.stored_dtype:
            raise self._refused("a granule's bytes decode otherwise than the array says")
        if (variant.fill or b"").strip(b"\0") != (array.fill or b"").strip(b"\0"):
            raise self._refused("a granule's unwritten chunks read as another value than the array's")
        whole = tuple(n for i, n in enumerate(variant.shape) if i != self._axis)
        if whole != tuple(n for i, n in enumerate(array.shape) if i != self._axis):
            raise self._refused(f"a granule has the shape {variant.shape} where the array has {array.shape}")
        if not variant.padded and any(n % c for n, c in zip(variant.shape, variant.chunk_shape, strict=True)):
            raise self._refused("a granule stores its last chunk short, and a Zarr chunk is always full")

    def _refused(self, reason: str) -> UnsupportedError:
        path = self._array.path
        text = reason if reason.startswith(path) else f"{path}: {reason}; publish it as a store (rechunk)"
        return UnsupportedError(text, kind="unaligned", array=path)

    def place(self, batch: RowBatch) -> tuple[RowBatch, NDArray[np.intp]]:
        """The rows that the whole uses, in its chunk coordinates, and the position of each row's placement.

        Raises
        ------
        TableError
            A row lies outside the array's grid.
        """
        at = np.searchsorted(self._ids, batch.granule_id)
        at[at == len(self._ids)] = 0
        keep = self._ids[at] == batch.granule_id if len(self._ids) else np.zeros(len(batch), np.bool_)
        coords = batch.coords
        if self._axis is not None:
            local = batch.coords[self._axis].astype(np.int64)
            keep &= (local >= self._first[at]) & (local < self._first[at] + self._n[at])
            coords = batch.coords.copy()
            coords[self._axis] = local + self._shift[at]
        if not keep.all():
            batch, coords, at = _filter(batch, keep), coords[:, keep], at[keep]
        grid = np.array(self._array.grid.grid_shape, np.int64)[:, None]
        if len(batch) and (np.any(coords < 0) or np.any(coords >= grid)):
            raise TableError(
                f"{self._array.path}: the table has a chunk outside the array's grid {self._array.grid.grid_shape}; "
                "scan the archive again",
                kind="outside-grid",
                array=self._array.path,
            )
        self._rows += np.bincount(at, minlength=len(self._ids))
        placed = RowBatch(batch.granule_id, coords, batch.offset, batch.length, batch.state, batch.inline, batch.masks)
        return placed, self._order[at]

    def finish(self) -> None:
        """Prove that every chunk of a granule that leaves none out had its row.

        Raises
        ------
        TableError
            Rows are lacking, or there are too many.
        """
        grid = self._array.grid.grid_shape
        other = math.prod(grid[i] for i in range(len(grid)) if i != (self._axis or 0))
        expected = self._n * other
        bad = np.flatnonzero((self._rows > expected) | ((self._rows < expected) & ~self._sparse))
        if len(bad):
            i = int(bad[0])
            raise TableError(
                f"{self._array.path}: the table has {self._rows[i]} chunks of granule {self._ids[i]} and {expected[i]} are "
                "due; nothing was published; scan the archive again",
                kind="row-count",
                array=self._array.path,
                granule_id=int(self._ids[i]),
                rows=int(self._rows[i]),
                expected=int(expected[i]),
            )


def _filter(batch: RowBatch, keep: NDArray[np.bool_]) -> RowBatch:
    new = np.cumsum(keep) - 1
    return RowBatch(
        batch.granule_id[keep],
        batch.coords[:, keep],
        batch.offset[keep],
        batch.length[keep],
        batch.state[keep],
        {int(new[i]): data for i, data in batch.inline.items() if keep[i]},
        {int(new[i]): mask for i, mask in batch.masks.items() if keep[i]},
    )


def reorder(batch: RowBatch, order: NDArray[np.intp]) -> RowBatch:
    """The rows of a batch in another order."""
    inverse = np.empty(len(order), np.intp)
    inverse[order] = np.arange(len(order))
    return RowBatch(
        batch.granule_id[order],
        batch.coords[:, order],
        batch.offset[order],
        batch.length[order],
        batch.state[order],
        {int(inverse[i]): data for i, data in batch.inline.items()},
        {int(inverse[i]): mask for i, mask in batch.masks.items()},
    )


def unusable(batch: RowBatch) -> State | None:
    """A state among the rows that no reference can say, or None."""
    for state in (State.LIBRARY, State.HELD):
        if np.any(batch.state == state):
            return state
    return None

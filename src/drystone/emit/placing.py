"""From chunk coordinates within granules to chunk coordinates of the whole, as columns.

One published array can refer to a granule's chunks only where they fall on its grid: every chunk that is used must begin
and end where a chunk of the whole does, on every axis, and decode to as many elements. Combining proves that; it is
proved again here, on integers alone, since a shifted reference is a silent wrong value.

A granule may be placed more than once, its rows then come once for each placement. Along the lead axis a chunk of plain
bytes may be cut into slabs that are chunks of the whole (:mod:`drystone.plan.cutting`): one row becomes several.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drystone.errors import TableError, UnsupportedError
from drystone.grid.dimension import RegularDimension
from drystone.model.chunk_rows import RowBatch, State
from drystone.model.placement import CombinedArray
from drystone.plan.cutting import is_cuttable

__all__ = ["Placer", "reorder", "unusable"]

type Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Placements along one axis, in elements: int64 (m,) columns; ``variant`` numbers the array's variants."""

    src: Int64
    count: Int64
    dest: Int64
    variant: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class _Chunks:
    """Placements along one axis, in chunks of the whole: int64 (m,) columns.

    ``first`` is the first chunk used within the granule (in slabs, where its chunks are cut), ``n`` how many are, ``start``
    where the first one lands.
    """

    first: Int64
    n: Int64
    start: Int64

    def take(self, where: NDArray[np.intp]) -> _Chunks:
        return _Chunks(self.first[where], self.n[where], self.start[where])


class Placer:
    """Moves rows of one array into the whole's chunk coordinates, and counts them.

    Parameters
    ----------
    array
        A combined array whose grid holds its granules' chunks.

    Raises
    ------
    UnsupportedError
        ``unaligned``: a granule's chunks are no whole chunks of the array.
    """

    def __init__(self, array: CombinedArray) -> None:
        self._array = array
        if array.unaligned is not None:
            raise self._refused(array.unaligned)
        p = array.placements
        self._order = np.argsort(p.granule_id, kind="stable")
        self._ids = p.granule_id[self._order]
        self._variant = p.variant[self._order]
        self._tile = p.tile[self._order] if len(p.tile) else np.zeros(len(p), np.int32)
        self._edges = np.array([v.chunk_shape for v in array.variants], np.int64).reshape(len(array.variants), -1)
        self._have = np.array([v.shape for v in array.variants], np.int64).reshape(len(array.variants), -1)
        self._ratio = np.ones(len(array.variants), np.int64)
        used = np.unique(p.variant if p.axis is None else p.variant[p.count > 0])
        for i in used.tolist():
            self._check_variant(i)
        self._axes = [self._axis(d) for d in range(len(array.shape))]
        # where every placement takes all of an axis at its beginning, rows need neither be chosen nor moved
        grids = -(-self._have // np.maximum(self._edges, 1))
        self._moved = [
            d
            for d, c in enumerate(self._axes)
            if d == p.axis or not (np.all(c.first == 0) and np.all(c.start == 0) and np.all(c.n == grids[self._variant, d]))
        ]
        self._grids = grids
        self._due = np.ones(len(self._ids), np.int64)
        for c in self._axes:
            self._due *= c.n
        self._rows = np.zeros(len(self._ids), np.int64)

    def _refused(self, reason: str) -> UnsupportedError:
        path = self._array.path
        text = reason if reason.startswith(path) else f"{path}: {reason}; publish it as a store (rechunk)"
        return UnsupportedError(text, kind="unaligned", array=path)

    def _check_variant(self, i: int) -> None:
        array, variant = self._array, self._array.variants[i]
        lead = array.placements.axis
        if array.recode(i) is not None:
            raise self._refused("a granule's numbers must be rewritten to fit the array, which no reference does")
        if variant.codecs.signature() != array.codecs.signature() or variant.dtype != array.stored_dtype:
            raise self._refused("a granule's bytes decode otherwise than the array says")
        if not array.fills_as(variant):
            raise self._refused("a granule's unwritten chunks read as another value than the array's")
        if not array.placements.is_tiled and any(
            n != m for d, (n, m) in enumerate(zip(variant.shape, array.shape, strict=True)) if d != lead
        ):
            raise self._refused(f"a granule has the shape {variant.shape} where the array has {array.shape}")
        for d, dim in enumerate(array.grid.dimensions):
            size, edge = dim.regular_size, variant.chunk_shape[d]
            if size is None or size == edge:
                continue
            if d == lead and edge % size == 0 and is_cuttable(variant, d):
                self._ratio[i] = edge // size
            else:
                regular = array.grid.regular_shape or array.grid.encoded_shape((0,) * len(array.shape))
                raise self._refused(f"a granule has chunks {variant.chunk_shape} where the array has {regular}")

    def _axis(self, d: int) -> _Chunks:
        """The chunks of every placement along one axis."""
        p, variant = self._array.placements, self._variant
        if d == p.axis:
            src, count, dest = (column[self._order] for column in (p.src_offset, p.count, p.dest))
            return self._chunks(d, _Pieces(src, count, dest, variant), np.arange(len(variant)))
        # off the lead axis there are a few distinct ones
        key = self._tile.astype(np.int64) * max(1, len(self._array.variants)) + variant
        _, example, which = np.unique(key, return_index=True, return_inverse=True)
        if p.tiles:
            rows = [(t.src_offset[d], t.count[d], t.dest[d]) for t in p.tiles]
        else:
            rows = [(0, self._array.shape[d], 0)]
        src, count, dest = np.array(rows, np.int64).reshape(-1, 3).T[:, self._tile[example]]
        if p.axis is not None:
            count = np.where(self._present(which, len(example)), count, 0)
        return self._chunks(d, _Pieces(src, count, dest, variant[example]), example).take(which)

    def _present(self, which: NDArray[np.intp], n: int) -> NDArray[np.bool_]:
        """Whether any placement of each kind holds something along the lead axis."""
        held = self._array.placements.count[self._order] > 0
        present = np.zeros(n, np.bool_)
        present[which[held]] = True
        return present

    def _chunks(self, d: int, pieces: _Pieces, example: NDArray[np.intp]) -> _Chunks:
        """Chunks along one axis, each proved to be a chunk of the whole; ``example`` is a placement of each piece.

        Raises
        ------
        UnsupportedError
            One is not.
        """
        dim = self._array.grid.dimensions[d]
        src, count, dest, variant = pieces.src, pieces.count, pieces.dest, pieces.variant
        own, have = self._edges[variant, d], self._have[variant, d]
        padded = np.array([v.padded for v in self._array.variants], np.bool_)[variant]
        stored = np.where(padded, -(-have // own) * own, have)  # elements that the chunks' bytes hold
        edge = own // self._ratio[variant] if d == self._array.placements.axis else own
        first, n = src // edge, -(-count // edge)
        off = (src < 0) | (dest < 0) | (src + count > have) | (dest + count > dim.extent) | (src % edge != 0)
        if isinstance(dim, RegularDimension):
            start = dest // dim.size
            off |= (edge != dim.size) | (dest % dim.size != 0)
            off |= ((dest + count) % dim.size != 0) & (dest + count != dim.extent)
            off |= (first + n) * edge > stored
        else:
            off |= ~dim.is_edge(dest) | ~dim.is_edge(dest + count)
            safe = np.where(off | (count == 0), 0, dest)
            start = dim.indices_to_chunks(safe).astype(np.int64) if dim.extent else np.zeros(len(src), np.int64)
            off |= start + n > dim.n_chunks
            good = np.flatnonzero(~off & (count > 0))
            which = np.repeat(good, n[good])
            number = np.arange(len(which)) - np.repeat(np.cumsum(n[good]) - n[good], n[good])
            local = (first[which] + number) * edge[which]
            data = np.minimum(edge[which], src[which] + count[which] - local)
            encoded = np.minimum(edge[which], stored[which] - local)
            at = start[which] + number
            off[which[(data != dim.data_sizes(at)) | (encoded != dim.encoded_sizes(at))]] = True
        bad = np.flatnonzero(off & (count > 0))
        if len(bad):
            i = int(bad[0])
            edges = f"of {dim.size}" if isinstance(dim, RegularDimension) else "of the array"
            raise self._refused(
                f"granule {self._ids[example[i]]} gives elements {src[i]} to {src[i] + count[i]} of its {have[i]} along "
                f"{self._array.dims[d]}, to land at {dest[i]}, off the chunk edges {edges}"
            )
        return _Chunks(first, np.where(count > 0, n, 0), start)

    def _in_whole_rank(self, coords: NDArray[np.int32]) -> NDArray[np.int32]:
        new = set(self._array.new_axes)
        if not new:
            return coords
        out = np.zeros((len(self._array.shape), coords.shape[1]), np.int32)
        out[[d for d in range(len(out)) if d not in new]] = coords
        return out

    def place(self, batch: RowBatch, window: slice | None = None) -> tuple[RowBatch, NDArray[np.intp]]:
        """The rows that the whole uses, in its chunk coordinates, and the position of each row's placement.

        Parameters
        ----------
        batch
            Coordinates within granules.
        window
            Positions of the placements that count; None: all.

        Raises
        ------
        TableError
            A row lies outside its granule's grid, or its bytes are too few.
        """
        batch = batch.at(self._array.fixed)
        left, times = self._placed_times(batch.granule_id)
        rows, at, coords = np.arange(len(batch)), left, self._in_whole_rank(batch.coords)
        if np.any(times != 1):
            rows = np.repeat(rows, times)
            at = np.repeat(left - (np.cumsum(times) - times), times) + np.arange(len(rows))
            coords = coords[:, rows]
        if window is not None:
            order = self._order[at]
            inside = (order >= window.start) & (order < window.stop)
            rows, at, coords = rows[inside], at[inside], coords[:, inside]
        if self._outside(coords, at):
            raise TableError(
                f"{self._array.path}: the table has a chunk outside the array's grid {self._array.grid.grid_shape}; "
                "scan the archive again",
                kind="outside-grid",
                array=self._array.path,
            )
        rows, at, coords, slab = self._choose(rows, at, coords)
        self._rows += np.bincount(at, minlength=len(self._ids))
        return self._taken(batch, rows, at, coords, slab), self._order[at]

    def _outside(self, coords: NDArray[np.int32], at: NDArray[np.intp]) -> bool:
        """Whether a chunk lies outside its granule's grid."""
        if not coords.size:
            return False
        if len(self._grids) == 1:
            return bool((coords.min(axis=1) < 0).any() or (coords.max(axis=1) >= self._grids[0]).any())
        return bool(np.any(coords < 0) or np.any(coords >= self._grids[self._variant[at]].T))

    def _placed_times(self, granule_id: NDArray[np.int32]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Each row's first placement, and how many there are; looked up once a run of rows of one granule."""
        if not len(granule_id):
            return np.zeros(0, np.intp), np.zeros(0, np.intp)
        first = np.flatnonzero(np.concatenate([[True], granule_id[1:] != granule_id[:-1]]))
        length = np.diff(np.append(first, len(granule_id)))
        left = np.searchsorted(self._ids, granule_id[first], side="left")
        times = np.searchsorted(self._ids, granule_id[first], side="right") - left
        return np.repeat(left, length), np.repeat(times, length)

    def _choose(
        self, rows: NDArray[np.intp], at: NDArray[np.intp], coords: NDArray[np.int32]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.int32], Int64 | None]:
        """Rows that placements use, moved to the whole; and for cut chunks the number of each row's slab."""
        lead, slab = self._array.placements.axis, None
        if np.any(self._ratio != 1):
            assert lead is not None
            ratio = self._ratio[self._variant[at]]
            chunks = self._axes[lead]
            low = np.maximum(coords[lead] * ratio, chunks.first[at])
            n = np.maximum(np.minimum((coords[lead] + 1) * ratio, chunks.first[at] + chunks.n[at]) - low, 0)
            which = np.repeat(np.arange(len(rows)), n)
            fine = low[which] + np.arange(len(which)) - np.repeat(np.cumsum(n) - n, n)
            slab = fine - coords[lead][which] * ratio[which]
            rows, at, coords = rows[which], at[which], coords[:, which]
            coords[lead] = fine
        keep = np.ones(len(rows), np.bool_)
        for d in self._moved:
            chunks = self._axes[d]
            keep &= (coords[d] >= chunks.first[at]) & (coords[d] < (chunks.first + chunks.n)[at])
        if not keep.all():
            rows, at, coords = rows[keep], at[keep], coords[:, keep]
            slab = None if slab is None else slab[keep]
        coords = coords.copy() if self._moved and slab is None else coords  # the batch keeps its own
        for d in self._moved:
            chunks = self._axes[d]
            coords[d] += (chunks.start - chunks.first).astype(np.int32)[at]
        return rows, at, coords, slab

    def _taken(
        self, batch: RowBatch, rows: NDArray[np.intp], at: NDArray[np.intp], coords: NDArray[np.int32], slab: Int64 | None
    ) -> RowBatch:
        if slab is None:
            if len(rows) == len(batch) and np.array_equal(rows, np.arange(len(batch))):
                return RowBatch(batch.granule_id, coords, batch.offset, batch.length, batch.state, batch.inline, batch.masks)
            return RowBatch(
                batch.granule_id[rows],
                coords,
                batch.offset[rows],
                batch.length[rows],
                batch.state[rows],
                _renumbered(batch.inline, rows),
                _renumbered(batch.masks, rows),
            )
        array = self._array
        one = self._edges[self._variant[at]].prod(axis=1) // self._ratio[self._variant[at]] * array.stored_dtype.itemsize
        state, length = batch.state[rows], batch.length[rows]
        held = (state == State.REFERENCED) | (state == State.INLINE)
        short = np.flatnonzero(held & ((slab + 1) * one > length))
        if len(short):
            i = int(short[0])
            raise TableError(
                f"{array.path}: granule {batch.granule_id[rows[i]]} has a chunk of {length[i]} bytes, and "
                f"{(slab[i] + 1) * one[i]} are due; nothing was published; scan the archive again",
                kind="chunk-short",
                array=array.path,
                granule_id=int(batch.granule_id[rows[i]]),
            )
        inline = {
            i: data[int(slab[i] * one[i]) : int((slab[i] + 1) * one[i])] for i, data in _renumbered(batch.inline, rows).items()
        }
        offset = np.where(state == State.REFERENCED, batch.offset[rows] + slab * one, batch.offset[rows])
        return RowBatch(batch.granule_id[rows], coords, offset, np.where(held, one, length), state, inline, {})

    def finish(self) -> None:
        """Prove that every chunk of a placement whose granule leaves none out had its row.

        Raises
        ------
        TableError
            Rows are lacking, or there are too many.
        """
        sparse = np.array([v.sparse for v in self._array.variants], np.bool_)[self._variant]
        bad = np.flatnonzero((self._rows > self._due) | ((self._rows < self._due) & ~sparse))
        if len(bad):
            i = int(bad[0])
            raise TableError(
                f"{self._array.path}: the table has {self._rows[i]} chunks of granule {self._ids[i]} and {self._due[i]} are "
                "due; nothing was published; scan the archive again",
                kind="row-count",
                array=self._array.path,
                granule_id=int(self._ids[i]),
                rows=int(self._rows[i]),
                expected=int(self._due[i]),
            )


def _renumbered[T](things: Mapping[int, T], rows: NDArray[np.intp]) -> dict[int, T]:
    """Things by row of a batch, as things by row of those taken from it."""
    if not things:
        return {}
    return {i: things[int(rows[i])] for i in np.flatnonzero(np.isin(rows, list(things))).tolist()}


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

"""Granules that decode alike, and the chunk rows that a request needs of them.

A :class:`Group` knows the touched chunks as a table an axis, and joins batches of rows to them by column, so that Python
runs only for chunks that are fetched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drystone.grid.parts import AxisPart
from drystone.model.array import ArraySpec
from drystone.model.chunk_rows import RowBatch
from drystone.model.recode import Recode

__all__ = ["AxisTable", "Group", "Matches", "Part", "Place"]

type Int64 = NDArray[np.int64]

_MOST_KEPT = 1 << 16


class Part(NamedTuple):
    """One axis of one chunk; named tuples, since one is made or read for every chunk.

    ``local`` is what to read of it, ``out`` where that goes, ``encoded`` how many elements its bytes decode to; ``whole``
    says that all of them are wanted, in order, ``sliced`` that both parts are slices.
    """

    local: AxisPart
    out: AxisPart
    encoded: int
    whole: bool
    sliced: bool

    @classmethod
    def of(cls, local: AxisPart, out: AxisPart, encoded: int) -> Part:
        """Work the rest out."""
        whole = isinstance(local, slice) and local.start == 0 and local.stop == encoded and local.step in (1, None)
        return cls(local, out, encoded, whole, isinstance(local, slice) and isinstance(out, slice))


class Place(NamedTuple):
    """The parts of all axes of one chunk: see :class:`Part`."""

    local: tuple[AxisPart, ...]
    out: tuple[AxisPart, ...]
    encoded_shape: tuple[int, ...]
    whole: bool
    sliced: bool


@dataclass(frozen=True, slots=True)
class AxisTable:
    """The touched chunks of one axis that is not combined.

    ``number[c]`` is the row of chunk ``c`` or -1; ``parts`` are what to read, where it goes, and the size that the chunk
    decodes to along the axis.
    """

    number: NDArray[np.intp]
    parts: list[Part]


@dataclass(frozen=True, slots=True)
class Matches:
    """Rows of a batch that a request needs, each with its place in every table; columns of equal length.

    Parameters
    ----------
    row
        Row of the batch.
    lead
        Row of the group's lead.
    others
        intp (axes, n): row of each other axis' table.
    """

    row: NDArray[np.intp]
    lead: NDArray[np.intp]
    others: NDArray[np.intp]

    def take(self, order: NDArray[np.intp]) -> Matches:
        """Some, or in another order."""
        return Matches(self.row[order], self.lead[order], self.others[:, order])


@dataclass(slots=True)
class Group:
    """Granules that decode alike in one place off the combine axis, and what is wanted of them.

    Parameters
    ----------
    axis
        The combine axis, or None.
    path
        Of the array within granules.
    spec
        The structure they share; its shape along the combine axis is one granule's and means nothing here.
    granule_id
        int32 (n,): of each touched segment.
    chunk
        int64 (n,): its chunk coordinate along the combine axis.
    lead_parts
        For each touched segment.
    others
        A table for each axis that is not combined.
    recode
        How decoded numbers become those of the whole; None where they are.
    new_axes
        Axes that rows' coordinates lack.
    apart
        Whether other groups hold most granules of the request.
    seen
        bool (segments, *chunks touched on the other axes): chunks that some row told of.
    """

    axis: int | None
    path: str
    spec: ArraySpec
    granule_id: NDArray[np.int32]
    chunk: Int64
    lead_parts: list[Part]
    others: list[AxisTable]
    recode: Recode | None = None
    new_axes: tuple[int, ...] = ()
    apart: bool = False
    seen: NDArray[np.bool_] = field(init=False)
    _keys: Int64 = field(init=False)
    _order: NDArray[np.intp] = field(init=False)
    _span: int = field(init=False)
    _places: dict[tuple[int, ...], Place] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.seen = np.zeros((len(self.granule_id), *(len(t.parts) for t in self.others)), bool)
        self._span = int(self.chunk.max()) + 1 if len(self.chunk) else 1
        keys = self.granule_id.astype(np.int64) * self._span + self.chunk
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def match(self, batch: RowBatch) -> Matches:
        """The rows of a batch that are wanted, and for what; a chunk that is wanted twice comes twice."""
        rows = self._rows(batch)
        other_axes = [a for a in range(len(self.spec.shape)) if a != self.axis]
        for a, table in zip(other_axes, self.others, strict=True):
            at = self._coords(batch, a, rows)
            inside = (at >= 0) & (at < len(table.number))
            rows, at = rows[inside], at[inside]
            rows = rows[table.number[at] >= 0]
        lead = np.zeros(len(rows), np.int64) if self.axis is None else self._coords(batch, self.axis, rows).astype(np.int64)
        near = (lead >= 0) & (lead < self._span)
        rows = rows[near]
        key = batch.granule_id[rows].astype(np.int64) * self._span + lead[near]
        left = np.searchsorted(self._keys, key, side="left")
        count = np.searchsorted(self._keys, key, side="right") - left
        times = np.repeat(np.arange(len(rows)), count)
        place = left[times] + np.arange(len(times)) - np.repeat(np.cumsum(count) - count, count)
        rows = rows[times]
        others = np.empty((len(self.others), len(rows)), np.intp)
        for i, (a, table) in enumerate(zip(other_axes, self.others, strict=True)):
            others[i] = table.number[self._coords(batch, a, rows)]
        found = Matches(rows, self._order[place], others)
        self.seen[(found.lead, *others)] = True
        return found

    def _rows(self, batch: RowBatch) -> NDArray[np.intp]:
        """Rows of a batch that may be of this group's granules."""
        if self.apart and len(self._keys) and bool((batch.granule_id[1:] >= batch.granule_id[:-1]).all()):
            ids = np.unique(self._keys // self._span).astype(batch.granule_id.dtype)
            left = np.searchsorted(batch.granule_id, ids, side="left")
            n = np.searchsorted(batch.granule_id, ids, side="right") - left
            rows: NDArray[np.intp] = np.repeat(left, n) + np.arange(int(n.sum())) - np.repeat(np.cumsum(n) - n, n)
            return rows
        return np.arange(len(batch))

    def _coords(self, batch: RowBatch, axis: int, rows: NDArray[np.intp]) -> NDArray[np.integer]:
        """Chunk coordinates along an axis of the whole; 0 along one that granules lack."""
        if axis in self.new_axes:
            return np.zeros(len(rows), np.int32)
        coords: NDArray[np.integer] = batch.coords[axis - sum(n < axis for n in self.new_axes), rows]
        return coords

    def place(self, lead: int, others: tuple[int, ...]) -> Place:
        """Where one chunk goes."""
        base = self._places.get(others)
        if base is None:
            parts = [t.parts[i] for t, i in zip(self.others, others, strict=True)]
            base = Place(
                tuple([p.local for p in parts]),
                tuple([p.out for p in parts]),
                tuple([p.encoded for p in parts]),
                all(p.whole for p in parts),
                all(p.sliced for p in parts),
            )
            if len(self._places) < _MOST_KEPT:
                self._places[others] = base
        a = self.axis
        if a is None:
            return base
        part = self.lead_parts[lead]
        local, out, shape, whole, sliced = base
        return Place(
            (*local[:a], part.local, *local[a:]),
            (*out[:a], part.out, *out[a:]),
            (*shape[:a], part.encoded, *shape[a:]),
            whole and part.whole,
            sliced and part.sliced,
        )

    def origin(self, lead: int, others: tuple[int, ...]) -> tuple[int, ...]:
        """First element of a chunk within its granule, 0 along axes that it lacks."""
        numbers = [int(np.flatnonzero(t.number == i)[0]) for t, i in zip(self.others, others, strict=True)]
        if self.axis is not None:
            numbers.insert(self.axis, int(self.chunk[lead]))
        return tuple(n * c for n, c in zip(numbers, self.spec.chunk_shape, strict=True))

    def inner(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """One number an axis of the whole, as one an axis of the granule's array."""
        return tuple(n for a, n in enumerate(numbers) if a not in self.new_axes)

    def outer(self, values: NDArray[np.generic]) -> NDArray[np.generic]:
        """Values with the axes of the granule's array, as values with those of the whole."""
        return np.expand_dims(values, self.new_axes) if self.new_axes else values

    def delivered(self, values: NDArray[np.generic]) -> NDArray[np.generic]:
        """Decoded values, of any byte order, as values of the whole.

        Raises
        ------
        DecodeError
            A number has no exact place there.
        """
        if self.recode is None:
            return values
        native = np.atleast_1d(values.astype(self.spec.native_dtype, copy=False))
        return self.recode.apply(native).reshape(values.shape)

    def fill(self) -> NDArray[np.generic]:
        """0-d array that an unwritten chunk reads as: the granule's storage fill, as a value of the whole."""
        spec = self.spec
        if spec.fill is None or spec.dtype.kind == "T":
            return self.delivered(np.zeros((), spec.native_dtype))
        return self.delivered(np.frombuffer(spec.fill, spec.dtype, 1).astype(spec.native_dtype).reshape(()))

    @property
    def chunk_nbytes(self) -> int:
        """Decoded size of a full chunk; text counts as 64 bytes an element."""
        return math.prod(self.spec.chunk_shape) * (64 if self.spec.dtype.kind == "T" else self.spec.dtype.itemsize)

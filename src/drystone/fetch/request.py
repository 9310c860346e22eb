"""One read, worked out: its groups of like granules, and the chunk rows that each of them needs.

Granules whose chunks decode alike (same dtype, codecs, fill and chunk shape) make one :class:`Group`. A group knows the
touched chunks as a table an axis, and joins batches of rows to them by column, so that Python runs only for chunks that
are fetched.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drystone.errors import TableError
from drystone.fetch.lead import Lead, Segments, cut, resolve
from drystone.grid.dimension import RegularDimension
from drystone.grid.operations import resolve_axis
from drystone.grid.parts import AxisPart
from drystone.grid.selection import NormalAxis
from drystone.model.array import ArraySpec
from drystone.model.chunk_rows import RowBatch
from drystone.model.placement import CombinedArray

__all__ = ["Group", "Matches", "Place", "Request", "make_request"]

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
    """Granules that decode alike, and what is wanted of them.

    Parameters
    ----------
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
    seen
        bool (segments, *chunks touched on the other axes): chunks that some row told of.
    """

    axis: int | None
    spec: ArraySpec
    granule_id: NDArray[np.int32]
    chunk: Int64
    lead_parts: list[Part]
    others: list[AxisTable]
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
        rows = np.arange(len(batch))
        other_axes = [a for a in range(len(self.spec.shape)) if a != self.axis]
        for a, table in zip(other_axes, self.others, strict=True):
            at = batch.coords[a, rows]
            inside = (at >= 0) & (at < len(table.number))
            rows, at = rows[inside], at[inside]
            rows = rows[table.number[at] >= 0]
        lead = batch.coords[self.axis, rows].astype(np.int64) if self.axis is not None else np.zeros(len(rows), np.int64)
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
            others[i] = table.number[batch.coords[a, rows]]
        found = Matches(rows, self._order[place], others)
        self.seen[(found.lead, *others)] = True
        return found

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
        """First element of a chunk within its granule."""
        numbers = [int(np.flatnonzero(t.number == i)[0]) for t, i in zip(self.others, others, strict=True)]
        if self.axis is not None:
            numbers.insert(self.axis, int(self.chunk[lead]))
        return tuple(n * c for n, c in zip(numbers, self.spec.chunk_shape, strict=True))

    @property
    def chunk_nbytes(self) -> int:
        """Decoded size of a full chunk; text counts as 64 bytes an element."""
        return math.prod(self.spec.chunk_shape) * (64 if self.spec.dtype.kind == "T" else self.spec.dtype.itemsize)


@dataclass(frozen=True, slots=True)
class Request:
    """Everything that one read needs to know.

    ``kept_shape`` has a 1 where an integer drops the axis; ``gap`` are the places along ``axis`` that no granule holds.
    """

    array: CombinedArray
    kept_shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    groups: list[Group]
    gap: Int64

    @property
    def granule_ids(self) -> NDArray[np.int32]:
        """Of every granule that holds a wanted element, ascending."""
        ids = [g.granule_id for g in self.groups]
        return np.unique(np.concatenate(ids)) if ids else np.zeros(0, np.int32)


def make_request(array: CombinedArray, axes: tuple[NormalAxis, ...]) -> Request:
    """Work out a read.

    Parameters
    ----------
    axes
        A normalised selection, one entry an axis.
    """
    kept = tuple(a.count for a in axes)
    out = tuple(a.count for a in axes if not a.dropped)
    if 0 in kept:
        return Request(array, kept, out, [], np.zeros(0, np.int64))
    axis = array.placements.axis
    if axis is None:
        lead = Lead(np.zeros(1, np.intp), [(slice(0), slice(0))], np.zeros(0, np.int64))
        zero = np.zeros(1, np.int64)
        segments = Segments(np.zeros(1, np.intp), zero, zero, zero, zero, zero)
    else:
        segments = cut(array.placements, array.variants, axes[axis])
        lead = resolve(segments, axes[axis])
    placement = segments.placement[lead.segment]
    variants = array.placements.variant[placement]
    by_structure: dict[tuple[object, ...], list[int]] = {}
    for v in np.unique(variants).tolist():
        by_structure.setdefault(_decoding(array.variants[v], axis), []).append(v)
    groups = []
    for members in by_structure.values():
        rows = np.arange(len(placement)) if len(by_structure) == 1 else np.flatnonzero(np.isin(variants, members))
        spec = array.variants[members[0]]
        _check(array, spec, axis)
        groups.append(
            Group(
                axis,
                spec,
                array.placements.granule_id[placement[rows]],
                segments.chunk[lead.segment[rows]],
                [
                    Part.of(*lead.parts[i], n)
                    for i, n in zip(rows.tolist(), segments.encoded[lead.segment[rows]].tolist(), strict=True)
                ],
                [_table(axes[a], spec, a) for a in range(len(axes)) if a != axis],
            )
        )
    return Request(array, kept, out, groups, lead.gap)


def _decoding(spec: ArraySpec, axis: int | None) -> tuple[object, ...]:
    """What must be equal for granules to be read alike: all but attributes and the size along the combine axis."""
    shape = tuple(n for a, n in enumerate(spec.shape) if a != axis)
    return spec.dtype, spec.fill, spec.codecs, spec.chunk_shape, spec.sparse, spec.padded, shape


def _table(axis: NormalAxis, spec: ArraySpec, a: int) -> AxisTable:
    extent, edge = spec.shape[a], spec.chunk_shape[a]
    dimension = RegularDimension(extent, edge)
    touched = resolve_axis(axis, dimension)
    number = np.full(dimension.n_chunks, -1, np.intp)
    number[touched.chunk] = np.arange(len(touched))
    encoded = np.full(len(touched), edge) if spec.padded else dimension.data_sizes(touched.chunk)
    return AxisTable(number, [Part.of(*p, n) for p, n in zip(touched.parts(), encoded.tolist(), strict=True)])


def _check(array: CombinedArray, spec: ArraySpec, axis: int | None) -> None:
    """What the combine step promises; without it values could land in the wrong place."""
    for a, (n, m) in enumerate(zip(array.shape, spec.shape, strict=True)):
        if a != axis and n != m:
            raise TableError(
                f"{array.path}: a granule has {m} elements along axis {a} ({array.dims[a]}) where the whole has {n}; the plan "
                "does not fit the scans; combine again",
                kind="plan-mismatch",
                path=array.path,
            )
    if spec.native_dtype != array.dtype:
        raise TableError(
            f"{array.path}: a granule stores {spec.dtype} where the whole has {array.dtype}; the plan does not fit the scans; "
            "combine again",
            kind="plan-mismatch",
            path=array.path,
        )

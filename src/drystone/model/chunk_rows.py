"""Chunk rows in flight: one array of one granule as columns."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from drystone.model.array import ArraySpec, GroupSpec
from drystone.model.granule import Companion

__all__ = ["ChunkRows", "Refusal", "RowBatch", "ScanResult", "ScannedArray", "State"]


class State(IntEnum):
    """What a row says of its chunk; the numbers are stored and never change."""

    REFERENCED = 0  # offset and length name the bytes in the granule
    INLINE = 1  # the bytes are in the side table
    MISSING = 2  # the granule holds no bytes for it: it reads as the storage fill
    HELD = 3  # a copy of the bytes lies in our own storage (not written yet by any verb)
    LIBRARY = 4  # only the format's own library can decode it


@dataclass(frozen=True, slots=True)
class ChunkRows:
    """Columns of equal length, sorted by chunk coordinates in C order.

    Parameters
    ----------
    coords
        int32 (rank, n): chunk coordinates within the granule.
    offset
        int64 (n,): byte offset in the granule; -1 where the state is not ``REFERENCED``.
    length
        int64 (n,): encoded bytes; 0 where the state is not ``REFERENCED`` or ``INLINE``.
    state
        int8 (n,): see :class:`State`.

    A row costs 4 bytes an axis and 17 more.

    Examples
    --------
    >>> r = ChunkRows.single(2, 4096, 100)
    >>> len(r), r.coords.shape, State(int(r.state[0])).name
    (1, (2, 1), 'REFERENCED')
    """

    coords: NDArray[np.int32]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    state: NDArray[np.int8]

    def __post_init__(self) -> None:
        n = len(self.offset)
        if self.coords.ndim != 2 or not self.coords.shape[1] == n == len(self.length) == len(self.state):
            raise ValueError(f"columns differ in length: {self.coords.shape}, {n}, {len(self.length)}, {len(self.state)}")

    def __len__(self) -> int:
        return len(self.offset)

    @property
    def rank(self) -> int:
        """Axes."""
        return int(self.coords.shape[0])

    @property
    def nbytes(self) -> int:
        """Bytes that the columns take."""
        return self.coords.nbytes + self.offset.nbytes + self.length.nbytes + self.state.nbytes

    @classmethod
    def single(cls, rank: int, offset: int, length: int, state: State = State.REFERENCED) -> ChunkRows:
        """One row at the origin."""
        return cls(
            np.zeros((rank, 1), np.int32),
            np.array([offset], np.int64),
            np.array([length], np.int64),
            np.array([state], np.int8),
        )

    @classmethod
    def empty(cls, rank: int) -> ChunkRows:
        """No rows."""
        return cls(np.zeros((rank, 0), np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int8))

    def sorted(self) -> ChunkRows:
        """The same rows in C order of their coordinates."""
        if self.rank == 0 or len(self) < 2:
            return self
        order = np.lexsort(self.coords[::-1])
        if np.array_equal(order, np.arange(len(order))):
            return self
        return ChunkRows(self.coords[:, order], self.offset[order], self.length[order], self.state[order])

    def update_digest(self, digest: hashlib.blake2b) -> None:
        """Feed the rows, without granule and attempt ids, to a digest."""
        for column in (self.coords, self.offset, self.length, self.state):
            digest.update(np.ascontiguousarray(column).tobytes())


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Rows of one array over many granules, as columns.

    ``coords`` is int32 (rank, n), within each granule or within the whole, as the function that gives it says; the other
    columns have length n; ``inline`` and ``masks`` go by row number within the batch.
    """

    granule_id: NDArray[np.int32]
    coords: NDArray[np.int32]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    state: NDArray[np.int8]
    inline: Mapping[int, bytes] = field(default_factory=dict)
    masks: Mapping[int, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.offset)

    def at(self, fixed: Sequence[tuple[int, int]]) -> RowBatch:
        """The rows at some coordinates, without those axes; ``fixed`` are pairs of axis and coordinate.

        Examples
        --------
        >>> one = np.zeros(2, np.int64)
        >>> batch = RowBatch(one.astype("i4"), np.array([[0, 1], [5, 6]], np.int32), one, one, one.astype("i1"), {1: b"x"})
        >>> batch.at([(0, 1)]).coords.tolist(), batch.at([(0, 1)]).inline
        ([[6]], {0: b'x'})
        """
        if not fixed:
            return self
        keep = np.ones(len(self), np.bool_)
        for axis, place in fixed:
            keep &= self.coords[axis] == place
        rows = np.flatnonzero(keep)
        number = {int(row): i for i, row in enumerate(rows)} if self.inline or self.masks else {}
        left = [a for a in range(len(self.coords)) if a not in dict(fixed)]
        return RowBatch(
            self.granule_id[rows],
            self.coords[np.ix_(left, rows)],
            self.offset[rows],
            self.length[rows],
            self.state[rows],
            {number[i]: data for i, data in self.inline.items() if i in number},
            {number[i]: mask for i, mask in self.masks.items() if i in number},
        )


@dataclass(frozen=True, slots=True)
class Refusal:
    """A thing in a granule that has no exact reference, or none at all, and why; the rest of the granule goes on."""

    path: str
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class ScannedArray:
    """An array of a granule with its rows and the rare things beside them.

    Parameters
    ----------
    spec, rows
        Without rows for the chunks of ``spec.sparse`` arrays that were never written.
    inline
        Row number to the encoded bytes of that chunk, for state ``INLINE``.
    masks
        Row number to the HDF5 filter mask, where it is not 0 (bit i set: filter i of the pipeline was skipped).
    coordinate
        Decoded native values of a small one-dimensional or scalar array, for placing granules; None for others.
    """

    spec: ArraySpec
    rows: ChunkRows
    inline: Mapping[int, bytes] = field(default_factory=dict)
    masks: Mapping[int, int] = field(default_factory=dict)
    coordinate: NDArray[np.generic] | None = None


@dataclass(frozen=True, slots=True)
class ScanResult:
    """All that one scan of one granule found."""

    format: str
    groups: tuple[GroupSpec, ...]
    arrays: tuple[ScannedArray, ...]
    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[Refusal, ...] = ()
    companions: tuple[Companion, ...] = ()

    @property
    def n_rows(self) -> int:
        """Chunk rows in all."""
        return sum(len(a.rows) for a in self.arrays)

    def digest(self, texts: Mapping[int, tuple[str, str]] | None = None, groups: Sequence[str] | None = None) -> str:
        """Hex digest of everything a reader of the table would see, granule and attempt ids left out.

        Parameters
        ----------
        texts
            ``id`` of each array to its structure and attributes as JSON, where these were made already: making them takes
            most of a small granule's time.
        groups
            The groups as JSON, where these were made already.
        """
        h = hashlib.blake2b(digest_size=16)
        for group in groups if groups is not None else [g.to_json() for g in self.groups]:
            h.update(group.encode())
        for array in sorted(self.arrays, key=lambda a: a.spec.path):
            known = None if texts is None else texts[id(array)]
            structure, attributes = known or (array.spec.structure(), array.spec.attributes.to_json())
            h.update(structure.encode())
            h.update(attributes.encode())
            array.rows.update_digest(h)
            for row, data in sorted(array.inline.items()):
                h.update(row.to_bytes(8, "little") + data)
            for row, mask in sorted(array.masks.items()):
                h.update(row.to_bytes(8, "little") + mask.to_bytes(4, "little"))
        return h.hexdigest()

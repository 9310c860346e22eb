"""What a read would ask of storage, without asking.

The same steps as in :mod:`~drystone.fetch.fetcher`, from selections to groups, rows, runs and ranges, with counting in the
place of reading: what is told here is what the fetcher does, not a model of it. Rows are given from outside, so that one
pass over a table serves many reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from drystone.fetch.picked import read_picked
from drystone.fetch.plain import is_worth_cutting, pieces
from drystone.fetch.request import Request, make_request
from drystone.fetch.source import MOST_SPAN, gap_of
from drystone.fetch.work import Work, make_work, spread
from drystone.grid.ranges import count_joined
from drystone.grid.selection import NormalAxis, Strided
from drystone.model.chunk_rows import RowBatch, State
from drystone.model.placement import CombinedArray

__all__ = ["Preview", "Reader"]


@dataclass(frozen=True, slots=True)
class Reader:
    """A fetcher as far as it decides about requests.

    Parameters
    ----------
    threads, bytes_in_flight
        Of the fetcher.
    remote
        Whether granules lie elsewhere than in folders.
    """

    threads: int
    bytes_in_flight: int
    remote: bool


@dataclass(slots=True)
class Preview:
    """One read of a box, counted.

    Parameters
    ----------
    reader
        Who reads.
    requests
        What is read, as the fetcher works it out: one request, or several of an array that takes places of another.

    Attributes
    ----------
    stored
        Wanted chunks that have bytes.
    ranges
        Requests that give bytes.
    fetched, decoded
        Bytes.
    by_library
        Of ``stored``, those that a format's library reads, whose requests are its own.
    """

    reader: Reader
    requests: list[Request]
    stored: int = 0
    ranges: int = 0
    fetched: int = 0
    decoded: int = 0
    by_library: int = 0
    _granules: list[list[NDArray[np.int32]]] = field(init=False)

    def __post_init__(self) -> None:
        self._granules = [[] for _ in self.requests]

    @classmethod
    def of(cls, array: CombinedArray, start: Sequence[int], size: Sequence[int], reader: Reader) -> Preview:
        """A read of ``size`` elements from ``start`` on, one entry an axis.

        Raises
        ------
        TableError
            No granule holds the array, or placements do not fit it.
        """
        axes: tuple[NormalAxis, ...] = tuple(Strided(int(a), 1, int(n)) for a, n in zip(start, size, strict=True))
        if array.picked is None:
            return cls(reader, [make_request(array, axes)])
        asked: list[Request] = []

        def ask(base: CombinedArray, some: tuple[NormalAxis, ...]) -> NDArray[np.generic]:
            asked.append(make_request(base, some))
            return np.broadcast_to(np.zeros((), base.dtype), tuple(a.count for a in some))

        read_picked(ask, array.picked, axes)
        return cls(reader, asked)

    @property
    def chunks(self) -> int:
        """Chunks that hold what is wanted, with bytes or without."""
        return sum(g.seen.size for r in self.requests for g in r.groups)

    @property
    def granules(self) -> int:
        """Granules that are opened, each as often as a read of the fetcher opens it."""
        return sum(len(np.unique(np.concatenate(ids))) for ids in self._granules if ids)

    def add(self, batch: RowBatch) -> None:
        """Count what is wanted of a batch of the array's rows, at its fixed places."""
        for request, ids in zip(self.requests, self._granules, strict=True):
            for group in request.groups:
                found = group.match(batch)
                found = found.take(np.flatnonzero(batch.state[found.row] != State.MISSING))
                if len(found.row):
                    ids.append(np.unique(batch.granule_id[found.row]))
                    self._tally(make_work(group, batch, found), len(request.groups))

    def _tally(self, work: Work, groups: int) -> None:
        reader, batch, row = self.reader, work.batch, work.found.row
        _, runs = spread(work, groups, reader.threads, reader.bytes_in_flight, reader.remote)
        ends = np.zeros(len(row), np.int64)
        ends[[first for first, _, _ in runs]] = 1
        granule = batch.granule_id[row]
        owner = np.cumsum(ends | np.r_[0, granule[1:] != granule[:-1]])
        state, offset, length = batch.state[row], batch.offset[row], batch.length[row]
        decoded = length if work.group.spec.dtype.kind == "T" else _decoded(work)
        asked, cut = state == State.REFERENCED, np.zeros(len(row), np.bool_)
        if work.plain:
            n, nbytes, cut = _cut(work, asked)
            self.ranges += int(n.sum())
            self.fetched += int(nbytes.sum())
            decoded = np.where(cut, nbytes, decoded)
        whole = asked & ~cut
        n_joined, n_bytes = count_joined(
            owner[whole], offset[whole], (offset + length)[whole], gap_of(reader.remote), MOST_SPAN
        )
        self.ranges += n_joined
        self.fetched += n_bytes
        self.stored += len(row)
        self.decoded += int(decoded.sum())
        self.by_library += int((state == State.LIBRARY).sum())


def _decoded(work: Work) -> NDArray[np.int64]:
    """Bytes that each row decodes to."""
    group, found = work.group, work.found
    cells = np.ones(len(found.row), np.int64)
    if group.axis is not None:
        cells *= np.array([p.encoded for p in group.lead_parts], np.int64)[found.lead]
    for table, number in zip(group.others, found.others, strict=True):
        cells *= np.array([p.encoded for p in table.parts], np.int64)[number]
    return cells * group.spec.dtype.itemsize


def _cut(work: Work, asked: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """For each row of unfiltered chunks the requests and bytes of the pieces that it is read in, and whether it is."""
    itemsize = work.group.spec.dtype.itemsize
    n, nbytes = np.zeros((2, len(asked)), np.int64)
    cut = np.zeros(len(asked), np.bool_)
    lead, others = work.found.lead.tolist(), work.found.others.T.tolist()
    known: dict[tuple[object, ...], tuple[int, int]] = {}
    for i in np.flatnonzero(asked).tolist():
        place = work.group.place(lead[i], tuple(others[i]))
        cut[i] = is_worth_cutting(place, itemsize)
        if not cut[i]:
            continue
        key = (*((p.start, p.stop, p.step) for p in place.local if isinstance(p, slice)), place.encoded_shape)
        counted = known.get(key) if place.sliced else None
        if counted is None:
            lengths = [p.length for p in pieces(place, itemsize)]
            counted = known[key] = len(lengths), sum(lengths)
        n[i], nbytes[i] = counted
    return n, nbytes, cut

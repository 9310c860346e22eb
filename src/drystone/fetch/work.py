"""The part of a read that runs in threads: fetch ranges of granules, decode chunks, put them where they go.

A :class:`Work` is the wanted rows of one batch for one group, as columns sorted by granule and offset. It is cut into runs
by bytes, not by Python objects; a thread takes a run, reads each granule's ranges in one call and decodes chunk by chunk
into the result.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from drystone.codecs.decode import Decoder, decoder
from drystone.errors import DecodeError, DrystoneError, TableError
from drystone.fetch.lead import AxisPart
from drystone.fetch.request import Group, Matches
from drystone.fetch.source import GranuleSource
from drystone.model.chunk_rows import RowBatch, State

__all__ = ["Call", "Work", "make_work", "put"]


@dataclass(slots=True)
class Call:
    """What the threads of one read share."""

    path: str
    out: NDArray[np.generic]
    source_of: Callable[[int], GranuleSource]
    check_stamps: bool
    checked: dict[int, GranuleSource] = field(default_factory=dict)
    failed: bool = False
    bytes_read: int = 0
    bytes_decoded: int = 0
    chunks: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def source(self, granule_id: int) -> GranuleSource:
        """A granule, its stamp compared the first time that it is asked for."""
        source = self.source_of(granule_id)
        if self.check_stamps and granule_id not in self.checked:
            source.check()
            self.checked[granule_id] = source
        return source


@dataclass(frozen=True, slots=True)
class Work:
    """Wanted rows of one batch, columns of equal length, by granule and then offset."""

    group: Group
    batch: RowBatch
    row: list[int]
    granule_id: list[int]
    offset: list[int]
    length: list[int]
    state: list[int]
    lead: list[int]
    others: list[tuple[int, ...]]
    cost: NDArray[np.int64]
    decoders: dict[tuple[int, tuple[int, ...]], Decoder]

    def runs(self, nbytes: int, by_granule: bool) -> Iterator[tuple[int, int, int]]:
        """(first, stop, cost) of runs of about so many bytes; ``by_granule``: none spans granules."""
        total = np.cumsum(self.cost)
        number = (total - 1) // max(1, nbytes)
        if by_granule:
            number = np.cumsum(np.r_[0, np.diff(self.granule_id) != 0]) * (int(number[-1]) + 1) + number
        edges = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(self.row)]
        for a, b in itertools.pairwise(edges):
            yield a, b, int(total[b - 1] - (total[a - 1] if a else 0))

    def run(self, call: Call, first: int, stop: int) -> None:
        """Fetch, decode and deliver a run."""
        at = first
        while at < stop and not call.failed:
            end = at + 1
            while end < stop and self.granule_id[end] == self.granule_id[at]:
                end += 1
            self._granule(call, at, end)
            at = end

    def _granule(self, call: Call, first: int, stop: int) -> None:
        source = call.source(self.granule_id[first])
        fetched = [i for i in range(first, stop) if self.state[i] == State.REFERENCED]
        parts, n_read = (
            source.read([self.offset[i] for i in fetched], [self.length[i] for i in fetched]) if fetched else ([], 0)
        )
        n_decoded = 0
        at = first
        try:
            for at, data in zip(fetched, parts, strict=True):
                n_decoded += self._decode(call, data, at)
            for at in range(first, stop) if len(fetched) < stop - first else ():
                if self.state[at] == State.LIBRARY:
                    n_decoded += self._library(call, source, at)
                elif self.state[at] == State.INLINE:
                    n_decoded += self._decode(call, self.batch.inline[self.row[at]], at)
        except DrystoneError as error:
            raise self._located(call, source, at, error) from error
        with call.lock:
            call.bytes_read += n_read
            call.bytes_decoded += n_decoded
            call.chunks += stop - first

    def _decode(self, call: Call, data: memoryview | bytes, i: int) -> int:
        place = self.group.place(self.lead[i], self.others[i])
        key = (self.batch.masks.get(self.row[i], 0), place.encoded_shape)
        ready = self.decoders.get(key)
        if ready is None:
            spec = self.group.spec
            ready = self.decoders[key] = decoder(spec.codecs, spec.dtype, place.encoded_shape, key[0])
        if place.sliced:
            # the Ellipsis keeps a view where no axis is left
            ready.into(data, call.out[(*place.out, ...)], None if place.whole else place.local)
        else:
            put(call.out, place.out, _taken(ready.chunk(data), place.local))
        return ready.nbytes if ready.dtype.kind != "T" else len(data)

    def _library(self, call: Call, source: GranuleSource, i: int) -> int:
        from drystone.storage.hdf5_library import read_box

        place = self.group.place(self.lead[i], self.others[i])
        spans = [_span(p) for p in place.local]
        origin = self.group.origin(self.lead[i], self.others[i])
        start = tuple(o + a for o, (a, _) in zip(origin, spans, strict=True))
        stop = tuple(o + b for o, (_, b) in zip(origin, spans, strict=True))
        values = read_box(source.store, source.key, self.group.spec.path, start, stop)
        put(call.out, place.out, _taken(values, tuple(_moved(p, a) for p, (a, _) in zip(place.local, spans, strict=True))))
        return int(values.nbytes)

    def _located(self, call: Call, source: GranuleSource, i: int, error: DrystoneError) -> DrystoneError:
        """The error with the granule and the chunk in its message."""
        meant = source.meaning(error)
        if meant is not error or not isinstance(error, DecodeError):
            return meant
        coords = tuple(int(c) for c in self.batch.coords[:, self.row[i]])
        where = f"{self.length[i]} bytes at {self.offset[i]}" if self.state[i] == State.REFERENCED else "inline bytes"
        return DecodeError(
            f"{source.full_path}: chunk {coords} of {self.group.spec.path} ({where}): {error.message}",
            kind=error.kind,
            **{**error.facts, "granule": source.granule.address, "array": call.path},
        )


def make_work(group: Group, batch: RowBatch, found: Matches) -> Work:
    """Sort the wanted rows by granule and offset."""
    order = np.lexsort((batch.offset[found.row], batch.granule_id[found.row]))
    found = found.take(order)
    row = found.row
    others: list[tuple[int, ...]] = [tuple(o) for o in found.others.T.tolist()]
    return Work(
        group,
        batch,
        row.tolist(),
        batch.granule_id[row].tolist(),
        batch.offset[row].tolist(),
        batch.length[row].tolist(),
        batch.state[row].tolist(),
        found.lead.tolist(),
        others,
        np.maximum(batch.length[row], 0) + group.chunk_nbytes,
        {},
    )


def check_states(group: Group, batch: RowBatch, found: Matches, source_of: Callable[[int], GranuleSource]) -> None:
    """Refuse rows that say what no reader can follow."""
    state, row = batch.state[found.row], found.row
    bad = (state == State.HELD) | (state < State.REFERENCED) | (state > State.LIBRARY)
    bad |= (state == State.REFERENCED) & ((batch.offset[row] < 0) | (batch.length[row] < 0))
    if not bad.any():
        return
    i = int(row[np.flatnonzero(bad)[0]])
    raise TableError(
        f"{source_of(int(batch.granule_id[i])).granule.address}: the row of chunk {tuple(batch.coords[:, i].tolist())} of "
        f"{group.spec.path} has state {int(batch.state[i])}, offset {int(batch.offset[i])} and length {int(batch.length[i])}, "
        "which this version of drystone does not read; scan the granule again",
        kind="bad-row",
    )


def put(out: NDArray[np.generic], where: tuple[AxisPart, ...], values: NDArray[np.generic] | np.generic) -> None:
    """Assign to an orthogonal part of ``out``."""
    if sum(isinstance(p, np.ndarray) for p in where) > 1:
        meshed = np.ix_(*(np.arange(n)[p] for p, n in zip(where, out.shape, strict=True)))
        out[meshed] = values
    else:
        out[where] = values


def _taken(values: NDArray[np.generic], local: tuple[AxisPart, ...]) -> NDArray[np.generic]:
    for axis, part in enumerate(local):
        values = values[(slice(None),) * axis + (part,)]
    return values


def _span(part: AxisPart) -> tuple[int, int]:
    """First element of a part, and one past its last, whatever its direction."""
    if isinstance(part, np.ndarray):
        return int(part.min()), int(part.max()) + 1
    step = part.step or 1
    numbers = range(part.start, -1 if part.stop is None else part.stop, step)
    return min(numbers[0], numbers[-1]), max(numbers[0], numbers[-1]) + 1


def _moved(part: AxisPart, by: int) -> AxisPart:
    """A part counted from element ``by``."""
    if isinstance(part, np.ndarray):
        return part - by
    stop = -1 if part.stop is None else part.stop
    return slice(part.start - by, None if stop - by < 0 else stop - by, part.step)

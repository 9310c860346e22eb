"""The part of a read that runs in threads: fetch ranges of granules, decode chunks, put them where they go.

A :class:`Work` is the wanted rows of one batch for one group, as columns sorted by granule and offset. It is cut into runs
by bytes, not by Python objects; a thread takes a run, reads each granule's ranges in one call and decodes chunk by chunk
into the result.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drystone.codecs.decode import Decoder, decoder
from drystone.errors import DecodeError, DrystoneError, TableError
from drystone.fetch.lead import AxisPart
from drystone.fetch.request import Group, Matches, Place
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


class _Rows(NamedTuple):
    """Some rows of one granule as lists, since Python goes through them one by one."""

    row: list[int]
    offset: list[int]
    length: list[int]
    state: list[int]
    lead: list[int]
    others: list[tuple[int, ...]]

    def part(self, a: int, b: int) -> _Rows:
        """Those from ``a`` to ``b``."""
        return _Rows(self.row[a:b], self.offset[a:b], self.length[a:b], self.state[a:b], self.lead[a:b], self.others[a:b])


@dataclass(frozen=True, slots=True)
class Work:
    """Wanted rows of one batch, by granule and then offset, and what each costs in bytes, encoded and decoded."""

    group: Group
    batch: RowBatch
    found: Matches
    cost: NDArray[np.int64]
    decoders: dict[tuple[int, tuple[int, ...]], Decoder]

    def runs(self, nbytes: int, by_granule: bool) -> Iterator[tuple[int, int, int]]:
        """(first, stop, cost) of runs of about so many bytes; ``by_granule``: none spans granules."""
        total = np.cumsum(self.cost)
        number = (total - 1) // max(1, nbytes)
        if by_granule:
            granule = self.batch.granule_id[self.found.row]
            number = np.cumsum(np.r_[0, np.diff(granule) != 0]) * (int(number[-1]) + 1) + number
        edges = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(self.cost)]
        for a, b in itertools.pairwise(edges):
            yield a, b, int(total[b - 1] - (total[a - 1] if a else 0))

    def run(self, call: Call, first: int, stop: int) -> None:
        """Fetch, decode and deliver a run."""
        some = slice(first, stop)
        row = self.found.row[some]
        granule = self.batch.granule_id[row]
        others: list[tuple[int, ...]] = [tuple(o) for o in self.found.others[:, some].T.tolist()]
        columns = _Rows(
            row.tolist(),
            self.batch.offset[row].tolist(),
            self.batch.length[row].tolist(),
            self.batch.state[row].tolist(),
            self.found.lead[some].tolist(),
            others,
        )
        edges = [0, *(np.flatnonzero(np.diff(granule)) + 1).tolist(), len(row)]
        for a, b in itertools.pairwise(edges):
            if call.failed:
                return
            self._granule(call, int(granule[a]), columns if b - a == len(row) else columns.part(a, b))

    def _granule(self, call: Call, granule_id: int, rows: _Rows) -> None:
        source = call.source(granule_id)
        fetched = [i for i, state in enumerate(rows.state) if state == State.REFERENCED]
        n_read = n_decoded = at = 0
        try:
            if fetched:
                parts, n_read = source.read([rows.offset[i] for i in fetched], [rows.length[i] for i in fetched])
                for at, data in zip(fetched, parts, strict=True):
                    n_decoded += self._decode(call, data, rows, at)
            if len(fetched) < len(rows.row):
                for at, state in enumerate(rows.state):
                    if state == State.INLINE:
                        n_decoded += self._decode(call, self.batch.inline[rows.row[at]], rows, at)
                library = [i for i, state in enumerate(rows.state) if state == State.LIBRARY]
                n_decoded += self._library(call, source, rows, library)
        except DrystoneError as error:
            raise self._located(call, source, rows, at, error) from error
        with call.lock:
            call.bytes_read += n_read
            call.bytes_decoded += n_decoded
            call.chunks += len(rows.row)

    def _decode(self, call: Call, data: memoryview | bytes, rows: _Rows, i: int) -> int:
        place = self.group.place(rows.lead[i], rows.others[i])
        key = (self.batch.masks.get(rows.row[i], 0), place.encoded_shape)
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

    def _library(self, call: Call, source: GranuleSource, rows: _Rows, some: list[int]) -> int:
        """Read chunks through the format's library; neighbours in one call, since each call opens the file."""
        from drystone.storage.hdf5_library import read_box

        boxes = []
        for i in some:
            place = self.group.place(rows.lead[i], rows.others[i])
            origin = self.group.origin(rows.lead[i], rows.others[i])
            spans = [_span(p) for p in place.local]
            start = tuple(o + a for o, (a, _) in zip(origin, spans, strict=True))
            stop = tuple(o + b for o, (_, b) in zip(origin, spans, strict=True))
            boxes.append((place, origin, start, stop))
        n = 0
        for joined in _joined(boxes):
            start = tuple(min(b[2][a] for b in joined) for a in range(len(joined[0][2])))
            stop = tuple(max(b[3][a] for b in joined) for a in range(len(joined[0][3])))
            values = read_box(source.store, source.key, self.group.spec.path, start, stop)
            n += int(values.nbytes)
            for place, origin, _, _ in joined:
                local = tuple(_moved(p, a - o) for p, a, o in zip(place.local, start, origin, strict=True))
                put(call.out, place.out, _taken(values, local))
        return n

    def _located(self, call: Call, source: GranuleSource, rows: _Rows, i: int, error: DrystoneError) -> DrystoneError:
        """The error with the granule and the chunk in its message."""
        meant = source.meaning(error)
        if meant is not error or not isinstance(error, DecodeError):
            return meant
        coords = tuple(int(c) for c in self.batch.coords[:, rows.row[i]])
        where = f"{rows.length[i]} bytes at {rows.offset[i]}" if rows.state[i] == State.REFERENCED else "inline bytes"
        return DecodeError(
            f"{source.full_path}: chunk {coords} of {self.group.spec.path} ({where}): {error.message}",
            kind=error.kind,
            **{**error.facts, "granule": source.granule.address, "array": call.path},
        )


type _Box = tuple[Place, tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def _joined(boxes: list[_Box]) -> list[list[_Box]]:
    """All boxes of (place, origin, start, stop) together where they fill most of what they span, else one by one."""
    if len(boxes) < 2:
        return [[b] for b in boxes]
    rank = range(len(boxes[0][2]))
    spanned = math.prod(max(b[3][a] for b in boxes) - min(b[2][a] for b in boxes) for a in rank)
    held = sum(math.prod(b[3][a] - b[2][a] for a in rank) for b in boxes)
    return [boxes] if spanned <= 2 * held else [[b] for b in boxes]


def make_work(group: Group, batch: RowBatch, found: Matches) -> Work:
    """Sort the wanted rows by granule and offset."""
    found = found.take(np.lexsort((batch.offset[found.row], batch.granule_id[found.row])))
    return Work(group, batch, found, np.maximum(batch.length[found.row], 0) + group.chunk_nbytes, {})


def check_states(group: Group, batch: RowBatch, found: Matches, source_of: Callable[[int], GranuleSource]) -> None:
    """Refuse rows that say what no reader can follow."""
    state, row = batch.state[found.row], found.row
    bad = (state == State.HELD) | (state < State.REFERENCED) | (state > State.LIBRARY)
    bad |= (state == State.REFERENCED) & ((batch.offset[row] < 0) | (batch.length[row] < 0))
    inline = np.flatnonzero(state == State.INLINE)
    bad[[i for i in inline.tolist() if int(row[i]) not in batch.inline]] = True
    if not bad.any():
        return
    i = int(row[np.flatnonzero(bad)[0]])
    raise TableError(
        f"{source_of(int(batch.granule_id[i])).granule.address}: the row of chunk {tuple(batch.coords[:, i].tolist())} of "
        f"{group.spec.path} has state {int(batch.state[i])}, offset {int(batch.offset[i])} and length {int(batch.length[i])}, "
        "or lacks its inline bytes: this version of drystone does not read it; scan the granule again",
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

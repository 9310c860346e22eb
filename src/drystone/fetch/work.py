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
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drystone.codecs.decode import Decoder, decoder
from drystone.errors import DecodeError, DrystoneError, TableError
from drystone.fetch.group import Group, Matches, Place
from drystone.fetch.plain import is_worth_cutting, pieces
from drystone.fetch.source import GranuleSource
from drystone.grid.parts import AxisPart, mesh, moved, span
from drystone.model.chunk_rows import RowBatch, State

__all__ = ["Call", "Work", "check_states", "make_work", "put", "spread"]

_MOST_PLAIN = 8 << 20
# a run is small enough to spread over threads and large enough to hide what handing it over costs
_LEAST_RUN = 512 << 10
_MOST_RUN = 8 << 20


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
        n_read, n_decoded = self._direct(call, source, rows)
        if State.LIBRARY in rows.state:
            n_decoded += self._library(call, source, rows)
        with call.lock:
            call.bytes_read += n_read
            call.bytes_decoded += n_decoded
            call.chunks += len(rows.row)

    def _direct(self, call: Call, source: GranuleSource, rows: _Rows) -> tuple[int, int]:
        """Chunks that we decode, from ranges and inline bytes; returns bytes read and decoded."""
        fetched = [i for i, state in enumerate(rows.state) if state == State.REFERENCED]
        n_read = n_decoded = at = 0
        try:
            if self.plain:
                cut = [i for i in fetched if self._is_cut(rows, i)]
                for at in cut:
                    n_read += self._cut(call, source, rows, at)
                n_decoded += n_read
                fetched = [i for i in fetched if i not in set(cut)] if cut else fetched
            if fetched:
                parts, more = source.read([rows.offset[i] for i in fetched], [rows.length[i] for i in fetched])
                n_read += more
                for at, data in zip(fetched, parts, strict=True):
                    n_decoded += self._decode(call, data, rows, at)
            if len(fetched) < len(rows.row):
                for at, state in enumerate(rows.state):
                    if state == State.INLINE:
                        n_decoded += self._decode(call, self.batch.inline[rows.row[at]], rows, at)
        except DrystoneError as error:
            raise self._located(call, source, rows, at, error) from error
        return n_read, n_decoded

    def _decode(self, call: Call, data: memoryview | bytes, rows: _Rows, i: int) -> int:
        place = self.group.place(rows.lead[i], rows.others[i])
        key = (self.batch.masks.get(rows.row[i], 0), place.encoded_shape)
        ready = self.decoders.get(key)
        if ready is None:
            spec = self.group.spec
            ready = self.decoders[key] = decoder(spec.codecs, spec.dtype, place.encoded_shape, key[0])
        if place.sliced and self.group.recode is None:
            # the Ellipsis keeps a view where no axis is left
            ready.into(data, call.out[(*place.out, ...)], None if place.whole else place.local)
        else:
            # padding is no value and is not recoded
            put(call.out, place.out, self.group.delivered(_taken(ready.chunk(data), place.local)))
        return ready.nbytes if ready.dtype.kind != "T" else len(data)

    @property
    def plain(self) -> bool:
        """Whether chunks are stored as they are."""
        return not self.group.spec.codecs.compressed and self.group.spec.dtype.kind != "T"

    def _is_cut(self, rows: _Rows, i: int) -> bool:
        return is_worth_cutting(self.group.place(rows.lead[i], rows.others[i]), self.group.spec.dtype.itemsize)

    def _cut(self, call: Call, source: GranuleSource, rows: _Rows, i: int) -> int:
        """Read the wanted parts of an unfiltered chunk; returns their bytes."""
        place = self.group.place(rows.lead[i], rows.others[i])
        spec = self.group.spec
        nbytes = math.prod(place.encoded_shape) * spec.dtype.itemsize
        if rows.length[i] != nbytes:
            raise DecodeError(
                f"{rows.length[i]} bytes are stored for an unfiltered chunk of {nbytes}; the table is out of date or damaged: "
                "scan the granule again",
                kind="wrong-size",
                got=rows.length[i],
                expected=nbytes,
            )
        n = 0
        for piece in pieces(place, spec.dtype.itemsize):
            [data], _ = source.read([rows.offset[i] + piece.skip], [piece.length])
            values = np.frombuffer(data, spec.dtype).reshape(piece.shape)
            put(call.out, piece.out, self.group.delivered(_taken(values, piece.local)))
            n += piece.length
        return n

    def _library(self, call: Call, source: GranuleSource, rows: _Rows) -> int:
        """Read chunks through the format's library; neighbours in one call, since each call opens the file."""
        from drystone.storage.hdf5_library import read_box

        boxes = []
        for i in (i for i, state in enumerate(rows.state) if state == State.LIBRARY):
            place = self.group.place(rows.lead[i], rows.others[i])
            origin = self.group.origin(rows.lead[i], rows.others[i])
            spans = [span(p) for p in place.local]
            start = tuple(o + a for o, (a, _) in zip(origin, spans, strict=True))
            stop = tuple(o + b for o, (_, b) in zip(origin, spans, strict=True))
            boxes.append(_Box(i, place, origin, start, stop))
        n, at, inner = 0, boxes[0].row, self.group.inner
        try:
            for joined in _joined(boxes):
                at = joined[0].row
                start = tuple(min(b.start[a] for b in joined) for a in range(len(joined[0].start)))
                stop = tuple(max(b.stop[a] for b in joined) for a in range(len(joined[0].stop)))
                values = self.group.outer(read_box(source.store, source.key, self.group.path, inner(start), inner(stop)))
                n += int(values.nbytes)
                for box in joined:
                    at = box.row
                    local = tuple(moved(p, a - o) for p, a, o in zip(box.place.local, start, box.origin, strict=True))
                    put(call.out, box.place.out, self.group.delivered(_taken(values, local)))
        except DrystoneError as error:
            raise self._located(call, source, rows, at, error) from error
        return n

    def _located(self, call: Call, source: GranuleSource, rows: _Rows, i: int, error: DrystoneError) -> DrystoneError:
        """The error with the granule and the chunk in its message."""
        meant = source.meaning(error)
        if meant is not error or not isinstance(error, DecodeError):
            return meant
        coords = tuple(int(c) for c in self.batch.coords[:, rows.row[i]])
        where = f"{rows.length[i]} bytes at {rows.offset[i]}" if rows.state[i] == State.REFERENCED else "inline bytes"
        where = "read through the library" if rows.state[i] == State.LIBRARY else where
        return DecodeError(
            f"{source.full_path}: chunk {coords} of {self._name(call)} ({where}): {error.message}",
            kind=error.kind,
            **{**error.facts, "granule": source.granule.address, "array": call.path},
        )

    def _name(self, call: Call) -> str:
        """The array within its granule, and as it is published where that is another name."""
        return self.group.path if call.path == self.group.path else f"{self.group.path}, published as {call.path}"


class _Box(NamedTuple):
    """What is read of a chunk through the library, in elements of the granule."""

    row: int
    place: Place
    origin: tuple[int, ...]
    start: tuple[int, ...]
    stop: tuple[int, ...]


def _joined(boxes: list[_Box]) -> list[list[_Box]]:
    """All boxes together where they fill most of what they span, else one by one."""
    if len(boxes) < 2:
        return [[b] for b in boxes]
    rank = range(len(boxes[0].start))
    spanned = math.prod(max(b.stop[a] for b in boxes) - min(b.start[a] for b in boxes) for a in rank)
    held = sum(math.prod(b.stop[a] - b.start[a] for a in rank) for b in boxes)
    return [boxes] if spanned <= 2 * held else [[b] for b in boxes]


def make_work(group: Group, batch: RowBatch, found: Matches) -> Work:
    """Sort the wanted rows by granule and offset."""
    found = found.take(np.lexsort((batch.offset[found.row], batch.granule_id[found.row])))
    cost = np.maximum(batch.length[found.row], 0) + group.chunk_nbytes
    work = Work(group, batch, found, cost, {})
    # unfiltered chunks are read in pieces, so a large one holds no more than one of them
    return replace(work, cost=np.minimum(cost, _MOST_PLAIN)) if work.plain else work


def spread(
    work: Work, groups: int, threads: int, bytes_in_flight: int, remote: bool
) -> tuple[bool, Iterator[tuple[int, int, int]]]:
    """Whether the caller's own thread carries the work out, and its runs: see :meth:`Work.runs`."""
    total = int(work.cost.sum())
    least = min(_LEAST_RUN, max(1, bytes_in_flight // threads))
    target = min(_MOST_RUN, max(least, total // (3 * threads)))
    # a small part of a mosaic is one of many
    alone = threads == 1 or (total * groups <= least and not remote)
    return alone, work.runs(target, by_granule=remote and not alone)


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
        f"{group.path} has state {int(batch.state[i])}, offset {int(batch.offset[i])} and length {int(batch.length[i])}, "
        "or lacks its inline bytes: this version of drystone does not read it; scan the granule again",
        kind="bad-row",
    )


def put(out: NDArray[np.generic], where: tuple[AxisPart, ...], values: NDArray[np.generic] | np.generic) -> None:
    """Assign to an orthogonal part of ``out``."""
    if sum(isinstance(p, np.ndarray) for p in where) > 1:
        out[mesh(where)] = values
    else:
        out[where] = values


def _taken(values: NDArray[np.generic], local: tuple[AxisPart, ...]) -> NDArray[np.generic]:
    for axis, part in enumerate(local):
        values = values[(slice(None),) * axis + (part,)]
    return values

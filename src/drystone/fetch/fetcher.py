"""References to values: the one reader behind ``open``, rechunking and emitters.

A read is worked out as columns (:mod:`~drystone.fetch.request`), joined to chunk rows batch by batch, cut into runs by
bytes and carried out in threads (:mod:`~drystone.fetch.work`), bounded by the bytes in flight. What the table says is
missing reads as the granule's own storage fill; a place that no granule holds reads as ``_FillValue`` where the array has
one. Where granules pack, date or mark missing values each in their own way, decoded chunks are recoded. A chunk that must
have a row and has none is an error, never a fill value.

Granules are compared with their stamps before their bytes are read and again after the last was decoded, so a file that
is replaced meanwhile ends in :class:`~drystone.errors.GranuleChanged`, not in a mixture.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

import numpy as np
from numpy.typing import NDArray

from drystone.codecs.encode import encode_chunk
from drystone.errors import DecodeError, TableError, UnsupportedError
from drystone.fetch.budget import Budget
from drystone.fetch.group import Group
from drystone.fetch.picked import read_picked
from drystone.fetch.request import Request, make_request
from drystone.fetch.source import GranuleSource
from drystone.fetch.work import Call, Work, check_states, make_work, put, spread
from drystone.grid.selection import NormalAxis, Selection, Strided, normalise
from drystone.model.chunk_rows import State
from drystone.model.granule import Granule
from drystone.model.placement import CombinedArray, fits
from drystone.protocols import RowSource
from drystone.storage.address import Places

__all__ = ["Fetcher", "gap_fill"]

# granules kept resolved: half a kilobyte each
_MOST_SOURCES = 100_000


def gap_fill(array: CombinedArray) -> NDArray[np.generic]:
    """0-d native array that places between granules read as: ``_FillValue``, or NaN, else the storage fill.

    Raises
    ------
    UnsupportedError
        ``gap-fill``: the ``_FillValue`` is no element of an integer array.
    """
    attribute = array.attributes.get("_FillValue")
    if attribute is not None:
        value = attribute.value
        if isinstance(value, np.ndarray | np.generic) and np.size(value) == 1 and array.dtype.kind in "biufc":
            number = np.asarray(value).reshape(())
            if array.dtype.kind in "iu" and not fits(number, array.dtype):
                raise UnsupportedError(
                    f"{array.path}: places that no granule holds read as its _FillValue, and {number} is no {array.dtype}; no "
                    "value is given for them; mend the attribute, or list granules without gaps",
                    kind="gap-fill",
                    array=array.path,
                )
            return number.astype(array.dtype)
        if isinstance(value, str) and array.dtype.kind in "ST":
            return np.asarray(value.encode("latin-1", "replace") if array.dtype.kind == "S" else value).astype(array.dtype)
    return array.gap_scalar


class Fetcher:
    """Reads values of combined arrays through references; may be used from several threads, and pickles.

    Parameters
    ----------
    places
        Where addresses lie.
    rows
        Where chunk rows come from.
    threads
        That fetch and decode; 1: the caller's own.
    bytes_in_flight
        Encoded and decoded bytes held at a time, over all reads of this fetcher; results are not counted.
    check_stamps
        Compare each granule with its stamp before and after.

    Attributes
    ----------
    bytes_read, bytes_decoded
        Fetched from storage and given by decoders, so far.

    Examples
    --------
    >>> from drystone.fetch.memory_rows import MemoryRows
    >>> Fetcher(Places.of([]), MemoryRows({}, {}), threads=2, bytes_in_flight=1 << 20).bytes_read
    0
    """

    def __init__(
        self, places: Places, rows: RowSource, *, threads: int, bytes_in_flight: int, check_stamps: bool = True
    ) -> None:
        self.places = places
        self.rows = rows
        self.threads = max(1, threads)
        self.bytes_in_flight = bytes_in_flight
        self.check_stamps = check_stamps
        self.bytes_read = 0
        self.bytes_decoded = 0
        self._budget = Budget(bytes_in_flight)
        self._sources: dict[int, GranuleSource] = {}
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return _build, (self.places, self.rows, self.threads, self.bytes_in_flight, self.check_stamps)

    def granule(self, granule_id: int) -> Granule:
        """One granule by id."""
        return self._source(granule_id).granule

    def _source(self, granule_id: int) -> GranuleSource:
        source = self._sources.get(granule_id)
        if source is None:
            source = GranuleSource.of(self.rows.granule(granule_id), self.places)
            if len(self._sources) >= _MOST_SOURCES:
                self._sources.clear()
            self._sources[granule_id] = source
        return source

    def read_box(
        self,
        array: CombinedArray,
        start: Sequence[int],
        stop: Sequence[int],
        out: NDArray[np.generic] | None = None,
    ) -> NDArray[np.generic]:
        """The values of a box.

        Parameters
        ----------
        start, stop
            In elements of the whole; inside the array.
        out
            Native array of the box's shape to read into, any strides.

        Returns
        -------
        ``out``, or a new contiguous array.

        Raises
        ------
        IndexError
            The box reaches outside the array.
        GranuleChanged, GranuleMissing
            A granule is no longer what was scanned.
        DecodeError, TableError, StorageError
            Bytes do not decode, a row is missing, or reading failed.
        """
        for a, b, n in zip(start, stop, array.shape, strict=True):
            if not 0 <= a <= b <= n:
                raise IndexError(f"{array.path}: the box {tuple(start)} to {tuple(stop)} is not inside {array.shape}")
        axes = tuple(Strided(int(a), 1, int(b) - int(a)) for a, b in zip(start, stop, strict=True))
        return self._values(array, axes, out)

    def read(self, array: CombinedArray, selection: Selection) -> NDArray[np.generic]:
        """The values of an orthogonal selection: integers, slices, index arrays and masks, as in ``array[selection]``.

        No chunk is read that holds no selected element.

        Raises
        ------
        IndexError
            The selection does not fit the array; for the rest see :meth:`read_box`.
        """
        axes: tuple[NormalAxis, ...] = normalise(selection, array.shape)
        shape = tuple(a.count for a in axes if not a.dropped)
        return self._values(array, axes, None).reshape(shape)

    def _values(
        self, array: CombinedArray, axes: tuple[NormalAxis, ...], out: NDArray[np.generic] | None
    ) -> NDArray[np.generic]:
        """Values in the kept shape."""
        if array.picked is None:
            return self._read(make_request(array, axes), out)[0]
        values = read_picked(lambda base, some: self._values(base, some, None), array.picked, axes)
        if out is None:
            return values
        out[...] = values
        return out

    def encoded_chunk(self, array: CombinedArray, coords: Sequence[int]) -> bytes | None:
        """One chunk of the whole, encoded anew in the array's own chain and byte order.

        Parameters
        ----------
        coords
            In ``array.grid``.

        Returns
        -------
        Stored bytes; None where no granule holds any of it and it reads as the storage fill.

        Raises
        ------
        UnsupportedError
            The chain has a codec that drystone does not encode with.
        """
        where = tuple(int(c) for c in coords)
        start = tuple(d.chunk_offset(c) for d, c in zip(array.grid.dimensions, where, strict=True))
        data_shape = array.grid.data_shape(where)
        axes = tuple(Strided(a, 1, n) for a, n in zip(start, data_shape, strict=True))
        values, chunks = (self._values(array, axes, None), 1) if array.picked else self._read(make_request(array, axes), None)
        fill = array.fill_scalar
        if chunks == 0 and (array.dtype.kind == "T" or values.tobytes() == fill.tobytes() * values.size):
            return None
        encoded_shape = array.grid.encoded_shape(where)
        if encoded_shape != data_shape:
            padded = np.full(encoded_shape, fill, array.dtype)
            padded[tuple(slice(0, n) for n in data_shape)] = values
            values = padded
        return encode_chunk(values, array.codecs, array.stored_dtype)

    def _read(self, request: Request, out: NDArray[np.generic] | None) -> tuple[NDArray[np.generic], int]:
        """Values in the kept shape, and how many chunks had bytes."""
        array = request.array
        if out is None:
            out = np.empty(request.kept_shape, array.dtype)
        elif out.shape != request.kept_shape or out.dtype != array.dtype:
            raise ValueError(
                f"{array.path}: the target has shape {out.shape} and dtype {out.dtype}, the values have {request.kept_shape} "
                f"and {array.dtype}"
            )
        call = Call(array.path, out, self._source, self.check_stamps)
        if request.holes:
            out[...] = gap_fill(array)
        if request.groups:
            self._fetch(request, call)
            for group in request.groups:
                self._unwritten(group, call)
        if len(request.gap):
            assert array.placements.axis is not None
            out[(slice(None),) * array.placements.axis + (request.gap,)] = gap_fill(array)
        with self._lock:
            self.bytes_read += call.bytes_read
            self.bytes_decoded += call.bytes_decoded
        return out, call.chunks

    def _fetch(self, request: Request, call: Call) -> None:
        pending: set[Future[None]] = set()
        try:
            for rows in self.rows.rows(request.array.inner, request.granule_ids):
                batch = rows.at(request.array.fixed)
                for group in request.groups:
                    found = group.match(batch)
                    if not len(found.row):
                        continue
                    check_states(group, batch, found, self._source)
                    missing = batch.state[found.row] == State.MISSING
                    if missing.any():
                        self._fill(group, np.vstack([found.lead, found.others])[:, missing].T, call)
                        found = found.take(np.flatnonzero(~missing))
                    if len(found.row):
                        self._carry_out(make_work(group, batch, found), call, pending, len(request.groups))
            _settle(pending, call)
            if self.check_stamps:
                self._check_again(call)
        finally:
            # whatever happened, nobody writes into the result after we return
            call.failed = True
            wait(pending)

    def _carry_out(self, work: Work, call: Call, pending: set[Future[None]], groups: int) -> None:
        remote = self._source(int(work.batch.granule_id[work.found.row[0]])).store.root is None
        alone, runs = spread(work, groups, self.threads, self.bytes_in_flight, remote)
        for first, stop, cost in runs:
            self._budget.acquire(cost)
            if alone:
                try:
                    work.run(call, first, stop)
                finally:
                    self._budget.release(cost)
            else:
                done = {f for f in pending if f.done()} if len(pending) > 4 * self.threads else set()
                _settle(done, call)
                pending -= done
                pending.add(self._threads().submit(self._run, work, call, first, stop, cost))

    def _run(self, work: Work, call: Call, first: int, stop: int, cost: int) -> None:
        try:
            if not call.failed:
                work.run(call, first, stop)
        except BaseException:
            call.failed = True
            raise
        finally:
            self._budget.release(cost)

    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="drystone-fetch")
            return self._pool

    def _check_again(self, call: Call) -> None:
        sources = list(call.checked.values())
        if self.threads == 1 or all(s.store.root is not None for s in sources):
            for source in sources:
                source.check()
        else:
            list(self._threads().map(GranuleSource.check, sources))

    def _unwritten(self, group: Group, call: Call) -> None:
        """Fill what no row told of, where the format allows that."""
        if group.seen.all():
            return
        unseen = np.argwhere(~group.seen)
        if not group.spec.sparse:
            granule, chunk = self._chunk(group, unseen[0].tolist())
            raise TableError(
                f"the table has no row for chunk {chunk} of {call.path} in {granule.address} ({len(unseen)} wanted chunks have "
                "none), and this array has a row for every chunk; it was written in part or rows were lost; scan again",
                kind="row-missing",
                granule=granule.address,
                array=call.path,
            )
        self._fill(group, unseen, call)

    def _fill(self, group: Group, places: NDArray[np.intp], call: Call) -> None:
        """Chunks without bytes, int (n, 1 + other axes): the group's lead and tables."""
        wanted = places.tolist()
        try:
            fill = group.fill()
        except DecodeError as error:
            granule, chunk = self._chunk(group, wanted[0])
            raise DecodeError(
                f"{granule.address}: chunk {chunk} of {group.path} was never written and reads as fill: {error.message}",
                kind=error.kind,
                **{**error.facts, "granule": granule.address, "array": call.path},
            ) from error
        for lead, *others in wanted:
            put(call.out, group.place(lead, tuple(others)).out, fill)

    def _chunk(self, group: Group, place: list[int]) -> tuple[Granule, tuple[int, ...]]:
        """The granule of a chunk, and its coordinates there."""
        lead, *others = place
        origin = group.inner(group.origin(lead, tuple(others)))
        edges = group.inner(group.spec.chunk_shape)
        return self.granule(int(group.granule_id[lead])), tuple(o // c for o, c in zip(origin, edges, strict=True))


def _settle(pending: set[Future[None]], call: Call) -> None:
    """Raise what the first failed run raised."""
    for future in pending:
        try:
            future.result()
        except BaseException:
            call.failed = True
            raise


def _build(places: Places, rows: RowSource, threads: int, bytes_in_flight: int, check_stamps: bool) -> Fetcher:
    """Pickle support."""
    return Fetcher(places, rows, threads=threads, bytes_in_flight=bytes_in_flight, check_stamps=check_stamps)

"""The worker's side: scan results to sorted Parquet parts, written durably under unique names.

A batch becomes at most one part a table, sorted by (array id, granule id, coordinates). A scanner delivers each array's
rows in C order already, so sorting means taking the arrays in order and laying their columns end to end, a block of row
groups at a time: 3 million rows a second, and memory of one block beside the rows themselves.

Granules rows travel in the :class:`WrittenBatch`, compressed, and are written by the driver: it knows which release they
belong to, and they must not be visible before the rows they stand for.
"""

from __future__ import annotations

import functools
import itertools
import json
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drystone.errors import TableError
from drystone.model import array as model_array
from drystone.model.chunk_rows import ChunkRows, ScannedArray, ScanResult
from drystone.model.granule import Listed
from drystone.storage.store import Store
from drystone.table.arrow import Values, column, table
from drystone.table.granule_rows import encoded_rows, ipc_bytes, scanned_rows
from drystone.table.parts import ROW_GROUP, NewPart, encode_part
from drystone.table.schema import ARRAYS, MAX_RANK, REFERENCES, SIDE

__all__ = ["WrittenBatch", "array_id", "coordinate_from_bytes", "refuse_collision", "strictly_ascending", "write_batch"]

_BLOCK = 1 * ROW_GROUP
_SIDE_BYTES = 64 << 20
_LONG = np.iinfo(np.int32).max
_TOGETHER = 16

array_id = functools.lru_cache(maxsize=65_536)(model_array.array_id)


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """What a worker tells the driver of a batch: small, picklable.

    Parameters
    ----------
    attempt_id
        Of all its rows.
    parts
        By table: files that lie in storage and that no log lists yet.
    granules
        Granules rows as compressed Arrow IPC, without their release.
    array_ids
        Path and id of each array in it.
    n_granules, n_rows
        For progress.
    """

    attempt_id: int
    parts: tuple[tuple[str, NewPart], ...]
    granules: bytes
    array_ids: tuple[tuple[str, int], ...]
    n_granules: int
    n_rows: int


type _Entry = tuple[int, int, ScannedArray]  # array id, granule id, array


def write_batch(store: Store, prefix: str, scans: Sequence[tuple[int, Listed, ScanResult]], attempt_id: int) -> WrittenBatch:
    """Write the rows of some scans; nothing is visible before the driver commits what is returned.

    Parameters
    ----------
    store, prefix
        Where the table lies.
    scans
        Granule id, what was listed, what was found; ids must be distinct.
    attempt_id
        Unique to this attempt of these granules: from ``ReferenceTable.next_attempt_id``, never a content hash.

    Raises
    ------
    TableError
        ``unsorted-rows``, ``rank``, ``duplicate-array``, ``array-id-collision``, ``not-utf8``: a scanner's result that the
        table cannot hold; names granule and array.
    StorageError
        Writing failed; run again.
    """
    entries, paths = _entries(scans)
    written: list[tuple[str, NewPart]] = []
    structures = _structures(entries)
    # the next part is made while storage confirms the last
    with ThreadPoolExecutor(3, "drystone-put") as pool:
        putting: list[Future[None]] = []
        for name, pieces in (
            ("references", _reference_blocks(entries, attempt_id)),
            ("side", _side_rows(entries, attempt_id)),
            ("arrays", _array_rows(entries, structures, attempt_id)),
        ):
            first = next(pieces, None)
            if first is None:
                continue
            part = encode_part(name, _chain(first, pieces))
            file = f"part-{uuid.uuid4().hex}.parquet"
            putting.append(pool.submit(store.put, f"{prefix}/{name}/{file}", memoryview(part.data)))
            written.append((name, NewPart(file, part.data.size, part.n_rows, part.stats)))
        granules = ipc_bytes(scanned_rows(scans, structures, attempt_id))
        for future in putting:
            future.result()
    return WrittenBatch(
        attempt_id,
        tuple(written),
        granules,
        tuple(sorted(paths.items())),
        len(scans),
        sum(len(array.rows) for _, _, array in entries),
    )


def _structures(entries: Sequence[_Entry]) -> dict[int, tuple[str, str]]:
    """Structure and attributes of each array as JSON, by ``id``; made once for those that are equal, as most are."""
    known: dict[model_array.ArraySpec, tuple[str, str]] = {}
    out: dict[int, tuple[str, str]] = {}
    for _, _, array in entries:
        text = known.get(array.spec)
        if text is None:
            text = known[array.spec] = (array.spec.structure(), array.spec.attributes.to_json())
        out[id(array)] = text
    return out


def _chain(first: pa.Table, rest: Iterator[pa.Table]) -> Iterator[pa.Table]:
    yield first
    yield from rest


def _entries(scans: Sequence[tuple[int, Listed, ScanResult]]) -> tuple[list[_Entry], dict[str, int]]:
    """All arrays in table order, checked, and the id of each path."""
    entries: list[_Entry] = []
    paths: dict[str, int] = {}
    for granule_id, listed, scan in scans:
        for array in scan.arrays:
            path = array.spec.path
            if path not in paths:
                paths[path] = array_id(path)
            _check_rows(array, listed.address)
            entries.append((paths[path], granule_id, array))
    if len(set(paths.values())) != len(paths):
        by_id: dict[int, str] = {}
        for path, number in paths.items():
            refuse_collision(number, by_id.setdefault(number, path), path)
    entries.sort(key=lambda e: e[:2])
    for (a, g, array), (b, h, _) in itertools.pairwise(entries):
        if a == b and g == h:
            raise TableError(
                f"granule {g} has the array {array.spec.path} twice in one batch: pass each granule once, and each array once",
                kind="duplicate-array",
                granule=g,
                path=array.spec.path,
            )
    return entries, paths


def refuse_collision(number: int, known: str, path: str) -> None:
    """Two paths whose ids are equal cannot live in one table."""
    if known != path:
        raise TableError(
            f"the arrays {known} and {path} have the same id {number} in the table: their rows could not be told apart; "
            "leave one "
            "out with 'variables', or rename it",
            kind="array-id-collision",
            path=path,
            known=known,
            array_id=number,
        )


def _check_rows(array: ScannedArray, address: str) -> None:
    rows = array.rows
    path = array.spec.path
    if rows.rank > MAX_RANK or rows.rank != len(array.spec.shape):
        raise TableError(
            f"{address}: {path} has {len(array.spec.shape)} axes and rows of {rows.rank}; the table holds arrays of up to "
            f"{MAX_RANK} "
            "axes with rows of the same rank",
            kind="rank",
            granule=address,
            path=path,
        )
    if len(rows) > 1 and not strictly_ascending(rows.coords):
        raise TableError(
            f"{address}: the rows of {path} are not in C order of their chunks, or one chunk has two rows; the table would "
            "return "
            "wrong bytes for them; this is a fault of the scanner",
            kind="unsorted-rows",
            granule=address,
            path=path,
        )


def strictly_ascending(keys: NDArray[np.int32]) -> bool:
    """Whether the columns of (k, n) keys ascend strictly, first key first.

    Examples
    --------
    >>> strictly_ascending(np.array([[0, 0, 1], [3, 4, 0]])), strictly_ascending(np.array([[0, 0], [3, 3]]))
    (True, False)
    """
    if keys.shape[1] < 2:
        return True
    less = np.zeros(keys.shape[1] - 1, np.bool_)
    for key in keys[::-1]:
        less = (key[:-1] < key[1:]) | ((key[:-1] == key[1:]) & less)
    return bool(less.all())


def _reference_blocks(entries: Sequence[_Entry], attempt_id: int) -> Iterator[pa.Table]:
    """Reference rows in blocks of whole row groups."""
    block: list[tuple[int, int, ChunkRows]] = []
    room = _BLOCK
    for number, granule, array in entries:
        rows = array.rows
        start = 0
        while start < len(rows):
            stop = min(len(rows), start + room)
            block.append((number, granule, rows if stop - start == len(rows) else _slice(rows, start, stop)))
            room -= stop - start
            start = stop
            if room == 0:
                yield _reference_table(block, attempt_id)
                block, room = [], _BLOCK
    if block:
        yield _reference_table(block, attempt_id)


def _slice(rows: ChunkRows, start: int, stop: int) -> ChunkRows:
    return ChunkRows(rows.coords[:, start:stop], rows.offset[start:stop], rows.length[start:stop], rows.state[start:stop])


def _reference_table(block: Sequence[tuple[int, int, ChunkRows]], attempt_id: int) -> pa.Table:
    counts = np.array([len(r) for _, _, r in block])
    n = int(counts.sum())
    length = np.concatenate([r.length for _, _, r in block])
    columns: list[Values] = [
        np.repeat(np.array([a for a, _, _ in block], np.int32), counts),
        np.repeat(np.array([g for _, g, _ in block], np.int32), counts),
        np.full(n, attempt_id, np.int32),
        *_dim_columns([r.coords for _, _, r in block], counts),
        np.concatenate([r.offset for _, _, r in block]),
        np.where(length > _LONG, -1, length).astype(np.int32),
        np.concatenate([r.state for _, _, r in block]),
    ]
    return table(dict(zip(REFERENCES.names, columns, strict=True)), REFERENCES)


def _dim_columns(coords: Sequence[NDArray[np.int32]], counts: NDArray[np.intp]) -> list[pa.Array]:
    """The eight coordinate columns; null beyond each array's rank."""
    ranks = np.array([c.shape[0] for c in coords])
    n, most = int(counts.sum()), int(ranks.max())
    values = np.zeros((most, n), np.int32)
    start = 0
    for c in coords:
        values[: len(c), start : start + c.shape[1]] = c
        start += c.shape[1]
    rank = np.repeat(ranks, counts)
    absent = [None if (ranks > axis).all() else rank <= axis for axis in range(most)]
    return [
        *(column(v, null) for v, null in zip(values, absent, strict=True)),
        *(pa.nulls(n, pa.int32()) for _ in range(MAX_RANK - most)),
    ]


def _side_rows(entries: Sequence[_Entry], attempt_id: int) -> Iterator[pa.Table]:
    """Rows with inline bytes, a filter mask or a length past 2^31, in pieces of bounded size; none for most batches."""
    piece: list[tuple[int, int, ScannedArray, list[int]]] = []
    size = 0
    for number, granule, array in _with_side_rows(entries):
        long = np.flatnonzero(array.rows.length > _LONG).tolist()
        piece.append((number, granule, array, sorted({*array.inline, *array.masks, *long})))
        size += sum(map(len, array.inline.values()))
        if size > _SIDE_BYTES:
            yield _side_table(piece, attempt_id)
            piece, size = [], 0
    if piece:
        yield _side_table(piece, attempt_id)


def _with_side_rows(entries: Sequence[_Entry]) -> Iterator[_Entry]:
    """Arrays that have any; looked through some at a time, since a call for each of many small ones would cost more."""
    for some in itertools.batched(entries, _TOGETHER):
        all_short = np.concatenate([array.rows.length for _, _, array in some]).max(initial=0) <= _LONG
        for entry in some:
            array = entry[2]
            if array.inline or array.masks or not (all_short or array.rows.length.max(initial=0) <= _LONG):
                yield entry


def _side_table(piece: Sequence[tuple[int, int, ScannedArray, list[int]]], attempt_id: int) -> pa.Table:
    counts = np.array([len(at) for _, _, _, at in piece])
    n = int(counts.sum())
    length = np.concatenate([a.rows.length[at] for _, _, a, at in piece])
    columns: list[Values] = [
        np.repeat(np.array([a for a, _, _, _ in piece], np.int32), counts),
        np.repeat(np.array([g for _, g, _, _ in piece], np.int32), counts),
        np.full(n, attempt_id, np.int32),
        *_dim_columns([a.rows.coords[:, at] for _, _, a, at in piece], counts),
        [a.inline.get(r) for _, _, a, at in piece for r in at],
        [a.masks.get(r) for _, _, a, at in piece for r in at],
        column(length, length <= _LONG),
        pa.nulls(n, pa.binary()),
    ]
    return table(dict(zip(SIDE.names, columns, strict=True)), SIDE)


def _array_rows(entries: Sequence[_Entry], texts: dict[int, tuple[str, str]], attempt_id: int) -> Iterator[pa.Table]:
    if not entries:
        return
    arrays = [array for _, _, array in entries]
    yield encoded_rows(
        {
            "array_id": np.array([a for a, _, _ in entries], np.int32),
            "granule_id": np.array([g for _, g, _ in entries], np.int32),
            "attempt_id": np.full(len(entries), attempt_id, np.int32),
            "path": [a.spec.path for a in arrays],
            "structure": [texts[id(a)][0] for a in arrays],
            "attributes": [texts[id(a)][1] for a in arrays],
            "n_rows": [len(a.rows) for a in arrays],
            "coordinate": [_coordinate_bytes(a.coordinate) for a in arrays],
        },
        ARRAYS,
        entries[0][1],
    )


def _coordinate_bytes(values: NDArray[np.generic] | None) -> bytes | None:
    if values is None:
        return None
    if values.dtype.kind in "TUO":
        return json.dumps([str(v) for v in values.reshape(-1).tolist()]).encode()
    native = values if values.dtype.isnative else values.astype(values.dtype.newbyteorder("="))
    return native.tobytes()


def coordinate_from_bytes(data: bytes, spec: model_array.ArraySpec) -> NDArray[np.generic]:
    """Read back the ``coordinate`` of an arrays row."""
    if spec.dtype.kind in "TUO":
        return np.array(json.loads(data), np.dtypes.StringDType()).reshape(spec.shape)
    return np.frombuffer(data, spec.native_dtype).reshape(spec.shape)

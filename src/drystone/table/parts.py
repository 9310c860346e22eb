"""Parquet parts: how each table's rows are encoded, summarised for the log, and opened again.

Encodings were chosen by measurement: granule ids, coordinates, offsets and lengths as differences (4.6 bytes a row for
granules of many chunks, 3.8 for granules of one), ids that repeat as dictionaries. A dictionary of granule ids would
double the size where each granule has one chunk. Every page carries a checksum that is verified on reading.
"""

from __future__ import annotations

import io
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from drystone.errors import StorageError, TableError
from drystone.storage.store import Store
from drystone.table.schema import MAX_RANK, SCHEMAS

__all__ = ["ROW_GROUP", "EncodedPart", "NewPart", "encode_part", "open_part"]

ROW_GROUP = 65_536
"""Rows of a row group of the references; other tables have fewer, longer rows."""

_DIMS = tuple(f"dim_{i}" for i in range(MAX_RANK))
_DIFFERENCES = {
    "references": ("granule_id", *_DIMS, "offset", "length"),
    "side": ("granule_id", *_DIMS, "filter_mask", "long_length"),
    "arrays": ("granule_id", "n_rows"),
    "granules": ("granule_id", "size", "mtime_ns", "n_rows"),
    "placements": ("granule_id", "src_offset", "count", "dest"),
    "releases": ("release_id", "created_ns"),
    "receipts": (),
}
_PLAIN = {"side": ("inline", "checksum"), "granules": ("address", "digest", "etag"), "receipts": ("task_id", "record")}
_SUMMARISED = {
    "references": ("array_id", "granule_id", "attempt_id", *_DIMS),
    "side": ("array_id", "granule_id", "attempt_id", *_DIMS),
    "arrays": ("array_id", "granule_id", "attempt_id"),
    "granules": ("granule_id", "attempt_id", "valid_from"),
    "placements": ("array_id", "granule_id", "valid_from"),
    "releases": ("release_id",),
    "receipts": ("fingerprint", "array"),
}


@dataclass(frozen=True, slots=True)
class EncodedPart:
    """A Parquet file in memory: its bytes, rows, and statistics in the log's JSON form."""

    data: pa.Buffer
    n_rows: int
    stats: str


def encode_part(table: str, pieces: Iterable[pa.Table]) -> EncodedPart:
    """Encode sorted rows as one Parquet file.

    Parameters
    ----------
    table
        Name of the table, which decides schema and encodings.
    pieces
        Rows in order; each piece becomes row groups of its own, so pieces but the last should be a multiple of
        :data:`ROW_GROUP` rows. Only one piece need be in memory at a time.

    Examples
    --------
    >>> rows = pa.table({"release_id": [1], "created_ns": [5], "record": ["{}"]}, SCHEMAS["releases"])
    >>> encode_part("releases", [rows]).stats
    '{"numRecords":1,"minValues":{"release_id":1},"maxValues":{"release_id":1},"nullCount":{"release_id":0}}'
    """
    schema = SCHEMAS[table]
    differences, plain = _DIFFERENCES[table], _PLAIN.get(table, ())
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        use_dictionary=[n for n in schema.names if n not in differences and n not in plain],
        column_encoding=dict.fromkeys(differences, "DELTA_BINARY_PACKED"),
        write_page_checksum=True,
    ) as writer:
        for piece in pieces:
            writer.write_table(piece, row_group_size=ROW_GROUP if table == "references" else ROW_GROUP // 16)
    data = sink.getvalue()
    metadata = pq.read_metadata(pa.BufferReader(data))
    return EncodedPart(data, metadata.num_rows, _summary(table, metadata))


def _summary(table: str, metadata: pq.FileMetaData) -> str:
    """Statistics in Delta's form, of the columns that readers prune by."""
    least: dict[str, int | str] = {}
    most: dict[str, int | str] = {}
    nulls: dict[str, int] = {}
    for name in _SUMMARISED[table]:
        column = SCHEMAS[table].get_field_index(name)
        for group in range(metadata.num_row_groups):
            s = metadata.row_group(group).column(column).statistics
            if s is None:
                continue
            nulls[name] = nulls.get(name, 0) + (s.null_count or 0)
            if s.has_min_max:
                least[name] = min(least.get(name, s.min), s.min)
                most[name] = max(most.get(name, s.max), s.max)
    stats = {"numRecords": metadata.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}
    return json.dumps(stats, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class NewPart:
    """A file to be committed: its name below the table's folder, bytes, rows and statistics in the log's JSON form."""

    name: str
    size: int
    n_rows: int
    stats: str


class _RangeFile(io.RawIOBase):
    """A remote object as a file: every read is one ranged request."""

    def __init__(self, store: Store, key: str, size: int) -> None:
        super().__init__()
        self._store, self._key, self._size, self._at = store, key, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def size(self) -> int:
        return self._size

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        length = max(0, self._size - self._at)
        length = length if size < 0 else min(size, length)
        if length == 0:
            return b""
        data = self._store.get_range(self._key, self._at, length)
        self._at += length
        return data


class _Footers:
    """The last footers that were read, so that a look-up in a known part costs one read of one row group."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str], pq.FileMetaData] = OrderedDict()

    def get(self, name: tuple[str, str]) -> pq.FileMetaData | None:
        with self._lock:
            if name in self._known:
                self._known.move_to_end(name)
            return self._known.get(name)

    def put(self, name: tuple[str, str], metadata: pq.FileMetaData) -> None:
        with self._lock:
            self._known[name] = metadata
            while len(self._known) > self._limit:
                self._known.popitem(last=False)


_FOOTERS = _Footers(256)


@contextmanager
def open_part(store: Store, key: str, size: int, dictionaries: tuple[str, ...] = ()) -> Iterator[pq.ParquetFile]:
    """Open one part that the log lists.

    Parameters
    ----------
    size
        Bytes, as the log says; a file of another size is not the one that was committed.
    dictionaries
        Text columns to deliver dictionary-encoded.

    Raises
    ------
    TableError
        ``part-missing`` or ``part-corrupt``, also for faults met while the file is read within the context.
    """
    address = f"{store.url}/{key}"
    try:
        found = store.stat(key).size
        if found != size:
            raise TableError(
                f"{address} has {found} bytes where the log says {size}: it was replaced or cut short after its commit; "
                "restore it from a copy, or scan its granules again",
                kind="part-corrupt",
                path=address,
                size=found,
                expected=size,
            )
        name = (store.url, key)
        footer = _FOOTERS.get(name)
        source = (
            f"{store.root.rstrip('/')}/{key}" if store.root is not None else pa.PythonFile(_RangeFile(store, key, size), "r")
        )
        with pq.ParquetFile(
            source,
            metadata=footer,
            pre_buffer=store.root is None,
            page_checksum_verification=True,
            read_dictionary=list(dictionaries) or None,
        ) as part:
            if footer is None:
                _FOOTERS.put(name, part.metadata)
            yield part
    except StorageError as error:
        if error.kind != "not-found":
            raise
        raise TableError(
            f"{address} is gone though the log lists it: the rows in it are lost to readers; restore it from a copy, or scan "
            "its granules again",
            kind="part-missing",
            path=address,
        ) from error
    except (pa.ArrowException, OSError) as error:
        raise TableError(
            f"{address} does not read as the Parquet file that was committed ({_first_line(error)}); restore it from a copy, "
            "or scan its granules again",
            kind="part-corrupt",
            path=address,
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__

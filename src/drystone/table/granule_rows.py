"""Granules rows: made by workers from scans, by the driver for granules set aside, and sent as compressed Arrow IPC."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pyarrow as pa

from drystone.errors import TableError
from drystone.model.chunk_rows import Refusal, ScanResult
from drystone.model.granule import Listed
from drystone.table.arrow import Values, table
from drystone.table.schema import GRANULES

__all__ = ["encoded_rows", "granule_rows", "ipc_bytes", "scanned_rows"]


def encoded_rows(columns: Mapping[str, Values], schema: pa.Schema, granule: int) -> pa.Table:
    """Columns as a table of a schema; text that is no UTF-8 is refused by name."""
    try:
        return table(columns, schema)
    except UnicodeEncodeError as error:
        raise TableError(
            f"a name or text of a batch that starts with granule {granule} is no UTF-8 ({error}): the table cannot hold it; "
            "rename the file or variable",
            kind="not-utf8",
            granule=granule,
        ) from error


def _refusals(items: Sequence[Refusal]) -> str:
    return json.dumps([[r.path, r.kind, r.reason] for r in items]) if items else "[]"


def granule_rows(listed: Sequence[tuple[int, Listed]], attempt_id: int, status: str, **columns: Values) -> pa.Table:
    """Granules rows with what a listing knows; other columns as given, or empty."""
    n = len(listed)
    values: dict[str, Values] = {
        "granule_id": [g for g, _ in listed],
        "address": [x.address for _, x in listed],
        "size": [x.stamp.size for _, x in listed],
        "mtime_ns": [x.stamp.mtime_ns for _, x in listed],
        "etag": [x.stamp.etag for _, x in listed],
        "format": [""] * n,
        "representation": ["itself"] * n,
        "attempt_id": [attempt_id] * n,
        "n_rows": [0] * n,
        "digest": [""] * n,
        "status": [status] * n,
        "reason": [None] * n,
        "groups": ["[]"] * n,
        "refusals": ["[]"] * n,
        "warnings": ["[]"] * n,
        "companions": ["[]"] * n,
        "valid_from": [0] * n,
        "valid_to": [None] * n,
    }
    return encoded_rows(values | columns, GRANULES, listed[0][0] if listed else -1)


def scanned_rows(
    scans: Sequence[tuple[int, Listed, ScanResult]], texts: dict[int, tuple[str, str]], attempt_id: int
) -> pa.Table:
    """Granules rows of some scans, without their release; ``texts`` as in :meth:`ScanResult.digest`."""
    found = [scan for _, _, scan in scans]
    groups = [tuple(g.to_json() for g in s.groups) for s in found]
    lists = {g: json.dumps(g) for g in set(groups)}
    return granule_rows(
        [(g, x) for g, x, _ in scans],
        attempt_id,
        "scanned",
        format=[s.format for s in found],
        n_rows=[s.n_rows for s in found],
        digest=[s.digest(texts, g) for s, g in zip(found, groups, strict=True)],
        groups=[lists[g] for g in groups],
        refusals=[_refusals(s.refusals) for s in found],
        warnings=[_refusals(s.warnings) for s in found],
        companions=[json.dumps([c.to_json() for c in s.companions]) for s in found],
    )


def ipc_bytes(rows: pa.Table) -> bytes:
    """Rows as compressed Arrow IPC, small enough to travel with a task's result."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(rows)
    return bytes(sink.getvalue().to_pybytes())

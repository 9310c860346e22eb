"""Commits of scanned granules: exactly once, and visible all at once.

A commit goes references, side, arrays, then granules, each its own transaction. Rows count only through granules rows, so
a crash in between leaves rows that nobody sees. The granules log is what says that a commit is done: its transaction
``(run, sequence)`` is looked up first. The other logs are asked for the parts themselves, since a driver that died half
way and one that replaces it may bring different parts under one sequence number.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from drystone.errors import TableError
from drystone.storage.store import Store
from drystone.table.arrow import column, numbers
from drystone.table.granule_rows import ipc_bytes
from drystone.table.granules import newest
from drystone.table.log import DeltaLog
from drystone.table.parts import NewPart, encode_part
from drystone.table.schema import GRANULES
from drystone.table.validity import Validity
from drystone.table.write import WrittenBatch, refuse_collision

__all__ = ["commit_batches", "granules_batch", "put_part"]


def put_part(store: Store, folder: str, table: str, pieces: Iterable[pa.Table]) -> NewPart:
    """Encode rows and write them durably under a new name; nothing is visible yet."""
    part = encode_part(table, pieces)
    name = f"part-{uuid.uuid4().hex}.parquet"
    store.put(f"{folder}/{name}", memoryview(part.data))
    return NewPart(name, part.data.size, part.n_rows, part.stats)


def granules_batch(rows: pa.Table, attempt_id: int) -> WrittenBatch:
    """A batch of granules rows alone: granules set aside or withdrawn."""
    return WrittenBatch(attempt_id, (), ipc_bytes(rows), (), rows.num_rows, 0)


def commit_batches(
    store: Store,
    logs: Mapping[str, DeltaLog],
    batches: Sequence[WrittenBatch],
    *,
    latest: Validity,
    known_paths: dict[int, str],
    release: int,
    run_id: str,
    sequence: int,
) -> Validity:
    """Commit batches whose sequence number the granules log does not have yet; gives the newest attempts after it.

    Parameters
    ----------
    latest
        The newest attempt of each granule that the table has.
    known_paths
        Array ids that were checked against the log before, and their paths; those of the batches are added.
    release
        The release that these granules will first be part of.
    """
    granules = _granules(batches, latest, release)
    new_ids = _register_arrays(logs["arrays"], batches, known_paths)
    for name in ("references", "side", "arrays"):
        log = logs[name]
        parts = [part for batch in batches for table, part in batch.parts if table == name]
        parts = _not_live(log, parts, run_id, sequence)
        if parts:
            ids = new_ids if name == "arrays" else {}
            log.commit(parts, transactions={run_id: sequence, **ids})
    known_paths.update((number, path) for batch in batches for path, number in batch.array_ids)
    log = logs["granules"]
    part = put_part(store, log.folder, "granules", [granules])
    log.commit([part], transactions={run_id: sequence})
    granule = np.concatenate([latest.ids, numbers(granules.column("granule_id"))])
    attempt = np.concatenate([latest.attempts, numbers(granules.column("attempt_id"))])
    at = newest(granule, attempt)
    return Validity(granule[at], attempt[at])


def _not_live(log: DeltaLog, parts: list[NewPart], run_id: str, sequence: int) -> list[NewPart]:
    """Parts that an interrupted commit of this sequence number did not bring in already."""
    last = log.transaction(run_id)
    if last is None or last < sequence:
        return parts
    live = set(log.live().names)
    return [p for p in parts if p.name not in live]


def _granules(batches: Sequence[WrittenBatch], latest: Validity, release: int) -> pa.Table:
    pieces = []
    for batch in batches:
        with pa.ipc.open_stream(batch.granules) as stream:
            pieces.append(stream.read_all())
    rows = pa.concat_tables(pieces)
    index = GRANULES.get_field_index("valid_from")
    rows = rows.set_column(index, GRANULES.field("valid_from"), column(np.full(len(rows), release, np.int32)))
    rows = rows.sort_by([("granule_id", "ascending"), ("attempt_id", "ascending")]).cast(GRANULES)
    granule, attempt = numbers(rows.column("granule_id")), numbers(rows.column("attempt_id"))
    at, known = latest.find(granule)
    late = known & (latest.attempts[at] >= attempt) if len(latest) else known
    late[1:] |= (granule[1:] == granule[:-1]) & (attempt[1:] == attempt[:-1])
    if late.any():
        row = int(np.flatnonzero(late)[0])
        address = rows.column("address")[row].as_py()
        last = int(latest.attempts[at[row]]) if known[row] else int(attempt[row])
        raise TableError(
            f"attempt {attempt[row]} of granule {granule[row]} ({address}) comes after attempt {last}, which is "
            "in the table already: it would not count, or its rows would count twice; scan under a new attempt id "
            "(next_attempt_id, taken once before the batches are handed out)",
            kind="attempt-old",
            granule=int(granule[row]),
            attempt=int(attempt[row]),
            newest=last,
        )
    return rows


def _register_arrays(arrays: DeltaLog, batches: Sequence[WrittenBatch], known_paths: dict[int, str]) -> dict[str, int]:
    """New array ids as transactions of the arrays log, which answers for one id without reading the table.

    The version number is 62 bits of another hash of the path, so that two paths that share an id are told apart.
    """
    fresh: dict[int, str] = {}
    for batch in batches:
        for path, number in batch.array_ids:
            refuse_collision(number, known_paths.get(number) or fresh.setdefault(number, path), path)
    new: dict[str, int] = {}
    for number, path in fresh.items():
        proof = int.from_bytes(hashlib.blake2b(path.encode(), digest_size=8, person=b"array").digest(), "little") >> 2
        name = f"array/{number}"
        known = arrays.transaction(name)
        if known is None:
            new[name] = proof
        elif known != proof:
            refuse_collision(number, "another array of the table", path)
    return new

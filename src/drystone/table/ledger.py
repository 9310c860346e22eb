"""Releases and receipts: short records as JSON, one row each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import batched
from typing import TYPE_CHECKING

import numpy as np

from drystone.errors import TableError
from drystone.model.release import Release
from drystone.model.task import Receipt
from drystone.storage.store import Store
from drystone.table.arrow import table
from drystone.table.commit import put_part
from drystone.table.log import DeltaLog
from drystone.table.schema import RECEIPTS, RELEASES
from drystone.table.stream import part_by_part

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["commit_receipts", "commit_release", "read_receipts", "read_releases"]

_PART = 50_000  # receipts of one file


def read_releases(store: Store, log: DeltaLog) -> list[Release]:
    """All releases, oldest first."""
    records = [r for b in part_by_part(store, log, ("record",)) for r in b.column("record").to_pylist()]
    return sorted((Release.from_json(r) for r in records), key=lambda r: r.release_id)


def commit_release(store: Store, log: DeltaLog, release: Release) -> None:
    """Record a publish; the same record again changes nothing.

    Raises
    ------
    TableError
        ``release-taken``: the number is taken by another record, or is not the next one.
    """
    log.make()
    known = read_releases(store, log)
    last = known[-1].release_id if known else 0
    if release in known:
        return
    if release.release_id != last + 1:
        raise TableError(
            f"release {release.release_id} cannot be recorded: the last one is {last}, so the next is {last + 1}; another "
            "driver may have published meanwhile",
            kind="release-taken",
            release=release.release_id,
            last=last,
        )
    record = {"release_id": [release.release_id], "created_ns": [release.created_ns], "record": [release.to_json()]}
    rows = table(record, RELEASES)
    log.commit([put_part(store, log.folder, "releases", [rows])], transactions={"releases": release.release_id})


def commit_receipts(store: Store, log: DeltaLog, receipts: Iterable[Receipt], run_id: str, sequence: int) -> bool:
    """Record receipts; False where this sequence number was recorded before, or there are none."""
    log.make()
    known = log.transaction(run_id)
    if known is not None and known >= sequence:
        return False
    # some tens of thousands at a time: all of a million would take a gigabyte
    parts = [put_part(store, log.folder, "receipts", [_rows(some)]) for some in batched(receipts, _PART)]
    if parts:
        log.commit(parts, transactions={run_id: sequence})
    return bool(parts)


def _rows(receipts: Iterable[Receipt]) -> pa.Table:
    ordered = sorted(receipts, key=lambda r: (r.fingerprint, r.task_id))
    return table(
        {
            "task_id": [r.task_id for r in ordered],
            "fingerprint": [r.fingerprint for r in ordered],
            "array": [r.array for r in ordered],
            "record": [r.to_json() for r in ordered],
        },
        RECEIPTS,
    )


def read_receipts(store: Store, log: DeltaLog, fingerprints: Collection[str] | None, array: str | None) -> Iterator[Receipt]:
    """Receipts, one a task; of a task recorded twice the last one."""
    live = log.live()
    wanted = None if fingerprints is None else set(fingerprints)
    chosen = np.ones(len(live), np.bool_)
    if wanted is not None and wanted and "fingerprint" in live.text_low:
        low, high = min(wanted), max(wanted)
        for i, (a, b) in enumerate(zip(live.text_low["fingerprint"], live.text_high["fingerprint"], strict=True)):
            chosen[i] = a is None or b is None or (a <= high and b >= low)
    found: dict[str, str] = {}
    when: dict[str, int] = {}
    for i in np.flatnonzero(chosen).tolist():
        only = np.zeros(len(live), np.bool_)
        only[i] = True
        committed = int(live.committed_ms[i])
        for batch in part_by_part(store, log, ("task_id", "fingerprint", "array", "record"), chosen=only):
            for task, fingerprint, path, record in zip(*(batch.column(k).to_pylist() for k in range(4)), strict=True):
                if (wanted is not None and fingerprint not in wanted) or (array is not None and path != array):
                    continue
                if committed >= when.get(task, -1):
                    found[task], when[task] = record, committed
    for record in found.values():
        yield Receipt.from_json(record)

"""Streams over the live parts: pruned by statistics, merged by granule id, in bounded memory.

A part is sorted by (array id, granule id, coordinates). The rows of one array that a reader wants are then one run of
each part, and a k-way merge by granule id over the parts whose granules overlap gives them in order. Parts open when the
merge reaches their least granule, so with parts of disjoint granules, the common case, one is open at a time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from drystone.errors import TableError
from drystone.storage.store import Store
from drystone.table.arrow import numbers
from drystone.table.log import DeltaLog, LiveParts
from drystone.table.parts import ROW_GROUP, open_part
from drystone.table.schema import SCHEMAS
from drystone.table.validity import Validity

__all__ = ["merged", "part_by_part"]

_BUFFERED_ROWS = 400_000
"""Rows held in all by the open parts of one merge."""


@dataclass(frozen=True, slots=True)
class _Query:
    store: Store
    log: DeltaLog
    columns: tuple[str, ...]
    valid: Validity
    batch_rows: int
    dictionaries: tuple[str, ...]


def merged(
    store: Store,
    log: DeltaLog,
    array_id: int,
    valid: Validity,
    columns: tuple[str, ...],
    *,
    dictionaries: tuple[str, ...] = (),
    batch_rows: int = ROW_GROUP,
) -> Iterator[pa.RecordBatch]:
    """Valid rows of one array, by granule id and then as stored, in batches.

    ``columns`` are delivered beside ``granule_id`` and ``attempt_id``.
    """
    live = log.live()
    chosen = np.flatnonzero(live.holding("array_id", array_id) & live.holding_any("granule_id", valid.ids))
    if len(chosen) == 0:
        return
    low = np.maximum(live.low["granule_id"][chosen], int(valid.ids[0]))
    depth = _depth(low, live.high["granule_id"][chosen])
    batch_rows = min(batch_rows, max(1024, _BUFFERED_ROWS // depth))
    needed = tuple(dict.fromkeys(("array_id", "granule_id", "attempt_id", *columns)))
    query = _Query(store, log, needed, valid, batch_rows, dictionaries)
    # ties go to the part that comes first in the live list: a granule split over parts keeps its order
    heap: list[tuple[int, int, Iterator[pa.RecordBatch], pa.RecordBatch | None]] = [
        (int(low[k]), int(i), _run_of_array(query, live, int(i), array_id), None) for k, i in enumerate(chosen)
    ]
    heapq.heapify(heap)
    while heap:
        bound, i, run, held = heapq.heappop(heap)
        if held is None:
            held = next(run, None)
            if held is not None:
                heapq.heappush(heap, (int(held.column("granule_id")[0].as_py()), i, run, held))
            continue
        n = held.num_rows
        if heap:
            limit = heap[0][0]
            granule = numbers(held.column("granule_id"))
            n = int(np.searchsorted(granule, limit, side="left" if bound < limit else "right"))
        yield held.slice(0, n)
        rest = held.slice(n) if n < held.num_rows else None
        # the next batch of this part starts no earlier than where this one ended
        next_bound = int(held.column("granule_id")[n if rest is not None else n - 1].as_py())
        heapq.heappush(heap, (next_bound, i, run, rest))


def _depth(low: NDArray[np.int64], high: NDArray[np.int64]) -> int:
    """How many of some ranges overlap at most."""
    edges = np.concatenate([low * 2, np.minimum(high, np.iinfo(np.int32).max) * 2 + 1])
    steps = np.concatenate([np.ones(len(low), np.int64), -np.ones(len(high), np.int64)])
    return int(np.cumsum(steps[np.argsort(edges, kind="stable")]).max())


def _groups(metadata: pq.FileMetaData, table: str, array_id: int, ids: NDArray[np.int32]) -> list[int]:
    """Row groups that may hold rows of an array and one of some granules."""
    schema = SCHEMAS[table]
    array_column, granule_column = schema.get_field_index("array_id"), schema.get_field_index("granule_id")
    out = []
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        arrays = row_group.column(array_column).statistics
        if arrays.min > array_id:
            break  # sorted by array id first
        if arrays.max < array_id:
            continue
        granules = row_group.column(granule_column).statistics
        first, last = np.searchsorted(ids, granules.min, side="left"), np.searchsorted(ids, granules.max, side="right")
        if last > first:
            out.append(group)
    return out


def _run_of_array(query: _Query, live: LiveParts, i: int, array_id: int) -> Iterator[pa.RecordBatch]:
    """The valid rows of one array in one part."""
    key = f"{query.log.folder}/{live.names[i]}"
    last = -1
    with open_part(query.store, key, int(live.sizes[i]), query.dictionaries) as part:
        groups = _groups(part.metadata, query.log.name, array_id, query.valid.ids)
        if not groups:
            return
        for batch in part.iter_batches(query.batch_rows, row_groups=groups, columns=list(query.columns), use_threads=False):
            ids = numbers(batch.column("array_id"))
            first, stop = np.searchsorted(ids, array_id, side="left"), np.searchsorted(ids, array_id, side="right")
            run = batch.slice(int(first), int(stop - first))
            if run.num_rows == 0:
                continue
            granule = numbers(run.column("granule_id"))
            if granule[0] < last or np.any(granule[1:] < granule[:-1]):
                raise TableError(
                    f"{query.store.url}/{key} is not sorted by granule id: it was not written by drystone; scan its granules "
                    "again",
                    kind="unsorted-part",
                    path=f"{query.store.url}/{key}",
                )
            last = int(granule[-1])
            kept = query.valid.keep(run)
            if kept.num_rows:
                yield kept


def part_by_part(
    store: Store,
    log: DeltaLog,
    columns: tuple[str, ...] | None = None,
    *,
    chosen: NDArray[np.bool_] | None = None,
    valid: Validity | None = None,
    dictionaries: tuple[str, ...] = (),
) -> Iterator[pa.RecordBatch]:
    """Rows of the live parts one after the other, in the order of their least granule; all, or the valid ones."""
    live = log.live()
    names = SCHEMAS[log.name].names if columns is None else columns
    needed = list(dict.fromkeys((*names, *(("granule_id", "attempt_id") if valid is not None else ()))))
    for i in range(len(live)):
        if chosen is not None and not chosen[i]:
            continue
        with open_part(store, f"{log.folder}/{live.names[i]}", int(live.sizes[i]), dictionaries) as part:
            for batch in part.iter_batches(ROW_GROUP // 16, columns=needed, use_threads=False):
                kept = batch if valid is None else valid.keep(batch)
                if kept.num_rows:
                    yield kept.select(list(names))

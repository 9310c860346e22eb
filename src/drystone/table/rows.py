"""Chunk rows of one array as a reader gets them: valid, in order, with their rare parts, and none lost.

Three streams run side by side: the arrays table says how many rows each granule must have, the references deliver them,
and the side table, where it has anything for this array, adds inline bytes, filter masks and long lengths. A granule
that delivers fewer or more rows than its scan counted is an error: a lost row must never read as a fill value.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drystone.errors import TableError
from drystone.model.chunk_rows import RowBatch, State
from drystone.storage.store import Store
from drystone.table.arrow import numbers
from drystone.table.log import DeltaLog
from drystone.table.parts import ROW_GROUP
from drystone.table.stream import merged
from drystone.table.validity import Validity
from drystone.table.write import array_id, refuse_collision, strictly_ascending

__all__ = ["Expected", "array_rows", "expected_rows"]

_SMALLEST = ROW_GROUP // 2
_SIDE_BYTES = 64 << 20
_SIDE_ROWS = 1024


@dataclass(frozen=True, slots=True)
class Expected:
    """What the scans counted: granules that have the array, their valid attempts, chunk rows and rank."""

    valid: Validity
    n_rows: NDArray[np.int64]
    rank: NDArray[np.int8]


def expected_rows(store: Store, arrays: DeltaLog, path: str, valid: Validity) -> Expected:
    """Read the counts of one array over some granules."""
    number = array_id(path)
    ids: list[NDArray[np.int32]] = [np.zeros(0, np.int32)]
    attempts: list[NDArray[np.int32]] = [np.zeros(0, np.int32)]
    counts: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    ranks: list[NDArray[np.int8]] = [np.zeros(0, np.int8)]
    columns = ("path", "structure", "n_rows")
    for batch in merged(store, arrays, number, valid, columns, dictionaries=("path", "structure")):
        known = batch.column("path")
        for i in np.unique(numbers(known.indices)):
            refuse_collision(number, known.dictionary[int(i)].as_py(), path)
        structure = batch.column("structure")
        used = numbers(structure.indices)
        rank = np.zeros(len(structure.dictionary), np.int8)
        for i in np.unique(used):
            rank[i] = len(json.loads(structure.dictionary[int(i)].as_py())["dims"])
        ids.append(numbers(batch.column("granule_id")))
        attempts.append(numbers(batch.column("attempt_id")))
        counts.append(numbers(batch.column("n_rows")))
        ranks.append(rank[used])
    return Expected(Validity(np.concatenate(ids), np.concatenate(attempts)), np.concatenate(counts), np.concatenate(ranks))


def array_rows(store: Store, references: DeltaLog, side: DeltaLog, path: str, expected: Expected) -> Iterator[RowBatch]:
    """Rows of one array by granule id and C order, in batches of at most :data:`~drystone.table.parts.ROW_GROUP` rows.

    Raises
    ------
    TableError
        ``lost-rows``, ``unsorted-rows``, ``side-missing``, ``side-orphan``, ``part-missing``, ``part-corrupt``.
    """
    number = array_id(path)
    stored = expected.n_rows > 0
    valid = Validity(expected.valid.ids[stored], expected.valid.attempts[stored])
    count = _Count(path, valid.ids, expected.n_rows[stored])
    join = _SideJoin(store, side, number, valid, int(expected.rank.max(initial=0)), path)
    ranks = expected.rank[stored]
    if len(valid):
        columns = (*(f"dim_{i}" for i in range(int(ranks.max()))), "offset", "length", "state")
        for batch in _gathered(merged(store, references, number, valid, columns)):
            count.add(numbers(batch.column("granule_id")))
            for piece in _of_one_rank(batch, valid, ranks):
                yield from join.batches(*piece)
    count.finish()
    join.finish()


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of a useful size, however small the pieces of the merge are."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if held and rows + batch.num_rows > ROW_GROUP:
            yield _joined(held)
            held, rows = [], 0
        held.append(batch)
        rows += batch.num_rows
        if rows >= _SMALLEST:
            yield _joined(held)
            held, rows = [], 0
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


class _Count:
    """Counts rows of each granule as they pass, and refuses the batch that shows one short."""

    def __init__(self, path: str, ids: NDArray[np.int32], wanted: NDArray[np.int64]) -> None:
        self._path, self._ids, self._wanted = path, ids, wanted
        self._found = np.zeros(len(ids), np.int64)
        self._checked = 0

    def add(self, granule: NDArray[np.int32]) -> None:
        starts = np.flatnonzero(np.r_[True, granule[1:] != granule[:-1]])
        at = np.searchsorted(self._ids, granule[starts])
        self._found[at] += np.diff(np.r_[starts, len(granule)])
        self._check(int(at[-1]))  # the last granule may go on in the next batch

    def finish(self) -> None:
        self._check(len(self._ids))

    def _check(self, stop: int) -> None:
        done = slice(self._checked, stop)
        wrong = np.flatnonzero(self._found[done] != self._wanted[done])
        if len(wrong):
            k = self._checked + int(wrong[0])
            raise TableError(
                f"granule {self._ids[k]} has {self._found[k]} chunk rows of {self._path} in the table where its scan counted "
                f"{self._wanted[k]}: rows were lost or doubled, and reading on would give wrong values; scan it again",
                kind="lost-rows",
                granule=int(self._ids[k]),
                path=self._path,
                found=int(self._found[k]),
                expected=int(self._wanted[k]),
            )
        self._checked = max(self._checked, stop)


def _of_one_rank(batch: pa.RecordBatch, valid: Validity, ranks: NDArray[np.int8]) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Split a batch where the rank changes, which only incoherent granules make it do."""
    granule = numbers(batch.column("granule_id"))
    rank = ranks[np.searchsorted(valid.ids, granule)]
    edges = [0, *(np.flatnonzero(rank[1:] != rank[:-1]) + 1).tolist(), len(rank)]
    for start, stop in itertools.pairwise(edges):
        yield batch.slice(start, stop - start), int(rank[start])


class _SideJoin:
    """Reference batches to :class:`RowBatch`, with what the side table holds for them.

    Both streams have the same order. Where a batch's inline bytes would pass a limit it is cut, so memory is bounded by
    the limit and one granule.
    """

    def __init__(self, store: Store, side: DeltaLog, number: int, valid: Validity, rank: int, path: str) -> None:
        columns = (*(f"dim_{i}" for i in range(rank)), "inline", "filter_mask", "long_length")
        empty: Iterator[pa.RecordBatch] = iter(())
        self._stream = merged(store, side, number, valid, columns, batch_rows=_SIDE_ROWS) if len(valid) else empty
        self._held: list[pa.RecordBatch] = []
        self._ended = False
        self._path = path
        self._last: NDArray[np.int32] | None = None

    def batches(self, batch: pa.RecordBatch, rank: int) -> Iterator[RowBatch]:
        while batch.num_rows:
            granule = numbers(batch.column("granule_id"))
            bound = self._pull(int(granule[-1]))
            n = int(np.searchsorted(granule, bound, side="right"))
            if n == 0:  # the side rows before the bound belong to granules that have passed
                self._orphan(self._held[0].column("granule_id")[0].as_py())
            yield self._batch(batch.slice(0, n), rank, whole=n < batch.num_rows)
            batch = batch.slice(n)

    def finish(self) -> None:
        """Nothing of the side table may be left."""
        left = [b for b in [*self._held, *self._stream] if b.num_rows]
        if left:
            self._orphan(left[0].column("granule_id")[0].as_py())

    def _orphan(self, granule: int) -> NoReturn:
        raise TableError(
            f"the side table has a row of {self._path} of granule {granule} that no chunk row belongs to: the table is "
            "incoherent; scan the granule again",
            kind="side-orphan",
            granule=granule,
            path=self._path,
        )

    def _pull(self, last: int) -> int:
        """Read side rows up to granule ``last``; gives the granule up to which they are all held."""
        while not self._ended:
            if self._held and self._held[-1].column("granule_id")[-1].as_py() > last:
                return last
            size = sum(b.nbytes for b in self._held)
            if size > _SIDE_BYTES:
                first = self._held[0].column("granule_id")[0].as_py()
                reached = int(self._held[-1].column("granule_id")[-1].as_py())
                if first < reached:
                    return min(last, reached - 1)
            batch = next(self._stream, None)
            if batch is None:
                self._ended = True
            else:
                self._held.append(batch)
        return last

    def _batch(self, batch: pa.RecordBatch, rank: int, *, whole: bool) -> RowBatch:
        granule = numbers(batch.column("granule_id"))
        coords = np.empty((rank, batch.num_rows), np.int32)
        for axis in range(rank):
            coords[axis] = numbers(batch.column(f"dim_{axis}"))
        self._check_order(granule, coords)
        length = numbers(batch.column("length")).astype(np.int64)
        state = numbers(batch.column("state"))
        inline: dict[int, bytes] = {}
        masks: dict[int, int] = {}
        rows = self._take(int(granule[-1]))
        if rows is not None:
            at = self._positions(granule, coords, rows, rank, whole=whole)
            for row, data, mask, long in zip(
                at.tolist(),
                rows.column("inline").to_pylist(),
                rows.column("filter_mask").to_pylist(),
                rows.column("long_length").to_pylist(),
                strict=True,
            ):
                if row < 0:
                    continue
                if data is not None:
                    inline[row] = data
                if mask is not None:
                    masks[row] = mask
                if long is not None:
                    length[row] = long
        lacking = [*(r for r in np.flatnonzero(state == State.INLINE).tolist() if r not in inline), *np.flatnonzero(length < 0)]
        if lacking:
            raise TableError(
                f"the side row of a chunk of {self._path} of granule {granule[lacking[0]]} is lost (its inline bytes or its "
                "length); scan the granule again",
                kind="side-missing",
                granule=int(granule[lacking[0]]),
                path=self._path,
            )
        return RowBatch(granule, coords, numbers(batch.column("offset")), length, state, inline, masks)

    def _check_order(self, granule: NDArray[np.int32], coords: NDArray[np.int32]) -> None:
        keys = np.vstack([granule[None], coords])
        if self._last is not None and len(self._last) == len(keys):
            keys = np.hstack([self._last[:, None], keys])
        if not strictly_ascending(keys):
            raise TableError(
                f"rows of {self._path} near granule {granule[0]} come twice or out of order: the table is incoherent; scan "
                "the granule again",
                kind="unsorted-rows",
                granule=int(granule[0]),
                path=self._path,
            )
        self._last = keys[:, -1].copy()

    def _take(self, last: int) -> pa.RecordBatch | None:
        """Held side rows up to granule ``last``."""
        out = []
        while self._held:
            batch = self._held[0]
            n = int(np.searchsorted(numbers(batch.column("granule_id")), last, side="right"))
            if n:
                out.append(batch.slice(0, n))
            if n < batch.num_rows:
                self._held[0] = batch.slice(n)
                break
            self._held.pop(0)
        return _joined(out) if out else None

    def _positions(
        self, granule: NDArray[np.int32], coords: NDArray[np.int32], rows: pa.RecordBatch, rank: int, *, whole: bool
    ) -> NDArray[np.int64]:
        """Row number of each side row; -1 for rows of the last granule that belong to the next batch, which are put back."""
        other = numbers(rows.column("granule_id"))
        keys = [np.concatenate([granule, other])]
        keys += [np.concatenate([coords[axis], numbers(rows.column(f"dim_{axis}"))]) for axis in range(rank)]
        is_side = np.r_[np.zeros(len(granule), np.bool_), np.ones(len(other), np.bool_)]
        order = np.lexsort((is_side, *keys[::-1]))
        same = np.ones(len(order) - 1, np.bool_)
        for key in keys:
            same &= key[order[1:]] == key[order[:-1]]
        match = np.full(len(order), -1, np.int64)
        hit = np.flatnonzero(same & is_side[order[1:]] & ~is_side[order[:-1]]) + 1
        match[order[hit]] = order[hit - 1]
        at = match[len(granule) :]
        unmatched = np.flatnonzero(at < 0)
        if len(unmatched):
            # rows are in order, so what is left of the last granule is a tail
            tail = int(unmatched[0])
            if whole or other[tail] < granule[-1] or len(unmatched) != len(at) - tail:
                self._orphan(int(other[tail]))
            self._held.insert(0, rows.slice(tail))
        return at

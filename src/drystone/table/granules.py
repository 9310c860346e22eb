"""The granules table as readers see it: the newest row of each granule, at a release."""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drystone.errors import TableError
from drystone.model.granule import Companion, Granule
from drystone.storage.stamp import Stamp
from drystone.storage.store import Store
from drystone.table.arrow import column, numbers
from drystone.table.log import DeltaLog
from drystone.table.schema import GRANULES
from drystone.table.stream import part_by_part
from drystone.table.validity import Validity

__all__ = ["GranuleIndex", "newest"]

_KEY = ("granule_id", "attempt_id", "valid_from")
_IDENTITY = ("address", "size", "mtime_ns", "etag", "format", "n_rows", "digest", "status", "companions")
_BLOCK = 4096  # granules looked up together: tasks read neighbours
_BLOCKS = 64


def newest(granule: NDArray[np.int32], attempt: NDArray[np.int32]) -> NDArray[np.intp]:
    """Positions of the newest row of each granule, by granule id: the highest attempt, whatever the order of commits.

    Examples
    --------
    >>> newest(np.array([4, 1, 4], np.int32), np.array([2, 1, 7], np.int32)).tolist()
    [1, 2]
    """
    order = np.lexsort((attempt, granule))
    if len(order) == 0:
        return order
    sorted_ids = granule[order]
    return order[np.r_[sorted_ids[1:] != sorted_ids[:-1], True]]


class GranuleIndex:
    """Newest granules rows of one version of the log, at one release; 13 bytes a granule, and a cache of look-ups.

    Parameters
    ----------
    release
        Rows of later releases are not seen. None: all, published or not.
    """

    def __init__(self, store: Store, log: DeltaLog, release: int | None) -> None:
        self._store, self._log, self.release = store, log, release
        self._lock = threading.Lock()
        self._blocks: OrderedDict[int, pa.Table] = OrderedDict()

    @cached_property
    def _rows(self) -> pa.Table:
        columns = (*_KEY, "status")
        batches = part_by_part(self._store, self._log, columns, chosen=None, dictionaries=("status",))
        # dictionaries differ between parts, so the status is reduced to one byte before rows are joined
        pieces = [
            pa.table({**{n: b.column(n) for n in columns[:-1]}, "scanned": _is_scanned(b.column("status"))}) for b in batches
        ]
        schema = pa.schema([*(GRANULES.field(n) for n in columns[:-1]), pa.field("scanned", pa.bool_())])
        table = pa.concat_tables([p.cast(schema) for p in pieces]) if pieces else pa.Table.from_batches([], schema)
        if self.release is None:
            return table
        return table.filter(column(numbers(table.column("valid_from")) <= self.release))

    @cached_property
    def latest(self) -> Validity:
        """Every granule and its newest attempt, of whatever status."""
        granule, attempt = numbers(self._rows.column("granule_id")), numbers(self._rows.column("attempt_id"))
        at = newest(granule, attempt)
        return Validity(granule[at], attempt[at])

    @cached_property
    def validity(self) -> Validity:
        """Scanned granules and the attempts whose rows are valid."""
        granule, attempt = numbers(self._rows.column("granule_id")), numbers(self._rows.column("attempt_id"))
        at = newest(granule, attempt)
        at = at[numbers(self._rows.column("scanned"))[at]]
        return Validity(granule[at], attempt[at])

    def table(self, columns: tuple[str, ...] | None = None) -> pa.Table:
        """Newest rows, by granule id, of every status; ``valid_to`` is the release that superseded the row."""
        names = tuple(GRANULES.names) if columns is None else columns
        needed = tuple(dict.fromkeys((*names, *_KEY)))
        found = pa.Table.from_batches(
            list(part_by_part(self._store, self._log, needed)), pa.schema([GRANULES.field(n) for n in needed])
        )
        granule, attempt = numbers(found.column("granule_id")), numbers(found.column("attempt_id"))
        since = numbers(found.column("valid_from"))
        seen = np.arange(len(found)) if self.release is None else np.flatnonzero(since <= self.release)
        at = seen[newest(granule[seen], attempt[seen])]
        out = found.take(column(at))
        if self.release is not None and "valid_to" in names:
            ends = _superseded(granule, attempt, since, at)
            out = out.set_column(out.schema.get_field_index("valid_to"), GRANULES.field("valid_to"), ends)
        return out.select(list(names))

    def granule(self, granule_id: int) -> Granule:
        """One scanned granule.

        Raises
        ------
        TableError
            ``no-granule``: unknown, set aside or withdrawn.
        """
        rows = self._block(granule_id // _BLOCK)
        ids = numbers(rows.column("granule_id"))
        at = int(np.searchsorted(ids, granule_id))
        row = rows.slice(at, 1).to_pylist()[0] if at < len(ids) and ids[at] == granule_id else None
        if row is None or row["status"] != "scanned":
            status = "unknown to the table" if row is None else f"{row['status']} ({row['address']})"
            raise TableError(
                f"granule {granule_id} is {status}{self._when()}: it has no rows to read; scan it, or plan again without it",
                kind="no-granule",
                granule=granule_id,
            )
        return Granule(
            granule_id,
            row["address"],
            Stamp(row["size"], row["mtime_ns"], row["etag"]),
            row["format"],
            row["attempt_id"],
            row["n_rows"],
            row["digest"],
            Companion.all_of(row["companions"]),
        )

    def text(self, granule_id: int, name: str) -> str:
        """One long text of one scanned granule, read without those of the others where statistics allow."""
        attempt = self.granule(granule_id).attempt_id
        chosen = self._log.live().holding("granule_id", granule_id)
        for batch in part_by_part(self._store, self._log, ("granule_id", "attempt_id", name), chosen=chosen):
            hit = np.flatnonzero(
                (numbers(batch.column("granule_id")) == granule_id) & (numbers(batch.column("attempt_id")) == attempt)
            )
            if len(hit):
                return str(batch.column(name)[int(hit[0])].as_py())
        raise AssertionError(granule_id)

    def _when(self) -> str:
        return "" if self.release is None else f" at release {self.release}"

    def _block(self, number: int) -> pa.Table:
        with self._lock:
            if number in self._blocks:
                self._blocks.move_to_end(number)
                return self._blocks[number]
        first, stop = number * _BLOCK, (number + 1) * _BLOCK
        live = self._log.live()
        chosen = (live.low["granule_id"] < stop) & (live.high["granule_id"] >= first)
        names = (*_KEY, *_IDENTITY)
        pieces = []
        for batch in part_by_part(self._store, self._log, names, chosen=chosen):
            ids, since = numbers(batch.column("granule_id")), numbers(batch.column("valid_from"))
            pieces.append(batch.filter(column((ids >= first) & (ids < stop) & (self.release is None or since <= self.release))))
        table = pa.Table.from_batches(pieces, pa.schema([GRANULES.field(n) for n in names]))
        at = newest(numbers(table.column("granule_id")), numbers(table.column("attempt_id")))
        table = table.take(column(at)).combine_chunks()
        with self._lock:
            self._blocks[number] = table
            while len(self._blocks) > _BLOCKS:
                self._blocks.popitem(last=False)
        return table


def _is_scanned(status: pa.DictionaryArray) -> pa.Array:
    scanned = np.array([v == "scanned" for v in status.dictionary.to_pylist()], np.bool_)
    return column(scanned[numbers(status.indices)])


def _superseded(
    granule: NDArray[np.int32], attempt: NDArray[np.int32], since: NDArray[np.int32], at: NDArray[np.intp]
) -> pa.Array:
    """For each chosen row the release from which a later attempt of its granule is valid, or null."""
    order = np.lexsort((attempt, granule))
    place = np.empty(len(order), np.intp)
    place[order] = np.arange(len(order))
    ends = np.zeros(len(at), np.int32)
    for k, row in enumerate(at):
        later = order[place[row] + 1 :]
        later = later[: np.searchsorted(granule[later], granule[row], side="right")]
        ends[k] = since[later].min() if len(later) else 0
    return column(ends, ends == 0)

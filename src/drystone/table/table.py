"""The reference table: seven logged tables below one key, one committer, many readers.

Workers write sorted Parquet parts (:func:`drystone.table.write.write_batch`); the driver commits them; everyone reads
through the log. Nothing is ever found by listing a folder, and nothing reads the references whole.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drystone.errors import TableError
from drystone.model.array import GroupSpec
from drystone.model.chunk_rows import RowBatch
from drystone.model.granule import Granule, Listed
from drystone.storage.store import Store
from drystone.table.arrow import Values, column, numbers, table
from drystone.table.commit import commit_batches, granules_batch
from drystone.table.granule_rows import granule_rows
from drystone.table.granules import GranuleIndex
from drystone.table.integrity import verify_granule
from drystone.table.log import sweep_log
from drystone.table.records import Records
from drystone.table.rows import array_rows, expected_rows
from drystone.table.schema import ARRAYS, GRANULES
from drystone.table.stream import merged, part_by_part
from drystone.table.validity import Validity
from drystone.table.write import WrittenBatch, array_id

__all__ = ["ReferenceTable", "TablePin"]


@dataclass(frozen=True, slots=True)
class TablePin:
    """Names exact versions of a table, for workers; small, picklable, good for 30 days.

    Parameters
    ----------
    store, key
        Where the table lies.
    versions
        Of each of its logs; -1 where there was none.
    release
        The release to read through, or None for the newest rows.
    identity
        Of the table that was pinned: processes keep pinned tables, and a table that was removed and made anew has the same
        place and perhaps the same versions.
    """

    store: Store
    key: str
    versions: tuple[tuple[str, int], ...]
    release: int | None = None
    identity: str = ""


class ReferenceTable(Records):
    """See the module; made by :meth:`create`, :meth:`open`, :meth:`open_or_create` or :meth:`at`.

    Implements :class:`drystone.protocols.RowSource` over the newest valid rows, or those of a release.

    Examples
    --------
    >>> import tempfile
    >>> from drystone.storage.local import LocalStore
    >>> table = ReferenceTable.create(LocalStore(tempfile.mkdtemp()), "table")
    >>> table.granules().num_rows, table.next_granule_id(), table.next_release_id()
    (0, 0, 1)
    """

    def __init__(self, store: Store, key: str, versions: Mapping[str, int] | None = None, release: int | None = None) -> None:
        super().__init__(store, key, versions)
        self.release = release
        # of the committer: what it need not read again before each commit
        self._latest: Validity | None = None
        self._paths: dict[int, str] = {}
        # granules first: what they name was committed before them, so a later look at the other logs finds it
        self._index = GranuleIndex(store, self._logs["granules"], release)
        _ = self._logs["granules"].version

    # ------------------------------------------------------------------ making and opening

    @classmethod
    def create(cls, store: Store, key: str) -> ReferenceTable:
        """Make an empty table; ``table-exists`` where there is one."""
        table = cls(store, key)
        if table._logs["granules"].version >= 0:
            raise TableError(
                f"there is a table at {store.url}/{key} already; open it", kind="table-exists", path=f"{store.url}/{key}"
            )
        table._probe()
        table._logs["granules"].make()
        return table

    @classmethod
    def open(cls, store: Store, key: str, release: int | None = None) -> ReferenceTable:
        """Open a table; ``no-table`` where there is none.

        ``release``: read as it was at that release.
        """
        table = cls(store, key, release=release)
        if table._logs["granules"].version < 0:
            raise TableError(
                f"there is no reference table at {store.url}/{key}; scan something into it first",
                kind="no-table",
                path=f"{store.url}/{key}",
            )
        if release is not None:
            table.release_record(release)
        return table

    @classmethod
    def open_or_create(cls, store: Store, key: str) -> ReferenceTable:
        """Open a table, or make it."""
        table = cls(store, key)
        return table if table._logs["granules"].version >= 0 else cls.create(store, key)

    def pin(self, release: int | None = None) -> TablePin:
        """The versions now open, for workers."""
        # in this order: granules were opened when this object was made or last committed
        versions = tuple((name, log.version) for name, log in self._logs.items())
        chosen = self.release if release is None else release
        return TablePin(self.store, self.key, versions, chosen, self._logs["granules"].identity)

    @classmethod
    def at(cls, pin: TablePin) -> ReferenceTable:
        """The table at a pin, read-only; one object a pin and process, so the log is read once."""
        name = (pin.store.url, pin.key, pin.versions, pin.release, pin.identity)
        with _PINNED_LOCK:
            if name not in _PINNED:
                _PINNED[name] = cls(pin.store, pin.key, dict(pin.versions), pin.release)
                while len(_PINNED) > _PINNED_LIMIT:
                    _PINNED.popitem(last=False)
            return _PINNED[name]

    def refresh(self) -> None:
        """See what was committed since by others."""
        self._latest = None
        self._logs["granules"].refresh()
        _ = self._logs["granules"].version
        for log in self._logs.values():
            if log.name != "granules":
                log.refresh()
        self._index = GranuleIndex(self.store, self._logs["granules"], self.release)

    # ------------------------------------------------------------------ committing scans

    def next_granule_id(self) -> int:
        """The smallest id above all that were ever committed, visible or not."""
        return max(self._highest("granule_id"), -1) + 1

    def next_attempt_id(self) -> int:
        """An attempt id that no committed row has, visible or not."""
        return max(self._highest("attempt_id"), 0) + 1

    def _highest(self, column: str) -> int:
        out = -1
        for name in ("granules", "references", "arrays"):
            high = self._logs[name].live().high[column]
            out = max(out, int(high.max(initial=-1)))
        return out

    def last_sequence(self, run_id: str) -> int | None:
        """The last sequence number that a run committed granules under, or None."""
        return self._logs["granules"].transaction(run_id)

    def commit(self, batches: Sequence[WrittenBatch], *, run_id: str, sequence: int) -> bool:
        """Make batches visible, exactly once; False where this sequence number was committed before.

        After an error the same call is right again; so is one with other batches for the same granules, under a newer
        attempt, since a half-done commit shows nothing.

        Parameters
        ----------
        run_id, sequence
            Names this commit; sequence numbers of one run ascend.

        Raises
        ------
        TableError
            ``attempt-old``, ``array-id-collision``, ``commit-conflict``, ``no-conditional-writes``.
        StorageError
            Nothing of it is visible, or all; commit again.
        """
        self._probe()
        done = self.last_sequence(run_id)
        if (done is not None and done >= sequence) or not batches:
            return False
        self._latest = commit_batches(
            self.store,
            self._logs,
            batches,
            latest=self._index.latest if self._latest is None else self._latest,
            known_paths=self._paths,
            release=self.next_release_id(),
            run_id=run_id,
            sequence=sequence,
        )
        self._index = GranuleIndex(self.store, self._logs["granules"], self.release)
        return True

    def set_aside(
        self,
        failed: Sequence[tuple[int, Listed, str, str]],
        *,
        run_id: str,
        sequence: int,
        attempt_id: int | None = None,
    ) -> bool:
        """Record granules that could not be scanned; their older rows no longer count.

        Parameters
        ----------
        failed
            Granule id, what was listed, the error's kind and the reason, kept as ``kind: reason``.
        attempt_id
            None: the next one.
        """
        if not failed:
            return False
        attempt = self.next_attempt_id() if attempt_id is None else attempt_id
        reasons: list[object] = [f"{kind}: {reason}" for _, _, kind, reason in failed]
        rows = granule_rows([(g, x) for g, x, _, _ in failed], attempt, "set aside", reason=reasons)
        return self.commit([granules_batch(rows, attempt)], run_id=run_id, sequence=sequence)

    def withdraw(self, granule_ids: Sequence[int], reason: str, *, run_id: str, sequence: int) -> bool:
        """Record that granules no longer belong to the archive; releases before stay as they are."""
        attempt_id = self.next_attempt_id()
        rows = self.granules()
        rows = rows.filter(column(np.isin(numbers(rows.column("granule_id")), np.asarray(granule_ids, np.int32))))
        n = len(rows)
        values: dict[str, Values] = {
            "status": ["withdrawn"] * n,
            "reason": [reason] * n,
            "attempt_id": [attempt_id] * n,
            "n_rows": [0] * n,
            "digest": [""] * n,
        }
        rows = table({name: values.get(name, rows.column(name)) for name in GRANULES.names}, GRANULES)
        return n > 0 and self.commit([granules_batch(rows, attempt_id)], run_id=run_id, sequence=sequence)

    # ------------------------------------------------------------------ reading granules and arrays

    def granules(self, release: int | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """The newest row of each granule, by id, of every status; as they were at ``release`` where one is given.

        ``columns`` keeps memory small: the group attributes are most of a row.
        """
        return self._index_at(release).table(None if columns is None else tuple(columns))

    def granule(self, granule_id: int) -> Granule:
        """One scanned granule by id; ``no-granule`` where it is unknown, set aside or withdrawn."""
        return self._index.granule(granule_id)

    def granule_ids(self) -> NDArray[np.int32]:
        """Ids of the scanned granules, ascending."""
        return self._index.validity.ids

    def groups(self, granule_id: int) -> tuple[GroupSpec, ...]:
        """Groups of one scanned granule, with their attributes and dimensions."""
        return tuple(GroupSpec.from_json(g) for g in json.loads(self._index.text(granule_id, "groups")))

    def _index_at(self, release: int | None) -> GranuleIndex:
        if release is None or release == self.release:
            return self._index
        return GranuleIndex(self.store, self._logs["granules"], release)

    def arrays(
        self,
        paths: Collection[str] | None = None,
        columns: Sequence[str] | None = None,
        granule_ids: NDArray[np.int32] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Valid rows of the arrays table, in batches; only of ``granule_ids`` where given.

        With ``paths``: path by path, each by granule id. Without: part by part, each by array id and granule id.
        """
        names = tuple(ARRAYS.names) if columns is None else tuple(columns)
        valid = self._valid(granule_ids)
        if paths is None:
            log = self._logs["arrays"]
            chosen = log.live().holding_any("granule_id", valid.ids)
            yield from part_by_part(self.store, log, names, chosen=chosen, valid=valid)
            return
        for path in paths:
            needed = tuple(dict.fromkeys((*names, "path")))
            for batch in merged(self.store, self._logs["arrays"], array_id(path), valid, needed, batch_rows=4096):
                yield batch.select(list(names))

    # ------------------------------------------------------------------ reading rows

    def rows(self, path: str, granule_ids: NDArray[np.int32] | None = None) -> Iterator[RowBatch]:
        """Valid chunk rows of one array, by granule id and then C order, in batches of at most 65,536 rows.

        Granules without the array deliver nothing.

        Parameters
        ----------
        path
            ``/group/name``.
        granule_ids
            Only these, in any order; None: all.

        Raises
        ------
        TableError
            ``no-array``: no granule of the table has it; ``no-granule``: one that was asked for has no valid scan;
            ``lost-rows`` and others where the table is incoherent.
        """
        valid = self._valid(granule_ids)
        expected = expected_rows(self.store, self._logs["arrays"], path, valid)
        if len(expected.valid) == 0 and granule_ids is None:
            raise TableError(
                f"no scanned granule of the table {self.store.url}/{self.key} has an array {path}", kind="no-array", path=path
            )
        yield from array_rows(self.store, self._logs["references"], self._logs["side"], path, expected)

    def _valid(self, granule_ids: NDArray[np.int32] | None) -> Validity:
        valid = self._index.validity
        if granule_ids is None:
            return valid
        valid, unknown = valid.restrict(granule_ids)
        if len(unknown):
            self._index.granule(int(unknown[0]))  # raises, with what is known of it
        return valid

    def verify_rows(self, granule_ids: NDArray[np.int32] | None = None) -> int:
        """Prove that the rows of granules are the ones that were scanned: counts and digests. Gives the rows read.

        Raises
        ------
        TableError
            ``lost-rows`` or ``digest``.
        """
        ids = self._valid(granule_ids).ids
        return sum(verify_granule(self, self.granule(granule_id)) for granule_id in ids.tolist())

    # ------------------------------------------------------------------ housekeeping

    def sweep(self, older_than: float = 7 * 86_400) -> int:
        """Delete parts that no log lists and that are older than ``older_than`` seconds. Gives how many.

        For the driver only, under its lease. The age must exceed the longest time from a worker's write to its commit: a
        part swept before its commit would be lost for good.
        """
        self.refresh()
        return sum(sweep_log(self.store, log, older_than) for log in self._logs.values())


_PINNED: OrderedDict[tuple[object, ...], ReferenceTable] = OrderedDict()
_PINNED_LIMIT = 4
_PINNED_LOCK = threading.Lock()

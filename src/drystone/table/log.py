"""One Delta log: which parts are live at which version, and commits that happen exactly once.

deltalake is a transaction log to us and never rewrites our data. What it leaves to its caller is done here:

- It does not refuse a transaction that was committed before. A caller names each commit (run, sequence) and asks
  :meth:`DeltaLog.transaction` first.
- A commit whose answer was lost may have happened. After any error the log is read again, and the parts' names, which
  are unique, say whether it did.
- It flushes nothing to the disk. On a local disk the log's file and folder are flushed after each commit.
- It decodes percent signs twice, so a folder with one in its path is refused.
- A store that ignores "create only" loses commits in silence. Object stores are probed before the first commit.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import deltalake
import numpy as np
import pyarrow as pa
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from numpy.typing import NDArray

from drystone.errors import StorageError, TableError
from drystone.storage.remote import RemoteStore
from drystone.storage.store import Store
from drystone.table.arrow import column, numbers
from drystone.table.parts import NewPart
from drystone.table.schema import SCHEMAS

__all__ = ["DeltaLog", "LiveParts", "probe_create_only", "sweep_log"]

_CONFIGURATION = {
    # ten, the default, makes the log's bytes grow with the square of the commits
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 30 days",
    "delta.deletedFileRetentionDuration": "interval 30 days",
}
_TRIES = 4
# the system's words in the library's errors: kind, and ours
_CAUSES = (
    ("No space left", "no-space", "no space left; free some and run again, what is done is kept"),
    ("uota", "no-space", "the quota is used up; free some and run again, what is done is kept"),
    ("File too large", "no-space", "a file would exceed the size limit (ulimit -f)"),
    ("ermission denied", "no-permission", "permission denied"),
    ("Read-only file system", "no-permission", "the file system is read-only"),
)


@dataclass(frozen=True, slots=True)
class LiveParts:
    """The live files of one version, as columns ordered by (least granule id, name); by commit where there are none.

    ``low`` and ``high`` hold the least and largest value of each integer column with statistics; a part without
    statistics has the widest range.
    """

    names: tuple[str, ...]
    sizes: NDArray[np.int64]
    n_rows: NDArray[np.int64]
    committed_ms: NDArray[np.int64]
    low: Mapping[str, NDArray[np.int64]]
    high: Mapping[str, NDArray[np.int64]]
    text_low: Mapping[str, tuple[str | None, ...]]
    text_high: Mapping[str, tuple[str | None, ...]]

    def __len__(self) -> int:
        return len(self.names)

    def holding(self, name: str, value: int) -> NDArray[np.bool_]:
        """Which parts may hold a value."""
        return (self.low[name] <= value) & (self.high[name] >= value)

    def holding_any(self, name: str, values: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which parts may hold one of some sorted values."""
        first = np.searchsorted(values, self.low[name], side="left")
        last = np.searchsorted(values, self.high[name], side="right")
        return last > first


def _live_parts(table: pa.Table) -> LiveParts:
    names = table.column("path").to_pylist()
    columns = set(table.column_names)
    by = "min.granule_id" if "min.granule_id" in columns else "modification_time"
    granule = table.column(by).to_pylist()
    order = sorted(range(len(names)), key=lambda i: (-1 if granule[i] is None else granule[i], names[i]))
    table = table.take(column(np.array(order, np.int64)))
    low: dict[str, NDArray[np.int64]] = {}
    high: dict[str, NDArray[np.int64]] = {}
    text_low: dict[str, tuple[str | None, ...]] = {}
    text_high: dict[str, tuple[str | None, ...]] = {}
    for field in table.schema:
        side, _, name = field.name.partition(".")
        if side not in ("min", "max"):
            continue
        if pa.types.is_integer(field.type):
            widest = np.iinfo(np.int64).min if side == "min" else np.iinfo(np.int64).max
            values = numbers(table.column(field.name).cast(pa.int64()), null=int(widest))
            (low if side == "min" else high)[name] = values
        else:
            (text_low if side == "min" else text_high)[name] = tuple(table.column(field.name).to_pylist())
    return LiveParts(
        tuple(table.column("path").to_pylist()),
        numbers(table.column("size_bytes")),
        numbers(table.column("num_records"), null=0),
        numbers(table.column("modification_time")),
        low,
        high,
        text_low,
        text_high,
    )


def _address(store: Store, key: str) -> tuple[str, dict[str, str]]:
    """URI and options for deltalake; credentials come from the environment there as here."""
    if store.root is not None:
        folder = os.path.join(store.root, key)
        if "%" in folder:
            raise TableError(
                f"no table can be kept in {folder}: the log's library decodes percent signs in paths; choose a folder "
                "without one",
                kind="percent-in-path",
                path=folder,
            )
        return Path(folder).as_uri(), {}
    if not isinstance(store, RemoteStore) or store.url.startswith(("memory:", "http")):
        raise TableError(
            f"no table can be kept at {store.url}: it needs a folder or an object store (s3://, gs://, az://)",
            kind="table-place",
            path=store.url,
        )
    options: dict[str, str] = {}
    if store.url.startswith("s3"):
        options = {"aws_conditional_put": "etag", "AWS_REGION": str(store.options.get("region", "us-east-1"))}
        endpoint = store.options.get("endpoint")
        if endpoint:
            options["AWS_ENDPOINT_URL"] = str(endpoint)
            options["AWS_ALLOW_HTTP"] = "true" if str(endpoint).startswith("http://") else "false"
        if store.options.get("anonymous"):
            options["AWS_SKIP_SIGNATURE"] = "true"
    return f"{store.url}/{key}", options


def sweep_log(store: Store, log: DeltaLog, older_than: float) -> int:
    """Delete parts that the log does not list and that are older than so many seconds; gives how many."""
    live = set(log.live().names)
    limit = (time.time() - older_than) * 1e9
    n = 0
    for key, stamp in list(store.list(f"{log.folder}/part-")):
        if key.rsplit("/", 1)[-1] not in live and stamp.mtime_ns is not None and stamp.mtime_ns < limit:
            store.delete(key)
            n += 1
    return n


def probe_create_only(store: Store, key: str) -> None:
    """Prove that the store refuses to create an object twice.

    Raises
    ------
    TableError
        ``no-conditional-writes``: such a store lost 11 to 14 of 40 commits in silence in trials.
    """
    name = f"{key}/probe-{uuid.uuid4().hex}"
    try:
        first, second = store.create(name, b"1"), store.create(name, b"2")
    finally:
        store.delete(name)
    if not first or second:
        raise TableError(
            f"{store.url} ignores conditional writes (an object could be created twice): commits of a table there would be "
            "lost in silence; keep the table on a disk, or on a store that honours If-None-Match",
            kind="no-conditional-writes",
            path=store.url,
        )


class DeltaLog:
    """The log of one table.

    Parameters
    ----------
    store, key
        Where the reference table lies.
    name
        Which of its tables.
    version
        Read-only at this version; -1 is the table before it was made. None: the newest, refreshed when asked.
    """

    def __init__(self, store: Store, key: str, name: str, version: int | None = None) -> None:
        self.name = name
        self.folder = f"{key}/{name}"
        self._store = store
        self._pinned = version
        self._lock = threading.RLock()
        self._uri, self._options = _address(store, self.folder)
        self._table: deltalake.DeltaTable | None = None
        self._opened = version == -1
        self._live: LiveParts | None = None

    @property
    def version(self) -> int:
        """The version that is read; -1 while the table has not been made."""
        table = self._open()
        return -1 if table is None else int(table.version())

    @property
    def identity(self) -> str:
        """Drawn when the table was made: another one at the same place, such as after its folder was removed, has another."""
        table = self._open()
        return "" if table is None else str(table.metadata().id)

    def live(self) -> LiveParts:
        """The live files."""
        with self._lock:
            if self._live is None:
                table = self._open()
                if table is None:
                    empty = np.zeros(0, np.int64)
                    ids = ("array_id", "granule_id", "attempt_id", "valid_from", "release_id")
                    none = dict.fromkeys(ids, empty)
                    self._live = LiveParts((), empty, empty, empty, none, none, {}, {})
                else:
                    actions = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True))
                    self._live = _live_parts(actions.read_all())
            return self._live

    def refresh(self) -> None:
        """See commits made since; a pinned log stays where it is."""
        if self._pinned is not None:
            return
        with self._lock:
            self._table, self._opened, self._live = None, False, None

    def transaction(self, run: str) -> int | None:
        """The last sequence number that ``run`` committed, or None."""
        table = self._open()
        version = None if table is None else table.transaction_version(run)
        return None if version is None else int(version)

    def make(self) -> None:
        """Make the table if there is none."""
        if self._open() is not None:
            return
        try:
            deltalake.DeltaTable.create(
                self._uri, SCHEMAS[self.name], configuration=_CONFIGURATION, storage_options=self._options, name=self.name
            )
        except (OSError, DeltaError) as error:
            self.refresh()
            if self._open() is None:  # else: another maker won, or the answer was lost
                self._fail(error, "make")
        self.refresh()
        self._flush(0)

    def commit(
        self,
        parts: Sequence[NewPart],
        *,
        removed: Sequence[str] = (),
        transactions: Mapping[str, int] | None = None,
    ) -> int:
        """Add and remove files in one step; safe to call again with the same parts.

        Returns
        -------
        int
            The version in which they are live.

        Raises
        ------
        StorageError
            Nothing was committed, or it is not known; the same call again is right in both cases.
        TableError
            Another committer changed what this commit was computed from.
        """
        if self._pinned is not None:
            raise TableError(f"{self.folder} is open at version {self._pinned} for reading only", kind="read-only")
        self.make()
        named = transactions or {}
        # a commit that took place recorded its transactions too, so the parts need not be looked for without them
        seen = not named or all((self.transaction(run) or 0) >= number for run, number in named.items())
        for tried in range(_TRIES):
            if (seen or tried) and self._holds(parts, removed):
                break
            try:
                self._write(parts, removed, named)
            except CommitFailedError as error:
                self.refresh()
                if self._holds(parts, removed):
                    continue
                raise TableError(
                    f"another driver changed {self._uri} while this one committed to it ({error}); only one driver may commit "
                    "to a table: end the other one, then run again",
                    kind="commit-conflict",
                    path=self._uri,
                ) from error
            except (OSError, DeltaError) as error:
                self.refresh()
                if tried + 1 == _TRIES and not self._holds(parts, removed):
                    self._fail(error, "commit to")
                time.sleep(0.05 * 4**tried)
                continue
            self._advance()
            break
        version = self.version
        self._flush(version)
        return version

    def _holds(self, parts: Sequence[NewPart], removed: Sequence[str]) -> bool:
        """Whether a commit took place: names are unique, so they tell."""
        live = set(self.live().names)
        return {p.name for p in parts} <= live and live.isdisjoint(removed)

    def _write(self, parts: Sequence[NewPart], removed: Sequence[str], transactions: Mapping[str, int]) -> None:
        table = self._open()
        assert table is not None
        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [RemoveAction(name, True, now) for name in removed]
        actions += [AddAction(p.name, p.size, {}, now, True, p.stats) for p in parts]
        properties = deltalake.CommitProperties(
            app_transactions=[deltalake.Transaction(run, sequence) for run, sequence in transactions.items()]
        )
        table.create_write_transaction(actions, "append", table.schema(), commit_properties=properties)

    def _advance(self) -> None:
        """See the commit just made, without reading the whole log again."""
        with self._lock:
            self._live = None
            try:
                if self._table is not None:
                    self._table.update_incremental()
            except (OSError, DeltaError):
                self.refresh()

    def _open(self) -> deltalake.DeltaTable | None:
        with self._lock:
            if not self._opened:
                try:
                    self._table = deltalake.DeltaTable(self._uri, version=self._pinned, storage_options=self._options)
                except TableNotFoundError:
                    self._table = None
                except DeltaError as error:
                    if self._pinned is None:
                        self._fail(error, "open")
                    raise TableError(
                        f"version {self._pinned} of {self._uri} cannot be read ({error}): the log keeps versions for 30 days; "
                        "open the table anew, or through a release",
                        kind="version-gone",
                        path=self._uri,
                        version=self._pinned,
                    ) from error
                except OSError as error:
                    self._fail(error, "open")
                self._opened = True
            return self._table

    def _flush(self, version: int) -> None:
        """Flush the log's newest file and its folder to a local disk."""
        if self._store.root is None:
            return
        folder = os.path.join(self._store.root, self.folder, "_delta_log")
        stem = f"{version:020}"
        for name in os.listdir(folder):
            if name.startswith(stem) or name == "_last_checkpoint":
                _fsync(os.path.join(folder, name))
        for path in (folder, os.path.dirname(folder), os.path.dirname(os.path.dirname(folder))):
            _fsync(path)

    def _fail(self, error: Exception, action: str) -> NoReturn:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        for words, kind, ours in _CAUSES:
            if words in str(error):
                raise StorageError(f"cannot {action} the table {self._uri}: {ours}", kind=kind, path=self._uri) from error
        if isinstance(error, OSError):
            raise StorageError(f"cannot {action} the table {self._uri}: {text}", kind="io", path=self._uri) from error
        raise TableError(f"cannot {action} the table {self._uri}: {text}", kind="log", path=self._uri) from error


def _fsync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

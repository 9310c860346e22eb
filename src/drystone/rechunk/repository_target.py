"""An Icechunk repository as the target of a store output.

A run works on a branch of its own, named for its fingerprint, that begins at the tip of ``main`` and stays one commit past it:
metadata and small arrays are committed first, then tasks' cells in batches, each of which takes the place of the commit before
it. So readers of ``main`` and of its history find whole stores only, and memory and messages hold one batch. In each commit the
ledger says which tasks' cells it has; once all are there it gets the store's identity, the snapshot is verified, and ``main``
moves to it in one step.

A killed run leaves its branch, and the next goes on from there; also where its plan is another one: tasks that are the same
need not be done again. A branch that does not begin at the tip of ``main`` any more is dropped, so what others published since
is kept.
"""

from __future__ import annotations

import itertools
import json
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from drystone.errors import StorageError
from drystone.model.array import GroupSpec
from drystone.model.attributes import Attributes
from drystone.rechunk.kernel import TaskDone
from drystone.rechunk.receipts import Held, RunState
from drystone.rechunk.repository_writer import ForkTarget, SessionWriter
from drystone.rechunk.store_target import Stock
from drystone.rechunk.target import documents, group_document, json_bytes, write_whole
from drystone.rechunk.task_ledger import IdsHeld, ledger_layout, read_ids, write_ids
from drystone.rechunk.writer import TargetOpener, current, put_new
from drystone.storage.repository import (
    LEDGER_GROUP,
    MAIN,
    is_tip,
    last_fingerprint,
    open_or_create,
    repository_errors,
    repository_storage,
    run_in_zarr,
    sweep_unborn,
    with_windows,
)
from drystone.storage.repository_count import count_chunks
from drystone.storage.store import Store

if TYPE_CHECKING:
    import icechunk

__all__ = ["RepositoryTarget"]

_BRANCHES = "drystone-run-"
_BATCH_TASKS = 256
_BATCH_BYTES = 32 << 20  # of changes
_BATCH_SECONDS = 20.0  # what a killed run does again at most, beside the tasks that were running
_CACHED = 100_000  # references, more than a window has
_LEDGER = f"{LEDGER_GROUP}/zarr.json"
# where one of these differs, an array's chunks mean something else
_MEANING = ("data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs")

type _Documents = dict[str, dict[str, object]]


class RepositoryTarget:
    """See the module, and :class:`~drystone.rechunk.store_target.StoreTarget`.

    Parameters
    ----------
    store, key
        Where the repository is.
    run
        Fingerprint of the run's plan.
    """

    hides = False

    def __init__(self, store: Store, key: str, run: str) -> None:
        self._store, self._key, self._address = store, key, f"{store.url}/{key}"
        self._branch = f"{_BRANCHES}{run[:16]}"
        self._base = ""
        self._fence: Callable[[], None] = lambda: None
        self._stock = Stock("", (), ())
        self._ids: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._changed: list[int] = []
        self._bytes, self._since = 0, 0.0
        self._opener: TargetOpener | None = None

    @property
    def opener(self) -> TargetOpener:
        """A fork of the session that was prepared."""
        assert self._opener is not None
        return self._opener

    @contextmanager
    def _opened(self) -> Iterator[icechunk.Repository | None]:
        """The repository, or None where there is none; Icechunk's errors become ours inside."""
        import icechunk

        with repository_errors(self._address):
            place = repository_storage(self._store, self._key)
            yield icechunk.Repository.open(place) if icechunk.Repository.exists(place) else None

    def held(self) -> Held:
        """By the ledger on the branch that a run left, or of what is published."""
        with self._opened() as repo:
            if repo is None:
                return IdsHeld(np.zeros(0, np.uint64))
            tip = repo.lookup_branch(self._left(repo) or MAIN)
            writer = self._writer(repo.readonly_session(snapshot_id=tip))
            document = current(writer, f"{ledger_layout(0).key}/zarr.json")
            n = 0 if document is None else int(json.loads(document)["shape"][0])
            return IdsHeld(np.sort(read_ids(writer, n)))

    def stands(self, identity: str) -> str | None:
        """The tip of ``main``, where its ledger says so."""
        with self._opened() as repo:
            if repo is None or last_fingerprint(repo, self._address) != identity:
                return None
            return repo.lookup_branch(MAIN)

    def _left(self, repo: icechunk.Repository) -> str | None:
        """The branch that a run left, if it begins at the tip of main."""
        main = repo.lookup_branch(MAIN)
        branches = sorted(b for b in repo.list_branches() if b.startswith(_BRANCHES))
        for branch in sorted(branches, key=lambda b: b != self._branch):
            history = [s.id for s in itertools.islice(repo.ancestry(branch=branch), 2)]
            if main in history:
                return branch
        return None

    def _writer(self, session: icechunk.Session) -> SessionWriter:
        return SessionWriter(session, self._address, remote=self._store.root is None)

    def prepare(self, stock: Stock, fence: Callable[[], None]) -> None:
        """Make the branch, or go on with the one that a run left; commit metadata and what the driver writes."""
        import icechunk

        self._stock, self._fence, self._ids = stock, fence, stock.task_ids.copy()
        with repository_errors(self._address):
            fence()
            sweep_unborn(self._store, self._key)
            place = repository_storage(self._store, self._key)
            grids = {a.path: (a.cell_grid, stock.axes.get(a.path)) for a in stock.layouts}
            repo = open_or_create(place, with_windows(icechunk.RepositoryConfig.default(), grids))
            last_fingerprint(repo, self._address)
            config = with_windows(repo.config, grids)
            icechunk.Repository.open(place, config=config).save_config()
            # not saved: each commit makes a window's manifest anew, and of the old ones the cache would keep a gigabyte
            config.caching = icechunk.CachingConfig(num_chunk_refs=_CACHED)
            self._repo = icechunk.Repository.open(place, config=config)
            self._begin(self._repo)
            self._session = self._repo.writable_session(self._branch)
            self._put_stock(stock)
            if self._session.has_uncommitted_changes:
                self._commit("metadata and small arrays")
            self._opener = ForkTarget(pickle.dumps(self._session.fork()), self._address, self._store.root is None)
        self._since = time.monotonic()

    def _begin(self, repo: icechunk.Repository) -> None:
        left = self._left(repo)
        self._base = repo.lookup_branch(MAIN)
        if left != self._branch:
            if self._branch in repo.list_branches():
                repo.delete_branch(self._branch)
            repo.create_branch(self._branch, repo.lookup_branch(left) if left is not None else self._base)
        for branch in repo.list_branches():
            if branch.startswith(_BRANCHES) and branch != self._branch:
                repo.delete_branch(branch)

    def _put_stock(self, stock: Stock) -> None:
        """Metadata, small arrays and the ledger as they shall be; what belongs to nothing of it goes."""
        writer = self._writer(self._session)
        ledger = ledger_layout(len(self._ids))
        there = run_in_zarr(_documents(self._session.store))
        wanted = documents((*stock.layouts, ledger), stock.groups)
        if _LEDGER in there:  # says what is published until the whole of this store is there
            wanted[_LEDGER] = writer.get(_LEDGER)
        gone: list[str] = []
        for name, document in sorted(there.items()):
            key = name.removesuffix("zarr.json")
            if any(key.startswith(g) for g in gone) or not _means_other(document, wanted.get(name)):
                continue
            gone.append(key)
            writer.delete_all(key.rstrip("/"))
        for layout in (*stock.layouts, ledger):
            name = f"{layout.key}/zarr.json".lstrip("/")
            if _shrinks(there.get(name), layout.shape) and not any(name.startswith(g) for g in gone):
                run_in_zarr(_delete_outside(self._session, layout.path, layout.cell_grid))
        for name, data in sorted(wanted.items()):
            put_new(writer, name, data)
        by_path = {a.path: a for a in stock.layouts}
        for path, values in stock.values.items():
            write_whole(writer, by_path[path], values)
        write_ids(writer, self._ids, range(len(self._ids)))

    def take(self, number: int, done: TaskDone) -> Sequence[int]:
        """Merge a task's changes; a batch of them is committed at a time."""
        if not done.changes:
            return (number,)
        with repository_errors(self._address):
            self._session.merge(pickle.loads(done.changes))
        self._ids[number] = int(done.receipt.task_id, 16)
        self._changed.append(number)
        self._bytes += len(done.changes)
        late = time.monotonic() - self._since > _BATCH_SECONDS
        if late or len(self._changed) >= _BATCH_TASKS or self._bytes >= _BATCH_BYTES:
            return self.settle()
        return ()

    def settle(self) -> Sequence[int]:
        """Commit what was taken, with the ledger that says so."""
        if not self._changed:
            return ()
        with repository_errors(self._address):
            write_ids(self._writer(self._session), self._ids, self._changed)
            self._commit("not the whole yet")
        counted, self._changed = self._changed, []
        self._bytes, self._since = 0, time.monotonic()
        return counted

    def _commit(self, what: str, **about: object) -> str:
        """Put the session's changes on the branch, in place of its last commit; the branch stays one commit past main."""
        self._fence()
        message = f"drystone: store of {len(self._stock.layouts)} arrays: {what}"
        metadata = {"drystone": {"tasks": int(np.count_nonzero(self._ids)), "of": len(self._ids), **about}}
        first = self._session.snapshot_id == self._base
        snapshot = self._session.commit(message, metadata) if first else self._session.amend(message, metadata=metadata)
        self._session = self._repo.writable_session(self._branch)
        if self._session.snapshot_id != snapshot:
            is_tip(self._repo, self._branch, snapshot)
        return snapshot

    def finish(self, state: RunState) -> str:
        """Give the ledger the store's identity, and see that the snapshot holds every cell that receipts name."""
        import icechunk

        with repository_errors(self._address):
            identity = self._stock.identity
            group = GroupSpec(f"/{LEDGER_GROUP}", Attributes.of({"fingerprint": identity}))
            put_new(self._writer(self._session), _LEDGER, json_bytes(group_document(group)))
            if self._session.has_uncommitted_changes:
                self._commit("whole", fingerprint=identity)
            repo = icechunk.Repository.open(repository_storage(self._store, self._key))
            snapshot = self._session.snapshot_id
            is_tip(repo, self._branch, snapshot)
            self._prove(repo, snapshot, state)
        return snapshot

    def _prove(self, repo: icechunk.Repository, snapshot: str, state: RunState) -> None:
        """Count every array's chunks in the manifests that readers will read."""
        counted = run_in_zarr(count_chunks(repo, snapshot))
        for layout in self._stock.layouts:
            if layout.path in self._stock.values:
                continue
            found, sent = sum(counted.get(layout.path, (0, 0))), state.cells.get(layout.path, 0)
            if found != sent:
                raise StorageError(
                    f"{layout.path}: tasks wrote {sent} cells, {found} are stored in snapshot {snapshot} of "
                    f"{self._address}; it was not published; run again",
                    kind="commit-differs",
                    array=layout.path,
                    snapshot=snapshot,
                )

    def publish(self) -> str:
        """Move main to the branch's tip and remove the branch."""
        import icechunk

        with repository_errors(self._address):
            self._fence()
            snapshot = self._session.snapshot_id
            if snapshot != self._base:
                self._repo.reset_branch(MAIN, snapshot, from_snapshot_id=self._base)
            is_tip(icechunk.Repository.open(repository_storage(self._store, self._key)), MAIN, snapshot)
            self._repo.delete_branch(self._branch)
        return snapshot


def _means_other(document: dict[str, object], wanted: bytes | None) -> bool:
    """Whether a node must go, with what is in it, since nothing like it is wanted."""
    if wanted is None:
        return True
    new = json.loads(wanted)
    if document["node_type"] != new["node_type"]:
        return True
    return new["node_type"] == "array" and any(document.get(name) != new.get(name) for name in _MEANING)


def _shrinks(document: dict[str, object] | None, shape: tuple[int, ...]) -> bool:
    """Whether an array that is there will end before it does now."""
    now = [] if document is None else cast("list[int]", document["shape"])
    return any(old > new for old, new in zip(now, shape, strict=False))


async def _documents(store: icechunk.IcechunkStore) -> _Documents:
    """The metadata of every node, by key, parents before what is in them."""
    from zarr.core.buffer import default_buffer_prototype

    found: _Documents = {}
    left = [""]
    while left:
        folder = left.pop()
        data = await store.get(f"{folder}zarr.json", default_buffer_prototype())
        if data is None:
            continue
        found[f"{folder}zarr.json"] = document = json.loads(data.to_bytes())
        if document["node_type"] == "group":
            left += [f"{folder}{name}/" async for name in store.list_dir(folder.rstrip("/")) if name != "zarr.json"]
    return found


async def _delete_outside(session: icechunk.Session, path: str, grid: tuple[int, ...]) -> None:
    """Delete an array's chunks beyond a grid: before its shape says so, since Icechunk then finds them no more."""
    beyond = [c async for c in session.chunk_coordinates(path) if any(i >= n for i, n in zip(c, grid, strict=True))]
    for coords in beyond:
        await session.store.delete("/".join([path[1:], "c", *map(str, coords)]))

"""Receipts on disk: segments that workers append to, and what they prove.

Each process appends to a segment of its own, ``<run>/receipts/<worker>.jsonl``, one flushed line a task; where storage
cannot append, each receipt is an object. A line that a kill cut short is no receipt: its task is done again, which is
harmless.

A receipt proves its task only where its fingerprint is the plan's and the target holds what it says. In a folder or object
store that is every object it names, with its size (absent, for cells that are all fill): one listing says so for all. What the
first of two passes wrote is needed only until its readers are done: a task of that pass is left only where some reader is left
and the object is not there.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from drystone.errors import StorageError
from drystone.model.task import Receipt
from drystone.rechunk.plan_file import RechunkPlan
from drystone.storage.local import LocalStore, prune_folders
from drystone.storage.store import Store

__all__ = [
    "Held",
    "ObjectsHeld",
    "ReceiptLog",
    "RunState",
    "load_receipts",
    "proved",
    "run_state",
    "sweep_temporary",
    "target_sizes",
]

type Held = Callable[[Receipt], bool]
"""Whether what a receipt says was written is in the target, so that it counts."""


def worker_name() -> str:
    """Host, process and a random part: never used twice, so that no segment is appended to after a torn line."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


class ReceiptLog:
    """Appends receipts of this process, each durable when :meth:`append` returns; safe to share between threads.

    Parameters
    ----------
    store, run
        Where the run's folder is.

    Examples
    --------
    >>> import tempfile
    >>> store = LocalStore(tempfile.mkdtemp())
    >>> log = ReceiptLog(store, "runs/1")
    >>> log.append(Receipt("t", "f", "/a", 0, (), (), 1, 2, 3, 0.5, 4, log.worker))
    >>> [r.task_id for r in load_receipts(store, "runs/1")]
    ['t']
    """

    def __init__(self, store: Store, run: str) -> None:
        self.worker = worker_name()
        self._store, self._key = store, f"{run}/receipts/{self.worker}"
        self._lock = threading.Lock()
        self._n = 0

    def append(self, receipt: Receipt) -> None:
        """Record one receipt."""
        line = (receipt.to_json() + "\n").encode()
        with self._lock:
            root = self._store.root
            if root is None:
                self._store.put(f"{self._key}-{self._n:06d}.jsonl", line)
            elif not self._n or not _append(os.path.join(root, f"{self._key}.jsonl"), line):
                self._store.put(f"{self._key}.jsonl", line)  # makes the folder and flushes it
            self._n += 1


def _append(path: str, line: bytes) -> bool:
    """Append and flush; False where the segment is gone (its folder was cleared by hand)."""
    data = b"\n" + line  # an empty line first: should the line before be torn, it does not swallow this one
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _failure(path, error) from error
    try:
        size = os.fstat(fd).st_size
        if os.write(fd, data) != len(data):
            os.ftruncate(fd, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(fd)
    except OSError as error:
        raise _failure(path, error) from error
    finally:
        os.close(fd)
    return True


def _failure(path: str, error: OSError) -> StorageError:
    kind = "no-space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "io"
    return StorageError(f"cannot append a receipt to {path}: {error.strerror}", kind=kind, path=path)


def load_receipts(store: Store, run: str) -> Iterator[Receipt]:
    """Every readable receipt of a run, in no particular order; a task may have several."""
    for key, _ in store.list(f"{run}/receipts/"):
        if not key.endswith(".jsonl"):
            continue
        for line in store.get(key).split(b"\n"):
            if not line:
                continue
            try:
                yield Receipt.from_json(line.decode())
            except (ValueError, KeyError, TypeError):
                continue  # cut short by a kill: no receipt, so the task is done again


@dataclass(frozen=True, slots=True)
class RunState:
    """What is done.

    Parameters
    ----------
    done
        bool (n_tasks,): tasks with a valid receipt, and those of a first pass that nobody needs any more.
    task_ids
        uint64 (n_tasks,): the ids of the tasks that the target holds, as numbers; 0 of others.
    cells
        Array path to the objects that tasks of the target wrote; all-fill cells have none.
    bytes_read, bytes_written, seconds, peak_rss
        Over valid receipts: sums, and the largest peak.
    """

    done: NDArray[np.bool_]
    task_ids: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    cells: Mapping[str, int] = field(default_factory=dict)
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
    peak_rss: int = 0

    @property
    def n_done(self) -> int:
        """Tasks done."""
        return int(self.done.sum())

    def pending(self) -> list[int]:
        """Numbers of the tasks that are left, in order."""
        return [int(i) for i in np.flatnonzero(~self.done)]


def target_sizes(store: Store, target: str) -> dict[str, int]:
    """Key below the target to size of every object there."""
    cut = len(target) + 1 if target else 0
    return {key[cut:]: stamp.size for key, stamp in store.list(f"{target}/" if target else "")}


@dataclass(frozen=True, slots=True)
class ObjectsHeld:
    """Every object of a receipt is there with its size.

    Parameters
    ----------
    sizes
        From :func:`target_sizes`.
    """

    sizes: Mapping[str, int]

    def __call__(self, receipt: Receipt) -> bool:
        """See :data:`Held`."""
        return all(self.sizes.get(o.key, -1) == o.size for o in receipt.objects)


def run_state(plan: RechunkPlan, receipts: Iterator[Receipt], held: Held, between: Mapping[str, int] | None = None) -> RunState:
    """Which tasks are proved done.

    Parameters
    ----------
    plan
        Of this run.
    receipts
        From :func:`load_receipts`.
    held
        Which of them count, by what lies in the target.
    between
        Key to size of every shuffle object that is there.
    """
    done, ids = np.zeros(plan.n_tasks, np.bool_), np.zeros(plan.n_tasks, np.uint64)
    cells: Counter[str] = Counter()
    told: set[int] = set()  # of a first pass
    read = written = peak = 0
    seconds = 0.0
    for number, r, first in _valid(plan, receipts, held):
        if not first:
            ids[number] = int(r.task_id, 16)
            cells[r.array] += sum(o.size >= 0 for o in r.objects)
        done[number] |= not first or all((between or {}).get(o.key) == o.size for o in r.objects)
        if first:
            if number in told:
                continue
            told.add(number)
        read, written, seconds = read + r.bytes_read, written + r.bytes_written, seconds + r.seconds
        peak = max(peak, r.peak_rss)
    for a, offset in plan.offsets():
        if a.tasks.shuffle is not None:
            regions = done[offset : offset + a.tasks.n_regions].reshape(a.tasks.regions.grid_shape)
            unread = a.tasks.shuffle.readers_left(a.tasks.regions, regions) == 0
            done[offset + a.tasks.n_regions : offset + a.tasks.n_tasks] |= unread.reshape(-1)
    return RunState(done, ids, cells, read, written, seconds, peak)


def proved(plan: RechunkPlan, receipts: Iterator[Receipt], held: Held) -> Iterator[tuple[int, Receipt]]:
    """The receipts that prove what is in the target, one a task, with the task's number; see :func:`run_state`."""
    return ((number, r) for number, r, first in _valid(plan, receipts, held) if not first)


def _valid(plan: RechunkPlan, receipts: Iterator[Receipt], held: Held) -> Iterator[tuple[int, Receipt, bool]]:
    """One receipt a task that is the plan's, with the task's number, and whether it is of a first pass: of those, all.

    What a first pass wrote may have been lost and written again, in another place too.
    """
    seen = np.zeros(plan.n_tasks, np.bool_)
    known = {a.layout.path: (a, offset, a.base()) for a, offset in plan.offsets()}
    for r in receipts:
        if r.array not in known:
            continue
        a, offset, base = known[r.array]
        if not 0 <= r.index < a.tasks.n_tasks or seen[offset + r.index]:
            continue
        task = plan.task_of(a, r.index, base)
        if r.fingerprint != task.fingerprint or r.task_id != task.task_id:
            continue
        first = task.pass_ == 1
        wanted = [a.layout.cell_key(c) for c in a.tasks.cells(r.index)]
        if not first and ([o.key for o in r.objects] != wanted or not held(r)):
            continue
        seen[offset + r.index] = not first
        yield offset + r.index, r, first


def remove_objects(store: Store, prefix: str, names: Iterable[str], arrays: Iterable[str]) -> None:
    """Remove objects below a prefix, and the folders that they leave empty in some arrays: readers list those too."""
    for name in names:
        store.delete(f"{prefix}/{name}" if prefix else name)
    for array in arrays if store.root is not None else ():
        prune_folders(os.path.join(store.root or "", prefix, array.strip("/")))


def sweep_temporary(store: Store, prefix: str) -> int:
    """Remove what killed writers left under a prefix; only the one driver of a run may. Returns how many."""
    if store.root is None:
        return 0  # an object store shows no object before it is whole
    folder = os.path.join(store.root, prefix) if prefix else store.root
    return LocalStore(folder).sweep_temporary() if os.path.isdir(folder) else 0

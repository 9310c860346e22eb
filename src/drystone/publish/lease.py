"""The committer's lease: one driver at a time.

A lease is an object created only if absent, holding a token, its owner and a heartbeat. On a folder a kernel lock is held
as well, on a file beside it that stays open for as long as the lease does: a stopped holder keeps it, a killed one loses
it at once, and a heartbeat that could not be written does not end it. The lock file is never removed, since a lock on a
removed file fences nobody.

What it guarantees. Between processes of one host, on a folder: exclusion, as long as the lock file stays in place. On a
file system shared by hosts: exclusion where its locks reach all hosts (NFS, Lustre with ``flock``, CephFS); where they are
per host, the lease object decides, which a holder that was stopped for longer than ``ttl`` may overrun between its
:meth:`Lease.check` and its commit. On an object store: as that last case; the store's conditional write is the fence.

A lease is stale when its last heartbeat is older than its ``ttl`` by the clocks of the hosts, which must agree to within
a fraction of it; or at once, when its owner was a process of this machine that is no more. A stopped process of this
machine is alive, so its lease is never stale.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import threading
import time
import uuid
from dataclasses import asdict, dataclass, replace
from types import TracebackType
from typing import Self

from drystone.errors import LeaseError, StorageError
from drystone.storage.local import raise_storage_error
from drystone.storage.store import Store

__all__ = ["Lease", "LeaseRecord", "holder_of", "read_lease"]


_DYING = 5.0  # seconds that a killed process's lock may outlive it


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """What a lease object says.

    Parameters
    ----------
    token
        Unique to one acquisition.
    host, pid
        The owner.
    machine, started
        Boot and process namespace of the owner, and its start time there, so that neither a reused process number nor a
        host of the same name is taken for it.
    purpose
        Free text for messages.
    acquired, renewed
        Seconds since 1970.
    ttl
        Seconds without a heartbeat after which others may take over.
    """

    token: str
    host: str
    pid: int
    machine: str
    started: str
    purpose: str
    acquired: float
    renewed: float
    ttl: float

    def to_bytes(self) -> bytes:
        """As stored."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> LeaseRecord | None:
        """Read back; None where it is no lease record."""
        try:
            return cls(**json.loads(data))
        except (ValueError, TypeError):
            return None

    def owner(self, now: float) -> str:
        """Who, where and how long ago, for messages."""
        return (
            f"{self.purpose or 'a run'} of process {self.pid} on {self.host}, since {now - self.acquired:.0f} s, "
            f"last heartbeat {max(0.0, now - self.renewed):.0f} s ago"
        )


def read_lease(store: Store, key: str) -> LeaseRecord | None:
    """The lease that lies at a key, held or stale; None where there is none."""
    try:
        return LeaseRecord.from_bytes(store.get(key))
    except StorageError as error:
        if error.kind == "not-found":
            return None
        raise


def _machine() -> str:
    """The running kernel and its process numbering: within one of these, process numbers mean the same. "" if unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as f:
            return f"{f.read().strip()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When a process of this machine started, in clock ticks since boot; "" where there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            fields = f.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    # a killed process that nobody has waited for is a zombie: it holds no lock and writes nothing
    return "" if fields[0] == b"Z" else fields[19].decode()


def _dead(found: LeaseRecord, machine: str) -> bool | None:
    """Whether its process is gone; None where it is not one of this machine, so that only its heartbeat tells."""
    if not found.machine or found.machine != machine:
        return None
    return not found.started or _started(found.pid) != found.started


def holder_of(store: Store, key: str) -> LeaseRecord | None:
    """Who holds the lease now; None where it is free, or its holder is gone. Changes nothing.

    Examples
    --------
    >>> import tempfile
    >>> from drystone.storage.local import LocalStore
    >>> holder_of(LocalStore(tempfile.mkdtemp()), "lease") is None
    True
    """
    found = read_lease(store, key)
    if found is None:
        return None
    dead = _dead(found, _machine())
    stale = time.time() - found.renewed > found.ttl if dead is None else dead
    return None if stale else found


class Lease:
    """Held from ``with`` to the end of its block, renewed by a thread of its own.

    Parameters
    ----------
    store, key
        Where the lease object lies; ``<key>.lock`` beside it on folders.
    ttl
        Seconds without a heartbeat after which others may take over; renewed four times within it.
    purpose
        For the messages of those who find it held.

    Examples
    --------
    >>> import tempfile
    >>> from drystone.storage.local import LocalStore
    >>> store = LocalStore(tempfile.mkdtemp())
    >>> with Lease(store, "lease", purpose="doctest") as lease:
    ...     lease.check()
    ...     try:
    ...         Lease(store, "lease").acquire()
    ...     except LeaseError as error:
    ...         (error.kind, "doctest" in error.message)
    ('lease-held', True)
    >>> read_lease(store, "lease") is None
    True
    """

    def __init__(self, store: Store, key: str, *, ttl: float = 120.0, purpose: str = "") -> None:
        self._store, self._key, self._ttl = store, key, ttl
        now = time.time()
        pid = os.getpid()
        self._record = LeaseRecord(
            uuid.uuid4().hex, socket.gethostname(), pid, _machine(), _started(pid), purpose, now, now, ttl
        )
        self._lock: int | None = None
        self._guard = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._lost: str | None = None

    @property
    def record(self) -> LeaseRecord:
        """As last written."""
        return self._record

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()

    def acquire(self) -> None:
        """Take the lease, or take over a stale one.

        Raises
        ------
        LeaseError
            ``lease-held``: the message names the holder and the age of its heartbeat.
        """
        self._take_lock()
        try:
            self._create()
        except BaseException:
            self._drop_lock()
            raise
        self._stop.clear()
        self._thread = threading.Thread(target=self._beat, name="drystone-lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Prove that the lease is still ours; call it just before each commit.

        Raises
        ------
        LeaseError
            ``lease-lost``: another driver took over, or the heartbeat stood still for longer than ``ttl``.
        """
        if self._thread is None:
            raise self._loss("it is not held")
        with self._guard:
            self._verify()
            if self._lost is None and time.time() - self._record.renewed > self._ttl / 4:
                self._renew()
        if self._lost is not None:
            raise self._loss(self._lost)

    def release(self) -> None:
        """Give it up; nothing happens where it is not held."""
        if self._thread is None:
            return
        self._stop.set()
        self._thread.join()
        self._thread = None
        # if storage fails here the object stays and is stale as soon as this process ends
        with contextlib.suppress(StorageError):
            found = read_lease(self._store, self._key)
            if found is not None and found.token == self._record.token:
                self._store.delete(self._key)
        self._drop_lock()

    def _take_lock(self) -> None:
        if self._store.root is None:
            return
        path = os.path.join(self._store.root, f"{self._key}.lock")
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            # group-writable where the umask says so; never truncated or removed
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise_storage_error(error, "open the lock file", path)
        try:
            self._lock_file(fd, path)
        except BaseException:
            os.close(fd)
            raise
        self._lock = fd

    def _lock_file(self, fd: int, path: str) -> None:
        deadline = time.monotonic() + _DYING
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                found = read_lease(self._store, self._key)
                # the threads of a killed process hold its files a moment longer; a starting one has not written yet
                passing = found is None or _dead(found, self._record.machine)
                if not passing or time.monotonic() > deadline:
                    raise self._held(found) from error
                time.sleep(0.02)
            except OSError as error:
                raise StorageError(
                    f"{path} cannot be locked ({error.strerror}): this file system has no locks, so two runs could overwrite "
                    "each other's commits; put the work folder on one that has",
                    kind="no-locks",
                    path=path,
                ) from error
            else:
                return

    def _drop_lock(self) -> None:
        if self._lock is not None:
            # unlocked by name: a forked child that inherited the descriptor must not keep the lock alive
            with contextlib.suppress(OSError):
                fcntl.flock(self._lock, fcntl.LOCK_UN)
            os.close(self._lock)
            self._lock = None

    def _create(self) -> None:
        for _ in range(3):
            self._record = replace(self._record, renewed=time.time())
            if self._store.create(self._key, self._record.to_bytes()):
                return
            try:
                found = LeaseRecord.from_bytes(self._store.get(self._key))
            except StorageError as error:
                if error.kind == "not-found":
                    continue  # released between our two looks
                raise
            if found is not None and not self._stale(found):
                raise self._held(found)
            # what is stale, or no lease record at all, is removed; of several that do so one creates the next
            self._store.delete(self._key)
        raise self._held(read_lease(self._store, self._key))

    def _stale(self, found: LeaseRecord) -> bool:
        old = time.time() - found.renewed > found.ttl
        dead = _dead(found, self._record.machine)
        # one that lives although, on a folder, its kernel lock is ours, gave up without removing the object
        return old if dead is None else dead or (old and self._lock is not None)

    def _held(self, found: LeaseRecord | None) -> LeaseError:
        now = time.time()
        who = "another process of this host" if found is None else found.owner(now)
        facts: dict[str, str | int | float] = {}
        if found is not None:
            facts = {"host": found.host, "pid": found.pid, "age": now - found.renewed}
        where = f"{self._store.url}/{self._key}"
        return LeaseError(
            f"{where} is held by {who}; only one driver may commit at a time, so nothing was done; wait for it, or stop it "
            "(a dead one is taken over by itself)",
            kind="lease-held",
            lease=where,
            **facts,
        )

    def _loss(self, reason: str) -> LeaseError:
        where = f"{self._store.url}/{self._key}"
        return LeaseError(
            f"the lease {where} is not ours any more: {reason}; nothing was committed; run again",
            kind="lease-lost",
            lease=where,
        )

    def _beat(self) -> None:
        while not self._stop.wait(self._ttl / 4):
            with self._guard:
                self._verify()
                if self._lost is not None:
                    return
                try:
                    self._renew()
                except StorageError:
                    # a full disk must not end a run that holds the kernel lock; check() decides, with the age
                    continue

    def _verify(self) -> None:
        """Look whose token lies there, and how old our heartbeat is."""
        try:
            found = read_lease(self._store, self._key)
        except StorageError as error:
            # unreadable is not lost; the age decides
            self._expired(f"it could not be read ({error.message})")
            return
        if found is None:
            self._lost = "its object was removed"
        elif found.token != self._record.token:
            self._lost = f"it was taken over by {found.owner(time.time())}"
        else:
            self._expired("no heartbeat was written")

    def _expired(self, why: str) -> None:
        age = time.time() - self._record.renewed
        # under the kernel lock nobody of this host could take over, and a laptop may sleep
        if age > self._ttl and self._lock is None:
            self._lost = f"{why} for {age:.0f} s, longer than its {self._ttl:.0f} s"

    def _renew(self) -> None:
        record = replace(self._record, renewed=time.time())
        self._store.put(self._key, record.to_bytes())
        self._record = record

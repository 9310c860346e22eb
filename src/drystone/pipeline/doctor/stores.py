"""Checks of a config's places: sources can be read in ranges, targets do what publishing relies on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import cast

from drystone import registry
from drystone.errors import DrystoneError, StorageError
from drystone.model.granule import Listed
from drystone.model.sizes import size_text
from drystone.pipeline.archive import Archive
from drystone.pipeline.doctor.checks import Fact, Status, Verdict
from drystone.pipeline.doctor.machine import file_system
from drystone.pipeline.doctor.places import probe_folder
from drystone.protocols import Lister
from drystone.storage.local import LocalStore
from drystone.storage.remote import RemoteStore
from drystone.storage.store import Store

__all__ = ["Sources", "Target", "nearest", "some_granules", "targets_of"]

_WRITE = "target write"
_LOOKED_AT = 8  # granules of a pattern
_BYTES = b"laid edge to edge " * 300


def some_granules(archive: Archive, lister: str, pattern: str) -> list[Listed]:
    """The first granules of a pattern; no more is listed than that, where the lister goes along."""
    return list(islice(cast(Lister, registry.load("listers", lister)).list(archive.places, pattern), _LOOKED_AT))


@dataclass(frozen=True, slots=True)
class Sources:
    """The granules of one pattern."""

    archive: Archive
    lister: str
    pattern: str

    def writes(self) -> list[str]:
        """Nothing."""
        return []

    def look(self) -> Iterator[Verdict]:
        """Listed, readable, in ranges."""
        try:
            some = some_granules(self.archive, self.lister, self.pattern)
        except DrystoneError as error:
            yield Verdict("source list", self.pattern, "fail", error.message, {"kind": error.kind})
            return
        if not some:
            yield Verdict("source list", self.pattern, "warn", "no granule is listed", {"listed": 0})
            return
        yield Verdict("source list", self.pattern, "ok", f"granules are listed, {some[0].address} first", {"listed": len(some)})
        for listed in some:
            store, key = self.archive.places.resolve(listed.address)
            try:
                problem = _range_problem(store, key, listed.stamp.size)
            except StorageError as error:
                problem = error.message
            if problem is not None:
                yield Verdict("source read", listed.address, "fail", problem)
                return
        yield Verdict("source read", self.pattern, "ok", f"ranges of {len(some)} granules were read", {"read": len(some)})


def _range_problem(store: Store, key: str, size: int) -> str | None:
    """Why ranges of an object cannot be relied on; None where they can."""
    n = min(size, 256)
    head = store.get_range(key, 0, n)
    if store.get_range(key, n // 2, n - n // 2) != head[n // 2 :]:
        return (
            f"{store.url}/{key}: a range from byte {n // 2} has other bytes than one from the start; the server ignores ranges"
        )
    try:
        store.get_range(key, size - n // 2, n)
    except StorageError as error:
        return None if error.kind in ("short-read", "io") else error.message
    return f"{store.url}/{key}: a range beyond its end of {size} bytes was answered as if it were there"


@dataclass(frozen=True, slots=True)
class Target:
    """A place that is written: an output's, or the work folder's."""

    what: str
    store: Store
    prefix: str

    @property
    def subject(self) -> str:
        """Its address."""
        return f"{self.what} {self.store.url}/{self.prefix}".rstrip("/")

    def writes(self) -> list[str]:
        """A few small objects."""
        return [f"{self.store.url}: a few objects of {len(_BYTES)} bytes (can it be written, created once, listed, removed?)"]

    def look(self) -> Iterator[Verdict]:
        """Room, then a probe: one failure does not hide the others, unless nothing can be written."""
        yield from self._room()
        written = True
        try:
            with probe_folder(self.store, self.prefix) as key:
                for check, look, yes in self._steps(key):
                    said = self._said(check, look, yes)
                    yield said
                    written = check != _WRITE or said.status == "ok"
                    if not written:
                        break
        except StorageError as error:  # what was written could not be removed
            if written:
                yield Verdict("target delete", self.subject, "fail", error.message, {"kind": error.kind})

    def _room(self) -> Iterator[Verdict]:
        if self.store.root is None:
            return
        at = os.statvfs(self.store.root)
        free, inodes = at.f_bavail * at.f_frsize, at.f_favail
        kind = file_system(self.store.root)
        facts: dict[str, Fact] = {"file_system": kind, "free": free, "free_inodes": inodes}
        status: Status = (
            "warn" if kind in ("tmpfs", "ramfs") or free < 1_000_000_000 or (at.f_files and inodes < 10_000) else "ok"
        )
        text = f"{kind}, {size_text(free)}" + (f" and {inodes:,} inodes free" if at.f_files else " free")
        if kind in ("tmpfs", "ramfs"):
            text += "; it lies in memory, and what is published there is gone when the machine starts again"
        yield Verdict("target room", self.subject, status, text, facts)

    def _steps(self, key: str) -> list[tuple[str, Callable[[], str | None], str]]:
        """(check, what looks and tells a problem, what to say where there is none)."""
        one, two = f"{key}/one", f"{key}/two"
        folder = self.store.root is not None
        swapped = "an update of what changed meanwhile is refused"
        if folder:
            swapped = "a folder has none; one writer is held by a lease file"
        return [
            (_WRITE, partial(self._written, one), "written and read back"),
            ("target ranges", partial(_range_problem, self.store, one, len(_BYTES)), "ranges are exact"),
            ("target create-only", partial(self._created, two), "an object that is there is not created again"),
            ("target compare-and-swap", partial(self._swapped, f"{key}/three"), swapped),
            ("target list", partial(self._listed, key, one), "what was written is listed"),
            ("target delete", partial(self._deleted, one), "removed"),
        ]

    def _written(self, key: str) -> str | None:
        self.store.put(key, _BYTES)
        same = self.store.get(key) == _BYTES and self.store.stat(key).size == len(_BYTES)
        return None if same else "what was written does not read back as it was"

    def _created(self, key: str) -> str | None:
        created, again = self.store.create(key, b"first"), self.store.create(key, b"second")
        if created and not again and self.store.get(key) == b"first":
            return None
        return (
            "creating an object that is there overwrote it: leases and commits need a store that honours If-None-Match, or two "
            "drivers can publish at once; run one at a time, or choose another store"
        )

    def _swapped(self, key: str) -> str | None:
        if not isinstance(self.store, RemoteStore):
            return None
        self.store.put(key, _BYTES)
        stale = self.store.stat(key).etag
        self.store.put(key, _BYTES + b"newer")
        refused = stale is not None and not self.store.swap(key, _BYTES, stale)
        fresh = self.store.stat(key).etag
        if refused and fresh is not None and self.store.swap(key, _BYTES, fresh):
            return None
        return (
            "an update of what changed meanwhile was not refused, or a right one was: commits need a store that honours "
            "If-Match, or one of two racing appends is lost; run one driver at a time, or choose another store"
        )

    def _listed(self, prefix: str, key: str) -> str | None:
        return None if key in {name for name, _ in self.store.list(f"{prefix}/")} else "what was written is not listed at once"

    def _deleted(self, key: str) -> str | None:
        self.store.delete(key)
        return "a removed object is still there" if self.store.exists(key) else None

    def _said(self, check: str, look: Callable[[], str | None], yes: str) -> Verdict:
        try:
            problem = look()
        except StorageError as error:
            return Verdict(check, self.subject, "fail", error.message, {"kind": error.kind})
        return Verdict(check, self.subject, "fail" if problem else "ok", problem or yes)


def nearest(store: Store, key: str) -> tuple[Store, str]:
    """A store and prefix to probe for what will be written: a folder that is there already, so that no other one is made."""
    if store.root is None:
        return store, key.rpartition("/")[0]
    folder = os.path.dirname(os.path.join(store.root, key.strip("/"))) if key.strip("/") else store.root
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return LocalStore(folder), ""


def targets_of(archive: Archive) -> list[Target]:
    """The work folder, then each output's place."""
    wanted = [("work", archive.config.work), *(("output", o.at) for o in archive.config.outputs)]
    found: dict[tuple[str, str], Target] = {}
    for what, address in wanted:
        store, prefix = nearest(*archive.places.resolve(address))
        found.setdefault((store.url, prefix), Target(what, store, prefix))
    return list(found.values())

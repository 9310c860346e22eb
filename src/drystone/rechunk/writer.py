"""What a task writes through, whatever its target is.

A task hands over whole write cells and forgets them. Where the target is a folder or an object store, a cell is an object and
is there at once. Where it is a repository with commits, cells go into a change set, which the task returns and the driver
commits: until then nobody sees them. So a task gives back :meth:`TargetWriter.changes`, which for objects is nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from google_crc32c import extend

from drystone.errors import StorageError
from drystone.storage.address import Places
from drystone.storage.store import Store

__all__ = ["ObjectTarget", "ObjectWriter", "TargetOpener", "TargetWriter", "current", "put_new"]

READ_BYTES = 4 << 20  # of an object that are read back at a time


class TargetWriter(Protocol):
    """Write cells and metadata of one target by key; used from several threads of one task."""

    def address(self, key: str) -> str:
        """For messages."""
        ...

    def get(self, key: str) -> bytes:
        """A whole object; ``StorageError`` of kind ``not-found`` where there is none."""
        ...

    def put(self, key: str, parts: Iterable[bytes | memoryview]) -> None:
        """Write a cell whole: where the source of its parts fails, nothing is written."""
        ...

    def delete(self, key: str) -> None:
        """See that a cell is not there; an earlier run with other values may have left it."""
        ...

    def stored(self, key: str) -> tuple[int, int | None]:
        """Size of a cell that was put, and its CRC-32C as read back; None where the storage keeps sums itself."""
        ...

    def changes(self) -> bytes:
        """What the driver needs to make all of it count; ``b""`` where it does already."""
        ...


class TargetOpener(Protocol):
    """How a task gets its writer; travels with the job, so a few hundred bytes when pickled."""

    def open(self, places: Places) -> TargetWriter:
        """A writer for one task."""
        ...


@dataclass(frozen=True, slots=True)
class ObjectTarget:
    """A folder or object store.

    Parameters
    ----------
    at
        ``place:key`` of the target's root.
    """

    at: str

    def open(self, places: Places) -> ObjectWriter:
        """See :class:`TargetOpener`."""
        return ObjectWriter(*places.resolve(self.at))


@dataclass(frozen=True, slots=True)
class ObjectWriter:
    """Each cell is an object below a prefix.

    Examples
    --------
    >>> import tempfile
    >>> from drystone.storage.local import LocalStore
    >>> writer = ObjectWriter(LocalStore(tempfile.mkdtemp()), "out")
    >>> writer.put("a/c/0", [b"1234", b"56789"])
    >>> writer.get("a/c/0"), writer.stored("a/c/0") == (9, 0xE3069283), writer.changes()
    (b'123456789', True, b'')
    """

    store: Store
    prefix: str

    def _full(self, key: str) -> str:
        return f"{self.prefix}/{key}" if self.prefix else key

    def address(self, key: str) -> str:
        """For messages."""
        return f"{self.store.url}/{self._full(key)}"

    def get(self, key: str) -> bytes:
        """A whole object."""
        return self.store.get(self._full(key))

    def put(self, key: str, parts: Iterable[bytes | memoryview]) -> None:
        """Write an object, atomically and durably."""
        self.store.put(self._full(key), parts)

    def delete(self, key: str) -> None:
        """Remove an object, if there is one."""
        self.store.delete(self._full(key))

    def stored(self, key: str) -> tuple[int, int | None]:
        """Size and sum of what lies in a folder; an object store proves its sums by itself."""
        full = self._full(key)
        size, crc = self.store.stat(full).size, 0
        if self.store.root is None:
            return size, None
        for first in range(0, size, READ_BYTES):
            crc = int(extend(crc, self.store.get_range(full, first, min(READ_BYTES, size - first))))
        return size, crc

    def changes(self) -> bytes:
        """Nothing: objects count as they are."""
        return b""


def current(writer: TargetWriter, key: str) -> bytes | None:
    """What is under a key, or None."""
    try:
        return writer.get(key)
    except StorageError as error:
        if error.kind == "not-found":
            return None
        raise


def put_new(writer: TargetWriter, key: str, data: bytes) -> int:
    """Write what is not there with these bytes; returns how many objects that were."""
    if current(writer, key) == data:
        return 0
    writer.put(key, [data])
    return 1

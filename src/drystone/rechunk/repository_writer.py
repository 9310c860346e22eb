"""Writing cells into an Icechunk repository: chunk objects at once, where they belong in a change set.

A task writes through a *fork* of the driver's session. Whole cells go to the repository as objects with random names; that they
are the cells of an array is known to the fork alone, some 30 bytes each, which the task returns to the driver. Lost with a
killed worker, they leave objects that nothing refers to.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from google_crc32c import extend

from drystone.errors import StorageError
from drystone.rechunk.writer import READ_BYTES
from drystone.storage.address import Places
from drystone.storage.repository import quiet, repository_errors, run_in_zarr

if TYPE_CHECKING:
    import icechunk
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer

__all__ = ["ForkTarget", "SessionWriter"]


class SessionWriter:
    """Writes through a session, of the driver or forked for a task.

    Parameters
    ----------
    session
        Takes the changes.
    root
        Address of the repository, for messages.
    remote
        Whether it lies in an object store, which keeps sums itself.
    """

    def __init__(self, session: icechunk.Session, root: str, *, remote: bool) -> None:
        self._session, self._root, self._remote = session, root, remote

    def address(self, key: str) -> str:
        """For messages."""
        return f"{self._root}/{key}"

    def get(self, key: str) -> bytes:
        """A whole value."""
        return self._get(key, None).to_bytes()

    def _get(self, key: str, part: ByteRequest | None) -> Buffer:
        from zarr.core.buffer import default_buffer_prototype

        with repository_errors(self._root):
            found = run_in_zarr(self._session.store.get(key, default_buffer_prototype(), part))
        if found is None:
            raise StorageError(f"cannot read {self.address(key)}: there is nothing under this name", kind="not-found", path=key)
        return found

    def put(self, key: str, parts: Iterable[bytes | memoryview]) -> None:
        """Write a value, which Icechunk takes in one piece."""
        from zarr.core.buffer import default_buffer_prototype

        whole = default_buffer_prototype().buffer.from_bytes(b"".join(parts))
        with repository_errors(self._root):
            run_in_zarr(self._session.store.set(key, whole))

    def delete(self, key: str) -> None:
        """Remove a value, if there is one: of cells that are all fill, most were never there."""
        with repository_errors(self._root):
            if run_in_zarr(self._session.store.exists(key)):
                run_in_zarr(self._session.store.delete(key))

    def delete_all(self, key: str) -> None:
        """Remove an array or group with all that it holds."""
        with repository_errors(self._root):
            run_in_zarr(self._session.store.delete_dir(key))

    def stored(self, key: str) -> tuple[int, int | None]:
        """Size and sum of a value that lies in a folder; an object store proves its sums by itself."""
        from zarr.abc.store import RangeByteRequest

        with repository_errors(self._root):
            size, crc = int(run_in_zarr(self._session.store.getsize(key))), 0
        if self._remote:
            return size, None
        for first in range(0, size, READ_BYTES):
            part = self._get(key, RangeByteRequest(first, min(first + READ_BYTES, size)))
            crc = int(extend(crc, np.asarray(part.as_numpy_array(), np.uint8)))
        return size, crc

    def changes(self) -> bytes:
        """The session's changes, to be merged by the driver."""
        return pickle.dumps(self._session)


@dataclass(frozen=True, slots=True)
class ForkTarget:
    """A fork of the driver's session, of which each task gets a copy.

    Parameters
    ----------
    fork
        Pickled, without changes.
    root
        Address of the repository, for messages.
    remote
        As of :class:`SessionWriter`.
    """

    fork: bytes
    root: str
    remote: bool

    def open(self, places: Places) -> SessionWriter:
        """See :class:`~drystone.rechunk.writer.TargetOpener`; the fork knows by itself where its repository is."""
        quiet()
        with repository_errors(self.root):
            return SessionWriter(pickle.loads(self.fork), self.root, remote=self.remote)

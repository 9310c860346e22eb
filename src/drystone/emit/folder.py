"""A published form of many files that becomes visible at once.

On a local disk it is written to a sibling folder and renamed in, in one step where the kernel can exchange two names. On
an object store there is no such step: the marker object, without which readers find nothing, is removed first and
written last.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Mapping

from drystone.errors import ConfigError, StorageError
from drystone.storage.local import TEMPORARY_SUFFIX
from drystone.storage.store import Store

__all__ = ["Folder", "fingerprint", "folder_fingerprint"]

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def fingerprint(digests: Mapping[str, str]) -> str:
    """Hex digest of a folder's content from the digests of its files."""
    text = "\n".join(f"{key} {digest}" for key, digest in sorted(digests.items()))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _digest(data: bytes | memoryview) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def folder_fingerprint(store: Store, key: str) -> str:
    """:func:`fingerprint` of what lies below a key now."""
    prefix = f"{key.strip('/')}/"
    return fingerprint({k.removeprefix(prefix): _digest(store.get(k)) for k, _ in store.list(prefix)})


class Folder:
    """Files below ``store``/``key``, written apart and shown at once; the caller is the only writer.

    Parameters
    ----------
    marker
        The file that makes the form readable; a folder that has files but not this one is somebody else's.
    parts
        Of the names of all its other files: a folder with any other file is somebody else's.
    owned
        The caller knows that nobody else wrote there, so that an object store's marker may be lacking: a writer was killed.

    Raises
    ------
    ConfigError
        ``target-foreign``: there is something else at the target.
    """

    def __init__(self, store: Store, key: str, marker: str, parts: re.Pattern[str], *, owned: bool = False) -> None:
        self._store, self._key, self._marker = store, key.strip("/"), marker
        self._root = store.root
        self.digests: dict[str, str] = {}
        self._existing = {k.removeprefix(f"{self._key}/") for k, _ in store.list(f"{self._key}/")}
        strange = sorted(k for k in self._existing if k != marker and not parts.fullmatch(k.rsplit("/", 1)[-1]))
        torn = owned and self._root is None
        if strange or (self._existing and marker not in self._existing and not torn):
            what = f"files that are no part of one ({', '.join(strange[:3])})" if strange else f"no {marker}"
            raise ConfigError(
                f"{store.url}/{self._key} holds {len(self._existing)} files and {what}, so it is no such form and will "
                "not be replaced; name another target or remove it",
                kind="target-foreign",
                target=f"{store.url}/{self._key}",
            )
        self._writing = self._key
        self._held: bytes | None = None  # the marker's content, where it must be written last
        if self._root is not None:
            self._sweep()
            self._writing = f"{self._key}.{uuid.uuid4().hex}{TEMPORARY_SUFFIX}"

    @property
    def staged(self) -> str | None:
        """Path of the folder that is being written apart; None where files go straight to the target."""
        return None if self._root is None else self._path(self._writing)

    def _path(self, key: str) -> str:
        assert self._root is not None
        return os.path.join(self._root, key)

    def _sweep(self) -> None:
        """Remove what a killed writer left beside the target."""
        parent, name = os.path.split(self._path(self._key))
        for entry in os.listdir(parent) if os.path.isdir(parent) else []:
            if entry.startswith(f"{name}.") and entry.endswith(TEMPORARY_SUFFIX):
                shutil.rmtree(os.path.join(parent, entry), ignore_errors=True)

    def put(self, name: str, data: bytes | memoryview) -> None:
        """Write one file, durably; not visible yet. On an object store only where it differs from what is there."""
        self.digests[name] = _digest(data)
        if self._root is None and name == self._marker:
            self._held = bytes(data)
        elif self._root is not None or not self._is_there(name):
            self._hide()
            self._store.put(f"{self._writing}/{name}", data)

    def _is_there(self, name: str) -> bool:
        return name in self._existing and _digest(self._store.get(f"{self._key}/{name}")) == self.digests[name]

    def _hide(self) -> None:
        """On an object store: take the marker away before the first object changes."""
        if self._root is None and self._marker in self._existing:
            self._store.delete(f"{self._key}/{self._marker}")
            self._existing.remove(self._marker)

    def unchanged(self) -> bool:
        """Whether what is visible has the same content already; asked when all files are written."""
        return self._existing == set(self.digests) and all(self._is_there(name) for name in self.digests)

    def publish(self) -> bool:
        """Make all files visible; where the same content is there already, leave it untouched and return False."""
        if self._root is None:
            return self._publish_marker()
        if self.unchanged():
            return False
        new, old = self._path(self._writing), self._path(self._key)
        try:
            if os.path.isdir(old):
                _exchange(new, old)
            else:
                os.rename(new, old)
            _sync(os.path.dirname(old))
        except OSError as error:
            raise StorageError(
                f"cannot rename {new} to {old}: {error.strerror}; nothing was published", kind="io", path=old
            ) from error
        return True

    def _publish_marker(self) -> bool:
        strays = sorted(self._existing - set(self.digests))
        if not strays and self._is_there(self._marker):
            return False
        self._hide()
        for name in strays:
            self._store.delete(f"{self._key}/{name}")
        assert self._held is not None
        self._store.put(f"{self._key}/{self._marker}", self._held)
        return True

    def discard(self) -> None:
        """Remove what is not visible: a failed attempt, or the content that was replaced."""
        if self._root is not None:
            shutil.rmtree(self._path(self._writing), ignore_errors=True)


def _exchange(new: str, old: str) -> None:
    """Swap two folders in one step; in two where the file system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    rename = getattr(libc, "renameat2", None)
    if rename is not None:
        if rename(_AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(old), _RENAME_EXCHANGE) == 0:
            return
        code = ctypes.get_errno()
        if code not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise OSError(code, os.strerror(code))
    aside = f"{new}-old{TEMPORARY_SUFFIX}"
    os.rename(old, aside)
    os.rename(new, old)
    os.rename(aside, new)


def _sync(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

"""A folder as a store.

Writes go to a temporary name in the same folder, are flushed to the disk, then renamed, and the folder is flushed: a
reader sees the old object or the new one, after ``kill -9`` and after a power cut alike. Temporary names end in
``.drystone-tmp`` so that a resumed run can sweep them.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import NoReturn

from drystone.errors import StorageError
from drystone.storage.stamp import Stamp

__all__ = ["TEMPORARY_SUFFIX", "LocalStore", "prune_folders", "raise_storage_error"]

TEMPORARY_SUFFIX = ".drystone-tmp"

_BATCH = 1 << 20  # bytes that are written with one call, at least, where parts are smaller
_VECTOR = 512  # parts of one call: POSIX promises 16, Linux takes 1024

_KINDS = {
    errno.ENOENT: ("not-found", "there is nothing under this name"),
    errno.ENOTDIR: ("not-found", "a part of this path is a file, no folder"),
    errno.ELOOP: ("no-file", "links lead in a circle"),
    errno.EACCES: ("no-permission", "permission denied"),
    errno.EPERM: ("no-permission", "permission denied"),
    errno.EROFS: ("no-permission", "the file system is read-only"),
    errno.ENOSPC: ("no-space", "the disk is full (or out of inodes); free some and run again, what is done is kept"),
    errno.EDQUOT: ("no-space", "the quota is used up; free some and run again, what is done is kept"),
    errno.EFBIG: ("no-space", "the file would exceed the size limit (ulimit -f)"),
}


def raise_storage_error(error: OSError, action: str, path: str) -> NoReturn:
    """The system's error as ours: cannot ``action`` ``path``."""
    kind, text = _KINDS.get(error.errno or 0, ("io", error.strerror or str(error)))
    raise StorageError(f"cannot {action} {path}: {text}", kind=kind, path=path) from error


def _opened(path: str) -> tuple[int, int]:
    """Descriptor and size of a file; what is no file, such as a pipe that nobody writes to, must not hold us up."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise_storage_error(error, "read", path)
    found = os.fstat(fd)
    if S_ISREG(found.st_mode):
        return fd, found.st_size
    os.close(fd)
    what = "a folder" if S_ISDIR(found.st_mode) else "a pipe or a device"
    raise StorageError(f"cannot read {path}: it is {what} and no file", kind="no-file", path=path)


class LocalStore:
    """Objects as files below a folder.

    Examples
    --------
    >>> import tempfile
    >>> store = LocalStore(tempfile.mkdtemp())
    >>> store.put("a/b", b"hello")
    >>> store.get_range("a/b", 1, 3), store.create("a/b", b""), [k for k, _ in store.list()]
    (b'ell', False, ['a/b'])
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.path.abspath(os.fspath(root))
        self._base = self._root.rstrip("/") + "/"

    @property
    def url(self) -> str:
        """``file:///absolute/folder``."""
        return Path(self._root).as_uri()

    @property
    def root(self) -> str | None:
        """The folder."""
        return self._root

    def __repr__(self) -> str:
        return f"LocalStore({self._root!r})"

    def path(self, key: str) -> str:
        """The file of a key; a key that climbs out of the root is refused."""
        if key and "/." not in f"/{key}" and "//" not in f"/{key}/":
            return f"{self._base}{key}"  # no part is empty or starts with a dot: nothing to normalise
        path = os.path.normpath(os.path.join(self._root, key))
        if path != self._root and not path.startswith(self._root.rstrip("/") + "/"):
            raise StorageError(f"key {key!r} reaches outside {self._root}", kind="outside", key=key)
        return path

    def get(self, key: str) -> bytes:
        """A whole object."""
        path = self.path(key)
        fd, _ = _opened(path)
        try:
            with open(fd, "rb") as f:
                return f.read()
        except OSError as error:
            raise_storage_error(error, "read", path)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``start``."""
        return self.get_ranges(key, (start,), (length,))[0]

    def get_ranges(self, key: str, starts: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        """Several ranges of one object, exact."""
        path = self.path(key)
        fd, size = _opened(path)
        try:
            out = []
            for start, length in zip(starts, lengths, strict=True):
                # checked before reading: a hostile length must not allocate
                data = os.pread(fd, length, start) if start + length <= size else b""
                if len(data) != length:
                    raise StorageError(
                        f"{path}: bytes {start} to {start + length} were asked for, but the file has {size}; "
                        "it was cut short or replaced since it was scanned",
                        kind="short-read",
                        path=path,
                        start=start,
                        length=length,
                        size=size,
                    )
                out.append(data)
            return out
        except OSError as error:
            raise_storage_error(error, "read", path)
        finally:
            os.close(fd)

    def _write_temporary(self, path: str, parts: Iterable[bytes | memoryview]) -> str:
        temporary = f"{path}.{uuid.uuid4().hex}{TEMPORARY_SUFFIX}"
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(temporary, "wb", buffering=0) as f:
                for views in _batches(parts):
                    _write_all(f.fileno(), views)
                os.fsync(f.fileno())
        except OSError as error:
            _unlink_quietly(temporary)
            raise_storage_error(error, "write", path)
        except BaseException:  # whatever the source of the parts raised
            _unlink_quietly(temporary)
            raise
        return temporary

    def put(self, key: str, data: bytes | memoryview | Iterable[bytes | memoryview]) -> None:
        """Write an object whole, atomically and durably."""
        path = self.path(key)
        parts = [data] if isinstance(data, bytes | bytearray | memoryview) else data
        temporary = self._write_temporary(path, parts)
        try:
            os.replace(temporary, path)
            _sync_folder(os.path.dirname(path))
        except OSError as error:
            _unlink_quietly(temporary)
            raise_storage_error(error, "write", path)

    def create(self, key: str, data: bytes) -> bool:
        """Write an object if there is none; a hard link is the create-only primitive that NFS honours too."""
        path = self.path(key)
        temporary = self._write_temporary(path, [data])
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError as error:
            raise_storage_error(error, "create", path)
        finally:
            _unlink_quietly(temporary)
        _sync_folder(os.path.dirname(path))
        return True

    def stat(self, key: str) -> Stamp:
        """Size and modification time."""
        path = self.path(key)
        try:
            s = os.stat(path)
        except OSError as error:
            raise_storage_error(error, "look at", path)
        return Stamp(s.st_size, s.st_mtime_ns)

    def exists(self, key: str) -> bool:
        """Whether there is an object."""
        return os.path.isfile(self.path(key))

    def list(self, prefix: str = "") -> Iterator[tuple[str, Stamp]]:
        """Objects whose keys start with ``prefix``, in key order; temporary files are left out."""
        folder, _, start = prefix.rpartition("/")
        yield from self._walk(self.path(folder) if folder else self._root, start)

    def _walk(self, folder: str, start: str) -> Iterator[tuple[str, Stamp]]:
        try:
            entries = sorted(os.scandir(folder), key=lambda e: e.name + ("/" if e.is_dir() else ""))
        except FileNotFoundError:
            return
        except OSError as error:
            raise_storage_error(error, "list", folder)
        for entry in entries:
            if not entry.name.startswith(start) or entry.name.endswith(TEMPORARY_SUFFIX):
                continue
            if entry.is_dir():
                yield from self._walk(entry.path, "")
            else:
                try:
                    s = entry.stat()
                except FileNotFoundError:  # removed while we looked, or a link to nothing: it is not there
                    continue
                yield os.path.relpath(entry.path, self._root), Stamp(s.st_size, s.st_mtime_ns)

    def delete(self, key: str) -> None:
        """Remove an object."""
        path = self.path(key)
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise_storage_error(error, "delete", path)

    def sweep_temporary(self) -> int:
        """Remove temporary files that a killed writer left; the caller must be the only writer. Returns how many."""
        n = 0
        for folder, _, names in os.walk(self._root):
            for name in names:
                if name.endswith(TEMPORARY_SUFFIX):
                    _unlink_quietly(os.path.join(folder, name))
                    n += 1
        return n


def _batches(parts: Iterable[bytes | memoryview]) -> Iterator[list[memoryview]]:
    """Neighbouring parts that one call writes: a call for each small chunk waits for the interpreter's lock each time."""
    batch: list[memoryview] = []
    size = 0
    for part in parts:
        view = memoryview(part).cast("B")
        if len(view):
            batch.append(view)
            size += len(view)
        if size >= _BATCH or len(batch) == _VECTOR:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _write_all(fd: int, views: list[memoryview]) -> None:
    while views:
        written = os.writev(fd, views)
        while views and written >= len(views[0]):
            written -= len(views.pop(0))
        if written:
            views[0] = views[0][written:]


def prune_folders(folder: str) -> None:
    """Remove a folder and those in it that hold no file; the caller must be the only writer."""
    for path, _, _ in os.walk(folder, topdown=False):
        try:
            os.rmdir(path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise_storage_error(error, "remove", path)


def _unlink_quietly(path: str) -> None:
    try:
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):  # the folder could not be made: there is nothing to remove
        return


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

"""Opening a granule: a local file by its path, any other through ranged reads with a block cache.

The file is looked at before the library sees it (:mod:`drystone.scan.hdf5.superblock`). Both kinds also give plain reads
of bytes, for the parts of the format that are faster, or only, read directly.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from h5py import h5f, h5fd, h5p

from drystone.errors import DrystoneError, GranuleMissing, ScanError, StorageError
from drystone.scan.hdf5.superblock import Superblock, checked_superblock
from drystone.storage.store import Store

__all__ = ["ByteSource", "NeedsLibrary", "OpenFile", "RangeFile", "opened"]

BLOCK = 1 << 20
WHOLE = 8 << 20  # an object up to this size is fetched in one request
CACHED_BLOCKS = 64
_HEAD = 16 << 10  # bytes of a local file read at once: where most writers put what they write first, the headers


class NeedsLibrary(Exception):  # never leaves the scanner: the file is scanned through the library instead
    """What is asked for lies in a form that only the HDF5 library reads."""


class ByteSource(Protocol):
    """Plain reads."""

    def read(self, offset: int, length: int) -> bytes:
        """At most ``length`` bytes from ``offset``: fewer at the end of the file."""
        ...


@dataclass(slots=True)
class OpenFile:
    """An open granule; the library opens it when its handle is first asked for.

    Parameters
    ----------
    bytes
        Plain reads.
    superblock, size, address
        What and where it is.
    open_library
        Opens the same file through the library.
    """

    bytes: ByteSource
    superblock: Superblock
    size: int
    address: str
    open_library: Callable[[], h5f.FileID]
    _fid: h5f.FileID | None = None

    @property
    def fid(self) -> h5f.FileID:
        """The library's handle.

        Raises
        ------
        ScanError
            ``unreadable``: the library cannot open it.
        """
        if self._fid is None:
            self._fid = self.open_library()
        return self._fid

    def close(self) -> None:
        """Give the library's handle back.

        Raises
        ------
        ScanError
            ``unreadable``: the library found the file so damaged that it cannot let go of it.
        """
        if self._fid is not None:
            try:
                self._fid.close()
            except RuntimeError as error:
                raise _unreadable(self.address, _first_line(error)) from error


class _Descriptor:
    """Plain reads of a local file."""

    __slots__ = ("fd", "head")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.head = os.pread(fd, _HEAD, 0)

    def read(self, offset: int, length: int) -> bytes:
        """See :class:`ByteSource`."""
        end = offset + length
        return self.head[offset:end] if offset >= 0 and end <= len(self.head) else os.pread(self.fd, length, offset)


class RangeFile:
    """A remote object as the file that the library reads through, with whole blocks cached.

    A small object is fetched whole in one request. The first failure is kept in ``error``: the library turns whatever is
    raised inside it into its own message.
    """

    def __init__(self, store: Store, key: str, size: int) -> None:
        self._store, self._key, self._size = store, key, size
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._block = size if 0 < size <= WHOLE else BLOCK
        self._at = 0
        self.requests = 0
        self.error: DrystoneError | None = None

    def read(self, offset: int, length: int) -> bytes:
        """At most ``length`` bytes from ``offset``."""
        end = min(offset + length, self._size)
        if end <= offset:
            return b""
        first, last = offset // self._block, (end - 1) // self._block
        parts = [self._load(i) for i in range(first, last + 1)]
        whole = parts[0] if len(parts) == 1 else b"".join(parts)
        start = offset - first * self._block
        return whole[start : start + end - offset]

    def _load(self, index: int) -> bytes:
        block = self._blocks.get(index)
        if block is not None:
            self._blocks.move_to_end(index)
            return block
        start = index * self._block
        try:
            block = self._store.get_range(self._key, start, min(self._block, self._size - start))
        except DrystoneError as error:
            self.error = self.error or error
            raise
        self.requests += 1
        self._blocks[index] = block
        if len(self._blocks) > CACHED_BLOCKS:
            self._blocks.popitem(last=False)
        return block

    # the calls that the library's Python file driver makes

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move."""
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        """Where reading goes on."""
        return self._at

    def readinto(self, buffer: bytearray | memoryview) -> int:
        """Fill a buffer, as far as the object reaches."""
        view = memoryview(buffer).cast("B")
        data = self.read(self._at, len(view))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def flush(self) -> None:
        """Nothing to do: the object is only read."""


@cache
def _access_list(degree: int, locking: bool) -> h5p.PropFAID:
    plist = h5p.create(h5p.FILE_ACCESS)
    plist.set_fclose_degree(degree)
    if not locking:
        plist.set_file_locking(False, True)
    return plist


@contextmanager
def opened(store: Store, key: str, address: str, size: int) -> Iterator[OpenFile]:
    """Open a granule for scanning.

    Raises
    ------
    ScanError
        ``empty``, ``not-hdf5``, ``truncated``, or ``unreadable`` with the library's own words.
    GranuleMissing
        There is no such object.
    StorageError
        It cannot be read.
    """
    if store.root is not None:
        with _local(f"{store.root.rstrip('/')}/{key}", address) as file:
            yield file
    else:
        with _remote(store, key, address, size) as file:
            yield file


@contextmanager
def _local(path: str, address: str) -> Iterator[OpenFile]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise GranuleMissing(
            f"{address}: there is no file {path}; was the archive moved? then edit storage: in the config", granule=address
        ) from error
    except OSError as error:
        kind = "no-permission" if isinstance(error, PermissionError) else "io"
        raise StorageError(f"{address}: cannot open {path}: {error.strerror}", kind=kind, path=path) from error
    try:
        size = os.fstat(fd).st_size
        try:
            source = _Descriptor(fd)
            block = checked_superblock(source.read, size, address)
        except OSError as error:
            raise StorageError(f"{address}: cannot read {path}: {error.strerror}", kind="io", path=path) from error
        file = OpenFile(source, block, size, address, lambda: _open_path(os.fsencode(path), address))
        try:
            yield file
        finally:
            file.close()
    finally:
        os.close(fd)


def _open_path(path: bytes, address: str) -> h5f.FileID:
    first = ""
    # One file cannot be open in two ways in one process: the second way is that of the library itself, for sources of
    # virtual datasets. The third is for file systems without locks; a granule that changes meanwhile is found by its stamp.
    for degree, locking in ((h5f.CLOSE_STRONG, True), (h5f.CLOSE_DEFAULT, True), (h5f.CLOSE_STRONG, False)):
        try:
            return h5f.open(path, h5f.ACC_RDONLY, _access_list(degree, locking))
        except (OSError, RuntimeError) as error:
            first = first or _first_line(error)
    raise _unreadable(address, first)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _unreadable(address: str, first: str) -> ScanError:
    return ScanError(
        f"{address}: the HDF5 library cannot open it: {first}; the file is damaged or needs a file driver that is not here",
        kind="unreadable",
        granule=address,
    )


@contextmanager
def _remote(store: Store, key: str, address: str, size: int) -> Iterator[OpenFile]:
    source = RangeFile(store, key, size)
    block = checked_superblock(source.read, size, address)
    file = OpenFile(source, block, size, address, lambda: _open_ranges(source, address))
    try:
        yield file
        if source.error is not None:
            # a read that failed inside the library may have been taken for a fault of one variable
            raise source.error
    finally:
        file.close()


def _open_ranges(source: RangeFile, address: str) -> h5f.FileID:
    plist = h5p.create(h5p.FILE_ACCESS)
    plist.set_fclose_degree(h5f.CLOSE_STRONG)
    plist.set_fileobj_driver(h5fd.fileobj_driver, source)
    try:
        return h5f.open(f"<{address}>".encode(), h5f.ACC_RDONLY, plist)
    except (OSError, RuntimeError) as error:
        if source.error is not None:
            raise source.error from error
        raise _unreadable(address, _first_line(error)) from error

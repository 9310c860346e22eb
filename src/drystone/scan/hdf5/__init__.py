"""HDF5 and netCDF-4 files, by their own library at scan time only.

h5py is imported when the first file is scanned, so that naming this scanner costs nothing.
"""

from __future__ import annotations

from drystone.errors import StorageError
from drystone.model.chunk_rows import ScanResult
from drystone.protocols import ScanOptions, Source
from drystone.scan.hdf5.superblock import SIGNATURE, find_signature

__all__ = ["Hdf5Scanner"]


class Hdf5Scanner:
    """HDF5 and netCDF-4.

    Examples
    --------
    >>> import tempfile, h5py
    >>> from drystone.storage.local import LocalStore
    >>> folder = LocalStore(tempfile.mkdtemp())
    >>> with h5py.File(folder.path("a.h5"), "w") as f:
    ...     f["x"] = [1.5, 2.5]
    >>> source = Source(folder, "a.h5", "raw:a.h5", folder.stat("a.h5"))
    >>> result = Hdf5Scanner().scan(source, ScanOptions())
    >>> [(a.spec.path, a.spec.shape, a.rows.length.tolist()) for a in result.arrays]
    [('/x', (2,), [16])]
    """

    def sniff(self, head: bytes, source: Source) -> bool:
        """Whether the file has the HDF5 signature, at its start or behind a user block."""
        if head.startswith(SIGNATURE):
            return True
        if len(head) < 512:
            return False

        def read(offset: int, length: int) -> bytes:
            if offset + length <= len(head):
                return head[offset : offset + length]
            return source.store.get_range(source.key, offset, length)

        try:
            return find_signature(read, source.stamp.size) is not None
        except StorageError as error:
            if error.kind == "short-read":
                return False
            raise

    def scan(self, source: Source, options: ScanOptions) -> ScanResult:
        """Read metadata only.

        Raises
        ------
        ScanError
            ``empty``, ``not-hdf5``, ``truncated``, ``superblock``, ``unreadable``, ``too-many-objects``, ``too-many-rows``.
        GranuleMissing
            There is no such object.
        StorageError
            It cannot be read.
        """
        from drystone.scan.hdf5.twins import scan_file

        return scan_file(source, options)

"""Other files that a granule's values depend on: found beside it, never outside the place that it lies in.

HDF5 looks for external files in the working folder, in folders named by environment variables and beside the file. Here
only the last counts, so that a scan finds the same bytes wherever it runs.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field

from h5py import h5d, h5g, h5o, h5p, h5s

from drystone.errors import GranuleMissing, ScanError, StorageError
from drystone.model.granule import Companion
from drystone.protocols import Source
from drystone.scan.hdf5.attributes import LIBRARY_ERRORS
from drystone.scan.hdf5.dtypes import UnsupportedType
from drystone.scan.hdf5.opening import opened

__all__ = ["Companions", "external_bytes"]

_MAX_DEPTH = 8
_MAX_FILES = 10_000
_UNLIMITED = h5s.UNLIMITED


@dataclass(slots=True)
class Companions:
    """Companions of one granule, by address."""

    source: Source
    found: dict[str, Companion] = field(default_factory=dict)

    def beside(self, source: Source, name: str, what: str) -> Source:
        """The file ``name`` as seen from the folder of ``source``, noted as a companion.

        Raises
        ------
        UnsupportedType
            ``outside`` or ``missing``, with the file's name.
        """
        key = _key(source, name, what)
        place = self.source.address.partition(":")[0]
        address = f"{place}:{key}"
        known = self.found.get(address)
        try:
            stamp = source.store.stat(key) if known is None else known.stamp
        except StorageError as error:
            if error.kind != "not-found":
                raise
            raise UnsupportedType("missing", f"{what} {name!r}, which is not there: looked for {address}") from error
        if key != self.source.key:
            self.found[address] = Companion(address, stamp)
        return Source(source.store, key, address, stamp)

    def check_virtual(self, source: Source, plist: h5p.PropDCID, depth: int = 0) -> None:
        """Check every source of a virtual dataset, for a missing one would read as fill values.

        Raises
        ------
        UnsupportedType
            ``missing``, ``outside``, or ``virtual`` where sources are virtual more than eight deep.
        """
        if depth > _MAX_DEPTH:
            raise UnsupportedType("virtual", f"its virtual sources are virtual themselves, more than {_MAX_DEPTH} deep")
        if source.store.root is None:
            raise UnsupportedType("virtual", "it is a virtual dataset in a remote store; copy granule and sources to a disk")
        pairs = {(plist.get_virtual_filename(i), plist.get_virtual_dsetname(i)) for i in range(plist.get_virtual_count())}
        for file, dataset in sorted(pairs):
            for name, path in _expanded(source, file, dataset):
                other = source if name == "." else self.beside(source, name, "it is a virtual dataset over the file")
                self._check_source(other, path, depth)

    def _check_source(self, source: Source, path: str, depth: int) -> None:
        try:
            with opened(source.store, source.key, source.address, source.stamp.size) as file:
                if path.encode() not in h5g.open(file.fid, b"/"):
                    raise UnsupportedType(
                        "missing", f"it is a virtual dataset over {path} of {source.address}, which is not there"
                    )
                oid = h5o.open(file.fid, path.encode())
                if not isinstance(oid, h5d.DatasetID):
                    raise UnsupportedType("virtual", f"its virtual source {path} of {source.address} is no dataset")
                plist = oid.get_create_plist()
                if plist.get_layout() == h5d.VIRTUAL:
                    self.check_virtual(source, plist, depth + 1)
                elif plist.get_layout() == h5d.CONTIGUOUS and plist.get_external_count():
                    raise UnsupportedType(
                        "virtual", f"its virtual source {path} of {source.address} lies in external files in turn"
                    )
        except (ScanError, GranuleMissing) as error:
            raise UnsupportedType("missing", f"it is a virtual dataset over a file that cannot be read: {error}") from error
        except LIBRARY_ERRORS as error:
            raise UnsupportedType(
                "virtual", f"its virtual source {path} of {source.address} cannot be read: {error}"
            ) from error


def _key(source: Source, name: str, what: str) -> str:
    """The key of a file beside a granule."""
    root = source.store.root
    if root is None:
        key = posixpath.normpath(posixpath.join(posixpath.dirname(source.key), name))
        if posixpath.isabs(name) or key == ".." or key.startswith("../"):
            raise UnsupportedType("outside", f"{what} {name!r}, which lies outside the place {source.store.url}")
        return key
    path = os.path.normpath(os.path.join(root, os.path.dirname(source.key), name))
    real_root, real = os.path.realpath(root), os.path.realpath(path)
    if os.path.commonpath([real_root, real]) != real_root or os.path.commonpath([root, path]) != os.path.normpath(root):
        raise UnsupportedType("outside", f"{what} {name!r}, which lies outside the place {root}")
    return os.path.relpath(path, root)


def _expanded(source: Source, file: str, dataset: str) -> Iterator[tuple[str, str]]:
    """File and dataset names of one mapping; a ``%b`` in them counts blocks for as long as there are files."""
    if "%" not in file and "%" not in dataset:
        yield file, dataset
        return
    if "%b" not in file:
        raise UnsupportedType("virtual", f"its virtual source {dataset!r} is a pattern, which is not followed")
    for i in range(_MAX_FILES):
        name = _block_name(file, i)
        if not source.store.exists(_key(source, name, "it is a virtual dataset over the file")):
            if i == 0:
                raise UnsupportedType("missing", f"it is a virtual dataset over files {file!r}, of which there is none")
            return
        yield name, _block_name(dataset, i)


def _block_name(pattern: str, block: int) -> str:
    return pattern.replace("%%", "\0").replace("%b", str(block)).replace("\0", "%")


def external_bytes(companions: Companions, source: Source, plist: h5p.PropDCID, nbytes: int, *, read: bool) -> bytes:
    """The raw bytes of a dataset in external storage, or, without ``read``, a check that they are all there.

    Raises
    ------
    UnsupportedType
        ``missing`` or ``outside``; also where a file is shorter than the dataset needs, which HDF5 reads as zeros.
    """
    parts: list[bytes] = []
    left = nbytes
    for i in range(plist.get_external_count()):
        if left <= 0:
            break
        raw, offset, size = plist.get_external(i)
        name = os.fsdecode(raw)
        other = companions.beside(source, name, "its bytes lie in the external file")
        take = left if size == _UNLIMITED else min(left, int(size))
        if int(offset) + take > other.stamp.size:
            raise UnsupportedType(
                "missing",
                f"its bytes lie in the external file {name!r}, which has {other.stamp.size} bytes where {int(offset) + take} "
                "are needed",
            )
        if read:
            parts.append(other.store.get_range(other.key, int(offset), take))
        left -= take
    if left > 0:
        raise UnsupportedType("missing", f"the external files of its bytes are {left} bytes short of its size")
    return b"".join(parts)

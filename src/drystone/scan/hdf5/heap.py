"""The global heap, where variable-length values lie, read directly.

The library walks a heap collection from object to object and never ends where one says it has no size, as every object
does in a file whose tail was preallocated and never arrived. This walk ends, and bounds what it reads by what the file
has.
"""

from __future__ import annotations

import struct
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from drystone.scan.hdf5.dtypes import UnsupportedType
from drystone.scan.hdf5.opening import OpenFile

__all__ = ["DESCRIPTOR", "GlobalHeap"]

_HEAD = 16
_CACHED = 64

# how a dataset or attribute names a variable-length value: elements, collection, object
DESCRIPTOR = np.dtype([("count", "<u4"), ("address", "<u8"), ("index", "<u4")])


class GlobalHeap:
    """Objects of one file's global heap, by collection address and index."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self._collections: OrderedDict[int, tuple[bytes, dict[int, tuple[int, int]]]] = OrderedDict()

    def get(self, address: int, index: int) -> bytes:
        """The bytes of an object.

        Raises
        ------
        UnsupportedType
            ``heap``: it is not there.
        """
        data, objects = self._collection(address)
        place = objects.get(index)
        if place is None:
            raise UnsupportedType("heap", f"its values lie on the file's heap at byte {address}, which has no object {index}")
        return data[place[0] : place[0] + place[1]]

    def values(self, descriptors: NDArray[np.void], itemsize: int) -> list[bytes]:
        """The bytes of many values, of ``count`` elements of ``itemsize`` bytes each."""
        out = []
        counts, addresses, indexes = (descriptors[n].reshape(-1).tolist() for n in ("count", "address", "index"))
        for count, address, index in zip(counts, addresses, indexes, strict=True):
            if count == 0 or address == 0:
                out.append(b"")
                continue
            value = self.get(address, index)
            if len(value) < count * itemsize:
                raise UnsupportedType(
                    "heap", f"a value on the file's heap has {len(value)} bytes where {count * itemsize} are named"
                )
            out.append(value[: count * itemsize])
        return out

    def vet(self, descriptors: NDArray[np.void]) -> None:
        """Make sure that the library can walk the collections of these values.

        Raises
        ------
        UnsupportedType
            ``heap``: it would fail, or never end.
        """
        # it looks up empty values too
        for address in np.unique(descriptors["address"][descriptors["address"] > 0]).tolist():
            data, _ = self._collection(address)
            _objects(data, address, strict=True)

    def _collection(self, address: int) -> tuple[bytes, dict[int, tuple[int, int]]]:
        known = self._collections.get(address)
        if known is not None:
            self._collections.move_to_end(address)
            return known
        where = address + self._file.superblock.base
        head = self._file.bytes.read(where, _HEAD) if 0 <= where < self._file.size else b""
        if len(head) < _HEAD or head[:5] != b"GCOL\x01":
            raise UnsupportedType("heap", f"its values lie on the file's heap, of which there is no part at byte {where}")
        size = struct.unpack_from("<Q", head, 8)[0]
        if where + size > self._file.size:
            raise UnsupportedType("heap", f"the part of the file's heap at byte {where} reaches beyond the end of the file")
        data = self._file.bytes.read(where, size)
        self._collections[address] = found = data, _objects(data, where)
        if len(self._collections) > _CACHED:
            self._collections.popitem(last=False)
        return found


def _objects(data: bytes, where: int, *, strict: bool = False) -> dict[int, tuple[int, int]]:
    """Index to place and size of each object; index 0 is the free space at the end."""
    objects: dict[int, tuple[int, int]] = {}
    at, end = _HEAD, len(data)
    while at + _HEAD <= end:
        index, size = struct.unpack_from("<H6xQ", data, at)
        if index == 0:
            if strict and size < _HEAD:
                raise UnsupportedType("heap", f"the part of the file's heap at byte {where} is damaged at {at}")
            break
        if at + _HEAD + size > end:
            raise UnsupportedType("heap", f"the part of the file's heap at byte {where} is damaged at {at}")
        objects[index] = (at + _HEAD, size)
        at += _HEAD + (size + 7) // 8 * 8
    return objects

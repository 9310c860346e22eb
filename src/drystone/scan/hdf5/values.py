"""The few values that a scan reads through the library: inlined arrays, text, coordinates, fill values."""

from __future__ import annotations

import math
import struct

import numpy as np
from h5py import h5d, h5s
from numpy.typing import NDArray

from drystone.scan.hdf5.attributes import LIBRARY_ERRORS
from drystone.scan.hdf5.describe import Description
from drystone.scan.hdf5.dtypes import UnsupportedType
from drystone.scan.hdf5.object_header import read_fill
from drystone.scan.hdf5.opening import OpenFile

__all__ = ["encode_texts", "fill_bytes", "native", "read_stored", "read_texts"]

_AT_ONCE = 256 << 20


def read_stored(dsid: h5d.DatasetID, description: Description) -> NDArray[np.generic]:
    """All values of a dataset in stored form (native form where only the library can convert them)."""
    stored = description.stored
    values = np.zeros((*description.extent.shape, *stored.inner), stored.dtype)
    if values.size:
        # asked for in its own type, nothing is converted: padding and byte order come as stored
        dsid.read(h5s.ALL, h5s.ALL, values, None if stored.converted is not None else dsid.get_type())
    return values


def native(values: NDArray[np.generic]) -> NDArray[np.generic]:
    """The same values in native byte order."""
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def read_texts(dsid: h5d.DatasetID, shape: tuple[int, ...], budget: int, file_size: int) -> list[bytes]:
    """Variable-length text in C order, as bytes.

    A hostile file can point every element at one large string, so that reading all at once might need any amount of
    memory: blocks start small and grow as the strings prove short.

    Raises
    ------
    UnsupportedType
        ``inline-budget``: more than ``budget`` bytes.
    """
    n = math.prod(shape)
    if 4 * n > budget:
        raise UnsupportedType("inline-budget", f"its {n} texts need more than the {budget} bytes that may be inlined")
    if not shape:
        return _block(dsid, None, ())
    if n == 0:
        return []
    out: list[bytes] = []
    total = 0
    per_row = math.prod(shape[1:])
    at, step = 0, max(1, _AT_ONCE // max(1, per_row * file_size))
    while at < shape[0]:
        count = (min(step, shape[0] - at), *shape[1:])
        block = _block(dsid, (at, *(0 for _ in shape[1:])), count)
        total += sum(map(len, block)) + 4 * len(block)
        if total > budget:
            raise UnsupportedType("inline-budget", f"its text needs more than the {budget} bytes that may be inlined")
        out.extend(block)
        at += count[0]
        step *= 8
    return out


def _block(dsid: h5d.DatasetID, start: tuple[int, ...] | None, count: tuple[int, ...]) -> list[bytes]:
    values = np.empty(count, dsid.dtype)
    if start is None:
        dsid.read(h5s.ALL, h5s.ALL, values)
    else:
        space = dsid.get_space()
        space.select_hyperslab(start, count)
        dsid.read(h5s.create_simple(count), space, values)
    # None where the heap holds nothing
    return [b"" if v is None else v if isinstance(v, bytes) else str(v).encode() for v in values.reshape(-1).tolist()]


def encode_texts(texts: list[bytes]) -> bytes:
    """The ``vlen-utf8`` form: a count, then length and bytes of each, all lengths 32-bit little-endian.

    Examples
    --------
    >>> encode_texts([b"ab", b""]).hex()
    '0200000002000000616200000000'
    """
    parts = [struct.pack("<I", len(texts))]
    for text in texts:
        parts.append(struct.pack("<I", len(text)))
        parts.append(text)
    return b"".join(parts)


def fill_bytes(description: Description, file: OpenFile, header: int) -> bytes | None:
    """One element as an unwritten chunk reads, in stored form; None where the file leaves it undefined.

    Raises
    ------
    UnsupportedType
        ``fill``: the elements of an array type have fills that differ, so that no one element says it.
    """
    stored, plist = description.stored, description.plist
    if stored.is_text:
        return None
    status = plist.fill_value_defined()
    if status == h5d.FILL_VALUE_UNDEFINED or plist.get_fill_time() == h5d.FILL_TIME_NEVER:
        return None
    if status == h5d.FILL_VALUE_DEFAULT:
        return bytes(stored.dtype.itemsize)
    value = np.zeros((), np.dtype((stored.dtype, stored.inner)) if stored.inner else stored.dtype)
    try:
        plist.get_fill_value(value)
        raw = value.tobytes()
    except LIBRARY_ERRORS:
        # the library has no conversion for bit fields and tagged opaque bytes, which need none
        found = read_fill(file, header)
        if found is None or stored.converted is not None or len(found) != stored.element_size:
            raise
        raw = found
    size = stored.dtype.itemsize
    if any(raw[i : i + size] != raw[:size] for i in range(0, len(raw), size)):
        raise UnsupportedType("fill", "its array-typed elements have a fill value that differs between members")
    return raw[:size]

"""The few values that a scan reads through the library: inlined arrays, coordinates, fill values."""

from __future__ import annotations

import math

import numpy as np
from h5py import h5d, h5s
from numpy.typing import NDArray

from drystone.codecs.decode import decode_chunk
from drystone.errors import DecodeError
from drystone.scan.hdf5.chunk_index import TooManyChunks
from drystone.scan.hdf5.describe import Description
from drystone.scan.hdf5.dtypes import UnsupportedType
from drystone.scan.hdf5.object_header import read_fill
from drystone.scan.hdf5.opening import NeedsLibrary, OpenFile
from drystone.scan.hdf5.plain_objects import PlainDataset
from drystone.scan.hdf5.subject import Subject, stored_columns, stored_offset

__all__ = ["fill_bytes", "native", "read_stored"]

_LARGEST = 64 << 20  # decoded bytes of chunks up to which values are read without the library


def read_stored(subject: Subject) -> NDArray[np.generic]:
    """All values of a dataset in stored form (native form where only the library can convert them)."""
    description = subject.description
    stored = description.stored
    if subject.found.plain is not None:
        return _plain_values(subject, subject.found.plain)
    dsid = subject.dsid
    values = np.zeros((*description.extent.shape, *stored.inner), stored.dtype)
    if values.size:
        # asked for in its own type, nothing is converted: padding and byte order come as stored
        dsid.read(h5s.ALL, h5s.ALL, values, None if stored.converted is not None else dsid.get_type())
    return values


def _plain_values(subject: Subject, plain: PlainDataset) -> NDArray[np.generic]:
    """The same without the library."""
    d, file = subject.description, subject.file
    shape, dtype = (*d.extent.shape, *d.stored.inner), d.stored.dtype
    if d.stored.converted is not None or d.stored.is_text:
        raise NeedsLibrary
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes == 0:
        return np.zeros(shape, dtype)
    if d.layout == h5d.CHUNKED:
        return _plain_chunks(subject, shape)
    data = plain.data[:nbytes]
    if d.layout == h5d.CONTIGUOUS:
        offset = stored_offset(subject, nbytes)
        if offset is None:
            return _unwritten(d, shape)
        data = file.bytes.read(offset, nbytes)
    if len(data) != nbytes:
        raise NeedsLibrary
    return np.frombuffer(data, dtype).reshape(shape).copy()


def _unwritten(d: Description, shape: tuple[int, ...]) -> NDArray[np.generic]:
    if d.fill is None:
        raise NeedsLibrary
    return np.frombuffer(d.fill * math.prod(shape), d.stored.dtype).reshape(shape).copy()


def _plain_chunks(subject: Subject, shape: tuple[int, ...]) -> NDArray[np.generic]:
    d, file = subject.description, subject.file
    chunk_shape = d.chunk_shape
    assert chunk_shape is not None
    n_chunks = math.prod(-(-n // c) for n, c in zip(shape, chunk_shape, strict=True))
    nbytes = math.prod(chunk_shape) * d.stored.element_size
    if d.chain.needs_library or n_chunks * nbytes > _LARGEST:
        raise NeedsLibrary
    try:
        columns = stored_columns(subject, n_chunks)
    except TooManyChunks:
        raise NeedsLibrary from None
    # a skipped filter is rare enough in a coordinate to leave it to the library
    if len({tuple(s) for s in columns.start.tolist()}) != len(columns.offset) or columns.mask.any():
        raise NeedsLibrary
    whole = np.empty(shape, d.stored.dtype) if len(columns.offset) == n_chunks else _unwritten(d, shape)
    for start, offset, length in zip(columns.start.tolist(), columns.offset.tolist(), columns.length.tolist(), strict=True):
        if (
            any(s % c or s >= n for s, c, n in zip(start, chunk_shape, shape, strict=True))
            or not 0 < length <= 2 * nbytes + 1024
        ):
            raise NeedsLibrary
        data = file.bytes.read(offset, length) if 0 <= offset <= file.size - length else b""
        if len(data) != length:
            raise NeedsLibrary
        try:
            chunk = decode_chunk(data, d.chain, d.stored.dtype, chunk_shape)
        except DecodeError:
            raise NeedsLibrary from None
        target = whole[tuple(slice(s, s + c) for s, c in zip(start, chunk_shape, strict=True))]
        target[...] = chunk[tuple(slice(n) for n in target.shape)]
    return whole


def native(values: NDArray[np.generic]) -> NDArray[np.generic]:
    """The same values in native byte order."""
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def fill_bytes(description: Description, file: OpenFile, header: int) -> bytes | None:
    """One element as an unwritten chunk reads, in stored form; None where the file leaves it undefined.

    Raises
    ------
    UnsupportedType
        ``fill``: the elements of an array type have fills that differ, so that no one element says it.
    """
    stored = description.stored
    if stored.is_text:
        return None
    if description.properties is None:
        return description.fill
    plist = description.plist
    status = plist.fill_value_defined()
    if status == h5d.FILL_VALUE_UNDEFINED or plist.get_fill_time() == h5d.FILL_TIME_NEVER:
        return None
    if status == h5d.FILL_VALUE_DEFAULT:
        return bytes(stored.dtype.itemsize)
    # as it stands in the header where nothing is converted, which serves bit fields and opaque bytes too
    raw = read_fill(file, header) if stored.converted is None else None
    if raw is None or len(raw) != stored.element_size:
        value = np.zeros((), np.dtype((stored.dtype, stored.inner)) if stored.inner else stored.dtype)
        plist.get_fill_value(value)
        raw = value.tobytes()
    size = stored.dtype.itemsize
    if any(raw[i : i + size] != raw[:size] for i in range(0, len(raw), size)):
        raise UnsupportedType("fill", "its array-typed elements have a fill value that differs between members")
    return raw[:size]

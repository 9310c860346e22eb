"""The few values that a scan reads through the library: inlined arrays, coordinates, fill values."""

from __future__ import annotations

import numpy as np
from h5py import h5d, h5s
from numpy.typing import NDArray

from drystone.scan.hdf5.describe import Description
from drystone.scan.hdf5.dtypes import UnsupportedType
from drystone.scan.hdf5.object_header import read_fill
from drystone.scan.hdf5.opening import OpenFile

__all__ = ["fill_bytes", "native", "read_stored"]


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

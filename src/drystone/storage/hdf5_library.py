"""Boxes of arrays that only the HDF5 library can read: foreign filters, virtual datasets, links into other files.

This is the fallback of the ``library`` row state and no part of the fast path. External files are looked for beside the
granule, as the scanner did. h5py, and hdf5plugin where it is installed, are imported on first use.
"""

from __future__ import annotations

import io
import os
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from drystone.errors import StorageError
from drystone.storage.store import Store

if TYPE_CHECKING:
    import h5py

__all__ = ["default_fill", "load_plugins", "read_box"]

_PURE_DIMENSION = b"This is a netCDF dimension but not a netCDF variable"

# netCDF's fill values (NC_FILL_BYTE and so on) by NumPy's kind and size
_NETCDF_FILLS = {
    "i1": -127,
    "i2": -32767,
    "i4": -2147483647,
    "i8": -9223372036854775806,
    "u1": 255,
    "u2": 65535,
    "u4": 4294967295,
    "u8": 18446744073709551614,
    "f4": float.fromhex("0x1.ep+122"),
    "f8": float.fromhex("0x1.ep+122"),
}


def default_fill(dtype: np.dtype[np.generic]) -> bytes | None:
    r"""What netCDF reads where nothing was written and the file defines no fill value; None where netCDF has no such value.

    Examples
    --------
    >>> default_fill(np.dtype(">i2"))
    b'\x80\x01'
    """
    value = _NETCDF_FILLS.get(dtype.str[1:])
    return None if value is None else np.array(value, dtype).tobytes()


def read_box(store: Store, key: str, array_path: str, start: tuple[int, ...], stop: tuple[int, ...]) -> NDArray[np.generic]:
    """Read a box of one array through the library.

    Parameters
    ----------
    store, key
        Where the granule is. One in a remote store is fetched whole.
    array_path
        As scanned.
    start, stop
        In elements, one an axis; the axes of array-typed elements count.

    Returns
    -------
    Values in native byte order, of shape ``stop - start``; variable-length text as ``StringDType``. Past the end of an
    axis that may grow, values are fill (a netCDF variable may be shorter than its dimension); past any other it is an error.

    Raises
    ------
    StorageError
        ``library``: the library cannot read it, with its own words.

    Examples
    --------
    >>> import tempfile, h5py
    >>> from drystone.storage.local import LocalStore
    >>> folder = LocalStore(tempfile.mkdtemp())
    >>> with h5py.File(folder.path("a.h5"), "w") as f:
    ...     _ = f.create_dataset("x", data=np.arange(12, dtype=">i2").reshape(3, 4), scaleoffset=0)
    >>> read_box(folder, "a.h5", "/x", (1, 0), (3, 2)).tolist()
    [[4, 5], [8, 9]]
    """
    import h5py

    load_plugins()
    root = store.root
    path = None if root is None else f"{root.rstrip('/')}/{key}"
    where = f"{store.url}/{key}"
    try:
        with h5py.File(io.BytesIO(store.get(key)) if path is None else path, "r") as file:
            return _read(h5py.Dataset(_open(file, path, array_path)), start, stop)
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StorageError(
            f"{where}: the HDF5 library cannot read {array_path} from {start} to {stop}: {first}",
            kind="library",
            path=where,
            array=array_path,
        ) from error


@cache
def load_plugins() -> bool:
    """Whether hdf5plugin is installed; its filters are known to the library from then on."""
    try:
        import hdf5plugin  # noqa: F401 - importing it registers its filters
    except ImportError:
        return False
    return True


def _open(file: h5py.File, path: str | None, array_path: str) -> h5py.h5d.DatasetID:
    from h5py import h5d, h5p

    access = h5p.create(h5p.DATASET_ACCESS)
    if path is not None:
        folder = os.fsencode(os.path.dirname(path) + "/")
        # without it the library would look for raw files in the working folder
        access.set_efile_prefix(folder)
        access.set_virtual_prefix(folder)
    return h5d.open(file.id, _stored_name(file, array_path).encode(), access)


def _stored_name(file: h5py.File, array_path: str) -> str:
    """The dataset's own name: where a netCDF variable is named like a dimension that it is not, its own has a prefix."""
    group, _, name = array_path.rpartition("/")
    hidden = f"{group}/_nc4_non_coord_{name}"
    if hidden not in file:
        return array_path
    own = file[array_path].attrs.get("NAME", b"") if array_path in file else _PURE_DIMENSION
    text = own if isinstance(own, bytes) else str(own).encode()
    return hidden if text.startswith(_PURE_DIMENSION) else array_path


def _read(dataset: h5py.Dataset, start: tuple[int, ...], stop: tuple[int, ...]) -> NDArray[np.generic]:
    import h5py

    rank = len(dataset.shape)
    beyond = [d for d, n in enumerate(dataset.shape) if stop[d] > n]
    if any(dataset.maxshape[d] is not None for d in beyond):
        raise ValueError(f"the box ends at {stop} and the dataset has shape {dataset.shape}")
    box = tuple(slice(min(a, n), min(b, n)) for a, b, n in zip(start, stop, dataset.shape, strict=False))
    if h5py.check_string_dtype(dataset.dtype) is not None and dataset.dtype.kind == "O":
        texts = np.asarray(dataset.asstr()[box])
        return texts.astype(np.dtypes.StringDType())
    values = np.asarray(dataset[box] if rank else dataset[()])
    # an array-typed element brings its own axes, which h5py reads whole
    values = values[
        (*(slice(None) for _ in range(rank)), *(slice(a, b) for a, b in zip(start[rank:], stop[rank:], strict=True)))
    ]
    plain: np.dtype[np.generic] = _without_metadata(values.dtype).newbyteorder("=")
    extent = tuple(b - a for a, b in zip(start, stop, strict=True))
    if beyond:
        whole = np.full(extent, _fill(dataset), plain)
        whole[tuple(slice(0, n) for n in values.shape)] = values
        return whole
    return np.ascontiguousarray(values, dtype=plain).reshape(extent)


def _fill(dataset: h5py.Dataset) -> NDArray[np.generic]:
    """0-d array that elements which were never written read as."""
    from h5py import h5d

    plist = dataset.id.get_create_plist()
    undefined = plist.fill_value_defined() == h5d.FILL_VALUE_UNDEFINED or plist.get_fill_time() == h5d.FILL_TIME_NEVER
    default = default_fill(dataset.dtype) if undefined else None
    return np.asarray(dataset.fillvalue) if default is None else np.frombuffer(default, dataset.dtype)[0]


def _without_metadata(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """The dtype without h5py's notes (the names of an enum), which ride on it and upset comparisons."""
    if dtype.metadata and dtype.names is None and dtype.subdtype is None:
        return np.dtype(dtype.str)
    return dtype

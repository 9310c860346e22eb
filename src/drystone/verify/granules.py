"""The granules' side of a comparison, read by libraries that are not ours.

The witness loads this file by its path, so it imports nothing of drystone's.

Granules open in h5py, which delivers values as they are stored, without masks and scales; files that h5py cannot read, and
arrays whose filter it lacks, open in netCDF4 with its masks and scales switched off. Two habits of netCDF-4 are undone
here: a variable that is named like a dimension which it is no coordinate of has a prefix in the file, and one that was
written short of its unlimited dimension goes on with its fill value.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from drystone.verify import readers
else:
    # the witness's copy beside this one, or the package's
    readers = importlib.import_module(f"{__name__.removesuffix('granules')}readers")

__all__ = ["Sources"]

_FILES = 64  # granules held open at once
_HIDDEN = "_nc4_non_coord_"
_PURE_DIMENSION = b"This is a netCDF dimension but not a netCDF variable"
# what netCDF reads where nothing was written and the file defines no fill value, by NumPy's kind and size
_DEFAULT_FILLS = {
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


class Group(Protocol):
    """An open granule."""

    def __contains__(self, path: str, /) -> bool:
        """Whether there is such an array."""
        ...

    def __getitem__(self, path: str, /) -> readers.Readable:
        """One array."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...


class _NetcdfVariable(Protocol):
    def ncattrs(self) -> list[str]: ...
    def getncattr(self, name: str) -> object: ...


class _Reader(Protocol):
    def read(self, size: int, /) -> object: ...
    def seek(self, offset: int, whence: int = 0, /) -> int: ...
    def tell(self) -> int: ...


class _RemoteFile:
    """A remote object as the file that h5py asks for."""

    def __init__(self, reader: _Reader) -> None:
        self._reader = reader

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._reader.seek(offset, whence)

    def tell(self) -> int:
        return self._reader.tell()

    def read(self, size: int = -1) -> bytes:
        return bytes(self._reader.read(size))  # type: ignore[call-overload, no-any-return]

    def readinto(self, buffer: memoryview) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class Sources:
    """Open granules, the least recently used closed first.

    Parameters
    ----------
    options
        URL prefix to what its object store needs.
    """

    def __init__(self, options: Mapping[str, readers.Options]) -> None:
        self._options = options
        self._open: OrderedDict[tuple[str, str], Group] = OrderedDict()
        self._foreign: set[tuple[str, str]] = set()  # (granule, array) that h5py failed on

    def _group(self, granule: str, library: str) -> Group:
        key = (granule, library)
        if key not in self._open:
            while len(self._open) >= _FILES:
                self._open.popitem(last=False)[1].close()
            self._open[key] = self._netcdf(granule) if library == "netCDF4" else self._hdf5(granule)
        self._open.move_to_end(key)
        return self._open[key]

    def _hdf5(self, granule: str) -> Group:
        if importlib.util.find_spec("hdf5plugin") is not None:
            import hdf5plugin  # noqa: F401  registers filters that HDF5 itself lacks
        import h5py

        path = readers.local_path(granule)
        if path is not None:
            return cast("Group", h5py.File(path, "r", locking=False))
        import obstore

        folder, _, name = granule.rpartition("/")
        store = readers.object_store(folder, readers.options_of(granule, self._options))
        return cast("Group", h5py.File(_RemoteFile(obstore.open_reader(store, name)), "r"))

    def _netcdf(self, granule: str) -> Group:
        if importlib.util.find_spec("netCDF4") is None:
            raise OSError("h5py cannot read it, and netCDF4, which might, is not installed")
        import netCDF4

        dataset = netCDF4.Dataset(readers.local_path(granule) or granule)
        dataset.set_auto_maskandscale(False)
        dataset.set_auto_chartostring(False)
        return cast("Group", dataset)

    def array(self, granule: str, inner: str) -> readers.Readable:
        """One array of a granule; Unreadable where it is not there."""
        try:
            if (granule, inner) not in self._foreign:
                group = self._group(granule, "h5py")
                return group[_stored_name(group, inner)]
        except OSError:
            # no HDF5 at all: netCDF4 reads the older formats, and says so where it cannot either
            self._foreign.add((granule, inner))
        except KeyError as error:
            raise readers.Unreadable(f"{granule}: it has no array {inner}") from error
        try:
            return self._group(granule, "netCDF4")[inner]
        except (OSError, IndexError, KeyError) as error:
            raise readers.Unreadable(f"{granule}, {inner}: {error}") from error

    def attributes(self, granule: str, inner: str) -> Mapping[str, object]:
        """Attributes of one array."""
        array = self.array(granule, inner)
        if (granule, inner) not in self._foreign:
            import h5py

            return _flagged(array.attrs, h5py.check_enum_dtype(array.dtype))
        variable = cast("_NetcdfVariable", array)
        kind = getattr(variable, "datatype", None)
        return _flagged({n: variable.getncattr(n) for n in variable.ncattrs()}, getattr(kind, "enum_dict", None))

    def root_attributes(self, granule: str) -> Mapping[str, object]:
        """Attributes of the granule as a whole."""
        try:
            return cast("readers.Readable", self._group(granule, "h5py")).attrs
        except OSError:
            whole = cast("_NetcdfVariable", self._group(granule, "netCDF4"))
            return {name: whole.getncattr(name) for name in whole.ncattrs()}

    def siblings(self, granule: str, inner: str) -> Iterator[tuple[str, Mapping[str, object]]]:
        """Path and attributes of the arrays in the same group."""
        array: Any = self.array(granule, inner)
        above = inner.rpartition("/")[0]
        foreign = (granule, inner) in self._foreign
        for name in list(array.group().variables if foreign else array.parent):
            path = f"{above}/{name.removeprefix(_HIDDEN)}"
            try:
                yield path, self.attributes(granule, path)
            except (readers.Unreadable, AttributeError):
                continue  # a group, a type, or what no library reads: no parent of anything

    def read(self, granule: str, inner: str, start: Sequence[int], stop: Sequence[int]) -> object:
        """Values of a box as they are stored; readers.Unreadable where the granule does not hold it."""
        array = self.array(granule, inner)
        shape = array.shape
        # an element may be an array itself: its axes are the last ones of the whole
        within = getattr(array.dtype, "subdtype", None)
        if shape is not None and within is not None:
            shape = (*shape, *within[1])
        if shape is None or len(shape) != len(start):
            raise readers.Unreadable(f"{granule}, {inner}: {len(start)} axes were placed, its shape is {shape}")
        beyond = [d for d, n in enumerate(shape) if stop[d] > n]
        limits = getattr(array, "maxshape", shape)
        if any(d >= len(limits) or limits[d] is not None for d in beyond):
            raise readers.Unreadable(
                f"{granule}, {inner}: elements {tuple(start)} to {tuple(stop)} were placed, its shape is {shape}"
            )
        reach = [min(b, n) for b, n in zip(stop, shape, strict=True)]
        box = tuple(slice(min(a, b), b) for a, b in zip(start, reach, strict=True))
        try:
            values = readers.read_box(array, box)
            return _extended(array, values, [b - a for a, b in zip(start, stop, strict=True)]) if beyond else values
        except (OSError, RuntimeError, ValueError, TypeError) as error:
            if (granule, inner) in self._foreign or importlib.util.find_spec("netCDF4") is None:
                raise readers.Unreadable(f"{granule}, {inner}: {error}") from error
        self._foreign.add((granule, inner))  # a filter that h5py lacks: the netCDF library brings its own
        return self.read(granule, inner, start, stop)


def _flagged(attributes: Mapping[str, object], names: Mapping[str, int] | None) -> Mapping[str, object]:
    """Attributes, with the names of an enumeration as CF says them where it says none itself."""
    if not names or "flag_values" in attributes or "flag_meanings" in attributes:
        return attributes
    words = " ".join("_".join(name.split()) or "_" for name in names)
    return {**attributes, "flag_values": list(names.values()), "flag_meanings": words}


def _stored_name(group: Group, inner: str) -> str:
    """The dataset's own name, which has a prefix where a dimension that is no variable has taken the variable's."""
    above, _, name = inner.rpartition("/")
    hidden = f"{above}/{_HIDDEN}{name}"
    if hidden not in group:
        return inner
    own = group[inner].attrs.get("NAME", b"") if inner in group else _PURE_DIMENSION
    text = own if isinstance(own, bytes) else str(own).encode()
    return hidden if text.startswith(_PURE_DIMENSION) else inner


def _extended(array: Any, values: object, extent: list[int]) -> object:  # noqa: ANN401  h5py is not imported yet
    """The stored part of a box, and fill values where the variable ends before its unlimited dimension does."""
    import numpy as np
    from h5py import h5d

    plist = array.id.get_create_plist()
    no_fill = plist.get_fill_time() == h5d.FILL_TIME_NEVER or plist.fill_value_defined() == h5d.FILL_VALUE_UNDEFINED
    fill = _DEFAULT_FILLS.get(array.dtype.str[1:], 0) if no_fill else array.fillvalue
    stored = np.asarray(values)
    out = np.full(extent, b"" if stored.dtype.kind == "O" else fill, stored.dtype)
    out[tuple(slice(0, n) for n in stored.shape)] = stored
    return out

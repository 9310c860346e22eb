"""HDF5 datatypes as NumPy dtypes of the stored bytes.

h5py answers what a value becomes once the library has converted it; a reference needs what the bytes are. So the type is
taken apart here: byte order, precision, bit layout and compound offsets are kept, and what NumPy cannot say bit for bit
is either left to the library (``StoredType.converted``: 12-bit integers, bfloat16) or refused by name (references,
variable-length sequences, long double).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from h5py import h5t

__all__ = ["StoredType", "UnsupportedType", "stored_type"]

_INTEGER, _FLOAT, _TIME, _STRING, _BITFIELD, _OPAQUE, _COMPOUND, _REFERENCE, _ENUM, _VLEN, _ARRAY, _COMPLEX = range(12)

# (sign, exponent position, exponent size, mantissa position, mantissa size, bias) of IEEE numbers, by bytes
_IEEE = {
    2: (15, 10, 5, 0, 10, 15),
    4: (31, 23, 8, 0, 23, 127),
    8: (63, 52, 11, 0, 52, 1023),
}
_ORDERS = {0: "<", 1: ">"}
_MAX_NESTING = 32

type AnyDtype = np.dtype[np.generic]


class UnsupportedType(Exception):  # never leaves the scanner: it becomes a Refusal
    """A type that has no NumPy form; ``kind`` and ``reason`` go into the refusal."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


@dataclass(frozen=True, slots=True)
class StoredType:
    """What the bytes of an element are.

    Parameters
    ----------
    dtype
        With byte order and offsets; ``StringDType`` for variable-length text.
    inner
        Extra trailing axes of an array-typed element.
    converted
        Why only the library can turn the bytes into ``dtype`` (which is then native), or None.
    element_size
        Stored bytes of one element, ``inner`` included.
    names
        Of the values of an enumeration, by value; empty for other types.
    """

    dtype: AnyDtype
    inner: tuple[int, ...]
    converted: str | None
    element_size: int
    names: tuple[tuple[int, str], ...] = ()

    @property
    def is_text(self) -> bool:
        """Whether elements are variable-length text."""
        return self.dtype.kind == "T"


def stored_type(tid: h5t.TypeID) -> StoredType:
    """Take a dataset's type apart.

    Raises
    ------
    UnsupportedType
        No NumPy form.
    """
    size = int(tid.get_size())
    if tid.get_class() == _STRING and tid.is_variable_str():
        text: AnyDtype = cast(AnyDtype, np.dtypes.StringDType())
        return StoredType(text, (), None, size)
    inner: tuple[int, ...] = ()
    while tid.get_class() == _ARRAY:
        inner += tuple(int(n) for n in tid.get_array_dims())
        tid = tid.get_super()
        if len(inner) > _MAX_NESTING:
            raise UnsupportedType("type", f"its array type has more than {_MAX_NESTING} axes")
    try:
        dtype = _dtype(tid, 0)
    except _Converted as found:
        return StoredType(_library_dtype(tid), inner, found.why, size)
    if dtype.itemsize == 0:
        raise UnsupportedType("type", "its elements have no bytes")
    return StoredType(dtype, inner, None, size, _names(tid) if dtype.kind in "iu" else ())


def _names(tid: h5t.TypeID) -> tuple[tuple[int, str], ...]:
    if not isinstance(tid, h5t.TypeEnumID):
        return ()
    members = ((int(tid.get_member_value(i)), tid.get_member_name(i)) for i in range(tid.get_nmembers()))
    return tuple(sorted((value, name.decode("utf-8", "replace")) for value, name in members))


class _Converted(Exception):  # control flow within this module
    """The bytes are numbers in a layout that NumPy lacks, and the library can convert them."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def _library_dtype(tid: h5t.TypeID) -> AnyDtype:
    dtype: AnyDtype = np.dtype(tid.dtype).newbyteorder("=")
    if dtype.hasobject or dtype.kind == "O":
        raise UnsupportedType("type", "its elements hold objects")
    if dtype.str[1:] in ("f16", "c32"):
        raise UnsupportedType("long-double", "the HDF5 library reads it as long double, whose bytes differ between machines")
    return dtype


def _dtype(tid: h5t.TypeID, depth: int) -> AnyDtype:
    if depth > _MAX_NESTING:
        raise UnsupportedType("type", f"its type is nested more than {_MAX_NESTING} deep")
    kind = tid.get_class()
    if kind == _INTEGER:
        return _integer(tid)
    if kind == _FLOAT:
        return _float(tid)
    if kind == _STRING:
        if tid.is_variable_str():
            raise UnsupportedType("variable-length", "it holds variable-length text inside a compound")
        return _fixed_text(tid)
    if kind == _ENUM:
        return _enum(tid)
    if kind == _COMPOUND:
        return _compound(tid, depth)
    if kind == _ARRAY:
        return np.dtype((_dtype(tid.get_super(), depth + 1), tuple(int(n) for n in tid.get_array_dims())))
    if kind == _BITFIELD:
        return _bits(tid)
    if kind == _OPAQUE:
        return _opaque(tid)
    if kind == _COMPLEX:
        return _complex(_dtype(tid.get_super(), depth + 1), int(tid.get_size()))
    if kind == _REFERENCE:
        raise UnsupportedType("reference", "it holds HDF5 object or region references, which mean nothing outside this file")
    if kind == _VLEN:
        raise UnsupportedType("variable-length", "it holds variable-length sequences, whose values lie on the file's heap")
    raise UnsupportedType("type", "its HDF5 type class (time) has no values that another library reads")


def _fixed_text(tid: h5t.TypeStringID) -> AnyDtype:
    """Text whose padding is not part of it: only null padding is what NumPy strips, so the library cuts the others."""
    size, padding = int(tid.get_size()), tid.get_strpad()
    if padding == h5t.STR_SPACEPAD:
        raise _Converted("text padded with spaces")
    if padding == h5t.STR_NULLTERM and size > 1:
        # writers in C leave whatever there was after the terminator
        raise _Converted("text that ends at its first NUL")
    return np.dtype(f"S{size}")


def _integer(tid: h5t.TypeIntegerID) -> AnyDtype:
    size = int(tid.get_size())
    if size not in (1, 2, 4, 8) or tid.get_precision() != 8 * size or tid.get_offset() != 0:
        raise _Converted(f"integers of {tid.get_precision()} bits in {size} bytes")
    sign = "u" if tid.get_sign() == h5t.SGN_NONE else "i"
    return np.dtype(f"{_order(tid)}{sign}{size}")


def _float(tid: h5t.TypeFloatID) -> AnyDtype:
    size = int(tid.get_size())
    layout = (*tid.get_fields(), tid.get_ebias())
    if layout != _IEEE.get(size) or tid.get_norm() != h5t.NORM_IMPLIED or tid.get_offset() != 0:
        if tid.get_precision() > 64:
            raise UnsupportedType(
                "long-double", f"it holds long double ({tid.get_precision()} bits in {size} bytes), which no array format has"
            )
        raise _Converted(f"floating point numbers of {tid.get_precision()} bits in {size} bytes, not IEEE")
    return np.dtype(f"{_order(tid)}f{size}")


def _order(tid: h5t.TypeID) -> str:
    order = _ORDERS.get(tid.get_order())
    if order is None:
        raise _Converted("numbers in VAX or mixed byte order")
    return order


def _enum(tid: h5t.TypeEnumID) -> AnyDtype:
    base = _integer(tid.get_super())
    if base.itemsize == 1 and tid.get_nmembers() == 2:
        # the way h5py, PyTables and netCDF tools store booleans
        names = {tid.get_member_name(i): tid.get_member_value(i) for i in range(2)}
        if names == {b"FALSE": 0, b"TRUE": 1}:
            return np.dtype("?")
    return base


def _bits(tid: h5t.TypeID) -> AnyDtype:
    size = int(tid.get_size())
    if size not in (1, 2, 4, 8):
        raise UnsupportedType("type", f"it holds bit fields of {size} bytes")
    return np.dtype(f"{_order(tid)}u{size}")


def _opaque(tid: h5t.TypeOpaqueID) -> AnyDtype:
    tag = tid.get_tag() or b""
    if tag.startswith(b"NUMPY:"):
        # h5py's own way to store datetime64
        try:
            dtype: AnyDtype = np.dtype(tag[6:].decode("ascii"))
        except (TypeError, ValueError, SyntaxError):
            dtype = np.dtype("V1")
        if dtype.itemsize == tid.get_size() and dtype.kind in "mM":
            return dtype
    return np.dtype(f"V{tid.get_size()}")


def _complex(part: AnyDtype, size: int) -> AnyDtype:
    if part.kind != "f" or part.itemsize not in (4, 8) or size != 2 * part.itemsize:
        raise _Converted(f"complex numbers of two {part.itemsize}-byte parts")
    return np.dtype(f"{part.str[0]}c{size}")


def _compound(tid: h5t.TypeCompoundID, depth: int) -> AnyDtype:
    n = int(tid.get_nmembers())
    raw = [tid.get_member_name(i) for i in range(n)]
    names = [name.decode("utf-8", "surrogateescape") for name in raw]
    formats = [_dtype(tid.get_member_type(i), depth + 1) for i in range(n)]
    offsets = [int(tid.get_member_offset(i)) for i in range(n)]
    size = int(tid.get_size())
    if names == ["r", "i"] and formats[0] == formats[1] and offsets == [0, formats[0].itemsize]:
        # h5py's and netCDF's convention for complex numbers
        part = formats[0]
        if part.kind == "f" and part.itemsize in (4, 8) and size == 2 * part.itemsize:
            return _complex(part, size)
    if any("\udc80" <= c <= "\udcff" for name in names for c in name):
        raise UnsupportedType("type", "a member of its compound has a name that is no UTF-8")
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})

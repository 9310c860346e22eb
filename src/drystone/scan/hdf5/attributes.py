"""Attributes of one HDF5 object through the low-level API, bit for bit.

h5py's ``.attrs`` converts: text that is no UTF-8, null dataspaces, enums and references come out changed or raise. Here
the bytes are read as stored. What the file format itself uses (dimension scales, netCDF's bookkeeping) is set apart in
:class:`Bookkeeping`; an attribute that cannot be kept becomes a warning and loses nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import h5py
import numpy as np
from h5py import h5, h5a, h5r, h5t
from numpy.typing import NDArray

from drystone.model.attributes import Attribute, Attributes
from drystone.model.chunk_rows import Refusal
from drystone.scan.hdf5.dtypes import StoredType, UnsupportedType, stored_type
from drystone.scan.hdf5.header_attributes import HeaderAttribute, header_attributes, scale_addresses
from drystone.scan.hdf5.heap import DESCRIPTOR, GlobalHeap
from drystone.scan.hdf5.opening import NeedsLibrary, OpenFile

__all__ = ["LIBRARY_ERRORS", "Bookkeeping", "ObjectAttributes", "PlainAttributes", "collected", "flagged", "read_attributes"]

# what h5py raises when the library fails on one object; nothing else is taken for a fault of the file
LIBRARY_ERRORS = (OSError, RuntimeError, ValueError, KeyError, TypeError, OverflowError, MemoryError, NotImplementedError)

MAX_ATTRIBUTE_BYTES = 1 << 20
MAX_ATTRIBUTES = 65_536

_SET_APART = frozenset(
    {
        b"CLASS",
        b"NAME",
        b"DIMENSION_LIST",
        b"REFERENCE_LIST",
        b"_Netcdf4Dimid",
        b"_Netcdf4Coordinates",
        b"_NCProperties",
        b"_nc3_strict",
    }
)
# attributes that every reader takes for one number, though some writers store an array of length 1
_SINGLE = frozenset(
    {"_FillValue", "missing_value", "scale_factor", "add_offset", "valid_min", "valid_max", "_Unsigned", "fmissing_value"}
)


@dataclass(slots=True)
class Bookkeeping:
    """What the format stores as attributes for itself.

    Parameters
    ----------
    is_scale
        Whether the object is a dimension scale.
    scale_name
        The scale's ``NAME``.
    dimid, coordinate_ids
        netCDF's own dimension numbers, of the scale itself and of each axis.
    has_dimension_list
        Whether axes are attached to scales.
    scales
        Header addresses of each axis' first scale, where the list lies in the object header.
    netcdf
        Whether a netCDF library wrote the object.
    """

    is_scale: bool = False
    scale_name: bytes = b""
    dimid: int | None = None
    coordinate_ids: tuple[int, ...] | None = None
    has_dimension_list: bool = False
    scales: list[int | None] | None = None
    netcdf: bool = False


@dataclass(slots=True)
class ObjectAttributes:
    """Attributes in file order, what was set apart, and warnings."""

    items: list[tuple[str, Attribute]] = field(default_factory=list)
    own: Bookkeeping = field(default_factory=Bookkeeping)
    warnings: list[Refusal] = field(default_factory=list)
    _finished: dict[bool, Attributes] = field(default_factory=dict)

    def finished(self, *, netcdf: bool) -> Attributes:
        """The attributes of a file of a known kind.

        netCDF stores every number as an array and cannot tell one from an array of length 1, so there it is one number; in
        other HDF5 the writer's choice is kept but for CF's own single numbers.
        """
        known = self._finished.get(netcdf)
        if known is None:
            kept = [
                (n, Attribute(a.dtype, None, a.data, a.text) if a.shape == (1,) and (netcdf or n in _SINGLE) else a)
                for n, a in self.items
            ]
            known = self._finished[netcdf] = Attributes(tuple(kept))
        return known


class PlainAttributes:
    """The attributes of one header, whichever file it is in: all but those that lie on a file's heap are shared.

    ``found`` are those of the header, in order.
    """

    __slots__ = ("_found", "_scales", "_shared")

    def __init__(self, found: Sequence[HeaderAttribute]) -> None:
        self._found = found
        self._scales = [a for a in found if a.name == b"DIMENSION_LIST" and a.on_heap == "scales"]
        rest = [a for a in found if a not in self._scales]
        # those that only the library reads are set apart unread, or make this not plain when a file is scanned
        plain = len(self._scales) < 2 and all(not a.on_heap and (a.value or a.name == b"REFERENCE_LIST") for a in rest)
        self._shared = collected(rest, "", None) if plain and len(found) <= MAX_ATTRIBUTES else None

    def collected(self, path: str, heap: GlobalHeap) -> ObjectAttributes:
        """The same as :func:`collected`, not to be changed."""
        shared = self._shared
        if shared is None or shared.warnings:
            return collected(self._found, path, heap)
        if not self._scales:
            return shared
        try:
            scales = scale_addresses(self._scales[0], heap)
        except UnsupportedType:
            return collected(self._found, path, heap)
        own = replace(shared.own, has_dimension_list=True, scales=scales)
        return ObjectAttributes(shared.items, own, [], shared._finished)


def read_attributes(
    oid: h5py.h5d.DatasetID | h5py.h5g.GroupID, path: str, file: OpenFile, heap: GlobalHeap, header: int
) -> ObjectAttributes:
    """Read all attributes of an object, from its header where they lie there, else through the library."""
    warnings: list[Refusal] = []
    found = header_attributes(file, header)
    if found is None:
        found = [HeaderAttribute(name, None) for name in _listed(oid, path, warnings)]
    return collected(found, path, heap, oid, warnings)


def collected(
    found: Sequence[HeaderAttribute], path: str, heap: GlobalHeap | None, oid: object = None, warnings: Sequence[Refusal] = ()
) -> ObjectAttributes:
    """The attributes of an object, with their values.

    Raises
    ------
    NeedsLibrary
        One is in a form that only the library reads, and there is no ``oid`` to ask it for.
    """
    out = ObjectAttributes(warnings=list(warnings))
    scale_class = False
    for item in found[:MAX_ATTRIBUTES]:
        try:
            if item.name in _SET_APART:
                if item.name == b"CLASS":
                    scale_class = _bytes_of(_value(oid, item, heap)) == b"DIMENSION_SCALE"
                elif _set_apart(out.own, oid, item, heap):
                    continue
            attribute = item.value or _value(oid, item, heap)
        except UnsupportedType as error:
            out.warnings.append(_left_out(path, item.name, error.reason))
        except LIBRARY_ERRORS as error:
            out.warnings.append(_left_out(path, item.name, _first(error)))
        else:
            out.items.append((_decode_name(item.name), attribute))
    if len(found) > MAX_ATTRIBUTES:
        reason = f"{path} has {len(found)} attributes; those after the first {MAX_ATTRIBUTES} are left out"
        out.warnings.append(Refusal(path, "attribute", reason))
    if scale_class:
        out.own.is_scale = True
        out.own.scale_name = next((_bytes_of(a) for n, a in out.items if n == "NAME"), b"")
        out.items = [(n, a) for n, a in out.items if n not in ("CLASS", "NAME")]
    return out


def _listed(oid: object, path: str, warnings: list[Refusal]) -> list[bytes]:
    """Names through the library."""
    names: list[bytes] = []
    try:
        # the order of creation where the file keeps it (netCDF does), else by name
        h5a.iterate(oid, names.append, index_type=h5.INDEX_CRT_ORDER)
    except LIBRARY_ERRORS:
        names.clear()
        try:
            h5a.iterate(oid, names.append, index_type=h5.INDEX_NAME)
        except LIBRARY_ERRORS as error:
            warnings.append(Refusal(path, "attributes", f"the attributes of {path} cannot be listed: {_first(error)}"))
    return names


def _left_out(path: str, name: bytes, reason: str) -> Refusal:
    return Refusal(path, "attribute", f"attribute {_decode_name(name)!r} of {path} is left out: {reason}")


def _value(oid: object, item: HeaderAttribute, heap: GlobalHeap | None) -> Attribute:
    """An attribute's value: as found in the header, from the heap, or through the library."""
    if item.value is not None:
        return item.value
    if item.on_heap and heap is not None:
        if len(item.data) > MAX_ATTRIBUTE_BYTES:
            raise UnsupportedType("attribute", f"it has {len(item.data)} bytes, more than the limit of {MAX_ATTRIBUTE_BYTES}")
        descriptors = np.frombuffer(item.data, DESCRIPTOR)
        if item.on_heap == "text":
            return _heap_texts(descriptors, item.shape or (), heap)
        heap.vet(descriptors)
    return _read(oid, item.name)


def _heap_texts(descriptors: NDArray[np.void], shape: tuple[int, ...], heap: GlobalHeap) -> Attribute:
    total = int(descriptors["count"].sum(dtype=np.uint64))
    if total > MAX_ATTRIBUTE_BYTES:
        raise UnsupportedType("attribute", f"its text has {total} bytes, more than the limit of {MAX_ATTRIBUTE_BYTES}")
    return _text_attribute([v.split(b"\0", 1)[0] for v in heap.values(descriptors, 1)], shape)


def flagged(attributes: Attributes, stored: StoredType) -> Attributes:
    """The attributes of an array, with the names of an enumeration said as CF says them, which any reader understands.

    Without them the numbers would lose their meaning, and granules whose enumerations differ would be joined as if equal.
    """
    if not stored.names or "flag_values" in attributes or "flag_meanings" in attributes:
        return attributes
    values = np.array([value for value, _ in stored.names], stored.dtype.newbyteorder("="))
    words = " ".join("_".join(name.split()) or "_" for _, name in stored.names)
    flags = (("flag_values", Attribute.of(values)), ("flag_meanings", Attribute.of(words)))
    return Attributes((*attributes.items_, *flags))


def _first(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__


def _decode_name(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _bytes_of(attribute: Attribute) -> bytes:
    return attribute.text[0].encode() if attribute.text else attribute.data


def _set_apart(own: Bookkeeping, oid: object, item: HeaderAttribute, heap: GlobalHeap | None) -> bool:
    """Take a bookkeeping attribute; False where it must be read as an ordinary one too."""
    raw = item.name
    if raw == b"NAME":
        return False
    own.netcdf = own.netcdf or raw not in (b"DIMENSION_LIST", b"REFERENCE_LIST")
    if raw == b"DIMENSION_LIST":
        own.has_dimension_list = True
        if item.on_heap and heap is not None:
            own.scales = []  # where the heap is damaged, the library must not be asked either
            own.scales = scale_addresses(item, heap)
    elif raw == b"_Netcdf4Dimid":
        own.dimid = int(np.ravel(_value(oid, item, heap).value)[0])
    elif raw == b"_Netcdf4Coordinates":
        own.coordinate_ids = tuple(int(v) for v in np.ravel(_value(oid, item, heap).value))
    return True


def _read(oid: object, raw: bytes) -> Attribute:
    if oid is None:
        raise NeedsLibrary
    aid = h5a.open(oid, raw)
    tid = aid.get_type()
    shape = aid.shape
    if shape is None:
        return _null(tid)
    size = math.prod(shape) * int(tid.get_size())
    if size > MAX_ATTRIBUTE_BYTES:
        raise UnsupportedType("attribute", f"it has {size} bytes, more than the limit of {MAX_ATTRIBUTE_BYTES}")
    kind = tid.get_class()
    if kind == h5t.REFERENCE:
        return _references(aid, oid)
    if kind == h5t.VLEN:
        return _sequence(aid, shape)
    stored = stored_type(tid)
    if stored.is_text:
        return _texts(aid, shape)
    full = (*shape, *stored.inner)
    values = np.empty(full, stored.dtype)
    if values.size:
        if stored.converted is None:
            aid.read(values, tid)
        else:
            aid.read(values)
    if kind == h5t.STRING and not full:
        return Attribute.of(values.item())
    if kind == h5t.STRING:
        return Attribute.of(values)
    if stored.dtype.kind in "biufc":
        little = values.astype(stored.dtype.newbyteorder("<"), copy=False)
        return Attribute(little.dtype.str, full or None, little.tobytes())
    return Attribute("bytes", full or None, values.tobytes())


def _null(tid: h5t.TypeID) -> Attribute:
    """A null dataspace: netCDF's way to store empty text, and an empty list of anything else."""
    if tid.get_class() == h5t.STRING:
        return Attribute.of("")
    stored = stored_type(tid)
    return Attribute.of(np.empty(0, stored.dtype))


def _texts(aid: h5a.AttrID, shape: tuple[int, ...]) -> Attribute:
    values = np.empty(shape, aid.dtype)
    if values.size:
        aid.read(values)
    # the library gives bytes, and None where the heap holds nothing
    items = [b"" if v is None else v if isinstance(v, bytes) else str(v).encode() for v in values.reshape(-1).tolist()]
    return _text_attribute(items, shape)


def _text_attribute(items: list[bytes], shape: tuple[int, ...]) -> Attribute:
    total = sum(map(len, items))
    if total > MAX_ATTRIBUTE_BYTES:
        raise UnsupportedType("attribute", f"its text has {total} bytes, more than the limit of {MAX_ATTRIBUTE_BYTES}")
    if shape == ():
        return Attribute.of(items[0])
    filled = np.empty(len(items), object)
    filled[:] = items
    return Attribute.of(filled.reshape(shape))


def _references(aid: h5a.AttrID, oid: object) -> Attribute:
    """References to objects are kept as the paths they point to."""
    values = np.empty(aid.shape, aid.dtype)
    if values.size:
        aid.read(values)
    names = []
    for reference in values.reshape(-1).tolist():
        name = h5r.get_name(reference, oid) if reference else None
        names.append("" if name is None else _decode_name(name))
    return Attribute("text", aid.shape or None, b"", tuple(names))


def _sequence(aid: h5a.AttrID, shape: tuple[int, ...]) -> Attribute:
    """One variable-length sequence of numbers is a list of numbers; more than one has no form."""
    if math.prod(shape) != 1:
        raise UnsupportedType("attribute", "it holds several variable-length sequences")
    values = np.empty(shape, aid.dtype)
    aid.read(values)
    item = np.asarray(values.reshape(-1)[0])
    if item.dtype.kind not in "biufc":
        raise UnsupportedType("attribute", "it holds a variable-length sequence of something else than numbers")
    if item.nbytes > MAX_ATTRIBUTE_BYTES:
        raise UnsupportedType("attribute", f"it has {item.nbytes} bytes, more than the limit of {MAX_ATTRIBUTE_BYTES}")
    return Attribute.of(item)

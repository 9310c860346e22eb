"""Attributes from the object header's own bytes: the plain kinds, which are nearly all there are.

Numbers, fixed and variable-length text, and lists of references to dimension scales are decoded here; any other kind is
left to the library by name. Granules of one archive repeat their attributes, so that a message's decoded value is kept by
its bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from drystone.model.attributes import Attribute
from drystone.scan.hdf5.heap import DESCRIPTOR, GlobalHeap
from drystone.scan.hdf5.object_header import ATTRIBUTE, ATTRIBUTE_INFO, Message, messages
from drystone.scan.hdf5.opening import OpenFile

__all__ = ["HeaderAttribute", "attributes_of", "header_attributes", "scale_addresses"]

_CACHED_BYTES = 512  # a longer message is decoded each time
_NUMBER, _FLOAT, _STRING, _VLEN = 0, 1, 3, 9
_NULLTERM, _NULLPAD, _SPACEPAD = range(3)  # padding of fixed-length text

# class, bit field, size and properties of the numbers that NumPy has: (bytes after the size) by kind
_IEEE = {
    2: struct.pack("<HHBBBBI", 0, 16, 10, 5, 0, 10, 15),
    4: struct.pack("<HHBBBBI", 0, 32, 23, 8, 0, 23, 127),
    8: struct.pack("<HHBBBBI", 0, 64, 52, 11, 0, 52, 1023),
}


@dataclass(frozen=True, slots=True)
class HeaderAttribute:
    """One attribute of a header.

    Parameters
    ----------
    name
        As stored.
    value
        Decoded; None where only the library can, or where it lies on the heap.
    shape
        Of the value; None for a null dataspace.
    on_heap
        ``text`` for variable-length text, ``scales`` for lists of object references, ``other`` for other sequences.
    data
        Stored bytes of a value on the heap.
    """

    name: bytes
    value: Attribute | None
    shape: tuple[int, ...] | None = ()
    on_heap: str = ""
    data: bytes = b""


def header_attributes(file: OpenFile, header: int) -> list[HeaderAttribute] | None:
    """All attributes of an object in the order of creation, or None where they do not lie in its header."""
    found = messages(file, header)
    if found is None or file.superblock.offset_size != 8:
        return None
    return attributes_of(found)


def attributes_of(found: Sequence[Message]) -> list[HeaderAttribute] | None:
    """All attributes among the messages of an object in the order of creation, or None where some lie elsewhere."""
    out: list[tuple[int, HeaderAttribute]] = []
    for message in found:
        if message.kind == ATTRIBUTE:
            if message.shared:
                return None
            body = message.body
            decoded = _cached(body) if len(body) <= _CACHED_BYTES else _decode(body)
            if decoded is None:
                return None
            out.append((message.order, decoded))
        elif message.kind == ATTRIBUTE_INFO and not _all_in_header(message.body):
            return None
    out.sort(key=lambda item: item[0])
    return [a for _, a in out]


def scale_addresses(attribute: HeaderAttribute, heap: GlobalHeap) -> list[int | None]:
    """The first object that each element of a ``DIMENSION_LIST`` refers to."""
    if attribute.on_heap != "scales":
        return []
    items = heap.values(np.frombuffer(attribute.data, DESCRIPTOR), 8)
    return [int.from_bytes(item[:8], "little") if len(item) >= 8 else None for item in items]


def _all_in_header(body: bytes) -> bool:
    """Whether an attribute info message says that no attribute lies in a heap."""
    flags = body[1]
    at = 2 + (2 if flags & 1 else 0)
    return body[at : at + 8] == b"\xff" * 8


@lru_cache(maxsize=8192)
def _cached(body: bytes) -> HeaderAttribute | None:
    return _decode(body)


def _decode(body: bytes) -> HeaderAttribute | None:
    """Take an attribute message apart; None where it is not as expected."""
    try:
        version, flags, n_name, n_type, n_space = struct.unpack_from("<BBHHH", body, 0)
        if version not in (1, 2, 3):
            return None
        at = 9 if version == 3 else 8
        pad = 8 if version == 1 else 1
        raw_name, at = body[at : at + n_name], at + -(-n_name // pad) * pad
        raw_type, at = body[at : at + n_type], at + -(-n_type // pad) * pad
        raw_space, at = body[at : at + n_space], at + -(-n_space // pad) * pad
        name = raw_name.split(b"\0", 1)[0]
        if version > 1 and flags & 3:
            return HeaderAttribute(name, None)  # a named type or shared space: the library finds it
        return _value(name, raw_type, _shape(raw_space), body[at:])
    except (struct.error, IndexError, _UnexpectedError):
        return None


class _UnexpectedError(Exception):
    """A part of a message in a form that is not read here."""


def _shape(raw: bytes) -> tuple[int, ...] | None:
    version, rank, _, kind = struct.unpack_from("<BBBB", raw, 0)
    if version == 1:
        return tuple(struct.unpack_from(f"<{rank}Q", raw, 8))
    if version != 2:
        raise _UnexpectedError
    if kind == 2:
        return None
    return tuple(struct.unpack_from(f"<{rank}Q", raw, 4))


def _value(name: bytes, raw_type: bytes, shape: tuple[int, ...] | None, data: bytes) -> HeaderAttribute:
    kind, bits, size = raw_type[0] & 15, raw_type[1] | raw_type[2] << 8, struct.unpack_from("<I", raw_type, 4)[0]
    nbytes = 0 if shape is None else math.prod(shape) * size
    if nbytes > len(data):
        raise _UnexpectedError
    data = data[:nbytes]
    if kind == _STRING:
        return HeaderAttribute(name, _fixed_text(data, size, shape, bits & 15), shape)
    if kind == _VLEN and shape is not None and size == DESCRIPTOR.itemsize:
        base = raw_type[8] & 15
        if bits & 15 == 1:
            return HeaderAttribute(name, None, shape, "text", data)
        if base == 7 and raw_type[9] & 15 == 0 and struct.unpack_from("<I", raw_type, 12)[0] == 8:
            return HeaderAttribute(name, None, shape, "scales", data)
        return HeaderAttribute(name, None, shape, "other", data)
    dtype = _number(kind, bits, size, raw_type[8:])
    if dtype is None:
        return HeaderAttribute(name, None, shape)
    if shape is None:
        return HeaderAttribute(name, Attribute.of(np.empty(0, dtype)), shape)
    little = dtype.newbyteorder("<")
    values = data if dtype == little else np.frombuffer(data, dtype).astype(little).tobytes()
    return HeaderAttribute(name, Attribute(little.str, shape or None, values), shape)


def _fixed_text(data: bytes, size: int, shape: tuple[int, ...] | None, padding: int) -> Attribute:
    """Text without its padding, as the library cuts it: at the first NUL, or trailing NULs or spaces."""
    if shape is None:
        return Attribute.of("")
    if size == 0:
        raise _UnexpectedError
    items = [data[i : i + size] for i in range(0, len(data), size)]
    if padding == _NULLTERM:
        items = [item.split(b"\0", 1)[0] for item in items]
    elif padding == _SPACEPAD:
        items = [item.rstrip(b" ") for item in items]
    elif padding != _NULLPAD:
        raise _UnexpectedError
    if shape == ():
        return Attribute.of(items[0].rstrip(b"\0"))
    return Attribute.of(np.array(items, f"S{size}").reshape(shape))


def _number(kind: int, bits: int, size: int, properties: bytes) -> np.dtype[np.generic] | None:
    """The dtype of plain integers and IEEE numbers; None for any other type."""
    if kind == _NUMBER and size in (1, 2, 4, 8) and struct.unpack_from("<HH", properties, 0) == (0, 8 * size):
        return np.dtype(f"{'>' if bits & 1 else '<'}{'i' if bits & 8 else 'u'}{size}")
    if kind == _FLOAT and properties[:12] == _IEEE.get(size):
        # bits: order (0 and 6), padding (1 to 3), mantissa normalised with an implied bit (4 to 5: 2), sign's place (8 to 15)
        if bits & 0x40 or bits >> 4 & 3 != 2 or bits >> 8 != 8 * size - 1:
            return None
        return np.dtype(f"{'>' if bits & 1 else '<'}f{size}")
    return None

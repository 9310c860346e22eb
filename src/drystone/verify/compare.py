"""Values as bits: what it means that a published cell is the granule's.

The witness loads this file by its path, so it imports nothing of drystone's.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Container, Iterator, Mapping
from typing import Any

import numpy as np

__all__ = ["Incomparable", "coding_problems", "differs", "native", "number", "one_type", "show", "text"]

type Array = np.ndarray[Any, np.dtype[Any]]

# attributes that change what a stored value means
_CODING = (
    "_FillValue",
    "missing_value",
    "scale_factor",
    "add_offset",
    "units",
    "calendar",
    "_Unsigned",
    "flag_values",
    "flag_masks",
    "flag_meanings",
    "valid_min",
    "valid_max",
    "valid_range",
)


class Incomparable(Exception):
    """The types of the two sides hold different things."""


def native(values: object) -> Array:
    r"""An array in native byte order; text as an array of UTF-8 bytes objects.

    Examples
    --------
    >>> native(np.array([1, 2], ">i2")).dtype == np.dtype("i2")
    True
    >>> native(np.array(["é"])).tolist()
    [b'\xc3\xa9']
    """
    array = np.asarray(values)
    if array.dtype.kind not in "OTU":
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    out = np.empty(array.shape, object)
    flat = [v if isinstance(v, bytes) else str(v).encode("utf-8", "surrogateescape") for v in array.ravel().tolist()]
    out.reshape(-1)[:] = flat
    return out


def differs(a: Array, b: Array) -> Array:
    """Where two native arrays of one shape differ in any bit, bool.

    Raises
    ------
    Incomparable
        Their types hold different things.

    Examples
    --------
    >>> nan = np.array([0x7FC00000, 0x7FC00001], np.uint32).view(np.float32)
    >>> differs(nan, np.full(2, np.nan, np.float32)).tolist(), differs(np.array([0.0]), np.array([-0.0])).tolist()
    ([False, True], [True])
    """
    kinds = {a.dtype.kind, b.dtype.kind}
    if "O" in kinds:
        if kinds - set("OS"):
            raise Incomparable(f"published as {a.dtype}, stored as {b.dtype}")
        return np.asarray(a.astype(object) != b.astype(object), bool)
    if a.dtype.names or b.dtype.names:
        if a.dtype.names != b.dtype.names:
            raise Incomparable(f"published with the fields {a.dtype.names}, stored with {b.dtype.names}")
        wrong = np.zeros(a.shape, bool)
        for name in a.dtype.names or ():
            field = differs(np.asarray(a[name]), np.asarray(b[name]))
            wrong |= field.reshape(*a.shape, -1).any(axis=-1)
        return wrong
    one_type(a, b)
    size = a.dtype.itemsize
    word = np.dtype(f"u{size}") if size in (1, 2, 4, 8) else np.dtype(np.uint8)
    left, right = (np.ascontiguousarray(v).reshape(-1).view(word).reshape(v.size, -1) for v in (a, b))
    return np.asarray((left != right).any(axis=1).reshape(a.shape), bool)


def one_type(a: Array, b: Array) -> None:
    """See that two native arrays of numbers are of one type.

    Raises
    ------
    Incomparable
        They are not.
    """
    # an enumeration of two is a bool to one reader and a byte to the other
    if a.dtype != b.dtype and not {a.dtype.str[1:], b.dtype.str[1:]} <= {"b1", "u1", "i1"}:
        raise Incomparable(f"published as {a.dtype}, stored as {b.dtype}")


def show(value: object) -> str:
    """A value as text, a number with its bits.

    Examples
    --------
    >>> show(np.float32(1.5)), show(b"a")
    ('1.5 (0x3fc00000)', "b'a'")
    """
    item = np.asarray(value)
    if isinstance(value, bytes) or item.dtype.kind in "OSUTV":
        return repr(value if isinstance(value, bytes) else item[()])
    return f"{item[()]} (0x{item.astype(item.dtype.newbyteorder('>')).tobytes().hex()})"


def coding_problems(
    published: Mapping[str, object],
    stored: Mapping[str, object],
    unkept: Container[str] = (),
    skip: Container[str] = (),
) -> Iterator[str]:
    """Attributes that change what values mean and are not the granule's, one line each.

    ``unkept`` are those that the published form was said not to hold, ``skip`` those known to mean the same.

    Examples
    --------
    >>> list(coding_problems({"scale_factor": 0.1, "_FillValue": -1}, {"scale_factor": np.float64(0.2), "_FillValue": [-1]}))
    ['attribute scale_factor: published 0.1, stored 0.2']
    """
    for name in _CODING:
        if name in skip or (name in unkept and name not in published):
            continue
        if (name in stored) != (name in published):
            holder = "the granule has" if name in stored else "the published array has"
            yield f"only {holder} the attribute {name}"
        elif name in stored and not _same(published[name], stored[name]):
            yield f"attribute {name}: published {published[name]}, stored {_shown(stored[name])}"


def _shown(value: object) -> object:
    return text(value) if isinstance(value, str | bytes) else value


def _same(published: object, stored: object) -> bool:
    if np.asarray(stored).dtype.kind == "V":  # a compound goes as its bytes
        return isinstance(published, str) and published.encode("latin-1", "replace") == np.asarray(stored).tobytes()
    have, want = np.asarray(stored).reshape(-1).tolist(), np.asarray(published, object).reshape(-1).tolist()
    if any(isinstance(h, complex) for h in have):  # JSON has a pair of numbers for one
        have = [part for h in have for part in (complex(h).real, complex(h).imag)]
    return len(have) == len(want) and all(_equal(w, h) for w, h in zip(want, have, strict=True))


def _equal(published: object, stored: object) -> bool:
    """One value; a float32 counts as the double that it is, so that 0.01 in JSON is not float32's 0.01."""
    if isinstance(stored, str | bytes):
        return published == text(stored) or (isinstance(stored, bytes) and _from_base64(published) == stored)
    try:
        value = number(published, isinstance(stored, int))
    except (ValueError, struct.error):
        return False
    return bool(value == stored) or (value != value and stored != stored)


def text(value: object) -> str:
    """Text of an attribute, whatever its bytes."""
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")  # h5py's way to carry bytes that are no UTF-8
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")


def number(value: object, integer: bool) -> object:
    """A number as JSON says it: words for what JSON lacks, and xarray writes a float fill value as base64."""
    if not isinstance(value, str):
        return value
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    if integer and value.lstrip("-").isdigit():
        return int(value)
    raw = _from_base64(value)
    return struct.unpack("<d", raw)[0] if raw is not None and len(raw) == 8 else value


def _from_base64(value: object) -> bytes | None:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except ValueError:
        return None

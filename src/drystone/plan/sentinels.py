"""Which stored numbers say missing, and one number that says it for all.

``_FillValue`` and every ``missing_value`` count. A number of another type than the variable's is taken as the variable's
(rounded to it, where that is floating point), as the netCDF library does; one that the type cannot hold never occurs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from drystone.model.attributes import Attribute, Attributes
from drystone.plan.packing import is_unsigned, read_as

__all__ = ["KEYS", "attribute_of", "drop_missing", "element_of", "missing_of", "number_text", "retyped", "sentinel"]

KEYS = ("_FillValue", "missing_value")


def missing_of(attributes: Attributes, dtype: np.dtype) -> tuple[bytes, ...] | None:
    r"""Elements that say missing, as numbers are read (native, unsigned where ``_Unsigned`` says so), ``_FillValue`` first.

    None where an attribute is no number, so that nobody knows what it marks.

    Examples
    --------
    >>> [m.hex() for m in missing_of(Attributes.of({"missing_value": -1.0, "_FillValue": np.int16(-99)}), np.dtype("i2"))]
    ['9dff', 'ffff']
    >>> missing_of(Attributes.of({"_FillValue": np.int8(-1), "_Unsigned": "true"}), np.dtype("i1"))
    (b'\xff',)
    """
    found: list[bytes] = []
    for key in KEYS:
        attribute = attributes.get(key)
        if attribute is None:
            continue
        if attribute.dtype in ("text", "bytes") or np.dtype(attribute.dtype).kind not in "iuf":
            return None
        for number in np.asarray(attribute.value).reshape(-1).tolist():
            element = element_of(number, read_as(attributes, dtype), is_unsigned(attributes, dtype))
            if element is not None and element not in found:
                found.append(element)
    return tuple(found)


def element_of(number: int | float, dtype: np.dtype, unsigned: bool = False) -> bytes | None:
    """A number as an element of a type, rounded to it where that is floating point; None where it is none."""
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return np.array(number, dtype).tobytes()
    if not math.isfinite(number) or number != int(number):
        return None
    whole, limits = int(number), np.iinfo(dtype)
    if unsigned and whole < 0:
        whole += int(limits.max) + 1
    return np.array(whole, dtype).tobytes() if limits.min <= whole <= limits.max else None


def retyped(element: bytes, dtype: np.dtype, target: np.dtype) -> bytes | None:
    """The same number in another type; None where it has no such number."""
    value = np.frombuffer(element, dtype, 1)[0]
    return element_of(value.item(), target) if target.kind in "iuf" else None


def number_text(element: bytes, dtype: np.dtype) -> str:
    """One text for equal numbers, whatever their type."""
    value = np.frombuffer(element, dtype, 1)[0].item()
    return str(int(value)) if isinstance(value, int) or (math.isfinite(value) and value.is_integer()) else repr(value)


def sentinel(missing: Sequence[tuple[bytes, ...]], dtypes: Sequence[np.dtype], target: np.dtype) -> bytes | None:
    """What says missing for all; None where nobody has anything that does.

    The first granule's own number; where it has none, NaN for floating point, else the first number there is.
    """
    if not any(missing):
        return None
    if not missing[0] and target.kind == "f":
        return np.array(np.nan, target).tobytes()
    for numbers, dtype in zip(missing, dtypes, strict=True):
        for element in numbers:
            if (found := retyped(element, dtype, target)) is not None:
                return found
    return None


def drop_missing(values: NDArray[np.generic], missing: tuple[bytes, ...], dtype: np.dtype) -> NDArray[np.generic]:
    """The finite numbers that are data, flat."""
    flat = values.reshape(-1).view(dtype) if values.dtype.itemsize == dtype.itemsize else values.reshape(-1)
    kept = np.isfinite(flat.astype(np.float64))
    for element in missing:
        number = np.frombuffer(element, dtype, 1)[0]
        kept &= flat != number
    return flat[kept]


def attribute_of(element: bytes, dtype: np.dtype) -> Attribute:
    """An element as an attribute."""
    return Attribute.of(np.frombuffer(element, dtype, 1)[0])

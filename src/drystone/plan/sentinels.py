"""Which stored numbers say missing, and one number that says it for all.

``_FillValue`` and every ``missing_value`` count. A number of another type than the variable's is taken as the variable's
(rounded to it, where that is floating point), as the netCDF library does; one that the type cannot hold never occurs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drystone.model.attributes import Attribute, Attributes
from drystone.plan.packing import is_unsigned, read_as

__all__ = [
    "KEYS",
    "Sentinel",
    "attribute_of",
    "drop_missing",
    "element_of",
    "missing_of",
    "number_text",
    "retyped",
    "sentinel",
    "wider",
]

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


@dataclass(frozen=True, slots=True)
class Sentinel:
    """What says missing for all, and whether it is proved that no granule has it as data."""

    element: bytes
    proved: bool


def sentinel(missing: Sequence[tuple[bytes, ...]], dtypes: Sequence[np.dtype], target: np.dtype) -> Sentinel | None:
    r"""What says missing for all; None where nobody has anything that does.

    The first number that some granule marks missing with and that is data in none, since each says it is missing, or has a
    type without it; else NaN for floating point, which is data nowhere; else an end of the target's type that no granule's
    type reaches; else the first number there is, which is looked for in the data when it is read.

    Parameters
    ----------
    missing, dtypes
        Of each variant, the first granule's first: elements that say missing, and their type.
    target
        Of the whole.

    Examples
    --------
    >>> i1, u1, i2 = (np.dtype(t) for t in ("i1", "u1", "i2"))
    >>> found = sentinel([(b"\x05",), (b"\x06",)], [i1, u1], i2)
    >>> np.frombuffer(found.element, i2)[0], found.proved
    (np.int16(-32768), True)
    """
    if not any(missing):
        return None
    told = list(zip(missing, dtypes, strict=True))
    known = [e for numbers, dtype in told for n in numbers if (e := retyped(n, dtype, target)) is not None]
    spare = [np.array(np.nan, target).tobytes()] if target.kind == "f" else _beyond(dtypes, target)
    for element in (*known, *spare):
        if all(_no_data(element, target, numbers, dtype) for numbers, dtype in told):
            return Sentinel(element, proved=True)
    return Sentinel(known[0], proved=False) if known else None


def _no_data(element: bytes, target: np.dtype, missing: tuple[bytes, ...], dtype: np.dtype) -> bool:
    """Whether a number of the target's type is no data in a granule: it says missing there, or its type lacks it."""
    number = np.frombuffer(element, target, 1)[0].item()
    own = element_of(number, dtype)
    if number != number or own is None or np.frombuffer(own, dtype, 1)[0].item() != number:
        return True
    return number_text(element, target) in {number_text(m, dtype) for m in missing}


def _beyond(dtypes: Sequence[np.dtype], target: np.dtype) -> list[bytes]:
    """The ends of a type of whole numbers."""
    limits = np.iinfo(target)
    return [np.array(end, target).tobytes() for end in (limits.min, limits.max) if all(d.kind in "iu" for d in dtypes)]


def wider(dtypes: Sequence[np.dtype]) -> np.dtype | None:
    """The smallest type of whole numbers with one that none of the types has; None where there is none.

    Examples
    --------
    >>> wider([np.dtype("i1"), np.dtype("u1")]), wider([np.dtype("u2")]), wider([np.dtype("i8")])
    (dtype('int16'), dtype('int32'), None)
    """
    if any(d.kind not in "iu" for d in dtypes):
        return None
    low, high = min(int(np.iinfo(d).min) for d in dtypes), max(int(np.iinfo(d).max) for d in dtypes)
    types = (np.dtype(f"i{size}") for size in (1, 2, 4, 8))
    return next((t for t in types if np.iinfo(t).min < low and high <= np.iinfo(t).max), None)


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

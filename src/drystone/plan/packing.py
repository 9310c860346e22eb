"""How whole numbers stand for physical ones, and one packing for granules that pack differently.

A re-packing is chosen only where every number that the type can hold is decoded to the identical double before and
after, as readers decode it: one multiplication and one addition in double precision. Scales and offsets are taken as the
doubles they are, a float32 attribute as that float32. Offsets such as 292.17 and 288.44 with a scale of 0.01 look like
373 steps and are not: then the way out is decoding to float64, which changes nothing either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from drystone.model.attributes import Attribute, Attributes

__all__ = ["Packing", "Repacked", "common", "is_unsigned", "number_of", "packing_of", "read_as"]

_WHOLE = 1 << 53  # every whole number up to here is a double


def number_of(attribute: Attribute | None) -> int | float | None:
    """One finite number, exactly; None where the attribute is none.

    Examples
    --------
    >>> number_of(Attribute.of(np.float32(0.1))), number_of(Attribute.of("0.1"))
    (0.10000000149011612, None)
    """
    if attribute is None or attribute.dtype in ("text", "bytes") or np.dtype(attribute.dtype).kind not in "iuf":
        return None
    values = np.asarray(attribute.value).reshape(-1)
    if values.size != 1 or not np.isfinite(values.astype(np.float64)).all():
        return None
    number: int | float = values[0].item() if values.dtype.itemsize <= 8 else float(values[0])
    return number


def is_unsigned(attributes: Attributes, dtype: np.dtype) -> bool:
    """Whether readers take the signed numbers as unsigned ones."""
    value = attributes.get("_Unsigned")
    return dtype.kind == "i" and value is not None and str(value.to_plain()).lower() == "true"


def read_as(attributes: Attributes, dtype: np.dtype) -> np.dtype:
    """The type of numbers before unpacking, native."""
    native = dtype.newbyteorder("=")
    return np.dtype(f"u{native.itemsize}") if is_unsigned(attributes, dtype) else native


@dataclass(frozen=True, slots=True)
class Packing:
    """``number * scale + offset``; both are the exact values of doubles.

    Examples
    --------
    >>> packing_of(Attributes.of({"scale_factor": np.float32(0.5)}))
    Packing(scale=Fraction(1, 2), offset=Fraction(0, 1))
    """

    scale: Fraction = Fraction(1)
    offset: Fraction = Fraction(0)

    @property
    def plain(self) -> bool:
        """Whether numbers stand for themselves."""
        return self.scale == 1 and self.offset == 0

    def unpack(self, numbers: NDArray[np.generic], dtype: np.dtype) -> NDArray[np.floating]:
        """As readers do that compute in ``dtype``."""
        with np.errstate(over="ignore"):
            scaled = numbers.astype(dtype) * dtype.type(float(self.scale))
            return np.asarray(scaled + dtype.type(float(self.offset)))


def packing_of(attributes: Attributes) -> Packing | None:
    """What the attributes say; None where they are no numbers, so that readers cannot agree what they mean."""
    numbers = []
    for key, default in (("scale_factor", 1), ("add_offset", 0)):
        number = number_of(attributes.get(key)) if key in attributes else default
        if number is None:
            return None
        numbers.append(Fraction(float(number)))
    return Packing(*numbers)


@dataclass(frozen=True, slots=True)
class Repacked:
    """One packing for all: ``number * times + plus``, both whole, per variant; ``spare`` is a number that none becomes."""

    packing: Packing
    dtype: np.dtype
    spare: int | None
    times: tuple[int, ...]
    plus: tuple[int, ...]


def common(packings: Sequence[Packing], dtypes: Sequence[np.dtype], spare: bool, single: bool) -> Repacked | None:
    """The finest scale and the first offset, where every number of every variant fits them exactly.

    Parameters
    ----------
    packings, dtypes
        Of each variant, the first granule's first; types as numbers are read, unsigned ones as such.
    spare
        A number is needed that says missing.
    single
        The attributes are single precision, and readers may decode with that.
    """
    if any(d.kind not in "iu" for d in dtypes) or any(not _sane(p) for p in packings):
        return None
    target = Packing(min((p.scale for p in packings), key=abs), packings[0].offset)
    times, plus = [p.scale / target.scale for p in packings], [(p.offset - target.offset) / target.scale for p in packings]
    if any(n.denominator != 1 for n in (*times, *plus)):
        return None
    whole = [(int(k), int(m)) for k, m in zip(times, plus, strict=True)]
    fitting = _fitting(dtypes, whole, spare)
    if fitting is None:
        return None
    dtype, free = fitting
    for p, d, (k, m) in zip(packings, dtypes, whole, strict=True):
        if not _identical(p, d, target, k, m, single and dtype.itemsize <= 2):
            return None
    return Repacked(target, dtype, free, tuple(k for k, _ in whole), tuple(m for _, m in whole))


def _sane(packing: Packing) -> bool:
    """Far from where doubles underflow or overflow."""
    return 1e-200 < abs(packing.scale) < 1e200 and (packing.offset == 0 or 1e-200 < abs(packing.offset) < 1e200)


def _ends(dtype: np.dtype, k: int, m: int) -> tuple[int, int]:
    limits = np.iinfo(dtype)
    ends = int(limits.min) * k + m, int(limits.max) * k + m
    return min(ends), max(ends)


def _fitting(dtypes: Sequence[np.dtype], whole: Sequence[tuple[int, int]], spare: bool) -> tuple[np.dtype, int | None] | None:
    """The smallest integer type that holds all, of the first's kind where that does, and a number that is left over.

    Where one must be left over to say missing, a wider type is taken for it.
    """
    ends = [_ends(d, k, m) for d, (k, m) in zip(dtypes, whole, strict=True)]
    low, high = min(a for a, _ in ends), max(b for _, b in ends)
    if max(-low, high) > _WHOLE:
        return None
    for kind in dict.fromkeys((dtypes[0].kind, "i")):
        for size in (1, 2, 4, 8):
            limits = np.iinfo(f"{kind}{size}")
            if limits.min <= low and high <= limits.max:
                free = limits.min if limits.min < low else limits.max if high < limits.max else None
                if free is not None or not spare:
                    return np.dtype(f"{kind}{size}"), free
    return None


def _identical(p: Packing, dtype: np.dtype, target: Packing, k: int, m: int, single: bool) -> bool:
    """Whether every number of the type is decoded to the same double before and after."""
    if (k, m) == (1, 0) and p == target:
        return True
    proved = m == 0 and p.offset == target.offset  # one product of exact factors, rounded once in both
    proved = proved or (_exact_product(p, *_ends(dtype, 1, 0)) and _exact_product(target, *_ends(dtype, k, m)))
    if proved and not single:
        return True
    if dtype.itemsize > 2:
        return False
    numbers = np.arange(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, dtype=np.int64)
    return all(
        np.array_equal(p.unpack(numbers, t), target.unpack(numbers * k + m, t))
        for t in ((np.dtype("f8"), np.dtype("f4")) if single else (np.dtype("f8"),))
    )


def _exact_product(packing: Packing, low: int, high: int) -> bool:
    """Whether the products are doubles without rounding, so that the sum is rounded once, from the true value."""
    odd = abs(packing.scale.numerator)
    odd //= odd & -odd
    return odd.bit_length() + max(-low, high, 1).bit_length() <= 53

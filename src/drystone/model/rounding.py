"""Values stored with less precision than they have, and how much that loses at most.

Rounding happens once, before a chunk is encoded: what is stored are ordinary numbers whose last bits are zero, which
compress better and need no codec to be read. Both ways are those of numcodecs (``BitRound``, ``Quantize``), bit for bit, but
for what must not change: NaN, infinities, and numbers that say missing or that unwritten cells read as stay as they are, and so
does a number whose rounded form would be infinite or one of those.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Loss", "Rounding", "mantissa_bits"]

_PIECE = 1 << 14  # elements rounded at a time: they and what is made of them stay in a core's own cache


def mantissa_bits(dtype: np.dtype) -> int:
    """Explicit bits of a floating-point type's mantissa.

    Examples
    --------
    >>> [mantissa_bits(np.dtype(t)) for t in ("f2", "f4", "f8")]
    [10, 23, 52]
    """
    return int(np.finfo(dtype).nmant)


@dataclass(frozen=True, slots=True)
class Loss:
    """A bound: a stored value differs from the granules' by at most ``relative`` of it plus ``absolute``.

    Parameters
    ----------
    how
        What loses it, in words, in the order that it happens.

    Examples
    --------
    >>> Loss(0.25, 0.0, ("a",)).then(Loss(0.5, 1.0, ("b",)))
    Loss(relative=0.875, absolute=1.0, how=('a', 'b'))
    """

    relative: float
    absolute: float
    how: tuple[str, ...]

    def then(self, other: Loss | None) -> Loss:
        """The bound of this loss and another one after it."""
        if other is None:
            return self
        relative = self.relative + other.relative + self.relative * other.relative
        absolute = self.absolute + other.absolute + other.relative * self.absolute
        return Loss(relative, absolute, (*self.how, *other.how))

    @property
    def text(self) -> str:
        """In one line."""
        return "; ".join(self.how)

    def to_json(self) -> dict[str, object]:
        """Plain JSON."""
        return {"relative": self.relative, "absolute": self.absolute, "how": list(self.how)}


@dataclass(frozen=True, slots=True)
class Rounding:
    """To some bits of the mantissa, or to some decimal digits behind the point.

    Parameters
    ----------
    keepbits
        Explicit mantissa bits that are kept: to the nearest, ties to even. Each costs a factor of two in relative error.
    digits
        Decimal digits behind the point that are kept, before it where negative: to the nearest multiple of the power of two
        that keeps them. Exactly one of the two is given.

    Examples
    --------
    >>> values = np.array([1.23456, np.nan, -999.9], "f4")
    >>> Rounding(keepbits=3).apply(values, np.array([-999.9], "f4"))
    >>> values.tolist()
    [1.25, nan, -999.9000244140625]
    >>> Rounding(digits=1).loss(np.dtype("f4")).absolute
    0.03125
    """

    keepbits: int | None = None
    digits: int | None = None

    def __post_init__(self) -> None:
        if (self.keepbits is None) == (self.digits is None):
            raise ValueError(f"either keepbits or digits is given, not {self.keepbits} and {self.digits}")

    def loss(self, dtype: np.dtype) -> Loss | None:
        """What it loses at most of numbers of a type; None: nothing.

        Numbers below the type's normal ones have no relative bound, hence a tiny absolute one.
        """
        if self.digits is not None:
            half = 0.5 / self._scale
            return Loss(0.0, half, (f"rounded to {self.digits} decimal digits, at most {half:.3g} off",))
        assert self.keepbits is not None
        if self.keepbits >= mantissa_bits(dtype):
            return None
        half = 0.5 ** (self.keepbits + 1)
        tiny = float(np.finfo(dtype).smallest_normal) * half
        return Loss(half, tiny, (f"rounded to {self.keepbits} bits of the mantissa, at most {half:.3g} of a value off",))

    @property
    def attributes(self) -> dict[str, object]:
        """The attributes by which netCDF's tools know it."""
        if self.digits is not None:
            return {"least_significant_digit": np.int32(self.digits)}
        return {"_QuantizeBitRoundNumberOfSignificantBits": np.int32(self.keepbits or 0)}

    @property
    def _scale(self) -> float:
        """A power of two, in the arithmetic of numcodecs."""
        assert self.digits is not None
        exponent = math.log10(10.0**-self.digits)
        exponent = math.floor(exponent) if exponent < 0 else math.ceil(exponent)
        return float(2.0 ** math.ceil(math.log2(10.0**-exponent)))

    def apply(self, values: NDArray[np.generic], kept: NDArray[np.generic]) -> None:
        """Round a contiguous array in place.

        Parameters
        ----------
        values
            Floating-point numbers.
        kept
            Numbers of the same type that stay, and that no other becomes.
        """
        flat, whole = values.reshape(-1), self.keepbits is not None and self.keepbits >= mantissa_bits(values.dtype)
        if whole:
            return
        with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
            for first in range(0, len(flat), _PIECE):
                self._piece(flat[first : first + _PIECE], kept)

    def _piece(self, values: NDArray[np.generic], kept: NDArray[np.generic]) -> None:
        rounded = self._bits(values) if self.digits is None else self._decimals(values)
        stay = np.isfinite(rounded)
        stay &= np.isfinite(values)
        for number in kept:
            stay &= rounded != number
            stay &= values != number
        if stay.all():
            values[...] = rounded
        else:
            np.copyto(values, rounded, where=stay)

    def _bits(self, values: NDArray[np.generic]) -> NDArray[np.generic]:
        dropped = mantissa_bits(values.dtype) - (self.keepbits or 0)
        bits = values.view(values.dtype.str.replace("f", "i"))
        one, half = bits.dtype.type(1), bits.dtype.type((1 << (dropped - 1)) - 1)
        out = bits >> bits.dtype.type(dropped)
        out &= one
        out += half
        out += bits
        out &= bits.dtype.type(-1) << bits.dtype.type(dropped)
        return np.asarray(out.view(values.dtype))

    def _decimals(self, values: NDArray[np.generic]) -> NDArray[np.generic]:
        scale = values.dtype.type(self._scale)
        out = np.multiply(values, scale)
        np.rint(out, out=out)
        np.divide(out, scale, out=out)
        return np.asarray(out)

    def to_json(self) -> dict[str, int]:
        """Plain JSON."""
        return {"keepbits": self.keepbits} if self.keepbits is not None else {"digits": self.digits or 0}

    @classmethod
    def from_json(cls, value: Mapping[str, int] | None) -> Rounding | None:
        """Read back what :meth:`to_json` wrote."""
        return None if value is None else cls(value.get("keepbits"), value.get("digits"))


def elements(raw: Sequence[bytes], dtype: np.dtype) -> NDArray[np.generic]:
    """Elements as numbers, each once, those that are no numbers left out."""
    numbers = np.frombuffer(b"".join(raw), dtype)
    return np.unique(numbers[numbers == numbers])

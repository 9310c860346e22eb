"""Values stored with less precision than they have, and how much that loses at most.

Rounding happens once, before a chunk is encoded: what is stored are ordinary numbers whose last bits are zero, which
compress better and need no codec to be read. Both ways are those of numcodecs (``BitRound``, ``Quantize``), bit for bit, but
for what must not change: NaN, infinities, and numbers that say missing or that unwritten cells read as stay as they are, and so
does a number whose rounded form would be infinite or one of those.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

__all__ = ["Loss", "Rounding", "mantissa_bits"]

_PIECE = 1 << 15  # elements rounded at a time: they and what is made of them stay in a core's own cache


type _Rounded = Callable[[NDArray[np.generic], NDArray[np.generic]], None]


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
            return Loss(0.0, half, (f"rounded to {_many(self.digits, 'decimal digit')}, at most {half:.3g} off",))
        assert self.keepbits is not None
        if self.keepbits >= mantissa_bits(dtype):
            return None
        half = 0.5 ** (self.keepbits + 1)
        tiny = float(np.finfo(dtype).smallest_normal) * half
        return Loss(
            half, tiny, (f"rounded to {_many(self.keepbits, 'bit')} of the mantissa, at most {half:.3g} of a value off",)
        )

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
        if self.keepbits is not None and self.keepbits >= mantissa_bits(values.dtype):
            return
        flat, dtype, numbers = values.reshape(-1), values.dtype, [float(k) for k in kept]
        largest = _largest(dtype) / 4
        relative, absolute = (0.5, 0.0) if self.digits is None else (0.0, 0.5 / self._scale)
        if self.digits is not None:
            largest /= max(self._scale, 1.0)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
            rounded = self._rounded(dtype)
            for first in range(0, len(flat), _PIECE):
                piece = flat[first : first + _PIECE]
                # two passes that save ten: may a value be, or become, infinite, NaN or one that stays?
                low, high = float(piece.min()), float(piece.max())
                reach = relative * max(abs(low), abs(high)) + absolute
                finite = -largest < low and high < largest
                near = [k for k in numbers if not finite or low - reach <= k <= high + reach]
                if finite and not near:
                    rounded(piece, piece)
                else:
                    _with_care(piece, near, finite, rounded)

    def _rounded(self, dtype: np.dtype) -> _Rounded:
        """What rounds numbers of a type into another array, or the same."""
        if self.digits is None:
            return partial(_bits, dropped=mantissa_bits(dtype) - (self.keepbits or 0))
        return partial(_steps, scale=dtype.type(self._scale))

    def to_json(self) -> dict[str, int]:
        """Plain JSON."""
        return {"keepbits": self.keepbits} if self.keepbits is not None else {"digits": self.digits or 0}

    @classmethod
    def from_json(cls, value: Mapping[str, int] | None) -> Rounding | None:
        """Read back what :meth:`to_json` wrote."""
        return None if value is None else cls(value.get("keepbits"), value.get("digits"))


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _largest(dtype: np.dtype) -> float:
    return float(np.finfo(dtype).max)


def _with_care(values: NDArray[np.generic], kept: Sequence[float], finite: bool, rounded: _Rounded) -> None:
    """Round but for what stays; ``finite`` says that nothing is or becomes infinite or NaN."""
    out = np.empty_like(values)
    rounded(values, out)
    stay = np.zeros(values.shape, np.bool_) if finite else ~(np.isfinite(out) & np.isfinite(values))
    for number in np.array(kept, values.dtype):
        stay |= out == number
        itself = np.array([number])
        rounded(itself, itself)
        if itself[0] != number:  # else rounding leads from the number to itself alone
            stay |= values == number
    if stay.any():
        np.copyto(out, values, where=stay)
    values[...] = out


def _steps(values: NDArray[np.generic], out: NDArray[np.generic], scale: np.floating) -> None:
    np.multiply(values, scale, out=out)
    np.rint(out, out=out)
    np.divide(out, scale, out=out)


def _bits(values: NDArray[np.generic], out: NDArray[np.generic], dropped: int) -> None:
    """Half a step and the last kept bit are added, which carries where the rest is more than half; then the rest goes."""
    integer = np.dtype(f"i{values.itemsize}")
    bits = values.view(integer)
    sums = np.right_shift(bits, integer.type(dropped))
    sums &= integer.type(1)
    sums += bits
    sums += integer.type((1 << (dropped - 1)) - 1)
    np.bitwise_and(sums, integer.type(-1) << integer.type(dropped), out=out.view(integer))


def elements(raw: Sequence[bytes], dtype: np.dtype) -> NDArray[np.generic]:
    """Elements as numbers, each once, those that are no numbers left out."""
    numbers = np.frombuffer(b"".join(raw), dtype)
    return np.unique(numbers[numbers == numbers])

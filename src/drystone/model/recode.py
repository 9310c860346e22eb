"""How stored numbers of one granule become numbers of the whole: exactly, or an error.

Granules that pack, date or mark missing values each in their own way can still be one array where values are rewritten:
the same sum of whole numbers for a time axis with another origin, a decoded number for another packing, another sentinel
for missing data. A :class:`Recode` is that rewriting as a value. It is applied to decoded chunks in native byte order.
Nothing is rounded without a word: whole numbers stay whole or :class:`~drystone.errors.DecodeError` says which did not.

Times are the one place where a floating-point number stands for something else than itself: 1/24 of a day has no double,
and readers take the nearest nanosecond for it. So does :func:`whole_ticks`, and from there on all is whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from drystone.errors import DecodeError

__all__ = ["Recode", "whole_ticks"]


def whole_ticks(values: NDArray[np.generic], tick: int, step: int = 1) -> NDArray[np.object_]:
    """Numbers as whole ticks (nanoseconds), as readers of netCDF decode them.

    Parameters
    ----------
    values
        Whole or floating-point numbers, none of them NaN or infinite.
    tick
        Ticks in the unit that the numbers count.
    step
        1: a floating-point number is the nearest tick of its product in double precision, as xarray decodes to
        ``datetime64[ns]``. Else the nearest multiple of ``step`` of the exact product, as cftime decodes to microseconds.

    Returns
    -------
    NDArray[np.object_]
        Python integers, which do not overflow.

    Examples
    --------
    >>> whole_ticks(np.array([0.5, 1 / 24]), 86_400 * 10**9)
    array([43200000000000, 3600000000000], dtype=object)
    """
    if values.dtype.kind in "iu":
        return np.asarray(values.astype(object) * tick, object)
    numbers = values.astype(np.float64)
    if step == 1:
        whole = [int(v) for v in np.rint(numbers * float(tick)).reshape(-1).tolist()]
    else:
        whole = [round(Fraction(v) * tick / step) * step for v in numbers.reshape(-1).tolist()]
    out = np.empty(len(whole), object)
    out[:] = whole
    return out.reshape(values.shape)


def _inside(values: NDArray[np.generic], dtype: np.dtype) -> NDArray[np.bool_]:
    """Whether numbers are within the ends of an integer type: beyond them a cast may wrap and come back the same."""
    limits = np.iinfo(dtype)
    if values.dtype.kind != "f":
        whole: NDArray[np.integer] = values.astype(values.dtype)
        return np.asarray((whole >= limits.min) & (whole <= limits.max))
    wide = values.astype(np.float64)  # which holds the first whole number above any integer type, and NaN is not inside
    return np.asarray((wide >= float(limits.min)) & (wide < float(limits.max + 1)))


def _holds_all(source: np.dtype, target: np.dtype) -> bool:
    """Whether a type has every number of another; NumPy calls whole numbers of 8 bytes in a double safe, which they are not."""
    return np.can_cast(source, target, "safe") and not (source.kind in "iu" and source.itemsize == 8 and target.kind == "f")


def _lost(values: NDArray[np.generic], clash: NDArray[np.bool_], sentinel: np.generic) -> DecodeError:
    """Data that would read as missing."""
    count, first = int(clash.sum()), tuple(int(i) for i in np.unravel_index(int(np.argmax(clash)), clash.shape))
    number = np.asarray(values)[clash].reshape(-1)[0]
    return DecodeError(
        f"{count} of {clash.size} stored numbers, {number} first at {first}, would read as {sentinel}, which says missing in "
        "the whole, but they are data here and would be lost; say combine: {differences: {fill: widen}} for a wider type with "
        "a number that no granule can hold, or for a store fill_value: {VARIABLE: NUMBER} with one that none holds",
        kind="recode-missing",
        value=str(number),
        count=count,
    )


@dataclass(frozen=True, slots=True)
class Recode:
    """Rewriting of stored numbers: read as unsigned, find missing ones, scale, shift, convert.

    Parameters
    ----------
    dtype
        Of the result, native.
    unsigned
        Signed numbers are first read as unsigned ones of the same size.
    missing
        Bytes of native elements, after ``unsigned``, that mean missing; NaN is compared by its bits.
    missing_as
        Bytes of the element of the result that says missing. A number that is not missing and would become this one is an
        error, but for NaN.
    scale, offset
        ``value * scale + offset``. Between whole numbers it is computed exactly; into floating point as one
        multiplication and one addition in double precision, as netCDF readers unpack.
    tick, step
        Not 0 for times: values are first whole ticks (:func:`whole_ticks`), then scaled and shifted exactly. A
        floating-point result must be decoded to the same ticks.
    near
        Numbers are rounded to the nearest of the type, by the user's own word: floating-point ones to narrower ones, never
        to infinity; into whole ones they are packed as writers of netCDF do it, ``(value - offset) / scale``.
    then
        What is done with the result.

    Examples
    --------
    >>> days_to_hours = Recode(np.dtype("i8"), scale=Fraction(24), offset=Fraction(48))
    >>> days_to_hours.apply(np.array([0, 1, 2], "i4"))
    array([48, 72, 96])
    >>> unpack = Recode(np.dtype("f8"), missing=(np.int16(-99).tobytes(),), missing_as=np.float64("nan").tobytes(),
    ...                 scale=Fraction(0.5), offset=Fraction(10))
    >>> unpack.apply(np.array([2, -99], "i2"))
    array([11., nan])
    >>> Recode.from_json(unpack.to_json()) == unpack
    True
    """

    dtype: np.dtype
    unsigned: bool = False
    missing: tuple[bytes, ...] = ()
    missing_as: bytes | None = None
    scale: Fraction = Fraction(1)
    offset: Fraction = Fraction(0)
    tick: int = 0
    step: int = 1
    near: bool = False
    then: Recode | None = None

    @property
    def result(self) -> Recode:
        """The last step."""
        return self if self.then is None else self.then.result

    def apply(self, values: NDArray[np.generic]) -> NDArray[np.generic]:
        """Rewrite decoded values of any shape.

        Raises
        ------
        DecodeError
            A number has no exact place in the result; the message has the number.
        """
        if self.unsigned:
            values = values.view(values.dtype.str.replace("i", "u"))
        gone = self._missing(values)
        out = self._scaled(values, gone)
        if self.missing_as is not None:
            sentinel = np.frombuffer(self.missing_as, self.dtype, 1)[0]
            clash = (out == sentinel) & ~gone  # never true for NaN, which is missing wherever it stands
            if clash.any():
                raise _lost(values, clash, sentinel)
            out[gone] = sentinel
        return out if self.then is None else self.then.apply(out)

    def _missing(self, values: NDArray[np.generic]) -> NDArray[np.bool_]:
        gone = np.zeros(values.shape, np.bool_)
        for raw in self.missing:
            element = np.frombuffer(raw, values.dtype, 1)[0]
            gone |= values != values if element != element else values == element
        return gone

    def _scaled(self, values: NDArray[np.generic], gone: NDArray[np.bool_]) -> NDArray[np.generic]:
        if self.tick and "f" in (values.dtype.kind, self.dtype.kind):
            return self._timed(values, gone)
        plain = self.scale == 1 and self.offset == 0
        if self.near and values.dtype.kind == "f":
            return self._packed(values, gone) if self.dtype.kind in "iu" else self._narrowed(values, gone)
        if self.dtype.kind == "f" and not plain:
            with np.errstate(over="ignore", invalid="ignore"):  # infinities are what readers unpack, too
                return (values.astype(np.float64) * float(self.scale) + float(self.offset)).astype(self.dtype)
        if plain and _holds_all(values.dtype, self.dtype):
            return values.astype(self.dtype)
        if plain:
            with np.errstate(invalid="ignore", over="ignore"):  # what does not fit is found on the next lines
                out = values.astype(self.dtype)
                back = out.astype(values.dtype)
            lost = (back != values) & (values == values) & ~gone
            if self.dtype.kind in "iu":
                lost |= ~_inside(values, self.dtype) & ~gone
            elif values.dtype.kind in "iu":  # the way back from beyond the ends may lead anywhere, to the number itself too
                lost |= ~_inside(out, values.dtype) & ~gone
            if lost.any():
                raise self._refused(values[lost].reshape(-1)[0])
            return out
        return self._whole(values, gone)

    def _narrowed(self, values: NDArray[np.generic], gone: NDArray[np.bool_]) -> NDArray[np.generic]:
        """Floating-point numbers as the nearest narrower ones."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            out = values.astype(self.dtype)
        beyond = np.isinf(out) & np.isfinite(values) & ~gone
        if beyond.any():
            raise self._beyond(values[beyond].reshape(-1)[0], np.finfo(self.dtype).max)
        return out

    def _packed(self, values: NDArray[np.generic], gone: NDArray[np.bool_]) -> NDArray[np.generic]:
        """Floating-point numbers as whole ones of a scale and an offset."""
        with np.errstate(over="ignore", invalid="ignore"):
            steps = np.rint((values.astype(np.float64) - float(self.offset)) / float(self.scale))
        beyond = ~_inside(steps, self.dtype) & ~gone  # NaN and infinities, too
        if beyond.any():
            limits = np.iinfo(self.dtype)
            ends = sorted(float(n * self.scale + self.offset) for n in (int(limits.min), int(limits.max)))
            raise self._beyond(values[beyond].reshape(-1)[0], f"{ends[0]:.6g} to {ends[1]:.6g}")
        with np.errstate(invalid="ignore"):  # of missing ones
            return np.asarray(steps.astype(self.dtype))

    def _beyond(self, number: object, ends: object) -> DecodeError:
        packed = self.dtype.kind in "iu"
        what = f"packed into {self.dtype} it would have to lie in {ends}" if packed else f"the largest {self.dtype} is {ends}"
        return DecodeError(f"the number {number} does not fit: {what}", kind="recode-range", value=str(number))

    def _whole(self, values: NDArray[np.generic], gone: NDArray[np.bool_]) -> NDArray[np.generic]:
        """Whole numbers from whole numbers."""
        if values.dtype.kind not in "iu":
            raise self._refused(values.reshape(-1)[0] if values.size else 0)
        out = np.zeros(values.shape, self.dtype)
        wanted = values[~gone]
        if not wanted.size:
            return out
        step = np.lcm.reduce([self.scale.denominator, self.offset.denominator], dtype=object)
        times, plus = int(self.scale * step), int(self.offset * step)
        ends = [int(wanted.min()), int(wanted.max())]
        limits, most = np.iinfo(self.dtype), np.iinfo(np.int64).max
        for number in ends:
            if not limits.min <= number * self.scale + self.offset <= limits.max:
                raise self._refused(number)
        # Python's integers do not overflow, NumPy's are fast
        fits = all(abs(n * times) + abs(plus) <= most and n <= most for n in ends) and step <= most
        numbers = wanted.astype(np.int64 if fits else object) * times + plus
        rest = numbers % step != 0
        if rest.any():
            raise self._refused(wanted[rest.astype(np.bool_)][0])
        out[~gone] = (numbers // step).astype(self.dtype)
        return out

    def _timed(self, values: NDArray[np.generic], gone: NDArray[np.bool_]) -> NDArray[np.generic]:
        """Times from or to floating point, by ticks: the distinct ones, in Python's integers."""
        out = np.zeros(values.shape, self.dtype)
        finite = np.isfinite(values.astype(np.float64))
        odd = ~finite & ~gone
        if odd.any():
            if self.dtype.kind != "f":
                raise self._refused(values[odd][0])
            out[odd] = values[odd]
        wanted = finite & ~gone
        numbers, inverse = np.unique(values[wanted], return_inverse=True)
        unit = Fraction(self.tick) / self.scale  # ticks in the result's unit
        told = [Fraction(int(t)) / unit + self.offset for t in whole_ticks(numbers, self.tick, self.step).tolist()]
        if self.dtype.kind == "f":
            with np.errstate(over="ignore"):  # what does not fit is found on the next line
                result = np.array([float(t) for t in told], np.float64).astype(self.dtype)
            same = np.isfinite(result.astype(np.float64))
            back = whole_ticks(np.where(same, result, 0).astype(self.dtype), int(unit), self.step)
            same &= np.array([b == t * unit for b, t in zip(back.tolist(), told, strict=True)], np.bool_)
        else:
            limits = np.iinfo(self.dtype)
            same = np.array([t.denominator == 1 and limits.min <= t <= limits.max for t in told], np.bool_)
            result = np.array([int(t) if ok else 0 for t, ok in zip(told, same.tolist(), strict=True)], self.dtype)
        if not same.all():
            raise self._refused(numbers[~same][0])
        out[wanted] = result[inverse.reshape(-1)]
        return out

    def _refused(self, number: object) -> DecodeError:
        plain = self.scale == 1 and self.offset == 0
        how = "" if plain else f" times {self.scale} plus {self.offset}"
        return DecodeError(
            f"the stored number {number}{how} is no {self.dtype}: it cannot be rewritten exactly",
            kind="recode-inexact",
            value=str(number),
        )

    def to_json(self) -> dict[str, object]:
        """Exact JSON."""
        return {
            "dtype": self.dtype.str,
            "unsigned": self.unsigned,
            "missing": [m.hex() for m in self.missing],
            "missing_as": None if self.missing_as is None else self.missing_as.hex(),
            "scale": str(self.scale),
            "offset": str(self.offset),
            "tick": self.tick,
            "step": self.step,
            "near": self.near,
            "then": None if self.then is None else self.then.to_json(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> Recode:
        """Read back what :meth:`to_json` wrote."""
        missing, gone, then = value["missing"], value["missing_as"], value["then"]
        assert isinstance(missing, list)
        assert then is None or isinstance(then, Mapping)
        return cls(
            np.dtype(str(value["dtype"])),
            bool(value["unsigned"]),
            tuple(bytes.fromhex(str(m)) for m in missing),
            None if gone is None else bytes.fromhex(str(gone)),
            Fraction(str(value["scale"])),
            Fraction(str(value["offset"])),
            int(str(value["tick"])),
            int(str(value["step"])),
            bool(value["near"]),
            None if then is None else cls.from_json(then),
        )

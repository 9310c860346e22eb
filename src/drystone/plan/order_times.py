"""Times as exact numbers: calendars, ``unit since reference``, and back.

An *instant* is a number of nanoseconds since 1970-01-01 in its own calendar (int64 where all fit, Python numbers
elsewhere). A floating-point time stands for the roundest instant that it is the nearest number to: 0.1 days is 8640
seconds, though no double is a tenth. That keeps order, keeps different numbers apart, and lets ``0.1 days since`` and
``2.4 hours since`` one reference be one instant, which comparing numbers does not. What is the nearest number to no whole
microsecond is taken as the exact fraction that it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "GREGORIAN_START",
    "Clock",
    "calendar_name",
    "encode",
    "from_iso",
    "instants",
    "iso",
    "month_start",
    "months_of",
    "narrow",
    "parse_clock",
]

_DAY = 86_400_000_000_000
_UNITS = {
    "day": _DAY, "d": _DAY, "hour": _DAY // 24, "h": _DAY // 24, "hr": _DAY // 24, "minute": 60 * 10**9, "min": 60 * 10**9,
    "second": 10**9, "s": 10**9, "sec": 10**9, "millisecond": 10**6, "msec": 10**6, "ms": 10**6, "microsecond": 10**3,
    "us": 10**3, "µs": 10**3, "nanosecond": 1, "ns": 1, "week": 7 * _DAY,
}  # fmt: skip
_ALIASES = {"gregorian": "standard", "365_day": "noleap", "366_day": "all_leap", "none": "none", "": "standard"}
_KNOWN = ("standard", "proleptic_gregorian", "noleap", "all_leap", "360_day", "julian")
_REFERENCE = re.compile(
    r"([+-]?\d{1,6})-(\d{1,2})(?:-(\d{1,2}))?"
    r"(?:[T ]+(\d{1,2})(?::(\d{1,2}))?(?::(\d{1,2})(?:\.(\d*))?)?)?"
    r"\s*(Z|UTC|GMT|[+-]\d{1,2}(?::?\d{2})?)?",
    re.IGNORECASE,
)
_SMALL = 1 << 53
_WIDE = 1 << 62
_SWITCH = -141_427  # 1582-10-15 in days since 1970-01-01, the first Gregorian day of the standard calendar
GREGORIAN_START = _SWITCH * _DAY


@dataclass(frozen=True, slots=True)
class Clock:
    """What a time's ``units`` and ``calendar`` say: nanoseconds a unit, the reference as an instant, the calendar.

    Examples
    --------
    >>> parse_clock("hours since 1970-01-02 12:00", "gregorian")
    Clock(unit=3600000000000, epoch=129600000000000, calendar='standard', reference='1970-01-02 12:00')
    """

    unit: int
    epoch: int
    calendar: str
    reference: str


def calendar_name(text: str | None) -> str:
    """One name for each calendar; none said is ``standard``.

    Examples
    --------
    >>> calendar_name("365_day"), calendar_name(None)
    ('noleap', 'standard')
    """
    name = (text or "").strip().lower()
    return _ALIASES.get(name, name)


def parse_clock(units: str, calendar: str | None) -> Clock | None:
    """Read ``unit since reference``; None where it is none, or one of no fixed length (months of a real calendar)."""
    unit, since, reference = re.sub(r"\s+since\s+", " since ", units.strip(), count=1, flags=re.IGNORECASE).partition(" since ")
    name, words = calendar_name(calendar), unit.strip().lower()
    if not since or name not in _KNOWN:
        return None
    size = _UNITS.get(words) or (_UNITS.get(words[:-1]) if words.endswith("s") else None)
    if size is None and name == "360_day":
        size = {"month": 30 * _DAY, "year": 360 * _DAY}.get(words.removesuffix("s"))
    epoch = from_iso(reference, name)
    return None if size is None or epoch is None else Clock(size, epoch, name, reference.strip())


def from_iso(text: str, calendar: str) -> int | None:
    """The instant that an ISO 8601 time is in a calendar; None where it is no date of that calendar.

    Examples
    --------
    >>> from_iso("2001-03-01", "noleap") - from_iso("2001-02-28", "noleap") == 86_400_000_000_000
    True
    >>> from_iso("2001-02-30", "noleap"), from_iso("2001-02-30", "360_day") is None
    (None, False)
    """
    match = _REFERENCE.fullmatch(text.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second = (
        int(v) if v else d for v, d in zip(match.groups()[:6], (0, 1, 1, 0, 0, 0), strict=True)
    )
    if not (1 <= month <= 12 and day >= 1 and hour <= 24 and minute < 60 and second < 60):
        return None
    days = int(_days(np.array(year), np.array(month), np.array(day), calendar))
    if tuple(int(v) for v in _civil(np.array(days), calendar)) != (year, month, day):
        return None
    fraction = int(f"{match[7] or '':0<9.9}")
    return days * _DAY + ((hour * 60 + minute) * 60 + second) * 10**9 + fraction - _zone(match[8])


def _zone(text: str | None) -> int:
    """Offset of a time zone in nanoseconds."""
    if text is None or text[0] not in "+-":
        return 0
    digits = text[1:].replace(":", "")
    hours, minutes = (int(digits[:-2]), int(digits[-2:])) if len(digits) > 2 else (int(digits), 0)
    return (1 if text[0] == "+" else -1) * (hours * 60 + minutes) * 60 * 10**9


def instants(values: NDArray[np.generic], clock: Clock) -> NDArray[np.generic]:
    """Times as instants, exact; values must be finite.

    Examples
    --------
    >>> clock = parse_clock("days since 1970-01-01", None)
    >>> (instants(np.array([0.1, 2]), clock) // 10**9).tolist()
    [8640, 172800]
    """
    if values.dtype.kind in "iub":
        if not len(values):
            return np.zeros(0, np.int64)
        low, high = (int(v) * clock.unit + clock.epoch for v in (values.min(), values.max()))
        if max(abs(low), abs(high), max(abs(int(values.min())), abs(int(values.max()))) * clock.unit) < _WIDE:
            return values.astype(np.int64) * clock.unit + clock.epoch
        return values.astype(object) * clock.unit + clock.epoch
    out = np.zeros(len(values), object)
    open_ = np.ones(len(values), np.bool_)
    wide = values.astype(np.float64)
    for grain in (10**9, 10**6, 10**3):
        if clock.unit % grain:
            continue
        ratio = clock.unit // grain
        with np.errstate(over="ignore"):
            near = np.rint(wide * ratio)
        fits = (np.abs(near) < _SMALL) & ((near / ratio).astype(values.dtype) == values)
        found = fits & open_
        if grain == 10**9 and found.all() and (not len(near) or float(np.abs(near).max()) * grain + abs(clock.epoch) < _WIDE):
            return near.astype(np.int64) * grain + clock.epoch
        open_ &= ~found
        out[found] = near[found].astype(np.int64).astype(object) * grain + clock.epoch
    for i in np.flatnonzero(open_).tolist():
        exact = Fraction(float(wide[i])) * clock.unit + clock.epoch
        out[i] = int(exact) if exact.denominator == 1 else exact
    return narrow(out)


def narrow(values: NDArray[np.generic]) -> NDArray[np.generic]:
    """Python numbers as int64 where each fits."""
    if values.dtype != object or not all(isinstance(v, int) and abs(v) < _WIDE for v in values.tolist()):
        return values
    return values.astype(np.int64)


def encode(times: NDArray[np.generic], clock: Clock, dtype: np.dtype) -> NDArray[np.generic] | None:
    """Instants in a clock's units; None where some have no exact number of that type.

    Examples
    --------
    >>> days = parse_clock("days since 1970-01-01", None)
    >>> encode(np.array([43_200_000_000_000]), days, np.dtype("f4"))
    array([0.5], dtype=float32)
    >>> encode(np.array([43_200_000_000_000]), days, np.dtype("i4")) is None
    True
    """
    if times.dtype == np.int64 and len(times) and abs(clock.epoch) < _WIDE:
        quick = _encode_small(times, clock, dtype)
        if quick is not None:
            return quick
    offset = [t - clock.epoch for t in times.tolist()]
    if dtype.kind in "iu":
        if any(t % clock.unit for t in offset):
            return None
        whole = [int(t // clock.unit) for t in offset]
        info = np.iinfo(dtype)
        return None if any(not info.min <= n <= info.max for n in whole) else np.array(whole, dtype)
    if dtype.kind != "f":
        return None
    # a ratio of whole numbers is the nearest double
    ratios = [Fraction(t) / clock.unit for t in offset]
    values: NDArray[np.generic] = np.array([r.numerator / r.denominator for r in ratios], np.float64).astype(dtype)
    return values if np.isfinite(values).all() and np.array_equal(instants(values, clock), times) else None


def _encode_small(times: NDArray[np.generic], clock: Clock, dtype: np.dtype) -> NDArray[np.generic] | None:
    """The same where 64 bits do: whole numbers of a doubles' bits over a whole number are the nearest double."""
    offset = times.astype(np.int64) - clock.epoch
    common = int(np.gcd.reduce(np.append(offset, clock.unit)))
    over, under = offset // common, clock.unit // common
    values: NDArray[np.generic] = (over if under == 1 else over / under).astype(dtype)
    if int(np.abs(over).max()) >= _SMALL or (dtype.kind in "iu" and under != 1):
        return None
    back = instants(values, clock)
    return values if dtype.kind in "iuf" and np.array_equal(back, times) else None


def iso(time: int | Fraction, calendar: str) -> str:
    """An instant as ISO 8601 text.

    Examples
    --------
    >>> iso(from_iso("2000-02-30 06:00", "360_day"), "360_day")
    '2000-02-30T06:00:00'
    """
    days, rest = divmod(time, _DAY)
    year, month, day = (int(v) for v in _civil(np.array(int(days)), calendar))
    seconds, fraction = divmod(rest, 10**9)
    hour, minute, second = int(seconds) // 3600, int(seconds) // 60 % 60, int(seconds) % 60
    tail = f".{int(fraction):09d}".rstrip("0") if fraction else ""
    return f"{year:04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}{tail if tail != '.' else ''}"


def months_of(times: NDArray[np.generic], calendar: str) -> NDArray[np.int64]:
    """int64: months since year 0 that instants lie in."""
    days = (times // _DAY).astype(np.int64)
    year, month, _ = _civil(days, calendar)
    return np.asarray(year * 12 + month - 1, np.int64)


def month_start(months: NDArray[np.int64], calendar: str) -> NDArray[np.generic]:
    """The first instants of months since year 0."""
    days = _days(months // 12, months % 12 + 1, np.ones_like(months), calendar)
    if len(days) and int(np.abs(days).max()) * _DAY < _WIDE:
        return days * _DAY
    return days.astype(object) * _DAY


type _Ints = NDArray[np.int64]

_BEFORE = np.array([0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334])
_BEFORE_LEAP = np.where(np.arange(12) > 1, _BEFORE + 1, _BEFORE)


def _days(year: _Ints, month: _Ints, day: _Ints, calendar: str) -> _Ints:
    """Days since 1970-01-01 in the calendar; those of ``standard`` and ``julian`` count like the proleptic Gregorian."""
    if calendar == "360_day":
        return np.asarray((year - 1970) * 360 + (month - 1) * 30 + day - 1)
    if calendar == "noleap":
        return np.asarray((year - 1970) * 365 + _BEFORE[month - 1] + day - 1)
    if calendar == "all_leap":
        return np.asarray((year - 1970) * 366 + _BEFORE_LEAP[month - 1] + day - 1)
    y = year - (month <= 2)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    gregorian = 365 * y + y // 4 - y // 100 + y // 400 + of_year - 719_468
    julian = 365 * y + y // 4 + of_year - 719_470
    if calendar == "julian":
        return np.asarray(julian)
    if calendar == "standard":
        return np.asarray(np.where(gregorian >= _SWITCH, gregorian, julian))
    return np.asarray(gregorian)


def _civil(days: _Ints, calendar: str) -> tuple[_Ints, _Ints, _Ints]:
    """Year, month and day of days since 1970-01-01."""
    if calendar == "360_day":
        return 1970 + days // 360, days % 360 // 30 + 1, days % 30 + 1
    if calendar in ("noleap", "all_leap"):
        before, length = (_BEFORE, 365) if calendar == "noleap" else (_BEFORE_LEAP, 366)
        of_year = days % length
        month = np.searchsorted(before, of_year, side="right")
        return 1970 + days // length, month, of_year - before[month - 1] + 1
    if calendar == "standard":
        parts = zip(_civil(days, "proleptic_gregorian"), _civil(days, "julian"), strict=True)
        year, month, day = (np.where(days >= _SWITCH, g, j) for g, j in parts)
        return year, month, day
    z = days + (719_470 if calendar == "julian" else 719_468)
    if calendar == "julian":
        era, of_era = z // 1461, z % 1461
        y = (of_era - of_era // 1460) // 365
        of_year, y = of_era - 365 * y, y + era * 4
    else:
        era, of_era = z // 146_097, z % 146_097
        y = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
        of_year, y = of_era - (365 * y + y // 4 - y // 100), y + era * 400
    m = (5 * of_year + 2) // 153
    month = np.where(m < 10, m + 3, m - 9)
    return y + (month <= 2), month, of_year - (153 * m + 2) // 5 + 1

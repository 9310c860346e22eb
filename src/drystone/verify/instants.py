"""Times as exact instants: ``units`` and ``calendar`` read and compared in whole numbers, without a float's rounding.

The witness loads this file by its path, so it imports nothing of drystone's.

An instant is a number of days and of nanoseconds within the day, in the calendar's own count, so that nothing overflows and
days since the year 1 are as exact as nanoseconds since 1970. A floating-point number is known to half a unit in the last
place of its double-precision product in nanoseconds, which is what readers compute, and where nanoseconds since 1970 do not
reach, or in calendars of models, to the microseconds that readers then count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

__all__ = ["Clock", "Packing", "calendar_of", "civil", "day_number", "day_of", "differs", "iso"]

type Array = np.ndarray[Any, np.dtype[Any]]
type Packing = tuple[Fraction, Fraction]

_DAY = 86_400 * 10**9
_UNITS = {
    ("nanosecond", "nanoseconds", "nanosec", "nanosecs", "nsec", "nsecs", "ns"): 1,
    ("microsecond", "microseconds", "microsec", "microsecs", "us"): 10**3,
    ("millisecond", "milliseconds", "millisec", "millisecs", "msec", "msecs", "ms"): 10**6,
    ("second", "seconds", "sec", "secs", "s"): 10**9,
    ("minute", "minutes", "min", "mins"): 60 * 10**9,
    ("hour", "hours", "hr", "hrs", "h"): 3600 * 10**9,
    ("day", "days", "d"): _DAY,
    ("week", "weeks"): 7 * _DAY,
}
_NANOSECONDS = {name: n for names, n in _UNITS.items() for name in names}
_OF_EQUAL_MONTHS = {"month": 30 * _DAY, "months": 30 * _DAY, "year": 360 * _DAY, "years": 360 * _DAY}
_CALENDARS = {
    "gregorian": "standard",
    "365_day": "noleap",
    "366_day": "all_leap",
}
_REFORM = -141_427  # 15 October 1582, in days since 1970-01-01: from here on two calendars are one
_FAR = 106_751  # days that 64 bits of nanoseconds reach
_WHEN = re.compile(
    r"(?P<year>[+-]?\d+)(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2}))?)?"
    r"(?:(?:\s+|T)(?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.(?P<part>\d*))?)?)?)?"
    r"\s*(?P<zone>Z|UTC|GMT|[+-]\d{1,2}(?::?\d{2})?)?",
    re.IGNORECASE,
)
_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True)
class Clock:
    """What a number of a time variable counts.

    Parameters
    ----------
    tick
        Nanoseconds that one counts.
    day, within
        What zero is: a day in the calendar's own count, and nanoseconds within it.
    calendar
        By its first name.

    Examples
    --------
    >>> Clock.of({"units": "hours since 1970-01-02 06:00 +06:00"})
    Clock(tick=3600000000000, day=1, within=0, calendar='standard')
    >>> Clock.of({"units": "days since 1970-01-02", "calendar": "proleptic_gregorian"}).day
    1
    >>> Clock.of({"units": "days"}) is None
    True
    """

    tick: int
    day: int
    within: int
    calendar: str

    @classmethod
    def of(cls, attributes: Mapping[str, object]) -> Clock | None:
        """From plain attributes; None where they say no time, or one in units without a fixed length."""
        words = re.split(r"\s+since\s+", str(attributes.get("units", "")).strip(), maxsplit=1, flags=re.IGNORECASE)
        if len(words) < 2:
            return None
        calendar = calendar_of(attributes)
        lengths = _NANOSECONDS | _OF_EQUAL_MONTHS if calendar == "360_day" else _NANOSECONDS
        tick = lengths.get(words[0].lower())
        found = _WHEN.fullmatch(words[1])
        if tick is None or found is None:
            return None
        part = {k: int(v) for k, v in found.groupdict().items() if v and k not in ("zone", "part")}
        day = day_number(calendar, part["year"], part.get("month", 1), part.get("day", 1))
        digits = (found["part"] or "").ljust(9, "0")
        if day is None or digits[9:].strip("0"):
            return None
        seconds = part.get("hour", 0) * 3600 + part.get("minute", 0) * 60 + part.get("second", 0) - _zone(found["zone"])
        more, within = divmod(seconds * 10**9 + int(digits[:9]), _DAY)
        return cls(tick, day + more, within, calendar)

    def counts_as(self, other: Clock) -> bool:
        """Whether equal numbers are equal instants, at the least from the Gregorian reform on."""
        gregorian = {"standard", "proleptic_gregorian"}
        alike = self.calendar == other.calendar or {self.calendar, other.calendar} == gregorian
        return alike and (self.tick, self.day, self.within) == (other.tick, other.day, other.within)


def calendar_of(attributes: Mapping[str, object]) -> str:
    """A calendar by its first name; the default is the Gregorian one of CF."""
    name = str(attributes.get("calendar", "standard")).strip().lower()
    return _CALENDARS.get(name, name)


def _zone(text: str | None) -> int:
    """Seconds east of Greenwich."""
    if not text or text[0] not in "+-":
        return 0
    hours, _, minutes = text[1:].partition(":")
    if len(hours) > 2:
        hours, minutes = hours[:-2], hours[-2:]
    seconds = int(hours) * 3600 + int(minutes or 0) * 60
    return -seconds if text[0] == "-" else seconds


def day_number(calendar: str, year: int, month: int, day: int) -> int | None:
    """Days since 1970-01-01 where a calendar follows the sun, since its year 0 elsewhere; None for no such day."""
    if calendar == "360_day":
        return year * 360 + (month - 1) * 30 + day - 1 if 1 <= month <= 12 and 1 <= day <= 30 else None
    leap = calendar == "all_leap"
    if calendar == "proleptic_gregorian" or (calendar == "standard" and (year, month, day) >= (1582, 10, 15)):
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    elif calendar in ("standard", "julian"):
        leap = year % 4 == 0
        if year < 1 or (calendar == "standard" and (year, month, day) > (1582, 10, 4)):
            return None  # these calendars have no year 0, and one of them no such days
    elif calendar not in ("noleap", "all_leap"):
        return None
    if not 1 <= month <= 12 or not 1 <= day <= _LENGTHS[month - 1] + (leap and month == 2):
        return None
    past = sum(_LENGTHS[: month - 1]) + (leap and month > 2) + day - 1
    if calendar == "noleap":
        return year * 365 + past
    if calendar == "all_leap":
        return year * 366 + past
    before = year - 1
    days = before * 365 + before // 4 + past
    if calendar == "proleptic_gregorian" or (calendar == "standard" and (year, month, day) >= (1582, 10, 15)):
        return days - before // 100 + before // 400 - 719_162
    return days - 719_164


def civil(day: int, calendar: str) -> tuple[int, int, int]:
    """Year, month and day of the month of a day in a calendar's own count.

    Examples
    --------
    >>> civil(18_321, "standard"), civil(2000 * 360 + 59, "360_day"), civil(-141_428, "standard")
    ((2020, 2, 29), (2000, 2, 30), (1582, 10, 4))
    """
    length = {"360_day": 360, "noleap": 365, "all_leap": 366}.get(calendar)
    year = day // length if length else 1970 + day // 366
    while (new := day_number(calendar, year + 1, 1, 1)) is not None and new <= day:
        year += 1
    while (new := day_number(calendar, year, 1, 1)) is None or new > day:
        year -= 1
        if year < -1_000_000 or (new is None and year < 1):
            raise ValueError(f"day {day} is in no year of the calendar {calendar}")
    firsts = [(new, m) for m in range(1, 13) if (new := day_number(calendar, year, m, 1)) is not None and new <= day]
    first, month = firsts[-1]
    gone = 10 if calendar == "standard" and (year, month) == (1582, 10) and day - first > 3 else 0
    return year, month, day - first + 1 + gone


def day_of(values: Array, clock: Clock, packing: Packing | None) -> Array:
    """The day, in the calendar's own count, of each number."""
    return _instant(values, clock, packing)[0]


def iso(value: Array, clock: Clock, packing: Packing | None = None) -> str | None:
    """One number as an ISO 8601 time to the nanosecond; None where it is none.

    Examples
    --------
    >>> iso(np.array(31.25), Clock.of({"units": "days since 2001-02-01", "calendar": "noleap"}))
    '2001-03-04T06:00:00'
    """
    if np.asarray(value).dtype.kind not in "iuf":
        return None
    day, within, rest, odd = (a.reshape(-1)[0] for a in _instant(np.asarray(value).reshape(1), clock, packing))
    if odd:
        return None
    more, within = divmod(int(within) + round(float(rest)), _DAY)
    try:
        year, month, date = civil(int(day) + more, clock.calendar)
    except ValueError:
        return None
    seconds, part = divmod(within, 10**9)
    tail = f".{part:09d}".rstrip("0") if part else ""
    return f"{year:04d}-{month:02d}-{date:02d}T{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{tail}"


def differs(a: Array, one: Clock, b: Array, two: Clock, packed: tuple[Packing | None, Packing | None] = (None, None)) -> Array:
    """Where the instants of two arrays of numbers are a nanosecond or more apart, bool; more than readers round, for floats.

    Examples
    --------
    >>> hours, days = (Clock.of({"units": f"{u} since {d}"}) for u, d in (("hours", "1970-01-01"), ("days", "1969-12-31")))
    >>> differs(np.array([6, 7]), hours, np.array([1.25, 1.25]), days).tolist()
    [False, True]
    """
    day_a, within_a, rest_a, odd_a = _instant(a, one, packed[0])
    day_b, within_b, rest_b, odd_b = _instant(b, two, packed[1])
    # a fraction of a year is up to 360 days, so what is 400 days apart cannot meet
    apart = np.clip(day_a - day_b, -400, 400) * _DAY + (within_a - within_b)
    fine = all(c.calendar in ("standard", "proleptic_gregorian") and abs(c.day) < _FAR for c in (one, two))
    wrong = np.abs(apart + (rest_a - rest_b)) >= 1 + _blur(a, one, packed[0], fine) + _blur(b, two, packed[1], fine)
    if one.calendar != two.calendar:
        same = {one.calendar, two.calendar} == {"standard", "proleptic_gregorian"}
        wrong |= (day_a < _REFORM) | (day_b < _REFORM) if same else True
    odd = odd_a | odd_b
    equal = (one == two) & odd_a & odd_b & (a == b)  # infinite, or beyond all counting
    return np.asarray(np.where(odd, ~equal, wrong), bool)


def _blur(values: Array, clock: Clock, packing: Packing | None, fine: bool) -> Array | float:
    """Nanoseconds that readers may round a number by."""
    if values.dtype.kind != "f" and packing is None:
        return 0.0
    wide = values.astype(np.float64) * (float(packing[0]) if packing else 1.0) + (float(packing[1]) if packing else 0.0)
    return np.spacing(np.where(np.isfinite(wide), np.abs(wide), 0) * clock.tick) / 2 + (0.0 if fine else 500.0)


def _instant(values: Array, clock: Clock, packing: Packing | None) -> tuple[Array, Array, Array, Array]:
    """Days, nanoseconds within them, the part of a nanosecond count that a fraction adds, and what cannot be counted."""
    whole, rest, odd = _packed(values, packing) if packing else _parts(values)
    if clock.tick >= _DAY:
        day, within = whole * (clock.tick // _DAY), np.zeros_like(whole)
    else:
        per_day = _DAY // clock.tick
        day, within = whole // per_day, (whole % per_day) * clock.tick
    within = within + clock.within
    return day + clock.day + within // _DAY, within % _DAY, rest * clock.tick, odd


def _parts(values: Array) -> tuple[Array, Array, Array]:
    """Whole numbers (int64), fractions (float64) and which are too large to be told apart."""
    if values.dtype.kind in "iub":
        odd = values > 2**60 if values.dtype == np.uint64 else np.abs(values.astype(np.int64)) > 2**60
        return np.where(odd, 0, values).astype(np.int64), np.zeros(values.shape), np.asarray(odd, bool)
    wide = values.astype(np.float64)
    odd = ~(np.abs(wide) < 2.0**60)
    floor = np.floor(np.where(odd, 0, wide))
    return floor.astype(np.int64), np.where(odd, 0, wide) - floor, odd


def _packed(values: Array, packing: Packing) -> tuple[Array, Array, Array]:
    """As :func:`_parts`, of numbers times a scale plus an offset: exact, and slow, for what is rare."""
    scale, offset = packing
    found, where = np.unique(values, return_inverse=True)
    odd = ~np.isfinite(found) if found.dtype.kind == "f" else np.zeros(found.shape, bool)
    exact = [Fraction(0) if bad else Fraction(v) * scale + offset for v, bad in zip(found.tolist(), odd.tolist(), strict=True)]
    odd = odd | np.array([abs(v) > 2**60 for v in exact], bool)
    whole = np.array([0 if bad else v.__floor__() for v, bad in zip(exact, odd.tolist(), strict=True)], np.int64)
    rest = np.array([float(v - v.__floor__()) for v in exact], np.float64)
    at = where.reshape(values.shape)
    return whole[at], rest[at], odd[at]

"""What a time coordinate's numbers mean, and one encoding for granules that count from different dates.

Dates are exact whole nanoseconds in their own calendar: no instant of one calendar is ever compared with one of another.
``standard`` and ``proleptic_gregorian`` are the exception that is none: from 1582-10-15 on they are one calendar.

A whole number of units is an exact instant. A floating-point number is the instant that readers decode it to: the nearest
nanosecond of the double-precision product where ``datetime64[ns]`` holds it (xarray), the nearest microsecond elsewhere
(cftime). One encoding for all is the first granule's where it holds every instant exactly; else whole numbers of the
coarsest unit that does, since the first granule's reference.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from drystone.model.recode import whole_ticks

__all__ = ["TimeEncoding", "TimeTarget", "calendar_of", "choose", "is_time", "parse", "same_calendar"]

_DAY = 86_400 * 10**9
_UNITS = {
    "days": (_DAY, "d day days"),
    "hours": (3600 * 10**9, "h hr hrs hour hours"),
    "minutes": (60 * 10**9, "min mins minute minutes"),
    "seconds": (10**9, "s sec secs second seconds"),
    "milliseconds": (10**6, "ms msec msecs millisec millisecs millisecond milliseconds"),
    "microseconds": (10**3, "us usec usecs microsec microsecs microsecond microseconds"),
    "nanoseconds": (1, "ns nsec nsecs nanosec nanosecs nanosecond nanoseconds"),
}
_BY_WORD = {word: ns for ns, words in _UNITS.values() for word in words.split()}
_ALIASES = {"gregorian": "standard", "365_day": "noleap", "366_day": "all_leap"}
_SINCE = re.compile(r"\s*(\S+)\s+since\s+(.*\S)\s*", re.IGNORECASE | re.DOTALL)
_DATE = re.compile(
    r"(?P<year>[+-]?\d{1,6})-(?P<month>\d{1,2})-(?P<day>\d{1,2})"
    r"(?:(?:\s+|[Tt])(?P<hour>\d{1,2}):(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d*))?)?"
    r"(?:\s*(?P<zone>Z|z|UTC|utc|GMT|gmt|[+-]\d{2}(?::?\d{2})?))?)?"
)
_MONTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_REFORM = 2_299_161  # Julian day number of 1582-10-15, the first of the Gregorian calendar
# what datetime64[ns] holds, in nanoseconds of the Julian day number; a day off each end
_NS_FIRST, _NS_LAST = ((_EPOCH := 2_440_588) - 106_750) * _DAY, (_EPOCH + 106_750) * _DAY


@dataclass(frozen=True, slots=True)
class TimeEncoding:
    """``units`` and ``calendar`` as numbers.

    Parameters
    ----------
    unit
        Nanoseconds.
    reference
        Instant of number 0, in nanoseconds since the calendar's own day 0.
    calendar
        By its one name: ``standard``, ``proleptic_gregorian``, ``julian``, ``noleap``, ``all_leap``, ``360_day``.
    """

    unit: int
    reference: int
    calendar: str

    @property
    def fine(self) -> bool:
        """Whether readers decode to nanoseconds: a Gregorian reference within ``datetime64[ns]``."""
        return self.calendar in ("standard", "proleptic_gregorian") and _NS_FIRST <= self.reference <= _NS_LAST

    def ticks(self, values: NDArray[np.generic], fine: bool) -> NDArray[np.object_]:
        """Nanoseconds since the reference."""
        return whole_ticks(values, self.unit, 1 if fine else 1000)


def is_time(units: str | None) -> bool:
    """Whether units say a time since a date.

    Examples
    --------
    >>> is_time("days since 2000-01-01"), is_time("days"), is_time(None)
    (True, False, False)
    """
    return units is not None and _SINCE.fullmatch(units) is not None


def calendar_of(text: str | None) -> str:
    """A calendar by its one name; the default is ``standard``.

    Examples
    --------
    >>> calendar_of("Gregorian"), calendar_of("365_day"), calendar_of(None)
    ('standard', 'noleap', 'standard')
    """
    name = (text or "standard").strip().lower()
    return _ALIASES.get(name, name)


def parse(units: str, calendar: str | None = None) -> TimeEncoding | None:
    """What the texts mean; None where they say no exact unit, no date of that calendar, or no calendar we know.

    Examples
    --------
    >>> parse("days since 2000-1-1") == parse("d since 2000-01-01T01:00 +01:00", "gregorian")
    True
    >>> parse("months since 2000-01-01") is None
    True
    """
    found = _SINCE.fullmatch(units)
    unit = _BY_WORD.get(found[1].lower()) if found else None
    date = _DATE.fullmatch(found[2]) if found else None
    if unit is None or date is None:
        return None
    name = calendar_of(calendar)
    year, month, day = (int(date[k]) for k in ("year", "month", "day"))
    number = _day_number(year, month, day, name)
    hour, minute, second = (int(date[k] or 0) for k in ("hour", "minute", "second"))
    fraction = date["fraction"] or ""
    if number is None or hour > 23 or minute > 59 or second > 59 or len(fraction.rstrip("0")) > 9:
        return None
    nanoseconds = (hour * 3600 + minute * 60 + second) * 10**9 + int((fraction + "0" * 9)[:9])
    return TimeEncoding(unit, number * _DAY + nanoseconds - _zone(date["zone"]), name)


def _zone(text: str | None) -> int:
    if text is None or text[0] not in "+-":
        return 0
    minutes = int(text[1:3]) * 60 + int(text[-2:] if len(text) > 3 else 0)
    return (minutes if text[0] == "+" else -minutes) * 60 * 10**9


def _day_number(year: int, month: int, day: int, calendar: str) -> int | None:
    """A running number of days; the Julian day number for calendars of the real world."""
    if not 1 <= month <= 12 or day < 1:
        return None
    if calendar == "360_day":
        return year * 360 + (month - 1) * 30 + day - 1 if day <= 30 else None
    if calendar in ("noleap", "all_leap"):
        lengths = [n + (calendar == "all_leap" and i == 1) for i, n in enumerate(_MONTHS)]
        return year * sum(lengths) + sum(lengths[: month - 1]) + day - 1 if day <= lengths[month - 1] else None
    if calendar not in ("standard", "proleptic_gregorian", "julian") or (calendar != "proleptic_gregorian" and year < 1):
        return None  # readers do not agree whether the others have a year 0
    julian = calendar == "julian" or (calendar == "standard" and (year, month, day) < (1582, 10, 15))
    if calendar == "standard" and (1582, 10, 4) < (year, month, day) < (1582, 10, 15):
        return None
    leap = year % 4 == 0 and (julian or year % 100 != 0 or year % 400 == 0)
    if day > _MONTHS[month - 1] + (leap and month == 2):
        return None
    y, m = (year, month) if month > 2 else (year - 1, month + 12)
    correction = 0 if julian else 2 - y // 100 + y // 400
    return 365 * y + y // 4 + (306 * (m + 1)) // 10 + day + correction + 1_720_995


def same_calendar(encodings: Iterable[TimeEncoding], earliest: int | None) -> bool:
    """Whether instants can be compared: one calendar, or the two Gregorian ones from 1582-10-15 on.

    ``earliest`` is the first instant of any, None where it is not known.
    """
    found = tuple(encodings)
    names = {e.calendar for e in found}
    if len(names) == 1:
        return True
    if names != {"standard", "proleptic_gregorian"} or earliest is None:
        return False
    return min(earliest, *(e.reference for e in found)) >= _REFORM * _DAY


@dataclass(frozen=True, slots=True)
class TimeTarget:
    """One encoding for all.

    Parameters
    ----------
    encoding, dtype
        What the numbers mean, and their type.
    fine
        Whether readers decode to nanoseconds, not to microseconds.
    units
        New text; None: the first granule's.
    gaps
        Whether NaN is, or may be, among the numbers.
    """

    encoding: TimeEncoding
    dtype: np.dtype
    fine: bool
    units: str | None = None
    gaps: bool = False


def choose(
    encodings: Sequence[TimeEncoding],
    dtypes: Sequence[np.dtype],
    values: Sequence[Sequence[NDArray[np.generic]] | None],
    units: str,
) -> TimeTarget | None:
    """The encoding that holds every instant exactly; None where there is none.

    Parameters
    ----------
    encodings, dtypes
        Of each variant, the first granule's first.
    values
        Finite values of each variant, None where they are not known.
    units
        The first granule's text, whose reference is kept.
    """
    base = encodings[0]
    fine = all(e.fine for e in encodings)
    if any(v is None for v in values):
        return _unseen(encodings, dtypes, units, fine)
    instants = [
        int(t) + e.reference - base.reference
        for e, arrays in zip(encodings, values, strict=True)
        for a in arrays or ()
        for t in e.ticks(a, fine).reshape(-1).tolist()
    ]
    for dtype in _types(dtypes):
        if _holds(base.unit, dtype, instants, fine):
            return TimeTarget(base, dtype, fine)
    return _coarsest(base, instants, units, fine)


def _types(dtypes: Sequence[np.dtype]) -> list[np.dtype]:
    """Types to try for the first granule's units: its own, a wider one of its kind."""
    first = dtypes[0]
    wide = np.dtype("f8") if first.kind == "f" else np.dtype("i8")
    return [first] if first == wide else [first, wide]


def _holds(unit: int, dtype: np.dtype, instants: Sequence[int], fine: bool) -> bool:
    if dtype.kind != "f":
        limits = np.iinfo(dtype)
        return all(t % unit == 0 and limits.min < t // unit <= limits.max for t in instants)
    with np.errstate(over="ignore"):
        numbers = np.array([float(Fraction(t, unit)) for t in instants], np.float64).astype(dtype)
    if not np.isfinite(numbers.astype(np.float64)).all():
        return False
    back: list[int] = whole_ticks(numbers, unit, 1 if fine else 1000).tolist()
    return back == list(instants)


def _coarsest(base: TimeEncoding, instants: Sequence[int], units: str, fine: bool) -> TimeTarget | None:
    """Whole numbers since the first granule's reference."""
    whole = math.gcd(*instants)
    found = _SINCE.fullmatch(units)
    for word, (unit, _) in _UNITS.items():
        if whole % unit == 0 and found is not None and all(abs(t) // unit < 2**63 - 1 for t in instants):
            encoding = TimeEncoding(unit, base.reference, base.calendar)
            return TimeTarget(encoding, np.dtype("i8"), fine, f"{word} since {found[2]}")
    return None


def _unseen(encodings: Sequence[TimeEncoding], dtypes: Sequence[np.dtype], units: str, fine: bool) -> TimeTarget | None:
    """Without values: units in which every whole number stays one; what is not is refused when it is read."""
    base = encodings[0]
    if dtypes[0].kind == "f":
        return TimeTarget(base, np.dtype("f8"), fine)
    floating = any(d.kind == "f" for d in dtypes)
    steps = [1] if floating else [e.unit for e in encodings]
    return _coarsest(base, [*steps, *(e.reference - base.reference for e in encodings)], units, fine)

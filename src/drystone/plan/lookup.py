"""Coordinate values to places: numbers as the coordinate stores them, times as exact instants of its calendar.

A year, a month or a day names all of its instants: as an end of a range it counts whole, up to its last one. Numbers are
rounded to a floating-point coordinate's own precision, so that 0.1 is found where 0.1 was written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from drystone.errors import CombineError
from drystone.model.attributes import Attributes
from drystone.model.placement import CombinedArray
from drystone.plan.order_times import Clock, from_iso, instants, iso, month_start, parse_clock

__all__ = ["Coordinate", "Coordinates", "refused"]

_ISO = re.compile(r"^\d{4}(-\d{2}(-\d{2}([T ].*)?)?)?$")
_DAY = 86_400_000_000_000

type _Number = int | float | str | np.generic


def refused(name: str, why: str) -> CombineError:
    """The error of a selection along one dimension."""
    return CombineError(f"select: {name}: {why}", kind="select", dimension=name)


@dataclass(frozen=True, slots=True)
class Coordinate:
    """A coordinate to look values up in.

    Parameters
    ----------
    name
        Of the dimension.
    values
        One a place, native.
    clock
        Of times.
    calendar
        What is said of the calendar where ``clock`` is None, for messages.

    Examples
    --------
    >>> said = Attributes.of({"units": "days since 2000-01-01", "calendar": "360_day"})
    >>> days = Coordinate.of("time", np.arange(90.0), said)
    >>> days.between("2000-02", "2000-02").tolist()[:2], days.place("2000-02-30"), days.place(3)
    ([30, 31], 59, 3)
    """

    name: str
    values: NDArray[np.generic]
    clock: Clock | None
    calendar: str

    @classmethod
    def of(cls, name: str, values: NDArray[np.generic], attributes: Attributes) -> Coordinate:
        """Of a variable."""
        units, calendar = attributes.get("units"), attributes.get("calendar")
        clock = None if units is None else parse_clock(str(units.value), None if calendar is None else str(calendar.value))
        numbers = values.dtype.kind in "iuf"
        said = ", ".join(str(a.value) for a in (units, calendar) if a is not None)
        return cls(name, values, clock if numbers else None, said)

    def between(self, one: str | float | None, other: str | float | None) -> NDArray[np.int64]:
        """Places whose values lie between two, both included, whichever is the larger; None leaves that end open.

        Raises
        ------
        CombineError
            ``select``: there is none, or they are no run of places, or a value is of the wrong kind.
        """
        ends = [None if v is None else self._span(v) for v in (one, other)]
        low, high = ends
        if low is not None and high is not None and self._less(high, low):
            low, high = high, low
        if not len(self.values):
            raise refused(self.name, "it has no places")
        inside: NDArray[np.bool_] = np.ones(len(self.values), np.bool_)
        for end, lowest in ((low, True), (high, False)):
            if end is not None:
                (first, last), timed = end
                numbers, known = self._numbers(timed)
                inside &= known & (np.greater_equal(numbers, first) if lowest else np.less_equal(numbers, last)).astype(
                    np.bool_
                )
        places = np.flatnonzero(inside).astype(np.int64)
        if not len(places):
            ends_at = f"it goes from {self._shown(0)} to {self._shown(len(self.values) - 1)}"
            raise refused(self.name, f"no place lies between {one} and {other} ({ends_at})")
        if places[-1] - places[0] + 1 != len(places):
            raise refused(self.name, "its coordinate neither rises nor falls, so a range of values is no range of places")
        return places

    def place(self, value: str | float) -> int:
        """The place that has a value.

        Raises
        ------
        CombineError
            ``select``: there is none; the nearest is named.
        """
        (first, _), timed = self._span(value)
        numbers, known = self._numbers(timed)
        hits = np.flatnonzero(known & (numbers == first))
        if len(hits):
            return int(hits[0])
        near = ""
        if not isinstance(first, str) and known.any():
            apart = [abs(float(n - first)) if ok else np.inf for n, ok in zip(numbers.tolist(), known.tolist(), strict=True)]
            near = f"; the nearest is {self._shown(int(np.argmin(apart)))}"
        raise refused(self.name, f"no place has the value {value}{near}")

    def _span(self, value: str | float) -> tuple[tuple[_Number, _Number], bool]:
        """First and last of what a value names, and whether these are instants."""
        kind = self.values.dtype.kind
        if kind not in "iuf":
            return (str(value), str(value)), False
        if not isinstance(value, str):
            number = self.values.dtype.type(value) if kind == "f" else value
            return (number, number), False
        if self.clock is None or not _ISO.match(value):
            said = f" ({self.calendar})" if self.calendar else ""
            raise refused(
                self.name, f"{value!r} is no number, and its coordinate has no times that dates can be compared with{said}"
            )
        calendar = self.clock.calendar
        time = from_iso(f"{value}-01-01" if len(value) == 4 else value, calendar)
        if time is None:
            raise refused(self.name, f"{value} is no time of the calendar {calendar}")
        return (time, time if len(value) > len("2000-01-01") else _next(value, time, calendar) - 1), True

    def _less(self, one: tuple[tuple[_Number, _Number], bool], other: tuple[tuple[_Number, _Number], bool]) -> bool:
        (a, _), timed = one
        (b, _), also = other
        return timed == also and bool(a < b)  # type: ignore[operator]  # both numbers or both text

    def _numbers(self, timed: bool) -> tuple[NDArray[np.generic], NDArray[np.bool_]]:
        """What values are compared as, and which can be."""
        known = np.isfinite(self.values) if self.values.dtype.kind == "f" else np.ones(len(self.values), np.bool_)
        if not timed:
            return (self._texts() if self.values.dtype.kind in "SUT" else self.values), known
        assert self.clock is not None
        return instants(np.where(known, self.values, 0).astype(self.values.dtype), self.clock), known

    def _texts(self) -> NDArray[np.generic]:
        """Labels as Python compares them."""
        flat = (v.decode("utf-8", "surrogateescape") if isinstance(v, bytes) else v for v in self.values.tolist())
        return np.array([*flat], object)

    def _shown(self, place: int) -> str:
        value = self.values[place]
        if self.clock is None or not np.isfinite(value):
            return value.decode() if isinstance(value, bytes) else str(value)
        at = instants(self.values[place : place + 1], self.clock).tolist()[0]
        return f"{value} ({iso(Fraction(at) if not isinstance(at, int) else at, self.clock.calendar)})"


@dataclass(frozen=True, slots=True)
class Coordinates:
    """The coordinates among some arrays, with their values by path."""

    arrays: tuple[CombinedArray, ...]
    values: Mapping[str, NDArray[np.generic]]

    def of(self, name: str) -> Coordinate:
        """A dimension's coordinate, of several groups' the outermost.

        Raises
        ------
        CombineError
            ``select``: there is none.
        """
        found = self._named(name)
        if not found:
            raise _without(name, "")
        return self.read(found[0])

    def of_array(self, name: str, array: CombinedArray) -> CombinedArray:
        """A dimension's coordinate for an array: that of its group or of the next one above, else any of its length.

        Raises
        ------
        CombineError
            ``select``: there is none, or groups that have nothing to do with the array have different ones.
        """
        found = [a for a in self._named(name) if a.shape == (array.shape[array.dims.index(name)],)]
        above = [a for a in found if f"{array.group.rstrip('/')}/".startswith(f"{a.group.rstrip('/')}/")]
        found = above[-1:] or found
        if not found:
            raise _without(name, f" for {array.path}")
        if any(not np.array_equal(self.values[a.path], self.values[found[0].path]) for a in found):
            paths = ", ".join(a.path for a in found)
            raise refused(name, f"{array.path} may mean any of {paths}, which differ; take places by number: {{index: …}}")
        return found[0]

    def read(self, array: CombinedArray) -> Coordinate:
        """One of the arrays as a coordinate."""
        return Coordinate.of(array.name, self.values[array.path], array.attributes)

    def _named(self, name: str) -> list[CombinedArray]:
        found = [a for a in self.arrays if a.dims == (name,) and a.name == name and a.path in self.values]
        return sorted(found, key=lambda a: a.path.count("/"))


def _without(name: str, where: str) -> CombineError:
    return refused(name, f"it has no coordinate variable{where} to look values up in; take places by number: {{index: …}}")


def _next(text: str, time: int, calendar: str) -> int:
    """The first instant after the year, month or day that a date names."""
    parts = [int(p) for p in text.split("-")]
    if len(parts) == 3:
        return time + _DAY
    month = parts[0] * 12 + (parts[1] if len(parts) == 2 else 12)
    return int(month_start(np.array([month]), calendar)[0])

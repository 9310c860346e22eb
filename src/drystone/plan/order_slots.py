"""Slot axes: a place for each value, (value - origin) / step, exactly.

A late granule, a missing one or another order of the list moves nothing. Steps are numbers in the coordinate's units, fixed
durations (``6h``), or calendar months and years (``1M``, ``1Y``): there the slot is the calendar month that holds the value,
which stays what the granule says, and a slot that no granule holds says the month's first instant.

Decimal steps are meant as written: with origin 0.05 and step 0.1, slot 2 is the number of the coordinate's type that is
nearest to 0.25.

Chunk-aligned reindexing onto a given axis is a slot axis with ``origin``, ``stop`` and ``step``: granules land where the
axis has their values, and the rest are gaps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from drystone.errors import CombineError, ConfigError
from drystone.model.options import AxisOptions
from drystone.plan.order_keys import Granules, Keys, check_inside
from drystone.plan.order_places import Places, runs_of
from drystone.plan.order_times import Clock, from_iso, month_start, months_of, narrow

__all__ = ["Grid", "slots"]

_DAY = 86_400_000_000_000
_DURATIONS = {
    "W": 7 * _DAY, "D": _DAY, "d": _DAY, "h": _DAY // 24, "H": _DAY // 24, "min": 60 * 10**9, "s": 10**9, "S": 10**9,
    "ms": 10**6, "us": 10**3, "ns": 1,
}  # fmt: skip
_MOST = 50_000_000
_MONTHS = {"M": 1, "Y": 12}


@dataclass(frozen=True, slots=True)
class Grid:
    """Where slots are, in keys.

    ``origin`` is the first slot's key, or its month since year 0 where ``months`` counts months a slot.
    """

    kind: Literal["time", "number"]
    origin: Fraction
    step: Fraction
    months: bool
    calendar: str

    def keys_at(self, slot: NDArray[np.int64]) -> NDArray[np.generic]:
        """The key of each slot; of calendar slots their first instant; of decimal numbers the nearest double."""
        if self.months:
            return month_start(int(self.origin) + slot * int(self.step), self.calendar)
        bottom = int(np.lcm.reduce([self.origin.denominator, self.step.denominator], dtype=object))
        start, step = int(self.origin * bottom), int(self.step * bottom)
        far = abs(start) + abs(step) * (int(np.abs(slot).max(initial=0)) + 1)
        if bottom == 1:
            return start + slot * step if far < 1 << 62 else narrow(start + slot.astype(object) * step)
        if self.kind == "number" and far < 1 << 53 and bottom < 1 << 53:
            return np.asarray((start + slot * step) / bottom)
        exact = [Fraction(start + i * step, bottom) for i in slot.tolist()]
        return np.array(
            [v.numerator / v.denominator if self.kind == "number" else v for v in exact],
            np.float64 if self.kind == "number" else object,
        )

    def origin_text(self, keys: Keys) -> str:
        """The origin as a config would say it."""
        if self.months:
            return keys.say(month_start(np.array([int(self.origin)]), self.calendar)[0])
        return keys.say(self.keys_at(np.zeros(1, np.int64))[0])


def slots(axis: AxisOptions, keys: Keys, granules: Granules) -> tuple[Places, Grid]:
    """Each value in its slot.

    Raises
    ------
    CombineError
        ``axis-off-grid``, ``axis-outside``, ``axis-unsorted``, ``axis-duplicate`` (two values of one granule in one slot).
    ConfigError
        A step, origin or stop that the axis does not know.
    """
    check_inside(keys, granules)
    if keys.kind == "label" or not len(keys.flat):
        raise ConfigError(
            f"{axis.name}: slots need numbers or times, and {keys.path} holds {'text' if len(keys.flat) else 'nothing'}",
            kind="axis-slots",
        )
    grid = _grid(axis, keys)
    position = _positions(grid, axis, keys, granules)
    extent = _extent(grid, axis, keys, position)
    outside = np.flatnonzero((position < 0) | (position >= extent))
    if len(outside):
        i = int(outside[0])
        side = f"before the origin {grid.origin_text(keys)}" if position[i] < 0 else f"at or after the stop {axis.stop}"
        way = (
            "an origin is fixed once an archive is published: start a new archive with an earlier one, or leave the granule out"
        )
        raise _refuse(
            keys,
            granules,
            i,
            f"is {side} of the slots",
            way if position[i] < 0 else "move the stop, or leave the granule out",
            "axis-outside",
        )
    segment = np.repeat(np.arange(len(keys.offset) - 1), np.diff(keys.offset))
    twice = np.flatnonzero((np.diff(position) == 0) & (np.diff(segment) == 0))
    if len(twice):
        i = int(twice[0])
        text = f"and {keys.say(keys.flat[i + 1])} fall into one slot of {axis.step}"
        raise _refuse(keys, granules, i, text, "say a smaller step, or axis: sequence", "axis-duplicate")
    return runs_of(keys, position, extent), grid


def _refuse(keys: Keys, granules: Granules, i: int, what: str, ways: str, kind: str) -> CombineError:
    s = int(np.searchsorted(keys.offset, i, side="right")) - 1
    name, value = granules.name(int(np.flatnonzero(keys.segment == s)[0])), keys.say(keys.flat[i])
    return CombineError(f"{name}: {keys.axis} = {value} {what}; {ways}", kind=kind, granule=name, value=value)


def _grid(axis: AxisOptions, keys: Keys) -> Grid:
    step, months = _step(axis, keys)
    if axis.origin is not None:
        origin = _given(axis.origin, "origin", axis, keys)
    else:
        first = (
            (keys.flat.min() if step > 0 else keys.flat.max())
            if keys.flat.dtype != object
            else (min if step > 0 else max)(keys.flat.tolist())
        )
        origin = _decimal(first, keys)
    if months:
        origin = Fraction(int(months_of(np.array([int(origin // 1)]), keys.calendar)[0]))
    return Grid("time" if keys.kind == "time" else "number", origin, step, months, keys.calendar)


def _step(axis: AxisOptions, keys: Keys) -> tuple[Fraction, bool]:
    """The step in keys, or in months."""
    match = re.fullmatch(r"\s*([+-]?\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(axis.step))
    if isinstance(axis.step, int | float) or (match is not None and not match[2]):
        size, unit = Fraction(str(axis.step)), ""
    elif match is not None and (match[2] in _DURATIONS or match[2] in _MONTHS):
        size, unit = Fraction(match[1]), match[2]
    else:
        said = "none" if axis.step is None else repr(axis.step)
        raise ConfigError(
            f"{axis.name}: the step of its slots is {said}; say a number in the coordinate's units, or a duration such as "
            "1D, 6h, 15min, "
            "1M (calendar months) or 1Y",
            kind="axis-step",
        )
    if size == 0 or (unit in _MONTHS and (size * _MONTHS[unit]).denominator != 1) or (unit in _MONTHS and size < 0):
        raise ConfigError(f"{axis.name}: a step of {axis.step} makes no slots", kind="axis-step")
    if keys.kind != "time":
        if unit:
            raise ConfigError(
                f"{axis.name}: the step {axis.step} is a duration, and the values of {keys.path} have no units `… since "
                "…` that can be read; say a number",
                kind="axis-step",
            )
        return size, False
    if unit in _MONTHS:
        return size * _MONTHS[unit], True
    return size * (_DURATIONS[unit] if unit else _base_clock(axis, keys, "step").unit), False


def _base_clock(axis: AxisOptions, keys: Keys, what: str) -> Clock:
    clocks = keys.clocks()
    if len({(c.unit, c.epoch if what != "step" else 0) for c in clocks}) > 1:
        raise ConfigError(
            f"{axis.name}: granules tell its times in different units, so the {what} {getattr(axis, what)} as a number "
            "could mean several things; say a time or duration",
            kind=f"axis-{what}",
        )
    clock = next(iter(clocks), None)
    if clock is None:
        raise ConfigError(
            f"{axis.name}: times read from {keys.path} have no units, so say the {what} as a time or duration, not as a number",
            kind=f"axis-{what}",
        )
    return clock


def _given(value: str | float, what: str, axis: AxisOptions, keys: Keys) -> Fraction:
    """An origin or stop in keys."""
    try:
        number: Fraction | None = Fraction(str(value))
    except ValueError:
        number = None
    if keys.kind != "time":
        if number is None:
            raise ConfigError(
                f"{axis.name}: the {what} {value!r} is no number, and {keys.path} holds numbers", kind=f"axis-{what}"
            )
        return number
    if number is not None and not (isinstance(value, str) and re.fullmatch(r"\d{4}", value)):
        clock = _base_clock(axis, keys, what)
        return number * clock.unit + clock.epoch
    time = from_iso(f"{value}-01-01" if number is not None else str(value), keys.calendar)
    if time is None:
        raise ConfigError(
            f"{axis.name}: the {what} {value!r} is no time of the calendar {keys.calendar}; write one such as 1981-09-01T12:00",
            kind=f"axis-{what}",
        )
    return Fraction(time)


def _decimal(key: object, keys: Keys) -> Fraction:
    """A key as the shortest decimal that its type takes for it."""
    value = key.item() if isinstance(key, np.generic) else key
    if isinstance(value, float):
        single = all(s.dtype.itemsize == 4 and s.dtype.kind == "f" for s in keys.specs) and bool(keys.specs)
        return Fraction(str(np.float32(value)) if single else repr(value))
    return Fraction(value)  # type: ignore[arg-type]


def _positions(grid: Grid, axis: AxisOptions, keys: Keys, granules: Granules) -> NDArray[np.int64]:
    if grid.months:
        return (months_of(keys.flat, grid.calendar) - int(grid.origin)) // int(grid.step)
    if keys.flat.dtype.kind == "f":
        position = np.rint((keys.flat.astype(np.float64) - float(grid.origin)) / float(grid.step)).astype(np.int64)
        there = grid.keys_at(position).astype(np.float64)
        off = there != keys.flat
        if keys.spec_of is not None:
            single = np.array([s.dtype.kind == "f" and s.dtype.itemsize == 4 for s in keys.specs])[keys.spec_of]
            off &= ~(np.repeat(single, np.diff(keys.offset)) & (there.astype(np.float32) == keys.flat))
    else:
        bottom = int(np.lcm.reduce([grid.origin.denominator, grid.step.denominator], dtype=object))
        start, step = int(grid.origin * bottom), int(grid.step * bottom)
        small = (
            keys.flat.dtype == np.int64
            and (int(np.abs(keys.flat).max()) * bottom + abs(start)) < 1 << 62
            and abs(step) < 1 << 62
        )
        flat = keys.flat.astype(np.int64 if small else object)
        lead = flat * bottom - start
        position, rest = lead // step, lead % step
        off = (rest != 0).astype(np.bool_)
        position = position.astype(np.int64)
    if off.any():
        i = int(np.flatnonzero(off)[0])
        p = int(position[i])
        near = sorted(
            {p - 1, p, p + 1}, key=lambda q: abs(float(Fraction(_exact(keys.flat[i])) - grid.origin - q * grid.step))
        )[:2]
        values = " and ".join(keys.say(k) for k in grid.keys_at(np.array(sorted(near), np.int64)).tolist())
        raise _refuse(
            keys, granules, i, f"is off the slots of {axis.step} from {grid.origin_text(keys)} (the nearest are {values})",
            "say another step or origin, or axis: sequence", "axis-off-grid",
        )  # fmt: skip
    return position


def _exact(key: object) -> Fraction:
    return Fraction(key.item() if isinstance(key, np.generic) else key)  # type: ignore[arg-type]


def _extent(grid: Grid, axis: AxisOptions, keys: Keys, position: NDArray[np.int64]) -> int:
    if axis.stop is None:
        extent = max(1, int(position.max()) + 1)
    elif grid.months:
        stop = months_of(np.array([int(_given(axis.stop, "stop", axis, keys) // 1)]), grid.calendar)
        extent = (int(stop[0]) - int(grid.origin)) // int(grid.step)
    else:
        extent = int(-(-(_given(axis.stop, "stop", axis, keys) - grid.origin) // grid.step))
    if extent > _MOST:
        raise ConfigError(
            f"{axis.name}: a step of {axis.step} from {grid.origin_text(keys)} makes {extent} slots, more than {_MOST}; say a "
            "larger step or a later origin",
            kind="axis-slots",
        )
    if extent < 1:
        raise ConfigError(
            f"{axis.name}: the stop {axis.stop} leaves no slot after the origin {grid.origin_text(keys)}", kind="axis-stop"
        )
    return extent

"""Kinds of numbers, times, durations and coordinate values: what combining is told along its axes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from drystone.config.kinds import INVALID, Schema
from drystone.config.nodes import Node
from drystone.config.problem import Report

__all__ = ["DURATION_PATTERN", "TIME_PATTERN", "Pair", "Real", "Value", "parse_duration", "parse_time"]

DURATION_PATTERN: Final = r"^-?[0-9]*\.?[0-9]+ ?(ns|us|ms|s|min|h|D|W|M|Y)$"
TIME_PATTERN: Final = (
    r"^[0-9]{4}(-[0-9]{2}(-[0-9]{2}([T ][0-9]{2}(:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?)?(Z|[+-][0-9]{2}:?[0-9]{2})?)?)?)?$"
)

_DURATION = re.compile(r"(-?[0-9]*\.?[0-9]+) ?([A-Za-z]+)\Z")
_UNITS: Final = {"s": "seconds", "min": "minutes", "h": "hours", "D": "days", "M": "calendar months", "Y": "years"}
_RARE: Final = ("ns", "us", "ms", "W")
_OTHER_UNITS: Final = {
    "d": "D", "day": "D", "days": "D", "H": "h", "hour": "h", "hours": "h", "m": "min (minutes) or M (months)", "month": "M",
    "months": "M", "MS": "M", "y": "Y", "year": "Y", "years": "Y", "S": "s", "w": "W", "week": "W",
    "minutes": "min", "seconds": "s",
}  # fmt: skip


def parse_duration(text: str) -> tuple[bool, str]:
    """``(True, duration)`` in one spelling, or ``(False, hint)``.

    Examples
    --------
    >>> parse_duration("1D"), parse_duration("6 h"), parse_duration("0.5M")[1]
    ((True, '1D'), (True, '6h'), 'months and years are counted in whole numbers, upwards')
    >>> parse_duration("1d")[1]
    'units: s (seconds), min (minutes), h (hours), D (days), M (calendar months), Y (years); did you mean D?'
    """
    match = _DURATION.match(text.strip())
    if match is None:
        return False, "such as 1D, 6h, 1M or 0.25"
    number, unit = match[1], match[2]
    if unit not in _UNITS and unit not in _RARE:
        known = "units: " + ", ".join(f"{u} ({word})" for u, word in _UNITS.items())
        return False, f"{known}; did you mean {_OTHER_UNITS[unit]}?" if unit in _OTHER_UNITS else known
    if float(number) == 0:
        return False, "a step is not 0"
    if unit in ("M", "Y") and not number.isdigit():
        return False, "months and years are counted in whole numbers, upwards"
    return True, f"{number}{unit}"


def parse_time(text: str) -> tuple[bool, str]:
    """``(True, text)`` where it is an ISO 8601 date or time, with or without the parts below the year.

    Days are not looked up in a calendar: a model's year may have 360.

    Examples
    --------
    >>> parse_time("1981-09-01"), parse_time("2000-02-30T12:00Z"), parse_time("1.9.1981")[0], parse_time("2000-13")[1]
    ((True, '1981-09-01'), (True, '2000-02-30T12:00Z'), False, 'there is no month 13')
    """
    text = text.strip()
    if not re.match(TIME_PATTERN, text):
        return False, "write 1981-09-01 or 1981-09-01T12:00"
    parts = [int(p) for p in re.split(r"[-T :.Z]", text)[:6] if p]
    for name, value, low, high in zip(("month", "day", "hour", "minute", "second"), parts[1:], (1, 1, 0, 0, 0),
                                      (12, 31, 23, 59, 59), strict=False):  # fmt: skip
        if not low <= value <= high:
            return False, f"there is no {name} {value}"
    return True, text


@dataclass(frozen=True, slots=True)
class Real:
    """A finite number, of at least ``minimum``, and not 0 where ``nonzero`` says so."""

    minimum: float | None = None
    nonzero: bool = False

    @property
    def expected(self) -> str:
        """With the bound."""
        bound = "" if self.minimum is None else f" of at least {self.minimum:g}"
        return f"a number{bound}{' but 0' if self.nonzero else ''}"

    def read(self, node: Node, where: str, report: Report) -> object:
        """The number."""
        value = node.scalar
        if node.kind in ("int", "float") and isinstance(value, int | float) and math.isfinite(value):
            low = self.minimum is not None and value < self.minimum
            if not low and (value or not self.nonzero):
                return value
        report.add(where, self.expected, node.found(), "", node.at)
        return INVALID

    def schema(self) -> Schema:
        """A number."""
        schema: Schema = {"type": "number"}
        if self.minimum is not None:
            schema["minimum"] = self.minimum
        return {**schema, "not": {"const": 0}} if self.nonzero else schema


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a coordinate: a number, an ISO 8601 time, or a label."""

    @property
    def expected(self) -> str:
        """All three."""
        return "a coordinate's value (a number, a time such as 1981-09-01, a label)"

    def read(self, node: Node, where: str, report: Report) -> object:
        """The number or text."""
        value = node.scalar
        if isinstance(value, str) and value.strip():
            return value.strip()
        return Real().read(node, where, report) if node.kind in ("int", "float") else self._refused(node, where, report)

    def _refused(self, node: Node, where: str, report: Report) -> object:
        report.add(where, self.expected, node.found(), "", node.at)
        return INVALID

    def schema(self) -> Schema:
        """A number or a string."""
        return {"anyOf": [{"type": "number"}, {"type": "string", "minLength": 1}]}


@dataclass(frozen=True, slots=True)
class Pair:
    """Two coordinate values, from and to; an end that is null is open."""

    @property
    def expected(self) -> str:
        """With the shape."""
        return "[from, to]"

    def read(self, node: Node, where: str, report: Report) -> object:
        """A tuple of two."""
        if node.kind != "list" or len(node.items) != 2:
            hint = "a range has two ends; for single places write {values: […]} or {index: […]}" if node.kind == "list" else ""
            report.add(where, self.expected, node.found(), hint, node.at)
            return INVALID
        if all(n.kind == "null" for n in node.items):
            report.add(where, self.expected, "two open ends", "take it out: all is taken where nothing is said", node.at)
            return INVALID
        ends = [None if n.kind == "null" else Value().read(n, f"{where}[{i}]", report) for i, n in enumerate(node.items)]
        return INVALID if INVALID in ends else tuple(ends)

    def schema(self) -> Schema:
        """An array of two."""
        return {"type": "array", "minItems": 2, "maxItems": 2, "items": {"anyOf": [*_ANY, {"type": "null"}]}}


_ANY: Final = ({"type": "number"}, {"type": "string", "minLength": 1})

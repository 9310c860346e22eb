"""Checks between the keys of ``combine``: axes, selections, overlaps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from drystone.config.combine_keys import OVERLAP
from drystone.config.kinds import INVALID
from drystone.config.problem import Report, join

__all__ = ["axes_of", "check_combine"]

type Values = Mapping[str, object]

_SLOT_KEYS = ("step", "origin", "stop")
_TAKES = ("values", "index", "points")


def _mapping(value: object) -> Values:
    return value if isinstance(value, Mapping) else {}


def axes_of(combine: Values) -> Iterator[tuple[str, str, Values]]:
    """Key, dimension and options of each axis, in the order written: ``along``, then ``mosaic``."""
    along = combine.get("along")
    if isinstance(along, str):
        yield "along", along, {}
    elif isinstance(along, tuple):
        for i, name in enumerate(along):
            if isinstance(name, str):
                yield join("along", i), name, {}
    for key in ("along", "mosaic"):
        for name, axis in _mapping(combine.get(key)).items():
            if (key, name) != ("mosaic", OVERLAP) and axis is not INVALID:
                yield join(key, name), name, {"position": axis} if isinstance(axis, str) else _mapping(axis)


def check_combine(combine: Values, where: str, report: Report) -> None:
    """Run all checks; ``where`` is the path of the section, ``""`` for Python callers."""
    axes = list(axes_of(combine))
    seen: dict[str, str] = {}
    for key, name, axis in axes:
        here = f"{where}.{key}" if where else key  # key is a path already
        if name in seen:
            report.add(here, "each dimension once", f"{name} again", f"it is in {seen[name]} already")
            continue
        seen[name] = here
        _position(axis, here, report)
        _slots(axis, here, report)
    _overlap(combine, where, report)
    for name, take in _mapping(combine.get("select")).items():
        _take(take, join(join(where, "select"), name), report)
    _points(_mapping(combine.get("select")), join(where, "select"), report)


def _position(axis: Values, where: str, report: Report) -> None:
    pattern, attribute, position = axis.get("pattern"), axis.get("attribute"), axis.get("position", "coordinate")
    if position is INVALID:
        return
    if position == "name" and pattern is None:
        report.add(join(where, "pattern"), "a pattern, as position is name", "nothing", "such as sst.%Y%m%d.nc")
    elif isinstance(pattern, str) and position not in ("name", "attribute"):
        expected = "no pattern, unless position is name or attribute"
        report.add(join(where, "pattern"), expected, repr(pattern), "add position: name")
    elif isinstance(pattern, str) and "%" not in pattern:
        problem = _regex_problem(pattern)
        if problem:
            report.add(join(where, "pattern"), "a strptime pattern or a regular expression with one group", problem)
    if position == "attribute" and attribute is None:
        report.add(join(where, "attribute"), "an attribute's name, as position is attribute", "nothing", "such as realization")
    elif isinstance(attribute, str) and position != "attribute":
        expected = "no attribute, unless position is attribute"
        report.add(join(where, "attribute"), expected, repr(attribute), "add position: attribute")


def _regex_problem(pattern: str) -> str | None:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        return f"{pattern!r}, which is no regular expression: {error}"
    return None if groups == 1 else f"{groups} groups in {pattern!r}"


def _slots(axis: Values, where: str, report: Report) -> None:
    kind = axis.get("axis", "sequence")
    if kind == "sequence":
        for key in _SLOT_KEYS:
            if key in axis:
                report.add(join(where, key), f"no {key}, unless axis is slots", str(axis[key]), "add axis: slots")
    if kind != "slots":
        return
    if "step" not in axis:
        report.add(join(where, "step"), "a step, as axis is slots", "nothing", "such as step: 1D")
    if axis.get("position") == "order":
        report.add(
            join(where, "position"), "coordinate, name or attribute, as axis is slots", "order", "an order has no values"
        )
    _step(axis, where, report)
    _ends(axis, where, report)


def _step(axis: Values, where: str, report: Report) -> None:
    step, origin, pattern = axis.get("step"), axis.get("origin"), axis.get("pattern")
    if not isinstance(step, str):
        return
    if isinstance(origin, int | float) and not re.fullmatch(r"[0-9]{4}", str(origin)):
        hint = "a number as step, or a time such as 1981-09-01 as origin"
        report.add(join(where, "origin"), f"a time, as step is {step}", str(origin), hint)
    if axis.get("position") == "name" and isinstance(pattern, str) and "%" not in pattern:
        hint = "a number as step, or a strptime pattern such as sst.%Y%m%d.nc"
        report.add(join(where, "step"), "a number, as pattern finds numbers", step, hint)


def _ends(axis: Values, where: str, report: Report) -> None:
    origin, stop, step = axis.get("origin"), axis.get("stop"), axis.get("step")
    if origin in (None, INVALID) or stop in (None, INVALID):
        return
    if (isinstance(step, int | float) and step < 0) or (isinstance(step, str) and step.startswith("-")):
        origin, stop = stop, origin
    if isinstance(step, str) or isinstance(origin, str) or isinstance(stop, str):  # then 1981 is a year
        origin, stop = (str(v) if isinstance(v, int) and re.fullmatch(r"[0-9]{4}", str(v)) else v for v in (origin, stop))
    if isinstance(origin, str) != isinstance(stop, str):
        report.add(join(where, "stop"), "two numbers or two times", f"origin {origin} and stop {stop}", "")
    elif _not_after(stop, origin):
        report.add(join(where, "stop"), f"a value beyond origin, {axis['origin']}", str(axis["stop"]), "stop is excluded")


def _not_after(one: object, other: object) -> bool:
    """Whether one is not above the other, where that can be told without a calendar or time zones."""
    if isinstance(one, str) and isinstance(other, str):
        first, second = _moment(one), _moment(other)
        return bool(first) and bool(second) and first <= second
    return isinstance(one, int | float) and isinstance(other, int | float) and one <= other


def _moment(text: str) -> str:
    """An ISO 8601 time without a zone, so that texts compare as times do; empty for anything else."""
    text = text.strip().removesuffix("Z").replace(" ", "T")
    return text if re.fullmatch(r"[0-9]{4}(-[0-9]{2}(-[0-9]{2}(T[0-9:.]+)?)?)?", text) else ""


def _overlap(combine: Values, where: str, report: Report) -> None:
    given = [join(where, OVERLAP)] if OVERLAP in combine else []
    mosaic = _mapping(combine.get("mosaic"))
    if OVERLAP in mosaic:
        given.append(join(join(where, "mosaic"), OVERLAP))
    if len(given) > 1:
        report.add(given[1], "overlap once", f"{given[0]} and {given[1]}", "keep one of them")
    if set(mosaic) == {OVERLAP}:
        report.add(join(where, "mosaic"), "a dimension that tiles are joined along", "only overlap", "such as y: coordinate")


def _take(take: object, where: str, report: Report) -> None:
    if isinstance(take, tuple):
        _range(take[0], take[1], where, report)
        return
    if not isinstance(take, Mapping):
        return
    said = [k for k in _TAKES if k in take]
    ends = [k for k in ("from", "to", "step") if k in take]
    if not said and not ends:
        if any(p.where.startswith(where) for p in report.problems):  # a key was misspelt, and told
            return
        report.add(where, "one of from and to, step, values, index, points", "nothing", "take it out for all of it")
    elif len(said) > 1 or (said and ends):
        both = " and ".join([*said, *ends])
        hint = "a step of places by number goes inside: index: {step: 2}" if "index" in said and "step" in ends else "keep one"
        report.add(where, "one of from and to, step, values, index, points", both, hint)
    _range(take.get("from"), take.get("to"), where, report)
    index = take.get("index")
    if isinstance(index, Mapping):
        start, stop = index.get("start", 0), index.get("stop")
        if not index:
            report.add(join(where, "index"), "start, stop or step", "nothing", "take it out for all of it")
        elif isinstance(start, int) and isinstance(stop, int) and start >= 0 and 0 <= stop <= start:
            report.add(join(join(where, "index"), "stop"), f"more than start, which is {start}", str(stop), "stop is excluded")


def _range(start: object, stop: object, where: str, report: Report) -> None:
    if isinstance(start, str) and isinstance(stop, str):
        n = min(len(_moment(start)), len(_moment(stop)))  # to: 1981 is the whole of 1981
        falls = _moment(stop)[:n] < _moment(start)[:n]
    else:
        falls = start != stop and _not_after(stop, start)
    if falls:
        hint = f"[{stop}, {start}]: the lower end first, whichever way the coordinate runs"
        report.add(where, "a range from the lower to the higher value", f"{start} to {stop}", hint)


def _point_list(points: object) -> tuple[object, ...] | None:
    if isinstance(points, Mapping):
        points = points.get("index")
    return points if isinstance(points, tuple) else None


def _points(select: Values, where: str, report: Report) -> None:
    counts: dict[str, int] = {}
    for name, take in select.items():
        points = _point_list(_mapping(take).get("points"))
        if points is not None:
            counts[name] = len(points)
    if len(set(counts.values())) > 1:
        found = " and ".join(f"{n} in {name}" for name, n in counts.items())
        last = list(counts)[-1]
        report.add(join(join(where, last), "points"), "as many as in the other dimensions", found, "one of each for each point")

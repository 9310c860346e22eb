"""The keys of ``combine`` for Python callers: mappings, options and slices read through the same table as YAML.

So ``drystone.open(files, select={"lat": [-80, 80]})`` means what ``combine: {select: {lat: [-80, 80]}}`` means, and what is
wrong is told in the same words, all of it at once.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import fields

from drystone.config.combine_build import given_combine
from drystone.config.combine_checks import check_combine
from drystone.config.combine_keys import COMBINE
from drystone.config.nodes import Entry, Node
from drystone.config.problem import Report
from drystone.errors import ConfigError
from drystone.model.options import AxisOptions, DifferenceOptions, Selection

__all__ = ["combine_fields"]


def combine_fields(given: Mapping[str, object]) -> dict[str, object]:
    """What a caller said, as fields of :class:`~drystone.model.options.CombineOptions`.

    Parameters
    ----------
    given
        By the keys of ``combine``; None: not said. ``along`` may also be an :class:`AxisOptions` or a sequence of names and
        :class:`AxisOptions`, ``differences`` a :class:`DifferenceOptions`, and in ``select`` a :class:`Selection` or a slice
        (its ends included, as xarray's ``sel`` has it) may stand for what is taken.

    Raises
    ------
    ConfigError
        With all problems at once.

    Examples
    --------
    >>> combine_fields({"along": {"time": {"axis": "slots", "step": "1D"}}, "gaps": None})["along"][0].step
    '1D'
    >>> combine_fields({"select": {"lat": slice(-80, 80)}})["select"]["lat"]
    Selection(kind='range', values=(-80, 80), step=1)
    """
    said = {k: v for k, v in given.items() if v is not None}
    ready: dict[str, Selection] = {}
    if "along" in said:
        said["along"] = _along(said["along"])
    if isinstance(said.get("differences"), DifferenceOptions):
        said["differences"] = _differences(said["differences"])
    if isinstance(said.get("select"), Mapping):
        select = dict(said.pop("select"))  # type: ignore[call-overload]
        ready = {k: v for k, v in select.items() if isinstance(v, Selection)}
        rest = {k: v for k, v in select.items() if k not in ready}
        if rest:
            said["select"] = rest
    out = _read(said)
    if ready:
        parsed = out.get("select", {})
        assert isinstance(parsed, dict)
        out["select"] = {**parsed, **ready}
    return out


def _read(said: Mapping[str, object]) -> dict[str, object]:
    report = Report("")
    values = COMBINE.read(_node(said), "", report)
    assert isinstance(values, dict)
    check_combine(values, "", report)
    if report.problems:
        found = sorted(set(report.problems), key=lambda p: p.where)
        lines = [f"{p.where}: expected {p.expected}, found {p.found}{'; ' * bool(p.hint)}{p.hint}" for p in found]
        text = lines[0] if len(lines) == 1 else "".join(f"\n  {line}" for line in lines)
        raise ConfigError(f"the way to combine granules is not clear: {text}", kind="combine-options", problems=len(lines))
    return given_combine(values)


def _along(along: object) -> object:
    if isinstance(along, str):
        return along
    if isinstance(along, AxisOptions):
        along = (along,)
    if isinstance(along, Mapping):
        return {k: _axis(v) if isinstance(v, AxisOptions) else v for k, v in along.items()}
    if not isinstance(along, Iterable):
        return along
    axes: dict[object, object] = {}
    for axis in along:
        name, options = (axis.name, _axis(axis)) if isinstance(axis, AxisOptions) else (axis, {})
        if name in axes:
            raise ConfigError(f"along has the dimension {name} twice", kind="combine-options")
        axes[name] = options
    return axes


def _axis(axis: AxisOptions) -> dict[str, object]:
    return {f.name: getattr(axis, f.name) for f in fields(axis) if f.name != "name" and getattr(axis, f.name) != f.default}


def _differences(options: object) -> dict[str, object]:
    assert isinstance(options, DifferenceOptions)
    said = {f.name: getattr(options, f.name) for f in fields(options) if f.name != "coordinate_tolerance"}
    return {**said, "coordinates": {"tolerance": options.coordinate_tolerance}}


def _node(value: object) -> Node:
    """A value as the reader of YAML would give it."""
    if isinstance(value, slice):
        value = {k: v for k, v in (("from", value.start), ("to", value.stop), ("step", value.step)) if v is not None}
    value = _plain(value)
    if value is None:
        return Node("null", 1, 1)
    if isinstance(value, bool):
        return Node("bool", 1, 1, value)
    if isinstance(value, int):
        return Node("int", 1, 1, value)
    if isinstance(value, float):
        return Node("float", 1, 1, value)
    if isinstance(value, str):
        return Node("text", 1, 1, value)
    if isinstance(value, Mapping):
        return Node("mapping", 1, 1, entries=tuple(Entry(str(k), 1, 1, _node(v)) for k, v in value.items()))
    if isinstance(value, Iterable):
        return Node("list", 1, 1, items=tuple(_node(v) for v in value))
    return Node("text", 1, 1, repr(value))


def _plain(value: object) -> object:
    """Times as ISO 8601 text in UTC, NumPy's numbers and arrays as Python's; NumPy itself is not imported for it."""
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    if isinstance(value, dt.date):
        return value.isoformat()
    if getattr(getattr(value, "dtype", None), "kind", "") == "M":
        texts = value.astype(str).tolist()  # type: ignore[attr-defined]
        return [_seconds(t) for t in texts] if isinstance(texts, list) else _seconds(texts)
    tolist = getattr(value, "tolist", None)
    return value if tolist is None else tolist()


def _seconds(time: str) -> str:
    """Without the zeros that a fine unit adds."""
    return time.rstrip("0").rstrip(".") if "." in time else time

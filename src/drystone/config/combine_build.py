"""From checked values of ``combine`` to frozen options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

from drystone.config.combine_checks import axes_of
from drystone.config.combine_keys import OVERLAP
from drystone.model.options import AxisOptions, CombineOptions, DifferenceOptions, Policy, Selection, VersionOptions

__all__ = ["build_combine", "build_versions", "given_combine"]

# Casts here restate what the table of keys has proven: a value of a key is what the key's kind reads.

type Values = Mapping[str, object]
type Ends = tuple[str | float | None, ...]


def build_combine(values: Values) -> CombineOptions:
    """The options, with defaults for what is not said.

    Examples
    --------
    >>> build_combine({"along": "time", "select": {"lat": (-80, 80)}}).select["lat"].kind
    'range'
    """
    return CombineOptions(**given_combine(values))  # type: ignore[arg-type]


def given_combine(values: Values) -> dict[str, object]:
    """Field of :class:`CombineOptions` to value, for what is said."""
    out: dict[str, object] = {}
    if "along" in values or "mosaic" in values:
        out["along"] = tuple(_axis(name, axis) for _, name, axis in axes_of(values))
    mosaic = values.get("mosaic")
    if isinstance(mosaic, Mapping) and OVERLAP in mosaic:
        out["overlap"] = mosaic[OVERLAP]
    for key in ("variables", "duplicates", "overlap", "gaps"):
        if key in values:
            out[key] = values[key]
    if "differences" in values:
        out["differences"] = _differences(cast(Values, values["differences"]))
    if "select" in values:
        out["select"] = {name: _selection(take) for name, take in cast(Values, values["select"]).items()}
    return out


def _axis(name: str, values: Values) -> AxisOptions:
    return AxisOptions(
        name,
        cast(Literal["coordinate", "name", "attribute", "order"], values.get("position", "coordinate")),
        cast("str | None", values.get("pattern")),
        cast("str | None", values.get("attribute")),
        cast(Literal["sequence", "slots"], values.get("axis", "sequence")),
        cast("str | float | None", values.get("step")),
        cast("str | float | None", values.get("origin")),
        cast("str | float | None", values.get("stop")),
    )


def _differences(values: Values) -> DifferenceOptions:
    policies = {k: cast(Policy, v) for k, v in values.items() if k != "coordinates"}
    tolerance = cast(Values, values.get("coordinates", {})).get("tolerance", 0.0)
    return DifferenceOptions(**policies, coordinate_tolerance=float(cast(float, tolerance)))


def _selection(take: object) -> Selection:
    if isinstance(take, tuple):
        return Selection("range", cast(Ends, take))
    if not isinstance(take, Mapping):
        return Selection("value", (cast("str | float", take),))
    if "values" in take:
        return Selection("values", cast(Ends, take["values"]))
    if "points" in take:
        points = take["points"]
        if isinstance(points, Mapping):
            return Selection("points", cast(Ends, points["index"]))
        return Selection("point_values", cast(Ends, points))
    if "index" in take:
        return _by_number(take["index"])
    ends, step = (take.get("from"), take.get("to")), cast(int, take.get("step", 1))
    # a stride alone needs no coordinate
    return Selection("slice" if ends == (None, None) else "range", cast(Ends, ends), step)


def _by_number(index: object) -> Selection:
    if isinstance(index, Mapping):
        ends = (index.get("start"), index.get("stop"))
        return Selection("slice", cast(Ends, ends), cast(int, index.get("step", 1)))
    return Selection("list", cast(Ends, index)) if isinstance(index, tuple) else Selection("index", (cast(int, index),))


def build_versions(values: Values) -> VersionOptions | None:
    """Granules that replace others, or None."""
    if not values:
        return None
    return VersionOptions(cast(str, values["of"]), cast(Literal["final", "all"], values.get("prefer", "final")))

"""One axis by itself: what granules are placed by along it, and their places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from drystone.errors import CombineError, ConfigError
from drystone.model.attributes import Attributes
from drystone.model.options import AxisOptions, CombineOptions
from drystone.plan.members import ArrayMembers
from drystone.plan.order_find import coordinates_of, dimension_sizes, scalar_of, telling_times
from drystone.plan.order_keys import Granules, Keys, coordinate_keys
from drystone.plan.order_names import granule_keys
from drystone.plan.order_places import Places, blocks, sequence
from drystone.plan.order_slots import Grid, slots

__all__ = ["Context", "Work", "place"]

_EAST = frozenset(f"{degree}{east}" for degree in ("degree", "degrees") for east in ("_east", "_E", "E"))  # as CF spells it


@dataclass(frozen=True, slots=True)
class Work:
    """One axis that granules were placed on.

    ``spatial``: values are numbers of tiles beside other axes; ``grid``: where it is one of slots, of ``block`` places each.
    """

    options: AxisOptions
    places: Places
    new: bool
    spatial: bool
    path: str
    grid: Grid | None = None
    block: int = 1


@dataclass(frozen=True, slots=True)
class Context:
    """What all axes share; ``notes`` collect."""

    members: Mapping[str, ArrayMembers]
    options: CombineOptions
    granules: Granules
    attributes: Mapping[int, Attributes]
    notes: list[str] = field(default_factory=list)


def place(axis: AxisOptions, context: Context, k: int) -> Work:
    """One axis by itself."""
    granules = context.granules
    new = not any(axis.name in s.dims for m in context.members.values() for s in m.variants)
    if new:
        count = np.ones(len(granules), np.int64)
    else:
        count = _counts(context.members, axis.name, granules)
    path = f"/{axis.name}"
    ways = f"say combine: {{along: {{{axis.name}: {{position: name, pattern: …}}}}}} or position: order"
    if axis.position == "coordinate":
        source, path = _source(axis, context, new, ways)
        keys = coordinate_keys(source, granules, axis.name, ways, context.options.differences.units == "first")
    else:
        keys = granule_keys(axis, granules, context.attributes, new)
        own = coordinates_of(context.members, axis.name)
        path = own[0].path if own else path
        if new and path in context.members:
            context.notes.append(f"{path}: the new axis takes its place, with values from {keys.path}")
    by_element = axis.position == "coordinate" and not new
    if axis.axis == "slots":
        return _on_slots(axis, keys, count, context, new, path, k)
    if by_element:
        places = sequence(keys, granules, ways)
        _check_others(axis.name, places, context, ways)
        _tell_meridians(keys, context)
    else:
        places = blocks(keys, count, granules, ways)
    return Work(axis, places, new, by_element and k > 1 and keys.kind == "number", path)


def _tell_meridians(keys: Keys, context: Context) -> None:
    """A note where granules count longitudes from different meridians: one place has two values then."""
    units = {str(u.to_plain()) for s in keys.specs if (u := s.attributes.get("units")) is not None}
    if keys.kind != "number" or not units & _EAST or not len(keys.flat):
        return
    values = np.unique(keys.flat.astype(np.float64))
    if values[-1] - values[0] < 360:
        return
    turned = np.round(values % 360, 9) % 360
    places, count = np.unique(turned, return_counts=True)
    twice = np.flatnonzero(count > 1)
    if len(twice):
        two = values[turned == places[twice[0]]]
        context.notes.append(
            f"{keys.axis}: {two[0]:g} and {two[-1]:g} are one meridian and two places ({len(twice)} such); granules that count "
            "longitudes from different meridians do not meet: make two archives, or convert one of the two kinds"
        )


def _on_slots(axis: AxisOptions, keys: Keys, count: NDArray[np.int64], context: Context, new: bool, path: str, k: int) -> Work:
    granules = context.granules
    by_element = axis.position == "coordinate" and not new
    if axis.position == "order":
        raise ConfigError(
            f"{axis.name}: slots are places for values, and position: order has none; say axis: sequence", kind="axis-slots"
        )
    block = 1 if by_element else int(count[0])
    wrong = np.flatnonzero(count != block) if block else np.zeros(1, np.intp)
    if not by_element and len(wrong):
        i = int(wrong[0])
        raise CombineError(
            f"{granules.name(i)}: it has {count[i]} elements along {axis.name}, {granules.name(0)} has {count[0]}, and slots "
            f"for whole granules (by {keys.path}) are of one length; say position: coordinate, or axis: sequence",
            kind="axis-size",
            granule=granules.name(i),
        )
    places, grid = slots(axis, keys, granules)
    if not by_element:
        places = replace(
            places, extent=places.extent * block, count=places.count * block, dest=places.dest * block, by_element=False
        )
    if not new and keys.path != path and coordinates_of(context.members, axis.name):
        what = f"its values are those of the slots, by {keys.path}, not the granules' own {path}"
        more = f"each granule takes {block} places; where none does, {path} reads as missing"
        context.notes.append(f"{axis.name}: {what if block == 1 else more}")
    return Work(axis, places, new, by_element and k > 1 and keys.kind == "number", path, grid, block)


def _source(axis: AxisOptions, context: Context, new: bool, ways: str) -> tuple[ArrayMembers, str]:
    """The array that granules are placed by, and the path of the axis' own coordinate."""
    members, n = context.members, len(context.granules)
    if new:
        scalar = scalar_of(members, axis.name)
        if scalar is not None:
            return scalar, scalar.path
        raise CombineError(
            f"{context.granules.name(0)}: {axis.name} is neither a dimension of any array nor a scalar variable to make a "
            "new axis from "
            f"(dimensions: {', '.join(sorted(dimension_sizes(members)))}); {ways}, or position: attribute",
            kind="axis-absent",
            granule=context.granules.name(0),
        )
    found = coordinates_of(members, axis.name)
    own = found[0] if found else None
    if n > 1 and (own is None or (len(own) == n and _tells_nothing(own))):
        times = telling_times(members, axis.name, n)
        if len(times) == 1:
            what = "there is no coordinate variable" if own is None else f"{own.path} is equal in all granules"
            context.notes.append(f"{axis.name}: {what}, so granules were put in order by {times[0].path}")
            return times[0], own.path if own else f"/{axis.name}"
        if times:
            raise CombineError(
                f"granules could be put in order along {axis.name} by any of {', '.join(m.path for m in times)}; leave "
                "out all but one with "
                f"combine: {{variables: […]}}, or {ways}",
                kind="axis-ambiguous",
                candidates=", ".join(m.path for m in times),
            )
    if own is None:
        name = context.granules.name(0)
        raise CombineError(
            f"{name}: there is no coordinate variable {axis.name} to place the granule by; {ways}",
            kind="axis-coordinate-missing",
            granule=name,
        )
    return own, own.path


def _tells_nothing(own: ArrayMembers) -> bool:
    units = {tuple(getattr(s.attributes.get(k), "text", ()) for k in ("units", "calendar")) for s in own.variants}
    return len(units) == 1 and len(np.unique(own.coordinate)) == 1


def _counts(members: Mapping[str, ArrayMembers], axis: str, granules: Granules) -> NDArray[np.int64]:
    """int64 (n,): elements of each granule along a dimension."""
    count = np.full(len(granules), -1, np.int64)
    for m in members.values():
        if not any(axis in s.dims for s in m.variants):
            continue
        sizes = np.array([s.shape[s.dims.index(axis)] if axis in s.dims else -1 for s in m.variants], np.int64)[m.variant]
        at = np.searchsorted(granules.ids, m.granule_id)
        clash = np.flatnonzero((count[at] >= 0) & (sizes >= 0) & (count[at] != sizes))
        if len(clash):
            i = int(clash[0])
            raise CombineError(
                f"{granules.names[int(m.granule_id[i])]}: {m.path} has {sizes[i]} elements along {axis}, another array "
                "there has "
                f"{count[at[i]]}; the two cannot be joined along one axis; leave one out with combine: {{variables: […]}}",
                kind="axis-size",
                variable=m.path,
            )
        count[at] = np.where(sizes >= 0, sizes, count[at])
    if np.any(count < 0):
        first = granules.name(int(np.flatnonzero(count < 0)[0]))
        raise CombineError(
            f"{first}: no array has the dimension {axis} that granules are joined along (dimensions: "
            f"{', '.join(sorted(dimension_sizes(members)))})",
            kind="axis-absent",
            granule=first,
        )
    return count


def _check_others(axis: str, places: Places, context: Context, ways: str) -> None:
    """Refuse where a further coordinate of the dimension, in another group, puts granules in another order."""
    granules, mine = context.granules, places.keys
    first = np.flatnonzero(mine.size() > 0)
    for other in coordinates_of(context.members, axis)[1:]:
        if other.path == mine.path or len(other) < len(granules):
            continue
        try:
            keys = coordinate_keys(other, granules, axis, ways)
            theirs = sequence(keys, granules, ways)
        except CombineError:
            continue  # it gives no order, so none that disagrees
        both = first[(theirs.keys.size() > 0)[first]]
        a, b = (p.dest[p.start[p.keys.segment[both]]] for p in (places, theirs))
        if (np.argsort(a, kind="stable") != np.argsort(b, kind="stable")).any():
            raise CombineError(
                f"the granules have one order by {mine.path} and another by {other.path}, and one axis {axis} has one; "
                f"leave one out with combine: {{variables: […]}}, or {ways}",
                kind="axis-order",
                variable=mine.path,
                other=other.path,
            )

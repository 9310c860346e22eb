"""Which places granules take: one axis or several, in order of values or in slots, along dimensions or new axes.

Each axis is placed by itself: by the values of its coordinate (:mod:`~drystone.plan.order_keys`), or by names, attributes
or the list (:mod:`~drystone.plan.order_names`). A granule's boxes are its runs on every axis, crossed; where two granules hold
one place the policy says which counts, place by place (:mod:`~drystone.plan.order_rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from drystone.errors import ConfigError
from drystone.model.attributes import Attributes
from drystone.model.made import AxisRule
from drystone.model.options import CombineOptions
from drystone.plan.members import ArrayMembers
from drystone.plan.order_axis import Context, Work, place
from drystone.plan.order_find import axes_of
from drystone.plan.order_keys import Granules
from drystone.plan.order_made import joined_values, new_values, slot_values
from drystone.plan.order_policy import resolved, say_place
from drystone.plan.order_rows import Boxes

__all__ = ["Axis", "Order", "order_axes"]


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of the whole.

    Parameters
    ----------
    name, extent
        Dimension and places along it.
    new
        Whether the granules' arrays lack the dimension.
    values
        Its coordinate, where that is not just the granules' own values joined: slots, new axes, and all axes that are
        placed by values where there are several. Native; text as ``StringDType``.
    attributes
        Of the coordinate, where ``values`` are given: units and calendar among them.
    path
        Of the coordinate.
    origin
        Of slots: the first slot's value, a number or an ISO 8601 time, for keeping once published.
    rule
        What ``values`` come from, where they are given.
    say
        A place by what lies there, for messages.
    """

    name: str
    extent: int
    new: bool
    values: NDArray[np.generic] | None
    attributes: Attributes
    path: str
    origin: str | None = None
    rule: AxisRule | None = None
    say: Callable[[int], str] | None = field(default=None, compare=False, repr=False)

    def at(self, places: NDArray[np.int64]) -> Axis:
        """The axis with some of its places alone."""
        values = None if self.values is None else self.values[places]
        rule = None if self.rule is None else self.rule.taken(places)
        return replace(self, extent=len(places), values=values, rule=rule)


@dataclass(frozen=True, slots=True)
class Order:
    """Axes, and the boxes of granules in their space.

    Parameters
    ----------
    axes
        Empty where one granule needs none.
    granule_id
        int32 (m,): of each box; a granule may have several.
    src_offset, count, dest
        int64 (m, k): of each box along each axis; boxes are disjoint, in order of ``dest``.
    notes
        What a user should know: granules without a place, what was placed by what.
    """

    axes: tuple[Axis, ...]
    granule_id: NDArray[np.int32]
    src_offset: NDArray[np.int64]
    count: NDArray[np.int64]
    dest: NDArray[np.int64]
    notes: tuple[str, ...] = ()


def order_axes(
    members: Mapping[str, ArrayMembers],
    options: CombineOptions,
    granule_ids: NDArray[np.int32],
    names: Mapping[int, str],
    attributes: Mapping[int, Attributes],
) -> Order:
    """Places of granules on the axes they are joined along.

    Parameters
    ----------
    members
        Arrays by path.
    options
        The axes, or none to find one; what counts where granules meet.
    granule_ids
        int32 (n,), ascending.
    names
        Granule id to address, in listed order.
    attributes
        Granule id to its global attributes; needed for ``position: attribute`` only.

    Raises
    ------
    CombineError
        ``axis-…`` or ``difference``; the message names granules, axis, values and ways out.
    ConfigError
        What the config says of an axis makes no sense for it.
    """
    members = {path: _only(m, granule_ids) for path, m in members.items()}
    context = Context(members, options, Granules(granule_ids, names), attributes)
    along = options.along or axes_of(members, len(granule_ids))
    twice = next((a.name for i, a in enumerate(along) if any(b.name == a.name for b in along[:i])), None)
    if twice is not None:
        raise ConfigError(f"along: {twice} is said twice, and an axis is placed by one rule", kind="axis-twice")
    if not along:
        zero = np.zeros((len(granule_ids), 0), np.int64)
        return Order((), granule_ids, zero, zero, zero)
    work = [place(axis, context, len(along)) for axis in along]
    boxes = resolved(work, context)
    axes = tuple(
        replace(_ruled(_axis(w, i, boxes, context), w, i, boxes, granule_ids), say=partial(say_place, w))
        for i, w in enumerate(work)
    )
    return Order(axes, granule_ids[boxes.granule], boxes.src, boxes.count, boxes.dest, tuple(context.notes))


def _only(members: ArrayMembers, granule_ids: NDArray[np.int32]) -> ArrayMembers:
    """Without granules that are not asked for, such as those that a newer version replaces."""
    wanted = np.isin(members.granule_id, granule_ids)
    return members if wanted.all() else members.take(np.flatnonzero(wanted))


def _ruled(axis: Axis, work: Work, i: int, boxes: Boxes, granule_ids: NDArray[np.int32]) -> Axis:
    """The axis with what its values come from."""
    if axis.values is None:
        return axis
    columns = np.stack([boxes.dest[:, i], boxes.src[:, i], boxes.count[:, i], boxes.granule])
    if boxes.dest.shape[1] > 1:  # a granule's runs on one axis are repeated for those on the others
        columns = columns[:, np.sort(np.unique(columns, axis=1, return_index=True)[1])]
    dest, src, count, granule = columns
    source = work.places.keys.path if work.options.position == "coordinate" else ""
    return replace(axis, rule=AxisRule(work.options, source, axis.origin, granule_ids[granule], src, count, dest))


def _axis(work: Work, i: int, boxes: Boxes, context: Context) -> Axis:
    places, options = work.places, work.options
    if not len(boxes.granule):
        return Axis(options.name, places.extent, work.new, None, Attributes(), work.path)
    if work.grid is not None and work.block > 1:
        origin = work.grid.origin_text(places.keys)
        return Axis(options.name, places.extent, work.new, None, Attributes(), work.path, origin)
    if work.grid is not None:
        values, attributes, notes = slot_values(places, work.grid, boxes, i)
        context.notes.extend(notes)
        return Axis(options.name, places.extent, work.new, values, attributes, work.path, work.grid.origin_text(places.keys))
    if work.new:
        values, attributes = new_values(places, int(boxes.granule[0]))
        return Axis(options.name, places.extent, True, values, attributes, work.path)
    if places.by_element and boxes.dest.shape[1] > 1:
        values, attributes = joined_values(places, int(boxes.granule[0]))
        return Axis(options.name, places.extent, False, values, attributes, work.path)
    return Axis(options.name, places.extent, False, None, Attributes(), work.path)

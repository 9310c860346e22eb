"""Values of an axis that the joined coordinate does not have: slots with gaps between them, and new axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drystone.model.array import ArraySpec
from drystone.model.attributes import Attribute, Attributes
from drystone.plan.order_keys import Keys, distinct
from drystone.plan.order_places import Places
from drystone.plan.order_rows import Boxes
from drystone.plan.order_slots import Grid
from drystone.plan.order_times import Clock, encode, iso, parse_clock

__all__ = ["joined_values", "new_values", "slot_values", "unpacked"]

_FINER = ("days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds")


@dataclass(frozen=True, slots=True)
class _Base:
    """What the values are written like: the first granule's spec, where there is one."""

    keys: Keys
    spec: ArraySpec | None
    clock: Clock | None


def new_values(places: Places, base: int) -> tuple[NDArray[np.generic], Attributes]:
    """The distinct keys of a new axis, in order."""
    keys = places.keys
    flat = distinct(keys.flat)
    return _encoded(flat, _Base(keys, keys.spec(base), keys.clock(base)))


def joined_values(places: Places, base: int) -> tuple[NDArray[np.generic], Attributes]:
    """The value of each place of an axis whose elements were placed by value."""
    keys = places.keys
    run = np.repeat(np.arange(len(places.count)), places.count)
    inner = np.arange(len(run)) - np.repeat(np.cumsum(places.count) - places.count, places.count)
    segment = np.repeat(np.arange(len(places.start) - 1), np.diff(places.start))[run]
    flat = np.zeros(places.extent, keys.flat.dtype)
    flat[places.dest[run] + inner] = keys.flat[keys.offset[segment] + places.src[run] + inner]
    return _encoded(flat, _Base(keys, keys.spec(base), keys.clock(base)))


def slot_values(places: Places, grid: Grid, boxes: Boxes, axis: int) -> tuple[NDArray[np.generic], Attributes, tuple[str, ...]]:
    """A value for each slot: the grid's, or what the granule there says where slots are calendar months."""
    keys = places.keys
    flat = grid.keys_at(np.arange(places.extent, dtype=np.int64))
    base = int(boxes.granule[0])
    notes: tuple[str, ...] = ()
    if grid.months:
        flat, mixed = _held(flat, places, boxes, axis)
        if mixed:
            notes = (
                f"{keys.axis}: granules in one slot say different times (the first: {mixed}); the first one's is published",
            )
    values, attributes = _encoded(flat, _Base(keys, keys.spec(base), keys.clock(base)))
    return values, attributes, notes


def _held(flat: NDArray[np.generic], places: Places, boxes: Boxes, axis: int) -> tuple[NDArray[np.generic], str]:
    """Month slots with the times that granules have there; and a place where two say different ones."""
    keys = places.keys
    count = boxes.count[:, axis]
    row = np.repeat(np.arange(len(count)), count)
    inner = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    own = keys.flat[keys.offset[keys.segment[boxes.granule[row]]] + boxes.src[row, axis] + inner]
    dest = boxes.dest[row, axis] + inner
    if own.dtype != flat.dtype:
        flat = flat.astype(object)
    flat = flat.copy()
    flat[dest[::-1]] = own[::-1]
    differ = np.flatnonzero(flat[dest] != own)
    mixed = ""
    if len(differ):
        i = int(differ[0])
        mixed = f"{keys.say(flat[dest[i]])} and {keys.say(own[i])}"
    return flat, mixed


def _encoded(flat: NDArray[np.generic], base: _Base) -> tuple[NDArray[np.generic], Attributes]:
    if base.keys.kind == "label":
        return np.array(flat.tolist(), np.dtypes.StringDType()), _attributes(base.spec)
    if base.keys.kind == "time":
        if base.spec is not None and base.spec.dtype.kind == "M":
            return np.asarray(flat.astype(np.int64).view("M8[ns]").astype(base.spec.native_dtype)), Attributes()
        return _times(flat, base)
    values: NDArray[np.generic] = flat
    if base.spec is not None and not {"scale_factor", "add_offset"} & set(base.spec.attributes):
        own = flat.astype(base.spec.native_dtype)
        if base.spec.dtype.kind == "f" or np.array_equal(own, flat):
            values = own
    elif flat.dtype == object:
        values = flat.astype(np.float64)
    return values, _attributes(base.spec)


def unpacked(attributes: Attributes) -> Attributes:
    """Without what says how numbers are stored: values of an axis that is made are the numbers themselves.

    Examples
    --------
    >>> list(unpacked(Attributes.of({"scale_factor": 0.5, "units": "m"})))
    ['units']
    """
    return attributes.without("scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned")


def _attributes(spec: ArraySpec | None) -> Attributes:
    """The base's attributes, but for what says how its own numbers are stored."""
    if spec is None:
        return Attributes()
    return unpacked(spec.attributes)


def _times(flat: NDArray[np.generic], base: _Base) -> tuple[NDArray[np.generic], Attributes]:
    clock = base.clock
    if clock is None or base.spec is None:
        reference = iso(min(flat.tolist()) // 86_400_000_000_000 * 86_400_000_000_000, base.keys.calendar)[:-9]
        values, units = _finest(flat, reference, base.keys.calendar, (np.dtype(np.int64),), ("days", *_FINER[3:]))
        return values, Attributes.of({"units": units, "calendar": base.keys.calendar})
    packed = {"scale_factor", "add_offset"} & set(base.spec.attributes)
    dtype = np.dtype(np.float64) if packed else base.spec.native_dtype
    own = encode(flat, clock, dtype)
    attributes = _attributes(base.spec)
    if own is not None:
        return own, attributes
    dtypes = (dtype, np.dtype(np.float64), np.dtype(np.int64)) if dtype.kind == "f" else (dtype, np.dtype(np.int64))
    values, units = _finest(flat, clock.reference, clock.calendar, dtypes, _FINER)
    return values, _retold(attributes, units)


def _retold(attributes: Attributes, units: str) -> Attributes:
    return Attributes(tuple((k, Attribute.of(units) if k == "units" else v) for k, v in attributes.items_))


def _finest(
    flat: NDArray[np.generic], reference: str, calendar: str, dtypes: Sequence[np.dtype], units: Sequence[str]
) -> tuple[NDArray[np.generic], str]:
    """Times in the coarsest of the units that holds them exactly; the nearest nanosecond where none does."""
    for unit in units:
        text = f"{unit} since {reference}"
        clock = parse_clock(text, calendar)
        for dtype in dtypes:
            values = None if clock is None else encode(flat, clock, dtype)
            if values is not None:
                return values, text
    text = f"nanoseconds since {reference}"
    clock = parse_clock(text, calendar)
    assert clock is not None
    return np.array([round(t - clock.epoch) for t in flat.tolist()], np.int64), text

"""What granules are placed by: for each granule the values of its coordinate, as columns of exact, comparable keys.

Times become instants in their calendar, packed numbers are unpacked, everything else stays the number it is. What has no
place on an axis (NaN, a fill value, a time twice, values that turn back) is refused here, naming granule and index.
Columns run over the distinct arrays of values; a million granules that share a few tiles share a few segments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from drystone.errors import CombineError
from drystone.model.array import ArraySpec
from drystone.plan.members import ArrayMembers
from drystone.plan.order_times import GREGORIAN_START, Clock, calendar_name, instants, iso, narrow, parse_clock
from drystone.plan.times import is_time

__all__ = ["Granules", "Keys", "check_inside", "coordinate_keys", "distinct", "joined", "say_number"]

# what netCDF writes where nothing was written; bytes have none
_DEFAULT_FILL = {
    "i2": -32767, "i4": -2147483647, "i8": -9223372036854775806, "f4": 9.969209968386869e36, "f8": 9.969209968386869e36,
}  # fmt: skip
_ONE_CALENDAR = "one axis has one calendar: join them as two archives, or convert the files"
_GREGORIAN = {"standard", "proleptic_gregorian"}


@dataclass(frozen=True, slots=True)
class Granules:
    """The granules to place.

    ``ids`` ascending; ``names`` has them in listed order, which is what ``first`` and ``last`` mean.
    """

    ids: NDArray[np.int32]
    names: Mapping[int, str]

    def __len__(self) -> int:
        return len(self.ids)

    def name(self, i: int) -> str:
        """Address of the i-th granule by id."""
        return self.names[int(self.ids[i])]

    def listed(self) -> NDArray[np.int64]:
        """int64 (n,): place of each granule in the list."""
        rank = {g: i for i, g in enumerate(self.names)}
        return np.array([rank[g] for g in self.ids.tolist()], np.int64)


@dataclass(frozen=True, slots=True)
class Keys:
    """Comparable values of an axis, in segments that granules share.

    Parameters
    ----------
    axis, path
        Names of the axis and of the array, or the words for what else the values were read from.
    kind
        ``time``: instants; ``number``; ``label``: text.
    flat
        Keys of all segments, one after another: int64, float64, or Python numbers or text.
    offset
        int64 (d + 1,): where segments start.
    segment
        int32 (n,): the segment of each granule.
    specs
        For each segment the spec that its values come from; empty where they come from names or attributes.
    calendar
        Of times.
    """

    axis: str
    path: str
    kind: Literal["time", "number", "label"]
    flat: NDArray[np.generic]
    offset: NDArray[np.int64]
    segment: NDArray[np.int32]
    specs: tuple[ArraySpec, ...] = ()
    spec_of: NDArray[np.int32] | None = None
    calendar: str = ""

    def size(self) -> NDArray[np.int64]:
        """int64 (n,): values of each granule."""
        return np.diff(self.offset)[self.segment]

    def of(self, granule: int) -> NDArray[np.generic]:
        """The keys of one granule."""
        s = int(self.segment[granule])
        return self.flat[self.offset[s] : self.offset[s + 1]]

    def spec(self, granule: int) -> ArraySpec | None:
        """The spec that the values of one granule come from."""
        return None if self.spec_of is None else self.specs[int(self.spec_of[self.segment[granule]])]

    def say(self, key: object) -> str:
        """A key for a reader."""
        value = key.item() if isinstance(key, np.generic) else key
        if self.kind == "time" and not isinstance(value, str):
            return iso(value, self.calendar)  # type: ignore[arg-type]
        return value if isinstance(value, str) else say_number(value)  # type: ignore[arg-type]

    def clocks(self) -> tuple[Clock, ...]:
        """The units that any granule tells its times in."""
        used = () if self.spec_of is None else distinct(self.spec_of).tolist()
        return tuple(c for v in used if (c := _clock(self.specs[v])) is not None)

    def clock(self, granule: int) -> Clock | None:
        """The units that one granule tells its times in."""
        spec = self.spec(granule)
        return None if spec is None else _clock(spec)


def say_number(number: float) -> str:
    """A number, short where that says it all.

    Examples
    --------
    >>> say_number(3.0), say_number(1688169600000000000)
    ('3', '1688169600000000000')
    """
    short = f"{float(number):g}"
    return short if float(short) == number else repr(number)


def _text(spec: ArraySpec, key: str) -> str | None:
    value = spec.attributes.get(key)
    return value.text[0] if value is not None and value.text else None


def _clock(spec: ArraySpec) -> Clock | None:
    units = _text(spec, "units")
    return None if units is None else parse_clock(units, _text(spec, "calendar"))


def _is_time(spec: ArraySpec) -> bool:
    return is_time(_text(spec, "units"))


def coordinate_keys(members: ArrayMembers, granules: Granules, axis: str, ways: str, any_units: bool = False) -> Keys:
    """Keys from a coordinate that every granule has; the order of elements is not checked yet.

    Parameters
    ----------
    members
        The coordinate: of rank 1 or 0.
    ways
        What else can be said, for messages.
    any_units
        Whether units of numbers may differ.

    Raises
    ------
    CombineError
        ``axis-coordinate-missing``, ``axis-nan``, ``difference``.
    """
    _check_known(members, granules, ways)
    members = members.take(np.searchsorted(members.granule_id, granules.ids))
    n = max(1, len(members.coordinates))
    codes, first, segment = np.unique(
        members.variant.astype(np.int64) * n + members.coordinate, return_index=True, return_inverse=True
    )
    variant, chosen = codes // n, codes % n
    arrays = [members.coordinates[c].reshape(-1) for c in chosen.tolist()]
    offset = np.concatenate([[0], np.cumsum([len(a) for a in arrays])]).astype(np.int64)
    used = distinct(variant).tolist()
    where = [int(first[np.searchsorted(variant, v)]) for v in used]
    kind, calendar, exact = _meaning(members, where, granules, any_units)
    parts = []
    for v in used:
        lo, hi = np.searchsorted(variant, [v, v + 1])
        raw, spec = np.concatenate(arrays[lo:hi]), members.variants[v]
        _check_values(raw, spec, offset[lo : hi + 1] - offset[lo], _namer(granules, first[lo:hi]))
        parts.append(_keys_of(raw, spec, kind if exact else "number"))
    flat = joined(parts)
    _check_gregorian(flat, members, where, granules)
    kind = kind if exact or kind == "label" else "number"
    segment, spec_of = segment.astype(np.int32).reshape(-1), variant.astype(np.int32)
    return Keys(axis, members.path, kind, flat, offset, segment, members.variants, spec_of, calendar if exact else "")


def _check_gregorian(flat: NDArray[np.generic], members: ArrayMembers, where: Sequence[int], granules: Granules) -> None:
    """Refuse the two Gregorian calendars side by side where they differ: before 1582-10-15."""
    calendars = [calendar_name(_text(members.spec(i), "calendar")) for i in where if _is_time(members.spec(i))]
    if len(set(calendars)) < 2 or not len(flat) or min(flat.tolist()) >= GREGORIAN_START:
        return
    i = next(i for i, c in enumerate(calendars) if c != calendars[0])
    one, two = granules.name(where[0]), granules.name(where[i])
    raise _differ(
        members.path, "calendar", one, calendars[0], two, calendars[i], _ONE_CALENDAR + "; they are one from 1582-10-15 on"
    )


def _namer(granules: Granules, first: NDArray[np.intp]) -> Callable[[int], str]:
    """Names the granule that a segment was first seen in."""
    return lambda segment: granules.name(int(first[segment]))


def _check_known(members: ArrayMembers, granules: Granules, ways: str) -> None:
    at = np.searchsorted(granules.ids, members.granule_id)
    known = np.zeros(len(granules), np.bool_)
    kinds = np.array([v.dtype.kind in "iufbTSM" for v in members.variants])[members.variant]
    known[at] = (members.coordinate >= 0) & kinds
    if known.all():
        return
    name = granules.name(int(np.flatnonzero(~known)[0]))
    raise CombineError(
        f"{name}: {members.path} is not there or its values are no small array of numbers or text, so the granule cannot be "
        f"placed by it; {ways}",
        kind="axis-coordinate-missing",
        granule=name,
        variable=members.path,
    )


def _meaning(
    members: ArrayMembers, where: Sequence[int], granules: Granules, any_units: bool
) -> tuple[Literal["time", "number", "label"], str, bool]:
    """Whether values are times, in which calendar, and whether their units are known; refused where granules disagree."""
    base, one = members.spec(where[0]), granules.name(where[0])
    if all(members.spec(i).dtype.kind in "TS" for i in where):
        return "label", "", False
    if all(members.spec(i).dtype.kind == "M" for i in where):
        return "time", "proleptic_gregorian", True
    times = _is_time(base)
    readable = all(_clock(members.spec(i)) is not None for i in where)
    for i in where:
        spec, two = members.spec(i), granules.name(i)
        a, b = (calendar_name(_text(s, "calendar")) for s in (base, spec))
        if times and _is_time(spec) and a != b and {a, b} != _GREGORIAN:
            raise _differ(
                members.path,
                "calendar",
                one,
                a,
                two,
                b,
                _ONE_CALENDAR,
            )
        a, b = (_text(s, "units") or "none" for s in (base, spec))
        if a.split() != b.split() and not (times and readable) and not (any_units and not times and not _is_time(spec)):
            ways = "numbers that mean different things have no order; say position: name or order for the axis"
            raise _differ(members.path, "units", one, a, two, b, ways)
        if (spec.dtype.kind in "TS") != (base.dtype.kind in "TS"):
            raise _differ(
                members.path, "element type", one, str(base.dtype), two, str(spec.dtype), "leave one out of the granules"
            )
    return ("time" if times else "number"), calendar_name(_text(base, "calendar")), times and readable


def _differ(path: str, what: str, one: str, a: str, two: str, b: str, ways: str) -> CombineError:
    return CombineError(
        f"{path}: {what} differs between granules: {a!r} in {one}, {b!r} in {two}; {ways}",
        kind="difference",
        variable=path,
        what=what,
        granule=one,
        other=two,
        value=a,
        other_value=b,
    )


def _check_values(raw: NDArray[np.generic], spec: ArraySpec, offset: NDArray[np.int64], name: Callable[[int], str]) -> None:
    """Refuse what is no value: NaN, the attributes' fill values, netCDF's default fill of what was never written."""
    kind = raw.dtype.kind
    if kind not in "iuf":
        if kind == "M" and np.isnat(raw).any():
            _refuse_value(raw, np.isnat(raw), offset, spec, name, "not a time")
        return
    if kind == "f":
        _refuse_value(raw, ~np.isfinite(raw), offset, spec, name, "no finite number")
    for key in ("_FillValue", "missing_value"):
        value = spec.attributes.get(key)
        if value is not None and value.dtype not in ("text", "bytes"):
            _refuse_value(raw, np.isin(raw, np.asarray(value.value)), offset, spec, name, f"its {key}: it says missing")
    default = _DEFAULT_FILL.get(raw.dtype.str[1:])
    if default is not None:
        _refuse_value(raw, raw == raw.dtype.type(default), offset, spec, name, "netCDF's default fill: it was never written")


def _refuse_value(
    raw: NDArray[np.generic],
    bad: NDArray[np.bool_],
    offset: NDArray[np.int64],
    spec: ArraySpec,
    name: Callable[[int], str],
    why: str,
) -> None:
    if not bad.any():
        return
    i = int(np.flatnonzero(bad)[0])
    segment = int(np.searchsorted(offset, i, side="right")) - 1
    granule, index = name(segment), i - int(offset[segment])
    raise CombineError(
        f"{granule}: {spec.name} at {index} is {raw[i]!s}, {why}; it has no place on an axis; leave the granule out, or say "
        "position: name or order for the axis",
        kind="axis-nan",
        granule=granule,
        variable=spec.path,
        index=index,
    )


def _keys_of(raw: NDArray[np.generic], spec: ArraySpec, kind: str) -> NDArray[np.generic]:
    if raw.dtype.kind in "TS":
        return np.array([v.decode("utf-8", "replace") if isinstance(v, bytes) else str(v) for v in raw.tolist()], object)
    if raw.dtype.kind == "M":
        return np.asarray(raw.astype("M8[ns]").astype(np.int64))
    raw = _unpacked(raw, spec)
    clock = _clock(spec) if kind == "time" else None
    if clock is not None:
        return instants(raw, clock)
    if raw.dtype.kind == "f":
        return raw.astype(np.float64)
    return narrow(raw.astype(object)) if raw.dtype.kind == "u" and raw.dtype.itemsize == 8 else raw.astype(np.int64)


def _unpacked(raw: NDArray[np.generic], spec: ArraySpec) -> NDArray[np.generic]:
    scale, shift = (spec.attributes.get(k) for k in ("scale_factor", "add_offset"))
    unsigned = spec.attributes.get("_Unsigned")
    if unsigned is not None and unsigned.text and unsigned.text[0].lower() == "true" and raw.dtype.kind == "i":
        raw = raw.view(raw.dtype.str.replace("i", "u"))
    if scale is None and shift is None:
        return raw
    factor, term = (d if a is None else float(a.value) for a, d in ((scale, 1.0), (shift, 0.0)))
    return np.asarray(raw.astype(np.float64) * factor + term)


def distinct(values: NDArray[np.generic]) -> NDArray[np.generic]:
    """The distinct values of a column, sorted: by sorting, since hashing is slow for regular numbers."""
    values = np.sort(values)
    return values[np.append(True, values[1:] != values[:-1])] if len(values) else values


def joined(parts: Sequence[NDArray[np.generic]]) -> NDArray[np.generic]:
    """Keys of several sources as one column that compares exactly."""
    if len({p.dtype for p in parts}) > 1:
        exact = all(
            p.dtype.kind == "f" or (p.dtype.kind == "i" and (not len(p) or int(np.abs(p).max()) < 1 << 53)) for p in parts
        )
        return np.concatenate([p.astype(np.float64 if exact else object) for p in parts])
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def check_inside(keys: Keys, granules: Granules) -> NDArray[np.int8]:
    """Direction of each segment: 1 rises, -1 falls, 0 has one value or none.

    Raises
    ------
    CombineError
        ``axis-unsorted`` where one turns back or has a value twice.
    """
    flat, offset = keys.flat, keys.offset
    direction = np.zeros(len(offset) - 1, np.int8)
    if len(flat) < 2:
        return direction
    step = (flat[1:] > flat[:-1]).astype(np.int8) - (flat[1:] < flat[:-1]).astype(np.int8)  # type: ignore[operator]
    segment = np.repeat(np.arange(len(direction)), np.diff(offset))
    inside = segment[1:] == segment[:-1]
    several = np.diff(offset) > 1
    direction[several] = step[offset[:-1][several]]
    bad = np.flatnonzero(inside & ((step == 0) | (step != direction[segment[:-1]])))
    if len(bad):
        i = int(bad[0])
        s = int(segment[i])
        granule, at = granules.name(int(np.flatnonzero(keys.segment == s)[0])), i - int(offset[s])
        a, b = keys.say(flat[i]), keys.say(flat[i + 1])
        what = (
            f"holds {a} twice, at {at} and {at + 1}"
            if step[i] == 0
            else f"neither rises nor falls throughout ({a} then {b} at {at} and {at + 1})"
        )
        raise CombineError(
            f"{granule}: {keys.axis} {what}; say combine: {{along: {{{keys.axis}: {{position: order}}}}}} to join granules in "
            "listed order as they are, or leave the granule out",
            kind="axis-unsorted",
            granule=granule,
            index=at,
        )
    return direction

"""Which dimension granules are joined along, and in which order they come.

The axis is the one dimension whose coordinate or length differs between granules; where nothing differs, the one that
is unlimited. Several candidates are an error that lists them, never a guess.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from drystone.errors import CombineError
from drystone.model.options import AxisOptions
from drystone.plan.compare import check_variant
from drystone.plan.members import ArrayMembers

type Number = int | float

__all__ = ["AxisOrder", "coordinate_of", "find_axis", "order_granules"]


@dataclass(frozen=True, slots=True)
class AxisOrder:
    """The granules in order along the axis.

    ``count``, int64 (n,), are elements along the axis in that order.
    """

    name: str
    granule_id: NDArray[np.int32]
    count: NDArray[np.int64]

    @property
    def dest(self) -> NDArray[np.int64]:
        """int64 (n,): first element of each granule in the whole."""
        return np.concatenate([[0], np.cumsum(self.count)[:-1]]).astype(np.int64)


def coordinate_of(members: Mapping[str, ArrayMembers], dimension: str) -> ArrayMembers | None:
    """The coordinate array of a dimension: one-dimensional, named as it; the one nearest the root."""
    found = _coordinates_of(members, dimension)
    return found[0] if found else None


def _coordinates_of(members: Mapping[str, ArrayMembers], dimension: str) -> list[ArrayMembers]:
    """All coordinate arrays of a dimension, those nearest the root first."""
    found = [m for m in members.values() if m.name == dimension and m.variants[0].dims == (dimension,)]
    return sorted(found, key=lambda m: m.path.count("/"))


def _sizes(members: Mapping[str, ArrayMembers]) -> dict[str, set[int]]:
    sizes: dict[str, set[int]] = {}
    for m in members.values():
        for spec in m.variants:
            for name, n in zip(spec.dims, spec.shape, strict=True):
                sizes.setdefault(name, set()).add(n)
    return sizes


def find_axis(members: Mapping[str, ArrayMembers], n_granules: int) -> str | None:
    """The combine axis, or None where one granule needs none.

    Raises
    ------
    CombineError
        ``axis-ambiguous`` with the candidates, ``axis-none`` where nothing tells granules apart.
    """
    if n_granules == 1:
        return None
    unlimited = {d for m in members.values() for s in m.variants for d, u in zip(s.dims, s.unlimited, strict=False) if u}
    differs = {name for name in _sizes(members) if (c := coordinate_of(members, name)) is not None and len(c.coordinates) > 1}
    differs |= {name for name, sizes in _per_granule_sizes(members).items() if len(sizes) > 1}
    candidates = differs or unlimited
    if len(candidates) > 1 and len(candidates & unlimited) == 1:
        candidates &= unlimited
    if len(candidates) == 1:
        return next(iter(candidates))
    if not candidates:
        names = ", ".join(sorted(_sizes(members)))
        raise CombineError(
            f"{n_granules} granules have equal coordinates and no unlimited dimension, so nothing says along which of "
            f"({names}) "
            "they are joined; say so with combine: {along: {DIMENSION: {position: order}}}",
            kind="axis-none",
        )
    raise CombineError(
        f"granules could be joined along any of {', '.join(sorted(candidates))}; choose one with combine: {{along: DIMENSION}}",
        kind="axis-ambiguous",
        candidates=", ".join(sorted(candidates)),
    )


def _per_granule_sizes(members: Mapping[str, ArrayMembers]) -> dict[str, set[int]]:
    """Sizes of a dimension over granules, where each granule has one size of it (groups may reuse a name)."""
    out: dict[str, set[int]] = {}
    for m in members.values():
        for axis, name in enumerate(m.variants[0].dims):
            sizes = {s.shape[axis] for s in m.variants if len(s.shape) > axis}
            if len(sizes) > 1:
                out.setdefault(name, set()).update(sizes)
    return out


def order_granules(
    members: Mapping[str, ArrayMembers],
    axis: AxisOptions,
    granule_ids: NDArray[np.int32],
    names: Mapping[int, str],
) -> AxisOrder:
    """Put granules in order along the axis and count their elements; ``names`` has them in listed order.

    Raises
    ------
    CombineError
        ``axis-coordinate-missing``, ``axis-duplicate``, ``axis-overlap``, ``axis-nan``, ``axis-unsorted``,
        ``axis-name-pattern``, ``axis-absent``; the message names the granules and values.
    """
    count = _counts(members, axis.name, granule_ids, names)
    if axis.position == "order":
        listed = {g: i for i, g in enumerate(names)}
        order = np.argsort([listed[g] for g in granule_ids.tolist()], kind="stable")
    elif axis.position == "name":
        order = _by_name(axis, granule_ids, names)
    else:
        order = _by_coordinate(members, axis.name, granule_ids, names)
    return AxisOrder(axis.name, granule_ids[order], count[order])


def _counts(
    members: Mapping[str, ArrayMembers], axis: str, granule_ids: NDArray[np.int32], names: Mapping[int, str]
) -> NDArray[np.int64]:
    count = np.full(len(granule_ids), -1, np.int64)
    for m in members.values():
        if axis not in m.variants[0].dims:
            continue
        sizes = np.array([s.shape[s.dims.index(axis)] if axis in s.dims else -1 for s in m.variants], np.int64)[m.variant]
        at = np.searchsorted(granule_ids, m.granule_id)
        clash = np.flatnonzero((count[at] >= 0) & (sizes >= 0) & (count[at] != sizes))
        if len(clash):
            i = int(clash[0])
            raise CombineError(
                f"{names[int(m.granule_id[i])]}: {m.path} has {sizes[i]} elements along {axis}, another array there has "
                f"{count[at[i]]}; the two cannot be joined along one axis; leave one out with combine: {{variables: […]}}",
                kind="axis-size",
                variable=m.path,
            )
        count[at] = np.where(sizes >= 0, sizes, count[at])
    if np.any(count < 0):
        first = names[int(granule_ids[int(np.flatnonzero(count < 0)[0])])]
        dims = ", ".join(sorted(_sizes(members)))
        raise CombineError(
            f"{first}: no array has the dimension {axis} that granules are joined along (dimensions: {dims})",
            kind="axis-absent",
            granule=first,
        )
    return count


def _by_name(axis: AxisOptions, granule_ids: NDArray[np.int32], names: Mapping[int, str]) -> NDArray[np.intp]:
    keys: list[tuple[float, int]] = []
    for i, g in enumerate(granule_ids.tolist()):
        keys.append((_name_value(axis.pattern or "", names[g]), i))
    keys.sort()
    for (a, i), (b, j) in pairwise(keys):
        if a == b:
            raise CombineError(
                f"{names[int(granule_ids[i])]} and {names[int(granule_ids[j])]} have one place along {axis.name}: the pattern "
                f"{axis.pattern!r} reads {a:g} from both; leave one out of the granules",
                kind="axis-duplicate",
            )
    return np.array([i for _, i in keys], dtype=np.intp)


def _name_value(pattern: str, name: str) -> float:
    base = name.rsplit("/", 1)[-1].rsplit(":", 1)[-1]
    if "%" in pattern:
        for candidate in _windows(pattern, base):
            try:
                return dt.datetime.strptime(candidate, pattern).replace(tzinfo=dt.UTC).timestamp()
            except ValueError:
                continue
    else:
        match = re.search(pattern, base)
        if match and match.groups():
            return float(match.group(1))
    raise CombineError(
        f"{name}: the pattern {pattern!r} does not match its name; write a date pattern such as oisst.%Y%m%d.nc or a regular "
        "expression with one group around a number",
        kind="axis-name-pattern",
        granule=name,
    )


def _windows(pattern: str, text: str) -> list[str]:
    """The whole name, and the parts of it that a pattern without the rest of the name could mean."""
    length = len(dt.datetime(2000, 11, 22, 13, 14, 15, tzinfo=dt.UTC).strftime(pattern))
    return [text, *(text[i : i + length] for i in range(max(0, len(text) - length) + 1))]


def _by_coordinate(
    members: Mapping[str, ArrayMembers], axis: str, granule_ids: NDArray[np.int32], names: Mapping[int, str]
) -> NDArray[np.intp]:
    found = _coordinates_of(members, axis)
    coordinate = found[0] if found else None
    ways = f"say combine: {{along: {{{axis}: {{position: name, pattern: …}}}}}} or position: order"
    if coordinate is None or len(coordinate) < len(granule_ids):
        have = set() if coordinate is None else set(coordinate.granule_id.tolist())
        lacking = next(g for g in granule_ids.tolist() if g not in have)
        raise CombineError(
            f"{names[lacking]}: there is no coordinate variable {axis} to place the granule by; {ways}",
            kind="axis-coordinate-missing",
            granule=names[lacking],
        )
    _check_meaning(coordinate, names)
    order = _order_by(coordinate, axis, granule_ids, names, ways)
    for other in found[1:]:
        if len(other) == len(granule_ids) and _disagrees(other, order, axis, granule_ids, names):
            raise CombineError(
                f"the granules have one order by {coordinate.path} and another by {other.path}, and one axis {axis} has one; "
                f"leave one out with combine: {{variables: […]}}, or {ways}",
                kind="axis-order",
                variable=coordinate.path,
                other=other.path,
            )
    return order


def _disagrees(
    other: ArrayMembers, order: NDArray[np.intp], axis: str, granule_ids: NDArray[np.int32], names: Mapping[int, str]
) -> bool:
    """Whether a further coordinate of the dimension, in another group, gives another order; one that gives none does not."""
    try:
        mine = _order_by(other, axis, granule_ids, names, "")
    except CombineError:
        return False
    return bool((mine != order).any())


def _order_by(
    coordinate: ArrayMembers, axis: str, granule_ids: NDArray[np.int32], names: Mapping[int, str], ways: str
) -> NDArray[np.intp]:
    ends: list[tuple[Number, Number] | None] = []
    for i in range(len(granule_ids)):
        values = coordinate.values(i)
        name = names[int(granule_ids[i])]
        if values is None or values.dtype.kind not in "iuf":
            raise CombineError(
                f"{name}: the values of {coordinate.path} are no small numeric array, so the granule cannot be placed by them; "
                f"{ways}",
                kind="axis-coordinate-missing",
                granule=name,
            )
        _check_inside(values, axis, name)
        # as Python numbers, which compare exactly: times in nanoseconds are more than a double can tell apart
        ends.append((values[0].item(), values[-1].item()) if len(values) else None)
    return _ordered(ends, axis, [names[g] for g in granule_ids.tolist()], ways)


def _check_meaning(coordinate: ArrayMembers, names: Mapping[int, str]) -> None:
    """Refuse to order by numbers that mean different things: equal ones would pass for duplicates."""
    used, where = np.unique(coordinate.variant, return_index=True)
    base, one = coordinate.spec(0), names[int(coordinate.granule_id[0])]
    for variant, i in zip(used.tolist(), where.tolist(), strict=True):
        check_variant(base, coordinate.variants[variant], base.dims[0], one, names[int(coordinate.granule_id[i])])


def _check_inside(values: NDArray[np.generic], axis: str, name: str) -> None:
    if values.dtype.kind == "f" and np.isnan(values.astype(np.float64)).any():
        raise CombineError(f"{name}: {axis} holds NaN, which has no place on an axis", kind="axis-nan", granule=name)
    numbers: NDArray[np.generic] = values
    rises, falls = numbers[1:] > numbers[:-1], numbers[1:] < numbers[:-1]  # type: ignore[operator]
    if not (rises.all() or falls.all()):
        i = int(np.flatnonzero(~(rises if rises[0] else falls))[0])
        raise CombineError(
            f"{name}: {axis} neither rises nor falls throughout (values {_say(numbers[i].item())} then "
            f"{_say(numbers[i + 1].item())} at {i}); say "
            f"combine: {{along: {{{axis}: {{position: order}}}}}} to join granules in listed order as they are",
            kind="axis-unsorted",
            granule=name,
        )


def _say(number: Number) -> str:
    """A number, short where that says it all."""
    short = f"{number:g}"
    return short if float(short) == number else repr(number)


def _ordered(ends: Sequence[tuple[Number, Number] | None], axis: str, names: Sequence[str], ways: str) -> NDArray[np.intp]:
    """Positions in order; granules that hold nothing go last, and take no place."""
    held = sorted((first, last, i) for i, (first, last) in ((i, e) for i, e in enumerate(ends) if e is not None))
    rising = next((i for first, last, i in held if first < last), None)
    falling = next((i for first, last, i in held if first > last), None)
    if rising is not None and falling is not None:
        raise CombineError(
            f"{axis} rises in {names[rising]} and falls in {names[falling]}; leave one out of the granules, or {ways}",
            kind="axis-unsorted",
            granule=names[rising],
            other=names[falling],
        )
    if falling is not None:
        held.reverse()
    for (a, b, i), (c, d, j) in pairwise(held):
        if b > c if falling is not None else b < c:
            continue
        same = (a, b) == (c, d)
        what = f"overlap along {axis}: {_say(a)} to {_say(b)} and {_say(c)} to {_say(d)}"
        if same and a == b:
            what = f"both hold {axis} = {_say(a)}"
        raise CombineError(
            f"{names[i]} and {names[j]} {what}; which one counts is not for a guess: leave one out of the granules, or {ways}",
            kind="axis-duplicate" if same else "axis-overlap",
            granule=names[i],
            other=names[j],
        )
    empty = [i for i, e in enumerate(ends) if e is None]
    return np.array([*(i for _, _, i in held), *empty], np.intp)

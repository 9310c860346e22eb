"""Granules to one whole: placements, global shapes, chunk grids, or a refusal by name.

Pure: specs in, :class:`~drystone.model.placement.Combined` out. The work is columnar over granules; Python loops run
over distinct specs only. Where granules land is :mod:`~drystone.plan.order`'s, what may differ between them
:mod:`~drystone.plan.differences`'s, what grid their chunks make :mod:`~drystone.plan.joined`'s, and runs that virtual
outputs hold apart :mod:`~drystone.plan.eras`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from drystone.errors import CombineError
from drystone.model.array import GroupSpec
from drystone.model.attributes import Attributes
from drystone.model.options import CombineOptions, Selection
from drystone.model.placement import Combined
from drystone.plan.eras import with_eras
from drystone.plan.join import Joined, Joiner
from drystone.plan.lookup import Coordinates, refused
from drystone.plan.members import ArrayMembers
from drystone.plan.narrow import narrowed, tell_missing
from drystone.plan.order import Order, order_axes
from drystone.plan.select import select
from drystone.plan.taken import Choice, Taken, by_number, check_points, numbered, valued
from drystone.plan.wanted import select_variables

__all__ = ["combine", "select_variables"]


def combine(
    members: Mapping[str, ArrayMembers],
    groups: Sequence[GroupSpec],
    names: Mapping[int, str],
    options: CombineOptions,
    *,
    attributes: Mapping[int, Attributes] | None = None,
    notes: Sequence[str] = (),
    refused: Mapping[str, Mapping[int, str]] | None = None,
) -> Combined:
    """Join granules along one or more axes, and take of the whole what is selected.

    Granules that hold nothing of what is selected are out of it before anything is compared.

    Parameters
    ----------
    members
        Arrays by path.
    groups
        Of the first granule.
    names
        Granule id to address, in listed order; its keys are the granules to join.
    options
        The axes, or none to find one; the variables wanted; what to do where granules differ; what is taken of dimensions.
    attributes
        Granule id to the attributes of its root group, where an axis is placed by one.
    notes
        What else a user should know.
    refused
        By path, granule id to the reason: what granules have and no exact reference to.

    Returns
    -------
    Combined
        With the coordinates that scans kept values of.

    Raises
    ------
    CombineError
        Whatever differs and would change values; ``select``: there is no such dimension, or a value is not on it.
    """
    granule_ids = np.array(sorted(names), np.int32)
    if not len(granule_ids):
        raise CombineError("there is no granule to combine: none was listed, or all were set aside", kind="no-granules")
    if options.variables == ():
        raise CombineError("the list of wanted variables is empty; leave it out for all", kind="no-arrays")
    wanted = select_variables(members, options.variables)
    if not wanted:
        raise _nothing(names, granule_ids)
    every = order_axes(wanted, options, granule_ids, names, attributes or {})
    joiner = Joiner(wanted, names, options, refused or {})
    taken = _of_axes(every, joiner, options.select)
    told = (*every.notes, *tell_missing(every, taken, options.gaps))
    order, taken = narrowed(every, taken)
    outside = _outside(every, order, joiner)
    joiner = joiner if order is every else joiner.within(order)
    joined = joiner.arrays(order)
    choice = Choice(taken, _of_others(joined, options.select, taken))
    check_points(choice)
    whole = _combined(groups, joined, order, (*told, *joined.notes, *notes))
    eras = with_eras(whole, joiner, order, joined, choice)
    if eras is None or not any("drystone_era" in g.attributes for g in eras.groups):
        _check_left(joined, order)
    if joined.held and eras is None:
        whole = replace(whole, warnings=(*whole.warnings, _mixed(joined, order)))
    if eras is not None:
        eras = replace(eras, left_out=(*eras.left_out, *outside))
    return replace(select(whole, choice, names, joined.storage), by_era=eras, left_out=(*whole.left_out, *outside))


def _of_axes(order: Order, joiner: Joiner, selections: Mapping[str, Selection]) -> dict[str, Taken]:
    """What is taken of joined axes, which have their full lengths still; values are those of all granules, in one encoding."""
    out = {}
    for axis in order.axes:
        what = selections.get(axis.name)
        if what is None:
            continue
        if by_number(what):
            out[axis.name] = numbered(axis.name, axis.extent, what)
            continue
        paths = [p for p, m in joiner.members.items() if m.name == axis.name and m.variants[0].dims == (axis.name,)]
        outermost = min((axis.path, *paths), key=lambda p: p.count("/"))
        found = joiner.arrays(order, frozenset({outermost}))
        out[axis.name] = valued(Coordinates(found.arrays, found.coordinates).of(axis.name), what)
    return out


def _of_others(joined: Joined, selections: Mapping[str, Selection], known: Mapping[str, Taken]) -> dict[tuple[str, str], Taken]:
    """What is taken of dimensions that granules do not join along, array by array."""
    arrays = (*joined.arrays, *joined.apart)
    coordinates = Coordinates(arrays, joined.coordinates)
    dims = {d for a in arrays for d in a.dims}
    out: dict[tuple[str, str], Taken] = {}
    for name in (n for n in selections if n not in known):
        if name not in dims:
            raise refused(name, f"no array has that dimension (there are: {', '.join(sorted(dims))})")
        what, found = selections[name], dict[str, Taken]()
        for array in (a for a in arrays if name in a.dims):
            if by_number(what):
                size = array.shape[array.dims.index(name)]
                out[array.path, name] = numbered(name, size, what, f" ({array.path})")
                continue
            coordinate = coordinates.of_array(name, array)
            if coordinate.path not in found:
                found[coordinate.path] = valued(coordinates.read(coordinate), what)
            out[array.path, name] = found[coordinate.path]
    return out


def _outside(every: Order, order: Order, joiner: Joiner) -> list[str]:
    """Arrays that only granules have which hold nothing of what is selected.

    Raises
    ------
    CombineError
        ``select``: one was asked for by name.
    """
    if order is every:
        return []
    out = {}
    for path, members in joiner.members.items():
        placed = members.granule_id[np.isin(members.granule_id, every.granule_id)]
        if len(placed) and not np.isin(placed, order.granule_id).any():
            out[path] = f"{path}: {joiner.names[int(placed[0])]} has it, and no granule that holds what is selected"
    hit = [p for p in out if {p, p.lstrip("/"), p.rsplit("/", 1)[-1]} & set(joiner.options.variables or ())]
    if hit:
        raise CombineError(f"select: {'; '.join(out[p] for p in hit)}", kind="select", variable=", ".join(hit))
    return list(out.values())


def _nothing(names: Mapping[int, str], granule_ids: NDArray[np.int32]) -> CombineError:
    first, n = names[int(granule_ids[0])], len(granule_ids)
    return CombineError(
        f"{first}{f' and {n - 1} more granules hold' if n > 1 else ' holds'} no array that can be referenced: nothing but "
        "attributes, or arrays that were refused when it was scanned (`drystone status` names each with its reason)",
        kind="no-arrays",
        granule=first,
    )


def _check_left(joined: Joined, order: Order) -> None:
    """Arrays that were left out are a loss that nobody overlooks where nothing else is left."""
    dims = {d for a in joined.arrays for d in a.dims}
    if joined.left_out and not any(a.name not in dims and not a.made for a in joined.arrays):
        axes = ", ".join(a.name for a in order.axes)
        raise CombineError("; ".join(joined.left_out.values()), kind="no-eras", axis=axes)


def _mixed(joined: Joined, order: Order) -> str:
    axes = " or ".join(a.name for a in order.axes)
    return (
        f"{', '.join(sorted(joined.held))}: granules that have it and that lack it make no runs along {axes}, so there "
        "are no groups, and its places there read as missing"
    )


def _combined(groups: Sequence[GroupSpec], joined: Joined, order: Order, notes: tuple[str, ...]) -> Combined:
    known = {g.path: g for g in groups}
    for array in joined.arrays:
        path = array.group
        while path not in known:
            known[path] = GroupSpec(path)
            path = path.rsplit("/", 1)[0] or "/"
    known.setdefault("/", GroupSpec("/"))
    axes = tuple(a.name for a in order.axes)
    return Combined(
        tuple(known[p] for p in sorted(known)),
        joined.arrays,
        axes[0] if axes else None,
        joined.coordinates,
        notes,
        axes,
        joined.equal,
        left_out=tuple(joined.left_out.values()),
        unmarked=joined.unmarked,
        origins=tuple((a.name, a.origin) for a in order.axes if a.origin is not None),
        rules=joined.rules,
        granule_ids=np.unique(order.granule_id),
    )

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
from drystone.model.options import CombineOptions
from drystone.model.placement import Combined
from drystone.plan.eras import with_eras
from drystone.plan.join import Joined, Joiner
from drystone.plan.members import ArrayMembers
from drystone.plan.order import Order, order_axes
from drystone.plan.wanted import select_variables

__all__ = ["combine", "select_variables"]


def combine(
    members: Mapping[str, ArrayMembers],
    groups: Sequence[GroupSpec],
    names: Mapping[int, str],
    options: CombineOptions,
    *,
    attributes: Mapping[int, Attributes] | None = None,
) -> Combined:
    """Join granules along one or more axes.

    Parameters
    ----------
    members
        Arrays by path.
    groups
        Of the first granule.
    names
        Granule id to address, in listed order; its keys are the granules to join.
    options
        The axes, or none to find one; the variables wanted; what to do where granules differ.
    attributes
        Granule id to the attributes of its root group, where an axis is placed by one.

    Returns
    -------
    Combined
        With the coordinates that scans kept values of.

    Raises
    ------
    CombineError
        Whatever differs and would change values.
    """
    granule_ids = np.array(sorted(names), np.int32)
    if not len(granule_ids):
        raise CombineError("there is no granule to combine: none was listed, or all were set aside", kind="no-granules")
    if options.variables == ():
        raise CombineError("the list of wanted variables is empty; leave it out for all", kind="no-arrays")
    wanted = select_variables(members, options.variables)
    if not wanted:
        raise _nothing(names, granule_ids)
    order = order_axes(wanted, options, granule_ids, names, attributes or {})
    joiner = Joiner(wanted, names, options)
    joined = joiner.arrays(order)
    whole = _combined(groups, joined, order)
    eras = with_eras(whole, joiner, order, joined)
    if eras is None or eras.arrays is whole.arrays:
        _check_left(joined, order)
    if eras is not None:
        return replace(whole, by_era=eras)
    if joined.held:
        whole = replace(whole, warnings=(*whole.warnings, _mixed(joined, order)))
    return whole


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


def _combined(groups: Sequence[GroupSpec], joined: Joined, order: Order) -> Combined:
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
        (*order.notes, *joined.notes),
        axes,
        joined.equal,
        left_out=tuple(joined.left_out.values()),
        unmarked=joined.unmarked,
        origins=tuple((a.name, a.origin) for a in order.axes if a.origin is not None),
    )

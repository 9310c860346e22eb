"""Where granules land when only some places of the joined axes are taken: those that hold none of them are out of it.

What is taken of a joined axis decides which granules there are, before anything is compared: granules that hold none of it
can differ, lack variables or leave gaps as they like. So axes are closed up behind them, and only then are arrays
joined. A granule that holds some places stays whole, since its chunks do; :mod:`~drystone.plan.select` cuts it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from drystone.errors import CombineError
from drystone.plan.order import Axis, Order
from drystone.plan.order_rows import Boxes, first_gaps
from drystone.plan.taken import Taken

__all__ = ["narrowed", "tell_missing"]

type _Int64 = NDArray[np.int64]


def narrowed(order: Order, taken: Mapping[str, Taken]) -> tuple[Order, dict[str, Taken]]:
    """The order without granules that hold nothing of what is taken, and the places taken as its axes number them.

    Places that no granule holds stay where they are taken. Where no granule holds any of it, the nearest one stays, so that
    it is known what is missing.

    Parameters
    ----------
    order
        Of all granules.
    taken
        By name of a joined axis.
    """
    numbers = [k for k, axis in enumerate(order.axes) if axis.name in taken]
    if not numbers or not len(order.granule_id):
        return order, dict(taken)
    rows = np.flatnonzero(_holding(order, taken, numbers))
    if not len(rows):
        apart = sum(np.abs(order.dest[:, k] - taken[order.axes[k].name].places[0]) for k in numbers)
        rows = np.array([np.argmin(apart)])
    dest, axes, out = order.dest[rows].copy(), list(order.axes), dict(taken)
    for k in numbers:
        axis = axes[k]
        kept = _covered(order.dest[rows, k], order.count[rows, k], axis.extent)
        kept[taken[axis.name].places] = True
        rank = np.cumsum(kept, dtype=np.int64) - 1
        dest[:, k] = rank[np.minimum(dest[:, k], axis.extent - 1)]
        out[axis.name] = taken[axis.name].at(rank[taken[axis.name].places])
        axes[k] = axis.at(np.flatnonzero(kept))
    new = replace(
        order, axes=tuple(axes), granule_id=order.granule_id[rows], src_offset=order.src_offset[rows],
        count=order.count[rows], dest=dest,
    )  # fmt: skip
    return new, out


def _covered(dest: _Int64, count: _Int64, extent: int) -> NDArray[np.bool_]:
    """Places of an axis that boxes hold."""
    change = np.zeros(extent + 1, np.int64)
    np.add.at(change, dest, 1)
    np.add.at(change, dest + count, -1)
    return np.asarray(np.cumsum(change)[:extent] > 0)


def _holding(order: Order, taken: Mapping[str, Taken], numbers: Sequence[int]) -> NDArray[np.bool_]:
    """Boxes that hold something of what is taken."""
    keep: NDArray[np.bool_] = np.ones(len(order.granule_id), np.bool_)
    for k in numbers:
        places = np.unique(taken[order.axes[k].name].places)
        begin, end = (np.searchsorted(places, edge) for edge in (order.dest[:, k], order.dest[:, k] + order.count[:, k]))
        keep &= end > begin
    together = [k for k in numbers if taken[order.axes[k].name].points]
    if len(together) < 2:
        return keep
    # points are no product: a box on the row of one and the column of another may hold neither
    points = np.unique(np.stack([taken[order.axes[k].name].places for k in together], axis=1), axis=0)
    rows = np.flatnonzero(keep)
    low, high = order.dest[rows][:, together], (order.dest + order.count)[rows][:, together]
    held: NDArray[np.bool_] = np.zeros(len(rows), np.bool_)
    for point in points:
        held |= np.all((low <= point) & (high > point), axis=1)
    keep[rows] = held
    return keep


def tell_missing(order: Order, taken: Mapping[str, Taken], gaps: str) -> tuple[str, ...]:
    """Places among those taken that no granule holds: a note, or an error.

    Parameters
    ----------
    order
        Of all granules.
    taken
        By name of a joined axis, in its own numbers.
    gaps
        ``fill`` or ``error``.

    Raises
    ------
    CombineError
        ``axis-gaps``, naming the first.
    """
    known = [np.unique(taken[a.name].places) if a.name in taken else None for a in order.axes]
    dest, count = order.dest.copy(), order.count.copy()
    for k, places in enumerate(known):
        if places is not None:
            dest[:, k], end = (np.searchsorted(places, e) for e in (order.dest[:, k], order.dest[:, k] + order.count[:, k]))
            count[:, k] = end - dest[:, k]
    held = (count > 0).all(axis=1)
    extent = tuple(a.extent if p is None else len(p) for a, p in zip(order.axes, known, strict=True))
    total = int(np.prod([int(n) for n in extent], dtype=object))
    boxes = Boxes(np.flatnonzero(held), order.src_offset[held], count[held], dest[held])
    missing = total - sum(int(v) for v in boxes.count.prod(axis=1).tolist())
    if not missing:
        return ()
    axes = ", ".join(a.name for a in order.axes)
    if gaps == "fill":
        return (f"{missing} of {total} places along {axes} are held by no granule: they read as missing",)
    holes = [
        tuple(p if q is None else int(q[p]) for p, q in zip(hole, known, strict=True)) for hole in first_gaps(boxes, extent)[1]
    ]
    first = "; ".join(", ".join(_say(a, p) for a, p in zip(order.axes, hole, strict=True)) for hole in holes)
    raise CombineError(
        f"{missing} of {total} places along {axes} are held by no granule, the first at {first}; add the granules, or say "
        "combine: {gaps: fill} for missing values there",
        kind="axis-gaps",
        missing=missing,
    )


def _say(axis: Axis, place: int) -> str:
    return f"{axis.name} = {axis.say(place) if axis.say else place}"

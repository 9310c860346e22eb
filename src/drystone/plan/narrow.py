"""Where granules land when only some places of the joined axes are taken: those that hold none of them are out of it.

What is taken of a joined axis decides which granules there are, before anything is compared: granules that hold none of it
can differ, lack variables or leave gaps as they like. So axes are closed up behind them, and only then are arrays
joined. A granule that holds some places stays whole, since its chunks do; :mod:`~drystone.plan.select` cuts it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from drystone.errors import CombineError
from drystone.plan.order import Order
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
        places = _distinct(taken[order.axes[k].name].places)
        begin, end = (np.searchsorted(places, edge) for edge in (order.dest[:, k], order.dest[:, k] + order.count[:, k]))
        keep &= end > begin
    together = _walked(order, taken)
    if len(together) < 2:
        return keep
    # points are no product: a box on the row of one and the column of another may hold neither
    points = np.unique(np.stack([taken[order.axes[k].name].places for k in together], axis=1), axis=0)
    rows = np.flatnonzero(keep)
    held: NDArray[np.bool_] = np.zeros(len(rows), np.bool_)
    for point in points:
        held |= _holds(order, rows, together, point)
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
    if not order.axes:
        return ()
    axes = [_Places((k,), np.zeros((0, 1), np.int64), a.extent) for k, a in enumerate(order.axes)]
    for k, axis in enumerate(order.axes):
        if axis.name in taken:
            axes[k] = _Places.of((k,), taken[axis.name].places[:, None])
    together = _walked(order, taken)
    if len(together) > 1:
        points = np.stack([taken[order.axes[k].name].places for k in together], axis=1)
        axes = [a for a in axes if a.numbers[0] not in together] + [_Places.of(together, points)]
    boxes, extent = _in(order, axes), tuple(a.extent for a in axes)
    total = int(np.prod([int(n) for n in extent], dtype=object))
    missing = total - sum(int(v) for v in boxes.count.prod(axis=1).tolist())
    if not missing:
        return ()
    names = ", ".join(a.name for a in order.axes)
    if gaps == "fill":
        return (f"{missing} of {total} places along {names} are held by no granule: they read as missing",)
    holes = [[p for a, at in zip(axes, hole, strict=True) for p in a.say(order, at)] for hole in first_gaps(boxes, extent)[1]]
    first = "; ".join(", ".join(hole) for hole in holes)
    raise CombineError(
        f"{missing} of {total} places along {names} are held by no granule, the first at {first}; add the granules, or say "
        "combine: {gaps: fill} for missing values there",
        kind="axis-gaps",
        missing=missing,
    )


@dataclass(frozen=True, slots=True)
class _Places:
    """Places along one joined axis or, as points, along several: int64 (n, axes) where not all are meant."""

    numbers: tuple[int, ...]
    places: _Int64
    extent: int

    @classmethod
    def of(cls, numbers: tuple[int, ...], places: _Int64) -> _Places:
        distinct = np.unique(places, axis=0) if len(numbers) > 1 else _distinct(places[:, 0])[:, None]
        return cls(numbers, distinct, len(distinct))

    def say(self, order: Order, at: int) -> list[str]:
        places = self.places[at].tolist() if len(self.places) else [at]
        named = zip((order.axes[k] for k in self.numbers), places, strict=True)
        return [f"{a.name} = {a.say(p) if a.say else p}" for a, p in named]


def _in(order: Order, axes: Sequence[_Places]) -> Boxes:
    """Boxes in the numbers of some places."""
    row = np.arange(len(order.granule_id))
    dest: list[_Int64] = []
    count: list[_Int64] = []
    for axis in axes:
        k = axis.numbers[0]
        begin, end = order.dest[row, k], (order.dest + order.count)[row, k]
        if len(axis.numbers) > 1:
            pairs = [np.flatnonzero(_holds(order, row, axis.numbers, point)) for point in axis.places]
            at = np.concatenate([np.zeros(0, np.intp), *pairs])
            dest, count, row = [c[at] for c in dest], [c[at] for c in count], row[at]
            begin = np.repeat(np.arange(len(pairs)), [len(p) for p in pairs])
            end = begin + 1
        elif len(axis.places):
            begin, end = (np.searchsorted(axis.places[:, 0], e) for e in (begin, end))
        dest.append(begin)
        count.append(end - begin)
    begins, counts = np.stack(dest, axis=1), np.stack(count, axis=1)
    held = (counts > 0).all(axis=1)
    return Boxes(row[held], begins[held], counts[held], begins[held])


def _distinct(places: _Int64) -> _Int64:
    """Sorted, once each; mostly they are."""
    return places if np.all(places[1:] > places[:-1]) else np.unique(places)


def _walked(order: Order, taken: Mapping[str, Taken]) -> tuple[int, ...]:
    """Joined axes whose places are points."""
    return tuple(k for k, a in enumerate(order.axes) if a.name in taken and taken[a.name].points)


def _holds(order: Order, rows: NDArray[np.intp], numbers: Sequence[int], point: _Int64) -> NDArray[np.bool_]:
    """Which boxes hold a point of some axes."""
    dest, count = order.dest[rows][:, numbers], order.count[rows][:, numbers]
    return np.asarray(((dest <= point) & (dest + count > point)).all(axis=1))

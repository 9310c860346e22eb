"""Selections of the whole, cut to a tile: what they ask of the granules that lie there, and where that goes.

Along one axis off the combine axis a tile is a run of the whole's elements that granules hold from ``src_offset`` on.
:func:`cut_axis` keeps the selected elements inside the run and counts them as granules do; :func:`covers` says whether all
that a request wants was found in some tile, by counting, without looking at a single element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drystone.grid.parts import AxisPart, as_part, elements, moved
from drystone.grid.selection import Indexed, NormalAxis, Strided
from drystone.model.placement import Tile

__all__ = ["AxisCut", "covers", "cut_axis"]

# pairs of tiles are compared; beyond so many, filling first costs less
_MOST_COMPARED = 64


@dataclass(frozen=True, slots=True)
class AxisCut:
    """The part of a selection along one axis that a tile holds.

    Parameters
    ----------
    axis
        In elements of the granules.
    where
        Place in the result of its first element, where they lie side by side; else int64 (n,), of each.
    """

    axis: NormalAxis
    where: int | NDArray[np.int64]

    def placed(self, out: AxisPart) -> AxisPart:
        """Places in the result of a part of the cut selection."""
        if isinstance(self.where, int):
            return moved(out, -self.where) if self.where else out
        return as_part(self.where[elements(out)])


def cut_axis(axis: NormalAxis, src_offset: int, count: int, dest: int) -> AxisCut:
    """Cut a selection to the elements ``dest`` to ``dest + count`` of the whole; the result may be empty.

    Examples
    --------
    >>> cut_axis(Strided(9, -2, 5), 10, 4, 4)
    AxisCut(axis=Strided(start=13, step=-2, count=2, dropped=False), where=1)
    >>> cut = cut_axis(Indexed(np.array([7, 0, 5])), 0, 3, 5)
    >>> cut.axis.indices.tolist(), cut.where.tolist()
    ([2, 0], [0, 2])
    """
    shift = src_offset - dest
    if isinstance(axis, Indexed):
        where = np.flatnonzero((axis.indices >= dest) & (axis.indices < dest + count))
        return AxisCut(Indexed(axis.indices[where] + shift, axis.dropped), where.astype(np.int64))
    # elements start + step * k, k from first on: rounded up, since floor division rounds down
    near, far = (dest, dest + count) if axis.step > 0 else (dest + count - 1, dest - 1)
    first = max(0, -((axis.start - near) // axis.step))
    stop = min(axis.count, -((axis.start - far) // axis.step))
    return AxisCut(Strided(axis.start + axis.step * first + shift, axis.step, max(0, stop - first), axis.dropped), first)


def covers(held: Sequence[int], tiles: Sequence[Tile], wanted: int, lead: int | None) -> bool:
    """Whether tiles hold every element that a request wants; False also where that is not cheaply known.

    Parameters
    ----------
    held
        Elements of the request that each tile's placements hold.
    tiles
        Those that the request touches.
    wanted
        Elements of the request.
    lead
        The combine axis.
    """
    if sum(held) != wanted:
        return False
    if len(tiles) == 1:
        return True
    if len(tiles) > _MOST_COMPARED:
        return False
    # where tiles overlap, counts say nothing
    start = np.array([t.dest for t in tiles], np.int64)
    stop = np.array([t.stop for t in tiles], np.int64)
    meet = (start[:, None] < stop[None]) & (start[None] < stop[:, None])
    if lead is not None:
        meet[:, :, lead] = True
    return int(meet.all(axis=2).sum()) == len(tiles)

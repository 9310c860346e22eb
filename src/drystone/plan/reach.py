"""Where a read may lie along one axis, and how likely a piece of the axis is touched.

A read is a run of elements at any position along each axis, or at one that is fixed. All positions are equally likely and
axes are independent, so the chance that a box is touched is the product of what :meth:`AxisRead.chance` says of its sides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drystone.errors import PlanError
from drystone.model.options import ReadPattern

__all__ = ["AxisRead", "axis_reads", "sample"]

type Int64 = NDArray[np.int64]
type Float64 = NDArray[np.float64]

_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, slots=True)
class AxisRead:
    """A run of ``size`` elements that starts at any of ``count`` neighbouring places, the first of them ``low``.

    Examples
    --------
    >>> AxisRead(1, 0, 10).chance(np.array([0, 4]), np.array([4, 10])).tolist()
    [0.4, 0.6]
    """

    size: int
    low: int
    count: int

    def chance(self, start: Int64, stop: Int64) -> Float64:
        """How likely the read touches elements [start, stop), for each pair."""
        return self.between(start - self.size + 1, stop - 1)

    def between(self, first: Int64, last: Int64) -> Float64:
        """How likely the read starts at ``first`` to ``last``, both included, for each pair."""
        low, high = np.maximum(first, self.low), np.minimum(last, self.low + self.count - 1)
        chance: Float64 = np.maximum(high - low + 1, 0) / self.count
        return chance


def axis_reads(path: str, pattern: ReadPattern, dims: Sequence[str], shape: Sequence[int]) -> list[AxisRead]:
    """A pattern along each axis of an array; dimensions that it does not name are read whole.

    Raises
    ------
    PlanError
        ``read-place``: a fixed place is past the end.
    """
    out = []
    for name, n in zip(dims, shape, strict=True):
        at = pattern.at.get(name)
        size = min(pattern.sizes.get(name, n if at is None else 1), n)
        if at is not None and at + size > n:
            raise PlanError(
                f"reads: {pattern.name}: {size} elements from place {at} along {name} reach past the {n} that {path} has; "
                f"the last place is {n - size}",
                kind="read-place",
                array=path,
                dimension=name,
            )
        out.append(AxisRead(size, at or 0, 1 if at is not None else n - size + 1))
    return out


def sample(reads: Sequence[AxisRead], most: int) -> Int64:
    """Starts, (positions, axes): all there are where these are few, else ``most``, spread evenly.

    Examples
    --------
    >>> sample([AxisRead(1, 0, 3), AxisRead(5, 2, 1)], 8).tolist()
    [[0, 2], [1, 2], [2, 2]]
    """
    low = np.array([r.low for r in reads], np.int64)
    counts = [r.count for r in reads]
    total = math.prod(counts)
    if total <= most:
        return low + np.stack(np.unravel_index(np.arange(total), counts), axis=1) if counts else low[None]
    out = np.empty((most, len(reads)), np.int64)
    turn = 0
    for axis, r in enumerate(reads):
        # the first axis that is free is cut evenly; the others follow sequences that no two axes share
        share = (np.arange(most) + 0.5) / most if not turn else ((np.arange(most) + 1) * _GOLDEN**turn) % 1.0
        out[:, axis] = r.low + (share * r.count).astype(np.int64)
        turn += r.count > 1
    return out

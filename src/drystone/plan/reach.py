"""Where the reads that a config names may lie: a box of given size at any place, or along some axes at a fixed one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drystone.errors import PlanError
from drystone.model.options import ReadPattern

__all__ = ["AxisRead", "axis_reads", "n_places", "sample"]

_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, slots=True)
class AxisRead:
    """A run of ``size`` elements that starts at any of ``count`` neighbouring places, the first of them ``low``."""

    size: int
    low: int
    count: int


def axis_reads(path: str, pattern: ReadPattern, dims: Sequence[str], shape: Sequence[int]) -> tuple[AxisRead, ...]:
    """A pattern along each axis of an array; dimensions that it does not name are read whole.

    Raises
    ------
    PlanError
        ``read-place``: a fixed place is past the end.

    Examples
    --------
    >>> axis_reads("/v", ReadPattern("a map", {"t": 1}, {"y": 3}), ("t", "y", "x"), (9, 5, 4))
    (AxisRead(size=1, low=0, count=9), AxisRead(size=1, low=3, count=1), AxisRead(size=4, low=0, count=1))
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
    return tuple(out)


def n_places(reads: Sequence[AxisRead]) -> int:
    """Places that a read may lie at."""
    return math.prod(r.count for r in reads)


def sample(reads: Sequence[AxisRead], most: int) -> NDArray[np.int64]:
    """Starts, (places, axes): all there are where these are few, else ``most``, spread evenly.

    Examples
    --------
    >>> sample([AxisRead(1, 0, 3), AxisRead(5, 2, 1)], 8).tolist()
    [[0, 2], [1, 2], [2, 2]]
    """
    low = np.array([r.low for r in reads], np.int64)
    if n_places(reads) <= most:
        places = np.unravel_index(np.arange(n_places(reads)), [r.count for r in reads]) if len(low) else ()
        return low + np.stack(places, axis=1) if len(low) else np.zeros((1, 0), np.int64)
    out = np.empty((most, len(reads)), np.int64)
    turn = 0
    for axis, r in enumerate(reads):
        # the first axis that is free is cut evenly; the others follow sequences that no two axes share
        share = (np.arange(most) + 0.5) / most if not turn else ((np.arange(most) + 1) * _GOLDEN**turn) % 1.0
        out[:, axis] = r.low + (share * r.count).astype(np.int64)
        turn += r.count > 1
    return out

"""Tiles that overlap, cut half way: of two neighbours in a row each gives up half of what both hold.

Where an odd number of places is shared, the first tile along the axis keeps the middle one. Rows are tiles of equal place on
the other axes; where all tiles together make one sequence in which only neighbours meet, that is the row of each, so that a
tile that is missing changes nothing for the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Contained", "halves"]

type Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Contained:
    """Two boxes, by row, of which one does not reach past the other along an axis that tells them apart."""

    one: int
    two: int


def halves(dest: Int64, count: Int64, spatial: tuple[int, ...]) -> tuple[Int64, Int64] | Contained:
    """What is left of each box.

    Parameters
    ----------
    dest, count
        int64 (m, k): boxes.
    spatial
        Axes along which they are cut.

    Returns
    -------
    Start and stop of each box, int64 (m, k); or two boxes that have no halves.

    Examples
    --------
    >>> start, stop = halves(np.array([[0], [7], [15]]), np.array([[10], [10], [10]]), (0,))
    >>> start.ravel().tolist(), stop.ravel().tolist()
    ([0, 9, 16], [9, 16, 25])
    """
    start, stop = dest.copy(), dest + count
    for d in spatial:
        runs = np.stack([dest[:, d], dest[:, d] + count[:, d]], axis=1)
        row = np.zeros(len(dest), np.int64)
        if not _simple(np.unique(runs, axis=0)):
            others = [i for i in spatial if i != d]
            if others:
                keys = np.concatenate([dest[:, others], count[:, others]], axis=1)
                row = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
        contained = _cut(row, runs, start[:, d], stop[:, d])
        if contained is not None:
            return contained
    return start, stop


def _simple(runs: Int64) -> bool:
    """Whether runs, in order, meet their neighbours at most, and each reaches past the one before."""
    return bool(
        (runs[1:, 1] > runs[:-1, 1]).all() and (runs[1:, 0] > runs[:-1, 0]).all() and (runs[2:, 0] >= runs[:-2, 1]).all()
    )


def _cut(row: Int64, runs: Int64, start: NDArray[np.int64], stop: NDArray[np.int64]) -> Contained | None:
    """Cut the runs of each row, in place."""
    keys, first, which = np.unique(np.column_stack([row, runs]), axis=0, return_index=True, return_inverse=True)
    which = which.reshape(-1)
    meet = (keys[1:, 0] == keys[:-1, 0]) & (keys[1:, 1] < keys[:-1, 2])
    bad = np.flatnonzero(meet & ((keys[1:, 2] <= keys[:-1, 2]) | (keys[1:, 1] <= keys[:-1, 1])))
    if len(bad):
        return Contained(int(first[bad[0]]), int(first[bad[0] + 1]))
    middle = (keys[1:, 1] + keys[:-1, 2] + 1) // 2
    low, high = keys[:, 1].copy(), keys[:, 2].copy()
    low[1:][meet], high[:-1][meet] = middle[meet], middle[meet]
    start[:], stop[:] = low[which], high[which]
    return None

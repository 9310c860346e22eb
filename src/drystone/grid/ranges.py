"""How many requests a reader makes that joins neighbouring ranges of bytes, counted as columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["count_joined"]

type Int64 = NDArray[np.int64]


def count_joined(owner: Int64, start: Int64, stop: Int64, gap: int, span: int) -> tuple[int, int]:
    """Requests, and the bytes they give, gaps that are read along included.

    Parameters
    ----------
    owner
        What each range belongs to; ranges of different owners are never joined.
    start, stop
        Bytes; sorted by owner, then start.
    gap
        The most bytes between two ranges that are read along with them.
    span
        The most bytes of a request that holds several ranges.

    Examples
    --------
    >>> count_joined(np.zeros(3, "i8"), np.array([0, 12, 5000]), np.array([10, 20, 5010]), 100, 1 << 20)
    (2, 30)
    """
    if not len(start):
        return 0, 0
    reach = _running_end(owner, stop)
    apart = np.r_[True, (owner[1:] != owner[:-1]) | (start[1:] > reach[:-1] + gap)]
    first = np.flatnonzero(apart)
    last = np.append(first[1:], len(start))
    spans = reach[last - 1] - start[first]
    n, nbytes = int((spans <= span).sum()), int(spans[spans <= span].sum())
    for i in np.flatnonzero(spans > span).tolist():  # few: a run this long is read in pieces
        more, some = _pieces(start[first[i] : last[i]].tolist(), stop[first[i] : last[i]].tolist(), span)
        n, nbytes = n + more, nbytes + some
    return n, nbytes


def _running_end(owner: Int64, stop: Int64) -> Int64:
    """The furthest stop so far, of each owner's own."""
    step = int(stop.max()) + 1
    number = np.cumsum(np.r_[0, owner[1:] != owner[:-1]])
    end: Int64 = np.maximum.accumulate(stop + number * step) - number * step
    return end


def _pieces(starts: list[int], stops: list[int], span: int) -> tuple[int, int]:
    n, nbytes, begin, end = 1, 0, starts[0], stops[0]
    for start, stop in zip(starts[1:], stops[1:], strict=True):
        if max(stop, end) - begin > span:
            n, nbytes, begin, end = n + 1, nbytes + end - begin, start, stop
        else:
            end = max(stop, end)
    return n, nbytes + end - begin

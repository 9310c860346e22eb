"""From keys to places on an axis: in order of values, as blocks of a granule each, or on a grid of slots.

The outcome is runs: parts of a segment that lie side by side both in the granule and on the axis. Which granule counts
where two have one place is decided later (:mod:`drystone.plan.order_rows`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drystone.errors import CombineError
from drystone.plan.order_keys import Granules, Keys, check_inside

__all__ = ["Places", "blocks", "check_contiguous", "runs_of", "sequence"]


@dataclass(frozen=True, slots=True)
class Places:
    """Runs of each segment on an axis.

    Parameters
    ----------
    keys
        What they were placed by.
    extent
        Places on the axis.
    src, count, dest
        int64 (r,), of runs in order of segments.
    start
        int64 (d + 1,): where the runs of a segment start.
    by_element
        Whether each element has a key of its own; else a granule has one.
    """

    keys: Keys
    extent: int
    src: NDArray[np.int64]
    count: NDArray[np.int64]
    dest: NDArray[np.int64]
    start: NDArray[np.int64]
    by_element: bool

    def say(self, granule: int, src: int) -> str:
        """The value of one element of a granule, or of the granule."""
        return self.keys.say(self.keys.of(granule)[src if self.by_element else 0])

    def say_at(self, place: int) -> str:
        """The value of a place, as some granule has it."""
        runs = np.flatnonzero((self.dest <= place) & (place < self.dest + self.count))
        if not len(runs):
            return str(place)
        run = int(runs[0])
        first = int(self.keys.offset[int(np.searchsorted(self.start, run, side="right")) - 1])
        inner = int(self.src[run]) + place - int(self.dest[run]) if self.by_element else 0
        return self.keys.say(self.keys.flat[first + inner])


def runs_of(keys: Keys, position: NDArray[np.int64], extent: int) -> Places:
    """Places from the position of each element."""
    offset = keys.offset
    n = len(position)
    segment = np.repeat(np.arange(len(offset) - 1), np.diff(offset))
    breaks = np.ones(n, np.bool_)
    breaks[1:] = (np.diff(position) != 1) | (np.diff(segment) != 0)
    at = np.flatnonzero(breaks)
    count = np.diff(np.append(at, n)).astype(np.int64)
    start = np.searchsorted(segment[at], np.arange(len(offset)), side="left").astype(np.int64)
    src = (at - offset[segment[at]]).astype(np.int64)
    return Places(keys, extent, src, count, position[at].astype(np.int64), start, True)


def sequence(keys: Keys, granules: Granules, ways: str) -> Places:
    """Places in order of values; what granules share, they share.

    Raises
    ------
    CombineError
        ``axis-unsorted``
    """
    direction = check_inside(keys, granules)
    falls = _falls(keys, direction, granules, ways)
    used = np.flatnonzero(np.diff(keys.offset) > 0)
    first, last = keys.flat[keys.offset[used]], keys.flat[keys.offset[used + 1] - 1]
    low, high = (last, first) if falls else (first, last)
    order = np.argsort(low, kind="stable")
    total = len(keys.flat)
    if (high[order][:-1] < low[order][1:]).all():  # type: ignore[operator]
        chain = used[order[::-1] if falls else order]
        size = np.diff(keys.offset)
        dest = np.zeros(len(size), np.int64)
        dest[chain] = np.cumsum(size[chain]) - size[chain]
        start = np.searchsorted(used, np.arange(len(size) + 1)).astype(np.int64)
        return Places(keys, total, np.zeros(len(used), np.int64), size[used], dest[used], start, True)
    values, position = np.unique(keys.flat, return_inverse=True)
    position = position.reshape(-1).astype(np.int64)
    return runs_of(keys, len(values) - 1 - position if falls else position, len(values))


def _falls(keys: Keys, direction: NDArray[np.int8], granules: Granules, ways: str) -> bool:
    rising, falling = np.flatnonzero(direction > 0), np.flatnonzero(direction < 0)
    if len(rising) and len(falling):
        one, two = (granules.name(int(np.flatnonzero(keys.segment == s[0])[0])) for s in (rising, falling))
        raise CombineError(
            f"{keys.axis} rises in {one} and falls in {two}; leave one out of the granules, or {ways}",
            kind="axis-unsorted",
            granule=one,
            other=two,
        )
    return bool(len(falling))


def blocks(keys: Keys, count: NDArray[np.int64], granules: Granules, ways: str) -> Places:
    """Places where each granule has one key: granules with equal keys share a block of ``count`` elements."""
    values, block = np.unique(keys.flat, return_inverse=True)
    block = block.reshape(-1)
    size = np.zeros(len(values), np.int64)
    of_granule, count = count, np.zeros(len(block), np.int64)
    count[keys.segment] = of_granule  # granules that share a segment are those of a new axis: one element each
    np.maximum.at(size, block, count)
    wrong = np.flatnonzero((count != size[block]) & (count > 0))
    if len(wrong):
        i = int(wrong[0])
        j = int(np.flatnonzero((block == block[i]) & (count == size[block[i]]))[0])
        raise CombineError(
            f"{granules.name(i)} and {granules.name(j)} have one place along {keys.axis} ({keys.say(keys.flat[i])}), with "
            f"{count[i]} and "
            f"{count[j]} elements; leave one out of the granules, or {ways}",
            kind="axis-size",
            granule=granules.name(i),
            other=granules.name(j),
        )
    first = np.cumsum(size) - size
    held = np.flatnonzero(count > 0)
    start = np.searchsorted(held, np.arange(len(count) + 1)).astype(np.int64)
    return Places(keys, int(size.sum()), np.zeros(len(held), np.int64), count[held], first[block[held]], start, False)


def check_contiguous(places: Places, granules: Granules, ways: str) -> None:
    """Refuse a granule whose elements do not lie side by side, because another's values lie between them.

    Raises
    ------
    CombineError
        ``axis-overlap``
    """
    torn = np.flatnonzero(np.diff(places.start) > 1)
    if not len(torn):
        return
    keys, s = places.keys, int(torn[0])
    run = int(places.start[s])
    gap = int(places.dest[run] + places.count[run])
    other = int(np.flatnonzero((places.dest <= gap) & (gap < places.dest + places.count))[0])
    t = int(np.searchsorted(places.start, other, side="right")) - 1
    i, j = (int(np.flatnonzero(keys.segment == v)[0]) for v in (s, t))
    at = int(places.src[run] + places.count[run])
    a, b = places.say(i, at - 1), places.say(i, at)
    c = places.say(j, int(places.src[other]) + gap - int(places.dest[other]))
    one, two = granules.name(i), granules.name(j)
    raise CombineError(
        f"{one} and {two} overlap along {keys.axis}: {c} of the second lies between {a} and {b} of the first; {ways}",
        kind="axis-overlap",
        granule=one,
        other=two,
    )

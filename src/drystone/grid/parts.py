"""What is read of a chunk along one axis, and where it goes in the result: a slice where one says it, else an index array.

Slices of parts are written out, without negative numbers that count from the end: ``stop`` is None only where a backward
slice reaches element 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["AxisPart", "as_part", "elements", "mesh", "moved", "span"]

type Int64 = NDArray[np.int64]
type AxisPart = slice | Int64


def as_part(values: Int64) -> AxisPart:
    """Ascending runs as a slice: reading with a slice copies nothing.

    Examples
    --------
    >>> as_part(np.array([3, 5, 7])), as_part(np.array([4])), as_part(np.array([5, 3]))
    (slice(3, 8, 2), slice(4, 5, 1), array([5, 3]))
    """
    if len(values) == 1:
        return slice(int(values[0]), int(values[0]) + 1, 1)
    step = int(values[1] - values[0])
    if step > 0 and np.all(np.diff(values) == step):
        return slice(int(values[0]), int(values[-1]) + 1, step)
    return values


def elements(part: AxisPart) -> Int64:
    """The elements of a part, in its order.

    Examples
    --------
    >>> elements(slice(4, None, -2))
    array([4, 2, 0])
    """
    if isinstance(part, np.ndarray):
        return part
    return np.arange(part.start, -1 if part.stop is None else part.stop, part.step or 1, dtype=np.int64)


def span(part: AxisPart) -> tuple[int, int]:
    """First element of a part, and one past its last, whatever its direction; the part is not empty.

    Examples
    --------
    >>> span(slice(4, None, -2)), span(np.array([7, 3]))
    ((0, 5), (3, 8))
    """
    if isinstance(part, np.ndarray):
        return int(part.min()), int(part.max()) + 1
    numbers = range(part.start, -1 if part.stop is None else part.stop, part.step or 1)
    return min(numbers[0], numbers[-1]), max(numbers[0], numbers[-1]) + 1


def moved(part: AxisPart, by: int) -> AxisPart:
    """A part counted from element ``by``.

    Examples
    --------
    >>> moved(slice(6, 3, -1), 4), moved(slice(2, None, -1), -10)
    (slice(2, None, -1), slice(12, 9, -1))
    """
    if isinstance(part, np.ndarray):
        return part - by
    stop = (-1 if part.stop is None else part.stop) - by
    return slice(part.start - by, None if stop < 0 else stop, part.step)


def mesh(parts: tuple[AxisPart, ...]) -> tuple[Int64, ...]:
    """Parts of several axes as arrays that NumPy does not pair but spreads, as ``numpy.ix_``."""
    return np.ix_(*(elements(p) for p in parts))

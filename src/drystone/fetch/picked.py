"""Reading a picked array through the one that holds the chunks.

Axis by axis a selection of the picked array is a selection of the other one. Points, places of several axes walked together,
are read by the chunk that holds them: each chunk is decoded once, however many points lie in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from drystone.grid.selection import Indexed, NormalAxis, Strided
from drystone.model.placement import CombinedArray, Picked

__all__ = ["POINT_CELLS", "read_picked"]

POINT_CELLS = 1 << 20  # elements read at once around the points of one chunk

type Read = Callable[[CombinedArray, tuple[NormalAxis, ...]], NDArray[np.generic]]


def read_picked(read: Read, picked: Picked, axes: tuple[NormalAxis, ...]) -> NDArray[np.generic]:
    """Values in the kept shape of ``axes``, one entry an axis of the picked array.

    Parameters
    ----------
    read
        Reads an array by a normalised selection, in its kept shape.
    """
    kept = tuple(a.count for a in axes)
    dtype = picked.base.dtype
    if 0 in kept:
        return np.empty(kept, dtype)
    of = _view_axes(picked)
    whole: list[NormalAxis] = []
    for d, places in enumerate(picked.places):
        if d in picked.dropped:
            assert places is not None
            whole.append(Strided(places[0], 1, 1))
        elif places is None:
            whole.append(axes[of[d]])
        else:
            whole.append(Indexed(np.asarray(places, np.int64)[_numbers(axes[of[d]])]))
    if not picked.points:
        return read(picked.base, tuple(whole)).reshape(kept)
    return _points(read, picked, whole, of[picked.points[0]], kept)


def _view_axes(picked: Picked) -> dict[int, int]:
    """Axis of the base to axis of the picked array."""
    of: dict[int, int] = {}
    n = 0
    for d in range(len(picked.places)):
        if d in picked.dropped:
            continue
        if d in picked.points[1:]:
            of[d] = of[picked.points[0]]
            continue
        of[d] = n
        n += 1
    return of


def _numbers(axis: NormalAxis) -> NDArray[np.int64]:
    return axis.indices if isinstance(axis, Indexed) else axis.start + axis.step * np.arange(axis.count, dtype=np.int64)


def _points(read: Read, picked: Picked, whole: list[NormalAxis], at: int, kept: tuple[int, ...]) -> NDArray[np.generic]:
    out = np.empty(kept, picked.base.dtype)
    walked = [_numbers(whole[d]) for d in picked.points]
    grid = picked.base.grid.dimensions
    chunks = np.stack([grid[d].indices_to_chunks(w) for d, w in zip(picked.points, walked, strict=True)], axis=1)
    _, group = np.unique(chunks, axis=0, return_inverse=True)
    for number in range(int(group.max()) + 1):
        mine = np.flatnonzero(group.reshape(-1) == number)
        part, back = list(whole), []
        for d, w in zip(picked.points, walked, strict=True):
            distinct, inverse = np.unique(w[mine], return_inverse=True)
            part[d] = Indexed(distinct)
            back.append(inverse.reshape(-1))
        for some, where in _pieces(part, picked, kept):
            values = read(picked.base, some)
            values = np.moveaxis(values, picked.points, range(len(picked.points)))[tuple(back)]
            # what is left: the points, then the base's other axes in order, dropped ones among them with one place
            sizes = (s.stop - s.start for i, s in enumerate(where) if i != at)
            values = values.reshape(len(mine), *sizes)
            into: tuple[slice | NDArray[np.intp], ...] = (*where[:at], mine, *where[at + 1 :])
            out[into] = np.moveaxis(values, 0, at)
    return out


def _pieces(
    part: list[NormalAxis], picked: Picked, kept: tuple[int, ...]
) -> Iterator[tuple[tuple[NormalAxis, ...], tuple[slice, ...]]]:
    """What is read around the points of one chunk, cut along the longest other axis where it is more than ``POINT_CELLS``.

    Around points on a diagonal there is a square, many times as large as what is wanted of it.
    """
    everything = tuple(slice(0, n) for n in kept)
    others = [d for d in range(len(part)) if d not in picked.points and d not in picked.dropped]
    longest = max(others, key=lambda d: part[d].count, default=None)
    cells = math.prod(a.count for a in part)
    if longest is None or cells <= POINT_CELLS:
        yield tuple(part), everything
        return
    axis, axes = part[longest], _view_axes(picked)
    step = max(1, axis.count * POINT_CELLS // cells)
    for a in range(0, axis.count, step):
        b = min(a + step, axis.count)
        some = (
            Indexed(axis.indices[a:b]) if isinstance(axis, Indexed) else Strided(axis.start + axis.step * a, axis.step, b - a)
        )
        where = tuple(slice(a, b) if i == axes[longest] else s for i, s in enumerate(everything))
        yield (*part[:longest], some, *part[longest + 1 :]), where

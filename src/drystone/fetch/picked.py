"""Reading a picked array through the one that holds the chunks.

Axis by axis a selection of the picked array is a selection of the other one. Points, places of several axes walked together,
are read by the chunk that holds them: each chunk is decoded once, however many points lie in it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from drystone.grid.selection import Indexed, NormalAxis, Strided
from drystone.model.placement import CombinedArray, Picked

__all__ = ["read_picked"]

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
        values = read(picked.base, tuple(part))
        values = np.moveaxis(values, picked.points, range(len(picked.points)))[tuple(back)]
        # what is left: the points, then the base's other axes in order, dropped ones among them with one place
        values = values.reshape(len(mine), *(n for i, n in enumerate(kept) if i != at))
        out[(slice(None),) * at + (mine,)] = np.moveaxis(values, 0, at)
    return out

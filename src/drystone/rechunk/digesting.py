"""Digests of what tasks read, taken while it lies in their buffers: see :mod:`drystone.grid.digest`.

A task's receipt has the digests of its region, one for each step of the combine axis; those of all tasks add up to the
array's. Of an array whose chunks are copied as they are encoded, or whose elements have no digest, there is none.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from drystone.grid.digest import digestible, step_digests
from drystone.model.task import Receipt
from drystone.rechunk.plan_file import ArrayPlan, RechunkPlan

__all__ = ["TaskDigest", "digests_of", "takes_digest"]


class TaskDigest:
    """Adds up what a task reads of its region.

    Parameters
    ----------
    a
        The task's array.
    start, stop
        The region.
    """

    def __init__(self, a: ArrayPlan, start: Sequence[int], stop: Sequence[int]) -> None:
        self._dims, self._axis = a.array.dims, _axis(a)
        self._first = start[self._axis]
        self._sums = np.zeros(stop[self._axis] - start[self._axis], np.uint64)

    def add(self, start: Sequence[int], values: NDArray[np.generic]) -> None:
        """A box of the region as it is stored in granules."""
        at = start[self._axis] - self._first
        self._sums[at : at + values.shape[self._axis]] += step_digests(values, start, self._dims, self._axis)

    def text(self) -> str:
        """For the receipt."""
        return base64.b64encode(self._sums.astype("<u8").tobytes()).decode()


def _axis(a: ArrayPlan) -> int:
    return a.array.placements.axis or 0


def takes_digest(a: ArrayPlan) -> bool:
    """Whether an array's tasks can digest what they read."""
    dims = a.array.dims
    return not a.tasks.copies and 0 < len(dims) == len(set(dims)) and a.array.picked is None and digestible(a.array.dtype)


def digests_of(plan: RechunkPlan, receipts: Iterable[Receipt]) -> dict[str, NDArray[np.uint64]]:
    """Path to digests of each step, uint64, of the arrays all of whose tasks have some; ``receipts`` are one a task."""
    arrays = {a.layout.path: a for a in plan.arrays if takes_digest(a)}
    sums = {path: np.zeros(a.layout.shape[_axis(a)], np.uint64) for path, a in arrays.items()}
    seen = dict.fromkeys(sums, 0)
    for r in receipts:
        if not r.digest:
            continue
        a = arrays[r.array]
        start, _ = a.tasks.bounds(r.index)
        part = np.frombuffer(base64.b64decode(r.digest), "<u8")
        sums[r.array][start[_axis(a)] : start[_axis(a)] + len(part)] += part
        seen[r.array] += 1
    return {path: total for path, total in sums.items() if seen[path] == arrays[path].tasks.n_regions}

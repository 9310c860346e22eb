"""The order of a plan's tasks, and what lies between two passes while they run.

Tasks go group by group (see :mod:`drystone.plan.shuffle`): the first pass of a group, then, as soon as all of that is done,
its second. The first pass of the next group is drawn in between, so that nobody waits while the last tasks of a pass run.
A shuffle object goes when its last reader is done. What no task will read is swept before a run and after it: objects of
tasks that were done before, of runs that were killed, of plans that are no more.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from drystone.model.task import Task
from drystone.pipeline.archive import Archive
from drystone.plan.regions import bounds, touched
from drystone.plan.shuffle import Shuffle
from drystone.rechunk.plan_file import ArrayPlan, RechunkPlan
from drystone.rechunk.receipts import RunState, sweep_temporary
from drystone.rechunk.shuffle import shuffle_key
from drystone.storage.local import prune_folders
from drystone.storage.store import Store

__all__ = ["Passes", "shuffle_sizes", "sweep_abandoned", "sweep_between"]

type _Grid = NDArray[np.bool_]


class Passes:
    """Which task is next; told of every task that is done or set aside.

    Parameters
    ----------
    plan, state
        Tasks, and those that are done.
    store, folder
        Where shuffle objects lie.
    """

    def __init__(self, plan: RechunkPlan, state: RunState, store: Store, folder: str) -> None:
        self._store, self._folder, self._state = store, folder, state
        self._offsets = list(plan.offsets())
        self._first = [offset for _, offset in self._offsets]
        self._twice = {
            offset: _TwoPasses(plan, a, a.tasks.shuffle, state.done[offset : offset + a.tasks.n_tasks])
            for a, offset in self._offsets
            if a.tasks.shuffle is not None
        }

    def __iter__(self) -> Iterator[int | None]:
        """Numbers of the tasks that are left; None where the next must wait."""
        for a, offset in self._offsets:
            if offset in self._twice:
                yield from (None if i is None else offset + i for i in self._twice[offset].order())
            else:
                yield from (offset + np.flatnonzero(~self._state.done[offset : offset + a.tasks.n_tasks])).tolist()

    @property
    def held_back(self) -> int:
        """Tasks that were not begun, since what they read was not written."""
        return sum(t.held_back for t in self._twice.values())

    def done(self, number: int) -> None:
        """A task is done and its receipt written: what it was the last to read goes."""
        twice, local = self._find(number)
        for task in () if twice is None else twice.done(local):
            self._store.delete(shuffle_key(self._folder, task))

    def failed(self, number: int) -> None:
        """A task is set aside: those that read what it should have written are held back."""
        twice, local = self._find(number)
        if twice is not None:
            twice.failed(local)

    def sweep(self) -> None:
        """Remove what no task that is left will read; nobody may be writing."""
        wanted = {shuffle_key(self._folder, task) for t in self._twice.values() for task in t.wanted()}
        sweep_between(self._store, self._folder, wanted)

    def _find(self, number: int) -> tuple[_TwoPasses | None, int]:
        offset = self._first[bisect.bisect_right(self._first, number) - 1]
        return self._twice.get(offset), number - offset


class _TwoPasses:
    """The tasks of one array; numbers are the array's own, those of the first pass after those of the second."""

    def __init__(self, plan: RechunkPlan, a: ArrayPlan, shuffle: Shuffle, done: _Grid) -> None:
        self._plan, self._a, self._base, self._shuffle = plan, a, a.base(), shuffle
        self._regions, self._n = a.tasks.regions, a.tasks.n_regions
        self._first = ~done[self._n :].reshape(shuffle.sources.grid_shape)
        self._second = ~done[: self._n].reshape(self._regions.grid_shape)
        self._left = shuffle.readers_left(self._regions, ~self._second)
        self._lost = np.zeros(shuffle.sources.grid_shape, np.bool_)
        self._open: set[int] = set()  # of the first pass: drawn, and neither done nor set aside
        self.held_back = 0

    def order(self) -> Iterator[int | None]:
        """Tasks that are left; None where the next waits for the first pass of its group."""
        before: tuple[set[int], list[int]] = set(), []
        for group in (*range(self._shuffle.groups.n_chunks), None):
            first, second = ([], []) if group is None else self._group(group)
            for i in first:
                self._open.add(i)
                yield i
            needs, following = before
            while not needs.isdisjoint(self._open):
                yield None
            for i in following:
                if self._lost.any() and self._lost[self._shuffle.read_by(self._regions, i)].any():
                    self.held_back += 1
                else:
                    yield i
            before = set(first), second

    def _group(self, group: int) -> tuple[list[int], list[int]]:
        """What is left of both passes in a group."""
        box = bounds(self._shuffle.groups, group)
        first = _numbers(self._first, touched(self._shuffle.sources, *box))
        return [self._n + i for i in first], _numbers(self._second, touched(self._regions, *box))

    def done(self, local: int) -> Iterator[Task]:
        """Note a task; gives those of the first pass whose objects no reader needs any more."""
        self._open.discard(local)
        if local >= self._n:
            return
        at = self._shuffle.read_by(self._regions, local)
        self._left[at] -= 1
        for where in np.argwhere(self._left[at] == 0).tolist():
            yield self._task([s.start + i for s, i in zip(at, where, strict=True)])

    def failed(self, local: int) -> None:
        """Note a task that is set aside."""
        self._open.discard(local)
        if local >= self._n:
            self._lost.reshape(-1)[local - self._n] = True

    def wanted(self) -> Iterator[Task]:
        """Tasks of the first pass whose objects somebody will read."""
        for where in np.argwhere(self._left > 0).tolist():
            yield self._task(where)

    def _task(self, where: Sequence[int]) -> Task:
        shape = self._shuffle.sources.grid_shape
        index = int(np.ravel_multi_index(tuple(where), shape)) if shape else 0
        return self._plan.task_of(self._a, self._n + index, self._base)


def _numbers(left: _Grid, box: Sequence[range]) -> list[int]:
    """Numbers in the whole grid of what is left in a box of it, in order."""
    inside = left[tuple(slice(r.start, r.stop) for r in box)]
    if not left.ndim:
        return [0] if left else []
    at = np.nonzero(inside)
    found: list[int] = np.ravel_multi_index(tuple(i + r.start for i, r in zip(at, box, strict=True)), left.shape).tolist()
    return found


def shuffle_sizes(store: Store, folder: str) -> dict[str, int]:
    """Key to size of every shuffle object below a folder."""
    return {key: stamp.size for key, stamp in store.list(f"{folder}/")}


def sweep_between(store: Store, folder: str, wanted: Collection[str] = ()) -> None:
    """Remove shuffle objects below a folder, but those that are wanted, and what writers that were killed left of some."""
    for key in shuffle_sizes(store, folder):
        if key not in wanted:
            store.delete(key)
    sweep_temporary(store, folder)
    if store.root is not None and os.path.isdir(os.path.join(store.root, folder)):
        prune_folders(os.path.join(store.root, folder))


def sweep_abandoned(archive: Archive) -> None:
    """Remove shuffle objects of outputs that the config no longer has, or no longer keeps there."""
    for root in dict.fromkeys((archive.work_scratch, archive.scratch)):
        store, folder = archive.places.resolve(root)
        known = tuple(f"{archive.places.resolve(archive.scratch_of(o))[1]}/" for o in archive.config.outputs)
        kept = {key for key in shuffle_sizes(store, folder) if root == archive.scratch and key.startswith(known)}
        sweep_between(store, folder, kept)

"""The target of a store output, as the driver sees it: one protocol, whatever lies beneath.

Order of calls in a run::

    held        which receipts count, by what lies in the target
    stands      what is published there, if it is this very store: then nothing is to be done
    prepare     metadata and small arrays; tasks write through ``opener`` from here on
    take        each task's changes, as it ends
    settle      whatever was taken counts from here on, also where other tasks failed
    finish      what is too much goes; gives the version to verify
    publish     readers see it

Here is the target that is a folder or object store: each write cell is an object and counts at once, and the root's metadata
makes all of it visible. :mod:`~drystone.rechunk.repository_target` has the one that is an Icechunk repository.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from drystone.model.array import GroupSpec
from drystone.plan.layout import TargetLayout
from drystone.rechunk.kernel import TaskDone
from drystone.rechunk.receipts import Held, ObjectsHeld, RunState, remove_objects, sweep_temporary, target_sizes
from drystone.rechunk.target import array_of, is_published, prepare, publish, stray_objects, withdraw
from drystone.rechunk.writer import ObjectTarget, TargetOpener
from drystone.storage.store import Store

__all__ = ["ObjectStoreTarget", "Stock", "StoreTarget"]


@dataclass(frozen=True, slots=True)
class Stock:
    """What a store holds beside what its tasks write.

    Parameters
    ----------
    identity
        Hash of all that decides the store's bytes.
    layouts
        Of every array.
    groups
        With attributes.
    values
        Path to native values, of the arrays that the driver writes.
    axes
        Path to the combine axis, of the arrays that tasks write.
    task_ids
        uint64 (n_tasks,): see :class:`~drystone.rechunk.receipts.RunState`.
    leftover
        Paths of arrays that an earlier plan had and this one has not.
    """

    identity: str
    layouts: tuple[TargetLayout, ...]
    groups: tuple[GroupSpec, ...]
    values: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)
    axes: Mapping[str, int | None] = field(default_factory=dict)
    task_ids: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    leftover: tuple[str, ...] = ()


class StoreTarget(Protocol):
    """See the module. All of it may raise ``StorageError``."""

    @property
    def hides(self) -> bool:
        """Whether readers see nothing while a published store is changed."""
        ...

    @property
    def opener(self) -> TargetOpener:
        """What tasks write through, once it is prepared."""
        ...

    def held(self) -> Held:
        """Which receipts count now; changes nothing."""
        ...

    def stands(self, identity: str) -> str | None:
        """How records name what is published, if it is the store of this identity; changes nothing."""
        ...

    def prepare(self, stock: Stock, fence: Callable[[], None]) -> None:
        """Write everything but what tasks write; ``fence`` raises where nothing may be written any more."""
        ...

    def take(self, number: int, done: TaskDone) -> Sequence[int]:
        """Take a task's changes, by its number in the plan; returns the tasks that count from now on."""
        ...

    def settle(self) -> Sequence[int]:
        """Make all that was taken count; returns the tasks that count from now on."""
        ...

    def finish(self, state: RunState) -> str | None:
        """Complete the store, once all tasks count; returns its version where it has one, for the verifier."""
        ...

    def publish(self) -> str:
        """Make it visible; returns how records name it."""
        ...


class ObjectStoreTarget:
    """A folder or object store.

    Parameters
    ----------
    store, key
        Its root.
    at
        Its address, ``place:key``.
    recorded
        Identity of what was published there, as the record says.
    """

    hides = True

    def __init__(self, store: Store, key: str, at: str, recorded: str | None) -> None:
        self._store, self._key, self._recorded = store, key, recorded
        self.opener: TargetOpener = ObjectTarget(at)
        self._sizes: Mapping[str, int] = {}
        self._stock: Stock | None = None

    def held(self) -> Held:
        """By one listing: every object that a receipt names is there with its size."""
        self._sizes = target_sizes(self._store, self._key)
        return ObjectsHeld(self._sizes)

    def stands(self, identity: str) -> str | None:
        """The identity, where a root is there; whether it is this store's is for the record to say."""
        return identity if is_published(self._store, self._key) else None

    def prepare(self, stock: Stock, fence: Callable[[], None]) -> None:
        """See :func:`drystone.rechunk.target.prepare`."""
        fence()
        if self._recorded != stock.identity and is_published(self._store, self._key):
            withdraw(self._store, self._key)
        # before anything is written: an array of another rank left folders where objects are to lie, or the other way round
        self._stock = stock
        self._remove_strays(stock)
        prepare(self._store, self._key, stock.layouts, stock.groups, stock.values)

    def take(self, number: int, done: TaskDone) -> Sequence[int]:
        """Objects count as they are."""
        return (number,)

    def settle(self) -> Sequence[int]:
        """Nothing is left to count."""
        return ()

    def finish(self, state: RunState) -> None:
        """Remove what killed workers and earlier plans left; no writer is left."""
        assert self._stock is not None
        self._remove_strays(self._stock)

    def _remove_strays(self, stock: Stock) -> None:
        sweep_temporary(self._store, self._key)
        strays = stray_objects(stock.layouts, self._sizes, stock.leftover)
        remove_objects(self._store, self._key, strays, {*stock.leftover, *map(array_of, strays)})

    def publish(self) -> str:
        """Write the root."""
        assert self._stock is not None
        publish(self._store, self._key, self._stock.layouts, self._stock.groups)
        return self._stock.identity

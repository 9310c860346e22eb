"""Which item to run next, and what to do when one fails: bookkeeping without a clock of its own or an engine.

Two kinds of failure are told apart. An *exception* is the item's doing: a few tries with back-off, then it is set aside and
the rest goes on; an error that says the same every time (damaged bytes, a granule that changed) is set aside at once. A
*death* (a lost worker, preemption) is the infrastructure's: the item goes back to the front as often as it takes, unless it
has seen so many that it must be the killer.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from drystone.errors import DrystoneError, StorageError

__all__ = ["MAX_DEATHS", "Attempt", "Attempts", "as_drystone", "is_final"]

MAX_DEATHS = 10
_FIRST_DELAY = 1.0
_LONGEST_DELAY = 60.0


@dataclass(slots=True)
class Attempt[T]:
    """An item and what it has gone through."""

    item: T
    failures: int = 0
    deaths: int = 0


def is_final(error: Exception) -> bool:
    """Whether another try would say the same: drystone's own verdicts, except that storage was not reached."""
    if isinstance(error, StorageError):
        return error.kind in ("no-file", "no-permission", "outside", "shuffle-lost")
    return isinstance(error, DrystoneError)


def as_drystone(error: Exception) -> DrystoneError:
    """The error itself if it is drystone's, else one that says what happened and keeps the cause."""
    if isinstance(error, DrystoneError):
        return error
    wrapped = DrystoneError(
        f"{type(error).__name__}: {error}; drystone did not expect this, please report it", kind="unexpected"
    )
    wrapped.__cause__ = error
    return wrapped


class Attempts[T]:
    """Items to run, in order, with those that wait for another try.

    Parameters
    ----------
    items
        Drawn one by one, as late as possible; None: the next waits for others that were drawn before.
    tries
        Of an item that raises.

    Examples
    --------
    >>> a = Attempts(iter("ab"), tries=2)
    >>> first = a.take(0.0)
    >>> a.failed(first, ValueError("odd"), 0.0) is None, a.take(0.0).item, a.take(0.0), a.take(1.5).item
    (True, 'b', None, 'a')
    """

    def __init__(self, items: Iterator[T | None], tries: int) -> None:
        self._fresh = items
        self._tries = tries
        self.exhausted = False
        self._again: deque[Attempt[T]] = deque()
        self._waiting: list[tuple[float, int, Attempt[T]]] = []
        self._order = itertools.count()

    def take(self, now: float) -> Attempt[T] | None:
        """The next one to run, or None where none is due."""
        if self._again:
            return self._again.popleft()
        if self._waiting and self._waiting[0][0] <= now:
            return heapq.heappop(self._waiting)[2]
        if not self.exhausted:
            for item in self._fresh:
                return None if item is None else Attempt(item)
            self.exhausted = True
        return None

    def next_due(self) -> float | None:
        """When the first waiting one is due, or None where none waits."""
        return self._waiting[0][0] if self._waiting else None

    def failed(self, attempt: Attempt[T], error: Exception, now: float) -> DrystoneError | None:
        """Take note of an exception; returns the error where the item is set aside, None where it is tried again."""
        attempt.failures += 1
        if is_final(error) or attempt.failures >= self._tries:
            return as_drystone(error)
        delay = min(_LONGEST_DELAY, _FIRST_DELAY * 2 ** (attempt.failures - 1))
        heapq.heappush(self._waiting, (now + delay, next(self._order), attempt))
        return None

    def lost(self, attempt: Attempt[T], deaths: int) -> DrystoneError | None:
        """Take note of workers that died under it; returns an error where it is set aside."""
        attempt.deaths += deaths
        if attempt.deaths >= MAX_DEATHS:
            return DrystoneError(
                f"{attempt.item}: the worker died {attempt.deaths} times while it ran this; if the reason was memory, give "
                "workers more (execution: {memory_per_worker: …}), else its data crash a library: see the workers' logs",
                kind="worker-killed",
                deaths=attempt.deaths,
            )
        self._again.append(attempt)
        return None

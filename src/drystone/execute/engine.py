"""Runs one function over many items, in this process or on Dask, so that no failure stops the rest.

Whatever the number of items, only a window of a few for each worker is known to the scheduler at a time; results are taken
and forgotten as they come. A million tasks cost it no more than a hundred.

A cluster takes seconds to start. So with ``local`` work begins in the driver's process, and a cluster is started for what is
left after some seconds; callers who know the size beforehand say ``inline``.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from drystone.errors import DrystoneError, IncompleteRun, Stopped, StorageError
from drystone.execute.attempts import Attempt, Attempts, as_drystone
from drystone.execute.resources import Resources, resolve
from drystone.execute.signals import StopRequest
from drystone.model.options import ExecutionOptions

if TYPE_CHECKING:
    from drystone.execute.cluster import Client, Future

__all__ = ["Outcome", "run_windowed"]

_PATIENCE = 5.0  # seconds of work in this process before a cluster is worth its start
_POLL = 0.2
_NO_WORKERS = 300.0
_GRACE = 20.0  # seconds that running tasks get after a request to stop; Slurm gives 30 in all


@dataclass(slots=True)
class Outcome:
    """Counts of a run: items done and set aside, tries that raised and were repeated, workers that died under a task."""

    done: int = 0
    failed: int = 0
    retried: int = 0
    lost: int = 0


@dataclass(slots=True)
class _Run[T, R]:
    """What both engines share."""

    function: Callable[[T], R]
    attempts: Attempts[T]
    on_done: Callable[[T, R], None]
    on_failed: Callable[[T, DrystoneError], None]
    stop: StopRequest
    outcome: Outcome

    def succeeded(self, attempt: Attempt[T], result: R) -> None:
        self.outcome.done += 1
        self.on_done(attempt.item, result)

    def raised(self, attempt: Attempt[T], error: Exception) -> None:
        if isinstance(error, StorageError) and error.kind == "no-space":
            raise error  # every other task would read and encode in vain
        self._settle(attempt, self.attempts.failed(attempt, error, time.monotonic()))

    def died(self, attempt: Attempt[T], deaths: int) -> None:
        self.outcome.lost += max(deaths, 1)
        self._settle(attempt, self.attempts.lost(attempt, deaths))

    def _settle(self, attempt: Attempt[T], verdict: DrystoneError | None) -> None:
        if verdict is None:
            self.outcome.retried += 1
        else:
            self.outcome.failed += 1
            self.on_failed(attempt.item, verdict)


def run_windowed[T, R](
    function: Callable[[T], R],
    items: Iterable[T | None],
    options: ExecutionOptions,
    *,
    on_done: Callable[[T, R], None],
    on_failed: Callable[[T, DrystoneError], None],
    tries: int = 3,
    window: int = 2,
    inline: bool | None = None,
) -> Outcome:
    """Run ``function`` on every item.

    Parameters
    ----------
    function
        Picklable where workers are processes; harmless to repeat. Its results should be small.
    items
        Drawn as they are needed; None where the next must wait until more of those before it are done or set aside.
    options
        Which engine.
    on_done, on_failed
        Called in this thread, in order of completion: with the item and its result, or with the item that is set aside
        and why. An exception in them ends the run.
    tries
        Of an item that raises. Errors that would be the same every time are final at once; deaths of workers are counted
        apart and do not use up tries.
    window
        Items on their way for each worker.
    inline
        True or False: in this process or not, as the caller knows better; None: see the module.

    Raises
    ------
    Stopped
        After SIGTERM or SIGINT.
    StorageError
        ``no-space``: the disk is full, so nothing else can succeed.

    Examples
    --------
    >>> results = {}
    >>> run_windowed(abs, [-1, 2], ExecutionOptions("inline"), on_done=results.__setitem__, on_failed=print)
    Outcome(done=2, failed=0, retried=0, lost=0)
    >>> results
    {-1: 1, 2: 2}
    """
    resources = resolve(options)
    with StopRequest() as stop:
        run = _Run(function, Attempts(iter(items), tries), on_done, on_failed, stop, Outcome())
        alone = options.cluster == "inline" or (options.cluster == "local" and resources.workers == 1)
        forever = alone if inline is None else inline
        if forever or (inline is None and options.cluster == "local"):
            limit = None if forever else time.monotonic() + _PATIENCE
            if _run_inline(run, limit):
                return run.outcome
        _run_dask(run, options, resources, window)
        return run.outcome


def _run_inline[T, R](run: _Run[T, R], limit: float | None) -> bool:
    """Run items here until all are done (True) or the time limit has passed (False)."""
    while limit is None or time.monotonic() < limit:
        if run.stop.name is not None:
            raise run.stop.stopped()
        attempt = run.attempts.take(time.monotonic())
        if attempt is None:
            due = run.attempts.next_due()
            if due is None and run.attempts.exhausted:
                return True
            time.sleep(_POLL if due is None else min(_POLL, max(0.0, due - time.monotonic())))
            continue
        try:
            result = run.function(attempt.item)
        except Exception as error:  # the engine's one task is to tell such things from each other and go on
            if isinstance(error, Stopped):
                raise
            run.raised(attempt, error)
        else:
            run.succeeded(attempt, result)
    return False


def _run_dask[T, R](run: _Run[T, R], options: ExecutionOptions, resources: Resources, window: int) -> None:
    from drystone.execute.cluster import connect

    with connect(options, resources) as client:
        _Window(run, client, window, options.cluster == "local").drain()


class _Window[T, R]:
    """The futures on their way; refilled as they finish."""

    def __init__(self, run: _Run[T, R], client: Client, per_worker: int, local: bool) -> None:
        self._run, self._client, self._per_worker, self._local = run, client, per_worker, local
        self._seen = time.monotonic()
        self._flying: dict[str, tuple[Attempt[T], Future]] = {}
        self._finished: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._submitted = 0
        self._asked = 0.0
        self._size = 1
        self._forgotten = 0  # in a row

    def drain(self) -> None:
        """Run until nothing is left, or until a request to stop."""
        run = self._run
        deadline: float | None = None
        try:
            while True:
                now = time.monotonic()
                if run.stop.name is None:
                    self._refill(now)
                elif deadline is None:
                    deadline = now + _GRACE
                over = run.attempts.exhausted and run.attempts.next_due() is None
                if not self._flying and (run.stop.name is not None or over):
                    break
                if deadline is not None and now > deadline:
                    break
                self._take_finished()
        finally:
            for _, future in self._flying.values():
                future.cancel()
        if run.stop.name is not None:
            raise run.stop.stopped()

    def _refill(self, now: float) -> None:
        if now - self._asked > 1.0:
            # workers come and go on a cluster that scales or is preempted
            self._asked = now
            try:
                threads = sum(self._client.nthreads().values())
            except OSError as error:
                raise self._scheduler_lost() from error
            self._size = self._per_worker * max(1, threads)
            self._check_workers(threads, now)
        while len(self._flying) < self._size:
            attempt = self._run.attempts.take(now)
            if attempt is None:
                return
            key = f"drystone-{id(self):x}-{self._submitted}"
            self._submitted += 1
            future = self._client.submit(self._run.function, attempt.item, key=key, pure=False, retries=0)
            self._flying[key] = (attempt, future)
            future.add_done_callback(lambda f: self._finished.put(f.key))

    def _scheduler_lost(self) -> IncompleteRun:
        return IncompleteRun(
            "the Dask scheduler went away or forgets whatever it is given; what is done is kept, run again when it is back",
            kind="scheduler-lost",
        )

    def _check_workers(self, threads: int, now: float) -> None:
        """On this host workers come back within seconds; elsewhere they may be waiting in a queue, for as long as it takes."""
        if threads or not self._local:
            self._seen = now
        elif now - self._seen > _NO_WORKERS:
            raise DrystoneError(
                f"no worker has started in {_NO_WORKERS:.0f} s although this host should run some: is it out of memory or of "
                "processes? What is done is kept; run again, or with execution: {cluster: inline}",
                kind="no-workers",
            )

    def _take_finished(self) -> None:
        try:
            key = self._finished.get(timeout=_POLL)
        except queue.Empty:
            return
        attempt, future = self._flying.pop(key)
        self._settle(attempt, future)
        future.release()

    def _settle(self, attempt: Attempt[T], future: Future) -> None:
        from distributed import KilledWorker

        run = self._run
        if future.status == "finished":
            self._forgotten = 0
            run.succeeded(attempt, cast(R, future.result()))
            return
        if future.status != "error":
            # cancelled or lost: the scheduler forgot it, nobody blames the task
            self._forgotten += 1
            if self._forgotten > 100 + 10 * self._size:
                raise self._scheduler_lost()
            run.died(attempt, 0)
            return
        error = future.exception()
        if isinstance(error, KilledWorker):
            run.died(attempt, int(getattr(error, "allowed_failures", 3)) + 1)
        elif isinstance(error, Exception):
            run.raised(attempt, error)
        else:
            raise as_drystone(RuntimeError(f"a task ended with {error!r}"))

"""Dask, and only here: a cluster of processes on this host, or somebody's scheduler.

Settings that differ from Dask's own, and why:

- *No spilling and no pausing.* A task's raw buffer is no Dask data, so neither would free anything, and a paused worker
  whose buffer stays would wait for ever. The nanny still ends a worker at 95 % of its limit.
- *One task a worker.* Threads are inside tasks, where they share one slab; memory is planned for one task a process.
- *Nine deaths allowed* before the scheduler blames a task, instead of three, and tasks wait at the scheduler, not at
  workers, so that only the one that ran is blamed.
- *A worker that died is never given up.* Dask's cluster drops one for good that happens to be between two starts 15 seconds
  after a death, and a run whose last worker goes that way waits for ever (seen within minutes under load).
- *malloc as it is.* Dask makes glibc hand back every freed block of 64 kB, and tasks that free a chunk a millisecond spend
  as much time getting pages anew (4.0 s of system time where 2.0 do, for 830 MB of maps); it costs 30 MB a worker.
- *Everything on loopback, at any port*: whoever reaches a scheduler can run code as its user.

Workers end with their driver, however it ends: see :mod:`drystone.execute.guard`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, cast

from drystone.execute.attempts import MAX_DEATHS
from drystone.execute.resources import Resources
from drystone.model.options import ExecutionOptions

__all__ = ["Client", "Future", "connect"]


class Future(Protocol):
    """What is used of :class:`distributed.Future`, whose own annotations are incomplete."""

    key: str
    status: str

    def result(self) -> object:
        """Wait for and return its result."""
        ...

    def exception(self) -> BaseException:
        """The exception that it ended with."""
        ...

    def cancel(self) -> None:
        """Give it up."""
        ...

    def release(self) -> None:
        """Let the scheduler forget it."""
        ...

    def add_done_callback(self, function: Callable[[Future], None]) -> None:
        """Call when it ends, in another thread."""
        ...


class Client(Protocol):
    """What is used of :class:`distributed.Client`."""

    def submit(self, function: Callable[..., object], *args: object, key: str, pure: bool, retries: int) -> Future:
        """Run on some worker."""
        ...

    def nthreads(self) -> Mapping[str, int]:
        """Threads of each worker."""
        ...


_SETTINGS = {
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": 0.95,
    "distributed.scheduler.allowed-failures": MAX_DEATHS - 1,
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.scheduler.work-stealing": False,
    "distributed.deploy.lost-worker-timeout": "31536000s",
    "distributed.nanny.pre-spawn-environ": {"OMP_NUM_THREADS": 1, "MKL_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1},
    "distributed.comm.timeouts.connect": "120s",
    # what only the dashboard shows costs milliseconds a task: source code of each call, stacks sampled in workers
    "distributed.diagnostics.computations.nframes": 0,
    "distributed.diagnostics.computations.max-history": 1,
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.limit": "60s",  # a codec that holds the GIL for seconds is no news
}


def _without_spans(extensions: Mapping[str, type]) -> dict[str, type]:
    """Spans, which only a dashboard shows, keep a record of each submission for as long as the scheduler lives."""
    unwanted = ("spans", "stealing")
    return {name: extension for name, extension in extensions.items() if name not in unwanted}


@contextmanager
def connect(options: ExecutionOptions, resources: Resources) -> Iterator[Client]:
    """A client of the cluster that the options name; a local one is started, and ended with the block."""
    import dask
    import distributed
    from distributed.scheduler import DEFAULT_EXTENSIONS as OF_SCHEDULER
    from distributed.worker import DEFAULT_EXTENSIONS as OF_WORKER

    # their classes are not annotated
    make_client = cast("Callable[..., AbstractContextManager[Client]]", distributed.Client)
    make_cluster = cast("Callable[..., AbstractContextManager[object]]", distributed.LocalCluster)

    with dask.config.set(_SETTINGS):
        if options.cluster != "local":
            with make_client(options.cluster, timeout="120s") as client:
                yield client
            return
        folder = tempfile.mkdtemp(prefix="drystone-workers-")
        try:
            with (
                make_cluster(
                    n_workers=resources.workers,
                    threads_per_worker=1,
                    processes=True,
                    memory_limit=resources.memory,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                    local_directory=folder,
                    preload=["drystone.execute.guard"],
                    scheduler_kwargs={"extensions": _without_spans(OF_SCHEDULER)},
                    extensions=_without_spans(OF_WORKER),
                    silence_logs=50,
                ) as cluster,
                make_client(cluster, timeout="120s") as client,
            ):
                yield client
        finally:
            shutil.rmtree(folder, ignore_errors=True)

"""What this host has, and how a run shares it out."""

from __future__ import annotations

import os
from dataclasses import dataclass

from drystone.model.options import ExecutionOptions

__all__ = ["Resources", "cpu_count", "host_memory", "resolve"]

# a cluster of processes starts in two to four seconds; less work than this a core is done sooner without one
_INLINE_BYTES_PER_CPU = 1_000_000_000
_SHARE = 0.8  # of the host's memory: the rest is the system's, its page cache above all
_REMOTE_MEMORY = 4_000_000_000


@dataclass(frozen=True, slots=True)
class Resources:
    """How many tasks run at once, and what each may take.

    Parameters
    ----------
    inline
        True: one at a time, in the driver's process.
    workers
        Tasks at once.
    threads
        Inside each.
    memory
        Bytes of each worker's process.
    """

    inline: bool
    workers: int
    threads: int
    memory: int


def cpu_count() -> int:
    """Cores that this process may use."""
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1


def host_memory() -> int:
    """Bytes that this process and its children may use: the host's, or the control group's limit where that is less."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path) as f:
                text = f.read().strip()
        except OSError:
            continue  # the other version of control groups, or none
        if text.isdigit():
            found = min(found, int(text))
    return found


def resolve(options: ExecutionOptions, nbytes: int | None = None) -> Resources:
    """Share out the host.

    Parameters
    ----------
    options
        What the user says.
    nbytes
        Raw bytes of all tasks, where known: a small run stays in the driver's process.

    Examples
    --------
    >>> resolve(ExecutionOptions("inline", memory_per_worker=10**9)).workers
    1
    """
    cpus = cpu_count()
    if options.cluster not in ("inline", "local"):
        return Resources(
            False, options.workers or 1, options.threads_per_worker or 1, options.memory_per_worker or _REMOTE_MEMORY
        )
    small = nbytes is not None and nbytes <= _INLINE_BYTES_PER_CPU * cpus and options.workers is None
    total = int(host_memory() * _SHARE)
    if options.cluster == "inline" or small or cpus == 1:
        return Resources(True, 1, options.threads_per_worker or cpus, options.memory_per_worker or total)
    workers = options.workers or max(1, cpus // (options.threads_per_worker or 1))
    threads = options.threads_per_worker or max(1, cpus // workers)
    return Resources(False, workers, threads, options.memory_per_worker or total // workers)

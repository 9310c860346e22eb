"""What this host has, and how a run shares it out."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from drystone.model.options import ExecutionOptions

__all__ = ["Resources", "cpu_affinity", "cpu_count", "cpu_quota", "host_memory", "resolve"]

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


def cpu_affinity() -> int:
    """Cores that the system lets this process run on."""
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1


def cpu_quota(root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> float | None:
    """CPUs that the control group may use in the mean, as containers and batch systems set it; None: all."""
    found = []
    for text in _limits("cpu.max", root, own):
        most, _, period = text.partition(" ")
        if most.isdigit() and period.isdigit() and int(period):
            found.append(int(most) / int(period))
    # one folder has both, so they come in pairs
    old = zip(_limits("cpu.cfs_quota_us", root, own, "cpu"), _limits("cpu.cfs_period_us", root, own, "cpu"), strict=False)
    found += [int(most) / int(period) for most, period in old if most.isdigit() and period.isdigit() and int(period)]
    return min(found, default=None)


def cpu_count() -> int:
    """Cores that this process may use: no more than its control group's quota."""
    quota = cpu_quota()
    return cpu_affinity() if quota is None else max(1, min(cpu_affinity(), math.ceil(quota)))


def host_memory(root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> int:
    """Bytes that this process and its children may use: the host's, or a control group's limit where that is less."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [*_limits("memory.max", root, own), *_limits("memory.limit_in_bytes", root, own, "memory")]
    return min([found, *(int(text) for text in limits if text.isdigit())])


def _limits(name: str, root: str, own: str, controller: str = "") -> list[str]:
    """What the control groups of this process say, from its own up to the root; ``controller``: of version 1."""
    path = "/"
    try:
        with open(own) as f:
            for line in f:
                _, names, group = line.rstrip("\n").split(":", 2)
                if controller in names.split(",") or (not controller and not names):
                    path = group
    except OSError:
        pass  # no control groups, or none that can be seen: the root's may be there
    found = []
    parts = [p for p in path.split("/") if p and p != ".."]
    for n in range(len(parts), -1, -1):
        try:
            with open(os.path.join(root, controller, *parts[:n], name)) as f:
                found.append(f.read().strip())
        except OSError:
            continue  # of the other version, or above what this container sees
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

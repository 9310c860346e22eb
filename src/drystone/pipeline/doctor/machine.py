"""Checks of the machine: cores and memory that a process may use, the temporary folder, what is installed."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata

from drystone import __version__
from drystone.execute.resources import Resources, cpu_affinity, cpu_count, cpu_quota, host_memory
from drystone.model.sizes import size_text
from drystone.pipeline.doctor.checks import Fact, Verdict
from drystone.plan.memory import BASELINE, task_memory

__all__ = ["Cores", "Extra", "Installed", "Memory", "Scratch", "extras", "file_system", "libraries"]

MACHINE = "this machine"
_FEW_BYTES = 128_000_000  # of a task: below, large source chunks do not fit any more
_ROOM = 1_000_000_000
_IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})


@dataclass(frozen=True, slots=True)
class Cores:
    """Cores allowed."""

    def writes(self) -> list[str]:
        """Nothing."""
        return []

    def look(self) -> Iterator[Verdict]:
        """By affinity and by quota."""
        allowed, quota, there = cpu_affinity(), cpu_quota(), os.cpu_count() or 1
        cores = cpu_count()
        facts: dict[str, Fact] = {"cores": cores, "affinity": allowed, "quota": quota, "host": there}
        limit = f", of which the control group's quota leaves {quota:.2g}" if quota is not None and quota < allowed else ""
        text = f"{cores} cores: {allowed} of {there} allowed{limit}"
        if cores == 1:
            yield Verdict("cores", MACHINE, "warn", f"{text}; reading and encoding take turns on one core", facts)
            return
        busy = os.getloadavg()[0]
        if busy > cores:
            text += f"; {busy:.1f} programs want to run, so measured and predicted times are too long or too short"
            yield Verdict("cores", MACHINE, "warn", text, {**facts, "load": busy})
            return
        yield Verdict("cores", MACHINE, "ok", text, facts)


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a worker, as it would be shared out."""

    host: Resources

    def writes(self) -> list[str]:
        """Nothing."""
        return []

    def look(self) -> Iterator[Verdict]:
        """Of the host, of a worker, of a task."""
        all_, task = host_memory(), task_memory(self.host.memory)
        facts: dict[str, Fact] = {"allowed": all_, "worker": self.host.memory, "task": task, "workers": self.host.workers}
        text = (
            f"{size_text(all_)} allowed; {self.host.workers} workers of {size_text(self.host.memory)}, "
            f"{size_text(task)} for a task"
        )
        if task < _FEW_BYTES:
            idle = size_text(BASELINE)
            text += f"; a worker takes {idle} before it reads anything: run fewer workers (execution: {{workers: …}})"
            yield Verdict("memory", MACHINE, "warn", text, facts)
        elif self.host.memory * self.host.workers > all_:
            text += "; the workers together may take more than there is: lower execution: {workers, memory_per_worker}"
            yield Verdict("memory", MACHINE, "warn", text, facts)
        else:
            yield Verdict("memory", MACHINE, "ok", text, facts)


@dataclass(frozen=True, slots=True)
class Scratch:
    """The folder for temporary files."""

    def writes(self) -> list[str]:
        """Nothing: what is measured there is told by what measures."""
        return []

    def look(self) -> Iterator[Verdict]:
        """Its file system and room."""
        folder = tempfile.gettempdir()
        system, at = file_system(folder), os.statvfs(folder)
        free, inodes = at.f_bavail * at.f_frsize, at.f_favail
        facts: dict[str, Fact] = {"file_system": system, "free": free, "free_inodes": inodes}
        text = f"{system}, {size_text(free)} free"
        if system in _IN_MEMORY:
            yield Verdict("scratch", folder, "warn", f"{text}; it lies in memory: point TMPDIR to a disk", facts)
        elif free < _ROOM:
            yield Verdict("scratch", folder, "warn", f"{text}; point TMPDIR to a folder with more room", facts)
        else:
            yield Verdict("scratch", folder, "ok", text, facts)


@dataclass(frozen=True, slots=True)
class Installed:
    """Libraries and extras."""

    def writes(self) -> list[str]:
        """Nothing."""
        return []

    def look(self) -> Iterator[Verdict]:
        """What is missing that drystone needs, and which decoders are the slow ones."""
        known = libraries()
        missing = sorted(name for name, version in known.items() if version is None)
        if missing:
            text = f"not installed: {', '.join(missing)}; install them with: pip install --force-reinstall drystone"
            yield Verdict("libraries", MACHINE, "fail", text, {"missing": ", ".join(missing)})
        else:
            yield Verdict("libraries", MACHINE, "ok", f"drystone {__version__} with all of its {len(known)} libraries", {})
        for extra in extras().values():
            if extra.missing and extra.name == "codecs":
                yield Verdict(
                    "extra codecs",
                    MACHINE,
                    "warn",
                    f"without {', '.join(extra.missing)}: arrays in lzf are decoded at some 20 MB/s, and those in filters of "
                    "HDF5 plugins not at all; install it with: pip install 'drystone[codecs]'",
                    {"missing": ", ".join(extra.missing)},
                )


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra of the package: what of it is not installed."""

    name: str
    missing: tuple[str, ...]


def _required() -> list[tuple[str, str | None]]:
    """(library, extra or None) of the installed package."""
    found = []
    try:
        lines = metadata.requires("drystone") or []
    except metadata.PackageNotFoundError:  # run from a source tree
        return []
    for line in lines:
        name, extra = re.match(r"[A-Za-z0-9._-]+", line), re.search(r"extra == ['\"]([^'\"]+)", line)
        if name is not None and name[0] != "drystone":
            found.append((name[0], None if extra is None else extra[1]))
    return found


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def libraries() -> Mapping[str, str | None]:
    """Version of each library that drystone needs; None where it is not installed."""
    return {name: _version(name) for name, extra in _required() if extra is None}


def extras() -> Mapping[str, Extra]:
    """Each extra for users, and what of it is missing."""
    wanted: dict[str, list[str]] = {}
    for name, extra in _required():
        if extra in ("codecs", "verify", "demo"):
            wanted.setdefault(extra, []).append(name)
    return {e: Extra(e, tuple(n for n in names if _version(n) is None)) for e, names in wanted.items()}


def file_system(folder: str) -> str:
    """Type of the file system that a folder lies on; ``unknown`` where the system does not say."""
    path = os.path.realpath(folder)
    while not os.path.ismount(path):
        path = os.path.dirname(path)
    found = "unknown"
    try:
        with open("/proc/self/mounts") as f:
            for line in f:
                _, where, kind, *_ = line.split(" ")
                if where.replace("\\040", " ") == path:
                    found = kind  # the last one lies on top
    except OSError:
        return found
    return found

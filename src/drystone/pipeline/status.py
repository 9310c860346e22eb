"""Status: how far an archive is, from what lies on disk; true while a run works, after it died, and from another machine."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from drystone.errors import StorageError, TableError
from drystone.model.options import OutputOptions
from drystone.model.sizes import size_text
from drystone.pipeline.archive import Archive
from drystone.pipeline.granules import granule_rows
from drystone.pipeline.passes import shuffle_sizes
from drystone.pipeline.published import is_released, read_published
from drystone.pipeline.storing import state_of
from drystone.publish.lease import LeaseRecord, holder_of
from drystone.rechunk.plan_file import load_plan
from drystone.table.table import ReferenceTable

__all__ = ["OutputStatus", "StatusReport", "status_of"]


@dataclass(frozen=True, slots=True)
class OutputStatus:
    """One output. ``state``: ``not begun``, ``in work``, ``published``.

    Tasks are those of both passes, where a rechunk takes two; ``between`` is what lies between them now, in bytes.
    """

    at: str
    form: str
    state: str
    identity: str | None
    tasks: int
    done: int
    bytes_written: int
    seconds: float
    peak_rss: int
    between: int = 0

    def to_json(self) -> dict[str, object]:
        """For ``--json``."""
        return {
            "at": self.at,
            "form": self.form,
            "state": self.state,
            "identity": self.identity,
            "tasks": self.tasks,
            "done": self.done,
            "bytes_written": self.bytes_written,
            "task_seconds": self.seconds,
            "peak_rss": self.peak_rss,
            "between": self.between,
        }

    def lines(self) -> list[str]:
        """For people."""
        text = f"{self.at} ({self.form}): {self.state}"
        if self.tasks:
            text += f", {self.done:,} of {self.tasks:,} tasks done ({100 * self.done / self.tasks:.0f} %)"
        if self.done:
            text += f", {size_text(self.bytes_written)} written, {self.seconds / self.done:.3g} s a task"
            text += f", peak {size_text(self.peak_rss)}"
        if self.between:
            text += f", {size_text(self.between)} between two passes"
        return [text]


@dataclass(frozen=True, slots=True)
class StatusReport:
    """How far an archive is.

    ``running``: who holds the lease, or None. ``behind``: granules scanned since the last release, in no published form yet.
    ``released``: the last release names the outputs as they are published. ``exit_code``: 0 all published, 3 a driver is at
    work, 4 something is left.
    """

    name: str
    granules: int
    set_aside: tuple[tuple[str, str], ...]
    refused: tuple[tuple[str, str, str], ...]
    running: LeaseRecord | None
    outputs: tuple[OutputStatus, ...]
    releases: int
    behind: int = 0
    released: bool = False

    @property
    def exit_code(self) -> int:
        """As documented for every verb."""
        if self.running is not None:
            return 3
        published = all(o.state == "published" for o in self.outputs)
        return 0 if published and self.granules and self.released and not self.behind else 4

    def to_json(self) -> dict[str, object]:
        """For ``--json``."""
        return {
            "name": self.name,
            "granules": self.granules,
            "set_aside": [{"granule": a, "reason": r} for a, r in self.set_aside],
            "refused": [{"granule": g, "path": p, "reason": r} for g, p, r in self.refused],
            "running": None if self.running is None else _holder_json(self.running),
            "outputs": [o.to_json() for o in self.outputs],
            "releases": self.releases,
            "behind": self.behind,
            "released": self.released,
            "exit_code": self.exit_code,
        }

    def lines(self) -> list[str]:
        """For people."""
        out = [f"{self.name}: {self.granules:,} granules scanned, {len(self.set_aside)} set aside, {self.releases} releases"]
        if self.running is not None:
            out.append(f"  a driver is at work: {self.running.owner(time.time())}")
        if not self.released and self.outputs and all(o.state == "published" for o in self.outputs):
            out.append("  no release names the outputs as they are published: run `drystone run` to record it")
        if self.behind:
            out.append(f"  {self.behind} granules were scanned since the last release: run `drystone run` to publish them")
        out += [f"  set aside: {a}: {r}" for a, r in self.set_aside[:20]]
        out += [f"  not referenced: {p} (in {g} and maybe others): {r}" for g, p, r in self.refused[:20]]
        for o in self.outputs:
            out += [f"  {line}" for line in o.lines()]
        return out


def _holder_json(record: LeaseRecord) -> dict[str, object]:
    return {
        "host": record.host,
        "pid": record.pid,
        "purpose": record.purpose,
        "age_seconds": round(time.time() - record.renewed, 1),
    }


def status_of(archive: Archive) -> StatusReport:
    """Read the state of an archive; writes nothing."""
    holder = holder_of(archive.store, archive.key("lease"))
    outputs = tuple(_output(archive, o) for o in archive.config.outputs)
    if not archive.has_table():
        return StatusReport(archive.config.name, 0, (), (), holder, outputs, 0)
    table = archive.table()
    rows = granule_rows(table)
    aside = tuple((a, r.reason or "") for a, r in sorted(rows.items()) if r.status not in ("scanned", "withdrawn"))
    scanned = sum(r.status == "scanned" for r in rows.values())
    refused: dict[tuple[str, str], str] = {}
    for address, row in sorted(rows.items()):
        for path, _, reason in row.refused():
            refused.setdefault((path, reason), address)
    left_out = tuple((g, p, r) for (p, r), g in refused.items())
    releases = table.releases()
    behind = _behind(table) if releases else 0
    released = is_released(releases, [(o.form, o.at, o.identity or "") for o in outputs])
    return StatusReport(archive.config.name, scanned, aside, left_out, holder, outputs, len(releases), behind, released)


def _behind(table: ReferenceTable) -> int:
    rows = table.granules(columns=("status", "valid_from"))
    late = rows.column("valid_from").to_numpy() >= table.next_release_id()
    return int((late & (np.array(rows.column("status").to_pylist()) == "scanned")).sum())


def _output(archive: Archive, output: OutputOptions) -> OutputStatus:
    run = archive.run_key(output)
    record = read_published(archive, output)
    try:
        plan = load_plan(archive.store, run) if output.kind == "store" else None
    except (TableError, StorageError):
        plan = None  # a plan of another version: the next run says so
    if plan is None:
        state = "not begun" if record is None else "published"
        return OutputStatus(output.at, output.form, state, None if record is None else record.identity, 0, 0, 0, 0.0, 0)
    done = state_of(archive, output, plan)
    published = record is not None and done.n_done == plan.n_tasks
    return OutputStatus(
        output.at,
        output.form,
        "published" if published else "in work",
        None if record is None else record.identity,
        plan.n_tasks,
        done.n_done,
        done.bytes_written,
        done.seconds,
        done.peak_rss,
        sum(shuffle_sizes(*archive.places.resolve(archive.scratch_of(output))).values()),
    )

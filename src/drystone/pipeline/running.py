"""Run: scan, plan, write, verify, publish; and go on where an earlier run stopped.

One driver at a time, by a lease on the archive's work folder. Each output is written whole before it is made visible, and
verified in between; the release that names what was published is recorded last. Everything that a run decides is read back
from disk, so that a second run after ``kill -9`` does what is left and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import cast

from drystone import registry
from drystone.emit.view import TableView
from drystone.errors import ConsentNeeded
from drystone.model.options import ArchiveConfig
from drystone.model.progress import Progress, Silent
from drystone.model.release import OutputIdentity, Release
from drystone.pipeline.archive import Archive
from drystone.pipeline.axes import keep_origins
from drystone.pipeline.combined import Whole, fetcher_for, whole_of
from drystone.pipeline.passes import sweep_abandoned
from drystone.pipeline.planning import OutputPlan, RunPlan, plan_archive, plan_output
from drystone.pipeline.published import PublishedRecord, is_released, read_published, write_published
from drystone.pipeline.scan import ScanReport, listed_granules, scan_archive
from drystone.pipeline.storing import StoreWork, ask, run_store, store_work
from drystone.pipeline.targets import claim_targets
from drystone.pipeline.verifying import local_path, location_of, verified_text, verify_one
from drystone.protocols import Emitter
from drystone.publish.lease import Lease
from drystone.storage.repository import sweep_unborn

__all__ = ["OutputReport", "RunReport", "run_archive"]

_SOFTWARE = ("drystone", "numcodecs", "zarr", "h5py", "icechunk", "numpy")


@dataclass(frozen=True, slots=True)
class OutputReport:
    """What happened to one output. ``tasks_done`` in this run, of ``tasks``; ``fresh`` False where nothing had to be done."""

    at: str
    form: str
    identity: str
    fresh: bool
    arrays: tuple[str, ...]
    refused: tuple[tuple[str, str], ...] = ()
    tasks: int = 0
    tasks_done: int = 0
    bytes_written: int = 0
    verified: str = "none"

    def to_json(self) -> dict[str, object]:
        """For ``--json``."""
        return {
            "at": self.at,
            "form": self.form,
            "identity": self.identity,
            "fresh": self.fresh,
            "arrays": list(self.arrays),
            "refused": dict(self.refused),
            "tasks": self.tasks,
            "tasks_done": self.tasks_done,
            "bytes_written": self.bytes_written,
            "verified": self.verified,
        }

    def lines(self) -> list[str]:
        """For people."""
        if not self.fresh:
            return [f"{self.at} ({self.form}): up to date, {len(self.arrays)} arrays"]
        did = f", {self.tasks_done} of {self.tasks} tasks in this run" if self.tasks else ""
        out = [f"{self.at} ({self.form}): published, {len(self.arrays)} arrays{did}, verified: {self.verified}"]
        return out + [f"  not in it: {path}: {reason.removeprefix(f'{path}: ')}" for path, reason in self.refused]


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a run did. ``release`` is the number of the release recorded, None where nothing changed."""

    scan: ScanReport
    outputs: tuple[OutputReport, ...]
    release: int | None
    warnings: tuple[str, ...] = ()
    plan: RunPlan | None = None

    def to_json(self) -> dict[str, object]:
        """For ``--json``."""
        return {
            "scan": self.scan.to_json(),
            "outputs": [o.to_json() for o in self.outputs],
            "release": self.release,
            "warnings": list(self.warnings),
            "plan": None if self.plan is None else self.plan.to_json(),
        }

    def lines(self) -> list[str]:
        """For people."""
        out = self.scan.lines() + [f"note: {w}" for w in self.warnings]
        if self.plan is not None:
            return out + self.plan.lines()
        for o in self.outputs:
            out += o.lines()
        return [*out, "nothing changed" if self.release is None else f"release {self.release}"]


def run_archive(
    archive: Archive, *, progress: Progress | None = None, dry_run: bool = False, accept_changes: bool = False
) -> RunReport:
    """See :func:`drystone.pipeline.api.run`."""
    progress = progress or Silent()
    listed = listed_granules(archive, progress)
    if dry_run:
        claim_targets(archive, dry_run=True)
        scan = scan_archive(archive, progress=progress, dry_run=True, listed=listed)
        plan = plan_archive(archive, progress=progress) if not scan.to_scan else None
        return RunReport(scan, (), None, plan=plan)
    with Lease(archive.store, archive.key("lease"), purpose="run") as lease:
        claim_targets(archive)
        sweep_abandoned(archive)
        scan = scan_archive(archive, progress=progress, listed=listed, withdraw=accept_changes)
        if scan.gone and not accept_changes:
            raise _gone(archive, scan)
        whole = whole_of(archive, listed, remember=True)
        plans = [plan_output(archive, whole, i, o) for i, o in enumerate(archive.config.outputs)]
        # every question is asked before any output is touched
        work = {p.index: store_work(archive, whole, p) for p in plans if p.output.kind == "store"}
        for w in work.values() if not accept_changes else ():
            ask(archive, w)
        reports = [_run_output(archive, whole, p, work.get(p.index), lease.check, progress) for p in plans]
        named = is_released(whole.table.releases(), [(r.form, r.at, r.identity) for r in reports])
        release = None if named else _record_release(archive, whole, plans, reports)
    notes = [note for p in plans for note in p.notes()]
    return RunReport(scan, tuple(reports), release, (*whole.combined.notes, *notes))


def _gone(archive: Archive, scan: ScanReport) -> ConsentNeeded:
    more = f" and {len(scan.gone) - 3} more" if len(scan.gone) > 3 else ""
    return ConsentNeeded(
        f"{archive.config.name}: {len(scan.gone)} scanned granules are gone, or the config no longer names them "
        f"({', '.join(scan.gone[:3])}{more}); outputs would lack them, so nothing was published: put them back, or go on "
        "without them with --accept-changes",
        kind="granules-gone",
        gone=len(scan.gone),
        first=scan.gone[0],
    )


def _run_output(
    archive: Archive, whole: Whole, plan: OutputPlan, work: StoreWork | None, check: Callable[[], None], progress: Progress
) -> OutputReport:
    if work is not None:
        outcome = run_store(archive, whole, work, check, progress)
        return OutputReport(
            plan.output.at, plan.output.form, outcome.identity, outcome.fresh, plan.published, tuple(plan.refused.items()),
            outcome.tasks, outcome.tasks_done, outcome.bytes_written, outcome.verified,
        )  # fmt: skip
    return _run_virtual(archive, whole, plan, check, progress)


def _run_virtual(
    archive: Archive, whole: Whole, plan: OutputPlan, check: Callable[[], None], progress: Progress
) -> OutputReport:
    """Emit references; what stands at the target is left alone where its content would be the same."""
    output = plan.output
    progress.start(f"emit {output.form}", None, "references")
    emitter = cast(Emitter, registry.load("emitters", output.form))
    kept = replace(plan.combined, arrays=tuple(plan.combined.array(p) for p in plan.published))
    view = TableView(kept, whole.table, archive.places, fetcher_for(archive, whole.table), public=output.public)
    store, key = archive.places.resolve(output.at)
    before = read_published(archive, output)
    if output.form == "icechunk":
        sweep_unborn(store, key)
    proved = _Proof(archive, whole, plan, progress)
    identity = emitter.emit(view, store, key, {"fence": check, "proof": proved, "owned": True, **output.emitted})
    progress.finish(f"emit {output.form}")
    fresh = before is None or before.identity != identity.identity or before.arrays != plan.published
    if fresh and not proved.verified:
        proved(location_of(archive, output.at), None)  # published by a run that was killed before it recorded so
    verified = proved.verified or (before.verified if before is not None else "none")
    if fresh:
        write_published(archive, output, PublishedRecord(identity.identity, plan.published, verified))
    return OutputReport(
        output.at, output.form, identity.identity, fresh, plan.published, tuple(plan.refused.items()), verified=verified
    )


class _Proof:
    """Verifies a staged form; what it did is in ``verified``."""

    def __init__(self, archive: Archive, whole: Whole, plan: OutputPlan, progress: Progress) -> None:
        self._archive, self._whole, self._plan, self._progress = archive, whole, plan, progress
        self.verified = ""

    def __call__(self, location: str, version: str | None) -> None:
        """Raise ``VerifyError`` where values differ."""
        options = self._archive.config.verify
        self.verified = verified_text(options)
        if options.values != "none":
            staged = (local_path(location), version)
            verify_one(
                self._archive, self._plan.output, self._whole, self._plan.published, progress=self._progress, staged=staged
            )


def _record_release(archive: Archive, whole: Whole, plans: list[OutputPlan], reports: list[OutputReport]) -> int:
    table = whole.table
    release_id = table.next_release_id()
    placements = {a.path: a.placements for a in whole.combined.arrays}
    table.commit_placements(release_id, placements)
    outputs = tuple(
        OutputIdentity(r.form, r.at, r.identity, r.verified, archive.run_key(p.output))
        for p, r in zip(plans, reports, strict=True)
    )
    partial = bool(whole.set_aside)
    keep_origins(archive, whole.combined)
    table.commit_release(Release(release_id, time.time_ns(), config_digest(archive.config), partial, _software(), outputs))
    return release_id


def config_digest(config: ArchiveConfig) -> str:
    """The config's digest, or a mark that it was built in Python."""
    return config.digest or "python"


def _software() -> tuple[tuple[str, str], ...]:
    found = []
    for name in _SOFTWARE:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:  # run from a checkout without metadata
            found.append((name, "unknown"))
    return tuple(found)

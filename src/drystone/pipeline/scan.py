"""Scan: list, find what is new or changed, scan it in batches, commit.

Workers scan a batch of granules, write sorted Parquet and return its small description; the driver commits. A granule
that fails is named with its reason and never loses the batch; whether the run goes on is the config's choice
(``failures: {granules: …}``).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from drystone import registry
from drystone.errors import DrystoneError, ScanError, StorageError
from drystone.execute.engine import run_windowed
from drystone.fetch.source import companion_difference
from drystone.model.chunk_rows import ScanResult
from drystone.model.granule import Listed
from drystone.model.progress import Progress, Silent
from drystone.pipeline.archive import Archive
from drystone.pipeline.granules import GranuleRow, granule_rows
from drystone.pipeline.versions import replaced
from drystone.protocols import Lister, Scanner, ScanOptions, Source
from drystone.publish.lease import Lease
from drystone.scan.hdf5.superblock import not_hdf5
from drystone.storage.address import Places
from drystone.table.table import ReferenceTable
from drystone.table.write import WrittenBatch, write_batch

__all__ = ["Failure", "ScanReport", "list_granules", "scan_alone", "scan_archive", "scan_source"]

SNIFF_BYTES = 4096
BATCH_GRANULES = 256


@dataclass(frozen=True, slots=True)
class Failure:
    """A granule that could not be scanned, and why."""

    address: str
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class ScanReport:
    """What a scan did.

    ``listed`` granules now in the archive, of which ``unchanged`` needed nothing; ``scanned`` were read, ``failed`` could
    not be. ``refused`` counts arrays that have no exact reference, by reason. ``gone`` were scanned before and are not
    listed any more.
    """

    listed: int
    unchanged: int
    scanned: int
    rows: int
    failed: tuple[Failure, ...] = ()
    refused: tuple[tuple[str, str, str, str], ...] = ()
    dry_run: bool = False
    to_scan: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """For ``--json``."""
        return {
            "listed": self.listed,
            "unchanged": self.unchanged,
            "scanned": self.scanned,
            "rows": self.rows,
            "dry_run": self.dry_run,
            "to_scan": list(self.to_scan),
            "gone": list(self.gone),
            "failed": [{"granule": f.address, "kind": f.kind, "reason": f.reason} for f in self.failed],
            "refused": [{"path": p, "kind": k, "reason": r, "granule": g} for p, k, r, g in self.refused],
        }

    def lines(self) -> list[str]:
        """For people."""
        if self.dry_run:
            out = [f"{self.listed} granules listed, {self.unchanged} unchanged, {len(self.to_scan)} would be scanned"]
            return out + [f"  {a}" for a in self.to_scan[:20]] + self._gone_lines()
        out = [f"{self.listed} granules listed, {self.unchanged} unchanged, {self.scanned} scanned ({self.rows:,} chunk rows)"]
        out += [f"  not scanned: {f.address}: {f.reason.removeprefix(f'{f.address}: ')}" for f in self.failed]
        out += [f"  not referenced: {p} (in {g} and maybe others): {r}" for p, _, r, g in self.refused]
        return out + self._gone_lines()

    def _gone_lines(self) -> list[str]:
        out = [f"  gone: {a} was scanned before and is not listed any more" for a in self.gone[:20]]
        return out + ([f"  gone: {len(self.gone) - 20} more"] if len(self.gone) > 20 else [])


@dataclass(frozen=True, slots=True)
class _Job:
    """One batch for a worker."""

    places: Places
    work: str
    table_key: str
    attempt_id: int
    format: str
    granules: tuple[tuple[int, Listed], ...]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a worker did with a batch: the files it wrote, and what failed."""

    batch: WrittenBatch | None
    scanned: int
    rows: int
    failed: tuple[tuple[int, Listed, Failure], ...]
    refused: dict[tuple[str, str, str], str]  # path, kind and reason to the first granule that has it


def list_granules(archive: Archive) -> list[Listed]:
    """Every granule that the config names, each once, in the order that it is named first."""
    seen: dict[str, Listed] = {}
    for wanted in archive.config.granules:
        lister = cast(Lister, registry.load("listers", wanted.lister))
        for listed in lister.list(archive.places, wanted.pattern):
            seen.setdefault(listed.address, listed)
    return list(seen.values())


def listed_granules(archive: Archive, progress: Progress) -> list[Listed]:
    """:func:`list_granules` with progress."""
    progress.start("list", None, "granules")
    listed = list_granules(archive)
    progress.advance("list", len(listed))
    progress.finish("list")
    return listed


def scan_source(places: Places, listed: Listed, format: str = "auto") -> ScanResult:
    """Scan one granule, and see that it did not change meanwhile.

    Raises
    ------
    ScanError
        Its bytes do not parse, or changed while they were read.
    StorageError
        It cannot be read.
    """
    store, key = places.resolve(listed.address)
    source = Source(store, key, listed.address, listed.stamp)
    head = store.get_range(key, 0, min(SNIFF_BYTES, listed.stamp.size))
    result = _scanner(head, source, format).scan(source, ScanOptions())
    changed = listed.stamp.differs(store.stat(key))
    if changed:
        raise ScanError(f"{listed.address} changed while it was scanned ({changed}); scan again", kind="changed-during-scan")
    return result


def _scanner(head: bytes, source: Source, format: str) -> Scanner:
    if format != "auto":
        return cast(Scanner, registry.load("scanners", format))
    for name in registry.names("scanners"):
        scanner = cast(Scanner, registry.load("scanners", name))
        if scanner.sniff(head, source):
            return scanner
    if not head:
        raise ScanError(f"{source.address} is empty (0 bytes)", kind="empty", granule=source.address)
    raise ScanError(not_hdf5(head[:16], source.stamp.size, source.address), kind="not-hdf5", granule=source.address)


def scan_batch(job: _Job) -> _Outcome:
    """Scan a batch and write its rows; runs in a worker."""
    scans: list[tuple[int, Listed, ScanResult]] = []
    failed: list[tuple[int, Listed, Failure]] = []
    for granule_id, listed in job.granules:
        try:
            scans.append((granule_id, listed, scan_source(job.places, listed, job.format)))
        except (ScanError, StorageError) as error:
            failed.append((granule_id, listed, Failure(listed.address, error.kind, error.message)))
    store = job.places.resolve(job.work)[0]
    batch = write_batch(store, job.table_key, scans, job.attempt_id) if scans else None
    refused: dict[tuple[str, str, str], str] = {}
    for _, listed, scan in scans:
        for r in scan.refusals:
            refused.setdefault((r.path, r.kind, r.reason), listed.address)
    return _Outcome(batch, len(scans), sum(s.n_rows for _, _, s in scans), tuple(failed), refused)


def scan_alone(archive: Archive, *, progress: Progress | None = None, dry_run: bool = False) -> ScanReport:
    """:func:`scan_archive` as a verb of its own, under the lease: two committers would number granules alike.

    Raises
    ------
    LeaseError
        A run or another scan is at work.
    """
    progress = progress or Silent()
    if dry_run:
        return scan_archive(archive, progress=progress, dry_run=True)
    listed = listed_granules(archive, progress)
    with Lease(archive.store, archive.key("lease"), purpose="scan"):
        return scan_archive(archive, progress=progress, listed=listed)


def _is_new(known: Mapping[str, GranuleRow], listed: Listed, places: Places) -> bool:
    row = known.get(listed.address)
    # a granule that was set aside is tried again in each scan that lists it, and so is one that lacked another file
    if row is None or row.status != "scanned" or row.granule.stamp.differs(listed.stamp) is not None:
        return True
    if '"missing"' in row.refusals and any(kind == "missing" for _, kind, _ in row.refused()):
        return True
    return any(companion_difference(c, *places.resolve(c.address)) is not None for c in row.granule.companions)


def _jobs(archive: Archive, table: ReferenceTable, todo: Sequence[Listed], ids: dict[str, int]) -> Iterator[_Job]:
    next_id, attempt_id = table.next_granule_id(), table.next_attempt_id()
    numbered: list[tuple[int, Listed]] = []
    for listed in todo:
        granule_id = ids.get(listed.address)
        if granule_id is None:
            granule_id, next_id = next_id, next_id + 1
        numbered.append((granule_id, listed))
    workers = archive.config.execution.workers or 2
    size = max(1, min(BATCH_GRANULES, -(-len(numbered) // workers)))
    for i in range(0, len(numbered), size):
        yield _Job(
            archive.places,
            archive.config.work,
            archive.key("table"),
            attempt_id + i // size,
            archive.config.format,
            tuple(numbered[i : i + size]),
        )


@dataclass(slots=True)
class _Tally:
    """Mutable sums of one scan."""

    scanned: int = 0
    rows: int = 0
    failed: list[tuple[int, Listed, Failure]] = field(default_factory=list)
    refused: dict[tuple[str, str, str], str] = field(default_factory=dict)


def scan_archive(
    archive: Archive,
    *,
    progress: Progress | None = None,
    dry_run: bool = False,
    listed: Sequence[Listed] | None = None,
    withdraw: bool = False,
) -> ScanReport:
    """Bring the table up to date with the archive; the caller holds the lease.

    Parameters
    ----------
    listed
        Spares a second listing.
    withdraw
        Granules that are not listed any more leave the table; else they stay in it and are named in the report.

    Raises
    ------
    ScanError
        ``granules-failed``: more granules failed than ``failures`` allows; those that did not are committed.
    """
    progress = progress or Silent()
    listed = listed_granules(archive, progress) if listed is None else listed
    if dry_run and not archive.has_table():
        return ScanReport(len(listed), 0, 0, 0, dry_run=True, to_scan=tuple(g.address for g in listed))
    if not dry_run:
        archive.note_places()
    table = archive.table(create=not dry_run)
    known = granule_rows(table)
    todo = [g for g in listed if _is_new(known, g, archive.places)]
    unchanged = len(listed) - len(todo)
    now = {g.address for g in listed}
    lost = {a: r for a, r in known.items() if a not in now and r.status != "withdrawn"}
    missed = {a for a, r in lost.items() if r.status == "scanned"}
    gone = tuple(sorted(missed - replaced(missed, now, archive.config.versions)))
    if dry_run:
        return ScanReport(len(listed), unchanged, 0, 0, dry_run=True, to_scan=tuple(g.address for g in todo), gone=gone)
    # one that was set aside is in nothing that was published: nobody need be asked
    leaving = [r.granule.granule_id for r in lost.values() if withdraw or r.status != "scanned"]
    if leaving:
        table.withdraw(sorted(leaving), "not listed any more", run_id=uuid.uuid4().hex, sequence=1)
    tally = _scan_all(archive, table, todo, {a: r.granule.granule_id for a, r in known.items()}, progress)
    failures = tuple(f for _, _, f in tally.failed)
    refused = tuple((*what, granule) for what, granule in tally.refused.items())
    report = ScanReport(len(listed), unchanged, tally.scanned, tally.rows, failures, refused, gone=gone)
    _enforce(archive, report)
    return report


def _scan_all(
    archive: Archive, table: ReferenceTable, todo: Sequence[Listed], ids: dict[str, int], progress: Progress
) -> _Tally:
    tally, run_id, sequence = _Tally(), uuid.uuid4().hex, 0
    if not todo:
        return tally
    progress.start("scan", len(todo), "granules")

    def done(job: _Job, outcome: _Outcome) -> None:
        nonlocal sequence
        sequence += 1
        if outcome.batch is not None:
            table.commit([outcome.batch], run_id=run_id, sequence=sequence)
        tally.scanned += outcome.scanned
        tally.rows += outcome.rows
        tally.failed.extend(outcome.failed)
        tally.refused = {**outcome.refused, **tally.refused}
        progress.advance("scan", len(job.granules))

    def broke(job: _Job, error: DrystoneError) -> None:
        for granule_id, listed in job.granules:
            tally.failed.append((granule_id, listed, Failure(listed.address, error.kind, error.message)))
        progress.advance("scan", len(job.granules))

    run_windowed(scan_batch, _jobs(archive, table, todo, ids), archive.config.execution, on_done=done, on_failed=broke, tries=1)
    progress.finish("scan")
    if tally.failed:
        failed = [(g, listed, f.kind, f.reason) for g, listed, f in tally.failed]
        table.set_aside(failed, attempt_id=table.next_attempt_id(), run_id=run_id, sequence=sequence + 1)
    return tally


def _enforce(archive: Archive, report: ScanReport) -> None:
    allowed = archive.config.failures.granules
    limit = int(allowed * report.listed) if isinstance(allowed, float) else allowed
    if len(report.failed) <= limit:
        return
    shown = "; ".join(f"{f.address}: {f.reason.removeprefix(f'{f.address}: ')}" for f in report.failed[:10])
    more = f"; and {len(report.failed) - 10} more" if len(report.failed) > 10 else ""
    raise ScanError(
        f"{len(report.failed)} of {report.listed} granules cannot be scanned and failures: {{granules: {allowed}}} allows "
        f"{limit}: {shown}{more}. The others are in the table. Mend or remove these, or set failures: {{granules: "
        f"{len(report.failed)}}} to go on without them",
        kind="granules-failed",
        failed=len(report.failed),
        allowed=limit,
    )

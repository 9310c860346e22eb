"""Verify: published values against the granules, by readers that are not ours, in a process without drystone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow.compute as pc

from drystone.errors import GranuleChanged, GranuleMissing, StorageError, VerifyError
from drystone.model.options import OutputOptions, VerifyOptions
from drystone.model.placement import Combined, CombinedArray
from drystone.model.progress import Progress, Silent
from drystone.pipeline.archive import Archive
from drystone.pipeline.combined import Whole, whole_of
from drystone.pipeline.digests import read_digests
from drystone.pipeline.published import read_published
from drystone.pipeline.scan import list_granules
from drystone.plan.forms import form_of
from drystone.verify.report import VerifyReport
from drystone.verify.run import verify_output

__all__ = [
    "VerifySummary",
    "arrays_of",
    "local_path",
    "location_of",
    "names_of",
    "verified_text",
    "verify_archive",
    "verify_one",
]

_SEED = 20260901


@dataclass(frozen=True, slots=True)
class VerifySummary:
    """One report an output."""

    reports: tuple[tuple[str, VerifyReport], ...]

    @property
    def ok(self) -> bool:
        """Whether every output's values are the granules'."""
        return all(r.ok for _, r in self.reports)

    def to_json(self) -> dict[str, object]:
        """For ``--json``."""
        return {"ok": self.ok, "outputs": [{"at": at, **r.to_json()} for at, r in self.reports]}

    def lines(self) -> list[str]:
        """For people."""
        return [line for at, r in self.reports for line in (f"{at}:", *(f"  {text}" for text in r.lines()))]


def names_of(array: CombinedArray) -> set[str]:
    """What an output may call an array by: its name, and its path in the output or in granules."""
    return {array.name, *(p for path in (array.path, array.inner) for p in (path, path.lstrip("/")))}


def arrays_of(combined: Combined, output: OutputOptions, refused: Mapping[str, str] | Sequence[str] = ()) -> tuple[str, ...]:
    """Paths that an output holds: those asked for, without those it cannot hold."""
    wanted = output.arrays
    paths = [a.path for a in combined.arrays if wanted is None or not names_of(a).isdisjoint(wanted)]
    return tuple(p for p in paths if p not in refused)


def verify_one(
    archive: Archive,
    output: OutputOptions,
    whole: Whole,
    arrays: Sequence[str],
    *,
    mode: str | None = None,
    progress: Progress | None = None,
    staged: tuple[str, str | None] | None = None,
    identity: str = "",
    consequence: str = "it was not published",
) -> VerifyReport:
    """Compare one output with its granules; ``staged`` names where it lies before it is visible, and its version.

    ``identity`` is that of the store, by which what was digested while it was written is found; ``consequence`` ends the
    message where values differ.

    Raises
    ------
    VerifyError
        Values differ; the message names the first cell, both values and the granule.
    GranuleChanged, GranuleMissing
        They do, since granules are no longer what was scanned.
    """
    options = archive.config.verify
    values = mode or options.values
    locations = {g: location_of(archive, granule.address) for g, granule in whole.granules.items()}
    location, version = staged or (location_of(archive, output.at), None)
    report = verify_output(
        output.form,
        location,
        form_of(whole.combined, output),
        locations,
        mode=values,
        share=options.share,
        seed=_SEED,
        arrays=tuple(arrays),
        progress=progress or Silent(),
        version=version,
        differences=archive.config.combine.differences,
        written=read_digests(archive, output, identity) if values == "digest" and identity else {},
        options={archive.places.store(name).url: place.options for name, place in archive.places.by_name.items()},
    )
    if not report.ok:
        _see_granules(archive, whole)  # the likeliest reason
        raise VerifyError(
            f"{output.at}: values are not the granules' values: {report.first_problem()}; {consequence}",
            kind="values-differ",
            output=output.at,
        )
    return report


def location_of(archive: Archive, address: str) -> str:
    """Path of an address on a local disk, else its URL."""
    store, key = archive.places.resolve(address)
    return f"{store.root.rstrip('/')}/{key}" if store.root is not None else f"{store.url}/{key}"


def verify_archive(archive: Archive, *, progress: Progress | None = None, mode: str | None = None) -> VerifySummary:
    """Verify every published output of a config.

    Raises
    ------
    StorageError
        An output is not there: it was never published.
    GranuleChanged, GranuleMissing
        The granules themselves are no longer what was scanned.
    """
    whole = whole_of(archive, None)
    _see_granules(archive, whole)
    consequence = _behind(whole) or "do not use it: remove what is damaged and run `drystone run` again"
    reports = []
    for output in archive.config.outputs:
        record = read_published(archive, output)
        if record is None:
            raise StorageError(f"{output.at} is not published yet; run `drystone run`", kind="not-published", output=output.at)
        chosen = mode or (archive.config.verify.values if archive.config.verify.values != "none" else "sample")
        report = verify_one(
            archive,
            output,
            whole,
            record.arrays,
            mode=chosen,
            progress=progress,
            identity=record.identity,
            consequence=consequence,
        )
        reports.append((output.at, report))
    return VerifySummary(tuple(reports))


def _see_granules(archive: Archive, whole: Whole) -> None:
    """What was scanned must still be there to compare with; one listing tells."""
    if not archive.config.granules:
        return
    now = {g.address: g.stamp for g in list_granules(archive)}
    changed = {}
    for granule in whole.granules.values():
        stamp = now.get(granule.address)
        difference = "it is gone" if stamp is None else granule.stamp.differs(stamp)
        if difference is not None:
            changed[granule.address] = difference
    if changed:
        first = min(changed)
        error = GranuleMissing if first not in now else GranuleChanged
        raise error(
            f"{len(changed)} of {len(whole.granules)} granules are no longer what was scanned (first: {first}: "
            f"{changed[first]}), so outputs do not show them as they are: `drystone run` scans them again and says what it "
            "would redo",
            granule=first,
            changed=len(changed),
        )


def _behind(whole: Whole) -> str:
    """What the table has learnt that no release has yet; "" where there is nothing."""
    release = whole.table.next_release_id()
    rows = whole.table.granules(columns=("address", "status", "valid_from"))
    late = rows.filter(pc.greater_equal(rows.column("valid_from"), release))
    if not len(late):
        return ""
    first = f"{late.column('address')[0].as_py()}: {late.column('status')[0].as_py()}"
    return (
        f"{len(late)} granules were scanned, set aside or withdrawn since release {release - 1} (first: {first}), so outputs "
        "may be behind the table: run `drystone run`"
    )


def local_path(location: str) -> str:
    """A ``file:`` URL as a path; everything else as it is."""
    return unquote(location.removeprefix("file://")) if location.startswith("file://") else location


def verified_text(options: VerifyOptions) -> str:
    """How thoroughly a config has outputs verified, for records."""
    return f"sample {options.share:.3g}" if options.values == "sample" else options.values

"""Verify: published values against the granules, by readers that are not ours, in a process without drystone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from drystone.errors import StorageError, VerifyError
from drystone.model.options import OutputOptions, VerifyOptions
from drystone.model.placement import Combined
from drystone.model.progress import Progress, Silent
from drystone.pipeline.archive import Archive
from drystone.pipeline.combined import Whole, whole_of
from drystone.pipeline.published import read_published
from drystone.verify.report import VerifyReport
from drystone.verify.run import verify_output

__all__ = ["VerifySummary", "arrays_of", "local_path", "location_of", "verified_text", "verify_archive", "verify_one"]

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


def arrays_of(combined: Combined, output: OutputOptions, refused: Mapping[str, str] | Sequence[str] = ()) -> tuple[str, ...]:
    """Paths that an output holds: those asked for, without those it cannot hold."""
    wanted = output.arrays
    paths = [
        a.path
        for a in combined.arrays
        if wanted is None or a.path in wanted or a.name in wanted or a.path.lstrip("/") in wanted
    ]
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
) -> VerifyReport:
    """Compare one output with its granules; ``staged`` names where it lies before it is visible, and its version.

    Raises
    ------
    VerifyError
        Values differ; the message names the first cell, both values and the granule.
    """
    options = archive.config.verify
    values = mode or options.values
    locations = {g: location_of(archive, granule.address) for g, granule in whole.granules.items()}
    location, version = staged or (location_of(archive, output.at), None)
    report = verify_output(
        output.form,
        location,
        whole.combined,
        locations,
        mode=values,
        share=options.share,
        seed=_SEED,
        arrays=tuple(arrays),
        progress=progress or Silent(),
        version=version,
        options={archive.places.store(name).url: place.options for name, place in archive.places.by_name.items()},
    )
    if not report.ok:
        raise VerifyError(
            f"{output.at}: published values are not the granules' values: {report.first_problem()}; it was not published",
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
    """
    whole = whole_of(archive, None)
    reports = []
    for index, output in enumerate(archive.config.outputs):
        record = read_published(archive, index, output)
        if record is None:
            raise StorageError(f"{output.at} is not published yet; run `drystone run`", kind="not-published", output=output.at)
        chosen = mode or (archive.config.verify.values if archive.config.verify.values != "none" else "sample")
        reports.append((output.at, verify_one(archive, output, whole, record.arrays, mode=chosen, progress=progress)))
    return VerifySummary(tuple(reports))


def local_path(location: str) -> str:
    """A ``file:`` URL as a path; everything else as it is."""
    return unquote(location.removeprefix("file://")) if location.startswith("file://") else location


def verified_text(options: VerifyOptions) -> str:
    """How thoroughly a config has outputs verified, for records."""
    return f"sample {options.share:.3g}" if options.values == "sample" else options.values

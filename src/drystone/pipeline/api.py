"""The public functions: ``open``, ``scan``, ``plan``, ``run``, ``status``, ``verify``.

Each takes a config as :class:`~drystone.model.options.ArchiveConfig` or as the path of its YAML.
"""

from __future__ import annotations

import os

from drystone.model.options import ArchiveConfig
from drystone.model.progress import Progress
from drystone.pipeline.archive import Archive
from drystone.pipeline.opening import open_dataset as open
from drystone.pipeline.planning import RunPlan, plan_archive
from drystone.pipeline.running import RunReport, run_archive
from drystone.pipeline.scan import ScanReport, scan_archive
from drystone.pipeline.status import StatusReport, status_of
from drystone.pipeline.verifying import VerifySummary, verify_archive

__all__ = ["open", "plan", "run", "scan", "status", "verify"]

type Config = ArchiveConfig | str | os.PathLike[str]


def _archive(config: Config) -> Archive:
    if isinstance(config, ArchiveConfig):
        return Archive.of(config)
    from drystone.config.load import load_config

    return Archive.of(load_config(os.fspath(config)))


def scan(config: Config, *, progress: Progress | None = None, dry_run: bool = False) -> ScanReport:
    """List and scan new or changed granules into the table.

    Parameters
    ----------
    config
        As loaded, or the path of its YAML.
    progress
        Hears how far it is.
    dry_run
        Say what would be scanned, write nothing.

    Raises
    ------
    ScanError
        More granules failed than the config allows; each is named, the others are in the table.
    """
    return scan_archive(_archive(config), progress=progress, dry_run=dry_run)


def plan(config: Config, *, progress: Progress | None = None) -> RunPlan:
    """Say what ``run`` would do; writes nothing.

    Raises
    ------
    CombineError
        Granules do not fit together.
    PlanError
        An output is impossible within the memory given.
    """
    return plan_archive(_archive(config), progress=progress)


def run(config: Config, *, progress: Progress | None = None, dry_run: bool = False, accept_changes: bool = False) -> RunReport:
    """Scan, plan, write, verify, publish; continues where an earlier run stopped.

    Parameters
    ----------
    config, progress, dry_run
        As for :func:`scan`.
    accept_changes
        Consent to redo an output whose config, sources or codecs changed since it was begun.

    Raises
    ------
    ConsentNeeded
        Something changed; the message says what would be redone.
    IncompleteRun
        Some tasks were set aside; running again tries them.
    VerifyError
        Published values are not the granules' values; nothing is published.
    """
    return run_archive(_archive(config), progress=progress, dry_run=dry_run, accept_changes=accept_changes)


def status(config: Config) -> StatusReport:
    """How far the last run is, from what lies on disk; while it runs and after it died."""
    return status_of(_archive(config))


def verify(config: Config, *, progress: Progress | None = None, mode: str | None = None) -> VerifySummary:
    """Compare published outputs with the granules, through readers of their own.

    Parameters
    ----------
    mode
        ``sample`` or ``full``; None: as the config says.
    """
    return verify_archive(_archive(config), progress=progress, mode=mode)

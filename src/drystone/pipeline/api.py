"""The public functions: ``open``, ``scan``, ``plan``, ``run``, ``status``, ``verify``.

Each takes a config as :class:`~drystone.model.options.ArchiveConfig` or as the path of its YAML. Stages are imported when
they are called: a scan loads neither xarray nor Dask.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from drystone.config.apart import refuse_overlaps
from drystone.model.options import ArchiveConfig, AxisOptions
from drystone.model.progress import Progress
from drystone.pipeline.archive import Archive

if TYPE_CHECKING:
    import xarray

    from drystone.pipeline.planning import RunPlan
    from drystone.pipeline.running import RunReport
    from drystone.pipeline.scan import ScanReport
    from drystone.pipeline.status import StatusReport
    from drystone.pipeline.verifying import VerifySummary

__all__ = ["open", "plan", "run", "scan", "status", "verify"]

type Config = ArchiveConfig | str | os.PathLike[str]


def _archive(config: Config) -> Archive:
    if isinstance(config, ArchiveConfig):
        refuse_overlaps(config)
        return Archive.of(config)
    from drystone.config.load import load_config

    return Archive.of(load_config(os.fspath(config)))


def open(  # noqa: A001  the name of the public function
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | ArchiveConfig,
    *,
    along: str | AxisOptions | None = None,
    position: Literal["coordinate", "name", "order"] = "coordinate",
    pattern: str | None = None,
    variables: Sequence[str] | None = None,
    decode: bool = False,
    format: str = "auto",
    places: Mapping[str, str] | None = None,
) -> xarray.Dataset | xarray.DataTree:
    """Open granules, a table or a config as one lazy Dataset.

    Parameters
    ----------
    sources
        Paths, globs or URLs of granules; or the folder of a table; or a config (a ``.yaml`` path, or as loaded).
    along
        Dimension to join granules along; None finds it where it is plain.
    position
        ``coordinate``, ``name`` (with ``pattern``) or ``order``.
    variables
        Names or paths; None for all.
    decode
        Apply CF decoding as xarray does; otherwise values are as stored, in native byte order.
    format
        A scanner's name, or ``auto``.
    places
        For a table: place name to URL, where the archive has moved.

    Returns
    -------
    xarray.Dataset or xarray.DataTree
        A DataTree where granules have groups.

    Raises
    ------
    ScanError
        A granule does not parse; it is named.
    CombineError
        Granules differ in what would change values; both are named.
    UnsupportedError
        A wanted variable has no exact reference; the reason is named.

    Examples
    --------
    >>> import h5py, numpy as np, tempfile, os
    >>> folder = tempfile.mkdtemp()
    >>> with h5py.File(os.path.join(folder, "a.h5"), "w") as f:
    ...     f["v"] = np.arange(6).reshape(2, 3)
    >>> import drystone
    >>> drystone.open(os.path.join(folder, "a.h5"))["v"].values[1]
    array([3, 4, 5])
    """
    from drystone.pipeline.opening import open_dataset

    axis = AxisOptions(along, position, pattern) if isinstance(along, str) else along
    names = None if variables is None else tuple(variables)
    return open_dataset(sources, axis, names, decode=decode, format=format, places=places or {})


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
    LeaseError
        A run or another scan of this archive is at work.

    Examples
    --------
    >>> import h5py, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> with h5py.File(folder / "a.h5", "w") as f:
    ...     f["v"] = [1, 2, 3]
    >>> config = folder / "little.yaml"
    >>> _ = config.write_text("{name: little, granules: '*.h5', outputs: [{store: zarr, at: a.zarr}]}")
    >>> scan(config, dry_run=True).to_scan
    ('here:a.h5',)
    >>> scan(config).scanned, scan(config).unchanged
    (1, 1)
    """
    from drystone.pipeline.scan import scan_alone

    return scan_alone(_archive(config), progress=progress, dry_run=dry_run)


def plan(config: Config, *, progress: Progress | None = None) -> RunPlan:
    """Say what ``run`` would do; writes nothing.

    Raises
    ------
    CombineError
        Granules do not fit together.
    PlanError
        An output is impossible within the memory given.

    Examples
    --------
    >>> import h5py, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> with h5py.File(folder / "a.h5", "w") as f:
    ...     f["v"] = [1, 2, 3]
    >>> config = folder / "little.yaml"
    >>> _ = config.write_text("{name: little, granules: '*.h5', outputs: [{store: zarr, at: a.zarr}]}")
    >>> _ = scan(config)
    >>> [a.mode for a in plan(config).outputs[0].arrays]
    ['driver']
    """
    from drystone.pipeline.planning import plan_archive

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

    Examples
    --------
    >>> import h5py, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> with h5py.File(folder / "a.h5", "w") as f:
    ...     f["v"] = [1, 2, 3]
    >>> config = folder / "little.yaml"
    >>> _ = config.write_text("{name: little, granules: '*.h5', outputs: [{store: zarr, at: a.zarr}]}")
    >>> report = run(config)
    >>> report.release, report.outputs[0].fresh, run(config).release
    (1, True, None)
    """
    from drystone.pipeline.running import run_archive

    return run_archive(_archive(config), progress=progress, dry_run=dry_run, accept_changes=accept_changes)


def status(config: Config) -> StatusReport:
    """How far the last run is, from what lies on disk; while it runs and after it died.

    Examples
    --------
    >>> import h5py, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> with h5py.File(folder / "a.h5", "w") as f:
    ...     f["v"] = [1, 2, 3]
    >>> config = folder / "little.yaml"
    >>> _ = config.write_text("{name: little, granules: '*.h5', outputs: [{store: zarr, at: a.zarr}]}")
    >>> status(config).exit_code
    4
    """
    from drystone.pipeline.status import status_of

    return status_of(_archive(config))


def verify(config: Config, *, progress: Progress | None = None, mode: Literal["sample", "full"] | None = None) -> VerifySummary:
    """Compare published outputs with the granules, through readers of their own.

    Parameters
    ----------
    mode
        ``sample`` or ``full``; None: as the config says.

    Raises
    ------
    VerifyError
        Values differ; the message names the first.

    Examples
    --------
    >>> import h5py, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> with h5py.File(folder / "a.h5", "w") as f:
    ...     f["v"] = [1, 2, 3]
    >>> config = folder / "little.yaml"
    >>> _ = config.write_text("{name: little, granules: '*.h5', outputs: [{store: zarr, at: a.zarr}]}")
    >>> _ = run(config)
    >>> verify(config, mode="full").ok
    True
    """
    from drystone.pipeline.verifying import verify_archive

    return verify_archive(_archive(config), progress=progress, mode=mode)

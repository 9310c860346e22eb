"""The public functions: ``open``, ``scan``, ``plan``, ``run``, ``status``, ``verify``, ``doctor``.

Each takes a config as :class:`~drystone.model.options.ArchiveConfig` or as the path of its YAML. Stages are imported when
they are called: a scan loads neither xarray nor Dask.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from drystone.config.apart import refuse_overlaps
from drystone.errors import ConfigError
from drystone.model.options import ArchiveConfig, AxisOptions, DifferenceOptions
from drystone.model.progress import Progress, Silent
from drystone.pipeline.archive import Archive

if TYPE_CHECKING:
    import xarray

    from drystone.pipeline.doctor.report import DoctorReport
    from drystone.pipeline.planning import RunPlan
    from drystone.pipeline.running import RunReport
    from drystone.pipeline.scan import ScanReport
    from drystone.pipeline.status import StatusReport
    from drystone.pipeline.verifying import VerifySummary

__all__ = ["doctor", "open", "plan", "run", "scan", "status", "verify"]

type Along = str | AxisOptions | Sequence[str | AxisOptions] | Mapping[str, str | AxisOptions | Mapping[str, object]]
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
    along: Along | None = None,
    position: Literal["coordinate", "name", "attribute", "order"] = "coordinate",
    pattern: str | None = None,
    attribute: str | None = None,
    variables: Sequence[str] | None = None,
    select: Mapping[str, object] | None = None,
    differences: Mapping[str, object] | DifferenceOptions | None = None,
    duplicates: Literal["error", "first", "last", "newest"] | None = None,
    overlap: Literal["error", "first", "last", "crop"] | None = None,
    gaps: Literal["fill", "error"] | None = None,
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
        Dimensions to join granules along; one that no array has becomes a new one. A name; an
        :class:`~drystone.AxisOptions`; several of both; or a mapping as in YAML, name to ``position`` or to
        ``{"axis": "slots", "step": "1D", …}``. None finds the one dimension where it is plain.
    position
        Where ``along`` is one name, what places a granule: ``coordinate`` (its values), ``name`` (the file's, with
        ``pattern``), ``attribute`` (a global one, with ``attribute``) or ``order`` (as listed).
    pattern
        For ``name``, and for ``attribute`` where it is not the whole text: a strptime pattern such as ``sst.%Y%m%d.nc``, or
        a regular expression with one group.
    attribute
        For ``attribute``: its name.
    variables
        Names or paths; None for all.
    select
        Dimension to what is taken of it, as in YAML: ``{"zlev": 0, "lat": [-80, 80], "time": {"index": [0, 5]}}``; a slice
        is a range in coordinate values, ends included.
    differences
        What to do where granules differ, as in YAML: ``{"codec": "rechunk", "units": "first"}``.
    duplicates
        Where two granules hold one place.
    overlap
        Where tiles overlap off the first axis; ``crop`` cuts neighbours half way.
    gaps
        Places that no granule holds.
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

    Notes
    -----
    What is said here counts before what a config says.

    Raises
    ------
    ConfigError
        What is asked for is not clear; all problems at once.
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

    Files without coordinates, joined in the order of a number in their names:

    >>> import netCDF4
    >>> for number in (2, 1):
    ...     with netCDF4.Dataset(os.path.join(folder, f"run{number}.nc"), "w") as nc:
    ...         _ = nc.createDimension("step", 1), nc.createDimension("x", 3)
    ...         nc.createVariable("v", "i4", ("step", "x"))[:] = number
    >>> files = os.path.join(folder, "run*.nc")
    >>> drystone.open(files, along="step", position="name", pattern="run([0-9])")["v"].values
    array([[1, 1, 1],
           [2, 2, 2]], dtype=int32)
    """
    from drystone.config.python import combine_fields
    from drystone.pipeline.opening import open_dataset

    given: dict[str, object] = {
        "along": _one_axis(along, position, pattern, attribute),
        "variables": variables,
        "select": select,
        "differences": differences,
        "duplicates": duplicates,
        "overlap": overlap,
        "gaps": gaps,
    }
    return open_dataset(sources, combine_fields(given), decode=decode, format=format, places=places or {})


def _one_axis(along: Along | None, position: str, pattern: str | None, attribute: str | None) -> object:
    """The axis that ``position``, ``pattern`` and ``attribute`` are about."""
    said = {"position": position if position != "coordinate" else None, "pattern": pattern, "attribute": attribute}
    said = {k: v for k, v in said.items() if v is not None}
    if not said:
        return along
    if not isinstance(along, str):
        raise ConfigError(
            f"{' and '.join(said)} say where granules lie along one dimension, and along names "
            f"{'none' if along is None else 'no single one'}: write along='time', or along={{'time': {said}}}",
            kind="combine-options",
        )
    return {along: said}


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


def verify(
    config: Config, *, progress: Progress | None = None, mode: Literal["sample", "full", "digest"] | None = None
) -> VerifySummary:
    """Compare published outputs with the granules, through readers of their own.

    Parameters
    ----------
    mode
        ``sample``, ``full`` or ``digest``; None: as the config says.

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


def doctor(config: Config | None = None, *, progress: Progress | None = None, dry_run: bool = False) -> DoctorReport:
    """Measure this machine and the places of a config, say what is odd, keep the rates that plans predict times from.

    Parameters
    ----------
    config
        Its sources are read and its targets probed too; None: the machine, the folder one is in and the temporary one.
    progress
        Hears how far it is.
    dry_run
        Say what would be written; look at nothing.

    Examples
    --------
    >>> report = doctor(dry_run=True)
    >>> report.status, len(report.writes) > 0
    ('ok', True)
    """
    from drystone.pipeline.doctor.run import diagnose

    return diagnose(None if config is None else _archive(config), progress or Silent(), dry_run)

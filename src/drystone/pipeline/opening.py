"""``drystone.open``: sources to a lazy Dataset, through references and our planner alone."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from drystone.errors import ConfigError, LeftOut, ScanError, StorageError, UnsupportedError
from drystone.fetch.fetcher import Fetcher
from drystone.fetch.memory_rows import MemoryRows
from drystone.model.chunk_rows import ScanResult
from drystone.model.granule import Granule
from drystone.model.options import ArchiveConfig, CombineOptions
from drystone.model.placement import Combined
from drystone.pipeline.archive import Archive
from drystone.pipeline.combined import fetcher_for, whole_of
from drystone.pipeline.members import by_path, merged_groups
from drystone.pipeline.roots import roots_of_scans
from drystone.pipeline.scan import scan_source
from drystone.pipeline.sources import Sources, expand, locate
from drystone.pipeline.statics import DigestCache, check_statics
from drystone.plan.combine import combine
from drystone.plan.forms import read_form
from drystone.plan.members import from_scans
from drystone.read.dataset import dataset

if TYPE_CHECKING:
    import xarray

__all__ = ["open_dataset"]

_PACKAGE = os.path.dirname(os.path.dirname(__file__))  # warnings are about the caller's line, not about ours
_THREADS = 4
_IN_FLIGHT = 256 << 20


def open_dataset(
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | ArchiveConfig,
    said: Mapping[str, object],
    *,
    decode: bool,
    format: str,
    places: Mapping[str, str],
) -> xarray.Dataset | xarray.DataTree:
    """See :func:`drystone.pipeline.api.open`; ``said`` are the fields of :class:`CombineOptions` that the caller gave."""
    if isinstance(sources, ArchiveConfig):
        return _from_config(sources, said, decode)
    if isinstance(sources, str | os.PathLike):
        text = os.fspath(sources)
        if text.endswith((".yaml", ".yml")):
            from drystone.config.load import load_config

            return _from_config(load_config(text), said, decode)
        if os.path.isdir(os.path.join(text, "granules", "_delta_log")):
            return _from_table(text, said, places, decode)
    options = replace(CombineOptions(), **said)  # type: ignore[arg-type]  # checked against the table of keys
    combined, fetcher = open_sources(locate(expand(sources)), options, format)
    return _read(combined, options, fetcher, decode)


def _from_config(config: ArchiveConfig, said: Mapping[str, object], decode: bool) -> xarray.Dataset | xarray.DataTree:
    """What the caller says counts, and for the rest what the config says."""
    kept = replace(config.combine, **said)  # type: ignore[arg-type]
    archive = Archive.of(replace(config, combine=kept))
    whole = whole_of(archive, None)
    return _read(whole.combined, kept, fetcher_for(archive, whole.table), decode)


def _read(combined: Combined, options: CombineOptions, fetcher: Fetcher, decode: bool) -> xarray.Dataset | xarray.DataTree:
    """The whole as a reader may have it; what that lacks is warned of by name."""
    form, lost = read_form(combined, options.variables)
    for text in lost:
        warnings.warn(text, LeftOut, skip_file_prefixes=(_PACKAGE,))
    return dataset(form, fetcher, decode=decode)


def _from_table(
    folder: str, said: Mapping[str, object], places: Mapping[str, str], decode: bool
) -> xarray.Dataset | xarray.DataTree:
    """A table alone: its places were noted beside it by the scan, and may be overridden here."""
    root = os.path.abspath(folder.rstrip("/"))
    work, name = os.path.split(os.path.dirname(root))
    noted = os.path.join(os.path.dirname(root), "places.json")
    try:
        with open(noted, encoding="utf-8") as f:
            known = {str(k): (str(v["url"]), dict(v["options"])) for k, v in json.load(f).items()}
    except FileNotFoundError:
        known = {}
    known.update({k: (v, known.get(k, ("", {}))[1]) for k, v in places.items()})
    known["work"] = (work, {})
    if os.path.basename(root) != "table":
        raise ConfigError(f"{folder} is not the table/ folder of an archive; pass the config, or <work>/<name>/table")
    config = ArchiveConfig(name, known, os.getcwd(), (), (), work="work:")
    return _from_config(config, said, decode)


def open_sources(sources: Sources, options: CombineOptions, format: str = "auto") -> tuple[Combined, Fetcher]:
    """Scan granules in memory and combine them."""
    scans: dict[int, ScanResult] = {}
    granules: dict[int, Granule] = {}
    for granule_id, listed in enumerate(sources.listed):
        try:
            scan = scan_source(sources.places, listed, format)
        except StorageError as error:
            raise ScanError(error.message, kind=error.kind, granule=listed.address) from error
        scans[granule_id] = scan
        granules[granule_id] = Granule(
            granule_id, listed.address, listed.stamp, scan.format, 1, scan.n_rows, scan.digest(), scan.companions
        )
    if not options.select:
        _say_what_is_left_out(scans, granules, options)
    names = {g: granule.address for g, granule in granules.items()}
    members = from_scans(scans)
    groups, notes = merged_groups(json.dumps([g.to_json() for g in s.groups]) for s in scans.values())
    refused = by_path((g, (r.path, r.reason)) for g, scan in scans.items() for r in scan.refusals)
    roots = roots_of_scans(scans, options)
    combined = combine(members, groups, names, options, attributes=roots, notes=notes, refused=refused)
    if options.select and combined.granule_ids is not None:  # what is selected says which granules count
        _say_what_is_left_out({g: scans[g] for g in combined.granule_ids.tolist()}, granules, options)
    fetcher = Fetcher(sources.places, MemoryRows(granules, scans), threads=_THREADS, bytes_in_flight=_IN_FLIGHT)
    check_statics(combined, members, fetcher, names, DigestCache(None, ""))
    return combined, fetcher


def _say_what_is_left_out(scans: Mapping[int, ScanResult], granules: Mapping[int, Granule], options: CombineOptions) -> None:
    """Name every array that has no exact reference; a wanted one is an error."""
    for granule_id, scan in scans.items():
        for r in scan.refusals:
            address = granules[granule_id].address
            text = f"{address}: {r.path} is left out: {r.reason}"
            if options.variables is not None and {r.path, r.path.lstrip("/"), r.path.rsplit("/", 1)[-1]} & set(
                options.variables
            ):
                raise UnsupportedError(text, kind=r.kind, granule=address, variable=r.path)
            warnings.warn(text, LeftOut, skip_file_prefixes=(_PACKAGE,))

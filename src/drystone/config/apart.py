"""Places that must not overlap: outputs, the work and scratch folders, and where granules are listed from.

Addresses are compared where they lead, through places and links, not as they are written. Two outputs, or an output and
the work folder, may not lie in one another. An output may not hold the folder that granules are listed from, and what is
written into an output or the work folder may not match a pattern of granules: the next run would take it for data.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from drystone.config.problem import Report, join
from drystone.discover.glob import literal_prefix, pattern_regex
from drystone.errors import ConfigError
from drystone.model.options import ArchiveConfig, GranuleSet
from drystone.storage.address import local_folder, split_address

__all__ = ["check_apart", "refuse_overlaps"]

# what lies below an address, by form: enough of it to ask a pattern whether it would match
_WRITTEN: Mapping[str, tuple[str, ...]] = {
    "zarr": ("zarr.json", "v/zarr.json", "v/c", "v/c/0", "v/c/0/0", "v/c/0/0/0", "g/v/zarr.json", "g/v/c/0/0/0"),
    "kerchunk-parquet": (".zmetadata", "v/refs.0.parq", "g/v/refs.0.parq"),
    "icechunk": (
        "repo",
        "config.yaml",
        "snapshots/A",
        "manifests/A",
        "transactions/A",
        "chunks/A",
        "refs/branch.main/ref.json",
    ),
    "work": (
        "places.json",
        "lease",
        "lease.lock",
        "statics.json",
        "table/granules/part-0.parquet",
        "table/granules/_delta_log/0.json",
        "runs/a/plan.json",
        "runs/a/placements.npz",
        "runs/a/receipts/h-1-a.jsonl",
        "shuffle/a/b",
    ),
    "scratch": ("a/b",),
}
_KEYS = {-1: "storage.work", -2: "execution.scratch"}


@dataclass(frozen=True, slots=True)
class _Spot:
    """Where an address leads: a file system or bucket server, and the parts of the path there."""

    server: str
    parts: tuple[str, ...]

    def holds(self, other: _Spot) -> bool:
        return self.server == other.server and other.parts[: len(self.parts)] == self.parts


def _spot(config: ArchiveConfig, address: str) -> _Spot:
    place, key = split_address(address)
    url, options = config.places[place]
    folder = local_folder(url, config.base)
    if folder is not None:
        return _Spot("", tuple(p for p in os.path.realpath(os.path.join(folder, key)).split("/") if p))
    scheme, _, rest = url.partition("://")
    return _Spot(f"{scheme} {options.get('endpoint', '')}", tuple(p for p in f"{rest}/{key}".split("/") if p))


def check_apart(config: ArchiveConfig, report: Report) -> None:
    """Note every overlap of a config that is good otherwise."""
    for index, found, hint in _overlaps(config):
        where = _KEYS[index] if index < 0 else join(join("outputs", index), "at")
        report.add(where, "an address of its own", found, hint)


def refuse_overlaps(config: ArchiveConfig) -> None:
    """Raise where a config overlaps, for one that was made in Python.

    Raises
    ------
    ConfigError
        ``overlap``.

    Examples
    --------
    >>> from drystone.model.options import OutputOptions
    >>> places = {"raw": ("file:///data", {}), "out": ("file:///data/2001", {}), "work": ("file:///work", {})}
    >>> out = OutputOptions("store", "zarr", "out:sst.zarr")
    >>> refuse_overlaps(ArchiveConfig("x", places, "/", (GranuleSet("glob", "raw:*/*.nc"),), (out,)))
    >>> try:
    ...     refuse_overlaps(ArchiveConfig("x", places, "/", (GranuleSet("glob", "raw:**"),), (out,)))
    ... except ConfigError as error:
    ...     error.kind
    'overlap'
    """
    for _, found, hint in _overlaps(config):
        raise ConfigError(f"{config.name}: {found}; {hint}; nothing was started", kind="overlap")


def _overlaps(config: ArchiveConfig) -> Iterator[tuple[int, str, str]]:
    """Output number (-1: the work folder, -2: the scratch folder), what is found, what to do."""
    work = f"{config.work.rstrip('/')}{'' if config.work.endswith(':') else '/'}{config.name}"
    spots = [(-1, "the work folder", work, "work", _spot(config, work))]
    if config.scratch is not None:
        spots.append((-2, "the scratch folder", config.scratch, "scratch", _spot(config, config.scratch)))
    for index, output in enumerate(config.outputs):
        spot = _spot(config, output.at)
        for other, name, at, _, taken in spots:
            if spot.holds(taken) or taken.holds(spot):
                what = name if other < 0 else f"outputs[{other}]"
                yield index, f"{output.at}, which lies where {what} ({at}) is, in it or around it", "name another one"
                break
        spots.append((index, f"outputs[{index}]", output.at, output.form, spot))
    for index, name, at, form, spot in spots:
        for granules in config.granules:
            found = _clash(config, granules, spot, form)
            if found:
                yield index, f"{at}: {name} {found}", "name a folder apart from the granules"
                break


def _clash(config: ArchiveConfig, granules: GranuleSet, spot: _Spot, form: str) -> str:
    """How a spot and a source of granules get into each other's way; "" where they do not."""
    place, pattern = split_address(granules.pattern)
    if granules.lister != "glob":
        return f"holds the list {granules.pattern}" if spot.holds(_spot(config, granules.pattern)) else ""
    if spot.holds(_spot(config, f"{place}:{literal_prefix(pattern).rpartition('/')[0]}")):
        return f"would hold the folder of the granules {granules.pattern}"
    root = _spot(config, f"{place}:")
    if not root.holds(spot):
        return ""
    below = "/".join(spot.parts[len(root.parts) :])
    regex = pattern_regex(pattern)
    hit = next((name for name in ("", *_WRITTEN[form]) if regex.fullmatch(f"{below}/{name}".rstrip("/"))), None)
    return "" if hit is None else f"would be matched by the granules' pattern {granules.pattern}"

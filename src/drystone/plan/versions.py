"""Granules that replace one another: preliminary and final forms, numbered versions.

Pure on names. Folders do not matter unless one form of a stem is in several: then each folder is for itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drystone.errors import ConfigError
from drystone.model.options import VersionOptions

__all__ = ["newest_only"]

_SUFFIXES = frozenset(
    ["nc", "nc3", "nc4", "cdf", "netcdf", "h5", "hdf5", "he4", "he5", "hdf", "grib", "grib1", "grib2", "grb", "grb1", "grb2"]
).union(
    ["tif", "tiff", "fits", "fit", "fts", "zarr", "dmrpp", "dmr", "json", "parq", "parquet", "gz", "bz2", "xz", "zst", "zip"]
)


@dataclass(frozen=True, slots=True)
class _Name:
    index: int
    folder: str
    stem: str
    version: tuple[int, ...] | None


def newest_only(names: Sequence[str], options: VersionOptions) -> tuple[tuple[int, ...], Mapping[int, int]]:
    """Which granules count, and which each of the others gives way to.

    Parameters
    ----------
    names
        Addresses or file names.
    options
        The pattern that marks a version. A name without the mark is the final form, or the lowest numbered version.

    Returns
    -------
    kept, superseded
        Indices into ``names``, ascending; and index to the index that stands in its place, which is always one that is
        kept. Names that are equal but for their folder do not replace one another.

    Raises
    ------
    ConfigError
        ``versions-pattern``

    Examples
    --------
    >>> newest_only(["d1.nc", "d1_preliminary.nc", "d2_preliminary.nc"], VersionOptions("{stem}_preliminary"))
    ((0, 2), {1: 0})
    >>> newest_only(["a_v9.nc", "a_v10.nc", "a.nc"], VersionOptions("{stem}_v{version}"))
    ((1,), {0: 1, 2: 1})
    """
    pattern = _pattern(options.of)
    if options.prefer == "all":
        return tuple(range(len(names))), {}
    numbered = "{version}" in options.of
    read = [_read(pattern, i, name) for i, name in enumerate(names)]
    superseded: dict[int, int] = {}
    by_stem: dict[str, list[_Name]] = {}
    for name in read:
        by_stem.setdefault(name.stem, []).append(name)
    for group in by_stem.values():
        if len(group) > 1:
            _supersede(group, numbered, superseded)
    return tuple(i for i in range(len(names)) if i not in superseded), superseded


def _pattern(of: str) -> re.Pattern[str]:
    parts = re.split(r"(\{[^}]*\})", of)
    fields = parts[1::2]
    if fields.count("{stem}") != 1 or fields.count("{version}") > 1 or set(fields) - {"{stem}", "{version}"} or of == "{stem}":
        raise ConfigError(
            f"versions: of: {of!r} marks no version; write {{stem}} once and what tells versions apart, such as "
            "{stem}_preliminary or {stem}_v{version}",
            kind="versions-pattern",
        )
    groups = {"{stem}": "(?P<stem>.+)", "{version}": r"(?P<version>\d+(?:[._]\d+)*)"}
    return re.compile("".join(groups[p] if i % 2 else re.escape(p) for i, p in enumerate(parts)))


def _read(pattern: re.Pattern[str], index: int, name: str) -> _Name:
    folder, _, base = name.rpartition("/")
    base = base.rpartition(":")[2]
    head, dot, suffix = base.rpartition(".")
    while dot and head and suffix.lower() in _SUFFIXES:
        base = head
        head, dot, suffix = base.rpartition(".")
    match = pattern.fullmatch(base)
    if match is None:
        return _Name(index, folder, base, None)
    version = match.groupdict().get("version")
    return _Name(index, folder, match["stem"], tuple(int(n) for n in re.split(r"[._]", version)) if version else (0,))


def _supersede(group: Sequence[_Name], numbered: bool, superseded: dict[int, int]) -> None:
    """Names of one stem: the best stays, of each folder where one form is in several."""

    def worth(name: _Name) -> tuple[int, ...]:
        if numbered:
            return (-1,) if name.version is None else name.version
        return (1,) if name.version is None else (0,)

    if len({worth(n) for n in group}) == len(group):
        best = max(group, key=worth)
        superseded.update({n.index: best.index for n in group if n is not best})
        return
    for folder in dict.fromkeys(n.folder for n in group):
        here = [n for n in group if n.folder == folder]
        best = max(here, key=worth)
        superseded.update({n.index: best.index for n in here if worth(n) < worth(best)})

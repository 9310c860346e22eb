"""What a user asks for, as frozen values: the config without YAML.

:mod:`drystone.config` builds these from a file; Python callers build them by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "ArchiveConfig",
    "AxisOptions",
    "CombineOptions",
    "ExecutionOptions",
    "FailureOptions",
    "GranuleSet",
    "OutputOptions",
    "ReadPattern",
    "VerifyOptions",
]


@dataclass(frozen=True, slots=True)
class GranuleSet:
    """Where granules are listed from: a lister's name and what it is told (``place:pattern``, or a list file)."""

    lister: str
    pattern: str


@dataclass(frozen=True, slots=True)
class AxisOptions:
    """The combine axis.

    Parameters
    ----------
    name
        Dimension that granules are joined along.
    position
        ``coordinate``: by the values of the coordinate variable; ``name``: by a pattern over the file name;
        ``order``: in listed order.
    pattern
        For ``name``: a strptime pattern (``oisst.%Y%m%d.nc``) or a regular expression with one group, a number.
    """

    name: str
    position: Literal["coordinate", "name", "order"] = "coordinate"
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class CombineOptions:
    """How granules fit together.

    ``along`` None: found by itself, the one dimension that is unlimited or whose coordinate differs between granules.
    """

    along: AxisOptions | None = None
    variables: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """One published form.

    Parameters
    ----------
    kind
        ``virtual`` or ``store``.
    form
        ``icechunk`` or ``kerchunk-parquet`` for virtual, ``zarr`` for store.
    at
        ``place:key``.
    public
        Remap rules, prefix to replacement, longest first wins; prefixes are ``place:`` addresses.
    chunks, shards
        Dimension name to elements, ``"all"``, or a byte size such as ``"256 kB"`` under the key ``"*"``.
    codecs
        Codec name and parameters, in encoding order; empty: blosc zstd 3 with shuffle.
    arrays
        Paths or names to publish, None for all.
    """

    kind: Literal["virtual", "store"]
    form: str
    at: str
    public: tuple[tuple[str, str], ...] = ()
    chunks: Mapping[str, int | str] = field(default_factory=dict)
    shards: Mapping[str, int | str] = field(default_factory=dict)
    codecs: tuple[tuple[str, Mapping[str, int | str | bool]], ...] = ()
    arrays: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ReadPattern:
    """A read users will make: dimension name to elements; dimensions left out are read whole."""

    name: str
    sizes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ExecutionOptions:
    """Where tasks run.

    ``cluster``: ``local`` (Dask on this host; small plans run in the driver's process), ``inline`` (always in the
    driver's process), or a Dask scheduler's address. ``workers`` None: one a core. ``memory_per_worker`` in bytes,
    None: what the host has, shared out.
    """

    cluster: str = "local"
    workers: int | None = None
    threads_per_worker: int | None = None
    memory_per_worker: int | None = None


@dataclass(frozen=True, slots=True)
class FailureOptions:
    """How many granules may be set aside, as a count or a share (0.01 is 1 %); tries of a task that raises."""

    granules: int | float = 0
    tries: int = 3


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """``none``, ``sample`` (a share of the cells' boxes, 0 to 1) or ``full``."""

    values: Literal["none", "sample", "full"] = "sample"
    share: float = 0.01


@dataclass(frozen=True, slots=True)
class ArchiveConfig:
    """The whole config.

    Parameters
    ----------
    name
        Of the archive.
    places
        Name to (url, options).
    base
        Folder that relative URLs start from.
    granules
        Where granules are listed from.
    format
        ``auto`` or a scanner's name.
    work
        Address of the folder for table, runs and releases.
    digest
        Of the config's meaning: equal for files that differ in comments only.
    """

    name: str
    places: Mapping[str, tuple[str, Mapping[str, str | bool]]]
    base: str
    granules: tuple[GranuleSet, ...]
    outputs: tuple[OutputOptions, ...]
    format: str = "auto"
    work: str = "work:"
    combine: CombineOptions = field(default_factory=CombineOptions)
    reads: tuple[ReadPattern, ...] = ()
    execution: ExecutionOptions = field(default_factory=ExecutionOptions)
    failures: FailureOptions = field(default_factory=FailureOptions)
    verify: VerifyOptions = field(default_factory=VerifyOptions)
    digest: str = ""

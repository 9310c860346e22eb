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
    "DifferenceOptions",
    "ExecutionOptions",
    "FailureOptions",
    "GranuleSet",
    "OutputOptions",
    "Policy",
    "ReadPattern",
    "Selection",
    "VerifyOptions",
    "VersionOptions",
]


@dataclass(frozen=True, slots=True)
class GranuleSet:
    """Where granules are listed from: a lister's name and what it is told (``place:pattern``, or a list file)."""

    lister: str
    pattern: str


@dataclass(frozen=True, slots=True)
class AxisOptions:
    """One combine axis.

    Parameters
    ----------
    name
        Dimension that granules are joined along. One that no array has is a new axis: each granule gives it one place.
    position
        ``coordinate``: by the values of the coordinate variable (for a new axis, of the scalar or one-element variable of
        that name); ``name``: by a pattern over the file name; ``attribute``: by a global attribute; ``order``: in listed
        order.
    pattern
        For ``name``: a strptime pattern (``oisst.%Y%m%d.nc``) or a regular expression with one group, a number or, on a
        new axis, a label. For ``attribute``: the same over the attribute's text; None takes it as it is.
    attribute
        For ``attribute``: its name.
    axis
        ``sequence``: granules in order, places without gaps. ``slots``: a place for each value, (value - origin) / step.
        Slots with ``origin``, ``stop`` and ``step`` reindex granules onto a given axis, without moving a chunk.
    step
        For ``slots``: a number in the coordinate's units, or a duration such as ``1D``, ``6h``, ``1M`` (calendar month) or
        ``1Y``. The slot of calendar steps is the month or year that holds the value, which is kept as it is; one
        that no granule holds says its first instant.
    origin, stop
        For ``slots``: value of the first place, and of the first place that is no more; a number or an ISO 8601 time.
        Origins of calendar steps count as the month they lie in. ``origin`` None: the first value there is when the archive
        is first published, kept from then on. ``stop`` None: the last value there is.
    """

    name: str
    position: Literal["coordinate", "name", "attribute", "order"] = "coordinate"
    pattern: str | None = None
    attribute: str | None = None
    axis: Literal["sequence", "slots"] = "sequence"
    step: str | float | None = None
    origin: str | float | None = None
    stop: str | float | None = None


type Policy = Literal["refuse", "era", "rechunk", "first", "fill", "widen"]


@dataclass(frozen=True, slots=True)
class DifferenceOptions:
    """What to do where granules differ; no default changes a value.

    ``refuse``: stop and name both. ``era``: in virtual outputs, runs of granules that agree become groups; stores hold one
    array, by value, where that is exact. ``rechunk``: virtual outputs refuse the array, stores as for ``era``. ``first``: what
    the first granule says counts for all. ``fill``: where a granule lacks the variable, its place reads as missing.

    Parameters
    ----------
    codec
        Codecs, byte order, chunk shape, storage fill: how values are stored. ``era`` or ``rechunk`` or ``refuse``.
    packing
        ``scale_factor``, ``add_offset``, ``_Unsigned``. ``first``: all packed as the first granule, or refused where that is
        not exact.
    fill
        ``_FillValue``, ``missing_value``. Where no number is proved to be data in no granule, whole numbers stay in their type
        and one that is data is refused when it is read; ``widen``: they take a wider type instead, with a number beyond all.
    dtype
        Element type. ``rechunk``: one that holds all. ``first``: the first granule's, or refused where that is not exact.
    units
        ``units`` of variables that are no times. ``first`` where the texts say one thing in two spellings.
    time
        Units, origin and calendar spelling of times: ``rechunk`` re-encodes exactly on one (small time coordinates are
        written natively, so virtual outputs hold them too). Different calendars are always refused.
    attributes
        Other attributes that change what a number means (``flag_meanings``, ``valid_range``…).
    missing_variable
        ``fill``, ``refuse`` or ``era``.
    static
        Arrays without a joined axis whose values differ: ``refuse`` or ``first``.
    coordinate_tolerance
        Largest difference at which coordinates off the joined axes still count as equal; the first granule's are published.
    """

    codec: Policy = "era"
    packing: Policy = "rechunk"
    fill: Policy = "rechunk"
    dtype: Policy = "rechunk"
    units: Policy = "refuse"
    time: Policy = "rechunk"
    attributes: Policy = "refuse"
    missing_variable: Policy = "fill"
    static: Policy = "refuse"
    coordinate_tolerance: float = 0.0


@dataclass(frozen=True, slots=True)
class Selection:
    """What is taken along one dimension of the whole, before anything is written.

    Parameters
    ----------
    kind
        ``index``: one place, by number; the dimension is dropped. ``value``: the one place that has this coordinate value;
        the dimension is dropped. ``range``: from ``start`` to ``stop`` in coordinate values, whichever way they run, both ends
        included, every ``step``-th. ``slice``: the same in numbers of places, ``stop`` excluded. ``values``: the places with
        these coordinate values. ``list``: places by number, in that order. ``points``: as ``list``, gathered together with
        every other dimension that says ``points`` or ``point_values``, into one new dimension ``points``.
        ``point_values``: the same by coordinate values.
    values
        Numbers or ISO 8601 times: one, (start, stop), or many. None leaves an end open.
    step
        Stride.
    """

    kind: Literal["index", "value", "range", "slice", "values", "list", "points", "point_values"]
    values: tuple[str | float | None, ...]
    step: int = 1


@dataclass(frozen=True, slots=True)
class CombineOptions:
    """How granules fit together.

    Parameters
    ----------
    along
        The combine axes; empty: found by itself, the one dimension that is unlimited or whose coordinate differs between
        granules.
    variables
        Names or paths wanted; None: all.
    differences
        What to do where granules differ.
    duplicates
        Where two granules hold one place of an axis: ``error``; ``first`` or ``last`` in listed order; ``newest``: by
        versions, then by name (never by time stamps; numbers in names count as numbers), the last of them. Resolved
        place by place: a granule keeps the places that no other holds.
    overlap
        The same for tiles of a mosaic that overlap; two that are equal in place are duplicates. ``crop``: neighbours are cut
        half way, each gives up half of what both hold; the first along the axis keeps the middle of an odd number.
    gaps
        Places of a slot axis that no granule holds: ``fill`` or ``error``.
    select
        Dimension to what is taken of it.
    """

    along: tuple[AxisOptions, ...] = ()
    variables: tuple[str, ...] | None = None
    differences: DifferenceOptions = field(default_factory=DifferenceOptions)
    duplicates: Literal["error", "first", "last", "newest"] = "error"
    overlap: Literal["error", "first", "last", "crop"] = "error"
    gaps: Literal["fill", "error"] = "fill"
    select: Mapping[str, Selection] = field(default_factory=dict)


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
        Codec name and parameters, in encoding order; empty: blosc zstd 3 with shuffle. ``source``: the granules' own, where
        chunks are copied. (``chunks`` may say so too: ``{"*": "source"}``.)
    arrays
        Paths or names to publish, None for all.
    values
        For stores: ``auto``: packed numbers stay packed, and are unpacked to float64 where granules pack differently and no
        exact common packing is; ``packed``: refuse instead; ``decoded``: unpack all.
    grid
        ``regular``, or ``rectilinear``: chunks of different sizes along an axis are allowed, where the form knows them.
    crop
        For virtual outputs: padded chunks in the middle of an axis through the codec ``drystone.crop``, which only readers
        with drystone installed have.
    coverage
        Publish an array that says which places of the joined axes had bytes.
    mode
        For stores: ``repack``: encoded chunks are copied as they are, or the plan is refused; ``rechunk``: all is decoded and
        encoded anew; ``auto``: copied where the chunks and codecs wished for are the granules' own.
    portable
        For copied chunks: with codecs of Zarr v3 itself alone; zlib's streams are framed as gzip's.
    round
        For stores: array's name or path to how its floating-point values are rounded before they are stored: mantissa bits or
        decimal digits kept. ``"*"``: every floating-point array that is neither a coordinate nor bounds nor a time.
    dtype
        The same to the type that numbers are stored as: exactly, but for floating-point numbers in a narrower type.
    pack
        The same to a whole-number ``dtype``, a ``scale_factor`` and an ``add_offset`` (0 where left out).
    fill_value
        The same to the number that says missing: a number or ``"NaN"``.
    """

    kind: Literal["virtual", "store"]
    form: str
    at: str
    public: tuple[tuple[str, str], ...] = ()
    chunks: Mapping[str, int | str] = field(default_factory=dict)
    shards: Mapping[str, int | str] = field(default_factory=dict)
    codecs: tuple[tuple[str, Mapping[str, int | str | bool]], ...] = ()
    arrays: tuple[str, ...] | None = None
    values: Literal["auto", "packed", "decoded"] = "auto"
    grid: Literal["regular", "rectilinear"] = "regular"
    crop: bool = False
    coverage: bool = False
    mode: Literal["auto", "repack", "rechunk"] = "auto"
    portable: bool = False
    round: Mapping[str, tuple[Literal["keepbits", "digits"], int]] = field(default_factory=dict)
    dtype: Mapping[str, str] = field(default_factory=dict)
    pack: Mapping[str, Mapping[str, float | str]] = field(default_factory=dict)
    fill_value: Mapping[str, float | str] = field(default_factory=dict)

    @property
    def emitted(self) -> dict[str, object]:
        """What emitters are told of it."""
        return {"grid": self.grid, "crop": self.crop, "coverage": self.coverage}


@dataclass(frozen=True, slots=True)
class ReadPattern:
    """A read users will make: dimension name to elements; dimensions left out are read whole.

    ``at``: dimension name to the first element, where the read lies at one place; along the others it may lie anywhere.
    A dimension that is only in ``at`` is read there, one element of it.
    """

    name: str
    sizes: Mapping[str, int]
    at: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExecutionOptions:
    """Where tasks run.

    ``cluster``: ``local`` (Dask on this host; small plans run in the driver's process), ``inline`` (always in the
    driver's process), or a Dask scheduler's address. ``workers`` None: one a core. ``memory_per_worker`` in bytes,
    None: what the host has, shared out. ``reread``: times that a source chunk may be read, on average, before a rechunk in
    two passes is weighed against it; as many readings as a copy in between costs. ``scratch``: address of the folder for that
    copy, which all workers reach; None: in the work place.
    """

    cluster: str = "local"
    workers: int | None = None
    threads_per_worker: int | None = None
    memory_per_worker: int | None = None
    reread: float = 3.0
    scratch: str | None = None


@dataclass(frozen=True, slots=True)
class FailureOptions:
    """How many granules may be set aside, as a count or a share (0.01 is 1 %); tries of a task that raises."""

    granules: int | float = 0
    tries: int = 3


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """``none``, ``sample`` (a share of the cells' boxes, 0 to 1), ``full``, or ``digest``: all, each side read once."""

    values: Literal["none", "sample", "full", "digest"] = "sample"
    share: float = 0.01


@dataclass(frozen=True, slots=True)
class VersionOptions:
    """Granules that stand for one another: of those whose names agree but for the version, one counts.

    Parameters
    ----------
    of
        File name without suffixes, with ``{stem}`` for what versions share: ``{stem}_preliminary`` names the preliminary
        form of ``{stem}``; ``{stem}_v{version}`` numbers versions, the highest is the newest.
    prefer
        ``final``: one without the mark, or of the highest version, replaces the others. ``all``: none is replaced.
    """

    of: str
    prefer: Literal["final", "all"] = "final"


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
    versions
        Granules that replace others, or None.
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
    versions: VersionOptions | None = None

    @property
    def scratch(self) -> str | None:
        """Address of this archive's folder in the scratch place that the user names; None where none is named."""
        if self.execution.scratch is None:
            return None
        place, _, key = self.execution.scratch.partition(":")
        return f"{place}:" + "/".join(p for p in (key.strip("/"), self.name, "shuffle") if p)

"""Zarr metadata of published arrays, versions 2 and 3, as strict JSON values.

An array is published *virtual*, its chunks being references to source bytes in the source's own codec chain, or
*native*, its values written again in a plain chain. Everything here is a function of the combined array alone.

Zarr 2 has one field, ``fill_value``, for two things that HDF5 keeps apart: what unwritten chunks read as, and (to xarray)
which values are missing data. So it says the ``_FillValue`` attribute or nothing, and where unwritten chunks read as
another value they are given explicit bytes (:func:`explicit_fill`). So are places that no granule holds, which read as
``_FillValue`` (:func:`explicit_gap`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from drystone.codecs.chain import Codec
from drystone.codecs.zarr_forms import (
    attributes_v2,
    attributes_v3,
    codecs_v2,
    codecs_v3,
    data_type_v2,
    data_type_v3,
    fill_survives,
    fill_v2,
    fill_v3,
    mask_fill_v2,
)
from drystone.codecs.zarr_grids import chunk_grid_v3
from drystone.codecs.zarr_names import name_problem
from drystone.emit.gaps import check_gap_cost, says_missing
from drystone.emit.layout import Layout
from drystone.errors import PlanError, UnsupportedError
from drystone.model.array import GroupSpec
from drystone.model.placement import Combined, CombinedArray
from drystone.plan.coverage import Coverage, coverage_path

__all__ = [
    "NO_OPTIONS",
    "Layout",
    "array_v2",
    "array_v3",
    "explicit_fill",
    "explicit_gap",
    "group_v3",
    "groups_of",
    "layouts",
    "settings",
    "skipped",
    "strict_json",
]

_NAMING = ("coordinates", "bounds", "climatology", "grid_mapping", "ancillary_variables")
NATIVE_LIMIT = 16 << 20  # bytes of an array that is written natively because no reference can say it


NO_OPTIONS: Mapping[str, object] = MappingProxyType({})


def settings(options: Mapping[str, object]) -> str:
    """The options that decide what is published, as text."""
    return " ".join(f"{key}={options[key]}" for key in ("grid", "crop", "coverage") if options.get(key, "regular") != "regular")


def strict_json(value: object) -> bytes:
    """JSON that any parser reads: no NaN, UTF-8."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()


def array_v3(layout: Layout) -> dict[str, object]:
    """The ``zarr.json`` of an array.

    Raises
    ------
    UnsupportedError
        Zarr 3 has no exact form for its type or codecs.
    """
    array = layout.array
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(array.shape),
        "data_type": data_type_v3(layout.dtype),
        "chunk_grid": chunk_grid_v3(layout.edges, layout.array.shape),
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill_v3(layout.fill, layout.dtype),
        "codecs": [*_crop(layout), *codecs_v3(layout.codecs, layout.dtype)],
        "attributes": attributes_v3(array.attributes, layout.dtype),
        "dimension_names": list(array.dims),
    }


def _crop(layout: Layout) -> list[dict[str, object]]:
    """The codec that makes blocks of the source's shape fit, where they are larger than the grid's chunks."""
    if layout.block is None:
        return []
    return [{"name": "drystone.crop", "configuration": {"block": list(layout.block)}}]


def group_v3(group: GroupSpec) -> dict[str, object]:
    """The ``zarr.json`` of a group."""
    return {"zarr_format": 3, "node_type": "group", "attributes": group.attributes.values_plain()}


def array_v2(layout: Layout) -> tuple[dict[str, object], dict[str, object]]:
    """The ``.zarray`` and ``.zattrs`` of an array.

    Raises
    ------
    UnsupportedError
        Zarr 2 has no exact form for its type or codecs.
    """
    array = layout.array
    compressor, filters = codecs_v2(layout.codecs, layout.dtype)
    zarray: dict[str, object] = {
        "zarr_format": 2,
        "shape": list(array.shape),
        "chunks": list(layout.chunk_shape),
        "dtype": data_type_v2(layout.dtype),
        "compressor": compressor,
        "filters": filters,
        "fill_value": _fill_of_v2(layout),
        "order": "C",
        "dimension_separator": ".",
    }
    zattrs: dict[str, object] = {**attributes_v2(array.attributes, layout.dtype), "_ARRAY_DIMENSIONS": list(array.dims)}
    return zarray, zattrs


def _fill_of_v2(layout: Layout) -> object:
    return mask_fill_v2(layout.array.fill, layout.array.attributes, layout.dtype, sparse=False)


def explicit_fill(layout: Layout, version: int) -> NDArray[np.generic] | None:
    """The element that chunks which a granule left unwritten must be given bytes of; None where leaving them out says it."""
    if layout.native:
        return None
    fill = layout.array.fill_scalar
    return None if _reads_as(layout, fill, version) else fill


def explicit_gap(layout: Layout, version: int) -> NDArray[np.generic] | None:
    """The element that places which no granule holds must be given bytes of; None where there are none, or nothing says it."""
    if layout.native or layout.gaps is None:
        return None
    gap = layout.array.gap_scalar
    return None if _reads_as(layout, gap, version) else gap


def _reads_as(layout: Layout, element: NDArray[np.generic], version: int) -> bool:
    """Whether a chunk that is not there reads as an element, bit for bit."""
    stored = element.astype(layout.dtype).tobytes()
    if version == 3:
        said = bytes(layout.dtype.itemsize) if layout.fill is None else layout.fill
        return said == stored and fill_survives(layout.fill, layout.dtype)
    mask = _fill_of_v2(layout)
    if mask is None:
        # to zarr no fill value means zeros, but for times, where it means none
        return layout.dtype.kind not in "mM" and not any(stored)
    try:
        return strict_json(fill_v2(stored, layout.dtype)) == strict_json(mask)
    except UnsupportedError:  # a NaN that Zarr 2 cannot say
        return False


def groups_of(combined: Combined) -> tuple[GroupSpec, ...]:
    """The groups whose names Zarr can hold."""
    return tuple(g for g in combined.groups if name_problem(g.path) is None)


def layouts(
    combined: Combined, version: int, compressor: Codec, options: Mapping[str, object]
) -> tuple[dict[str, Layout], dict[str, str]]:
    """The layout of every array that this Zarr version can hold, and the reason for every other.

    Coordinates whose values are known and text are native; so is an array of at most 16 MiB that no reference can say, and
    any that no granule holds. Where granules' chunks make no grid, only what describes other arrays (bounds, auxiliary
    coordinates) is written natively: a field is refused, since who asks for references wants no copy.

    Parameters
    ----------
    combined
        The whole.
    version
        2 or 3.
    compressor
        Of native chunks.
    options
        ``grid``, ``crop`` and ``coverage`` of the output.

    Returns
    -------
    layouts, problems
        By path; every array is in exactly one of them.
    """
    good: dict[str, Layout] = {}
    problems: dict[str, str] = {}
    for array in combined.arrays:
        problem = name_problem(array.path)
        if problem is not None:
            problems[array.path] = problem
            continue
        try:
            good[array.path] = _layout(array, combined, version, compressor, options)
        except (PlanError, UnsupportedError) as error:
            problems[array.path] = error.message
    return good, problems


def _layout(array: CombinedArray, combined: Combined, version: int, compressor: Codec, options: Mapping[str, object]) -> Layout:
    native = Layout.written(array, compressor)
    gaps = _gaps(array, combined, version, options)
    if array.path in combined.coordinates or array.made or array.dtype.kind == "T":
        _prove(native, version)
        return native
    try:
        virtual = _virtual(array, gaps, version, options)
    except UnsupportedError as error:
        too_large = math.prod(array.shape) * array.dtype.itemsize > NATIVE_LIMIT
        if too_large or (error.kind == "unaligned" and not _describes(array, combined)):
            raise
        try:
            _prove(native, version)
        except UnsupportedError:
            raise error from None
        return native
    return virtual


def _describes(array: CombinedArray, combined: Combined) -> bool:
    """Whether an array has at most one axis, or others name it as what gives them their meaning."""
    if len(array.shape) < 2:
        return True
    for other in combined.arrays:
        for key in _NAMING:
            value = other.attributes.get(key)
            if value is not None and value.dtype == "text" and array.name in " ".join(value.text).split():
                return True
    return False


def _virtual(array: CombinedArray, gaps: Coverage | None, version: int, options: Mapping[str, object]) -> Layout:
    virtual = replace(Layout.virtual(array, version, options), gaps=gaps)
    if gaps is not None and version == 3 and not any(v.sparse for v in array.variants):
        # no granule leaves a chunk out, so the fill value is free to say what gaps read as
        virtual = replace(virtual, fill=array.gap_scalar.astype(virtual.dtype).tobytes())
    _prove(virtual, version)
    element = explicit_gap(virtual, version)
    if element is not None and version == 3:
        check_gap_cost(virtual, element)
    return virtual


def _gaps(array: CombinedArray, combined: Combined, version: int, options: Mapping[str, object]) -> Coverage | None:
    """What granules hold, where they leave gaps.

    Raises
    ------
    UnsupportedError
        ``gaps``: a gap would pass for data.
    """
    if array.made or _is_axis(array, combined):
        return None
    coverage = Coverage.of(array.holder)
    if not coverage.has_gaps:
        return None
    told = bool(options.get("coverage")) and coverage_path(array) in combined.coordinates  # said and there to be read
    if not told and not says_missing(array, version):
        start, stop = next(coverage.gaps())
        box = _box(array.holder, start, stop)
        fill = "" if array.dtype.kind == "T" else f" as {array.fill_scalar[()]!s}"
        raise UnsupportedError(
            f"{array.path}: no granule holds {box}, and it has no _FillValue (of its own type) that could "
            f"say so: the gap would read{fill} and pass for data; say `coverage: true` for this output, which publishes what "
            "was held beside it, or combine: {gaps: error}, or leave the array out",
            kind="gaps",
            array=array.path,
        )
    return coverage


def _is_axis(array: CombinedArray, combined: Combined) -> bool:
    """Whether it is the coordinate of its one dimension, whose values are known where no granule is."""
    return array.path in combined.coordinates and array.dims == (array.name,)


def _box(array: CombinedArray, start: tuple[int, ...], stop: tuple[int, ...]) -> str:
    part = [
        f"{name} {a} to {b}" for name, a, b, n in zip(array.dims, start, stop, array.shape, strict=True) if (a, b) != (0, n)
    ]
    return ", ".join(part) or "any of it"


def _prove(layout: Layout, version: int) -> None:
    """Build the metadata once; what has no exact form raises."""
    document: object = array_v3(layout) if version == 3 else array_v2(layout)
    if version == 3 and explicit_fill(layout, 3) is not None and any(v.sparse for v in layout.array.variants):
        raise UnsupportedError(
            f"{layout.array.path}: its unwritten chunks read as a NaN whose bits zarr loses in a fill value, and there are too "
            "many to give each one bytes; publish it as a store (rechunk)",
            kind="fill",
            array=layout.array.path,
        )
    try:
        strict_json(document)
    except (ValueError, UnicodeEncodeError) as error:
        raise UnsupportedError(
            f"{layout.array.path}: its metadata is no strict JSON ({error})", kind="metadata", array=layout.array.path
        ) from error


def skipped(options: Mapping[str, object], problems: Mapping[str, str], form: str) -> frozenset[str]:
    """The arrays that the caller consents to leave out.

    Raises
    ------
    UnsupportedError
        Some array has a problem and is not among them; the message names each with its reason.
    """
    listed = options.get("skip", ())
    skip = frozenset(str(p) for p in listed) if isinstance(listed, list | tuple | set | frozenset) else frozenset()
    left = {path: reason for path, reason in problems.items() if path not in skip}
    if left:
        lines = "".join(f"\n  {path}: {reason}" for path, reason in sorted(left.items()))
        raise UnsupportedError(
            f"the form {form} cannot hold {len(left)} of the arrays; nothing was written; leave them out (arrays:) "
            f"or publish them as a store:{lines}",
            kind="no-virtual-form",
            arrays=", ".join(sorted(left)),
        )
    return skip

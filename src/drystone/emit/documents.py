"""Zarr metadata of published arrays, versions 2 and 3, as strict JSON values.

An array is published *virtual*, its chunks being references to source bytes in the source's own codec chain, or
*native*, its values written again in a plain chain. Everything here is a function of the combined array alone.

Zarr 2 has one field, ``fill_value``, for two things that HDF5 keeps apart: what unwritten chunks read as, and (to xarray)
which values are missing data. So it says the ``_FillValue`` attribute or nothing, and where unwritten chunks read as
another value they are given explicit bytes (:func:`explicit_fill`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from drystone.codecs.chain import Codec, CodecChain
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
    packed_dtype,
)
from drystone.codecs.zarr_names import name_problem
from drystone.errors import UnsupportedError
from drystone.model.array import GroupSpec
from drystone.model.placement import Combined, CombinedArray

__all__ = [
    "Layout",
    "array_v2",
    "array_v3",
    "explicit_fill",
    "group_v3",
    "groups_of",
    "layouts",
    "skipped",
    "spelled_out",
    "strict_json",
]

NATIVE_LIMIT = 16 << 20  # bytes of an array that is written natively because no reference can say it
_NATIVE_CHUNK = 16 << 20


@dataclass(frozen=True, slots=True)
class Layout:
    """How one array is stored in the published form.

    Parameters
    ----------
    array
        The combined array.
    native
        True where its values are written, False where its chunks are references.
    dtype, chunk_shape, codecs
        Of the stored chunks.
    fill
        One stored element, or None.
    """

    array: CombinedArray
    native: bool
    dtype: np.dtype
    chunk_shape: tuple[int, ...]
    codecs: CodecChain
    fill: bytes | None

    @classmethod
    def virtual(cls, array: CombinedArray) -> Layout:
        """References in the source's own chain.

        Raises
        ------
        UnsupportedError
            The source's chunks are no Zarr grid.
        """
        size = array.grid.regular_shape
        if array.unaligned is not None or size is None:
            reason = array.unaligned or "its chunks have different sizes along an axis"
            raise UnsupportedError(reason, kind="unaligned", array=array.path)
        return cls(array, False, array.stored_dtype, size, array.codecs, array.fill)

    @classmethod
    def written(cls, array: CombinedArray, compressor: Codec) -> Layout:
        """Values written again: little-endian, fields without gaps, one chunk up to 16 MiB."""
        text = array.dtype.kind == "T"
        dtype = packed_dtype(array.dtype)
        row = max(1, math.prod(array.shape[1:]) * dtype.itemsize)
        chunk = tuple(max(1, n) for n in array.shape)
        if chunk and math.prod(chunk) * dtype.itemsize > _NATIVE_CHUNK:
            chunk = (max(1, min(chunk[0], _NATIVE_CHUNK // row)), *chunk[1:])
        ordered = not text and dtype.newbyteorder("S") != dtype
        first = Codec.of("vlen-utf8") if text else Codec.of("bytes", **({"endian": "little"} if ordered else {}))
        fill = None if array.fill is None or text else array.fill_scalar.astype(dtype).tobytes()
        if not fill_survives(fill, dtype):
            fill = None  # every chunk is written: nothing reads as fill
        return cls(array, True, dtype, chunk, CodecChain.of(first, compressor), fill)

    @property
    def grid_shape(self) -> tuple[int, ...]:
        """Chunks along each axis."""
        return tuple(-(-n // c) for n, c in zip(self.array.shape, self.chunk_shape, strict=True))

    @property
    def n_chunks(self) -> int:
        """Chunks in all."""
        return math.prod(self.grid_shape)


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
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(layout.chunk_shape)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill_v3(layout.fill, layout.dtype),
        "codecs": codecs_v3(layout.codecs, layout.dtype),
        "attributes": attributes_v3(array.attributes, layout.dtype),
        "dimension_names": list(array.dims),
    }


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
        "fill_value": mask_fill_v2(layout.fill, array.attributes, layout.dtype, sparse=False),
        "order": "C",
        "dimension_separator": ".",
    }
    zattrs: dict[str, object] = {**attributes_v2(array.attributes, layout.dtype), "_ARRAY_DIMENSIONS": list(array.dims)}
    return zarray, zattrs


def explicit_fill(layout: Layout) -> bool:
    """Whether a Zarr 2 form must spell out unwritten chunks: its ``fill_value`` says something else than they read as."""
    said = mask_fill_v2(layout.fill, layout.array.attributes, layout.dtype, sparse=False)
    if said is None:
        # to zarr no fill value means zeros, but for times, where it means none
        return layout.dtype.kind in "mM" or (layout.fill is not None and any(layout.fill))
    try:
        return strict_json(fill_v2(layout.fill, layout.dtype)) != strict_json(said)
    except UnsupportedError:  # a NaN that Zarr 2 cannot say
        return True


def spelled_out(layout: Layout) -> bool:
    """Whether unwritten chunks must be given bytes in Zarr 3, since readers lose bits of its ``fill_value``."""
    return not layout.native and not fill_survives(layout.fill, layout.dtype)


def groups_of(combined: Combined) -> tuple[GroupSpec, ...]:
    """The groups whose names Zarr can hold."""
    return tuple(g for g in combined.groups if name_problem(g.path) is None)


def layouts(combined: Combined, version: int, compressor: Codec) -> tuple[dict[str, Layout], dict[str, str]]:
    """The layout of every array that this Zarr version can hold, and the reason for every other.

    Coordinates whose values are known and text are native; so is an array of at most 16 MiB that no reference can say.

    Parameters
    ----------
    combined
        The whole.
    version
        2 or 3.
    compressor
        Of native chunks.

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
            good[array.path] = _layout(array, array.path in combined.coordinates, version, compressor)
        except UnsupportedError as error:
            problems[array.path] = error.message
    return good, problems


def _layout(array: CombinedArray, known: bool, version: int, compressor: Codec) -> Layout:
    native = Layout.written(array, compressor)
    if known or array.dtype.kind == "T":
        _prove(native, version)
        return native
    try:
        virtual = Layout.virtual(array)
        _prove(virtual, version)
    except UnsupportedError as error:
        if math.prod(array.shape) * array.dtype.itemsize > NATIVE_LIMIT:
            raise
        try:
            _prove(native, version)
        except UnsupportedError:
            raise error from None
        return native
    return virtual


def _prove(layout: Layout, version: int) -> None:
    """Build the metadata once; what has no exact form raises."""
    document: object = array_v3(layout) if version == 3 else array_v2(layout)
    if version == 3 and spelled_out(layout) and any(v.sparse for v in layout.array.variants):
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

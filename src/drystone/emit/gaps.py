"""Places that no granule holds: what they read as, whether that says missing, and their chunks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from drystone.codecs.zarr_attributes import single
from drystone.codecs.zarr_forms import unkept_attributes
from drystone.emit.layout import ConstantChunks, Layout
from drystone.errors import UnsupportedError
from drystone.model.placement import CombinedArray
from drystone.plan.coverage import Coverage

__all__ = ["check_gap_cost", "gap_chunks", "says_missing"]

_MOST_CHUNKS = 1_000_000
_MOST_BYTES = 1 << 30


def says_missing(array: CombinedArray, version: int) -> bool:
    """Whether readers take what gaps read as for missing data.

    That needs a ``_FillValue`` that elements can have and Zarr keeps, or NaN, or that they read as no time or as the
    ``missing_value``.
    """
    attribute = array.attributes.get("_FillValue")
    if attribute is not None:
        kept = version == 2 or not unkept_attributes(array.attributes, array.stored_dtype)
        return kept and _is_element(single(attribute.value), array)
    if array.marks_missing:
        return True
    gap = array.gap_scalar
    if array.dtype.kind in "mM":
        return bool(np.isnat(gap))
    other = array.attributes.get("missing_value")
    return other is not None and _is_element(single(other.value), array) and bool(single(other.value) == gap)


def _is_element(value: object, array: CombinedArray) -> bool:
    """Whether an element of the array can have a value exactly."""
    if isinstance(value, str):
        return array.dtype.kind in "ST"
    if array.dtype.kind not in "biufc" or not isinstance(value, bool | int | float | complex | np.generic):
        return False
    with np.errstate(all="ignore"):
        try:
            cast = np.asarray(value).astype(array.dtype)
        except (OverflowError, ValueError, TypeError):
            return False
    return bool(cast == value) or bool(cast != cast and value != value)


def check_gap_cost(layout: Layout, element: NDArray[np.generic]) -> None:
    """Refuse gaps whose chunks would take more than a gigabyte, or number more than a million.

    Raises
    ------
    UnsupportedError
        ``gaps``.
    """
    array, gaps = layout.array, layout.gaps
    assert gaps is not None
    edges = [np.searchsorted(d.edges(), e) for d, e in zip(array.grid.dimensions, gaps.edges, strict=True)]
    cells = np.argwhere(~gaps.held)
    n = int(sum(np.prod([e[i + 1] - e[i] for e, i in zip(edges, c, strict=True)], dtype=np.int64) for c in cells.tolist()))
    shape = layout.encoded_shape((0,) * len(array.shape))
    raw = math.prod(shape) * layout.dtype.itemsize
    size = raw if raw * n <= _MOST_BYTES else len(ConstantChunks(layout, element)((0,) * len(shape)))
    if n > _MOST_CHUNKS or size * n > _MOST_BYTES:
        raise UnsupportedError(
            f"{array.path}: no granule holds {n} of its chunks, which must read as {element[()]!s} while chunks that granules "
            f"left unwritten read as {array.fill_scalar[()]!s}, so each would have to be written, {size * n} bytes in all; "
            "publish it as a store (rechunk), or leave the gaps out of the axis (axis: sequence)",
            kind="gaps",
            array=array.path,
        )


def gap_chunks(array: CombinedArray, gaps: Coverage) -> Iterator[tuple[int, ...]]:
    """Chunks of the whole that no granule holds any of.

    Raises
    ------
    UnsupportedError
        ``unaligned``: a gap begins or ends inside a chunk.
    """
    for start, stop in gaps.gaps():
        ranges = []
        for d, (dim, a, b) in enumerate(zip(array.grid.dimensions, start, stop, strict=True)):
            if not dim.is_edge(np.array([a, b])).all():
                raise UnsupportedError(
                    f"{array.path}: no granule holds elements {a} to {b} along {array.dims[d]}, which ends inside a chunk; "
                    "publish it as a store (rechunk)",
                    kind="unaligned",
                    array=array.path,
                )
            ranges.append(range(dim.index_to_chunk(a), dim.index_to_chunk(b - 1) + 1))
        yield from itertools.product(*ranges)

"""Chunks of plain bytes cut into slabs, so that files of different lengths share one grid and no byte moves.

A chunk without compression is its elements in C order, so a run of whole rows along its slowest axis is a run of its
bytes. Where granules' chunks do not line up along the axis they are joined on, slabs as long as the greatest common
divisor of every length and place involved do: a contiguous month of 31 days and one of 28 become 59 references.
"""

from __future__ import annotations

import math

import numpy as np

from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import RegularDimension
from drystone.model.array import ArraySpec
from drystone.model.placement import CombinedArray

__all__ = ["cut_grid", "is_cuttable"]

_MOST_SLABS = 10_000_000
_FEW_SLABS = 10_000
_LEAST_SLAB = 512  # bytes below which a reference costs more than it names


def is_cuttable(spec: ArraySpec, axis: int) -> bool:
    """Whether a run along ``axis`` of a chunk is a run of its bytes.

    Examples
    --------
    >>> from drystone.codecs.chain import CodecChain
    >>> a = ArraySpec("/v", ("t", "y"), (31, 9), (31, 9), np.dtype("<f4"), None, CodecChain.of("bytes"))
    >>> is_cuttable(a, 0), is_cuttable(a, 1)
    (True, False)
    """
    plain = len(spec.codecs.codecs) == 1 and spec.codecs.codecs[0].name == "bytes" and spec.dtype.kind != "T"
    return plain and all(n == 1 for n in spec.chunk_shape[:axis])


def cut_grid(array: CombinedArray) -> ChunkGrid | None:
    """The regular grid that cutting along the lead axis makes possible, the coarsest one; None where none is.

    None too where nothing need be cut, or slabs would be so small and many that references cost more than bytes.
    """
    p, lead = array.placements, array.placements.axis
    if array.unaligned is None or lead is None or not len(p) or array.made:
        return None
    used = np.unique(p.variant[p.count > 0]).tolist()
    first = array.variants[used[0]] if used else None
    if first is None:
        return None
    for i in used:
        v = array.variants[i]
        others = [n for d, n in enumerate(v.chunk_shape) if d != lead]
        if (
            array.recode(i) is not None
            or not is_cuttable(v, lead)
            or v.dtype != array.stored_dtype
            or v.codecs.signature() != array.codecs.signature()
            or not array.fills_as(v)
            or others != [n for d, n in enumerate(first.chunk_shape) if d != lead]
        ):
            return None
    for d, dim in enumerate(array.grid.dimensions):
        if d != lead and dim.regular_size != first.chunk_shape[d]:
            return None
    size = _slab(array, lead)
    grid = ChunkGrid(
        tuple(
            RegularDimension(n, size if d == lead else c)
            for d, (n, c) in enumerate(zip(array.shape, first.chunk_shape, strict=True))
        )
    )
    row = math.prod(n for d, n in enumerate(first.chunk_shape) if d != lead) * array.stored_dtype.itemsize
    if grid.n_chunks > _MOST_SLABS or (size * row < _LEAST_SLAB and grid.n_chunks > _FEW_SLABS):
        return None
    return grid


def _slab(array: CombinedArray, lead: int) -> int:
    """The greatest length that divides every chunk edge and every place at which one begins or ends."""
    p, extent = array.placements, array.shape[lead]
    held = p.count > 0
    variant, src, count, dest = p.variant[held], p.src_offset[held], p.count[held], p.dest[held]
    edge = np.array([v.chunk_shape[lead] for v in array.variants], np.int64)[variant]
    have = np.array([v.shape[lead] for v in array.variants], np.int64)[variant]
    padded = np.array([v.padded for v in array.variants], np.bool_)[variant]
    # the array may end within a slab whose bytes go on
    open_end = (dest + count == extent) & (padded | (src + count < have))
    numbers = np.concatenate([edge, src, dest, np.where(open_end, 0, count), np.where(padded, 0, have)])
    return max(1, int(np.gcd.reduce(numbers)))

"""Which places of the joined axes hold a granule, as arrays of their own: a fill value hides absence.

For each array with places that no granule holds there is ``<name>_coverage`` along its joined axes: 1 where a granule was
placed, 0 where none was.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from drystone.codecs.chain import Codec, CodecChain
from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.attributes import Attributes
from drystone.model.placement import Combined, CombinedArray, Placements

__all__ = ["with_coverage"]


def with_coverage(combined: Combined) -> Combined:
    """The whole with a coverage array beside every array that has gaps.

    Examples
    --------
    >>> with_coverage(Combined((), (), None)).arrays
    ()
    """
    arrays, coordinates = list(combined.arrays), dict(combined.coordinates)
    taken = {a.path for a in arrays}
    for array in combined.arrays:
        joined = tuple(d for d, name in enumerate(array.dims) if name in combined.axes)
        if array.made or not joined or array.path in combined.coordinates:
            continue
        held = _held(array, joined)
        path = f"{array.path}_coverage"
        if held.all() or path in taken:
            continue
        coordinates[path] = held
        arrays.append(_made(path, array, joined, held))
    return replace(combined, arrays=tuple(sorted(arrays, key=lambda a: a.path)), coordinates=coordinates)


def _held(array: CombinedArray, joined: tuple[int, ...]) -> np.ndarray:
    """int8, one element a place of the joined axes."""
    out = np.zeros(tuple(array.shape[d] for d in joined), np.int8)
    p = array.placements
    if joined == (p.axis,):
        change = np.zeros(out.size + 1, np.int64)
        np.add.at(change, p.dest, 1)
        np.add.at(change, p.dest + p.count, -1)
        return (np.cumsum(change)[:-1] > 0).astype(np.int8)
    for i in range(len(p)):
        box = p.box(i, array.shape)
        out[tuple(slice(box.dest[d], box.stop[d]) for d in joined)] = 1
    return out


def _made(path: str, array: CombinedArray, joined: tuple[int, ...], held: np.ndarray) -> CombinedArray:
    nothing, ids = np.zeros(0, np.int64), np.zeros(0, np.int32)
    attributes = Attributes.of(
        {
            "long_name": f"which places of {array.name} hold a granule",
            "flag_values": np.array([0, 1], np.int8),
            "flag_meanings": "no_granule granule",
        }
    )
    grid = ChunkGrid.regular(held.shape, tuple(max(1, n) for n in held.shape))
    return CombinedArray(
        path, tuple(array.dims[d] for d in joined), held.shape, held.dtype, held.dtype, None, CodecChain.of(Codec.of("bytes")),
        attributes, grid, None, Placements(None, ids, nothing, nothing, nothing, ids), (),
    )  # fmt: skip

"""How often the chunks of a tiled array are read: counted over its placements, since no one grid says where they lie.

A placement takes a box out of a granule's chunks, and regions of tasks cut that box again. Along one axis the pieces are the
chunks it takes from, and one more for each region edge inside that is no chunk edge; pieces of all axes multiply. Off the
combine axis that is one number a tile and variant, along it a column.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from drystone.grid.dimension import DimensionGrid
from drystone.model.placement import CombinedArray

__all__ = ["placed_chunks"]

type Int64 = NDArray[np.int64]


def placed_chunks(array: CombinedArray, regions: Sequence[DimensionGrid] | None = None, *, rows: bool = False) -> int:
    """Pairs of a region and a source chunk that share elements; without regions, the chunks themselves.

    A chunk that two placements take from counts for both.

    Parameters
    ----------
    regions
        Along each axis.
    rows
        Count rows along the slowest axis of more than one element, not chunks: for chunks that are read in parts.
    """
    p = array.placements
    total = 0
    for number in range(max(1, len(p.tiles))):
        part = p.tile_rows(number)
        for variant in np.unique(p.variant[part]).tolist():
            mine = np.arange(part.start, part.stop)[p.variant[part] == variant]
            mine = mine[p.count[mine] > 0]
            if not len(mine):
                continue
            edges = _edges(array.variants[variant].chunk_shape, rows)
            box = p.box(int(mine[0]), array.shape)
            others = 1
            for a, (src, count, dest) in enumerate(zip(box.src_offset, box.count, box.dest, strict=True)):
                if a != p.axis:
                    one, n, at = np.array([[src], [count], [dest]], np.int64)
                    others *= _pieces(one, n, at, edges[a], None if regions is None else regions[a])
            lead = 1
            if p.axis is not None:
                along = None if regions is None else regions[p.axis]
                lead = _pieces(p.src_offset[mine], p.count[mine], p.dest[mine], edges[p.axis], along)
            total += others * lead
    return total


def _edges(chunk: Sequence[int], rows: bool) -> tuple[int, ...]:
    slow = next((a for a, n in enumerate(chunk) if n > 1), None) if rows else None
    return tuple(1 if a == slow else n for a, n in enumerate(chunk))


def _pieces(src: Int64, count: Int64, dest: Int64, edge: int, regions: DimensionGrid | None) -> int:
    """Pieces of runs of elements along one axis, cut by chunk edges and region edges; runs ascend and do not overlap."""
    if not len(src) or not count.all():
        return 0
    chunks = int(((src + count - 1) // edge - src // edge + 1).sum())
    if regions is None:
        return chunks
    edges = regions.edges()
    cuts = edges[np.searchsorted(edges, dest[0], "right") : np.searchsorted(edges, dest[-1] + count[-1])]
    owner = np.searchsorted(dest, cuts, side="right") - 1
    inside = (cuts > dest[owner]) & (cuts < dest[owner] + count[owner])
    new = inside & ((cuts - dest[owner] + src[owner]) % edge != 0)
    return chunks + int(new.sum())

"""The combine axis of a request: which chunks of which granules hold its elements.

Along the combine axis an array is a row of *segments*: the run of elements that one granule's slab takes from one of its
chunks. Segments may leave gaps between them. :func:`cut` makes the segments that a request spans, :func:`resolve` keeps
those that hold a selected element and says which part of the chunk it is and where it goes. Both are columns: sixteen
thousand granules cost milliseconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drystone.errors import TableError
from drystone.grid.dimension import RectilinearDimension
from drystone.grid.operations import resolve_axis
from drystone.grid.parts import AxisPart, elements
from drystone.grid.selection import Indexed, NormalAxis
from drystone.model.array import ArraySpec
from drystone.model.placement import Placements

__all__ = ["Edges", "Lead", "Segments", "bounds", "cut", "resolve"]

type Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Segments:
    """Columns of equal length, sorted by ``dest``.

    Parameters
    ----------
    placement
        Row of the placements.
    chunk
        Chunk coordinate along the combine axis, within the granule.
    dest, size
        First element in the whole, and elements.
    local
        Where that element lies in the chunk.
    encoded
        Elements along the axis that the chunk's stored bytes decode to.
    """

    placement: NDArray[np.intp]
    chunk: Int64
    dest: Int64
    size: Int64
    local: Int64
    encoded: Int64

    def __len__(self) -> int:
        return len(self.placement)


@dataclass(frozen=True, slots=True)
class Lead:
    """The touched segments of a request, by ``dest``, as columns of equal length.

    Parameters
    ----------
    segment
        Row of the segments.
    parts
        For each: what to read along the axis within the chunk, and where it goes in the result.
    gap
        Places in the result that no segment holds.
    """

    segment: NDArray[np.intp]
    parts: Sequence[tuple[AxisPart, AxisPart]]
    gap: Int64


def bounds(axis: NormalAxis) -> tuple[int, int]:
    """First and last selected element; the selection is not empty."""
    if isinstance(axis, Indexed):
        return int(axis.indices.min()), int(axis.indices.max())
    ends = (axis.start, axis.start + axis.step * (axis.count - 1))
    return min(ends), max(ends)


@dataclass(frozen=True, slots=True)
class Edges:
    """Chunks along the combine axis, int64 columns with a row for each variant: made once for all tiles of a request."""

    edge: Int64
    extent: Int64
    padded: NDArray[np.bool_]

    @classmethod
    def of(cls, variants: Sequence[ArraySpec], axis: int) -> Edges:
        """Of an array's variants."""
        return cls(
            np.array([v.chunk_shape[axis] for v in variants], np.int64),
            np.array([v.shape[axis] for v in variants], np.int64),
            np.array([v.padded for v in variants], bool),
        )


def cut(placements: Placements, edges: Edges, axis: NormalAxis, tile: int = 0) -> Segments:
    """The segments of one tile between a request's first and last element."""
    low, high = bounds(axis)
    near = placements.within(tile, low, high + 1)
    rows = np.arange(near.start, near.stop)
    rows = rows[placements.count[rows] > 0]
    variant = placements.variant[rows]
    dest, edge, extent = placements.dest[rows], edges.edge[variant], edges.extent[variant]
    ends = placements.src_offset[rows] + placements.count[rows]
    if np.any(ends > extent) or np.any(placements.src_offset[rows] < 0):
        raise TableError(
            f"granules are placed with elements up to {int(ends.max())} along axis {placements.axis}, which not all of them "
            "have; the plan does not fit the scans; combine again",
            kind="plan-mismatch",
        )
    # only what the request spans: one granule may have a million chunks
    skip = np.maximum(0, low - dest)
    start = placements.src_offset[rows] + skip
    stop = placements.src_offset[rows] + np.minimum(placements.count[rows], high + 1 - dest)
    first, last = start // edge, (stop - 1) // edge
    n = last - first + 1
    which = np.repeat(np.arange(len(rows)), n)
    chunk = first[which] + np.arange(len(which)) - np.repeat(np.cumsum(n) - n, n)
    begin = np.maximum(chunk * edge[which], start[which])
    end = np.minimum((chunk + 1) * edge[which], stop[which])
    short = np.minimum(edge[which], extent[which] - chunk * edge[which])
    return Segments(
        placement=rows[which],
        chunk=chunk,
        dest=dest[which] + begin - placements.src_offset[rows][which],
        size=end - begin,
        local=begin - chunk * edge[which],
        encoded=np.where(edges.padded[variant][which], edge[which], short),
    )


def resolve(segments: Segments, axis: NormalAxis) -> Lead:
    """What a request touches: the grid's planner over one axis whose pieces are the segments and the gaps between them."""
    _, high = bounds(axis)
    stop = segments.dest + segments.size
    edges = np.unique(np.concatenate([[0, high + 1], segments.dest, stop]))
    owner = np.searchsorted(segments.dest, edges[:-1], side="right") - 1
    held = owner >= 0
    held[held] = edges[:-1][held] < stop[owner[held]]
    touched = resolve_axis(axis, RectilinearDimension(tuple(np.diff(edges).tolist())))
    segment, kept = owner[touched.chunk], held[touched.chunk]
    shift = np.zeros(len(touched), np.int64)
    shift[kept] = segments.local[segment[kept]]
    parts = touched.moved(shift).parts()
    if kept.all():
        return Lead(segment, parts, np.zeros(0, np.int64))
    gaps = [elements(out) for (_, out), is_held in zip(parts, kept.tolist(), strict=True) if not is_held]
    return Lead(segment[kept], list(itertools.compress(parts, kept.tolist())), np.sort(np.concatenate(gaps)))

"""The combine axis of a request: which chunks of which granules hold its elements.

Along the combine axis an array is a row of *segments*: the run of elements that one granule's slab takes from one of its
chunks. Segments may leave gaps between them. :func:`cut` makes the segments that a request spans, :func:`resolve` keeps
those that hold a selected element and says which part of the chunk it is and where it goes. Both are columns: sixteen
thousand granules cost milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drystone.grid.selection import Indexed, NormalAxis, Strided
from drystone.model.array import ArraySpec
from drystone.model.placement import Placements

__all__ = ["Lead", "Segments", "cut", "resolve"]

type Int64 = NDArray[np.int64]
type AxisPart = slice | Int64


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
    parts: list[tuple[AxisPart, AxisPart]]
    gap: Int64


def bounds(axis: NormalAxis) -> tuple[int, int]:
    """First and last selected element; the selection is not empty."""
    if isinstance(axis, Indexed):
        return int(axis.indices.min()), int(axis.indices.max())
    ends = (axis.start, axis.start + axis.step * (axis.count - 1))
    return min(ends), max(ends)


def cut(placements: Placements, variants: tuple[ArraySpec, ...], axis: NormalAxis) -> Segments:
    """The segments between a request's first and last element."""
    assert placements.axis is not None
    low, high = bounds(axis)
    rows = np.arange(len(placements))[placements.overlapping(low, high + 1)]
    rows = rows[placements.count[rows] > 0]
    edges = np.array([v.chunk_shape[placements.axis] for v in variants], np.int64)
    extents = np.array([v.shape[placements.axis] for v in variants], np.int64)
    padded = np.array([v.padded for v in variants], bool)
    variant = placements.variant[rows]
    dest, edge = placements.dest[rows], edges[variant]
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
    short = np.minimum(edge[which], extents[variant][which] - chunk * edge[which])
    return Segments(
        placement=rows[which],
        chunk=chunk,
        dest=dest[which] + begin - placements.src_offset[rows][which],
        size=end - begin,
        local=begin - chunk * edge[which],
        encoded=np.where(padded[variant][which], edge[which], short),
    )


def resolve(segments: Segments, axis: NormalAxis) -> Lead:
    """What a request touches."""
    return _indexed(segments, axis) if isinstance(axis, Indexed) else _strided(segments, axis)


def _strided(segments: Segments, axis: Strided) -> Lead:
    low, _ = bounds(axis)
    step = abs(axis.step)
    # selected elements are low + k * step; those of a segment are first <= k < stop
    first = np.maximum(0, -((low - segments.dest) // step))
    stop = np.minimum(axis.count, -((low - segments.dest - segments.size) // step))
    kept = np.flatnonzero(stop > first)
    first, stop = first[kept], stop[kept]
    covered = stop - first
    gap = np.zeros(0, np.int64)
    if int(covered.sum()) < axis.count:
        held = np.zeros(axis.count + 1, np.int64)
        np.add.at(held, first, 1)
        np.add.at(held, stop, -1)
        gap = np.flatnonzero(np.cumsum(held[:-1]) == 0).astype(np.int64)
    local = segments.local[kept] + low + first * step - segments.dest[kept]
    rows = zip(local.tolist(), first.tolist(), covered.tolist(), strict=True)
    parts: list[tuple[AxisPart, AxisPart]]
    if axis.step > 0:
        parts = [(slice(a, a + step * (n - 1) + 1, step), slice(k, k + n)) for a, k, n in rows]
    else:
        # read forwards, written backwards from the end
        gap = axis.count - 1 - gap[::-1]
        end = axis.count - 1
        parts = [
            (slice(a, a + step * (n - 1) + 1, step), slice(end - k, None if end - k - n < 0 else end - k - n, -1))
            for a, k, n in rows
        ]
    return Lead(kept, parts, gap)


def _indexed(segments: Segments, axis: Indexed) -> Lead:
    where = np.searchsorted(segments.dest, axis.indices, side="right") - 1
    held = where >= 0
    held[held] = axis.indices[held] < segments.dest[where[held]] + segments.size[where[held]]
    gap = np.flatnonzero(~held).astype(np.int64)
    order = np.argsort(where, kind="stable")
    order = order[held[order]]
    grouped = where[order]
    kept, first = np.unique(grouped, return_index=True)
    edges = [*first.tolist(), len(order)]
    shift = segments.local - segments.dest
    parts: list[tuple[AxisPart, AxisPart]] = []
    for segment, a, b in zip(kept.tolist(), edges[:-1], edges[1:], strict=True):
        places = order[a:b].astype(np.int64)
        parts.append((_as_slice(axis.indices[places] + shift[segment]), _as_slice(places)))
    return Lead(kept.astype(np.intp), parts, gap)


def _as_slice(values: Int64) -> AxisPart:
    """One element, or a run of neighbours, as a slice: no copy is made then."""
    n = len(values)
    if n == 1 or (int(values[-1]) - int(values[0]) == n - 1 and np.all(np.diff(values) == 1)):
        return slice(int(values[0]), int(values[-1]) + 1, 1)
    return values

"""One read, worked out: its groups of like granules, tile by tile, and what no granule holds.

Granules in one tile whose chunks decode alike (same dtype, codecs, fill and chunk shape) and become values of the whole
alike make one :class:`~drystone.fetch.group.Group`. An array whose placements are whole off the combine axis has one tile,
and what it lacks is places along that axis; of a tiled one the whole result is filled first where tiles leave gaps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from drystone.errors import TableError
from drystone.fetch.group import AxisTable, Group, Part
from drystone.fetch.lead import Edges, Lead, Segments, bounds, cut, resolve
from drystone.fetch.tiles import AxisCut, covers, cut_axis
from drystone.grid.dimension import RegularDimension
from drystone.grid.operations import resolve_axis
from drystone.grid.selection import NormalAxis
from drystone.model.array import ArraySpec
from drystone.model.placement import CombinedArray, Tile
from drystone.model.recode import Recode

__all__ = ["Request", "make_request"]

type Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Request:
    """Everything that one read needs to know.

    Parameters
    ----------
    kept_shape, out_shape
        Of the result, with and without the axes that integers drop.
    groups
        What is fetched.
    gap
        Places along the combine axis that no granule holds; of an array without tiles.
    holes
        Whether tiles leave elements that no granule holds, or may do so.
    """

    array: CombinedArray
    kept_shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    groups: list[Group] = field(default_factory=list)
    gap: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    holes: bool = False

    @property
    def granule_ids(self) -> NDArray[np.int32]:
        """Of every granule that holds a wanted element, ascending."""
        ids = [g.granule_id for g in self.groups]
        return np.unique(np.concatenate(ids)) if ids else np.zeros(0, np.int32)


def make_request(array: CombinedArray, axes: tuple[NormalAxis, ...]) -> Request:
    """Work out a read.

    Parameters
    ----------
    axes
        A normalised selection, one entry an axis.

    Raises
    ------
    TableError
        No granule holds the array, or placements do not fit it.
    """
    if array.made:
        raise TableError(
            f"{array.path}: no granule holds this array: it was made from file names or a step, and its values are among the "
            "coordinates of the whole; read them there",
            kind="made-array",
            path=array.path,
        )
    kept = tuple(a.count for a in axes)
    out = tuple(a.count for a in axes if not a.dropped)
    if 0 in kept:
        return Request(array, kept, out)
    if array.placements.is_tiled:
        return _tiled(array, axes, kept, out)
    segments, lead = _lead(array, axes, _edges(array), 0)
    groups = _groups(array, segments, lead, [AxisCut(a, 0) for a in axes], None)
    return Request(array, kept, out, groups, lead.gap, holes=array.placements.axis is None and not groups)


def _tiled(array: CombinedArray, axes: tuple[NormalAxis, ...], kept: tuple[int, ...], out: tuple[int, ...]) -> Request:
    placements = array.placements
    groups: list[Group] = []
    held: list[int] = []
    touched: list[Tile] = []
    ends, chunks = [bounds(a) for a in axes], _edges(array)
    for number, tile in enumerate(placements.tiles):
        _check_tile(array, tile)
        if any(
            a != placements.axis and (low >= stop or high < dest)
            for a, ((low, high), dest, stop) in enumerate(zip(ends, tile.dest, tile.stop, strict=True))
        ):
            continue
        cuts = [
            AxisCut(axis, 0) if a == placements.axis else cut_axis(axis, *box)
            for a, (axis, box) in enumerate(zip(axes, zip(tile.src_offset, tile.count, tile.dest, strict=True), strict=True))
        ]
        other = math.prod(c.axis.count for a, c in enumerate(cuts) if a != placements.axis)
        segments, lead = _lead(array, axes, chunks, number)
        if not other or not len(lead.segment):
            continue
        groups += _groups(array, segments, lead, cuts, tile)
        held.append(other * (1 if placements.axis is None else kept[placements.axis] - len(lead.gap)))
        touched.append(tile)
    if sum(held) > math.prod(kept):
        raise _mismatch(array, f"tiles hold {sum(held)} elements of {math.prod(kept)}, so some overlap")
    for group in groups:
        group.apart = len(groups) > 1
    return Request(array, kept, out, groups, holes=not covers(held, touched, math.prod(kept), placements.axis))


def _edges(array: CombinedArray) -> Edges | None:
    axis = array.placements.axis
    return None if axis is None else Edges.of(array.variants, axis)


def _lead(array: CombinedArray, axes: tuple[NormalAxis, ...], chunks: Edges | None, tile: int) -> tuple[Segments, Lead]:
    """What one tile's granules hold of a request along the combine axis."""
    axis = array.placements.axis
    if axis is not None and chunks is not None:
        segments = cut(array.placements, chunks, axes[axis], tile)
        return segments, resolve(segments, axes[axis])
    # without one, a single granule stands for all
    rows = array.placements.tile_rows(tile)
    row = np.arange(rows.start, min(rows.stop, rows.start + 1))
    zero = np.zeros(len(row), np.int64)
    lead = Lead(np.arange(len(row)), [(slice(0), slice(0))] * len(row), np.zeros(0, np.int64))
    return Segments(row, zero, zero, zero, zero, zero), lead


def _groups(array: CombinedArray, segments: Segments, lead: Lead, cuts: list[AxisCut], tile: Tile | None) -> list[Group]:
    """The groups of one tile."""
    axis = array.placements.axis
    placement = segments.placement[lead.segment]
    variants = array.placements.variant[placement]
    by_structure: dict[tuple[object, ...], list[int]] = {}
    for v in np.unique(variants).tolist():
        by_structure.setdefault((*_decoding(array.variants[v], axis), array.recode(v)), []).append(v)
    groups = []
    for members in by_structure.values():
        rows = np.arange(len(placement)) if len(by_structure) == 1 else np.flatnonzero(np.isin(variants, members))
        spec, recode = array.variants[members[0]], array.recode(members[0])
        _check(array, spec, recode, tile)
        groups.append(
            Group(
                axis,
                array.inner,
                spec,
                array.placements.granule_id[placement[rows]],
                segments.chunk[lead.segment[rows]],
                [
                    Part.of(*lead.parts[i], n)
                    for i, n in zip(rows.tolist(), segments.encoded[lead.segment[rows]].tolist(), strict=True)
                ],
                [_table(cuts[a], spec, a) for a in range(len(cuts)) if a != axis],
                recode,
                array.new_axes,
            )
        )
    return groups


def _decoding(spec: ArraySpec, axis: int | None) -> tuple[object, ...]:
    """What must be equal for granules to be read alike: all but attributes and the size along the combine axis."""
    shape = tuple(n for a, n in enumerate(spec.shape) if a != axis)
    return spec.dtype, spec.fill, spec.codecs, spec.chunk_shape, spec.sparse, spec.padded, shape


def _table(cut: AxisCut, spec: ArraySpec, a: int) -> AxisTable:
    extent, edge = spec.shape[a], spec.chunk_shape[a]
    dimension = RegularDimension(extent, edge)
    touched = resolve_axis(cut.axis, dimension)
    number = np.full(dimension.n_chunks, -1, np.intp)
    number[touched.chunk] = np.arange(len(touched))
    encoded = np.full(len(touched), edge) if spec.padded else dimension.data_sizes(touched.chunk)
    parts = [(local, cut.placed(out)) for local, out in touched.parts()]
    return AxisTable(number, [Part.of(*p, n) for p, n in zip(parts, encoded.tolist(), strict=True)])


def _mismatch(array: CombinedArray, what: str) -> TableError:
    return TableError(
        f"{array.path}: {what}; the plan does not fit the scans; combine again", kind="plan-mismatch", path=array.path
    )


def _check_tile(array: CombinedArray, tile: Tile) -> None:
    for a, (n, dest, stop) in enumerate(zip(array.shape, tile.dest, tile.stop, strict=True)):
        if a != array.placements.axis and not 0 <= dest <= stop <= n:
            raise _mismatch(array, f"a tile takes {dest} to {stop} along axis {a} ({array.dims[a]}) of {n} elements")


def _check(array: CombinedArray, spec: ArraySpec, recode: Recode | None, tile: Tile | None) -> None:
    """What the combine step promises; without it values could land in the wrong place."""
    for a, (n, m) in enumerate(zip(array.shape, spec.shape, strict=True)):
        if a == array.placements.axis:
            continue
        if tile is None and n != m:
            raise _mismatch(array, f"a granule has {m} elements along axis {a} ({array.dims[a]}) where the whole has {n}")
        if tile is not None and not 0 <= tile.src_offset[a] <= tile.src_offset[a] + tile.count[a] <= m:
            first, stop = tile.src_offset[a], tile.src_offset[a] + tile.count[a]
            raise _mismatch(
                array, f"a granule has {m} elements along axis {a} ({array.dims[a]}) and {first} to {stop} are wanted of it"
            )
    gives = spec.native_dtype if recode is None else recode.result.dtype
    if gives != array.dtype:
        raise _mismatch(array, f"a granule stores {spec.dtype}, which reads as {gives} where the whole has {array.dtype}")

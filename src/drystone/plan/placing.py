"""Where one array's granules land, from where granules land on the joined axes.

The order of an archive says for each granule which run of places it takes on every joined axis. An array takes part in
those axes that it has. Off them granules stand for one another: the first one's array is published, and a promise that the
others are equal goes to whoever can read values (:class:`~drystone.model.placement.Equal`).

Placements are columns along one *lead* axis, the one with most runs; the runs on other joined axes make a few tiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from drystone.errors import CombineError
from drystone.model.array import ArraySpec
from drystone.model.placement import Placements, Tile
from drystone.plan.members import ArrayMembers
from drystone.plan.order import Axis, Order

__all__ = ["Placed", "lifted", "place"]

type Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Placed:
    """One array's granules in place.

    Parameters
    ----------
    members
        One entry a placement, in the placements' order.
    placements
        Where they land; ``variant`` as the members'.
    shape
        Of the whole.
    joined
        Axes of the array that are joined, ascending.
    gaps
        Whether some place holds no granule.
    stands_for
        (granule, placed granule) of granules that are represented by another: int32 (n, 2).
    """

    members: ArrayMembers
    placements: Placements
    shape: tuple[int, ...]
    joined: tuple[int, ...]
    gaps: bool
    stands_for: NDArray[np.int32]


def lifted(members: ArrayMembers, axes: tuple[Axis, ...]) -> tuple[ArrayMembers, tuple[int, ...]]:
    """The array with new axes in front, one place each, and the numbers of those axes."""
    new = tuple(a.name for a in axes)
    if not new:
        return members, ()
    one = (1,) * len(new)

    def lift(spec: ArraySpec) -> ArraySpec:
        unlimited = (False,) * len(new) + (spec.unlimited or (False,) * len(spec.shape))
        return replace(
            spec, dims=new + spec.dims, shape=one + spec.shape, chunk_shape=one + spec.chunk_shape, unlimited=unlimited
        )

    values = tuple(v.reshape(one + v.shape) for v in members.coordinates)
    return replace(members, variants=tuple(lift(v) for v in members.variants), coordinates=values), tuple(range(len(new)))


def place(members: ArrayMembers, order: Order, names: Mapping[int, str]) -> Placed:
    """Put an array's granules in place.

    Raises
    ------
    CombineError
        Granules that stand for one another off the array's axes cover different parts of them.
    """
    dims = members.variants[0].dims
    has = [k for k, a in enumerate(order.axes) if a.name in dims]
    at = np.searchsorted(members.granule_id, order.granule_id)
    at[at == len(members)] = 0
    rows = np.flatnonzero(members.granule_id[at] == order.granule_id)
    if not has:
        return _static(members, at[rows])
    axes = [dims.index(order.axes[k].name) for k in has]
    boxes = np.stack([order.dest[rows][:, has], order.count[rows][:, has], order.src_offset[rows][:, has]], axis=2)
    kept, stands_for = _distinct(boxes, order.granule_id[rows], len(has) < len(order.axes))
    if len(has) < len(order.axes):
        _check_disjoint(members, boxes[kept], order.granule_id[rows][kept], names, [order.axes[k].name for k in has])
    boxes, at = boxes[kept], at[rows][kept]
    shape = list(members.variants[0].shape)
    for k, d in zip(has, axes, strict=True):
        shape[d] = order.axes[k].extent
    lead = int(np.argmax([len(np.unique(boxes[:, i, 0])) for i in range(len(has))]))
    tiles, tile = _tiles(boxes, axes, lead, shape)
    sort = np.lexsort((boxes[:, lead, 0], tile)) if len(tile) else np.argsort(boxes[:, lead, 0], kind="stable")
    chosen = members.take(at[sort])
    dest, count, src = (np.ascontiguousarray(boxes[sort, lead, i]) for i in range(3))
    number = tile[sort] if len(tile) else tile
    _check_tiles(members.path, tiles, number, dest, count, chosen.granule_id, names)
    placements = Placements(axes[lead], chosen.granule_id, src, count, dest, chosen.variant, tiles, number)
    held = int(np.prod(boxes[:, :, 1], axis=1).sum())
    due = int(np.prod([order.axes[k].extent for k in has]))
    return Placed(chosen, placements, tuple(shape), tuple(sorted(axes)), held < due, stands_for)


def _static(members: ArrayMembers, at: NDArray[np.intp]) -> Placed:
    """An array that has no joined axis: the first granule in order stands for all."""
    first = at[:1]
    zero = np.zeros(len(first), np.int64)
    chosen = members.take(first)
    placements = Placements(None, chosen.granule_id, zero, zero + 1, zero, chosen.variant)
    ids = np.unique(members.granule_id[at])
    others = ids[ids != chosen.granule_id[0]] if len(first) else ids[:0]
    stands_for = np.stack([others, np.full(len(others), chosen.granule_id[0] if len(first) else 0)], axis=1).astype(np.int32)
    return Placed(chosen, placements, members.variants[0].shape, (), False, stands_for)


def _distinct(boxes: Int64, granule_id: NDArray[np.int32], projected: bool) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """Rows to keep, one for each distinct box, and the granules that the others stand for."""
    n = len(boxes)
    if not projected or not n:
        return np.arange(n), np.zeros((0, 2), np.int32)
    _, first, group = np.unique(boxes.reshape(n, -1), axis=0, return_index=True, return_inverse=True)
    shown = granule_id[first[group.reshape(-1)]]
    other = shown != granule_id
    pairs = np.stack([granule_id[other], shown[other]], axis=1).astype(np.int32)
    return np.sort(first), np.unique(pairs, axis=0).reshape(-1, 2)


def _check_disjoint(
    members: ArrayMembers, boxes: Int64, granule_id: NDArray[np.int32], names: Mapping[int, str], axes: list[str]
) -> None:
    """Along one axis, runs of different granules are the same run or do not meet."""
    if boxes.shape[1] != 1:
        return  # a box in several axes: the placements themselves say if two meet
    sort = np.argsort(boxes[:, 0, 0], kind="stable")
    dest, count = boxes[sort, 0, 0], boxes[sort, 0, 1]
    bad = np.flatnonzero(dest[1:] < (dest + count)[:-1])
    if not len(bad):
        return
    i = int(bad[0])
    one, two = (names[int(granule_id[sort[j]])] for j in (i, i + 1))
    raise CombineError(
        f"{members.path} has the axis {axes[0]} and not the others that are joined; {one} holds its places {dest[i]} to "
        f"{dest[i] + count[i]} and {two} places {dest[i + 1]} to {dest[i + 1] + count[i + 1]}: parts of one another, so "
        "neither stands for both; leave the variable out with combine: {variables: […]}, or cut the granules alike",
        kind="axis-overlap",
        variable=members.path,
        granule=one,
        other=two,
    )


def _check_tiles(
    path: str,
    tiles: tuple[Tile, ...],
    number: NDArray[np.int32],
    dest: Int64,
    count: Int64,
    granule_id: NDArray[np.int32],
    names: Mapping[int, str],
) -> None:
    """Granules of different tiles hold no element together; within one tile the placements themselves see to that."""
    if len(tiles) < 2:
        return
    low = np.array([t.dest for t in tiles], np.int64)
    high = np.array([t.stop for t in tiles], np.int64)
    off = high.max(axis=0) > 0  # the lead axis has no numbers here
    first = np.searchsorted(number, np.arange(len(tiles) + 1))
    for i in range(len(tiles) - 1):
        meets = np.all((low[i + 1 :, off] < high[i, off]) & (high[i + 1 :, off] > low[i, off]), axis=1)
        mine = slice(first[i], first[i + 1])
        for j in (np.flatnonzero(meets) + i + 1).tolist():
            other = slice(first[j], first[j + 1])
            at = np.searchsorted((dest + count)[other], dest[mine], side="right") + other.start
            near = np.flatnonzero(at < other.stop)
            near = near[dest[at[near]] < (dest + count)[mine][near]]
            if len(near):
                one, two = (names[int(granule_id[k])] for k in (mine.start + near[0], at[near[0]]))
                raise CombineError(
                    f"{path}: {one} and {two} hold elements of the whole together (around place {dest[at[near[0]]]} of "
                    "the axis they are joined along), and nothing says which of them counts; leave the variable out "
                    "with combine: {variables: […]}, or cut the granules alike",
                    kind="axis-overlap",
                    variable=path,
                    granule=one,
                    other=two,
                )


def _tiles(boxes: Int64, axes: list[int], lead: int, shape: list[int]) -> tuple[tuple[Tile, ...], NDArray[np.int32]]:
    """The distinct places off the lead axis, and each row's."""
    if len(axes) == 1:
        return (), np.zeros(0, np.int32)
    off = [i for i in range(len(axes)) if i != lead]
    keys, number = np.unique(boxes[:, off].reshape(len(boxes), -1), axis=0, return_inverse=True)
    tiles = []
    for key in keys.reshape(len(keys), len(off), 3).tolist():
        src, count, dest = [0] * len(shape), list(shape), [0] * len(shape)
        count[axes[lead]] = 0
        for i, (d, c, s) in zip(off, key, strict=True):
            src[axes[i]], count[axes[i]], dest[axes[i]] = s, c, d
        tiles.append(Tile(tuple(src), tuple(count), tuple(dest)))
    return tuple(tiles), number.reshape(-1).astype(np.int32)

"""Boxes of granules in the space of the axes, and which granule counts where two hold one place.

Boxes are cut along each other's edges into cells only where they meet; most archives have none that do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drystone.errors import CombineError
from drystone.plan.order_crop import Contained, halves
from drystone.plan.order_keys import distinct
from drystone.plan.order_places import Places

__all__ = ["Boxes", "Clash", "first_gaps", "product", "resolve"]

_MOST_CELLS = 50_000_000


@dataclass(frozen=True, slots=True)
class Boxes:
    """Boxes as rows.

    ``granule`` int64 (m,): index among the granules by id; ``src``, ``count``, ``dest`` int64 (m, k).
    """

    granule: NDArray[np.int64]
    src: NDArray[np.int64]
    count: NDArray[np.int64]
    dest: NDArray[np.int64]

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> Boxes:
        """Some rows, or the same in another order."""
        return Boxes(self.granule[rows], self.src[rows], self.count[rows], self.dest[rows])

    def sorted(self) -> Boxes:
        """Rows in order of dest, the first axis counting most."""
        return self.take(np.lexsort(self.dest.T[::-1]))


@dataclass(frozen=True, slots=True)
class Clash:
    """Two boxes, by row, that hold one place, and the first such place."""

    one: int
    two: int
    place: tuple[int, ...]


def product(places: list[Places], n: int) -> Boxes:
    """Each granule's runs on every axis, crossed."""
    granule = np.arange(n, dtype=np.int64)
    columns: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]] = []
    for p in places:
        segment = p.keys.segment[granule]
        runs = (p.start[segment + 1] - p.start[segment]).astype(np.int64)
        row = np.repeat(np.arange(len(granule)), runs)
        run = p.start[segment][row] + np.arange(len(row)) - np.repeat(np.cumsum(runs) - runs, runs)
        granule = granule[row]
        columns = [(a[row], b[row], c[row]) for a, b, c in columns]
        columns.append((p.src[run], p.count[run], p.dest[run]))
    src, count, dest = (np.stack([c[i] for c in columns], axis=1) for i in range(3))
    return Boxes(granule, src, count, dest)


@dataclass(frozen=True, slots=True)
class _Cells:
    """Cells of a compressed grid that boxes cover: the row, the cell's number along each axis, one number for it all."""

    row: NDArray[np.int64]
    at: NDArray[np.int64]
    code: NDArray[np.int64]
    edges: tuple[NDArray[np.int64], ...]


def _edges(boxes: Boxes, more: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    """Along each axis, where boxes start and stop; and ``more``, int64 (j, k)."""
    ends = np.concatenate([more, boxes.dest, boxes.dest + boxes.count])
    return tuple(distinct(ends[:, d]).astype(np.int64) for d in range(ends.shape[1]))


def _cells(boxes: Boxes, cuts: NDArray[np.int64] | None = None) -> _Cells:
    k = boxes.dest.shape[1]
    edges = _edges(boxes, np.zeros((0, k), np.int64) if cuts is None else cuts)
    low = np.stack([np.searchsorted(edges[d], boxes.dest[:, d]) for d in range(k)], axis=1)
    high = np.stack([np.searchsorted(edges[d], boxes.dest[:, d] + boxes.count[:, d]) for d in range(k)], axis=1)
    span = (high - low).astype(np.int64)
    number = span.prod(axis=1)
    if int(number.sum()) > _MOST_CELLS:
        raise CombineError(
            f"{len(boxes.granule)} granules cut one another into {int(number.sum())} pieces, more than {_MOST_CELLS}; combine "
            "fewer of them at once",
            kind="axis-pieces",
        )
    row = np.repeat(np.arange(len(number)), number)
    inner = np.arange(len(row)) - np.repeat(np.cumsum(number) - number, number)
    at = np.empty((len(row), k), np.int64)
    for d in range(k - 1, -1, -1):
        at[:, d] = low[row, d] + inner % span[row, d]
        inner //= span[row, d]
    code = np.zeros(len(row), np.int64)
    for d in range(k):
        code = code * len(edges[d]) + at[:, d]
    return _Cells(row, at, code, edges)


def resolve(
    boxes: Boxes,
    spatial: tuple[int, ...],
    duplicates: Callable[[], NDArray[np.int64] | None],
    overlap: Callable[[], NDArray[np.int64] | None],
    refuse: Callable[[Boxes, list[Clash], bool], None],
    *,
    crop: bool = False,
) -> Boxes:
    """One granule for each place.

    Parameters
    ----------
    boxes
        As they are.
    spatial
        Axes along which boxes are tiles: boxes that are equal there are duplicates, others overlap.
    duplicates, overlap
        Give the rank of each granule, of which the lowest counts; or None: refuse. Asked only where boxes meet.
    refuse
        Called with the boxes, some clashes and whether they overlap as tiles; raises.
    crop
        Cut tiles that overlap half way, instead of asking ``overlap``.

    Returns
    -------
    Boxes
        Disjoint, sorted by dest.
    """
    held = np.flatnonzero((boxes.count > 0).all(axis=1))
    boxes = boxes.take(held)
    if not len(held):
        return boxes
    cells = _cells(boxes)
    if len(distinct(cells.code)) == len(cells.code):
        return boxes.sorted()
    limits = None
    if crop:
        half = halves(boxes.dest, boxes.count, spatial)
        if isinstance(half, Contained):
            place = np.maximum(boxes.dest[half.one], boxes.dest[half.two]).tolist()
            refuse(boxes, [Clash(half.one, half.two, tuple(place))], True)
        else:
            limits, cells = half, _cells(boxes, np.concatenate(half))
    tile = np.zeros(len(boxes.granule), np.int64)
    if spatial:
        columns = [a[:, list(spatial)] for a in (boxes.dest, boxes.count)]
        tile = np.unique(np.concatenate(columns, axis=1), axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    kept = np.arange(len(cells.row))
    rank: NDArray[np.int64] | None
    for group, policy, tiles in ((tile, duplicates, False), (np.zeros_like(tile), overlap, True)):
        rows = cells.row[kept]
        if tiles and limits is not None:
            place = np.argsort(np.lexsort(boxes.dest.T[::-1]))
            rank, order = place, _outside(cells, kept, limits) * len(place) + place[rows]
        else:
            rank = policy()
            order = np.zeros(len(rows), np.int64) if rank is None else rank[boxes.granule[rows]]
        kept = kept[np.lexsort((order, group[rows], cells.code[kept]))]
        rows = cells.row[kept]
        same = (np.diff(cells.code[kept]) == 0) & (np.diff(group[rows]) == 0)
        if not same.any():
            continue
        wins = np.append(True, ~same)
        if rank is None:
            refuse(boxes, _clashes(cells, kept, wins), tiles)
        kept = kept[wins]
    return _recut(boxes, cells, kept).sorted()


def _outside(cells: _Cells, kept: NDArray[np.intp], limits: tuple[NDArray[np.int64], NDArray[np.int64]]) -> NDArray[np.int64]:
    """Along how many axes each cell lies outside what is left of its box."""
    row, out = cells.row[kept], np.zeros(len(kept), np.int64)
    for d, edges in enumerate(cells.edges):
        at = cells.at[kept, d]
        out += (edges[at] < limits[0][row, d]) | (edges[at + 1] > limits[1][row, d])
    return out


def _clashes(cells: _Cells, kept: NDArray[np.intp], wins: NDArray[np.bool_]) -> list[Clash]:
    """Pairs of boxes that meet, each once, in order of place; no more than twenty."""
    winner = kept[np.maximum.accumulate(np.where(wins, np.arange(len(wins)), 0))][~wins]
    loser = kept[~wins]
    low, high = np.minimum(cells.row[winner], cells.row[loser]), np.maximum(cells.row[winner], cells.row[loser])
    first = np.sort(np.unique(low * (int(high.max()) + 1) + high, return_index=True)[1])[:20].tolist()
    places = [tuple(int(e[c]) for e, c in zip(cells.edges, cells.at[loser[i]], strict=True)) for i in first]
    return [Clash(int(low[i]), int(high[i]), place) for i, place in zip(first, places, strict=True)]


def _recut(boxes: Boxes, cells: _Cells, kept: NDArray[np.intp]) -> Boxes:
    """The boxes that lost nothing, and the cells of the others, put together again where they lie side by side."""
    lost = np.bincount(cells.row, minlength=len(boxes.granule)) != np.bincount(cells.row[kept], minlength=len(boxes.granule))
    whole = boxes.take(~lost)
    kept = kept[lost[cells.row[kept]]]
    row, at = cells.row[kept], cells.at[kept]
    k = at.shape[1]
    dest = np.stack([cells.edges[d][at[:, d]] for d in range(k)], axis=1)
    stop = np.stack([cells.edges[d][at[:, d] + 1] for d in range(k)], axis=1)
    src, count = boxes.src[row] + dest - boxes.dest[row], stop - dest
    for d in range(k - 1, -1, -1):
        row, src, count, dest = _merged(row, src, count, dest, d)
    cut = Boxes(boxes.granule[row], src, count, dest)
    return Boxes(*(np.concatenate([getattr(whole, f), getattr(cut, f)]) for f in ("granule", "src", "count", "dest")))


def _merged(
    row: NDArray[np.int64], src: NDArray[np.int64], count: NDArray[np.int64], dest: NDArray[np.int64], d: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Cells of one box that differ along one axis only and touch there, as one."""
    others = [i for i in range(dest.shape[1]) if i != d]
    order = np.lexsort((dest[:, d], *(dest[:, i] for i in others), *(count[:, i] for i in others), row))
    row, src, count, dest = row[order], src[order], count[order], dest[order]
    joins = (row[1:] == row[:-1]) & (dest[1:, d] == dest[:-1, d] + count[:-1, d])
    for i in others:
        joins &= (dest[1:, i] == dest[:-1, i]) & (count[1:, i] == count[:-1, i])
    first = np.flatnonzero(np.append(True, ~joins)) if len(row) else np.zeros(0, np.intp)
    total = count[first].copy()
    if len(first):
        total[:, d] = np.add.reduceat(count[:, d], first)
    return row[first], src[first], total, dest[first]


def first_gaps(boxes: Boxes, extent: tuple[int, ...], most: int = 3) -> tuple[int, list[tuple[int, ...]]]:
    """How many places no box holds, and the first of them, one a hole.

    Examples
    --------
    >>> q = lambda *v: np.array(v, np.int64).reshape(-1, 1)
    >>> first_gaps(Boxes(np.array([0, 1]), q(0, 0), q(2, 1), q(0, 4)), (6,))
    (3, [(2,), (5,)])
    """
    total = int(np.prod([int(n) for n in extent], dtype=object))
    missing = total - sum(int(v) for v in boxes.count.prod(axis=1).tolist())
    if not missing or not len(extent):
        return missing, []
    edges = _edges(boxes, np.array([[0] * len(extent), extent], np.int64))
    shape = tuple(len(e) - 1 for e in edges)
    if np.prod([float(n) for n in shape]) > _MOST_CELLS:
        return missing, []
    empty = np.ones(shape, np.bool_)
    for dest, count in zip(boxes.dest, boxes.count, strict=True):
        empty[
            tuple(
                slice(int(np.searchsorted(e, a)), int(np.searchsorted(e, a + n)))
                for e, a, n in zip(edges, dest, count, strict=True)
            )
        ] = False
    holes = np.argwhere(empty)[:most]
    return missing, [tuple(int(e[i]) for e, i in zip(edges, hole, strict=True)) for hole in holes]

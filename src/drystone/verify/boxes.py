"""Which boxes of an array a witness compares: pure integers, standard library only.

The witness loads this file by its path, so it imports nothing of drystone's.

*Full* tiles the array with slabs of whole published chunks, at most a budget of bytes where one chunk allows it, grown
along the axes that granules hold whole first: a granule's chunk is then decoded in as few slabs as the budget permits.

*Sample* draws boxes until their cells add up to a share. A published chunk may hold many granules (a time series) and a
granule many published chunks (a map), so a box that is thin on one side costs all of the other: a box spans about the
square root of the granules that one published chunk holds, and the same share of every other axis. The first cell, the
last cell and a few edges between granules, where off-by-one errors live, are always in.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Box", "Layout", "sample", "slabs"]

type Box = tuple[tuple[int, ...], tuple[int, ...]]

_EDGES = 4  # edges between granules that are always looked at
_BOXES = 8  # a share is cut into this many boxes at least
_WHOLE_BYTES = 1 << 16  # smaller arrays of few granules are compared whole
_FEW = 64


@dataclass(frozen=True)
class Layout:
    """A published array and where granules lie in it.

    Parameters
    ----------
    shape, chunk
        Of the published array, in elements.
    itemsize
        Bytes an element.
    axis
        The combine axis, or None.
    dest, count
        First element and elements along ``axis`` of each granule, ascending within a tile; unused without an axis.
    tiles
        Where granules share few places off the axis: the first element and the elements of each, an entry an axis, and the
        granules it has, first and behind last. Empty: one that is whole.
    """

    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    itemsize: int
    axis: int | None = None
    dest: Sequence[int] = ()
    count: Sequence[int] = ()
    tiles: Sequence[tuple[Sequence[int], Sequence[int], int, int]] = ()

    @property
    def cells(self) -> int:
        """Elements in all."""
        return math.prod(self.shape)


def slabs(layout: Layout, budget: int) -> Iterator[Box]:
    """Boxes that tile the array, each of at most ``budget`` bytes, or one chunk where that is larger.

    Examples
    --------
    >>> list(slabs(Layout((4, 6), (2, 3), 1, 0, (0, 2), (2, 2)), budget=12))
    [((0, 0), (2, 6)), ((2, 0), (4, 6))]
    """
    if layout.cells == 0:
        return
    edges = [max(1, min(n, c)) for n, c in zip(layout.shape, layout.chunk, strict=True)]
    grow = [d for d in reversed(range(len(edges))) if d != layout.axis]
    if layout.axis is not None:
        grow.append(layout.axis)
    for d in grow:
        room = budget // max(1, math.prod(edges) * layout.itemsize)
        edges[d] = min(layout.shape[d], edges[d] * max(1, room))
    order = [range(0, n, e) for n, e in zip(layout.shape, edges, strict=True)]
    yield from _tiles(order, edges, layout.shape)


def _tiles(order: list[range], edges: list[int], shape: tuple[int, ...]) -> Iterator[Box]:
    start = [0] * len(order)

    def walk(d: int) -> Iterator[Box]:
        if d == len(order):
            yield tuple(start), tuple(min(a + e, n) for a, e, n in zip(start, edges, shape, strict=True))
            return
        for a in order[d]:
            start[d] = a
            yield from walk(d + 1)

    return walk(0)


def sample(layout: Layout, share: float, seed: int, label: str, budget: int) -> list[Box]:
    """Boxes whose cells add up to about ``share`` of the array; the same for the same seed and label.

    Examples
    --------
    >>> layout = Layout((1000, 400, 400), (1, 400, 400), 2, 0, range(1000), [1] * 1000)
    >>> chosen = sample(layout, 0.01, 7, "/sst", 1 << 26)
    >>> chosen == sample(layout, 0.01, 7, "/sst", 1 << 26)
    True
    >>> chosen[0][0], chosen[1][1]
    ((0, 0, 0), (1000, 400, 400))
    """
    if layout.cells == 0:
        return []
    if layout.axis is not None and not layout.dest:
        layout = Layout(layout.shape, layout.chunk, layout.itemsize)  # gaps alone: no granule's edges to look at
    granules = max(len(layout.dest) if layout.axis is not None else 1, len(layout.tiles))
    if share >= 1 or (layout.cells * layout.itemsize <= _WHOLE_BYTES and granules <= _FEW):
        return list(slabs(layout, budget))
    target = math.ceil(share * layout.cells)
    size = max(1, min(target // _BOXES, budget // layout.itemsize))
    where = random.Random(f"{seed}:{label}")  # noqa: S311  no secret
    # one choice of granules for all arrays that share them: fewer files are opened
    who = random.Random(f"{seed}:{granules}:{layout.shape[layout.axis] if layout.axis is not None else 0}")  # noqa: S311 - a sample, no secret
    boxes = [_box(layout, 0, size, None, first=True), _box(layout, granules - 1, size, None, first=False)]
    boxes += [_edge_box(layout, who.randrange(1, granules), size, where) for _ in range(min(_EDGES, granules - 1))]
    if layout.tiles:
        boxes += [_corner(layout, size, first) for first in (True, False)]
        boxes += [_box(layout, _any_of(layout, t, where), size, where) for t in _spread(len(layout.tiles))]
    covered = sum(_volume(b) for b in boxes)
    while covered < target:
        box = _box(layout, who.randrange(granules), size, where)
        boxes.append(box)
        covered += _volume(box)
    return boxes


def _volume(box: Box) -> int:
    return math.prod(b - a for a, b in zip(*box, strict=True))


def _spread(tiles: int) -> list[int]:
    """The tiles that are always looked at: all of a few, some of many."""
    return sorted({round(i * (tiles - 1) / max(1, _FEW - 1)) for i in range(_FEW)})


def _any_of(layout: Layout, tile: int, where: random.Random) -> int:
    """A granule of a tile, or of the layout's own numbering where there are only tiles."""
    if layout.axis is None:
        return tile
    first, behind = layout.tiles[tile][2:]
    return where.randrange(first, max(behind, first + 1))


def _tile(layout: Layout, granule: int) -> tuple[Sequence[int], Sequence[int], int, int]:
    """The tile that a granule is in."""
    if not layout.tiles:
        return (0,) * len(layout.shape), layout.shape, 0, len(layout.dest)
    if layout.axis is None:
        return layout.tiles[granule]
    return next(t for t in layout.tiles if granule < t[3])


def _corner(layout: Layout, size: int, first: bool) -> Box:
    extents = _extents(list(layout.shape), size)
    start = [0 if first else n - e for n, e in zip(layout.shape, extents, strict=True)]
    return tuple(start), tuple(a + e for a, e in zip(start, extents, strict=True))


def _box(layout: Layout, granule: int, size: int, where: random.Random | None, first: bool = True) -> Box:
    """About ``size`` cells within a run of granules; in its first or last corner where no generator is given."""
    low, counts, *_ = _tile(layout, granule)
    low, high = list(low), [a + n for a, n in zip(low, counts, strict=True)]
    if layout.axis is not None:
        low[layout.axis], high[layout.axis] = _run(layout, granule)
    spans = [b - a for a, b in zip(low, high, strict=True)]
    extents = _extents(spans, size)
    start = []
    for a, span, extent in zip(low, spans, extents, strict=True):
        start.append(a + (where.randint(0, span - extent) if where else (0 if first else span - extent)))
    return tuple(start), tuple(a + e for a, e in zip(start, extents, strict=True))


def _run(layout: Layout, granule: int) -> tuple[int, int]:
    """Elements along the axis of a granule and its neighbours, about the root of what one published chunk holds."""
    axis = layout.axis
    assert axis is not None
    _, _, begin, behind = _tile(layout, granule) if layout.dest else ((), (), 0, 0)
    n = behind - begin
    if n <= 0:
        return 0, layout.shape[axis]
    mean = max(1, layout.shape[axis] // n)
    m = max(1, min(16, math.isqrt(layout.chunk[axis] // mean), n))
    first = min(granule, behind - m)
    # gaps before the first and after the last granule are part of the array too
    low = 0 if first == begin else layout.dest[first]
    last = first + m - 1
    high = layout.shape[axis] if last == behind - 1 else layout.dest[last] + layout.count[last]
    return (low, high) if high > low else (0, layout.shape[axis])


def _edge_box(layout: Layout, granule: int, size: int, where: random.Random) -> Box:
    """The last element of what lies before a granule and its first one; of tiles, along an axis that they are cut on."""
    low, counts, *_ = _tile(layout, granule)
    starts = list(low)
    if layout.axis is not None:
        starts[layout.axis] = layout.dest[granule]
    cut = [d for d, a in enumerate(starts) if a > 0]
    axis = where.choice(cut) if layout.tiles and cut else layout.axis
    if axis is None:
        return _box(layout, granule, size, where)
    at = min(max(1, starts[axis]), max(1, layout.shape[axis] - 1))
    begin, end = at - 1, min(at + 1, layout.shape[axis])
    spans = list(counts) if layout.tiles else list(layout.shape)
    if layout.tiles and layout.axis is not None:
        spans[layout.axis] = max(1, layout.count[granule])
    spans[axis] = 1
    extents = _extents(spans, max(1, size // 2))
    start = [a * bool(layout.tiles) + where.randint(0, n - e) for a, n, e in zip(starts, spans, extents, strict=True)]
    start[axis], extents[axis] = begin, end - begin
    return tuple(start), tuple(a + e for a, e in zip(start, extents, strict=True))


def _extents(spans: list[int], size: int) -> list[int]:
    """The same fraction of every axis, about ``size`` cells, at least one element each."""
    extents = list(spans)
    for _ in range(len(spans)):
        open_axes = [d for d, n in enumerate(spans) if n > 1 and extents[d] > 1]
        if not open_axes or math.prod(extents) <= size:
            break
        fraction = (size / math.prod(extents)) ** (1 / len(open_axes))
        for d in open_axes:
            extents[d] = max(1, round(extents[d] * fraction))
    return extents

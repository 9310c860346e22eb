"""Which granule holds which part of a box of the whole.

The witness loads this file by its path, so it imports nothing of drystone's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

__all__ = ["Piece", "Placed", "thin", "uncovered", "volume"]

type Index = tuple[int, ...]


@dataclass(frozen=True)
class Piece:
    """A part of a box that one granule holds, or none (``granule`` None); ``shift`` is the whole's index minus its own."""

    start: Index
    stop: Index
    granule: str | None
    shift: Index


class Placed:
    """Placements of one job.

    Parameters
    ----------
    columns
        As ``drystone.verify.run`` writes them: ``axis``, ``granule``, ``src``, ``count``, ``dest`` along it; ``tiles`` as
        lists of ``src``, ``count`` and ``dest``, each with an entry an axis, and each placement's ``tile``, or neither.
    names
        Granule id, as text, to path or URL.

    Examples
    --------
    >>> columns = {"axis": 0, "granule": [7, 8], "src": [0, 2], "count": [2, 2], "dest": [0, 3], "tiles": [], "tile": []}
    >>> placed = Placed(columns, {"7": "a.nc", "8": "b.nc"})
    >>> for piece in placed.pieces((1, 0), (4, 5)):
    ...     print(piece.granule, piece.start, piece.stop, piece.shift)
    a.nc (1, 0) (2, 5) (0, 0)
    b.nc (3, 0) (4, 5) (1, 0)
    """

    def __init__(self, columns: Mapping[str, Any], names: Mapping[str, str]) -> None:
        self.axis: int | None = columns["axis"]
        self._names = names
        self._granule: list[int] = columns["granule"]
        self._src, self._count, self._dest = (np.array(columns[k], np.int64) for k in ("src", "count", "dest"))
        tiles: list[list[list[int]]] = columns["tiles"]
        self._tile_src, self._tile_count, self._tile_dest = (
            np.array([t[k] for t in tiles] or np.zeros((0, 0)), np.int64) for k in range(3)
        )
        numbers = np.array(columns["tile"], np.int64) if columns["tile"] else np.zeros(len(self._granule), np.int64)
        self._tile = numbers
        edges = np.searchsorted(numbers, np.arange(max(1, len(tiles)) + 1))
        self._rows = [(int(a), int(b)) for a, b in pairwise(edges)]

    def __len__(self) -> int:
        return len(self._granule)

    def box(self, i: int, shape: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
        """``src``, ``count`` and ``dest`` of one placement, an entry an axis."""
        if len(self._tile_src):
            t = int(self._tile[i])
            src, count, dest = (c[t].tolist() for c in (self._tile_src, self._tile_count, self._tile_dest))
        else:
            src, count, dest = [0] * len(shape), list(shape), [0] * len(shape)
        if self.axis is not None:
            src[self.axis], count[self.axis], dest[self.axis] = int(self._src[i]), int(self._count[i]), int(self._dest[i])
        return src, count, dest

    def tiles(self) -> list[tuple[list[int], list[int], int, int]]:
        """First element and elements of each tile, an entry an axis, and its placements: the first, and the one behind."""
        if not len(self._tile_src):
            return []
        numbers = zip(self._tile_dest.tolist(), self._tile_count.tolist(), self._rows, strict=True)
        return [(dest, count, *rows) for dest, count, rows in numbers if rows[1] > rows[0]]

    def _touching(self, start: Index, stop: Index) -> Iterator[int]:
        met: Iterable[int] = range(len(self._rows))
        if len(self._tile_src):
            meets = (self._tile_dest < np.array(stop)) & (self._tile_dest + self._tile_count > np.array(start))
            if self.axis is not None:
                meets[:, self.axis] = True
            met = np.flatnonzero(meets.all(axis=1)).tolist()
        for t in met:
            low, high = self._rows[t]
            if self.axis is None:
                yield from range(low, high)
                continue
            dest, end = self._dest[low:high], self._dest[low:high] + self._count[low:high]
            first = int(np.searchsorted(end, start[self.axis], side="right"))
            last = int(np.searchsorted(dest, stop[self.axis], side="left"))
            yield from range(low + first, low + max(first, last))

    def pieces(self, start: Index, stop: Index) -> Iterator[Piece]:
        """The parts of a box that granules hold."""
        return self._parts(self._touching(start, stop), start, stop)

    def all(self, shape: Index) -> Iterator[Piece]:
        """The parts of the whole that granules hold, one granule's after the other."""
        in_order = sorted(range(len(self)), key=self._granule.__getitem__)
        return self._parts(in_order, (0,) * len(shape), shape)

    def _parts(self, numbers: Iterable[int], start: Index, stop: Index) -> Iterator[Piece]:
        for i in numbers:
            src, count, dest = self.box(i, stop)
            low = tuple(max(a, d) for a, d in zip(start, dest, strict=True))
            high = tuple(min(b, d + n) for b, d, n in zip(stop, dest, count, strict=True))
            if all(a < b for a, b in zip(low, high, strict=True)):
                shift = tuple(d - s for d, s in zip(dest, src, strict=True))
                yield Piece(low, high, self._names[str(self._granule[i])], shift)


def volume(start: Sequence[int], stop: Sequence[int]) -> int:
    """Cells of a box."""
    return math.prod(b - a for a, b in zip(start, stop, strict=True))


def uncovered(start: Index, stop: Index, pieces: Iterable[Piece]) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
    """Cells of a box that no piece holds, bool; None where there are none.

    Examples
    --------
    >>> uncovered((0,), (3,), [Piece((0,), (2,), "a.nc", (0,))]).tolist()
    [False, False, True]
    """
    held = list(pieces)
    if sum(volume(p.start, p.stop) for p in held) >= volume(start, stop):
        return None
    bare = np.ones([b - a for a, b in zip(start, stop, strict=True)], bool)
    for p in held:
        bare[tuple(slice(a - s, b - s) for a, b, s in zip(p.start, p.stop, start, strict=True))] = False
    return bare


def thin(piece: Piece, budget: int, itemsize: int) -> Iterator[Piece]:
    """A piece cut into parts of at most ``budget`` bytes, where an element allows it."""
    spans = [b - a for a, b in zip(piece.start, piece.stop, strict=True)]
    if math.prod(spans) * itemsize <= budget or not spans:
        yield piece
        return
    d = max(range(len(spans)), key=lambda k: (spans[k] > 1, -k))  # the slowest axis that can be cut
    if spans[d] < 2:
        yield piece
        return
    step = max(1, budget // max(1, math.prod(spans) // spans[d] * itemsize))
    for a in range(piece.start[d], piece.stop[d], step):
        start = (*piece.start[:d], a, *piece.start[d + 1 :])
        stop = (*piece.stop[:d], min(a + step, piece.stop[d]), *piece.stop[d + 1 :])
        yield from thin(Piece(start, stop, piece.granule, piece.shift), budget, itemsize)

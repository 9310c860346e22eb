"""Which granule holds which cells of an array that takes places of another one.

The witness loads this file by its path, so it imports nothing of drystone's.

Granules are placed in the *base*, the array that places are taken of. Along each axis of the published array the cells of a
box that one granule holds are a list of positions, also where several axes of the base are walked together as points; so
the part of a granule is a product of such lists, and so is what is taken of the granule's own box around it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from drystone.verify import pieces
else:
    # the witness's copies beside this one, or the package's
    pieces = importlib.import_module(__name__.removesuffix("picks") + "pieces")

__all__ = ["Part", "Picks"]

type Index = tuple[int, ...]
type Numbers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Part:
    """Cells of a box of the published array that one granule holds.

    Parameters
    ----------
    piece
        The smallest box of the base around them, and its granule.
    index
        For each published axis the numbers of the cells in the whole.
    take
        For each axis of the base the numbers in the piece, along the published axes.
    """

    piece: pieces.Piece
    index: tuple[Numbers, ...]
    take: tuple[Numbers, ...]

    def within(self, start: Index) -> Any:  # noqa: ANN401  an index of NumPy's
        """The cells in an array of the box that begins at ``start``; the Ellipsis keeps an array where a scalar would come."""
        return (*np.ix_(*(n - s for n, s in zip(self.index, start, strict=True))), ...)

    def taken(self) -> Any:  # noqa: ANN401  as above
        """The same in the piece's values."""
        return (*self.take, ...)

    def source(self, local: Index) -> Index:
        """Where in the base one of the cells lies."""
        at = (int(t[tuple(i if n > 1 else 0 for i, n in zip(local, t.shape, strict=True))]) for t in self.take)
        return tuple(a + s for a, s in zip(at, self.piece.start, strict=True))


class Picks:
    """The places that an array takes of its base.

    Parameters
    ----------
    picked
        As ``drystone.verify.run`` writes it: ``places``, for each axis of the base a list or None; ``dropped`` axes, of which
        one place is taken and which the array lacks; ``points``, axes that are walked together, as one axis where the first
        of them was.

    Examples
    --------
    >>> columns = {"axis": 0, "granule": [7, 8], "src": [0, 2], "count": [2, 2], "dest": [0, 2], "tiles": [], "tile": []}
    >>> placed = pieces.Placed(columns, {"7": "a.nc", "8": "b.nc"})
    >>> picks = Picks({"places": [[3, 0], None], "dropped": [], "points": []})
    >>> for part in picks.parts(placed, (0, 0), (2, 5), 100):
    ...     print(part.piece.granule, part.piece.start, part.piece.stop, part.index[0].tolist())
    a.nc (0, 0) (1, 5) [1]
    b.nc (3, 0) (4, 5) [0]
    """

    def __init__(self, picked: Mapping[str, Any]) -> None:
        self._places = [None if p is None else np.array(p, np.int64) for p in picked["places"]]
        self._axis: list[int | None] = []  # of the published array, for each axis of the base
        rank = 0
        points: int | None = None
        for d in range(len(self._places)):
            if d in picked["dropped"]:
                self._axis.append(None)
            elif d in picked["points"] and points is not None:
                self._axis.append(points)
            else:
                points = rank if d in picked["points"] else points
                self._axis.append(rank)
                rank += 1

    def _numbers(self, start: Index, stop: Index) -> list[Numbers]:
        """For each axis of the base the places that a box takes, in order."""
        out = []
        for places, axis in zip(self._places, self._axis, strict=True):
            if places is None:
                assert axis is not None
                out.append(np.arange(start[axis], stop[axis], dtype=np.int64))
            else:
                out.append(places[:1] if axis is None else places[start[axis] : stop[axis]])
        return out

    def around(self, start: Index, stop: Index) -> tuple[Index, Index]:
        """The smallest box of the base that holds a box."""
        numbers = self._numbers(start, stop)
        return tuple(int(n.min()) for n in numbers), tuple(int(n.max()) + 1 for n in numbers)

    def parts(self, placed: pieces.Placed, start: Index, stop: Index, cells: int) -> Iterator[Part]:
        """The parts of a box that granules hold, each in a box of the base of at most ``cells``, where it is not one cell."""
        low, high = self.around(start, stop)
        if pieces.volume(low, high) > cells:
            spans = [0] * len(start)
            for d, axis in enumerate(self._axis):
                if axis is not None and stop[axis] - start[axis] > 1:
                    spans[axis] = max(spans[axis], high[d] - low[d])
            axis = max(range(len(spans)), key=spans.__getitem__, default=None)
            if axis is not None and spans[axis] > 1:
                middle = (start[axis] + stop[axis]) // 2
                yield from self.parts(placed, start, (*stop[:axis], middle, *stop[axis + 1 :]), cells)
                yield from self.parts(placed, (*start[:axis], middle, *start[axis + 1 :]), stop, cells)
                return
        numbers = self._numbers(start, stop)
        for piece in placed.pieces(low, high):
            part = self._part(piece, numbers, start, stop)
            if part is not None:
                yield part

    def _part(self, piece: pieces.Piece, numbers: list[Numbers], start: Index, stop: Index) -> Part | None:
        inside = [(n >= a) & (n < b) for n, a, b in zip(numbers, piece.start, piece.stop, strict=True)]
        held = [np.ones(b - a, bool) for a, b in zip(start, stop, strict=True)]
        for axis, mask in zip(self._axis, inside, strict=True):
            if axis is not None:
                held[axis] &= mask
            elif not mask.all():
                return None
        positions = [np.flatnonzero(h) for h in held]
        if not all(len(p) for p in positions):
            return None
        chosen = [n if a is None else n[positions[a]] for n, a in zip(numbers, self._axis, strict=True)]
        low, high = tuple(int(n.min()) for n in chosen), tuple(int(n.max()) + 1 for n in chosen)
        take = []
        for n, a, s in zip(chosen, self._axis, low, strict=True):
            shape = [1] * len(start)
            if a is not None:
                shape[a] = len(n)
            take.append((n - s).reshape(shape))
        index = tuple(p + s for p, s in zip(positions, start, strict=True))
        return Part(pieces.Piece(low, high, piece.granule, piece.shift), index, tuple(take))

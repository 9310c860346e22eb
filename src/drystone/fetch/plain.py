"""Parts of chunks that are stored as they are.

A chunk without filters need not be read whole: a contiguous netCDF variable is one chunk of any size, and a map out of it
is a range of its bytes. :func:`pieces` cuts what is wanted of such a chunk into ranges of bytes of bounded size, each a
block of the chunk that is whole on its faster axes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from drystone.fetch.group import Place
from drystone.grid.parts import AxisPart, elements, moved, span

__all__ = ["Piece", "is_worth_cutting", "pieces"]

# smaller chunks are read whole, in one call with their neighbours
_LEAST_CHUNK = 64 << 10
# rather read than skipped within one piece
_GAP = 64 << 10
_MOST_PIECE = 4 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a chunk's bytes, the block that it decodes to, what is wanted of the block, and where that goes."""

    skip: int
    length: int
    shape: tuple[int, ...]
    local: tuple[AxisPart, ...]
    out: tuple[AxisPart, ...]


def is_worth_cutting(place: Place, itemsize: int) -> bool:
    """Whether an unfiltered chunk is better read in pieces."""
    nbytes = math.prod(place.encoded_shape) * itemsize
    return nbytes > _MOST_PIECE or (nbytes > _LEAST_CHUNK and not place.whole)


def pieces(place: Place, itemsize: int) -> Iterator[Piece]:
    """Cut what is wanted of an unfiltered chunk.

    Examples
    --------
    >>> whole = slice(0, 1000, 1)
    >>> place = Place((slice(2, 4, 1), whole), (slice(0, 2), whole), (500, 1000), False, True)
    >>> [(p.skip, p.length, p.shape, p.local) for p in pieces(place, 2)]
    [(4000, 4000, (2, 1000), (slice(0, 2, 1), slice(0, 1000, 1)))]
    """
    shape = place.encoded_shape
    spans = [span(p) for p in place.local]
    # slower axes on which one element is wanted only move the range; the next one is cut
    axis = next((k for k, (a, b) in enumerate(spans) if b - a > 1), len(shape) - 1)
    if axis < 0:
        yield Piece(0, itemsize, (), (), ())
        return
    base = sum(a * math.prod(shape[k + 1 :]) for k, (a, _) in enumerate(spans[:axis]))
    row = math.prod(shape[axis + 1 :])
    rest = shape[axis + 1 :]
    before = tuple(moved(p, spans[k][0]) for k, p in enumerate(place.local[:axis]))
    for first, stop, local, out in _blocks(place.local[axis], place.out[axis], row * itemsize):
        yield Piece(
            (base + first * row) * itemsize,
            (stop - first) * row * itemsize,
            ((1,) * axis) + (stop - first, *rest),
            (*before, local, *place.local[axis + 1 :]),
            (*place.out[:axis], out, *place.out[axis + 1 :]),
        )


def _blocks(local: AxisPart, out: AxisPart, row_bytes: int) -> Iterator[tuple[int, int, AxisPart, AxisPart]]:
    """(first, stop, local from first, out) of blocks along the cut axis, ascending."""
    most = max(1, _MOST_PIECE // max(1, row_bytes))
    a, b = span(local)
    if isinstance(local, slice) and isinstance(out, slice) and (local.step or 1) == 1 and (out.step or 1) == 1:
        for first in range(a, b, most):
            stop = min(b, first + most)
            yield first, stop, slice(0, stop - first, 1), slice(out.start + first - a, out.start + stop - a)
        return
    wanted, places = elements(local), elements(out)
    order = np.argsort(wanted, kind="stable")
    wanted, places = wanted[order], places[order]
    # a block ends before a gap that costs more to read than another request, or when it is full
    number = np.cumsum(np.r_[0, (np.diff(wanted) - 1) * row_bytes > _GAP])
    number = number * (b // most + 1) + wanted // most
    edges = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(wanted)]
    for i, j in itertools.pairwise(edges):
        first, stop = int(wanted[i]), int(wanted[j - 1]) + 1
        yield first, stop, wanted[i:j] - first, places[i:j]

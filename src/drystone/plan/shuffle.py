"""Two passes: the array is read once in large boxes, cut by destination, and put together from the pieces.

Between the passes lie *shuffle objects*, one for each box of the first pass: the pieces of the box in the order of their
destinations, with an index. So a first pass that reads S bytes in boxes of M makes S / M objects, whatever the target's
grid, where a temporary array with a chunk for each piece would have (S / M) squared; a second pass reads one range of each
object that it needs.

Piece sizes decide the requests: along each axis a piece is as long as the smaller of the two boxes it is cut from. So that
one of the two grows where it is the smaller, until both fill the memory.

*Groups* bound what lies in between. Edges that both partitions share cut the array into parts that have nothing to do with one
another: a year of maps that becomes year-long shards is done with before the next year begins. The first pass of a group is
whole before its second begins, and the first pass of the next group runs beside it; so at most three groups lie in
between, of a transpose through and through the whole array.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import grouped
from drystone.plan.layout import TargetLayout
from drystone.plan.memory import MemoryModel
from drystone.plan.regions import TASK_BYTES, bounds, common, largest, most, overlaps, packed, stepped, touched

__all__ = ["Shuffle", "TwoPasses", "two_passes"]

_FORM = 1  # of shuffle objects: raised when their bytes mean something else
_BLOCKS = (1 << 20, 1 << 18, 1 << 16)  # raw bytes of a block, the largest that leaves room for the boxes
_PIECE_BYTES = 4_000_000  # boxes grow beyond a task's worth only for pieces that are smaller
_FACTORS = (2.0, 1.5, 1.25)
_AT_ONCE = 3  # groups in between: one being written, one read and written, one whose last readers are not done


@dataclass(frozen=True, slots=True)
class Shuffle:
    """What lies between two passes over one array.

    Parameters
    ----------
    sources
        What each task of the first pass reads: it writes one object.
    boxes
        What the second pass puts together at a time, its tasks' regions or steps of them: the destinations of pieces.
    groups
        Parts of the array that are done one after the other.
    block
        Raw bytes of a piece that are encoded at a time, at most.

    Examples
    --------
    >>> maps, series = ChunkGrid.regular((8, 6), (2, 6)), ChunkGrid.regular((8, 6), (8, 3))
    >>> s = Shuffle(maps, series, ChunkGrid.regular((8, 6), (8, 6)), 1 << 20)
    >>> s.n_sources, s.n_pieces, [box for box, _, _ in s.pieces(3)]
    (4, 8, [0, 1])
    >>> s.readers_left(series, np.array([[True, False]])).tolist()
    [[1], [1], [1], [1]]
    >>> Shuffle.from_json(s.to_json()) == s
    True
    """

    sources: ChunkGrid
    boxes: ChunkGrid
    groups: ChunkGrid
    block: int
    digest: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        text = json.dumps([_FORM, self.sources.to_json(), self.boxes.to_json(), self.block])
        object.__setattr__(self, "digest", hashlib.blake2b(text.encode(), digest_size=16).hexdigest())

    @property
    def n_sources(self) -> int:
        """Tasks of the first pass, each one object."""
        return self.sources.n_chunks

    @property
    def n_pieces(self) -> int:
        """Pairs of an object and a box that has a piece in it: ranges that are read."""
        axes = zip(self.sources.dimensions, self.boxes.dimensions, strict=True)
        return math.prod(overlaps(a, b) for a, b in axes) if self.n_sources else 0

    @property
    def cells_between(self) -> int:
        """Elements that lie between the passes, at most."""
        return min(_AT_ONCE, self.groups.n_chunks) * most(self.groups.dimensions)

    @property
    def objects_between(self) -> int:
        """Shuffle objects that are there at a time, at most."""
        axes = zip(self.sources.dimensions, self.groups.dimensions, strict=True)
        each = [np.diff(np.searchsorted(s.edges(), g.edges())).max(initial=0) for s, g in axes]
        return min(self.n_sources, _AT_ONCE * math.prod(int(n) for n in each))

    def pieces(self, index: int) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...]]]:
        """Number of the destination, start and stop of each piece of an object, in order."""
        start, stop = bounds(self.sources, index)
        dims, shape = self.boxes.dimensions, self.boxes.grid_shape
        for at in itertools.product(*touched(self.boxes, start, stop)):
            number = 0
            for i, n in zip(at, shape, strict=True):
                number = number * n + i
            first = [d.chunk_offset(i) for d, i in zip(dims, at, strict=True)]
            last = [f + d.data_size(i) for f, d, i in zip(first, dims, at, strict=True)]
            yield number, tuple(map(max, first, start)), tuple(map(min, last, stop))

    def readers(self, regions: ChunkGrid, index: int) -> tuple[slice, ...]:
        """Regions that a shuffle object has pieces for, as slices of their grid."""
        return tuple(slice(r.start, r.stop) for r in touched(regions, *bounds(self.sources, index)))

    def read_by(self, regions: ChunkGrid, index: int) -> tuple[slice, ...]:
        """Shuffle objects that a region is made of, as slices of their grid."""
        return tuple(slice(r.start, r.stop) for r in touched(self.sources, *bounds(regions, index)))

    def readers_left(self, regions: ChunkGrid, done: NDArray[np.bool_]) -> NDArray[np.int64]:
        """int64 (sources along each axis): regions that are not done and have pieces in each object.

        Parameters
        ----------
        regions
            Of the second pass.
        done
            bool, in the shape of their grid.
        """
        left = np.asarray(~done, np.int64)
        for axis, (s, r) in enumerate(zip(self.sources.dimensions, regions.dimensions, strict=True)):
            edges = s.edges()
            first = r.indices_to_chunks(edges[:-1])
            last = r.indices_to_chunks(edges[1:] - 1) + 1
            sums = np.zeros((*left.shape[:axis], left.shape[axis] + 1, *left.shape[axis + 1 :]), np.int64)
            np.cumsum(left, axis=axis, out=sums[(slice(None),) * axis + (slice(1, None),)])
            left = sums.take(last, axis) - sums.take(first, axis)
        return left

    def to_json(self) -> dict[str, object]:
        """Exact JSON."""
        grids = {name: getattr(self, name).to_json() for name in ("sources", "boxes", "groups")}
        return {**grids, "block": self.block}

    @classmethod
    def from_json(cls, d: Mapping[str, object]) -> Shuffle:
        """Read back what :meth:`to_json` wrote."""
        grids = [ChunkGrid.from_json(cast(list[object], d[name])) for name in ("sources", "boxes", "groups")]
        return cls(grids[0], grids[1], grids[2], cast(int, d["block"]))


@dataclass(frozen=True, slots=True)
class TwoPasses:
    """A way to do it: the second pass' regions and steps, what lies in between, elements held, bytes of a task at most."""

    regions: ChunkGrid
    stream: tuple[int, int] | None
    shuffle: Shuffle
    held: int
    memory: int


def two_passes(
    source: ChunkGrid,
    layout: TargetLayout,
    model: MemoryModel,
    memory: int,
    slots: int,
    axis: int | None,
    *,
    every: bool = False,
) -> list[TwoPasses]:
    """The boxes of both passes that need the fewest ranges within ``memory``; where none fits, those that need least.

    Parameters
    ----------
    source
        Chunks of the source.
    layout
        What is written.
    model
        What boxes take.
    memory
        Bytes of a task.
    slots
        Tasks that run at once.
    axis
        Axis along which shards may be put together in steps, or None.
    every
        Also the smallest boxes, and steps where whole shards fit.

    Returns
    -------
    One, or with ``every`` all ways that fit, the best first.
    """
    found: list[TwoPasses] = []
    least: list[TwoPasses] = []
    for along in [None] if axis is None else [None, axis]:
        for block in _BLOCKS:
            boxes = _Boxes(source, layout, model, memory, slots, along, block)
            smallest = boxes.result()
            if smallest.memory <= memory:
                found += [boxes.grown(), smallest]
                break
            least.append(smallest)
        if found and not every:
            break
    if not found:
        return [min(least, key=lambda t: t.memory)]
    return sorted(dict.fromkeys(found), key=lambda t: t.stream is not None) if every else found[:1]


type _Which = Literal["first", "second", "both"]
type _Step = tuple[_Which, int]


class _Boxes:
    """Boxes of both passes while they grow: elements along each axis, at least a source chunk and a write cell."""

    def __init__(
        self,
        source: ChunkGrid,
        layout: TargetLayout,
        model: MemoryModel,
        memory: int,
        slots: int,
        along: int | None,
        block: int,
    ) -> None:
        self._source, self._layout, self._model, self._memory = source, layout, model, memory
        self._slots, self._along, self._block = slots, along, block
        self._shape = [max(n, 1) for n in layout.shape]
        self._first = [min(largest(d), n) for d, n in zip(source.dimensions, self._shape, strict=True)]
        self._second = [min(c, n) for c, n in zip(layout.cell, self._shape, strict=True)]
        if along is not None:
            self._second[along] = min(layout.chunk[along], self._second[along])

    def grown(self) -> TwoPasses:
        """The boxes as large as pays and fits."""
        while any(self._grow(*step) for step in self._steps()):
            pass
        axes = range(len(self._shape))
        for which, order in (("first", axes), ("second", reversed(axes))):
            for axis in order:  # what is too small for a task of its own, though pieces get no longer
                while self._merge(which == "first", axis):
                    pass
        return self.result()

    def _merge(self, first: bool, axis: int) -> bool:
        """Twice as long boxes of a pass; False where they would be too large, or too few."""
        sizes, before = (self._first, self._first[axis]) if first else (self._second, self._second[axis])
        if first:
            sizes[axis] = min(2 * before, self._shape[axis])
        else:
            self._widen(axis, 2.0, None)
        cells = math.prod(sizes)
        few = math.prod(self._shape) < 4 * self._slots * cells
        if sizes[axis] > before and not few and cells * self._model.itemsize <= TASK_BYTES and self._fits(None):
            return True
        sizes[axis] = before
        return False

    def _steps(self) -> list[_Step]:
        """What may make pieces longer: of the smaller box first, along the first axis whole files, along the last long rows."""
        axes = range(len(self._shape))
        a, b, n = self._first, self._second, self._shape
        first: list[_Step] = [("first", d) for d in axes if a[d] < b[d]]
        second: list[_Step] = [("second", d) for d in reversed(axes) if b[d] < a[d]]
        both: list[_Step] = [("both", d) for d in axes if a[d] < n[d] and b[d] < n[d]]
        return [*first, *second, *both] if math.prod(a) <= math.prod(b) else [*second, *first, *both]

    def _grow(self, which: _Which, axis: int) -> bool:
        """Make boxes larger along an axis; False where nothing larger fits."""
        before = list(self._first), list(self._second)
        for factor in _FACTORS:
            if which != "second":
                self._first[axis] = self._larger(self._first, axis, factor, self._source.dimensions[axis].regular_size or 1)
                if which == "first":
                    self._first[axis] = min(self._first[axis], self._second[axis])
            if which != "first" and not self._widen(axis, factor, None if which == "both" else self._first[axis]):
                self._first[:], self._second[:] = before
                return False
            if (self._first, self._second) != before and self._fits(which):
                return True
            self._first[:], self._second[:] = before
        return False

    def _widen(self, axis: int, factor: float, reach: int | None) -> bool:
        if self._along is not None and axis != self._along:
            return False  # a streamed shard is one cell
        unit = self._layout.chunk[axis] if self._along is not None else self._layout.cells.dimensions[axis].regular_size or 1
        wider = self._larger(self._second, axis, factor, unit)
        if reach is not None:  # the last step may reach beyond: cells are whole
            wider = min(wider, -(-reach // unit) * unit)
        end = self._layout.cell[axis] if self._along is not None else self._shape[axis]
        self._second[axis] = min(wider, end)
        return True

    def _larger(self, sizes: Sequence[int], axis: int, factor: float, unit: int) -> int:
        return min(self._shape[axis], max(sizes[axis], int(sizes[axis] * factor) // unit * unit))

    def _fits(self, which: _Which | None) -> bool:
        """Whether both passes have the memory, and what grew is no larger, and its tasks no fewer, than pieces are worth."""
        if max(self._scattered(), self._gathered()) > self._memory:
            return False
        itemsize = self._model.itemsize
        if which is None or math.prod(map(min, self._first, self._second)) * itemsize <= _PIECE_BYTES:
            return True
        grown = [box for name, box in (("first", self._first), ("second", self._second)) if which in (name, "both")]
        cells = max(math.prod(box) for box in grown)
        return cells * itemsize <= TASK_BYTES and math.prod(self._shape) // cells >= self._slots

    def _blocks(self) -> int:
        """Blocks of an object, at most."""
        boxes = math.prod(-(-a // b) + 1 for a, b in zip(self._first, self._second, strict=True))
        return boxes + math.prod(self._first) * self._model.itemsize // self._block

    def _scattered(self) -> int:
        return self._model.scattered(math.prod(self._first), self._block, self._blocks())

    def _gathered(self) -> int:
        need = self._model.gathered if self._along is None else self._model.gathered_streamed
        return need(math.prod(self._second), self._block, self._blocks())

    def result(self) -> TwoPasses:
        """The boxes as partitions; edges of one lie on edges of the other where some are near."""
        cells = self._layout.cells.dimensions
        sources, boxes = [], []
        for d, (s, c) in enumerate(zip(self._source.dimensions, cells, strict=True)):
            if self._along is not None:
                c = stepped(cells, d, self._second[d])[d] if d == self._along else c
                sources.append(packed(s, self._first[d], c))
                boxes.append(c)
            elif self._first[d] < self._second[d]:
                boxes.append(packed(c, self._second[d], s))
                sources.append(packed(s, self._first[d], boxes[-1]))
            else:
                sources.append(packed(s, self._first[d], c))
                boxes.append(packed(c, self._second[d], sources[-1]))
        first = ChunkGrid(tuple(sources))
        second = ChunkGrid(tuple(boxes))
        regions = second if self._along is None else self._layout.cells
        shuffle = Shuffle(first, second, _groups(first, regions, self._slots), self._block)
        stream = None if self._along is None else (self._along, self._second[self._along])
        held = max(most(sources), most(boxes))
        return TwoPasses(regions, stream, shuffle, held, max(self._scattered(), self._gathered()))


def _groups(sources: ChunkGrid, regions: ChunkGrid, slots: int) -> ChunkGrid:
    """The finest partition that both share, in which each pass of a part still has a task for every slot."""
    dims = [common(s, r) for s, r in zip(sources.dimensions, regions.dimensions, strict=True)]
    for axis in reversed(range(len(dims))):
        while dims[axis].n_chunks > 1:
            n = math.prod(d.n_chunks for d in dims)
            if min(sources.n_chunks, regions.n_chunks) >= slots * n:
                break
            dims[axis] = grouped(dims[axis], 2)
    return ChunkGrid(tuple(dims))

"""Which places of an array any granule holds: its gaps as boxes, and coverage as an array.

Placements are boxes. The ends of all of them cut the array into a coarse grid, whose cells are wholly held or wholly not;
each box adds one to its cells, by differences at its corners and a cumulative sum an axis, as in
:mod:`drystone.grid.alignment`. A cell that is held twice is an error here: two granules would write one chunk.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from drystone.codecs.chain import CodecChain
from drystone.errors import PlanError
from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.attributes import Attributes
from drystone.model.placement import Combined, CombinedArray, Picked, Placements

__all__ = ["Coverage", "coverage_path", "with_coverage"]

type Int64 = NDArray[np.int64]

_MOST_PLACES = 1 << 28
_MOST_CELLS = 500_000_000  # a gigabyte; never more than the array has chunks, but where they line up with nothing


@dataclass(frozen=True, slots=True)
class Coverage:
    """What granules hold of one array, on a coarse grid.

    Parameters
    ----------
    edges
        Per axis of the whole, int64: first element of each cell, then the extent.
    held
        bool, one a cell.

    Examples
    --------
    >>> from drystone.plan.coverage import Coverage
    >>> c = Coverage((np.array([0, 4, 6, 10]), np.array([0, 3])), np.array([[True], [False], [True]]))
    >>> c.has_gaps, list(c.gaps()), c.along(0).tolist()
    (True, [((4, 0), (6, 3))], [True, True, True, True, False, False, True, True, True, True])
    """

    edges: tuple[Int64, ...]
    held: NDArray[np.bool_]

    @classmethod
    def of(cls, array: CombinedArray) -> Coverage:
        """Of the placements of an array that granules hold.

        Raises
        ------
        PlanError
            ``placements-overlap``: two placements hold one element.
        """
        if array.picked is not None:
            return _picked(Coverage.of(array.picked.base), array.picked)
        shape, p = array.shape, array.placements
        if 0 in shape:
            return cls(tuple(np.unique([0, n]) for n in shape), np.ones(tuple(min(1, n) for n in shape), np.bool_))
        starts, stops = _boxes(array)
        held = np.all(stops > starts, axis=1)
        starts, stops = starts[held], stops[held]
        edges = tuple(
            np.unique(np.concatenate([[0, n], starts[:, d], stops[:, d]])).astype(np.int64) for d, n in enumerate(shape)
        )
        if np.prod([len(e) for e in edges], dtype=np.float64) > _MOST_CELLS:
            places = " by ".join(str(len(e)) for e in edges)
            raise PlanError(
                f"{array.path}: its {len(p)} placements begin and end at too many places ({places}) to look for gaps "
                "between them; publish tiles that lie in rows as arrays of their own",
                kind="placements",
                array=array.path,
            )
        times = np.zeros(tuple(len(e) for e in edges), np.int16)
        low = np.stack([np.searchsorted(e, starts[:, d]) for d, e in enumerate(edges)]) if shape else np.zeros((0, len(p)), int)
        high = np.stack([np.searchsorted(e, stops[:, d]) for d, e in enumerate(edges)]) if shape else low
        for corner in itertools.product((0, 1), repeat=len(shape)):
            at = tuple(high[d] if c else low[d] for d, c in enumerate(corner))
            np.add.at(times, at, -1 if sum(corner) % 2 else 1)
        for d in range(len(shape)):
            np.cumsum(times, axis=d, out=times)
        times = times[tuple(slice(0, -1) for _ in shape)]
        if not shape:
            times = np.asarray(min(len(p), 1), np.int16)
        twice = np.argwhere(times > 1)
        if len(twice):
            cell = tuple(int(e[i]) for e, i in zip(edges, twice[0].tolist(), strict=True))
            raise PlanError(
                f"{array.path}: two granules hold the element {cell}; which one counts is for combine to say",
                kind="placements-overlap",
                array=array.path,
            )
        return cls(edges, times == 1)

    @property
    def has_gaps(self) -> bool:
        """Whether some element is held by no granule."""
        return not bool(self.held.all())

    def gaps(self) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Start and stop, in elements, of disjoint boxes that make up what no granule holds."""
        for cell in np.argwhere(~self.held).tolist():
            yield (
                tuple(int(e[i]) for e, i in zip(self.edges, cell, strict=True)),
                tuple(int(e[i + 1]) for e, i in zip(self.edges, cell, strict=True)),
            )

    def along(self, *axes: int) -> NDArray[np.bool_]:
        """Elements of some axes: True where granules hold all of it on the other axes."""
        others = tuple(d for d in range(self.held.ndim) if d not in axes)
        out: NDArray[np.bool_] = self.held.all(axis=others)
        for i, d in enumerate(axes):
            out = np.repeat(out, np.diff(self.edges[d]), axis=i)
        return out


def _boxes(array: CombinedArray) -> tuple[Int64, Int64]:
    """Start and stop of every placement: int64 (n, rank) each."""
    p, shape = array.placements, array.shape
    if p.tiles:
        tile = p.tile if len(p.tile) else np.zeros(len(p), np.int32)
        starts = np.array([t.dest for t in p.tiles], np.int64).reshape(len(p.tiles), -1)[tile]
        stops = np.array([t.stop for t in p.tiles], np.int64).reshape(len(p.tiles), -1)[tile]
    else:
        starts = np.zeros((len(p), len(shape)), np.int64)
        stops = np.tile(np.array(shape, np.int64), (len(p), 1))
    if p.axis is not None:
        starts[:, p.axis], stops[:, p.axis] = p.dest, p.dest + p.count
    return starts, stops


def coverage_path(array: CombinedArray) -> str:
    """Where the coverage of an array is published."""
    return f"{array.path}_coverage"


def with_coverage(combined: Combined) -> Combined:
    """The whole with an array ``<name>_coverage`` beside each that has gaps: 1 where granules hold a place, 0 elsewhere.

    It has the axes along which that changes. Coordinates of an axis have values everywhere and get none.

    Raises
    ------
    PlanError
        ``coverage``: an array of that name is there already, or it would have too many places.
    """
    taken = {a.path for a in combined.arrays}
    made: list[CombinedArray] = []
    values: dict[str, np.ndarray] = {}
    for array in combined.arrays:
        if array.made or (array.path in combined.coordinates and array.dims == (array.name,)):
            continue
        coverage = Coverage.of(array)
        if not coverage.has_gaps:
            continue
        held = coverage.held
        axes = tuple(d for d in range(held.ndim) if np.any(np.diff(held.astype(np.int8), axis=d))) or (0,)
        path, shape = coverage_path(array), tuple(array.shape[d] for d in axes)
        if path in taken or np.prod(shape, dtype=np.float64) > _MOST_PLACES:
            raise PlanError(
                f"{array.path}: coverage cannot be published: {path} would have the shape {shape}, or is there already; take "
                "`coverage: true` out",
                kind="coverage",
                array=array.path,
            )
        made.append(_coverage_array(array, path, axes))
        values[path] = coverage.along(*axes).astype(np.int8)
    return replace(combined, arrays=(*combined.arrays, *made), coordinates={**combined.coordinates, **values})


def _picked(whole: Coverage, picked: Picked) -> Coverage:
    """Coverage of what is taken of an array: an axis of which places are taken has a cell for each."""
    held, edges = whole.held, list(whole.edges)
    cells = [
        None if p is None else np.searchsorted(e, np.array(p), side="right") - 1
        for p, e in zip(picked.places, whole.edges, strict=True)
    ]
    for d, at in enumerate(cells):
        if at is not None and d not in picked.points:
            held = np.take(held, at, axis=d)
            edges[d] = np.arange(len(at) + 1, dtype=np.int64)
    if picked.points:
        first = picked.points[0]
        held = np.moveaxis(held, picked.points, range(len(picked.points)))[
            tuple(c for d in picked.points if (c := cells[d]) is not None)
        ]
        held = np.moveaxis(held, 0, first)
        edges[first] = np.arange(held.shape[first] + 1, dtype=np.int64)
    gone = (*picked.dropped, *picked.points[1:])
    kept = [d for d in range(len(edges)) if d not in gone]
    shape = tuple(len(edges[d]) - 1 for d in kept)
    return Coverage(tuple(edges[d] for d in kept), held.reshape(shape))


def _coverage_array(array: CombinedArray, path: str, axes: tuple[int, ...]) -> CombinedArray:
    attributes = Attributes.of(
        {
            "long_name": f"whether a granule holds {array.name} here",
            "flag_values": np.array([0, 1], np.int8),
            "flag_meanings": "missing held",
        }
    )
    shape, dtype, none = tuple(array.shape[d] for d in axes), np.dtype(np.int8), np.zeros(0, np.int64)
    nowhere = Placements(None, none.astype(np.int32), none, none, none, none.astype(np.int32))
    return CombinedArray(
        path, tuple(array.dims[d] for d in axes), shape, dtype, dtype, None, CodecChain.of("bytes"), attributes,
        ChunkGrid.regular(shape, tuple(max(1, n) for n in shape)), None, nowhere, (),
    )  # fmt: skip

"""What is taken of a whole before anything is written: crops, levels, strides, lists, points.

A run of neighbouring places is a crop: placements are clipped, and where their chunks still start on the grid the array
stays virtual; so it does where each place taken is a chunk of its own (:mod:`~drystone.plan.taking`). Anything else makes a
*picked* array: one that names, axis by axis, the places it takes of another one
(:class:`~drystone.model.placement.Picked`); it is read through that one, and is published by value. Values are looked up by
:mod:`~drystone.plan.lookup`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import DimensionGrid, RectilinearDimension, RegularDimension
from drystone.model.options import Selection
from drystone.model.placement import Combined, CombinedArray, Picked, Placements
from drystone.plan.lookup import Coordinate, refused
from drystone.plan.taking import cropped, dropped, regridded, spread

__all__ = ["select"]

POINTS = "points"


@dataclass(frozen=True, slots=True)
class _Taken:
    """Places of one dimension: int64, one; whether the dimension goes; whether they are walked with others' as points."""

    places: NDArray[np.int64]
    dropped: bool = False
    points: bool = False

    @property
    def run(self) -> tuple[int, int] | None:
        """Start and stop where they are neighbours in order."""
        n = len(self.places)
        if self.dropped or self.points or not n or np.any(np.diff(self.places) != 1):
            return None
        return int(self.places[0]), int(self.places[-1]) + 1


def select(combined: Combined, selections: Mapping[str, Selection], names: Mapping[int, str]) -> Combined:
    """Take parts of a whole.

    Parameters
    ----------
    combined
        The whole.
    selections
        Dimension to what is taken of it.
    names
        Granule id to address, for messages.

    Raises
    ------
    CombineError
        ``select``: there is no such dimension, or a value is not on it; the nearest is named.

    Examples
    --------
    >>> select(Combined((), (), None), {}, {}).arrays
    ()
    """
    if not selections:
        return combined
    sizes = {d: n for a in combined.arrays for d, n in zip(a.dims, a.shape, strict=True)}
    taken: dict[str, _Taken] = {}
    for name, what in selections.items():
        if name not in sizes:
            raise refused(name, f"no array has that dimension (there are: {', '.join(sorted(sizes))})")
        taken[name] = _places(combined, name, sizes[name], what)
    if len({len(t.places) for t in taken.values() if t.points}) > 1:
        counts = ", ".join(f"{n}: {len(t.places)}" for n, t in taken.items() if t.points)
        raise refused(POINTS, f"points need as many places on every dimension, not {counts}")
    arrays, coordinates = [], dict(combined.coordinates)
    for array in combined.arrays:
        if array.path in coordinates:
            coordinates[array.path] = _values(coordinates[array.path], array.dims, taken)
        arrays.append(_array(array, taken, names, coordinates.get(array.path)))
    gone = {n for n, t in taken.items() if t.dropped or t.points}
    axes = tuple(a for a in combined.axes if a not in gone)
    by_era = None if combined.by_era is None else _eras(combined.by_era, selections, names)
    return replace(
        combined, arrays=tuple(arrays), coordinates=coordinates, axes=axes, axis=axes[0] if axes else None, by_era=by_era
    )


def _eras(combined: Combined, selections: Mapping[str, Selection], names: Mapping[int, str]) -> Combined | None:
    """Eras differ in the length of the joined axis, so only what leaves that axis alone can be taken of them all."""
    if any(a in selections for a in combined.axes):
        return None
    return select(combined, selections, names)


def _places(combined: Combined, name: str, size: int, what: Selection) -> _Taken:
    if what.kind in ("index", "list", "points", "slice"):
        return _numbered(name, size, what)
    found = _coordinate(combined, name)
    if what.kind == "range":
        return _Taken(found.between(what.values[0], what.values[1])[:: what.step])
    places = np.array([found.place(v) for v in what.values if v is not None], np.int64)
    return _Taken(places, dropped=what.kind == "value", points=what.kind == "point_values")


def _numbered(name: str, size: int, what: Selection) -> _Taken:
    numbers = [v if v is None or isinstance(v, int) else int(float(v)) for v in what.values]
    if what.kind == "slice":
        sliced = np.arange(size, dtype=np.int64)[slice(numbers[0], numbers[1], what.step)]
        if not len(sliced):
            raise refused(name, f"no place lies between {numbers[0]} and {numbers[1]}: it has {size}")
        return _Taken(sliced)
    places = np.array([n for n in numbers if n is not None], np.int64)
    outside = places[(places >= size) | (places < -size)]
    if len(outside):
        raise refused(name, f"place {outside[0]} is not among its {size}")
    return _Taken(np.where(places < 0, places + size, places), what.kind == "index", what.kind == "points")


def _coordinate(combined: Combined, name: str) -> Coordinate:
    found = sorted(
        (a for a in combined.arrays if a.dims == (name,) and a.name == name and a.path in combined.coordinates),
        key=lambda a: a.path.count("/"),
    )
    if not found:
        raise refused(name, "it has no coordinate variable to look values up in; take places by number: {index: …}")
    return Coordinate.of(name, combined.coordinates[found[0].path], found[0].attributes)


def _values(values: np.ndarray, dims: tuple[str, ...], taken: Mapping[str, _Taken]) -> np.ndarray:
    together = [d for d in dims if d in taken and taken[d].points]
    for name in [d for d in dims if d in taken and d not in together]:
        values = np.take(values, taken[name].places, axis=dims.index(name))
    if together:
        axes = [dims.index(d) for d in together]
        values = np.moveaxis(values, axes, range(len(axes)))[tuple(taken[d].places for d in together)]
        values = np.moveaxis(values, 0, axes[0])
        dims = tuple(d for d in dims if d not in together[1:])
    keep = tuple(0 if d in taken and taken[d].dropped else slice(None) for d in dims)
    return np.asarray(values[keep])


def _array(
    array: CombinedArray, taken: Mapping[str, _Taken], names: Mapping[int, str], values: np.ndarray | None
) -> CombinedArray:
    mine = {d: taken[name] for d, name in enumerate(array.dims) if name in taken}
    if not mine:
        return array
    if array.made and values is not None:
        dims = _dims(array.dims, mine)
        grid = ChunkGrid.regular(values.shape, tuple(max(1, n) for n in values.shape))
        return replace(array, dims=dims, shape=values.shape, grid=grid)
    runs = {d: t.run for d, t in mine.items()}
    rest = {d: t for d, t in mine.items() if runs[d] is None}
    for d, run in runs.items():
        if run is not None and run != (0, array.shape[d]):
            array = cropped(array, d, *run)
    whole = None if any(t.points for t in rest.values()) else _whole_chunks(array, rest)
    if whole is not None:
        return regridded(whole, names)
    if any(run is not None for run in runs.values()):
        array = regridded(array, names)
    return _picked(array, rest) if rest else array


def _whole_chunks(array: CombinedArray, rest: Mapping[int, _Taken]) -> CombinedArray | None:
    """The array where every place taken is a chunk of its own, so that chunks stay as they are; None where one is not."""
    taken: CombinedArray | None = array
    for d, t in sorted(rest.items(), reverse=True):  # an axis that goes moves those behind it
        if taken is not None:
            taken = dropped(taken, d, int(t.places[0])) if t.dropped else spread(taken, d, t.places)
    return taken


def _dims(dims: tuple[str, ...], mine: Mapping[int, _Taken]) -> tuple[str, ...]:
    out: list[str] = []
    for d, name in enumerate(dims):
        if d in mine and mine[d].dropped:
            continue
        if d in mine and mine[d].points:
            if POINTS not in out:
                out.append(POINTS)
            continue
        out.append(name)
    return tuple(out)


def _picked(array: CombinedArray, rest: Mapping[int, _Taken]) -> CombinedArray:
    """A picked array: read through the one it takes places of."""
    places = tuple(tuple(rest[d].places.tolist()) if d in rest else None for d in range(len(array.dims)))
    dropped = tuple(d for d in rest if rest[d].dropped)
    points = tuple(d for d in rest if rest[d].points)
    dims = [d for d in range(len(array.dims)) if d not in dropped and d not in points[1:]]
    shape = tuple(len(rest[d].places) if d in rest else array.shape[d] for d in dims)
    grid = ChunkGrid(tuple(_runs(array, rest, points if d in points else (d,)) for d in dims))
    ids, at = np.unique(array.placements.granule_id, return_index=True)
    zero = np.zeros(len(ids), np.int64)
    # one row for each granule that it is read from; where they land, the array that is picked from knows
    placements = Placements(None, ids, zero, zero + 1, np.arange(len(ids)), array.placements.variant[at])
    return replace(
        array,
        dims=_dims(array.dims, rest),
        shape=shape,
        grid=grid,
        unaligned=f"{array.path}: what is selected of it is no run of whole chunks, so its bytes are no chunks of one Zarr "
        "array; publish it as a store (rechunk)",
        placements=placements,
        source=array.inner,
        picked=Picked(array, places, dropped, points),
    )


def _runs(array: CombinedArray, rest: Mapping[int, _Taken], axes: tuple[int, ...]) -> DimensionGrid:
    """The places taken of some axes together, cut where the next one lies in another chunk."""
    if axes[0] not in rest:
        return array.grid.dimensions[axes[0]]
    chunks = np.stack([array.grid.dimensions[d].indices_to_chunks(rest[d].places) for d in axes])
    edges = np.flatnonzero(np.any(np.diff(chunks, axis=1) != 0, axis=0)) + 1
    n = chunks.shape[1]
    sizes = np.diff(np.concatenate([[0], edges, [n]]))
    if len(sizes) < 2 or (np.all(sizes[:-1] == sizes[0]) and sizes[-1] <= sizes[0]):
        return RegularDimension(n, max(1, int(sizes[0])))
    return RectilinearDimension(tuple(sizes.tolist()))

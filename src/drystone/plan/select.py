"""What is taken of a whole before anything is written: crops, levels, strides, lists, points.

A run of neighbouring places is a crop: placements are clipped, and where their chunks still start on the grid the array
stays virtual; so it does where each place taken is a chunk of its own (:mod:`~drystone.plan.taking`). Anything else makes a
*picked* array: one that names, axis by axis, the places it takes of another one
(:class:`~drystone.model.placement.Picked`); it is read through that one, and is published by value. Which places they are says
:mod:`~drystone.plan.taken`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import DimensionGrid, RectilinearDimension, RegularDimension
from drystone.model.placement import Combined, CombinedArray, Picked, Placements
from drystone.plan.coverage import Coverage
from drystone.plan.taken import POINTS, Choice, Taken
from drystone.plan.taking import cropped, dropped, regridded, spread

__all__ = ["select"]


def select(combined: Combined, choice: Choice, names: Mapping[int, str], storage: Mapping[str, str | None]) -> Combined:
    """Take parts of a whole.

    Parameters
    ----------
    combined
        The whole.
    choice
        What is taken.
    names
        Granule id to address, for messages.
    storage
        By path, why granules' chunks are no one virtual array whatever is taken of it, if so.

    Examples
    --------
    >>> select(Combined((), (), None), Choice(), {}, {}).arrays
    ()
    """
    if not choice.axes and not choice.others:
        return combined
    arrays, coordinates = [], dict(combined.coordinates)
    for array in combined.arrays:
        taken = choice.of(array)
        if array.path in coordinates:
            coordinates[array.path] = _values(coordinates[array.path], array.dims, taken)
        arrays.append(_array(array, taken, names, coordinates.get(array.path), storage.get(array.path)))
    gone = {n for n, t in choice.axes.items() if t.dropped or t.points}
    axes = tuple(a for a in combined.axes if a not in gone)
    # a gap of the whole may lie where nothing is taken
    unmarked = {a.path: combined.unmarked[a.path] for a in arrays if a.path in combined.unmarked and Coverage.of(a).has_gaps}
    along = choice.axes
    rules = {p: r.taken(along[r.options.name].places) if r.options.name in along else r for p, r in combined.rules.items()}
    return replace(
        combined,
        arrays=tuple(arrays),
        coordinates=coordinates,
        axes=axes,
        axis=axes[0] if axes else None,
        unmarked=unmarked,
        rules=rules,
    )


def _values(values: np.ndarray, dims: tuple[str, ...], taken: Mapping[str, Taken]) -> np.ndarray:
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
    array: CombinedArray,
    taken: Mapping[str, Taken],
    names: Mapping[int, str],
    values: np.ndarray | None,
    storage: str | None,
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
        return regridded(whole, names, storage)
    if any(run is not None for run in runs.values()):
        array = regridded(array, names, storage)
    return _picked(array, rest) if rest else array


def _whole_chunks(array: CombinedArray, rest: Mapping[int, Taken]) -> CombinedArray | None:
    """The array where what is taken are whole chunks, so that they stay as they are; None where it is not."""
    taken: CombinedArray | None = array
    for d, t in sorted(rest.items(), reverse=True):  # an axis that goes moves those behind it
        if taken is not None:
            taken = dropped(taken, d, int(t.places[0])) if t.dropped else spread(taken, d, t.places)
    return taken


def _dims(dims: tuple[str, ...], mine: Mapping[int, Taken]) -> tuple[str, ...]:
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


def _picked(array: CombinedArray, rest: Mapping[int, Taken]) -> CombinedArray:
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


def _runs(array: CombinedArray, rest: Mapping[int, Taken], axes: tuple[int, ...]) -> DimensionGrid:
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

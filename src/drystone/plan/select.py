"""What is taken of a whole before anything is written: crops, levels, strides, lists, points.

A run of neighbouring places is a crop: placements are clipped, and where their chunks still start on the grid the array
stays virtual. Anything else makes a *picked* array: one that names, axis by axis, the places it takes of another one
(:class:`~drystone.model.placement.Picked`); it is read through that one, and is published by value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from drystone.errors import CombineError
from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.attributes import Attributes
from drystone.model.options import Selection
from drystone.model.placement import Combined, CombinedArray, Picked, Placements, Tile
from drystone.plan.joined import joined_grid
from drystone.plan.order_times import from_iso, month_start, parse_clock

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
            raise _refused(name, f"no array has that dimension (there are: {', '.join(sorted(sizes))})")
        taken[name] = _places(combined, name, sizes[name], what)
    if len({len(t.places) for t in taken.values() if t.points}) > 1:
        counts = ", ".join(f"{n}: {len(t.places)}" for n, t in taken.items() if t.points)
        raise _refused(POINTS, f"points need as many places on every dimension, not {counts}")
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


def _refused(name: str, why: str) -> CombineError:
    return CombineError(f"select: {name}: {why}", kind="select", dimension=name)


def _places(combined: Combined, name: str, size: int, what: Selection) -> _Taken:
    if what.kind in ("index", "list", "points", "slice"):
        return _numbered(name, size, what)
    values, attributes = _coordinate(combined, name)
    wanted = [None if v is None else _number(v, attributes, end=what.kind == "range" and i == 1)
              for i, v in enumerate(what.values)]  # fmt: skip
    if what.kind == "range":
        low, high = wanted
        if isinstance(low, float | int) and isinstance(high, float | int) and low > high:
            low, high = high, low
        inside: NDArray[np.bool_] = np.ones(size, np.bool_)
        if low is not None:
            inside &= np.greater_equal(values, low)
        if high is not None:
            inside &= np.less_equal(values, high)
        places = np.flatnonzero(inside)
        if not len(places):
            raise _refused(name, f"no place lies between {what.values[0]} and {what.values[1]} (it goes from {values.min()} to "
                                 f"{values.max()})")  # fmt: skip
        if places[-1] - places[0] + 1 != len(places):
            raise _refused(name, "its coordinate neither rises nor falls, so a range of values is no range of places")
        return _Taken(places[:: what.step].astype(np.int64))
    places = np.array([_find(name, values, w, v) for w, v in zip(wanted, what.values, strict=True)], np.int64)
    return _Taken(places, dropped=what.kind == "value", points=what.kind == "point_values")


def _numbered(name: str, size: int, what: Selection) -> _Taken:
    numbers = [v if v is None or isinstance(v, int) else int(float(v)) for v in what.values]
    if what.kind == "slice":
        return _Taken(np.arange(size, dtype=np.int64)[slice(numbers[0], numbers[1], what.step)])
    places = np.array([n for n in numbers if n is not None], np.int64)
    outside = places[(places >= size) | (places < -size)]
    if len(outside):
        raise _refused(name, f"place {outside[0]} is not among its {size}")
    return _Taken(np.where(places < 0, places + size, places), what.kind == "index", what.kind == "points")


def _coordinate(combined: Combined, name: str) -> tuple[NDArray[np.generic], Attributes]:
    found = sorted(
        (a for a in combined.arrays if a.dims == (name,) and a.name == name and a.path in combined.coordinates),
        key=lambda a: a.path.count("/"),
    )
    if not found:
        raise _refused(name, "it has no coordinate variable to look values up in; take places by number: {index: …}")
    return combined.coordinates[found[0].path], found[0].attributes


def _find(name: str, values: NDArray[np.generic], wanted: float | str | None, said: object) -> int:
    hits = np.flatnonzero(values == np.asarray(wanted))
    if len(hits):
        return int(hits[0])
    near = ""
    if values.dtype.kind in "iuf" and isinstance(wanted, int | float):
        near = f"; the nearest is {values[int(np.argmin(np.abs(values.astype(np.float64) - wanted)))]}"
    raise _refused(name, f"no place has the value {said}{near}")


_ISO = re.compile(r"^\d{4}(-\d{2}(-\d{2}([T ].*)?)?)?$")


def _number(value: str | float, attributes: Attributes, *, end: bool) -> float | str:
    """A value as the coordinate stores it: times in its units and calendar; a date that ends a range to its last instant."""
    if not isinstance(value, str) or not _ISO.match(value):
        return value
    units, said = attributes.get("units"), attributes.get("calendar")
    clock = None if units is None else parse_clock(str(units.value), None if said is None else str(said.value))
    if clock is None:
        return value
    time = from_iso(f"{value}-01-01" if len(value) == 4 else value, clock.calendar)
    if time is None:
        raise CombineError(f"select: {value} is no time of the calendar {clock.calendar}", kind="select")
    if end and len(value) <= len("2000-01-01"):
        time = _next(value, time, clock.calendar) - 1
    return float(Fraction(time - clock.epoch, clock.unit))


def _next(text: str, time: int, calendar: str) -> int:
    """The first instant after the year, month or day that a date names."""
    parts = [int(p) for p in text.split("-")]
    if len(parts) == 3:
        return time + 86_400_000_000_000
    month = parts[0] * 12 + (parts[1] if len(parts) == 2 else 12)
    return int(month_start(np.array([month]), calendar)[0])


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
            array = _cropped(array, d, *run)
    if any(run is not None for run in runs.values()):
        array = _regridded(array, names)
    return _picked(array, rest) if rest else array


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


def _cropped(array: CombinedArray, d: int, start: int, stop: int) -> CombinedArray:
    """Placements clipped to a run of places of one axis."""
    p = array.placements
    shape = tuple(stop - start if i == d else n for i, n in enumerate(array.shape))
    if d == p.axis:
        first, last = np.maximum(p.dest, start), np.minimum(p.dest + p.count, stop)
        keep = first < last
        shift = (first - p.dest)[keep]
        placements = Placements(
            p.axis, p.granule_id[keep], p.src_offset[keep] + shift, (last - first)[keep], first[keep] - start, p.variant[keep],
            p.tiles, p.tile[keep] if len(p.tile) else p.tile,
        )  # fmt: skip
        return replace(array, shape=shape, placements=placements)
    whole = Tile((0,) * len(shape), tuple(0 if i == p.axis else n for i, n in enumerate(array.shape)), (0,) * len(shape))
    tiles, kept = [], []
    for number, tile in enumerate(p.tiles or (whole,)):
        begin, end = max(tile.dest[d], start), min(tile.dest[d] + tile.count[d], stop)
        if begin < end:
            kept.append(number)
            tiles.append(_set(tile, d, tile.src_offset[d] + begin - tile.dest[d], end - begin, begin - start))
    numbers = p.tile if len(p.tile) else np.zeros(len(p), np.int32)
    rows = np.flatnonzero(np.isin(numbers, kept))
    new = np.searchsorted(np.array(kept), numbers[rows]).astype(np.int32)
    placements = Placements(
        p.axis, p.granule_id[rows], p.src_offset[rows], p.count[rows], p.dest[rows], p.variant[rows], tuple(tiles), new
    )
    return replace(array, shape=shape, placements=placements)


def _set(tile: Tile, d: int, src: int, count: int, dest: int) -> Tile:
    def put(values: tuple[int, ...], value: int) -> tuple[int, ...]:
        return (*values[:d], value, *values[d + 1 :])

    return Tile(put(tile.src_offset, src), put(tile.count, count), put(tile.dest, dest))


def _regridded(array: CombinedArray, names: Mapping[int, str]) -> CombinedArray:
    grid, unaligned = joined_grid(array.path, array.dims, array.shape, array.placements, array.variants, names)
    return replace(array, grid=grid, unaligned=array.unaligned or unaligned)


def _picked(array: CombinedArray, rest: Mapping[int, _Taken]) -> CombinedArray:
    """A picked array: read through the one it takes places of."""
    places = tuple(tuple(rest[d].places.tolist()) if d in rest else None for d in range(len(array.dims)))
    dropped = tuple(d for d in rest if rest[d].dropped)
    points = tuple(d for d in rest if rest[d].points)
    shape: list[int] = []
    chunk: list[int] = []
    for d, n in enumerate(array.shape):
        if d in dropped or d in points[1:]:
            continue
        size = len(rest[d].places) if d in rest else n
        shape.append(size)
        edge = array.grid.dimensions[d].regular_size or max((int(s) for s in array.grid.dimensions[d].data_sizes(
            np.arange(array.grid.dimensions[d].n_chunks))), default=1)  # fmt: skip
        chunk.append(max(1, min(size, edge)))
    ids, at = np.unique(array.placements.granule_id, return_index=True)
    zero = np.zeros(len(ids), np.int64)
    # one row for each granule that it is read from; where they land, the array that is picked from knows
    placements = Placements(None, ids, zero, zero + 1, np.arange(len(ids)), array.placements.variant[at])
    return replace(
        array,
        dims=_dims(array.dims, rest),
        shape=tuple(shape),
        grid=ChunkGrid.regular(tuple(shape), tuple(chunk)),
        unaligned=f"{array.path}: what is selected of it is no run of whole chunks, so its bytes are no chunks of one Zarr "
        "array; publish it as a store (rechunk)",
        placements=placements,
        source=array.inner,
        picked=Picked(array, places, dropped, points),
    )

"""Which places of each dimension are taken: numbers as they are, values by the dimension's coordinate.

Values are looked up by :mod:`~drystone.plan.lookup`; what becomes of arrays is :mod:`~drystone.plan.select`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from drystone.model.options import Selection
from drystone.plan.lookup import Coordinate, refused

__all__ = ["POINTS", "Taken", "by_value", "check_points", "taken_of"]

POINTS = "points"


@dataclass(frozen=True, slots=True)
class Taken:
    """Places of one dimension, in order.

    Parameters
    ----------
    places
        int64 (n,).
    dropped
        Whether the dimension goes, since one place is taken.
    points
        Whether places are walked together with other dimensions', as one dimension ``points``.

    Examples
    --------
    >>> Taken(np.array([3, 4, 5])).run, Taken(np.array([3, 5])).run
    ((3, 6), None)
    """

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

    def at(self, places: NDArray[np.int64]) -> Taken:
        """The same of other places."""
        return replace(self, places=places)


def by_value(what: Selection) -> bool:
    """Whether a coordinate says which places are taken."""
    return what.kind in ("range", "value", "values", "point_values")


def taken_of(name: str, size: int, what: Selection, coordinate: Callable[[str], Coordinate]) -> Taken:
    """The places of one dimension that a selection takes.

    Raises
    ------
    CombineError
        ``select``: a place or a value is not on it; the nearest is named.

    Examples
    --------
    >>> taken_of("x", 5, Selection("list", (-1, 0)), Coordinate).places.tolist()
    [4, 0]
    """
    if not by_value(what):
        return _numbered(name, size, what)
    found = coordinate(name)
    if what.kind == "range":
        return Taken(found.between(what.values[0], what.values[1])[:: what.step])
    places = np.array([found.place(v) for v in what.values if v is not None], np.int64)
    return Taken(places, dropped=what.kind == "value", points=what.kind == "point_values")


def _numbered(name: str, size: int, what: Selection) -> Taken:
    numbers = [v if v is None or isinstance(v, int) else int(float(v)) for v in what.values]
    if what.kind == "slice":
        sliced = np.arange(size, dtype=np.int64)[slice(numbers[0], numbers[1], what.step)]
        if not len(sliced):
            raise refused(name, f"no place lies between {numbers[0]} and {numbers[1]}: it has {size}")
        return Taken(sliced)
    places = np.array([n for n in numbers if n is not None], np.int64)
    outside = places[(places >= size) | (places < -size)]
    if len(outside):
        raise refused(name, f"place {outside[0]} is not among its {size}")
    return Taken(np.where(places < 0, places + size, places), what.kind == "index", what.kind == "points")


def check_points(taken: Mapping[str, Taken]) -> None:
    """Points need as many places on every dimension.

    Raises
    ------
    CombineError
        ``select``.
    """
    if len({len(t.places) for t in taken.values() if t.points}) > 1:
        counts = ", ".join(f"{n}: {len(t.places)}" for n, t in taken.items() if t.points)
        raise refused(POINTS, f"points need as many places on every dimension, not {counts}")

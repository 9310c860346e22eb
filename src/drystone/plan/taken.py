"""Which places of each dimension are taken: numbers as they are, values by the dimension's coordinate.

Values are looked up by :mod:`~drystone.plan.lookup`; what becomes of arrays is :mod:`~drystone.plan.select`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from drystone.model.options import Selection
from drystone.model.placement import CombinedArray
from drystone.plan.lookup import Coordinate, refused

__all__ = ["POINTS", "Choice", "Taken", "by_number", "check_points", "numbered", "valued"]

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


@dataclass(frozen=True, slots=True)
class Choice:
    """What is taken of a whole.

    Parameters
    ----------
    axes
        Of joined axes, by name: all arrays share them.
    others
        Of other dimensions, by path of the array and name: groups may have dimensions of their own by one name.
    """

    axes: Mapping[str, Taken] = field(default_factory=dict)
    others: Mapping[tuple[str, str], Taken] = field(default_factory=dict)

    def of(self, array: CombinedArray) -> dict[str, Taken]:
        """What is taken of an array, by dimension."""
        found = ((name, self.axes.get(name, self.others.get((array.path, name)))) for name in array.dims)
        return {name: t for name, t in found if t is not None}

    def points(self, array: CombinedArray) -> bool:
        """Whether places of an array are walked as points."""
        return any(t.points for t in self.of(array).values())

    def part(self, axis: str, first: int, last: int) -> Choice:
        """The ``first`` to ``last`` of what is taken of an axis; where these are points, of all points."""
        points = self.axes[axis].points

        def cut(name: str, taken: Taken) -> Taken:
            return taken.at(taken.places[first:last]) if name == axis or (points and taken.points) else taken

        axes = {name: cut(name, t) for name, t in self.axes.items()}
        return Choice(axes, {key: cut(key[1], t) for key, t in self.others.items()})


def by_number(what: Selection) -> bool:
    """Whether no coordinate is needed to say which places are taken."""
    return what.kind in ("index", "list", "points", "slice")


def numbered(name: str, size: int, what: Selection, where: str = "") -> Taken:
    """Places by number, from 0, or from -1 backwards; ``where`` is for messages.

    Raises
    ------
    CombineError
        ``select``: there is no such place.

    Examples
    --------
    >>> numbered("x", 5, Selection("list", (-1, 0))).places.tolist()
    [4, 0]
    """
    numbers = [v if v is None or isinstance(v, int) else int(float(v)) for v in what.values]
    if what.kind == "slice":
        sliced = np.arange(size, dtype=np.int64)[slice(numbers[0], numbers[1], what.step)]
        if not len(sliced):
            raise refused(name, f"no place lies between {numbers[0]} and {numbers[1]}: it has {size}{where}")
        return Taken(sliced)
    places = np.array([n for n in numbers if n is not None], np.int64)
    outside = places[(places >= size) | (places < -size)]
    if len(outside):
        raise refused(name, f"place {outside[0]} is not among its {size}{where}")
    return Taken(np.where(places < 0, places + size, places), what.kind == "index", what.kind == "points")


def valued(coordinate: Coordinate, what: Selection) -> Taken:
    """Places by value.

    Raises
    ------
    CombineError
        ``select``: no place has it; the nearest is named.
    """
    if what.kind == "range":
        return Taken(coordinate.between(what.values[0], what.values[1])[:: what.step])
    places = np.array([coordinate.place(v) for v in what.values if v is not None], np.int64)
    return Taken(places, dropped=what.kind == "value", points=what.kind == "point_values")


def check_points(choice: Choice) -> None:
    """Points need as many places on every dimension.

    Raises
    ------
    CombineError
        ``select``.
    """
    counts = {name: len(t.places) for name, t in choice.axes.items() if t.points}
    counts |= {name: len(t.places) for (_, name), t in choice.others.items() if t.points}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"{name}: {n}" for name, n in counts.items())
        raise refused(POINTS, f"points need as many places on every dimension, not {said}")

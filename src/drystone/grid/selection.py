"""Selections: what a reader asks for, normalised to one small value an axis.

A request is what ``array[...]`` accepts in orthogonal indexing: per axis an integer, a slice with any stride but 0, a
one-dimensional sequence of integers (unsorted and repeated ones too) or a boolean mask, and at most one ``Ellipsis``;
axes left out are whole. An array selects along its own axis only, as in ``numpy.ix_``, whatever the others do.

After :func:`normalise` there are two forms, :class:`Strided` and :class:`Indexed`, without negative numbers or numbers
past the end. Both know whether the axis is dropped from the result (an integer drops it).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

__all__ = ["AxisSelection", "Indexed", "NormalAxis", "Selection", "Strided", "normalise"]

type AxisSelection = int | np.integer | slice | Sequence[int] | NDArray[np.integer] | NDArray[np.bool_]
type Selection = AxisSelection | EllipsisType | tuple[AxisSelection | EllipsisType, ...]


@dataclass(frozen=True, slots=True)
class Strided:
    """``count`` elements from ``start``, ``step`` apart (negative: backwards); ``dropped`` for an integer.

    Examples
    --------
    >>> normalise(slice(None, None, -3), (10,))
    (Strided(start=9, step=-3, count=4, dropped=False),)
    """

    start: int
    step: int
    count: int
    dropped: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Indexed:
    """``indices``, int64 (count,), each inside the axis, in the order of the request."""

    indices: NDArray[np.int64]
    dropped: bool = False

    @property
    def count(self) -> int:
        """Elements selected."""
        return len(self.indices)


type NormalAxis = Strided | Indexed


def normalise(selection: Selection, shape: tuple[int, ...]) -> tuple[NormalAxis, ...]:
    """One :class:`Strided` or :class:`Indexed` an axis.

    Parameters
    ----------
    selection
        As in ``array[selection]``; see the module's docstring.
    shape
        Of the array, in elements.

    Raises
    ------
    IndexError
        More entries than axes, an index outside its axis, a mask of another length, an array of another rank or type.

    Examples
    --------
    >>> normalise((Ellipsis, 2), (4, 5))
    (Strided(start=0, step=1, count=4, dropped=False), Strided(start=2, step=1, count=1, dropped=True))
    >>> normalise([True, False, True], (3,))[0].indices.tolist()
    [0, 2]
    """
    entries = list(selection) if isinstance(selection, tuple) else [selection]
    ellipses = [i for i, e in enumerate(entries) if e is Ellipsis]
    if len(ellipses) > 1:
        raise IndexError("a selection holds at most one Ellipsis")
    given = len(entries) - len(ellipses)
    if given > len(shape):
        raise IndexError(f"{given} indices for an array of {len(shape)} axes")
    rest: list[AxisSelection | EllipsisType] = [slice(None)] * (len(shape) - given)
    at = ellipses[0] if ellipses else len(entries)
    whole = [*entries[:at], *rest, *entries[at + 1 :]]
    return tuple(_axis(e, n, axis) for axis, (e, n) in enumerate(zip(whole, shape, strict=True)))


def _is_integer(entry: object) -> TypeGuard[int]:
    return not isinstance(entry, bool | np.bool_) and (
        isinstance(entry, int | np.integer) or (isinstance(entry, np.ndarray) and entry.ndim == 0 and entry.dtype.kind in "iu")
    )


def _axis(entry: object, extent: int, axis: int) -> NormalAxis:
    if _is_integer(entry):
        index = operator.index(entry)
        if not -extent <= index < extent:
            raise IndexError(f"index {index} is outside axis {axis} of {extent} elements")
        return Strided(index + extent if index < 0 else index, 1, 1, dropped=True)
    if isinstance(entry, slice):
        start, stop, step = entry.indices(extent)
        count = len(range(start, stop, step))
        # an empty slice may start past the end, which no chunk holds
        return Strided(start, step, count) if count else Strided(0, 1, 0)
    return Indexed(_indices(entry, extent, axis))


def _indices(entry: object, extent: int, axis: int) -> NDArray[np.int64]:
    if not isinstance(entry, np.ndarray | list | tuple | range):
        raise IndexError(f"axis {axis}: {entry!r} is no integer, slice, integer array or mask")
    array = np.asarray(entry)
    if array.size == 0 and array.ndim == 1 and array.dtype.kind == "f":
        array = array.astype(np.int64)  # an empty list has no type of its own
    if array.ndim != 1:
        raise IndexError(f"axis {axis}: an index array has 1 axis, not {array.ndim}")
    if array.dtype.kind == "b":
        if len(array) != extent:
            raise IndexError(f"axis {axis}: a mask of {len(array)} for {extent} elements")
        return np.flatnonzero(array).astype(np.int64)
    if array.dtype.kind not in "iu":
        raise IndexError(f"axis {axis}: an index array holds integers, not {array.dtype}")
    if array.size and (int(array.min()) < -extent or int(array.max()) >= extent):
        raise IndexError(f"axis {axis}: indices {int(array.min())} to {int(array.max())} are not all inside {extent} elements")
    indices = array.astype(np.int64)
    indices[indices < 0] += extent
    return indices

"""Months and years along a time axis: how many of its elements each holds, for chunks that follow the calendar.

Elements are taken at their own instants, exactly, in the coordinate's own calendar: a mean that is stamped at midnight of the
first of February is February's. A month without elements has no chunk.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from drystone.errors import PlanError
from drystone.model.attributes import Attributes
from drystone.model.placement import Combined, CombinedArray
from drystone.plan.order_times import instants, iso, months_of, parse_clock

__all__ = ["calendar_periods", "periods_of"]


def calendar_periods(combined: Combined, array: CombinedArray, dim: str, unit: str) -> tuple[int, ...]:
    """Elements of each month or year along a dimension of an array.

    Parameters
    ----------
    combined
        Holds the dimension's coordinate: the one in the array's group, or in the nearest group above.
    dim
        Name of the dimension.
    unit
        ``months`` or ``years``.

    Raises
    ------
    PlanError
        ``calendar``: there is no such coordinate, it holds no dates, or its dates go back and forth between periods.
    """
    group = array.path.rpartition("/")[0]
    known = {a.path: a for a in combined.arrays}
    while True:
        path = f"{group}/{dim}"
        if path in known and path in combined.coordinates and known[path].dims == (dim,):
            break
        if not group:
            raise _refused(array, dim, unit, f"no coordinate {dim} of its own dimension alone was read at the scan")
        group = group.rpartition("/")[0]
    values = combined.coordinates[path]
    extent = array.shape[array.dims.index(dim)]
    if len(values) != extent:
        raise _refused(array, dim, unit, f"{path} has {len(values)} values for {extent} elements")
    try:
        return periods_of(values, known[path].attributes, unit)
    except ValueError as error:
        raise _refused(array, dim, unit, f"{path} {error}") from error


def _refused(array: CombinedArray, dim: str, unit: str, why: str) -> PlanError:
    return PlanError(
        f"{array.path}: {dim}: {unit}: {why}; give a number of elements or `all` instead",
        kind="calendar",
        array=array.path,
        dimension=dim,
    )


def periods_of(values: NDArray[np.generic], attributes: Attributes, unit: str) -> tuple[int, ...]:
    """Elements of each successive month or year of a time coordinate.

    Raises
    ------
    ValueError
        It holds no dates, or comes back to a period that it has left.

    Examples
    --------
    >>> said = Attributes.of({"units": "days since 2001-01-01", "calendar": "standard"})
    >>> periods_of(np.arange(90), said, "months")
    (31, 28, 31)
    >>> periods_of(np.arange(400.0), said, "years")
    (365, 35)
    """
    units, calendar = attributes.get("units"), attributes.get("calendar")
    clock = None if units is None else parse_clock(str(units.value), None if calendar is None else str(calendar.value))
    if clock is None or values.dtype.kind not in "iuf":
        raise ValueError(f"holds no dates (units: {'none' if units is None else units.value})")
    if not len(values):
        return ()
    missing = np.flatnonzero(~np.isfinite(values.astype(np.float64)))
    if len(missing):
        raise ValueError(f"has no date at element {missing[0]}")
    times = instants(values, clock)
    period = months_of(times, clock.calendar) // (12 if unit == "years" else 1)
    starts = np.flatnonzero(np.diff(period, prepend=period[0] - 1))
    _, first = np.unique(period[starts], return_index=True)
    if len(first) < len(starts):
        again = int(starts[np.setdiff1d(np.arange(len(starts)), first)[0]])
        raise ValueError(
            f"comes back at element {again} ({iso(times[again], clock.calendar)}) to one of the {unit} it had left"
        )
    return tuple(np.diff(starts, append=len(period)).tolist())

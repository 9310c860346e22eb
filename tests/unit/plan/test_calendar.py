"""Months and years along a time axis."""

from __future__ import annotations

import cftime
import numpy as np
import pytest

from drystone.model.attributes import Attributes
from drystone.plan.calendar import periods_of


@pytest.mark.parametrize("calendar", ["standard", "noleap", "360_day", "julian", "all_leap", "proleptic_gregorian"])
@pytest.mark.parametrize("unit", ["months", "years"])
@pytest.mark.parametrize("units", ["hours since 1999-11-17 06:00", "days since 1582-09-01", "seconds since 2100-02-27"])
def test_as_cftime_counts(calendar: str, unit: str, units: str) -> None:
    step = {"hours": 6, "days": 1, "seconds": 86_400 // 4}[units.partition(" ")[0]]
    values = np.arange(0, 3_000) * step
    said = Attributes.of({"units": units, "calendar": calendar})
    dates = cftime.num2date(values, units, calendar)
    keys = [(d.year, d.month) if unit == "months" else d.year for d in dates]
    counted = [keys.count(k) for k in dict.fromkeys(keys)]
    assert list(periods_of(values, said, unit)) == counted


def test_falling_times_and_months_without_elements() -> None:
    said = Attributes.of({"units": "days since 2001-01-01"})
    assert periods_of(np.array([60, 40, 33, 2, 1]), said, "months") == (1, 2, 2)
    assert periods_of(np.array([0, 1, 100]), said, "months") == (2, 1)
    assert periods_of(np.array([], "f8"), said, "years") == ()


@pytest.mark.parametrize(
    ("values", "units", "why"),
    [
        ([0, 40, 1], "days since 2001-01-01", r"comes back at element 2 \(2001-01-02"),
        ([0.0, np.nan], "days since 2001-01-01", "no date at element 1"),
        ([0, 1], "metres", r"holds no dates \(units: metres\)"),
        ([0, 1], "months since 2001-01-01", "holds no dates"),
    ],
)
def test_what_is_no_calendar(values: list[float], units: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        periods_of(np.array(values), Attributes.of({"units": units}), "months")

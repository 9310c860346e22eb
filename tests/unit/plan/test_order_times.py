"""Calendars against cftime, and numbers against the instants they stand for."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import cftime
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drystone.plan.order_times import encode, from_iso, instants, iso, month_start, months_of, parse_clock

CALENDARS = ("standard", "proleptic_gregorian", "noleap", "all_leap", "360_day", "julian")


@given(st.sampled_from(CALENDARS), st.integers(-700_000, 700_000), st.integers(0, 86_399))
def test_dates_are_those_of_cftime(calendar, day, second):
    """Forth and back, over the reform of the calendar too."""
    units = "seconds since 1970-01-01"
    clock = parse_clock(units, calendar)
    time = int(instants(np.array([day * 86_400 + second]), clock)[0])
    theirs = cftime.num2date(day * 86_400 + second, units, calendar)
    text = f"{theirs.year:04d}-{theirs.month:02d}-{theirs.day:02d}T{theirs.hour:02d}:{theirs.minute:02d}:{theirs.second:02d}"
    if theirs.year < 1:  # cftime has no year 0 in some
        return
    assert iso(time, calendar) == text
    assert from_iso(text, calendar) == time
    month = months_of(np.array([time]), calendar)
    assert int(month[0]) == theirs.year * 12 + theirs.month - 1
    start = int(month_start(month, calendar)[0])
    assert iso(start, calendar) == f"{theirs.year:04d}-{theirs.month:02d}-01T00:00:00"


@given(st.integers(-(10**7), 10**7), st.sampled_from(["f8", "f4"]), st.sampled_from(["days", "hours", "minutes"]))
def test_a_number_stands_for_the_roundest_instant(second, dtype, unit):
    """The nearest number to whole seconds is whole seconds, and comes back as the same number."""
    clock = parse_clock(f"{unit} since 1981-09-01 12:00", None)
    value = np.array([Fraction(second * 10**9) / clock.unit], np.float64).astype(dtype)
    time = instants(value, clock)
    if dtype == "f8":
        assert int(time[0]) == second * 10**9 + clock.epoch
    assert encode(time, clock, np.dtype(dtype)).tolist() == value.tolist()


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=6, unique=True))
def test_order_is_kept_and_different_numbers_stay_apart(values):
    """Instants sort as the numbers do."""
    ordered = np.sort(np.array(values) + 0.0)
    ordered = ordered[np.append(True, np.diff(ordered) > 0)]
    times = instants(ordered, parse_clock("days since 2000-01-01", None)).tolist()
    assert all(a < b for a, b in pairwise(times))


@pytest.mark.parametrize(
    ("units", "calendar"),
    [("days since yesterday", None), ("days", None), ("months since 2000-01-01", None), ("days since 2000-01-01", "lunar"),
     ("days since 2001-02-29", "noleap"), ("days since 2000-01-01 25:00", None)],
)  # fmt: skip
def test_units_that_say_no_exact_time(units, calendar):
    """None, and nobody guesses."""
    assert parse_clock(units, calendar) is None


def test_spellings_of_units():
    """One meaning each."""
    same = {
        parse_clock(u, c).epoch
        for u, c in (
            ("days since 2000-1-1", None),
            ("d since 2000-01-01T00:00:00Z", "gregorian"),
            ("hours since 2000-01-01 02:00 +02:00", "standard"),
            ("s since 1999-12-31 22:30:00.000 -0130", "proleptic_gregorian"),
        )
    }
    assert len(same) == 1
    assert parse_clock("months since 2000-01-01", "360_day").unit == 30 * 86_400 * 10**9


def test_far_times_are_whole_numbers_still():
    """Beyond what 64 bits of nanoseconds hold."""
    clock = parse_clock("days since 0001-01-01", "noleap")
    times = instants(np.array([0, 20_000 * 365]), clock)
    assert times.dtype == object
    assert iso(times[1], "noleap") == "20001-01-01T00:00:00"
    assert encode(times, clock, np.dtype("i4")).tolist() == [0, 20_000 * 365]

"""Selections: what is refused and how it is said, times by calendar, what stays virtual; tiles that overlap."""

from __future__ import annotations

import numpy as np
import pytest

from drystone.errors import CombineError
from drystone.model.attributes import Attributes
from drystone.model.options import Selection
from drystone.model.placement import Tile
from drystone.plan.lookup import Coordinate
from drystone.plan.placing import _check_tiles


def coordinate(values: object, units: str | None = None, calendar: str | None = None) -> Coordinate:
    said = {k: v for k, v in (("units", units), ("calendar", calendar)) if v is not None}
    return Coordinate.of("x", np.asarray(values), Attributes.of(said))


@pytest.mark.parametrize(
    ("calendar", "first", "last", "count"),
    [
        ("360_day", "2000-02", "2000-02", 30),
        ("noleap", "2000-02", "2000-02", 28),
        ("all_leap", "2001-02", "2001-02", 29),
        ("standard", "2000-02", "2000-02", 29),
        ("360_day", "2000", "2000", 360),
        ("noleap", "2000", "2000", 365),
        ("standard", "2000", "2000", 366),
        ("360_day", "2000-02-29", "2000-02-30", 2),
        ("standard", "2000-12", "2001-01", 62),
        ("standard", "2001", "2000", 731),
        ("standard", "2000-01-31", "2000-01-31", 1),
    ],
)
@pytest.mark.parametrize("dtype", ["i4", "f8"])
def test_dates_count_whole_in_their_calendar(calendar, first, last, count, dtype):
    """The midnight after the last day is not in, however little a float tells it from the nanosecond before."""
    start = {"360_day": 10800, "noleap": 10950, "all_leap": 10980}.get(calendar, 10957)
    found = coordinate(np.arange(start - 40, start + 1200).astype(dtype), "days since 1970-01-01", calendar)
    assert len(found.between(first, last)) == count


def test_ends_may_run_either_way_on_an_axis_that_falls():
    falls = coordinate(np.array([80.0, 40.0, 0.0, -40.0]))
    assert falls.between(-40, 40).tolist() == falls.between(40, -40).tolist() == [1, 2, 3]
    assert falls.between(None, 0).tolist() == [2, 3]


def test_numbers_have_the_precision_of_the_coordinate():
    tenths = coordinate((np.arange(5) * 0.1).astype("f4"))
    assert tenths.place(0.1) == 1
    assert tenths.between(0.1, 0.3).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("take", "parts"),
    [
        (lambda: coordinate([0, 10, 20]).place(12), ["no place has the value 12", "nearest is 10"]),
        (lambda: coordinate([0, 10, 20]).between(3, 4), ["no place lies between 3 and 4", "from 0 to 20"]),
        (lambda: coordinate([0, 20, 0, 20]).between(15, 20), ["neither rises nor falls"]),
        (lambda: coordinate([0, 1]).place("abc"), ["'abc' is no number"]),
        (lambda: coordinate([0, 1], "days since 2000-01-01", "noleap").place("2000-02-29"), ["no time of the calendar noleap"]),
        (lambda: coordinate([0, 1], "days since 2000-01-01").place("2000-01-05"), ["nearest is 1 (2000-01-02"]),
        (lambda: coordinate(np.array(["a", "b"])).place("c"), ["no place has the value c"]),
        (lambda: coordinate(np.zeros(0)).between(0, 1), ["no places"]),
    ],
)  # fmt: skip
def test_refusals_say_what_there_is(take, parts):
    with pytest.raises(CombineError) as caught:
        take()
    assert caught.value.kind == "select"
    assert all(p in str(caught.value) for p in parts), str(caught.value)


def test_text_is_found_as_text():
    assert coordinate(np.array(["ssp126", "ssp585"])).place("ssp585") == 1
    assert coordinate(np.array([b"a", b"b"])).place("b") == 1
    assert coordinate(np.array(["ssp126", "ssp585"], np.dtypes.StringDType())).place("ssp585") == 1
    assert coordinate(np.array(["a", "b", "c"], np.dtypes.StringDType())).between("b", None).tolist() == [1, 2]
    assert coordinate(np.array(["é".encode()])).place("é") == 0


def test_tiles_that_hold_one_element_together_are_refused():
    """One tile's rows see to themselves; two tiles' do not."""
    tiles = (Tile((0, 0), (0, 5), (0, 0)), Tile((0, 0), (0, 5), (0, 4)))
    columns = np.array([0, 1], np.int32), np.array([0, 2]), np.array([2, 2]), np.array([7, 8], np.int32)
    _check_tiles("/v", tiles, *columns, {7: "a.nc", 8: "b.nc"})
    columns = np.array([0, 1], np.int32), np.array([0, 1]), np.array([2, 2]), np.array([7, 8], np.int32)
    with pytest.raises(CombineError, match=r"a\.nc and b\.nc hold"):
        _check_tiles("/v", tiles, *columns, {7: "a.nc", 8: "b.nc"})


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"depth": Selection("index", (0,))}, "no array has that dimension"),
        ({"x": Selection("value", (1,))}, "no coordinate variable"),
        ({"time": Selection("list", (9,))}, "place 9 is not among its 4"),
        ({"time": Selection("slice", (3, 2))}, "no place lies between 3 and 2"),
        ({"time": Selection("points", (0, 1)), "x": Selection("points", (0,))}, "as many places on every dimension"),
    ],
)
def test_selections_that_fit_nothing_are_refused(tmp_path, chosen, said):
    import netCDF4

    import drystone

    with netCDF4.Dataset(tmp_path / "a.nc", "w") as nc:
        nc.createDimension("time", 4)
        nc.createDimension("x", 3)
        nc.createVariable("v", "i4", ("time", "x"))[:] = 0
    with pytest.raises(CombineError, match=said):
        drystone.open(str(tmp_path / "a.nc"), select=chosen)

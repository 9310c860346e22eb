"""Slots: a place for each value, whatever else is there."""

from __future__ import annotations

import numpy as np
import pytest

from drystone.errors import CombineError, ConfigError
from drystone.model.options import AxisOptions
from tests.services.order_granules import granule, order, rows, series, tile


def slots(step, origin=None, stop=None, name="time", **more) -> AxisOptions:
    """A slot axis."""
    return AxisOptions(name, axis="slots", step=step, origin=origin, stop=stop, **more)


def flat(found, scans):
    """Boxes of one axis as (name, source, count, place)."""
    return [(n, *s, *c, *d) for n, s, c, d in rows(found, list(scans))]


def test_gaps_have_times():
    """Values are the base's units and type; a note counts what is missing."""
    scans = {"late": series([4], "i4"), "a": series([0, 1], "i4")}
    found = order(scans, slots("1D"))
    assert flat(found, scans) == [("a", 0, 2, 0), ("late", 0, 1, 4)]
    axis = found.axes[0]
    assert axis.values.dtype == np.int32
    assert axis.values.tolist() == [0, 1, 2, 3, 4]
    assert axis.attributes["units"].value == "days since 2000-01-01"
    assert axis.origin == "2000-01-01T00:00:00"
    assert any("2 of 5 places along time" in n for n in found.notes)


def test_origin_and_stop_are_a_given_axis():
    """Reindexing onto it: a place before the first granule and after the last."""
    scans = {"a": series([1])}
    found = order(scans, slots("1D", "2000-01-01", "2000-01-04"))
    assert flat(found, scans) == [("a", 0, 1, 1)]
    assert found.axes[0].values.tolist() == [0.0, 1.0, 2.0]
    assert order(scans, slots(1, 0, 3)).axes[0].values.tolist() == [0.0, 1.0, 2.0]


def test_steps_finer_than_the_units_can_say():
    """Whole days cannot hold six hours: a finer unit does, exactly."""
    scans = {"a": series([0], "i4"), "b": series([1], "i4")}
    axis = order(scans, slots("6h")).axes[0]
    assert axis.values.tolist() == [0, 6, 12, 18, 24]
    assert axis.values.dtype == np.int32
    assert axis.attributes["units"].value == "hours since 2000-01-01"
    thirds = order({"a": series([0.0]), "b": series([1.0])}, slots("8h")).axes[0]
    assert thirds.values.tolist() == [0.0, 1 / 3, 2 / 3, 1.0]
    assert thirds.attributes["units"].value == "days since 2000-01-01"


@pytest.mark.parametrize(
    ("step", "value", "nearest"),
    [("1D", 0.5, ("2000-01-01T00:00:00", "2000-01-02T00:00:00")), (2, 1, ("2000-01-01", "2000-01-03"))],
)
def test_values_off_the_grid(step, value, nearest):
    """The granule, value, step and the nearest slots."""
    with pytest.raises(CombineError) as caught:
        order({"ok": series([0]), "bad": series([value])}, slots(step, "2000-01-01"))
    text = str(caught.value)
    assert caught.value.kind == "axis-off-grid"
    assert text.startswith("bad: time = 2000-01-0")
    assert all(part in text for part in (*nearest, f"slots of {step}"))


def test_outside_the_slots():
    """Before the origin, after the stop."""
    scans = {"early": series([0]), "late": series([5])}
    with pytest.raises(CombineError, match=r"early: time = 2000-01-01T00:00:00 is before the origin 2000-01-02"):
        order(scans, slots("1D", "2000-01-02"))
    with pytest.raises(CombineError, match=r"late: time = 2000-01-06T00:00:00 is at or after the stop 2000-01-06"):
        order(scans, slots("1D", "2000-01-01", "2000-01-06"))


def test_gaps_as_errors():
    """How many, and the first."""
    with pytest.raises(
        CombineError, match=r"4 of 7 places along time .* first at time = 2000-01-02T00:00:00; time = 2000-01-04"
    ) as caught:
        order({"a": series([0]), "b": series([3 - 1]), "c": series([6])}, slots("1D"), gaps="error")
    assert caught.value.facts["missing"] == 4


def test_months_hold_their_middle():
    """A slot a month; gaps say its first instant, granules keep what they say."""
    jan, feb, apr = 14.5, 45.0, 105.0
    scans = {"apr": series([apr]), "jan": series([jan]), "feb": series([feb])}
    found = order(scans, slots("1M"))
    assert flat(found, scans) == [("jan", 0, 1, 0), ("feb", 0, 1, 1), ("apr", 0, 1, 3)]
    assert found.axes[0].values.tolist() == [jan, feb, 60.0, apr]
    assert found.axes[0].origin == "2000-01-01T00:00:00"
    with pytest.raises(CombineError, match=r"a: time = 2000-01-15T12:00:00 and 2000-01-16T00:00:00 fall into one slot of 1M"):
        order({"a": series([14.5, 15])}, slots("1M"))


@pytest.mark.parametrize("calendar", ["noleap", "360_day", "all_leap", "julian", "proleptic_gregorian"])
def test_calendar_steps_in_every_calendar(calendar):
    """Twelve months are a year; a year starts with its first month."""
    length = {"noleap": 365, "360_day": 360}.get(calendar, 366)
    scans = {"a": series([10], calendar=calendar), "b": series([length + 10], calendar=calendar)}
    assert order(scans, slots("1M")).axes[0].extent == 13
    found = order(scans, slots("1Y", "1999-06-01")).axes[0]
    assert found.extent == 2
    assert order(scans, slots("1Y", "2000-01-01")).axes[0].extent == 2
    assert order(scans, slots("3M")).axes[0].extent == 5


def test_days_of_noleap_know_no_29_february():
    """The day after the 28th is the 1st of March."""
    scans = {"a": series([58], calendar="noleap"), "b": series([59], calendar="noleap")}
    found = order(scans, slots("1D", "2000-02-28"))
    assert found.axes[0].extent == 2
    with pytest.raises(ConfigError, match="no time of the calendar noleap"):
        order(scans, slots("1D", "2000-02-29"))


def test_numbers_are_decimals_as_written():
    """Tenths are no doubles, and still on the grid of tenths."""
    scans = {
        "a": series([0.1, 0.2, 0.3], "f4", name="lat", units="degrees"),
        "b": series([0.7], "f4", name="lat", units="degrees"),
    }
    found = order(scans, slots(0.1, name="lat"))
    assert flat(found, scans) == [("a", 0, 3, 0), ("b", 0, 1, 6)]
    assert found.axes[0].values.dtype == np.float32
    assert found.axes[0].values.tolist() == np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7], "f4").tolist()
    down = {"a": series([89.5, 88.5], name="lat", units="degrees"), "b": series([86.5], name="lat", units="degrees")}
    assert order(down, slots(-1, name="lat")).axes[0].values.tolist() == [89.5, 88.5, 87.5, 86.5]


@pytest.mark.parametrize("policy", ["first", "last"])
def test_duplicates_by_policy(policy):
    """As for sequences."""
    scans = {"a": series([0, 1]), "b": series([1, 2])}
    found = order(scans, slots("1D"), duplicates=policy)
    assert flat(found, scans) == ([("a", 0, 2, 0), ("b", 1, 1, 2)] if policy == "first" else [("a", 0, 1, 0), ("b", 0, 2, 1)])
    with pytest.raises(CombineError, match="a and b both hold time = 2000-01-02T00:00:00"):
        order(scans, slots("1D"))


def test_slots_of_a_new_axis_read_from_names():
    """A day without a file is a gap."""
    one = granule(*tile([0, 1], [0, 1]).arrays)
    scans = {"sst.20200103.nc": one, "sst.20200101.nc": one}
    found = order(scans, slots("1D", position="name", pattern="sst.%Y%m%d.nc"))
    axis = found.axes[0]
    assert (axis.new, axis.extent, axis.values.tolist()) == (True, 3, [0, 1, 2])
    assert axis.attributes["units"].value == "days since 2020-01-01"
    assert flat(found, scans) == [("sst.20200101.nc", 0, 1, 0), ("sst.20200103.nc", 0, 1, 2)]
    dated = {"d20200103": series([0]), "d20200101": series([0])}
    found = order(dated, slots("1D", position="name", pattern="d%Y%m%d"))
    assert (found.axes[0].new, found.axes[0].extent) == (False, 3)
    assert any("its values are those of the slots" in n for n in found.notes)
    with pytest.raises(CombineError, match="d20200101: it has 2 elements along time, d20200103 has 1"):
        order({"d20200103": series([0]), "d20200101": series([0, 1])}, slots("1D", position="name", pattern="d%Y%m%d"))


@pytest.mark.parametrize(
    ("axis", "part"),
    [
        (slots(None), "step of its slots is none"),
        (slots("1 fortnight"), "'1 fortnight'"),
        (slots("0D"), "makes no slots"),
        (slots("1.5M"), "makes no slots"),
        (slots("1D", "soon"), "'soon' is no time"),
        (slots("1D", "2000-01-05", "2000-01-05"), "leaves no slot"),
        (slots("1D", position="order"), "position: order has none"),
    ],
)
def test_configs_that_make_no_slots(axis, part):
    """Said as what they are."""
    with pytest.raises(ConfigError) as caught:
        order({"a": series([4]), "b": series([5])}, axis)
    assert part in str(caught.value)


def test_durations_need_times():
    """And numbers numbers."""
    scans = {"a": series([1], name="lat", units="degrees"), "b": series([2], name="lat", units="degrees")}
    with pytest.raises(ConfigError, match="is a duration"):
        order(scans, slots("1D", name="lat"))
    with pytest.raises(ConfigError, match="is no number"):
        order(scans, slots(1, "south", name="lat"))


def test_members_with_different_days_in_one_month():
    """The first one's day is published, and a note says so."""
    scans = {"r1": series([14]), "r2": series([15])}
    found = order(scans, slots("1M"), AxisOptions("member", "name", r"r(\d)"))
    assert found.axes[0].values.tolist() == [14.0]
    assert any("2000-01-15T00:00:00 and 2000-01-16T00:00:00" in n for n in found.notes)


def test_tiles_by_grid_index():
    """Whole granules in slots of their length: a tile that is missing leaves its place."""
    scans = {f"h{h:02d}v{v:02d}": tile([0, 1], [0, 1, 2]) for h, v in ((8, 5), (10, 5), (8, 4))}
    axes = slots(1, name="y", position="name", pattern=r"v(\d+)"), slots(1, name="x", position="name", pattern=r"h(\d+)")
    found = order(scans, *axes)
    assert [a.extent for a in found.axes] == [4, 9]
    assert rows(found, list(scans)) == [
        ("h08v04", [0, 0], [2, 3], [0, 0]),
        ("h08v05", [0, 0], [2, 3], [2, 0]),
        ("h10v05", [0, 0], [2, 3], [2, 6]),
    ]
    with pytest.raises(CombineError, match="first at y = 4, x = 9; y = 4, x = 10; y = 5, x = 9"):
        order(scans, *axes, gaps="error")


def test_the_origin_said_again_is_the_same_axis():
    """What was published first is kept by saying it."""
    for scans, step, name in (
        ({"a": series([0.1, 0.2], "f4", name="lat", units="m")}, 0.1, "lat"),
        ({"a": series([14.5]), "b": series([80])}, "1M", "time"),
        ({"a": series([0.1]), "b": series([0.3])}, "144s", "time"),
        ({"a": series([5], "i8", name="n", units="1")}, 2, "n"),
    ):
        first = order(scans, slots(step, name=name)).axes[0]
        again = order(scans, slots(step, first.origin, name=name)).axes[0]
        assert (again.origin, again.extent) == (first.origin, first.extent)
        assert again.values.tolist() == first.values.tolist()


def test_too_many_slots():
    """Said before memory is full."""
    with pytest.raises(ConfigError, match="more than 50000000"):
        order({"a": series([0]), "b": series([10_000])}, slots("1s"))


def test_numbers_in_units_that_granules_do_not_share():
    """A step of 1 could be a day or an hour."""
    scans = {"a": series([0]), "b": series([48], units="hours since 2000-01-01")}
    assert order(scans, slots("1D")).axes[0].extent == 3
    with pytest.raises(ConfigError, match="different units, so the step 1 as a number"):
        order(scans, slots(1))
    with pytest.raises(ConfigError, match="different units, so the origin 0 as a number"):
        order(scans, slots("1D", 0))


def test_falling_granules_on_rising_slots():
    """Each element in its slot."""
    scans = {"a": series([2, 1, 0])}
    assert flat(order(scans, slots("1D")), scans) == [("a", 2, 1, 0), ("a", 1, 1, 1), ("a", 0, 1, 2)]

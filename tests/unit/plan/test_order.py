"""Sequences: granules in order of what their coordinates say, and who counts where two say the same."""

from __future__ import annotations

import numpy as np
import pytest

from drystone.errors import CombineError
from drystone.model.options import AxisOptions, CombineOptions
from drystone.plan.members import from_scans
from drystone.plan.order import order_axes
from tests.services.order_granules import array, granule, order, rows, series, tile

C09 = {"a_second": series([2, 3]), "m_overlap": series([3, 4]), "z_first": series([0, 1]), "z_first_copy": series([0, 1])}


def flat(found, scans):
    """Boxes of one axis as (name, source, count, place)."""
    return [(n, *s, *c, *d) for n, s, c, d in rows(found, list(scans))]


def test_order_is_of_values_never_of_names():
    """Late and shuffled granules land where they belong."""
    scans = {"a": series([4, 5]), "b": series([0]), "c": series([1, 2, 3])}
    found = order(scans)
    assert flat(found, scans) == [("b", 0, 1, 0), ("c", 0, 3, 1), ("a", 0, 2, 4)]
    assert [(a.name, a.extent, a.new, a.values) for a in found.axes] == [("time", 6, False, None)]
    assert found.notes == ()


def test_one_granule_needs_no_axis():
    """And has one row."""
    found = order({"a": series([0, 1])})
    assert (found.axes, found.granule_id.tolist(), found.dest.shape) == ((), [0], (1, 0))


def test_duplicates_are_refused_by_name():
    """Every pair, the axis and the value, and the ways out."""
    with pytest.raises(CombineError) as caught:
        order(C09)
    text = str(caught.value)
    assert caught.value.kind == "axis-duplicate"
    for part in (
        "z_first and z_first_copy both hold time = 2000-01-01T00:00:00",
        "a_second and m_overlap both hold time = 2000-01-04",
        "duplicates: first or last",
    ):
        assert part in text
    with pytest.raises(CombineError) as caught:
        order({k: C09[k] for k in ("a_second", "m_overlap")})
    assert caught.value.kind == "axis-overlap"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("last", [("z_first_copy", 0, 2, 0), ("a_second", 0, 1, 2), ("m_overlap", 0, 2, 3)]),
        ("first", [("z_first", 0, 2, 0), ("a_second", 0, 2, 2), ("m_overlap", 1, 1, 4)]),
        ("newest", [("z_first_copy", 0, 2, 0), ("a_second", 0, 1, 2), ("m_overlap", 0, 2, 3)]),
    ],
)
def test_duplicates_are_resolved_place_by_place(policy, expected):
    """A granule keeps what no other holds."""
    found = order(C09, duplicates=policy)
    assert flat(found, C09) == expected
    assert found.axes[0].extent == 5
    assert any("superseded" in n and ("z_first:" in n or "z_first_copy:" in n) for n in found.notes)


def test_newest_goes_by_name_and_numbers_in_it():
    """Not by place in the list."""
    scans = {"x_r10.nc": series([0]), "x_r9.nc": series([0])}
    assert flat(order(scans, duplicates="newest"), scans) == [("x_r10.nc", 0, 1, 0)]


def test_a_granule_inside_another():
    """It is cut into two runs around the one that counts."""
    scans = {"long": series([0, 1, 2, 3]), "mid": series([1, 2])}
    found = order(scans, duplicates="last")
    assert flat(found, scans) == [("long", 0, 1, 0), ("mid", 0, 2, 1), ("long", 3, 1, 3)]


def test_values_between_another_granules_values():
    """Refused, since a near duplicate looks like that; merged where a policy says so."""
    scans = {"a": series([0, 2, 4]), "b": series([1, 3])}
    with pytest.raises(
        CombineError, match=r"a and b overlap along time: 2000-01-02T00:00:00 of the second lies between"
    ) as caught:
        order(scans)
    assert caught.value.kind == "axis-overlap"
    found = order(scans, duplicates="first")
    assert [r[0] for r in flat(found, scans)] == ["a", "b", "a", "b", "a"]


def test_times_are_compared_decoded():
    """C04: zero in every file, each with its own reference."""
    scans = {
        "b": series([0], "i4", units="days since 1998-02-16"),
        "c": series([0], "i4", units="hours since 1998-03-16 12:00:00"),
        "a": series([0], "i4", units="days since 1998-01-16"),
    }
    found = order(scans)
    assert [r[0] for r in flat(found, scans)] == ["a", "b", "c"]


def test_one_instant_in_two_units_is_a_duplicate():
    """A tenth of a day is 2.4 hours, though no double is a tenth."""
    scans = {"a": series([0.1]), "b": series([2.4], units="hours since 2000-01-01")}
    with pytest.raises(CombineError, match="both hold time = 2000-01-01T02:24:00"):
        order(scans)


def test_calendars_are_never_mixed():
    """C10; spellings of one calendar are one."""
    pair = {
        "a": series([58, 59], calendar="noleap"),
        "b": series([60, 61], units="days since 2000-01-01 00:00:00", calendar="365_day"),
    }
    assert [r[0] for r in flat(order(pair), pair)] == ["a", "b"]
    with pytest.raises(CombineError) as caught:
        order(pair | {"c": series([62], calendar="standard")})
    assert all(part in str(caught.value) for part in ("'noleap'", "'standard'", "calendar", "a", "c"))
    assert caught.value.facts["what"] == "calendar"


def test_the_two_gregorian_calendars_are_one_since_1582():
    """And two before."""
    scans = {"a": series([0], calendar="standard"), "b": series([1], calendar="proleptic_gregorian")}
    assert order(scans).axes[0].extent == 2
    old = {"a": series([0], calendar="standard"), "b": series([-200_000], calendar="proleptic_gregorian")}
    with pytest.raises(CombineError, match="calendar differs"):
        order(old)


def test_units_that_mean_different_things():
    """Numbers in different units are no order."""
    scans = {"a": series([0], name="depth", units="m"), "b": series([1], name="depth", units="km")}
    with pytest.raises(CombineError, match="units differs between granules: 'm' in a, 'km' in b"):
        order(scans, "depth")


@pytest.mark.parametrize(
    ("values", "attributes", "part"),
    [
        ([0, np.nan], {}, "time at 1 is nan"),
        ([0, -99.0], {"_FillValue": -99.0}, "its _FillValue"),
        ([0, 9.969209968386869e36], {}, "never written"),
    ],
)
def test_what_has_no_place_is_named_by_granule_and_index(values, attributes, part):
    """NaN, fill, never written."""
    with pytest.raises(CombineError, match=r"^bad: time at 1 ") as caught:
        order({"ok": series([-3]), "bad": series(values, **attributes)})
    assert part in str(caught.value)
    assert caught.value.kind == "axis-nan"


def test_a_time_twice_in_one_granule_and_values_that_turn_back():
    """Named by granule and index."""
    with pytest.raises(CombineError, match=r"bad: time holds 2000-01-02T00:00:00 twice, at 1 and 2"):
        order({"ok": series([5]), "bad": series([0, 1, 1])})
    with pytest.raises(CombineError, match=r"bad: time neither rises nor falls .* at 1 and 2"):
        order({"ok": series([5]), "bad": series([0, 2, 1])})
    with pytest.raises(CombineError, match="rises in up and falls in down"):
        order({"up": series([0, 1]), "down": series([5, 4])})


def test_falling_axes():
    """Granules in falling order, elements untouched."""
    scans = {"low": series([1, 0]), "high": series([3, 2])}
    assert flat(order(scans), scans) == [("high", 0, 2, 0), ("low", 0, 2, 2)]
    cut = {"low": series([2, 1, 0]), "high": series([3, 2])}
    assert flat(order(cut, duplicates="first"), cut) == [("high", 0, 1, 0), ("low", 0, 3, 1)]


def test_granules_that_hold_nothing_are_noted():
    """They have no row."""
    scans = {"a": series([0]), "empty": series([]), "b": series([1])}
    found = order(scans)
    assert [r[0] for r in flat(found, scans)] == ["a", "b"]
    assert any("empty: nothing along time" in n for n in found.notes)


def test_nothing_but_empty_granules():
    """An axis without places."""
    found = order({"a": series([]), "b": series([])}, "time")
    assert (found.axes[0].extent, len(found.granule_id)) == (0, 0)
    assert any("a, b: nothing along time" in n for n in found.notes)


def test_granules_that_are_not_asked_for():
    """Members may hold more, such as what a newer version replaces."""
    scans = {0: series([0]), 1: series([0]), 2: series([1])}
    found = order_axes(from_scans(scans), CombineOptions(), np.array([1, 2], np.int32), {1: "b", 2: "c"}, {})
    assert found.granule_id.tolist() == [1, 2]


def nemo(time: float, **more):
    """Time is zero everywhere but in an auxiliary coordinate."""
    says = {"units": "seconds since 1900-01-01 00:00:00", "calendar": "360_day", "standard_name": "time"}
    extra = [array(f"/{k}", ("time_counter",), np.array([v]), ("time_counter",), **says) for k, v in more.items()]
    return granule(
        array("/time_counter", ("time_counter",), np.zeros(1), ("time_counter",), axis="T"),
        array("/time_centered", ("time_counter",), np.array([time]), ("time_counter",), **says),
        array("/v", ("time_counter", "y"), np.zeros((1, 3)), ("time_counter",), known=False),
        *extra,
    )


def test_an_auxiliary_time_places_what_the_coordinate_does_not():
    """With a note that says by what."""
    scans = {"feb": nemo(3.580848e9), "jan": nemo(3.578256e9)}
    found = order(scans)
    assert [r[0] for r in flat(found, scans)] == ["jan", "feb"]
    assert found.axes[0].path == "/time_counter"
    assert any("put in order by /time_centered" in n for n in found.notes)
    with pytest.raises(CombineError, match="any of /time_centered, /time_instant"):
        order({"a": nemo(0.0, time_instant=5.0), "b": nemo(9.0, time_instant=1.0)})


def test_no_coordinate_and_no_values():
    """Named, with the ways out."""
    bare = granule(array("/v", ("time", "x"), np.zeros((1, 2)), ("time",), known=False))
    with pytest.raises(CombineError, match=r"^a: there is no coordinate variable time .*position: order"):
        order({"a": bare, "b": bare})
    unknown = granule(array("/time", ("time",), np.zeros(1), ("time",), known=False))
    with pytest.raises(CombineError, match=r"^b: /time is not there or its values are no small array"):
        order({"a": series([0]), "b": unknown}, "time")


def test_candidates_are_listed_never_guessed():
    """Ambiguous, none."""
    with pytest.raises(CombineError, match="any of x, y") as caught:
        order({"a": tile([0, 1], [0, 1]), "b": tile([2, 3], [2, 3])})
    assert caught.value.kind == "axis-ambiguous"
    with pytest.raises(CombineError) as caught:
        order({"a": tile([0, 1], [0, 1]), "b": tile([0, 1], [0, 1])})
    assert caught.value.kind == "axis-none"


def test_equal_granules_along_an_unlimited_axis_need_a_new_one():
    """Two scenarios with equal times: refused, and a new axis is among the ways out."""
    scans = {"A1B": series([0, 1]), "E1": series([0, 1])}
    with pytest.raises(CombineError, match=r"A1B and E1 both hold .* new axis"):
        order(scans)
    found = order(scans, AxisOptions("scenario", "name", "(A1B|E1)"))
    assert found.axes[0].values.tolist() == ["A1B", "E1"]


def test_groups_that_disagree_on_the_order():
    """One axis has one order."""

    def two(a, b):
        return granule(*(array(f"{p}/time", ("time",), np.array([v]), ("time",)) for p, v in (("/a", a), ("/b", b))))

    assert order({"x": two(0.0, 5.0), "y": two(1.0, 6.0)}, "time").axes[0].extent == 2
    with pytest.raises(CombineError) as caught:
        order({"x": two(0.0, 6.0), "y": two(1.0, 5.0)}, "time")
    assert caught.value.kind == "axis-order"


def test_arrays_of_one_granule_with_two_lengths():
    """And granules without the dimension."""
    odd = granule(array("/time", ("time",), np.arange(2.0)), array("/v", ("time",), np.arange(3.0)))
    with pytest.raises(CombineError, match="b: /v has 3 elements along time, another array there has 2"):
        order({"a": series([5]), "b": odd}, "time")
    with pytest.raises(CombineError, match="b: no array has the dimension time"):
        order({"a": series([5]), "b": tile([0], [0])}, "time")

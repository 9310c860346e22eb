"""New axes, several axes, and mosaics."""

from __future__ import annotations

import numpy as np
import pytest

from drystone.errors import CombineError, ConfigError
from drystone.model.options import AxisOptions
from tests.services.order_granules import array, granule, order, rows, series, tile


def places(found, scans):
    """Boxes as (name, places)."""
    return [(n, *d) for n, _, _, d in rows(found, list(scans))]


MAP = tile([0, 1], [0, 1])


def test_a_new_axis_by_name():
    """Numbers where all are, labels elsewhere, in order."""
    scans = {"tas_10.nc": MAP, "tas_9.nc": MAP}
    found = order(scans, AxisOptions("member", "name", r"_(\d+)"))
    axis = found.axes[0]
    assert (axis.new, axis.path, axis.values.dtype, axis.values.tolist()) == (True, "/member", np.int64, [9, 10])
    assert places(found, scans) == [("tas_9.nc", 0), ("tas_10.nc", 1)]
    labels = {"x_E1.nc": MAP, "x_A1B.nc": MAP}
    axis = order(labels, AxisOptions("scenario", "name", "_(.*)[.]")).axes[0]
    assert axis.values.dtype == np.dtypes.StringDType()
    assert axis.values.tolist() == ["A1B", "E1"]


def test_a_new_axis_by_attribute():
    """Text as it is, numbers as numbers, or read by a pattern."""
    scans = {"a": MAP, "b": MAP}
    said = {"a": {"model": "mod2", "run": np.int32(7)}, "b": {"model": "mod1", "run": np.int32(3)}}
    found = order(scans, AxisOptions("model", "attribute", attribute="model"), attributes=said)
    assert (found.axes[0].values.tolist(), places(found, scans)) == (["mod1", "mod2"], [("b", 0), ("a", 1)])
    assert order(scans, AxisOptions("run", "attribute", attribute="run"), attributes=said).axes[0].values.tolist() == [3, 7]
    numbered = AxisOptions("m", "attribute", r"mod(\d)", "model")
    assert order(scans, numbered, attributes=said).axes[0].values.tolist() == [1, 2]
    with pytest.raises(CombineError, match=r"b: there is no global attribute model .* \(there are: history\)"):
        order(scans, AxisOptions("model", "attribute", attribute="model"), attributes={"a": said["a"], "b": {"history": "x"}})
    with pytest.raises(CombineError, match="holds 2 numbers"):
        order(scans, AxisOptions("m", "attribute", attribute="v"), attributes={n: {"v": np.arange(2)} for n in scans})


def test_a_new_axis_by_a_scalar():
    """Its values keep type and units; found by itself where it is the one thing that tells granules apart."""

    def at(day: float, **more):
        return granule(*MAP.arrays, array("/time", (), np.array(day), units="days since 2000-01-01", **more))

    scans = {"b": at(3.5), "a": at(1.0)}
    for along in ((AxisOptions("time"),), ()):
        found = order(scans, *along)
        axis = found.axes[0]
        assert (axis.name, axis.new, axis.path, axis.values.tolist()) == ("time", True, "/time", [1.0, 3.5])
        assert axis.attributes["units"].value == "days since 2000-01-01"
        assert places(found, scans) == [("a", 0), ("b", 1)]
    with pytest.raises(CombineError, match="a and b both hold time = 2000-01-02"):
        order({"a": at(1), "b": at(1)}, "time")


def test_a_new_axis_takes_the_place_of_a_scalar():
    """A note says so."""
    scans = {f"t{n}": granule(*MAP.arrays, array("/time", (), np.array(0.0))) for n in (2, 1)}
    found = order(scans, AxisOptions("time", "name", r"t(\d)"))
    assert (found.axes[0].path, found.axes[0].values.tolist()) == ("/time", [1, 2])
    assert any("/time: the new axis takes its place" in n for n in found.notes)


def test_scalars_that_are_no_coordinates_are_not_found():
    """A value that differs is data."""
    scans = {
        n: granule(array("/pr", (), np.array(v, "f4"), standard_name="precipitation_flux")) for n, v in (("a", 6), ("b", 4))
    }
    with pytest.raises(CombineError) as caught:
        order(scans)
    assert caught.value.kind == "axis-none"
    assert order(scans, AxisOptions("member", "order")).axes[0].values.tolist() == [0, 1]


def test_times_of_names_are_exact():
    """Days where days do, finer units elsewhere; a date of any century."""
    axis = order({"x_200001011230": MAP, "x_200001020000": MAP}, AxisOptions("time", "name", "%Y%m%d%H%M")).axes[0]
    assert (axis.values.tolist(), axis.attributes["units"].value) == ([45_000, 86_400], "seconds since 2000-01-01")
    axis = order({"x_02000101": MAP, "x_99991231": MAP}, AxisOptions("time", "name", "%Y%m%d")).axes[0]
    assert axis.attributes["units"].value == "days since 0200-01-01"
    assert axis.attributes["calendar"].value == "proleptic_gregorian"


@pytest.mark.parametrize(
    ("name", "pattern", "part"),
    [
        ("x.nc", "%Y%m%d", "does not match its name"),
        ("x.nc", r"(\d+)", "does not match its name"),
        ("x_20000101-20000131.nc", "%Y%m%d", "2000-01-01T00:00:00+00:00 and 2000-01-31"),
    ],
)
def test_names_that_do_not_say(name, pattern, part):
    """Refused by name: two dates are no place."""
    with pytest.raises(CombineError) as caught:
        order({name: MAP, "x_20000201.nc": MAP}, AxisOptions("time", "name", pattern))
    assert caught.value.kind == "axis-name-pattern"
    assert name in str(caught.value)
    assert part in str(caught.value)


def test_dimensions_by_name():
    """Granules stay whole; labels are no order of a dimension."""
    scans = {"d2": series([0, 1]), "d1": series([0])}
    found = order(scans, AxisOptions("time", "name", r"d(\d)"))
    assert [(n, *s, *c, *d) for n, s, c, d in rows(found, list(scans))] == [("d1", 0, 1, 0), ("d2", 0, 2, 1)]
    assert found.axes[0].values is None
    with pytest.raises(CombineError, match="neither a number nor a time"):
        order({"a1": series([0]), "b1": series([1])}, AxisOptions("time", "name", r"([a-z])"))
    with pytest.raises(CombineError, match="both hold time = 1"):
        order({"d1": series([0]), "e1": series([0])}, AxisOptions("time", "name", r"(\d)"))
    assert order({"d1": series([0]), "e1": series([0])}, AxisOptions("time", "order")).axes[0].extent == 2
    with pytest.raises(CombineError, match="have one place along time"):
        order({"d1": series([0]), "e1": series([0, 1])}, AxisOptions("time", "name", r"(\d)"))


def test_numbers_that_are_too_long_or_written_oddly_are_labels():
    """Two must never become one by rounding."""
    scans = {f"x_2020010100000000000000{i}": MAP for i in (2, 1)}
    found = order(scans, AxisOptions("k", "name", r"_(\d+)"))
    assert found.axes[0].values.tolist() == ["20200101000000000000001", "20200101000000000000002"]
    assert order({"x_1_0": MAP, "x_1_1": MAP}, AxisOptions("k", "name", "x_(.*)")).axes[0].values.tolist() == ["1_0", "1_1"]
    assert order({"x_nan": MAP, "x_inf": MAP}, AxisOptions("k", "name", "x_(.*)")).axes[0].values.tolist() == ["inf", "nan"]
    assert order({"x_0.5": MAP, "x_2": MAP}, AxisOptions("k", "name", "x_(.*)")).axes[0].values.tolist() == [0.5, 2.0]


def test_an_axis_that_nothing_has():
    """Named, with what there is."""
    with pytest.raises(CombineError, match=r"member is neither a dimension .*\(dimensions: x, y\)"):
        order({"a": MAP, "b": MAP}, "member")
    with pytest.raises(ConfigError, match="needs a pattern"):
        order({"a": MAP, "b": MAP}, AxisOptions("m", "name"))
    for pattern, part in ((r"(\d+", "no regular expression"), (r"\d+", "has 0 groups"), ("(a)(b)", "has 2 groups")):
        with pytest.raises(ConfigError, match=part):
            order({"a": MAP, "b": MAP}, AxisOptions("m", "name", pattern))
    with pytest.raises(ConfigError, match="x is said twice"):
        order({"a": MAP, "b": MAP}, "x", "x")


def test_runs_and_lead_times():
    """Two new axes, with a hole that is told."""
    scans = {f"r{r}_s{s}": MAP for r, s in ((1, 0), (1, 6), (2, 0))}
    axes = AxisOptions("run", "name", r"r(\d+)"), AxisOptions("step", "name", r"s(\d+)")
    found = order(scans, *axes)
    assert places(found, scans) == [("r1_s0", 0, 0), ("r1_s6", 0, 1), ("r2_s0", 1, 0)]
    assert [a.values.tolist() for a in found.axes] == [[1, 2], [0, 6]]
    assert any("1 of 4 places along run, step" in n for n in found.notes)
    with pytest.raises(CombineError, match="first at run = 2, step = 6"):
        order(scans, *axes, gaps="error")


def test_members_of_a_time_series():
    """A dimension and a new axis."""
    scans = {f"m{m}_{i}": series([2 * i, 2 * i + 1]) for m in (1, 2) for i in (1, 0)}
    found = order(scans, "time", AxisOptions("member", "name", r"m(\d)"))
    assert places(found, scans) == [("m1_0", 0, 0), ("m2_0", 0, 1), ("m1_1", 2, 0), ("m2_1", 2, 1)]
    assert found.axes[0].values.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert found.count.tolist() == [[2, 1]] * 4


def test_a_mosaic_with_uneven_tiles_and_falling_rows():
    """Rows of the union of coordinates; y falls as in the tiles."""
    scans = {
        "nw": tile([3, 2], [0, 1, 2]),
        "ne": tile([3, 2], [5, 9]),
        "sw": tile([1], [0, 1, 2]),
        "se": tile([1], [5, 9]),
    }
    found = order(scans, "y", "x")
    assert places(found, scans) == [("nw", 0, 0), ("ne", 0, 3), ("sw", 2, 0), ("se", 2, 3)]
    assert [a.values.tolist() for a in found.axes] == [[3.0, 2.0, 1.0], [0.0, 1.0, 2.0, 5.0, 9.0]]


def test_tiles_that_overlap():
    """Cut into disjoint boxes by policy; refused by name without one."""
    scans = {"a": tile([0, 1, 2], [0, 1, 2]), "b": tile([1, 2, 3], [1, 2, 3])}
    with pytest.raises(CombineError, match=r"a and b both hold y = 1, x = 1.*overlap: first or last"):
        order(scans, "y", "x")
    for policy in ("first", "last"):
        found = order(scans, "y", "x", overlap=policy)
        whole = np.full((4, 4), -1)
        for g, s, c, d in zip(found.granule_id, found.src_offset, found.count, found.dest, strict=True):
            box = tuple(slice(a, a + n) for a, n in zip(d, c, strict=True))
            assert (whole[box] == -1).all()
            whole[box] = g
            assert (s == d - (0 if g == 0 else 1)).all()
        top, under = (0, 1) if policy == "first" else (1, 0)
        model = np.full((4, 4), -1)
        for g in (under, top):
            model[g : g + 3, g : g + 3] = g
        assert (whole == model).all()


def test_two_tiles_at_one_place_are_duplicates():
    """The policy for duplicates counts, not the one for overlap."""
    scans = {"old": tile([0], [0]), "new": tile([0], [0]), "east": tile([0], [1])}
    with pytest.raises(CombineError, match="duplicates: first or last"):
        order(scans, "y", "x", overlap="last")
    assert places(order(scans, "y", "x", duplicates="last"), scans) == [("new", 0, 0), ("east", 0, 1)]


def test_tiles_whose_cells_lie_between_anothers():
    """A near miss of coordinates is refused, not doubled."""
    scans = {"a": tile([0, 1, 2], [0]), "b": tile([0, 1.0000001, 2], [1])}
    with pytest.raises(CombineError, match=r"overlap along y: 1.0000001 of the second lies between 1 and 2 of the first"):
        order(scans, "y", "x", duplicates="last", overlap="last")


def test_overlap_along_one_axis_of_tiles():
    """Either policy does."""
    scans = {"a": series([0, 1], name="y", units="m"), "b": series([1, 2], name="y", units="m")}
    with pytest.raises(CombineError, match="both hold y = 1"):
        order(scans, "y")
    assert order(scans, "y", overlap="first").count.tolist() == [[2], [1]]


def test_tiles_of_a_time_series():
    """Three axes, granules shuffled."""
    scans = {f"t{t}_{y}_{x}": tile([y], [x], [t]) for t in (1, 0) for y in (1, 0) for x in (0, 1)}
    found = order(scans, "time", "y", "x")
    assert places(found, scans) == [(f"t{t}_{y}_{x}", t, y, x) for t in (0, 1) for y in (0, 1) for x in (0, 1)]


def test_text_coordinates():
    """Stations join in order of their names; beside a new axis too."""

    def of(*names: str):
        return granule(array("/s", ("s",), np.array(names, np.dtypes.StringDType())))

    scans = {"r1_b": of("c"), "r1_a": of("a", "b"), "r2_a": of("a", "b")}
    found = order(scans, "s", AxisOptions("run", "name", r"r(\d)"))
    assert found.axes[0].values.tolist() == ["a", "b", "c"]
    assert places(found, scans) == [("r1_a", 0, 0), ("r2_a", 0, 1), ("r1_b", 2, 0)]


def _owners(found, shape):
    whole = np.full(shape, -1)
    for g, c, d in zip(found.granule_id, found.count, found.dest, strict=True):
        box = tuple(slice(a, a + n) for a, n in zip(d, c, strict=True))
        assert (whole[box] == -1).all()
        whole[box] = g
    return whole


def test_tiles_are_cut_half_way():
    """A full grid of tiles is cut along both axes; the first keeps the middle of an odd number."""
    ys, xs = [(0, 5), (3, 8)], [(0, 6), (3, 9), (8, 12)]
    scans = {f"{i}{j}": tile(np.arange(*y), np.arange(*x)) for i, y in enumerate(ys) for j, x in enumerate(xs)}
    whole = _owners(order(scans, "y", "x", overlap="crop"), (8, 12))
    want = np.arange(6).reshape(2, 3)[np.repeat([0, 1], [4, 4])][:, np.repeat([0, 1, 2], [5, 4, 3])]
    assert (whole == want).all()


def test_a_missing_tile_changes_nothing_for_the_others_and_no_place_is_lost():
    ys, xs = [(0, 6), (4, 10)], [(0, 6), (4, 10)]
    scans = {f"{i}{j}": tile(np.arange(*y), np.arange(*x)) for i, y in enumerate(ys) for j, x in enumerate(xs)}
    full = _owners(order(scans, "y", "x", overlap="crop"), (10, 10))
    del scans["10"]
    some = _owners(order(scans, "y", "x", overlap="crop"), (10, 10))
    some[some == 2] = 3  # ids count on without the tile that is gone
    kept = full != 2
    assert (some[kept] == full[kept]).all()
    assert (some == -1).sum() == 4 * 4  # what no other tile holds


def test_staggered_rows_are_cut_row_by_row():
    """Rows that are shifted against each other have seams of their own."""
    scans = {"a": tile([0, 1], range(6)), "b": tile([0, 1], range(4, 10)), "c": tile([2, 3], range(2, 7)),
             "d": tile([2, 3], range(5, 10))}  # fmt: skip
    whole = _owners(order(scans, "y", "x", overlap="crop"), (4, 10))
    assert whole[0].tolist() == [0] * 5 + [1] * 5
    assert whole[3].tolist() == [-1, -1] + [2] * 4 + [3] * 4


def test_a_tile_inside_another_has_no_half():
    scans = {"a": tile(range(6), range(6)), "b": tile(range(6), range(2, 4))}
    with pytest.raises(CombineError, match=r"a and b both hold y = 0, x = 2.*crop where each reaches past the other") as caught:
        order(scans, "y", "x", overlap="crop")
    assert caught.value.kind == "axis-overlap"


def test_tiles_along_one_axis_and_their_duplicates():
    """Equal tiles stay duplicates."""
    scans = {"a": series(range(5), name="y", units="m"), "b": series(range(2, 7), name="y", units="m")}
    assert _owners(order(scans, "y", overlap="crop"), (7,)).tolist() == [0] * 4 + [1] * 3
    scans["c"] = scans["b"]
    with pytest.raises(CombineError, match="duplicates: first or last"):
        order(scans, "y", overlap="crop")
    assert _owners(order(scans, "y", overlap="crop", duplicates="last"), (7,)).tolist() == [0] * 4 + [2] * 3

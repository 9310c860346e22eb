"""What is selected decides which granules count: eras, differences, gaps and groups are those of what is taken."""

from __future__ import annotations

import warnings
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr
from e2e.combining import FORMS, ICECHUNK, KERCHUNK, STORE, VIRTUAL, datasets_of, eras, publish, tree_of

import drystone
from drystone.errors import CombineError, DrystoneError, LeftOut, UnsupportedError

# fsspec reads Parquet references with fastparquet, which pandas 3 warns about
pytestmark = pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated")

SLOTS = {"along": {"time": {"axis": "slots", "step": "1D"}}}


def write(path: Path, day: int, days: int = 2, *, shuffle: bool = True, chunk: int = 1, **said: object) -> None:
    """Days of a map of two by three cells; attributes of ``v`` as said."""
    with netCDF4.Dataset(path, "w") as nc:
        for name, size in (("time", None), ("y", 2), ("x", 3)):
            nc.createDimension(name, size)
        time = nc.createVariable("time", "f8", ("time",))
        time.units = "days since 2000-01-01"
        time[:] = np.arange(day, day + days)
        nc.createVariable("y", "f4", ("y",))[:] = [10, 20]
        nc.createVariable("area", "i4", ("y", "x"))[:] = np.arange(6).reshape(2, 3)
        fill = said.pop("fill", False)
        v = nc.createVariable(
            "v", "i4", ("time", "y", "x"), zlib=True, shuffle=shuffle, chunksizes=(chunk, 2, 3), fill_value=fill
        )
        v.set_auto_maskandscale(False)
        v.setncatts(said)
        v[:] = raw(range(day, day + days))


def raw(days: object) -> np.ndarray:
    return np.array([np.arange(6 * d, 6 * d + 6).reshape(2, 3) for d in days], "i4")  # type: ignore[attr-defined]


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """Six days in three eras, the first and the last stored alike."""
    for i in range(3):
        write(tmp_path / f"g{i}.nc", 2 * i, shuffle=i != 1)
    return tmp_path


def parts_of(folder: Path, form: str) -> list[xr.Dataset]:
    tree = tree_of(folder, form, mask_and_scale=False, decode_times=False)
    return [d for d in datasets_of(tree) if "v" in d.variables]


@pytest.mark.parametrize("form", VIRTUAL)
@pytest.mark.parametrize(
    ("index", "said"),
    [
        ({"start": 1, "stop": 3}, {"era-1": "time 0 to 1", "era-2-codecs": "time 1 to 2; changed: codecs"}),
        (
            {"step": 3},
            {"era-1": "time 0 to 1", "era-2-codecs": "time 1 to 2; changed: codecs"},
        ),
        (
            [5, 3, 2, 2, 4, 0],
            {
                "era-1": "time 0 to 1",
                "era-2-codecs": "time 1 to 4; changed: codecs",
                "era-3-codecs": "time 4 to 6; changed: codecs",
            },
        ),
    ],
)
def test_eras_are_runs_of_what_is_selected(three: Path, form: str, index: object, said: dict[str, str]) -> None:
    report = publish(three, form, {"select": {"time": {"index": index}}})
    assert (report.outputs[0].verified, report.outputs[0].refused) == ("full", ())
    tree = tree_of(three, form)
    assert {n: tree[n].attrs["drystone_era"] for n in eras(tree)} == said
    chosen = np.arange(6)[slice(index.get("start"), index.get("stop"), index.get("step"))] if isinstance(index, dict) else index
    parts = parts_of(three, form)
    assert np.concatenate([p["v"].values for p in parts]).tolist() == raw(chosen).tolist()
    assert np.concatenate([p["time"].values for p in parts]).tolist() == list(chosen)
    assert all(p["area"].values.tolist() == np.arange(6).reshape(2, 3).tolist() for p in parts)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("what", [{"index": 3}, "2000-01-04", ["2000-01-03", "2000-01-04"], {"index": [3, 2]}])
def test_what_lies_in_one_era_needs_no_groups(three: Path, form: str, what: object) -> None:
    publish(three, form, {"select": {"time": what}})
    tree = tree_of(three, form, mask_and_scale=False)
    assert not eras(tree)
    days = [3] if what in ({"index": 3}, "2000-01-04") else [3, 2] if what == {"index": [3, 2]} else [2, 3]
    assert tree["v"].values.reshape(-1, 2, 3).tolist() == raw(days).tolist()


def test_arrays_of_eras_alone_are_kept(tmp_path: Path) -> None:
    """Units that differ allow no one array; what lies in one unit is one array, also in a store and for readers."""
    for i, units in enumerate(("K", "degC")):
        write(tmp_path / f"g{i}.nc", 2 * i, units=units)
    differences = {"differences": {"units": "era"}}
    cut = {"select": {"time": {"index": [1, 2]}, "y": 20}, **differences}
    with pytest.warns(LeftOut, match="is in /era-1, /era-2-units"):
        opened = drystone.open(tmp_path / "*.nc", **cut)
    assert isinstance(opened, xr.DataTree)
    assert [opened[e]["v"].values.tolist() for e in eras(opened)] == [raw([d])[:, 1].tolist() for d in (1, 2)]
    assert [opened[e]["v"].attrs["units"] for e in eras(opened)] == ["K", "degC"]
    publish(tmp_path, ICECHUNK, {"select": {"time": {"index": [1, 2]}}, **differences})
    assert [p["v"].values.tolist() for p in parts_of(tmp_path, ICECHUNK)] == [raw([1]).tolist(), raw([2]).tolist()]
    publish(tmp_path, STORE, {"select": {"time": ["2000-01-03", None]}})
    assert parts_of(tmp_path, STORE)[0]["v"].attrs["units"] == "degC"
    with pytest.raises(CombineError, match="units differs between granules"):
        drystone.open(tmp_path / "*.nc", select={"time": {"index": [1, 2]}})


def test_points_over_eras(three: Path) -> None:
    """Stores hold points by value; virtual outputs have no chunks for them, and name the array."""
    points = {"time": {"points": {"index": [5, 2, 2]}}, "x": {"points": {"index": [0, 1, 2]}}}
    want = [raw([d])[0, :, x].tolist() for d, x in ((5, 0), (2, 1), (2, 2))]
    assert drystone.open(three / "*.nc", select=points)["v"].values.tolist() == want
    publish(three, STORE, {"select": points})
    assert parts_of(three, STORE)[0]["v"].values.tolist() == want
    with pytest.raises(UnsupportedError, match="no run of whole chunks"):
        publish(three, ICECHUNK, {"select": points, "variables": ["v"]}, arrays=["v"])


def test_granules_that_hold_nothing_selected_may_differ(tmp_path: Path) -> None:
    write(tmp_path / "g0.nc", 0)
    write(tmp_path / "g1.nc", 2, fill=-1)
    with netCDF4.Dataset(tmp_path / "g2.nc", "w") as nc:  # neither dimensions, nor type, nor variables are the others'
        nc.createDimension("time", None)
        nc.createDimension("x", 2)
        nc.createVariable("time", "f8", ("time",))[:] = [4]
        nc["time"].units = "days since 2000-01-01"
        nc.createVariable("v", "S1", ("x", "time"))[:] = b"a"
    with pytest.raises(CombineError, match="dimensions differ"):
        drystone.open(tmp_path / "*.nc")
    refuse = {"differences": {"missing_variable": "refuse", "fill": "refuse"}}
    for form in FORMS:
        publish(tmp_path, form, {"select": {"time": {"index": 1}}, **refuse})
        assert tree_of(tmp_path, form, mask_and_scale=False)["v"].values.tolist() == raw([1])[0].tolist()
    with pytest.raises(CombineError, match="_FillValue differs"):
        drystone.open(tmp_path / "*.nc", select={"time": {"index": [1, 2]}}, **refuse)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        drystone.open(tmp_path / "*.nc", select={"time": {"index": 4}})
    left = [str(w.message).partition(":")[2] for w in told if issubclass(w.category, LeftOut)]
    assert left == [" files:g0.nc has it, and no granule that holds what is selected; it is left out"] * 2  # y and area, once
    with pytest.raises(CombineError, match=r"select: /area: .*g0\.nc has it"):
        drystone.open(tmp_path / "*.nc", select={"time": {"index": 4}}, variables=["area", "v"])


def test_gaps_count_where_they_are_selected(tmp_path: Path) -> None:
    """Days 2 and 3 have no granule, and nothing marks what is missing."""
    write(tmp_path / "g0.nc", 0)
    write(tmp_path / "g1.nc", 4, shuffle=False)

    def opened(what: object, **more: object) -> xr.Dataset:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return drystone.open(tmp_path / "*.nc", **SLOTS, variables=["v"], select={"time": what}, **more)

    for what, days in (({"index": [1, 4]}, [1, 4]), (["2000-01-05", None], [4, 5]), ({"index": {"step": 5}}, [0, 5])):
        assert opened(what, gaps="error")["v"].values.tolist() == raw(days).tolist()
    assert opened({"points": {"index": [5, 0]}})["v"].values.tolist() == raw([5, 0]).tolist()
    for what in ({"index": [1, 2]}, {"index": 3}, ["2000-01-02", "2000-01-03"], {"points": {"index": [5, 2]}}):
        with pytest.raises(CombineError, match="it has no _FillValue") as caught:
            opened(what)
        assert caught.value.kind == "gaps-unmarked"
    with pytest.raises(CombineError, match="1 of 2 places along time are held by no granule, the first at time = 2000-01-03"):
        opened({"index": [5, 2]}, gaps="error")


@pytest.mark.parametrize("form", FORMS)
def test_a_selection_without_its_gap_is_published(form: str, tmp_path: Path) -> None:
    write(tmp_path / "g0.nc", 0)
    write(tmp_path / "g1.nc", 4, shuffle=False)
    with pytest.raises(DrystoneError, match="it has no _FillValue"):
        publish(tmp_path, form, SLOTS | {"variables": ["v"], "select": {"time": {"index": [0, 2, 4]}}})
    publish(tmp_path, form, SLOTS | {"variables": ["v"], "select": {"time": {"index": [5, 1]}}})
    assert np.concatenate([p["v"].values for p in parts_of(tmp_path, form)]).tolist() == raw([5, 1]).tolist()
    if form == STORE:
        publish(tmp_path, form, SLOTS | {"select": {"time": {"index": [1, 3, 4]}}}, coverage=True, at="out:covered.zarr")
        assert zarr.open_group(tmp_path / "out" / "covered.zarr", mode="r")["v_coverage"][:].tolist() == [1, 0, 1]


def test_only_gaps(tmp_path: Path) -> None:
    """Where nobody holds what is selected, it is missing."""
    write(tmp_path / "g0.nc", 0, fill=-1)
    write(tmp_path / "g1.nc", 4, fill=-1, shuffle=False)
    opened = drystone.open(tmp_path / "*.nc", **SLOTS, select={"time": ["2000-01-03", "2000-01-04"]})
    assert opened["time"].values.tolist() == [2, 3]
    assert (opened["v"].values == -1).all()
    assert opened["v"].shape == (2, 2, 3)


@pytest.mark.parametrize("form", [ICECHUNK, KERCHUNK])
def test_runs_of_whole_chunks_stay_virtual(form: str, tmp_path: Path) -> None:
    """Chunks of two days: days 0, 1, 8, 9, then 4 and 5; a day of its own would cut a chunk."""
    for i in range(3):
        write(tmp_path / f"g{i}.nc", 4 * i, 4, chunk=2)
    days = [0, 1, 8, 9, 4, 5]
    report = publish(tmp_path, form, {"select": {"time": {"index": days}}})
    assert (report.outputs[0].refused, report.outputs[0].verified) == ((), "full")
    assert parts_of(tmp_path, form)[0]["v"].values.tolist() == raw(days).tolist()
    with pytest.raises(UnsupportedError, match="no run of whole chunks"):
        publish(tmp_path, form, {"select": {"time": {"index": [0, 1, 3]}}}, arrays=["v"])


def test_groups_have_dimensions_of_their_own(tmp_path: Path) -> None:
    """A value is looked up in each group's own coordinate, a number counted in its own length."""
    for day in (0, 1):
        with netCDF4.Dataset(tmp_path / f"g{day}.nc", "w") as nc:
            nc.createDimension("time", None)
            nc.createVariable("time", "f8", ("time",))[:] = [day]
            nc["time"].units = "days since 2000-01-01"
            for name, x in (("low", [0, 20]), ("high", [0, 10, 20, 30])):
                group = nc.createGroup(name)
                group.createDimension("x", len(x))
                group.createVariable("x", "f4", ("x",))[:] = x
                group.createVariable("v", "i4", ("time", "x"))[:] = [[100 * day + n for n in x]]
    for what, low, high in (
        (20, 20, 20),
        ({"index": -1}, 20, 30),
        ([10, 20], [20], [10, 20]),
        ({"index": [1, 0]}, [20, 0], [10, 0]),
    ):
        opened = drystone.open(tmp_path / "*.nc", select={"x": what, "time": {"index": 1}})
        assert opened["low/v"].values.tolist() == (np.array(low) + 100).tolist()
        assert opened["high/v"].values.tolist() == (np.array(high) + 100).tolist()
    with pytest.raises(CombineError, match=r"x: place 3 is not among its 2 \(/low/v\)"):
        drystone.open(tmp_path / "*.nc", select={"x": {"index": 3}})


def test_members_and_times_are_selected_together(tmp_path: Path) -> None:
    """Member 2 counts in another unit, and member 1 has no second file: both matter where they are selected."""
    for member in range(3):
        for i in range(3):
            if (member, i) != (1, 1):
                write(tmp_path / f"m{member}-{i}.nc", 2 * i, shuffle=i != 1, fill=-1, units="degC" if member == 2 else "K")
                with netCDF4.Dataset(tmp_path / f"m{member}-{i}.nc", "a") as nc:
                    nc.member = np.int32(member)
                    nc["v"].set_auto_maskandscale(False)
                    nc["v"][:] += 1000 * member
    along = {"along": {"member": {"position": "attribute", "attribute": "member"}, "time": {}}}
    chosen = {"member": {"index": [1, 0]}, "time": {"index": [4, 2, 0]}}
    want = np.stack([raw([4, 2, 0]) + 1000, raw([4, 2, 0])])
    want[0, 1] = -1
    assert drystone.open(tmp_path / "*.nc", **along, select=chosen)["v"].values.tolist() == want.tolist()
    publish(tmp_path, ICECHUNK, {**along, "select": chosen})
    found = parts_of(tmp_path, ICECHUNK)
    assert np.concatenate([p["v"].values for p in found], axis=1).tolist() == want.tolist()
    with pytest.raises(CombineError, match="units differs"):
        drystone.open(tmp_path / "*.nc", **along, select={"member": {"index": [0, 2]}})
    # points are no product: of member 1 and day 2 nothing is asked here
    points = {"member": {"points": {"index": [1, 0]}}, "time": {"points": {"index": [5, 2]}}}
    opened = drystone.open(tmp_path / "*.nc", **along, gaps="error", select=points)
    assert opened["v"].values.tolist() == [(raw([5]) + 1000)[0].tolist(), raw([2])[0].tolist()]
    points["time"] = {"points": {"index": [5, 3]}}
    points["member"] = {"points": {"index": [0, 1]}}
    with pytest.raises(
        CombineError, match="1 of 2 places along member, time are held by no granule, the first at member = 1, time"
    ):
        drystone.open(tmp_path / "*.nc", **along, gaps="error", select=points)

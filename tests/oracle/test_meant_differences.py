"""Granules that store equal numbers and mean different ones, or the other way round: told apart by what values mean.

As ``test_odd_differences.py``: what NumPy joins of decoded values is what every way out holds, or all refuse by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
from oracle.test_odd_differences import CONFIG, FORMS, UNITS, Values, assert_same, days, published, read, write

import drystone
from drystone.errors import CombineError, LeftOut

pytestmark = [
    pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated"),
    pytest.mark.filterwarnings("ignore::UserWarning:zarr"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

type Add = Callable[[netCDF4.Dataset], None]


def two(raw: Path, first: Add, second: Add, units: str = UNITS, times: list[float] | None = None) -> np.ndarray:
    """Two files of two days each, with something more in them."""
    one = write(raw / "a.nc", 0, more=first)
    return np.concatenate([one, write(raw / "b.nc", 2, more=second, units=units, times=times)])


def static(numbers: list[float], dtype: str = "i2", name: str = "lat", fill: int | None = None, **said: object) -> Add:
    def add(f: netCDF4.Dataset) -> None:
        v = f.createVariable(name, dtype, ("y",), fill_value=fill)
        v.set_auto_maskandscale(False)
        v[:] = numbers
        v.setncatts(said)

    return add


def scalar(number: float, units: str) -> Add:
    def add(f: netCDF4.Dataset) -> None:
        v = f.createVariable("reference", "f8", ())
        v[...] = number
        v.units = units

    return add


def mapping(radius: float) -> Add:
    def add(f: netCDF4.Dataset) -> None:
        f.createVariable("crs", "i4", ()).setncatts({"grid_mapping_name": "latitude_longitude", "earth_radius": radius})
        f["v"].grid_mapping = "crs"

    return add


def bounded(linked: bool) -> Add:
    def add(f: netCDF4.Dataset) -> None:
        f.createDimension("nv", 2)
        f.createVariable("time_bnds", "f8", ("time", "nv"))[:] = [[0, 1], [1, 2]]
        if linked:
            f["time"].bounds = "time_bnds"

    return add


APART = {
    "equal numbers of two packings": (static([1, 2, 3], scale_factor=0.1), static([1, 2, 3], scale_factor=0.2)),
    "a coordinate of two packings": (
        static([1, 2, 3], name="y", scale_factor=0.1),
        static([1, 2, 3], name="y", scale_factor=0.2),
    ),
    "data here and missing there": (static([1, 2, 3]), static([1, 2, 3], fill=2)),
    "signed and unsigned": (static([1, -2, 3], "i1"), static([1, -2, 3], "i1", _Unsigned="true")),
    "units": (static([1, 2, 3], units="m"), static([1, 2, 3], units="km")),
    "up and down": (static([1, 2, 3], positive="up"), static([1, 2, 3], positive="down")),
    "a scalar time, counted from two days": (scalar(0, UNITS), scalar(0, "days since 2000-01-03")),
    "a grid mapping's numbers": (mapping(6371000.0), mapping(6371229.0)),
}


@pytest.mark.parametrize("adds", APART.values(), ids=APART)
def test_stand_ins_that_mean_different_things_are_refused_by_both_names(adds: tuple[Add, Add], tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    two(tmp_path / "raw", *adds)
    with pytest.raises(CombineError, match=r"a\.nc.*b\.nc"):
        drystone.open(str(tmp_path / "raw" / "*.nc"))
    config = tmp_path / "zarr.yaml"
    config.write_text(CONFIG.format(form="zarr", kind="store", combine="{}"))
    with pytest.raises(CombineError, match=r"a\.nc.*b\.nc"):
        drystone.run(config)


def packed_alike(raw: Path) -> Values:
    adds = (static([2, 4, -9], fill=-9, scale_factor=0.5), static([4, 8, -1], fill=-1, scale_factor=0.25))
    return {"v": two(raw, *adds), "lat": np.array([1.0, 2, np.nan])}


def typed_alike(raw: Path) -> Values:
    return {"v": two(raw, static([0.0, 2, 3], "f4"), static([-0.0, 2, 3], "f8")), "lat": np.array([0.0, 2, 3])}


def dated_alike(raw: Path) -> Values:
    two(raw, scalar(2, UNITS), scalar(0, "days since 2000-01-03"))
    return {"reference": days(2)[0]}


def linked_by_one(raw: Path) -> Values:
    """Bounds that the first file does not call so, beside times that each file counts from its own day."""
    two(raw, bounded(False), bounded(True), "days since 2000-01-03", [0, 1])
    return {"time": days(0, 1, 2, 3), "time_bnds": np.stack([days(0, 1, 2, 3), days(1, 2, 3, 4)], 1)}


def bounded_times(path: Path, units: str, times: list[int], bounds: list[list[float]], own: str | None = None) -> None:
    """Whole numbers for times, and their bounds with units of their own or without."""
    with netCDF4.Dataset(path, "w") as f:
        f.createDimension("time", None)
        f.createDimension("nv", 2)
        f.createVariable("time", "i4", ("time",))[:] = times
        f["time"].setncatts({"units": units, "bounds": "time_bnds"})
        f.createVariable("time_bnds", "f8", ("time", "nv"))[:] = bounds
        if own:
            f["time_bnds"].units = own


def first_own(raw: Path) -> Values:
    """Bounds with a date of their own in the first file, and with their coordinate's in the other."""
    bounded_times(raw / "a.nc", UNITS, [0, 1], [[1, 2], [2, 3]], "days since 1999-12-31")
    bounded_times(raw / "b.nc", "hours since 2000-01-03", [0, 24], [[0, 24], [24, 48]])
    return {"time_bnds": np.stack([days(0, 1, 2, 3), days(1, 2, 3, 4)], 1)}


def parent_rewritten(raw: Path) -> Values:
    """Bounds that all count alike, beside times that do not, and end in other units than the bounds'."""
    bounded_times(raw / "a.nc", UNITS, [0, 1], [[0, 1], [1, 2]])
    bounded_times(raw / "b.nc", "hours since 2000-01-03", [6, 30], [[2, 3], [3, 4]], UNITS)
    return {"time_bnds": np.stack([days(0, 1, 2, 3), days(1, 2, 3, 4)], 1)}


def spelled(raw: Path) -> Values:
    """Words for units in capitals."""
    write(raw / "a.nc", 0)
    write(raw / "b.nc", 0, units="Days Since 2000-1-3 00:00:00 UTC")
    return {"time": days(0, 1, 2, 3)}


def enumerated(raw: Path) -> Values:
    """An enumeration, which outputs tell as flags."""
    for i, numbers_ in enumerate(([0, 1], [1, 1])):
        with h5py.File(raw / f"{i}.nc", "w") as f:
            f["time"] = np.arange(2.0) + 2 * i
            f["time"].attrs["units"] = UNITS
            f["time"].make_scale("time")
            kind = h5py.enum_dtype({"CLEAR": 0, "CLOUD": 1, "no data": 5}, basetype="i1")
            f.create_dataset("v", data=np.array(numbers_, "i1"), dtype=kind).dims[0].attach_scale(f["time"])
    return {"v": np.array([0.0, 1, 1, 1])}


def fields(raw: Path) -> Values:
    """Compounds of two byte orders."""
    # xarray reads no big-endian ones from Zarr 2
    for i, order in enumerate("<>"):
        with h5py.File(raw / f"{i}.nc", "w") as f:
            f["time"] = np.arange(2.0) + 2 * i
            f["time"].attrs["units"] = UNITS
            f["time"].make_scale("time")
            f["v"] = np.array([(1 + i, 2.0), (3, 4.0)], [("a", f"{order}i2"), ("b", f"{order}f8")])
            f["v"].dims[0].attach_scale(f["time"])
    return {"v": np.array([(1, 2.0), (3, 4.0), (2, 2.0), (3, 4.0)], [("a", "i2"), ("b", "f8")])}


def widths(raw: Path) -> Values:
    """Text of two widths and complex numbers of two precisions."""
    for i, (text, number) in enumerate((("S4", "c8"), ("S8", "c16"))):
        with h5py.File(raw / f"{i}.nc", "w") as f:
            f["time"] = np.arange(2.0) + 2 * i
            f["time"].attrs["units"] = UNITS
            f["time"].make_scale("time")
            f["s"] = np.array([b"ab", b"abcd" if i == 0 else b"abcdefgh"], text)
            f["c"] = np.array([1 + 2j, 3 - 1j], number)
            for name in "sc":
                f[name].dims[0].attach_scale(f["time"])
    return {"s": np.array([b"ab", b"abcd", b"ab", b"abcdefgh"]), "c": np.array([1 + 2j, 3 - 1j] * 2)}


JOINED = (
    widths,
    packed_alike,
    typed_alike,
    dated_alike,
    linked_by_one,
    first_own,
    parent_rewritten,
    spelled,
    enumerated,
    fields,
)


def same(got: np.ndarray, want: np.ndarray) -> None:
    if want.dtype.names or want.dtype.kind in "Sc":
        assert got.tolist() == want.tolist()
    else:
        assert_same(got, want)


@pytest.mark.parametrize("make", JOINED, ids=lambda f: f.__name__)
def test_what_means_one_thing_is_joined(make: Callable[[Path], Values], tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    want = make(tmp_path / "raw")
    for form, what in FORMS.items():
        config = tmp_path / f"{form}.yaml"
        config.write_text(CONFIG.format(form=form, kind=what, combine="{}"))
        if make is not widths or form == "zarr":
            drystone.run(config)
        if (make is fields and form == "kerchunk-parquet") or (make is widths and form != "zarr"):
            continue
        tree = published(form, tmp_path)
        for name, values in want.items():
            same(read(tree, name), values)
            if form == "zarr":
                same(drystone.open(config, decode=True)[name].values, values)


def test_a_superseded_granule_of_another_shape_has_no_say(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    with netCDF4.Dataset(tmp_path / "raw" / "a1.nc", "w") as f:
        f.createDimension("time", None)
        f.createDimension("y", 2)
        f.createDimension("x", 4)
        f.createVariable("time", "f8", ("time",))[:] = [0, 1]
        f["time"].units = UNITS
        f.createVariable("v", "i2", ("time", "y", "x"), zlib=True)[:] = 7
    one = write(tmp_path / "raw" / "a2.nc", 0)
    want = np.concatenate([one, write(tmp_path / "raw" / "b.nc", 2)])
    for form, what in FORMS.items():
        config = tmp_path / f"{form}.yaml"
        config.write_text(CONFIG.format(form=form, kind=what, combine="{duplicates: newest}"))
        drystone.run(config)
        assert_same(read(published(form, tmp_path), "v"), want)


def test_what_a_granule_has_under_another_name_only_is_not_missing(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    for i, link in enumerate((h5py.SoftLink("/v"), None)):
        write(tmp_path / "raw" / f"{i}.nc", 2 * i)
        with h5py.File(tmp_path / "raw" / f"{i}.nc", "r+") as f:
            f["alias"] = link if link is not None else f["v"][...]
    with pytest.warns(LeftOut), pytest.raises(CombineError, match=r"/alias is in .*1\.nc, and of .*0\.nc .*soft link"):
        drystone.open(str(tmp_path / "raw" / "*.nc"))


def test_tiles_share_times_that_each_counts_from_its_own_day(tmp_path: Path) -> None:
    for name, rows, day in (("a", [0, 1], 0), ("b", [2, 3], 1)):
        with netCDF4.Dataset(tmp_path / f"{name}.nc", "w") as f:
            for n, size in (("time", None), ("y", 2), ("nv", 2)):
                f.createDimension(n, size)
            f.createVariable("y", "f8", ("y",))[:] = rows
            f.createVariable("time", "f8", ("time",))[:] = [-day, 1 - day]
            f["time"].setncatts({"units": f"days since 2000-01-0{1 + day}", "bounds": "bounds"})
            f.createVariable("bounds", "f8", ("time", "nv"))[:] = np.array([[0, 1], [1, 2]]) - day
            f.createVariable("v", "f4", ("time", "y"))[:] = [rows, rows]
    dataset = drystone.open(str(tmp_path / "*.nc"), along=["time", "y"], decode=True)
    assert_same(dataset["bounds"].values, np.stack([days(0, 1), days(1, 2)], 1))


def test_a_mark_that_is_no_number_of_the_type_marks_nothing(tmp_path: Path) -> None:
    for i in (0, 3):
        write(tmp_path / f"{i}.nc", i)
        with h5py.File(tmp_path / f"{i}.nc", "r+") as f:
            f["v"].attrs["_FillValue"] = 1e20
    with pytest.raises(CombineError, match="no _FillValue that is one of its numbers"):
        drystone.open(str(tmp_path / "*.nc"), along={"time": {"axis": "slots", "step": "1D"}})


def test_longitudes_from_two_meridians_are_told(tmp_path: Path) -> None:
    """Tiles from -180 and from 0: each value at its own coordinate, and a note that some are one meridian."""
    (tmp_path / "raw").mkdir()
    for name, row, x in (("a", 0, [-180, -90]), ("b", 0, [0, 90]), ("c", 1, [180, 270])):
        with netCDF4.Dataset(tmp_path / "raw" / f"{name}.nc", "w") as f:
            f.createDimension("y", 1)
            f.createDimension("x", 2)
            f.createVariable("y", "f8", ("y",))[:] = [row]
            f.createVariable("x", "f8", ("x",))[:] = x
            f["x"].units = "degrees_east"
            f.createVariable("v", "f4", ("y", "x"))[:] = [x]
    config = tmp_path / "zarr.yaml"
    config.write_text(CONFIG.format(form="zarr", kind="store", combine="{along: [y, x]}"))
    notes = drystone.run(config).warnings
    assert any("x: -180 and 180 are one meridian" in n for n in notes)
    nan = np.nan
    want = [[-180, -90, 0, 90, nan, nan], [nan, nan, nan, nan, 180, 270]]
    np.testing.assert_array_equal(drystone.open(config)["v"].values, want)


def test_a_new_axis_by_a_packed_scalar_holds_the_numbers_unpacked_once(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    for name, number, scale in (("a", 1, 0.5), ("b", 4, 0.25)):

        def add(f: netCDF4.Dataset, number: int = number, scale: float = scale) -> None:
            v = f.createVariable("level", "i2", ())
            v.set_auto_maskandscale(False)
            v[...] = number
            v.scale_factor = scale

        write(tmp_path / "raw" / f"{name}.nc", 0, more=add)
    config = tmp_path / "zarr.yaml"
    config.write_text(CONFIG.format(form="zarr", kind="store", combine="{along: [level]}"))
    drystone.run(config)
    for found in (drystone.open(config, decode=True)["level"].values, read(published("zarr", tmp_path), "level")):
        assert found.tolist() == [0.5, 1.0]


def test_a_new_axis_by_name_has_the_names_values_and_not_those_of_a_scalar_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    for day in (1, 4):
        with netCDF4.Dataset(tmp_path / "raw" / f"f2000010{day}.nc", "w") as f:
            f.createDimension("x", 2)
            f.createVariable("time", "f8", ())[...] = 10 * day
            f["time"].units = "hours since 1999-01-01"
            f.createVariable("v", "f4", ("x",))[:] = day
    config = tmp_path / "zarr.yaml"
    combine = "{along: {time: {position: name, pattern: 'f%Y%m%d.nc'}}}"
    config.write_text(CONFIG.format(form="zarr", kind="store", combine=combine))
    drystone.run(config)
    for found in (drystone.open(config, decode=True)["time"].values, read(published("zarr", tmp_path), "time")):
        assert_same(found, days(0, 3))


NAMED = {
    "a number": ({"position": "name", "pattern": "f([0-9]+)"}, [1, 4]),
    "a label": ({"position": "name", "pattern": "(f[0-9])"}, ["f1", "f4"]),
    "an attribute": ({"position": "attribute", "attribute": "run"}, [1, 4]),
    "a place": ({"position": "order"}, [0, 1]),
    "slots": ({"position": "name", "pattern": "f([0-9]+)", "axis": "slots", "step": 3}, [1, 4]),
}


@pytest.mark.parametrize("axis", NAMED)
def test_numbers_and_labels_are_no_times_beside_a_scalar_time_of_their_name(axis: str, tmp_path: Path) -> None:
    """And its bounds stay times, which each file counts from its own day."""
    (tmp_path / "raw").mkdir()
    for run in (1, 4):
        with netCDF4.Dataset(tmp_path / "raw" / f"f{run}.nc", "w") as f:
            f.run = np.int32(run)
            f.createDimension("x", 2)
            f.createDimension("nv", 2)
            f.createVariable("time", "f8", ())[...] = 0
            f["time"].setncatts({"units": f"days since 2000-01-0{run}", "bounds": "span"})
            f.createVariable("span", "f8", ("nv",))[:] = [0, 1]
            f.createVariable("v", "f4", ("x",))[:] = run
    config = tmp_path / "zarr.yaml"
    how, want = NAMED[axis]
    config.write_text(CONFIG.format(form="zarr", kind="store", combine=json.dumps({"along": {"time": how}})))
    drystone.run(config)
    for found in (drystone.open(config, decode=True), published("zarr", tmp_path)):
        assert found["time"].values.tolist() == want
        assert_same(found["span"].values, np.stack([days(0, 3), days(1, 4)], 1))


def test_what_names_count_has_no_units_of_a_scalar_of_their_name(tmp_path: Path) -> None:
    """Days in the names, hours in the files."""
    for day in (1, 5):
        with netCDF4.Dataset(tmp_path / f"f{day}.nc", "w") as f:
            f.createDimension("x", 2)
            f.createVariable("lead", "i4", ())[...] = 24 * day
            f["lead"].units = "hours"
            f.createVariable("v", "f4", ("x",))[:] = day
    lead = drystone.open(tmp_path / "*.nc", along={"lead": {"position": "name", "pattern": "f([0-9]+)"}})["lead"]
    assert (lead.values.tolist(), lead.attrs) == ([1, 5], {})

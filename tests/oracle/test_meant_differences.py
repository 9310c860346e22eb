"""Granules that store equal numbers and mean different ones, or the other way round: told apart by what values mean.

As ``test_odd_differences.py``: what NumPy joins of decoded values is what every way out holds, or all refuse by name.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
from oracle.test_odd_differences import CONFIG, FORMS, UNITS, Values, assert_same, days, published, read, write

import drystone
from drystone.errors import CombineError

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


JOINED = (packed_alike, typed_alike, dated_alike, linked_by_one, spelled, enumerated, fields)


def same(got: np.ndarray, want: np.ndarray) -> None:
    if want.dtype.names:
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
        drystone.run(config)
        if make is fields and form == "kerchunk-parquet":
            continue
        tree = published(form, tmp_path)
        for name, values in want.items():
            same(read(tree, name), values)
            if form == "zarr":
                same(drystone.open(config, decode=True)[name].values, values)

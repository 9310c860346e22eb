"""Coordinates that no granule holds as they are published: each value is proved, and a wrong one is found and named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import icechunk
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr

import drystone
from drystone.errors import VerifyError
from drystone.pipeline.api import verify
from drystone.verify.report import VerifyReport
from tests.e2e.combining import AT, ICECHUNK, KERCHUNK, STORE, publish, tree_of, write_config

pytestmark = pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated", "ignore::UserWarning:zarr")

SLOTS = {"axis": "slots"}


def granule(
    path: Path, time: object = None, units: str = "days since 2000-01-01", dtype: str = "i4", value: float = 1.0, **said: object
) -> None:
    """A field over x, with a time of each of its elements or, where ``time`` is a number, a scalar one."""
    with netCDF4.Dataset(path, "w") as f:
        f.createDimension("x", 3)
        dims: tuple[str, ...] = ("x",)
        if time is not None:
            times = np.asarray(time)
            if times.ndim:
                f.createDimension("time", None)
                dims = ("time", "x")
            t = f.createVariable("time", dtype, dims[:-1])
            t.units = units
            if "calendar" in said:
                t.calendar = said.pop("calendar")
            t[...] = times
        v = f.createVariable("v", "f4", dims, fill_value=-9.0)
        v[...] = value
        for name, scalar in said.items():
            if name.isupper():
                f.setncattr(name.lower(), scalar)
            else:
                f.createVariable(name, np.asarray(scalar).dtype)[...] = scalar


def months(folder: Path) -> None:
    """Months of a calendar without leap years, told in hours and days; April is not there."""
    for name, month, units, number in (
        ("a", 1, "days since 2000-01-01", [14]),
        ("b", 2, "hours since 2000-01-01", [24 * 45]),
        ("c", 3, "days since 2000-03-01", [15]),
        ("d", 5, "days since 2000-01-01", [31 + 28 + 31 + 30 + 9]),
    ):
        granule(folder / f"{name}.nc", number, units, calendar="noleap", value=month)


def days(folder: Path) -> None:
    granule(folder / "a.nc", [0, 1])
    granule(folder / "b.nc", [0, 24], "hours since 2000-01-05")


def quarters(folder: Path) -> None:
    """Quarter days in single precision, on an axis that begins before and ends after them."""
    granule(folder / "a.nc", [0.25, 0.5], dtype="f4")
    granule(folder / "b.nc", [1.0], dtype="f4")


def decades(folder: Path) -> None:
    for day in (21, 1, 11):
        granule(folder / f"v_200002{day:02}.nc", value=day)


def runs(folder: Path) -> None:
    for run in ("r10", "r1", "r2"):
        granule(folder / f"v_{run}_x.nc", value=int(run[1:]))


def scenarios(folder: Path) -> None:
    for n, name in enumerate(("ssp585", "historical", "ssp126")):
        granule(folder / f"{n}.nc", SCENARIO=name, RUN=np.int32(7 - n), value=n)


def scalars(folder: Path) -> None:
    """One time a file, each since a day of its own."""
    for n in range(3):
        granule(folder / f"{n}.nc", 6 * n, f"hours since 2000-01-0{n + 1} 00:00", value=n)


def members(folder: Path) -> None:
    for member in (1, 2):
        for day in (0, 3):
            granule(folder / f"m{member}_{day}.nc", [day, day + 1], value=member)


def described(folder: Path) -> None:
    """Codecs change after the second day, and a day is missing in the second era."""
    granule(folder / "a.nc", [0, 1])
    granule(folder / "b.nc", [3])
    for name, number in (("b", 3), ("c", 5)):
        with netCDF4.Dataset(folder / f"{name}.nc", "w") as f:
            f.createDimension("x", 3)
            f.createDimension("time", None)
            f.createVariable("time", "i4", ("time",))[:] = [number]
            f["time"].units = "days since 2000-01-01"
            f.createVariable("v", "f4", ("time", "x"), fill_value=-9.0, compression="zlib")[:] = number


CASES = {
    "days": (days, SLOTS | {"step": "1D"}, {}),
    "six hours": (days, SLOTS | {"step": "6h", "origin": "1999-12-31T18:00"}, {}),
    "months": (months, SLOTS | {"step": "1M"}, {}),
    "months around them": (months, SLOTS | {"step": "1M", "origin": "1999-11", "stop": "2000-09"}, {}),
    "quarters": (quarters, SLOTS | {"step": 0.25, "origin": "2000-01-01", "stop": "2000-01-03"}, {}),
    "dates in names": (decades, {"position": "name", "pattern": "v_%Y%m%d.nc"}, {}),
    "slots of names": (decades, SLOTS | {"position": "name", "pattern": "%Y%m%d", "step": "5D"}, {}),
    "labels in names": (runs, {"position": "name", "pattern": "_(r[0-9]+)_"}, {}),
    "numbers in names": (runs, {"position": "name", "pattern": "_r([0-9]+)_"}, {}),
    "slots of numbers": (runs, SLOTS | {"position": "name", "pattern": "r([0-9]+)", "step": 1}, {}),
    "listed": (runs, {"position": "order"}, {}),
    "attribute": (scenarios, {"position": "attribute", "attribute": "scenario"}, {}),
    "numbers of attributes": (scenarios, {"position": "attribute", "attribute": "run"}, {}),
    "scalar times": (scalars, {"position": "coordinate"}, {}),
    "two axes": (members, {"position": "coordinate"}, {}),
    "cropped": (days, SLOTS | {"step": "1D"}, {"time": {"from": "2000-01-02", "to": "2000-01-05"}}),
    "picked": (days, SLOTS | {"step": "1D"}, {"time": {"index": [5, 2, 3, 0]}}),
}


def combining(name: str) -> tuple[Mapping[str, object], list[str]]:
    """What the config of a case says, and the paths of the coordinates that are made."""
    _, axis, select = CASES[name]
    along = {"time": axis}
    if name == "two axes":
        along |= {"member": {"position": "name", "pattern": "m(.)_"}}
    return {"along": along, **({"select": select} if select else {})}, [f"/{n}" for n in along]


def published(folder: Path, path: str) -> zarr.Array:
    """An array of the published store, to be damaged."""
    return zarr.open_group(folder / "out" / AT[STORE], mode="r+")[path.strip("/")]


def reports(folder: Path, form: str = STORE, combine: Mapping[str, object] | None = None) -> VerifyReport:
    (_, report), *_ = verify(write_config(folder, form, combine), mode="full").reports
    return report


@pytest.mark.parametrize("name", CASES)
def test_every_value_is_compared(name: str, tmp_path: Path) -> None:
    """All of them are right; and all are found to be wrong after each was changed in the published bytes."""
    combine, paths = combining(name)
    CASES[name][0](tmp_path)
    publish(tmp_path, STORE, combine)
    report = reports(tmp_path, STORE, combine)
    assert not report.made
    compared = {a.path: a for a in report.arrays}
    assert all(compared[p].cells == compared[p].total > 0 for p in paths)
    for path in paths:
        array = published(tmp_path, path)
        values = array[:]
        array[:] = "r3" if values.dtype.kind in "OTU" else values + (1 if values.dtype.kind in "iu" else np.float32(0.125))
        with pytest.raises(
            VerifyError, match=rf"{path}: {values.size} of {values.size} compared cells differ, first at \(0,\)"
        ):
            verify(write_config(tmp_path, STORE, combine), mode="full")
        array[:] = values


@pytest.mark.parametrize("form", [ICECHUNK, KERCHUNK])
@pytest.mark.parametrize("name", ["days", "two axes", "labels in names"])
def test_every_value_of_virtual_forms_is_compared(name: str, form: str, tmp_path: Path) -> None:
    combine, paths = combining(name)
    CASES[name][0](tmp_path)
    publish(tmp_path, form, combine)
    report = reports(tmp_path, form, combine)
    assert not report.made
    assert set(paths) <= {a.path for a in report.arrays}


def test_swapped_months_are_named_with_their_granules(tmp_path: Path) -> None:
    months(tmp_path)
    combine = {"along": {"time": SLOTS | {"step": "1M"}}}
    publish(tmp_path, STORE, combine)
    times = published(tmp_path, "/time")
    assert times[:].tolist() == [14, 45, 74, 90, 129]
    times[[1, 2]] = times[:][[2, 1]]
    with pytest.raises(
        VerifyError,
        match=r"/time: 2 of 5 .* first at \(1,\): published 74 \(0x\w+\), 2000-03-16T00:00:00, source 1080 \(0x\w+\), "
        r"2000-02-15T00:00:00 \(\S+b.nc has it at \(0,\)\)",
    ):
        verify(write_config(tmp_path, STORE, combine), mode="full")


def test_wrong_units_are_wrong_times(tmp_path: Path) -> None:
    days(tmp_path)
    combine = {"along": {"time": SLOTS | {"step": "1D"}}}
    publish(tmp_path, STORE, combine)
    root = tmp_path / "out" / AT[STORE]
    texts = {path: path.read_text() for path in (root / "zarr.json", root / "time" / "zarr.json")}
    for path, text in texts.items():
        assert "days since 2000-01-01" in text
        path.write_text(text.replace("days since 2000-01-01", "days since 2000-01-02"))
    with pytest.raises(VerifyError, match=r"/time: 6 of 6 .* 2000-01-02T00:00:00, source .* 2000-01-01T00:00:00"):
        verify(write_config(tmp_path, STORE, combine), mode="full")
    for path, text in texts.items():
        path.write_text(text.replace('"units"', '"calendar": "360_day", "units"'))
    with pytest.raises(VerifyError, match=r"/time: 6 of 6 .*; /time: attribute units|/time: 6 of 6 .*2000-01-01T00:00:00"):
        verify(write_config(tmp_path, STORE, combine), mode="full")


def test_a_sample_counts_all_slots(tmp_path: Path) -> None:
    for day in [*range(20), *range(21, 30)]:
        granule(tmp_path / f"{day:02}.nc", [day])
    combine = {"along": {"time": SLOTS | {"step": "1D"}}}
    publish(tmp_path, STORE, combine)
    times = published(tmp_path, "/time")
    for place in (20, 7):
        times[place] = 99
        with pytest.raises(VerifyError, match=rf"/time: 1 of 30 .* first at \({place},\)"):
            verify(write_config(tmp_path, STORE, combine), mode="sample")
        times[place] = place


@pytest.mark.parametrize("form", [ICECHUNK, KERCHUNK])
def test_slots_of_eras(form: str, tmp_path: Path) -> None:
    described(tmp_path)
    combine = {"along": {"time": SLOTS | {"step": "1D"}}}
    publish(tmp_path, form, combine)
    report = reports(tmp_path, form, combine)
    found = {a.path: a.cells for a in report.arrays if a.path.endswith("/time")}
    assert sum(found.values()) >= 6, found
    assert not report.made


def test_a_wrong_slot_in_a_repository_is_named(tmp_path: Path) -> None:
    days(tmp_path)
    combine = {"along": {"time": SLOTS | {"step": "1D"}}}
    publish(tmp_path, ICECHUNK, combine)
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path / "out" / AT[ICECHUNK])))
    session = repository.writable_session("main")
    zarr.open_group(session.store)["time"][3] = 2
    session.commit("a wrong slot")
    with pytest.raises(VerifyError, match=r"/time: 1 of 6 .*first at \(3,\): published 2 .* 2000-01-04T00:00:00, origin and 3"):
        verify(write_config(tmp_path, ICECHUNK, combine), mode="full")


def bounded(path: Path, time: float | list[float], bounds: list[object], units: str) -> None:
    """A time and its bounds, which have no units of their own; a scalar one where it is a number."""
    with netCDF4.Dataset(path, "w") as f:
        f.createDimension("x", 3)
        f.createDimension("nv", 2)
        dims: tuple[str, ...] = ()
        if isinstance(time, list):
            f.createDimension("time", None)
            dims = ("time",)
        t = f.createVariable("time", "i4", dims)
        t.setncatts({"units": units, "bounds": "time_bnds"})
        f.createVariable("time_bnds", "i4", (*dims, "nv"), fill_value=-1)
        f.createVariable("v", "f4", (*dims, "x"), fill_value=-9.0)
        t[...], f["time_bnds"][...], f["v"][...] = time, bounds, 1.0


def instants_of(data: xr.Dataset, name: str) -> list[object]:
    return np.datetime_as_string(data[name].values, unit="h").tolist()


@pytest.mark.parametrize("form", [STORE, KERCHUNK])
def test_bounds_keep_their_times_where_slots_need_finer_units(form: str, tmp_path: Path) -> None:
    for day in (0, 2):
        bounded(tmp_path / f"{day}.nc", [day], [[day, day + 1]], "days since 2000-01-01")
    combine = {"along": {"time": SLOTS | {"step": "12h"}}}
    publish(tmp_path, form, combine)
    for found in (tree_of(tmp_path, form).to_dataset(), drystone.open(tmp_path / "*.nc", decode=True, **combine)):
        assert instants_of(found, "time")[:2] == ["2000-01-01T00", "2000-01-01T12"]
        bounds = instants_of(found, "time_bnds")
        assert (bounds[0], bounds[1], bounds[4]) == (
            ["2000-01-01T00", "2000-01-02T00"],
            ["NaT", "NaT"],
            ["2000-01-03T00", "2000-01-04T00"],
        )


@pytest.mark.parametrize("form", [STORE, KERCHUNK])
def test_bounds_of_a_scalar_time_go_with_it(form: str, tmp_path: Path) -> None:
    bounded(tmp_path / "0.nc", 0, [0, 1], "days since 2000-01-01")
    bounded(tmp_path / "1.nc", 6, [0, 12], "hours since 2000-01-02")
    bounded(tmp_path / "2.nc", 0, [0, 1], "days since 2000-01-03")
    publish(tmp_path, form, {"along": "time"})
    for found in (tree_of(tmp_path, form).to_dataset(), drystone.open(tmp_path / "*.nc", decode=True, along="time")):
        assert instants_of(found, "time") == ["2000-01-01T00", "2000-01-02T06", "2000-01-03T00"]
        assert instants_of(found, "time_bnds") == [
            ["2000-01-01T00", "2000-01-02T00"],
            ["2000-01-02T00", "2000-01-02T12"],
            ["2000-01-03T00", "2000-01-04T00"],
        ]


@pytest.mark.parametrize("days", [[1, 2, 3], [1, 3]])
def test_slots_of_names_have_the_names_times_with_and_without_gaps(days: list[int], tmp_path: Path) -> None:
    for day in days:
        granule(tmp_path / f"v_200001{day:02}.nc", [day - 0.5], "days since 2000-01-01", "f8")
    along = {"time": SLOTS | {"step": "1D", "position": "name", "pattern": "v_%Y%m%d.nc"}}
    found = drystone.open(tmp_path / "*.nc", along=along)["time"]
    assert found.values.tolist() == [0, 1, 2]
    publish(tmp_path, STORE, {"along": along})
    assert not reports(tmp_path, STORE, {"along": along}).made


def test_names_with_colons(tmp_path: Path) -> None:
    for hour in (6, 0):
        granule(tmp_path / f"v_2000-01-01T{hour:02}:00:00.nc", value=hour)
    along = {"time": {"position": "name", "pattern": "v_%Y-%m-%dT%H:%M:%S.nc"}}
    assert drystone.open(tmp_path / "*.nc", along=along)["v"].values[:, 0].tolist() == [0, 6]
    publish(tmp_path, STORE, {"along": along})
    assert reports(tmp_path, STORE, {"along": along}).ok


def test_months_of_equal_length(tmp_path: Path) -> None:
    granule(tmp_path / "a.nc", [0], "months since 2000-01-01", calendar="360_day")
    granule(tmp_path / "b.nc", [1], "months since 2000-02-01", calendar="360_day")
    combine = {"along": {"time": SLOTS | {"step": "1M"}}}
    publish(tmp_path, STORE, combine)
    assert published(tmp_path, "/time")[:].tolist() == [0, 1, 2]
    assert reports(tmp_path, STORE, combine).ok

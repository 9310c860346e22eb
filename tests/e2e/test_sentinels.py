"""Granules that say missing with numbers of their own, of which one is data in another: values, or a name and a way out."""

from __future__ import annotations

from pathlib import Path

import netCDF4
import numpy as np
import pytest

import drystone
from drystone.errors import DecodeError, DrystoneError
from tests.e2e.combining import ICECHUNK, KERCHUNK, STORE, publish, tree_of

pytestmark = pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated")

NAN = float("nan")
ROWS = 600  # more than scans keep values of


def granule(
    path: Path, day: int, dtype: str, values: list[float], fill: float | None, rows: int = ROWS, **said: object
) -> np.ndarray:
    """One row of numbers, ``values`` first, and what it means."""
    data = np.arange(rows).astype(dtype)
    data[: len(values)] = values
    with netCDF4.Dataset(path, "w") as f:
        f.createDimension("time", None)
        f.createDimension("x", rows)
        t = f.createVariable("time", "i4", ("time",))
        t.units = "days since 2000-01-01"
        t[:] = [day]
        v = f.createVariable("v", dtype, ("time", "x"), fill_value=fill)
        v.set_auto_maskandscale(False)
        v.setncatts(said)
        v[:] = data[None]
    return np.where(data == fill, NAN, data.astype("f8"))


def clash(folder: Path, dtype: str, one: float, two: float) -> np.ndarray:
    """Two granules; the second has the first one's fill value as data. What they mean."""
    first = granule(folder / "a.nc", 0, dtype, [one], one)
    return np.stack([first, granule(folder / "b.nc", 1, dtype, [two, one], two)])


def opened(folder: Path, **said: object) -> np.ndarray:
    return drystone.open(folder / "*.nc", decode=True, **said)["v"].values  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["i2", "i1", "u1", "u2", "i4"])
def test_whole_numbers_are_refused_by_name_and_each_way_out_leads_to_values(dtype: str, tmp_path: Path) -> None:
    one = 100 if dtype == "i1" else 200
    want = clash(tmp_path, dtype, one, one + 1)
    with pytest.raises(
        DecodeError, match=rf"b\.nc: chunk \(0, 0\) of /v .*: \d of {ROWS} stored numbers, {one} first at \(0, 1\)"
    ):
        opened(tmp_path)
    with pytest.raises(DrystoneError, match=rf"b\.nc: .*{one} first at .*fill: widen.*fill_value: {{VARIABLE: NUMBER}}"):
        publish(tmp_path, STORE)
    widen = {"differences": {"fill": "widen"}}
    np.testing.assert_array_equal(opened(tmp_path, **widen), want)
    publish(tmp_path, STORE, widen)
    np.testing.assert_array_equal(tree_of(tmp_path, STORE)["v"].values, want)
    publish(tmp_path, STORE, dtype={"v": "int64"}, fill_value={"v": -(2**40)})
    np.testing.assert_array_equal(tree_of(tmp_path, STORE)["v"].values, want)
    if dtype in ("i2", "i4"):
        publish(tmp_path, STORE, fill_value={"v": -32768})
        np.testing.assert_array_equal(tree_of(tmp_path, STORE)["v"].values, want)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_floating_point_has_a_number_that_is_data_nowhere(dtype: str, tmp_path: Path) -> None:
    want = clash(tmp_path, dtype, -999, -1)
    found = drystone.open(tmp_path / "*.nc")["v"]
    assert np.isnan(found.attrs["_FillValue"])
    np.testing.assert_array_equal(found.values, want)
    publish(tmp_path, STORE)
    np.testing.assert_array_equal(tree_of(tmp_path, STORE)["v"].values, want)


def test_a_number_that_all_say_is_missing_is_taken_before_the_first(tmp_path: Path) -> None:
    granule(tmp_path / "a.nc", 0, "i2", [-9, -1], -9, missing_value=np.int16(-1))
    granule(tmp_path / "b.nc", 1, "i2", [-9, -1], -1)
    found = drystone.open(tmp_path / "*.nc")["v"]
    assert found.attrs["_FillValue"] == -1
    assert found.values[:, :2].tolist() == [[-1, -1], [-9, -1]]


def test_a_number_that_the_other_type_lacks_is_taken(tmp_path: Path) -> None:
    """-1 is no unsigned byte, 255 no signed one; the first of them stands for all."""
    granule(tmp_path / "a.nc", 0, "i1", [-1, 5], -1)
    granule(tmp_path / "b.nc", 1, "u1", [255, 5], 255)
    found = drystone.open(tmp_path / "*.nc")["v"]
    assert (found.dtype, found.attrs["_FillValue"]) == (np.dtype("i2"), -1)
    assert found.values[:, :2].tolist() == [[-1, 5], [-1, 5]]
    for name in ("a", "b"):
        (tmp_path / f"{name}.nc").unlink()
    granule(tmp_path / "a.nc", 0, "i1", [5, 6], 5)
    granule(tmp_path / "b.nc", 1, "u1", [5, 6], 6)
    found = drystone.open(tmp_path / "*.nc")["v"]
    assert found.attrs["_FillValue"] == -32768
    assert found.values[:, :2].tolist() == [[-32768, 6], [5, -32768]]


def test_values_that_scans_keep_are_refused_with_the_granule(tmp_path: Path) -> None:
    granule(tmp_path / "a.nc", 0, "i2", [-9], -9, rows=3)
    granule(tmp_path / "b.nc", 1, "i2", [-1, -9], -1, rows=3)
    with pytest.raises(DrystoneError, match=r"b\.nc: .*/v"):
        opened(tmp_path)
    np.testing.assert_array_equal(opened(tmp_path, differences={"fill": "widen"}), [[NAN, 1, 2], [NAN, -9, 2]])


def test_unsigned_numbers_that_are_read_as_signed_open_in_every_form(tmp_path: Path) -> None:
    """xarray fails on a ``_FillValue`` of Python's 255 where numbers are to be read as signed bytes."""
    for day, name in enumerate("ab"):
        granule(tmp_path / f"{name}.nc", day, "u1", [255, 254], 255, _Unsigned="false")
    for form in (STORE, ICECHUNK, KERCHUNK):
        publish(tmp_path, form)
        found = tree_of(tmp_path, form)["v"].values
        assert np.isnan(found[:, 0]).all(), form
        assert found[:, 1].tolist() == [-2, -2], form

"""Stores whose chunks or shards are months: written by tasks, proven, read by zarr and xarray."""

from __future__ import annotations

import json
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr
from e2e.combining import STORE, publish, write_config

import drystone
from drystone.cli.main import main
from drystone.errors import DrystoneError

DAYS = 150  # from the twentieth of January: months of 12, 28, 31, 30, 31 and 18
MONTHS = (12, 28, 31, 30, 31, 18)


@pytest.fixture
def archive(tmp_path: Path) -> np.ndarray:
    """Daily fields in files of 37 days; one value in five is missing."""
    rng = np.random.default_rng(3)
    values = rng.integers(-999, 2000, (DAYS, 9, 14), np.int16)
    values[rng.random(values.shape) < 0.2] = -999
    for first in range(0, DAYS, 37):
        part = values[first : first + 37]
        with netCDF4.Dataset(tmp_path / f"{first:03}.nc", "w") as file:
            for name, n in (("time", None), ("y", 9), ("x", 14)):
                file.createDimension(name, n)
            time = file.createVariable("time", "f8", ("time",))
            time.units = "days since 2001-01-20"
            time[:] = np.arange(first, first + len(part))
            v = file.createVariable("v", "i2", ("time", "y", "x"), zlib=True, chunksizes=(10, 9, 14), fill_value=-999)
            v.set_auto_maskandscale(False)
            v[:] = part
    return values


CALENDAR = {
    "chunks": {"chunks": {"time": "months", "y": 4, "x": "all"}},
    "no shards": {"chunks": {"time": "months"}, "shards": "none"},
    "shards": {"chunks": {"time": 1}, "shards": {"time": "months"}},
    "planned inner": {"shards": {"time": "months", "y": "all"}},
    "years": {"chunks": {"time": "years", "y": 2}},
}


@pytest.mark.parametrize("name", CALENDAR)
def test_values(archive: np.ndarray, tmp_path: Path, name: str) -> None:
    report = drystone.run(write_config(tmp_path, STORE, grid="rectilinear", **CALENDAR[name]))
    assert report.outputs[0].refused == ()
    document = json.loads((tmp_path / "out/out.zarr/v/zarr.json").read_text())
    assert document["chunk_grid"]["name"] == "rectilinear"
    wanted = [DAYS] if name == "years" else list(MONTHS)
    assert document["chunk_grid"]["configuration"]["chunk_shapes"][0] == wanted
    sharded = document["codecs"][0]["name"] == "sharding_indexed"
    assert sharded == (name in ("shards", "planned inner"))
    with zarr.config.set({"array.rectilinear_chunks": True}):
        array = zarr.open_group(tmp_path / "out/out.zarr", mode="r")["v"]
        np.testing.assert_array_equal(array[:], archive)
        np.testing.assert_array_equal(array[38:44, 3:5, 13], archive[38:44, 3:5, 13])
        with xr.open_zarr(tmp_path / "out/out.zarr", chunks=None, mask_and_scale=False) as read:
            np.testing.assert_array_equal(read["v"].values, archive)
    assert main(["verify", str(tmp_path / "zarr.yaml")]) == 0
    files = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*") if p.is_file()}
    drystone.run(write_config(tmp_path, STORE, grid="rectilinear", **CALENDAR[name]))
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*") if p.is_file()} == files


def test_a_damaged_month_is_named(archive: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish(tmp_path, STORE, grid="rectilinear", **CALENDAR["chunks"])
    first, other = (tmp_path / f"out/out.zarr/v/c/{i}/0/0" for i in (2, 4))
    other.write_bytes(first.read_bytes())  # March in May's place: both have 31 days
    assert main(["verify", str(tmp_path / "zarr.yaml")]) != 0
    assert "/v" in capsys.readouterr().err


def test_what_cannot_follow_the_calendar(archive: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(DrystoneError, match=r"number 0 has 12; a divisor of 1 would do"):
        publish(tmp_path, STORE, grid="rectilinear", chunks={"time": 5}, shards={"time": "months"})
    with pytest.raises(DrystoneError, match=r"/v: y: months: no coordinate y"):
        publish(tmp_path, STORE, grid="rectilinear", chunks={"y": "months"})
    assert not (tmp_path / "out").exists()


def test_the_plan_says_it(archive: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path, STORE, grid="rectilinear", **CALENDAR["shards"])
    assert main(["scan", str(config)]) == 0
    assert main(["plan", str(config)]) == 0
    said = capsys.readouterr().out
    assert "in shards of (12 to 31, 9, 14)" in said
    assert "/v: chunks of different sizes, so the grid is rectilinear; read by zarr-python from 3.2" in said

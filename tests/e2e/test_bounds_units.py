"""Bounds without units of their own mean what their coordinate means, in whatever order files are listed and cut."""

from __future__ import annotations

from pathlib import Path

import netCDF4
import numpy as np
import pytest
from e2e.combining import ICECHUNK, STORE, datasets_of, publish, tree_of

import drystone


def write(path: Path, day: int, shuffle: bool) -> None:
    """Two days that count from the first of them."""
    with netCDF4.Dataset(path, "w") as nc:
        nc.createDimension("time", None)
        nc.createDimension("nv", 2)
        time = nc.createVariable("time", "f8", ("time",))
        time.setncatts({"units": f"days since 2000-01-{1 + day:02d}", "bounds": "time_bnds"})
        time[:] = [0, 1]
        nc.createVariable("time_bnds", "f8", ("time", "nv"))[:] = [[0, 1], [1, 2]]
        nc.createVariable("v", "i4", ("time",), zlib=True, shuffle=shuffle, chunksizes=(1,))[:] = [day, day + 1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four files that are listed in reverse of time, in three eras; two files of the second count differently."""
    for name, day, shuffle in (("d", 0, True), ("c", 2, False), ("b", 4, False), ("a", 6, True)):
        write(tmp_path / f"{name}.nc", day, shuffle)
    return tmp_path


@pytest.mark.parametrize("chosen", [{}, {"time": {"index": {"start": 3, "stop": 7}}}, {"time": {"index": [6, 4, 3]}}])
def test_bounds_begin_where_their_coordinate_lies(folder: Path, chosen: dict[str, object]) -> None:
    combine = {"select": chosen} if chosen else {}
    opened = drystone.open(folder / "*.nc", **combine)
    assert opened["time"].values.tolist() == opened["time_bnds"].values[:, 0].tolist()
    assert (np.diff(opened["time_bnds"].values) == 1).all()
    for form in (ICECHUNK, STORE):
        assert publish(folder, form, combine).outputs[0].verified == "full"
        parts = [d for d in datasets_of(tree_of(folder, form, decode_times=False)) if "time" in d.variables]
        assert parts
        for part in parts:
            assert part["time_bnds"].values[:, 0].tolist() == part["time"].values.tolist()

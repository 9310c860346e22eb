"""Granules that lack arrays, say them in other units, or overlap: exact in every output, or named where one cannot."""

from __future__ import annotations

import warnings
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr

import drystone
from drystone.errors import CombineError, LeftOut, UnsupportedError

OUTPUTS = """\
  - {store: zarr, at: plain.zarr}
  - {store: zarr, at: covered.zarr, coverage: true}
  - {virtual: kerchunk-parquet, at: eras.parq}
"""


def write(path: Path, i: int, *, ice: bool, units: str = "K") -> None:
    """Two steps of three arrays; the one that may be missing has no ``_FillValue``."""
    with netCDF4.Dataset(path / f"g{i}.nc", "w") as nc:
        nc.createDimension("time", None)
        nc.createDimension("x", 4)
        time = nc.createVariable("time", "f8", ("time",), chunksizes=(2,))
        time.units = "days since 2000-01-01"
        time[:] = [2 * i, 2 * i + 1]
        for name, dtype in (("sst", "f4"), ("qc", "f4"), ("ice", "i2"))[: 3 if ice else 2]:
            v = nc.createVariable(name, dtype, ("time", "x"), chunksizes=(1, 4), fill_value=False)
            v.set_auto_maskandscale(False)
            v[:] = np.arange(8).reshape(2, 4) + 100 * i
        nc["sst"].units = units


def config(path: Path, differences: str, outputs: str = OUTPUTS, more: str = "") -> str:
    text = f'name: c\ngranules: "*.nc"\ncombine: {{differences: {differences}{more}}}\noutputs:\n{outputs}'
    (path / "c.yaml").write_text(text + "verify: {values: full}\nexecution: {cluster: inline}\n")
    return str(path / "c.yaml")


def opened(path: Path, **options: object) -> tuple[xr.Dataset | xr.DataTree, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = drystone.open(str(path / "*.nc"), **options)  # type: ignore[arg-type]
    assert all(w.filename == __file__ for w in caught)  # a warning is about the caller's line
    return got, [str(w.message) for w in caught if issubclass(w.category, LeftOut)]


def test_every_output_holds_what_it_can_and_names_the_rest(tmp_path: Path) -> None:
    for i in range(4):
        write(tmp_path, i, ice=i >= 2, units="K" if i < 3 else "degC")
    c = config(tmp_path, "{units: era, missing_variable: era}")
    report = drystone.run(c)
    plain, covered, eras = report.outputs
    assert plain.arrays == ("/qc", "/time")
    assert dict(plain.refused)["/ice"].startswith("here:g0.nc and maybe others lack it, and it has no _FillValue")
    assert covered.arrays == ("/ice", "/ice_coverage", "/qc", "/time")
    assert covered.refused == () == eras.refused
    assert [a for a in eras.arrays if a.endswith("/ice")] == ["/era-2-with-ice/ice", "/era-3-units/ice"]
    words = "here:plain.zarr: /sst: here:g0.nc and here:g3.nc say it differently (units 'K' and 'degC')"
    assert any(w.startswith(words) for w in report.warnings)
    group = zarr.open_group(tmp_path / "covered.zarr", mode="r")
    assert group["ice_coverage"][:].tolist() == [0] * 4 + [1] * 4
    assert group["ice"][4:].tolist() == [[100 * i + 4 * k + x for x in range(4)] for i in (2, 3) for k in (0, 1)]
    plan = drystone.plan(c)
    modes = {a.path: a.mode for a in plan.outputs[2].arrays}
    assert modes["/era-3-units/sst"] == "virtual"
    assert modes["/era-1/time"] == "driver"
    notes = plan.to_json()["outputs"][0]["notes"]  # type: ignore[index]
    assert any(n.startswith(words) for n in notes)
    assert drystone.run(c).release is None


def test_open_gives_eras_where_an_array_lies_in_them_alone(tmp_path: Path) -> None:
    for i in range(3):
        write(tmp_path, i, ice=i >= 1)
    got, told = opened(tmp_path, differences={"missing_variable": "era"})
    assert isinstance(got, xr.DataTree)
    assert got["/era-2-with-ice/ice"].values.tolist() == [
        [100 * i + 4 * k + x for x in range(4)] for i in (1, 2) for k in (0, 1)
    ]
    assert "ice" not in got["/era-1"]
    assert len(told) == 1
    assert "it is left out of the root group and is in /era-1, /era-2-with-ice" in told[0]
    got, told = opened(tmp_path)
    assert isinstance(got, xr.Dataset)
    assert sorted(got.data_vars) == ["qc", "sst"]
    assert len(told) == 1
    assert told[0].startswith("/ice: files:g0.nc and maybe others lack it")
    assert told[0].endswith("it is left out")
    with pytest.raises(CombineError, match=r"/ice: files:g0.nc and maybe others lack it") as error:
        opened(tmp_path, variables=["ice", "sst"])
    assert error.value.kind == "gaps-unmarked"


def test_open_gives_one_dataset_where_gaps_are_marked(tmp_path: Path) -> None:
    """A float array reads as NaN where granules lack it, so that no group is needed by readers."""
    for i in range(3):
        write(tmp_path, i, ice=False)
    with netCDF4.Dataset(tmp_path / "g2.nc", "a") as nc:
        nc.createVariable("wind", "f4", ("time", "x"), chunksizes=(1, 4), fill_value=False)[:] = 3.0
    got, told = opened(tmp_path, differences={"missing_variable": "era"})
    assert isinstance(got, xr.Dataset)
    assert not told
    assert np.isnan(got["wind"].values[:4]).all()
    assert (got["wind"].values[4:] == 3).all()
    eras = drystone.plan(_scanned(config(tmp_path, "{missing_variable: era}"))).outputs[2]
    assert [a.path for a in eras.arrays if a.path.endswith("/wind")] == ["/era-2-with-wind/wind"]


def _scanned(path: str) -> str:
    drystone.scan(path)
    return path


def test_what_an_output_asks_for_by_name_is_never_left_out(tmp_path: Path) -> None:
    for i in range(2):
        write(tmp_path, i, ice=i > 0, units="KC"[i])
    plain = "  - {store: zarr, at: plain.zarr, arrays: [ice]}\n"
    with pytest.raises(CombineError, match=r"^here:plain.zarr: /ice: here:g0.nc and maybe others lack it"):
        drystone.plan(_scanned(config(tmp_path, "{units: era}", plain)))
    alone = "  - {store: zarr, at: plain.zarr, coverage: true}\n"
    with pytest.raises(UnsupportedError, match=r"would hold no array: /sst: here:g0.nc and here:g1.nc say it differently"):
        drystone.plan(config(tmp_path, "{units: era}", alone, ", variables: [sst]"))


def test_granules_that_alternate_make_no_groups_and_a_note_says_so(tmp_path: Path) -> None:
    for i in range(202):
        with netCDF4.Dataset(tmp_path / f"g{i:03d}.nc", "w") as nc:
            nc.createDimension("time", None)
            time = nc.createVariable("time", "f8", ("time",), chunksizes=(1,))
            time.units = "days since 2000-01-01"
            time[:] = [i]
            for name in ("a", "b")[: 1 + i % 2]:
                nc.createVariable(name, "f4", ("time",), chunksizes=(1,))[:] = i
    plan = drystone.plan(_scanned(config(tmp_path, "{missing_variable: era}")))
    assert any("granules of /b differ 201 times along time" in w for w in plan.to_json()["warnings"])
    assert plan.outputs[2].published == ("/a", "/b", "/time")


def test_tiles_that_overlap_are_cut_half_way_in_every_output(tmp_path: Path) -> None:
    """Two tiles of six columns share two; verification reads both files."""
    for i, start in enumerate((0, 4)):
        with netCDF4.Dataset(tmp_path / f"g{i}.nc", "w") as nc:
            nc.createDimension("x", 6)
            nc.createVariable("x", "f8", ("x",))[:] = np.arange(start, start + 6)
            nc.createVariable("v", "i4", ("x",), chunksizes=(1,), zlib=True)[:] = 100 * i + np.arange(6)
    mosaic = 'name: c\ngranules: "*.nc"\ncombine: {mosaic: {x: coordinate, overlap: crop}}\noutputs:\n'
    (tmp_path / "c.yaml").write_text(
        mosaic + "  - {store: zarr, at: m.zarr}\n  - {virtual: kerchunk-parquet, at: m.parq}\n"
        "verify: {values: full}\nexecution: {cluster: inline}\n"
    )
    report = drystone.run(str(tmp_path / "c.yaml"))
    assert [o.verified for o in report.outputs] == ["full", "full"]
    want = [0, 1, 2, 3, 4, 101, 102, 103, 104, 105]
    assert zarr.open_group(tmp_path / "m.zarr", mode="r")["v"][:].tolist() == want
    assert drystone.open(str(tmp_path / "*.nc"), along="x", overlap="crop")["v"].values.tolist() == want

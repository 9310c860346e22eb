"""Real files that differ, from iris-sample-data: NEMO months, two climate scenarios as a new axis, OSTIA cut by year."""

from __future__ import annotations

import shutil
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr
from e2e.combining import FORMS, ICECHUNK, STORE, joined, publish, tree_of

import drystone

# fsspec reads Parquet references with fastparquet, which pandas 3 warns about
pytestmark = pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated")

RAW = {"mask_and_scale": False, "decode_times": False}


@pytest.fixture(scope="module")
def samples() -> Path:
    return Path(pytest.importorskip("iris_sample_data").path)


def raw(path: Path, name: str) -> np.ndarray:
    with netCDF4.Dataset(path) as nc:
        nc.set_auto_maskandscale(False)
        return np.asarray(nc[name][...])


@pytest.mark.parametrize("form", [STORE, ICECHUNK])
def test_nemo_months_by_their_names(samples: Path, form: str, tmp_path: Path) -> None:
    """The axis variable is 0 in every file; the time is an auxiliary coordinate, of a 360-day calendar."""
    files = sorted((samples / "NEMO").glob("nemo_1m_*_grid-T.nc"))
    assert len(files) == 3
    for path in files:
        shutil.copy(path, tmp_path)
    along = {"time_counter": {"position": "name", "pattern": "nemo_1m_([0-9]{8})-"}}
    report = publish(tmp_path, form, {"along": along})
    assert report.outputs[0].refused == ()
    found = tree_of(tmp_path, form, **RAW).to_dataset()
    for name in ("tos", "time_centered", "time_centered_bounds"):
        want = np.concatenate([raw(p, name) for p in files])
        np.testing.assert_array_equal(found[name].values, want)
    decoded = tree_of(tmp_path, form).to_dataset()["time_centered"]
    assert decoded.dt.calendar == "360_day"
    assert [t.isoformat()[:10] for t in decoded.values] == ["2015-01-16", "2015-02-16", "2015-03-16"]


@pytest.mark.parametrize("form", FORMS)
def test_scenarios_are_a_new_axis_by_name(samples: Path, form: str, tmp_path: Path) -> None:
    files = [samples / f"{name}_north_america.nc" for name in ("A1B", "E1")]
    for path in files:
        shutil.copy(path, tmp_path)
    along = {"scenario": {"position": "name", "pattern": "([A-Z0-9]+)_north_america"}}
    publish(tmp_path, form, {"along": along, "variables": ["air_temperature"]})
    found = tree_of(tmp_path, form, **RAW).to_dataset()
    assert found["air_temperature"].dims == ("scenario", "time", "latitude", "longitude")
    np.testing.assert_array_equal(found["air_temperature"].values, np.stack([raw(p, "air_temperature") for p in files]))
    assert [str(s) for s in found["scenario"].values] == ["A1B", "E1"]
    np.testing.assert_array_equal(found["time"].values, raw(files[0], "time"))


@pytest.mark.parametrize("form", FORMS)
def test_ostia_cut_by_year_into_files_of_unequal_length(samples: Path, form: str, tmp_path: Path) -> None:
    source = samples / "ostia_monthly.nc"
    whole = raw(source, "surface_temperature")
    with xr.open_dataset(source, decode_times=False, mask_and_scale=False, engine="netcdf4") as dataset:
        years = np.asarray(xr.decode_cf(dataset[["time"]])["time"].dt.year)
        sizes = []
        for year in np.unique(years):
            part = dataset.isel(time=np.flatnonzero(years == year))
            sizes.append(part.sizes["time"])
            encoding = {"surface_temperature": {"zlib": True, "chunksizes": (1, 18, 432)}}
            part.drop_encoding().to_netcdf(
                tmp_path / f"ostia_{year}.nc", engine="netcdf4", encoding=encoding, unlimited_dims=["time"]
            )
    assert len(set(sizes)) > 1
    publish(tmp_path, form, {"along": "time"})
    got = joined(tmp_path, form, "surface_temperature", "time", **RAW)
    np.testing.assert_array_equal(got.values, whole)
    np.testing.assert_array_equal(got["time"].values, raw(source, "time"))
    np.testing.assert_array_equal(drystone.open(tmp_path / "*.nc", along="time")["surface_temperature"].values, whole)

"""Small archives that end-to-end tests run on, made with netCDF4, and what they hold."""

from __future__ import annotations

import os
from pathlib import Path

import netCDF4
import numpy as np

CONFIG = """\
version: 1
name: little
storage:
  raw: {{url: "file:./raw"}}
  out: {{url: "file:./out"}}
archive:
  granules: "raw:*.nc"
outputs:
{outputs}
reads:
  series: {{lat: 1, lon: 1}}
  map: {{time: 1}}
verify: {{values: full}}
{more}
"""

STORE = """\
  - store: zarr
    at: "out:series.zarr"
    chunks: {time: 8, lat: 4, lon: 6}
    shards: {time: 16, lat: 8, lon: 12}
    codecs: [{blosc: {cname: zstd, level: 1}}]
"""
ICECHUNK = """\
  - virtual: icechunk
    at: "out:little.icechunk"
"""
KERCHUNK = """\
  - virtual: kerchunk-parquet
    at: "out:little.parq"
"""


def write_day(path: Path, start: int, steps: int, *, seed: int = 0, **changes: object) -> dict[str, np.ndarray]:
    """One file of ``steps`` days: packed sst, float err with NaN, lat, lon, a mask, a scalar and names."""
    rng = np.random.default_rng(seed + start)
    values = {
        "time": start + np.arange(steps, dtype="f8"),
        "lat": np.linspace(-70, 70, 8, dtype="f4"),
        "lon": np.linspace(0, 330, 12, dtype="f4"),
        "sst": rng.integers(-900, 3000, (steps, 8, 12)).astype("i2"),
        "err": rng.normal(size=(steps, 8, 12)).astype("f4"),
        "mask": (np.arange(96).reshape(8, 12) % 5 == 0).astype("i1"),
    }
    values["sst"][:, 0, :3] = -999
    values["err"][:, 1, 1] = np.nan
    values.update({k: np.asarray(v) for k, v in changes.items() if k in values})
    with netCDF4.Dataset(path, "w") as nc:
        for name, size in (("time", None), ("lat", 8), ("lon", 12)):
            nc.createDimension(name, size)
        chunk = {"time": (1,), "sst": (1, 8, 12), "err": (1, 4, 12), "mask": (8, 12)}
        dims = {"time": ("time",), "lat": ("lat",), "lon": ("lon",), "mask": ("lat", "lon")}
        for name, data in values.items():
            fill = {"sst": -999, "err": np.float32(9.96921e36)}.get(name)
            v = nc.createVariable(
                name, data.dtype, dims.get(name, ("time", "lat", "lon")), zlib=name in chunk, shuffle=True,
                chunksizes=chunk.get(name), fill_value=fill,
            )  # fmt: skip
            v.set_auto_maskandscale(False)
            v[...] = data
        nc["time"].units = "days since 2000-01-01"
        nc["sst"].setncatts({"scale_factor": np.float32(changes.get("scale", 0.01)), "add_offset": np.float32(0)})  # type: ignore[arg-type]
        nc["sst"].units = "degC"
        crs = nc.createVariable("crs", "i4", ())
        crs[...] = 4326
        crs.grid_mapping_name = "latitude_longitude"
        nc.setncatts({"title": "little archive", "history": f"made for day {start}"})
    return values


def write_archive(folder: Path, days: tuple[int, ...] = (3, 3, 3, 3, 3, 3, 3, 3)) -> dict[str, np.ndarray]:
    """Several files; returns the values of the whole."""
    (folder / "raw").mkdir(parents=True, exist_ok=True)
    start, parts = 0, []
    for steps in days:
        parts.append(write_day(folder / "raw" / f"day{start:04d}.nc", start, steps))
        start += steps
    whole = dict(parts[0])
    for name in ("time", "sst", "err"):
        whole[name] = np.concatenate([p[name] for p in parts])
    return whole


def write_config(folder: Path, outputs: str = ICECHUNK + KERCHUNK + STORE, more: str = "") -> Path:
    """The YAML beside the files."""
    path = folder / "little.yaml"
    path.write_text(CONFIG.format(outputs=outputs, more=more))
    return path


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by relative path."""
    return {
        os.path.relpath(os.path.join(d, n), folder): Path(d, n).read_bytes() for d, _, names in os.walk(folder) for n in names
    }

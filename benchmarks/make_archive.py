"""Make the benchmark archives: netCDF-4 files shaped like real archives, with smooth fields, a land mask and noise.

usage: make_archive.py KIND FOLDER [--files N]

=====  ==================  ======================================  =================================
kind   a file holds        variable                                chunks, filters
=====  ==================  ======================================  =================================
oisst  one day             2 x int16 (1, 1, 720, 1440)             one chunk each, shuffle + zlib 4
mur    one day             int16 (1, 3600, 7200)                   (1, 900, 900), shuffle + zlib 6
bran   one month           int16 (31, 51, 50, 144)                 (1, 1, 10, 12), shuffle + zlib 1
maps   fifty days          int16 (50, 720, 1440)                   (1, 720, 1440), shuffle + zlib 1
=====  ==================  ======================================  =================================

A file is made once: those that exist under their final name are kept.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import netCDF4
import numpy as np

FILL = -999


@dataclass(frozen=True)
class Kind:
    variables: tuple[str, ...]
    dims: dict[str, int]
    chunks: tuple[int, ...]
    level: int
    pattern: str
    days: int
    files: int


KINDS = {
    "oisst": Kind(
        ("sst", "anom"), {"time": 1, "zlev": 1, "lat": 720, "lon": 1440}, (1, 1, 720, 1440), 4, "oisst-{:05d}.nc", 1, 365
    ),
    "mur": Kind(("analysed_sst",), {"time": 1, "lat": 3600, "lon": 7200}, (1, 900, 900), 6, "mur-{:05d}.nc", 1, 10),
    "maps": Kind(("sst",), {"time": 50, "lat": 720, "lon": 1440}, (1, 720, 1440), 1, "maps-{:04d}.nc", 50, 20),
    "bran": Kind(("temp",), {"time": 31, "lev": 51, "lat": 50, "lon": 144}, (1, 1, 10, 12), 1, "temp-{:03d}.nc", 31, 4),
}


def field(height: int, width: int, seed: int) -> np.ndarray:
    """A packed field, int16 (height, width): five waves, noise of a few units, land; compresses about as real SST does."""
    rng = np.random.default_rng(seed)
    y = np.linspace(-1, 1, height)[:, None]
    x = np.linspace(0, 2 * np.pi, width)[None, :]
    waves = np.zeros((height, width))
    for k in range(1, 6):
        amplitude, phase = rng.normal(size=2)
        waves += amplitude / k * np.cos(k * x + phase) * np.cos(k * np.pi * y / 2 + phase)
    packed = (waves * 1000 + rng.integers(-12, 13, size=(height, width))).astype("i2")
    packed[np.cos(3 * x) * np.sin(4 * y) > 0.6] = FILL
    return packed


def values(kind: Kind, index: int, variable: int) -> Iterator[tuple[int, np.ndarray]]:
    """Time step and values of one variable, a step at a time."""
    *lead, height, width = kind.dims.values()
    base = field(height, width, 10 * index + variable)
    for t in range(lead[0]):
        levels = lead[1] if len(lead) > 1 else 1
        stack = np.stack([base + t + k for k in range(levels)]) if kind.days > 1 else base[None]
        yield t, stack.reshape(*lead[1:], height, width)


def write(path: Path, kind: Kind, index: int) -> None:
    """One file, under a temporary name until it is whole."""
    temporary = path.with_suffix(".part")
    with netCDF4.Dataset(temporary, "w") as nc:
        for name, size in kind.dims.items():
            nc.createDimension(name, None if name == "time" else size)
        first = index * kind.days
        time = nc.createVariable("time", "f4", ("time",), chunksizes=(1,) if kind.days == 1 else None)
        time.units = "days since 1978-01-01 12:00:00"
        time[:] = first + np.arange(kind.dims["time"])
        for name, size in kind.dims.items():
            if name != "time":
                axis = nc.createVariable(name, "f4", (name,))
                axis[:] = np.linspace(-90, 90, size) if name == "lat" else np.linspace(0, 360, size, endpoint=False)
        for number, name in enumerate(kind.variables):
            v = nc.createVariable(
                name,
                "i2",
                tuple(kind.dims),
                chunksizes=kind.chunks,
                zlib=True,
                complevel=kind.level,
                shuffle=True,
                fill_value=FILL,
            )
            v.setncatts({"scale_factor": np.float32(0.01), "add_offset": np.float32(0), "units": "Celsius"})
            v.set_auto_maskandscale(False)
            for t, data in values(kind, index, number):
                v[t] = data
        nc.date = str(dt.date(1981, 9, 1) + dt.timedelta(days=first))
    os.replace(temporary, path)


def make(name: str, folder: Path, files: int | None = None) -> list[Path]:
    """The files of an archive, made where missing."""
    kind = KINDS[name]
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / kind.pattern.format(i) for i in range(files or kind.files)]
    for index, path in enumerate(paths):
        if not path.exists():
            write(path, kind, index)
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int)
    asked = parser.parse_args()
    paths = make(asked.kind, asked.folder, asked.files)
    print(f"{len(paths)} files, {sum(p.stat().st_size for p in paths) / 1e6:.1f} MB in {asked.folder}")


if __name__ == "__main__":
    main()

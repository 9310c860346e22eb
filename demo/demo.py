"""The demonstration: real files to a virtual store and a time-series store, proven, with the commands that a user would type.

usage: demo.py [--only NAME,…] [--keep]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "demo" / "output"


@dataclass(frozen=True)
class Archive:
    """One archive of the demo: its config, its files in the package, the array and the point that are read at the end.

    ``whole_tour``: every verb, also those whose work ``run`` does again.
    """

    name: str
    title: str
    folder: str
    files: tuple[str, ...]
    array: str
    point: dict[str, int]
    whole_tour: bool = False


ARCHIVES = (
    Archive(
        "ostia", "OSTIA monthly sea-surface temperature: one file, 54 maps, a map a chunk", "ostia", ("ostia_monthly.nc",),
        "surface_temperature", {"latitude": 9, "longitude": 200}, whole_tour=True,
    ),
    Archive(
        "nemo", "NEMO ocean: three months, a file a month, curvilinear", "nemo",
        (
            "NEMO/nemo_1m_20150101-20150201_grid-T.nc",
            "NEMO/nemo_1m_20150201-20150301_grid-T.nc",
            "NEMO/nemo_1m_20150301-20150401_grid-T.nc",
        ),
        "tos", {"y": 160, "x": 100},
    ),
    Archive(
        "a1b", "Climate scenario A1B over North America: 240 years", "scenarios", ("A1B_north_america.nc",),
        "air_temperature", {"latitude": 20, "longitude": 25},
    ),
    Archive(
        "e1", "Climate scenario E1 over North America: 240 years", "scenarios", ("E1_north_america.nc",),
        "air_temperature", {"latitude": 20, "longitude": 25},
    ),
)  # fmt: skip


def say(text: str, style: str = "1") -> None:
    """A line of the demo's own, set off from what drystone prints where a person looks."""
    print(f"\033[{style}m{text}\033[0m" if sys.stdout.isatty() else text, flush=True)


def drystone(*words: str, expect: int = 0) -> None:
    """Show a command as a user would type it, run it, and stop the demo where it does not end as expected."""
    say(f"\n$ drystone {' '.join(words)}", "1;36")
    program = os.path.join(sysconfig.get_path("scripts"), "drystone")
    status = subprocess.run([program, *words], cwd=ROOT, stdin=subprocess.DEVNULL, check=False).returncode
    if status != expect:
        raise SystemExit(f"demo: 'drystone {' '.join(words)}' ended with {status}, not {expect}")


def copy_files(archive: Archive) -> None:
    """The package's files into the demo's folder; an archive must not change under its table when the package does."""
    import iris_sample_data

    source = Path(iris_sample_data.path)
    target = WORK / archive.folder
    target.mkdir(parents=True, exist_ok=True)
    for name in archive.files:
        if not (target / Path(name).name).exists():
            shutil.copyfile(source / name, target / Path(name).name)


def open_icechunk(path: Path):
    """The repository's main branch, allowed to read the files that it refers to."""
    import icechunk

    icechunk.set_logs_filter("error")  # it warns of concurrent writers in a folder; nobody writes here
    storage = icechunk.local_filesystem_storage(str(path))
    config = icechunk.Repository.fetch_config(storage)
    allowed = dict.fromkeys(config.virtual_chunk_containers or {}, icechunk.credentials.LocalFileSystemAccess)
    repository = icechunk.Repository.open(storage, authorize_virtual_chunk_access=allowed)
    return repository.readonly_session("main").store


def read_back(archive: Archive) -> None:
    """Read a point series from both stores and from the files, with xarray alone, and compare."""
    import numpy as np
    import xarray as xr
    import zarr

    published = WORK / "published"
    files = [WORK / archive.folder / Path(name).name for name in archive.files]
    direct = np.concatenate([xr.open_dataset(f, engine="netcdf4")[archive.array].isel(archive.point).values for f in files])
    say(f"\nThe series at {archive.point}, read by xarray:")
    stores = {
        "virtual store": open_icechunk(published / f"{archive.name}.icechunk"),
        "series store": zarr.storage.LocalStore(published / f"{archive.name}-series.zarr"),
    }
    for title, store in stores.items():
        array = xr.open_zarr(store, consolidated=None)[archive.array]
        start = time.perf_counter()
        series = array.isel(archive.point).values
        seconds = time.perf_counter() - start
        same = np.array_equal(series, direct, equal_nan=True)
        verdict = "equal to the files" if same else "DIFFERENT"
        say(f"  {title:14} {len(series)} values in {seconds * 1e3:.0f} ms, {verdict}", "0")
        if not same:
            raise SystemExit(f"demo: {title} of {archive.name} differs from the files")


def one(archive: Archive) -> None:
    config = f"configs/demo-{archive.name}.yaml"
    say(f"\n{'=' * 100}\n{archive.title}\n{'=' * 100}")
    copy_files(archive)
    drystone("show", f"demo/output/{archive.folder}/{Path(archive.files[0]).name}", "--array", archive.array)
    if archive.whole_tour:
        drystone("check", config)
    drystone("scan", config)
    drystone("plan", config)
    drystone("run", config)
    if archive.whole_tour:
        # the run proved both outputs before they became visible; here it is done again, from outside
        drystone("verify", config, "--values", "full")
        drystone("status", config)
    drystone("show", f"demo/output/published/{archive.name}-series.zarr", "--array", archive.array)
    read_back(archive)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(a.name for a in ARCHIVES))
    parser.add_argument("--keep", action="store_true")
    asked = parser.parse_args()
    start = time.perf_counter()
    if not asked.keep:
        shutil.rmtree(WORK, ignore_errors=True)
    chosen = [a for a in ARCHIVES if a.name in asked.only.split(",")]
    if not chosen:
        parser.error(f"no archive {asked.only!r} (known: {', '.join(a.name for a in ARCHIVES)})")
    for archive in chosen:
        one(archive)
    if {"a1b", "e1"} <= {a.name for a in chosen}:
        say(f"\n{'=' * 100}\nWhat does not fit is refused: two scenarios hold the same years\n{'=' * 100}")
        drystone("run", "configs/demo-refused.yaml", expect=5)
        say(f"\n{'=' * 100}\nA new axis, read from the file names, makes them one\n{'=' * 100}")
        drystone("run", "configs/demo-scenarios.yaml")
    say(f"\nDone in {time.perf_counter() - start:.0f} s. All of it is in demo/output; run a command again: it does nothing.")


if __name__ == "__main__":
    main()

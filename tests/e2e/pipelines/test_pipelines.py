"""The programs in pipelines/ run, and do what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import netCDF4
import numpy as np
import pytest

ROOT = Path(__file__).parents[3]


def write(path: Path, day: int) -> None:
    with netCDF4.Dataset(path, "w") as nc:
        nc.createDimension("time", None)
        nc.createDimension("x", 6)
        time = nc.createVariable("time", "i4", ("time",))
        time.units = "days since 2024-01-01"
        time[:] = [day]
        nc.createVariable("v", "i2", ("time", "x"), zlib=True, chunksizes=(1, 6))[:] = np.arange(6)[None] + day


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    (tmp_path / "raw").mkdir()
    for day in range(4):
        write(tmp_path / "raw" / f"d{day}.nc", day)
    config = tmp_path / "a.yaml"
    config.write_text(
        'name: a\ngranules: "raw/*.nc"\noutputs:\n  - store: zarr\n    at: a.zarr\n    chunks: {time: 4, x: 3}\n'
        "reads: {series: {x: 1}}\nexecution: {cluster: inline}\nverify: {values: full}\n"
    )
    return config


def run(program: str, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "pipelines" / program), *map(str, words)], capture_output=True, text=True, timeout=120
    )


def values(config: Path) -> np.ndarray:
    import zarr

    return np.asarray(zarr.open_group(config.parent / "a.zarr", mode="r")["v"][:])


def test_backfill_runs_and_then_has_nothing_to_do(archive: Path) -> None:
    first = run("backfill.py", archive)
    assert first.returncode == 0, first.stderr
    assert "4 granules scanned, 0 unchanged, release 1" in first.stdout
    assert np.array_equal(values(archive), np.arange(6) + np.arange(4)[:, None])
    again = run("backfill.py", archive)
    assert "0 granules scanned, 4 unchanged, nothing changed" in again.stdout


def test_backfill_names_what_is_left_and_does_the_rest(archive: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: bad\n")
    done = run("backfill.py", bad, archive, "--pause", 0)
    assert done.returncode == 2
    assert "1 of 2 archives done; left: " in done.stdout
    assert "bad.yaml" in done.stderr
    assert values(archive).shape == (4, 6)


def test_daily_is_silent_where_nothing_is_new(archive: Path) -> None:
    first = run("daily.py", archive)
    assert (first.returncode, "release 1" in first.stdout) == (0, True), first.stderr
    again = run("daily.py", archive)
    assert (again.returncode, again.stdout) == (0, ""), again.stderr


def test_compare_chunks_plans_each_shape_and_writes_no_store(archive: Path) -> None:
    done = run("compare_chunks.py", archive, "time=1,x=6", "time=4,x=1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("==") == 2
    assert "time 4, x 1" in done.stdout
    assert not (archive.parent / "a.zarr").exists()

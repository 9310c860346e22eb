"""The public cases about operations: O01, O03, O07, each as its ``case.json`` says."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from e2e import kills, syscalls

import drystone
from drystone.errors import DrystoneError, GranuleMissing

CASES = Path(__file__).parent.parent / "data" / "cases"

CONFIG = """\
version: 1
name: case
storage:
  raw: {{url: "file:{raw}"}}
  out: {{url: "file:./out"}}
archive:
  granules: "raw:*.nc"
outputs:
  - store: zarr
    at: "out:case.zarr"
{layout}
verify: {{values: full}}
{more}
"""


def case(name: str) -> tuple[Path, dict, dict[str, np.ndarray]]:
    """Folder, case.json and expected values."""
    folder = next(CASES.glob(f"{name}_*"))
    with np.load(folder / "expected.npz", allow_pickle=False) as values:
        return folder, json.loads((folder / "case.json").read_text()), dict(values)


def write_config(folder: Path, raw: str, layout: str = "", more: str = "") -> Path:
    """The YAML of a case."""
    path = folder / "case.yaml"
    path.write_text(CONFIG.format(raw=raw, layout=layout, more=more))
    return path


@pytest.mark.parametrize("when", ["open", "run", "kept time"])
def test_o01_source_changed(when: str, tmp_path: Path) -> None:
    """A file rewritten at the same size after the scan is refused by name; new bytes never come under old metadata."""
    folder, info, expected = case("O01")
    shutil.copytree(folder / "before", tmp_path / "raw")
    config = write_config(tmp_path, "./raw")
    before = drystone.open(config) if drystone.scan(config).scanned else None
    assert before is not None
    stamp = os.stat(tmp_path / "raw/x.nc")
    shutil.copy(folder / "after/x.nc", tmp_path / "raw/x.nc")
    if when == "kept time":  # as rsync -t leaves it, one nanosecond apart
        os.utime(tmp_path / "raw/x.nc", ns=(stamp.st_atime_ns, stamp.st_mtime_ns + 1))
    if when == "run":
        # a run looks again: the changed file is scanned anew, and what is published is what is there
        drystone.run(config)
        ds = xr.open_zarr(tmp_path / "out/case.zarr", mask_and_scale=False, decode_times=False)
        assert ds["sst"].values.tobytes() == expected["sst__after"].tobytes()
        return
    with pytest.raises(DrystoneError) as caught:
        before["sst"].values  # noqa: B018
    assert all(part in str(caught.value) for part in info["expected"]["message"])


@pytest.mark.skipif(not syscalls.supported(), reason="system calls are traced on Linux (x86_64, aarch64) only")
@pytest.mark.parametrize("cluster", ["inline", "local"])
def test_o03_killed_and_resumed(cluster: str, tmp_path: Path) -> None:
    """SIGKILL in the middle of a shard, of the driver (inline) or of a worker (local), then again: exact, nothing redone."""
    folder, info, expected = case("O03")
    chunks, shards = (info["expected"]["target"][k] for k in ("chunks", "shards"))
    (tmp_path / "raw").mkdir()
    shutil.copy(folder / "in.nc", tmp_path / "raw")
    with xr.open_dataset(folder / "in.nc", decode_times=False) as source:
        dims = source["sst"].dims
    layout = "".join(
        f"    {key}: {{{', '.join(f'{d}: {n}' for d, n in zip(dims, sizes, strict=True))}}}\n"
        for key, sizes in (("chunks", chunks), ("shards", shards))
    )
    more = (
        "execution: {cluster: local, workers: 2, threads_per_worker: 1}"
        if cluster == "local"
        else "execution: {cluster: inline}"
    )
    write_config(tmp_path, "./raw", layout, more)
    argv = [sys.executable, "-m", "drystone.cli.main", "run", "case.yaml", "--quiet"]

    def run(kill_at: int | None) -> syscalls.Trace:
        for name in ("work", "out"):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
        return syscalls.run(argv, str(tmp_path), env=dict(os.environ), cwd=str(tmp_path), kill_at=kill_at)

    calls = run(None).calls
    writes = [i for i, (call, path) in enumerate(calls) if call in ("write", "writev") and "/sst/c/" in path]
    killed = run(writes[len(writes) // 2])
    assert killed.killed is not None
    if cluster == "inline":
        assert killed.status != 0
    proved = _shards(tmp_path)
    assert syscalls.run(argv, str(tmp_path), env=dict(os.environ), cwd=str(tmp_path)).status == 0
    ds = xr.open_zarr(tmp_path / "out/case.zarr", mask_and_scale=False, decode_times=False)
    assert ds["sst"].values.tobytes() == expected["sst"].tobytes()
    assert ds["sst"].encoding["shards"] == tuple(shards)
    after = _shards(tmp_path)
    assert all(after[key] == stamp for key, stamp in proved.items())
    assert not [p for p in (tmp_path / "out").rglob("*") if "tmp" in p.name]


def _shards(folder: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of the shards that a receipt proves."""
    out = {}
    for receipt in kills.receipts(folder):
        for o in receipt.objects:
            path = folder / "out/case.zarr" / o.key
            if o.size >= 0:
                out[o.key] = (path.stat().st_ino, path.stat().st_mtime_ns)
    return out


def test_o07_moved_archive(tmp_path: Path) -> None:
    """Reading after a move names the missing path; one edited line and values are exact again."""
    folder, info, expected = case("O07")
    shutil.copytree(folder / "here", tmp_path / "here")
    config = write_config(tmp_path, "./here")
    drystone.scan(config)
    os.rename(tmp_path / "here", tmp_path / "there")
    with pytest.raises(GranuleMissing) as caught:
        drystone.open(config)["sst"].values  # noqa: B018
    assert all(part in str(caught.value) for part in info["expected"]["message_before"])
    config.write_text(config.read_text().replace("./here", "./there"))
    assert drystone.open(config)["sst"].values.tobytes() == expected["sst__after_relocate"].tobytes()

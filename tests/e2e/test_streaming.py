"""Shards larger than a task's memory: read and encoded in steps, on a disk and on an object store, killed and resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import zarr
from services import repositories
from services.s3 import Bucket

import drystone
from drystone.cli.main import main
from drystone.errors import ConsentNeeded, PlanError
from drystone.storage.address import Places
from drystone.storage.store import Place

DAYS, Y, X = 120, 240, 320


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    """37 MB of daily maps, ten a file."""
    folder = tmp_path_factory.mktemp("maps")
    rng = np.random.default_rng(7)
    values = (rng.integers(0, 60, (DAYS, Y, X)) / 4).astype("f4")
    values[30:50] = 0  # whole inner chunks are absent
    for first in range(0, DAYS, 10):
        with netCDF4.Dataset(folder / f"{first:03}.nc", "w") as file:
            for name, n in (("time", None), ("y", Y), ("x", X)):
                file.createDimension(name, n)
            time_ = file.createVariable("time", "f8", ("time",))
            time_.units = "days since 2001-01-01"
            time_[:] = np.arange(first, first + 10)
            v = file.createVariable("v", "f4", ("time", "y", "x"), zlib=True, complevel=1, chunksizes=(1, Y, X))
            v[:] = values[first : first + 10]
    return folder, values


def config(path: Path, raw: Path, target: str, memory: str, cluster: str = "inline", shards: str = "all") -> Path:
    path.mkdir(parents=True, exist_ok=True)
    at = path / "maps.yaml"
    at.write_text(
        f"name: maps\nstorage: {{raw: '{raw.as_uri()}', out: {target}}}\ngranules: 'raw:*.nc'\n"
        f"outputs: [{{store: zarr, at: 'out:maps.zarr', chunks: {{time: 8, y: 60, x: 80}}, shards: {{time: {shards}, y: all, "
        f"x: all}}}}]\nexecution: {{cluster: {cluster}, workers: 1, threads_per_worker: 2, memory_per_worker: {memory}}}\n"
        "verify: {values: full}\n"
    )
    return at


def objects(folder: Path) -> dict[str, bytes]:
    root = folder / "out/maps.zarr"
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def plan(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert main(["scan", str(path)]) == 0
    capsys.readouterr()
    assert main(["plan", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (array,) = (a for a in document["outputs"][0]["arrays"] if a["path"] == "/v")
    return array


def test_little_memory_streams_the_same_bytes(
    archive: tuple[Path, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw, values = archive
    large, small = (config(tmp_path / m.replace(" ", ""), raw, "file:./out", m) for m in ("2 GB", "380 MB"))
    assert plan(large, capsys)["ways"]["candidates"][0]["name"] == "one pass"
    ways = plan(small, capsys)["ways"]
    assert ways["candidates"][0]["name"] == "streamed"
    assert (
        ways["candidates"][0]["memory"]
        < ways["memory"]
        < min(c["memory"] for c in ways["candidates"] if c["name"].startswith("one pass"))
    )
    assert ways["why"].endswith("each source chunk is read once")
    for path in (large, small):
        drystone.run(path)
    assert objects(large.parent) == objects(small.parent)
    np.testing.assert_array_equal(zarr.open_group(small.parent / "out/maps.zarr", mode="r")["v"][:], values)


def test_several_shards_in_workers(archive: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    raw, values = archive
    path = config(tmp_path, raw, "file:./out", "345 MB", "local", "64")
    drystone.run(path)
    np.testing.assert_array_equal(zarr.open_group(tmp_path / "out/maps.zarr", mode="r")["v"][:], values)


def test_a_plan_that_no_way_fits_says_what_would(
    archive: tuple[Path, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config(tmp_path, archive[0], "file:./out", "305 MB")
    assert main(["scan", str(path)]) == 0
    with pytest.raises(PlanError, match=r"8 elements along 'time' at a time.*write memory_per_worker: \d+ B") as caught:
        drystone.plan(path)
    path = config(tmp_path, archive[0], "file:./out", f"{caught.value.facts['memory_per_worker']} B")
    assert drystone.plan(path).outputs[0].refused == {}


def test_killed_while_a_shard_is_open(archive: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    raw, values = archive
    path = config(tmp_path, raw, "file:./out", "380 MB")
    assert main(["scan", str(path)]) == 0
    run = subprocess.Popen(
        [sys.executable, "-m", "drystone.cli.main", "run", str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    shard = tmp_path / "out/maps.zarr/v/c/0/0"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and run.poll() is None:
        if shard.is_dir() and any("tmp" in name and (shard / name).stat().st_size > 100_000 for name in os.listdir(shard)):
            break
        time.sleep(0.002)
    assert run.poll() is None, run.communicate()
    run.send_signal(signal.SIGKILL)
    run.communicate()
    assert not (shard / "0").exists()
    drystone.run(path)
    np.testing.assert_array_equal(zarr.open_group(tmp_path / "out/maps.zarr", mode="r")["v"][:], values)
    assert not [p for p in (tmp_path / "out").rglob("*") if "tmp" in p.name]


def test_streamed_into_a_repository(
    archive: tuple[Path, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Icechunk takes a shard whole, so the plan counts it encoded; it ends with the bytes of one that is a file."""
    raw, _ = archive
    path = config(tmp_path, raw, "file:./out", "430 MB")
    drystone.run(path)
    text = path.read_text().replace("store: zarr", "store: icechunk").replace("maps.zarr", "maps.ice")
    (tmp_path / "ice.yaml").write_text(text.replace("name: maps", "name: ice"))
    ways = plan(tmp_path / "ice.yaml", capsys)["ways"]
    assert ways["candidates"][0]["name"] == "streamed"
    shard = next(b for k, b in objects(tmp_path).items() if k.startswith("v/c/"))
    assert ways["candidates"][0]["memory"] > 2 * len(shard)
    drystone.run(tmp_path / "ice.yaml")
    found = repositories.values(tmp_path / "out/maps.ice")
    assert {k: v for k, v in found.items() if k.startswith("v/")} == {
        k: v for k, v in objects(tmp_path).items() if k.startswith("v/")
    }


@pytest.mark.services
def test_streamed_to_an_object_store(archive: tuple[Path, np.ndarray], tmp_path: Path, s3: Bucket) -> None:
    raw, _ = archive
    url = f"{s3.url}/{uuid.uuid4().hex}"
    options = "".join(f", {k}: {json.dumps(v)}" for k, v in s3.options.items())
    path = config(tmp_path, raw, f"{{url: '{url}'{options}}}", "460 MB")
    ways = drystone.plan(path) if main(["scan", str(path)]) == 0 else None
    assert ways is not None
    (array,) = (a for a in ways.outputs[0].arrays if a.path == "/v")
    assert array.tasks is not None
    assert array.tasks.stream is not None
    drystone.run(path)
    store = Places.of([Place("out", url, s3.options)]).store("out")
    local = config(tmp_path / "local", raw, "file:./out", "2 GB")
    drystone.run(local)
    mine = objects(local.parent)
    assert {k.removeprefix("maps.zarr/"): store.get(k) for k, _ in store.list("maps.zarr/")} == mine


def test_a_plan_of_another_version_is_asked_about_not_stumbled_over(archive: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    path = config(tmp_path, archive[0], "file:./out", "2 GB")
    drystone.run(path)
    (file,) = (tmp_path / "work").glob("*/runs/*/plan.json")
    document = json.loads(file.read_text())
    (entry,) = document["arrays"]
    # what version 6 holds: who changes this raises the version, or runs begun before end in an error of Python's
    assert document["version"] == 6
    assert set(entry) == {"array", "layout", "tasks", "axis", "placements"}
    fields = "path write regions source_chunks chunk_reads memory in_flight threads stream copies shuffle"
    assert set(entry["tasks"]) == set(fields.split())
    layout = "path dims shape dtype chunk shard codecs fill attributes sizes rounding"
    assert set(json.loads(entry["layout"])) == set(layout.split())
    entry["tasks"] = {"path": "/v", "shape": [1], "cell": [1], "region": [1]}  # as version 3 had it
    file.write_text(json.dumps(document | {"version": 3}))
    before = objects(tmp_path)
    with pytest.raises(ConsentNeeded):
        drystone.run(path)
    drystone.run(path, accept_changes=True)
    assert objects(tmp_path) == before

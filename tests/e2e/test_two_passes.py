"""Stores that are written in two passes, from the command line: equal to one pass, killed, damaged, on full disks."""

from __future__ import annotations

import json
import os
import random
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import icechunk
import netCDF4
import numpy as np
import pytest
import zarr
from e2e import faults, syscalls
from services.s3 import Bucket

import drystone
from drystone.cli.main import main
from drystone.errors import IncompleteRun
from drystone.model.sizes import size_text
from drystone.plan.memory import worker_memory
from drystone.rechunk.receipts import load_receipts
from drystone.storage.address import Places
from drystone.storage.local import LocalStore
from drystone.storage.store import Place

DAYS, Y, X = 60, 120, 160


def write_maps(folder: Path, values: np.ndarray, files: tuple[tuple[int, int], ...]) -> None:
    """Daily maps, each file from one day to another."""
    for first, last in files:
        with netCDF4.Dataset(folder / f"{first:03}.nc", "w") as file:
            for name, n in (("time", None), ("y", values.shape[1]), ("x", values.shape[2])):
                file.createDimension(name, n)
            time = file.createVariable("time", "f8", ("time",))
            time.units = "days since 2001-01-01"
            time[:] = np.arange(first, last)
            chunk = (1, *values.shape[1:])
            v = file.createVariable("v", "f4", ("time", "y", "x"), zlib=True, complevel=1, chunksizes=chunk)
            v[:] = values[first:last]
            v.long_name = "a field"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    """4.6 MB of daily maps, a month a file but for a gap of three days, some of them all fill."""
    folder = tmp_path_factory.mktemp("maps")
    rng = np.random.default_rng(7)
    values = (rng.integers(0, 60, (DAYS, Y, X)) / 4).astype("f4")
    values[20:24] = 0
    values[31:34] = np.nan
    write_maps(folder, values, ((0, 31), (34, DAYS)))
    return folder, values


def config(
    path: Path,
    raw: Path,
    memory: str = "305 MB",
    *,
    places: str = "",
    target: str = "file:./out",
    more: str = "",
    cluster: str = "inline",
) -> Path:
    """Time-long chunks; 305 MB leave a task about 3 MB."""
    path.mkdir(parents=True, exist_ok=True)
    at = path / "maps.yaml"
    at.write_text(
        f"name: maps\nstorage: {{raw: '{raw.as_uri()}', out: {target}{places}}}\ngranules: 'raw:*.nc'\n"
        "combine: {along: {time: {axis: slots, step: 1D}}}\n"
        "outputs: [{store: zarr, at: 'out:maps.zarr', chunks: {time: all, y: 30, x: 40}, shards: none}]\n"
        f"execution: {{cluster: {cluster}, workers: 1, threads_per_worker: 2, memory_per_worker: {memory}, reread: 1{more}}}\n"
        "verify: {values: none}\n"
    )
    return at


def objects(folder: Path) -> dict[str, bytes]:
    root = folder / "out/maps.zarr"
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def between(folder: Path) -> list[Path]:
    """What lies between the passes, half-written objects too."""
    return sorted(p for p in folder.rglob("*") if "shuffle" in p.relative_to(folder).parts and p.is_file())


@pytest.fixture(scope="module")
def once(archive: tuple[Path, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The store as one pass writes it."""
    folder = tmp_path_factory.mktemp("once")
    path = config(folder, archive[0], "2 GB")
    drystone.run(path)
    np.testing.assert_array_equal(zarr.open_group(folder / "out/maps.zarr", mode="r")["v"][:], archive[1])
    return objects(folder)


def status(path: Path) -> dict[str, object]:
    (output,) = json.loads(faults.cli(path.parent, "status", path.name, "--json").out)["outputs"]
    return output


def planned(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert main(["scan", str(path), "--quiet"]) == 0
    capsys.readouterr()
    assert main(["plan", str(path), "--json"]) == 0
    (output,) = json.loads(capsys.readouterr().out)["outputs"]
    (array,) = (a for a in output["arrays"] if a["path"] == "/v")
    return array


def test_two_passes_write_what_one_writes(
    archive: tuple[Path, np.ndarray], once: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config(tmp_path, archive[0])
    array = planned(path, capsys)
    best = array["ways"]["candidates"][0]
    assert best["name"] == "two passes"
    assert best["amplification"] == 1.0
    assert best["memory"] <= array["ways"]["memory"]
    lies = best["between"]
    assert lies["first_tasks"] == lies["objects"] >= lies["objects_at_once"]
    assert lies["bytes_at_once"] == DAYS * Y * X * 4
    assert any("the second pass disappears" in text for text in array["ways"]["advice"])
    report = drystone.run(path)
    assert report.outputs[0].tasks == report.outputs[0].tasks_done == best["tasks"]
    assert objects(tmp_path) == once
    assert between(tmp_path) == []
    assert status(path)["state"] == "published"
    assert status(path)["done"] == status(path)["tasks"] == best["tasks"]
    assert status(path)["between"] == 0
    assert not drystone.run(path).outputs[0].fresh


@pytest.mark.parametrize(
    ("scratch", "found"),
    [("out:", ""), ("out:maps.zarr/x", "scratch folder"), ("nowhere:x", "a place named in storage")],
)
def test_scratch_is_a_place_of_its_own(
    scratch: str, found: str, archive: tuple[Path, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config(tmp_path, archive[0], more=f", scratch: '{scratch}'")
    code = main(["check", str(path)])
    if scratch == "out:":  # beside the store
        assert code == 0
        return
    assert code == 2
    assert found in capsys.readouterr().err


def test_what_the_advice_says_would_do_does(
    archive: tuple[Path, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ways = planned(config(tmp_path / "a", archive[0]), capsys)["ways"]
    enough = min(
        worker_memory(c["memory"])
        for c in ways["candidates"]
        if c["between"] is None and not c["fits"] and c["amplification"] == 1
    )
    more = size_text(enough - worker_memory(ways["memory"]))
    assert f"{more} more per worker and the second pass disappears" in ways["advice"]
    best = planned(config(tmp_path / "b", archive[0], f"{enough} B"), capsys)["ways"]["candidates"][0]
    assert best["between"] is None
    assert best["amplification"] == 1


def test_workers_share_what_lies_between(archive: tuple[Path, np.ndarray], once: dict[str, bytes], tmp_path: Path) -> None:
    more = ", scratch: 'fast:some/where'"
    path = config(tmp_path, archive[0], places=", fast: 'file:./fast'", more=more, cluster="local")
    path.write_text(
        path.read_text().replace("workers: 1", "workers: 2").replace("threads_per_worker: 2", "threads_per_worker: 1")
    )
    seen = set[Path]()
    watch = faults.Meddler("rechunk", lambda: seen.update(between(tmp_path)), at="advance")
    drystone.run(path, progress=watch)
    assert seen
    assert all(p.is_relative_to(tmp_path / "fast/some/where/maps") for p in seen)
    assert objects(tmp_path) == once
    assert between(tmp_path) == []


def test_a_repository_in_two_passes(archive: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    path = config(tmp_path, archive[0])
    path.write_text(path.read_text().replace("store: zarr, at: 'out:maps.zarr'", "store: icechunk, at: 'out:maps.icechunk'"))
    seen = set[Path]()
    drystone.run(path, progress=faults.Meddler("rechunk", lambda: seen.update(between(tmp_path)), at="advance"))
    assert seen
    assert between(tmp_path) == []
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path / "out/maps.icechunk")))
    stored = zarr.open_group(repository.readonly_session("main").store, mode="r")["v"]
    np.testing.assert_array_equal(stored[:], archive[1])


def command() -> list[str]:
    return [sys.executable, "-m", "drystone.cli.main", "run", "maps.yaml", "--quiet"]


@pytest.mark.skipif(not syscalls.supported(), reason="traces system calls of Linux")
@pytest.mark.parametrize("part", ["first", "second"])
def test_killed_in_a_pass(part: str, archive: tuple[Path, np.ndarray], once: dict[str, bytes], tmp_path: Path) -> None:
    def begin(name: str) -> Path:
        path = config(tmp_path / name, archive[0])
        assert main(["scan", str(path), "--quiet"]) == 0
        return path.parent

    whole = begin("whole")
    trace = syscalls.run(command(), str(whole), env=dict(os.environ), cwd=str(whole))
    assert trace.status == 0
    shuffling = [i for i, (_, name) in enumerate(trace.calls) if "/shuffle/" in name]
    putting = [i for i, (_, name) in enumerate(trace.calls) if "/v/c/" in name]
    span = range(shuffling[0], putting[0]) if part == "first" else range(putting[0], shuffling[-1] + 1)
    rng = random.Random(part)
    for at in rng.sample(list(span), 3):
        folder = begin(f"{part}{at}")
        killed = syscalls.run(command(), str(folder), env=dict(os.environ), cwd=str(folder), kill_at=at)
        assert killed.status == -9
        before = proved(folder)
        drystone.run(folder / "maps.yaml")
        assert objects(folder) == once, at
        assert between(folder) == [], at
        assert proved(folder).items() >= before.items(), at  # nothing that a receipt told of was written again


def proved(folder: Path) -> dict[str, int]:
    """Objects of the store that receipts name, and when they were written."""
    (run,) = (folder / "work/maps/runs").iterdir()
    told = load_receipts(LocalStore(folder / "work"), f"maps/runs/{run.name}")
    keys = {o.key for r in told for o in r.objects if o.size >= 0 and "shuffle" not in o.key}
    return {key: (folder / "out/maps.zarr" / key).stat().st_mtime_ns for key in keys}


def meddled(path: Path, harm: Callable[[], None]) -> None:
    """Run, and do harm as soon as there is something between the passes and the second has not begun."""

    def now() -> bool:
        here = between(path.parent)
        return len(here) > 2 and not any((path.parent / "out/maps.zarr/v/c").rglob("*"))

    class When(faults.Meddler):
        def _maybe(self, stage: str, at: str) -> None:
            if stage.startswith("rechunk") and at == "advance" and now():
                super()._maybe(stage, at)

    drystone.run(path, progress=When("rechunk", harm, at="advance"))


@pytest.mark.parametrize("how", ["changed", "cut", "removed"])
def test_damage_between_the_passes_is_found_and_mended(
    how: str, archive: tuple[Path, np.ndarray], once: dict[str, bytes], tmp_path: Path
) -> None:
    path = config(tmp_path, archive[0])
    hurt: list[Path] = []

    def harm() -> None:
        at = between(tmp_path)[1]
        hurt.append(at)
        data = bytearray(at.read_bytes())
        data[len(data) // 3] ^= 4
        at.unlink()
        if how != "removed":
            at.write_bytes(data if how == "changed" else data[:-7])

    with pytest.raises(IncompleteRun, match="between two passes") as caught:
        meddled(path, harm)
    assert caught.value.kind == "shuffle-lost"
    assert caught.value.exit_code == 4
    assert hurt
    assert not hurt[0].exists()
    assert status(path)["state"] == "in work"
    assert 0 < status(path)["done"] < status(path)["tasks"]
    assert status(path)["between"] == sum(p.stat().st_size for p in between(tmp_path)) > 0
    drystone.run(path)
    assert objects(tmp_path) == once
    assert between(tmp_path) == []


def test_a_run_that_was_given_up_leaves_nothing(
    archive: tuple[Path, np.ndarray], once: dict[str, bytes], tmp_path: Path
) -> None:
    path = config(tmp_path, archive[0])

    class GivenUp(Exception):
        pass

    def harm() -> None:
        raise GivenUp

    with pytest.raises(GivenUp):
        meddled(path, harm)
    left = between(tmp_path)
    assert left
    stray = left[0].with_name("0123456789abcdef")
    stray.write_bytes(b"of a plan that is no more")
    config(tmp_path, archive[0], "2 GB")  # one pass would do now, but what is begun goes on
    drystone.run(path)
    assert objects(tmp_path) == once
    assert between(tmp_path) == []
    # what a worker wrote that was thought dead
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"late")
    assert not drystone.run(path).outputs[0].fresh
    assert between(tmp_path) == []
    # an output that the config no longer has
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"left")
    path.write_text(path.read_text().replace("out:maps.zarr", "out:other.zarr"))
    drystone.run(path, accept_changes=True)
    assert between(tmp_path) == []


@pytest.mark.skipif(bool(faults.mountable()), reason=faults.mountable() or "can mount")
def test_a_full_scratch_is_the_usual_refusal(archive: tuple[Path, np.ndarray], once: dict[str, bytes], tmp_path: Path) -> None:
    more = ", scratch: 'fast:'"
    path = config(tmp_path, archive[0], places=", fast: 'file:./fast'", more=more)
    with faults.disk(tmp_path / "fast", "size=1m") as remount:
        ended = faults.cli(tmp_path, "run", "maps.yaml")
        assert ended.code == 4
        assert "the disk is full" in ended.err
        remount("size=64m")
        assert faults.cli(tmp_path, "run", "maps.yaml").code == 0
        assert between(tmp_path) == []
    assert objects(tmp_path) == once
    assert path.exists()


@pytest.mark.services
@pytest.mark.parametrize("work", [False, True])
def test_between_the_passes_on_an_object_store(work: bool, tmp_path: Path, s3: Bucket) -> None:
    """92 MB, since uploads in parts take 67 MB of a task's 84."""
    values = (np.random.default_rng(7).integers(0, 9, (100, 480, 480)) / 4).astype("f4")
    (tmp_path / "raw").mkdir()
    write_maps(tmp_path / "raw", values, ((0, 50), (50, 100)))
    url = f"{s3.url}/{uuid.uuid4().hex}"
    options = "".join(f", {k}: {json.dumps(v)}" for k, v in s3.options.items())
    places = f", work: {{url: '{url}/work'{options}}}" if work else ""
    more = "" if work else ", scratch: 'out:between'"
    path = config(tmp_path, tmp_path / "raw", "400 MB", places=places, target=f"{{url: '{url}'{options}}}", more=more)
    store = Places.of([Place("out", url, s3.options)]).store("out")
    seen: set[str] = set()
    watch = faults.Meddler("rechunk", lambda: seen.update(k for k, _ in store.list() if "/shuffle/" in k), at="advance")
    drystone.run(path, progress=watch)
    assert seen
    assert all(k.startswith("work/maps/shuffle/" if work else "between/maps/shuffle/") for k in seen)
    assert not [k for k, _ in store.list() if "/shuffle/" in k]
    for key, _ in store.list("maps.zarr/"):
        (tmp_path / "got" / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "got" / key).write_bytes(store.get(key))
    np.testing.assert_array_equal(zarr.open_group(tmp_path / "got/maps.zarr", mode="r")["v"][:], values)

"""Cases of rechunking from public bug reports: one writer a shard, edges of prime shapes, and plans that memory bounds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import distributed
import h5py
import numpy as np
import pytest
import zarr
from e2e import kills

import drystone
from drystone.errors import PlanError

CASES = Path(__file__).parent.parent / "data" / "cases"


def case(name: str) -> tuple[Path, dict]:
    """Folder, and what is expected."""
    folder = next(CASES.glob(f"{name}_*"))
    return folder, json.loads((folder / "case.json").read_text())["expected"]


def expected_sst(folder: Path) -> np.ndarray:
    with np.load(folder / "expected.npz") as values:
        return values["sst"]


def write_config(
    folder: Path, chunks: Sequence[int], shards: Sequence[int] | None, execution: str, more: str = "", dims: str = "time y x"
) -> Path:
    def sizes(numbers: Sequence[int]) -> str:
        return json.dumps(dict(zip(dims.split(), numbers, strict=True)))

    path = folder / "case.yaml"
    path.write_text(
        f"name: case\ngranules: '*.nc'\nverify: {{values: none}}\nexecution: {{{execution}}}\n"
        f"outputs: [{{store: zarr, at: out/case.zarr, {more}chunks: {sizes(chunks)}, "
        f"shards: {'none' if shards is None else sizes(shards)}}}]\n"
    )
    return path


@pytest.fixture(scope="module")
def workers() -> Iterator[str]:
    """Address of a scheduler with four worker processes."""
    with distributed.LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=None) as cluster:
        yield cluster.scheduler_address


def objects(folder: Path) -> dict[str, bytes]:
    root = folder / "out/case.zarr"
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_r01_many_workers_one_writer_a_shard(workers: str, tmp_path: Path) -> None:
    folder, expected = case("R01")
    shutil.copy(folder / "in.nc", tmp_path)
    target = expected["target"]
    config = write_config(tmp_path, target["chunks"], target["shards"], f"cluster: '{workers}', workers: 4")
    first: dict[str, bytes] = {}
    for _ in range(expected["repeat"]):
        for name in ("out", "work"):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
        drystone.run(config)
        array = zarr.open_array(tmp_path / "out/case.zarr/sst", mode="r")
        assert (array.chunks, array.shards) == (tuple(target["chunks"]), tuple(target["shards"]))
        assert np.asarray(array[:]).tobytes() == expected_sst(folder).tobytes()
        first = first or objects(tmp_path)
        assert objects(tmp_path) == first
        written = [o.key for r in kills.receipts(tmp_path) for o in r.objects if o.key.startswith("sst/")]
        assert sorted(written) == ["sst/c/0/0/0", "sst/c/1/0/0"]


@pytest.mark.parametrize("shards", [True, False])
def test_r03_prime_shapes(shards: bool, tmp_path: Path) -> None:
    folder, expected = case("R03")
    shutil.copy(folder / "in.nc", tmp_path)
    target = expected["target"]
    config = write_config(tmp_path, target["chunks"], target["shards"] if shards else None, "cluster: inline")
    drystone.scan(config)
    [planned] = [a for a in drystone.plan(config).to_json()["outputs"][0]["arrays"] if a["path"] == "/sst"]  # type: ignore[index]
    assert (planned["chunk"], planned["sizes"]) == (target["chunks"], None)
    assert planned["shard"] == (target["shards"] if shards else None)
    drystone.run(config)
    array = zarr.open_array(tmp_path / "out/case.zarr/sst", mode="r")
    assert array.metadata.chunk_grid.to_dict()["name"] == "regular"
    assert np.asarray(array[:]).tobytes() == expected_sst(folder).tobytes()


def plans() -> list[Mapping[str, object]]:
    folder, _ = case("R04")
    return json.loads((folder / "plans.json").read_text())


@pytest.mark.parametrize("number", range(3))
def test_r04_memory_bounds_a_plan(number: int, tmp_path: Path) -> None:
    """Granules without a written chunk, since a plan reads none."""
    _, expected = case("R04")
    asked = plans()[number]
    shape, itemsize = tuple(asked["shape"]), np.dtype(asked["dtype"]).itemsize
    with h5py.File(tmp_path / "a.nc", "w") as file:
        v = file.create_dataset("v", shape, asked["dtype"], chunks=tuple(asked["source_chunks"]), compression="gzip")
        for axis, (name, n) in enumerate(zip("tyx", shape, strict=True)):
            file[name] = np.arange(n, dtype="f8")
            file[name].make_scale(name)
            v.dims[axis].attach_scale(file[name])
    limit = asked["max_mem"]
    execution = f"cluster: local, workers: 1, memory_per_worker: {limit}"
    config = write_config(tmp_path, asked["target_chunks"], None, execution, "arrays: [v], ", "t y x")
    drystone.scan(config)
    chunk_bytes = int(np.prod(asked["target_chunks"])) * itemsize
    assert chunk_bytes == expected["facts"]["target_chunk_bytes"][number]
    if not asked["ok"]:
        with pytest.raises(PlanError) as caught:
            drystone.plan(config)
        assert all(word in str(caught.value) for word in expected["message"])
        # what it says would do does
        enough = f"cluster: local, workers: 1, memory_per_worker: {caught.value.facts['memory_per_worker']} B"
        drystone.plan(write_config(tmp_path, asked["target_chunks"], None, enough, "arrays: [v], ", "t y x"))
        return
    [v] = drystone.plan(config).outputs[0].arrays
    assert v.tasks is not None
    assert v.tasks.memory <= int(limit.removesuffix("GB")) * 10**9
    assert v.tasks.memory > most_elements(v.tasks.regions) * itemsize
    assert v.tasks.n_regions <= v.tasks.n_cells
    assert v.tasks.n_tasks < 3000


def most_elements(regions: object) -> int:
    return int(np.prod([min(d.regular_size, d.extent) for d in regions.dimensions]))  # type: ignore[attr-defined]

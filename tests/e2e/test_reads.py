"""What ``plan`` says of reads, end to end: known numbers of small files, and the same reads carried out and counted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import h5py
import numpy as np
import pytest

from drystone.cli.main import main

N = 128
LAYOUTS = {"time": (128, 16, 8), "map": (1, 128, 128), "even": (16, 32, 32)}
READS = "series: {y: 1, x: 1}\n  map: {time: 1, at: {time: 50}}\n  any map: {time: 1}\n  late map: {at: {time: 100}}"


def write_source(path: Path, chunk: tuple[int, ...], *, filters: bool = True, until: int = 96) -> np.ndarray:
    """128³ bytes of which nothing is written from ``until`` on along time."""
    values = np.random.default_rng(4).integers(1, 9, (N, N, N)).astype("u1")
    values[until:] = 0
    with h5py.File(path, "w") as h:
        v = h.create_dataset(
            "v", (N, N, N), "u1", chunks=chunk, compression="gzip" if filters else None, compression_opts=1 if filters else None
        )
        for name, n in (("time", N), ("y", N), ("x", N)):
            h[name] = np.arange(n, dtype="f8")
            h[name].make_scale(name)
        for i, name in enumerate(("time", "y", "x")):
            v.dims[i].attach_scale(h[name])
        v[:until] = values[:until]
    return values


def write_config(folder: Path, chunks: tuple[int, ...], *, shards: tuple[int, ...] | None = None, reads: str = READS) -> Path:
    sizes = "{{time: {}, y: {}, x: {}}}"
    more = f"\n    shards: {sizes.format(*shards)}" if shards else ""
    path = folder / "c.yaml"
    path.write_text(
        "name: cube\ngranules: 'raw/*.nc'\noutputs:\n  - store: zarr\n    at: out/c.zarr\n"
        f"    chunks: {sizes.format(*chunks)}{more}\n"
        f"reads:\n  {reads}\nexecution: {{cluster: inline}}\nverify: {{values: none}}\n"
    )
    return path


def plan(config: Path, capsys: pytest.CaptureFixture[str]) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
    """Cost by read and side."""
    assert main(["scan", str(config)]) == 0
    capsys.readouterr()
    assert main(["plan", str(config), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    told = told.get("result", told)
    [array] = [a for o in told["outputs"] for a in o["arrays"] if a["path"] == "/v"]
    return {r["name"]: r for r in array["reads"]}


KNOWN = {
    # layout: chunks that a series and a map touch, what each decodes for a byte wanted
    "time": ((1, 128), (128.0, 128.0)),
    "map": ((128, 1), (12_288.0, 1.0)),
    "even": ((8, 16), (768.0, 16.0)),
}


@pytest.mark.parametrize("filters", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_known_numbers_of_a_cube_with_a_hole(
    layout: str, filters: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "raw").mkdir()
    write_source(tmp_path / "raw" / "a.nc", LAYOUTS[layout], filters=filters)
    for target in LAYOUTS:
        costs = plan(write_config(tmp_path, LAYOUTS[target]), capsys)
        for side, name in (("source", layout), ("target", target)):
            (series, a_map), (per_series, per_map) = KNOWN[name]
            assert (costs["series"][side]["chunks"], costs["map"][side]["chunks"]) == (series, a_map)
            if (side, layout, target) == ("target", "time", "map"):
                continue  # the source's chunks hold all times, so nothing tells that there is a hole in them
            if side == "source" or layout != "time":
                assert costs["series"][side]["amplification"] == per_series
                assert costs["map"][side]["amplification"] == per_map
        late = costs["late map"]["source"]
        if layout != "time":
            assert (late["stored"], late["requests"], late["fetched"], late["decoded"]) == (0, 0, 0, 0)
            assert costs["any map"]["source"]["stored"] == pytest.approx(0.75 * KNOWN[layout][0][1])

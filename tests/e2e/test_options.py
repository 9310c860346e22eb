"""Options of stores through the command line: every value proved by the witness, every loss stated, every refusal in words."""

from __future__ import annotations

import json
from pathlib import Path

import netCDF4
import numcodecs
import numpy as np
import pytest
import tensorstore
import zarr

from drystone.cli.main import main

STEPS, Y, X = 4, 12, 20
FILLS = {"sst": np.float32(-999.0), "wind": np.float64(1e20), "raw": np.int16(-99)}


@pytest.fixture(scope="module")
def granules(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray]]:
    """Three files, the last chunks of the second one never written; what a reader gets of their numbers."""
    folder = tmp_path_factory.mktemp("granules")
    rng = np.random.default_rng(0)
    whole: dict[str, list[np.ndarray]] = {n: [] for n in FILLS}
    for i in range(3):
        with netCDF4.Dataset(folder / f"g{i}.nc", "w") as nc:
            for name, n in (("time", None), ("y", Y), ("x", X)):
                nc.createDimension(name, n)
            time = nc.createVariable("time", "f8", ("time",))
            time.units = "days since 2000-01-01"
            time[:] = np.arange(STEPS) + STEPS * i
            for name, fill in FILLS.items():
                v = nc.createVariable(name, fill.dtype, ("time", "y", "x"), zlib=True, chunksizes=(1, 6, X), fill_value=fill)
                v.set_auto_maskandscale(False)
                values = rng.normal(100, 30, (STEPS, Y, X)).astype(fill.dtype)
                values[1, 2, :9] = fill
                if fill.dtype.kind == "f":
                    values[0, 0, :3] = [np.nan, np.inf, -np.inf]
                    values[1, 3, 0] = -998.9  # which 7 bits of mantissa make -1000, and 9 make -999
                written = STEPS if i != 1 else 2
                v[:written] = values[:written]
                values[written:] = fill
                whole[name].append(values)
    return folder, {n: np.concatenate(v) for n, v in whole.items()}


def config(folder: Path, raw: Path, options: str) -> str:
    path = folder / "c.yaml"
    path.write_text(
        f"name: c\nstorage: {{raw: '{raw.as_uri()}'}}\ngranules: 'raw:*.nc'\noutputs:\n  - store: zarr\n    at: out.zarr\n"
        f"    chunks: {{time: 4, y: 5, x: 8}}\n{options}verify: {{values: full}}\nexecution: {{cluster: inline}}\n"
    )
    return str(path)


def read(folder: Path, name: str) -> np.ndarray:
    """By zarr and by tensorstore, which must agree."""
    values = np.asarray(zarr.open_group(folder / "out.zarr", mode="r")[name][...])
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{folder}/out.zarr/{name}/"}}
    assert np.asarray(tensorstore.open(spec, open=True).result().read().result()).tobytes() == values.tobytes()
    return values


def failed(path: str, capsys: pytest.CaptureFixture[str], verb: str = "run") -> str:
    assert main([verb, path]) in (2, 5)
    return capsys.readouterr().err


def test_rounded_values_are_numcodecs_and_missing_ones_exact(
    granules: tuple[Path, dict[str, np.ndarray]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw, whole = granules
    path = config(tmp_path, raw, "    round: {sst: {keepbits: 9}, wind: {digits: 2}}\n")
    assert main(["run", path]) == 0
    assert read(tmp_path, "raw").tobytes() == whole["raw"].tobytes()
    rounded = {
        "sst": numcodecs.BitRound(9).encode(whole["sst"]).view("f4"),
        "wind": numcodecs.Quantize(2, "f8").encode(whole["wind"]),
    }
    for name, expected in rounded.items():
        exact = ~np.isfinite(whole[name]) | (whole[name] == FILLS[name]) | (expected == FILLS[name])
        assert (expected == FILLS["sst"]).any() or name == "wind"  # -998.9 stays, as it would read as missing
        assert read(tmp_path, name).tobytes() == np.where(exact, whole[name], expected).tobytes()
    group = zarr.open_group(tmp_path / "out.zarr", mode="r")
    assert group["sst"].attrs["_QuantizeBitRoundNumberOfSignificantBits"] == 9
    assert group["wind"].attrs["least_significant_digit"] == 2
    capsys.readouterr()
    assert main(["plan", path, "--json"]) == 0
    losses = {a["path"]: a["loss"] for a in json.loads(capsys.readouterr().out)["outputs"][0]["arrays"]}
    assert losses["/raw"] is None
    assert losses["/wind"] == {"relative": 0, "absolute": 2**-8, "how": [group["wind"].attrs["precision_loss"]]}
    assert main(["plan", path]) == 0
    assert "loses precision: rounded to 9 bits of the mantissa, at most 0.000977 of a value off" in capsys.readouterr().out
    assert main(["verify", path]) == 0
    assert "/sst within what it says to lose (rounded to 9 bits" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "at", "value", "says"),
    [
        ("sst", (0, 5, 5), 1.01, "1 of 2880 compared cells differ, first at (0, 5, 5)"),
        ("wind", (5, 5, 5), 1.0001, "1 of 2880 compared cells differ, first at (5, 5, 5)"),
        ("sst", (0, 0, 0), None, "1 of 2880 compared cells differ, first at (0, 0, 0): published 1.0"),
        ("sst", (1, 2, 3), None, "1 of 2880 compared cells differ, first at (1, 2, 3): published 1.0"),
        ("sst", (0, 7, 7), np.nan, "1 of 2880 compared cells differ, first at (0, 7, 7): published nan"),
        ("sst", (0, 7, 7), -999.0, "1 of 2880 compared cells differ, first at (0, 7, 7): published -999.0"),
    ],
)
def test_the_witness_finds_what_is_further_off(
    granules: tuple[Path, dict[str, np.ndarray]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    at: tuple[int, ...],
    value: float | None,
    says: str,
) -> None:
    path = config(tmp_path, granules[0], "    round: {sst: {keepbits: 9}, wind: {digits: 2}}\n")
    assert main(["run", path]) == 0
    array = zarr.open_group(tmp_path / "out.zarr", mode="r+")[name]
    near = value is not None and 1 < value < 2
    array[at] = array[at] * value if near else 1.0 if value is None else value
    assert says in failed(path, capsys, "verify")


def test_every_field_but_coordinates_is_meant_by_a_star(granules: tuple[Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    assert main(["run", config(tmp_path, granules[0], "    round: {'*': {keepbits: 3}, wind: {digits: 1}}\n")]) == 0
    group = zarr.open_group(tmp_path / "out.zarr", mode="r")
    assert group["sst"].attrs["_QuantizeBitRoundNumberOfSignificantBits"] == 3
    assert group["wind"].attrs["least_significant_digit"] == 1
    assert not any("precision_loss" in group[n].attrs for n in ("time", "raw"))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            "round: {raw: {keepbits: 3}}",
            "round: /raw: it holds int16, and only floating-point numbers are rounded; take it out",
        ),
        ("round: {sst: {keepbits: 24}}", "round: /sst: a float32 has 23 bits of mantissa, 24 cannot be kept; take it out"),
        ("round: {ssst: {keepbits: 2}}", "round: ssst: there is no such array (there are: /raw, /sst, /time, /wind)"),
        ("round: {time: {digits: 2}}", "round: time: /time is a coordinate, which stores hold as granules have it"),
    ],
)
def test_what_cannot_be_is_refused(
    granules: tuple[Path, dict[str, np.ndarray]], tmp_path: Path, capsys: pytest.CaptureFixture[str], options: str, says: str
) -> None:
    assert says in failed(config(tmp_path, granules[0], f"    {options}\n"), capsys)
    assert not (tmp_path / "out.zarr").exists()


def test_chunks_of_rounded_values_are_not_copied(
    granules: tuple[Path, dict[str, np.ndarray]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config(tmp_path, granules[0], "    round: {sst: {keepbits: 3}}\n")
    text = (
        Path(path).read_text().replace("chunks: {time: 4, y: 5, x: 8}", "chunks: source\n    codecs: source\n    mode: repack")
    )
    Path(path).write_text(text)
    assert "the chunks of /sst cannot be copied as they are: its values are rounded" in failed(path, capsys)

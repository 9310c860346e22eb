"""Options of stores through the command line: every value proved by the witness, every loss stated, every refusal in words."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import icechunk
import netCDF4
import numcodecs
import numpy as np
import pytest
import tensorstore
import xarray as xr
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


def config(folder: Path, raw: Path, options: str, combine: str = "") -> str:
    path = folder / "c.yaml"
    path.write_text(
        f"name: c\nstorage: {{raw: '{raw.as_uri()}'}}\ngranules: 'raw:*.nc'\n{combine}outputs:\n  - store: zarr\n"
        f"    at: out.zarr\n    chunks: {{time: 4, y: 5, x: 8}}\n{options}verify: {{values: full}}\n"
        "execution: {cluster: inline}\nfailures: {tries: 1}\n"
    )
    return str(path)


def read(folder: Path, name: str) -> np.ndarray:
    """By zarr and by tensorstore, which must agree."""
    values = np.asarray(zarr.open_group(folder / "out.zarr", mode="r")[name][...])
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{folder}/out.zarr/{name}/"}}
    assert np.asarray(tensorstore.open(spec, open=True).result().read().result()).tobytes() == values.tobytes()
    return values


def failed(path: str, capsys: pytest.CaptureFixture[str], verb: str = "run") -> str:
    assert main([verb, path]) in (2, 4, 5)
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
        ("round: {time: {digits: 2}}", "round: time: /time is a coordinate or a scalar, which stores hold as granules have it"),
    ],
)
def test_what_cannot_be_is_refused(
    granules: tuple[Path, dict[str, np.ndarray]], tmp_path: Path, capsys: pytest.CaptureFixture[str], options: str, says: str
) -> None:
    assert says in failed(config(tmp_path, granules[0], f"    {options}\n"), capsys)
    assert not (tmp_path / "out.zarr").exists()


def test_a_chunk_along_no_dimension_is_named(
    granules: tuple[Path, dict[str, np.ndarray]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(config(tmp_path, granules[0], ""))
    path.write_text(path.read_text().replace("y: 5", "yy: 5"))
    assert main(["scan", str(path)]) == main(["plan", str(path)]) == 0
    assert "note: here:out.zarr: chunks: yy: no array has that dimension (there are: time, x, y)" in capsys.readouterr().out


def test_a_plan_counts_the_bytes_of_what_is_selected(
    granules: tuple[Path, dict[str, np.ndarray]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = []
    for combine in ("", "combine: {select: {time: {index: {stop: 1}}}}\n"):
        path = config(tmp_path, granules[0], "", combine)
        assert main(["scan", path]) == 0
        capsys.readouterr()
        assert main(["plan", path, "--json"]) == 0
        arrays = json.loads(capsys.readouterr().out)["outputs"][0]["arrays"]
        sizes.append(next((a["encoded_bytes"], a["source_chunks"]) for a in arrays if a["path"] == "/sst"))
    (whole, chunks), (part, fewer) = sizes
    assert fewer < chunks
    assert part == whole * fewer // chunks


def test_chunks_of_rounded_values_are_not_copied(
    granules: tuple[Path, dict[str, np.ndarray]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config(tmp_path, granules[0], "    round: {sst: {keepbits: 3}}\n")
    text = (
        Path(path).read_text().replace("chunks: {time: 4, y: 5, x: 8}", "chunks: source\n    codecs: source\n    mode: repack")
    )
    Path(path).write_text(text)
    assert "the chunks of /sst cannot be copied as they are: its values are rounded" in failed(path, capsys)


def test_types_packings_and_fills_are_numpys(
    granules: tuple[Path, dict[str, np.ndarray]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw, whole = granules
    options = (
        "    dtype: {wind: float32, raw: int32}\n    round: {wind: {keepbits: 10}}\n"
        "    fill_value: {wind: NaN, raw: -2000000000, sst: -1}\n"
    )
    path = config(tmp_path, raw, options)
    assert main(["run", path]) == 0, capsys.readouterr().err
    wind = np.where(whole["wind"] == FILLS["wind"], np.nan, whole["wind"]).astype("f4")
    rounded = np.where(np.isfinite(wind), numcodecs.BitRound(10).encode(wind).view("f4"), wind)
    assert np.array_equal(read(tmp_path, "wind"), rounded, equal_nan=True)
    assert read(tmp_path, "raw").tobytes() == np.where(whole["raw"] == -99, np.int32(-2000000000), whole["raw"]).tobytes()
    assert np.array_equal(read(tmp_path, "sst"), np.where(whole["sst"] == -999, -1, whole["sst"]), equal_nan=True)
    attributes = dict(zarr.open_group(tmp_path / "out.zarr", mode="r")["wind"].attrs)
    losses = ("float64 to float32, at most 5.96e-08", "rounded to 10 bits of the mantissa, at most 0.000488")
    assert attributes["precision_loss"] == "; ".join(f"{loss} of a value off" for loss in losses)
    with xr.open_zarr(tmp_path / "out.zarr", chunks=None) as ds:
        assert ds["raw"].isnull().values.tolist() == (whole["raw"] == -99).tolist()
    array = zarr.open_group(tmp_path / "out.zarr", mode="r+")["wind"]
    array[3, 3, 3] = array[3, 3, 3] * np.float32(1.001)
    assert "1 of 2880 compared cells differ, first at (3, 3, 3)" in failed(path, capsys, "verify")


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """Two granules of packed numbers, the last chunk of the second never written; the day between them is in none."""
    for i, day in enumerate((0, 2)):
        with netCDF4.Dataset(tmp_path / f"p{i}.nc", "w") as nc:
            nc.createDimension("time", None)
            nc.createDimension("x", 6)
            time = nc.createVariable("time", "f8", ("time",))
            time.units = "days since 2000-01-01"
            time[:] = [day]
            ice = nc.createVariable("ice", "i2", ("time", "x"), chunksizes=(1, 3), fill_value=-99, zlib=True)
            ice.scale_factor, ice.add_offset = 0.01, 273.15
            ice.set_auto_maskandscale(False)
            ice[0, : 6 - 3 * i] = (np.arange(6) * 7 - 9)[: 6 - 3 * i]
            ice[0, 1] = -99
    return tmp_path


SLOTS = "combine: {along: {time: {axis: slots, step: 1D}}}\n"


def test_decoded_values_are_xarrays_bit_for_bit(packed: Path) -> None:
    path = config(packed, packed, "    values: decoded\n", SLOTS)
    assert main(["run", path]) == 0
    got = read(packed, "ice")
    assert got.dtype == np.dtype("f8")  # xarray's too: scale and offset are double
    for i, place in enumerate((0, 2)):
        with xr.open_dataset(packed / f"p{i}.nc", decode_times=False) as ds:
            assert ds["ice"].dtype == got.dtype
            assert got[place].tobytes() == ds["ice"].values[0].tobytes()
    assert np.isnan(got[1]).all()


def test_packed_anew_as_xarray_packs(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wish = "pack: {ice: {dtype: int16, scale_factor: 0.02, add_offset: 270}}"
    path = config(packed, packed, f"    {wish}\n    fill_value: {{ice: -5}}\n", SLOTS)
    assert main(["run", path]) == 0
    got = read(packed, "ice")
    assert (got[1] == -5).all()
    for i, place in enumerate((0, 2)):
        with xr.open_dataset(packed / f"p{i}.nc", decode_times=False) as ds:
            encoding = {"ice": {"dtype": "i2", "scale_factor": 0.02, "add_offset": 270.0, "_FillValue": -5, "chunksizes": None}}
            ds.to_netcdf(packed / "theirs.cdf", encoding=encoding, engine="netcdf4")
        with netCDF4.Dataset(packed / "theirs.cdf") as nc:
            nc["ice"].set_auto_maskandscale(False)
            assert got[place].tolist() == nc["ice"][0].tolist()
    capsys.readouterr()
    assert main(["verify", path]) == 0
    assert "/ice within what it says to lose (packed into int16 in steps of 0.02, at most 0.01 off)" in capsys.readouterr().out
    with netCDF4.Dataset(packed / "p1.nc", "a") as nc:
        nc["ice"].set_auto_maskandscale(False)
        nc["ice"][0, 2] = 32000
    Path(path).write_text(Path(path).read_text().replace("0.02", "0.001"))
    assert "--accept-changes" in failed(path, capsys)
    assert main(["run", path, "--accept-changes"]) == 4
    says = capsys.readouterr().err
    assert "p1.nc: chunk (0, 0) of /ice" in says
    assert "the number 593.15 does not fit: packed into int16 it would have to lie in 237.232 to 302.767" in says


def plain(folder: Path, values: dict[int, np.ndarray], dtype: str = "f8", fill: float = 7, **attributes: object) -> Path:
    """Granules of one variable without ``_FillValue`` by day; unwritten cells (the last chunk of each) read as ``fill``."""
    for day, numbers in values.items():
        with h5py.File(folder / f"d{day}.nc", "w") as f:
            f["time"] = np.array([day], "f8")
            f["time"].attrs["units"] = "days since 2000-01-01"
            f["time"].make_scale("time")
            v = f.create_dataset("v", (1, 6), dtype, chunks=(1, 3), maxshape=(None, 6), fillvalue=fill)
            v.attrs.update(attributes)
            v[0, :3] = numbers
            v.dims[0].attach_scale(f["time"])
    return folder


@pytest.mark.parametrize(
    "options", ["", "dtype: {v: float32}", "dtype: {v: int16}", "round: {v: {keepbits: 3}}", "values: decoded"]
)
@pytest.mark.parametrize("dtype", ["f8", "i2"])
def test_what_was_never_written_is_no_gap(options: str, dtype: str, tmp_path: Path) -> None:
    raw = plain(tmp_path, {0: np.array([1, 2, 3]), 2: np.array([4, 5, 6])}, dtype)
    if dtype == "i2" and "round" in options:
        options = "dtype: {v: float64}\n    round: {v: {keepbits: 3}}"
    path = config(tmp_path, raw, f"    {options}\n    fill_value: {{v: -50}}\n", SLOTS)
    assert main(["run", path]) == 0
    assert read(tmp_path, "v").tolist() == [[1, 2, 3, 7, 7, 7], [-50] * 6, [4, 5, 6, 7, 7, 7]]
    array = zarr.open_group(tmp_path / "out.zarr", mode="r")["v"]
    assert array.fill_value == 7


@pytest.mark.parametrize(
    ("dtype", "number", "options", "says"),
    [
        ("f8", 1e39, "dtype: {v: float32}", "the number 1e+39 does not fit: the largest float32 is 3.4028234663852886e+38"),
        ("f8", 2.5, "dtype: {v: int32}", "the stored number 2.5 is no int32: it cannot be rewritten exactly"),
        ("f8", np.nan, "dtype: {v: int32}", "the stored number nan is no int32"),
        ("i4", 70000, "dtype: {v: int16}", "the stored number 70000 is no int16"),
        ("i4", 2**24 + 1, "dtype: {v: float32}", "the stored number 16777217 is no float32"),
        (
            "i4",
            -1,
            "fill_value: {v: -1}",
            "1 of 3 stored numbers, -1 first at (0, 2), would read as -1, which says missing in the whole",
        ),
        (
            "f8",
            9.00000001,
            "dtype: {v: float32}\n    fill_value: {v: 9}",
            "1 of 3 stored numbers, 9.00000001 first at (0, 2), would read as 9.0",
        ),
        ("f8", np.inf, "pack: {v: {dtype: int16, scale_factor: 0.1}}", "the number inf does not fit: packed into int16"),
        ("f8", 5e3, "pack: {v: {dtype: int16, scale_factor: 0.1}}", "it would have to lie in -3276.8 to 3276.7"),
    ],
)
def test_numbers_without_a_place_are_named_with_their_granule(
    dtype: str, number: float, options: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = plain(tmp_path, {0: np.array([1, 2, 3]), 1: np.array([4, 5, number])}, dtype)
    told = failed(config(tmp_path, raw, f"    {options}\n"), capsys)
    assert says in told
    assert "d1.nc: chunk (0, 0) of /v" in told
    assert not (tmp_path / "out.zarr/zarr.json").exists()


def test_what_was_never_written_must_not_become_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = plain(tmp_path, {0: np.array([1, 2, 3])}, "i2")
    told = failed(config(tmp_path, raw, "    fill_value: {v: 7}\n"), capsys)
    assert (
        "d0.nc: chunk (0, 1) of /v was never written and reads as fill: 1 of 1 stored numbers, 7 first at (0,), would read as 7"
        in told
    )


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3")
def test_filters_say_who_reads_them(
    granules: tuple[Path, dict[str, np.ndarray]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw, whole = granules
    path = config(tmp_path, raw, "    codecs: [delta, shuffle, {gzip: {level: 1}}]\n")
    assert main(["check", path]) == 0
    names = "arrays with numcodecs.delta and numcodecs.shuffle: "
    shown = " ".join(capsys.readouterr().out.split())
    assert f"{names}zarr-python and xarray (with numcodecs)" in shown
    assert f"{names}zarrs, tensorstore and other readers that know Zarr v3's own codecs alone" in shown
    assert main(["run", path]) == 0
    group = zarr.open_group(tmp_path / "out.zarr", mode="r")
    assert all(np.asarray(group[n][...]).tobytes() == whole[n].tobytes() for n in whole)
    capsys.readouterr()
    assert main(["plan", path]) == 0
    told = capsys.readouterr().out
    assert "/raw: its chunks have the codecs numcodecs.delta and numcodecs.shuffle: read by zarr-python" in told
    assert "/sst, /time, /wind: their chunks have the codecs numcodecs.shuffle: read by" in told


def test_repositories_hold_the_same(granules: tuple[Path, dict[str, np.ndarray]], tmp_path: Path) -> None:
    wish = "    dtype: {wind: float32}\n    round: {'*': {keepbits: 8}}\n    fill_value: {raw: -7}\n"
    second = "  - store: icechunk\n    at: out.ice\n    chunks: {time: 4, y: 5, x: 8}\n"
    assert main(["run", config(tmp_path, granules[0], wish + second + wish)]) == 0
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path / "out.ice")))
    group = zarr.open_group(repository.readonly_session("main").store, mode="r")
    for name in FILLS:
        assert np.asarray(group[name][...]).tobytes() == read(tmp_path, name).tobytes()
        theirs = zarr.open_group(tmp_path / "out.zarr", mode="r")[name]
        assert dict(group[name].attrs) == dict(theirs.attrs)

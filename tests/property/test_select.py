"""What is selected is what NumPy takes of the whole, by value and in stores, and the witness agrees."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import drystone
from drystone.errors import VerifyError
from drystone.pipeline import api

SIZES = {"time": 7, "lev": 3, "lat": 6, "lon": 5}


def write(folder: Path, lengths: list[int], chunk: tuple[int, ...], raw: bool = False) -> np.ndarray:
    """Granules of some lengths along time; the whole's values."""
    whole = np.arange(sum(lengths) * 3 * 6 * 5, dtype="i4").reshape(-1, 3, 6, 5)
    at = 0
    for i, n in enumerate(lengths):
        with netCDF4.Dataset(folder / f"g{i}.nc", "w") as nc:
            for name, size in (("time", None), ("lev", 3), ("lat", 6), ("lon", 5)):
                nc.createDimension(name, size)
                v = nc.createVariable(name, "f4" if name == "lat" else "i4", (name,))
                v[:] = (
                    at + np.arange(n) if name == "time" else np.arange(size)[::-1] * 0.1 if name == "lat" else np.arange(size)
                )
            nc["time"].units = "days since 2001-01-01"
            edges = (min(chunk[0], n), *chunk[1:])
            v = nc.createVariable("v", "i4", ("time", "lev", "lat", "lon"), zlib=not raw, chunksizes=edges, fill_value=-1)
            v[...] = whole[at : at + n]
        at += n
    return whole


@st.composite
def selections(draw: st.DrawFn) -> dict[str, dict[str, object]]:
    """Of each dimension something or nothing; points on two or three of them, or on none."""
    out: dict[str, dict[str, object]] = {}
    points = draw(st.sampled_from([(), (), ("lat", "lon"), ("time", "lat"), ("time", "lev", "lon")]))
    n = draw(st.integers(1, 5))
    for name, size in SIZES.items():
        place = st.integers(0, size - 1)
        if name in points:
            out[name] = {"points": {"index": draw(st.lists(place, min_size=n, max_size=n))}}
            continue
        kind = draw(st.sampled_from(["none", "none", "index", "list", "slice", "step"]))
        if kind == "index":
            out[name] = {"index": draw(place)}
        elif kind == "list":
            out[name] = {"index": draw(st.lists(place, min_size=1, max_size=5))}
        elif kind == "slice":
            start = draw(place)
            out[name] = {"index": {"start": start, "stop": draw(st.integers(start + 1, size)), "step": draw(st.integers(1, 3))}}
        elif kind == "step":
            out[name] = {"step": draw(st.integers(1, 4))}
    return out


def taken(whole: np.ndarray, chosen: dict[str, dict[str, object]]) -> np.ndarray:
    """By NumPy alone."""
    names, points = list(SIZES), [n for n in SIZES if "points" in chosen.get(n, {})]
    drop = []
    for axis, name in enumerate(names):
        what = chosen.get(name, {})
        if "step" in what:
            whole = np.take(whole, range(0, SIZES[name], int(what["step"])), axis)
        elif isinstance(what.get("index"), dict):
            s = what["index"]
            whole = np.take(whole, range(s["start"], s["stop"], s["step"]), axis)
        elif "index" in what:
            whole = np.take(whole, np.atleast_1d(what["index"]), axis)
            drop += [axis] if isinstance(what["index"], int) else []
    if points:
        axes = [names.index(n) for n in points]
        front = np.moveaxis(whole, axes, range(len(axes)))
        gathered = np.stack([front[i] for i in zip(*(chosen[n]["points"]["index"] for n in points), strict=True)])
        left = [a for a in range(4) if a not in axes]
        at = sum(a < axes[0] for a in left)
        whole = np.moveaxis(gathered, 0, at)
        order = [*left[:at], axes[0], *left[at:]]
        return whole[tuple(0 if a in drop else slice(None) for a in order)]
    return whole[tuple(0 if a in drop else slice(None) for a in range(4))]


lengths = st.sampled_from([[7], [3, 4], [1] * 7, [2, 2, 2, 1], [1, 5, 1]])
chunks = st.sampled_from([(1, 1, 6, 5), (1, 1, 2, 5), (2, 3, 4, 2), (1, 3, 1, 1), (3, 1, 6, 5)])


@given(lengths, chunks, selections(), st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_open_reads_what_numpy_takes(lengths, chunk, chosen, raw):
    """Every kind of selection, together."""
    with tempfile.TemporaryDirectory() as folder:
        whole = write(Path(folder), lengths, chunk, raw)
        ds = drystone.open(f"{folder}/*.nc", along="time", select=chosen)
        want = taken(whole, chosen)
        assert ds["v"].shape == want.shape
        assert np.array_equal(ds["v"].values, want)


@given(lengths, chunks, selections(), st.booleans())
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
def test_stores_hold_what_numpy_takes_and_are_verified(lengths, chunk, chosen, raw):
    """The same through planning, tasks and the witness; ``chunks`` of few bytes make several of each."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "raw").mkdir()
        whole = write(Path(folder) / "raw", lengths, chunk, raw)
        config = Path(folder) / "a.yaml"
        config.write_text(json.dumps({
            "name": "a", "granules": "raw/*.nc", "combine": {"along": "time"} | ({"select": chosen} if chosen else {}),
            "outputs": [{"store": "zarr", "at": "a.zarr", "chunks": {"*": "64 B"}}],
            "execution": {"cluster": "inline"}, "verify": {"values": "full"},
        }))  # fmt: skip
        report = drystone.run(str(config))
        assert report.outputs[0].verified == "full"
        want = taken(whole, chosen)
        assert np.array_equal(zarr.open_group(f"{folder}/a.zarr", mode="r")["v"][...], want)


@pytest.mark.parametrize(
    ("chosen", "chunk"),
    [
        ({"lev": {"index": 1}}, (1, 1, 6, 5)),
        ({"lev": {"index": [2, 0]}, "time": {"step": 3}}, (1, 1, 6, 5)),
        ({"time": {"index": 4}}, (1, 3, 6, 5)),
        ({"time": {"index": [6, 1, 1]}, "lev": {"index": -1}}, (1, 1, 2, 5)),
        ({"lat": {"index": {"start": 2, "stop": 6}}}, (1, 3, 2, 5)),
    ],
)
def test_chunks_that_are_taken_whole_stay_virtual(tmp_path, chosen, chunk):
    """Icechunk and kerchunk hold them, and the witness reads the same."""
    (tmp_path / "raw").mkdir()
    write(tmp_path / "raw", [1, 2, 1, 3], chunk)
    (tmp_path / "a.yaml").write_text(json.dumps({
        "name": "a", "granules": "raw/*.nc", "combine": {"along": "time"} | ({"select": chosen} if chosen else {}),
        "outputs": [{"virtual": "icechunk", "at": "v.icechunk"}, {"virtual": "kerchunk-parquet", "at": "v.parq"}],
        "execution": {"cluster": "inline"}, "verify": {"values": "full"},
    }))  # fmt: skip
    report = drystone.run(str(tmp_path / "a.yaml"))
    assert [(o.refused, o.verified) for o in report.outputs] == [((), "full")] * 2
    assert all("/v" in o.arrays for o in report.outputs)


def test_the_witness_sees_a_wrong_value_among_what_was_picked(tmp_path):
    """It names the published place, the granule and the place there."""
    (tmp_path / "raw").mkdir()
    whole = write(tmp_path / "raw", [2, 2, 3], (1, 3, 6, 5))
    chosen = {"lat": {"points": {"index": [5, 0, 3]}}, "lon": {"points": {"index": [1, 1, 4]}}, "lev": {"index": 2}}
    (tmp_path / "a.yaml").write_text(json.dumps({
        "name": "a", "granules": "raw/*.nc", "combine": {"along": "time", "select": chosen},
        "outputs": [{"store": "zarr", "at": "a.zarr"}], "execution": {"cluster": "inline"}, "verify": {"values": "full"},
    }))  # fmt: skip
    drystone.run(str(tmp_path / "a.yaml"))
    v = zarr.open_group(tmp_path / "a.zarr")["v"]
    assert v[5, 2] == whole[5, 2, 3, 4]
    v[5, 2] = -7
    with pytest.raises(VerifyError) as caught:
        api.verify(str(tmp_path / "a.yaml"), mode="full")
    for part in ("/v: 1 of 21 compared cells differ, first at (5, 2)", "published -7", "g2.nc has it at (1, 2, 3, 4)"):
        assert part in str(caught.value)


def test_unpacked_points_and_coverage_of_picked_arrays(tmp_path):
    """What is read through another array is unpacked there, and its gaps are told."""
    (tmp_path / "raw").mkdir()
    for day in (0, 1, 3):
        with netCDF4.Dataset(tmp_path / "raw" / f"d{day}.nc", "w") as nc:
            nc.createDimension("time", None)
            nc.createDimension("x", 6)
            nc.createVariable("time", "i4", ("time",))[:] = [day]
            nc["time"].units = "days since 2001-01-01"
            v = nc.createVariable("v", "i2", ("time", "x"), zlib=True, chunksizes=(1, 6), fill_value=-1)
            v.scale_factor = 0.5
            v.set_auto_maskandscale(False)
            v[:] = (day * 10 + np.arange(6))[None]
    (tmp_path / "a.yaml").write_text(json.dumps({
        "name": "a", "granules": "raw/*.nc",
        "combine": {"along": {"time": {"axis": "slots", "step": "1D", "origin": "2001-01-01"}}, "select": {"x": {"step": 2}}},
        "outputs": [{"store": "zarr", "at": "a.zarr", "values": "decoded", "coverage": True}],
        "execution": {"cluster": "inline"}, "verify": {"values": "full"},
    }))  # fmt: skip
    drystone.run(str(tmp_path / "a.yaml"))
    root = zarr.open_group(tmp_path / "a.zarr", mode="r")
    want = np.array([[0, 2, 4], [10, 12, 14], [np.nan] * 3, [30, 32, 34]]) * 0.5
    assert np.array_equal(root["v"][...], want, equal_nan=True)
    assert root["v_coverage"][...].tolist() == [1, 1, 0, 1]

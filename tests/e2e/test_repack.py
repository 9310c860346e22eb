"""Stores whose shards hold the granules' own chunks, byte for byte, and what the plan says where that cannot be."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr
from e2e.combining import STORE, publish, write_config

import drystone
from drystone.cli.main import main
from drystone.errors import DrystoneError, PlanError

STEPS, SHAPE, CHUNK = 6, (18, 11, 14), (2, 4, 5)
ABSENT = (1 << 64) - 1
SHARDS = {"shards": {"time": 8, "y": 8, "x": 10}}


def write_granules(
    folder: Path, *, first: tuple[int, ...] = (0, 6, 12), fletcher: bool = False, **options: object
) -> np.ndarray:
    """Files of six steps with clipped edge chunks and chunks that were never written; returns what they hold."""
    rng = np.random.default_rng(5)
    dtype = np.dtype(str(options.pop("dtype", "<i2")))
    values = rng.integers(0, 200, SHAPE).astype(dtype)
    options = {"compression": "gzip", "shuffle": True, "fillvalue": 7, **options}
    for at in first:
        with h5py.File(folder / f"{at:02}.nc", "w") as file:
            for name, axis in (("time", at + np.arange(6.0)), ("y", np.arange(11.0)), ("x", np.arange(14.0))):
                file[name] = axis
                file[name].make_scale(name)
            file["time"].attrs["units"] = "days since 2001-01-01"
            v = file.create_dataset(
                "v", (6, 11, 14), values.dtype, chunks=CHUNK, maxshape=(None, 11, 14), fletcher32=fletcher, **options
            )
            v.attrs["_FillValue"] = np.array(255 if dtype == "u1" else -999, dtype)[()]
            for axis, name in enumerate(("time", "y", "x")):
                v.dims[axis].attach_scale(file[name])
            v[:, :4] = values[at : at + 6, :4]
            v[:4, 4:] = values[at : at + 4, 4:]
            values[at + 4 : at + 6, 4:] = 7  # never written
    return values


def stored_chunks(folder: Path) -> dict[tuple[int, ...], bytes]:
    """Every stored chunk of the granules, by its coordinates in the whole."""
    found = {}
    for path in sorted(folder.glob("*.nc")):
        with h5py.File(path) as file:
            v = file["v"]
            for i in range(v.id.get_num_chunks()):
                info = v.id.get_chunk_info(i)
                at = tuple(o // c for o, c in zip(info.chunk_offset, CHUNK, strict=True))
                found[(at[0] + int(path.stem) // 2, *at[1:])] = v.id.read_direct_chunk(info.chunk_offset)[1]
    return found


def shard_chunks(folder: Path, shard: tuple[int, ...] = (8, 8, 10)) -> dict[tuple[int, ...], bytes]:
    """Every inner chunk of the store that has bytes, taken out of the shards by their index alone."""
    slots = tuple(s // c for s, c in zip(shard, CHUNK, strict=True))
    found = {}
    for path in (folder / "out/out.zarr/v/c").rglob("*"):
        if not path.is_file():
            continue
        cell = tuple(int(p) for p in path.parts[-3:])
        data = path.read_bytes()
        n = int(np.prod(slots))
        index = np.frombuffer(data[-16 * n - 4 : -4], "<u8").reshape(n, 2).tolist()
        for number, (offset, length) in enumerate(index):
            if offset != ABSENT:
                inner = np.unravel_index(number, slots)
                at = tuple(int(c * s + i) for c, s, i in zip(cell, slots, inner, strict=True))
                found[at] = data[offset : offset + length]
    return found


def read(folder: Path) -> np.ndarray:
    return np.asarray(zarr.open_group(folder / "out/out.zarr", mode="r")["v"][:])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shuffle": False},
        {"compression": None, "shuffle": False},
        {"dtype": ">f4"},
        {"dtype": "<f8", "compression": "gzip", "compression_opts": 9},
        {"dtype": "u1"},
        {"dtype": ">i4", "compression": None, "shuffle": False},
    ],
    ids=str,
)
def test_chunks_are_the_granules_own(tmp_path: Path, options: dict[str, object]) -> None:
    values = write_granules(tmp_path, **options)
    report = publish(tmp_path, STORE, mode="repack", **SHARDS)
    assert report.outputs[0].refused == ()
    np.testing.assert_array_equal(read(tmp_path), values)
    assert shard_chunks(tmp_path) == stored_chunks(tmp_path)
    with xr.open_zarr(tmp_path / "out/out.zarr", chunks=None, mask_and_scale=False) as opened:
        np.testing.assert_array_equal(opened["v"].values, values)
    assert main(["verify", str(tmp_path / "zarr.yaml")]) == 0
    files = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*") if p.is_file()}
    publish(tmp_path, STORE, mode="repack", **SHARDS)
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*") if p.is_file()} == files


def test_one_object_a_chunk(tmp_path: Path) -> None:
    values = write_granules(tmp_path)
    publish(tmp_path, STORE, mode="repack", shards="none")
    np.testing.assert_array_equal(read(tmp_path), values)
    root = tmp_path / "out/out.zarr/v/c"
    found = {tuple(int(i) for i in p.relative_to(root).parts): p.read_bytes() for p in root.rglob("*") if p.is_file()}
    assert found == stored_chunks(tmp_path)


def test_a_checksum_is_verified_and_cut_off(tmp_path: Path) -> None:
    values = write_granules(tmp_path, fletcher=True)
    publish(tmp_path, STORE, mode="repack", **SHARDS)
    np.testing.assert_array_equal(read(tmp_path), values)
    assert shard_chunks(tmp_path) == {at: data[:-4] for at, data in stored_chunks(tmp_path).items()}
    codecs = json.loads((tmp_path / "out/out.zarr/v/zarr.json").read_text())["codecs"][0]["configuration"]["codecs"]
    assert [c["name"] for c in codecs] == ["bytes", "numcodecs.shuffle", "numcodecs.zlib"]


def test_a_broken_checksum_stops_the_run(tmp_path: Path) -> None:
    write_granules(tmp_path, fletcher=True)
    with h5py.File(tmp_path / "06.nc") as file:
        info = file["v"].id.get_chunk_info(3)
    data = bytearray((tmp_path / "06.nc").read_bytes())
    data[info.byte_offset + 5] ^= 1
    (tmp_path / "06.nc").write_bytes(data)
    with pytest.raises(DrystoneError, match=r"06\.nc.*fletcher32"):
        publish(tmp_path, STORE, mode="repack", **SHARDS)
    assert not (tmp_path / "out/out.zarr/zarr.json").exists()


def test_portable_is_read_by_every_reader(tmp_path: Path) -> None:
    values = write_granules(tmp_path, shuffle=False)
    publish(tmp_path, STORE, mode="repack", portable=True, **SHARDS)
    np.testing.assert_array_equal(read(tmp_path), values)
    codecs = json.loads((tmp_path / "out/out.zarr/v/zarr.json").read_text())["codecs"][0]["configuration"]["codecs"]
    assert [c["name"] for c in codecs] == ["bytes", "gzip"]
    packed = shard_chunks(tmp_path)
    for at, data in stored_chunks(tmp_path).items():
        assert packed[at][10:-8] == data[2:-4]
        assert zlib.decompress(packed[at], 31) == zlib.decompress(data)
    assert main(["verify", str(tmp_path / "zarr.yaml")]) == 0


def test_gaps_read_as_missing_and_unwritten_as_fill(tmp_path: Path) -> None:
    values = write_granules(tmp_path, first=(0, 12))
    publish(tmp_path, STORE, {"along": {"time": {"axis": "slots", "step": "1D"}}}, mode="repack", **SHARDS)
    values[6:12] = -999
    np.testing.assert_array_equal(read(tmp_path), values)
    packed, stored = shard_chunks(tmp_path), stored_chunks(tmp_path)
    assert {at: data for at, data in packed.items() if at in stored} == stored
    assert len({data for at, data in packed.items() if at not in stored}) == 1
    assert main(["verify", str(tmp_path / "zarr.yaml")]) == 0


def test_auto_copies_what_is_wished_for_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_granules(tmp_path)

    def mode(**said: object) -> tuple[str, str]:
        assert main(["run", str(write_config(tmp_path, STORE, **said)), "--quiet", "--accept-changes"]) == 0
        capsys.readouterr()
        assert main(["plan", str(tmp_path / "zarr.yaml"), "--json"]) == 0
        plan = json.loads(capsys.readouterr().out)
        [v] = [a for a in plan["outputs"][0]["arrays"] if a["path"] == "/v"]
        return v["mode"], v["reason"]

    assert mode(chunks="source", codecs="source", **SHARDS) == ("repack", "")
    assert mode(chunks={"time": 2, "y": 4, "x": 5}, codecs="source", **SHARDS)[0] == "repack"
    for said in ({}, {"codecs": "source"}, {"chunks": "source"}, {"chunks": "source", "codecs": {"gzip": {"level": 4}}}):
        assert mode(**said)[0] == "rechunk", said
    other, why = mode(chunks={"time": 6, "y": 4, "x": 5}, codecs="source")
    assert other == "rechunk"
    assert "chunks of 6 along 'time' are wished, and the granules have chunks of 2" in why
    assert mode(mode="rechunk", chunks="source", codecs="source")[0] == "rechunk"


REFUSED = {
    "a longer chunk": ({"chunks": {"time": 6}}, {}, "chunks of 6 along 'time'.*have chunks of 2"),
    "another codec": ({"codecs": "zstd"}, {}, "zstd.*are wished.*zlib"),
    "decoded": ({"values": "decoded"}, {"scale": 0.5}, "unpacked"),
    "shuffled and portable": ({"portable": True}, {}, "portable: the codec 'shuffle'"),
    "a filter mask": ({}, {"mask": True}, r"06\.nc: chunk \(0, 0, 0\) was stored with filters skipped \(mask 1\)"),
    "another chain": ({}, {"other": {"shuffle": False}}, "06.nc"),
    "another fill": ({}, {"other": {"fillvalue": 8}}, "06.nc"),
    "other chunks": ({}, {"chunks": (3, 4, 5)}, "06.nc"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_copied_is_told(tmp_path: Path, name: str) -> None:
    said, how, told = REFUSED[name]
    write_granules(tmp_path)
    if "other" in how or "chunks" in how:
        folder = tmp_path / "other"
        folder.mkdir()
        write_granules(folder, first=(6,), **how.get("other", {}))  # type: ignore[arg-type]
        (folder / "06.nc").replace(tmp_path / "06.nc")
    for path in tmp_path.glob("*.nc"):
        with h5py.File(path, "a") as file:
            if "scale" in how:
                file["v"].attrs["scale_factor"] = how["scale"]
            if "chunks" in how and path.stem == "06":
                old, attrs = file["v"][:], dict(file["v"].attrs)
                del file["v"]
                v = file.create_dataset("v", data=old, chunks=how["chunks"], maxshape=(None, 11, 14), compression="gzip")
                for axis, dim in enumerate(("time", "y", "x")):
                    v.dims[axis].attach_scale(file[dim])
                v.attrs["_FillValue"] = attrs["_FillValue"]
            if "mask" in how and path.stem == "06":
                raw = zlib.compress(file["v"][:2, :4, :5].tobytes())
                file["v"].id.write_direct_chunk((0, 0, 0), raw, filter_mask=1)
    with pytest.raises(PlanError, match=told) as caught:
        publish(tmp_path, STORE, mode="repack", **{**SHARDS, **({"shards": "none"} if "longer" in name else {}), **said})
    assert caught.value.kind == "not-repackable"
    assert not (tmp_path / "out/out.zarr").exists()
    assert publish(tmp_path, STORE, mode="auto", chunks="source", codecs="source", arrays=["v"]).outputs[0].verified


def test_a_short_file_in_the_middle_is_named(tmp_path: Path) -> None:
    for at, n in ((0, 6), (6, 5), (11, 6)):
        with netCDF4.Dataset(tmp_path / f"{at:02}.nc", "w") as file:
            file.createDimension("time", None)
            file.createDimension("x", 4)
            file.createVariable("time", "f8", ("time",)).units = "days since 2001-01-01"
            file["time"][:] = at + np.arange(n)
            file.createVariable("v", "i2", ("time", "x"), zlib=True, chunksizes=(2, 4))[:] = np.ones((n, 4))
    with pytest.raises(PlanError, match="time"):
        publish(tmp_path, STORE, mode="repack", arrays=["v"])


@pytest.mark.parametrize("steps", [1, 3])
def test_a_changed_granule_stops_the_copy(tmp_path: Path, steps: int) -> None:
    write_granules(tmp_path)
    path = write_config(tmp_path, STORE, mode="repack", **SHARDS)
    drystone.scan(path)
    before = (tmp_path / "06.nc").read_bytes()
    drystone.run(path)
    (tmp_path / "06.nc").write_bytes(before[:-steps])
    with pytest.raises(DrystoneError, match=r"06\.nc"):
        drystone.run(path, accept_changes=True)


KILLED = """
import os, signal, sys
import drystone.rechunk.copying as copying
inner, left = copying._read, [int(sys.argv[2])]
def read(job, chunks):
    for part in inner(job, chunks):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        yield part
copying._read = read
import drystone
drystone.run(sys.argv[1])
"""


def test_killed_while_copying_and_run_again(tmp_path: Path) -> None:
    values = write_granules(tmp_path)
    said = {"shards": {"time": 2, "y": 4, "x": 15}, "mode": "repack"}
    publish(tmp_path, STORE, **said)
    out = tmp_path / "out/out.zarr"
    undisturbed = {p.relative_to(out): p.read_bytes() for p in out.rglob("*") if p.is_file()}
    for part in (2, 9, 17):
        for name in ("out", "work"):
            shutil.rmtree(tmp_path / name)
        killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "zarr.yaml"), str(part)], check=False)
        assert killed.returncode == -signal.SIGKILL
        assert not (out / "zarr.json").exists()
        publish(tmp_path, STORE, **said)
        assert {p.relative_to(out): p.read_bytes() for p in out.rglob("*") if p.is_file()} == undisturbed
        np.testing.assert_array_equal(read(tmp_path), values)


@pytest.mark.parametrize("ranks", [(3, 2), (2, 3)])
def test_an_array_of_another_rank_takes_the_place_of_the_first(tmp_path: Path, ranks: tuple[int, int]) -> None:
    """Folders of the one lie where objects of the other are to be."""
    for rank in ranks:
        shape = (3, 300, 200)[:rank] if rank == 3 else (3, 60_000)
        values = np.random.default_rng(rank).normal(size=(6, *shape[1:])).astype("f4")
        for i in range(2):
            with h5py.File(tmp_path / f"{i}.nc", "w") as file:
                file["time"] = np.arange(3.0) + 3 * i
                file["time"].make_scale("time")
                file["time"].attrs["units"] = "days since 2001-01-01"
                v = file.create_dataset("v", data=values[3 * i : 3 * i + 3], chunks=(1, *shape[1:]))
                v.dims[0].attach_scale(file["time"])
        publish(tmp_path, STORE, chunks={"time": 3}, mode="rechunk")
        assert (zarr.open_group(str(tmp_path / "out" / "out.zarr"), mode="r")["v"][:] == values).all()

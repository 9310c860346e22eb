"""The witness: published forms written by zarr, icechunk and kerchunk themselves, with and without faults."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import h5py
import icechunk
import numpy as np
import pytest
import zarr

import drystone.verify.run as run_module
from drystone.codecs.chain import CodecChain
from drystone.errors import ConfigError, VerifyError
from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.attributes import Attributes
from drystone.model.placement import Combined, CombinedArray, Placements
from drystone.verify.report import VerifyReport
from drystone.verify.run import verify_output

LENGTHS = (3, 3, 4, 2)
DEST = (0, 3, 8, 12)  # elements 6 and 7 belong to no granule
T, Y, X = 14, 6, 8
FILL = -32767
PAIR = np.dtype([("a", "<i2"), ("b", "<f8")])
WITNESS = Path(run_module.__file__).with_name("witness.py")


@dataclass(frozen=True)
class Archive:
    """Granules, what they make together, and the whole's values computed by hand."""

    folder: Path
    combined: Combined
    granules: dict[int, str]
    values: dict[str, np.ndarray]

    def verify(self, form: str = "zarr", mode: str = "full", **options: object) -> VerifyReport:
        location = options.pop("location", str(self.folder / "out"))
        return verify_output(form, str(location), self.combined, self.granules, mode=mode, **options)  # type: ignore[arg-type]


def values_of(granule: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(granule)
    n = LENGTHS[granule]
    sst = rng.integers(-500, 500, (n, Y, X)).astype("i2")
    if granule == 1:
        sst[0] = FILL  # the granule never writes that chunk
    err = rng.normal(size=(n, Y, X)).astype("f4")
    err[0, 0, :3] = np.array([0x7FC00001, 0x80000000, 0xFF800000], "u4").view("f4")  # a NaN's payload, -0.0, -inf
    pair = np.zeros(n, PAIR)
    pair["a"], pair["b"] = rng.integers(0, 9, n), rng.normal(size=n)
    return {"time": np.arange(n) + 100.0 * granule, "sst": sst, "err": err, "pair": pair, "good": rng.random(n) < 0.5}


def write_granule(path: Path, granule: int) -> None:
    v = values_of(granule)
    with h5py.File(path, "w") as f:
        f["time"] = v["time"].astype(">f8")
        f["time"].attrs["units"] = "days since 2000-01-01"
        d = f.create_dataset("sst", v["sst"].shape, ">i2", chunks=(1, Y, X), compression="gzip", shuffle=True, fillvalue=FILL)
        for i in range(len(v["sst"])):
            if not (granule == 1 and i == 0):
                d[i] = v["sst"][i]
        d.attrs["_FillValue"] = np.array([FILL], ">i2")
        d.attrs["scale_factor"] = np.float32(0.01)
        f.create_dataset("obs/err", data=v["err"], chunks=(2, 3, X))
        f["pair"] = v["pair"]
        f["good"] = v["good"]
        f.create_dataset("names", data=["é", "", "long " * 20, "z"], dtype=h5py.string_dtype())
        f.create_dataset("crs", data=np.int32(7))


def combined_array(path: str, values: np.ndarray, axis: int | None, dims: tuple[str, ...], fill: bytes | None) -> CombinedArray:
    if axis is None:
        zero = np.zeros(1, np.int64)
        placements = Placements(None, np.zeros(1, np.int32), zero, zero + 1, zero, np.zeros(1, np.int32))
    else:
        n = len(LENGTHS)
        ids, zero = np.arange(n, dtype=np.int32), np.zeros(n, np.int64)
        placements = Placements(axis, ids, zero, np.array(LENGTHS, np.int64), np.array(DEST, np.int64), np.zeros(n, np.int32))
    grid = ChunkGrid.regular(values.shape, tuple(max(1, s) for s in values.shape))
    chain, none = CodecChain.of("bytes"), Attributes()
    return CombinedArray(path, dims, values.shape, values.dtype, values.dtype, fill, chain, none, grid, None, placements, ())


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    granules = {}
    for g in range(len(LENGTHS)):
        granules[g] = str(tmp_path / f"g{g}.nc")
        write_granule(Path(granules[g]), g)
    fills = {"time": np.nan, "sst": FILL, "err": np.nan, "pair": 0, "good": False}
    whole: dict[str, np.ndarray] = {}
    for name, first in values_of(0).items():
        whole[name] = np.full((T, *first.shape[1:]), fills[name], first.dtype)
        for g, (at, n) in enumerate(zip(DEST, LENGTHS, strict=True)):
            whole[name][at : at + n] = values_of(g)[name]
    whole["names"] = np.array(["é", "", "long " * 20, "z"], np.dtypes.StringDType())
    whole["crs"] = np.array(7, "i4")
    grid = ("time", "y", "x")
    specs = {
        "/time": ("time", 0, ("time",), None),
        "/sst": ("sst", 0, grid, np.int16(FILL).tobytes()),
        "/obs/err": ("err", 0, grid, np.float32(np.nan).tobytes()),
        "/pair": ("pair", 0, ("time",), None),
        "/good": ("good", 0, ("time",), None),
        "/names": ("names", None, ("n",), None),
        "/crs": ("crs", None, (), None),
    }
    arrays = tuple(combined_array(path, whole[n], axis, dims, fill) for path, (n, axis, dims, fill) in specs.items())
    archive = Archive(tmp_path, Combined((), arrays, "time"), granules, {p: whole[n] for p, (n, *_) in specs.items()})
    publish(zarr.storage.LocalStore(tmp_path / "out"), archive)
    return archive


def publish(store: zarr.abc.store.Store, archive: Archive) -> None:
    """Write the whole with zarr alone."""
    root = zarr.create_group(store)
    for a in archive.combined.arrays:
        v = archive.values[a.path]
        more: dict[str, object] = {}
        if a.path == "/sst":
            more = {"shards": (8, Y, X), "attributes": {"_FillValue": FILL, "scale_factor": float(np.float32(0.01))}}
        if a.path == "/time":
            more = {"attributes": {"units": "days since 2000-01-01"}}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # structs have no final specification yet
            array = root.create_array(
                a.path.strip("/"),
                shape=v.shape,
                dtype=v.dtype,
                chunks=(4, 3, 4) if v.ndim == 3 else tuple(max(1, n) for n in v.shape),
                dimension_names=a.dims,
                fill_value=None if a.fill is None else a.fill_scalar[()],
                **more,
            )
        array[...] = v


def open_out(archive: Archive) -> zarr.Group:
    return zarr.open_group(archive.folder / "out", mode="r+")


def array_report(report: VerifyReport, path: str):
    return next(a for a in report.arrays if a.path == path)


@pytest.mark.parametrize("mode", ["full", "sample"])
def test_an_exact_store_passes(archive: Archive, mode: str) -> None:
    report = archive.verify(mode=mode, share=0.2, seed=5)
    assert report.ok, report.lines()
    assert report.first_problem() == ""
    assert report.unverified == ()
    assert {a.path for a in report.arrays} == {a.path for a in archive.combined.arrays}
    assert all(a.cells == a.total if mode == "full" else a.cells > 0 for a in report.arrays)
    assert VerifyReport.from_json(json.loads(json.dumps(report.to_json()))) == report
    names = [n for n, _ in report.libraries]
    assert {"zarr", "h5py"} <= set(names)


def test_small_slabs_find_the_same(archive: Archive) -> None:
    report = archive.verify(slab_bytes=64)
    assert report.ok, report.lines()
    sst = array_report(report, "/sst")
    assert sst.cells == sst.total == T * Y * X
    assert sst.boxes == 4 * 2 * 2


def flipped(archive: Archive, array: zarr.Array | None = None) -> None:
    (array or open_out(archive)["sst"])[9, 5, 7] += 1


def nan_payload(archive: Archive) -> None:
    open_out(archive)["obs/err"][0, 0, 0] = np.nan


def minus_zero(archive: Archive) -> None:
    open_out(archive)["obs/err"][3, 0, 1] = 0.0


def swapped_shards(archive: Archive) -> None:
    a, b = (archive.folder / "out" / "sst" / "c" / n / "0" / "0" for n in "01")
    one, two = a.read_bytes(), b.read_bytes()
    a.write_bytes(two)
    b.write_bytes(one)


def missing_shard(archive: Archive) -> None:
    (archive.folder / "out" / "sst" / "c" / "1" / "0" / "0").unlink()


def missing_chunk(archive: Archive) -> None:
    (archive.folder / "out" / "obs" / "err" / "c" / "0" / "1" / "1").unlink()


def wrong_fill_in_gap(archive: Archive) -> None:
    open_out(archive)["sst"][6:8] = 0


def filled_where_data_was(archive: Archive) -> None:
    open_out(archive)["sst"][3] = 0  # the granule's unwritten chunk reads as -32767


def shifted_time(archive: Archive) -> None:
    out = open_out(archive)["time"]
    out[...] = np.roll(out[...], 1)


def swapped_granules(archive: Archive) -> None:
    out = open_out(archive)["sst"]
    values = out[...]
    values[[0, 1, 2, 3, 4, 5]] = values[[3, 4, 5, 0, 1, 2]]
    out[...] = values


def torn_shard(archive: Archive) -> None:
    path = archive.folder / "out" / "sst" / "c" / "0" / "0" / "0"
    path.write_bytes(path.read_bytes()[:-9])


def garbage_chunk(archive: Archive) -> None:
    (archive.folder / "out" / "obs" / "err" / "c" / "1" / "0" / "0").write_bytes(b"\0\1\2\3")


def text_changed(archive: Archive) -> None:
    out = open_out(archive)["names"]
    values = out[...]
    values[1] = " "
    out[...] = values


def field_changed(archive: Archive) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = open_out(archive)["pair"]
        values = out[...]
        values["b"][13] += 1e-9
        out[...] = values


def wrong_scale(archive: Archive) -> None:
    open_out(archive)["sst"].attrs["scale_factor"] = 0.01  # the granule's is float32


def added_fill_value(archive: Archive) -> None:
    open_out(archive)["time"].attrs["_FillValue"] = 0.0


def lost_array(archive: Archive) -> None:
    shutil.rmtree(archive.folder / "out" / "crs")


def resized(archive: Archive) -> None:
    open_out(archive)["good"].resize((13,))


FAULTS = {
    flipped: ("/sst", r"1 of \d+ compared cells differ, first at \(9, 5, 7\)"),
    nan_payload: ("/obs/err", r"first at \(0, 0, 0\): published nan \(0x7fc00000\), source nan \(0x7fc00001\)"),
    minus_zero: ("/obs/err", r"first at \(3, 0, 1\): published 0.0 \(0x00000000\), source -0.0 \(0x80000000\)"),
    swapped_shards: ("/sst", r"cells differ, first at \(0, 0, 0\)"),
    missing_shard: ("/sst", r"published -32767 .*source"),
    missing_chunk: ("/obs/err", r"first at \(0, 3, 4\)"),
    wrong_fill_in_gap: ("/sst", r"96 of .*first at \(6, 0, 0\): published 0 .*no granule covers it"),
    filled_where_data_was: ("/sst", r"48 of .*first at \(3, 0, 0\)"),
    shifted_time: ("/time", r"first at \(0,\)"),
    swapped_granules: ("/sst", r"first at \(0, 0, 0\)"),
    torn_shard: ("/sst", "cannot be read"),
    garbage_chunk: ("/obs/err", "cannot be read"),
    text_changed: ("/names", r"first at \(1,\): published b' ', source b''"),
    field_changed: ("/pair", r"first at \(13,\)"),
    wrong_scale: ("/sst", "attribute scale_factor: published 0.01, stored 0.00999"),
    added_fill_value: ("/time", "only the published array has the attribute _FillValue"),
    lost_array: ("/crs", "no such array"),
    resized: ("/good", r"published with the shape \(13,\), not \(14,\)"),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_full_catches(archive: Archive, fault) -> None:
    fault(archive)
    report = archive.verify()
    path, text = FAULTS[fault]
    assert not report.ok
    assert [a.path for a in report.arrays if not a.ok] == [path], report.lines()
    assert re.search(text, report.first_problem()), report.first_problem()
    assert VerifyReport.from_json(json.loads(json.dumps(report.to_json()))) == report


def test_a_granule_that_is_gone_or_changed_is_named(archive: Archive) -> None:
    Path(archive.granules[2]).unlink()
    report = archive.verify(arrays=["/sst"])
    assert not report.ok
    assert "g2.nc" in report.first_problem()
    write_granule(Path(archive.granules[2]), 3)
    report = archive.verify(arrays=["/sst"])
    assert "were placed, its shape is (2, 6, 8)" in report.first_problem()


def test_dimension_names_are_compared(archive: Archive) -> None:
    meta = archive.folder / "out" / "sst" / "zarr.json"
    meta.write_text(meta.read_text().replace('"y"', '"lat"'))
    assert "dimensions ['time', 'lat', 'x'], not ['time', 'y', 'x']" in archive.verify().first_problem()


def test_arrays_nobody_asked_for_are_said(archive: Archive) -> None:
    report = archive.verify(arrays=["/time", "/sst"])
    assert report.ok
    assert report.unverified == ("/crs", "/good", "/names", "/obs/err", "/pair")
    assert "not compared: /crs" in report.lines()[-1]


def test_a_sample_is_the_same_for_the_same_seed(archive: Archive) -> None:
    a = archive.verify(mode="sample", share=0.1, seed=1, arrays=["/sst"])
    b = archive.verify(mode="sample", share=0.1, seed=1, arrays=["/sst"])
    assert replace(a, seconds=0.0) == replace(b, seconds=0.0)


def test_icechunk_native_and_at_a_snapshot(archive: Archive) -> None:
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(archive.folder / "ice")))
    session = repo.writable_session("main")
    publish(session.store, archive)
    good = session.commit("all")
    location = str(archive.folder / "ice")
    assert archive.verify("icechunk", location=location).ok
    session = repo.writable_session("main")
    zarr.open_group(session.store, mode="r+")["sst"][0, 0, 0] += 1
    session.commit("a wrong value")
    assert "first at (0, 0, 0)" in archive.verify("icechunk", location=location).first_problem()
    assert archive.verify("icechunk", location=location, version=good).ok


def virtual_sst(archive: Archive, location: Path, shift: int = 0) -> None:
    """References into the granules for sst, as icechunk itself takes them."""
    config = icechunk.RepositoryConfig.default()
    prefix = f"file://{archive.folder}/"
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(prefix, icechunk.local_filesystem_store(str(archive.folder)), name="raw")
    )
    access = {prefix: icechunk.credentials.LocalFileSystemAccess}
    storage = icechunk.local_filesystem_storage(str(location))
    repo = icechunk.Repository.create(storage, config=config, authorize_virtual_chunk_access=access)
    session = repo.writable_session("main")
    root = zarr.create_group(session.store)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        root.create_array(
            "sst",
            shape=(T, Y, X),
            chunks=(1, Y, X),
            dtype="i2",
            serializer=zarr.codecs.BytesCodec(endian="big"),
            filters=[],
            compressors=[zarr.codecs.numcodecs.Shuffle(elementsize=2), zarr.codecs.numcodecs.Zlib(level=4)],
            fill_value=FILL,
            dimension_names=("time", "y", "x"),
            attributes={"_FillValue": FILL, "scale_factor": float(np.float32(0.01))},
        )
    for g, (at, n) in enumerate(zip(DEST, LENGTHS, strict=True)):
        with h5py.File(archive.granules[g]) as f:
            d = f["sst"]
            for i in range(d.id.get_num_chunks()):
                info = d.id.get_chunk_info(i)
                where = at + (info.chunk_offset[0] + shift) % n
                session.store.set_virtual_ref(
                    f"sst/c/{where}/0/0", f"file://{archive.granules[g]}", offset=info.byte_offset, length=info.size
                )
    session.commit("references")


def test_icechunk_virtual(archive: Archive) -> None:
    virtual_sst(archive, archive.folder / "virtual")
    report = archive.verify("icechunk", location=archive.folder / "virtual", arrays=["/sst"])
    assert report.ok, report.lines()
    virtual_sst(archive, archive.folder / "shifted", shift=1)
    assert not archive.verify("icechunk", location=archive.folder / "shifted", arrays=["/sst"]).ok


def test_kerchunk_parquet(archive: Archive) -> None:
    from fsspec.implementations.reference import LazyReferenceMapper

    for name, shift in (("refs.parquet", 0), ("shifted.parquet", 8)):
        refs = LazyReferenceMapper.create(str(archive.folder / name), record_size=100)
        refs[".zgroup"] = json.dumps({"zarr_format": 2}).encode()
        refs["err/.zattrs"] = json.dumps({"_ARRAY_DIMENSIONS": ["time", "y", "x"]}).encode()
        meta = {
            "zarr_format": 2, "shape": [3, Y, X], "chunks": [3, Y, X], "dtype": "<f4", "compressor": None, "filters": None,
            "order": "C", "fill_value": None,
        }  # fmt: skip
        refs["err/.zarray"] = json.dumps(meta).encode()
        raw = archive.folder / "err.raw"
        raw.write_bytes(values_of(0)["err"].tobytes() + bytes(8))
        refs["err/0.0.0"] = [f"file://{raw}", shift, 3 * Y * X * 4]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pandas is leaving fastparquet, which fsspec asks for
            refs.flush()
        with h5py.File(archive.folder / "one.h5", "w") as f:
            f["err"] = values_of(0)["err"]
        whole = combined_array("/err", values_of(0)["err"], None, ("time", "y", "x"), None)
        report = verify_output(
            "kerchunk-parquet",
            str(archive.folder / name),
            Combined((), (whole,), None),
            {0: str(archive.folder / "one.h5")},
            mode="full",
        )
        assert report.ok == (shift == 0), report.lines()
        assert "fsspec" in dict(report.libraries)


def test_a_netcdf3_granule_is_read_by_netcdf4(tmp_path: Path) -> None:
    netcdf4 = pytest.importorskip("netCDF4")
    values = np.arange(6, dtype="i2").reshape(2, 3)
    with netcdf4.Dataset(tmp_path / "three.nc", "w", format="NETCDF3_CLASSIC") as nc:
        nc.createDimension("y", 2)
        nc.createDimension("x", 3)
        v = nc.createVariable("v", "i2", ("y", "x"), fill_value=3)
        v.scale_factor = 0.5
        v.set_auto_maskandscale(False)
        v[:] = values
    root = zarr.create_group(tmp_path / "out")
    attributes = {"_FillValue": 3, "scale_factor": 0.5}
    root.create_array("v", data=values, dimension_names=("y", "x"), attributes=attributes)
    combined = Combined((), (combined_array("/v", values, None, ("y", "x"), None),), None)
    report = verify_output("zarr", str(tmp_path / "out"), combined, {0: str(tmp_path / "three.nc")}, mode="full")
    assert report.ok, report.lines()
    root["v"][1, 2] = 9
    assert not verify_output("zarr", str(tmp_path / "out"), combined, {0: str(tmp_path / "three.nc")}, mode="full").ok


def test_the_witness_cannot_import_drystone(tmp_path: Path) -> None:
    code = (
        "import runpy, sys; sys.argv = ['witness.py', 'nowhere'];\n"
        f"try: runpy.run_path({str(WITNESS)!r}, run_name='__main__')\n"
        "except FileNotFoundError: pass\n"
        "try: import drystone.errors\n"
        "except ImportError as error: print(error)\n"
    )
    found = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert found.stdout.strip() == "the witness shares no code with drystone", found.stderr
    # and without the seal it could: the test can fail
    plain = subprocess.run([sys.executable, "-I", "-c", "import drystone.errors"], capture_output=True, cwd=tmp_path)
    assert plain.returncode == 0


def test_nothing_to_open_is_no_proof(archive: Archive) -> None:
    with pytest.raises(VerifyError, match="there is no such folder") as caught:
        archive.verify(location=archive.folder / "nowhere")
    assert caught.value.kind == "not-verified"
    (archive.folder / "empty").mkdir()
    with pytest.raises(VerifyError, match="nothing is proved") as caught:
        archive.verify("icechunk", location=archive.folder / "empty")
    assert caught.value.kind == "not-verified"
    # a Zarr store is verified before its root is written, so a folder with nothing in it is one that lacks every array
    report = archive.verify(location=archive.folder / "empty")
    assert not report.ok
    assert all(a.problems == ("the published form has no such array",) for a in report.arrays)


def test_a_store_without_a_root_is_verified_array_by_array(archive: Archive) -> None:
    (archive.folder / "out" / "zarr.json").unlink()
    assert archive.verify().ok
    flipped(archive, zarr.open_array(archive.folder / "out" / "sst", mode="r+"))
    assert not archive.verify().ok


def test_a_call_that_makes_no_sense_is_refused(archive: Archive) -> None:
    with pytest.raises(ConfigError, match="no witness reads the form 'tiff'"):
        archive.verify("tiff")
    with pytest.raises(ConfigError, match="sample, full or digest, not 'some'"):
        archive.verify(mode="some")
    with pytest.raises(ConfigError, match="between 0 and 1, not 2"):
        archive.verify(mode="sample", share=2)
    with pytest.raises(ConfigError, match="no array /nope"):
        archive.verify(arrays=["/nope"])
    with pytest.raises(VerifyError, match="have no address"):
        verify_output("zarr", str(archive.folder / "out"), archive.combined, {0: "x"}, mode="full")


class Listener:
    """A progress that remembers."""

    def __init__(self) -> None:
        self.said: list[tuple[str, int]] = []

    def start(self, stage: str, total: int | None, unit: str) -> None:
        self.said.append((f"start {stage} {unit}", total or 0))

    def advance(self, stage: str, n: int = 1) -> None:
        self.said.append(("advance", n))

    def note(self, message: str) -> None:
        raise AssertionError(message)

    def finish(self, stage: str) -> None:
        self.said.append((f"finish {stage}", 0))


def test_progress_adds_up_to_the_cells(archive: Archive) -> None:
    listener = Listener()
    report = archive.verify(progress=listener)
    assert listener.said[0] == ("start verify cells", report.total)
    assert listener.said[-1] == ("finish verify", 0)
    assert sum(n for what, n in listener.said if what == "advance") == report.cells == report.total

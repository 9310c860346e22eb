"""The kerchunk Parquet emitter: layout, replacement in one step, refusals."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import fsspec
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr
import zarr
from services.emit_archive import HandArchive, hand_archive
from services.s3 import Bucket

from drystone.emit import columns
from drystone.emit.kerchunk_parquet import KerchunkParquetEmitter
from drystone.errors import ConfigError, GranuleChanged, LeaseError, UnsupportedError
from drystone.model.chunk_rows import State
from drystone.model.release import OutputIdentity
from drystone.storage.local import LocalStore
from drystone.storage.remote import RemoteStore

pytestmark = pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated")


def write(path: Path, n: int) -> None:
    """Three steps; chunks of the second axis make rows of granules interleave where time is not first."""
    with h5py.File(path, "w") as f:
        time = f.create_dataset("time", data=np.arange(3 * n, 3 * n + 3, dtype="f8"), maxshape=(None,), chunks=(3,))
        time.make_scale("time")
        values = np.arange(60, dtype="i4").reshape(3, 4, 5) + 100 * n
        f.create_dataset("v", data=values, chunks=(1, 2, 5), compression=1).dims[0].attach_scale(time)
        g = f.create_group("g")
        g.create_dataset("w", data=values.transpose(1, 0, 2), chunks=(1, 3, 5)).dims[1].attach_scale(time)


@pytest.fixture
def archive(tmp_path: Path) -> HandArchive:
    (tmp_path / "raw").mkdir()
    for i in range(3):
        write(tmp_path / "raw" / f"{i}.nc", i)
    return hand_archive(tmp_path / "raw", ["0.nc", "1.nc", "2.nc"], batch=5)


def emit(archive: HandArchive, tmp_path: Path, **options: object) -> OutputIdentity:
    return KerchunkParquetEmitter().emit(archive.view(), LocalStore(tmp_path / "out"), "refs", options)


def group(target: str, **kwargs: object) -> zarr.Group:
    options = {"fo": target, "remote_protocol": "file", "lazy": True, "asynchronous": True} | kwargs
    return zarr.open_group(
        zarr.storage.FsspecStore(fsspec.filesystem("reference", **options), read_only=True, path=""), mode="r"
    )


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_layout(archive: HandArchive, tmp_path: Path) -> None:
    emit(archive, tmp_path, record_size=4)
    out = tmp_path / "out" / "refs"
    metadata = json.loads((out / ".zmetadata").read_text())
    assert metadata["record_size"] == 4
    assert set(metadata["metadata"]) == {
        ".zgroup", ".zattrs", "g/.zgroup", "g/.zattrs",
        "time/.zarray", "time/.zattrs", "v/.zarray", "v/.zattrs", "g/w/.zarray", "g/w/.zattrs",
    }  # fmt: skip
    v = metadata["metadata"]["v/.zarray"]
    assert (v["compressor"], v["filters"], v["dimension_separator"]) == ({"id": "zlib", "level": 1}, None, ".")
    assert metadata["metadata"]["v/.zattrs"]["_ARRAY_DIMENSIONS"][0] == "time"
    # 9 x 2 x 1 chunks in files of 4, the last of which is padded
    assert sorted(p.name for p in (out / "v").iterdir()) == [f"refs.{n}.parq" for n in range(5)]
    for n in range(5):
        table = pq.read_table(out / "v" / f"refs.{n}.parq")
        assert table.num_rows == 4
        assert table.schema.names == ["path", "offset", "size", "raw"]
        assert table.schema.types == [pa.string(), pa.int64(), pa.int64(), pa.binary()]
        assert [f.nullable for f in table.schema] == [True, False, False, True]
        assert table.schema.metadata is None
    assert pq.read_table(out / "v" / "refs.4.parq").column("path").null_count == 2
    assert pq.read_table(out / "v" / "refs.0.parq").column("path")[0].as_py() == str(tmp_path / "raw" / "0.nc")


@pytest.mark.parametrize("record_size", [1, 3, 7, 100_000])
@pytest.mark.parametrize("in_memory", [True, False])
def test_values_whatever_the_record_size_and_where_columns_lie(
    archive: HandArchive, tmp_path: Path, record_size: int, in_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not in_memory:
        monkeypatch.setattr(columns, "_IN_MEMORY", 2)
        monkeypatch.setattr(columns, "_SPILL_AT", 1)
    emit(archive, tmp_path, record_size=record_size)
    got = group(str(tmp_path / "out" / "refs"))
    for path in ("/v", "/g/w", "/time"):
        np.testing.assert_array_equal(got[path[1:]][...], archive.values(path))


def test_xarrays_kerchunk_engine_reads_it(archive: HandArchive, tmp_path: Path) -> None:
    emit(archive, tmp_path)
    # without the protocol, fsspec looks for it in references of arrays in the order of a set, and fails at a group's name
    options = {"remote_protocol": "file"}
    with xr.open_dataset(str(tmp_path / "out" / "refs"), engine="kerchunk", decode_times=False, storage_options=options) as ds:
        np.testing.assert_array_equal(ds["v"].values, archive.values("/v"))
        assert ds["v"].dims[0] == "time"


def test_missing_chunks_are_plain_nulls(archive: HandArchive, tmp_path: Path) -> None:
    for a in archive.rows.scans[1].arrays:
        if a.spec.path == "/v":
            a.rows.state[:] = State.MISSING
            a.rows.offset[:] = -1
    emit(archive, tmp_path)
    table = pq.read_table(tmp_path / "out" / "refs" / "v" / "refs.0.parq")
    null = [p is None for p in table.column("path").to_pylist()]
    assert null == [False] * 6 + [True] * 6 + [False] * 6
    assert table.column("raw").null_count == len(table)
    got = group(str(tmp_path / "out" / "refs"))["v"][:]
    assert not got[3:6].any()
    np.testing.assert_array_equal(got[6:], archive.values("/v")[6:])


def test_a_partition_without_any_chunk_is_there_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    with h5py.File(tmp_path / "raw" / "a.nc", "w") as f:
        f.create_dataset("v", (9, 4), "f4", chunks=(1, 4))[8] = 1
    emit(hand_archive(tmp_path / "raw", ["a.nc"]), tmp_path, record_size=3)
    out = tmp_path / "out" / "refs" / "v"
    assert sorted(p.name for p in out.iterdir()) == ["refs.0.parq", "refs.1.parq", "refs.2.parq"]
    assert pq.read_table(out / "refs.0.parq").column("path").null_count == 3


def test_the_same_again_touches_nothing(archive: HandArchive, tmp_path: Path) -> None:
    first = emit(archive, tmp_path)
    stats = {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in (tmp_path / "out").rglob("*")}
    assert emit(archive, tmp_path) == first
    assert {p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in (tmp_path / "out").rglob("*")} == stats


def test_a_change_replaces_the_whole_and_leaves_nothing_beside(archive: HandArchive, tmp_path: Path) -> None:
    first = emit(archive, tmp_path, record_size=2)
    second = emit(archive, tmp_path, record_size=100)
    assert second.identity != first.identity
    assert len(files(tmp_path / "out" / "refs" / "v")) == 1
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["refs"]


@pytest.mark.parametrize("exchange", [True, False])
def test_folders_are_swapped_with_and_without_the_kernels_help(
    archive: HandArchive, tmp_path: Path, exchange: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ctypes

    if not exchange:
        monkeypatch.setattr(ctypes, "CDLL", lambda *a, **k: object())
    emit(archive, tmp_path, record_size=2)
    emit(archive, tmp_path, record_size=3)
    assert len(files(tmp_path / "out" / "refs" / "v")) == 6
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["refs"]


def test_a_failure_leaves_what_was_there(archive: HandArchive, tmp_path: Path) -> None:
    emit(archive, tmp_path)
    before = files(tmp_path / "out")

    def lost() -> None:
        raise LeaseError("lost", kind="lease-lost")

    with pytest.raises(LeaseError):
        emit(archive, tmp_path, record_size=2, fence=lost)
    os.utime(tmp_path / "raw" / "1.nc")
    with pytest.raises(GranuleChanged):
        emit(archive, tmp_path, record_size=2)
    assert files(tmp_path / "out") == before


def test_what_a_killed_writer_left_is_swept(archive: HandArchive, tmp_path: Path) -> None:
    left = tmp_path / "out" / "refs.0123.drystone-tmp" / "v"
    left.mkdir(parents=True)
    (left / "refs.0.parq").touch()
    other = tmp_path / "out" / "refs2"
    other.mkdir()
    emit(archive, tmp_path)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["refs", "refs2"]


def test_a_folder_of_somebody_else_is_left_alone(archive: HandArchive, tmp_path: Path) -> None:
    (tmp_path / "out" / "refs").mkdir(parents=True)
    (tmp_path / "out" / "refs" / "thesis.tex").write_text("x")
    with pytest.raises(ConfigError) as caught:
        emit(archive, tmp_path)
    assert caught.value.kind == "target-foreign"
    assert files(tmp_path / "out") == {"refs/thesis.tex": b"x"}


def test_bytes_are_the_same_in_two_places(archive: HandArchive, tmp_path: Path) -> None:
    one = emit(archive, tmp_path)
    two = KerchunkParquetEmitter().emit(archive.view(), LocalStore(tmp_path / "out2"), "refs", {})
    assert one.identity == two.identity
    assert files(tmp_path / "out") == files(tmp_path / "out2")


def test_what_cannot_be_said_is_named(archive: HandArchive, tmp_path: Path) -> None:
    for a in archive.rows.scans[1].arrays:
        if a.spec.path == "/v":
            a.rows.state[0] = State.LIBRARY
    with pytest.raises(UnsupportedError, match="/v: some of its chunks are in the state LIBRARY"):
        emit(archive, tmp_path)
    assert list((tmp_path / "out").iterdir()) == []
    with pytest.raises(ConfigError, match="record_size"):
        emit(archive, tmp_path, record_size=0)


def test_public_addresses(archive: HandArchive, tmp_path: Path) -> None:
    view = archive.view(public=(("raw:", "https://x.org/a%20b"),))
    KerchunkParquetEmitter().emit(view, LocalStore(tmp_path / "out"), "refs", {})
    table = pq.read_table(tmp_path / "out" / "refs" / "v" / "refs.0.parq")
    assert table.column("path")[0].as_py() == "https://x.org/a%20b/0.nc"


def test_unwritten_chunks_that_are_no_missing_data_get_bytes(tmp_path: Path) -> None:
    """HDF5's fill is 5 and _FillValue is 7: Zarr 2 has one field for both."""
    (tmp_path / "raw").mkdir()
    with h5py.File(tmp_path / "raw" / "a.nc", "w") as f:
        d = f.create_dataset("v", (4, 3), "i2", chunks=(1, 3), fillvalue=5)
        d.attrs["_FillValue"] = np.int16(7)
        d[0] = [7, 5, 0]
    archive = hand_archive(tmp_path / "raw", ["a.nc"])
    emit(archive, tmp_path)
    np.testing.assert_array_equal(group(str(tmp_path / "out" / "refs"))["v"][:], archive.values("/v"))
    with xr.open_dataset(str(tmp_path / "out" / "refs"), engine="kerchunk") as ds:
        np.testing.assert_array_equal(ds["v"].values, [[np.nan, 5, 0], [5, 5, 5], [5, 5, 5], [5, 5, 5]])


@pytest.mark.services
def test_on_an_object_store_the_metadata_goes_last(archive: HandArchive, tmp_path: Path, s3: Bucket) -> None:
    store = RemoteStore(f"{s3.url}/kerchunk-{time.time_ns()}", s3.options)
    emitter = KerchunkParquetEmitter()
    seen: list[bool] = []
    emitter.emit(archive.view(), store, "refs", {"fence": lambda: seen.append(store.exists("refs/.zmetadata"))})
    emitter.emit(
        archive.view(), store, "refs", {"record_size": 2, "fence": lambda: seen.append(store.exists("refs/.zmetadata"))}
    )
    one = emitter.emit(archive.view(), store, "refs", {"fence": lambda: seen.append(store.exists("refs/.zmetadata"))})
    assert seen == [False, False, False]
    keys = [k for k, _ in store.list("refs/")]
    assert keys == ["refs/.zmetadata", "refs/g/w/refs.0.parq", "refs/time/refs.0.parq", "refs/v/refs.0.parq"]
    # a granule that changed is found before anything there is touched
    stale = replace(archive.rows.granule(1), stamp=replace(archive.rows.granule(1).stamp, size=1))
    archive.rows.granules[1] = stale
    with pytest.raises(GranuleChanged):
        emitter.emit(archive.view(), store, "refs", {"record_size": 2})
    assert [k for k, _ in store.list("refs/")] == keys
    (tmp_path / "copy").mkdir()
    for key in keys:
        path = tmp_path / "copy" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.get(key))
    np.testing.assert_array_equal(group(str(tmp_path / "copy" / "refs"))["v"][:], archive.values("/v"))
    assert one.form == "kerchunk-parquet"

"""``show`` on files and stores that other software wrote."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import icechunk
import jsonschema
import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec

from drystone.cli import show as module
from drystone.cli.foreign import v3_array
from drystone.cli.main import main
from drystone.cli.show import show_path
from drystone.errors import ConfigError

SCHEMA = json.loads((Path(module.__file__).parent / "schemas" / "output.schema.json").read_text())


@pytest.fixture
def store(tmp_path: Path) -> str:
    path = tmp_path / "s.zarr"
    root = zarr.create_group(path)
    root.create_array(
        "g/sst",
        shape=(20, 6),
        chunks=(5, 3),
        shards=(10, 6),
        dtype="i2",
        compressors=BloscCodec(cname="zstd", clevel=3),
        dimension_names=("time", "y"),
    )
    root.create_array("time", shape=(20,), chunks=(20,), dtype="f8", compressors=None)
    return str(path)


def test_netcdf_file(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with h5py.File(path, "w") as f:
        d = f.create_dataset("sst", (4, 6), "f4", chunks=(2, 3), compression="gzip", shuffle=True)
        d[:2] = 1
        f["n"] = np.int32(3)
    shown = show_path(str(path))
    sst = next(a for a in shown.arrays if a.path == "/sst")
    assert shown.kind == "hdf5"
    assert (sst.shape, sst.chunk, sst.n_chunks, sst.stored_chunks) == ((4, 6), (2, 3), 4, 2)
    assert sst.codecs == ("shuffle (elementsize 4)", "zlib (level 4)")
    assert sst.stored_bytes is not None
    assert 0 < sst.stored_bytes < sst.raw_bytes == 96
    assert any("in 2 written chunks" in line for line in shown.lines())


@pytest.mark.parametrize("consolidated", [False, True])
def test_zarr_store(store: str, consolidated: bool) -> None:
    if consolidated:
        with pytest.warns(UserWarning, match="Consolidated metadata"):
            zarr.consolidate_metadata(store)
    shown = show_path(store)
    sst, time = shown.arrays
    assert (sst.path, sst.dims, sst.shape, sst.chunk, sst.shard) == ("/g/sst", ("time", "y"), (20, 6), (5, 3), (10, 6))
    assert sst.codecs[0].startswith("blosc (")
    assert (time.path, time.dims, time.shard, time.codecs, time.raw_bytes) == ("/time", ("dim_0",), None, (), 160)


def test_zarr_array_at_the_root(store: str) -> None:
    (only,) = show_path(f"{store}/time").arrays
    assert (only.path, only.shape) == ("/", (20,))


def test_only_some_arrays(store: str) -> None:
    assert [a.path for a in show_path(store, ("sst",)).arrays] == ["/g/sst"]
    with pytest.raises(ConfigError, match=r"no array 'anom' \(it has: /g/sst, /time\)"):
        show_path(store, ("anom",))


def test_rectilinear_grid() -> None:
    node = {
        "shape": [90, 4],
        "data_type": "float32",
        "chunk_grid": {
            "name": "rectilinear",
            "configuration": {"kind": "inline", "chunk_shapes": [[31, 28, 31], [[2, 2]]]},
        },
        "codecs": [{"name": "bytes"}],
    }
    array = v3_array("/sst", node)
    assert (array.chunk, array.note) == ((31, 2), "rectilinear grid: its largest chunk is drawn")


def test_kerchunk_parquet(tmp_path: Path) -> None:
    metadata = {
        ".zgroup": {"zarr_format": 2},
        "sst/.zarray": {
            "shape": [4, 6],
            "chunks": [1, 6],
            "dtype": "<i2",
            "compressor": {"id": "zlib", "level": 4},
            "filters": [{"id": "shuffle", "elementsize": 2}],
        },
        "sst/.zattrs": {"_ARRAY_DIMENSIONS": ["time", "x"]},
    }
    folder = tmp_path / "k.parq"
    folder.mkdir()
    (folder / ".zmetadata").write_text(json.dumps({"metadata": metadata, "record_size": 10}))
    (sst,) = show_path(str(folder)).arrays
    assert (sst.dims, sst.chunk, sst.raw_bytes) == (("time", "x"), (1, 6), 48)
    assert sst.codecs == ("shuffle (elementsize 2)", "zlib (level 4)")


def test_icechunk_repository(tmp_path: Path) -> None:
    icechunk.set_logs_filter("error")
    folder = tmp_path / "r.icechunk"
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(folder)))
    session = repo.writable_session("main")
    zarr.create_group(session.store).create_array("a/x", shape=(9,), chunks=(3,), dtype="u1")
    session.commit("one array")
    shown = show_path(str(folder))
    assert (shown.kind, [(a.path, a.chunk) for a in shown.arrays]) == ("icechunk", [("/a/x", (3,))])


def test_config(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("name: sst\ngranules: x\noutputs: [{store: zarr, at: y}]\n")
    shown = show_path(str(path))
    assert shown.kind == "config"
    assert any("store zarr at here:y" in line for line in shown.lines())


def test_what_is_not_there_or_not_known(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is nothing at"):
        show_path(str(tmp_path / "no.nc"))
    (tmp_path / "readme.txt").write_text("x")
    with pytest.raises(ConfigError, match=r"holds readme\.txt, and no store that is known"):
        show_path(str(tmp_path))
    (tmp_path / "zarr.json").write_text("{")
    with pytest.raises(ConfigError, match=r"zarr\.json is no metadata"):
        show_path(str(tmp_path))


def test_command(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", store, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator({**SCHEMA, "anyOf": [{"$ref": "#/$defs/show"}]}).validate(document)
    assert main(["show", store, "--array", "sst"]) == 0
    out = capsys.readouterr().out
    assert "2 shards of 10" in out
    assert "┃" not in out.split("time 20")[0]
    assert main(["show", f"{store}/no"]) == 2

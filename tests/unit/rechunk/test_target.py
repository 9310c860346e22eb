"""The target's metadata, against zarr's own and as xarray reads it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xarray
import zarr

from drystone.codecs.chain import CodecChain
from drystone.errors import UnsupportedError
from drystone.model.array import GroupSpec
from drystone.model.attributes import Attributes
from drystone.plan.layout import TargetLayout
from drystone.plan.target_codecs import target_codecs
from drystone.rechunk.target import is_published, prepare, publish, stray_objects
from drystone.storage.local import LocalStore


def layout(path: str, shape: tuple[int, ...], dtype: str | np.dtype, **more: object) -> TargetLayout:
    t = np.dtype(dtype)
    fill = b"" if t.kind == "T" else bytes(t.itemsize)
    given: dict[str, object] = {"chunk": tuple(max(n, 1) for n in shape), "shard": None, "codecs": target_codecs((), t)}
    given |= {"fill": fill, "attributes": Attributes()} | more
    return TargetLayout(path, tuple("tyx"[: len(shape)]), shape, t, **given)  # type: ignore[arg-type]


LAYOUTS = [
    layout("/t", (6,), "f8", attributes=Attributes.of({"units": "days since 2000-01-01"})),
    layout("/names", (6,), np.dtypes.StringDType(), fill=b""),
    layout("/scalar", (), "i4"),
    layout("/none/empty", (0,), "i2"),
    layout(
        "/deep/er/v", (6, 8, 4), ">i2", chunk=(2, 4, 4), shard=(4, 8, 4), attributes=Attributes.of({"_FillValue": np.int16(-9)})
    ),
    layout("/f", (6, 8), "f4", fill=np.float32(np.nan).tobytes(), attributes=Attributes.of({"_FillValue": np.float32(1e37)})),
]
GROUPS = [
    GroupSpec("/", Attributes.of({"title": "°C", "limit": np.float32(np.inf), "n": np.int64(2**60)})),
    GroupSpec("/deep", Attributes.of({"note": "x"})),
]
VALUES = {
    "/t": np.arange(6.0),
    "/names": np.array(["a", "", "ü", "日本", "x" * 40, ""], np.dtypes.StringDType()),
    "/scalar": np.array(7, "i4"),
    "/none/empty": np.zeros(0, "i2"),
}


@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")
def test_zarr_consolidates_the_same_document(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    prepare(store, "s", LAYOUTS, GROUPS, VALUES)
    publish(store, "s", LAYOUTS, GROUPS)
    ours = store.get("s/zarr.json")
    zarr.consolidate_metadata(str(tmp_path / "s"))
    theirs = json.loads(store.get("s/zarr.json"))
    ours_json = json.loads(ours)
    members = ours_json["consolidated_metadata"]["metadata"]
    assert list(members) == list(theirs["consolidated_metadata"]["metadata"])
    for path, document in theirs["consolidated_metadata"]["metadata"].items():
        for codec in document.get("codecs", ()):
            if not codec.get("configuration", True):
                del codec["configuration"]  # an empty one may be there or not
        for key, value in document.items():
            assert members[path].get(key) == value, (path, key)
    assert ours_json["attributes"] == theirs["attributes"]


def test_values_and_attributes_come_back(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    prepare(store, "s", LAYOUTS, GROUPS, VALUES)
    publish(store, "s", LAYOUTS, GROUPS)
    group = zarr.open_group(str(tmp_path / "s"), mode="r")
    for path, values in VALUES.items():
        read = group[path.strip("/")]
        assert isinstance(read, zarr.Array)
        assert np.array_equal(np.asarray(read[...]), np.asarray(values.tolist() if values.dtype.kind == "T" else values)), path
    root = xarray.open_zarr(str(tmp_path / "s"), chunks=None, mask_and_scale=False)
    assert root.attrs["title"] == "°C"
    assert root["f"].attrs["_FillValue"] == np.float32(1e37)
    deep = xarray.open_zarr(str(tmp_path / "s"), group="deep/er", chunks=None, mask_and_scale=False)
    assert deep["v"].attrs["_FillValue"] == -9
    assert (deep["v"].values == 0).all()


def test_invisible_until_published_and_quiet_when_repeated(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    assert prepare(store, "s", LAYOUTS, GROUPS, VALUES) > 0
    assert not is_published(store, "s")
    with pytest.raises((FileNotFoundError, zarr.errors.GroupNotFoundError)):
        zarr.open_group(str(tmp_path / "s"), mode="r")
    assert publish(store, "s", LAYOUTS, GROUPS)
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}
    assert prepare(store, "s", LAYOUTS, GROUPS, VALUES) == 0
    assert not publish(store, "s", LAYOUTS, GROUPS)
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()} == before


def test_changed_metadata_takes_the_root_away_first(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    prepare(store, "s", LAYOUTS, GROUPS, VALUES)
    publish(store, "s", LAYOUTS, GROUPS)
    changed = [layout("/t", (7,), "f8"), *LAYOUTS[1:]]
    prepare(store, "s", changed, GROUPS, VALUES | {"/t": np.arange(7.0)})
    assert not is_published(store, "s")


def test_no_form_means_nothing_written(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    odd = np.dtype([("a", "i2", (2,))])
    bad = TargetLayout("/odd", ("t",), (3,), odd, (3,), None, CodecChain.of("bytes"), bytes(4))
    with pytest.raises(UnsupportedError):
        prepare(store, "s", [*LAYOUTS, bad], GROUPS, VALUES)
    assert list(store.list()) == []


def test_compound_values(tmp_path: Path) -> None:
    """Gaps between fields are the file's, not Zarr's."""
    aligned = np.dtype([("a", "i2"), ("b", "f8")], align=True)
    values = np.zeros(5, aligned)
    values["a"], values["b"] = np.arange(5), np.arange(5) / 4
    one = TargetLayout("/c", ("t",), (5,), aligned, (5,), None, target_codecs((), aligned), bytes(10))
    store = LocalStore(tmp_path)
    prepare(store, "s", [one], [], {"/c": values})
    publish(store, "s", [one], [])
    read = zarr.open_group(str(tmp_path / "s"), mode="r")["c"]
    assert isinstance(read, zarr.Array)
    got = np.asarray(read[...])
    assert got["a"].tolist() == values["a"].tolist()
    assert got["b"].tolist() == values["b"].tolist()


def test_strays_are_chunks_outside_the_grid_only() -> None:
    names = ["t/c/0", "t/c/1", "deep/er/v/c/0/0/0", "deep/er/v/c/2/0/0", "deep/er/v/c/0", "scalar/c", "scalar/c/0", "mine.txt"]
    assert stray_objects(LAYOUTS, names) == ["t/c/1", "deep/er/v/c/2/0/0", "deep/er/v/c/0", "scalar/c/0"]

"""Odd files: one strange thing is named with its reason, and the rest of the file goes on."""

import os

import h5py
import netCDF4
import numpy as np
import pytest
from h5py import h5a, h5s, h5t
from scanned_values import by_path, scan, source_of, values_of

from drystone.errors import GranuleMissing, ScanError, StorageError
from drystone.model.chunk_rows import ScanResult, State
from drystone.protocols import ScanOptions, Source
from drystone.scan.hdf5 import Hdf5Scanner, attributes, header_attributes
from drystone.storage.hdf5_library import read_box
from drystone.storage.local import LocalStore


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.h5"


def refused(result: ScanResult):
    return {r.path: r.kind for r in result.refusals}


def test_types_without_a_form_are_refused_by_name(path):
    with h5py.File(path, "w") as f:
        f["good"] = np.arange(3)
        f.create_dataset("refs", (2,), h5py.ref_dtype)
        f.create_dataset("regions", (2,), h5py.regionref_dtype)
        f.create_dataset("ragged", (2,), h5py.vlen_dtype("i4"))
        f.create_dataset("mixed", (2,), np.dtype([("a", "i4"), ("s", h5py.string_dtype())]))
        f.create_dataset("long", (2,), np.longdouble)
        f["latin"] = np.array([b"\xb0C"], object)
        h5py.h5d.create(
            f.id, b"latin1", h5t.TypeID.copy(h5t.py_create(h5py.string_dtype(), logical=True)), h5s.create_simple((1,))
        )
        f["latin1"][0] = b"\xb0C"
        f.create_dataset("null", data=h5py.Empty("f4"))
        f.create_dataset("deep", (1,) * 9, "i1")
        f["type"] = np.dtype("<f8")  # a named type holds no values
    result = scan(path)
    kinds = refused(result)
    assert kinds == {
        "/refs": "reference",
        "/regions": "reference",
        "/ragged": "variable-length",
        "/mixed": "variable-length",
        "/long": "long-double",
        "/latin": "text",
        "/latin1": "text",
        "/null": "null-dataspace",
        "/deep": "rank",
    }
    for r in result.refusals:
        assert r.reason.startswith(f"{r.path}: ")
    assert by_path(result).keys() == {"/good"}


def test_links(path, tmp_path):
    with h5py.File(path, "w") as f:
        f["a/v"] = np.arange(3)
        f["a/up"] = f["/"]  # a cycle
        f["b"] = f["a"]  # a second name
        f["w"] = f["a/v"]
        f["soft"] = h5py.SoftLink("/a/v")
        f["broken"] = h5py.SoftLink("/nowhere")
        f["gone"] = h5py.ExternalLink("gone.h5", "/v")
        f["outside"] = h5py.ExternalLink("/etc/hostname", "/v")
        f["climbs"] = h5py.ExternalLink("../x.h5", "/v")
        f["self"] = h5py.ExternalLink("x.h5", "/nothing")
        f["far"] = h5py.ExternalLink("other.h5", "/a")
    with h5py.File(tmp_path / "other.h5", "w") as f:
        f.create_group("a")
    result = scan(path)
    # the name nearest to the root is kept
    assert by_path(result).keys() == {"/w"}
    assert {w.path: w.kind for w in result.warnings} == {
        "/a/up": "hard-link",
        "/b": "hard-link",
        "/broken": "dangling-link",
    }
    assert refused(result) == {
        "/a/v": "hard-link",
        "/soft": "soft-link",
        "/gone": "missing",
        "/outside": "outside",
        "/climbs": "outside",
        "/self": "missing",
        "/far": "external-link",
    }
    assert [c.address for c in result.companions] == ["raw:other.h5"]


def test_a_symbolic_link_leads_nowhere_outside(tmp_path):
    place, elsewhere = tmp_path / "place", tmp_path / "elsewhere"
    place.mkdir()
    elsewhere.mkdir()
    with h5py.File(elsewhere / "other.h5", "w") as f:
        f["v"] = np.arange(3)
    os.symlink(elsewhere / "other.h5", place / "other.h5")
    with h5py.File(place / "x.h5", "w") as f:
        f["link"] = h5py.ExternalLink("other.h5", "/v")
        layout = h5py.VirtualLayout((3,), "<i8")
        layout[:] = h5py.VirtualSource("other.h5", "v", (3,))
        f.create_virtual_dataset("virtual", layout)
        f.create_dataset("raw", (3,), "<i8", external=[(str(elsewhere / "other.h5"), 0, 24)])
    assert refused(scan(place / "x.h5")) == {"/link": "outside", "/virtual": "outside", "/raw": "outside"}


def pattern(f):
    """A virtual dataset over p0.h5, p1.h5 and so on, for as many as there are."""
    space = h5s.create_simple((3,), (h5s.UNLIMITED,))
    space.select_hyperslab((0,), (h5s.UNLIMITED,), stride=(3,), block=(3,))
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_virtual(space, b"p%b.h5", b"v", h5s.create_simple((3,)))
    h5py.h5d.create(f.id, b"pattern", h5t.STD_I64LE, h5s.create_simple((3,), (h5s.UNLIMITED,)), plist)


def test_virtual_dataset_over_a_pattern_of_files(path, tmp_path):
    for i in range(3):
        with h5py.File(tmp_path / f"p{i}.h5", "w") as f:
            f["v"] = np.arange(3) + 10 * i
    with h5py.File(path, "w") as f:
        pattern(f)
    result = scan(path)
    assert values_of(by_path(result)["/pattern"], path).tolist() == [0, 1, 2, 10, 11, 12, 20, 21, 22]
    assert [c.address for c in result.companions] == ["raw:p0.h5", "raw:p1.h5", "raw:p2.h5"]


def test_missing_sources_of_virtual_datasets_are_never_fill_values(path, tmp_path):
    with h5py.File(tmp_path / "there.h5", "w") as f:
        f["v"] = np.arange(3)
    with h5py.File(path, "w") as f:
        for name, file, dataset in (("file", "gone.h5", "v"), ("dataset", "there.h5", "nothing")):
            layout = h5py.VirtualLayout((3,), "<i8")
            layout[:] = h5py.VirtualSource(file, dataset, (3,))
            f.create_virtual_dataset(name, layout)
        pattern(f)
        f.create_dataset("short", (30,), "<i8", external=[("there.h5", 10**6, 240)])
    result = scan(path)
    assert refused(result) == {"/file": "missing", "/dataset": "missing", "/pattern": "missing", "/short": "missing"}
    assert result.arrays == ()


def test_virtual_over_virtual(path, tmp_path):
    with h5py.File(tmp_path / "c.h5", "w") as f:
        f["v"] = np.arange(3)
    for name, source in (("b.h5", "c.h5"), ("x.h5", "b.h5")):
        with h5py.File(tmp_path / name, "w") as f:
            layout = h5py.VirtualLayout((3,), "<i8")
            layout[:] = h5py.VirtualSource(source, "v", (3,))
            f.create_virtual_dataset("v", layout)
            layout = h5py.VirtualLayout((3,), "<i8")
            layout[:] = h5py.VirtualSource(".", "v", (3,))
            f.create_virtual_dataset("same_file", layout)
    result = scan(path)
    assert [c.address for c in result.companions] == ["raw:b.h5", "raw:c.h5"]
    assert {n: values_of(a, path).tolist() for n, a in by_path(result).items()} == {"/v": [0, 1, 2], "/same_file": [0, 1, 2]}
    (tmp_path / "c.h5").unlink()
    assert refused(scan(path)) == {"/v": "missing", "/same_file": "missing"}


def test_inline_budget(path):
    with h5py.File(path, "w") as f:
        f["small"] = np.array(["a", "b"], object)
        f["large"] = np.array(["x" * 1000] * 10, object)
        f.create_dataset("many", (10**9,), h5py.string_dtype(), chunks=(1000,))
        f["numbers"] = np.arange(3)
    result = scan(path, inline_budget=5000)
    assert refused(result) == {"/large": "inline-budget", "/many": "inline-budget"}
    assert by_path(result).keys() == {"/small", "/numbers"}


def test_every_element_pointing_at_one_large_text_is_not_read(path):
    with h5py.File(path, "w") as f:
        d = f.create_dataset("v", (100_000,), h5py.string_dtype())
        d[0] = "x" * 100_000
        offset = d.id.get_offset()
    with open(path, "r+b") as f:
        f.seek(offset)
        one = f.read(16)
        f.seek(offset)
        f.write(one * 100_000)
    assert refused(scan(path)) == {"/v": "inline-budget"}


def odd_attributes(f):
    d = f.create_dataset("v", data=np.arange(3, dtype="f4"))
    for holder in (f, d):
        a = holder.attrs
        a["inf"] = np.float32(np.inf)
        a["nan_bits"] = np.frombuffer(bytes.fromhex("0100c07f"), "<f4")[0]
        a["vec"] = np.array([1.5, np.nan, -np.inf], ">f8")
        a["max"] = np.uint64(2**64 - 1)
        a["latin"] = np.bytes_(b"\xb0C")
        a["latin_list"] = np.array([b"\xb0C", b"ok"])
        a["one"] = np.array([7], "i2")
        a["scale_factor"] = np.array([7], ">f4")
        a["matrix"] = np.arange(6, dtype="i2").reshape(2, 3)
        a["empty"] = ""
        a["null"] = h5py.Empty("f4")
        a["null_text"] = h5py.Empty("S1")
        a["text"] = "é"
        a["texts"] = ["a", "", "é"]
        a.create("fixed", np.array([b"ab", b"c"], "S4"))
        a["flag"] = True
        a["half"] = np.float16(1.5)
        a.create("enum", np.array([1, 0], "i1"), dtype=h5py.enum_dtype({"A": 0, "B": 1}, basetype="i1"))
        a["ref"] = f.ref
        a.create("refs", [d.ref, f.ref], dtype=h5py.ref_dtype)
        a["complex"] = 1 + 2j
        a["compound"] = np.array([(1, 2.5)], np.dtype([("a", "<i4"), ("b", ">f8")]))
        ragged = np.empty(1, object)
        ragged[0] = np.array([1, 2, 3], "i4")
        a.create("ragged", ragged, dtype=h5py.vlen_dtype("i4"))
        a["CLASS"] = "not a scale"
        a["NAME"] = "a name"
    # what cannot be kept
    d.attrs.create("long", np.longdouble(1) / 3)
    d.attrs.create("ragged2", np.array([np.array([1], "i4"), np.array([2, 3], "i4")], object), dtype=h5py.vlen_dtype("i4"))
    d.attrs.create("mixed", np.array([(1, "x")], np.dtype([("a", "i4"), ("s", h5py.string_dtype())])))
    aid = h5a.create(d.id, b"\xb0name", h5t.STD_I32LE, h5s.create(h5s.SCALAR))
    aid.write(np.array(5, "<i4"))


def check_attributes(found, holder):
    python = {n: a.value for n, a in found.items_}
    assert python["inf"] == np.inf
    assert python["nan_bits"].tobytes().hex() == "0100c07f"
    assert python["vec"].tobytes() == np.array([1.5, np.nan, -np.inf], "<f8").tobytes()
    assert python["max"] == 2**64 - 1
    assert python["latin"] == b"\xb0C"
    assert found["latin_list"].dtype == "bytes"
    assert python["one"].tolist() == [7]
    assert python["scale_factor"].tolist() == 7  # CF means one number
    assert python["matrix"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert python["empty"] == ""
    assert (python["null"].shape, python["null"].dtype) == ((0,), np.dtype("<f4"))
    assert python["null_text"] == ""
    assert python["text"] == "é"
    assert python["texts"] == ["a", "", "é"]
    assert python["fixed"] == ["ab", "c"]
    assert python["flag"].dtype == bool
    assert python["half"] == 1.5
    assert python["enum"].tolist() == [1, 0]
    assert python["ref"] == "/"
    assert python["refs"] == ["/v", "/"]
    assert python["complex"] == 1 + 2j
    assert python["compound"] == np.array([(1, 2.5)], np.dtype([("a", "<i4"), ("b", ">f8")])).tobytes()
    assert python["ragged"].tolist() == [1, 2, 3]
    assert (python["CLASS"], python["NAME"]) == ("not a scale", "a name")


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("through_library", [False, True])
def test_attributes_of_every_kind(path, monkeypatch, libver, through_library):
    if through_library:
        monkeypatch.setattr(attributes, "header_attributes", lambda file, header: None)
    with h5py.File(path, "w", libver=libver) as f:
        odd_attributes(f)
    result = scan(path)
    check_attributes(result.groups[0].attributes, "/")
    array = by_path(result)["/v"]
    check_attributes(array.spec.attributes, "/v")
    assert array.spec.attributes["°name"].value == 5
    assert sorted(w.reason.split("'")[1] for w in result.warnings) == ["long", "mixed", "ragged2"]
    assert result.refusals == ()


def test_header_and_library_agree(path, monkeypatch):
    with h5py.File(path, "w", track_order=True) as f:
        odd_attributes(f)
    mine = scan(path)
    monkeypatch.setattr(attributes, "header_attributes", lambda file, header: None)
    theirs = scan(path)
    assert mine.groups == theirs.groups
    assert [a.spec for a in mine.arrays] == [a.spec for a in theirs.arrays]


def test_a_huge_attribute_is_left_out(path):
    with h5py.File(path, "w", libver="latest") as f:
        f["v"] = 1
        f["v"].attrs["ok"] = 1
        f["v"].attrs["huge"] = np.zeros(1_000_000)
    result = scan(path)
    assert list(by_path(result)["/v"].spec.attributes) == ["ok"]
    assert "8000000 bytes" in result.warnings[0].reason


def test_a_heap_of_zeros_ends(path):
    # the library itself never comes back from such a file
    with h5py.File(path, "w") as f:
        f["v"] = np.array(["one", "two"], object)
        f["v"].attrs["a"] = ["x", "y"]
        f["n"] = np.arange(3)
    data = path.read_bytes()
    at = data.index(b"GCOL")
    size = int.from_bytes(data[at + 8 : at + 16], "little")
    path.write_bytes(data[: at + 16] + bytes(size - 16) + data[at + size :])
    result = scan(path)
    assert refused(result) == {"/v": "heap"}
    assert by_path(result).keys() == {"/n"}
    # the attribute's reason, where the array is not refused
    assert [w.kind for w in result.warnings] == ["attribute"]


def test_missing_and_unreadable_files(tmp_path):
    store = LocalStore(tmp_path)
    source = Source(store, "gone.nc", "raw:gone.nc", source_of(tmp_path).stamp)
    with pytest.raises(GranuleMissing, match=r"gone\.nc"):
        Hdf5Scanner().scan(source, ScanOptions())
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match="folder"):
        Hdf5Scanner().scan(Source(store, "folder", "raw:folder", source.stamp), ScanOptions())


def test_a_chunk_beyond_the_end_of_the_file(path):
    with h5py.File(path, "w") as f:
        f.create_dataset("v", data=np.arange(1000), chunks=(100,))
    with h5py.File(path) as f:
        last = max(f["v"].id.get_chunk_info(i).byte_offset for i in range(10))
    data = bytearray(path.read_bytes())
    # a superblock that claims less, so that only the index tells
    data[40:48] = (last + 100).to_bytes(8, "little")
    path.write_bytes(data[: last + 100])
    with pytest.raises(ScanError) as caught:
        scan(path)
    assert caught.value.kind in ("truncated", "unreadable")


def test_a_file_that_is_open_already(path):
    with h5py.File(path, "w") as f:
        f["v"] = np.arange(3)
    with h5py.File(path) as f:
        assert f["v"][0] == 0
        assert scan(path).refusals == ()


def test_scans_of_one_file_are_equal(path):
    with h5py.File(path, "w") as f:
        odd_attributes(f)
    assert scan(path).digest() == scan(path).digest()
    assert header_attributes is not None


def test_boxes_through_the_library(path):
    store = LocalStore(path.parent)
    with h5py.File(path, "w") as f:
        f.create_dataset("v", data=np.arange(12, dtype=">i4").reshape(3, 4), chunks=(2, 2), scaleoffset=0)
        f["text"] = np.array(["a", "é"], object)
        f.create_dataset("inner", (3,), np.dtype(("<f4", (2,))))[...] = np.arange(6).reshape(3, 2)
        f.create_dataset("enum", data=[1, 0], dtype=h5py.enum_dtype({"A": 0, "B": 1}, basetype=">i2"))
        f["scalar"] = 5
    out = read_box(store, path.name, "/v", (1, 1), (3, 3))
    assert out.tolist() == [[5, 6], [9, 10]]
    assert out.dtype == np.dtype("i4")
    assert out.dtype.isnative
    assert read_box(store, path.name, "/text", (1,), (2,)).tolist() == ["é"]
    assert read_box(store, path.name, "/inner", (1, 1), (3, 2)).tolist() == [[3], [5]]
    assert read_box(store, path.name, "/scalar", (), ()) == 5
    enum = read_box(store, path.name, "/enum", (0,), (2,))
    assert (enum.tolist(), enum.dtype, enum.dtype.metadata) == ([1, 0], np.dtype("i2"), None)
    with pytest.raises(StorageError, match="nothing") as caught:
        read_box(store, path.name, "/nothing", (0,), (1,))
    assert caught.value.kind == "library"
    with pytest.raises(StorageError, match="ends at"):
        read_box(store, path.name, "/v", (0, 0), (4, 1))


def test_array_type_with_states(path):
    with h5py.File(path, "w") as f:
        f.create_dataset("v", (5,), np.dtype((">i2", (2, 3))), chunks=(2,))
    array = by_path(scan(path))["/v"]
    assert (array.spec.shape, array.spec.chunk_shape) == ((5, 2, 3), (2, 2, 3))
    assert (array.rows.state == State.MISSING).all()
    assert len(array.rows) == 3


def test_a_heap_of_zeros_ends_for_netcdf_text_and_dimension_lists(path):
    with netCDF4.Dataset(path, "w") as nc:
        nc.createDimension("x", 3)
        nc.createVariable("s", str, ("x",))[:] = np.array(["a", "b", "c"], object)
        nc.createVariable("n", "i4", ("x",))[:] = [1, 2, 3]
    data = path.read_bytes()
    at = data.index(b"GCOL")
    while at >= 0:
        size = int.from_bytes(data[at + 8 : at + 16], "little")
        data = data[: at + 16] + bytes(size - 16) + data[at + size :]
        at = data.find(b"GCOL", at + 1)
    path.write_bytes(data)
    result = scan(path)
    assert refused(result) == {"/s": "heap"}
    assert by_path(result).keys() == {"/n"}
    # netCDF's own numbers still name the dimension
    assert by_path(result)["/n"].spec.dims == ("x",)

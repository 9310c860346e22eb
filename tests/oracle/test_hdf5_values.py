"""Every kind of HDF5 dataset: values assembled from scanned rows against values that h5py reads."""

import ctypes
import os
import pathlib
import subprocess
import sys

import h5py
import hdf5plugin
import numpy as np
import pytest
from h5py import h5d, h5p, h5s, h5t
from scanned_values import by_path, scan, values_of

from drystone.model.chunk_rows import State

RNG = np.random.default_rng(3)


def numbers(shape, dtype):
    return RNG.integers(0, 100, shape).astype(dtype)


def plain_dtypes(f):
    for i, dtype in enumerate(
        ["i1", "u1", "<i2", ">i2", "<u4", ">u8", "<f2", ">f4", "<f8", ">f8", "<c8", ">c16", "?", "S5", "V6"]
    ):
        data = numbers((7, 5), "u1").astype(dtype) if dtype != "V6" else np.frombuffer(RNG.bytes(7 * 5 * 6), "V6").reshape(7, 5)
        f.create_dataset(f"contiguous{i}", data=data)
        f.create_dataset(f"chunked{i}", data=data, chunks=(3, 2))
        if dtype != "V6":
            f.create_dataset(f"packed{i}", data=data, chunks=(3, 2), compression="gzip", shuffle=True, fletcher32=True)
        f.create_dataset(f"scalar{i}", data=data[0, 0])


def filters(f):
    data = numbers((40, 30), "<i4")
    for i, kw in enumerate(
        [
            {"compression": "gzip", "compression_opts": 9},
            {"compression": "lzf"},
            {"compression": "lzf", "shuffle": True},
            {"fletcher32": True},
            {"shuffle": True, "fletcher32": True, "compression": "gzip"},
            {"scaleoffset": 0},
            {"compression": "szip"},
            {**hdf5plugin.Blosc(cname="zstd", clevel=3, shuffle=hdf5plugin.Blosc.BITSHUFFLE)},
            {**hdf5plugin.Blosc(cname="lz4", clevel=0)},
            {**hdf5plugin.Zstd(clevel=-3)},
            {**hdf5plugin.LZ4()},
            {**hdf5plugin.Bitshuffle()},
            {**hdf5plugin.BZip2()},
            {**hdf5plugin.Blosc2(cname="zstd")},
        ]
    ):
        f.create_dataset(f"v{i}", data=data, chunks=(16, 16), **kw)


def filter_order(f):
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_chunk((8,))
    plist.set_fletcher32()
    plist.set_shuffle()
    plist.set_deflate(4)
    d = h5d.create(f.id, b"v", h5t.IEEE_F64LE, h5s.create_simple((20,)), plist)
    d.write(h5s.ALL, h5s.ALL, np.linspace(0, 1, 20))


def filter_masks(f):
    d = f.create_dataset("v", (4, 8), "<i4", chunks=(2, 4), compression="gzip", shuffle=True)
    d[...] = np.arange(32).reshape(4, 8)
    d.id.write_direct_chunk((0, 4), np.arange(8, dtype="<i4").tobytes(), filter_mask=0b11)
    shuffled = np.frombuffer(np.arange(100, 108, dtype="<i4").tobytes(), "u1").reshape(8, 4).T.tobytes()
    d.id.write_direct_chunk((2, 0), shuffled, filter_mask=0b10)


def enums(f):
    kind = h5py.enum_dtype({"RED": 0, "BLUE": 300}, basetype=">i2")
    f.create_dataset("enum", data=np.array([0, 300, 300], ">i2"), dtype=kind, fillvalue=300)
    f.create_dataset("unwritten", (5,), dtype=kind, chunks=(2,), fillvalue=300)
    f.create_dataset("flag", data=np.array([[True, False], [False, True]]), chunks=(1, 2), compression="gzip")


def compounds(f):
    padded = np.dtype([("a", "i1"), ("b", ">f8"), ("c", "S3")], align=True)
    gaps = np.dtype({"names": ["x", "y"], "formats": ["<i2", ">f4"], "offsets": [8, 0], "itemsize": 12})
    nested = np.dtype([("one", padded), ("grid", "<i2", (2, 3)), ("z", "<c8"), ("ok", "?")])
    for name, dtype in {"padded": padded, "gaps": gaps, "nested": nested}.items():
        data = np.zeros(6, dtype)
        for i in range(6):
            data[i] = np.frombuffer(bytes(RNG.integers(0, 2, dtype.itemsize, "u1")), dtype)[0]
        f.create_dataset(name, data=data)
        f.create_dataset(f"{name}_chunked", data=data, chunks=(4,), compression="gzip", shuffle=True)


def array_types(f):
    dtype = np.dtype((">f4", (2, 3)))
    for name, chunks in {"contiguous": None, "chunked": (2,)}.items():
        d = f.create_dataset(name, (5,), dtype, chunks=chunks)
        d[...] = numbers((5, 2, 3), ">f4")


def opaque(f):
    f.create_dataset("when", data=np.array(["2020-01-01", "1999-12-31"], "M8[ns]").astype(h5py.opaque_dtype("M8[ns]")))
    h5d.create(f.id, b"bits", h5t.STD_B16BE, h5s.create_simple((4,))).write(
        h5s.ALL, h5s.ALL, np.arange(4, dtype=">u2"), h5t.STD_B16BE
    )


def strange_numbers(f):
    twelve = h5t.STD_I16LE.copy()
    twelve.set_precision(12)
    bfloat = h5t.IEEE_F16LE.copy()
    bfloat.set_fields(15, 7, 8, 0, 7)
    bfloat.set_ebias(127)
    for name, tid, dtype in ((b"twelve", twelve, "<i2"), (b"bfloat", bfloat, "<f4")):
        plist = h5p.create(h5p.DATASET_CREATE)
        plist.set_chunk((4,))
        for suffix, how in ((b"", None), (b"_chunked", plist)):
            d = h5d.create(f.id, name + suffix, tid, h5s.create_simple((10,)), how)
            d.write(h5s.ALL, h5s.ALL, np.arange(-5, 5).astype(dtype))


def texts(f):
    kind = h5py.string_dtype()
    f.create_dataset("scalar", data="héllo", dtype=kind)
    f.create_dataset("some", data=np.array([["a", ""], ["béta", "x" * 5000]], object), dtype=kind)
    f.create_dataset(
        "chunked", data=np.array([f"n{i}" for i in range(100)], object), dtype=kind, chunks=(7,), compression="gzip"
    )
    f.create_dataset("fixed", data=np.array([b"ab", b"", b"c"], "S4"))
    f.create_dataset("fixed_utf8", data=np.array(["é".encode()], "S4").astype(h5py.string_dtype("utf-8", 4)))


def unwritten(f):
    f.create_dataset("contiguous", (3, 4), "<f4", fillvalue=np.float32(2.5))
    f.create_dataset("plain", (3, 4), "<f4")
    d = f.create_dataset("chunked", (10, 10), ">i4", chunks=(3, 3), fillvalue=-7)
    d[4, 4] = 1
    e = f.create_dataset("deflated", (10, 10), "<i2", chunks=(4, 4), fillvalue=9, compression="gzip", shuffle=True)
    e[9, 9] = 1


def sparse(f):
    big = f.create_dataset("sparse", (1100, 1000), "<i1", chunks=(2, 2), fillvalue=3)
    big[12, 345] = 1
    big[1099, 999] = 2


def undefined_fill(f):
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_chunk((4,))
    plist.set_fill_time(h5d.FILL_TIME_NEVER)
    h5d.create(f.id, b"v", h5t.STD_I32LE, h5s.create_simple((10,)), plist)


def extents(f):
    f.create_dataset("empty", (0, 3), "<f4", chunks=(2, 3), maxshape=(None, 3))
    f.create_dataset("nothing", (0,), "<i2")
    f.create_dataset("one", data=np.int64(5))
    f.create_dataset("grown", data=numbers((5, 3), "<i2"), maxshape=(None, 3), chunks=(4, 2), compression="gzip")
    d = f.create_dataset("shrunk", data=numbers((9, 3), "<i2"), maxshape=(None, 3), chunks=(4, 2))
    d.resize((5, 3))
    f.create_dataset("wide_chunk", data=numbers((2, 2), "<i2"), chunks=(8, 8), maxshape=(None, None))
    f.create_dataset("eight", data=numbers((2,) * 8, "i1"), chunks=(1,) * 8)


def compact(f):
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_layout(h5d.COMPACT)
    for name, tid, dtype, shape in (
        (b"little", h5t.STD_I32LE, "<i4", (30, 40)),
        (b"big", h5t.IEEE_F64BE, "<f8", ()),
        (b"u", h5t.STD_U8LE, "u1", (3,)),
    ):
        space = h5s.create_simple(shape) if shape else h5s.create(h5s.SCALAR)
        h5d.create(f.id, name, tid, space, plist).write(h5s.ALL, h5s.ALL, numbers(shape, dtype))


def chunk_indexes(f):
    data = numbers((40, 60), "<i4")
    f.create_dataset("single", data=data, chunks=(40, 60))
    f.create_dataset("single_filtered", data=data, chunks=(40, 60), compression="gzip")
    f.create_dataset("fixed", data=data, chunks=(3, 3), compression="gzip")
    f.create_dataset("extensible", data=data, chunks=(3, 3), maxshape=(None, 60))
    f.create_dataset("btree2", data=data, chunks=(3, 3), maxshape=(None, None), compression="gzip")
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_chunk((4, 6))
    plist.set_alloc_time(h5d.ALLOC_TIME_EARLY)
    h5d.create(f.id, b"implicit", h5t.STD_I32LE, h5s.create_simple((40, 60)), plist).write(h5s.ALL, h5s.ALL, data)


def groups(f):
    f.create_dataset("a/b/c/v", data=numbers((3,), "<i2"))
    f.create_dataset("a/w", data=numbers((3,), "<i2"))
    f.create_dataset("été/x y", data=numbers((3,), "<i2"))


BUILDERS = [
    plain_dtypes,
    filters,
    filter_order,
    filter_masks,
    enums,
    compounds,
    array_types,
    opaque,
    strange_numbers,
    texts,
    unwritten,
    undefined_fill,
    extents,
    compact,
    chunk_indexes,
    groups,
]


def build(builder, path, **kw):
    if builder is filters and __name__ != "__main__":
        # netCDF4 puts its own filter plugins on the path when it is imported, and those cannot write through h5py
        environment = {k: v for k, v in os.environ.items() if k != "HDF5_PLUGIN_PATH"}
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        options = [f"{k}={v}" for k, v in kw.items()]
        subprocess.run([sys.executable, __file__, builder.__name__, str(path), *options], check=True, env=environment)
        return
    with h5py.File(path, "w", **kw) as f:
        builder(f)


def expected(path):
    """Path to native values, by h5py."""
    out = {}

    def visit(name, node):
        if not isinstance(node, h5py.Dataset):
            return
        if h5py.check_string_dtype(node.dtype) is not None and node.dtype.kind == "O":
            out[f"/{name}"] = np.asarray(node.asstr()[()], dtype=object).astype(np.dtypes.StringDType())
        else:
            values = np.asarray(node[()])
            out[f"/{name}"] = values.astype(values.dtype.newbyteorder("="))

    with h5py.File(path) as f:
        f.visititems(visit)
    return out


def same(a, b):
    assert a.shape == b.shape
    if a.dtype.names:
        assert a.dtype.names == b.dtype.names
        for name in a.dtype.names:
            same(a[name], b[name])
    elif a.dtype.kind == "T":
        assert a.tolist() == b.tolist()
    elif a.dtype.kind == "S":
        assert np.array_equal(a, b)
    else:
        assert np.dtype(a.dtype.str) == np.dtype(b.dtype.str)
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("builder", BUILDERS, ids=lambda b: b.__name__)
def test_values_are_those_of_h5py(tmp_path, builder, libver):
    path = tmp_path / "x.h5"
    build(builder, path, libver=libver)
    result = scan(path)
    arrays = by_path(result)
    want = expected(path)
    assert arrays.keys() == want.keys()
    assert result.refusals == ()
    assert result.warnings == ()
    for name, values in want.items():
        same(values_of(arrays[name], path), values)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("size", [512, 4096])
@pytest.mark.parametrize("builder", [plain_dtypes, chunk_indexes, unwritten, compact], ids=lambda b: b.__name__)
def test_user_block(tmp_path, builder, size, libver):
    path = tmp_path / "x.h5"
    build(builder, path, userblock_size=size, libver=libver)
    arrays = by_path(scan(path))
    for name, values in expected(path).items():
        same(values_of(arrays[name], path), values)


def test_edge_chunks_stored_without_filters(tmp_path):
    # h5py does not offer the option, the library it brings does
    folder = pathlib.Path(h5py.__file__).parent.parent / "h5py.libs"
    found = sorted(folder.glob("libhdf5-*.so*"))
    if not found:
        pytest.skip("this h5py brings no library of its own to call")
    library = ctypes.CDLL(str(found[0]))
    library.H5Pset_chunk_opts.argtypes = [ctypes.c_int64, ctypes.c_uint]
    path = tmp_path / "x.h5"
    data = numbers((10, 10), "<i4")
    with h5py.File(path, "w", libver="latest") as f:
        plist = h5p.create(h5p.DATASET_CREATE)
        plist.set_chunk((4, 4))
        plist.set_shuffle()
        plist.set_deflate(4)
        assert library.H5Pset_chunk_opts(plist.id, 2) >= 0
        h5d.create(f.id, b"v", h5t.STD_I32LE, h5s.create_simple((10, 10)), plist).write(h5s.ALL, h5s.ALL, data)
    array = by_path(scan(path))["/v"]
    assert len(array.masks) == 5
    assert set(array.masks.values()) == {0b11}
    assert np.array_equal(values_of(array, path), data)


def test_sparse_arrays_have_rows_for_stored_chunks_only(tmp_path):
    path = tmp_path / "x.h5"
    build(sparse, path)
    array = by_path(scan(path))["/sparse"]
    assert array.spec.sparse
    assert array.rows.coords.T.tolist() == [[6, 172], [549, 499]]
    same(values_of(array, path), expected(path)["/sparse"])


def test_states_of_filters(tmp_path):
    path = tmp_path / "x.h5"
    build(filters, path)
    arrays = by_path(scan(path))
    ours = {n for n, a in arrays.items() if (a.rows.state == State.REFERENCED).all()}
    assert ours == {"/v0", "/v1", "/v2", "/v3", "/v4", "/v7", "/v8", "/v9", "/v12"}
    for name in arrays.keys() - ours:
        assert arrays[name].spec.codecs.needs_library
        assert (arrays[name].rows.state == State.LIBRARY).all()
        assert (arrays[name].rows.offset == -1).all()
    assert arrays["/v5"].spec.codecs.filters[0].get("name") == "scaleoffset"


def test_virtual_and_external(tmp_path):
    path = tmp_path / "x.h5"
    small, large = numbers((30, 4), "<i2"), numbers((2_000_000,), "<i2")
    (tmp_path / "sub").mkdir()
    small.astype(">i2").tofile(tmp_path / "sub" / "small.raw")
    (tmp_path / "large.raw").write_bytes(b"skip" + large.tobytes())
    with h5py.File(tmp_path / "source.h5", "w") as f:
        f["part"] = small
        f.create_dataset("deep/big", data=large, chunks=(100_000,), compression="gzip")
    with h5py.File(path, "w") as f:
        f.create_dataset(
            "small", small.shape, ">i2", external=[("sub/small.raw", 0, 100), ("sub/small.raw", 100, h5py.h5f.UNLIMITED)]
        )
        f.create_dataset("large", large.shape, "<i2", external=[("large.raw", 4, large.nbytes)])
        layout = h5py.VirtualLayout((60, 4), "<i2")
        layout[:30] = layout[30:] = h5py.VirtualSource("source.h5", "part", (30, 4))
        f.create_virtual_dataset("twice", layout)
        layout = h5py.VirtualLayout(large.shape, "<i2")
        layout[:] = h5py.VirtualSource("source.h5", "deep/big", large.shape)
        f.create_virtual_dataset("big", layout)
        f["link"] = h5py.ExternalLink("source.h5", "/part")
        f["biglink"] = h5py.ExternalLink("source.h5", "/deep/big")
    result = scan(path)
    arrays = by_path(result)
    assert result.refusals == ()
    want = {
        "/small": small,
        "/large": large,
        "/twice": np.vstack([small, small]),
        "/big": large,
        "/link": small,
        "/biglink": large,
    }
    assert arrays.keys() == want.keys()
    for name, values in want.items():
        assert np.array_equal(values_of(arrays[name], path), values), name
    assert [c.address for c in result.companions] == ["raw:large.raw", "raw:source.h5", "raw:sub/small.raw"]
    assert {n for n, a in arrays.items() if a.rows.state[0] == State.LIBRARY} == {"/large", "/big", "/biglink"}
    assert {n for n, a in arrays.items() if a.rows.state[0] == State.INLINE} == {"/small", "/twice", "/link"}


if __name__ == "__main__":
    build(globals()[sys.argv[1]], sys.argv[2], **dict(a.split("=") for a in sys.argv[3:]))

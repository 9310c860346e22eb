"""Odd HDF5 and netCDF-4 inputs through every way out: exact values, or a refusal that names granule, variable and reason.

Each test writes its inputs, reads them with h5py, and compares bit for bit with ``drystone.open`` and with a Zarr store, an
Icechunk repository and kerchunk Parquet, each opened by a reader that is not ours.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import fsspec
import h5py
import icechunk
import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr
from numpy.lib import recfunctions

import drystone
from drystone.emit import documents
from drystone.errors import (
    CombineError,
    ConfigError,
    DecodeError,
    GranuleChanged,
    IncompleteRun,
    LeftOut,
    ScanError,
    UnsupportedError,
    VerifyError,
)
from drystone.pipeline import planning
from drystone.scan.hdf5 import arrays

pytestmark = [
    pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated"),
    pytest.mark.filterwarnings("ignore::UserWarning:zarr"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

CONFIG = """\
version: 1
name: odd
storage:
  raw: {{url: "file:./raw"}}
  out: {{url: "file:./out"}}
archive:
  granules: "raw:*.{suffix}"
outputs:
  - store: zarr
    at: "out:s.zarr"
  - virtual: icechunk
    at: "out:i.icechunk"
  - virtual: kerchunk-parquet
    at: "out:k.parq"
execution: {{cluster: inline}}
verify: {{values: full}}
{more}
"""
FORMS = ("zarr", "icechunk", "kerchunk-parquet")


def native(values: object) -> np.ndarray:
    """Packed, native byte order; text as str objects."""
    array = np.asarray(values)
    if array.dtype.kind in "OT":
        texts = [v.decode() if isinstance(v, bytes) else str(v) for v in array.reshape(-1).tolist()]
        out = np.empty(len(texts), object)
        out[:] = texts
        return out.reshape(array.shape)
    if array.dtype.names:
        array = recfunctions.repack_fields(array, recurse=True)
    return np.ascontiguousarray(array, array.dtype.newbyteorder("="))


def same(got: object, want: object) -> bool:
    a, b = native(got), native(want)
    if a.shape != b.shape:
        return False
    if b.dtype.kind == "O":
        return a.tolist() == b.tolist()
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


def truth(path: Path, *left: str) -> dict[str, np.ndarray]:
    """Every dataset of a file as h5py gives it, by path, but for those named."""
    out: dict[str, np.ndarray] = {}

    def take(name: str, found: object) -> None:
        if isinstance(found, h5py.Dataset) and f"/{name}" not in left:
            out[f"/{name}"] = native(np.array(found[()], object) if found.dtype.kind == "O" else found[()])

    with h5py.File(path) as f:
        f.visititems(take)
    return out


def opened(form: str, folder: Path) -> zarr.Group:
    if form == "zarr":
        return zarr.open_group(folder / "out/s.zarr", mode="r")
    if form == "icechunk":
        repo = icechunk.Repository.open(
            icechunk.local_filesystem_storage(str(folder / "out/i.icechunk")),
            authorize_virtual_chunk_access={f"file://{folder}/raw/": icechunk.credentials.LocalFileSystemAccess},
        )
        return zarr.open_group(repo.readonly_session("main").store, mode="r")
    fs = fsspec.filesystem("reference", fo=str(folder / "out/k.parq"), remote_protocol="file", lazy=True, asynchronous=True)
    return zarr.open_group(zarr.storage.FsspecStore(fs, read_only=True, path=""), mode="r", zarr_format=2)


def variable(ds: xr.Dataset | xr.DataTree, path: str) -> xr.DataArray:
    group, _, name = path.rpartition("/")
    return ds[name] if isinstance(ds, xr.Dataset) else ds[group or "/"].to_dataset(inherit=False)[name]


def check(
    folder: Path,
    want: Mapping[str, np.ndarray],
    *,
    refused: Iterable[str] = (),
    refused_by: Mapping[str, Iterable[str]] | None = None,
    more: str = "",
    suffix: str = "h5",
) -> None:
    """Every array exact in every form, but those ``refused`` by the scan, or ``refused_by`` a form; each of these is named."""
    out_of = {form: set(names) for form, names in (refused_by or {}).items()}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ds = drystone.open(sorted((folder / "raw").glob(f"*.{suffix}")))
    words = "\n".join(str(w.message) for w in caught if issubclass(w.category, LeftOut))
    for path in refused:
        assert f": {path} is left out: " in words, path
    for path, values in want.items():
        assert same(variable(ds, path).values, values), ("open", path)
    (folder / "odd.yaml").write_text(CONFIG.format(more=more, suffix=suffix))
    report = drystone.run(folder / "odd.yaml")
    assert {r[0] for r in report.scan.refused} == set(refused)
    for output in report.outputs:
        gone = out_of.get(output.form, set())
        assert {p for p, _ in output.refused} == gone, output.form
        assert all(reason for _, reason in output.refused)
        group = opened(output.form, folder)
        for path, values in want.items():
            if path not in gone:
                found = group[path.lstrip("/")]
                got = np.asarray(found[...], found.dtype if values.dtype.kind == "S" else None)  # a scalar forgets its size
                assert same(got, values), (output.form, path)
    assert [o.form for o in report.outputs] == list(FORMS)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write one HDF5 file of an archive; returns its path."""

    def make(fill: Callable[[h5py.File], None], name: str = "a.h5", **options: object) -> Path:
        (tmp_path / "raw").mkdir(exist_ok=True)
        with h5py.File(tmp_path / "raw" / name, "w", **options) as f:
            fill(f)
        return tmp_path / "raw" / name

    return make


def test_chunk_index_of_an_array_that_grows_along_an_inner_axis(tmp_path: Path, write: Callable[..., Path]) -> None:
    """Some HDF5 libraries tell of these chunks under wrong coordinates."""
    rng = np.random.default_rng(1)
    values = rng.integers(0, 99, (5, 7, 6)).astype("<i4")

    def fill(f: h5py.File) -> None:
        for axis in range(3):
            limits = [9, 11, 10]
            limits[axis] = None  # type: ignore[call-overload]
            for name, filters in (("plain", {}), ("gzip", {"compression": "gzip", "shuffle": True})):
                options = {"chunks": (2, 3, 4), "maxshape": tuple(limits), **filters}
                f.create_dataset(f"{name}{axis}", data=values, **options)
                sparse = f.create_dataset(f"{name}{axis}_sparse", values.shape, "<i4", fillvalue=5, **options)
                sparse[4, 6, 5], sparse[0, 3, 2] = 1, 2
                shrunk = f.create_dataset(f"{name}{axis}_shrunk", data=values, **options)
                shrunk.resize((3, 5, 4))
                shrunk.resize((4, 6, 5))

    path = write(fill, libver="latest")
    check(tmp_path, truth(path))


DAYS_OF_TWO_YEARS = ("2000-01-01", "2000-01-02", "2001-01-01", "2001-01-02")


def write_day(path: Path, time: np.ndarray, seed: int = 0, **changes: object) -> np.ndarray:
    """A granule along time: ``v`` (time, x) in chunks, and what ``changes`` says otherwise; returns the values of ``v``."""
    time = np.asarray(time)
    values = np.random.default_rng(seed).integers(0, 99, (len(time), 5)).astype("<i2")
    with netCDF4.Dataset(path, "w") as nc:
        nc.createDimension("time", None)
        nc.createDimension("x", 5)
        t = nc.createVariable("time", time.dtype, ("time",))
        t[:] = time
        t.units = str(changes.get("units", "days since 2000-01-01"))
        v = nc.createVariable("v", "i2", ("time", "x"), zlib=True, chunksizes=(int(changes.get("chunk", 2)), 5))  # type: ignore[call-overload]
        v.set_auto_maskandscale(False)
        v[:] = values
    return values


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ([[0.0, 1.0], [3.0, 2.0]], r"rises in files:g0\.nc and falls in files:g1\.nc"),
        ([[0.0, 5.0], [2.0]], r"g0\.nc and files:g1\.nc overlap along time: 2000-01-03T00.*between 2000-01-01T"),
        ([[0.0, 1.0], [1.0, 2.0]], r"g0\.nc and files:g1\.nc both hold time = 2000-01-02T00:00:00"),
        ([[0.0, 1.0], [np.nan]], r"g1\.nc: time at 0 is nan"),
        ([[0.0, 0.0, 1.0], [5.0]], r"g0\.nc: time holds 2000-01-01T00:00:00 twice, at 0 and 1"),
        ([[2**53 + 1], [2**53 + 1]], r"both hold time = 24660873954897-01-10T00:00:00"),
    ],
)
def test_granules_that_have_no_order_are_named(tmp_path: Path, times: list[list[float]], words: str) -> None:
    for i, time in enumerate(times):
        write_day(tmp_path / f"g{i}.nc", np.array(time))
    with pytest.raises(CombineError, match=words):
        drystone.open(sorted(tmp_path.glob("*.nc")))


def test_equal_numbers_of_another_epoch_are_no_duplicates(tmp_path: Path) -> None:
    """They are days of their own, counted from one date."""
    parts = [write_day(tmp_path / f"g{i}.nc", np.arange(2.0), i, units=f"days since {2001 - i}-01-01") for i in range(2)]
    ds = drystone.open(sorted(tmp_path.glob("*.nc")), decode=True)
    assert ds["v"].values.tolist() == np.concatenate([parts[1], parts[0]]).tolist()
    assert ds["time"].values.astype("M8[D]").tolist() == [np.datetime64(t).item() for t in DAYS_OF_TWO_YEARS]


def test_times_that_a_double_cannot_tell_apart_and_granules_of_no_length(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    base = 1_700_000_000_000_000_001
    steps = [[base + 2, base + 3, base + 4], [], [base, base + 1], [base + 5]]
    parts = [write_day(tmp_path / f"raw/g{i}.nc", np.array(t, "i8"), i, chunk=1) for i, t in enumerate(steps)]
    want = {"/time": np.arange(base, base + 6), "/v": np.concatenate([parts[i] for i in (2, 0, 3)])}
    check(tmp_path, want, suffix="nc")


def raw_dataset(f: h5py.File, name: str, tid: h5py.h5t.TypeID, raw: bytes, shape: tuple[int, ...], gzip: bool = False) -> None:
    """A dataset of any type with exactly these stored bytes."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if gzip:
        plist.set_chunk(tuple(min(2, n) for n in shape))
        plist.set_deflate(3)
    space = h5py.h5s.create_simple(shape) if shape else h5py.h5s.create(h5py.h5s.SCALAR)
    dsid = h5py.h5d.create(f.id, name.encode(), tid, space, plist)
    dsid.write(h5py.h5s.ALL, h5py.h5s.ALL, np.frombuffer(raw, f"V{tid.get_size()}").reshape(shape), tid)


def padded(size: int, padding: int) -> h5py.h5t.TypeID:
    tid = h5py.h5t.C_S1.copy()
    tid.set_size(size)
    tid.set_strpad(padding)
    return tid


def test_fixed_text_ends_where_its_padding_begins(tmp_path: Path, write: Callable[..., Path]) -> None:
    """C leaves bytes after the terminator, Fortran pads with spaces: neither is part of the text."""
    items = [b"ab    ", b"a\0junk", b"      ", b"abcdef", b"\0\0\0\0\0\0", b"\xb0C\0\0\0\0"]
    kinds = {"term": h5py.h5t.STR_NULLTERM, "null": h5py.h5t.STR_NULLPAD, "space": h5py.h5t.STR_SPACEPAD}

    def fill(f: h5py.File) -> None:
        for name, padding in kinds.items():
            tid = padded(6, padding)
            raw_dataset(f, name, tid, b"".join(items), (6,))
            raw_dataset(f, f"{name}_gzip", tid, b"".join(items), (2, 3), gzip=True)
            raw_dataset(f, f"{name}_byte", padded(1, padding), b"a \0", (3,))
            compound = h5py.h5t.create(h5py.h5t.COMPOUND, 10)
            compound.insert(b"i", 0, h5py.h5t.STD_I32BE)
            compound.insert(b"s", 4, tid)
            raw_dataset(f, f"{name}_compound", compound, b"".join(b"\0\0\0\1" + i for i in items), (6,))
            holder = f[name]
            for n, item in enumerate(items[:-1]):
                aid = h5py.h5a.create(holder.id, f"a{n}".encode(), tid, h5py.h5s.create(h5py.h5s.SCALAR))
                aid.write(np.frombuffer(item, "V6").reshape(()), tid)

    path = write(fill)
    check(tmp_path, truth(path))
    ds = drystone.open([path])
    with h5py.File(path) as f:
        for name in kinds:
            assert ds[name].attrs == {k: v.decode() for k, v in f[name].attrs.items()}
    assert drystone.run(tmp_path / "odd.yaml").release is None  # what lies between fields decides nothing


def test_coordinates_of_fixed_text(tmp_path: Path, write: Callable[..., Path]) -> None:
    """A scalar and a dimension scale, with bytes that are no UTF-8."""

    def fill(f: h5py.File) -> None:
        f["name"] = np.array(b"\xb0C", "S6")
        f["empty"] = np.array(b"", "S3")
        f["x"] = np.array([b"a", b"\xff", b""], "S2")
        f["x"].make_scale("x")
        f["v"] = np.arange(3)
        f["v"].dims[0].attach_scale(f["x"])

    path = write(fill)
    want = truth(path)
    with h5py.File(path) as f:
        want |= {f"/{n}": np.asarray(f[n][()], f[n].dtype) for n in ("name", "empty")}
    check(tmp_path, want)


def test_unwritten_chunks_that_read_as_a_nan_which_zarr_forgets(
    tmp_path: Path, write: Callable[..., Path], monkeypatch
) -> None:
    """Payloads of float16, signalling NaNs of float32: every chunk is spelled out."""
    # as if the arrays were large: no way round references and tasks
    monkeypatch.setattr(documents, "NATIVE_LIMIT", -1)
    monkeypatch.setattr(planning, "DRIVER_BYTES", -1)
    compound = np.dtype([("a", "<i2"), ("b", "<f4")])
    fills = {
        "f2": np.array(0x7FFF, "<u2").view("<f2"),
        "f2big": np.array(0x7E01, ">u2").view(">f2"),
        "f4": np.array(0x7F800001, "<u4").view("<f4"),
        "f8": np.array(0x7FF0000000000001, "<u8").view("<f8"),
        "c8": np.frombuffer(b"\0\0\0\0\1\0\x80\x7f", "<c8")[0],
        "compound": np.frombuffer(b"\1\0\1\0\x80\x7f", compound)[0],
        "zero": np.array(-0.0, ">f4"),
    }

    def fill(f: h5py.File) -> None:
        for name, value in fills.items():
            for chunks in (None, (3, 4)):
                plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
                if chunks:
                    plist.set_chunk(chunks)
                    plist.set_deflate(4)
                plist.set_fill_value(np.asarray(value))
                kind = h5py.h5t.py_create(np.asarray(value).dtype, logical=True)
                dsid = h5py.h5d.create(
                    f.id, f"{name}{len(chunks or ())}".encode(), kind, h5py.h5s.create_simple((7, 10)), plist
                )
                if chunks:
                    h5py.Dataset(dsid)[0:3, 4:8] = np.zeros((), np.asarray(value).dtype)
        # no fill value means zero here, and not-a-time to a reader of Zarr 2
        time = h5py.opaque_dtype(np.dtype("M8[s]"))
        f.create_dataset("time", (7,), time, chunks=(3,))[:1] = np.array([5]).astype("M8[s]").astype(time)

    path = write(fill)
    check(tmp_path, truth(path))


def test_compounds_of_every_build(tmp_path: Path, write: Callable[..., Path]) -> None:
    """Padding, gaps, both byte orders, nesting, no axes; only arrays inside a compound have no Zarr form."""
    inner = np.dtype([("x", "i1"), ("y", ">f8")], align=True)
    kinds = {
        "mixed": np.dtype([("a", ">i4"), ("b", "<f8"), ("c", "S3")]),
        "padded": inner,
        "nested": np.dtype([("q", "i1"), ("n", inner)], align=True),
        "gaps": np.dtype({"names": ["a", "b"], "formats": ["<i2", "<i2"], "offsets": [6, 2], "itemsize": 11}),
        "two_orders": np.dtype([("r", "<f4"), ("i", ">f4")]),
        "array": np.dtype([("a", "<i2"), ("v", "<f4", (2, 3))]),
    }

    def fill(f: h5py.File) -> None:
        rng = np.random.default_rng(1)
        for name, kind in kinds.items():
            data = np.frombuffer(rng.integers(0, 2, 35 * kind.itemsize, np.uint8).tobytes(), kind).reshape(5, 7)
            f.create_dataset(name, data=data)
            f.create_dataset(f"{name}_gzip", data=data, chunks=(2, 3), compression="gzip", shuffle=True)
            f.create_dataset(f"{name}_scalar", data=data[0, 0])
        f["good"] = np.arange(3)

    path = write(fill)
    gone = ["/array", "/array_gzip", "/array_scalar"]
    check(tmp_path, truth(path), refused_by=dict.fromkeys(FORMS, gone))


def netcdf_truth(path: Path) -> dict[str, np.ndarray]:
    """Every variable as netCDF4 gives it, without masks and scales."""
    with netCDF4.Dataset(path) as nc:
        nc.set_auto_maskandscale(False)
        nc.set_auto_chartostring(False)
        return {
            f"/{n}": native(np.array(v[...], object) if v.dtype is str else np.asarray(v[...])) for n, v in nc.variables.items()
        }


def test_netcdf_variables_that_end_before_their_dimension(tmp_path: Path) -> None:
    """They go on with their fill value, or netCDF's where they have none; also those that are named like a dimension."""
    (tmp_path / "raw").mkdir()
    path = tmp_path / "raw/a.nc"
    with netCDF4.Dataset(path, "w") as nc:
        nc.createDimension("time", None)
        nc.createDimension("x", 3)
        nc.createVariable("time", "f8", ("time",))[0:4] = np.arange(4)
        nc.createVariable("long", "f8", ("time",))[:] = np.arange(9)
        nc.createVariable("empty", "f4", ("time", "x"))
        nc.createVariable("x", "f4", ("time", "x"))[0:2] = 0.5
        nc.createVariable("text", str, ("time", "x"))[1, 1] = "q"
        for name, options in {"fill": {"fill_value": 5}, "none": {"fill_value": False}, "sum": {"fletcher32": True}}.items():
            nc.createVariable(name, "i4", ("time", "x"), **options)[0:2] = 1
            # the last chunk is written in part: without a fill value its rest holds anything
            nc.createVariable(f"{name}_part", "i2", ("time", "x"), chunksizes=(4, 2), **options)[0:5] = 1
            nc.createVariable(f"{name}_inner", "i8", ("x", "time"), chunksizes=(2, 4), zlib=True, **options)[:, 0:3] = 1
    want = netcdf_truth(path)
    for name, value in {"fill": 5, "none": -9223372036854775806, "sum": -9223372036854775806}.items():
        inner = np.full((3, 9), value, "i8")  # the netCDF library itself mixes up rows here
        inner[:, :3] = 1
        want[f"/{name}_inner"] = inner
    check(tmp_path, want, suffix="nc")


def test_names_that_netcdf_hides(tmp_path: Path, write: Callable[..., Path]) -> None:
    """The prefix goes where a dimension that is no variable has the name, and stays where another array has it."""

    def fill(f: h5py.File) -> None:
        f["alone"], f["_nc4_non_coord_gone"] = np.arange(2), np.arange(3)
        f["taken"], f["_nc4_non_coord_taken"] = np.arange(4), np.arange(5)
        f["x"] = np.zeros(3, ">f4")
        f["x"].make_scale("This is a netCDF dimension but not a netCDF variable         3")
        f.create_dataset("_nc4_non_coord_x", data=np.arange(6).reshape(2, 3), chunks=(1, 2), scaleoffset=0)

    path = write(fill)
    want = truth(path, "/x")
    want["/x"], want["/gone"] = want.pop("/_nc4_non_coord_x"), want.pop("/_nc4_non_coord_gone")
    check(tmp_path, want)


@pytest.mark.filterwarnings("ignore::xarray.SerializationWarning")
def test_attributes_that_no_reader_expects(tmp_path: Path, write: Callable[..., Path]) -> None:
    """Fill values of another type, in arrays, as text, as bytes that are no UTF-8: values stay, what is lost is said."""
    odd = {
        "nan": ("<i2", np.nan), "float": ("<i2", -9.5), "wide": ("<i2", np.int64(-99999)), "int": ("<f4", np.int32(2**31 - 1)),
        "text": ("<f4", "missing"), "digits": ("<i4", "-9"), "bytes": ("<i4", b"\xff\xb0"), "one": ("<f4", np.array([[3.0]])),
        "several": ("<f4", np.array([1.0, 2.0])), "none": ("<f4", np.array([])), "complex": ("<f4", 1 + 2j),
        "own": ("<c8", np.complex64(complex(np.nan, 1))), "max": ("<u8", np.uint64(2**64 - 1)),
        "inexact": ("<f8", np.uint64(2**64 - 1)), "bool": ("?", np.int8(1)), "letter": ("S1", b"x"),
        "compound": ("<i4", np.array((1, 2.0), [("a", "i2"), ("b", "f4")])),
    }  # fmt: skip

    def fill(f: h5py.File) -> None:
        for name, (kind, value) in odd.items():
            f.create_dataset(name, data=np.arange(6).astype(kind), chunks=(4,)).attrs["_FillValue"] = value
        f["packed"] = np.arange(3)
        f["packed"].attrs["scale_factor"] = np.array([0.1, 0.2])
        f["packed"].attrs["missing_value"] = "NaN"

    path = write(fill)
    check(tmp_path, truth(path))
    notes = "\n".join(drystone.run(tmp_path / "odd.yaml").warnings)
    assert "/several: _FillValue is" in notes
    assert "/inexact: _FillValue is" in notes
    with pytest.warns(LeftOut, match="/packed is left out of decoding"):
        ds = drystone.open([path], decode=True)
    assert ds["one"].dtype == np.dtype("f4")


def test_groups_that_do_not_fit_into_one_tree(tmp_path: Path) -> None:
    """A tree of xarray cannot hold them; each group by itself opens, and the published forms hold all."""
    (tmp_path / "raw").mkdir()
    path = tmp_path / "raw/a.nc"
    with netCDF4.Dataset(path, "w") as nc:
        for name, size in (("/", 3), ("/g", 4), ("/gh", 5)):
            group = nc if name == "/" else nc.createGroup(name)
            group.createDimension("x", size)
            group.createVariable("x", "f4", ("x",))[:] = np.arange(size)
            group.createVariable("v", "f8", ("x",))[:] = np.arange(size) / 3
    with pytest.raises(UnsupportedError, match="x has 4 elements in the group /g and 3 in /"):
        drystone.open([path])
    for name, size in (("/g", 4), ("/gh", 5)):
        assert same(drystone.open([path], variables=[f"{name}/v"])[name]["v"].values, np.arange(size) / 3)


def test_files_without_an_array_are_named(tmp_path: Path, write: Callable[..., Path]) -> None:
    path = write(lambda f: f.create_dataset("null", data=h5py.Empty("f4")))
    with pytest.warns(LeftOut, match="/null is left out"), pytest.raises(CombineError, match=r"a\.h5 holds no array"):
        drystone.open([path])


def test_groups_whose_times_run_against_each_other(tmp_path: Path) -> None:
    """Both are sorted within a granule; no one order of the granules sorts both."""
    for i, starts in enumerate(((0, 10), (5, 3))):
        with h5py.File(tmp_path / f"g{i}.h5", "w") as f:
            for name, start in zip("ab", starts, strict=True):
                f.create_dataset(f"{name}/time", data=np.arange(2.0) + start, maxshape=(None,), chunks=(2,))
                f[f"{name}/time"].make_scale("time")
    with pytest.raises(CombineError, match="one order by /a/time and another by /b/time"):
        drystone.open(sorted(tmp_path.glob("*.h5")))


def test_names_that_no_folder_and_no_zarr_can_hold(tmp_path: Path, write: Callable[..., Path]) -> None:
    """Nothing is written beside the outputs, nothing is lost without a word, the other arrays are there."""
    here = ["zarr.json", ".zarray", ".zattrs", "p/.zgroup/v", "a\\b", "drystone_ledger/x", "q/.../v", "z" * 300]

    def fill(f: h5py.File) -> None:
        for name in here:
            f[name] = np.arange(3)
        f["c/0"], f["#%41 ?"], f["é"] = np.arange(4), np.arange(5), np.arange(6)
        up = h5py.h5g.create(f.id, b"..")
        h5py.h5d.create(up, b"evil", h5py.h5t.STD_I32LE, h5py.h5s.create_simple((3,)))
        h5py.h5d.create(f.id, b"\xe9", h5py.h5t.STD_I32LE, h5py.h5s.create_simple((3,)))  # reads like é

    path = write(fill)
    with h5py.File(path) as f:
        want = {f"/{n}": f[n][()] for n in ("c/0", "#%41 ?", "é")}
    gone = [f"/{n}" for n in here]
    check(tmp_path, want, refused=["/..", "/é"], refused_by=dict.fromkeys(FORMS, gone))
    assert {p.name for p in tmp_path.iterdir()} == {"raw", "out", "work", "odd.yaml"}
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"s.zarr", "i.icechunk", "k.parq"}


def test_enumerations_that_give_numbers_other_names(tmp_path: Path) -> None:
    """The names go as CF's flag attributes; granules whose enumerations differ are not one array."""
    for i, names in enumerate(({"clear sky": 0, "cloud": 1}, {"clear sky": 1, "cloud": 0})):
        with h5py.File(tmp_path / f"g{i}.h5", "w") as f:
            f.create_dataset("time", data=[float(i)], maxshape=(None,), chunks=(1,))
            f["time"].make_scale("time")
            f.create_dataset("v", data=[0], dtype=h5py.enum_dtype(names, "i1"), maxshape=(None,), chunks=(1,))
            f["v"].dims[0].attach_scale(f["time"])
    paths = sorted(tmp_path.glob("*.h5"))
    attributes = drystone.open(paths[:1])["v"].attrs
    assert (attributes["flag_values"].tolist(), attributes["flag_meanings"]) == ([0, 1], "clear_sky cloud")
    with pytest.raises(CombineError, match=r"/v: flag_meanings differs .*g0\.h5.*g1\.h5"):
        drystone.open(paths)


def test_a_damaged_chunk_names_its_granule_in_every_form(tmp_path: Path, write: Callable[..., Path], monkeypatch) -> None:
    monkeypatch.setattr(documents, "NATIVE_LIMIT", -1)

    def fill(f: h5py.File) -> None:
        f.create_dataset("v", data=np.arange(72).reshape(8, 9), chunks=(4, 5), fletcher32=True)

    path = write(fill)
    with h5py.File(path) as f:
        at = f["v"].id.get_chunk_info(2).byte_offset
    data = bytearray(path.read_bytes())
    data[at + 8] ^= 1
    path.write_bytes(data)
    with pytest.raises(DecodeError, match=r"a\.h5: chunk \(1, 0\) of /v .*fletcher32"):
        drystone.open([path])["v"].values  # noqa: B018
    text = CONFIG.format(more="", suffix="h5")
    store = '  - store: zarr\n    at: "out:s.zarr"\n'
    (tmp_path / "odd.yaml").write_text(text)
    with pytest.raises(IncompleteRun, match=r"a\.h5: chunk \(1, 0\) of /v"):
        drystone.run(tmp_path / "odd.yaml")
    (tmp_path / "odd.yaml").write_text(text.replace(store, ""))
    with pytest.raises(VerifyError, match=r"/v: the published array cannot be read .*a\.h5.*fletcher32"):
        drystone.run(tmp_path / "odd.yaml")


def test_what_is_asked_for_by_name_is_there_or_said(tmp_path: Path, write: Callable[..., Path]) -> None:
    """An output's list of arrays, the list of variables, a file of another format."""

    def fill(f: h5py.File) -> None:
        f["v"] = np.arange(3)
        f["odd"] = np.zeros(2, np.longdouble)

    write(fill)
    text = CONFIG.format(more="", suffix="h5")
    (tmp_path / "odd.yaml").write_text(text.replace('"out:s.zarr"', '"out:s.zarr"\n    arrays: [v, odd]'))
    with pytest.raises(ConfigError, match=r"out:s\.zarr: arrays: odd: .*drystone status"):
        drystone.run(tmp_path / "odd.yaml")
    (tmp_path / "odd.yaml").write_text(CONFIG.format(more="combine: {variables: [odd]}", suffix="h5"))
    with pytest.raises(CombineError, match=r"'odd' that can be referenced .*drystone status"):
        drystone.run(tmp_path / "odd.yaml")
    with netCDF4.Dataset(tmp_path / "raw/old.nc", "w", format="NETCDF3_CLASSIC") as nc:
        nc.createDimension("x", 1)
    with pytest.raises(ScanError, match=r"old\.nc.*netCDF-3"):
        drystone.open([tmp_path / "raw/old.nc"])


def test_static_compounds_that_differ_between_their_fields_only(tmp_path: Path) -> None:
    """Padding is no value: granules are not refused for it."""
    kind = np.dtype([("a", "i1"), ("b", "<f8")], align=True)
    for i in range(2):
        raw = np.full((3, kind.itemsize), i, np.uint8)
        raw[:, 0], raw[:, 8:] = np.arange(3), 0
        with h5py.File(tmp_path / f"g{i}.h5", "w") as f:
            f.create_dataset("time", data=[float(i)], maxshape=(None,), chunks=(1,))
            f["time"].make_scale("time")
            raw_dataset(f, "v", h5py.h5t.py_create(kind, logical=True), raw.tobytes(), (3,))
    paths = sorted(tmp_path.glob("*.h5"))
    assert len({p.read_bytes().count(b"\1" * 7) for p in paths}) == 2
    assert same(drystone.open(paths)["v"].values, truth(paths[0])["/v"])


@pytest.mark.parametrize("small", [True, False], ids=["inlined", "library"])
def test_a_companion_that_changes_is_a_change_of_the_granule(
    tmp_path: Path, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    """Values in raw files and virtual sources: no stale ones, no mixture; the next run takes the new ones."""
    if not small:
        monkeypatch.setattr(arrays, "FOREIGN_INLINE", -1)
        monkeypatch.setattr(planning, "DRIVER_BYTES", -1)
    (tmp_path / "raw").mkdir()
    monkeypatch.chdir(tmp_path / "raw")
    raw, source = tmp_path / "raw/v.raw", tmp_path / "raw/source.hdf"
    values = np.arange(6, dtype="<i4").reshape(2, 3)

    def put(add: int) -> None:
        raw.write_bytes((values + add).tobytes())
        with h5py.File(source, "w") as f:
            f["v"] = values + add

    def fill(f: h5py.File) -> None:
        f.create_dataset("raw", values.shape, values.dtype, external=[("v.raw", 0, values.nbytes)])
        layout = h5py.VirtualLayout(values.shape, values.dtype)
        layout[:] = h5py.VirtualSource("source.hdf", "v", values.shape)
        f.create_virtual_dataset("virtual", layout)

    put(0)
    path = write(fill)
    text = CONFIG.format(more="", suffix="h5")
    (tmp_path / "odd.yaml").write_text(text[: text.index("  - virtual")] + text[text.index("execution") :])
    assert drystone.run(tmp_path / "odd.yaml").release == 1
    opened_before = drystone.open([path])
    put(5)
    for name, companion in (("raw", "source.hdf"), ("virtual", "source.hdf")):
        with pytest.raises(GranuleChanged, match=rf"{companion}, which files:a\.h5 takes values from"):
            opened_before[name].values  # noqa: B018
    assert drystone.run(tmp_path / "odd.yaml", accept_changes=True).scan.scanned == 1
    store = zarr.open_group(tmp_path / "out/s.zarr", mode="r")
    assert same(store["raw"][...], values + 5)
    assert same(store["virtual"][...], values + 5)
    assert drystone.run(tmp_path / "odd.yaml").release is None


def test_a_file_that_was_missing_is_looked_for_again(
    tmp_path: Path, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The granule itself need not change for its arrays to come back."""
    (tmp_path / "raw").mkdir()
    monkeypatch.chdir(tmp_path / "raw")
    write(lambda f: f.create_dataset("v", (3,), "<i4", external=[("v.raw", 0, 12)]))
    (tmp_path / "odd.yaml").write_text(CONFIG.format(more="", suffix="h5"))
    assert [r[:2] for r in drystone.scan(tmp_path / "odd.yaml").refused] == [("/v", "missing")]
    (tmp_path / "raw/v.raw").write_bytes(np.arange(3, dtype="<i4").tobytes())
    assert drystone.scan(tmp_path / "odd.yaml").refused == ()
    assert drystone.open(tmp_path / "odd.yaml")["v"].values.tolist() == [0, 1, 2]
    assert drystone.scan(tmp_path / "odd.yaml").scanned == 0

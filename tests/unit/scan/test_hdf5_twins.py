"""Files scanned without the library give what the library gives: sound ones, changed twins, and damaged ones."""

import itertools
import os
import pathlib
import random
import signal
import struct

import h5py
import netCDF4
import numpy as np
import pytest
from numcodecs.jenkins import jenkins_lookup3
from scanned_values import source_of
from test_hdf5_netcdf import write_model
from test_hdf5_values import BUILDERS, build

from drystone.errors import DrystoneError
from drystone.protocols import ScanOptions
from drystone.scan.hdf5 import Hdf5Scanner, twins
from drystone.scan.hdf5.opening import opened
from drystone.scan.hdf5.scanner import scan_through_library

DATA = pathlib.Path(__file__).parents[2] / "data"
SOUND = sorted(p for p in DATA.rglob("*") if p.suffix in (".nc", ".h5"))


@pytest.fixture(autouse=True)
def forgotten():
    """Every test starts as a new process does."""
    twins._told.clear()
    twins._failed.clear()


def through_library(path, **options):
    source = source_of(path)
    try:
        with opened(source.store, source.key, source.address, source.stamp.size) as file:
            return scan_through_library(file, source, ScanOptions(**options)).result()
    except DrystoneError as error:
        return f"{error.kind}: {error}"


def any_way(path, **options):
    try:
        return Hdf5Scanner().scan(source_of(path), ScanOptions(**options))
    except DrystoneError as error:
        return f"{error.kind}: {error}"


def same(a, b):
    return a == b if isinstance(a, str) or isinstance(b, str) else twins.same_scans(a, b)


def check(path):
    """Scan until the file is known as well as it will be, and compare each time."""
    want = through_library(path)
    for _ in range(3):
        assert same(any_way(path), want)
    return want


@pytest.fixture
def no_library(monkeypatch):
    """Makes asking the library an error from when it is called."""

    def forbid():
        def ask(*_):
            raise AssertionError("the library is asked")

        monkeypatch.setattr(twins, "scan_through_library", ask)

    return forbid


@pytest.mark.parametrize("path", SOUND, ids=lambda p: f"{p.parent.name}-{p.name}")
def test_files_of_every_kind(path):
    check(path)


@pytest.mark.parametrize("libver", ["earliest", "v108", "latest"])
@pytest.mark.parametrize("builder", BUILDERS, ids=lambda b: b.__name__)
def test_arrays_of_every_kind(tmp_path, builder, libver):
    build(builder, tmp_path / "x.h5", libver=libver)
    check(tmp_path / "x.h5")
    build(builder, tmp_path / "y.h5", libver=libver, userblock_size=512)
    check(tmp_path / "y.h5")


def test_netcdf_model(tmp_path):
    write_model(tmp_path / "a.nc")
    check(tmp_path / "a.nc")


def write_day(path, day=0, **changes):
    """A file as satellite archives have them; ``changes`` make it another than its twins."""
    ask = {
        "units": "K", "dtype": "i2", "chunks": (1, 4, 6), "fill": -999, "dims": ("time", "lat", "lon"), "name": "sst",
        "extra": False, "size": 8, "zlib": True, "shuffle": True, "attributes": 2, "records": 1, "order": ("lat", "lon"),
        "text": "", "variables": 0, "scalar": False,
    } | changes  # fmt: skip
    sizes = {"time": None, "lat": ask["size"], "lon": 12}
    with netCDF4.Dataset(path, "w") as nc:
        for name in ("time", *ask["order"]):
            nc.createDimension(name, sizes[name])
        nc.date = f"1981-09-{day + 1:02}"
        if ask["text"]:
            nc.history = ask["text"]
        time = nc.createVariable("time", "f4", ("time",))
        time.units = "days since 1978-01-01 12:00:00"
        time[:] = np.arange(ask["records"]) + day
        for name in ("lat", "lon"):
            nc.createVariable(name, "f4", (name,))[:] = np.linspace(0, 1, sizes[name])
        for name in (ask["name"], "anom"):
            v = nc.createVariable(
                name, ask["dtype"], ask["dims"], zlib=ask["zlib"], shuffle=ask["shuffle"], chunksizes=ask["chunks"],
                fill_value=ask["fill"],
            )  # fmt: skip
            v.units = ask["units"]
            for i in range(ask["attributes"]):
                v.setncattr(f"a{i}", np.float32(i))
            v.set_auto_maskandscale(False)
            shape = tuple({"time": ask["records"], "lat": ask["size"], "lon": 12}[d] for d in ask["dims"])
            v[:] = np.random.default_rng(day).integers(0, 999, shape)
        for i in range(ask["variables"]):
            nc.createVariable(f"v{i}", "f4", ("lat",))[:] = i
        if ask["scalar"]:
            nc.createVariable("crs", "i4", ()).grid_mapping_name = "latitude_longitude"  # has no value
        if ask["extra"]:
            nc.createVariable("mask", "i1", ("lat", "lon"))[:] = 1
    return path


CHANGES = {
    "nothing": {},
    "values": {"day": 5},
    "an attribute": {"units": "degC"},
    "an attribute of the file": {"text": "made by hand " * 7},
    "dtype": {"dtype": "i4"},
    "number class": {"dtype": "f4"},
    "chunk shape": {"chunks": (1, 8, 12)},
    "fill": {"fill": -998},
    "no fill": {"fill": None},
    "dims swapped": {"dims": ("time", "lon", "lat"), "chunks": (1, 6, 4)},
    "dimensions in another order": {"order": ("lon", "lat")},
    "name": {"name": "SST"},
    "one more variable": {"extra": True},
    "size": {"size": 9},
    "records": {"records": 3},
    "no records": {"records": 0},
    "no filter": {"zlib": False, "shuffle": False},
    "other filters": {"shuffle": False},
    "attributes in dense storage": {"attributes": 12},
    "attributes in a tree of two levels": {"attributes": 200},
    "a large attribute": {"attributes": 12, "text": "x" * 5000},
    "links in dense storage": {"variables": 20},
    "links in a tree of two levels": {"variables": 120},
    "a variable without values": {"scalar": True},
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_twins(tmp_path, change):
    check(write_day(tmp_path / "a.nc"))
    check(write_day(tmp_path / "a.nc", attributes=10, variables=10))
    path = write_day(tmp_path / "b.nc", **CHANGES[change])
    want = through_library(path)
    assert same(any_way(path), want)
    check(path)
    check(write_day(tmp_path / "c.nc", 8))


@pytest.mark.parametrize("change", ["nothing", "values", "an attribute", "an attribute of the file", "name", "size", "records"])
@pytest.mark.parametrize("others", [{}, {"attributes": 12, "variables": 20}, {"attributes": 200, "variables": 120}])
def test_the_library_is_not_asked_of_a_twin(tmp_path, no_library, change, others):
    any_way(write_day(tmp_path / "a.nc", **others))
    path = write_day(tmp_path / "b.nc", **others | CHANGES[change])
    want = through_library(path)
    no_library()
    assert same(any_way(path), want)


@pytest.mark.parametrize("change", ["dtype", "number class", "chunk shape", "fill", "no fill", "no filter", "other filters"])
def test_the_library_is_asked_of_what_is_new(tmp_path, no_library, change):
    any_way(write_day(tmp_path / "a.nc"))
    no_library()
    with pytest.raises(AssertionError, match="the library is asked"):
        any_way(write_day(tmp_path / "b.nc", **CHANGES[change]))


def test_twins_that_always_need_the_library_are_not_tried_for_ever(tmp_path, monkeypatch):
    with h5py.File(tmp_path / "a.h5", "w", libver="v108") as f:
        f["x"] = np.arange(3)
        f["x"].attrs["odd"] = np.zeros(2, [("a", "i1"), ("b", "f4")])
    calls = []
    plainly = twins.scan_plainly
    monkeypatch.setattr(twins, "scan_plainly", lambda *a: calls.append(1) or plainly(*a))
    for _ in range(10):
        any_way(tmp_path / "a.h5")
    assert len(calls) == twins._TRIES


def test_what_is_noted_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(twins, "_NOTED", 16)
    for n in range(1, 30):
        with h5py.File(tmp_path / "a.h5", "w", libver="v108") as f:
            f.create_dataset("x", data=np.arange(40), chunks=(n,))
        check(tmp_path / "a.h5")
        assert len(twins._told) <= 16


def test_a_file_of_too_many_bytes_of_headers_is_left_to_the_library(tmp_path, monkeypatch, no_library):
    with h5py.File(tmp_path / "a.h5", "w", libver="v108") as f:
        f["/".join(["group"] * 60) + "/x"] = np.arange(3)
    check(tmp_path / "a.h5")
    monkeypatch.setattr(twins, "_MAX_BYTES", 10_000)
    check(tmp_path / "a.h5")
    no_library()
    with pytest.raises(AssertionError, match="the library is asked"):
        any_way(tmp_path / "a.h5")


def test_a_limit_of_coordinates_and_a_choice_of_variables(tmp_path):
    any_way(write_day(tmp_path / "a.nc"))
    path = write_day(tmp_path / "b.nc", 3)
    for options in ({"coordinate_budget": 30}, {"variables": ("anom",)}, {"max_rows": 4}):
        assert same(any_way(path, **options), through_library(path, **options))


def test_a_file_marked_as_open_for_writing_is_left_to_the_library(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="v110") as f:
        f["x"] = np.arange(3)
    any_way(path)
    data = bytearray(path.read_bytes())
    data[11] = 1
    data[44:48] = struct.pack("<I", jenkins_lookup3(bytes(data[:44]), 0))
    path.write_bytes(data)
    assert same(any_way(path), through_library(path))
    assert isinstance(any_way(path), str)


SIGNS = (b"OHDR", b"OCHK", b"FRHP", b"FHIB", b"BTHD", b"BTLF", b"BTIN", b"FSHD")


def headers(data):
    """Where the checksummed parts of headers, heaps and trees start and end, the checksum not counted."""
    for at in (i for i in range(len(data)) if data[i : i + 4] in SIGNS):
        for end in range(at + 8, min(len(data) - 3, at + 4096)):
            if jenkins_lookup3(bytes(data[at:end]), 0) == int.from_bytes(data[end : end + 4], "little"):
                yield at, end
                break


def damage(rng, data, parts):
    """Bytes changed: anywhere, cut short, or within headers whose checksums are made good again."""
    out = bytearray(data)
    how = rng.random()
    if how < 0.1:
        return out[: rng.randrange(len(out))]
    if how < 0.3:
        for _ in range(rng.choice([1, 2, 8])):
            out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
        return out
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        start, end = rng.choice(parts)
        at = rng.randrange(start + 4, end)
        out[at] = rng.choice([rng.randrange(256), 0, 255, out[at] ^ 1 << rng.randrange(8), (out[at] + 1) % 256])
        out[end : end + 4] = struct.pack("<I", jenkins_lookup3(bytes(out[start:end]), 0))
    return out


def compared_in_child(path):
    """How the two ways compare, in a process of its own: the library may die, or never come back, of what is damaged."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        signal.alarm(20)

        def noted(*arguments):
            os.write(write, b"(")
            try:
                return scan_through_library(*arguments)
            finally:
                os.write(write, b")")

        twins.scan_through_library = noted
        try:
            os.write(write, b"(")
            want = through_library(path)
            os.write(write, b")")
            got = any_way(path)
            if isinstance(want, str) and isinstance(got, str):
                said = b"error" if want.split(":")[0] == got.split(":")[0] else f"{want} / {got}".encode()
            else:
                said = b"same" if same(got, want) else f"{want}\n{got}".encode()
        except BaseException as error:  # noqa: BLE001 - any exception that is not drystone's own is a finding
            said = repr(error).encode()
        os.write(write, b"|" + said)
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        calls, _, said = pipe.read().decode().partition("|")
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "library died" if calls.endswith("(") else f"died: {status}"
    return f"{said} without the library" if said == "same" and calls == "()" else said


@pytest.mark.parametrize("kind", ["netCDF", "dense", "v108"])
def test_damaged_twins(tmp_path, kind):
    path = tmp_path / "a.nc"
    if kind in ("netCDF", "dense"):
        write_day(path, **{"attributes": 12, "variables": 10} if kind == "dense" else {})
    else:
        with h5py.File(path, "w", libver=kind) as f:
            f.create_dataset("c", data=np.arange(600).reshape(20, 30), chunks=(5, 30), compression="gzip", maxshape=(None, 30))
            f["text"] = np.array(["a", "b" * 50], object)
            f["g/h/i"] = np.arange(5)
            f["g/h/i"].attrs["units"] = ["K", "m"]
            f["compact"] = np.float32(3)
    check(path)
    data = path.read_bytes()
    parts = list(headers(data))
    assert len(parts) > 4
    rng = random.Random(kind)
    counts = {}
    for _ in range(150):
        path.write_bytes(damage(rng, data, parts))
        said = compared_in_child(path)
        counts[said] = counts.get(said, 0) + 1
    assert counts.keys() <= {"same", "same without the library", "error", "library died"}, counts
    assert counts["same without the library"] > 3
    assert counts["same"] > 20
    assert counts["error"] > 10


def test_every_truncation_of_a_twin(tmp_path):
    path = write_day(tmp_path / "a.nc")
    check(path)
    data = path.read_bytes()
    for size in itertools.chain(range(0, 400, 13), range(400, len(data), len(data) // 40)):
        path.write_bytes(data[:size])
        want = through_library(path)
        assert isinstance(want, str)
        assert same(any_way(path), want)

"""Values read through Icechunk with zarr and xarray, and through fsspec's kerchunk references, against h5py's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import fsspec
import h5py
import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr
from numpy.typing import NDArray
from services.emit_archive import HandArchive, hand_archive

from drystone.emit.icechunk import IcechunkEmitter
from drystone.emit.kerchunk_parquet import KerchunkParquetEmitter
from drystone.storage.local import LocalStore

# fsspec reads Parquet references with fastparquet, which pandas 3 warns about
pytestmark = pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated")
STEPS = 3


def write_granule(path: Path, n: int) -> None:
    """A file with one of everything; ``n`` tells files apart."""
    rng = np.random.default_rng(n)
    with h5py.File(path, "w") as f:
        f.attrs["title"] = "sea"
        time = f.create_dataset(
            "time", data=np.arange(n * STEPS, (n + 1) * STEPS, dtype="f8"), maxshape=(None,), chunks=(STEPS,)
        )
        time.make_scale("time")
        time.attrs["units"] = "days since 2000-01-01"
        lat = f.create_dataset("lat", data=np.linspace(-1, 1, 5, dtype="f4"))
        lat.make_scale("lat")
        lon = f.create_dataset("lon", data=np.linspace(0, 1, 7).astype(">f8"))
        lon.make_scale("lon")

        def make(name: str, values: NDArray[np.generic], dims: tuple[h5py.Dataset, ...], **kwargs: object) -> h5py.Dataset:
            d = f.create_dataset(name, data=values, **kwargs)
            for i, scale in enumerate(dims):
                d.dims[i].attach_scale(scale)
            return d

        every = (time, lat, lon)
        packed = rng.integers(-300, 300, (STEPS, 5, 7)).astype("i2")
        sst = make("sst", packed, every, chunks=(1, 2, 3), compression=4, shuffle=True, fillvalue=-999)
        sst.attrs["_FillValue"] = np.int16(-999)
        sst.attrs["scale_factor"] = np.float32(0.01)
        make("big", rng.normal(size=(STEPS, 5, 7)).astype(">f4"), every, chunks=(STEPS, 5, 4), compression=1, shuffle=True)
        make("checked", rng.integers(0, 9, (STEPS, 5, 7)).astype("u1"), every, chunks=(1, 5, 7), fletcher32=True)
        make("flat", rng.normal(size=(STEPS, 5, 7)), every)
        # the joined axis is the second one, so rows of granules interleave in C order
        make("level", rng.normal(size=(2, STEPS, 5)).astype("f4"), (), chunks=(1, STEPS, 5))
        for i, scale in enumerate((None, time, lat)):
            if scale is not None:
                f["level"].dims[i].attach_scale(scale)
        holes = make("holes", np.zeros((STEPS, 5, 7), "f4"), (), chunks=(1, 5, 7), fillvalue=7.5)
        del f["holes"]
        holes = f.create_dataset("holes", (STEPS, 5, 7), "f4", chunks=(1, 5, 7), fillvalue=7.5)
        for i, scale in enumerate(every):
            holes.dims[i].attach_scale(scale)
        holes[n % STEPS] = rng.normal(size=(5, 7))
        zeros = f.create_dataset("zeros", (STEPS, 5, 7), "i4", chunks=(1, 5, 7))
        for i, scale in enumerate(every):
            zeros.dims[i].attach_scale(scale)
        zeros.attrs["_FillValue"] = np.int32(-1)
        zeros[0] = rng.integers(-1, 2, (5, 7))
        masked = f.create_dataset("masked", (STEPS, 5, 7), "i4", chunks=(1, 5, 7), compression=1, shuffle=True)
        for i, scale in enumerate(every):
            masked.dims[i].attach_scale(scale)
        masked[:] = rng.integers(0, 100, (STEPS, 5, 7))
        raw = rng.integers(0, 100, (1, 5, 7)).astype("i4")
        masked.id.write_direct_chunk((1, 0, 0), raw.tobytes(), filter_mask=3)
        make("names", np.array([b"alpha", b"be"], "S5"), ())
        f.create_dataset("words", data=["väl", "", "x" * 40], dtype=h5py.string_dtype())
        f.create_dataset("crs", data=np.int32(4326))
        f.create_dataset("word", data="one", dtype=h5py.string_dtype())
        f.create_dataset("nothing", (0,), "f4", maxshape=(None,), chunks=(4,))
        g = f.create_group("ice")
        g.attrs["note"] = "°C"
        c = g.create_dataset("depth", data=rng.normal(size=(STEPS, 5)), chunks=(STEPS, 2), compression=1)
        c.dims[0].attach_scale(time)
        c.dims[1].attach_scale(lat)


@pytest.fixture(params=[(1, 1000), (4, 1000), (4, 7)], ids=["one", "four", "four-small-batches"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> HandArchive:
    """Files whose names need quoting in a URL."""
    n, batch = request.param
    folder = tmp_path / "raw data #1"
    (folder / "y%20").mkdir(parents=True)
    names = [f"y%20/a {i}?.nc" for i in range(n)]
    for i, name in enumerate(names):
        write_granule(folder / name, i)
        if i:
            with h5py.File(folder / name, "a") as f, h5py.File(folder / names[0]) as first:
                for same in ("names", "words"):
                    f[same][...] = first[same][...]
    return hand_archive(folder, names, batch=batch)


def open_icechunk(target: Path) -> icechunk.IcechunkStore:
    storage = icechunk.local_filesystem_storage(str(target))
    prefixes = [c.url_prefix for c in icechunk.Repository.open(storage).config.virtual_chunk_containers.values()]
    access = dict.fromkeys(prefixes, icechunk.credentials.LocalFileSystemAccess)
    return icechunk.Repository.open(storage, authorize_virtual_chunk_access=access).readonly_session("main").store


def open_kerchunk(target: Path) -> zarr.storage.FsspecStore:
    fs = fsspec.filesystem("reference", fo=str(target), remote_protocol="file", lazy=True, asynchronous=True)
    return zarr.storage.FsspecStore(fs, read_only=True, path="")


def emit_icechunk(archive: HandArchive, target: Path) -> icechunk.IcechunkStore:
    IcechunkEmitter().emit(archive.view(), LocalStore(target.parent), target.name, {})
    return open_icechunk(target)


def emit_kerchunk(archive: HandArchive, target: Path) -> zarr.storage.FsspecStore:
    KerchunkParquetEmitter().emit(archive.view(), LocalStore(target.parent), target.name, {})
    return open_kerchunk(target)


FORMS = pytest.mark.parametrize("emit", [emit_icechunk, emit_kerchunk])
type Emit = Callable[[HandArchive, Path], zarr.abc.store.Store]


def same(a: NDArray[np.generic], b: NDArray[np.generic]) -> None:
    assert a.shape == b.shape
    if a.dtype.kind in "OTU":
        assert a.tolist() == b.tolist()
    else:
        assert a.astype(b.dtype.newbyteorder("=")).tobytes() == b.astype(b.dtype.newbyteorder("=")).tobytes()


@FORMS
def test_zarr_reads_what_h5py_reads(emit: Emit, archive: HandArchive, tmp_path: Path) -> None:
    group = zarr.open_group(emit(archive, tmp_path / "out"), mode="r")
    assert group.attrs["title"] == "sea"
    for array in archive.combined.arrays:
        got = group[array.path[1:]]
        same(np.asarray(got[...]), archive.values(array.path))


@FORMS
def test_xarray_reads_what_h5py_reads(emit: Emit, archive: HandArchive, tmp_path: Path) -> None:
    store = emit(archive, tmp_path / "out")
    with xr.open_dataset(store, engine="zarr", consolidated=False, decode_times=False) as ds:
        assert ds["sst"].dims == ("time", "lat", "lon")
        for name in ("big", "flat", "holes", "level", "lat", "lon", "time", "masked", "checked"):
            same(ds[name].values, archive.values(f"/{name}"))
        for name, missing in (("sst", -999), ("zeros", -1)):
            raw = archive.values(f"/{name}").astype("f8")
            want = np.where(raw == missing, np.nan, raw * float(np.float32(0.01)) if name == "sst" else raw)
            np.testing.assert_allclose(ds[name].values, want, rtol=1e-6)
            assert int(np.isnan(ds[name].values).sum()) == int((raw == missing).sum())
        assert "drystone_ledger" not in ds
    with xr.open_dataset(store, engine="zarr", consolidated=False, group="ice", decode_times=False) as ds:
        same(ds["depth"].values, archive.values("/ice/depth"))
        assert ds.attrs["note"] == "°C"

"""The peers, each one task on one archive, in a process of its own: prints seconds, units of work and peak memory as JSON.

usage: peers.py TASK FOLDER [OUT] [--threads N]

Scanning (imports and a first tiny read are not counted):

- ``scan-h5py``          low-level h5py: every chunk of every variable
- ``scan-h5py-attrs``    the same, and every attribute
- ``scan-virtualizarr``  ``HDFParser`` alone: manifests in memory
- ``scan-virtualizarr-dataset``  ``open_virtual_dataset``, as its documentation scans
- ``scan-kerchunk``      ``SingleHdf5ToZarr``: references in memory

Rechunking netCDF files to Zarr v3, time-long chunks in shards as SPLIT says, blosc zstd 1, packed values:

- ``rechunk-xarray``       ``open_mfdataset``, Dask's task rechunking on threads
- ``rechunk-p2p``          the same on two processes, Dask's peer-to-peer shuffle
- ``rechunk-virtualizarr`` through a virtual Icechunk store, Dask's task rechunking on threads
- ``virtual``              that virtual store alone, at OUT
- ``rechunk-existing``     from such a store at OUT with the suffix .icechunk
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import time
from collections.abc import Callable
from pathlib import Path

# by kind of archive: variables; inner chunk and shard along each axis but time
VARIABLES = {"oisst": ["sst", "anom"], "mur": ["analysed_sst"]}
SPLIT = {
    "oisst": {"zlev": (1, 1), "lat": (90, 360), "lon": (144, 720)},
    "mur": {"lat": (300, 1800), "lon": (300, 1800)},
}


def scan_h5py(files: list[str], attributes: bool = False) -> int:
    """Chunk rows of every dataset through the low-level API; the floor that any scanner on h5py stands on."""
    import h5py

    references = 0
    for path in files:
        with h5py.File(path) as file:
            for name in file:
                rows: list[tuple[int, int]] = []
                identity = file[name].id
                if identity.get_create_plist().get_layout() == h5py.h5d.CHUNKED:
                    identity.chunk_iter(lambda c, rows=rows: rows.append((c.byte_offset, c.size)))
                references += len(rows)
                if attributes:
                    for i in range(h5py.h5a.get_num_attrs(identity)):
                        attribute = h5py.h5a.open(identity, index=i)
                        attribute.get_type(), attribute.get_space()
    return references


def scan_virtualizarr(files: list[str]) -> int:
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr.parsers import HDFParser

    registry, parser, references = ObjectStoreRegistry({"file://": LocalStore()}), HDFParser(), 0
    for path in files:
        store = parser(url=f"file://{path}", registry=registry)
        for array in store._group.arrays.values():
            references += len(array.manifest.dict())
    return references


def scan_virtualizarr_dataset(files: list[str]) -> int:
    """As its documentation scans: a virtual dataset, coordinates loaded."""
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr import open_virtual_dataset
    from virtualizarr.manifests import ManifestArray
    from virtualizarr.parsers import HDFParser

    registry, parser, references = ObjectStoreRegistry({"file://": LocalStore()}), HDFParser(), 0
    for path in files:
        with open_virtual_dataset(f"file://{path}", registry=registry, parser=parser) as dataset:
            arrays = (v.data for v in dataset.variables.values() if isinstance(v.data, ManifestArray))
            references += sum(len(a.manifest.dict()) for a in arrays)
    return references


def scan_kerchunk(files: list[str]) -> int:
    from kerchunk.hdf import SingleHdf5ToZarr

    return sum(
        sum(isinstance(v, list) for v in SingleHdf5ToZarr(path, inline_threshold=0).translate()["refs"].values())
        for path in files
    )


def kind_of(files: list[str]) -> str:
    """The kind of an archive that make_archive.py made, by the names of its files."""
    return Path(files[0]).name.partition("-")[0]


def encoding(kind: str, steps: int) -> dict[str, dict[str, object]]:
    from zarr.codecs import BloscCodec

    split = SPLIT[kind].values()
    codec = BloscCodec(cname="zstd", clevel=1, shuffle="shuffle")
    one = {"chunks": (steps, *(c for c, _ in split)), "shards": (steps, *(s for _, s in split)), "compressors": [codec]}
    return {v: dict(one) for v in VARIABLES[kind]}


def open_files(files: list[str]):
    import xarray as xr

    return xr.open_mfdataset(
        files, engine="h5netcdf", combine="nested", concat_dim="time", chunks={}, mask_and_scale=False, data_vars="minimal",
        coords="minimal", compat="override",
    )  # fmt: skip


def write(dataset, out: Path, kind: str) -> None:
    steps = dataset.sizes["time"]
    dataset = dataset[VARIABLES[kind]].drop_vars([c for c in dataset.coords if c != "time"], errors="ignore")
    dataset = dataset.chunk({"time": steps, **{dim: shard for dim, (_, shard) in SPLIT[kind].items()}})
    for v in dataset.variables:
        dataset[v].encoding = {}
        dataset[v].attrs.pop("_FillValue", None)
    dataset.to_zarr(out, mode="w", zarr_format=3, consolidated=False, encoding=encoding(kind, steps))


def rechunk_xarray(files: list[str], out: Path, threads: int) -> int:
    import dask

    with dask.config.set({"array.rechunk.method": "tasks", "scheduler": "threads", "num_workers": threads}):
        write(open_files(files), out, kind_of(files))
    return len(files)


def rechunk_p2p(files: list[str], out: Path, threads: int) -> int:
    import dask
    from distributed import Client

    with (
        Client(n_workers=threads, threads_per_worker=1, memory_limit="8GiB", dashboard_address=None),
        dask.config.set({"array.rechunk.method": "p2p"}),
    ):
        write(open_files(files), out, kind_of(files))
    return len(files)


def virtual_store(files: list[str], out: Path) -> int:
    """A virtual Icechunk store of the files, beside ``out``."""
    import icechunk
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr import open_virtual_mfdataset
    from virtualizarr.parsers import HDFParser

    virtual = open_virtual_mfdataset(
        [f"file://{p}" for p in files],
        registry=ObjectStoreRegistry({"file://": LocalStore()}),
        parser=HDFParser(),
        combine="nested",
        concat_dim="time",
        data_vars="minimal",
        coords="minimal",
        compat="override",
        loadable_variables=["time", *SPLIT[kind_of(files)]],
    )
    folder, store = os.path.dirname(files[0]), out.with_suffix(".icechunk")
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(f"file://{folder}/", icechunk.local_filesystem_store(folder))
    )
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(store)), config)
    session = repository.writable_session("main")
    virtual.vz.to_icechunk(session.store)
    session.commit("virtual")
    return len(files)


def rechunk_existing(files: list[str], out: Path, threads: int) -> int:
    """From a virtual store that is there."""
    import dask
    import icechunk
    import xarray as xr

    storage = icechunk.local_filesystem_storage(str(out.with_suffix(".icechunk")))
    access = {f"file://{os.path.dirname(files[0])}/": None}
    repository = icechunk.Repository.open(storage, authorize_virtual_chunk_access=access)
    with dask.config.set({"array.rechunk.method": "tasks", "scheduler": "threads", "num_workers": threads}):
        store = repository.readonly_session("main").store
        write(xr.open_zarr(store, consolidated=False, mask_and_scale=False, chunks={}), out, kind_of(files))
    return len(files)


def rechunk_virtualizarr(files: list[str], out: Path, threads: int) -> int:
    virtual_store(files, out)
    return rechunk_existing(files, out, threads)


SCANS: dict[str, Callable[[list[str]], int]] = {
    "scan-h5py": scan_h5py,
    "scan-h5py-attrs": lambda files: scan_h5py(files, attributes=True),
    "scan-virtualizarr": scan_virtualizarr,
    "scan-virtualizarr-dataset": scan_virtualizarr_dataset,
    "scan-kerchunk": scan_kerchunk,
}
RECHUNKS: dict[str, Callable[[list[str], Path, int], int]] = {
    "rechunk-xarray": rechunk_xarray,
    "rechunk-p2p": rechunk_p2p,
    "rechunk-virtualizarr": rechunk_virtualizarr,
    "virtual": lambda files, out, _: virtual_store(files, out),
    "rechunk-existing": rechunk_existing,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=[*SCANS, *RECHUNKS])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--files", type=int)
    asked = parser.parse_args()
    files = [str(p.resolve()) for p in sorted(asked.folder.glob("*.nc"))][: asked.files]
    if asked.task in SCANS:
        SCANS[asked.task](files[:1])  # imports and warm caches
        start = time.perf_counter()
        units = SCANS[asked.task](files)
    else:
        shutil.rmtree(asked.out, ignore_errors=True)
        start = time.perf_counter()
        units = RECHUNKS[asked.task](files, asked.out, asked.threads)
    seconds = time.perf_counter() - start
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) * 1024
    print(json.dumps({"task": asked.task, "seconds": seconds, "units": units, "files": len(files), "peak_bytes": peak}))


if __name__ == "__main__":
    main()

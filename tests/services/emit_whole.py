"""Wholes put together by hand from files that h5py wrote, for emitters' tests: what combining makes, without combining."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import h5py
import icechunk
import numpy as np
import zarr
from numpy.typing import NDArray
from services.emit_archive import HandArchive, HandFetcher, HandRows, scan_file

from drystone.emit.icechunk import IcechunkEmitter
from drystone.emit.kerchunk_parquet import KerchunkParquetEmitter
from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.array import ArraySpec
from drystone.model.granule import Granule
from drystone.model.placement import Combined, CombinedArray, Placements, Tile
from drystone.storage.address import Places
from drystone.storage.local import LocalStore
from drystone.storage.store import Place


def write(
    path: Path, values: NDArray[np.generic], *, name: str = "v", attrs: Mapping[str, object] | None = None, **how: object
) -> None:
    """One array in one file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "a") as f:
        d = f.create_dataset(name, data=values, **how)
        d.attrs.update(attrs or {})


def placements(
    axis: int | None, rows: Sequence[tuple[int, int, int, int]], *, variant: Sequence[int] | None = None,
    tiles: tuple[Tile, ...] = (), tile: Sequence[int] = (),
) -> Placements:  # fmt: skip
    """Rows are granule, source offset, count, destination."""
    g, s, c, d = np.array(rows, np.int64).reshape(-1, 4).T
    which = np.zeros(len(rows), np.int32) if variant is None else np.array(variant, np.int32)
    return Placements(axis, g.astype(np.int32), s, c, d, which, tiles, np.array(tile, np.int32))


def insert_axes(spec: ArraySpec, dims: Sequence[str], new: Sequence[int]) -> ArraySpec:
    """A granule's spec in the whole's rank."""
    shape, chunk = list(spec.shape), list(spec.chunk_shape)
    for d in new:
        shape.insert(d, 1)
        chunk.insert(d, 1)
    return replace(spec, dims=tuple(dims), shape=tuple(shape), chunk_shape=tuple(chunk), unlimited=())


def archive_of(folder: Path, names: Sequence[str], *, batch: int = 1000) -> HandArchive:
    """Files scanned, with nothing combined yet."""
    places = Places.of([Place("raw", folder.as_uri())])
    store = places.store("raw")
    scans = {i: scan_file(folder / n) for i, n in enumerate(names)}
    granules = {
        i: Granule(i, f"raw:{n}", store.stat(n), "hdf5", 0, scans[i].n_rows, scans[i].digest()) for i, n in enumerate(names)
    }
    rows = HandRows(granules, scans, batch)
    return HandArchive(Combined(scans[0].groups, (), None), rows, places, HandFetcher(rows, places))


def array_of(
    archive: HandArchive, p: Placements, shape: tuple[int, ...], grid: ChunkGrid, *, granules: Sequence[int] = (0,),
    source: str = "/v", path: str = "/v", dims: Sequence[str] = ("t", "y", "x"), new: tuple[int, ...] = (),
    unaligned: str | None = None,
) -> CombinedArray:  # fmt: skip
    """A whole of the array ``source``; its variants are those of ``granules``."""
    found = [next(a.spec for a in archive.rows.scans[g].arrays if a.spec.path == source) for g in granules]
    variants = tuple(insert_axes(s, dims[: len(shape)], new) for s in found)
    v = variants[0]
    return CombinedArray(
        path, tuple(dims[: len(shape)]), shape, v.native_dtype, v.dtype, v.fill, v.codecs, v.attributes, grid, unaligned, p,
        variants, source=source, new_axes=new,
    )  # fmt: skip


def with_arrays(archive: HandArchive, *arrays: CombinedArray, **coordinates: NDArray[np.generic]) -> HandArchive:
    """The archive, combined to these arrays."""
    known = {f"/{k}": v for k, v in coordinates.items()}
    return replace(archive, combined=replace(archive.combined, arrays=arrays, axis="t", axes=("t",), coordinates=known))


def open_icechunk(target: Path) -> icechunk.IcechunkStore:
    """For reading."""
    storage = icechunk.local_filesystem_storage(str(target))
    prefixes = [c.url_prefix for c in icechunk.Repository.open(storage).config.virtual_chunk_containers.values()]
    access = dict.fromkeys(prefixes, icechunk.credentials.LocalFileSystemAccess)
    return icechunk.Repository.open(storage, authorize_virtual_chunk_access=access).readonly_session("main").store


def emit_icechunk(archive: HandArchive, target: Path, **options: object) -> zarr.abc.store.Store:
    """Publish and open."""
    IcechunkEmitter().emit(archive.view(), LocalStore(target.parent), target.name, options)
    return open_icechunk(target)


def emit_kerchunk(archive: HandArchive, target: Path, **options: object) -> zarr.abc.store.Store:
    """Publish and open."""
    import fsspec

    KerchunkParquetEmitter().emit(archive.view(), LocalStore(target.parent), target.name, options)
    fs = fsspec.filesystem("reference", fo=str(target), remote_protocol="file", lazy=True, asynchronous=True)
    return zarr.storage.FsspecStore(fs, read_only=True, path="")

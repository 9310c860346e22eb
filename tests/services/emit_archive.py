"""A small archive scanned by hand, for tests of emitters: h5py alone says where chunks lie and what values are.

It shares no code with drystone's scanner and fetcher, so that an emitter's test fails for the emitter's faults only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from drystone.codecs.chain import Codec, CodecChain
from drystone.codecs.encode import encode_chunk
from drystone.emit.view import TableView
from drystone.model.array import ArraySpec, GroupSpec
from drystone.model.attributes import Attributes
from drystone.model.chunk_rows import ChunkRows, RowBatch, ScannedArray, ScanResult, State
from drystone.model.granule import Granule
from drystone.model.options import AxisOptions, CombineOptions
from drystone.model.placement import Combined, CombinedArray
from drystone.plan.combine import combine
from drystone.plan.members import from_scans
from drystone.storage.address import Places
from drystone.storage.store import Place

_DIMENSION_ATTRIBUTES = {
    "DIMENSION_LIST",
    "REFERENCE_LIST",
    "CLASS",
    "NAME",
    "_Netcdf4Dimid",
    "_NCProperties",
    "_Netcdf4Coordinates",
}
_COORDINATE_BUDGET = 4096


def _attributes(thing: h5py.AttributeManager) -> Attributes:
    return Attributes.of({k: v for k, v in thing.items() if k not in _DIMENSION_ATTRIBUTES})


def _chain(dataset: h5py.Dataset, dtype: np.dtype) -> CodecChain:
    if dtype.kind == "T":
        return CodecChain.of("vlen-utf8")
    first = Codec.of("bytes") if dtype.itemsize == 1 or dtype.kind in "SV" else Codec.of(
        "bytes", endian="big" if dtype.str[0] == ">" else "little"
    )  # fmt: skip
    steps = [first]
    plist = dataset.id.get_create_plist()
    for i in range(plist.get_nfilters()):
        number, _, values, _ = plist.get_filter(i)
        if number == 2:
            steps.append(Codec.of("shuffle", elementsize=dtype.itemsize))
        elif number == 1:
            steps.append(Codec.of("zlib", level=values[0]))
        elif number == 3:
            steps.append(Codec.of("fletcher32"))
        else:
            steps.append(Codec.of("lzf" if number == 32000 else f"hdf5-filter-{number}"))
    return CodecChain(tuple(steps))


def _dims(dataset: h5py.Dataset) -> tuple[str, ...]:
    names = []
    for i, dim in enumerate(dataset.dims):
        names.append(dim[0].name.rsplit("/", 1)[-1] if len(dim) else f"dim_{i}_{dataset.shape[i]}")
    if dataset.is_scale and dataset.ndim == 1:
        return (dataset.name.rsplit("/", 1)[-1],)
    return tuple(names)


def scan_array(dataset: h5py.Dataset) -> ScannedArray:
    """One array of a file."""
    text = h5py.check_string_dtype(dataset.dtype) is not None and dataset.dtype.kind == "O"
    dtype = np.dtypes.StringDType() if text else dataset.dtype
    rank, shape = dataset.ndim, dataset.shape
    chunk_shape = dataset.chunks or tuple(max(1, n) for n in shape)
    rows, inline, masks = ChunkRows.empty(rank), {}, {}
    values = dataset.asstr()[()] if text else dataset[()]
    if text:
        rows = ChunkRows.single(rank, -1, 0, State.INLINE)
        values = np.asarray(values, np.dtypes.StringDType())
        inline[0] = encode_chunk(values, CodecChain.of("vlen-utf8"), dtype)
        chunk_shape = tuple(max(1, n) for n in shape)
    elif dataset.chunks:
        infos = [dataset.id.get_chunk_info(i) for i in range(dataset.id.get_num_chunks())]
        coords = np.array([[o // c for o, c in zip(i.chunk_offset, chunk_shape, strict=True)] for i in infos], np.int32)
        rows = ChunkRows(
            coords.reshape(-1, rank).T.copy(),
            np.array([i.byte_offset for i in infos], np.int64),
            np.array([i.size for i in infos], np.int64),
            np.zeros(len(infos), np.int8),
        ).sorted()
        masks = {n: i.filter_mask for n, i in enumerate(infos) if i.filter_mask}
    elif dataset.id.get_offset() is not None and dataset.size:
        rows = ChunkRows.single(rank, dataset.id.get_offset(), dataset.id.get_storage_size())
    fill = None if text else np.asarray(dataset.fillvalue, dtype).tobytes()
    spec = ArraySpec(
        dataset.name, _dims(dataset), shape, chunk_shape, dtype, fill, _chain(dataset, dtype), _attributes(dataset.attrs),
        sparse=not text, padded=dataset.chunks is not None,
    )  # fmt: skip
    small = rank < 2 and dataset.size * dtype.itemsize <= _COORDINATE_BUDGET and (text or dataset.is_scale or rank == 0)
    native = np.asarray(values) if text or not small else np.asarray(values).astype(dtype.newbyteorder("="))
    return ScannedArray(spec, rows, inline, masks, native if small else None)


def scan_file(path: Path) -> ScanResult:
    """Everything in one file."""
    groups, arrays = [], []

    def visit(group: h5py.Group) -> None:
        groups.append(GroupSpec(group.name, _attributes(group.attrs)))
        for child in group.values():
            if isinstance(child, h5py.Group):
                visit(child)
            else:
                arrays.append(scan_array(child))

    with h5py.File(path) as f:
        visit(f)
    return ScanResult("hdf5", tuple(groups), tuple(arrays))


@dataclass
class HandRows:
    """A row source over scans, giving batches of at most ``size`` rows, granules mixed."""

    granules: dict[int, Granule]
    scans: dict[int, ScanResult]
    size: int = 1000

    def granule(self, granule_id: int) -> Granule:
        return self.granules[granule_id]

    def rows(self, path: str, granule_ids: NDArray[np.int32] | None = None) -> Iterator[RowBatch]:
        wanted = sorted(self.scans) if granule_ids is None else sorted(granule_ids.tolist())
        parts: list[tuple[int, ScannedArray]] = []
        for g in wanted:
            parts += [(g, a) for a in self.scans[g].arrays if a.spec.path == path]
        flat = [(g, a, i) for g, a in parts for i in range(len(a.rows))]
        for start in range(0, len(flat), self.size):
            some = flat[start : start + self.size]
            rank = some[0][1].rows.rank
            yield RowBatch(
                np.array([g for g, _, _ in some], np.int32),
                np.array([a.rows.coords[:, i] for _, a, i in some], np.int32).reshape(-1, rank).T.copy(),
                np.array([a.rows.offset[i] for _, a, i in some], np.int64),
                np.array([a.rows.length[i] for _, a, i in some], np.int64),
                np.array([a.rows.state[i] for _, a, i in some], np.int8),
                {n: a.inline[i] for n, (_, a, i) in enumerate(some) if i in a.inline},
                {n: a.masks[i] for n, (_, a, i) in enumerate(some) if i in a.masks},
            )


def gap_of(array: CombinedArray) -> object:
    """What a place without a granule reads as: ``_FillValue``, or NaN."""
    fill = array.attributes.get("_FillValue")
    if fill is not None:
        return np.asarray(fill.value).reshape(-1)[0]
    return np.nan if array.dtype.kind == "f" else array.fill_scalar


@dataclass
class HandFetcher:
    """Values through h5py."""

    rows: HandRows
    places: Places

    def whole(self, array: CombinedArray) -> NDArray[np.generic]:
        """All values of an array, joined by its placements."""
        out = np.full(array.shape, gap_of(array), array.dtype)
        for i in range(len(array.placements)):
            p = array.placements.box(i, array.shape)
            store, key = self.places.resolve(self.rows.granule(int(array.placements.granule_id[i])).address)
            assert store.root is not None
            with h5py.File(Path(store.root) / key) as f:
                dataset = f[array.inner]
                values = dataset.asstr()[()] if array.dtype.kind == "T" else dataset[()]
            source = np.expand_dims(np.asarray(values), array.new_axes)[
                tuple(slice(o, o + c) for o, c in zip(p.src_offset, p.count, strict=True))
            ]
            out[tuple(slice(a, b) for a, b in zip(p.dest, p.stop, strict=True))] = source
        return out

    def read_box(self, array: CombinedArray, start: Sequence[int], stop: Sequence[int]) -> NDArray[np.generic]:
        return self.whole(array)[tuple(slice(a, b) for a, b in zip(start, stop, strict=True))]

    def encoded_chunk(self, array: CombinedArray, coords: Sequence[int]) -> bytes | None:
        where = tuple(coords)
        block = np.full(array.grid.encoded_shape(where), array.fill_scalar, array.dtype)
        edges = [e[c : c + 2].tolist() for e, c in zip(array.grid.edges(), where, strict=True)]
        part = self.whole(array)[tuple(slice(a, b) for a, b in edges)]
        block[tuple(slice(0, n) for n in part.shape)] = part
        return encode_chunk(block, array.codecs, array.stored_dtype)


@dataclass
class HandArchive:
    """Granules of a folder, combined along ``time`` where more than one."""

    combined: Combined
    rows: HandRows
    places: Places
    fetcher: HandFetcher

    def view(self, **kwargs: object) -> TableView:
        return TableView(self.combined, self.rows, self.places, self.fetcher, **kwargs)  # type: ignore[arg-type]

    def values(self, path: str) -> NDArray[np.generic]:
        """What h5py reads, joined."""
        return self.fetcher.whole(self.combined.array(path))


def hand_archive(
    folder: Path, names: Sequence[str], *, batch: int = 1000, axis: str | None = "time", url: str | None = None
) -> HandArchive:
    """Scan the files ``names`` of ``folder``; ids go by the order given."""
    places = Places.of([Place("raw", url or folder.as_uri())])
    store = places.store("raw")
    scans = {i: scan_file(folder / name) for i, name in enumerate(names)}
    granules = {
        i: Granule(i, f"raw:{name}", store.stat(name), "hdf5", 0, scans[i].n_rows, scans[i].digest())
        for i, name in enumerate(names)
    }
    options = CombineOptions((AxisOptions(axis),) if axis and len(names) > 1 else ())
    combined = combine(from_scans(scans), scans[0].groups, {i: f"raw:{n}" for i, n in enumerate(names)}, options)
    rows = HandRows(granules, scans, batch)
    return HandArchive(combined, rows, places, HandFetcher(rows, places))

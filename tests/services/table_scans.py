"""Scan results made up for tests of the table: realistic ones in bulk, and odd ones drawn from a generator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from drystone.codecs.chain import Codec, CodecChain
from drystone.model.array import ArraySpec, GroupSpec
from drystone.model.attributes import Attributes
from drystone.model.chunk_rows import ChunkRows, RowBatch, ScannedArray, ScanResult, State
from drystone.model.granule import Listed
from drystone.storage.stamp import Stamp
from drystone.table.table import ReferenceTable

CHAIN = CodecChain.of(Codec.of("bytes", endian="little"), Codec.of("shuffle", elementsize=4), Codec.of("zlib", level=4))

type Scan = tuple[int, Listed, ScanResult]


def listed(granule: int, version: int = 0) -> Listed:
    return Listed(f"raw:a/{granule:05}.nc", Stamp(1_000_000 + granule, 10**18 + version))


def gridded(granule: int, shape: tuple[int, ...] = (1, 40, 25), arrays: int = 5, seed: int = 0) -> Scan:
    """Arrays of many chunks of some 60 kB each, stored one after the other, as archives have them."""
    rng = np.random.default_rng([seed, granule])
    n = int(np.prod(shape))
    coords = np.indices(shape).reshape(len(shape), n).astype(np.int32)
    out, at = [], 8192
    for v in range(arrays):
        length = np.clip(rng.normal(60_000, 9_000, n), 100, None).astype(np.int64)
        offset = at + np.concatenate([[0], np.cumsum(length)[:-1]])
        at = int(offset[-1] + length[-1]) + 4000
        whole, edges = tuple(100 * k for k in shape), (100,) * len(shape)
        spec = ArraySpec(f"/v{v}", ("t", "y", "x")[: len(shape)], whole, edges, np.dtype("<f4"), None, CHAIN)
        out.append(ScannedArray(spec, ChunkRows(coords, offset, length, np.zeros(n, np.int8))))
    return granule, listed(granule), ScanResult("hdf5", (GroupSpec("/", Attributes.of({"n": granule})),), tuple(out))


NAMES = ("sst", "err", "anom", "ice", "lat", "lon")
SINGLE = {n: ArraySpec(f"/{n}", ("t", "y", "x"), (1, 720, 1440), (1, 720, 1440), np.dtype("<i2"), None, CHAIN) for n in NAMES}


def single_chunks(granule: int, seed: int = 0) -> Scan:
    """Six arrays of one chunk each: a daily file."""
    rng = np.random.default_rng([seed, granule])
    shift, length = rng.integers(0, 4000, 6).tolist(), rng.integers(300_000, 700_000, 6).tolist()
    rows = [ChunkRows.single(3, 8000 + 800_000 * k + shift[k], length[k]) for k in range(6)]
    arrays = tuple(ScannedArray(SINGLE[n], r) for n, r in zip(NAMES, rows, strict=True))
    return granule, listed(granule), ScanResult("hdf5", (GroupSpec("/"),), arrays)


PATHS = ("/a", "/b", "/group/c", "/d°")


def odd_scan(rng: np.random.Generator, largest: int = 6) -> ScanResult:
    """Arrays of any rank with rows in any state, inline bytes, masks and lengths past 2^31; some without rows."""
    arrays = []
    for path in PATHS:
        if rng.random() < 0.25:
            continue
        rank = int(rng.integers(0, 4)) if rng.random() < 0.3 else len(path) % 3
        shape = tuple(int(n) for n in rng.integers(1, largest, rank))
        coords = np.indices(shape).reshape(rank, int(np.prod(shape))).astype(np.int32)
        chosen = np.flatnonzero(rng.random(coords.shape[1]) < 0.7)
        arrays.append(_odd_array(rng, path, shape, coords[:, chosen]))
    return ScanResult("hdf5", (GroupSpec("/", Attributes.of({"k": int(rng.integers(1 << 30))})),), tuple(arrays))


def _odd_array(rng: np.random.Generator, path: str, shape: tuple[int, ...], coords: np.ndarray) -> ScannedArray:
    n = coords.shape[1]
    state = rng.choice([State.REFERENCED, State.INLINE, State.MISSING, State.LIBRARY], n).astype(np.int8)
    referenced = state == State.REFERENCED
    offset = np.where(referenced, rng.integers(0, 1 << 40, n), -1)
    length = np.where(referenced, rng.integers(1, 1 << 20, n), 0)
    length = np.where(referenced & (rng.random(n) < 0.1), length + (1 << 33), length)
    inline = {int(r): rng.bytes(int(rng.integers(0, 40))) for r in np.flatnonzero(state == State.INLINE)}
    masks = {int(r): int(rng.integers(1, 1 << 31)) for r in np.flatnonzero(referenced & (rng.random(n) < 0.1))}
    for row, data in inline.items():
        length[row] = len(data)
    spec = ArraySpec(
        path, tuple("zyxw"[: len(shape)]), shape, (1,) * len(shape), np.dtype("<f4"), b"\0" * 4, CHAIN, sparse=True
    )
    return ScannedArray(spec, ChunkRows(coords, offset.astype(np.int64), length.astype(np.int64), state), inline, masks)


def joined(batches: Sequence[RowBatch]) -> list[tuple[object, ...]]:
    """Rows as plain tuples, rare parts included, in the order they came."""
    out: list[tuple[object, ...]] = []
    for b in batches:
        columns = (b.granule_id, b.offset, b.length, b.state)
        for r in range(len(b)):
            values = (int(c[r]) for c in columns)
            out.append((*values, tuple(b.coords[:, r].tolist()), b.inline.get(r), b.masks.get(r)))
    return out


def wanted(scans: Mapping[int, ScanResult], path: str) -> list[tuple[object, ...]]:
    """What :func:`joined` must give for one array over some granules."""
    out: list[tuple[object, ...]] = []
    for granule in sorted(scans):
        for array in scans[granule].arrays:
            if array.spec.path == path:
                rows = array.rows
                ids = np.full(len(rows), granule, np.int32)
                batch = RowBatch(ids, rows.coords, rows.offset, rows.length, rows.state, array.inline, array.masks)
                out += joined([batch])
    return out


def assert_holds(table: ReferenceTable, scans: Mapping[int, ScanResult]) -> None:
    """The table's valid rows are exactly those of some scans."""
    assert table.granule_ids().tolist() == sorted(scans)
    for path in {a.spec.path for s in scans.values() for a in s.arrays}:
        assert joined(list(table.rows(path))) == wanted(scans, path), path
    specs = {
        (int(g), p)
        for b in table.arrays()
        for g, p in zip(*(b.column(c).to_pylist() for c in ("granule_id", "path")), strict=True)
    }
    assert specs == {(g, a.spec.path) for g, s in scans.items() for a in s.arrays}
    assert table.verify_rows() == sum(s.n_rows for s in scans.values())

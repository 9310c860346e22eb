"""Values of a scanned array from its rows alone, assembled plainly: what tests compare with h5py."""

import hashlib

import numpy as np
from numpy.lib import recfunctions

from drystone.codecs.decode import decode_chunk
from drystone.model.chunk_rows import State
from drystone.protocols import ScanOptions, Source
from drystone.scan.hdf5 import Hdf5Scanner
from drystone.storage.hdf5_library import read_box
from drystone.storage.local import LocalStore


def source_of(path):
    store = LocalStore(path.parent)
    return Source(store, path.name, f"raw:{path.name}", store.stat(path.name))


def scan(path, **options):
    return Hdf5Scanner().scan(source_of(path), ScanOptions(**options))


def by_path(result):
    return {a.spec.path: a for a in result.arrays}


def values_of(array, path):
    """Native values; unwritten chunks read as the storage fill."""
    spec, rows = array.spec, array.rows
    text = spec.dtype.kind == "T"
    out = np.empty(spec.shape, spec.native_dtype) if not text else np.full(spec.shape, "", spec.dtype)
    if not text:
        out[...] = np.zeros((), spec.native_dtype) if spec.fill is None else np.frombuffer(spec.fill, spec.dtype)[0]
    source = source_of(path)
    seen = set()
    for i in range(len(rows)):
        coords = tuple(int(c) for c in rows.coords[:, i])
        assert coords not in seen
        seen.add(coords)
        start = tuple(c * n for c, n in zip(coords, spec.chunk_shape, strict=True))
        stop = tuple(min(s + n, m) for s, n, m in zip(start, spec.chunk_shape, spec.shape, strict=True))
        box = tuple(slice(a, b) for a, b in zip(start, stop, strict=True))
        inner = tuple(slice(b - a) for a, b in zip(start, stop, strict=True))
        encoded = spec.chunk_shape if spec.padded else tuple(b - a for a, b in zip(start, stop, strict=True))
        state = State(int(rows.state[i]))
        if state is State.MISSING:
            continue
        if state is State.LIBRARY:
            out[box] = read_box(source.store, source.key, spec.path, start, stop)
            continue
        data = (
            array.inline[i]
            if state is State.INLINE
            else source.store.get_range(source.key, int(rows.offset[i]), int(rows.length[i]))
        )
        out[box] = decode_chunk(data, spec.codecs, spec.dtype, encoded, array.masks.get(i, 0))[inner]
    if not spec.sparse:
        assert len(seen) == spec.n_chunks
    return out


def digest(values):
    """By the rules of reference digests: plain values packed and native; text by 8-byte length and bytes."""
    if values.dtype.kind in "TS" and values.ndim == 0:
        raw = values[()]
        return hashlib.sha256(np.asarray(raw if isinstance(raw, bytes) else str(raw).encode()).tobytes()).hexdigest()
    if values.dtype.kind == "T":
        h = hashlib.sha256()
        for text in values.reshape(-1):
            raw = str(text).encode()
            h.update(len(raw).to_bytes(8, "little") + raw)
        return h.hexdigest()
    if values.dtype.names:
        values = recfunctions.repack_fields(values, recurse=True)
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()

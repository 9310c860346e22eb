"""A small archive made by hand: granules are plain files of encoded chunks, and every row, placement and value is known."""

import itertools
from dataclasses import dataclass, field

import numpy as np

from drystone.codecs.chain import Codec, CodecChain
from drystone.codecs.encode import encode_chunk
from drystone.fetch.fetcher import Fetcher
from drystone.fetch.memory_rows import MemoryRows
from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.array import ArraySpec
from drystone.model.attributes import Attributes
from drystone.model.chunk_rows import ChunkRows, ScannedArray, ScanResult, State
from drystone.model.granule import Granule
from drystone.model.placement import CombinedArray, Placements
from drystone.storage.address import Places
from drystone.storage.local import LocalStore
from drystone.storage.store import Place

DEFLATE = CodecChain.of("bytes", Codec.of("shuffle", elementsize=2), Codec.of("zlib", level=1))


def spec(shape, chunk, dtype="<i2", chain=DEFLATE, fill=None, sparse=False, padded=True, path="/v", attributes=None):
    dims = tuple("tyxz"[: len(shape)])
    return ArraySpec(
        path,
        dims,
        shape,
        chunk,
        np.dtype(dtype),
        fill,
        chain,
        attributes or Attributes(),
        (False,) * len(shape),
        sparse,
        padded,
    )


@dataclass
class Archive:
    """Files below ``folder``, and what a scan of them would say."""

    folder: object
    granules: dict = field(default_factory=dict)
    scans: dict = field(default_factory=dict)

    def add(self, granule_id, one, values, *, states=None, masks=None, holes=(), tail=b""):
        """Write a granule.

        ``states``: chunk coordinates to State, for chunks that are not in the file. ``holes``: coordinates without a row.
        """
        states, masks = states or {}, masks or {}
        blob, rows, inline, found_masks = bytearray(b"HEAD"), [], {}, {}
        padded = np.zeros([n * c for n, c in zip(one.grid_shape, one.chunk_shape, strict=True)], one.native_dtype)
        padded[tuple(slice(0, n) for n in one.shape)] = values
        for coords in itertools.product(*(range(n) for n in one.grid_shape)):
            if coords in holes:
                continue
            stop = [
                (k + 1) * c if one.padded else min((k + 1) * c, n)
                for k, c, n in zip(coords, one.chunk_shape, one.shape, strict=True)
            ]
            box = tuple(slice(k * c, b) for k, c, b in zip(coords, one.chunk_shape, stop, strict=True))
            mask = masks.get(coords, 0)
            data = encode_chunk(padded[box], one.codecs.masked(mask), one.dtype)
            state = states.get(coords, State.REFERENCED)
            if mask:
                found_masks[len(rows)] = mask
            if state == State.INLINE:
                inline[len(rows)] = data
            at = -1
            if state == State.REFERENCED:
                at = len(blob)
                blob += data + b"gap"[: sum(coords) % 3]
            length = len(data) if state in (State.REFERENCED, State.INLINE) else 0
            rows.append((coords, at, length, state))
        name = f"g{granule_id}.bin"
        LocalStore(self.folder).put(name, bytes(blob) + tail)
        columns = ChunkRows(
            np.array([r[0] for r in rows], np.int32).reshape(len(rows), len(one.shape)).T,
            np.array([r[1] for r in rows], np.int64),
            np.array([r[2] for r in rows], np.int64),
            np.array([r[3] for r in rows], np.int8),
        )
        self.register(granule_id, name, ScannedArray(one, columns, inline, found_masks))

    def register(self, granule_id, name, *arrays):
        stamp = LocalStore(self.folder).stat(name)
        self.granules[granule_id] = Granule(granule_id, f"here:{name}", stamp, "test", 0, 0, "")
        self.scans[granule_id] = ScanResult("test", (), arrays)

    def places(self):
        return Places.of([Place("here", f"file://{self.folder}")])

    def rows(self):
        return MemoryRows(self.granules, self.scans)

    def fetcher(self, threads=2, bytes_in_flight=1 << 20, **options):
        return Fetcher(self.places(), self.rows(), threads=threads, bytes_in_flight=bytes_in_flight, **options)


def combined(variants, placements, shape, axis=0, grid=None, attributes=None, unaligned=None):
    """``placements``: (granule id, source offset, count, destination, variant) each."""
    first = variants[placements[0][4] if placements else 0]
    columns = np.array(placements, np.int64).reshape(-1, 5).T
    return CombinedArray(
        first.path,
        first.dims,
        shape,
        first.native_dtype,
        first.dtype,
        first.fill,
        first.codecs,
        attributes or first.attributes,
        grid or ChunkGrid.regular(shape, first.chunk_shape),
        unaligned,
        Placements(axis, columns[0].astype(np.int32), columns[1], columns[2], columns[3], columns[4].astype(np.int32)),
        tuple(variants),
    )


def static(one, granule_id, shape=None):
    """An array that one granule stands for."""
    return combined([one], [(granule_id, 0, 1, 0, 0)], shape or one.shape, axis=None)

"""What a published form was made from: one row a granule, and a fingerprint of the whole.

It lies in a group of its own, as plain arrays, in the same commit as the data: ordinary readers see their arrays only,
and a rerun or an append can decide from the store alone whether anything is left to do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drystone.model.placement import Combined
from drystone.protocols import ReferenceView

__all__ = ["Ledger"]

_LAYOUT = 2  # of references, native chunks and ledger; a change of any of them makes a new commit


@dataclass(frozen=True, slots=True)
class Ledger:
    """Columns by granule, ascending ids, and the fingerprint.

    Parameters
    ----------
    granule_id
        int32 (n,).
    address, root, etag, digest
        Text (n,): place and path, name of the public root, ETag or "", digest of the granule's rows.
    size, mtime_ns
        int64 (n,), bytes and nanoseconds since 1970 (-1: unknown).
    fingerprint
        Hex; equal exactly where references, values, attributes and sources are.
    """

    granule_id: NDArray[np.int32]
    address: NDArray[np.generic]
    root: NDArray[np.generic]
    size: NDArray[np.int64]
    mtime_ns: NDArray[np.int64]
    etag: NDArray[np.generic]
    digest: NDArray[np.generic]
    fingerprint: str

    @classmethod
    def of(cls, view: ReferenceView, paths: Iterable[str], settings: str) -> Ledger:
        """Of the arrays ``paths`` of a view; ``settings`` is what else decides the published bytes."""
        ids = view.granule_ids()
        n = len(ids)
        size, mtime = np.zeros(n, np.int64), np.full(n, -1, np.int64)
        address, root, key, etag, digest = [], [], [], [], []
        for i, granule_id in enumerate(ids.tolist()):
            granule = view.granule(granule_id)
            address.append(granule.address)
            public, below = view.public_parts(granule_id)
            root.append(public.name)
            key.append(below)
            etag.append(granule.stamp.etag or "")
            digest.append(granule.content)
            size[i] = granule.stamp.size
            if granule.stamp.mtime_ns is not None:
                mtime[i] = granule.stamp.mtime_ns
        text = [np.array(c, np.dtypes.StringDType()) for c in (address, root, etag, digest)]
        h = hashlib.blake2b(f"{_LAYOUT} {settings}".encode(), digest_size=16)
        for column in (ids, size, mtime):
            h.update(column.tobytes())
        for texts in (address, root, key, etag, digest):
            h.update("\0".join(texts).encode())
        _feed_combined(h, view.combined, sorted(paths))
        return cls(ids, text[0], text[1], size, mtime, text[2], text[3], h.hexdigest())

    def columns(self) -> dict[str, NDArray[np.generic]]:
        """By name, as they are stored."""
        return {
            "granule_id": self.granule_id,
            "address": self.address,
            "root": self.root,
            "size": self.size,
            "mtime_ns": self.mtime_ns,
            "etag": self.etag,
            "digest": self.digest,
        }


def _feed_combined(h: hashlib.blake2b, combined: Combined, paths: list[str]) -> None:
    for group in combined.groups:
        h.update(group.to_json().encode())
    for path in paths:
        array = combined.array(path)
        h.update(array.to_json().encode())
        p = array.placements
        for tile in p.tiles:
            h.update(tile.to_json().encode())
        for column in (p.granule_id, p.src_offset, p.count, p.dest, p.variant, p.tile):
            h.update(np.ascontiguousarray(column).tobytes())
        values = combined.coordinates.get(path)
        if values is not None:
            h.update("\0".join(values.reshape(-1).tolist()).encode() if values.dtype.kind == "T" else values.tobytes())

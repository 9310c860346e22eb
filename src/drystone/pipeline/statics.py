"""Granules that stand for one another: proved equal, not assumed.

Combining promises that granules hold equal values of an array off its joined axes (:class:`~drystone.model.placement.Equal`).
Small ones were compared from the values that scans kept. The others are read here, once a granule and scan attempt, and
reduced to a digest that is kept beside the table; where a tolerance is allowed, values that differ are compared as numbers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from drystone.codecs.zarr_forms import packed_dtype
from drystone.errors import CombineError, StorageError
from drystone.fetch.fetcher import Fetcher
from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.array import ArraySpec
from drystone.model.placement import Combined, CombinedArray, Placements
from drystone.plan.members import ArrayMembers
from drystone.storage.store import Store

__all__ = ["DigestCache", "check_statics"]

_SLAB_BYTES = 64 << 20


class DigestCache:
    """Digests by ``path granule attempt``, kept as one JSON object; losing it costs time, never truth.

    Examples
    --------
    >>> cache = DigestCache(None, "")
    >>> cache.get("/mask", 1, 7, lambda: "abc"), cache.get("/mask", 1, 7, lambda: "never asked")
    ('abc', 'abc')
    """

    def __init__(self, store: Store | None, key: str) -> None:
        self._store, self._key = store, key
        self._known: dict[str, str] = {}
        self._dirty = False
        if store is not None:
            try:
                self._known = dict(json.loads(store.get(key)))
            except StorageError as error:
                if error.kind != "not-found":
                    raise
            except ValueError:
                self._known = {}  # torn or foreign: compute again

    def get(self, path: str, granule_id: int, attempt_id: int, compute: Callable[[], str]) -> str:
        """The digest, computed where it is not known."""
        name = f"{path} {granule_id} {attempt_id}"
        if name not in self._known:
            self._known[name] = compute()
            self._dirty = True
        return self._known[name]

    def save(self) -> None:
        """Keep what is new."""
        if self._store is not None and self._dirty:
            self._store.put(self._key, json.dumps(self._known).encode())


def check_statics(
    combined: Combined,
    members: Mapping[str, ArrayMembers],
    fetcher: Fetcher,
    names: Mapping[int, str],
    cache: DigestCache,
) -> None:
    """Prove the promises of a whole.

    Raises
    ------
    CombineError
        ``static-differs``, naming the variable and both granules.
    """
    for promise in combined.equal:
        m = members[promise.path]
        with ThreadPoolExecutor(4) as pool:
            digests = list(pool.map(lambda g, m=m: _digest_of(m, g, fetcher, cache), promise.granule_id.tolist()))
        shown = dict(zip(promise.granule_id.tolist(), digests, strict=True))
        for granule_id, group in zip(promise.granule_id.tolist(), promise.group.tolist(), strict=True):
            if shown[granule_id] == shown[group] or _close(m, granule_id, group, promise.tolerance, fetcher):
                continue
            one, two = names[group], names[granule_id]
            raise CombineError(
                f"{promise.path} has no part in the joined axis, so one value must stand for all granules, and its values in "
                f"{one} and {two} differ; leave the variable out with combine: {{variables: […]}}, let the first one's count "
                "with combine: {differences: {static: first}}, or split the archive where it changes",
                kind="static-differs",
                variable=promise.path,
                granule=one,
                other=two,
            )


def _close(members: ArrayMembers, one: int, two: int, tolerance: float, fetcher: Fetcher) -> bool:
    """Whether floating-point values differ by no more than is allowed."""
    specs = [members.spec(int(np.searchsorted(members.granule_id, g))) for g in (one, two)]
    if not tolerance or any(s.dtype.kind != "f" for s in specs) or specs[0].shape != specs[1].shape:
        return False
    arrays = [_alone(s, g) for s, g in zip(specs, (one, two), strict=True)]
    edge = specs[0].chunk_shape[0] if specs[0].shape else 1
    for start, stop in _slabs(specs[0].shape, specs[0].dtype.itemsize, edge):
        a, b = (fetcher.read_box(x, start, stop).astype(np.float64) for x in arrays)
        if not np.allclose(a, b, rtol=0, atol=tolerance, equal_nan=True):
            return False
    return True


def _digest_of(members: ArrayMembers, granule_id: int, fetcher: Fetcher, cache: DigestCache) -> str:
    i = int(np.searchsorted(members.granule_id, granule_id))
    spec = members.spec(i)
    attempt = fetcher.granule(granule_id).attempt_id
    return cache.get(members.path, granule_id, attempt, lambda: _digest(_alone(spec, granule_id), fetcher))


def _alone(spec: ArraySpec, granule_id: int) -> CombinedArray:
    """One granule's array as a whole of its own."""
    zero = np.zeros(1, np.int64)
    placements = Placements(None, np.array([granule_id], np.int32), zero, zero + 1, zero, np.zeros(1, np.int32))
    grid = ChunkGrid.regular(spec.shape, spec.chunk_shape)
    return CombinedArray(
        spec.path, spec.dims, spec.shape, spec.native_dtype, spec.dtype, spec.fill, spec.codecs, spec.attributes, grid, None,
        placements, (spec,),
    )  # fmt: skip


def _slabs(shape: tuple[int, ...], itemsize: int, edge: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    if not shape:
        yield (), ()
        return
    row = max(1, int(np.prod(shape[1:], dtype=np.int64)) * itemsize)
    step = max(edge, _SLAB_BYTES // row // edge * edge)
    for a in range(0, shape[0], step):
        yield (a, *(0,) * (len(shape) - 1)), (min(a + step, shape[0]), *shape[1:])


def _digest(array: CombinedArray, fetcher: Fetcher) -> str:
    h = hashlib.blake2b(digest_size=16)
    edge = array.variants[0].chunk_shape[0] if array.shape else 1
    for start, stop in _slabs(array.shape, array.dtype.itemsize, edge):
        h.update(_bytes(fetcher.read_box(array, start, stop)))
    return h.hexdigest()


def _bytes(values: NDArray[np.generic]) -> bytes:
    if values.dtype.kind == "T":
        return json.dumps(values.reshape(-1).tolist()).encode()
    # what lies between the fields of a compound is no value
    return np.ascontiguousarray(values, packed_dtype(values.dtype)).tobytes()

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
from drystone.errors import DecodeError, StorageError
from drystone.fetch.fetcher import Fetcher
from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.array import ArraySpec
from drystone.model.placement import Combined, CombinedArray, Equal, Placements
from drystone.model.recode import Recode
from drystone.plan.members import ArrayMembers
from drystone.plan.same import static_differs
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
        _check(promise, members[promise.path], fetcher, names, cache)


def _check(promise: Equal, members: ArrayMembers, fetcher: Fetcher, names: Mapping[int, str], cache: DigestCache) -> None:
    ids = promise.granule_id.tolist()
    row = {g: i for i, g in enumerate(ids)}
    group = dict(zip(ids, promise.group.tolist(), strict=True))

    def alone(g: int) -> CombinedArray:
        return _alone(members.spec(int(np.searchsorted(members.granule_id, g))), g, promise.recode(row[g]))

    def digest(g: int) -> str:
        try:
            return _digest_of(alone(g), g, fetcher, cache)
        except DecodeError as error:
            if not error.kind.startswith("recode-"):
                raise
            other = next(o for o in ids if o != g and group[o] == group[g])
            raise static_differs(promise.path, names[min(g, other)], names[max(g, other)], f" ({error})") from error

    with ThreadPoolExecutor(4) as pool:
        shown = dict(zip(ids, pool.map(digest, ids), strict=True))
    for g, first in group.items():
        if shown[g] != shown[first] and not _same(alone(first), alone(g), promise.tolerance, fetcher):
            raise static_differs(promise.path, names[first], names[g], " in values")


def _same(one: CombinedArray, two: CombinedArray, tolerance: float, fetcher: Fetcher) -> bool:
    """Whether values are equal though bits are not: two zeros, NaN in two forms, numbers no further apart than is allowed."""
    if any(a.dtype.kind not in "fc" for a in (one, two)) or one.shape != two.shape:
        return False
    edge = one.variants[0].chunk_shape[0] if one.shape else 1
    for start, stop in _slabs(one.shape, one.dtype.itemsize, edge):
        a, b = (fetcher.read_box(x, start, stop) for x in (one, two))
        if not np.allclose(a, b, rtol=0, atol=tolerance, equal_nan=True):
            return False
    return True


def _digest_of(array: CombinedArray, granule_id: int, fetcher: Fetcher, cache: DigestCache) -> str:
    attempt = fetcher.granule(granule_id).attempt_id
    how = array.recodes[0].to_json() if array.recodes and array.recodes[0] is not None else None
    name = array.path if how is None else f"{array.path} {json.dumps(how, sort_keys=True)}"
    return cache.get(name, granule_id, attempt, lambda: _digest(array, fetcher))


def _alone(spec: ArraySpec, granule_id: int, recode: Recode | None) -> CombinedArray:
    """One granule's array as a whole of its own."""
    zero = np.zeros(1, np.int64)
    placements = Placements(None, np.array([granule_id], np.int32), zero, zero + 1, zero, np.zeros(1, np.int32))
    grid = ChunkGrid.regular(spec.shape, spec.chunk_shape)
    dtype = spec.native_dtype if recode is None else recode.dtype
    return CombinedArray(
        spec.path, spec.dims, spec.shape, dtype, spec.dtype, spec.fill, spec.codecs, spec.attributes, grid, None,
        placements, (spec,), "", (), () if recode is None else (recode,),
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

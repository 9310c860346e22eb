"""How fast a place reads and writes: objects of a probe written, flushed, read back from the disk, and removed.

On a folder the system is asked to drop what it holds in memory of a file (``posix_fadvise``) before it is read, and asked
whether it did (``preadv2`` with ``RWF_NOWAIT``): a rate that may be that of memory is marked as such. Of places that are
only read, granules are read.
"""

from __future__ import annotations

import math
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial

import numpy as np

from drystone.errors import StorageError
from drystone.model.rates import PlaceRates
from drystone.storage.local import LocalStore, prune_folders
from drystone.storage.store import Store

__all__ = ["PROBE", "measure_place", "probe_folder", "read_granules"]

PROBE = "drystone-doctor-"
_OBJECT = 16 << 20
_RANGE = 1 << 20  # as a map of an archive is large
_SMALL = 4096
_SMALLS = 8


def written_bytes(cpus: int) -> int:
    """Most bytes that a probe takes of a place at a time."""
    return (_streams(cpus) + 1) * _OBJECT + _SMALLS * _SMALL


def _streams(cpus: int) -> int:
    return min(cpus, 8)  # more would say no more, and take seconds


@contextmanager
def probe_folder(store: Store, prefix: str) -> Iterator[str]:
    """A fresh prefix below another; all that is under it is gone afterwards, the folder too."""
    key = "/".join(p for p in (prefix.strip("/"), f"{PROBE}{uuid.uuid4().hex[:12]}") if p)
    try:
        yield key
    except StorageError:
        with suppress(StorageError):  # the first error is the one to tell
            _remove(store, key)
        raise
    except BaseException:
        _remove(store, key)
        raise
    _remove(store, key)


def _remove(store: Store, key: str) -> None:
    for name, _ in list(store.list(f"{key}/")):
        store.delete(name)
    if isinstance(store, LocalStore) and os.path.isdir(store.path(key)):
        prune_folders(store.path(key))


def measure_place(store: Store, key: str, cpus: int) -> PlaceRates:
    """Write, read and time objects below a key.

    Raises
    ------
    StorageError
        It cannot be written or read.
    """
    data = np.random.default_rng(0).bytes(_OBJECT)
    small = [f"{key}/small-{i}" for i in range(_SMALLS)]
    before = time.process_time()
    put = _median([_timed(partial(store.put, name, data[:_SMALL])) for name in small])
    store.put(f"{key}/one", data)  # makes what a first write makes
    one = min(_timed(partial(store.put, f"{key}/one", data)) for _ in range(2))
    names = [f"{key}/many-{i}" for i in range(_streams(cpus))]
    many = min(_together([partial(store.put, name, data) for name in names]) for _ in range(2))
    write_cpu = (time.process_time() - before) / (_OBJECT * (3 + 2 * len(names)))
    names = [f"{key}/one", *names]
    dropped = _drop_all(store, small, ask=False)
    request = _median([_timed(partial(store.get_range, name, 0, _SMALL)) for name in small])
    read_one, read_many, before = math.inf, math.inf, time.process_time()
    for _ in range(2):
        dropped = _drop_all(store, names) and dropped
        read_one = min(read_one, _timed(partial(_read, store, names[0], _OBJECT)))
        read_many = min(read_many, _together([partial(_read, store, name, _OBJECT) for name in names[1:]]))
    read_cpu = (time.process_time() - before) / (2 * _OBJECT * len(names))
    return PlaceRates(
        _OBJECT / read_one,
        _OBJECT * (len(names) - 1) / read_many,
        request,
        _OBJECT / one,
        _OBJECT * (len(names) - 1) / many,
        put,
        read_cpu,
        write_cpu,
        not dropped,
    )


def read_granules(store: Store, granules: Sequence[tuple[str, int]], cpus: int) -> PlaceRates:
    """Time reading of some granules (key and size), each at most an object's size of it; nothing is written.

    Raises
    ------
    StorageError
        They cannot be read.
    """
    some = [(key, min(size, _OBJECT)) for key, size in granules if size]
    keys = [key for key, _ in some]
    dropped = _drop_all(store, keys, ask=False)
    request = _median([_timed(partial(store.get_range, key, 0, min(size, _SMALL))) for key, size in some])
    dropped = _drop_all(store, keys) and dropped
    before = time.process_time()
    half = max(1, len(some) // 2)
    first, others = some[:half], some[half:] or some
    one = _timed(lambda: [_read(store, key, size) for key, size in first])
    dropped = _drop_all(store, [name for name, _ in others]) and dropped
    # as many at once as there are CPUs
    with ThreadPoolExecutor(_streams(cpus)) as pool:
        many = _timed(lambda: list(pool.map(lambda item: _read(store, *item), others)))
    spent = (time.process_time() - before) / max(1, sum(n for _, n in (*first, *others)))
    rates = sum(n for _, n in first) / one, sum(n for _, n in others) / many
    return PlaceRates(rates[0], max(rates), request, None, None, None, spent, 0.0, not dropped)


def _read(store: Store, key: str, size: int) -> int:
    # backwards, since the system reads ahead of who reads forwards, and chunks of one array do not follow one another
    return sum(len(store.get_range(key, at, min(_RANGE, size - at))) for at in reversed(range(0, size, _RANGE)))


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return max(time.perf_counter() - began, 1e-9)


def _together(work: Sequence[Callable[[], object]]) -> float:
    with ThreadPoolExecutor(len(work)) as pool:
        return _timed(lambda: list(pool.map(lambda run: run(), work)))


def _median(values: list[float]) -> float:
    return float(np.median(values)) if values else 0.0


def _drop_all(store: Store, keys: Sequence[str], ask: bool = True) -> bool:
    return not [key for key in keys if not _drop(store, key, ask)]


def _drop(store: Store, key: str, ask: bool = True) -> bool:
    """Have the system forget a file; whether what is read next comes from the disk, as far as it tells.

    Asking reads ahead, so that one page of the file is in memory again: not for small files.
    """
    if not isinstance(store, LocalStore):
        return True
    try:
        fd = os.open(store.path(key), os.O_RDONLY)
    except OSError:
        return False  # reading it will say why
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if ask:
            os.preadv(fd, [bytearray(1)], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        return True
    except (AttributeError, OSError):
        return False  # not on this system, or not on this file system
    finally:
        os.close(fd)
    return not ask

"""What lies between two passes: one object for each task of the first, whose pieces the second reads as ranges.

::

    blocks of the first piece, blocks of the second, …    pieces in the order of their destinations
    pieces     (destination, number of its first block)   uint64 each
    blocks     (offset, length, CRC-32C, form)            uint64, uint64, uint32, uint32
    trailer    mark, task, numbers of both, two CRC-32C   little-endian throughout

A piece is what a box of the first pass and a box of the second share. It is cut into blocks of about a MB of raw values in C
order, which are encoded apart: so a piece of any size takes little memory on both sides, and several threads work at one.
A block whose elements all have the target's fill is absent; one that lz4 makes smaller by less than an eighth is raw.

Every block and the index have a CRC-32C, and the trailer says which task wrote the object.
:mod:`drystone.rechunk.gather` reads it.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from google_crc32c import extend, value
from numcodecs import blosc
from numpy.typing import NDArray

from drystone.model.task import StoredObject, Task
from drystone.plan.regions import bounds
from drystone.plan.shuffle import Shuffle
from drystone.rechunk.plan_file import ArrayPlan
from drystone.rechunk.shard import copy_block, is_fill
from drystone.storage.store import Store

__all__ = [
    "ABSENT",
    "BLOCK",
    "LZ4",
    "MARK",
    "PIECE",
    "RAW",
    "TRAILER",
    "blocks_of",
    "element_of_fill",
    "scatter",
    "shuffle_key",
]

type Slab = NDArray[np.generic]
type Box = tuple[int, ...]

PIECE = np.dtype([("box", "<u8"), ("first", "<u8")])
BLOCK = np.dtype([("offset", "<u8"), ("length", "<u8"), ("crc32c", "<u4"), ("form", "<u4")])
TRAILER = struct.Struct("<8s16sQQII")
MARK = b"drysshf1"
RAW, LZ4, ABSENT = range(3)
_SAVED = 8  # lz4 must save this part of a block


def shuffle_key(folder: str, task: Task) -> str:
    """Key of the object that a task of the first pass writes; another plan's task has another."""
    return f"{folder}/{task.task_id}"


def element_of_fill(a: ArrayPlan) -> bytes:
    """One native element of the target's fill."""
    return a.layout.fill_scalar.astype(a.array.dtype).tobytes()


def blocks_of(shape: Sequence[int], most: int) -> list[tuple[slice, ...]]:
    """A box cut into runs in C order of at most ``most`` elements, or of one.

    Examples
    --------
    >>> blocks_of((3, 4), 8)
    [(slice(0, 2, None), slice(0, 4, None)), (slice(2, 3, None), slice(0, 4, None))]
    >>> len(blocks_of((2, 4), 3)), blocks_of((), 9)
    (4, [()])
    """
    edges = [1] * len(shape)
    for axis in reversed(range(len(shape))):
        edges[axis] = max(1, min(shape[axis], most // math.prod(shape[axis + 1 :])))
        if edges[axis] < shape[axis]:
            break
    cuts = [[slice(a, min(a + e, n)) for a in range(0, n, e)] for n, e in zip(shape, edges, strict=True)]
    return list(itertools.product(*cuts))


@dataclass(frozen=True, slots=True)
class _Encoded:
    """A block as it is stored: no bytes where it is absent."""

    data: bytes
    form: int


def _encoded(block: Slab, fill: bytes) -> _Encoded:
    values = np.empty(block.shape, block.dtype)
    copy_block(values, block)
    raw = values.reshape(-1).view(np.uint8)
    if is_fill(raw, fill):
        return _Encoded(b"", ABSENT)
    blosc.use_threads = False  # the bytes must be the same every time, and we have threads
    packed = blosc.compress(raw, b"lz4", 1, 1, 0, block.dtype.itemsize)
    if len(packed) > len(raw) - len(raw) // _SAVED:
        return _Encoded(raw.tobytes(), RAW)
    return _Encoded(packed, LZ4)


class _Object:
    """The bytes of a shuffle object in order; what is known of them once they are all out."""

    def __init__(self, task: bytes) -> None:
        self._task = task
        self._pieces: list[tuple[int, int]] = []
        self._blocks: list[tuple[int, int, int, int]] = []
        self.size = 0
        self.crc32c = 0
        self.error: Exception | None = None

    def piece(self, box: int) -> None:
        """The next blocks are of another piece."""
        self._pieces.append((box, len(self._blocks)))

    def add(self, block: _Encoded) -> bytes:
        """The bytes of a block."""
        self._blocks.append((self.size, len(block.data), int(value(block.data)), block.form))
        return self._counted(block.data)

    def index(self) -> bytes:
        """What comes last."""
        body = np.array(self._pieces, PIECE).tobytes() + np.array(self._blocks, BLOCK).tobytes()
        trailer = TRAILER.pack(MARK, self._task, len(self._pieces), len(self._blocks), int(value(body)), 0)
        return self._counted(body + trailer[:-4] + struct.pack("<I", int(value(trailer[:-4]))))

    def _counted(self, data: bytes) -> bytes:
        self.size += len(data)
        self.crc32c = int(extend(self.crc32c, data))
        return data


def scatter(
    store: Store, folder: str, slab: Slab, shuffle: Shuffle, index: int, fill: bytes, task: Task, threads: int
) -> StoredObject:
    """Cut a slab by destination and put its pieces as one object.

    Parameters
    ----------
    store, folder
        Where to.
    slab
        Native values of the first-pass box ``index``.
    shuffle
        Boxes of both passes.
    fill
        One element; blocks of nothing else are absent.
    task
        That writes it.
    threads
        That encode.

    Returns
    -------
    The object under its whole key.
    """
    made, key = _Object(bytes.fromhex(task.fingerprint)), shuffle_key(folder, task)
    parts = _parts(made, slab, shuffle, index, fill, threads)
    try:
        store.put(key, parts)
    except Exception:
        if made.error is not None:
            raise made.error from None  # an object store wraps what its source of bytes raises
        raise
    finally:
        parts.close()
    return StoredObject(key, made.size, made.crc32c)


def _parts(made: _Object, slab: Slab, shuffle: Shuffle, index: int, fill: bytes, threads: int) -> Generator[bytes, None, None]:
    pool = ThreadPoolExecutor(threads, "drystone-encode")
    window: deque[tuple[list[tuple[int | None, tuple[slice, ...]]], Future[list[_Encoded]]]] = deque()

    def encode(batch: list[tuple[int | None, tuple[slice, ...]]]) -> list[_Encoded]:
        # indexing a scalar array gives a scalar, which is an array no more
        return [_encoded(np.asarray(slab[where], slab.dtype), fill) for _, where in batch]

    try:
        batches = _batches(shuffle, index, slab.dtype.itemsize)
        window.extend((b, pool.submit(encode, b)) for b in itertools.islice(batches, threads + 1))
        while window:
            batch, future = window.popleft()
            for (box, _), block in zip(batch, future.result(), strict=True):
                if box is not None:
                    made.piece(box)
                data = made.add(block)
                if data:
                    yield data
            following = next(batches, None)
            if following is not None:
                window.append((following, pool.submit(encode, following)))
        yield made.index()
    except Exception as error:
        made.error = error
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _batches(shuffle: Shuffle, index: int, itemsize: int) -> Iterator[list[tuple[int | None, tuple[slice, ...]]]]:
    """Blocks in order as places in the slab, about a block's bytes at a time; the first of a piece with its destination."""
    origin, _ = bounds(shuffle.sources, index)
    most = max(1, shuffle.block // itemsize)
    batch: list[tuple[int | None, tuple[slice, ...]]] = []
    cells = 0
    for box, start, stop in shuffle.pieces(index):
        extent = [b - a for a, b in zip(start, stop, strict=True)]
        named: int | None = box
        for part in blocks_of(extent, most):
            n = math.prod(s.stop - s.start for s in part)
            if batch and cells + n > most:
                yield batch
                batch, cells = [], 0
            shifts = [a - o for a, o in zip(start, origin, strict=True)]
            batch.append((named, tuple(slice(s.start + d, s.stop + d) for s, d in zip(part, shifts, strict=True))))
            named, cells = None, cells + n
    if batch:
        yield batch

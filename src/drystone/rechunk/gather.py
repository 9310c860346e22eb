"""The second of two passes: boxes put together from the pieces that the first one wrote.

Everything that is read is proved by its CRC-32C. An object that is gone or does not hold what was written is removed, so that
a run which goes on writes it anew. Indexes are kept between tasks, as many as there is room for: each object is asked for by
as many boxes as it has pieces.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import numpy as np
from google_crc32c import value
from numcodecs import blosc
from numpy.typing import NDArray

from drystone.errors import StorageError
from drystone.model.task import Task
from drystone.plan.regions import bounds, touched
from drystone.plan.shuffle import Shuffle
from drystone.rechunk.shard import copy_block
from drystone.rechunk.shuffle import ABSENT, BLOCK, MARK, PIECE, RAW, TRAILER, blocks_of, shuffle_key
from drystone.storage.store import Store

__all__ = ["Gatherer"]

type Slab = NDArray[np.generic]
type Box = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Index:
    """Of one object."""

    pieces: NDArray[np.void]
    blocks: NDArray[np.void]

    @property
    def nbytes(self) -> int:
        return self.pieces.nbytes + self.blocks.nbytes

    def of(self, box: int) -> NDArray[np.void] | None:
        """The blocks of a piece."""
        at = int(np.searchsorted(self.pieces["box"], box))
        if at == len(self.pieces) or self.pieces["box"][at] != box:
            return None
        last = self.pieces["first"][at + 1] if at + 1 < len(self.pieces) else len(self.blocks)
        return self.blocks[int(self.pieces["first"][at]) : int(last)]


class Gatherer:
    """Puts boxes of the second pass together from shuffle objects; for one array, kept between tasks.

    Parameters
    ----------
    store, folder
        Where the objects lie.
    shuffle
        Boxes of both passes.
    task
        From a number of the first pass to its task.
    dtype, fill
        Of the values; one element that absent blocks have.
    threads
        That fetch and decode.
    nbytes
        Of ranges on their way, and as much of indexes that are kept.
    """

    def __init__(
        self,
        store: Store,
        folder: str,
        shuffle: Shuffle,
        task: Callable[[int], Task],
        dtype: np.dtype,
        fill: bytes,
        threads: int,
        nbytes: int,
    ) -> None:
        self._store, self._folder, self._shuffle, self._task = store, folder, shuffle, task
        self._most = max(1, shuffle.block // dtype.itemsize)
        self._fill = np.frombuffer(fill, dtype, 1).reshape(())
        self._range, self._kept = max(1, nbytes // threads), nbytes
        self._pool = ThreadPoolExecutor(threads, "drystone-gather")
        self._indexes: OrderedDict[int, _Index] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, start: Box, stop: Box, slab: Slab) -> int:
        """Put the values of one box into an array of its shape; returns how many bytes were read.

        Raises
        ------
        StorageError
            ``shuffle-lost``: an object is gone, is another task's, or does not hold what was written.
        """
        boxes, sources = self._shuffle.boxes, self._shuffle.sources
        at = [d.index_to_chunk(a) for d, a in zip(boxes.dimensions, start, strict=True)]
        box = int(np.ravel_multi_index(at, boxes.grid_shape)) if at else 0
        waiting: set[Future[int]] = set()
        try:
            for numbers in itertools.product(*touched(sources, start, stop)):
                index = int(np.ravel_multi_index(numbers, sources.grid_shape)) if numbers else 0
                waiting.add(self._pool.submit(self._piece, index, box, start, stop, slab))
            return sum(future.result() for future in waiting)
        finally:
            for future in waiting:
                future.cancel()
            wait(waiting)  # nobody writes into the slab after we return

    def _piece(self, index: int, box: int, start: Box, stop: Box, slab: Slab) -> int:
        first, last = bounds(self._shuffle.sources, index)
        first, last = tuple(map(max, first, start)), tuple(map(min, last, stop))
        parts = blocks_of([b - a for a, b in zip(first, last, strict=True)], self._most)
        found, nbytes = self._index(index)
        blocks = found.of(box)
        if blocks is None or len(blocks) != len(parts):
            raise self._lost(index, f"has no piece for box {box}")
        shifts = [a - s for a, s in zip(first, start, strict=True)]
        for run in self._runs(blocks):
            offset = int(blocks["offset"][run.start])
            data = memoryview(
                self._get(index, offset, int(blocks["offset"][run.stop - 1] + blocks["length"][run.stop - 1]) - offset)
            )
            for i in run:
                n, at = int(blocks["length"][i]), int(blocks["offset"][i]) - offset
                where = tuple(slice(s.start + d, s.stop + d) for s, d in zip(parts[i], shifts, strict=True))
                self._put(index, blocks[i], data[at : at + n], slab, where)
            nbytes += len(data)
        return nbytes

    def _runs(self, blocks: NDArray[np.void]) -> Iterator[range]:
        """Neighbouring blocks that are read together."""
        ends = np.cumsum(blocks["length"].astype(np.int64))
        at = 0
        while at < len(blocks):
            begun = int(ends[at - 1]) if at else 0
            to = max(at + 1, int(np.searchsorted(ends, begun + self._range, "right")))
            yield range(at, to)
            at = to

    def _put(self, index: int, block: np.void, data: memoryview, slab: Slab, where: tuple[slice, ...]) -> None:
        part = slab[where] if where else slab
        if block["form"] == ABSENT:
            part[...] = self._fill
            return
        if int(value(np.frombuffer(data, np.uint8))) != block["crc32c"]:
            raise self._lost(index, f"{len(data)} bytes at {block['offset']} are not those that were written")
        if block["form"] == RAW:
            copy_block(part, np.frombuffer(data, part.dtype).reshape(part.shape))
        elif part.flags.c_contiguous:
            blosc.decompress(data, part.reshape(-1).view(np.uint8))
        else:
            values = np.empty(part.shape, part.dtype)
            blosc.decompress(data, values.reshape(-1).view(np.uint8))
            copy_block(part, values)

    def _index(self, index: int) -> tuple[_Index, int]:
        """The index of an object, and how many bytes were read for it."""
        with self._lock:
            if index in self._indexes:
                self._indexes.move_to_end(index)
                return self._indexes[index], 0
        found = self._read_index(index)
        with self._lock:
            self._indexes[index] = found
            while len(self._indexes) > 1 and sum(i.nbytes for i in self._indexes.values()) > self._kept:
                self._indexes.popitem(last=False)
        return found, found.nbytes + TRAILER.size

    def _read_index(self, index: int) -> _Index:
        size = self._found(index, lambda key: self._store.stat(key).size)
        if size < TRAILER.size:
            raise self._lost(index, f"has {size} bytes")
        trailer = self._get(index, size - TRAILER.size, TRAILER.size)
        mark, task, pieces, blocks, crc, own = TRAILER.unpack(trailer)
        if mark != MARK or int(value(trailer[:-4])) != own:
            raise self._lost(index, "does not end as such an object does")
        if task != bytes.fromhex(self._task(index).fingerprint):
            raise self._lost(index, "was written by another task")
        length = pieces * PIECE.itemsize + blocks * BLOCK.itemsize
        if length > size - TRAILER.size:
            raise self._lost(index, f"has {size} bytes, less than its index")
        body = self._get(index, size - TRAILER.size - length, length)
        if int(value(body)) != crc:
            raise self._lost(index, "has a damaged index")
        cut = pieces * PIECE.itemsize
        return _Index(np.frombuffer(body, PIECE, pieces), np.frombuffer(body, BLOCK, blocks, cut))

    def _get(self, index: int, start: int, length: int) -> bytes:
        return self._found(index, lambda key: self._store.get_range(key, start, length)) if length else b""

    def _found[T](self, index: int, get: Callable[[str], T]) -> T:
        try:
            return get(shuffle_key(self._folder, self._task(index)))
        except StorageError as error:
            if error.kind in ("not-found", "short-read"):
                raise self._lost(index, "is gone or was cut short") from error
            raise

    def _lost(self, index: int, what: str) -> StorageError:
        """Take away what is no use, so that the first pass is done again; say so."""
        task = self._task(index)
        key = shuffle_key(self._folder, task)
        self._store.delete(key)
        return StorageError(
            f"{self._store.url}/{key}, which holds pieces of {task.array} between two passes, {what}; it was removed: run "
            "again, and it is written anew",
            kind="shuffle-lost",
            array=task.array,
            key=key,
        )

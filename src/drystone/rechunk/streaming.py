"""One shard, written while it is read: two steps of it are held raw, never the whole.

The inner chunks of a shard lie in C order. Along its first divided axis a step is a run of them, so steps in order give the
bytes that a shard encoded in one piece has: nobody can tell which way it was made. One step is read while the one before is
encoded, and encoded chunks go straight into the open object; its index, which comes last, is all that is kept.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager

import numpy as np
from google_crc32c import extend
from numpy.typing import NDArray

from drystone.grid.shards import ShardGrid
from drystone.model.task import StoredObject
from drystone.plan.layout import TargetLayout
from drystone.rechunk.cells import Batch, batches_of
from drystone.rechunk.shard import ChunkEncoder, shard_index
from drystone.storage.store import Store

__all__ = ["stream_shard"]

type Slab = NDArray[np.generic]
type Reader = Callable[[tuple[int, ...], tuple[int, ...]], AbstractContextManager[Slab]]
"""Values of a box, held until the context is left."""


class _Shard:
    """The bytes of a shard in order, with what is known of them once they are all out."""

    def __init__(self, layout: TargetLayout, cell: tuple[int, ...]) -> None:
        slots = ShardGrid(layout.cells, layout.chunk_grid).slots(cell)
        self._lengths = np.full(int(np.prod(slots, dtype=object)), -1, np.int64)
        self.size = 0
        self.crc32c = 0
        self.error: Exception | None = None

    def add(self, places: Sequence[int], encoded: Sequence[bytes | None]) -> bytes:
        """The bytes of some inner chunks, one after the other."""
        self._lengths[list(places)] = [-1 if e is None else len(e) for e in encoded]
        return self._counted(b"".join(e for e in encoded if e is not None))

    def index(self) -> bytes:
        """What comes last."""
        return self._counted(shard_index(self._lengths))

    def _counted(self, data: bytes) -> bytes:
        self.size += len(data)
        self.crc32c = int(extend(self.crc32c, data))
        return data


def stream_shard(
    store: Store,
    prefix: str,
    layout: TargetLayout,
    read: Reader,
    start: tuple[int, ...],
    stop: tuple[int, ...],
    stream: tuple[int, int],
    threads: int,
) -> StoredObject:
    """Read, encode and put one shard.

    Parameters
    ----------
    store, prefix
        Target: keys are ``prefix`` and the layout's key of the shard.
    layout
        Of the target array, sharded.
    read
        Gives the values of a box; called from one thread, one box ahead.
    start, stop
        Of the shard, clipped at the array's end.
    stream
        Axis and elements of a step: a multiple of the inner chunk, along the shard's first axis with more than one of them.
    threads
        That encode.

    Returns
    -------
    Its record; size -1 where it is all fill: no object is left there.
    """
    cell = tuple(d.index_to_chunk(a) for d, a in zip(layout.cells.dimensions, start, strict=True))
    key = layout.cell_key(cell)
    full = f"{prefix}/{key}" if prefix else key
    shard = _Shard(layout, cell)
    pieces = _pieces(layout, shard, read, start, stop, stream, threads)
    try:
        first = next(pieces, None)
        if first is None:
            store.delete(full)  # an earlier run with other values may have left one
            return StoredObject(key, -1, 0)
        store.put(full, itertools.chain((first,), pieces, _last(shard)))
    except Exception:
        if shard.error is not None:
            raise shard.error from None  # an object store wraps what its source of bytes raises
        raise
    finally:
        pieces.close()
    return StoredObject(key, shard.size, shard.crc32c)


def _last(shard: _Shard) -> Iterator[bytes]:
    yield shard.index()


def _boxes(
    start: tuple[int, ...], stop: tuple[int, ...], stream: tuple[int, int]
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    axis, step = stream
    for at in range(start[axis], stop[axis], step):
        end = min(at + step, stop[axis])
        yield (*start[:axis], at, *start[axis + 1 :]), (*stop[:axis], end, *stop[axis + 1 :])


def _pieces(
    layout: TargetLayout,
    shard: _Shard,
    read: Reader,
    start: tuple[int, ...],
    stop: tuple[int, ...],
    stream: tuple[int, int],
    threads: int,
) -> Generator[bytes, None, None]:
    """Encoded inner chunks, some at a time, none where all of them are fill; reading runs one step ahead."""
    boxes = _boxes(start, stop, stream)
    encoder = ChunkEncoder(layout)
    encoding, reading = ThreadPoolExecutor(threads, "drystone-encode"), ThreadPoolExecutor(1, "drystone-read")

    def fetch(box: tuple[tuple[int, ...], tuple[int, ...]]) -> tuple[AbstractContextManager[Slab], Slab]:
        held = read(*box)
        return held, held.__enter__()

    ahead: Future[tuple[AbstractContextManager[Slab], Slab]] | None = None
    held: AbstractContextManager[Slab] | None = None
    try:
        box = next(boxes)
        ahead = reading.submit(fetch, box)
        while ahead is not None:
            held, slab = ahead.result()
            following = next(boxes, None)
            ahead = None if following is None else reading.submit(fetch, following)
            for batch, encoded in _encoded(encoding, encoder, layout, slab, box, threads):
                data = shard.add(batch.places, encoded)
                if data:
                    yield data
            held.__exit__(None, None, None)
            held, box = None, following or box
    except Exception as error:
        shard.error = error
        raise
    finally:
        encoding.shutdown(cancel_futures=True)
        reading.shutdown(cancel_futures=True)
        if held is not None:
            held.__exit__(None, None, None)
        if ahead is not None and not ahead.cancelled() and ahead.exception() is None:
            ahead.result()[0].__exit__(None, None, None)


def _encoded(
    pool: ThreadPoolExecutor,
    encoder: ChunkEncoder,
    layout: TargetLayout,
    slab: Slab,
    box: tuple[tuple[int, ...], tuple[int, ...]],
    threads: int,
) -> Iterator[tuple[Batch, list[bytes | None]]]:
    """Batches of a step with their bytes, in order; encoding runs ahead by a few."""

    def encode(batch: Batch) -> list[bytes | None]:
        return [encoder.encode(np.asarray(slab[part], slab.dtype)) for part in batch.boxes]

    batches = batches_of(layout, *box)
    window = deque((b, pool.submit(encode, b)) for b in itertools.islice(batches, threads + 1))
    while window:
        batch, future = window.popleft()
        yield batch, future.result()
        following = next(batches, None)
        if following is not None:
            window.append((following, pool.submit(encode, following)))

"""One shard, written while it is read: two steps of it are held raw, never the whole.

The inner chunks of a shard lie in C order. Along its first divided axis a step is a run of them, so steps in order give the
bytes that a shard encoded in one piece has: nobody can tell which way it was made. One step is read while the one before is
encoded, and encoded chunks go straight into the open object; its index, which comes last, is all that is kept.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from google_crc32c import extend
from numpy.typing import NDArray

from drystone.grid.shards import ShardGrid
from drystone.model.task import StoredObject
from drystone.plan.layout import TargetLayout
from drystone.rechunk.cells import Batch, batches_of
from drystone.rechunk.shard import ChunkEncoder, shard_index
from drystone.rechunk.writer import TargetWriter

__all__ = ["steps_of", "stream_shard"]

type Slab = NDArray[np.generic]
type Reader = Callable[[tuple[int, ...], tuple[int, ...], Slab], None]
"""Puts the values of a box into an array of its shape."""


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
    writer: TargetWriter,
    layout: TargetLayout,
    read: Reader,
    buffers: tuple[Slab, Slab],
    start: tuple[int, ...],
    stop: tuple[int, ...],
    stream: tuple[int, int],
    threads: int,
) -> StoredObject:
    """Read, encode and put one shard.

    Parameters
    ----------
    writer
        Of the target.
    layout
        Of the target array, sharded.
    read
        Called from one thread, one box ahead.
    buffers
        Contiguous, as large as the first step each; used in turn.
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
    shard = _Shard(layout, cell)
    pieces = _pieces(layout, shard, read, buffers, steps_of(start, stop, stream), threads)
    try:
        first = next(pieces, None)
        if first is None:
            writer.delete(key)
            return StoredObject(key, -1, 0)
        writer.put(key, itertools.chain((first,), pieces, _last(shard)))
    except Exception:
        if shard.error is not None:
            raise shard.error from None  # an object store wraps what its source of bytes raises
        raise
    finally:
        pieces.close()
    return StoredObject(key, shard.size, shard.crc32c)


def _last(shard: _Shard) -> Iterator[bytes]:
    yield shard.index()


def steps_of(
    start: tuple[int, ...], stop: tuple[int, ...], stream: tuple[int, int]
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The boxes that a shard is read in, in order; none is larger than the first."""
    axis, step = stream
    for at in range(start[axis], stop[axis], step):
        end = min(at + step, stop[axis])
        yield (*start[:axis], at, *start[axis + 1 :]), (*stop[:axis], end, *stop[axis + 1 :])


def _pieces(
    layout: TargetLayout,
    shard: _Shard,
    read: Reader,
    buffers: tuple[Slab, Slab],
    boxes: Iterator[tuple[tuple[int, ...], tuple[int, ...]]],
    threads: int,
) -> Generator[bytes, None, None]:
    """Encoded inner chunks, some at a time, none where all of them are fill; reading runs one step ahead."""
    encoder = ChunkEncoder(layout)
    encoding, reading = ThreadPoolExecutor(threads, "drystone-encode"), ThreadPoolExecutor(1, "drystone-read")
    turn = itertools.cycle(buffers)

    def ask() -> Future[tuple[tuple[int, ...], Slab]] | None:
        box, buffer = next(boxes, None), next(turn)
        return None if box is None else reading.submit(_read, read, *box, buffer)

    try:
        ahead = ask()
        while ahead is not None:
            start, slab = ahead.result()
            ahead = ask()  # into the other buffer: whatever was encoded from it is out
            for batch, encoded in _encoded(encoding, encoder, layout, slab, start, threads):
                data = shard.add(batch.places, encoded)
                if data:
                    yield data
    except Exception as error:
        shard.error = error
        raise
    finally:
        encoding.shutdown(cancel_futures=True)
        reading.shutdown(cancel_futures=True)


def _read(read: Reader, start: tuple[int, ...], stop: tuple[int, ...], buffer: Slab) -> tuple[tuple[int, ...], Slab]:
    extent = tuple(b - a for a, b in zip(start, stop, strict=True))
    slab = buffer.reshape(-1)[: math.prod(extent)].reshape(extent)
    read(start, stop, slab)
    return start, slab


def _encoded(
    pool: ThreadPoolExecutor,
    encoder: ChunkEncoder,
    layout: TargetLayout,
    slab: Slab,
    start: tuple[int, ...],
    threads: int,
) -> Iterator[tuple[Batch, list[bytes | None]]]:
    """Batches of a step with their bytes, in order; encoding runs ahead by a few."""

    def encode(batch: Batch) -> list[bytes | None]:
        return [encoder.encode(np.asarray(slab[part], slab.dtype)) for part in batch.boxes]

    batches = batches_of(layout, start, tuple(a + n for a, n in zip(start, slab.shape, strict=True)))
    window = deque((b, pool.submit(encode, b)) for b in itertools.islice(batches, threads + 1))
    while window:
        batch, future = window.popleft()
        yield batch, future.result()
        following = next(batches, None)
        if following is not None:
            window.append((following, pool.submit(encode, following)))

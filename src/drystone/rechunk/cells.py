"""A slab to objects: encode its inner chunks on a few threads, put each write cell as soon as it is whole.

Encoding runs ahead of putting by a bounded number of chunks, and one cell is put while the next is encoded: the wait for
the disk to confirm a file costs no encoding time. Memory beside the slab is at most two encoded cells and, for each thread,
a few chunks.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drystone.grid.parts import AxisPart
from drystone.grid.shards import ShardGrid, plan_shard_box
from drystone.model.task import StoredObject
from drystone.plan.layout import TargetLayout
from drystone.plan.memory import BATCH_BYTES
from drystone.rechunk.shard import ChunkEncoder, checksum, shard_parts
from drystone.rechunk.writer import TargetWriter

__all__ = ["Batch", "batches_of", "write_region"]


@dataclass(frozen=True, slots=True)
class Batch:
    """Neighbouring inner chunks of one write cell."""

    cell: tuple[int, ...]
    slots: tuple[int, ...]  # inner chunks along each axis of the full cell
    places: tuple[int, ...]  # in C order of them
    boxes: tuple[tuple[AxisPart, ...], ...]  # in the slab
    last: bool


def batches_of(layout: TargetLayout, start: Sequence[int], stop: Sequence[int]) -> Iterator[Batch]:
    """Inner chunks of a region, cell by cell, in C order; those beyond the array's end are left out."""
    per_batch = max(1, BATCH_BYTES // max(layout.chunk_bytes, 1))
    grid = ShardGrid(layout.cells, layout.chunk_grid)
    for cell in plan_shard_box(tuple(start), tuple(stop), grid):
        total, done = len(cell.operations), 0
        slots = grid.slots(cell.shard_coords)
        place = np.zeros(total, np.intp)
        for coords, n in zip(cell.inner_coords, slots, strict=True):
            place = place * n + coords
        for group in itertools.batched(zip(place.tolist(), cell.operations, strict=True), per_batch):
            done += len(group)
            places, operations = zip(*group, strict=True)
            yield Batch(cell.shard_coords, slots, places, tuple(o.out_selection for o in operations), done == total)


def write_region(
    writer: TargetWriter, layout: TargetLayout, slab: NDArray[np.generic], start: Sequence[int], threads: int
) -> tuple[StoredObject, ...]:
    """Encode and put every write cell of a region.

    Parameters
    ----------
    writer
        Of the target.
    layout
        Of the target array.
    slab
        The region's values, native, starting at ``start``; its edges lie on cell edges or the array's end.
    threads
        That encode; one more puts.

    Returns
    -------
    One for each write cell, in C order; size -1 where the cell is all fill: no object is left there.
    """
    stop = [a + n for a, n in zip(start, slab.shape, strict=True)]
    encoder = ChunkEncoder(layout)
    done: list[StoredObject] = []

    def encode(batch: Batch) -> list[bytes | None]:
        # indexing a scalar array gives a scalar, which is an array no more
        shape = layout.chunk_shape_in(batch.cell)
        return [encoder.encode(np.asarray(slab[box], slab.dtype), shape) for box in batch.boxes]

    window: deque[tuple[Batch, Future[list[bytes | None]]]] = deque()
    putting: Future[StoredObject] | None = None
    parts: list[bytes | None] = []
    places: list[int] = []
    batches = batches_of(layout, start, stop)
    # not `with`: after an error nothing that still waits in the pools shall run
    encoding, writing = ThreadPoolExecutor(threads, "drystone-encode"), ThreadPoolExecutor(1, "drystone-put")
    try:
        for batch in itertools.islice(batches, threads + 1):
            window.append((batch, encoding.submit(encode, batch)))
        while window:
            batch, future = window.popleft()
            parts += future.result()
            places += batch.places
            following = next(batches, None)
            if following is not None:
                window.append((following, encoding.submit(encode, following)))
            if batch.last:
                if putting is not None:
                    done.append(putting.result())
                putting = writing.submit(_put_cell, writer, layout, batch, parts, places)
                parts, places = [], []
        if putting is not None:
            done.append(putting.result())
    finally:
        encoding.shutdown(cancel_futures=True)
        writing.shutdown(cancel_futures=True)
    return tuple(done)


def _put_cell(
    writer: TargetWriter, layout: TargetLayout, batch: Batch, encoded: list[bytes | None], places: list[int]
) -> StoredObject:
    key = layout.cell_key(batch.cell)
    if layout.shard is None:
        parts = [e for e in encoded if e is not None]
    else:
        parts = shard_parts(encoded, batch.slots, np.array(places, np.intp))
    if not parts:
        writer.delete(key)
        return StoredObject(key, -1, 0)
    writer.put(key, parts)
    return StoredObject(key, sum(map(len, parts)), checksum(parts))

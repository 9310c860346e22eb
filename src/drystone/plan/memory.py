"""What a rechunk task takes in memory, as an upper bound.

A task holds the raw region (the *slab*) all the time. Beside it come, one after the other, the reading phase (encoded
bytes in flight; for each thread a decoded source chunk and the copy its filters make, and the numbers of a chunk on their
way through a recode) and the writing phase (for each thread one raw inner chunk and its encoded form, batches of them
waiting for their turn; encoded write cells: one being built, one being put, on object stores one more joined for the
request). Encoded sizes are bounded by raw sizes, because data need not compress::

    peak = slab + max(in flight + threads * (2 * source chunk + recoding),
                      2 or 3 * bound(cell) + threads * (chunk + bound(chunk)) + (threads + 1) * bound(batch))
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from drystone.codecs.chain import CodecChain
from drystone.grid.dimension import RegularDimension
from drystone.model.placement import CombinedArray
from drystone.model.recode import Recode
from drystone.plan.layout import TargetLayout

__all__ = ["BASELINE", "BATCH_BYTES", "REMOTE_THREADS", "MemoryModel", "task_memory", "worker_memory"]

# a worker's process with its libraries loaded and idle: measured 190 to 230 MB with pyarrow, deltalake and distributed
BASELINE = 256_000_000
# share of a worker's limit that tasks may plan with: allocators keep some freed pages
_USABLE = 0.85
# raw bytes of inner chunks that one call of an encoding thread takes: many small ones would cost more in handing over
BATCH_BYTES = 1 << 20
_PIECE = 8 << 20  # a range of an unfiltered chunk, read and put: never more at a time
# an element that is recoded: masks and copies as numbers of 8 bytes; Python's integers where those would overflow; fractions
# for times from or to floating point; measured 46, 141 and 278
_RECODE_BYTES, _OBJECT_BYTES, _FRACTION_BYTES = 56, 160, 400
_POINT_CELLS = 1 << 20  # as the fetcher cuts what it reads around points
_PARTS = 64 << 20  # parts of a multipart upload that are on their way
# for each thread of a task, those that read what lies between two passes, where each read waits for an object store's answer
REMOTE_THREADS = 4
_ENTRY = 48  # an entry of a shuffle object's index, as bytes and as numbers
_ROW_BYTES = 640  # a chunk reference on its way from the table to a read, all columns and objects of it


def task_memory(limit: int) -> int:
    """Bytes that one task may plan with, in a worker that may take ``limit`` bytes in all; at least 1 MB.

    Examples
    --------
    >>> task_memory(4_000_000_000)
    3144000000
    """
    return max(1_000_000, int(limit * _USABLE) - BASELINE)


def worker_memory(task: int) -> int:
    """The least limit of a worker whose tasks may plan with ``task`` bytes: what :func:`task_memory` undoes.

    Examples
    --------
    >>> task_memory(worker_memory(3_144_000_000)), task_memory(worker_memory(3_144_000_000) - 2) < 3_144_000_000
    (3144000000, True)
    """
    return math.ceil((task + BASELINE) / _USABLE)


def encoded_bound(nbytes: int) -> int:
    """Most bytes that any of the target codecs makes of ``nbytes``."""
    return nbytes + nbytes // 128 + 1024


@dataclass(frozen=True, slots=True)
class MemoryModel:
    """The bound, for one array.

    Parameters
    ----------
    itemsize
        Bytes of an element.
    source_chunk
        Decoded bytes of the largest source chunk, padding included, or of what is read of it at a time.
    source_cells
        Elements of an average source chunk.
    chunk, cell
        Raw bytes of an inner chunk and of a write cell.
    index
        Bytes of a shard's index; 0 where unsharded.
    threads
        Threads of a task.
    in_flight
        Encoded bytes that may be on their way in.
    joined
        True for object stores and repositories, where a cell's parts are joined for the request.
    recoding
        Bytes that the largest source chunk takes while it is recoded; 0 where none is.
    copies
        Copies of the region's values that are held while it is read: more than one where places are picked of another array.
    around
        Bytes read around points of one chunk, beside their own.
    parted
        True where what lies between two passes goes to an object store.
    whole
        True for repositories, which take a cell in one piece: one that is streamed is held encoded, twice.

    Examples
    --------
    >>> MemoryModel(2, 2_000_000, 1_000_000, 1_000_000, 8_000_000, 132, 2, 16_000_000, False).peak(40_000_000) // 10**6
    104
    """

    itemsize: int
    source_chunk: int
    source_cells: int
    chunk: int
    cell: int
    index: int
    threads: int
    in_flight: int
    joined: bool
    recoding: int = 0
    copies: int = 1
    around: int = 0
    parted: bool = False
    whole: bool = False

    @classmethod
    def of(
        cls,
        array: CombinedArray,
        layout: TargetLayout,
        *,
        threads: int,
        in_flight: int,
        joined: bool = False,
        parted: bool = False,
        whole: bool = False,
    ) -> MemoryModel:
        """The model of one array and its layout."""
        n = max(array.grid.n_chunks, 1)
        index = 0 if layout.shard is None else 16 * math.prod(layout.inner_grid) + 4
        return cls(
            array.dtype.itemsize,
            _largest_read(array),
            max(1, math.prod(array.shape) // n),
            layout.chunk_bytes,
            layout.cell_bytes,
            index,
            threads,
            in_flight,
            joined,
            _largest_recode(array),
            *_picking(array),
            parted,
            whole,
        )

    @property
    def fetchers(self) -> int:
        """Threads that read what lies between two passes: more than decode, where each read waits for an answer."""
        return self.threads * (REMOTE_THREADS if self.parted else 1)

    def peak(self, cells: int) -> int:
        """Bytes at most, above the idle process, for a region of ``cells`` elements."""
        slab = cells * self.itemsize
        reading = self._reading() + (self.copies - 1) * slab + self.around
        return slab + self._rows(cells) + max(reading, self._writing())

    def streamed(self, cells: int) -> int:
        """Bytes at most where ``cells`` elements are held a step: one step is read while the one before is encoded."""
        return 2 * cells * self.itemsize + self._rows(cells) + self._reading() + self._streaming()

    def scattered(self, cells: int, block: int, blocks: int) -> int:
        """Bytes at most of a first pass: a region is read whole, then cut into ``blocks`` of at most ``block`` raw bytes."""
        slab = cells * self.itemsize
        reading = self._reading() + (self.copies - 1) * slab + self.around
        writing = (self.threads + 3) * (block + encoded_bound(block)) + _ENTRY * blocks + (_PARTS if self.parted else 0)
        return slab + self._rows(cells) + max(reading, writing)

    def gathered(self, cells: int, block: int, blocks: int) -> int:
        """Bytes at most of a second pass: a region is put together from blocks; an object of a first pass has ``blocks``."""
        return cells * self.itemsize + max(self._gathering(block, blocks), self._writing())

    def gathered_streamed(self, cells: int, block: int, blocks: int) -> int:
        """Bytes at most of a second pass in steps of ``cells`` elements."""
        return 2 * cells * self.itemsize + self._gathering(block, blocks) + self._streaming()

    def _rows(self, cells: int) -> int:
        return _ROW_BYTES * (cells // self.source_cells + 1)

    def _reading(self) -> int:
        # in flight are encoded and decoded bytes together; a chunk that is larger goes alone
        return max(self.in_flight, 2 * encoded_bound(self.source_chunk)) + self.threads * (
            2 * self.source_chunk + self.recoding
        )

    def _gathering(self, block: int, blocks: int) -> int:
        ranges = max(self.in_flight, self.fetchers * encoded_bound(block))
        indexes = max(self.in_flight, self.fetchers * _ENTRY * blocks)
        return ranges + indexes + self.fetchers * block

    def _writing(self) -> int:
        copies = 3 if self.joined else 2
        # a region at the array's end may be smaller than its padded cell, but is encoded whole
        batch = max(self.chunk, min(BATCH_BYTES, self.cell))
        return (
            copies * (encoded_bound(self.cell) + self.index)
            + self.threads * (self.chunk + encoded_bound(self.chunk))
            + (self.threads + 1) * encoded_bound(batch)
        )

    def _streaming(self) -> int:
        batch = max(self.chunk, min(BATCH_BYTES, self.cell))
        encoding = self.threads * (self.chunk + encoded_bound(self.chunk)) + (self.threads + 2) * encoded_bound(batch)
        # an object store takes the object in parts of its own
        held = 2 * encoded_bound(self.cell) if self.whole else _PARTS if self.joined else 0
        return encoding + 2 * self.index + held


def _picking(array: CombinedArray) -> tuple[int, int]:
    """Copies of a region's values while it is read, and bytes around points beside them."""
    picked = array.picked
    if picked is None:
        return 1, 0
    if not picked.points:
        return 2, 0
    # of a chunk's points at most the chunk is read where no other axis can be cut further
    square = math.prod(min(max(v.chunk_shape[d] for v in array.variants), len(picked.places[d] or ())) for d in picked.points)
    return 3, 2 * max(_POINT_CELLS, square) * array.dtype.itemsize


def _largest_read(array: CombinedArray) -> int:
    """Bytes that the largest source chunk decodes to, or for chunks without filters, those of the largest piece."""
    edges = [d.size if isinstance(d, RegularDimension) else max(d.encoded or d.sizes, default=1) for d in array.grid.dimensions]
    largest = 1 if array.variants else _read_bytes(edges, array.dtype, array.codecs)
    # the pieces of unaligned granules are smaller than the chunks they are cut from
    return max(largest, *(_read_bytes(v.chunk_shape, v.dtype, v.codecs) for v in array.variants), 1)


def _read_bytes(chunk: Sequence[int], dtype: np.dtype, codecs: CodecChain) -> int:
    """Bytes decoded at a time of one chunk."""
    nbytes = math.prod(chunk) * dtype.itemsize
    if codecs.compressed or codecs.needs_library or dtype.kind == "T":
        return nbytes
    lead = next((n for n in chunk if n > 1), 1)
    return min(nbytes, max(_PIECE, nbytes // lead))


def _largest_recode(array: CombinedArray) -> int:
    """Bytes that recoding takes of what is read at a time."""
    return max(
        (
            _read_bytes(v.chunk_shape, v.dtype, v.codecs) // max(v.dtype.itemsize, 1) * _recode_bytes(recode, v.dtype)
            for v, recode in zip(array.variants, array.recodes, strict=False)
            if recode is not None
        ),
        default=0,
    )


def _recode_bytes(recode: Recode, stored: np.dtype) -> int:
    """Bytes that recoding takes an element."""
    if recode.then is not None:  # which takes the result of the first step
        first = _recode_bytes(replace(recode, then=None), stored)
        return max(first, recode.dtype.itemsize + _recode_bytes(recode.then, recode.dtype))
    if recode.tick and "f" in (stored.kind, recode.dtype.kind):
        return _FRACTION_BYTES
    if recode.near or recode.dtype.kind == "f" or (recode.scale == 1 and recode.offset == 0):
        return _RECODE_BYTES
    step = math.lcm(recode.scale.denominator, recode.offset.denominator)
    largest = 2 ** (8 * stored.itemsize) * abs(recode.scale * step) + abs(recode.offset * step)
    return _RECODE_BYTES if max(largest, step) < 2**63 else _OBJECT_BYTES

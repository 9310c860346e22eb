"""Inner chunks to bytes, and bytes to a shard.

A shard is its present inner chunks in C order of their coordinates, then the index: for each inner chunk of the full shard
(also of those beyond the array's end) its offset and length as little-endian uint64, 2^64-1 twice where it is absent, then
the CRC-32C of those numbers. The order is fixed and every codec runs with one thread a call, so the same values make the
same bytes every time.

Where an array is stored with less precision, each block is rounded in a thread's own buffer just before it is encoded: the slab
it comes from stays as it is, and no pass over memory is added.

An inner chunk whose every element has exactly the fill's bits is left out. Bits, not values: -0.0 is not 0.0 here, and a NaN
with a payload is not the fill's NaN, or values would change on the way.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

import numpy as np
from google_crc32c import extend, value
from numpy.typing import NDArray

from drystone.codecs.encode import encode_chunk, encoder_of
from drystone.model.rounding import elements
from drystone.plan.layout import TargetLayout
from drystone.plan.sentinels import missing_of

__all__ = ["ABSENT", "ChunkEncoder", "checksum", "copy_block", "is_fill", "shard_index", "shard_parts"]

ABSENT = (1 << 64) - 1
_PIECE = 1 << 16  # elements compared with the fill at a time: most chunks differ in the first piece
_ROW = 64  # bytes from which a row copied as one item is faster than element by element (1.3 to 3 times)


class ChunkEncoder:
    r"""Encodes inner chunks of one array; safe to call from several threads.

    Parameters
    ----------
    layout
        Of the target array.

    Examples
    --------
    >>> from drystone.codecs.chain import CodecChain
    >>> lay = TargetLayout("/a", ("x",), (5,), np.dtype("i2"), (4,), None, CodecChain.of("bytes"), bytes(2))
    >>> encoder = ChunkEncoder(lay)
    >>> encoder.encode(np.array([7], "i2")), encoder.encode(np.zeros(4, "i2")) is None
    (b'\x07\x00\x00\x00\x00\x00\x00\x00', True)
    """

    def __init__(self, layout: TargetLayout) -> None:
        self._layout = layout
        self._dtype = layout.stored_dtype
        self._fill = layout.fill_scalar
        self._encode_bytes = encoder_of(layout.codecs, self._dtype.itemsize)
        self._rounding = layout.rounding
        self._kept = _kept(layout)
        self._local = threading.local()

    def encode(self, block: NDArray[np.generic], shape: tuple[int, ...] | None = None) -> bytes | None:
        """Encode one chunk; None where it is all fill.

        Parameters
        ----------
        block
            Native values, any strides; smaller than the chunk at the array's end, where the rest becomes fill.
        shape
            Declared shape of this chunk; None for the layout's own.
        """
        layout = self._layout
        shape = shape or layout.chunk
        if self._dtype.kind == "T":
            return self._encode_text(block, shape)
        if self._rounding is None and block.shape == shape and block.dtype == self._dtype and block.flags.c_contiguous:
            stored = block
        else:
            stored = self._scratch(shape)
            if block.shape != shape:
                stored[...] = self._fill
            # without axes, indexing would take the one element out of its array
            part = stored[tuple(slice(0, n) for n in block.shape)] if block.shape else stored
            copy_block(part, block)
        if self._rounding is not None:
            self._rounding.apply(stored, self._kept)
        raw = stored.reshape(-1).view(np.uint8) if stored.size else np.zeros(0, np.uint8)
        if is_fill(raw, layout.fill):
            return None
        return self._encode_bytes(raw)

    def _scratch(self, shape: tuple[int, ...]) -> NDArray[np.generic]:
        # one buffer a thread, of the largest chunk: nothing that leaves this class refers to it
        if not hasattr(self._local, "buffer"):
            self._local.buffer = np.empty(math.prod(self._layout.chunk), self._dtype)
        buffer: NDArray[np.generic] = self._local.buffer
        return buffer[: math.prod(shape)].reshape(shape)

    def _encode_text(self, block: NDArray[np.generic], shape: tuple[int, ...]) -> bytes | None:
        if block.shape != shape:
            padded = np.zeros(shape, self._dtype)
            padded[tuple(slice(0, n) for n in block.shape)] = block
            block = padded
        if not any(block.reshape(-1).tolist()):
            return None
        return encode_chunk(block, self._layout.codecs, self._dtype)


def _kept(layout: TargetLayout) -> NDArray[np.generic]:
    """Numbers that rounding leaves alone: those that say missing, and what unwritten cells read as."""
    if layout.rounding is None:
        return np.zeros(0, layout.dtype)
    return elements((*(missing_of(layout.attributes, layout.dtype) or ()), layout.fill_scalar.tobytes()), layout.dtype)


def copy_block(out: NDArray[np.generic], block: NDArray[np.generic]) -> None:
    """Copy a block to one of its shape whose last axis is contiguous."""
    size = block.dtype.itemsize
    if block.ndim and block.dtype == out.dtype and block.strides[-1] == size and block.shape[-1] * size >= _ROW:
        # NumPy sets up a loop for each row of elements, and none for items of a row's size
        row = f"V{block.shape[-1] * size}"
        out, block = out.view(row), block.view(row)
    np.copyto(out, block, casting="equiv")


def is_fill(raw: NDArray[np.uint8], fill: bytes) -> bool:
    """Whether every element has the fill's bits."""
    size = len(fill)
    # most chunks differ in the first or the last element, and a look costs a hundredth of a pass over a small one
    if raw[:size].tobytes() != fill or raw[-size:].tobytes() != fill:
        return not len(raw)
    if size in (1, 2, 4, 8):
        elements = raw.view(f"u{size}")
        wanted = np.frombuffer(fill, f"u{size}")[0]
        return all(bool((elements[i : i + _PIECE] == wanted).all()) for i in range(0, len(elements), _PIECE))
    rows, one = raw.reshape(-1, size), np.frombuffer(fill, np.uint8)
    return all(bool((rows[i : i + _PIECE] == one).all()) for i in range(0, len(rows), _PIECE))


def shard_index(lengths: NDArray[np.int64]) -> bytes:
    """The index and its checksum, for inner chunks that lie one after the other.

    Parameters
    ----------
    lengths
        int64, encoded bytes of each inner chunk in C order; -1 where absent.

    Examples
    --------
    >>> len(shard_index(np.array([10, -1, 5])))
    52
    """
    present = lengths >= 0
    sizes = np.where(present, lengths, 0)
    index = np.full((lengths.size, 2), ABSENT, "<u8")
    offsets = np.cumsum(sizes) - sizes
    index[present, 0] = offsets[present]
    index[present, 1] = sizes[present]
    raw = index.tobytes()
    return raw + int(value(raw)).to_bytes(4, "little")


def shard_parts(encoded: Sequence[bytes | None], inner_grid: Sequence[int], at: NDArray[np.intp] | None = None) -> list[bytes]:
    """A shard as parts to be written one after the other; empty where every inner chunk is absent.

    Parameters
    ----------
    encoded
        Encoded inner chunks, None where all fill, in ascending order of their place in the shard.
    inner_grid
        Inner chunks along each axis of the full shard.
    at
        Place of each in C order of the full shard; None where all places are given.
    """
    lengths = np.full(math.prod(inner_grid), -1, np.int64)
    sizes = np.array([-1 if e is None else len(e) for e in encoded], np.int64)
    lengths[slice(None) if at is None else at] = sizes
    parts = [e for e in encoded if e is not None]
    return [*parts, shard_index(lengths)] if parts else []


def checksum(parts: Sequence[bytes]) -> int:
    """CRC-32C of the parts together.

    Examples
    --------
    >>> checksum([b"1234", b"56789"]) == 0xE3069283
    True
    """
    crc = 0
    for part in parts:
        crc = extend(crc, part)
    return int(crc)

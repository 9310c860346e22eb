"""Values to stored bytes: the other way round, the same bytes every time.

Used for chunks that no reference can say (inlined, re-cut) and by tests. Every codec runs with one thread a call:
blosc with several gives other bytes each time.
"""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections.abc import Callable
from typing import cast

import numpy as np
from numcodecs import blosc, zstd
from numpy.typing import NDArray

from drystone.codecs.chain import Codec, CodecChain
from drystone.codecs.checksum import CHECKSUMS, append_checksum
from drystone.codecs.delta import differences
from drystone.codecs.inflate import Buffer
from drystone.codecs.shuffle import shuffle
from drystone.errors import UnsupportedError

__all__ = ["encode_bytes", "encode_chunk", "encoder_of"]


def _text_bytes(values: NDArray[np.generic]) -> bytes:
    """Write the VLenUTF8 form of numcodecs."""
    parts = [values.size.to_bytes(4, "little")]
    for text in values.reshape(-1).tolist():
        raw = str(text).encode("utf-8")
        parts += [len(raw).to_bytes(4, "little"), raw]
    return b"".join(parts)


type Encode = Callable[[Buffer], Buffer]


def _blosc(codec: Codec, itemsize: int) -> Encode:
    kind = codec.get("shuffle", 1)
    mode = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}[kind] if isinstance(kind, str) else int(kind or 0)
    name, level = str(codec.get("cname", "zstd")).encode(), codec.int_of("clevel", 3)
    blocksize, typesize = codec.int_of("blocksize"), codec.int_of("typesize") or itemsize

    def encode(data: Buffer) -> bytes:
        # one thread a call, for the whole process: with more the bytes differ from run to run, and our callers have threads
        blosc.use_threads = False
        return cast(bytes, blosc.compress(np.frombuffer(data, np.uint8), name, level, mode, blocksize, typesize))

    return encode


def _step(codec: Codec, itemsize: int) -> Encode:
    name = codec.name
    if name == "shuffle":
        size = codec.int_of("elementsize", itemsize)
        return lambda data: shuffle(np.frombuffer(data, np.uint8), size)
    if name == "delta":
        dtype = np.dtype(str(codec.get("dtype")))
        return lambda data: differences(np.frombuffer(data, np.uint8), dtype)
    if name in CHECKSUMS:
        return lambda data: append_checksum(name, data)
    if name == "zlib":
        level = codec.int_of("level", -1)
        return lambda data: zlib.compress(data, level)
    if name == "gzip":
        level = codec.int_of("level", 6)
        return lambda data: gzip.compress(bytes(data), level, mtime=0)
    if name == "bz2":
        level = codec.int_of("level", 9)
        return lambda data: bz2.compress(bytes(data), level)
    if name == "zstd":
        level, check = codec.int_of("level", 3), bool(codec.get("checksum", False))
        return lambda data: cast(bytes, zstd.compress(data, level, check))
    if name == "blosc":
        return _blosc(codec, itemsize)
    raise UnsupportedError(
        f"drystone cannot encode with {name!r}; choose another codec for the output", kind="codec", codec=name
    )


def encoder_of(chain: CodecChain, itemsize: int) -> Callable[[Buffer], bytes]:
    """A chain's filters made ready for bytes of elements of ``itemsize`` bytes: a small chunk takes less time than parameters.

    Raises
    ------
    UnsupportedError
        A codec that drystone does not encode with, such as lzf.
    """
    steps = [_step(codec, itemsize) for codec in chain.filters]

    def encode(data: Buffer) -> bytes:
        for step in steps:
            data = step(data)
        return bytes(data)

    return encode


def encode_bytes(data: Buffer, chain: CodecChain, itemsize: int) -> bytes:
    """Run a chain's filters over the bytes of elements of ``itemsize`` bytes."""
    return encoder_of(chain, itemsize)(data)


def encode_chunk(values: NDArray[np.generic], chain: CodecChain, dtype: np.dtype) -> bytes:
    r"""Encode one chunk.

    Parameters
    ----------
    values
        Of the encoded shape (pad before), in any byte order.
    dtype
        To store as, with byte order.

    Raises
    ------
    UnsupportedError
        A codec that drystone does not encode with, such as lzf.

    Examples
    --------
    >>> encode_chunk(np.array([1, 256], "i2"), CodecChain.of("bytes"), np.dtype(">i2"))
    b'\x00\x01\x01\x00'
    """
    if dtype.kind == "T":
        return encode_bytes(_text_bytes(values), chain, 1)
    stored = np.ascontiguousarray(values, dtype)
    return encode_bytes(stored.tobytes(), chain, dtype.itemsize)

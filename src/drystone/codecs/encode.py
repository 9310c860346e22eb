"""Values to stored bytes: the other way round, the same bytes every time.

Used for chunks that no reference can say (inlined, re-cut) and by tests. Every codec runs with one thread a call:
blosc with several gives other bytes each time.
"""

from __future__ import annotations

import bz2
import gzip
import zlib
from typing import cast

import numpy as np
from numcodecs import blosc, zstd
from numpy.typing import NDArray

from drystone.codecs.chain import Codec, CodecChain
from drystone.codecs.checksum import CHECKSUMS, append_checksum
from drystone.codecs.inflate import Buffer
from drystone.codecs.shuffle import shuffle
from drystone.errors import UnsupportedError

__all__ = ["encode_bytes", "encode_chunk"]


def _text_bytes(values: NDArray[np.generic]) -> bytes:
    """Write the VLenUTF8 form of numcodecs."""
    parts = [values.size.to_bytes(4, "little")]
    for text in values.reshape(-1).tolist():
        raw = str(text).encode("utf-8")
        parts += [len(raw).to_bytes(4, "little"), raw]
    return b"".join(parts)


def _blosc(data: Buffer, codec: Codec, itemsize: int) -> bytes:
    # one thread a call, for the whole process: with more the bytes differ from run to run, and our callers have threads
    blosc.use_threads = False
    kind = codec.get("shuffle", 1)
    mode = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}[kind] if isinstance(kind, str) else int(kind or 0)
    return cast(
        bytes,
        blosc.compress(
            np.frombuffer(data, np.uint8),
            str(codec.get("cname", "zstd")).encode(),
            codec.int_of("clevel", 3),
            mode,
            codec.int_of("blocksize"),
            codec.int_of("typesize") or itemsize,
        ),
    )


def _encode_step(data: Buffer, codec: Codec, itemsize: int) -> Buffer:
    name = codec.name
    if name == "shuffle":
        return shuffle(np.frombuffer(data, np.uint8), codec.int_of("elementsize", itemsize))
    if name in CHECKSUMS:
        return append_checksum(name, data)
    if name == "zlib":
        return zlib.compress(data, codec.int_of("level", -1))
    if name == "gzip":
        return gzip.compress(bytes(data), codec.int_of("level", 6), mtime=0)
    if name == "bz2":
        return bz2.compress(bytes(data), codec.int_of("level", 9))
    if name == "zstd":
        return cast(bytes, zstd.compress(data, codec.int_of("level", 3), bool(codec.get("checksum", False))))
    if name == "blosc":
        return _blosc(data, codec, itemsize)
    raise UnsupportedError(
        f"drystone cannot encode with {name!r}; choose another codec for the output", kind="codec", codec=name
    )


def encode_bytes(data: Buffer, chain: CodecChain, itemsize: int) -> bytes:
    """Run a chain's filters over the bytes of elements of ``itemsize`` bytes."""
    for codec in chain.filters:
        data = _encode_step(data, codec, itemsize)
    return bytes(data)


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

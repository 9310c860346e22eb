"""Stored bytes to values: a codec chain, run.

A :class:`Decoder` is a chain made ready for one dtype and chunk shape, and says beforehand how many bytes each step must
give. Sizes are checked before anything is allocated, checksums always; whatever does not come out exactly as the table
promises is a :class:`~drystone.errors.DecodeError`, never a value.

:meth:`Decoder.into` writes the wanted part of a chunk straight into a slab, strided or not, which saves the copy that
decoding and then assigning would cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import numpy as np
from numpy.typing import NDArray

from drystone.codecs.chain import Codec, CodecChain
from drystone.codecs.checksum import CHECKSUMS, strip_checksum
from drystone.codecs.delta import sums
from drystone.codecs.inflate import DECOMPRESSORS, INTO, Buffer
from drystone.codecs.shuffle import unshuffle, unshuffle_pairs
from drystone.errors import DecodeError, UnsupportedError

__all__ = ["Decoder", "decode_bytes", "decode_chunk", "decoder", "native_dtype"]

type Selection = tuple[slice | int | NDArray[np.intp], ...]

# variable-length text says its size nowhere
_TEXT_LIMIT = 1 << 31
_PAIRED_FROM = 4096


def native_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype in the byte order of this host; text stays text."""
    return dtype if dtype.kind == "T" else dtype.newbyteorder("=")


@dataclass(frozen=True, slots=True)
class _Step:
    """A codec to undo, and how many bytes must come out: exactly ``most``, or up to it."""

    name: str
    run: Callable[[Buffer, int], Buffer]
    most: int
    exact: bool


def _steps(chain: CodecChain, nbytes: int, exact: bool) -> tuple[_Step, ...]:
    """Decoding order, with the size that each step must give."""
    steps = []
    size = nbytes
    for codec in chain.filters:
        steps.append(_Step(codec.name, _runner(codec), size, exact))
        if codec.name in DECOMPRESSORS:
            # what a compressor gives is not known, but none of them adds more than this
            size, exact = size + size // 8 + 4096, False
        elif codec.name in CHECKSUMS:
            size += 4
    return tuple(reversed(steps))


def _runner(codec: Codec) -> Callable[[Buffer, int], Buffer]:
    """What undoes one codec, given its bytes and the most that may come out."""
    if codec.name in DECOMPRESSORS:
        return DECOMPRESSORS[codec.name]
    if codec.name in CHECKSUMS:
        return lambda data, _: strip_checksum(codec.name, data)
    if codec.name == "shuffle":
        return lambda data, _: _unshuffled(data, codec.int_of("elementsize", 1))
    if codec.name == "delta":
        dtype = np.dtype(str(codec.get("dtype")))
        return lambda data, _: sums(np.frombuffer(data, np.uint8), dtype)
    raise UnsupportedError(
        f"no codec of drystone undoes {codec.name!r}; only the format's own library can read this array",
        kind="codec",
        codec=codec.name,
    )


def _unshuffled(data: Buffer, size: int) -> NDArray[np.uint8]:
    out = np.empty(len(data), np.uint8)
    unshuffle(np.frombuffer(data, np.uint8), size, out)
    return out


def _wrong_size(what: str, got: int, expected: int) -> DecodeError:
    return DecodeError(
        f"{what} gave {got} bytes where the array's structure needs {expected}; the granule is damaged, was replaced since "
        "it was scanned, or its table is out of date: scan it again",
        kind="wrong-size",
        got=got,
        expected=expected,
    )


@dataclass(frozen=True, slots=True)
class Decoder:
    """One chain, ready for chunks of one dtype and shape. Build it with :func:`decoder`.

    Parameters
    ----------
    chain
        Filters that a mask skipped are already left out.
    dtype
        As stored.
    shape
        Encoded shape: what the bytes decode to, padding included.
    steps
        What is undone, in decoding order.
    elementsize
        Of the shuffle that comes first in encoding order, or 0.
    paired
        Whether its byte planes are written straight to their places.
    """

    chain: CodecChain
    dtype: np.dtype
    shape: tuple[int, ...]
    native: np.dtype
    nbytes: int
    steps: tuple[_Step, ...]
    elementsize: int
    paired: bool

    def unfiltered(self, data: Buffer, steps: tuple[_Step, ...]) -> Buffer:
        """Undo some of the filters."""
        for step in steps:
            data = step.run(data, step.most)
            if len(data) != step.most and (step.exact or len(data) > step.most):
                raise _wrong_size(f"undoing {step.name}", len(data), step.most)
        return data

    def shuffled(self, data: Buffer) -> NDArray[np.uint8]:
        """Undo all filters but the shuffle that comes first in encoding order."""
        shuffled = np.frombuffer(self.unfiltered(data, self.steps[:-1]), np.uint8)
        if len(shuffled) != self.nbytes:
            raise _wrong_size("the chunk", len(shuffled), self.nbytes)
        return shuffled

    def bytes(self, data: Buffer, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """The elements' bytes in stored order, writable; in ``out`` (uint8, contiguous, ``nbytes`` long) where given."""
        if self.elementsize:
            shuffled = self.shuffled(data)
            out = np.empty(self.nbytes, np.uint8) if out is None else out
            unshuffle(shuffled, self.elementsize, out)
            return out
        last = self.steps[-1] if self.steps else None
        if out is not None and last is not None and last.name in INTO:
            decoded = INTO[last.name](self.unfiltered(data, self.steps[:-1]), last.most, out)
            if decoded is out:
                return out
        else:
            decoded = self.unfiltered(data, self.steps)
        plain = np.frombuffer(decoded, np.uint8)
        if len(plain) != self.nbytes:
            raise _wrong_size("the chunk" if self.steps else "an unfiltered chunk", len(plain), self.nbytes)
        if out is None:
            # a caller's own buffer is not ours to hand on, even a writable one
            return plain if self.steps and plain.flags.writeable else plain.copy()
        out[:] = plain
        return out

    def chunk(self, data: Buffer) -> NDArray[np.generic]:
        """The chunk: native order, contiguous, writable, of the encoded shape."""
        if self.dtype.kind == "T":
            return self._text(data)
        if self.nbytes == 0:
            return np.zeros(self.shape, self.native)
        values: NDArray[np.generic] = self.bytes(data).view(self.dtype).reshape(self.shape)
        return values if self.dtype == self.native else _to_native(values, self.native)

    def into(self, data: Buffer, out: NDArray[np.generic], selection: Selection | None = None) -> None:
        """Decode and write the selected part into ``out``, a native array of the selection's shape, any strides.

        Parameters
        ----------
        selection
            One slice, integer or index array an axis, within the chunk; None: all of it.
        """
        if self.paired and (selection is None or all(isinstance(s, slice) for s in selection)):
            planes = self.shuffled(data).reshape(2, *self.shape)
            if selection is not None:
                planes = planes[(slice(None), *selection)]
            unshuffle_pairs(planes, out.view(np.uint16), big=self.dtype.byteorder == ">")
            return
        if selection is None and out.flags.c_contiguous and self.dtype == self.native == out.dtype and self.dtype.kind != "T":
            self.bytes(data, out.reshape(-1).view(np.uint8))
            return
        values = self.chunk(data)
        out[...] = values if selection is None else values[selection]

    def _text(self, data: Buffer) -> NDArray[np.generic]:
        """Read VLenUTF8 of numcodecs: a count, then for each element its length and its bytes; little-endian uint32."""
        if self.chain.codecs[0].name != "vlen-utf8":
            raise UnsupportedError(
                f"variable-length text is stored through {self.chain.codecs[0].name!r}, which no codec of drystone undoes",
                kind="codec",
            )
        view = memoryview(self.unfiltered(data, self.steps)).cast("B")
        count, expected = int.from_bytes(view[:4], "little") if len(view) >= 4 else -1, math.prod(self.shape)
        if count != expected:
            raise _wrong_size("a chunk of text", count, expected)
        at, texts = 4, []
        for i in range(count):
            size = int.from_bytes(view[at : at + 4], "little")
            if at + 4 + size > len(view):
                raise DecodeError(
                    f"text {i} of {count} says it has {size} bytes, but {max(0, len(view) - at - 4)} are left of {len(view)}",
                    kind="truncated",
                )
            try:
                texts.append(str(view[at + 4 : at + 4 + size], "utf-8"))
            except UnicodeDecodeError as error:
                raise DecodeError(f"text {i} of {count} is no UTF-8 ({error})", kind="corrupt") from error
            at += 4 + size
        return np.array(texts, self.dtype).reshape(self.shape)


def _to_native(values: NDArray[np.generic], native: np.dtype) -> NDArray[np.generic]:
    """A copy in native order; gaps between the fields of a compound become zeros, since nothing says what they hold."""
    if native.names is None:
        return values.astype(native)
    out = np.zeros(values.shape, native)
    _copy_fields(cast("NDArray[np.void]", values), out)
    return out


def _copy_fields(values: NDArray[np.void], out: NDArray[np.void]) -> None:
    for name in out.dtype.names or ():
        if out[name].dtype.names:
            _copy_fields(values[name], out[name])
        else:
            out[name] = values[name]


@lru_cache(maxsize=4096)
def decoder(chain: CodecChain, dtype: np.dtype, shape: tuple[int, ...], mask: int = 0) -> Decoder:
    """Make a chain ready.

    Parameters
    ----------
    chain, dtype
        As in :class:`~drystone.model.array.ArraySpec`.
    shape
        Encoded shape of the chunk, in elements.
    mask
        HDF5 filter mask of the chunk: bit i set means that filter i was skipped.

    Raises
    ------
    UnsupportedError
        A filter that only the format's own library undoes.
    """
    if mask:
        chain = chain.masked(mask)
    text = dtype.kind == "T"
    nbytes = _TEXT_LIMIT if text else math.prod(shape) * dtype.itemsize
    first = chain.filters[0] if chain.filters else None
    elementsize = first.int_of("elementsize", 1) if first is not None and first.name == "shuffle" and not text else 0
    # byte planes of 16-bit numbers go straight to where they belong; a small chunk is faster through a buffer
    paired = elementsize == 2 == dtype.itemsize and dtype.kind in "iuf" and nbytes > _PAIRED_FROM
    steps = _steps(chain, nbytes, not text)
    return Decoder(chain, dtype, shape, native_dtype(dtype), nbytes, steps, elementsize, paired)


def decode_bytes(
    data: Buffer, chain: CodecChain, nbytes: int, mask: int = 0, out: NDArray[np.uint8] | None = None
) -> NDArray[np.uint8]:
    """Undo a chain's filters.

    Parameters
    ----------
    data
        Stored bytes of one chunk.
    nbytes
        What must come out.
    mask
        HDF5 filter mask.
    out
        uint8 (nbytes,), contiguous: where to put it.

    Returns
    -------
    uint8 (nbytes,), writable; ``out`` where it was given.

    Raises
    ------
    DecodeError
        Anything but exactly ``nbytes`` came out, or a checksum is wrong.

    Examples
    --------
    >>> import zlib
    >>> chain = CodecChain.of("bytes", Codec.of("shuffle", elementsize=2), Codec.of("zlib", level=1))
    >>> decode_bytes(zlib.compress(bytes([1, 2, 0, 0])), chain, 4).tolist()
    [1, 0, 2, 0]
    """
    return decoder(chain, np.dtype(np.uint8), (nbytes,), mask).bytes(data, out)


def decode_chunk(
    data: Buffer,
    chain: CodecChain,
    dtype: np.dtype,
    shape: tuple[int, ...],
    mask: int = 0,
) -> NDArray[np.generic]:
    """Decode one chunk.

    Parameters
    ----------
    data
        Stored bytes.
    dtype
        As stored, with byte order.
    shape
        Encoded shape, padding included.
    mask
        HDF5 filter mask.

    Returns
    -------
    Native byte order, contiguous, writable, exactly ``shape``.

    Raises
    ------
    DecodeError
        The bytes do not decode to exactly this chunk; the message has the numbers.
    UnsupportedError
        A filter that only the format's own library undoes.

    Examples
    --------
    >>> decode_chunk(bytes([0, 1, 1, 0]), CodecChain.of(Codec.of("bytes", endian="big")), np.dtype(">i2"), (2,))
    array([  1, 256], dtype=int16)
    """
    return decoder(chain, dtype, shape, mask).chunk(data)

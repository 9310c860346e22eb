"""LZF, as HDF5 files written by h5py have it: a bare liblzf stream without header.

imagecodecs decodes it in C where it is installed (``drystone[codecs]``). The fallback is plain Python: some 20 MB/s,
which holds the GIL; enough to read the rare array that uses it, and right in every case.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, cast

from drystone.errors import DecodeError

if TYPE_CHECKING:
    from drystone.codecs.inflate import Buffer

__all__ = ["lzf_decompress", "lzf_decompress_python"]

# three bytes say at most 264
_RATIO = 88


def _broken(size: int, why: str) -> DecodeError:
    return DecodeError(
        f"{size} stored bytes are no lzf stream ({why}); the granule is damaged or was replaced since it was scanned",
        kind="corrupt",
        codec="lzf",
        stored=size,
    )


@cache
def _fast() -> Callable[..., Buffer] | None:
    """The decoder of imagecodecs; it takes 50 ms to import and few archives need it, so it is loaded when it is needed."""
    try:
        from imagecodecs import lzf_decode
    except ImportError:
        return None
    return cast("Callable[..., Buffer]", lzf_decode)


def lzf_decompress(data: Buffer, most: int) -> Buffer:
    """Undo LZF; no more than ``most`` bytes may come out.

    Examples
    --------
    >>> bytes(lzf_decompress(bytes([0, 97, 0xE0, 10, 0]), 20))  # 'a', then 19 bytes from 1 back
    b'aaaaaaaaaaaaaaaaaaaa'
    """
    fast = _fast()
    if fast is None:
        return lzf_decompress_python(data, most)
    try:
        return fast(bytes(data), header=False, out=bytearray(min(most, len(data) * _RATIO)))
    except (RuntimeError, ValueError):  # it says only that it failed; the plain decoder finds where and why
        return lzf_decompress_python(data, most)


def lzf_decompress_python(data: Buffer, most: int) -> bytearray:
    """The same in plain Python.

    A control byte below 32 is followed by that many literal bytes and one; any other has a length in its upper three
    bits (7: more in the next byte) and, with the byte after, a distance back of 13 bits.
    """
    src = bytes(data)
    out = bytearray()
    at, end = 0, len(src)
    while at < end:
        control = src[at]
        at += 1
        if control < 32:
            stop = at + control + 1
            if stop > end:
                raise _broken(end, f"{stop - end} literal bytes are missing at its end")
            out += src[at:stop]
            at = stop
        else:
            length = control >> 5
            if at + (length == 7) >= end:
                raise _broken(end, "it ends inside a back reference")
            if length == 7:
                length += src[at]
                at += 1
            length += 2
            distance = ((control & 31) << 8 | src[at]) + 1
            at += 1
            start = len(out) - distance
            if start < 0:
                raise _broken(end, f"byte {at} points {-start} bytes before its beginning")
            if distance >= length:
                out += out[start : start + length]
            else:
                out += (out[start:] * (length // distance + 1))[:length]
        if len(out) > most:
            raise DecodeError(
                f"lzf gave {len(out)} bytes or more where {most} are the most that can be right; the bytes are not this "
                "chunk's, or the table is out of date: scan the granule again",
                kind="too-long",
                codec="lzf",
                got=len(out),
                expected=most,
            )
    return out

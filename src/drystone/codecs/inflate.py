"""Bounded decompressors: compressed bytes to exactly the bytes that the table promises.

Every function takes the largest size that may come out and allocates no more than that, whatever the stored bytes say,
so a damaged or hostile chunk costs its own size and an error, not the machine. Choices, measured on real chunks (MB/s of
output on one core): libdeflate 725 to 980, ISA-L 510 to 670, zlib-ng 550 to 600, zlib 370 to 440; below 2 kB of output
ISA-L wins, since libdeflate sets up a decompressor for each call. All of them release the GIL.
"""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable
from typing import Protocol, cast

import numpy as np
from isal import igzip_lib, isal_zlib
from numcodecs import blosc, zstd
from numpy.typing import NDArray

from drystone.codecs.lzf import lzf_decompress
from drystone.errors import DecodeError

__all__ = ["DECOMPRESSORS", "INTO", "Buffer", "decompress"]

type Buffer = bytes | bytearray | memoryview | NDArray[np.uint8]

_LIBDEFLATE_FROM = 2048
# no deflate stream says more than 258 bytes in 2 bits
_DEFLATE_RATIO = 1032
_ZLIB_BITS = 15
_GZIP_BITS = 31
_UNKNOWN = (1 << 64) - 1
_STREAM_ERRORS = (OSError, ValueError, EOFError, zlib.error, cast("type[Exception]", igzip_lib.IsalError))
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

# window bits to libdeflate's function; empty where there is no wheel of it for the platform
_LIBDEFLATE: dict[int, Callable[[Buffer, int], Buffer]] = {}
_LIBDEFLATE_ERRORS: tuple[type[Exception], ...] = ()
try:
    import deflate
except ModuleNotFoundError:
    pass
else:
    _LIBDEFLATE = {_ZLIB_BITS: deflate.zlib_decompress, _GZIP_BITS: deflate.gzip_decompress}
    _LIBDEFLATE_ERRORS = (deflate.DeflateError,)


class _Inflater(Protocol):
    eof: bool
    unused_data: bytes

    def decompress(self, data: Buffer, max_length: int) -> bytes: ...


def _short(name: str, got: int, most: int) -> DecodeError:
    return DecodeError(
        f"{name} gave {got} bytes or more where {most} are the most that can be right; the bytes are not this chunk's, "
        "or the table is out of date: scan the granule again",
        kind="too-long",
        codec=name,
        got=got,
        expected=most,
    )


def _broken(name: str, size: int, error: object) -> DecodeError:
    return DecodeError(
        f"{size} stored bytes are no {name} stream ({error}); the granule is damaged or was replaced since it was scanned",
        kind="corrupt",
        codec=name,
        stored=size,
    )


def _stream(name: str, make: Callable[[], _Inflater], data: Buffer, most: int) -> bytes:
    """Run a streaming decompressor to its end, or to one byte more than is right."""
    inflater = make()
    try:
        out = inflater.decompress(data, most + 1)
    except _STREAM_ERRORS as error:
        raise _broken(name, len(data), error) from error
    if len(out) > most:
        raise _short(name, len(out), most)
    if not inflater.eof:
        raise DecodeError(
            f"{len(data)} stored bytes are the beginning of a {name} stream that does not end ({len(out)} bytes came out, "
            f"{most} were expected); the granule is cut short or was replaced since it was scanned",
            kind="truncated",
            codec=name,
            stored=len(data),
            got=len(out),
            expected=most,
        )
    return out


def _deflated(name: str, bits: int, data: Buffer, most: int) -> Buffer:
    # where it cannot hold so much, the caller's check of the size says so; here only make no room for what cannot come
    room = min(most, len(data) * _DEFLATE_RATIO)
    if room >= _LIBDEFLATE_FROM and bits in _LIBDEFLATE:
        try:
            return _LIBDEFLATE[bits](data, room)
        except _LIBDEFLATE_ERRORS:
            pass  # it says only that it failed; the streaming inflater below says how, or copes
    # its defaults are those of zlib streams, and a call without keywords takes a third of the time
    make = isal_zlib.decompressobj if bits == _ZLIB_BITS else lambda: isal_zlib.decompressobj(wbits=bits)
    return _stream(name, cast("Callable[[], _Inflater]", make), data, room)


def inflate_zlib(data: Buffer, most: int) -> Buffer:
    """One zlib stream (HDF5's deflate)."""
    return _deflated("zlib", _ZLIB_BITS, data, most)


def inflate_gzip(data: Buffer, most: int) -> Buffer:
    """One gzip member."""
    return _deflated("gzip", _GZIP_BITS, data, most)


def inflate_bz2(data: Buffer, most: int) -> Buffer:
    """One bzip2 stream."""
    return _stream("bz2", lambda: cast(_Inflater, bz2.BZ2Decompressor()), bytes(data), most)


def inflate_blosc(data: Buffer, most: int, into: NDArray[np.uint8] | None = None) -> Buffer:
    """A blosc 1 frame; its header says how much will come out, which goes to ``into`` where it fits exactly."""
    view = memoryview(data).cast("B")
    if len(view) < 16:
        raise _broken("blosc", len(view), "its header alone takes 16 bytes")
    nbytes, stored = (int.from_bytes(view[i : i + 4], "little") for i in (4, 12))
    if nbytes > most:
        raise _short("blosc", nbytes, most)
    if stored != len(view):
        raise _broken("blosc", len(view), f"its header says that it takes {stored} bytes")
    if nbytes == 0:
        return b""
    out = into if into is not None and len(into) == nbytes else np.empty(nbytes, np.uint8)
    try:
        blosc.decompress(view, out)
    except (RuntimeError, ValueError) as error:
        raise _broken("blosc", len(view), error) from error
    return out


def inflate_zstd(data: Buffer, most: int, into: NDArray[np.uint8] | None = None) -> Buffer:
    """A zstd frame, whether its header says the size (HDF5's filter) or not (streaming writers such as GDAL's).

    What comes out goes to ``into`` where it fits exactly.
    """
    view = memoryview(data).cast("B")
    size, header = _zstd_header(view)
    if size == _UNKNOWN:
        # a frame that hides its size could grow without bound: tell it how much it must hold, and zstd checks that
        descriptor = view[4] & 0x3F | 0xC0
        view = memoryview(b"".join((view[:4], bytes([descriptor]), view[5:header], most.to_bytes(8, "little"), view[header:])))
        size = most
    if size > most:
        raise _short("zstd", size, most)
    out = into if into is not None and len(into) == size else np.empty(size, np.uint8)
    try:
        zstd.decompress(view, out)
    except (RuntimeError, ValueError) as error:
        raise _broken("zstd", len(data), error) from error
    return out


def _zstd_header(view: memoryview) -> tuple[int, int]:
    """Content size (or ``_UNKNOWN``) and length of a frame's header, RFC 8878 section 3.1.1."""
    if len(view) < 6 or bytes(view[:4]) != _ZSTD_MAGIC:
        raise _broken("zstd", len(view), "its first bytes are not a frame's")
    flags = view[4]
    single = flags >> 5 & 1
    at = 5 + (0 if single else 1) + (0, 1, 2, 4)[flags & 3]
    width = (single, 2, 4, 8)[flags >> 6]
    if width == 0:
        return _UNKNOWN, at
    if len(view) < at + width:
        raise _broken("zstd", len(view), "its header is cut short")
    return int.from_bytes(view[at : at + width], "little") + (256 if width == 2 else 0), at + width


def inflate_lzf(data: Buffer, most: int) -> Buffer:
    """HDF5's LZF: a bare liblzf stream."""
    return lzf_decompress(data, most)


DECOMPRESSORS: dict[str, Callable[[Buffer, int], Buffer]] = {
    "zlib": inflate_zlib,
    "gzip": inflate_gzip,
    "bz2": inflate_bz2,
    "blosc": inflate_blosc,
    "zstd": inflate_zstd,
    "lzf": inflate_lzf,
}

# those that can write where the caller wants it, which saves a pass over memory
INTO: dict[str, Callable[[Buffer, int, NDArray[np.uint8]], Buffer]] = {"blosc": inflate_blosc, "zstd": inflate_zstd}


def decompress(name: str, data: Buffer, most: int) -> Buffer:
    """Undo one compressor.

    Parameters
    ----------
    name
        One of ``DECOMPRESSORS``.
    most
        The most bytes that may come out; no more than that is allocated.

    Raises
    ------
    DecodeError
        ``kind`` is ``corrupt``, ``truncated`` or ``too-long``.

    Examples
    --------
    >>> bytes(decompress("zlib", zlib.compress(b"stone" * 3), 15))
    b'stonestonestone'
    """
    return DECOMPRESSORS[name](data, most)

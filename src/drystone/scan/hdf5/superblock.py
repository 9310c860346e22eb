"""The superblock of an HDF5 file, read without the library, so that a hopeless file is named before it is opened.

The library's own message for a truncated file ("unable to open file") costs the user an hour; the superblock says how
long the file should be.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from drystone.errors import ScanError

__all__ = ["SIGNATURE", "Superblock", "checked_superblock", "find_signature", "not_hdf5"]

SIGNATURE = b"\x89HDF\r\n\x1a\n"
_UNDEFINED = {2: 0xFFFF, 4: 0xFFFF_FFFF, 8: 0xFFFF_FFFF_FFFF_FFFF}
_FORMATS = {2: "<H", 4: "<I", 8: "<Q"}
_MAX_USER_BLOCK = 1 << 40

type Read = Callable[[int, int], bytes]  # (offset, at most so many bytes)


@dataclass(frozen=True, slots=True)
class Superblock:
    """Where addresses start from and where the file ends.

    Parameters
    ----------
    version
        0 to 3.
    base
        Bytes before the superblock (the user block); addresses in the file count from here.
    end
        First byte after the file, counted from byte 0.
    offset_size
        Bytes of an address.
    """

    version: int
    base: int
    end: int
    offset_size: int


def find_signature(read: Read, size: int) -> int | None:
    """Where the superblock lies: at 0, 512, 1024, 2048 and so on, or None.

    Examples
    --------
    >>> data = bytes(1024) + SIGNATURE
    >>> find_signature(lambda o, n: data[o : o + n], len(data))
    1024
    """
    at = 0
    while at + len(SIGNATURE) <= size and at <= _MAX_USER_BLOCK:
        if read(at, len(SIGNATURE)) == SIGNATURE:
            return at
        at = 512 if at == 0 else at * 2
    return None


def checked_superblock(read: Read, size: int, address: str) -> Superblock:
    """Read the superblock of a file of ``size`` bytes.

    Raises
    ------
    ScanError
        ``empty``, ``not-hdf5`` or ``truncated``; the message has the numbers.
    """
    if size == 0:
        raise ScanError(
            f"{address}: the file is empty (0 bytes); fetch it again or leave it out", kind="empty", granule=address, size=0
        )
    at = find_signature(read, size)
    if at is None:
        raise ScanError(not_hdf5(read(0, 16), size, address), kind="not-hdf5", granule=address, size=size)
    try:
        block = _parse(read(at, 128), at)
    except struct.error:
        raise ScanError(
            f"{address}: truncated inside its superblock (the file has {size} bytes); fetch it again",
            kind="truncated",
            granule=address,
            size=size,
        ) from None
    if block is None:
        raise ScanError(
            f"{address}: the superblock at byte {at} is of a kind no HDF5 version writes; the file is damaged",
            kind="superblock",
            granule=address,
        )
    if block.end > size:
        raise ScanError(
            f"{address}: truncated: its superblock says {block.end} bytes, the file has {size} "
            f"({block.end - size} bytes are missing); fetch it again",
            kind="truncated",
            granule=address,
            size=size,
            expected=block.end,
        )
    return block


def not_hdf5(head: bytes, size: int, address: str) -> str:
    r"""What a file is that is no HDF5, as far as its first bytes tell.

    Examples
    --------
    >>> not_hdf5(b"CDF\x01", 900, "raw:a.nc")
    "raw:a.nc: not netCDF/HDF5: starts with b'CDF\\x01'; it is netCDF-3 (classic), which is not read yet"
    """
    known = {
        b"CDF": "it is netCDF-3 (classic), which is not read yet",
        b"\x0e\x03\x13\x01": "it is HDF4",
        b"GRIB": "it is GRIB",
        b"II*\0": "it is TIFF",
        b"MM\0*": "it is TIFF",
        b"SIMPLE": "it is FITS",
        b"PK\x03\x04": "it is a zip archive",
        b"\x1f\x8b": "it is gzip-compressed: decompress it first",
    }
    hint = next((text for magic, text in known.items() if head.startswith(magic)), None)
    if hint is None and head.lstrip()[:1] == b"<":
        hint = "it looks like a web page: perhaps a login or error page saved under this name"
    return f"{address}: not netCDF/HDF5: starts with {head!r}" + (f"; {hint}" if hint else f" ({size} bytes)")


def _parse(data: bytes, at: int) -> Superblock | None:
    if len(data) < 16:
        raise struct.error
    version = data[8]
    if version in (0, 1):
        offset_size = data[13]
        start = 24 if version == 0 else 28
    elif version in (2, 3):
        offset_size = data[9]
        start = 12
    else:
        return None
    form = _FORMATS.get(offset_size)
    if form is None:
        return None
    # base, then (free space | superblock extension), then end of file
    base = struct.unpack_from(form, data, start)[0]
    end = struct.unpack_from(form, data, start + 2 * offset_size)[0]
    if end == _UNDEFINED[offset_size] or base == _UNDEFINED[offset_size]:
        return None
    # a file moved behind a user block after it was written keeps its old base: the library trusts the place it found it at
    return Superblock(version, at, end + at - base, offset_size)

"""Checksums that travel at the end of a chunk: HDF5's fletcher32, and crc32c."""

from __future__ import annotations

from typing import TYPE_CHECKING

import google_crc32c
import numpy as np
from numcodecs.fletcher32 import Fletcher32

from drystone.errors import DecodeError

if TYPE_CHECKING:
    from drystone.codecs.inflate import Buffer

__all__ = ["CHECKSUMS", "append_checksum", "strip_checksum"]


def _fletcher32(data: Buffer) -> bytes:
    if len(data) == 0:  # numcodecs reads past its end
        return bytes(4)
    return bytes(Fletcher32().encode(np.frombuffer(data, np.uint8))[-4:])


def _crc32c(data: Buffer) -> bytes:
    return int(google_crc32c.value(bytes(data))).to_bytes(4, "little")


CHECKSUMS = {"fletcher32": _fletcher32, "crc32c": _crc32c}


def append_checksum(name: str, data: Buffer) -> bytes:
    """Add four bytes of checksum.

    Examples
    --------
    >>> strip_checksum("fletcher32", append_checksum("fletcher32", b"stone")).tobytes()
    b'stone'
    """
    return bytes(data) + CHECKSUMS[name](data)


def strip_checksum(name: str, data: Buffer) -> memoryview:
    """Check the last four bytes and take them off.

    Raises
    ------
    DecodeError
        ``kind`` is ``checksum``: the bytes are not those that were written.
    """
    view = memoryview(data).cast("B")
    if len(view) < 4:
        raise DecodeError(
            f"{len(view)} bytes are too few to end in a {name} checksum of 4; the granule is damaged",
            kind="truncated",
            codec=name,
            stored=len(view),
        )
    body, stored = view[:-4], bytes(view[-4:])
    computed = CHECKSUMS[name](body)
    # HDF5 before 1.6.3 wrote each half with its bytes swapped on little-endian hosts, and the library still accepts that
    if stored != computed and not (name == "fletcher32" and stored == bytes(computed[i] for i in (1, 0, 3, 2))):
        raise DecodeError(
            f"the {name} checksum of {len(body)} bytes is {computed.hex()}, but {stored.hex()} is stored after them; the "
            "granule is damaged, so its values are not given",
            kind="checksum",
            codec=name,
            stored=stored.hex(),
            computed=computed.hex(),
        )
    return body

"""Object headers read directly, for what the library does not tell.

That is where a chunk index starts, whether edge chunks are stored unfiltered, and a fill value's very bytes. Only
messages are looked for, nothing is followed; an unexpected header gives None and the caller does without.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from drystone.scan.hdf5.opening import OpenFile

__all__ = ["FILL_VALUE", "LAYOUT", "Layout", "find_message", "read_fill", "read_layout"]

FILL_VALUE = 0x05
LAYOUT = 0x08
_CONTINUATION = 0x10
_MAX_MESSAGES = 4096


@dataclass(frozen=True, slots=True)
class Layout:
    """A chunked dataset's layout message.

    Parameters
    ----------
    version
        Of the message.
    tree
        Address of the version 1 B-tree from byte 0 of the file; None where the index is another or has no chunk.
    unfiltered_edges
        True where chunks that reach over the edge are stored without the filters.
    """

    version: int
    tree: int | None
    unfiltered_edges: bool


def read_layout(file: OpenFile, header: int, rank: int) -> Layout | None:
    """Find the layout message in the object header at ``header``; None where the header is not as expected.

    Parameters
    ----------
    header
        Counted from the file's base address, as links give it.
    rank
        Of the dataset.
    """
    try:
        message = find_message(file, header, LAYOUT)
    except (struct.error, IndexError):
        return None
    if message is None or len(message) < 3:
        return None
    version = message[0]
    size = file.superblock.offset_size
    # versions 1 and 2: version, rank, class, 5 bytes, address; version 3: version, class, rank, address
    old = version in (1, 2) and (message[2], message[1]) == (2, rank + 1)
    if old or (version == 3 and (message[1], message[2]) == (2, rank + 1)):
        at = 8 if old else 3
        address = int.from_bytes(message[at : at + size], "little")
        undefined = address == (1 << 8 * size) - 1
        return Layout(version, None if undefined else address + file.superblock.base, False)
    if version in (4, 5) and message[1] == 2:
        return Layout(version, None, bool(message[2] & 1))
    return None


def find_message(file: OpenFile, header: int, wanted: int) -> bytes | None:
    """The body of the first message of a kind; None where there is none or it lies elsewhere (shared)."""
    base, size = file.superblock.base, file.superblock.offset_size
    head = file.bytes.read(base + header, 512)
    modern = head[:4] == b"OHDR"
    if modern:
        flags = head[5]
        at = 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
        width = 1 << (flags & 3)
        length = int.from_bytes(head[at : at + width], "little")
        at += width
        extra = 6 if flags & 4 else 4
    elif head[0] == 1:
        length = struct.unpack_from("<I", head, 8)[0]
        at, extra = 16, 8
    else:
        return None
    blocks = [(base + header + at, length)]
    seen = 0
    while blocks:
        where, length = blocks.pop(0)
        if length > 1 << 20:
            return None
        data = file.bytes.read(where, length)
        at = 0
        while at + extra <= len(data) and seen < _MAX_MESSAGES:
            seen += 1
            kind, n = (data[at], struct.unpack_from("<H", data, at + 1)[0]) if modern else struct.unpack_from("<HH", data, at)
            body = data[at + extra : at + extra + n]
            if kind == wanted:
                shared = data[at + 3] & 2 if modern else data[at + 4] & 2
                return None if shared else body
            if kind == _CONTINUATION:
                address = int.from_bytes(body[:size], "little") + base
                n_bytes = int.from_bytes(body[size : 2 * size], "little")
                # a later block of a modern header starts with its signature and ends with its checksum
                blocks.append((address + 4, n_bytes - 8) if modern else (address, n_bytes))
            at += extra + n
    return None


def read_fill(file: OpenFile, header: int) -> bytes | None:
    """The bytes of a dataset's fill value as stored; None where it is not found."""
    try:
        message = find_message(file, header, FILL_VALUE)
        if message is None:
            return None
        if message[0] in (1, 2):
            # version, allocation time, fill time, defined, size, value
            size = struct.unpack_from("<I", message, 4)[0] if message[3] else 0
            start = 8
        elif message[0] == 3 and message[1] & 0x20:
            size = struct.unpack_from("<I", message, 2)[0]
            start = 6
        else:
            return None
    except (struct.error, IndexError):
        return None
    value = message[start : start + size]
    return value if 0 < size == len(value) else None

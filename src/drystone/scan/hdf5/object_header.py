"""Object headers read directly.

For what the library does not tell (where a chunk index starts, whether edge chunks are stored unfiltered, a fill value's
very bytes), what it tells slowly (attributes), and what it cannot read in bounded time from a damaged file (text on the
heap). An unexpected header gives None, and the caller goes through the library.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from drystone.scan.hdf5.opening import OpenFile

__all__ = [
    "ATTRIBUTE",
    "ATTRIBUTE_INFO",
    "COMPACT",
    "FILL_VALUE",
    "LAYOUT",
    "Layout",
    "Message",
    "UnexpectedHeader",
    "compact_bytes",
    "messages",
    "read_fill",
    "read_layout",
    "split",
]

FILL_VALUE = 0x05
LAYOUT = 0x08
ATTRIBUTE = 0x0C
ATTRIBUTE_INFO = 0x15
COMPACT, _CHUNKED = 0, 2
_EXTENSIBLE = 4
_CONTINUATION = 0x10
_MAX_MESSAGES = 1 << 17
_MAX_BLOCK = 16 << 20
_FIRST_READ = 1024


@dataclass(frozen=True, slots=True)
class Message:
    """One header message; ``order`` is its place in the order of creation where the header keeps that, else 0."""

    kind: int
    flags: int
    order: int
    body: bytes

    @property
    def shared(self) -> bool:
        """Whether the body lies elsewhere."""
        return bool(self.flags & 2)


_CACHED_BYTES = 4096


class UnexpectedHeader(Exception):
    """A header in a form that is not read here."""


def messages(file: OpenFile, header: int) -> list[Message] | None:
    """All messages of the object header at ``header`` (from the file's base address, as links give it)."""
    try:
        return list(_messages(file, header))
    except (struct.error, IndexError, UnexpectedHeader):
        return None


def _messages(file: OpenFile, header: int) -> Iterator[Message]:
    base, size = file.superblock.base, file.superblock.offset_size
    head = file.bytes.read(base + header, _FIRST_READ)
    modern = head[:4] == b"OHDR"
    if modern:
        flags = head[5]
        at = 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
        width = 1 << (flags & 3)
        length = int.from_bytes(head[at : at + width], "little")
        at += width
        ordered = bool(flags & 4)
    elif head and head[0] == 1:
        length = struct.unpack_from("<I", head, 8)[0]
        at, ordered = 16, False
    else:
        raise UnexpectedHeader
    if at + length <= len(head):
        blocks = [head[at : at + length]]
    else:
        blocks = [_block(file, base + header + at, length)]
    seen = 0
    while blocks:
        data = blocks.pop(0)
        taken = _split_cached if len(data) <= _CACHED_BYTES else split
        for message in taken(data, modern, ordered):
            seen += 1
            if seen > _MAX_MESSAGES:
                raise UnexpectedHeader
            if message.kind == _CONTINUATION:
                address = int.from_bytes(message.body[:size], "little") + base
                length = int.from_bytes(message.body[size : 2 * size], "little")
                # a later block of a modern header starts with its signature and ends with its checksum
                blocks.append(_block(file, address + 4, length - 8) if modern else _block(file, address, length))
            else:
                yield message


def _block(file: OpenFile, address: int, length: int) -> bytes:
    if not 0 < length <= _MAX_BLOCK or address + length > file.size:
        raise UnexpectedHeader
    return file.bytes.read(address, length)


def split(data: bytes, modern: bool, ordered: bool) -> tuple[Message, ...]:
    """The messages in one part of a header."""
    out: list[Message] = []
    at, n_bytes = 0, len(data)
    head = (6 if ordered else 4) if modern else 8
    while at + head <= n_bytes:
        if modern:
            kind, size, flags = struct.unpack_from("<BHB", data, at)
            order = struct.unpack_from("<H", data, at + 4)[0] if ordered else 0
        else:
            kind, size, flags = struct.unpack_from("<HHB", data, at)
            order = 0
        at += head
        if at + size > n_bytes:
            raise UnexpectedHeader
        out.append(Message(kind, flags, order, data[at : at + size]))
        at += size
    return tuple(out)


# the files of an archive repeat each other's headers, but for the addresses in some
_split_cached = lru_cache(maxsize=4096)(split)


def _find(file: OpenFile, header: int, kind: int) -> bytes | None:
    """The body of the first message of a kind; None where there is none or it lies elsewhere (shared)."""
    for message in messages(file, header) or ():
        if message.kind == kind:
            return None if message.shared else message.body
    return None


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
    extensible
        True where the index is an extensible array, which datasets with one axis that grows have.
    """

    version: int
    tree: int | None
    unfiltered_edges: bool
    extensible: bool = False


def read_layout(file: OpenFile, header: int, rank: int) -> Layout | None:
    """The layout of a chunked dataset of ``rank`` axes; None where its header is not as expected."""
    body = _find(file, header, LAYOUT)
    if body is None or len(body) < 3:
        return None
    version = body[0]
    size = file.superblock.offset_size
    # versions 1 and 2: version, rank, class, 5 bytes, address; version 3: version, class, rank, address
    old = version in (1, 2) and (body[2], body[1]) == (_CHUNKED, rank + 1)
    if old or (version == 3 and (body[1], body[2]) == (_CHUNKED, rank + 1)):
        at = 8 if old else 3
        address = int.from_bytes(body[at : at + size], "little")
        undefined = address == (1 << 8 * size) - 1
        return Layout(version, None if undefined else address + file.superblock.base, False)
    if version in (4, 5) and body[1] == _CHUNKED and len(body) > 4:
        # version, class, flags, rank + 1, bytes an edge, edges, kind of index
        at = 5 + body[3] * body[4]
        return Layout(version, None, bool(body[2] & 1), at < len(body) and body[at] == _EXTENSIBLE)
    return None


def compact_bytes(file: OpenFile, header: int) -> bytes | None:
    """The values of a compact dataset; None where its header is not as expected."""
    body = _find(file, header, LAYOUT)
    if body is None or len(body) < 4 or body[0] not in (3, 4, 5) or body[1] != COMPACT:
        return None
    size = struct.unpack_from("<H", body, 2)[0]
    return body[4 : 4 + size] if len(body) >= 4 + size else None


def read_fill(file: OpenFile, header: int) -> bytes | None:
    """The bytes of a dataset's fill value as stored; None where it is not found."""
    body = _find(file, header, FILL_VALUE)
    if body is None or len(body) < 8:
        return None
    if body[0] in (1, 2):
        # version, allocation time, fill time, defined, size, value
        size = struct.unpack_from("<I", body, 4)[0] if body[3] else 0
        start = 8
    elif body[0] == 3 and body[1] & 0x20:
        size = struct.unpack_from("<I", body, 2)[0]
        start = 6
    else:
        return None
    value = body[start : start + size]
    return value if 0 < size == len(value) else None

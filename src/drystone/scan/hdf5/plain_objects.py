"""Groups and datasets from their object headers alone, where these are of the commonest kind; the library is not asked.

Read is what differs between the files of one archive: links, sizes, addresses, attributes. All else in a header (type,
fill value, filters, chunk shape) is not taken apart but kept as the bytes it is, a *form*: what a form means was told by
the library when it was met first (:mod:`drystone.scan.hdf5.twins`). Headers carry a checksum, which is verified. Anything
else than expected, be it rare or damaged, raises :class:`~drystone.scan.hdf5.opening.NeedsLibrary`.

Files repeat each other's headers, so that what was made of one is kept by its bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from numcodecs.jenkins import jenkins_lookup3

from drystone.codecs.chain import CodecChain
from drystone.scan.hdf5.attributes import PlainAttributes
from drystone.scan.hdf5.dense import dense_messages, is_dense
from drystone.scan.hdf5.dtypes import StoredType
from drystone.scan.hdf5.header_attributes import attributes_of
from drystone.scan.hdf5.object_header import (
    ATTRIBUTE,
    ATTRIBUTE_INFO,
    FILL_VALUE,
    LAYOUT,
    Message,
    UnexpectedHeader,
    split,
)
from drystone.scan.hdf5.opening import NeedsLibrary, OpenFile

__all__ = ["Form", "Link", "PlainDataset", "PlainGroup", "Told", "plain_object", "root_address"]

_NIL, _SPACE, _LINK_INFO, _TYPE, _OLD_FILL, _LINK, _GROUP_INFO, _FILTERS = 0, 1, 2, 3, 4, 6, 0x0A, 0x0B
_CONTINUATION = 0x10
_OF_DATASETS = frozenset({_NIL, _SPACE, _TYPE, _OLD_FILL, FILL_VALUE, LAYOUT, _FILTERS, ATTRIBUTE, ATTRIBUTE_INFO})
_OF_GROUPS = frozenset({_NIL, _LINK_INFO, _LINK, _GROUP_INFO, ATTRIBUTE, ATTRIBUTE_INFO})
_INFOS = {_LINK_INFO: 8, ATTRIBUTE_INFO: 2}  # bytes of the largest order of creation in them
_UNDEFINED, _LARGEST = (1 << 64) - 1, 1 << 62
_FLAGS = 0x05  # constant, not to be shared: other flags say that a message is shared, or must be understood

_FIRST_READ = 768
_MAX_BLOCK = 64 << 10
_MAX_BLOCKS = 64
_MAX_FORM_BYTES = 4096
_CACHED_BYTES = 4096  # of one block, and twice as many of all blocks of an object

type Form = tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Link:
    """A hard link: name, and address of an object header from the file's base."""

    name: str
    address: int


@dataclass(frozen=True, slots=True)
class PlainGroup:
    """A group: links and attributes in the order that the library lists them in."""

    form: Form
    links: tuple[Link, ...]
    attributes: PlainAttributes


@dataclass(frozen=True, slots=True)
class PlainDataset:
    """A dataset's header.

    Parameters
    ----------
    form
        What decides the type, layout, filters and fill value.
    shape, unlimited
        As stored.
    address
        Where its bytes or its chunk index start, from the file's base; None where nothing was ever written.
    size
        Bytes of contiguous storage.
    data
        Values of a compact dataset.
    attributes
        In the order of creation.
    """

    form: Form
    shape: tuple[int, ...]
    unlimited: tuple[bool, ...]
    address: int | None
    size: int
    data: bytes
    attributes: PlainAttributes

    def place(self, file: OpenFile) -> int | None:
        """``address`` from byte 0 of the file."""
        return None if self.address is None else self.address + file.superblock.base


@dataclass(frozen=True, slots=True)
class Told:
    """What the library told of a dataset's form; the names are those of ``describe.Description``."""

    stored: StoredType
    layout: int
    chunk_shape: tuple[int, ...] | None
    chain: CodecChain
    n_filters: int
    fill: bytes | None


def root_address(file: OpenFile) -> int:
    """Address of the root group's header from the file's base.

    Raises
    ------
    NeedsLibrary
        The superblock is not of version 2 or 3, has an extension, is marked as open for writing, or is damaged.
    """
    return _root(file.bytes.read(file.superblock.base, 48), file.superblock.base)


@lru_cache(maxsize=64)
def _root(data: bytes, base: int) -> int:
    if len(data) < 48 or data[8] not in (2, 3) or data[9:12] != b"\x08\x08\0":
        raise NeedsLibrary
    stored_base, extension, _, root, checksum = struct.unpack_from("<QQQQI", data, 12)
    if stored_base != base or extension != _UNDEFINED or jenkins_lookup3(data[:44], 0) != checksum:
        raise NeedsLibrary
    return int(root)


def plain_object(file: OpenFile, address: int) -> tuple[PlainGroup | PlainDataset, int]:
    """The object whose header is at ``address`` from the file's base, and the bytes that say what it is.

    Raises
    ------
    NeedsLibrary
        It is not plain.
    """
    blocks = _blocks(file, address)
    try:
        dense = tuple([m for b in blocks for kind, info in _parsed(b).dense for m in dense_messages(file, kind, info)])
        n_bytes = sum(map(len, blocks)) + sum([len(m.body) for m in dense])
        return (_cached_object if n_bytes <= 2 * _CACHED_BYTES else _object)(blocks, dense), n_bytes
    except (struct.error, IndexError, UnexpectedHeader):
        raise NeedsLibrary from None


def _blocks(file: OpenFile, address: int) -> tuple[bytes, ...]:
    """All parts of an object header."""
    where, size = address + file.superblock.base, file.size
    head = file.bytes.read(where, _FIRST_READ) if 0 <= where < size else b""
    if len(head) < 32:
        raise NeedsLibrary
    start, length = _prefix(head)
    end = start + length + 4
    if end > _MAX_BLOCK:
        raise NeedsLibrary
    out = [head[:end] if end <= len(head) else file.bytes.read(where, end)]
    pending = list(_parsed(out[0]).continuations)
    while pending:
        where, length = pending.pop(0)
        where += file.superblock.base
        if length > _MAX_BLOCK or where + length > size or len(out) >= _MAX_BLOCKS:
            raise NeedsLibrary
        out.append(file.bytes.read(where, length) + out[0][5:6])
        pending.extend(_parsed(out[-1]).continuations)
    return tuple(out)


def _prefix(head: bytes) -> tuple[int, int]:
    """Where the messages of a header's first part start, and their length."""
    if head[:5] != b"OHDR\x02" or head[5] & 0xC0:
        raise NeedsLibrary
    flags = head[5]
    at = 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
    width = 1 << (flags & 3)
    return at + width, int.from_bytes(head[at : at + width], "little")


@dataclass(frozen=True, slots=True)
class _Block:
    """One part of a header, its checksum verified.

    ``continuations`` are address and length of further parts, ``dense`` kind and body of messages that say where links or
    attributes lie.
    """

    messages: tuple[Message, ...]
    continuations: tuple[tuple[int, int], ...]
    dense: tuple[tuple[int, bytes], ...]


def _parsed(data: bytes) -> _Block:
    try:
        return _cached_block(data) if len(data) <= _CACHED_BYTES else _block(data)
    except (struct.error, IndexError, UnexpectedHeader):
        raise NeedsLibrary from None


def _block(data: bytes) -> _Block:
    """Take a part apart; a further one has the header's flags behind it, which say how its messages look."""
    if data[:4] == b"OHDR":
        start, length = _prefix(data)
        flags, end = data[5], start + length
    else:
        flags, start, end = data[-1], 4, len(data) - 5
        if data[:4] != b"OCHK" or end < start:
            raise NeedsLibrary
    if end + 4 > len(data) or jenkins_lookup3(data[:end], 0) != int.from_bytes(data[end : end + 4], "little"):
        raise NeedsLibrary
    messages = split(data[start:end], modern=True, ordered=bool(flags & 4))
    gap = end - start - sum((6 if flags & 4 else 4) + len(m.body) for m in messages)
    # the library takes a gap too short for a message only where there is no message that stands for nothing
    if any(m.flags & ~_FLAGS for m in messages) or (gap and any(m.kind == _NIL for m in messages)):
        raise NeedsLibrary
    further = []
    for message in messages:
        if message.kind == _CONTINUATION:
            if len(message.body) != 16:
                raise NeedsLibrary
            further.append(struct.unpack("<QQ", message.body))
    dense = [(m.kind, m.body) for m in messages if m.kind in _INFOS and is_dense(m.body, _INFOS[m.kind])]
    return _Block(tuple(m for m in messages if m.kind != _CONTINUATION), tuple(further), tuple(dense))


_cached_block = lru_cache(maxsize=1024)(_block)


def _object(blocks: tuple[bytes, ...], dense: tuple[Message, ...]) -> PlainGroup | PlainDataset:
    messages = [m for b in blocks for m in _parsed(b).messages]
    # all links or attributes of an object lie in one place
    if {m.kind for m in messages} & {m.kind for m in dense}:
        raise NeedsLibrary
    messages += dense
    by_kind: dict[int, list[Message]] = {}
    for message in messages:
        by_kind.setdefault(message.kind, []).append(message)
    attributes = attributes_of([m for m in messages if m.kind == ATTRIBUTE])
    if attributes is None:
        raise NeedsLibrary
    if by_kind.keys() <= _OF_DATASETS:
        return _dataset(by_kind, blocks[0][5:6], PlainAttributes(attributes))
    if by_kind.keys() <= _OF_GROUPS:
        return _group(by_kind, blocks[0][5:6], PlainAttributes(attributes))
    raise NeedsLibrary


_cached_object = lru_cache(maxsize=512)(_object)


def _group(by_kind: dict[int, list[Message]], flags: bytes, attributes: PlainAttributes) -> PlainGroup:
    info = _single(by_kind, _LINK_INFO)
    tracked = info[1] & 1
    if not _is_usual(info, 8) or (tracked and info[9] & 0x80):
        raise NeedsLibrary
    found = [_link(m.body, bool(tracked)) for m in by_kind.get(_LINK, ())]
    found.sort(key=lambda item: item[0] if tracked else item[1])
    names = [name for _, name, _ in found]
    if len(set(names)) != len(names):
        raise NeedsLibrary
    about = _single(by_kind, _GROUP_INFO) if _GROUP_INFO in by_kind else b""
    form = (
        b"group",
        flags,
        info[:2] + bytes((is_dense(info, 8),)),
        _attribute_flags(by_kind),
        about,
    )
    return PlainGroup(form, tuple(Link(name.decode(), address) for _, name, address in found), attributes)


def _link(body: bytes, tracked: bool) -> tuple[int, bytes, int]:
    """Order of creation, name and address of a hard link."""
    flags, at, order = body[1], 2, 0
    if body[0] != 1 or flags > 0x1F or bool(flags & 4) != tracked:
        raise NeedsLibrary
    if flags & 8:
        if body[at] != 0:  # no hard link
            raise NeedsLibrary
        at += 1
    if flags & 4:
        order = struct.unpack_from("<q", body, at)[0]
        at += 8
    at += 1 if flags & 0x10 else 0
    width = 1 << (flags & 3)
    length = int.from_bytes(body[at : at + width], "little")
    at += width
    name = body[at : at + length]
    if len(body) != at + length + 8 or not name or b"\0" in name or b"/" in name or name in (b".", b".."):
        raise NeedsLibrary
    try:
        name.decode("utf-8")
    except UnicodeDecodeError:
        raise NeedsLibrary from None
    return order, name, struct.unpack_from("<Q", body, at + length)[0]


def _is_usual(info: bytes, n_order: int) -> bool:
    """Whether a link or attribute info message is of a known form, with all addresses or with none."""
    at = 2 + n_order if info[1] & 1 else 2
    n_addresses = 3 if info[1] & 2 else 2
    if info[0] != 0 or info[1] > 3 or len(info) != at + 8 * n_addresses:
        return False
    given = [a != _UNDEFINED for a in struct.unpack_from(f"<{n_addresses}Q", info, at)]
    return all(given) or not any(given)


def _attribute_flags(by_kind: dict[int, list[Message]]) -> bytes:
    if ATTRIBUTE_INFO not in by_kind:
        return b""
    info = _single(by_kind, ATTRIBUTE_INFO)
    if not _is_usual(info, 2):
        raise NeedsLibrary
    return info[:2] + bytes((is_dense(info, 2),))


def _single(by_kind: dict[int, list[Message]], kind: int) -> bytes:
    found: Sequence[Message] = by_kind.get(kind, ())
    if len(found) != 1:
        raise NeedsLibrary
    return found[0].body


def _dataset(by_kind: dict[int, list[Message]], flags: bytes, attributes: PlainAttributes) -> PlainDataset:
    space, layout = _single(by_kind, _SPACE), _single(by_kind, LAYOUT)
    shape, unlimited, rest = _extent(space)
    others = [_single(by_kind, k) if k in by_kind else b"" for k in (_OLD_FILL, _FILTERS)]
    others.append(_attribute_flags(by_kind))
    address: int | None = None
    size, data = 0, b""
    if layout[:2] == b"\x03\x02":
        rank = layout[2]
        address = struct.unpack_from("<Q", layout, 3)[0]
        kept = layout[:3] + layout[11:]
        if rank != len(shape) + 1 or len(kept) != 3 + 4 * rank:
            raise NeedsLibrary
    elif layout[:2] in (b"\x03\x01", b"\x04\x01") and len(layout) == 18:
        address, size = struct.unpack_from("<QQ", layout, 2)
        kept = layout[:2]
    elif layout[:2] in (b"\x03\0", b"\x04\0"):
        kept, data = layout[:2], layout[4:]
        if len(data) != int.from_bytes(layout[2:4], "little"):
            raise NeedsLibrary
    else:
        raise NeedsLibrary
    if address is not None and _LARGEST < address < _UNDEFINED:
        raise NeedsLibrary
    form = (b"dataset", flags, rest, _single(by_kind, _TYPE), _single(by_kind, FILL_VALUE), *others, kept)
    if sum(map(len, form)) > _MAX_FORM_BYTES:
        raise NeedsLibrary
    return PlainDataset(form, shape, unlimited, None if address == _UNDEFINED else address, size, data, attributes)


@lru_cache(maxsize=1024)
def _extent(body: bytes) -> tuple[tuple[int, ...], tuple[bool, ...], bytes]:
    """Sizes, which axes may grow, and what else a dataspace says."""
    version, rank, flags, kind = body[0], body[1], body[2], body[3]
    if version == 1:
        at = 8
    elif version == 2 and kind == (1 if rank else 0):
        at = 4
    else:
        raise NeedsLibrary
    if flags > 1 or (rank == 0 and flags) or len(body) != at + 8 * rank * (1 + flags):
        raise NeedsLibrary
    shape = struct.unpack_from(f"<{rank}Q", body, at)
    limits = struct.unpack_from(f"<{rank}Q", body, at + 8 * rank) if flags else shape
    if any(n > most for n, most in zip(shape, limits, strict=True)) or any(n > _LARGEST for n in shape):
        raise NeedsLibrary
    return shape, tuple(most == _UNDEFINED for most in limits), body[:4]

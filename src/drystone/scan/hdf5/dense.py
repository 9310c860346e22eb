"""Links and attributes in dense storage, where netCDF puts them once an object has more than eight.

A fractal heap holds their messages, and version 2 B-trees say where: one by name, one in the order of creation. Read are
heaps and trees of the one shape that the library makes, with every checksum verified, and both trees must tell the same.
Anything else, a message too large for the heap's blocks too, raises :class:`~drystone.scan.hdf5.opening.NeedsLibrary`.
"""

from __future__ import annotations

import itertools
import struct
from dataclasses import dataclass

from numcodecs.jenkins import jenkins_lookup3

from drystone.scan.hdf5.object_header import ATTRIBUTE, ATTRIBUTE_INFO, Message
from drystone.scan.hdf5.opening import NeedsLibrary, OpenFile

__all__ = ["dense_messages", "is_dense"]

_LINK = 0x06
_UNDEFINED = (1 << 64) - 1
_WIDTH, _MAX_DIRECT = 4, 65_536  # blocks in a row, bytes of the largest
_MAX_MESSAGES, _MAX_BYTES = 4096, 1 << 20
_TREE_HEAD = struct.Struct("<BBIHHBBQHQI")  # what follows the signature


@dataclass(frozen=True, slots=True)
class _Kind:
    """How the library stores messages of one kind: a heap's first block and bits of its offsets, types of its trees."""

    message: int
    n_order: int  # bytes of the largest order of creation in the info message
    start: int
    bits: int
    by_name: int
    by_order: int

    @property
    def id_length(self) -> int:
        """Bytes of a heap id: kind, offset, length."""
        return 3 + self.bits // 8


_LINKS = _Kind(_LINK, 8, 512, 32, 5, 6)
_ATTRIBUTES = _Kind(ATTRIBUTE, 2, 1024, 40, 8, 9)


def is_dense(info: bytes, n_order: int) -> bool:
    """Whether a link or attribute info message gives the address of a heap."""
    at = 2 + (n_order if info[1] & 1 else 0)
    return info[at : at + 8] != b"\xff" * 8


def dense_messages(file: OpenFile, kind: int, info: bytes) -> tuple[Message, ...]:
    """The links or attributes that an info message of that kind leads to, in the order of creation.

    Raises
    ------
    NeedsLibrary
        They are stored in another way, or damaged, or their order is not kept.
    """
    about = _ATTRIBUTES if kind == ATTRIBUTE_INFO else _LINKS
    # version, and both the tracking and the index of the order of creation
    if info[:2] != b"\0\x03" or len(info) != 2 + about.n_order + 24:
        raise NeedsLibrary
    heap_at, names_at, orders_at = struct.unpack_from("<QQQ", info, 2 + about.n_order)
    names, orders = _Tree.of(file, names_at, about.by_name), _Tree.of(file, orders_at, about.by_order)
    heap = _Heap(file, heap_at, about)
    if kind == ATTRIBUTE_INFO:
        by_name = [(r[:8], r[8], int.from_bytes(r[9:13], "little"), r[13:]) for r in names.records(17)]
        by_order = [(r[:8], r[8], int.from_bytes(r[9:], "little")) for r in orders.records(13)]
    else:
        by_order = [(r[8:], 0, int.from_bytes(r[:8], "little")) for r in orders.records(15)]
        known = {place: order for place, _, order in by_order}
        by_name = [(r[4:], 0, known.get(r[4:], -1), r[:4]) for r in names.records(11)]
    hashes = [int.from_bytes(h, "little") for *_, h in by_name]
    numbers = [order for *_, order in by_order]
    same = {r[:3] for r in by_name} == set(by_order) and len(by_name) == len(by_order) == len({r[0] for r in by_order})
    ascending = all(a <= b for a, b in itertools.pairwise(hashes)) and all(a < b for a, b in itertools.pairwise(numbers))
    # flags: a message may be shared, and then lies elsewhere
    if not same or not ascending or any(flags & 2 for _, flags, _ in by_order):
        raise NeedsLibrary
    found: dict[bytes, tuple[int, int, bytes]] = {}
    left = _MAX_BYTES
    for place, flags, order in by_order:
        found[place] = (order, flags, heap.get(place))
        left -= len(found[place][2])
        if left < 0:  # in a sound file they lie beside each other; here they may be one and the same
            raise NeedsLibrary
    for (place, *_), number in zip(by_name, hashes, strict=True):
        if jenkins_lookup3(_name(about, found[place][2]), 0) != number:
            raise NeedsLibrary
    return tuple(Message(about.message, flags, order, body) for order, flags, body in found.values())


def _name(about: _Kind, body: bytes) -> bytes:
    """The name in a message, by which the tree finds it."""
    if about is _ATTRIBUTES:
        if body[:1] != b"\x03":
            raise NeedsLibrary
        return body[9 : 9 + int.from_bytes(body[2:4], "little")].split(b"\0", 1)[0]
    flags = body[1]
    at = 2 + (1 if flags & 8 else 0) + (8 if flags & 4 else 0) + (1 if flags & 0x10 else 0)
    width = 1 << (flags & 3)
    return body[at + width : at + width + int.from_bytes(body[at : at + width], "little")]


def _read(file: OpenFile, address: int, length: int) -> bytes:
    where = address + file.superblock.base
    data = file.bytes.read(where, length) if where + length <= file.size else b""
    if len(data) != length:
        raise NeedsLibrary
    return data


def _verified(data: bytes, end: int) -> None:
    """See that the checksum at ``end`` is that of what comes before."""
    if jenkins_lookup3(data[:end], 0) != int.from_bytes(data[end : end + 4], "little"):
        raise NeedsLibrary


@dataclass(frozen=True, slots=True)
class _Tree:
    """A version 2 B-tree of at most two levels."""

    file: OpenFile
    kind: int
    node: int
    record: int
    depth: int
    root: int
    n_root: int
    total: int

    @classmethod
    def of(cls, file: OpenFile, address: int, kind: int) -> _Tree:
        """Read its header."""
        data = _read(file, address, 38)
        version, found, node, record, depth, _, _, root, n_root, total, _ = _TREE_HEAD.unpack_from(data, 4)
        if data[:4] != b"BTHD" or (version, found) != (0, kind) or depth > 1 or not 64 <= node <= 4096:
            raise NeedsLibrary
        _verified(data, 34)
        return cls(file, kind, node, record, depth, root, n_root, total)

    def records(self, length: int) -> list[bytes]:
        """All records, in the tree's order."""
        most = (self.node - 10) // length
        if self.record != length or self.total > _MAX_MESSAGES or not 0 < self.n_root <= most or most > 255:
            raise NeedsLibrary
        if self.depth == 0:
            out = self._records(self.root, self.n_root, b"BTLF", 0)[0]
        else:
            out = []
            inner, data = self._records(self.root, self.n_root, b"BTIN", 9)
            at = 6 + length * self.n_root
            for i in range(self.n_root + 1):
                child, count = struct.unpack_from("<QB", data, at + 9 * i)
                if not 0 < count <= most:
                    raise NeedsLibrary
                out += self._records(child, count, b"BTLF", 0)[0]
                out += inner[i : i + 1]
        if len(out) != self.total:
            raise NeedsLibrary
        return out

    def _records(self, address: int, count: int, sign: bytes, pointer: int) -> tuple[list[bytes], bytes]:
        """The records of one node, and all its bytes; a pointer to a child takes ``pointer`` bytes."""
        data = _read(self.file, address, self.node)
        end = 6 + self.record * count + (pointer and pointer * (count + 1))
        if data[:6] != sign + bytes((0, self.kind)) or end + 4 > self.node:
            raise NeedsLibrary
        _verified(data, end)
        return [data[i : i + self.record] for i in range(6, 6 + self.record * count, self.record)], data


def _free_space(file: OpenFile, address: int) -> None:
    """See that the record of a heap's free space is sound: it has no bearing here, but the library reads it."""
    if address != _UNDEFINED:
        data = _read(file, address, 82)
        if data[:6] != b"FSHD\0\0" or data[38:40] != b"\x04\0":
            raise NeedsLibrary
        _verified(data, 78)


class _Heap:
    """A fractal heap's objects within its direct blocks."""

    def __init__(self, file: OpenFile, address: int, about: _Kind) -> None:
        data = _read(file, address, 146)
        _verified(data, 142)
        id_length, n_filter, flags, huge = struct.unpack_from("<HHB4xQ", data, 5)
        width, start, largest, bits, start_rows, root, rows = struct.unpack_from("<HQQHHQH", data, 110)
        shape = (data[:5], id_length, n_filter, width, start, largest, bits, start_rows)
        usual = (b"FRHP\0", about.id_length, 0, _WIDTH, about.start, _MAX_DIRECT, about.bits, 1)
        # flags: huge ids wrapped, direct blocks with checksums
        if shape != usual or flags != 2 or huge == _UNDEFINED or root == _UNDEFINED:
            raise NeedsLibrary
        _free_space(file, struct.unpack_from("<Q", data, 38)[0])
        self._file, self._address, self._about, self._root = file, address, about, root
        self._blocks: dict[int, bytes] = {}
        self._places = [(0, about.start, root)] if rows == 0 else self._rows(rows)

    def _rows(self, rows: int) -> list[tuple[int, int, int]]:
        """Offset in the heap, size and address of each block that the root block lists."""
        sizes = [self._about.start << max(0, r - 1) for r in range(rows)]
        if sizes[-1] > _MAX_DIRECT:
            raise NeedsLibrary
        head = 13 + self._about.bits // 8
        end = head + 8 * _WIDTH * rows
        data = _read(self._file, self._root, end + 4)
        if data[:head] != b"FHIB\0" + struct.pack("<Q", self._address) + bytes(self._about.bits // 8):
            raise NeedsLibrary
        _verified(data, end)
        out, offset = [], 0
        for i, address in enumerate(struct.unpack_from(f"<{_WIDTH * rows}Q", data, head)):
            size = sizes[i // _WIDTH]
            out.append((offset, size, address))
            offset += size
        return out

    def get(self, place: bytes) -> bytes:
        """The object that a heap id names."""
        n = self._about.bits // 8
        offset, length = int.from_bytes(place[1 : 1 + n], "little"), int.from_bytes(place[1 + n :], "little")
        if place[0] != 0:  # large ones lie outside, tiny ones in the id
            raise NeedsLibrary
        for start, size, address in self._places:
            if start <= offset < start + size:
                at = offset - start
                if not 17 + n <= at <= size - length or length == 0:
                    raise NeedsLibrary
                return self._block(start, size, address)[at : at + length]
        raise NeedsLibrary

    def _block(self, start: int, size: int, address: int) -> bytes:
        data = self._blocks.get(start)
        if data is None:
            n = self._about.bits // 8
            data = _read(self._file, address, size)
            head = b"FHDB\0" + struct.pack("<Q", self._address) + start.to_bytes(n, "little")
            at = len(head)
            checksum = int.from_bytes(data[at : at + 4], "little")
            if data[:at] != head or jenkins_lookup3(head + bytes(4) + data[at + 4 :], 0) != checksum:
                raise NeedsLibrary
            self._blocks[start] = data
        return data

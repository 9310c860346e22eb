"""Where the chunks of an HDF5 dataset lie, as columns.

Two ways. The library walks every kind of index and calls back once a chunk: that costs more than a microsecond each. The
index of nearly every archive file is a version 1 B-tree, whose nodes are plain records; those are read directly and
taken apart by NumPy, tens of times faster. Anything unexpected in a node gives the walk back to the library, which then
says what is wrong.

The library is not believed blindly. Two faults of some of its versions are asked of the library itself, with a file in
memory, because version numbers do not tell them: offsets without the user block, and, for a dataset that grows along another
axis than its first (an extensible array, which is kept with that axis in front), chunks under the wrong coordinates.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from functools import cache

import h5py
import numpy as np
from h5py import h5d
from numpy.typing import NDArray

from drystone.scan.hdf5.opening import NeedsLibrary, OpenFile
from drystone.scan.hdf5.superblock import SIGNATURE

__all__ = [
    "ChunkColumns",
    "TooManyChunks",
    "axis_order_lost",
    "base_relative",
    "in_axis_order",
    "library_columns",
    "plain_columns",
    "tree_columns",
]

_FLUSH = 1 << 16
_NODE_HEAD = 24
_MOST_NODES, _MOST_LEVELS = 256, 4  # of a tree that is read strictly, node by node
_TREE_K = 32  # half the entries of a node, unless the file says otherwise; a larger node goes to the library


class TooManyChunks(Exception):  # becomes a ScanError that names the granule
    """More chunks than the limit."""


@dataclass(frozen=True, slots=True)
class ChunkColumns:
    """Chunks in the index's order.

    ``start`` is int64 (n, rank), the first element of each chunk; ``offset``, ``length`` int64 (n,) count from byte 0 of
    the file; ``mask`` int64 (n,) is the filter mask.
    """

    start: NDArray[np.int64]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    mask: NDArray[np.int64]


def library_columns(dsid: h5d.DatasetID, rank: int, limit: int) -> ChunkColumns:
    """Walk the index through the library, in blocks of bounded size.

    Raises
    ------
    TooManyChunks
        Past ``limit``.
    """
    blocks: list[NDArray[np.int64]] = []
    starts: list[NDArray[np.int64]] = []
    flat: list[int] = []
    places: list[int] = []
    extend, more = flat.extend, places.extend
    left = limit

    def flush() -> None:
        nonlocal left
        blocks.append(np.array(places, np.int64).reshape(-1, 3))
        starts.append(np.array(flat, np.int64).reshape(-1, rank))
        left -= len(blocks[-1])
        flat.clear()
        places.clear()

    def take(info: tuple[tuple[int, ...], int, int, int]) -> bool | None:
        extend(info[0])
        more(info[1:])
        if len(places) >= 3 * _FLUSH:
            flush()
            return left < 0 or None
        return None

    dsid.chunk_iter(take)
    flush()
    if left < 0:
        raise TooManyChunks
    place = np.concatenate(blocks)
    return ChunkColumns(np.concatenate(starts), place[:, 1].copy(), place[:, 2].copy(), place[:, 0].copy())


@cache
def base_relative() -> bool:
    """Whether this library leaves the user block out of the offsets of chunks, as some versions do."""
    with h5py.File("drystone-probe", "w", driver="core", backing_store=False, userblock_size=512) as probe:
        mark = np.arange(1, 17, dtype="<u8") * np.uint64(0x0102_0304_0506_0708)
        dataset = probe.create_dataset("x", data=mark, chunks=(16,))
        probe.flush()
        found: list[int] = []
        dataset.id.chunk_iter(lambda info: found.append(info[2]))
        image = probe.id.get_file_image()
    # the image starts at the superblock in some versions and at the user block in others
    return bool(found[0] == image.find(mark.tobytes()) - image.find(SIGNATURE))


@cache
def axis_order_lost() -> bool:
    """Whether this library tells of the chunks of an extensible array as if its first axis were the one that grows."""
    with h5py.File("drystone-probe", "w", driver="core", backing_store=False, libver="v110") as probe:
        marks = np.arange(1, 5, dtype="<u8").reshape(2, 2) * np.uint64(0x0102_0304_0506_0708)
        dataset = probe.create_dataset("x", data=marks, chunks=(1, 1), maxshape=(2, None))
        probe.flush()
        found: dict[tuple[int, ...], int] = {}
        dataset.id.chunk_iter(lambda info: found.__setitem__(info[0], info[2]))
        image = probe.id.get_file_image()
    first, right = (image.find(marks[0, i].tobytes()) for i in (0, 1))
    return bool(found.get((0, 1), -1) - found[0, 0] != right - first)


def in_axis_order(columns: ChunkColumns, chunk_shape: tuple[int, ...], limits: tuple[int, ...], growing: int) -> ChunkColumns:
    """The chunks of an extensible array under their true coordinates, where :func:`axis_order_lost`.

    The library counts through the array with the last axis fastest and ``growing`` endless; in truth that axis is slowest.

    Parameters
    ----------
    columns
        As the library tells them.
    limits
        Largest size of each axis; of ``growing`` it does not count.

    Examples
    --------
    >>> start = np.array([[0, 0], [0, 4], [0, 8]])
    >>> none = np.zeros(3, np.int64)
    >>> in_axis_order(ChunkColumns(start, none, none, none), (3, 4), (6, -1), 1).start.tolist()
    [[0, 0], [3, 0], [0, 4]]
    """
    rank = len(chunk_shape)
    most = [-(-n // c) for n, c in zip(limits, chunk_shape, strict=True)]
    scaled = columns.start // np.array(chunk_shape, np.int64)
    number = np.zeros(len(scaled), np.int64)
    for axis in range(growing, rank):
        number = number * (most[axis] if axis > growing else 1) + scaled[:, axis]
    true = np.zeros_like(scaled)
    for axis in (a for a in reversed(range(rank)) if a != growing):
        number, true[:, axis] = np.divmod(number, most[axis])
    true[:, growing] = number
    return replace(columns, start=true * np.array(chunk_shape, np.int64))


def tree_columns(file: OpenFile, root: int, rank: int, limit: int) -> ChunkColumns | None:
    """Read a version 1 B-tree of chunks; None where anything in it is not as expected.

    Parameters
    ----------
    root
        Address of the root node from byte 0 of the file.
    rank
        Of the dataset; it gives the size of a key.

    Raises
    ------
    TooManyChunks
        Past ``limit``.
    """
    if file.superblock.offset_size != 8:
        return None
    words = rank + 3  # of an entry: size and mask, starts and a zero, child; after the last entry one more key
    node = _NODE_HEAD + 8 * (2 * _TREE_K * words + words - 1)
    addresses = np.array([root], np.int64)
    level: int | None = None
    budget = max(1, file.size // node + 1)
    while True:
        budget -= len(addresses)
        if budget < 0:
            return None
        if len(addresses) > limit:
            raise TooManyChunks
        entries = _nodes(file, addresses, node, words, level)
        if entries is None:
            return None
        level, rows = entries
        if level == 0:
            return _columns(rows, file.superblock.base, rank, limit)
        child = rows[:, -1]
        if len(child) == 0 or child.max() >= np.uint64(file.size):
            return None
        addresses = child.astype(np.int64) + file.superblock.base
        level -= 1


def plain_columns(file: OpenFile, root: int | None, edges: tuple[int, ...], limit: int) -> ChunkColumns:
    """Read a version 1 B-tree of few chunks as strictly as the library does.

    Parameters
    ----------
    root
        Address of the root node from byte 0 of the file; None where nothing was ever written.
    edges
        Of a chunk, and the bytes of an element.

    Raises
    ------
    TooManyChunks
        Past ``limit``.
    NeedsLibrary
        Anything in it is not as expected.
    """
    rank = len(edges) - 1
    if root is None:
        none: NDArray[np.int64] = np.zeros(0, np.int64)
        return ChunkColumns(np.zeros((0, rank), np.int64), none, none, none)
    level, rows = _checked_node(file, root, edges)
    nodes = 1
    while level:
        level -= 1
        addresses = (rows[:, -1].astype(np.int64) + file.superblock.base).tolist()
        nodes += len(addresses)
        if nodes > _MOST_NODES:
            raise NeedsLibrary
        found = [_checked_node(file, a, edges) for a in addresses]
        if any(below != level for below, _ in found):
            raise NeedsLibrary
        rows = np.concatenate([r for _, r in found])
    columns = _columns(rows, file.superblock.base, rank, limit)
    if columns is None:
        raise NeedsLibrary
    return columns


def _checked_node(file: OpenFile, address: int, edges: tuple[int, ...]) -> tuple[int, NDArray[np.uint64]]:
    """Level and entries of one node, all of whose keys, the one past the last entry too, are chunks of the grid."""
    words = len(edges) + 2
    node = _NODE_HEAD + 8 * (2 * _TREE_K * words + words - 1)
    data = file.bytes.read(address, node) if 0 <= address <= file.size - node else b""
    used = data[6] | data[7] << 8 if data[:5] == b"TREE\x01" else 0
    if len(data) != node or not 0 < used <= 2 * _TREE_K or data[5] > _MOST_LEVELS:
        raise NeedsLibrary
    rows = np.frombuffer(data, "<u8", used * words, _NODE_HEAD).reshape(used, words)
    last = struct.unpack_from(f"<{len(edges)}Q", data, _NODE_HEAD + 8 * (used * words + 1))
    keys = [last, rows[0, 1:-1].tolist()] if used == 1 else [last]
    if any(n % edge for key in keys for n, edge in zip(key, edges, strict=True)):
        raise NeedsLibrary
    if used > 1 and (rows[:, 1:-1] % np.array(edges, np.uint64)).any():
        raise NeedsLibrary
    return data[5], rows


def _nodes(
    file: OpenFile, addresses: NDArray[np.int64], node: int, words: int, level: int | None
) -> tuple[int, NDArray[np.uint64]] | None:
    """The entries of nodes of one level, one after the other: uint64 (n, words)."""
    read = file.bytes.read
    data = b"".join([read(a, node) for a in addresses.tolist()])
    if len(data) != node * len(addresses):
        return None
    raw = np.frombuffer(data, np.uint8).reshape(len(addresses), node)
    head = raw[:, :8].tobytes()
    kinds = np.frombuffer(head, np.dtype([("sign", "S4"), ("type", "u1"), ("level", "u1"), ("used", "<u2")]))
    found = int(kinds["level"][0])
    if level is not None and found != level:
        return None
    used = kinds["used"].astype(np.int64)
    good = (kinds["sign"] == b"TREE") & (kinds["type"] == 1) & (kinds["level"] == found) & (used <= 2 * _TREE_K)
    if not good.all():
        return None
    body = np.frombuffer(data, "<u8").reshape(len(addresses), node // 8)[:, _NODE_HEAD // 8 :]
    entries = body[:, : 2 * _TREE_K * words].reshape(len(addresses), 2 * _TREE_K, words)
    mine = np.arange(2 * _TREE_K)[None, :] < used[:, None]
    return found, entries[mine]


def _columns(rows: NDArray[np.uint64], base: int, rank: int, limit: int) -> ChunkColumns | None:
    if len(rows) > limit:
        raise TooManyChunks
    if len(rows) == 1:  # all there is in most small files, where every call of NumPy counts
        only, *found = rows[0].tolist()
        if max(found) >= 1 << 62:
            return None
        columns = (found[-1] + base, only & 0xFFFF_FFFF, only >> 32)
        return ChunkColumns(np.array([found[:rank]], np.int64), *(np.array([n], np.int64) for n in columns))
    if len(rows) and rows[:, 1:].max() >= np.uint64(1 << 62):
        return None
    word = rows[:, 0]
    places = rows[:, 1:].astype(np.int64)
    return ChunkColumns(
        np.ascontiguousarray(places[:, :rank]),
        places[:, -1] + base,
        (word & np.uint64(0xFFFF_FFFF)).astype(np.int64),
        (word >> np.uint64(32)).astype(np.int64),
    )

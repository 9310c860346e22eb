"""Variable-length text, copied at scan time: the dataset holds addresses into the file's heap, not the text.

The addresses are read as any other values would be, then the heap. The library is asked only where a filter needs it: its
walk over a damaged heap may never end.
"""

from __future__ import annotations

import math
import struct

import numpy as np
from h5py import h5d, h5s
from numpy.typing import NDArray

from drystone.codecs.chain import Codec, CodecChain
from drystone.codecs.decode import decode_bytes
from drystone.errors import DecodeError
from drystone.scan.hdf5.chunk_index import TooManyChunks
from drystone.scan.hdf5.dtypes import UnsupportedType
from drystone.scan.hdf5.heap import DESCRIPTOR
from drystone.scan.hdf5.object_header import compact_bytes, read_fill
from drystone.scan.hdf5.rows import Grid, rows_of
from drystone.scan.hdf5.subject import Budget, Subject, stored_columns, stored_offset

__all__ = ["encode_texts", "texts_of"]

_LARGEST_CHUNK = 256 << 20
_AT_ONCE = 256 << 20


def texts_of(subject: Subject, budget: Budget) -> list[bytes]:
    """The text of a dataset in C order, UTF-8; padded with empty text to the length of its dimensions.

    Raises
    ------
    UnsupportedType
        ``inline-budget``: more than may be inlined; ``text``: not UTF-8; ``heap``: damaged.
    """
    shape, sizes = subject.stored_shape, subject.axes.sizes
    n = math.prod(sizes)
    if 4 * n > budget.inline:
        raise UnsupportedType("inline-budget", f"its {n} texts need more than the {budget.inline} bytes that may be inlined")
    if 0 in shape:
        return [b""] * n
    if subject.description.chain.needs_library or subject.file.superblock.offset_size != 8:
        texts = _through_library(subject, shape, budget.inline)
    else:
        descriptors = _descriptors(subject, budget)
        total = int(descriptors["count"].sum(dtype=np.uint64)) + 4 * n
        if total > budget.inline:
            raise UnsupportedType(
                "inline-budget", f"its text needs {total} bytes, more than the {budget.inline} that may be inlined"
            )
        # a C string ends at its first zero
        texts = [v.split(b"\0", 1)[0] for v in subject.heap.values(descriptors, 1)]
    for i, text in enumerate(texts):
        try:
            text.decode("utf-8")
        except UnicodeDecodeError:
            raise UnsupportedType("text", f"its text {i} is no UTF-8 ({text[:20]!r}), so that it has no exact form") from None
    if sizes == shape:
        return texts
    whole = np.full(sizes, b"", object)
    part = np.empty(len(texts), object)
    part[:] = texts
    whole[tuple(slice(m) for m in shape)] = part.reshape(shape)
    return list(whole.reshape(-1).tolist())


def encode_texts(texts: list[bytes]) -> bytes:
    """The ``vlen-utf8`` form: a count, then length and bytes of each, all lengths 32-bit little-endian.

    Examples
    --------
    >>> encode_texts([b"ab", b""]).hex()
    '0200000002000000616200000000'
    """
    parts = [struct.pack("<I", len(texts))]
    for text in texts:
        parts.append(struct.pack("<I", len(text)))
        parts.append(text)
    return b"".join(parts)


def _descriptors(subject: Subject, budget: Budget) -> NDArray[np.void]:
    """Where each text lies on the heap."""
    d, file, shape = subject.description, subject.file, subject.stored_shape
    out = np.zeros(shape, DESCRIPTOR)
    fill = read_fill(file, subject.header)
    if fill is not None and len(fill) == DESCRIPTOR.itemsize:
        out[...] = np.frombuffer(fill, DESCRIPTOR)[0]
    if d.layout == h5d.CHUNKED:
        _fill_chunks(subject, budget, out)
        return out
    data: bytes | None
    if d.layout == h5d.COMPACT:
        data = compact_bytes(file, subject.header)
        if data is None:
            raise UnsupportedType("unreadable", "its values lie in an object header of an unknown form")
    else:
        offset = stored_offset(subject, out.nbytes)
        data = None if offset is None else file.bytes.read(offset, out.nbytes)
    if data is None:
        return out
    if len(data) < out.nbytes:
        raise UnsupportedType("unreadable", f"it has {len(data)} bytes where its shape asks for {out.nbytes}")
    return np.frombuffer(data[: out.nbytes], DESCRIPTOR).reshape(shape)


def _fill_chunks(subject: Subject, budget: Budget, out: NDArray[np.void]) -> None:
    d, file = subject.description, subject.file
    assert d.chunk_shape is not None
    nbytes = math.prod(d.chunk_shape) * DESCRIPTOR.itemsize
    if nbytes > _LARGEST_CHUNK:
        raise UnsupportedType("inline-budget", f"its chunks have {nbytes} bytes, more than {_LARGEST_CHUNK}")
    grid = Grid(subject.path, subject.stored_shape, d.chunk_shape, nbytes)
    limit = min(budget.rows, budget.inline // 4)
    try:
        columns = stored_columns(subject, limit)
    except TooManyChunks:
        raise UnsupportedType("inline-budget", f"its text lies in more than {limit} chunks") from None
    found = rows_of(columns, grid, file_size=file.size, address=file.address, n_filters=d.n_filters, limit=limit)
    chain = CodecChain((Codec("bytes"), *d.chain.filters))
    rows = found.rows
    for i in np.flatnonzero(rows.offset >= 0).tolist():
        start = [int(c) * n for c, n in zip(rows.coords[:, i], d.chunk_shape, strict=True)]
        data = file.bytes.read(int(rows.offset[i]), int(rows.length[i]))
        try:
            plain = decode_bytes(data, chain, nbytes, found.masks.get(i, 0))
        except DecodeError as error:
            raise UnsupportedType("unreadable", f"its chunk at element {tuple(start)} does not decode: {error}") from error
        chunk = plain.view(DESCRIPTOR).reshape(d.chunk_shape)
        box = tuple(slice(s, s + n) for s, n in zip(start, d.chunk_shape, strict=True))
        target = out[box]
        target[...] = chunk[tuple(slice(n) for n in target.shape)]


def _through_library(subject: Subject, shape: tuple[int, ...], budget: int) -> list[bytes]:
    """Text in blocks that start small and grow as it proves short: every element may point at one large string."""
    if not shape:
        return _block(subject.dsid, None, ())
    out: list[bytes] = []
    total = at = 0
    step = max(1, _AT_ONCE // max(1, math.prod(shape[1:]) * subject.file.size))
    while at < shape[0]:
        count = (min(step, shape[0] - at), *shape[1:])
        block = _block(subject.dsid, (at, *(0 for _ in shape[1:])), count)
        total += sum(map(len, block)) + 4 * len(block)
        if total > budget:
            raise UnsupportedType("inline-budget", f"its text needs more than the {budget} bytes that may be inlined")
        out.extend(block)
        at += count[0]
        step *= 8
    return out


def _block(dsid: h5d.DatasetID, start: tuple[int, ...] | None, count: tuple[int, ...]) -> list[bytes]:
    values = np.empty(count, dsid.dtype)
    if start is None:
        dsid.read(h5s.ALL, h5s.ALL, values)
    else:
        space = dsid.get_space()
        space.select_hyperslab(start, count)
        dsid.read(h5s.create_simple(count), space, values)
    # None where the heap holds nothing
    return [b"" if v is None else v if isinstance(v, bytes) else str(v).encode() for v in values.reshape(-1).tolist()]

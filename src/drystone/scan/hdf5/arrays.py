"""One dataset to one array with its rows.

Each storage layout has its own function. Whatever makes a single dataset impossible is raised as
:class:`~drystone.scan.hdf5.dtypes.UnsupportedType` and becomes a refusal in the scanner.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from h5py import h5d

from drystone.codecs.chain import CodecChain
from drystone.codecs.hdf5 import bytes_codec, foreign_codec
from drystone.model.array import ArraySpec
from drystone.model.chunk_rows import ChunkRows, Refusal, ScannedArray, State
from drystone.scan.hdf5.chunk_index import TooManyChunks
from drystone.scan.hdf5.companions import Companions, external_bytes
from drystone.scan.hdf5.dtypes import UnsupportedType
from drystone.scan.hdf5.rows import Grid, rows_of, single_row
from drystone.scan.hdf5.subject import Budget, Subject, stored_columns, stored_offset
from drystone.scan.hdf5.texts import encode_texts, texts_of
from drystone.scan.hdf5.values import fill_bytes, read_stored
from drystone.storage.hdf5_library import default_fill

__all__ = ["MAX_RANK", "build_array"]

MAX_RANK = 8  # as many axes as the table has columns for
FOREIGN_INLINE = 1 << 20  # decoded bytes up to which one array of another file is inlined
_FOREIGN_CHUNK = 8 << 20


def build_array(subject: Subject, budget: Budget, companions: Companions) -> ScannedArray:
    """The array of a dataset.

    Raises
    ------
    UnsupportedType
        It has no form here.
    ScanError
        Its chunk index shows that the file is cut short, or is absurdly large.
    """
    d = subject.description
    rank = len(subject.stored_shape)
    if rank > MAX_RANK:
        raise UnsupportedType("rank", f"it has {rank} axes; at most {MAX_RANK} are kept")
    if d.stored.is_text:
        return _text(subject, budget)
    if subject.linked is not None:
        return _foreign(subject, budget, companions, f"external link to {subject.linked}")
    if d.layout == h5d.VIRTUAL:
        return _foreign(subject, budget, companions, "virtual dataset")
    if d.external:
        return _foreign(subject, budget, companions, "external raw storage")
    if d.layout == h5d.CHUNKED:
        return _chunked(subject, budget)
    if d.layout == h5d.COMPACT:
        return _compact(subject, budget)
    return _contiguous(subject, budget)


def _spec(
    subject: Subject, chunk_shape: tuple[int, ...], chain: CodecChain, *, fill: bytes | None, padded: bool, sparse: bool = False
) -> ArraySpec:
    extent = subject.description.extent
    unlimited = (*extent.unlimited, *(False for _ in subject.description.stored.inner))
    return ArraySpec(
        subject.path,
        subject.axes.dims,
        subject.axes.sizes,
        tuple(max(1, n) for n in chunk_shape),
        subject.description.stored.dtype,
        fill,
        chain,
        subject.attributes,
        unlimited,
        sparse,
        padded,
    )


def _fill(subject: Subject) -> bytes | None:
    fill = fill_bytes(subject.description, subject.file, subject.header)
    if fill is None and subject.axes.sizes != subject.stored_shape:
        # written short of its unlimited dimension without fill values: netCDF goes on with those of its own
        return default_fill(subject.description.stored.dtype)
    return fill


def _ends_inside(subject: Subject, chunk_shape: tuple[int, ...]) -> bool:
    """Whether a variable without fill values ends inside a chunk, short of its dimension: the chunk's rest is anything."""
    ends = zip(subject.stored_shape, subject.axes.sizes, chunk_shape, strict=True)
    return (
        any(n < size and n % c for n, size, c in ends) and fill_bytes(subject.description, subject.file, subject.header) is None
    )


def _single(subject: Subject, rows: ChunkRows, chain: CodecChain, inline: Mapping[int, bytes], budget: Budget) -> ScannedArray:
    """An array stored as one piece."""
    budget.take_rows(len(rows), subject.file.address)
    return ScannedArray(_spec(subject, subject.axes.sizes, chain, fill=_fill(subject), padded=False), rows, inline)


def _text(subject: Subject, budget: Budget) -> ScannedArray:
    """Variable-length text is copied: the dataset holds addresses into the file's heap, not the text."""
    d = subject.description
    if d.layout == h5d.VIRTUAL or d.external:
        raise UnsupportedType("variable-length", "its variable-length text lies in other files")
    shape = subject.stored_shape
    if 0 in subject.axes.sizes:
        return _single(subject, ChunkRows.empty(len(shape)), CodecChain.of(bytes_codec(d.stored.dtype)), {}, budget)
    texts = texts_of(subject, budget)
    data = encode_texts(texts)
    budget.take_inline(len(data))
    rows = ChunkRows.single(len(shape), -1, len(data), State.INLINE)
    return _single(subject, rows, CodecChain.of(bytes_codec(d.stored.dtype)), {0: data}, budget)


def _compact(subject: Subject, budget: Budget) -> ScannedArray:
    """At most 64 kB within the object header: copied."""
    d = subject.description
    rank = len(subject.stored_shape)
    chain = CodecChain.of(bytes_codec(d.stored.dtype))
    if 0 in subject.stored_shape:
        return _single(subject, ChunkRows.empty(rank), chain, {}, budget)
    data = read_stored(subject).tobytes()
    budget.take_inline(len(data))
    return _single(subject, ChunkRows.single(rank, -1, len(data), State.INLINE), chain, {0: data}, budget)


def _contiguous(subject: Subject, budget: Budget) -> ScannedArray:
    """One run of bytes."""
    d = subject.description
    rank = len(subject.stored_shape)
    nbytes = math.prod(d.extent.shape) * d.stored.element_size
    if nbytes == 0:
        return _single(subject, ChunkRows.empty(rank), d.chain, {}, budget)
    offset = stored_offset(subject, nbytes)
    if d.chain.needs_library and offset is not None:
        return _single(subject, ChunkRows.single(rank, -1, 0, State.LIBRARY), d.chain, {}, budget)
    return _single(subject, single_row(rank, offset, nbytes), d.chain, {}, budget)


def _chunked(subject: Subject, budget: Budget) -> ScannedArray:
    d = subject.description
    assert d.chunk_shape is not None
    file, inner = subject.file, d.stored.inner
    chunk_shape = (*d.chunk_shape, *inner)
    grid = Grid(subject.path, subject.axes.sizes, chunk_shape, math.prod(d.chunk_shape) * d.stored.element_size)
    rank, chain = len(chunk_shape), d.chain
    if _ends_inside(subject, chunk_shape):
        chain = CodecChain((*chain.codecs, foreign_codec(0, "a variable that ends inside a chunk and has no fill value")))
    state = State.LIBRARY if chain.needs_library else State.REFERENCED
    if 0 in grid.shape:
        spec = _spec(subject, chunk_shape, chain, fill=_fill(subject), padded=True)
        return ScannedArray(spec, ChunkRows.empty(rank))
    try:
        columns = stored_columns(subject, budget.rows)
        found = rows_of(
            columns,
            grid,
            file_size=file.size,
            address=file.address,
            n_filters=d.n_filters,
            limit=budget.rows,
            state=state,
        )
    except TooManyChunks:
        raise budget.exceeded(file.address) from None
    budget.take_rows(len(found.rows), file.address)
    if found.outside:
        reason = f"{subject.path} has {found.outside} chunks beyond its shape, which are left out"
        subject.warnings.append(Refusal(subject.path, "chunk-index", reason))
    masks = found.masks if state is State.REFERENCED else {}
    spec = _spec(subject, chunk_shape, chain, fill=_fill(subject), padded=True, sparse=found.sparse)
    return ScannedArray(spec, found.rows, {}, masks)


def _foreign(subject: Subject, budget: Budget, companions: Companions, what: str) -> ScannedArray:
    """An array whose bytes lie in other files: a small one is copied, a large one is left to the library."""
    d = subject.description
    shape = subject.stored_shape
    rank = len(shape)
    nbytes = math.prod(d.extent.shape) * d.stored.element_size
    small = nbytes <= min(FOREIGN_INLINE, budget.inline)
    plain = CodecChain.of(bytes_codec(d.stored.dtype))
    raw: bytes | None = None
    if d.layout == h5d.VIRTUAL:
        companions.check_virtual(subject.source, d.plist)
    elif d.external:
        raw = external_bytes(companions, subject.source, d.plist, nbytes, read=small and d.stored.converted is None)
    if 0 in shape:
        return _single(subject, ChunkRows.empty(rank), plain, {}, budget)
    if small and (raw is None or d.stored.converted is None):
        data = read_stored(subject).tobytes() if raw is None else raw
        budget.take_inline(len(data))
        return _single(subject, ChunkRows.single(rank, -1, len(data), State.INLINE), plain, {0: data}, budget)
    if subject.source.store.root is None:
        raise UnsupportedType("external", f"it is {what} in a remote store and too large to inline ({nbytes} bytes)")
    chain = CodecChain((*plain.codecs, foreign_codec(0, what)))
    chunk_shape = _pieces(subject.axes.sizes, d.stored.element_size // max(1, math.prod(d.stored.inner)))
    grid = tuple(-(-n // c) for n, c in zip(subject.axes.sizes, chunk_shape, strict=True))
    total = math.prod(grid)
    budget.take_rows(total, subject.file.address)
    coords = np.array(np.unravel_index(np.arange(total), grid), np.int32).reshape(rank, total)
    rows = ChunkRows(coords, np.full(total, -1, np.int64), np.zeros(total, np.int64), np.full(total, State.LIBRARY, np.int8))
    return ScannedArray(_spec(subject, chunk_shape, chain, fill=_fill(subject), padded=False), rows)


def _pieces(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """A chunk shape of at most about 8 MB, cut along the slowest axes."""
    piece = list(shape)
    for axis in range(len(shape)):
        nbytes = math.prod(piece) * itemsize
        if nbytes <= _FOREIGN_CHUNK:
            break
        rest = nbytes // piece[axis]
        piece[axis] = max(1, _FOREIGN_CHUNK // rest)
    return tuple(piece)

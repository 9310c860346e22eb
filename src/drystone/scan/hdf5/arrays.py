"""One dataset to one array with its rows.

Each storage layout has its own function. Whatever makes a single dataset impossible is raised as
:class:`~drystone.scan.hdf5.dtypes.UnsupportedType` and becomes a refusal in the scanner.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from h5py import h5d
from numpy.typing import NDArray

from drystone.codecs.chain import CodecChain
from drystone.codecs.hdf5 import bytes_codec, foreign_codec
from drystone.errors import ScanError
from drystone.model.array import ArraySpec
from drystone.model.attributes import Attributes
from drystone.model.chunk_rows import ChunkRows, Refusal, ScannedArray, State
from drystone.protocols import ScanOptions, Source
from drystone.scan.hdf5.chunk_index import ChunkColumns, TooManyChunks, base_relative, library_columns, tree_columns
from drystone.scan.hdf5.companions import Companions, external_bytes
from drystone.scan.hdf5.describe import Description
from drystone.scan.hdf5.dimensions import Axes
from drystone.scan.hdf5.dtypes import UnsupportedType
from drystone.scan.hdf5.object_header import read_layout
from drystone.scan.hdf5.opening import OpenFile
from drystone.scan.hdf5.rows import Grid, rows_of, single_row
from drystone.scan.hdf5.values import encode_texts, fill_bytes, read_stored, read_texts

__all__ = ["MAX_RANK", "Budget", "Subject", "build_array"]

MAX_RANK = 8  # as many axes as the table has columns for
FOREIGN_INLINE = 1 << 20  # decoded bytes up to which one array of another file is inlined
_FOREIGN_CHUNK = 8 << 20
_TREE_FROM = 512  # chunks from which reading the tree ourselves pays


@dataclass(slots=True)
class Budget:
    """What is left of a scan's limits."""

    inline: int
    rows: int
    max_rows: int

    @classmethod
    def of(cls, options: ScanOptions) -> Budget:
        """All of it."""
        return cls(options.inline_budget, options.max_rows, options.max_rows)

    def take_inline(self, nbytes: int) -> None:
        """Use up inline bytes.

        Raises
        ------
        UnsupportedType
            ``inline-budget``.
        """
        if nbytes > self.inline:
            raise UnsupportedType(
                "inline-budget",
                f"its {nbytes} bytes would have to be inlined and {self.inline} bytes of the scan's budget are left",
            )
        self.inline -= nbytes

    def take_rows(self, n: int, address: str) -> None:
        """Use up chunk rows.

        Raises
        ------
        ScanError
            ``too-many-rows``.
        """
        if n > self.rows:
            raise self.exceeded(address)
        self.rows -= n

    def exceeded(self, address: str) -> ScanError:
        """The error for more rows than allowed."""
        return ScanError(
            f"{address}: it has more than {self.max_rows} chunks, the limit of one granule; taken for damaged (raise max_rows "
            "if it is not)",
            kind="too-many-rows",
            granule=address,
            limit=self.max_rows,
        )


@dataclass(slots=True)
class Subject:
    """A dataset about to become an array.

    ``path`` is the array's, which differs from the dataset's own where a link leads here from another file; then
    ``linked`` says so and the values are taken over rather than referenced.
    """

    path: str
    dsid: h5d.DatasetID
    header: int
    description: Description
    axes: Axes
    attributes: Attributes
    file: OpenFile
    source: Source
    linked: str | None = None
    warnings: list[Refusal] = field(default_factory=list)

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Shape of the values in the file, the axes of array-typed elements included."""
        return (*self.description.extent.shape, *self.description.stored.inner)


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
    return fill_bytes(subject.description, subject.file, subject.header)


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
    texts = read_texts(subject.dsid, shape, budget.inline, subject.file.size)
    if subject.axes.sizes != shape:
        texts = _padded(texts, shape, subject.axes.sizes, budget)
    for i, text in enumerate(texts):
        try:
            text.decode("utf-8")
        except UnicodeDecodeError:
            raise UnsupportedType("text", f"its text {i} is no UTF-8 ({text[:20]!r}), so that it has no exact form") from None
    data = encode_texts(texts)
    budget.take_inline(len(data))
    rows = ChunkRows.single(len(shape), -1, len(data), State.INLINE)
    return _single(subject, rows, CodecChain.of(bytes_codec(d.stored.dtype)), {0: data}, budget)


def _padded(texts: list[bytes], shape: tuple[int, ...], sizes: tuple[int, ...], budget: Budget) -> list[bytes]:
    """Text of a variable that is shorter than its unlimited dimension, filled up with empty text."""
    budget_items = budget.inline // 4
    if math.prod(sizes) > budget_items:
        raise UnsupportedType("inline-budget", f"its {math.prod(sizes)} texts need more than the {budget.inline} bytes left")
    whole = np.full(sizes, b"", object)
    part = np.empty(len(texts), object)
    part[:] = texts
    whole[tuple(slice(n) for n in shape)] = part.reshape(shape)
    return list(whole.reshape(-1).tolist())


def _compact(subject: Subject, budget: Budget) -> ScannedArray:
    """At most 64 kB within the object header: copied."""
    d = subject.description
    rank = len(subject.stored_shape)
    chain = CodecChain.of(bytes_codec(d.stored.dtype))
    if 0 in subject.stored_shape:
        return _single(subject, ChunkRows.empty(rank), chain, {}, budget)
    data = read_stored(subject.dsid, d).tobytes()
    budget.take_inline(len(data))
    return _single(subject, ChunkRows.single(rank, -1, len(data), State.INLINE), chain, {0: data}, budget)


def _contiguous(subject: Subject, budget: Budget) -> ScannedArray:
    """One run of bytes."""
    d = subject.description
    rank = len(subject.stored_shape)
    nbytes = math.prod(d.extent.shape) * d.stored.element_size
    if nbytes == 0:
        return _single(subject, ChunkRows.empty(rank), d.chain, {}, budget)
    stored = int(subject.dsid.get_storage_size())
    # with a user block the library gives a bogus offset where nothing was ever written, so its size is asked first
    offset = subject.dsid.get_offset() if stored else None
    if offset is not None:
        if stored < nbytes:
            raise UnsupportedType("chunk-index", f"its storage has {stored} bytes where its shape and type ask for {nbytes}")
        if offset + nbytes > subject.file.size:
            raise ScanError(
                f"{subject.file.address}: truncated: {subject.path} needs {nbytes} bytes from byte {offset}, the file has "
                f"{subject.file.size}",
                kind="truncated",
                granule=subject.file.address,
                size=subject.file.size,
                array=subject.path,
            )
    if d.chain.needs_library and offset is not None:
        return _single(subject, ChunkRows.single(rank, -1, 0, State.LIBRARY), d.chain, {}, budget)
    return _single(subject, single_row(rank, offset, nbytes), d.chain, {}, budget)


def _chunked(subject: Subject, budget: Budget) -> ScannedArray:
    d = subject.description
    assert d.chunk_shape is not None
    file, inner = subject.file, d.stored.inner
    chunk_shape = (*d.chunk_shape, *inner)
    grid = Grid(subject.path, subject.axes.sizes, chunk_shape, math.prod(d.chunk_shape) * d.stored.element_size)
    rank = len(chunk_shape)
    state = State.LIBRARY if d.chain.needs_library else State.REFERENCED
    if 0 in grid.shape:
        spec = _spec(subject, chunk_shape, d.chain, fill=_fill(subject), padded=True)
        return ScannedArray(spec, ChunkRows.empty(rank))
    try:
        columns = _columns(subject, budget.rows)
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
    spec = _spec(subject, chunk_shape, d.chain, fill=_fill(subject), padded=True, sparse=found.sparse)
    return ScannedArray(spec, found.rows, {}, masks)


def _columns(subject: Subject, limit: int) -> ChunkColumns:
    """The chunk index, by the fastest way that this one allows."""
    d, file = subject.description, subject.file
    chunk_shape = d.chunk_shape
    assert chunk_shape is not None
    shape, rank = d.extent.shape, len(chunk_shape)
    n_chunks = math.prod(-(-n // c) for n, c in zip(shape, chunk_shape, strict=True))
    partial = d.n_filters > 0 and any(n % c for n, c in zip(shape, chunk_shape, strict=True))
    layout = read_layout(file, subject.header, rank) if n_chunks >= _TREE_FROM or partial else None
    columns = None
    if layout is not None and layout.tree is not None and n_chunks >= _TREE_FROM:
        columns = tree_columns(file, layout.tree, rank, limit)
    if columns is None:
        columns = library_columns(subject.dsid, rank, limit)
        if file.superblock.base and base_relative():
            columns = replace(columns, offset=columns.offset + file.superblock.base)
    if layout is not None and layout.unfiltered_edges:
        over = (columns.start + np.array(chunk_shape, np.int64) > np.array(shape, np.int64)).any(axis=1)
        everything = (1 << d.n_filters) - 1
        columns = replace(columns, mask=np.where(over, everything, columns.mask))
    if d.stored.inner:
        zeros: NDArray[np.int64] = np.zeros((len(columns.offset), len(d.stored.inner)), np.int64)
        columns = replace(columns, start=np.hstack([columns.start, zeros]))
    return columns


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
        data = read_stored(subject.dsid, d).tobytes() if raw is None else raw
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

"""What the parts of a scan hand each other: a dataset about to become an array, and what is left of the limits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from h5py import h5d
from numpy.typing import NDArray

from drystone.errors import ScanError
from drystone.model.attributes import Attributes
from drystone.model.chunk_rows import Refusal
from drystone.protocols import ScanOptions, Source
from drystone.scan.hdf5.chunk_index import (
    ChunkColumns,
    axis_order_lost,
    base_relative,
    in_axis_order,
    library_columns,
    plain_columns,
    tree_columns,
)
from drystone.scan.hdf5.describe import Description
from drystone.scan.hdf5.dimensions import Axes
from drystone.scan.hdf5.dtypes import UnsupportedType
from drystone.scan.hdf5.heap import GlobalHeap
from drystone.scan.hdf5.object_header import Layout, read_layout
from drystone.scan.hdf5.opening import OpenFile
from drystone.scan.hdf5.walk import FoundDataset

__all__ = ["Budget", "Subject", "stored_columns", "stored_offset"]

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
    found: FoundDataset
    description: Description
    axes: Axes
    attributes: Attributes
    file: OpenFile
    heap: GlobalHeap
    source: Source
    linked: str | None = None
    warnings: list[Refusal] = field(default_factory=list)

    @property
    def dsid(self) -> h5d.DatasetID:
        """The library's handle; see :attr:`FoundDataset.dsid`."""
        return self.found.dsid

    @property
    def header(self) -> int:
        """Address of the object header from the file's base."""
        return self.found.header

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Shape of the values in the file, the axes of array-typed elements included."""
        return (*self.description.extent.shape, *self.description.stored.inner)


def stored_offset(subject: Subject, nbytes: int) -> int | None:
    """Where the bytes of a contiguous dataset start; None where nothing was ever written.

    Raises
    ------
    ScanError
        ``truncated``: they reach beyond the end of the file.
    UnsupportedType
        ``chunk-index``: its storage is smaller than its shape and type.
    """
    plain = subject.found.plain
    if plain is not None:
        stored, offset = plain.size, plain.place(subject.file)
    else:
        stored = int(subject.dsid.get_storage_size())
        # with a user block the library gives a bogus offset where nothing was ever written, so its size is asked first
        offset = subject.dsid.get_offset() if stored else None
    if offset is None or not stored:
        return None
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
    return int(offset)


def _growing(d: Description) -> int:
    """The one unlimited axis; 0 where it is the first, or where there is none or more than one."""
    axes = [i for i, unlimited in enumerate(d.extent.unlimited) if unlimited]
    return axes[0] if len(axes) == 1 else 0


def _reordered(subject: Subject, columns: ChunkColumns, layout: Layout | None, growing: int) -> ChunkColumns:
    if layout is None:
        raise UnsupportedType(
            "chunk-index",
            f"its header is in an unexpected form, and without it nothing tells whether the HDF5 library's chunk coordinates "
            f"are true (it grows along axis {growing} alone)",
        )
    if not layout.extensible:
        return columns
    chunk_shape = subject.description.chunk_shape
    assert chunk_shape is not None
    limits = subject.dsid.get_space().get_simple_extent_dims(True)
    return in_axis_order(columns, chunk_shape, tuple(int(n) for n in limits), growing)


def stored_columns(subject: Subject, limit: int) -> ChunkColumns:
    """The chunk index of a dataset, by the fastest way that this one allows.

    Raises
    ------
    TooManyChunks
        Past ``limit``.
    """
    d, file = subject.description, subject.file
    chunk_shape = d.chunk_shape
    assert chunk_shape is not None
    shape, rank = d.extent.shape, len(chunk_shape)
    if subject.found.plain is not None:
        edges = (*chunk_shape, d.stored.element_size)
        return _with_inner(plain_columns(file, subject.found.plain.place(file), edges, limit), len(d.stored.inner))
    n_chunks = math.prod(-(-n // c) for n, c in zip(shape, chunk_shape, strict=True))
    partial = d.n_filters > 0 and any(n % c for n, c in zip(shape, chunk_shape, strict=True))
    growing = _growing(d)
    layout = read_layout(file, subject.header, rank) if n_chunks >= _TREE_FROM or partial or growing else None
    columns = None
    if layout is not None and layout.tree is not None and n_chunks >= _TREE_FROM:
        columns = tree_columns(file, layout.tree, rank, limit)
    if columns is None:
        columns = library_columns(subject.dsid, rank, limit)
        if file.superblock.base and base_relative():
            columns = replace(columns, offset=columns.offset + file.superblock.base)
        if growing and axis_order_lost():
            columns = _reordered(subject, columns, layout, growing)
    if layout is not None and layout.unfiltered_edges:
        over = (columns.start + np.array(chunk_shape, np.int64) > np.array(shape, np.int64)).any(axis=1)
        everything = (1 << d.n_filters) - 1
        columns = replace(columns, mask=np.where(over, everything, columns.mask))
    return _with_inner(columns, len(d.stored.inner))


def _with_inner(columns: ChunkColumns, axes: int) -> ChunkColumns:
    """The columns with the axes of an array-typed element, along which there is one chunk."""
    if not axes:
        return columns
    zeros: NDArray[np.int64] = np.zeros((len(columns.offset), axes), np.int64)
    return replace(columns, start=np.hstack([columns.start, zeros]))

"""One axis of a chunk grid.

Three sizes of a chunk are kept apart, because archives mix them up:

- *declared*: what the grid says an edge is (Zarr's chunk shape, HDF5's chunk dims);
- *data*: elements that exist, clipped at the array's end or at a granule's end;
- *encoded*: elements that the stored bytes decode to. HDF5 pads the last chunk of a file to the declared size, TIFF
  strips and contiguous files are stored short.

Every question has a scalar form, which is also the protocol ``DimensionGridLike`` of the package ``zarr-indexing`` (its
planner accepts these grids, which makes it our oracle), and a columnar form over many chunks or many elements, which is
what the planner uses.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["DimensionGrid", "RectilinearDimension", "RegularDimension", "grouped"]

type Int64 = NDArray[np.int64]


def _bounded(indices: NDArray[np.integer], extent: int) -> NDArray[np.intp]:
    array = np.asarray(indices, dtype=np.intp)
    if array.size and (int(array.min()) < 0 or int(array.max()) >= extent):
        raise IndexError(f"indices {int(array.min())} to {int(array.max())} are not all inside 0..{extent}")
    return array


@dataclass(frozen=True, slots=True)
class RegularDimension:
    """Chunks of one size; the last one may overhang the extent and is then stored full.

    Examples
    --------
    >>> d = RegularDimension(10, 4)
    >>> d.n_chunks, d.data_size(2), d.encoded_size(2), d.index_to_chunk(9)
    (3, 2, 4, 2)
    """

    extent: int
    size: int

    def __post_init__(self) -> None:
        if self.size < 1 or self.extent < 0:
            raise ValueError(f"a chunk edge is at least 1 and an extent at least 0, not {self.size} and {self.extent}")

    @property
    def n_chunks(self) -> int:
        """Chunks along the axis."""
        return -(-self.extent // self.size)

    def edges(self) -> Int64:
        """int64 (n_chunks + 1,): first element of each chunk, then the extent."""
        edges = np.arange(self.n_chunks + 1, dtype=np.int64) * self.size
        edges[-1] = self.extent
        return edges

    def index_to_chunk(self, index: int) -> int:
        """The chunk that holds an element; IndexError outside the extent."""
        if not 0 <= index < self.extent:
            raise IndexError(f"index {index} is outside 0..{self.extent}")
        return index // self.size

    def indices_to_chunks(self, indices: NDArray[np.integer]) -> NDArray[np.intp]:
        """The chunk of each element; IndexError where one is outside the extent."""
        return _bounded(indices, self.extent) // self.size

    def chunk_offset(self, chunk: int) -> int:
        """First element of a chunk."""
        return chunk * self.size

    def chunk_size(self, chunk: int) -> int:
        """Declared size."""
        return self.size

    def data_size(self, chunk: int) -> int:
        """Elements that exist."""
        return max(0, min(self.size, self.extent - chunk * self.size))

    def encoded_size(self, chunk: int) -> int:
        """Elements that the stored bytes decode to."""
        return self.size

    def chunk_offsets(self, chunks: NDArray[np.integer]) -> Int64:
        """First element of each chunk, int64."""
        return np.asarray(chunks, np.int64) * self.size

    def data_sizes(self, chunks: NDArray[np.integer]) -> Int64:
        """Elements of each chunk that exist, int64."""
        return np.clip(self.extent - self.chunk_offsets(chunks), 0, self.size)

    def encoded_sizes(self, chunks: NDArray[np.integer]) -> Int64:
        """Elements that each chunk decodes to, int64."""
        return np.full(np.shape(chunks), self.size, np.int64)

    def is_edge(self, indices: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Whether each number is the first element of a chunk or the extent."""
        array = np.asarray(indices, np.int64)
        on_edge: NDArray[np.bool_] = (array >= 0) & (
            (array == self.extent) | ((array < self.extent) & (array % self.size == 0))
        )
        return on_edge

    @property
    def regular_size(self) -> int | None:
        """The one size, or None for a rectilinear axis."""
        return self.size


@dataclass(frozen=True, slots=True)
class RectilinearDimension:
    """Chunks of any size.

    The cumulative edges are computed once: a million of them cost some 50 ms, and no method scans them again.

    Parameters
    ----------
    sizes
        Data elements of each chunk; they sum to the extent.
    encoded
        Elements that each chunk decodes to, at least ``sizes``; None where they are equal.

    Examples
    --------
    >>> d = RectilinearDimension((31, 28, 31))
    >>> d.extent, d.index_to_chunk(58), d.index_to_chunk(59)
    (90, 1, 2)
    """

    sizes: tuple[int, ...]
    encoded: tuple[int, ...] | None = None
    _edges: Int64 = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sizes = np.asarray(self.sizes, np.int64).reshape(-1)
        if np.any(sizes < 1):
            raise ValueError("every chunk of a rectilinear axis holds at least 1 element")
        if self.encoded is not None and (
            len(self.encoded) != len(sizes) or np.any(np.asarray(self.encoded, np.int64).reshape(-1) < sizes)
        ):
            raise ValueError("encoded sizes must match the chunks and be no smaller than their data")
        edges = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=edges[1:])
        edges.flags.writeable = False
        object.__setattr__(self, "_edges", edges)

    def __reduce__(self) -> tuple[object, ...]:
        # the derived column stays out of messages to workers
        return RectilinearDimension, (self.sizes, self.encoded)

    @property
    def extent(self) -> int:
        """Elements along the axis."""
        return int(self._edges[-1])

    @property
    def n_chunks(self) -> int:
        """Chunks along the axis."""
        return len(self.sizes)

    def edges(self) -> Int64:
        """int64 (n_chunks + 1,), read-only: first element of each chunk, then the extent."""
        return self._edges

    def index_to_chunk(self, index: int) -> int:
        """The chunk that holds an element; IndexError outside the extent."""
        if not 0 <= index < self.extent:
            raise IndexError(f"index {index} is outside 0..{self.extent}")
        return int(np.searchsorted(self._edges, index, side="right")) - 1

    def indices_to_chunks(self, indices: NDArray[np.integer]) -> NDArray[np.intp]:
        """The chunk of each element; IndexError where one is outside the extent."""
        return np.searchsorted(self._edges, _bounded(indices, self.extent), side="right").astype(np.intp) - 1

    def chunk_offset(self, chunk: int) -> int:
        """First element of a chunk."""
        return int(self._edges[chunk])

    def chunk_size(self, chunk: int) -> int:
        """Declared size."""
        return self.sizes[chunk]

    def data_size(self, chunk: int) -> int:
        """Elements that exist."""
        return self.sizes[chunk]

    def encoded_size(self, chunk: int) -> int:
        """Elements that the stored bytes decode to."""
        return self.sizes[chunk] if self.encoded is None else self.encoded[chunk]

    def chunk_offsets(self, chunks: NDArray[np.integer]) -> Int64:
        """First element of each chunk, int64."""
        return self._edges[np.asarray(chunks, np.intp)]

    def data_sizes(self, chunks: NDArray[np.integer]) -> Int64:
        """Elements of each chunk that exist, int64."""
        where = np.asarray(chunks, np.intp)
        sizes: Int64 = self._edges[where + 1] - self._edges[where]
        return sizes

    def encoded_sizes(self, chunks: NDArray[np.integer]) -> Int64:
        """Elements that each chunk decodes to, int64."""
        if self.encoded is None:
            return self.data_sizes(chunks)
        where = np.asarray(chunks, np.intp)
        return np.fromiter((self.encoded[c] for c in where.reshape(-1)), np.int64, where.size).reshape(where.shape)

    def is_edge(self, indices: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Whether each number is the first element of a chunk or the extent."""
        array = np.asarray(indices, np.int64)
        found = np.searchsorted(self._edges, array)
        on_edge: NDArray[np.bool_] = (found < len(self._edges)) & (self._edges[np.minimum(found, self.n_chunks)] == array)
        return on_edge

    @property
    def regular_size(self) -> int | None:
        """The one size, or None for a rectilinear axis."""
        return None


type DimensionGrid = RegularDimension | RectilinearDimension


def grouped(dimension: DimensionGrid, n: int) -> DimensionGrid:
    """The grid whose chunks are ``n`` neighbouring ones each; the last may be fewer.

    Examples
    --------
    >>> grouped(RegularDimension(10, 2), 3), grouped(RectilinearDimension((31, 28, 31)), 2).sizes
    (RegularDimension(extent=10, size=6), (59, 31))
    """
    if isinstance(dimension, RegularDimension):
        return RegularDimension(dimension.extent, n * dimension.size)
    sizes = np.asarray(dimension.sizes, np.int64)
    return RectilinearDimension(tuple(np.add.reduceat(sizes, np.arange(0, len(sizes), n)).tolist()) if len(sizes) else ())

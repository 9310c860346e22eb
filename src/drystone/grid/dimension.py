"""One axis of a chunk grid.

Three sizes of a chunk are kept apart, because archives mix them up:

- *declared*: what the grid says an edge is (Zarr's chunk shape, HDF5's chunk dims);
- *data*: elements that exist, clipped at the array's end or at a granule's end;
- *encoded*: elements that the stored bytes decode to. HDF5 pads the last chunk of a file to the declared size, TIFF
  strips and contiguous files are stored short.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["DimensionGrid", "RectilinearDimension", "RegularDimension"]


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

    def edges(self) -> NDArray[np.int64]:
        """int64 (n_chunks + 1,): first element of each chunk, then the extent."""
        edges = np.arange(self.n_chunks + 1, dtype=np.int64) * self.size
        edges[-1] = self.extent
        return edges

    def index_to_chunk(self, index: int) -> int:
        """The chunk that holds an element."""
        if not 0 <= index < self.extent:
            raise IndexError(f"index {index} is outside 0..{self.extent}")
        return index // self.size

    def indices_to_chunks(self, indices: NDArray[np.integer]) -> NDArray[np.intp]:
        """The chunk of each element."""
        return np.asarray(indices, dtype=np.intp) // self.size

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

    @property
    def regular_size(self) -> int | None:
        """The one size, or None for a rectilinear axis."""
        return self.size


@dataclass(frozen=True, slots=True)
class RectilinearDimension:
    """Chunks of any size.

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

    def __post_init__(self) -> None:
        if any(s < 1 for s in self.sizes):
            raise ValueError("every chunk of a rectilinear axis holds at least 1 element")
        if self.encoded is not None and (
            len(self.encoded) != len(self.sizes) or any(e < s for e, s in zip(self.encoded, self.sizes, strict=True))
        ):
            raise ValueError("encoded sizes must match the chunks and be no smaller than their data")

    @property
    def extent(self) -> int:
        """Elements along the axis."""
        return sum(self.sizes)

    @property
    def n_chunks(self) -> int:
        """Chunks along the axis."""
        return len(self.sizes)

    def edges(self) -> NDArray[np.int64]:
        """int64 (n_chunks + 1,): first element of each chunk, then the extent."""
        edges = np.zeros(len(self.sizes) + 1, np.int64)
        np.cumsum(self.sizes, out=edges[1:])
        return edges

    def index_to_chunk(self, index: int) -> int:
        """The chunk that holds an element."""
        edges = self.edges()
        if not 0 <= index < edges[-1]:
            raise IndexError(f"index {index} is outside 0..{edges[-1]}")
        return int(np.searchsorted(edges, index, side="right")) - 1

    def indices_to_chunks(self, indices: NDArray[np.integer]) -> NDArray[np.intp]:
        """The chunk of each element."""
        return np.searchsorted(self.edges(), indices, side="right").astype(np.intp) - 1

    def chunk_offset(self, chunk: int) -> int:
        """First element of a chunk."""
        return int(self.edges()[chunk])

    def chunk_size(self, chunk: int) -> int:
        """Declared size."""
        return self.sizes[chunk]

    def data_size(self, chunk: int) -> int:
        """Elements that exist."""
        return self.sizes[chunk]

    def encoded_size(self, chunk: int) -> int:
        """Elements that the stored bytes decode to."""
        return self.sizes[chunk] if self.encoded is None else self.encoded[chunk]

    @property
    def regular_size(self) -> int | None:
        """The one size, or None for a rectilinear axis."""
        return None


type DimensionGrid = RegularDimension | RectilinearDimension

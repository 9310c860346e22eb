"""A chunk grid: one :class:`~drystone.grid.dimension.DimensionGrid` an axis."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drystone.grid.dimension import DimensionGrid, RectilinearDimension, RegularDimension

__all__ = ["ChunkGrid"]


@dataclass(frozen=True, slots=True)
class ChunkGrid:
    """The chunks of an array, regular or rectilinear per axis.

    Examples
    --------
    >>> g = ChunkGrid.regular((10, 6), (4, 6))
    >>> g.shape, g.grid_shape, g.n_chunks, g.is_regular
    ((10, 6), (3, 1), 3, True)
    >>> ChunkGrid.from_json(g.to_json()) == g
    True
    """

    dimensions: tuple[DimensionGrid, ...]

    @classmethod
    def regular(cls, shape: tuple[int, ...], chunk_shape: tuple[int, ...]) -> ChunkGrid:
        """A grid with one chunk shape."""
        return cls(tuple(RegularDimension(n, c) for n, c in zip(shape, chunk_shape, strict=True)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array, in elements."""
        return tuple(d.extent for d in self.dimensions)

    @property
    def grid_shape(self) -> tuple[int, ...]:
        """Chunks along each axis."""
        return tuple(d.n_chunks for d in self.dimensions)

    @property
    def n_chunks(self) -> int:
        """Chunks in all."""
        return math.prod(self.grid_shape)

    @property
    def is_regular(self) -> bool:
        """True where every axis has one chunk size."""
        return all(d.regular_size is not None for d in self.dimensions)

    @property
    def regular_shape(self) -> tuple[int, ...] | None:
        """The one chunk shape, or None where an axis is rectilinear."""
        sizes = [d.regular_size for d in self.dimensions]
        return None if any(s is None for s in sizes) else tuple(s for s in sizes if s is not None)

    def data_shape(self, coords: tuple[int, ...]) -> tuple[int, ...]:
        """Elements of a chunk that exist, per axis."""
        return tuple(d.data_size(c) for d, c in zip(self.dimensions, coords, strict=True))

    def edges(self) -> tuple[NDArray[np.int64], ...]:
        """Per axis, int64 (n_chunks + 1,): first element of each chunk, then the extent."""
        return tuple(d.edges() for d in self.dimensions)

    def encoded_shape(self, coords: tuple[int, ...]) -> tuple[int, ...]:
        """Elements that a chunk's stored bytes decode to, per axis."""
        return tuple(d.encoded_size(c) for d, c in zip(self.dimensions, coords, strict=True))

    def to_json(self) -> list[object]:
        """Exact JSON: ``[extent, size]`` for a regular axis, ``{"sizes": …, "encoded": …}`` for a rectilinear one."""
        out: list[object] = []
        for d in self.dimensions:
            if isinstance(d, RectilinearDimension):
                out.append({"sizes": list(d.sizes), "encoded": None if d.encoded is None else list(d.encoded)})
            else:
                out.append([d.extent, d.size])
        return out

    @classmethod
    def from_json(cls, value: list[object]) -> ChunkGrid:
        """Read back what :meth:`to_json` wrote."""
        dims: list[DimensionGrid] = []
        for item in value:
            if isinstance(item, dict):
                encoded = item["encoded"]
                dims.append(RectilinearDimension(tuple(item["sizes"]), None if encoded is None else tuple(encoded)))
            elif isinstance(item, list | tuple) and len(item) == 2:
                dims.append(RegularDimension(int(item[0]), int(item[1])))
            else:
                raise ValueError(f"an axis of a chunk grid is [extent, size] or an object with sizes, not {item!r}")
        return cls(tuple(dims))

"""The grid of a target array as a value: inner chunks, shards, codecs, fill. :mod:`drystone.plan.chunking` makes it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from drystone.codecs.chain import CodecChain
from drystone.codecs.zarr_forms import packed_dtype
from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import DimensionGrid, RectilinearDimension, RegularDimension
from drystone.model.array import dtype_from_json, dtype_to_json
from drystone.model.attributes import Attributes
from drystone.model.rounding import Rounding

__all__ = ["TargetLayout"]


@dataclass(frozen=True, slots=True)
class TargetLayout:
    """How one array is laid out in a Zarr v3 store.

    Parameters
    ----------
    path, dims, shape
        Of the target array; the key of its metadata is ``path`` without the leading slash, then ``zarr.json``.
    dtype
        Native; numbers are stored little-endian.
    chunk
        Inner chunk shape, in elements.
    shard
        Shard shape, a multiple of ``chunk`` on every axis, or None: then each chunk is an object.
    codecs
        Chain of an inner chunk.
    fill
        One stored (little-endian) element that absent chunks read as; ``b""`` for text.
    attributes
        Exact.
    sizes
        For each axis the edges of its write cells where they differ (months), None where they are equal; ``()`` where they
        are equal on every axis. On such an axis ``chunk`` or ``shard`` has the largest. A shard's inner chunks are always
        of one shape.
    rounding
        How values lose precision before they are encoded; None: they do not.

    Examples
    --------
    >>> from drystone.codecs.chain import CodecChain
    >>> a = TargetLayout("/g/sst", ("t", "y"), (7, 11), np.dtype("i2"), (2, 3), (4, 6), CodecChain.of("bytes"), bytes(2))
    >>> a.cell, a.cell_grid, a.n_cells, a.cell_key((1, 0)), a.cell_bytes
    ((4, 6), (2, 2), 4, 'g/sst/c/1/0', 48)
    >>> months = TargetLayout("/v", ("t",), (59,), np.dtype("i2"), (31,), None, a.codecs, bytes(2), sizes=((31, 28),))
    >>> months.cell_grid, months.chunk_shape_in((1,))
    ((2,), (28,))
    """

    path: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype
    chunk: tuple[int, ...]
    shard: tuple[int, ...] | None
    codecs: CodecChain
    fill: bytes
    attributes: Attributes = field(default_factory=Attributes)
    sizes: tuple[tuple[int, ...] | None, ...] = ()
    rounding: Rounding | None = None

    def __post_init__(self) -> None:
        if not len(self.dims) == len(self.shape) == len(self.chunk):
            raise ValueError(f"{self.path}: {self.dims}, {self.shape} and {self.chunk} have different ranks")
        if any(c < 1 for c in self.chunk):
            raise ValueError(f"{self.path}: chunk edges must be at least 1, not {self.chunk}")
        if self.shard is not None and (
            len(self.shard) != len(self.chunk) or any(s < c or s % c for s, c in zip(self.shard, self.chunk, strict=True))
        ):
            raise ValueError(f"{self.path}: the shard {self.shard} is no multiple of the inner chunk {self.chunk}")
        for n, c, edges in zip(self.shape, self.cell, self.sizes or (None,) * len(self.shape), strict=True):
            if edges is not None and (sum(edges) != n or max(edges) != c or min(edges) < 1):
                raise ValueError(f"{self.path}: cells of {edges} elements, the largest {c}, do not make an axis of {n}")

    @property
    def key(self) -> str:
        """Key prefix of the array below the store's root, without slashes at the ends."""
        return self.path.strip("/")

    @property
    def stored_dtype(self) -> np.dtype:
        """What a stored element is: little-endian, fields without gaps; big-endian where copied chunks are so."""
        stored = packed_dtype(self.dtype)
        return stored.newbyteorder(">") if self.codecs.codecs[0].get("endian") == "big" else stored

    @property
    def fill_scalar(self) -> np.ndarray:
        """0-d array of the stored dtype."""
        if self.dtype.kind == "T":
            return np.zeros((), self.dtype)
        return np.frombuffer(self.fill, self.stored_dtype, 1).reshape(())

    @property
    def cell(self) -> tuple[int, ...]:
        """Write cell: the shard, or the chunk of an unsharded array."""
        return self.chunk if self.shard is None else self.shard

    @property
    def cell_grid(self) -> tuple[int, ...]:
        """Write cells along each axis."""
        return self.cells.grid_shape

    @property
    def n_cells(self) -> int:
        """Write cells, at most one object each."""
        return math.prod(self.cell_grid)

    @property
    def inner_grid(self) -> tuple[int, ...]:
        """Inner chunks along each axis of a write cell; of one of the largest, where they differ."""
        return tuple(s // c for s, c in zip(self.cell, self.chunk, strict=True))

    @property
    def chunk_bytes(self) -> int:
        """Raw bytes of one inner chunk; text counts as 16 bytes an element."""
        return math.prod(self.chunk) * self.dtype.itemsize

    @property
    def cell_bytes(self) -> int:
        """Raw bytes of one full write cell."""
        return math.prod(self.cell) * self.dtype.itemsize

    @property
    def chunk_grid(self) -> ChunkGrid:
        """The grid of inner chunks over the array."""
        return ChunkGrid.regular(self.shape, self.chunk) if self.shard is not None else self.cells

    @property
    def cells(self) -> ChunkGrid:
        """The grid of write cells over the array."""
        if not self.sizes:
            return ChunkGrid.regular(self.shape, self.cell)
        axes = zip(self.shape, self.cell, self.sizes, strict=True)
        dims: list[DimensionGrid] = [RegularDimension(n, c) if e is None else RectilinearDimension(e) for n, c, e in axes]
        return ChunkGrid(tuple(dims))

    @property
    def edges(self) -> tuple[int | tuple[int, ...], ...]:
        """Along each axis the one size of a write cell, or every cell's."""
        return tuple(c if e is None else e for c, e in zip(self.cell, self.sizes or (None,) * len(self.cell), strict=True))

    def chunk_shape_in(self, coords: Sequence[int]) -> tuple[int, ...]:
        """Declared shape of the (inner) chunks of a write cell."""
        if not self.sizes or self.shard is not None:
            return self.chunk
        return tuple(c if e is None else e[i] for i, c, e in zip(coords, self.chunk, self.sizes, strict=True))

    def cell_key(self, coords: Sequence[int]) -> str:
        """Key of a write cell's object below the store's root."""
        return "/".join([self.key, "c", *(str(c) for c in coords)]).lstrip("/")

    def to_json(self) -> str:
        """Exact JSON, keys in a fixed order."""
        return json.dumps(
            {
                "path": self.path,
                "dims": self.dims,
                "shape": self.shape,
                "dtype": dtype_to_json(self.dtype),
                "chunk": self.chunk,
                "shard": self.shard,
                "codecs": self.codecs.to_json(),
                "fill": self.fill.hex(),
                "attributes": self.attributes.to_json(),
                "sizes": self.sizes,
                "rounding": None if self.rounding is None else self.rounding.to_json(),
            },
            ensure_ascii=False,
        )

    @classmethod
    def from_json(cls, text: str) -> TargetLayout:
        """Read back what :meth:`to_json` wrote."""
        d = json.loads(text)
        return cls(
            d["path"],
            tuple(d["dims"]),
            tuple(d["shape"]),
            dtype_from_json(d["dtype"]),
            tuple(d["chunk"]),
            None if d["shard"] is None else tuple(d["shard"]),
            CodecChain.from_json(d["codecs"]),
            bytes.fromhex(d["fill"]),
            Attributes.from_json(d["attributes"]),
            tuple(None if e is None else tuple(e) for e in d["sizes"]),
            Rounding.from_json(d["rounding"]),
        )

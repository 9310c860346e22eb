"""How one array is stored in a published form: chunk grid, codecs, fill."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drystone.codecs.chain import Codec, CodecChain
from drystone.codecs.encode import encode_chunk
from drystone.codecs.zarr_forms import fill_survives, packed_dtype
from drystone.errors import UnsupportedError
from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import RectilinearDimension, RegularDimension
from drystone.model.placement import CombinedArray
from drystone.plan.coverage import Coverage
from drystone.plan.cropping import crop_block, cropped

__all__ = ["ConstantChunks", "Layout"]

_NATIVE_CHUNK = 16 << 20
_MOST_EDGES = 200_000  # a zarr.json of a few megabytes, read by whoever opens the data set

type Edge = int | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """How one array is stored in the published form.

    Parameters
    ----------
    array
        The combined array, on the grid that is published.
    native
        True where its values are written, False where its chunks are references.
    dtype, codecs
        Of the stored chunks.
    edges
        Per axis, the one chunk edge, or all of them; the last may hang over the array's end.
    fill
        One stored element that absent chunks read as in Zarr 3, or None.
    block
        Shape that every stored chunk decodes to, where ``drystone.crop`` makes it fit; else None.
    gaps
        What granules hold, where they leave gaps; else None.
    """

    array: CombinedArray
    native: bool
    dtype: np.dtype
    edges: tuple[Edge, ...]
    codecs: CodecChain
    fill: bytes | None
    block: tuple[int, ...] | None = None
    gaps: Coverage | None = None

    @classmethod
    def virtual(cls, array: CombinedArray, version: int, options: Mapping[str, object]) -> Layout:
        """References in the source's own chain.

        Raises
        ------
        UnsupportedError
            The source's chunks are no Zarr grid, or one that this Zarr version or output does not have.
        """
        block = None
        if array.unaligned is not None:
            fitting = cropped(array)
            if fitting is None or not options.get("crop") or version == 2:
                raise UnsupportedError(_no_grid(array, fitting, version), kind="unaligned", array=array.path)
            array, block = fitting, crop_block(array)
        edges = _edges(array.grid, cut=block is not None)
        layout = cls(array, False, array.stored_dtype, edges, array.codecs, array.fill, block)
        if layout.regular is None:
            _check_rectilinear(layout, version, options)
        return layout

    @classmethod
    def written(cls, array: CombinedArray, compressor: Codec) -> Layout:
        """Values written again: little-endian, fields without gaps, one chunk up to 16 MiB."""
        text = array.dtype.kind == "T"
        dtype = packed_dtype(array.dtype)
        row = max(1, math.prod(array.shape[1:]) * dtype.itemsize)
        chunk = tuple(max(1, n) for n in array.shape)
        if chunk and math.prod(chunk) * dtype.itemsize > _NATIVE_CHUNK:
            chunk = (max(1, min(chunk[0], _NATIVE_CHUNK // row)), *chunk[1:])
        ordered = not text and dtype.newbyteorder("S") != dtype
        first = Codec.of("vlen-utf8") if text else Codec.of("bytes", **({"endian": "little"} if ordered else {}))
        fill = None if array.fill is None or text else array.fill_scalar.astype(dtype).tobytes()
        if not fill_survives(fill, dtype):
            fill = None  # every chunk is written: nothing reads as fill
        return cls(array, True, dtype, chunk, CodecChain.of(first, compressor), fill)

    @property
    def regular(self) -> tuple[int, ...] | None:
        """The one chunk shape, or None where some axis has several edges."""
        sizes = [e for e in self.edges if isinstance(e, int)]
        return tuple(sizes) if len(sizes) == len(self.edges) else None

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """The one chunk shape of a regular layout."""
        shape = self.regular
        if shape is None:
            raise ValueError(f"{self.array.path} has chunks of several shapes")
        return shape

    @property
    def grid_shape(self) -> tuple[int, ...]:
        """Chunks along each axis."""
        return tuple(
            -(-n // e) if isinstance(e, int) else (len(e) if n else 0)
            for n, e in zip(self.array.shape, self.edges, strict=True)
        )

    @property
    def n_chunks(self) -> int:
        """Chunks in all."""
        return math.prod(self.grid_shape)

    def encoded_shape(self, coords: tuple[int, ...]) -> tuple[int, ...]:
        """Elements that a chunk's stored bytes decode to, per axis."""
        if self.block is not None:
            return self.block
        return tuple(e if isinstance(e, int) else e[c] for e, c in zip(self.edges, coords, strict=True))


class ConstantChunks:
    """Encoded chunks that hold one element throughout; few distinct shapes, encoded once each."""

    def __init__(self, layout: Layout, element: NDArray[np.generic]) -> None:
        self._layout, self._element = layout, element
        self._known: dict[tuple[int, ...], bytes] = {}

    def __call__(self, coords: tuple[int, ...]) -> bytes:
        """The bytes of one chunk."""
        shape = self._layout.encoded_shape(coords)
        data = self._known.get(shape)
        if data is None:
            data = encode_chunk(np.full(shape, self._element), self._layout.codecs, self._layout.dtype)
            self._known[shape] = data
        return data


def _edges(grid: ChunkGrid, *, cut: bool) -> tuple[Edge, ...]:
    """Per axis what a Zarr grid says: stored sizes, or with ``cut`` those that count; one number where one will do."""
    found: list[Edge] = []
    for dim in grid.dimensions:
        if isinstance(dim, RegularDimension):
            found.append(dim.size)
            continue
        sizes = dim.sizes if cut or dim.encoded is None else (*dim.sizes[:-1], *dim.encoded[-1:])
        alike = len(set(sizes[:-1])) <= 1 and len(sizes) > 0 and (len(sizes) == 1 or sizes[-1] <= sizes[0])
        # a regular grid's last chunk is stored full: a shorter one fits only where the codec cuts it
        if alike and (cut or sizes[-1] == sizes[0]):
            found.append(sizes[0])
        else:
            found.append(sizes or (1,))
    if all(isinstance(e, int) for e in found):
        return tuple(found)
    return tuple(
        (e,) * max(1, dim.n_chunks) if isinstance(e, int) else e for e, dim in zip(found, grid.dimensions, strict=True)
    )


def _no_grid(array: CombinedArray, fitting: CombinedArray | None, version: int) -> str:
    reason = array.unaligned or ""
    if fitting is None:
        return reason
    if version == 2:
        return f"{reason}; an Icechunk output with `crop: true` could hold it, for readers that have drystone installed"
    edges = _edges(fitting.grid, cut=True)
    more = "" if all(isinstance(e, int) for e in edges) else " and `grid: rectilinear`"
    return (
        f"{reason}; or say `crop: true`{more} for this output: its chunks are padded and the codec drystone.crop cuts them to "
        "fit, but then nobody without drystone installed can open the data set, not even its other arrays"
    )


def _check_rectilinear(layout: Layout, version: int, options: Mapping[str, object]) -> None:
    array = layout.array
    for d, dim in enumerate(array.grid.dimensions):
        if layout.block is None and isinstance(dim, RectilinearDimension) and dim.encoded is not None:
            inner = np.flatnonzero(np.asarray(dim.encoded[:-1], np.int64) != np.asarray(dim.sizes[:-1], np.int64))
            if len(inner):
                i = int(inner[0])
                raise UnsupportedError(
                    f"{array.path}: chunk {i} along {array.dims[d]} decodes to {dim.encoded[i]} elements of which "
                    f"{dim.sizes[i]} count, in the middle of the axis; publish it as a store (rechunk)",
                    kind="unaligned",
                    array=array.path,
                )
    axes = ", ".join(
        name for name, e in zip(array.dims, layout.edges, strict=True) if not isinstance(e, int) and len(set(e)) > 1
    )
    what = f"{array.path}: its chunks have different sizes along {axes or array.dims[0]}"
    if version == 2:
        raise UnsupportedError(
            f"{what}, and Zarr 2, which kerchunk's readers read, has one chunk shape; publish it in an Icechunk output with "
            "`grid: rectilinear`, or as a store (rechunk)",
            kind="rectilinear",
            array=array.path,
        )
    if options.get("grid") != "rectilinear":
        raise UnsupportedError(
            f"{what}: say `grid: rectilinear` for this output, which zarr-python from 3.2 reads, and xarray and Icechunk 2.3 "
            "through it, where zarr.config has array.rectilinear_chunks on; tensorstore, GDAL, VirtualiZarr and zarrita.js "
            "cannot open it; or publish it as a store (rechunk)",
            kind="rectilinear",
            array=array.path,
        )
    longest = max((len(e) for e in layout.edges if not isinstance(e, int)), default=0)
    if longest > _MOST_EDGES:
        raise UnsupportedError(
            f"{what}: a rectilinear grid lists every edge in the array's metadata, and {longest} of them are too many (at most "
            f"{_MOST_EDGES}); publish it as a store (rechunk)",
            kind="rectilinear",
            array=array.path,
        )

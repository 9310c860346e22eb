"""Where granules land in the target: placements, and the combined arrays they make."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from drystone.codecs.chain import CodecChain
from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.array import ArraySpec, GroupSpec, dtype_from_json, dtype_to_json
from drystone.model.attributes import Attributes

__all__ = ["Combined", "CombinedArray", "Placement", "Placements"]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one granule's slab of one array lands, per axis, in elements.

    Examples
    --------
    >>> Placement(7, src_offset=(0, 0), count=(31, 720), dest=(59, 0)).stop
    (90, 720)
    """

    granule_id: int
    src_offset: tuple[int, ...]
    count: tuple[int, ...]
    dest: tuple[int, ...]

    @property
    def stop(self) -> tuple[int, ...]:
        """First element after it, per axis."""
        return tuple(d + c for d, c in zip(self.dest, self.count, strict=True))


@dataclass(frozen=True, slots=True)
class Placements:
    """Placements of one array along one axis, as columns sorted by ``dest``; other axes are whole.

    Parameters
    ----------
    axis
        The combine axis, or None for a static array (then one granule stands for all and the columns have length 1).
    granule_id
        int32 (n,).
    src_offset, count, dest
        int64 (n,), in elements along ``axis`` (0, 1, 0 where there is none).
    variant
        int32 (n,): which of the array's ``variants`` each granule has.
    """

    axis: int | None
    granule_id: NDArray[np.int32]
    src_offset: NDArray[np.int64]
    count: NDArray[np.int64]
    dest: NDArray[np.int64]
    variant: NDArray[np.int32]

    def __post_init__(self) -> None:
        n = len(self.granule_id)
        if not n == len(self.src_offset) == len(self.count) == len(self.dest) == len(self.variant):
            raise ValueError("placement columns differ in length")
        if np.any(self.dest[1:] < self.dest[:-1] + self.count[:-1]):
            raise ValueError("placements overlap or are not sorted by dest")

    def __len__(self) -> int:
        return len(self.granule_id)

    def row(self, i: int, shape: tuple[int, ...]) -> Placement:
        """Placement ``i`` in full; ``shape`` is the combined array's."""
        src, count, dest = [0] * len(shape), list(shape), [0] * len(shape)
        if self.axis is not None:
            src[self.axis], count[self.axis], dest[self.axis] = int(self.src_offset[i]), int(self.count[i]), int(self.dest[i])
        return Placement(int(self.granule_id[i]), tuple(src), tuple(count), tuple(dest))

    def overlapping(self, start: int, stop: int) -> slice:
        """The placements that touch elements [start, stop) of the axis."""
        if self.axis is None:
            return slice(0, len(self))
        first = int(np.searchsorted(self.dest + self.count, start, side="right"))
        last = int(np.searchsorted(self.dest, stop, side="left"))
        return slice(first, max(first, last))


@dataclass(frozen=True, slots=True)
class CombinedArray:
    """One array of the whole: what readers of a published form see.

    Parameters
    ----------
    path, dims, shape
        Of the whole.
    dtype
        Native; what values are delivered in.
    stored_dtype
        As in the first granule, with byte order.
    fill
        One stored element that unwritten chunks read as, or None.
    codecs
        The first granule's chain; equal in signature for all granules where ``unaligned`` is None.
    attributes
        The first granule's, after the combine checks.
    grid
        Source chunks of the whole, padded encoded sizes included; regular where the pieces line up.
    unaligned
        None where the grid is a Zarr grid that holds every granule's chunks as stored; else the reason, with granule,
        axis and numbers, why no virtual form exists.
    placements
        Where granules land.
    variants
        The distinct specs of this array among its granules; ``placements.variant`` indexes them.
    """

    path: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype
    stored_dtype: np.dtype
    fill: bytes | None
    codecs: CodecChain
    attributes: Attributes
    grid: ChunkGrid
    unaligned: str | None
    placements: Placements
    variants: tuple[ArraySpec, ...]

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def group(self) -> str:
        """The path of the group that holds it."""
        return self.path.rsplit("/", 1)[0] or "/"

    @property
    def fill_scalar(self) -> np.ndarray:
        """0-d array in native order that unwritten cells read as."""
        if self.fill is None or self.stored_dtype.kind == "T":
            return np.zeros((), self.dtype)
        return np.frombuffer(self.fill, self.stored_dtype, 1).astype(self.dtype).reshape(())

    def to_json(self) -> str:
        """All but the placement columns, exact."""
        return json.dumps(
            {
                "path": self.path,
                "dims": self.dims,
                "shape": self.shape,
                "dtype": dtype_to_json(self.dtype),
                "stored_dtype": dtype_to_json(self.stored_dtype),
                "fill": None if self.fill is None else self.fill.hex(),
                "codecs": self.codecs.to_json(),
                "attributes": self.attributes.to_json(),
                "grid": self.grid.to_json(),
                "unaligned": self.unaligned,
                "axis": self.placements.axis,
                "variants": [[v.structure(), v.attributes.to_json()] for v in self.variants],
            },
            ensure_ascii=False,
        )

    @classmethod
    def from_json(cls, text: str, placements: Placements) -> CombinedArray:
        """Read back what :meth:`to_json` wrote."""
        d = json.loads(text)
        return cls(
            d["path"],
            tuple(d["dims"]),
            tuple(d["shape"]),
            dtype_from_json(d["dtype"]),
            dtype_from_json(d["stored_dtype"]),
            None if d["fill"] is None else bytes.fromhex(d["fill"]),
            CodecChain.from_json(d["codecs"]),
            Attributes.from_json(d["attributes"]),
            ChunkGrid.from_json(d["grid"]),
            d["unaligned"],
            placements,
            tuple(ArraySpec.from_parts(s, a) for s, a in d["variants"]),
        )


@dataclass(frozen=True, slots=True)
class Combined:
    """The whole: groups and combined arrays, and the axis they were joined along.

    ``coordinates`` holds decoded values of small arrays that were read at scan time (path to native array), among them
    the combine coordinate of the whole; emitters write these natively.
    """

    groups: tuple[GroupSpec, ...]
    arrays: tuple[CombinedArray, ...]
    axis: str | None
    coordinates: dict[str, np.ndarray] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def array(self, path: str) -> CombinedArray:
        """One array by path."""
        for a in self.arrays:
            if a.path == path:
                return a
        raise KeyError(path)

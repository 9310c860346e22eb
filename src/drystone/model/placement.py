"""Where granules land in the target: placements, and the combined arrays they make."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drystone.codecs.chain import CodecChain
from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.array import ArraySpec, GroupSpec, dtype_from_json, dtype_to_json
from drystone.model.attributes import Attributes
from drystone.model.recode import Recode

__all__ = ["Combined", "CombinedArray", "Equal", "Picked", "Placements", "Tile"]


@dataclass(frozen=True, slots=True)
class Tile:
    """A place off the lead axis: the part of a granule that is used and where it lands, one entry an axis of the whole.

    The entries of the lead axis are 0 and mean nothing: the placements' columns say them.

    Examples
    --------
    >>> Tile((0, 0, 5), (0, 90, 40), (0, 0, 100)).stop
    (0, 90, 140)
    """

    src_offset: tuple[int, ...]
    count: tuple[int, ...]
    dest: tuple[int, ...]

    @property
    def stop(self) -> tuple[int, ...]:
        """First element after it, per axis of the whole."""
        return tuple(d + c for d, c in zip(self.dest, self.count, strict=True))

    def to_json(self) -> str:
        """Exact JSON."""
        return json.dumps([self.src_offset, self.count, self.dest], separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Tile:
        """Read back what :meth:`to_json` wrote."""
        src_offset, count, dest = json.loads(text)
        return cls(tuple(src_offset), tuple(count), tuple(dest))


@dataclass(frozen=True, slots=True)
class Placements:
    """Where the granules of one array land, as columns sorted by ``tile``, then ``dest``.

    Along one axis, the *lead*, each placement has numbers of its own. Off it, placements share one of a few tiles: one
    that is the whole (most archives), or one for each ensemble member, lead time or column of a mosaic.

    Parameters
    ----------
    axis
        The lead axis, or None for a static array (then one granule a tile stands for all, with 0, 1, 0 in the columns).
    granule_id
        int32 (n,). A granule may be placed more than once.
    src_offset, count, dest
        int64 (n,), in elements along ``axis`` (0, 1, 0 where there is none).
    variant
        int32 (n,): which of the array's ``variants`` each granule has.
    tiles
        The distinct places off the lead axis; empty: one that is whole on every other axis.
    tile
        int32 (n,): which of ``tiles`` each has; empty: the first. Tiles do not overlap where their placements do.

    Examples
    --------
    >>> i, q = (lambda *v: np.array(v, np.int32)), (lambda *v: np.array(v, np.int64))
    >>> p = Placements(0, i(4, 5), q(0, 0), q(31, 28), q(0, 31), i(0, 0))
    >>> len(p), p.overlapping(31, 40), p.is_tiled
    (2, slice(1, 2, None), False)
    """

    axis: int | None
    granule_id: NDArray[np.int32]
    src_offset: NDArray[np.int64]
    count: NDArray[np.int64]
    dest: NDArray[np.int64]
    variant: NDArray[np.int32]
    tiles: tuple[Tile, ...] = ()
    tile: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))

    def __post_init__(self) -> None:
        n = len(self.granule_id)
        if not n == len(self.src_offset) == len(self.count) == len(self.dest) == len(self.variant):
            raise ValueError("placement columns differ in length")
        if len(self.tile) not in (0, n) or (len(self.tiles) > 1 and len(self.tile) != n):
            raise ValueError("the tile of each placement is said, or there is one tile")
        ends = self.dest + self.count
        same = self.tile[1:] == self.tile[:-1] if len(self.tile) else np.ones(max(n - 1, 0), np.bool_)
        if np.any(same & (self.dest[1:] < ends[:-1])) or np.any(np.diff(self.tile) < 0):
            raise ValueError("placements overlap or are not sorted by tile and dest")

    def __len__(self) -> int:
        return len(self.granule_id)

    @property
    def is_tiled(self) -> bool:
        """Whether any placement is not whole off the lead axis."""
        return bool(self.tiles)

    def tile_rows(self, number: int) -> slice:
        """The placements of one tile."""
        if not len(self.tile):
            return slice(0, len(self))
        return slice(int(np.searchsorted(self.tile, number)), int(np.searchsorted(self.tile, number, side="right")))

    def within(self, number: int, start: int, stop: int) -> slice:
        """The placements of one tile that touch elements [start, stop) of the lead axis."""
        rows = self.tile_rows(number)
        if self.axis is None:
            return rows
        dest, count = self.dest[rows], self.count[rows]
        first = int(np.searchsorted(dest + count, start, side="right"))
        last = int(np.searchsorted(dest, stop, side="left"))
        return slice(rows.start + first, rows.start + max(first, last))

    def overlapping(self, start: int, stop: int) -> slice:
        """The placements that touch elements [start, stop) of the lead axis, of an array that is not tiled."""
        if len(self.tiles) > 1:
            raise ValueError("the placements of a tiled array are asked for tile by tile")
        return self.within(0, start, stop)

    def box(self, i: int, shape: tuple[int, ...]) -> Tile:
        """Placement ``i`` in full, the lead axis' numbers among the others'; ``shape`` is the array's."""
        whole = Tile((0,) * len(shape), shape, (0,) * len(shape))
        tile = self.tiles[int(self.tile[i]) if len(self.tile) else 0] if self.tiles else whole
        if self.axis is None:
            return tile
        lead = int(self.src_offset[i]), int(self.count[i]), int(self.dest[i])
        src, count, dest = (
            tuple(n if d == self.axis else v for d, v in enumerate(values))
            for n, values in zip(lead, (tile.src_offset, tile.count, tile.dest), strict=True)
        )
        return Tile(src, count, dest)

    def touching(self, start: tuple[int, ...], stop: tuple[int, ...]) -> NDArray[np.intp]:
        """Rows of the placements that touch a box of the whole."""
        parts = []
        for number in range(max(1, len(self.tiles))):
            if self.tiles and not self._meets(self.tiles[number], start, stop):
                continue
            a, b = (0, 1) if self.axis is None else (start[self.axis], stop[self.axis])
            rows = self.within(number, a, b)
            parts.append(np.arange(rows.start, rows.stop))
        return np.concatenate(parts) if parts else np.zeros(0, np.intp)

    def _meets(self, tile: Tile, start: tuple[int, ...], stop: tuple[int, ...]) -> bool:
        return all(
            d == self.axis or (a < t + n and b > t)
            for d, (a, b, t, n) in enumerate(zip(start, stop, tile.dest, tile.count, strict=True))
        )


@dataclass(frozen=True, slots=True)
class Picked:
    """The places that an array takes of another one, which holds the chunks.

    Parameters
    ----------
    base
        The other array.
    places
        For each axis of ``base`` the places taken, in order; None: all.
    dropped
        Axes of ``base`` that the array lacks: one place is taken of each.
    points
        Axes of ``base`` whose places are walked together and make one axis, where the first of them was.
    """

    base: CombinedArray
    places: tuple[tuple[int, ...] | None, ...]
    dropped: tuple[int, ...] = ()
    points: tuple[int, ...] = ()


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
        The distinct specs of this array among its granules; ``placements.variant`` indexes them. None at all: no granule
        holds the array, it was made from file names or a step, and its values are in :attr:`Combined.coordinates`. A
        variant has the axes of the whole: where granules lack one (``new_axes``) it has size 1 there.
    source
        The array's path within granules; empty: ``path``.
    new_axes
        Axes of the whole that the granules' own array lacks: its chunk coordinates have none, its chunks the same bytes.
    recodes
        For each variant how its numbers become those of the whole, None where they already are; empty: none do.
    picked
        Where not None, what the array takes of another one: it is read through that; ``placements`` then only name the
        granules that it may touch.
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
    source: str = ""
    new_axes: tuple[int, ...] = ()
    recodes: tuple[Recode | None, ...] = ()
    picked: Picked | None = None

    @property
    def inner(self) -> str:
        """The array's path within granules."""
        return self.source or self.path

    @property
    def made(self) -> bool:
        """Whether no granule holds it: its values came from file names or a step."""
        return not self.variants

    def recode(self, variant: int) -> Recode | None:
        """How a variant's numbers become those of the whole; None where they already are."""
        return self.recodes[variant] if self.recodes else None

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

    @property
    def marks_missing(self) -> bool:
        """Whether a place without a granule can be told from data: there is a ``_FillValue``, or NaN."""
        return self._fill_value is not None or self.dtype.kind in "fc"

    @property
    def gap_scalar(self) -> np.ndarray:
        """0-d native array that places without a granule read as: ``_FillValue``, or NaN, else as unwritten cells do."""
        if self._fill_value is not None:
            return self._fill_value
        return np.full((), np.nan, self.dtype) if self.dtype.kind in "fc" else self.fill_scalar

    @property
    def _fill_value(self) -> np.ndarray | None:
        attribute = self.attributes.get("_FillValue")
        value = None if attribute is None else attribute.value
        if isinstance(value, np.ndarray | np.generic) and np.size(value) == 1 and self.dtype.kind in "biufc":
            return np.asarray(value).reshape(()).astype(self.dtype)
        if isinstance(value, str) and self.dtype.kind in "ST":
            return np.asarray(value.encode("latin-1", "replace") if self.dtype.kind == "S" else value).astype(self.dtype)
        return None

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
                "source": self.source,
                "new_axes": self.new_axes,
                "recodes": [None if r is None else r.to_json() for r in self.recodes],
                "picked": None if self.picked is None else _picked_json(self.picked),
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
            d["source"],
            tuple(d["new_axes"]),
            tuple(None if r is None else Recode.from_json(r) for r in d["recodes"]),
            None if d["picked"] is None else _picked_from_json(d["picked"]),
        )


def _picked_json(picked: Picked) -> dict[str, object]:
    p = picked.base.placements
    columns = {n: getattr(p, n).tolist() for n in ("granule_id", "src_offset", "count", "dest", "variant", "tile")}
    return {
        "base": picked.base.to_json(),
        "placements": {**columns, "axis": p.axis, "tiles": [t.to_json() for t in p.tiles]},
        "places": picked.places,
        "dropped": picked.dropped,
        "points": picked.points,
    }


def _picked_from_json(d: dict[str, Any]) -> Picked:
    p = d["placements"]
    ids, variant, tile = (np.array(p[n], np.int32) for n in ("granule_id", "variant", "tile"))
    src, count, dest = (np.array(p[n], np.int64) for n in ("src_offset", "count", "dest"))
    tiles = tuple(Tile.from_json(t) for t in p["tiles"])
    base = CombinedArray.from_json(d["base"], Placements(p["axis"], ids, src, count, dest, variant, tiles, tile))
    places = tuple(None if v is None else tuple(v) for v in d["places"])
    return Picked(base, places, tuple(d["dropped"]), tuple(d["points"]))


@dataclass(frozen=True, slots=True)
class Equal:
    """A promise to prove before values are published: the granules of each group hold equal values of an array.

    Parameters
    ----------
    path
        Of the array within granules.
    granule_id
        int32 (n,).
    group
        int32 (n,): granules with one number stand for each other.
    tolerance
        Largest difference of floating-point values that still counts as equal; 0: bit for bit.
    """

    path: str
    granule_id: NDArray[np.int32]
    group: NDArray[np.int32]
    tolerance: float = 0.0


@dataclass(frozen=True, slots=True)
class Combined:
    """The whole: groups and combined arrays, and the axes they were joined along.

    ``coordinates`` holds decoded values of small arrays that were read at scan time (path to native array), among them
    the combine coordinates of the whole; emitters write these natively. ``equal`` are promises about arrays without a
    joined axis that scans kept no values of. ``axis`` is the first of ``axes``. ``by_era`` is the same whole for outputs
    that hold chunks as they are: arrays whose granules are stored in different ways are groups there, one for each run of
    granules that agree; None where there is nothing to tell apart. ``origins`` are the first values of slot axes, by
    name; ``left_out`` names arrays that are not in it, with the reason.
    """

    groups: tuple[GroupSpec, ...]
    arrays: tuple[CombinedArray, ...]
    axis: str | None
    coordinates: dict[str, np.ndarray] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    axes: tuple[str, ...] = ()
    equal: tuple[Equal, ...] = ()
    by_era: Combined | None = None
    origins: tuple[tuple[str, str], ...] = ()
    left_out: tuple[str, ...] = ()

    def array(self, path: str) -> CombinedArray:
        """One array by path."""
        for a in self.arrays:
            if a.path == path:
                return a
        raise KeyError(path)

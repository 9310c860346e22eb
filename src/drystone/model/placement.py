"""Where granules land in the target: placements, and the combined arrays they make."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from drystone.codecs.chain import CodecChain
from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.array import ArraySpec, GroupSpec, dtype_from_json, dtype_to_json
from drystone.model.attributes import Attributes
from drystone.model.made import AxisRule
from drystone.model.placements import Placements, Tile
from drystone.model.recode import Recode
from drystone.model.rounding import Loss, Rounding

__all__ = ["Combined", "CombinedArray", "Equal", "Picked", "Placements", "Tile", "fits"]


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
    fixed
        Axes of the granules' own array that the whole lacks, ascending, each with the place taken: chunks have one element
        there, and only those of that place count. The variants lack these axes too.
    rounding, loss
        How a store rounds the values that it writes, and how far they may then be from the granules' (other losses included).
        None: not at all. They say nothing of how the array is read, so they are not in its JSON.
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
    fixed: tuple[tuple[int, int], ...] = ()
    rounding: Rounding | None = None
    loss: Loss | None = None

    @property
    def holder(self) -> CombinedArray:
        """The array that granules are placed in: the one that it takes places of, or itself."""
        return self if self.picked is None else self.picked.base

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

    def fills_as(self, variant: ArraySpec) -> bool:
        """Whether a variant's unwritten chunks read as the array's do, both of one stored type; no fill is zeros."""
        size = self.stored_dtype.itemsize
        return (variant.fill or b"").ljust(size, b"\0") == (self.fill or b"").ljust(size, b"\0")

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
            number = np.asarray(value).reshape(())
            if (number.dtype.kind == "c" and self.dtype.kind != "c") or (
                self.dtype.kind in "iu" and not fits(number, self.dtype)
            ):
                return None
            return number.astype(self.dtype)
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
                "fixed": self.fixed,
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
            tuple((axis, place) for axis, place in d["fixed"]),
        )


def _picked_json(picked: Picked) -> str:
    p = picked.base.placements
    columns = {n: getattr(p, n).tolist() for n in ("granule_id", "src_offset", "count", "dest", "variant", "tile")}
    return json.dumps(
        {
            "base": picked.base.to_json(),
            "placements": {**columns, "axis": p.axis, "tiles": [t.to_json() for t in p.tiles]},
            "places": picked.places,
            "dropped": picked.dropped,
            "points": picked.points,
        }
    )


def _picked_from_json(text: str) -> Picked:
    d = json.loads(text)
    p = d["placements"]
    ids, variant, tile = (np.array(p[n], np.int32) for n in ("granule_id", "variant", "tile"))
    src, count, dest = (np.array(p[n], np.int64) for n in ("src_offset", "count", "dest"))
    tiles = tuple(Tile.from_json(t) for t in p["tiles"])
    base = CombinedArray.from_json(d["base"], Placements(p["axis"], ids, src, count, dest, variant, tiles, tile))
    places = tuple(None if v is None else tuple(v) for v in d["places"])
    return Picked(base, places, tuple(d["dropped"]), tuple(d["points"]))


def fits(number: NDArray[np.generic], dtype: np.dtype) -> bool:
    """Whether a number is a whole one that the bits of an integer type can mean, signed or unsigned (``_Unsigned``).

    Examples
    --------
    >>> fits(np.array(255), np.dtype("i1")), fits(np.array(1e20), np.dtype("i2"))
    (True, False)
    """
    value = number[()].item()
    half = 1 << (8 * dtype.itemsize - 1)
    return isinstance(value, int | float) and value == value and -half <= value < 2 * half and value == int(value)


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
        Largest difference of floating-point values that still counts as equal.
    variant
        int32 (n,): which of ``recodes`` each granule's numbers are rewritten by before they are compared.
    recodes
        Empty where stored numbers mean the same in all.
    """

    path: str
    granule_id: NDArray[np.int32]
    group: NDArray[np.int32]
    tolerance: float = 0.0
    variant: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    recodes: tuple[Recode | None, ...] = ()

    def recode(self, i: int) -> Recode | None:
        """How the i-th granule's numbers are rewritten."""
        return self.recodes[int(self.variant[i])] if self.recodes else None


@dataclass(frozen=True, slots=True)
class Combined:
    """The whole: groups and combined arrays, and the axes they were joined along.

    ``coordinates`` holds decoded values of small arrays that were read at scan time (path to native array), among them
    the combine coordinates of the whole; emitters write these natively. ``equal`` are promises about arrays without a
    joined axis that scans kept no values of. ``axis`` is the first of ``axes``. ``by_era`` is the same whole for outputs
    that hold chunks as they are: arrays whose granules are stored in different ways are groups there, one for each run of
    granules that agree; None where there is nothing to tell apart. ``origins`` are the first values of slot axes, by
    name; ``left_out`` names arrays that are not in it, with the reason; ``unmarked`` has, by path, arrays of which places
    that no granule holds would pass for data: only what publishes coverage may hold them. ``rules`` say, by path of a
    coordinate, what the values come from that an order of granules gives it. ``granule_ids`` are those that were joined,
    int32 ascending, without any that hold nothing of what is selected.
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
    unmarked: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, AxisRule] = field(default_factory=dict)
    granule_ids: NDArray[np.int32] | None = field(default=None, compare=False)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know, of eras too."""
        return (self.by_era or self).warnings

    def array(self, path: str) -> CombinedArray:
        """One array by path."""
        for a in self.arrays:
            if a.path == path:
                return a
        raise KeyError(path)

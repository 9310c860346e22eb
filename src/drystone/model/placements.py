"""Where the granules of one array land: columns along one axis, tiles off it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["Placements", "Tile"]


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

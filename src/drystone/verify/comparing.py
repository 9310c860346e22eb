"""Boxes of a published array, compared cell by cell with what granules hold of them.

The witness loads this file by its path, so it imports nothing of drystone's.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from drystone.verify import compare, granules, meaning, picks, pieces, readers, subject
else:
    # the witness's copies beside this one, or the package's
    _here = __name__.removesuffix("comparing")
    compare, granules, meaning, picks, pieces, readers, subject = (
        importlib.import_module(_here + n) for n in ("compare", "granules", "meaning", "picks", "pieces", "readers", "subject")
    )

__all__ = ["Comparison"]


class Comparison:
    """Compares, and counts in the tally of an array.

    Parameters
    ----------
    sources, codings
        The granules, and how their numbers are read.
    names
        Granule id, as text, to path or URL.
    budget
        Bytes of values held at once, where an element allows it.
    advance
        Hears of cells that were compared.
    """

    def __init__(
        self,
        sources: granules.Sources,
        codings: subject.Codings,
        names: Mapping[str, str],
        budget: int,
        advance: Callable[[int], None],
    ) -> None:
        self._sources, self.codings, self._names = sources, codings, names
        self._budget, self.advance = budget, advance

    def box(self, one: subject.Subject, start: tuple[int, ...], stop: tuple[int, ...], published: compare.Array) -> None:
        """Compare a box, of which the published values are given."""
        one.tally.boxes += 1
        budget, size = self._budget, published.dtype.itemsize
        if one.picks is None:
            bare = self._placed_parts(one, start, stop, published)
        else:
            bare = self._picked_parts(one, one.picks, start, stop, published)
        if bare is None:
            return
        for piece in pieces.thin(pieces.Piece(start, stop, None, (0,) * len(start)), budget, size):
            box = _within(piece, start)
            cells = int(bare[box].sum())
            if cells:
                ours = published[box]
                theirs, wrong = self.gap(one, piece, ours)
                self._count(one, subject.Origin.of(piece, one), ours, theirs, wrong & bare[box], cells)

    def _placed_parts(
        self, one: subject.Subject, start: tuple[int, ...], stop: tuple[int, ...], published: compare.Array
    ) -> compare.Array | None:
        """Compare what granules hold of a box; the cells that none does."""
        held = list(one.placed.pieces(start, stop))
        budget, size = self._budget, published.dtype.itemsize
        for piece in (part for whole in held for part in pieces.thin(whole, budget, size)):
            ours = published[_within(piece, start)]
            theirs = self.theirs(one, piece).reshape(ours.shape)
            self._count(one, subject.Origin.of(piece, one), ours, theirs, self._differs(one, piece, ours, theirs), ours.size)
        return pieces.uncovered(start, stop, held)

    def _picked_parts(
        self, one: subject.Subject, chosen: picks.Picks, start: tuple[int, ...], stop: tuple[int, ...], published: compare.Array
    ) -> compare.Array | None:
        """The same of an array that takes places of another one."""
        bare = np.ones(published.shape, bool)
        for part in chosen.parts(one.placed, start, stop, max(1, self._budget // max(1, published.dtype.itemsize))):
            where = part.within(start)
            ours = published[where]
            theirs = self.theirs(one, part.piece)[part.taken()].reshape(ours.shape)
            self._count(
                one, subject.Origin.picked(part, one), ours, theirs, self._differs(one, part.piece, ours, theirs), ours.size
            )
            bare[where] = False
        return bare if bare.any() else None

    def _differs(self, one: subject.Subject, piece: pieces.Piece, ours: compare.Array, theirs: compare.Array) -> compare.Array:
        mine, their = one.published.coding, self.codings.of(one, str(piece.granule))
        loss = one.spec["loss"]
        bound = (0.0, 0.0) if loss is None else (loss["relative"], loss["absolute"])
        if one.spec["meaning"]:
            return meaning.differs(ours, mine, theirs, their, bound)
        wrong = compare.differs(ours, theirs)
        if loss is not None:
            wrong[wrong] = ~meaning.within(ours[wrong], mine, theirs[wrong], their, bound)
        if mine.clock != their.clock and mine.clock is not None and their.clock is not None:
            wrong = wrong | meaning.differs(ours, mine, theirs, their)  # one number, and maybe two dates
        return wrong

    def _count(
        self,
        one: subject.Subject,
        origin: subject.Origin,
        ours: compare.Array,
        theirs: compare.Array,
        wrong: compare.Array,
        cells: int,
    ) -> None:
        tally = one.tally
        tally.cells += cells
        self.advance(cells)
        count = int(wrong.sum())
        tally.mismatches += count
        if count and tally.first is None:
            tally.first = _first(origin, ours, theirs, wrong)

    def theirs(self, one: subject.Subject, piece: pieces.Piece) -> compare.Array:
        """What a granule holds of a piece, in the piece's shape."""
        inner, new = one.spec["inner"], set(one.spec["new_axes"])
        at = [[v - s for v, s in zip(corner, piece.shift, strict=True)] for corner in (piece.start, piece.stop)]
        if any(at[0][d] != 0 or at[1][d] != 1 for d in new):
            raise readers.Unreadable(f"{piece.granule}, {inner}: it has one place on a new axis, {at[0]} to {at[1]} was placed")
        own = [subject.own_places(one.spec, corner, extent) for extent, corner in enumerate(at)]
        shape = tuple(b - a for a, b in zip(*own, strict=True))
        values = compare.native(self._sources.read(str(piece.granule), inner, own[0], own[1]))
        if values.shape != shape:
            raise readers.Unreadable(f"{piece.granule}, {inner}: read {values.shape} where {shape} was asked for")
        return values.reshape([b - a for a, b in zip(piece.start, piece.stop, strict=True)])

    def gap(self, one: subject.Subject, piece: pieces.Piece, ours: compare.Array) -> tuple[compare.Array, compare.Array]:
        """What cells that no granule covers must read as, and where they do not."""
        spec = one.spec
        theirs = _gap(spec["fill"], ours, spec["dtype"])
        if not spec["meaning"]:
            return theirs, compare.differs(ours, theirs)
        if spec["gap_missing"]:
            return theirs, ~meaning.missing(ours, one.published.coding)
        if theirs.dtype == ours.dtype:
            return theirs, compare.differs(ours, theirs)
        first = self.codings.of(one, self._names[str(spec["firsts"][0])])
        return theirs, meaning.differs(ours, one.published.coding, theirs, first)


def _within(piece: pieces.Piece, start: tuple[int, ...]) -> Any:  # noqa: ANN401  an index of NumPy's
    """The piece in an array that begins at ``start``; the Ellipsis keeps an array where a scalar would come out."""
    return (*(slice(a - s, b - s) for a, b, s in zip(piece.start, piece.stop, start, strict=True)), ...)


def _gap(fill: str | None, like: compare.Array, dtype: str | None) -> compare.Array:
    """The value of a gap in the shape of what was published; ``dtype`` is that of ``fill`` where it is a number."""
    if like.dtype.kind == "O":
        out = np.empty(like.shape, object)
        out.reshape(-1)[:] = [bytes.fromhex(fill or "")] * like.size
        return out
    kind = like.dtype if dtype is None else np.dtype(dtype)
    data = bytes.fromhex(fill) if fill else bytes(kind.itemsize)
    if len(data) != kind.itemsize:
        raise compare.Incomparable(f"published as {like.dtype}, and the fill value has {len(data)} bytes")
    return np.broadcast_to(np.frombuffer(data, kind, 1).reshape((1,) * like.ndim), like.shape)


def _first(origin: subject.Origin, ours: compare.Array, theirs: compare.Array, wrong: compare.Array) -> dict[str, Any]:
    local = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape)) if wrong.ndim else ()
    return {
        "index": origin.index(local),
        "published": compare.show(ours[local]),
        "source": compare.show(theirs[local]),
        "granule": origin.granule,
        "source_index": None if origin.granule is None else origin.source(local),
    }

"""Whole arrays compared by digests, each side read once, in the order in which it is stored.

The witness loads this file by its path, so it imports nothing of drystone's.

The published array is read slab by slab of its own chunks, granules one after the other, and each side adds up a digest for
each step of the combine axis. Steps whose digests differ are compared cell by cell afterwards, so that a fault is named as
it always is. What was digested while the store was written, where there is such a record, must agree as well.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from drystone.grid import digest
    from drystone.verify import boxes, compare, comparing, pieces, subject
else:
    # the witness's copies beside this one, or the package's
    _here = __name__.removesuffix("digesting")
    boxes, compare, pieces, subject = (importlib.import_module(_here + n) for n in ("boxes", "compare", "pieces", "subject"))
    digest = importlib.import_module(_here.replace("drystone.verify.", "drystone.grid.") + "digest")

__all__ = ["Digested", "by_digest", "digested", "doubtful"]

type _Words = np.ndarray[Any, np.dtype[np.uint64]]

_RUNS = 8  # of steps that differ: so many are looked at again


@dataclass
class Digested:
    """Digests of an array's steps, uint64, of both sides."""

    axis: int
    published: _Words
    source: _Words

    def total(self, dims: list[str]) -> str:
        """One number of the published side, as sixteen digits."""
        return f"{digest.combined(self.published, dims[self.axis]):016x}"


def by_digest(one: subject.Subject, dtype: np.dtype[Any]) -> bool:
    """Whether an array's stored bits tell all: numbers, of granules coded as it is, on axes with names of their own."""
    spec = one.spec
    dims = spec["dims"]
    return (
        one.picks is None
        and not spec["meaning"]
        and spec["loss"] is None
        and one.published.coding.clock is None
        and 0 < len(dims) == len(set(dims))
        and digest.digestible(dtype)
    )


def digested(
    values: Iterable[tuple[pieces.Index, pieces.Index, compare.Array]],
    comparison: comparing.Comparison,
    one: subject.Subject,
    layout: boxes.Layout,
    budget: int,
) -> Digested:
    """Digest both sides of an array.

    Parameters
    ----------
    values
        Boxes that tile the published array, with their values.
    comparison
        Reads granules, and says what cells without one are.
    one, layout
        The array.
    budget
        Bytes of a granule's values held at once.
    """
    dims, axis = one.spec["dims"], layout.axis or 0
    sums = Digested(axis, *(np.zeros(layout.shape[axis], np.uint64) for _ in range(2)))

    def add(out: _Words, start: pieces.Index, part: compare.Array, where: compare.Array | None = None) -> None:
        out[start[axis] : start[axis] + part.shape[axis]] += digest.step_digests(part, start, dims, axis, where)

    like: compare.Array | None = None
    for start, _, part in values:
        add(sums.published, start, part)
        like = part
        one.tally.boxes += 1
        comparison.advance(part.size)
    if like is None:  # no element
        return sums
    for whole in one.placed.all(layout.shape):
        comparison.codings.of(one, str(whole.granule))
        for piece in pieces.thin(whole, budget, like.dtype.itemsize):
            theirs = comparison.theirs(one, piece)
            compare.one_type(like, theirs)
            add(sums.source, piece.start, theirs)
    for start, stop in boxes.slabs(layout, budget):
        bare = pieces.uncovered(start, stop, one.placed.pieces(start, stop))
        if bare is not None:
            nothing = np.broadcast_to(np.zeros((1,) * bare.ndim, like.dtype), bare.shape)
            gap, _ = comparison.gap(one, pieces.Piece(start, stop, None, (0,) * len(start)), nothing)
            compare.one_type(like, gap)
            add(sums.source, start, gap, bare)
    return sums


def doubtful(sums: Digested, one: subject.Subject, shape: pieces.Index) -> list[boxes.Box]:
    """Boxes to compare cell by cell: runs of steps whose digests differ."""
    name, wrong = one.spec["dims"][sums.axis], np.flatnonzero(sums.published != sums.source)
    if one.spec["written"] is not None:
        _heard(sums, np.load(one.spec["written"], allow_pickle=False), one, wrong)
    runs = np.split(wrong, np.flatnonzero(np.diff(wrong) > 1) + 1) if len(wrong) else []
    if len(runs) > _RUNS:
        one.problem(f"{len(wrong)} steps along {name} differ, in {len(runs)} runs, of which {_RUNS} were compared by cells")
    out = []
    for run in runs[:_RUNS]:
        start, stop = [0] * len(shape), list(shape)
        start[sums.axis], stop[sums.axis] = int(run[0]), int(run[-1]) + 1
        out.append((tuple(start), tuple(stop)))
    return out


def _heard(sums: Digested, written: _Words, one: subject.Subject, wrong: np.ndarray[Any, np.dtype[np.intp]]) -> None:
    """What the record of what was written says: on which side it is where they differ, or that it is on neither."""
    name = one.spec["dims"][sums.axis]
    if len(wrong):
        right = written[wrong] == sums.source[wrong]
        if right.all():
            when = "after they were read: the writer had the granules' values, so the store was damaged by then or since"
        elif not right.any():
            when = "before they were written: the writer had other values than the granules'"
        else:
            when = f"after they were read at {int(right.sum())} of these steps, before they were written at the others"
        one.problem(f"{len(wrong)} steps along {name} differ, the first {int(wrong[0])}; their values went wrong {when}")
        return
    other = np.flatnonzero(written != sums.published)
    if len(other):
        one.problem(
            f"{len(other)} steps along {name} (the first: {int(other[0])}) have other digests in the record of what was "
            "written than in the published array and the granules, which agree: was the store replaced?"
        )

"""What reads of a source cost, from the rows of the table: what is missing costs nothing.

Rows are gone through once, in batches. The chance that a read touches a chunk is exact, so means of chunks and bytes are;
requests depend on which neighbours are touched with it, and are counted at some positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from drystone.model.chunk_rows import RowBatch, State
from drystone.model.placement import CombinedArray
from drystone.plan.occupied import OccupiedBuilder
from drystone.plan.reach import AxisRead, sample
from drystone.plan.stored import Boxes, Locator, written

__all__ = ["SourceReads", "placed_chances", "tally"]

_POSITIONS = 16
_SPAN = 16 << 20  # the most that the fetcher reads in one request


@dataclass(slots=True)
class SourceReads:
    """Sums over rows of one pattern."""

    reads: Sequence[AxisRead]
    stored: float = 0.0
    requests: float = 0.0
    fetched: float = 0.0
    decoded: float = 0.0
    starts: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.starts = sample(self.reads, _POSITIONS)

    def add(self, batch: RowBatch, boxes: Boxes, gap: int) -> None:
        """Count the stored chunks of a batch."""
        chance = np.ones(len(boxes.row))
        for read, start, stop in zip(self.reads, boxes.start, boxes.stop, strict=True):
            chance *= read.chance(start, stop)
        self.stored += float(chance.sum())
        self.fetched += float((chance * batch.length[boxes.row] * (batch.state[boxes.row] == State.REFERENCED)).sum())
        self.decoded += float((chance * boxes.decoded).sum())
        sizes = np.array([r.size for r in self.reads], np.int64)
        for at in self.starts:
            ends = at + sizes
            near = ((ends > boxes.start.T) & (at < boxes.stop.T)).all(axis=1)
            self.requests += _requests(batch, np.unique(boxes.row[near]), gap) / len(self.starts)


def _requests(batch: RowBatch, row: NDArray[np.intp], gap: int) -> int:
    """Ranges that the fetcher reads for some rows: neighbours within a granule are read together."""
    row = row[batch.state[row] == State.REFERENCED]
    if not len(row):
        return 0
    row = row[np.lexsort((batch.offset[row], batch.granule_id[row]))]
    offset, length, granule = batch.offset[row], batch.length[row], batch.granule_id[row]
    first = np.r_[True, (np.diff(granule) != 0) | (offset[1:] > (offset + length)[:-1] + gap)]
    edges = np.append(np.flatnonzero(first), len(row))
    spans = (offset + length)[edges[1:] - 1] - offset[edges[:-1]]
    return int((1 + np.maximum(spans - 1, 0) // _SPAN).sum())


def tally(
    array: CombinedArray,
    batches: Iterable[RowBatch],
    patterns: Sequence[Sequence[AxisRead]],
    gap: int,
    target: OccupiedBuilder | None,
) -> list[SourceReads]:
    """Go through the rows of an array: costs of each pattern, and which target chunks they make.

    Parameters
    ----------
    batches
        Of the granules that the array is placed from.
    gap
        Bytes between two ranges that are read along with them.
    target
        Marked with every stored chunk; None: no other grid is planned.
    """
    locator, out = Locator(array), [SourceReads(reads) for reads in patterns]
    for rows in batches:
        batch = rows.at(array.fixed)
        boxes = locator.of(batch)
        kept = written(batch)[boxes.row]
        there = Boxes(boxes.start[:, kept], boxes.stop[:, kept], boxes.row[kept], boxes.decoded[kept], boxes.variant[kept])
        if target is not None:
            target.add(there.start, there.stop)
        for reads in out:
            reads.add(batch, there, gap)
    return out


def placed_chances(array: CombinedArray, reads: Sequence[AxisRead]) -> float:
    """Mean of the chunks of granules that a read touches, whether they are stored or not."""
    p, total = array.placements, 0.0
    for number in range(max(1, len(p.tiles))):
        part = p.tile_rows(number)
        for variant in np.unique(p.variant[part]).tolist():
            mine = np.arange(part.start, part.stop)[p.variant[part] == variant]
            mine = mine[:1] if p.axis is None else mine[p.count[mine] > 0]
            if not len(mine):
                continue
            box, edges = p.box(int(mine[0]), array.shape), array.variants[variant].chunk_shape
            product = 1.0
            for axis, read in enumerate(reads):
                lead = axis == p.axis
                source = p.src_offset[mine] if lead else np.array([box.src_offset[axis]])
                count = p.count[mine] if lead else np.array([box.count[axis]])
                dest = p.dest[mine] if lead else np.array([box.dest[axis]])
                product *= _along(read, source, count, dest, edges[axis])
            total += product
    return total


def _along(read: AxisRead, source: NDArray[np.int64], count: NDArray[np.int64], dest: NDArray[np.int64], edge: int) -> float:
    """Mean of the chunks along one axis that runs of elements are taken from."""
    first = source // edge
    n = np.where(count > 0, (source + count - 1) // edge - first + 1, 0)
    which = np.repeat(np.arange(len(n)), n)
    chunk = first[which] + np.arange(len(which)) - np.repeat(np.cumsum(n) - n, n)
    start = np.maximum(chunk * edge, source[which]) + (dest - source)[which]
    stop = np.minimum((chunk + 1) * edge, (source + count)[which]) + (dest - source)[which]
    return float(read.chance(start, stop).sum())

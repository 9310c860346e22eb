"""What a way of writing an array does, in counts and bytes, for :func:`drystone.plan.predict.predict`.

A way of several passes is one :class:`~drystone.plan.predict.Work` each; :func:`works_of` is the place where a new way says
what it does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from drystone.codecs.chain import CodecChain
from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.placement import CombinedArray
from drystone.model.rates import CodecUse
from drystone.model.recode import Recode
from drystone.plan.candidates import Candidate
from drystone.plan.costs import decoded_cells, granule_grid
from drystone.plan.layout import TargetLayout
from drystone.plan.predict import Coded, Work, decode_uses, encode_uses, recode_uses, round_use
from drystone.plan.regions import largest, most, overlaps
from drystone.plan.shards import TaskPlan
from drystone.plan.shuffle import Shuffle

__all__ = ["Ends", "copy_work", "works_of"]

_COPY_STREAMS = 2  # write cells that a copying task has on their way


@dataclass(frozen=True, slots=True)
class Ends:
    """What predicting needs beside a way.

    Parameters
    ----------
    source, target
        Keys of the places that are read and written.
    encoded
        Bytes of all source chunks.
    slots
        Tasks of the array that run at once.
    between
        Key of the place of what lies between two passes.
    """

    source: str
    target: str
    encoded: int
    slots: int
    between: str = ""


def works_of(way: Candidate, array: CombinedArray, layout: TargetLayout, ends: Ends) -> tuple[Work, ...]:
    """The passes of a way that decodes and encodes."""
    if way.shuffle is not None:
        return _through(way, way.shuffle, array, layout, ends)
    sources = _sources(array)
    cells = decoded_cells(array.grid)  # padding included
    itemsize = sum(part * spec.itemsize for part, spec in sources)
    whole = cells * array.grid.n_chunks * itemsize
    share = min(1.0, ends.encoded / whole) if whole and ends.encoded else 1.0
    elements = cells * way.chunk_reads
    raw = math.prod(layout.shape) * layout.dtype.itemsize
    region = [min(largest(d), max(d.extent, 1)) for d in way.regions.dimensions]
    if way.stream is not None:
        region[way.stream[0]] = min(region[way.stream[0]], way.stream[1])
    source = [largest(d) for d in array.grid.dimensions]
    target_share = share if layout.codecs.compressed else 1.0
    moved: list[tuple[float, float]] = [(raw, _row(layout.chunk, region) * layout.dtype.itemsize)]
    left = sum(part for part, spec in sources if not spec.placed)
    if left:
        box = [min(a, b) for a, b in zip(source, region, strict=True)]
        moved.append(
            (elements * left * layout.dtype.itemsize, min(_row(box, source), _row(box, region)) * layout.dtype.itemsize)
        )
    work = Work(
        ends.source,
        ends.target,
        way.n_tasks,
        _busiest(way.regions, ends.slots),
        _granules(array, way.regions),
        way.chunk_reads,
        ends.encoded * way.amplification,
        tuple(c for part, spec in sources for c in spec.coded(elements * part, share, way.chunk_reads * part)),
        tuple(moved),
        tuple(
            Coded(use, raw, target_share, layout.chunk_grid.n_chunks)
            for use in (*round_use(layout.rounding, layout.dtype.itemsize), *encode_uses(layout.codecs))
        ),
        layout.chunk_grid.n_chunks,
        layout.n_cells,
        raw * target_share,
        fresh=way.held * layout.dtype.itemsize * (1 if way.stream is None else 2) * min(ends.slots, way.n_tasks),
        checked=raw * target_share,
        how="whole" if way.stream is None else "streamed",
    )
    return (work,)


def _through(way: Candidate, shuffle: Shuffle, array: CombinedArray, layout: TargetLayout, ends: Ends) -> tuple[Work, ...]:
    """Two passes, each as one that reads or writes what lies in between."""
    (first,) = works_of(replace(way, regions=shuffle.sources, stream=None, shuffle=None), array, layout, ends)
    (second,) = works_of(replace(way, shuffle=None), array, layout, ends)
    raw = math.prod(layout.shape) * layout.dtype.itemsize
    blocks = shuffle.n_pieces + raw / shuffle.block
    # lz4 made 1.03 to 1.45 times the bytes that zlib and zstd made of four fields, packed and plain
    share = min(1.0, 1.2 * max((c.share for c in first.decoded), default=1.0))
    lz4 = Coded(CodecUse("blosc-lz4-shuffle", 1, layout.dtype.itemsize), raw, share, blocks)
    piece = [min(largest(a), largest(b)) for a, b in zip(shuffle.sources.dimensions, shuffle.boxes.dimensions, strict=True)]
    cut, put = (
        (raw, _row(piece, [largest(d) for d in grid.dimensions]) * layout.dtype.itemsize)
        for grid in (shuffle.sources, shuffle.boxes)
    )
    first = replace(
        first,
        target=ends.between,
        moved=(*first.moved[1:], cut),
        encoded=(lz4,),
        written_chunks=blocks,
        objects=shuffle.n_sources,
        written=raw * share,
        checked=2 * raw * share,
    )
    second = replace(
        second,
        source=ends.between,
        granules=shuffle.n_pieces,
        chunks=blocks,
        fetched=raw * share,
        decoded=(replace(lz4, use=replace(lz4.use, level=0)),),
        moved=(second.moved[0], put),
        checked=raw * share,
    )
    return first, second


def copy_work(tasks: TaskPlan, array: CombinedArray, layout: TargetLayout, ends: Ends) -> Work:
    """What copying encoded chunks does: summed as they are read, and again as they lie in the store."""
    return Work(
        ends.source,
        ends.target,
        tasks.n_tasks,
        _busiest(tasks.regions, ends.slots),
        _granules(array, layout.cells),
        tasks.chunk_reads,
        ends.encoded,
        (),
        (),
        (),
        0,
        layout.n_cells,
        ends.encoded,
        checked=2 * ends.encoded,
        reread=ends.encoded,
        how="copied",
        streams=_COPY_STREAMS,
    )


def _busiest(regions: ChunkGrid, slots: int) -> float:
    """The work of the slot that has most, in shares of an even one; no more than when each task goes to the first free slot."""
    total, n = math.prod(regions.shape), regions.n_chunks
    if not total or not n:
        return 1.0
    size = most(regions.dimensions)
    even = total / slots
    return max(1.0, min(-(-n // slots) * size, even + size * (1 - 1 / slots)) / even)


def _granules(array: CombinedArray, regions: ChunkGrid) -> float:
    """Granules opened, over all regions."""
    grid = granule_grid(array)
    return math.prod(overlaps(d, r) for d, r in zip(grid.dimensions, regions.dimensions, strict=True))


def _row(box: Sequence[int], whole: Sequence[int]) -> int:
    """Elements of a box that lie one after the other in a C-ordered whole."""
    run = 1
    for n, size in zip(reversed(box), reversed(whole), strict=True):
        run *= min(n, size)
        if n < size:
            break
    return run


@dataclass(frozen=True, slots=True)
class _Source:
    """How some of an array's chunks are stored, and what their numbers go through."""

    codecs: CodecChain
    dtype: np.dtype
    recode: Recode | None

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def placed(self) -> bool:
        """Whether undoing the shuffle writes values where they belong, so that nothing is moved after it."""
        first = self.codecs.filters[0] if self.codecs.filters else None
        shuffled = first is not None and first.name == "shuffle" and first.int_of("elementsize", 1) == 2 == self.itemsize
        return shuffled and self.recode is None

    def coded(self, elements: float, share: float, calls: float) -> list[Coded]:
        """Of so many elements."""
        found = [Coded(use, elements * self.itemsize, share, calls) for use in decode_uses(self.codecs)]
        return found + [Coded(use, elements * use.itemsize, 1.0) for use in recode_uses(self.recode, self.dtype)]


def _sources(array: CombinedArray) -> list[tuple[float, _Source]]:
    """(part of the array, how it is stored): as its granules are, by how many of them there are."""
    if not array.variants or not len(array.placements):
        return [(1.0, _Source(array.codecs, array.dtype, None))]
    used, rows = np.unique(array.placements.variant, return_counts=True)
    found = []
    for variant, n in zip(used.tolist(), rows.tolist(), strict=True):
        spec = array.variants[variant]
        found.append((n / len(array.placements), _Source(spec.codecs, spec.dtype, array.recode(variant))))
    return found

"""Tasks partition the array on write-cell edges, fit their memory, and count their reads rightly, for any grids."""

from __future__ import annotations

import json
import math

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

from drystone.codecs.chain import Codec, CodecChain
from drystone.errors import PlanError
from drystone.grid.alignment import prove_aligned
from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import DimensionGrid, RectilinearDimension, RegularDimension
from drystone.model.attributes import Attributes
from drystone.model.options import OutputOptions
from drystone.model.placement import CombinedArray, Placements
from drystone.plan.chunking import target_layout
from drystone.plan.layout import TargetLayout
from drystone.plan.shards import TaskPlan, weigh
from drystone.plan.shuffle import Shuffle
from drystone.rechunk.streaming import steps_of

type Box = tuple[tuple[int, ...], tuple[int, ...]]

CHAIN = CodecChain.of("bytes", Codec.of("zlib", level=1))


@st.composite
def arrays(draw: st.DrawFn) -> CombinedArray:
    rank = draw(st.integers(0, 3))
    dims: list[DimensionGrid] = []
    for _ in range(rank):
        if draw(st.booleans()):
            dims.append(RegularDimension(draw(st.integers(1, 40)), draw(st.integers(1, 50))))
        else:
            dims.append(RectilinearDimension(tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=8)))))
    grid = ChunkGrid(tuple(dims))
    t = np.dtype(draw(st.sampled_from(["u1", "i2", "f4", "f8", "c16"])))
    one = np.zeros(1, np.int64)
    where = Placements(None, one.astype("i4"), one, one + 1, one, one.astype("i4"))
    names = tuple("abc"[:rank])
    return CombinedArray("/v", names, grid.shape, t, t, None, CHAIN, Attributes(), grid, None, where, ())


@st.composite
def layouts(draw: st.DrawFn, array: CombinedArray) -> TargetLayout:
    chunk = tuple(draw(st.integers(1, n + 3)) for n in array.shape)
    sharded = draw(st.booleans())
    shard = tuple(c * draw(st.integers(1, 4)) for c in chunk) if sharded else None
    fill = bytes(array.dtype.itemsize)
    if sharded or not draw(st.booleans()):
        return TargetLayout("/v", array.dims, array.shape, array.dtype, chunk, shard, CodecChain.of("bytes"), fill)
    cuts = [sorted({0, n, *draw(st.lists(st.integers(0, n), max_size=5))}) for n in array.shape]
    sizes = tuple(tuple(np.diff(c).tolist()) if draw(st.booleans()) and c[-1] else None for c in cuts)
    chunk = tuple(c if e is None else max(e) for c, e in zip(chunk, sizes, strict=True))
    codecs = CodecChain.of("bytes")
    return TargetLayout("/v", array.dims, array.shape, array.dtype, chunk, None, codecs, fill, sizes=sizes)


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_tasks(data: st.DataObject) -> None:
    array = data.draw(arrays())
    layout = data.draw(layouts(array))
    memory = data.draw(st.integers(20_000, 10_000_000) | st.integers(20_000, 60_000))
    slots = data.draw(st.integers(1, 5))
    only = data.draw(st.sampled_from([None, "one pass", "two passes"]))
    try:
        plan = weigh(array, layout, memory, slots=slots, in_flight=10_000, only=only).plan
    except PlanError as error:
        needed = int(error.facts["needed"] or 0)
        assert needed > memory
        plan = weigh(array, layout, needed, slots=slots, in_flight=10_000, only=only).plan  # what it says would do does
        memory = needed
    assert plan.memory <= memory
    bounds = [plan.bounds(i) for i in range(plan.n_regions)]
    rank = len(array.shape)
    starts = np.array([a for a, _ in bounds], np.int64).reshape(len(bounds), rank)
    stops = np.array([b for _, b in bounds], np.int64).reshape(len(bounds), rank)
    prove_aligned(starts, stops, layout.cells)
    assert TaskPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    cells = [c for i in range(plan.n_tasks) for c in plan.cells(i)]
    assert len(cells) == len(set(cells)) == plan.n_cells
    if plan.stream is not None:
        axis, _ = plan.stream
        event("streamed")
        assert plan.regions == layout.cells
        assert all(n == 1 for n in layout.inner_grid[:axis])
        bounds = [box for a, b in bounds for box in steps_of(a, b, plan.stream)]
        if plan.shuffle is not None:  # the order of the grid, since boxes of the first pass name them by number
            bounds.sort()
    if plan.shuffle is not None:
        boxes, bounds = bounds, [plan.bounds(i) for i in range(plan.n_regions, plan.n_tasks)]
        check_shuffle(plan.shuffle, plan, boxes, bounds)
    assert plan.chunk_reads == sum(_touched(array.grid, a, b) for a, b in bounds)


def check_shuffle(shuffle: Shuffle, plan: TaskPlan, boxes: list[Box], sources: list[Box]) -> None:
    """Pieces are what the boxes of both passes share; groups and readers are as they are by looking at all pairs."""
    event("two passes")
    shared = {
        (i, j): (np.maximum(a, c), np.minimum(b, d)) for i, (a, b) in enumerate(sources) for j, (c, d) in enumerate(boxes)
    }
    shared = {pair: (low, high) for pair, (low, high) in shared.items() if (low < high).all()}
    pieces = {(i, j): (np.array(a), np.array(b)) for i in range(len(sources)) for j, a, b in shuffle.pieces(i)}
    assert pieces.keys() == shared.keys()
    assert all(np.array_equal(pieces[k], shared[k]) for k in pieces)
    assert shuffle.n_pieces == len(pieces)
    regions = [plan.bounds(i) for i in range(plan.n_regions)]
    readers = {
        (i, r)
        for i, (a, b) in enumerate(sources)
        for r, (c, d) in enumerate(regions)
        if (np.maximum(a, c) < np.minimum(b, d)).all()
    }
    done = np.arange(plan.n_regions) % 3 == 0
    left = shuffle.readers_left(plan.regions, done.reshape(plan.regions.grid_shape)).reshape(-1)
    assert left.tolist() == [sum((i, r) in readers and not done[r] for r in range(len(regions))) for i in range(len(sources))]
    for i, r in readers:
        group = [
            [d.index_to_chunk(x) for d, x in zip(shuffle.groups.dimensions, box[0], strict=True)]
            for box in (sources[i], regions[r])
        ]
        assert group[0] == group[1]


def _touched(grid: ChunkGrid, start: tuple[int, ...], stop: tuple[int, ...]) -> int:
    return math.prod(
        d.index_to_chunk(b - 1) - d.index_to_chunk(a) + 1 for d, a, b in zip(grid.dimensions, start, stop, strict=True)
    )


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_defaults_make_a_layout_of_any_array(data: st.DataObject) -> None:
    array = data.draw(arrays())
    chunks = {n: data.draw(st.integers(1, 60) | st.just("all")) for n in array.dims if data.draw(st.booleans())}
    if data.draw(st.booleans()):
        chunks["*"] = f"{data.draw(st.integers(1, 4000))} B"
    layout = target_layout(array, OutputOptions("store", "zarr", "o:x", chunks=chunks, shards={"*": "2 kB"}))
    for name, edge in chunks.items():
        if name != "*":
            axis = array.dims.index(name)
            assert layout.chunk[axis] == (array.shape[axis] if edge == "all" else edge)
    assert TargetLayout.from_json(layout.to_json()) == layout

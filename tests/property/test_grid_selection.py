"""Any selection over any grid: the operations assemble to what NumPy gives, and are those of zarr-indexing."""

from __future__ import annotations

import math

import numpy as np
import zarr_indexing as zi
from hypothesis import given, settings
from hypothesis import strategies as st

from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import DimensionGrid, RectilinearDimension, RegularDimension
from drystone.grid.operations import ChunkOperations, IndexedSet, StridedSet, plan_box, plan_selection
from drystone.grid.selection import Indexed, normalise
from drystone.grid.shards import ShardGrid, plan_shard_selection


@st.composite
def dimensions(draw: st.DrawFn, smallest: int = 0) -> DimensionGrid:
    if draw(st.booleans()):
        return RegularDimension(draw(st.integers(smallest, 17)), draw(st.integers(1, 20)))
    sizes = tuple(draw(st.lists(st.integers(1, 6), min_size=min(smallest, 1), max_size=6)))
    encoded = tuple(s + draw(st.integers(0, 3)) for s in sizes) if draw(st.booleans()) else None
    return RectilinearDimension(sizes, encoded)


def grids(max_rank: int = 3, smallest: int = 0) -> st.SearchStrategy[ChunkGrid]:
    return st.lists(dimensions(smallest), max_size=max_rank).map(lambda d: ChunkGrid(tuple(d)))


def slices(extent: int) -> st.SearchStrategy[slice]:
    bound = st.none() | st.integers(-extent - 3, extent + 3)
    return st.builds(slice, bound, bound, st.none() | st.integers(-9, 9).filter(bool))


@st.composite
def selections(draw: st.DrawFn, shape: tuple[int, ...], arrays: bool = True) -> tuple[object, ...]:
    out: list[object] = []
    for n in shape:
        kinds = ["slice"] + (["int"] if n else []) + (["array", "mask"] if arrays else [])
        kind = draw(st.sampled_from(kinds))
        if kind == "int":
            out.append(draw(st.integers(-n, n - 1)))
        elif kind == "slice":
            out.append(draw(slices(n)))
        elif kind == "mask":
            out.append(np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool))
        else:
            out.append(np.array(draw(st.lists(st.integers(-n, n - 1), max_size=8) if n else st.just([])), np.int64))
    if shape and draw(st.booleans()):
        # an Ellipsis may stand for a run of axes, or for none
        a = draw(st.integers(0, len(shape)))
        b = draw(st.integers(a, len(shape)))
        out[a:b] = [Ellipsis]
    return tuple(out)


def orthogonal(a: np.ndarray, selection: tuple[object, ...]) -> np.ndarray:
    """NumPy's answer, one axis at a time."""
    if Ellipsis in [e for e in selection if not isinstance(e, np.ndarray)]:
        at = next(i for i, e in enumerate(selection) if e is Ellipsis)
        selection = (*selection[:at], *[slice(None)] * (a.ndim - len(selection) + 1), *selection[at + 1 :])
    for axis in reversed(range(len(selection))):
        a = a[(slice(None),) * axis + (selection[axis],)]
    return a


def chunk_of(a: np.ndarray, grid: ChunkGrid, coords: tuple[int, ...]) -> np.ndarray:
    starts = [d.chunk_offset(c) for d, c in zip(grid.dimensions, coords, strict=True)]
    return a[tuple(slice(s, s + n) for s, n in zip(starts, grid.data_shape(coords), strict=True))]


def assemble(a: np.ndarray, grid: ChunkGrid, ops: ChunkOperations) -> np.ndarray:
    out = np.full(ops.kept_shape, -1, a.dtype)
    for op in ops:
        assert (out[op.out_selection] == -1).all(), "two operations write one cell"
        out[op.out_selection] = chunk_of(a, grid, op.chunk_coords)[op.chunk_selection]
    return out.reshape(ops.out_shape)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_operations_assemble_to_numpys_selection(data: st.DataObject) -> None:
    grid = data.draw(grids())
    selection = data.draw(selections(grid.shape))
    a = np.arange(math.prod(grid.shape)).reshape(grid.shape)
    ops = plan_selection(selection, grid)
    want = orthogonal(a, selection)
    got = assemble(a, grid, ops)
    assert got.shape == want.shape
    np.testing.assert_array_equal(got, want)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_columns_say_what_operations_say(data: st.DataObject) -> None:
    grid = data.draw(grids())
    selection = data.draw(selections(grid.shape))
    a = np.arange(math.prod(grid.shape)).reshape(grid.shape)
    ops = plan_selection(selection, grid)
    listed = list(ops)
    assert len(listed) == len(ops)
    assert [o.chunk_coords for o in listed] == [tuple(c) for c in ops.coords.T.tolist()]
    assert [o.coverage == "full" for o in listed] == ops.full.tolist()
    assert ops.linear(grid.grid_shape).tolist() == [
        int(np.ravel_multi_index(o.chunk_coords, grid.grid_shape)) if grid.shape else 0 for o in listed
    ]
    for i, op in enumerate(listed):
        chunk = chunk_of(a, grid, op.chunk_coords)
        chosen = chunk[op.chunk_selection]
        # full means: every element of the chunk, each exactly once
        assert (op.coverage == "full") == (sorted(chosen.ravel().tolist()) == sorted(chunk.ravel().tolist()))
        assert chosen.shape == tuple(ops.extents[:, i].tolist())
        if ops.strided:
            assert tuple(ops.local_start[:, i].tolist()) == tuple(s.start for s in op.chunk_selection)
            assert tuple(ops.origin[:, i].tolist()) == tuple(s.start for s in op.out_selection)


def transform_of(selection: tuple[object, ...], shape: tuple[int, ...]) -> zi.IndexTransform:
    axes = normalise(selection, shape)
    transform = zi.IndexTransform.from_shape(shape)
    entries: list[object] = []
    for axis in axes:
        if isinstance(axis, Indexed):
            entries.append(axis.indices)
        elif axis.dropped:
            entries.append(axis.start)
        else:
            stop = axis.start + axis.step * (axis.count - 1) + (1 if axis.step > 0 else -1) if axis.count else axis.start
            entries.append(slice(axis.start, None if stop < 0 else stop, axis.step))
    return transform.oindex[tuple(entries)] if entries else transform


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_tables_are_those_of_zarr_indexing(data: st.DataObject) -> None:
    grid = data.draw(grids(smallest=1))
    selection = data.draw(selections(grid.shape))
    ops = plan_selection(selection, grid)
    theirs = zi.plan_chunks(transform_of(selection, grid.shape), grid.dimensions)
    projections = list(theirs.projections())
    ours = list(ops)
    assert sorted(p.chunk_coords for p in projections) == sorted(o.chunk_coords for o in ours)
    coverage = {p.chunk_coords: p.coverage for p in projections}
    for op in ours:
        assert coverage[op.chunk_coords] in (op.coverage, "unknown")
    if not len(ops):
        return  # an empty request has no tables there
    # an index array of one element becomes a constant there: another table for the same chunks
    by_axis = {s.output_dimension: s for s in theirs.partition().sets}
    for axis, mine in enumerate(ops.sets):
        other = by_axis[axis]
        np.testing.assert_array_equal(mine.chunk, other.chunk)
        np.testing.assert_array_equal(mine.chunk_start, other.chunk_start)
        np.testing.assert_array_equal(mine.chunk_extent, other.chunk_extent)
        if isinstance(mine, StridedSet) and isinstance(other, zi.StridedSet):
            np.testing.assert_array_equal(mine.local_start, other.local_start)
            np.testing.assert_array_equal(mine.extent, other.extent)
            np.testing.assert_array_equal(mine.origin, other.origin)
            np.testing.assert_array_equal(mine.full, other.full)
        if isinstance(mine, IndexedSet) and isinstance(other, zi.IndexedSet):
            np.testing.assert_array_equal(mine.pointer, other.pointer)
            np.testing.assert_array_equal(mine.local, other.local)
            np.testing.assert_array_equal(mine.positions, other.positions)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_box_is_the_selection_of_its_slices(data: st.DataObject) -> None:
    grid = data.draw(grids())
    ends = [sorted((data.draw(st.integers(0, n)), data.draw(st.integers(0, n)))) for n in grid.shape]
    a = np.arange(math.prod(grid.shape)).reshape(grid.shape)
    box = tuple(slice(lo, hi) for lo, hi in ends)
    ops = plan_box(tuple(lo for lo, _ in ends), tuple(hi for _, hi in ends), grid)
    np.testing.assert_array_equal(assemble(a, grid, ops), a[box])


@st.composite
def shard_grids(draw: st.DrawFn) -> ShardGrid:
    shards: list[DimensionGrid] = []
    inner: list[DimensionGrid] = []
    for _ in range(draw(st.integers(0, 3))):
        size = draw(st.integers(1, 4))
        if draw(st.booleans()):
            extent = draw(st.integers(0, 25))
            shards.append(RegularDimension(extent, size * draw(st.integers(1, 4))))
            inner.append(RegularDimension(extent, size))
        else:
            sizes = tuple(size * k for k in draw(st.lists(st.integers(1, 3), max_size=4)))
            shards.append(RectilinearDimension(sizes))
            inner.append(RegularDimension(sum(sizes), size))
    return ShardGrid(ChunkGrid(tuple(shards)), ChunkGrid(tuple(inner)))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_two_levels_assemble_to_numpys_selection(data: st.DataObject) -> None:
    grid = data.draw(shard_grids())
    shape = grid.inner.shape
    selection = data.draw(selections(shape))
    a = np.arange(math.prod(shape)).reshape(shape)
    plan = plan_shard_selection(selection, grid)
    out = np.full(plan.operations.kept_shape, -1, a.dtype)
    seen: list[tuple[int, ...]] = []
    shards: list[tuple[int, ...]] = []
    for shard in plan:
        shards.append(shard.shard_coords)
        stored = chunk_of(a, grid.shards, shard.shard_coords)
        slots = grid.slots(shard.shard_coords)
        taken: list[int] = []
        for within, op in shard:
            assert all(0 <= w < n for w, n in zip(within, slots, strict=True))
            # the inner chunk found through its shard is the one found through the whole
            edges = [d.size for d in grid.inner.dimensions]  # type: ignore[union-attr]
            chunk = stored[tuple(slice(w * e, (w + 1) * e) for w, e in zip(within, edges, strict=True))]
            np.testing.assert_array_equal(chunk, chunk_of(a, grid.inner, op.chunk_coords))
            out[op.out_selection] = chunk[op.chunk_selection]
            taken += chunk[op.chunk_selection].ravel().tolist()
            seen.append(op.chunk_coords)
        assert shard.inner_coords.shape == (len(shape), len(shard.operations))
        assert shard.coverage_full == (sorted(taken) == sorted(stored.ravel().tolist()))
    np.testing.assert_array_equal(out.reshape(plan.operations.out_shape), orthogonal(a, selection))
    assert sorted(seen) == sorted(tuple(c) for c in plan.operations.coords.T.tolist())
    assert len(shards) == len(set(shards)) == len(plan)
    pairs = np.vstack([plan.shard_coords, plan.inner_coords]).T.tolist() if shape else []
    assert len({tuple(p) for p in pairs}) == len(pairs)

"""Boxes of a witness: full ones tile the array, sampled ones lie in it, hold its corners and reach their share."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from drystone.verify.boxes import Layout, sample, slabs
from drystone.verify.witness import _Piece, _spans, _thin


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    rank = draw(st.integers(0, 3))
    shape = [draw(st.integers(0, 12)) for _ in range(rank)]
    axis, dest, count = None, [], []
    if rank and draw(st.booleans()):
        axis = draw(st.integers(0, rank - 1))
        at = 0
        for _ in range(draw(st.integers(1, 5))):
            at += draw(st.integers(0, 2))  # a gap, or none
            dest.append(at)
            count.append(draw(st.integers(0, 4)))
            at += count[-1]
        shape[axis] = at + draw(st.integers(0, 2))
    chunk = tuple(draw(st.integers(1, 5)) for _ in shape)
    return Layout(tuple(shape), chunk, draw(st.sampled_from([1, 2, 8])), axis, dest, count)


@settings(max_examples=200, deadline=None)
@given(layouts(), st.integers(1, 300))
def test_slabs_tile_the_array_in_whole_chunks(layout: Layout, budget: int) -> None:
    seen = np.zeros(layout.shape, int)
    one = math.prod(min(c, max(n, 1)) for c, n in zip(layout.chunk, layout.shape, strict=True)) * layout.itemsize
    for start, stop in slabs(layout, budget):
        seen[tuple(slice(a, b) for a, b in zip(start, stop, strict=True))] += 1
        assert math.prod(b - a for a, b in zip(start, stop, strict=True)) * layout.itemsize <= max(budget, one)
        assert all(a % c == 0 for a, c in zip(start, layout.chunk, strict=True))
    assert (seen == 1).all()


@settings(max_examples=200, deadline=None)
@given(layouts(), st.floats(0, 1), st.integers(0, 5))
def test_samples_lie_inside_and_reach_their_share(layout: Layout, share: float, seed: int) -> None:
    boxes = sample(layout, share, seed, "/a", 1 << 20)
    seen = np.zeros(layout.shape, int)
    for start, stop in boxes:
        assert all(0 <= a < b <= n for a, b, n in zip(start, stop, layout.shape, strict=True))
        seen[tuple(slice(a, b) for a, b in zip(start, stop, strict=True))] += 1
    assert boxes == sample(layout, share, seed, "/a", 1 << 20)
    if layout.cells:
        assert seen[(0,) * seen.ndim]
        assert seen[(-1,) * seen.ndim]
        assert sum(math.prod(b - a for a, b in zip(*box, strict=True)) for box in boxes) >= share * layout.cells


def test_a_large_sample_is_about_its_share() -> None:
    for chunk in ((1, 720, 1440), (200, 60, 60)):
        layout = Layout((2000, 720, 1440), chunk, 2, 0, list(range(2000)), [1] * 2000)
        boxes = sample(layout, 0.01, 3, "/sst", 64 << 20)
        cells = sum(math.prod(b - a for a, b in zip(*box, strict=True)) for box in boxes)
        assert 0.01 <= cells / layout.cells < 0.03
        assert len(boxes) < 200


def test_edges_between_granules_are_in_the_sample() -> None:
    layout = Layout((1000, 400, 400), (1, 400, 400), 2, 0, list(range(0, 1000, 10)), [10] * 100)
    boxes = sample(layout, 0.001, 3, "/sst", 64 << 20)
    crossing = [a[0] + 1 for a, b in boxes if b[0] - a[0] == 2 and (a[0] + 1) % 10 == 0]
    assert len(crossing) >= 4


@settings(max_examples=200, deadline=None)
@given(layouts(), st.data())
def test_pieces_tile_a_box_and_name_the_granule_of_each_cell(layout: Layout, data: st.DataObject) -> None:
    if layout.axis is None:
        return
    n = layout.shape[layout.axis]
    start = data.draw(st.integers(0, n))
    stop = data.draw(st.integers(start, n))
    owner = [None] * n
    for i, (at, m) in enumerate(zip(layout.dest, layout.count, strict=True)):
        owner[at : at + m] = [i] * m
    spans = list(_spans(layout.dest, layout.count, start, stop))
    flat = [i for low, high, i in spans for _ in range(low, high)]
    assert flat == owner[start:stop]
    assert [low for low, _, _ in spans] == [start, *[high for _, high, _ in spans[:-1]]][: len(spans)]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 9), max_size=3), st.integers(1, 64))
def test_thin_pieces_tile_and_fit(spans: list[int], budget: int) -> None:
    seen = np.zeros(spans, int)
    for piece in _thin(_Piece((0,) * len(spans), tuple(spans), None, ()), budget, 2):
        seen[tuple(slice(a, b) for a, b in zip(piece.start, piece.stop, strict=True))] += 1
        assert math.prod(b - a for a, b in zip(piece.start, piece.stop, strict=True)) * 2 <= max(budget, 2)
    assert (seen == 1).all()

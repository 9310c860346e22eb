"""Boxes of a witness: full ones tile the array, sampled ones lie in it, hold its corners and reach their share."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from drystone.verify.boxes import Layout, sample, slabs
from drystone.verify.pieces import Piece, Placed, thin, uncovered


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


@st.composite
def tilings(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[str, object], np.ndarray]:
    """A whole, placements with tiles as a job has them, and for each cell who holds it (-1: nobody)."""
    shape = (draw(st.integers(1, 9)), draw(st.integers(1, 9)))
    lead = draw(st.sampled_from([0, 1, None]))
    off = 1 if lead in (0, None) else 0
    owner = np.full(shape, -1)
    columns: dict[str, list] = {n: [] for n in ("granule", "src", "count", "dest", "tiles", "tile")}
    at = 0
    while at < shape[off]:
        at += draw(st.integers(0, 2))
        wide = min(draw(st.integers(1, 4)), shape[off] - at)
        if wide < 1:
            break
        tile = {off: (draw(st.integers(0, 3)), wide, at)}
        along = 0
        placed = False
        while lead is not None and along < shape[lead]:
            along += draw(st.integers(0, 2))
            long = min(draw(st.integers(1, 4)), shape[lead] - along)
            if long < 1:
                break
            columns["src"].append(draw(st.integers(0, 3)))
            columns["count"].append(long)
            columns["dest"].append(along)
            box = [slice(along, along + long), slice(at, at + wide)]
            owner[tuple(box if lead == 0 else box[::-1])] = len(columns["granule"])
            columns["granule"].append(len(columns["granule"]))
            columns["tile"].append(len(columns["tiles"]))
            along += long
            placed = True
        if lead is None:
            owner[:, at : at + wide] = len(columns["granule"])
            for name, value in (("granule", len(columns["granule"])), ("src", 0), ("count", 1), ("dest", 0)):
                columns[name].append(value)
            columns["tile"].append(len(columns["tiles"]))
            placed = True
        if placed or draw(st.booleans()):
            other = (0, shape[0], 0) if lead is None else (0, 0, 0)
            columns["tiles"].append(list(zip(*((tile[off], other) if off == 0 else (other, tile[off])), strict=True)))
        at += wide
    return shape, {"axis": lead, **columns}, owner


@settings(max_examples=300, deadline=None)
@given(tilings(), st.data())
def test_pieces_name_the_granule_of_each_cell_and_gaps_are_the_rest(
    tiling: tuple[tuple[int, ...], dict[str, object], np.ndarray], data: st.DataObject
) -> None:
    shape, columns, owner = tiling
    if not columns["tiles"]:
        return
    placed = Placed(columns, {str(i): str(i) for i in range(owner.max() + 1)})
    start = tuple(data.draw(st.integers(0, n - 1)) for n in shape)
    stop = tuple(data.draw(st.integers(a + 1, n)) for a, n in zip(start, shape, strict=True))
    seen = np.full(shape, -1)
    found = list(placed.pieces(start, stop))
    for piece in found:
        box = tuple(slice(a, b) for a, b in zip(piece.start, piece.stop, strict=True))
        assert (seen[box] == -1).all()
        seen[box] = int(piece.granule or -1)
        src, _, dest = placed.box(int(piece.granule or 0), shape)
        assert piece.shift == tuple(d - s for d, s in zip(dest, src, strict=True))
    box = tuple(slice(a, b) for a, b in zip(start, stop, strict=True))
    outside = seen.copy()
    outside[box] = -1
    assert (outside == -1).all()
    assert (seen[box] == owner[box]).all()
    bare = uncovered(start, stop, found)
    assert (bare is None) == (owner[box] >= 0).all()
    assert bare is None or (bare == (owner[box] < 0)).all()
    layout = Layout(shape, shape, 8, columns["axis"], columns["dest"], columns["count"], placed.tiles())
    for a, b in sample(layout, 0.3, 1, "/a", 1 << 20):
        assert all(0 <= x < y <= n for x, y, n in zip(a, b, shape, strict=True))


@settings(max_examples=100, deadline=None)
@given(tilings(), st.integers(0, 9))
def test_samples_of_large_tiled_arrays_lie_inside(
    tiling: tuple[tuple[int, ...], dict[str, object], np.ndarray], seed: int
) -> None:
    shape, columns, _ = tiling
    if not columns["tiles"]:
        return
    many = 1000  # too large to be compared whole
    placed = Placed(columns, {})
    big = {
        k: [[[v * many for v in part] for part in t] for t in columns[k]] if k == "tiles" else [v * many for v in columns[k]]
        for k in ("src", "count", "dest", "tiles")
    }
    placed = Placed({**columns, **big}, {})
    whole = tuple(n * many for n in shape)
    layout = Layout(whole, (100, 100), 8, columns["axis"], big["dest"], big["count"], placed.tiles())
    boxes = sample(layout, 0.01, seed, "/a", 1 << 24)
    cells = sum(math.prod(b - a for a, b in zip(*box, strict=True)) for box in boxes)
    assert cells >= 0.01 * math.prod(whole)
    for a, b in boxes:
        assert all(0 <= x < y <= n for x, y, n in zip(a, b, whole, strict=True))
    assert any(not any(a) for a, _ in boxes)
    assert any(b == whole for _, b in boxes)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 9), max_size=3), st.integers(1, 64))
def test_thin_pieces_tile_and_fit(spans: list[int], budget: int) -> None:
    seen = np.zeros(spans, int)
    for piece in thin(Piece((0,) * len(spans), tuple(spans), None, ()), budget, 2):
        seen[tuple(slice(a, b) for a, b in zip(piece.start, piece.stop, strict=True))] += 1
        assert math.prod(b - a for a, b in zip(piece.start, piece.stop, strict=True)) * 2 <= max(budget, 2)
    assert (seen == 1).all()

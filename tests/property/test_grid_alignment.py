"""Alignment proofs accept exactly the partitions of an array into whole write cells."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drystone.errors import PlanError
from drystone.grid.alignment import check_region_in, prove_aligned
from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import RectilinearDimension, RegularDimension


@st.composite
def grids(draw: st.DrawFn) -> ChunkGrid:
    out = []
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            out.append(RegularDimension(draw(st.integers(1, 12)), draw(st.integers(1, 5))))
        else:
            out.append(RectilinearDimension(tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))))
    return ChunkGrid(tuple(out))


@st.composite
def tilings(draw: st.DrawFn, grid: ChunkGrid) -> tuple[np.ndarray, np.ndarray]:
    """A product of runs of whole cells, shuffled; one axis may be cut anew in each part (so it is no product)."""
    cuts = []
    for d in grid.dimensions:
        inner = d.edges()[1:-1].tolist()
        kept = [e for e in inner if draw(st.booleans())]
        marks = [0, *kept, d.extent]
        cuts.append(list(itertools.pairwise(marks)))
    boxes = [list(box) for box in itertools.product(*cuts)]
    order = draw(st.permutations(range(len(boxes))))
    starts = np.array([[a for a, _ in boxes[i]] for i in order], np.int64)
    stops = np.array([[b for _, b in boxes[i]] for i in order], np.int64)
    return starts, stops


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_tilings_pass_and_each_of_their_regions_too(data: st.DataObject) -> None:
    grid = data.draw(grids())
    starts, stops = data.draw(tilings(grid))
    prove_aligned(starts, stops, grid)
    for a, b in zip(starts.tolist(), stops.tolist(), strict=True):
        check_region_in(tuple(a), tuple(b), grid)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_proof_agrees_with_painting_every_cell(data: st.DataObject) -> None:
    """Any boxes at all, most of them wrong: the proof passes exactly where each element is painted once, by whole cells."""
    grid = data.draw(grids())
    starts, stops = data.draw(tilings(grid))
    for _ in range(data.draw(st.integers(0, 2))):  # spoil it, or not
        i, k = data.draw(st.integers(0, len(starts) - 1)), data.draw(st.integers(0, len(grid.shape) - 1))
        which = data.draw(st.sampled_from([starts, stops]))
        which[i, k] += data.draw(st.integers(-2, 2))
    if data.draw(st.booleans()) and len(starts) > 1:
        i, j = data.draw(st.integers(0, len(starts) - 1)), data.draw(st.integers(0, len(starts) - 1))
        starts[i], stops[i] = starts[j], stops[j]
    painted = np.zeros(grid.shape, int)
    inside = True
    for a, b in zip(starts.tolist(), stops.tolist(), strict=True):
        inside &= all(0 <= x < y <= n for x, y, n in zip(a, b, grid.shape, strict=True))
        painted[tuple(slice(max(x, 0), max(y, 0)) for x, y in zip(a, b, strict=True))] += 1
    on_edges = all(
        set(starts[:, k].tolist()) | set(stops[:, k].tolist()) <= set(d.edges().tolist()) for k, d in enumerate(grid.dimensions)
    )
    right = inside and on_edges and bool((painted == 1).all())
    if right:
        prove_aligned(starts, stops, grid)
    else:
        with pytest.raises(PlanError) as caught:
            prove_aligned(starts, stops, grid)
        assert caught.value.kind in {"region-outside", "region-unaligned", "regions-overlap", "regions-gap"}


def test_a_gap_and_an_overlap_of_equal_size_do_not_cancel() -> None:
    grid = ChunkGrid.regular((4, 4), (2, 2))
    starts = np.array([[0, 0], [0, 0], [2, 0], [2, 2]])
    stops = starts + 2
    assert math.prod(grid.shape) == int((stops - starts).prod(axis=1).sum())
    with pytest.raises(PlanError, match=r"regions 0 and 1 both hold element \(0, 0\)"):
        prove_aligned(starts, stops, grid)

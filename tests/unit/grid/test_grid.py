"""Grid: what single cases say, and what refusals name."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from drystone.errors import PlanError
from drystone.grid.alignment import check_region, prove_aligned
from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import RectilinearDimension, RegularDimension
from drystone.grid.operations import plan_box, plan_selection
from drystone.grid.selection import normalise
from drystone.grid.shards import ShardGrid, plan_shard_box

CASES = json.loads((Path(__file__).parents[2] / "conformance" / "grid_operations.json").read_text())


def _selection(value: list[object]) -> tuple[object, ...]:
    out: list[object] = []
    for v in value:
        if isinstance(v, dict):
            out.append(slice(*v["slice"]))
        elif v == "...":
            out.append(Ellipsis)
        else:
            out.append(v)
    return tuple(out)


def _plain(part: object) -> object:
    return [part.start, part.stop, part.step] if isinstance(part, slice) else np.asarray(part).ravel().tolist()


@pytest.mark.parametrize("case", CASES, ids=[c["name"] for c in CASES])
def test_conformance(case: dict[str, object]) -> None:
    grid = ChunkGrid.from_json(case["grid"])  # type: ignore[arg-type]
    ops = plan_selection(_selection(case["selection"]), grid)  # type: ignore[arg-type]
    assert list(ops.out_shape) == case["out_shape"]
    got = [
        {
            "chunk": list(o.chunk_coords),
            "local": [_plain(p) for p in o.chunk_selection],
            "out": [_plain(p)[:2] if isinstance(p, slice) else _plain(p) for p in o.out_selection],  # type: ignore[index]
            "coverage": o.coverage,
        }
        for o in ops
    ]
    assert got == case["operations"]


def test_rectilinear_axis_is_a_value() -> None:
    a, b = RectilinearDimension((31, 28), (31, 31)), RectilinearDimension((31, 28), (31, 31))
    assert a == b
    assert hash(a) == hash(b)
    assert a != RectilinearDimension((31, 28))
    again = pickle.loads(pickle.dumps(a))
    assert again == a
    assert again.edges().tolist() == [0, 31, 59]
    assert len(pickle.dumps(a)) < 150
    with pytest.raises(ValueError, match="read-only"):
        a.edges()[0] = 5
    assert a.edges() is a.edges()
    assert a.encoded_sizes(np.array([1, 0])).tolist() == [31, 31]
    assert a.data_sizes(np.array([1, 0])).tolist() == [28, 31]


@pytest.mark.parametrize("dimension", [RegularDimension(10, 4), RectilinearDimension((4, 4, 2), (4, 4, 4))])
def test_both_axes_answer_alike(dimension: RegularDimension | RectilinearDimension) -> None:
    every = np.arange(3)
    assert dimension.edges().tolist() == [0, 4, 8, 10]
    assert dimension.chunk_offsets(every).tolist() == [dimension.chunk_offset(c) for c in range(3)] == [0, 4, 8]
    assert dimension.data_sizes(every).tolist() == [dimension.data_size(c) for c in range(3)] == [4, 4, 2]
    assert dimension.encoded_sizes(every).tolist() == [dimension.encoded_size(c) for c in range(3)] == [4, 4, 4]
    assert dimension.indices_to_chunks(np.arange(10)).tolist() == [dimension.index_to_chunk(i) for i in range(10)]
    assert np.flatnonzero(dimension.is_edge(np.arange(-1, 13))).tolist() == [1, 5, 9, 11]
    for bad in (-1, 10):
        with pytest.raises(IndexError):
            dimension.index_to_chunk(bad)
        with pytest.raises(IndexError):
            dimension.indices_to_chunks(np.array([0, bad]))


def test_wrong_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        RectilinearDimension((3, 0))
    with pytest.raises(ValueError, match="no smaller"):
        RectilinearDimension((3, 2), (3, 1))
    with pytest.raises(ValueError, match="at least 1"):
        RegularDimension(3, 0)
    with pytest.raises(ValueError, match="sizes"):
        ChunkGrid.from_json([3])


@pytest.mark.parametrize(
    ("selection", "text"),
    [
        ((0, 0, 0), "3 indices for an array of 2 axes"),
        ((Ellipsis, Ellipsis), "at most one Ellipsis"),
        (4, "index 4 is outside axis 0 of 4"),
        ((0, -6), "index -6 is outside axis 1 of 5"),
        (([0, 4],), "axis 0: indices 0 to 4 are not all inside 4"),
        (([True, False],), "a mask of 2 for 4 elements"),
        (([1.5],), "holds integers, not float64"),
        (([[1]],), "has 1 axis, not 2"),
        (("a",), "no integer, slice"),
        ((None,), "no integer, slice"),
    ],
)
def test_selections_that_do_not_fit(selection: object, text: str) -> None:
    with pytest.raises(IndexError, match=text):
        normalise(selection, (4, 5))  # type: ignore[arg-type]


def test_true_is_no_index() -> None:
    with pytest.raises(IndexError):
        normalise((True,), (4,))  # type: ignore[arg-type]


def test_a_box_outside_is_refused() -> None:
    with pytest.raises(IndexError, match="3 to 11 is not inside axis 0 of 10"):
        plan_box((3,), (11,), ChunkGrid.regular((10,), (4,)))


def test_a_million_chunks_are_columns() -> None:
    ops = plan_box((0, 0), (4000, 4000), ChunkGrid.regular((4000, 4000), (4, 4)))
    assert len(ops) == 1_000_000
    assert ops.full.all()
    assert ops.coords[:, -1].tolist() == [999, 999]
    assert ops.linear((1000, 1000)).tolist() == list(range(1_000_000))
    assert ops.operation(999_999).out_selection == (slice(3996, 4000), slice(3996, 4000))


def test_a_stride_longer_than_chunks_costs_its_points_only() -> None:
    grid = ChunkGrid.regular((10**12,), (1,))
    ops = plan_selection(slice(5, None, 10**11), grid)
    assert ops.coords.tolist() == [[5 + k * 10**11 for k in range(10)]]
    assert ops.full.all()


def test_rank_zero_has_one_operation() -> None:
    ops = plan_selection((), ChunkGrid(()))
    assert len(ops) == 1
    assert ops.full.tolist() == [True]
    assert ops.coords.shape == (0, 1)
    (only,) = ops
    assert only.chunk_coords == ()
    assert only.coverage == "full"


def test_shards_that_cut_chunks_are_refused() -> None:
    with pytest.raises(PlanError, match="axis 1: a shard edge at element 5 cuts an inner chunk"):
        ShardGrid.regular((10, 10), (4, 5), (2, 2))
    with pytest.raises(PlanError, match="a shard edge at element 3"):
        # the array ends before the second shard does, so no edge inside shows it
        ShardGrid.regular((3,), (3,), (2,))
    with pytest.raises(PlanError, match="a shard edge at element 31"):
        ShardGrid(ChunkGrid((RectilinearDimension((31, 28)),)), ChunkGrid.regular((59,), (7,)))
    with pytest.raises(PlanError, match="shape"):
        ShardGrid(ChunkGrid.regular((4,), (2,)), ChunkGrid.regular((5,), (1,)))


def test_shards_of_months_with_daily_chunks() -> None:
    grid = ShardGrid(ChunkGrid((RectilinearDimension((31, 28, 31)),)), ChunkGrid.regular((90,), (1,)))
    plan = list(plan_shard_box((30,), (60,), grid))
    assert [(s.shard_coords, len(s.operations), s.coverage_full) for s in plan] == [
        ((0,), 1, False),
        ((1,), 28, True),
        ((2,), 1, False),
    ]
    assert plan[0].inner_coords.tolist() == [[30]]
    assert plan[2].inner_coords.tolist() == [[0]]
    assert grid.slots((1,)) == (28,)


def test_alignment_messages_have_numbers() -> None:
    grid = ChunkGrid.regular((10, 6), (4, 6))
    whole = np.array([[0, 0]]), np.array([[10, 6]])
    prove_aligned(*whole, grid)
    with pytest.raises(PlanError, match=r"region 0, axis 0: it stops at element 9, inside the write cell 8\.\.10"):
        prove_aligned(np.array([[0, 0]]), np.array([[9, 6]]), grid)
    with pytest.raises(PlanError, match=r"no region covers element \(8, 0\)"):
        prove_aligned(np.array([[0, 0]]), np.array([[8, 6]]), grid)
    with pytest.raises(PlanError, match=r"elements 0 to 11 are no part of an axis of 10"):
        prove_aligned(np.array([[0, 0]]), np.array([[11, 6]]), grid)
    with pytest.raises(PlanError, match="no region covers"):
        prove_aligned(np.empty((0, 2)), np.empty((0, 2)), grid)
    prove_aligned(np.empty((0, 1)), np.empty((0, 1)), ChunkGrid.regular((0,), (4,)))


def test_a_worker_checks_its_own_region() -> None:
    check_region((8, 0), (10, 6), (10, 6), (4, 6))
    with pytest.raises(PlanError, match="this task, axis 0: it starts at element 2") as caught:
        check_region((2, 0), (8, 6), (10, 6), (4, 6))
    assert caught.value.facts["cell_stop"] == 4
    with pytest.raises(PlanError, match="the target was resized"):
        check_region((8, 0), (12, 6), (10, 6), (4, 6))
    with pytest.raises(PlanError, match="1 axes for an array of 2"):
        check_region((8,), (10,), (10, 6), (4, 6))

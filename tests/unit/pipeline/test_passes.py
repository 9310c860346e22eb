"""The order of two passes, and the life of what lies between them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from drystone.codecs.chain import Codec, CodecChain
from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.attributes import Attributes
from drystone.model.placement import CombinedArray, Placements
from drystone.pipeline.passes import Passes, shuffle_sizes
from drystone.plan.layout import TargetLayout
from drystone.plan.shards import TaskPlan
from drystone.plan.shuffle import Shuffle
from drystone.rechunk.plan_file import ArrayPlan, RechunkPlan
from drystone.rechunk.receipts import RunState
from drystone.rechunk.shuffle import shuffle_key
from drystone.storage.local import LocalStore

SHAPE = (8, 6)
GROUPS = 4  # tasks 0 to 7 write the target, 8 to 15 are a first pass; of each two a group


def array_plan(path: str, twice: bool) -> ArrayPlan:
    chain, i2 = CodecChain.of("bytes", Codec.of("zlib", level=1)), np.dtype("i2")
    one = np.zeros(1, np.int64)
    where = Placements(None, one.astype("i4"), one, one + 1, one, one.astype("i4"))
    grid = ChunkGrid.regular(SHAPE, (1, 6))
    array = CombinedArray(path, ("t", "y"), SHAPE, i2, i2, None, chain, Attributes(), grid, None, where, ())
    layout = TargetLayout(path, ("t", "y"), SHAPE, i2, (2, 3), None, CodecChain.of("bytes"), bytes(2))
    shuffle = Shuffle(grid, layout.cells, ChunkGrid.regular(SHAPE, (2, 6)), 1 << 20) if twice else None
    tasks = TaskPlan(path, layout.cells, layout.cells, 8, 8, 1000, 100, 1, shuffle=shuffle)
    return ArrayPlan(array, layout, tasks, np.zeros((1, 16), np.uint8), np.zeros(1, np.int32))


def passes(folder: Path, *twice: bool, done: tuple[int, ...] = ()) -> tuple[RechunkPlan, Passes, LocalStore]:
    plan = RechunkPlan(0, "out:x", tuple(array_plan(f"/{'abc'[i]}", t) for i, t in enumerate(twice)))
    state = RunState(np.isin(np.arange(plan.n_tasks), done))
    store = LocalStore(folder)
    for i in range(plan.n_tasks):
        if plan.task(i).pass_ == 1:
            store.put(shuffle_key("run", plan.task(i)), b"pieces")
    return plan, Passes(plan, state, store, "run"), store


def test_the_second_pass_of_a_group_waits_for_its_first_and_for_no_other(tmp_path: Path) -> None:
    _, order, _ = passes(tmp_path, True)
    drawn = iter(order)
    # the first pass of the next group fills the gap
    assert [next(drawn) for _ in range(5)] == [8, 9, 10, 11, None]
    order.done(9)
    assert next(drawn) is None
    order.done(8)
    assert [next(drawn) for _ in range(5)] == [0, 1, 12, 13, None]
    order.done(10)
    order.done(11)
    assert [next(drawn) for _ in range(4)] == [2, 3, 14, 15]


def test_an_object_goes_with_its_last_reader(tmp_path: Path) -> None:
    plan, order, store = passes(tmp_path, True)
    list(zip(order, range(4), strict=False))
    order.done(8)
    order.done(9)
    order.done(0)
    assert len(shuffle_sizes(store, "run")) == 8
    order.done(1)
    kept = {shuffle_key("run", plan.task(i)) for i in range(10, 16)}
    assert shuffle_sizes(store, "run").keys() == kept


def test_what_reads_a_task_that_was_set_aside_is_held_back(tmp_path: Path) -> None:
    _, order, _ = passes(tmp_path, True)
    begun = []
    for i in order:
        assert i is not None
        begun.append(i)
        (order.failed if i == 10 else order.done)(i)
    assert sorted(begun) == [0, 1, *range(4, 16)]
    assert order.held_back == 2


def test_arrays_of_one_pass_are_drawn_as_they_are(tmp_path: Path) -> None:
    plan, order, _ = passes(tmp_path, False, True, False, done=(0, 3, 8, 9, 16, 17))
    begun = []
    for i in order:
        assert i is not None
        begun.append(i)
        order.done(i)
    assert begun[:6] == [1, 2, 4, 5, 6, 7]
    assert sorted(begun) == [i for i in range(plan.n_tasks) if i not in (0, 3, 8, 9, 16, 17)]


@pytest.mark.parametrize("done", [(), (0, 1), (0, 1, 2), tuple(range(8))])
def test_what_nobody_will_read_is_swept(tmp_path: Path, done: tuple[int, ...]) -> None:
    plan, order, store = passes(tmp_path, True, done=done)
    store.put("run/of-another-plan", b"x")
    torn = tmp_path / "run/8.deadbeef.drystone-tmp"
    torn.write_bytes(b"half")
    order.sweep()
    wanted = {8 + 2 * (i // 2) + k for i in range(8) if i not in done for k in (0, 1)}
    assert shuffle_sizes(store, "run").keys() == {shuffle_key("run", plan.task(i)) for i in wanted}
    assert not torn.exists()
    assert (tmp_path / "run").exists() == bool(wanted)

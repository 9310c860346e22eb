import threading

import numpy as np
import pytest
from unit.fetch.archive import Archive, spec

from drystone.errors import TableError
from drystone.fetch.budget import Budget
from drystone.fetch.source import coalesce


def test_ranges_are_joined_over_small_gaps_only():
    joined = coalesce([0, 100, 100, 250, 1000], [100, 50, 120, 10, 5], 30)
    assert joined == ([0, 1000], [260, 5], [0, 0, 0, 0, 1])
    assert coalesce([0, 251], [220, 10], 30) == ([0, 251], [220, 10], [0, 1])


def test_a_joined_range_stays_bounded_and_one_large_range_is_whole():
    step = 4 << 20
    starts, sizes, _ = coalesce([i * step for i in range(10)], [step] * 10, 0)
    assert max(sizes) <= 16 << 20
    assert sum(sizes) == 10 * step
    assert coalesce([5], [1 << 30], 0) == ([5], [1 << 30], [0])
    assert starts == sorted(starts)


def test_a_budget_makes_readers_wait_and_lets_one_large_demand_through():
    budget = Budget(100)
    budget.acquire(1000)
    waited = threading.Event()

    def other():
        budget.acquire(50)
        waited.set()

    thread = threading.Thread(target=other)
    thread.start()
    assert not waited.wait(0.05)
    budget.release(1000)
    assert waited.wait(10)
    thread.join()
    assert budget.held == 50
    with pytest.raises(ValueError, match="at least 1 byte"):
        Budget(0)


def test_memory_rows_go_by_granule_and_in_batches(tmp_path, monkeypatch):
    from drystone.fetch import memory_rows

    monkeypatch.setattr(memory_rows, "_BATCH_ROWS", 5)
    archive = Archive(tmp_path)
    one = spec((4,), (2,))
    for g in (9, 2, 5, 7):
        archive.add(g, one, np.arange(4), masks={(1,): 1} if g == 5 else None)
    rows = archive.rows()
    batches = list(rows.rows("/v"))
    assert np.concatenate([b.granule_id for b in batches]).tolist() == [2, 2, 5, 5, 7, 7, 9, 9]
    assert len(batches) == 2
    assert batches[0].masks == {3: 1}
    [some] = rows.rows("/v", np.array([9, 2, 4], np.int32))
    assert some.granule_id.tolist() == [2, 2, 9, 9]
    assert some.coords.tolist() == [[0, 1, 0, 1]]
    assert list(rows.rows("/none")) == []
    with pytest.raises(TableError, match="no granule 3"):
        rows.granule(3)

"""Whatever the order and grouping of commits, the table holds the newest attempt of each granule, exactly."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from services.table_scans import assert_holds, joined, listed, odd_scan, wanted

from drystone.errors import TableError
from drystone.model.chunk_rows import ScanResult
from drystone.storage.local import LocalStore
from drystone.table.log import DeltaLog
from drystone.table.table import ReferenceTable
from drystone.table.write import WrittenBatch, write_batch

SETTINGS = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
seeds = st.integers(0, 2**32)


@contextmanager
def new_table() -> Iterator[ReferenceTable]:
    with tempfile.TemporaryDirectory() as folder:
        yield ReferenceTable.create(LocalStore(folder), "t")


def scans_of(rng: np.random.Generator, granules: list[int]) -> dict[int, ScanResult]:
    return {g: odd_scan(rng, 4) for g in granules}


def written(table: ReferenceTable, scans: dict[int, ScanResult], attempt: int) -> WrittenBatch:
    return write_batch(table.store, "t", [(g, listed(g), s) for g, s in scans.items()], attempt)


@SETTINGS
@given(seed=seeds, groups=st.lists(st.integers(0, 3), min_size=1, max_size=12), data=st.data())
def test_batches_commute_associate_and_repeat_without_effect(seed: int, groups: list[int], data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    scans = scans_of(rng, list(range(len(groups))))
    with new_table() as table:
        batches = [written(table, {g: scans[g] for g in scans if groups[g] == k}, 1) for k in range(4) if k in groups]
        order = data.draw(st.permutations(range(len(batches))))
        cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(batches) - 1)))))
        for sequence, part in enumerate(np.split(np.array(order), cuts)):
            chosen = [batches[i] for i in part.tolist()]
            first = table.commit(chosen, run_id="r", sequence=sequence)
            assert first == bool(chosen)
            assert not table.commit(chosen, run_id="r", sequence=sequence)
        assert_holds(table, scans)
        assert_holds(ReferenceTable.open(table.store, "t"), scans)


@SETTINGS
@given(seed=seeds, history=st.lists(st.tuples(st.sets(st.integers(0, 5), min_size=1), st.booleans()), min_size=1, max_size=6))
def test_the_newest_attempt_counts_and_set_aside_granules_do_not(seed: int, history) -> None:
    rng = np.random.default_rng(seed)
    model: dict[int, ScanResult] = {}
    with new_table() as table:
        for sequence, (granules, fails) in enumerate(history):
            if fails:
                failed = [(g, listed(g), "truncated", "cut") for g in sorted(granules)]
                table.set_aside(failed, run_id="r", sequence=sequence)
                model = {g: s for g, s in model.items() if g not in granules}
            else:
                scans = scans_of(rng, sorted(granules))
                table.commit([written(table, scans, table.next_attempt_id())], run_id="r", sequence=sequence)
                model |= scans
        assert_holds(table, model)


@SETTINGS
@given(seed=seeds, attempts=st.permutations(range(1, 5)))
def test_attempts_that_arrive_in_any_order_leave_the_newest(seed: int, attempts: list[int]) -> None:
    rng = np.random.default_rng(seed)
    with new_table() as table:
        made = {a: scans_of(rng, [0, 1]) for a in attempts}
        batches = {a: written(table, made[a], a) for a in attempts}
        for sequence, attempt in enumerate(attempts):
            late = attempt < max(attempts[: sequence + 1])
            if late:
                with pytest.raises(TableError, match="comes after attempt"):
                    table.commit([batches[attempt]], run_id="r", sequence=sequence)
            else:
                table.commit([batches[attempt]], run_id="r", sequence=sequence)
        assert_holds(table, made[4])


@SETTINGS
@given(seed=seeds, reached=st.integers(0, 3), renewed=st.booleans())
def test_a_crash_between_commits_shows_nothing_and_running_again_mends_it(seed: int, reached: int, renewed: bool) -> None:
    rng = np.random.default_rng(seed)
    before, wanted_after = scans_of(rng, [0, 1]), scans_of(rng, [1, 2, 3])
    with new_table() as table:
        table.commit([written(table, before, 1)], run_id="r", sequence=0)
        batch = written(table, wanted_after, 2)
        for name in ("references", "side", "arrays")[:reached]:
            parts = [p for t, p in batch.parts if t == name]
            if parts:
                DeltaLog(table.store, "t", name).commit(parts, transactions={"r": 1})
        table = ReferenceTable.open(table.store, "t")
        assert_holds(table, before)
        if renewed:
            batch = written(table, wanted_after, table.next_attempt_id())
        table.commit([batch], run_id="r", sequence=1)
        assert_holds(table, before | wanted_after)


@SETTINGS
@given(seed=seeds, ids=st.sets(st.integers(0, 19)), commits=st.integers(1, 5))
def test_a_selection_of_granules_is_the_selection_of_the_rows(seed: int, ids: set[int], commits: int) -> None:
    rng = np.random.default_rng(seed)
    scans = scans_of(rng, list(range(20)))
    with new_table() as table:
        owner = rng.integers(0, commits, 20)
        for k in range(commits):
            mine = {g: s for g, s in scans.items() if owner[g] == k}
            table.commit([written(table, mine, 1)], run_id="r", sequence=k)
        for path in {a.spec.path for s in scans.values() for a in s.arrays}:
            got = joined(list(table.rows(path, np.array(sorted(ids), np.int32))))
            assert got == wanted({g: scans[g] for g in ids}, path)


@SETTINGS
@given(seed=seeds, steps=st.lists(st.sets(st.integers(0, 5)), min_size=1, max_size=5), pinned=st.integers(0, 4))
def test_every_release_stays_readable(seed: int, steps: list[set[int]], pinned: int) -> None:
    from drystone.model.release import Release

    rng = np.random.default_rng(seed)
    states: list[dict[int, ScanResult]] = []
    pins = []
    with new_table() as table:
        model: dict[int, ScanResult] = {}
        for number, granules in enumerate(steps, 1):
            scans = scans_of(rng, sorted(granules))
            if scans:
                table.commit([written(table, scans, table.next_attempt_id())], run_id="r", sequence=number)
            model = model | scans
            table.commit_release(Release(number, number, "d", False, (), ()))
            states.append(model)
            pins.append(table.pin())
        for number, state in enumerate(states, 1):
            assert_holds(ReferenceTable.open(table.store, "t", release=number), state)
        assert_holds(ReferenceTable.at(pins[pinned % len(pins)]), states[pinned % len(pins)])

"""Placements, releases and receipts: what was recorded is what is read, at every release."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from services.table_scans import assert_holds, joined, listed, odd_scan, wanted

from drystone.errors import TableError
from drystone.model.placement import Placements
from drystone.model.release import OutputIdentity, Release
from drystone.model.task import Receipt, StoredObject
from drystone.storage.local import LocalStore
from drystone.table.log import DeltaLog
from drystone.table.table import ReferenceTable
from drystone.table.write import write_batch


@pytest.fixture
def table(tmp_path: Path) -> ReferenceTable:
    return ReferenceTable.create(LocalStore(tmp_path), "t")


def release(number: int, digest: str = "d") -> Release:
    return Release(number, 1000 * number, digest, False, (("zarr", "3"),), (OutputIdentity("zarr", "work:x", "id"),))


def along(granules: Sequence[int], axis: int | None = 0, shift: int = 0) -> Placements:
    n = len(granules)
    steps = np.arange(n, dtype=np.int64)
    return Placements(axis, np.array(granules, np.int32), steps * 0, steps * 0 + 10, steps * 10 + shift, np.zeros(n, np.int32))


def columns(p: Placements) -> tuple[object, ...]:
    return (p.axis, *(c.tolist() for c in (p.granule_id, p.src_offset, p.count, p.dest, p.variant)))


def publish(table: ReferenceTable, number: int, placements: dict[str, Placements]) -> int:
    changed = table.commit_placements(number, placements)
    table.commit_release(release(number))
    return changed


def check(table: ReferenceTable, number: int, placements: dict[str, Placements]) -> None:
    for path, expected in placements.items():
        assert columns(table.placements(number, path)) == columns(expected)


def test_releases_come_back_and_count_up(table: ReferenceTable) -> None:
    assert (table.releases(), table.next_release_id()) == ([], 1)
    for number in (1, 2, 3):
        table.commit_release(release(number))
        table.commit_release(release(number))  # again: nothing changes
    again = ReferenceTable.open(table.store, "t")
    assert again.releases() == [release(1), release(2), release(3)]
    assert again.release_record(2) == release(2)
    assert again.next_release_id() == 4
    for wrong in (release(2, "other"), release(5)):
        with pytest.raises(TableError) as e:
            again.commit_release(wrong)
        assert e.value.kind == "release-taken"
    with pytest.raises(TableError) as e:
        again.release_record(9)
    assert e.value.kind == "no-release"


def test_an_append_adds_only_what_is_new(table: ReferenceTable) -> None:
    first = {"/a": along(range(100)), "/lat": along([0], None)}
    second = {"/a": along(range(101)), "/lat": along([0], None)}
    assert publish(table, 1, first) == 101
    assert publish(table, 2, second) == 1
    table = ReferenceTable.open(table.store, "t")
    check(table, 1, first)
    check(table, 2, second)


def test_granules_and_arrays_that_leave_or_move_keep_their_past(table: ReferenceTable) -> None:
    states = [
        {"/a": along([0, 1, 2, 3]), "/b": along([0, 1])},
        {"/a": along([0, 2, 3])},
        {"/a": along([3, 2, 0], shift=5), "/b": along([0, 1])},
        {},
        {"/a": along([0, 1, 2, 3], axis=1)},
    ]
    for number, state in enumerate(states, 1):
        publish(table, number, state)
    table = ReferenceTable.open(table.store, "t")
    for number, state in enumerate(states, 1):
        check(table, number, state)
        for path in {"/a", "/b"} - set(state):
            with pytest.raises(TableError) as e:
                table.placements(number, path)
            assert e.value.kind == "no-placements"


def test_the_draft_of_a_release_may_be_written_again_until_it_is_published(table: ReferenceTable) -> None:
    publish(table, 1, {"/a": along(range(5))})
    for draft in ({"/a": along(range(9))}, {"/b": along([1])}, {"/a": along(range(5))}, {"/a": along(range(7))}):
        table.commit_placements(2, draft)
        check(ReferenceTable.open(table.store, "t"), 2, draft)
    version = DeltaLog(table.store, "t", "placements").version
    assert table.commit_placements(2, {"/a": along(range(7))}) == 2
    assert DeltaLog(table.store, "t", "placements").version == version  # the same again commits nothing
    check(table, 1, {"/a": along(range(5))})
    table.commit_release(release(2))
    with pytest.raises(TableError) as e:
        table.commit_placements(2, {})
    assert e.value.kind == "release-taken"


def test_an_old_release_reads_as_it_was(table: ReferenceTable) -> None:
    rng = np.random.default_rng(0)

    def commit(granules: Sequence[int], sequence: int) -> dict[int, object]:
        found = {g: odd_scan(rng) for g in granules}
        scans = [(g, listed(g, sequence), s) for g, s in found.items()]
        batch = write_batch(table.store, "t", scans, table.next_attempt_id())
        table.commit([batch], run_id="r", sequence=sequence)
        return found

    first = commit(range(4), 0)
    table.commit_release(release(1))
    changed = commit([1, 2, 4], 1)
    table.commit_release(release(2))
    table.withdraw([0], "gone", run_id="r", sequence=2)
    table.commit_release(release(3))
    after = {g: s for g, s in (first | changed).items() if g != 0}
    assert_holds(ReferenceTable.open(table.store, "t"), after)
    assert_holds(ReferenceTable.open(table.store, "t", release=1), first)
    assert_holds(ReferenceTable.open(table.store, "t", release=2), first | changed)
    assert_holds(ReferenceTable.open(table.store, "t", release=3), after)
    assert_holds(ReferenceTable.at(table.pin(release=1)), first)
    old = table.granules(release=1)
    assert old.column("granule_id").to_pylist() == [0, 1, 2, 3]
    assert old.column("valid_from").to_pylist() == [1, 1, 1, 1]
    assert old.column("valid_to").to_pylist() == [3, 2, 2, None]
    assert joined(list(ReferenceTable.open(table.store, "t", release=1).rows("/a"))) == wanted(first, "/a")
    with pytest.raises(TableError):
        ReferenceTable.open(table.store, "t", release=4)


def receipt(task: str, fingerprint: str, array: str = "/a", size: int = 5) -> Receipt:
    objects = (StoredObject("c/0", size, 77),)
    return Receipt(task, fingerprint, array, 0, objects, ((1, 2),), 10, 20, 5, 0.5, 1 << 20, "w")


def test_receipts_come_back_by_fingerprint_and_array_once_each(table: ReferenceTable) -> None:
    assert list(table.receipts()) == []
    one = [receipt(f"t{i}", f"f{i:02}") for i in range(20)]
    two = [receipt(f"u{i}", f"g{i:02}", "/b") for i in range(5)]
    assert table.commit_receipts(one, run_id="r", sequence=0)
    assert not table.commit_receipts(one, run_id="r", sequence=0)
    assert table.commit_receipts(two, run_id="r", sequence=1)
    table = ReferenceTable.open(table.store, "t")
    assert table.last_receipts_sequence("r") == 1
    assert {r.task_id: r for r in table.receipts()} == {r.task_id: r for r in one + two}
    assert [r.task_id for r in table.receipts({"f03", "g04"})] == ["t3", "u4"]
    assert len(list(table.receipts(array="/b"))) == 5
    assert list(table.receipts(set())) == []


def test_many_receipts_are_written_some_at_a_time(table: ReferenceTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drystone.table.ledger._PART", 7)
    many = [receipt(f"t{i:03}", f"f{i:03}") for i in range(20)]
    assert table.commit_receipts(iter(many), run_id="r", sequence=0)
    assert not table.commit_receipts(iter(()), run_id="s", sequence=0)
    table = ReferenceTable.open(table.store, "t")
    assert sorted(table.receipts(), key=lambda r: r.task_id) == many
    assert len(list(table.store.list("t/receipts/part-"))) == 3


def test_a_task_done_again_has_its_last_receipt(table: ReferenceTable) -> None:
    table.commit_receipts([receipt("t", "f", size=1)], run_id="r", sequence=0)
    table.commit_receipts([receipt("t", "f", size=2)], run_id="r", sequence=1)
    (found,) = ReferenceTable.open(table.store, "t").receipts()
    assert found.objects[0].size == 2

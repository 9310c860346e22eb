"""Commits happen exactly once, whatever the answer was; stores that lose commits are refused."""

from __future__ import annotations

import os
from pathlib import Path

import deltalake
import pytest
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from drystone.errors import StorageError, TableError
from drystone.storage.local import LocalStore
from drystone.storage.remote import RemoteStore
from drystone.table.log import DeltaLog, probe_create_only
from drystone.table.parts import NewPart
from drystone.table.table import ReferenceTable

PART = NewPart("part-1.parquet", 10, 3, '{"numRecords":3,"minValues":{"granule_id":4},"maxValues":{"granule_id":6}}')
REAL = deltalake.DeltaTable.create_write_transaction


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    log = DeltaLog(LocalStore(tmp_path), "t", "references")
    log.make()
    return log


def reopened(log: DeltaLog) -> DeltaLog:
    return DeltaLog(log._store, "t", "references")


def failing(monkeypatch: pytest.MonkeyPatch, outcomes: list[str], error: Exception) -> list[str]:
    """Each call of deltalake's commit does what the next outcome says; the last one repeats."""
    calls: list[str] = []

    def commit(self, *args, **kwargs):
        outcome = outcomes[min(len(calls), len(outcomes) - 1)]
        calls.append(outcome)
        if outcome in ("fine", "lost answer"):
            REAL(self, *args, **kwargs)
        if outcome != "fine":
            raise error

    monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", commit)
    return calls


def test_live_parts_and_their_ranges(log: DeltaLog) -> None:
    assert len(log.live()) == 0
    assert log.commit([PART], transactions={"r": 5}) == 1
    live = reopened(log).live()
    assert live.names == ("part-1.parquet",)
    assert (live.low["granule_id"].tolist(), live.high["granule_id"].tolist()) == ([4], [6])
    # a part without statistics may hold anything
    assert live.holding("array_id", -7).tolist() == [True]
    assert live.holding("granule_id", 7).tolist() == [False]
    assert (log.transaction("r"), log.transaction("other")) == (5, None)


def test_a_lost_answer_is_not_committed_again(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = failing(monkeypatch, ["lost answer"], OSError("Generic S3 error"))
    log.commit([PART])
    assert calls == ["lost answer"]
    assert reopened(log).version == 1


def test_a_passing_failure_is_tried_again(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = failing(monkeypatch, ["failed", "failed", "fine"], OSError("connection reset"))
    log.commit([PART])
    assert calls == ["failed", "failed", "fine"]
    assert reopened(log).live().names == ("part-1.parquet",)


@pytest.mark.parametrize(
    ("text", "kind"),
    [("No space left on device (os error 28)", "no-space"), ("Permission denied", "no-permission"), ("?", "io")],
)
def test_a_failure_that_lasts_commits_nothing_and_is_named(log: DeltaLog, monkeypatch, text: str, kind: str) -> None:
    failing(monkeypatch, ["failed"], OSError(text))
    with pytest.raises(StorageError, match="cannot commit to the table") as e:
        log.commit([PART])
    assert e.value.kind == kind
    assert reopened(log).version == 0


def test_a_conflict_is_not_tried_again(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = failing(monkeypatch, ["failed"], CommitFailedError("a concurrent transaction deleted data"))
    with pytest.raises(TableError, match="another driver") as e:
        log.commit([PART])
    assert (e.value.kind, len(calls)) == ("commit-conflict", 1)


def test_replacing_parts_in_one_step(log: DeltaLog) -> None:
    log.commit([PART])
    new = NewPart("part-2.parquet", 10, 3, '{"numRecords":3}')
    for _ in range(2):
        log.commit([new], removed=[PART.name])
        assert reopened(log).live().names == ("part-2.parquet",)
    assert reopened(log).version == 2


def test_a_pinned_log_is_read_only_and_stays(log: DeltaLog) -> None:
    pinned = DeltaLog(log._store, "t", "references", 0)
    log.commit([PART])
    pinned.refresh()
    assert (pinned.version, len(pinned.live())) == (0, 0)
    with pytest.raises(TableError) as e:
        pinned.commit([PART])
    assert e.value.kind == "read-only"


def test_many_commits_make_a_checkpoint_every_hundred_and_open_again(log: DeltaLog) -> None:
    for k in range(105):
        log.commit([NewPart(f"part-{k}.parquet", 10, 1, '{"numRecords":1}')], transactions={"r": k})
    folder = Path(log._store.path("t/references/_delta_log"))
    assert [p.name for p in folder.glob("*.checkpoint.parquet")] == [f"{99:020}.checkpoint.parquet"]
    again = reopened(log)
    assert len(again.live()) == 105
    assert again.transaction("r") == 104


def test_the_log_is_flushed_after_each_commit(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    log.commit([PART])
    names = [Path(p).name for p in flushed]
    assert f"{1:020}.json" in names
    assert names.index(f"{1:020}.json") < names.index("_delta_log")


class IgnoresConditions(LocalStore):
    """A store that overwrites where it was told to create."""

    def create(self, key: str, data: bytes) -> bool:
        self.put(key, data)
        return True


def test_a_store_that_ignores_conditions_is_refused(tmp_path: Path) -> None:
    store = IgnoresConditions(tmp_path)
    with pytest.raises(TableError) as e:
        probe_create_only(store, "t")
    assert e.value.kind == "no-conditional-writes"
    assert list(store.list()) == []
    probe_create_only(LocalStore(tmp_path), "t")
    assert list(store.list()) == []


@pytest.mark.parametrize("url", ["memory://", "http://127.0.0.1:9/x"])
def test_places_that_hold_no_table(url: str) -> None:
    with pytest.raises(TableError) as e:
        ReferenceTable.create(RemoteStore(url), "t")
    assert e.value.kind == "table-place"


def test_deltalake_still_does_not_refuse_a_repeated_transaction(log: DeltaLog) -> None:
    """If this fails, the check in front of each commit has become needless."""
    log.commit([PART], transactions={"r": 1})
    table = log._open()
    assert table is not None
    properties = deltalake.CommitProperties(app_transactions=[deltalake.Transaction("r", 1)])
    REAL(table, [AddAction("twice.parquet", 1, {}, 0, True, "{}")], "append", table.schema(), commit_properties=properties)
    assert len(reopened(log).live()) == 2

"""The seams of a store's target: both writers keep one contract, and the ledger of tasks counts what was committed."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from google_crc32c import value
from services import repositories

from drystone.codecs.chain import CodecChain
from drystone.errors import StorageError
from drystone.model.array import GroupSpec
from drystone.model.task import Receipt
from drystone.plan.layout import TargetLayout
from drystone.rechunk.kernel import TaskDone
from drystone.rechunk.receipts import RunState
from drystone.rechunk.repository_target import RepositoryTarget
from drystone.rechunk.store_target import ObjectStoreTarget, Stock, StoreTarget
from drystone.rechunk.writer import TargetWriter
from drystone.storage.address import Places
from drystone.storage.local import LocalStore
from drystone.storage.store import Place

LAYOUT = TargetLayout("/g/a", ("x",), (40,), np.dtype("i2"), (4,), None, CodecChain.of("bytes"), bytes(2))


def stock(layout: TargetLayout = LAYOUT, ids: int = 10) -> Stock:
    return Stock("me", (layout,), (GroupSpec("/"),), {}, {layout.path: 0}, np.zeros(ids, np.uint64))


def receipt(number: int) -> Receipt:
    return Receipt(f"{number + 1:016x}", "f", "/g/a", number, (), (), 0, 0, 0, 0.0, 0, "w")


@pytest.fixture(params=["objects", "repository"])
def writer(request: pytest.FixtureRequest, tmp_path: Path) -> TargetWriter:
    store = LocalStore(tmp_path)
    targets: dict[str, StoreTarget] = {
        "objects": ObjectStoreTarget(store, "s", "out:s", None),
        "repository": RepositoryTarget(store, "s", "run"),
    }
    target = targets[request.param]
    target.prepare(stock(), lambda: None)
    places = Places.of([Place("out", tmp_path.as_uri())])
    return pickle.loads(pickle.dumps(target.opener)).open(places)  # type: ignore[no-any-return]


def test_writers_keep_one_contract(writer: TargetWriter) -> None:
    key, parts = "g/a/c/3", [os.urandom(3), b"", memoryview(os.urandom(9_000_000))]
    with pytest.raises(StorageError) as absent:
        writer.get(key)
    assert absent.value.kind == "not-found"
    writer.delete(key)
    writer.put(key, iter(parts))
    whole = b"".join(parts)
    assert writer.get(key) == whole
    assert writer.stored(key) == (len(whole), value(whole))
    writer.put(key, [b"12345678"])
    assert writer.get(key) == b"12345678"
    writer.delete(key)
    with pytest.raises(StorageError):
        writer.get(key)
    assert b'"shape"' in writer.get("g/a/zarr.json")


def failing() -> object:
    yield b"1234"
    raise RuntimeError("the source")


def test_a_source_that_fails_writes_nothing(writer: TargetWriter) -> None:
    with pytest.raises(RuntimeError, match="the source"):
        writer.put("g/a/c/0", failing())  # type: ignore[arg-type]
    with pytest.raises(StorageError):
        writer.get("g/a/c/0")


def done(target: RepositoryTarget, number: int) -> TaskDone:
    writer = target.opener.open(Places.of([]))
    writer.put(f"g/a/c/{number}", [bytes([number + 1]) * 8])
    return TaskDone(receipt(number), writer.changes())


def test_tasks_count_once_they_are_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drystone.rechunk.repository_target._BATCH_TASKS", 3)
    target = RepositoryTarget(LocalStore(tmp_path), "s", "run")
    assert not target.held()(receipt(0))
    target.prepare(stock(), lambda: None)
    counted = [list(target.take(i, done(target, i))) for i in range(4)]
    assert counted == [[], [], [0, 1, 2], []]
    again = RepositoryTarget(LocalStore(tmp_path), "s", "run").held()
    assert [again(receipt(i)) for i in range(5)] == [True, True, True, False, False]
    assert repositories.values(tmp_path / "s") == {}
    assert list(target.settle()) == [3]
    assert list(target.take(9, TaskDone(receipt(9)))) == [9]  # a first pass, which leaves the target alone
    assert target.stands("me") is None
    version = target.finish(RunState(np.ones(10, np.bool_), cells={"/g/a": 4}))
    assert (target.publish(), target.stands("me"), target.stands("other")) == (version, version, None)
    assert repositories.values(tmp_path / "s")["g/a/c/2"] == b"\3" * 8


def test_a_fork_that_was_lost_is_found(tmp_path: Path) -> None:
    target = RepositoryTarget(LocalStore(tmp_path), "s", "run")
    target.prepare(stock(), lambda: None)
    target.take(0, done(target, 0))
    target.settle()
    with pytest.raises(StorageError, match="tasks wrote 2 cells, 1 are stored") as caught:
        target.finish(RunState(np.ones(10, np.bool_), cells={"/g/a": 2}))
    assert caught.value.kind == "commit-differs"


def test_nothing_is_committed_without_leave(tmp_path: Path) -> None:
    target, open_ = RepositoryTarget(LocalStore(tmp_path), "s", "run"), [True]

    def fence() -> None:
        if not open_[0]:
            raise StorageError("the lease is lost", kind="io")

    target.prepare(stock(), fence)
    target.take(0, done(target, 0))
    open_[0] = False
    with pytest.raises(StorageError, match="lease"):
        target.settle()
    assert repositories.committed(tmp_path / "s") == set()


def test_an_array_of_another_meaning_begins_anew(tmp_path: Path) -> None:
    """Its chunks go; one that only grows keeps them, one that shrinks keeps none outside."""
    folder = LocalStore(tmp_path)

    def publish(layout: TargetLayout, cells: int, tasks: tuple[int, ...] = ()) -> dict[str, bytes]:
        target = RepositoryTarget(folder, "s", str(layout))
        target.prepare(stock(layout), lambda: None)
        for i in tasks:
            target.take(i, done(target, i))
        target.settle()
        target.finish(RunState(np.ones(10, np.bool_), cells={"/g/a": cells}))
        target.publish()
        return {k: v for k, v in repositories.values(tmp_path / "s").items() if "/c/" in k}

    def layout(n: int, fill: bytes = bytes(2)) -> TargetLayout:
        return TargetLayout("/g/a", ("x",), (n,), np.dtype("i2"), (4,), None, CodecChain.of("bytes"), fill)

    first = publish(layout(40), 3, (0, 5, 9))
    assert sorted(first) == ["g/a/c/0", "g/a/c/5", "g/a/c/9"]
    assert publish(layout(80), 3) == first
    assert sorted(publish(layout(24), 2)) == ["g/a/c/0", "g/a/c/5"]
    assert sorted(publish(layout(80), 2)) == ["g/a/c/0", "g/a/c/5"]
    assert publish(layout(80, b"\1\0"), 0) == {}

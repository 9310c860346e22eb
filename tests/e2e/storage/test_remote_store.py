"""RemoteStore against a real S3 server, and against one whose answers get lost."""

from __future__ import annotations

import pickle
import uuid

import pytest
from services.fault_proxy import FaultProxy
from services.s3 import Bucket

from drystone.errors import ConfigError, StorageError
from drystone.storage.remote import RemoteStore

pytestmark = pytest.mark.services


@pytest.fixture
def store(s3: Bucket) -> RemoteStore:
    return RemoteStore(f"{s3.url}/{uuid.uuid4().hex}", s3.options)


def through(proxy: FaultProxy, s3: Bucket, store: RemoteStore) -> RemoteStore:
    """The same folder of the same bucket, reached through the proxy."""
    return RemoteStore(store.url, {**s3.options, "endpoint": proxy.endpoint})


def test_put_get_and_ranges(store: RemoteStore) -> None:
    data = bytes(range(256)) * 40
    store.put("a/b.bin", [data[:1000], memoryview(data)[1000:]])
    assert store.get("a/b.bin") == data
    assert store.get_range("a/b.bin", 256, 3) == b"\x00\x01\x02"
    assert store.get_ranges("a/b.bin", [10, 5000, 0], [5, 7, 1]) == [data[10:15], data[5000:5007], data[:1]]


def test_stat_changes_with_content(store: RemoteStore) -> None:
    store.put("x", b"one")
    first = store.stat("x")
    assert (first.size, first.etag is not None, first.mtime_ns is not None) == (3, True, True)
    assert first.differs(store.stat("x")) is None
    store.put("x", b"two")
    assert "ETag" in (first.differs(store.stat("x")) or "")


def test_create_only_never_overwrites(store: RemoteStore) -> None:
    assert store.create("lock", b"first") is True
    assert store.create("lock", b"second") is False
    assert store.get("lock") == b"first"


def test_list_is_by_prefix_and_in_key_order(store: RemoteStore) -> None:
    for key in ("log/2", "log/10", "log/1", "logs/1", "other"):
        store.put(key, b"")
    assert [key for key, _ in store.list("log/")] == ["log/1", "log/10", "log/2"]
    assert [key for key, _ in store.list("log")] == ["log/1", "log/10", "log/2", "logs/1"]
    assert [key for key, _ in store.list("log/1")] == ["log/1", "log/10"]
    assert len(list(store.list())) == 5


def test_delete_is_idempotent(store: RemoteStore) -> None:
    store.put("gone", b"x")
    store.delete("gone")
    store.delete("gone")
    assert not store.exists("gone")


def test_missing_object_is_named_with_its_full_address(store: RemoteStore) -> None:
    for action in (store.get, store.stat, lambda key: store.get_range(key, 0, 1)):
        with pytest.raises(StorageError, match=store.url) as caught:
            action("no/such.nc")
        assert caught.value.kind == "not-found"


@pytest.mark.parametrize(("start", "length"), [(5, 20), (0, 11)])
def test_a_range_past_the_end_is_a_short_read(store: RemoteStore, start: int, length: int) -> None:
    store.put("short", b"0123456789")
    with pytest.raises(StorageError) as caught:
        store.get_range("short", start, length)
    assert caught.value.kind == "short-read"


def test_a_range_wholly_past_the_end_is_an_error(store: RemoteStore) -> None:
    store.put("short", b"0123456789")
    with pytest.raises(StorageError):
        store.get_range("short", 100, 4)


def test_denied_access_is_said_so(s3: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StorageError) as caught:
        RemoteStore(s3.url, s3.options).get("anything")
    assert caught.value.kind == "no-permission"


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"])
def test_an_endpoint_in_the_environment_may_not_replace_the_configs(
    s3: Bucket, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:1")
    with pytest.raises(ConfigError, match=variable) as caught:
        RemoteStore(s3.url, s3.options)
    assert caught.value.kind == "endpoint-override"


def test_a_store_crosses_process_borders(store: RemoteStore) -> None:
    store.put("k", b"v")
    assert pickle.loads(pickle.dumps(store)).get("k") == b"v"


def test_passing_faults_are_ridden_out(store: RemoteStore, s3: Bucket, fault_proxy: FaultProxy) -> None:
    data = bytes(5000)
    far = through(fault_proxy, s3, store)
    fault_proxy.set(p503=0.3, preset=0.2)
    for i in range(10):
        far.put(f"f/{i}", data)
        assert far.get_range(f"f/{i}", 7, 99) == data[7:106]
    assert sum(fault_proxy.counts.struck.values()) > 0
    assert len(list(store.list("f/"))) == 10


def test_a_create_whose_answer_was_lost_is_still_this_writers(store: RemoteStore, s3: Bucket, fault_proxy: FaultProxy) -> None:
    far = through(fault_proxy, s3, store)
    fault_proxy.set(pack_lost=0.5, match="PUT")
    results = [far.create(f"c/{i}", f"writer {i}".encode()) for i in range(8)]
    fault_proxy.set()
    assert fault_proxy.counts.struck["pack_lost"] > 0
    assert results == [True] * 8
    assert far.create("c/0", b"someone else") is False
    assert store.get("c/0") == b"writer 0"

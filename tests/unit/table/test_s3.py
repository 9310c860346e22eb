"""The table on an object store, also where answers are lost on the way."""

from __future__ import annotations

import pickle
import uuid

import numpy as np
import pytest
from services.fault_proxy import FaultProxy
from services.s3 import Bucket
from services.table_scans import assert_holds, listed, odd_scan

from drystone.errors import StorageError
from drystone.model.chunk_rows import ScanResult
from drystone.storage.remote import RemoteStore
from drystone.table.table import ReferenceTable
from drystone.table.write import WrittenBatch, write_batch

pytestmark = pytest.mark.services


@pytest.fixture
def store(s3: Bucket) -> RemoteStore:
    return RemoteStore(f"{s3.url}/{uuid.uuid4().hex}", s3.options)


def made(granules: range) -> dict[int, ScanResult]:
    return {g: odd_scan(np.random.default_rng([7, g])) for g in granules}


def written(store: RemoteStore, scans: dict[int, ScanResult], attempt: int = 1) -> WrittenBatch:
    return write_batch(store, "a/t", [(g, listed(g), s) for g, s in scans.items()], attempt)


def test_values_come_back_exactly_from_an_object_store(store: RemoteStore) -> None:
    table = ReferenceTable.create(store, "a/t")
    scans = made(range(12))
    for k in range(3):
        mine = {g: s for g, s in scans.items() if g % 3 == k}
        assert table.commit([written(store, mine)], run_id="r", sequence=k)
        assert not table.commit([written(store, mine)], run_id="r", sequence=k)
    assert_holds(table, scans)
    assert_holds(ReferenceTable.at(pickle.loads(pickle.dumps(table.pin()))), scans)
    assert [k for k, _ in store.list("a/t/probe")] == []
    assert ReferenceTable.open_or_create(store, "a/t").sweep(older_than=0) == 3 * 3


def test_lost_answers_neither_lose_nor_double_rows(s3: Bucket, store: RemoteStore, fault_proxy: FaultProxy) -> None:
    ReferenceTable.create(store, "a/t")
    faulty = RemoteStore(store.url, {**s3.options, "endpoint": fault_proxy.endpoint})
    scans = made(range(8))
    table = ReferenceTable.open(faulty, "a/t")
    fault_proxy.set(pack_lost=0.35, match="_delta_log/0")
    failed = 0
    for g, scan in scans.items():
        batch = written(store, {g: scan})
        for _ in range(20):
            try:
                table.commit([batch], run_id="r", sequence=g)
                break
            except StorageError:
                failed += 1
    fault_proxy.set()
    print(f"{failed} commits were called again; faults: {fault_proxy.counts}")
    table = ReferenceTable.open(store, "a/t")
    assert table.last_sequence("r") == 7
    assert_holds(table, scans)

"""The lease between real processes that are killed, stopped and outlived."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from services.s3 import Bucket

from drystone.errors import LeaseError, StorageError
from drystone.publish.lease import Lease, LeaseRecord, holder_of, read_lease
from drystone.storage.local import LocalStore
from drystone.storage.remote import RemoteStore
from drystone.storage.store import Store

HOLDER = """
import json, sys, time
from drystone.publish.lease import Lease
from drystone.storage.address import open_store
url, options, ttl = sys.argv[1], json.loads(sys.argv[2]), float(sys.argv[3])
with Lease(open_store(url, options), "runs/lease", ttl=ttl, purpose="the holder") as lease:
    print("held", flush=True)
    for line in sys.stdin:
        try:
            lease.check()
            print("ours", flush=True)
        except Exception as error:
            print(getattr(error, "kind", error), flush=True)
"""


class Holder:
    """Another process that holds the lease."""

    def __init__(self, url: str, options: str, ttl: float) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, url, options, str(ttl)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def check(self) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write("check\n")
        self.process.stdin.flush()
        return self.answer()

    def send(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)


@contextmanager
def holder(url: str, options: str = "{}", ttl: float = 60) -> Iterator[Holder]:
    h = Holder(url, options, ttl)
    try:
        assert h.answer() == "held"
        yield h
    finally:
        h.process.kill()
        h.process.communicate()


def test_a_second_process_is_told_who_holds_it_and_how_old_the_heartbeat_is(tmp_path: Path) -> None:
    with holder(tmp_path.as_uri()) as other:
        with pytest.raises(LeaseError) as caught, Lease(LocalStore(tmp_path), "runs/lease"):
            pass
        error = caught.value
        assert error.kind == "lease-held"
        assert error.exit_code == 3
        assert f"the holder of process {other.process.pid} on {os.uname().nodename}" in error.message
        assert error.facts["pid"] == other.process.pid
        age = error.facts["age"]
        assert isinstance(age, float)
        assert 0 <= age < 30
        assert other.check() == "ours"
        found = holder_of(LocalStore(tmp_path), "runs/lease")
        assert found is not None
        assert found.pid == other.process.pid


def test_a_killed_holder_is_taken_over_at_once(tmp_path: Path) -> None:
    with holder(tmp_path.as_uri()) as other:
        other.send(signal.SIGKILL)
        other.process.wait()
        assert holder_of(LocalStore(tmp_path), "runs/lease") is None
        with Lease(LocalStore(tmp_path), "runs/lease") as lease:
            lease.check()


def test_a_killed_holder_that_nobody_has_waited_for_is_taken_over(tmp_path: Path) -> None:
    with holder(tmp_path.as_uri()) as other:
        other.send(signal.SIGKILL)
        status = f"/proc/{other.process.pid}/stat"
        while " Z " not in Path(status).read_text():
            time.sleep(0.01)
        with Lease(LocalStore(tmp_path), "runs/lease") as lease:
            lease.check()


def test_a_stopped_holder_is_never_overtaken_and_goes_on_when_it_wakes(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with holder(tmp_path.as_uri(), ttl=0.4) as other:
        other.send(signal.SIGSTOP)
        time.sleep(1)
        record = read_lease(store, "runs/lease")
        assert record is not None
        assert time.time() - record.renewed > record.ttl
        with pytest.raises(LeaseError, match="the holder of process"):
            Lease(store, "runs/lease").acquire()
        other.send(signal.SIGCONT)
        assert other.check() == "ours"


def test_a_stopped_holder_whose_lock_was_lost_finds_out_before_it_commits(tmp_path: Path) -> None:
    """The lock file's folder was replaced, as a restored backup or a node-local lock would have it."""
    store = LocalStore(tmp_path)
    with holder(tmp_path.as_uri(), ttl=0.4) as other:
        other.send(signal.SIGSTOP)
        text = (tmp_path / "runs" / "lease").read_bytes()
        shutil.rmtree(tmp_path / "runs")
        record = LeaseRecord.from_bytes(text)
        assert record is not None
        store.put("runs/lease", replace(record, machine="another boot", renewed=0.0).to_bytes())
        with Lease(store, "runs/lease") as lease:
            other.send(signal.SIGCONT)
            assert other.check() == "lease-lost"
            lease.check()
        assert other.check() == "lease-lost"


def test_a_lease_of_another_machine_is_stale_only_after_its_time(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    mine = Lease(store, "lease", ttl=5)
    foreign = replace(mine.record, token="foreign", host="node7", machine="other", pid=1)
    store.put("lease", foreign.to_bytes())
    with pytest.raises(LeaseError, match="node7"):
        mine.acquire()
    store.put("lease", replace(foreign, renewed=time.time() - 6).to_bytes())
    with mine:
        mine.check()
    assert not store.exists("lease")


def test_a_reused_process_number_is_not_taken_for_the_holder(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    mine = Lease(store, "lease")
    store.put("lease", replace(mine.record, token="old", started="1").to_bytes())
    with mine:
        mine.check()


def test_what_is_no_lease_record_does_not_lock_anybody_out(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("lease", b'{"token": "torn')
    with Lease(store, "lease") as lease:
        lease.check()


def test_check_reads_the_token_again(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with Lease(store, "lease") as lease:
        taken = replace(lease.record, token="thief", host="node7")
        store.put("lease", taken.to_bytes())
        with pytest.raises(LeaseError, match="taken over by") as caught:
            lease.check()
        assert caught.value.kind == "lease-lost"
    # another's lease is left alone
    assert read_lease(store, "lease") == taken


def test_a_removed_lease_is_noticed(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with Lease(store, "lease") as lease:
        store.delete("lease")
        with pytest.raises(LeaseError, match="was removed"):
            lease.check()


def test_check_outside_the_block_is_refused(tmp_path: Path) -> None:
    lease = Lease(LocalStore(tmp_path), "lease")
    with pytest.raises(LeaseError, match="not held"):
        lease.check()
    with lease:
        pass
    with pytest.raises(LeaseError, match="not held"):
        lease.check()


def test_the_heartbeat_moves_and_stops_with_the_block(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    before = threading.active_count()
    with Lease(store, "lease", ttl=0.2) as lease:
        first = read_lease(store, "lease")
        assert first is not None
        deadline = time.monotonic() + 20
        while (now := read_lease(store, "lease")) is None or now.renewed <= first.renewed:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert now.token == lease.record.token
    assert threading.active_count() == before
    assert read_lease(store, "lease") is None


def test_many_processes_at_once_hold_it_one_after_the_other(tmp_path: Path) -> None:
    """Each adds one to a counter without any other protection."""
    code = """
import pathlib, sys, time
from drystone.errors import LeaseError
from drystone.publish.lease import Lease
from drystone.storage.local import LocalStore
folder = pathlib.Path(sys.argv[1])
for _ in range(20):
    while True:
        try:
            with Lease(LocalStore(folder), "lease") as lease:
                n = int((folder / "n").read_text())
                time.sleep(0.001)
                lease.check()
                (folder / "n").write_text(str(n + 1))
            break
        except LeaseError:
            time.sleep(0.002)
"""
    (tmp_path / "n").write_text("0")
    running = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(3)]
    assert [p.wait() for p in running] == [0, 0, 0]
    assert (tmp_path / "n").read_text() == "60"


class Unwritable:
    """A store whose puts fail after the first object, as a full disk's do."""

    def __init__(self, inner: Store, root: str | None) -> None:
        self.inner, self.root, self.url = inner, root, inner.url

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def put(self, key: str, data: bytes) -> None:
        raise StorageError("full", kind="no-space")


def test_a_full_disk_ends_nothing_while_the_kernel_lock_is_held(tmp_path: Path) -> None:
    store = Unwritable(LocalStore(tmp_path), str(tmp_path))
    with Lease(store, "lease", ttl=0.1) as lease:  # type: ignore[arg-type]
        time.sleep(0.3)
        with pytest.raises(StorageError, match="full"):
            lease.check()


def test_without_a_kernel_lock_a_heartbeat_that_stands_still_ends_it(tmp_path: Path) -> None:
    store = Unwritable(LocalStore(tmp_path), None)
    with Lease(store, "lease", ttl=0.1) as lease:  # type: ignore[arg-type]
        time.sleep(0.3)
        with pytest.raises(LeaseError, match="no heartbeat was written"):
            lease.check()


@pytest.mark.services
def test_on_an_object_store(s3: Bucket) -> None:
    import json

    url = f"{s3.url}/lease-{time.time_ns()}"
    store = RemoteStore(url, s3.options)
    with holder(url, json.dumps(s3.options)) as other:
        with pytest.raises(LeaseError, match="the holder of process"):
            Lease(store, "runs/lease").acquire()
        assert other.check() == "ours"
        other.send(signal.SIGKILL)
        other.process.wait()
        with Lease(store, "runs/lease") as lease:
            lease.check()
    assert not store.exists("runs/lease")

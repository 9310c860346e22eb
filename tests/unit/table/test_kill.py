"""A committer killed at random moments leaves a table that opens, is whole granule by granule, and can be gone on with."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from services.table_scans import assert_holds, listed, odd_scan

from drystone.storage.local import LocalStore
from drystone.table.table import ReferenceTable
from drystone.table.write import write_batch

KILLS = 8
SEED = 20261130


def scan(granule: int):
    return odd_scan(np.random.default_rng([SEED, granule]), 4)


def commit_on(folder: str) -> None:
    """Commit two granules at a time for ever, the first two that the table lacks."""
    table = ReferenceTable.open_or_create(LocalStore(folder), "t")
    sequence = table.last_sequence("r")
    while True:
        sequence = 0 if sequence is None else sequence + 1
        granules = range(2 * sequence, 2 * sequence + 2)
        attempt = table.next_attempt_id()
        batch = write_batch(table.store, "t", [(g, listed(g), scan(g)) for g in granules], attempt)
        table.commit([batch], run_id="r", sequence=sequence)
        print(sequence, flush=True)


def test_kill_at_any_moment(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    acknowledged, seen = -1, []
    for _ in range(KILLS):
        child = subprocess.Popen(
            [sys.executable, __file__, str(tmp_path)], stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": ":".join(sys.path)}
        )
        assert child.stdout is not None
        with child:
            first = child.stdout.readline()  # after start-up, so that kills strike commits and not imports
            assert first, "the committer failed by itself"
            time.sleep(rng.uniform(0, 0.25))
            child.send_signal(signal.SIGKILL)
            lines = [first, *child.stdout.read().split("\n")]
        acknowledged = max(acknowledged, *(int(line) for line in lines if line.strip()))
        table = ReferenceTable.open(LocalStore(tmp_path), "t")
        last = table.last_sequence("r")
        assert last is not None
        # what was acknowledged is there; at most one commit more landed unacknowledged
        assert acknowledged <= last <= acknowledged + 1
        assert_holds(table, {g: scan(g) for g in range(2 * (last + 1))})
        acknowledged = last
        seen.append(last)
    print(f"seed {SEED}: commits after each kill {seen}")
    assert seen == sorted(seen)


if __name__ == "__main__":
    commit_on(sys.argv[1])

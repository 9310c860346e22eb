"""kill -9 at any state-changing system call of a run, then run again: identical bytes (a few draws of ``kills.py``)."""

from __future__ import annotations

import pytest
from e2e import kills, syscalls

pytestmark = pytest.mark.skipif(not syscalls.supported(), reason="system calls are traced on Linux (x86_64, aarch64) only")


@pytest.mark.parametrize(("cluster", "draws", "seed"), [("inline", 4, 20261130), ("local", 2, 7)])
def test_killed_runs_resume_to_identical_bytes(cluster: str, draws: int, seed: int) -> None:
    """The full campaign of 50 is ``python tests/e2e/kills.py``."""
    found = kills.campaign(draws, seed, cluster, None)
    assert found["failed"] == 0, [r for r in found["results"] if r["problems"]]
    assert found["span"] > 100

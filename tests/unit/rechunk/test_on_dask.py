"""Tasks on worker processes that die: every value arrives, and the bytes are those of a quiet run."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import numpy as np
from services.rechunk_run import prepare_run, write_granules

from drystone.execute.engine import run_windowed
from drystone.model.options import ExecutionOptions, OutputOptions
from drystone.rechunk.kernel import TaskDone, run_task

OUTPUT = OutputOptions("store", "zarr", "out:s", chunks={"d0": 4, "d1": 8, "d2": 8}, shards={"d0": 8, "d1": 16, "d2": 16})


def test_killed_workers_leave_no_trace(tmp_path: Path) -> None:
    values = np.random.default_rng(1).integers(0, 99, (16, 64, 64)).astype("f4")
    write_granules(tmp_path / "raw", values, [4, 4, 4, 4], (1, 64, 64))
    quiet = prepare_run(tmp_path / "raw", tmp_path / "quiet", OUTPUT, 16_000_000, slots=8)
    quiet.run_all()
    run = prepare_run(tmp_path / "raw", tmp_path / "out", OUTPUT, 16_000_000, slots=8)
    assert run.plan.n_tasks >= 8
    killed: set[str] = set()

    def on_done(_: int, done: TaskDone) -> None:
        worker = done.receipt.worker
        if len(killed) < 2 and worker not in killed:
            killed.add(worker)
            os.kill(int(worker.split("-")[-2]), signal.SIGKILL)

    failed: list[object] = []
    options = ExecutionOptions("local", workers=2, memory_per_worker=2_000_000_000)
    function = partial(run_task, run.job)
    run_windowed(
        function, range(run.plan.n_tasks), options, on_done=on_done, on_failed=lambda *a: failed.append(a), inline=False
    )
    assert not failed
    assert len(killed) == 2
    assert run.state().done.all()
    assert run.bytes() == quiet.bytes()

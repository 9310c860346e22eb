"""A million tasks: planned, written and read back, their receipts proved; and what the engine costs for each.

The array is made up (a million daily files of 100 x 100 cells, cut to a million unsharded chunks); tasks do nothing,
so that what is timed is the driver and the scheduler. One process for each part, so that peaks are its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from drystone.codecs.chain import CodecChain
from drystone.execute.engine import run_windowed
from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.attributes import Attributes
from drystone.model.options import ExecutionOptions
from drystone.model.placement import CombinedArray, Placements
from drystone.model.task import Receipt, StoredObject
from drystone.plan.layout import TargetLayout
from drystone.plan.shards import TaskPlan
from drystone.rechunk.plan_file import ArrayPlan, RechunkPlan, load_plan, write_plan
from drystone.rechunk.receipts import proved
from drystone.storage.local import LocalStore


def report(case: str, value: float, unit: str, **rest: object) -> None:
    print(
        json.dumps({"bench": "scale", "case": case, "subject": "drystone", "value": value, "unit": unit, "more": False} | rest),
        flush=True,
    )


def resident(name: str = "VmRSS") -> int:
    """Bytes of this process now, or with VmHWM at its peak."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(name))
    return int(line.split()[1]) * 1024


def a_plan(n_tasks: int) -> RechunkPlan:
    """A plan of that many tasks over as many daily files."""
    days = n_tasks
    shape = (days, 100, 100)
    i2, chain = np.dtype("i2"), CodecChain.of("bytes")
    ids = np.arange(days, dtype=np.int32)
    one = np.ones(days, np.int64)
    where = Placements(0, ids, 0 * one, one, np.arange(days, dtype=np.int64), np.zeros(days, np.int32))
    grid = ChunkGrid.regular(shape, (1, 100, 100))
    array = CombinedArray("/v", ("t", "y", "x"), shape, i2, i2, None, chain, Attributes(), grid, None, where, ())
    layout = TargetLayout("/v", array.dims, shape, i2, (100, 10, 10), None, chain, bytes(2))
    tasks = TaskPlan("/v", layout.cells, layout.cells, grid.n_chunks, 100 * grid.n_chunks, 10**6, 10**6, 1)
    digests = np.random.default_rng(0).integers(0, 256, (days, 16), np.uint8)
    return RechunkPlan(0, "out:a.zarr", (ArrayPlan(array, layout, tasks, digests, np.zeros(days, np.int32)),))


def planning(n: int) -> None:
    """Plan, write, read back."""
    start = time.perf_counter()
    plan = a_plan(n)
    assert plan.n_tasks == n
    with tempfile.TemporaryDirectory() as folder:
        write_plan(LocalStore(folder), "run", plan)
        again = load_plan(LocalStore(folder), "run")
        assert again is not None
        assert again.fingerprint == plan.fingerprint
    report(f"{n:,} tasks: planned, written, read", time.perf_counter() - start, "s", target={"at_most": 30})
    report(f"{n:,} tasks: peak memory of it", resident("VmHWM") / 1e6, "MB", target={"at_most": 2000})


def proving(n: int) -> None:
    """Check a receipt of every task, as a resumed run does."""
    plan = a_plan(n)
    (a,) = plan.arrays
    base, sizes = a.base(), {}

    def receipts() -> Iterator[Receipt]:
        for i in range(n):
            task = plan.task_of(a, i, base)
            (cell,) = a.tasks.cells(i)
            key = a.layout.cell_key(cell)
            sizes[key] = 100
            text = Receipt(
                task.task_id, task.fingerprint, "/v", i, (StoredObject(key, 100, 1),), (), 1, 1, 1, 0.1, 1, "w"
            ).to_json()
            yield Receipt.from_json(text)

    start = time.perf_counter()
    done = sum(1 for _ in proved(plan, receipts(), sizes))
    assert done == n
    report(f"{n:,} receipts: made and proved", (time.perf_counter() - start) / n * 1e6, "us each")
    report(f"{n:,} receipts: peak memory of it", resident("VmHWM") / 1e6, "MB", target={"at_most": 2000})


def nothing(index: int) -> int:
    """A task that takes no time."""
    return index


def engine(n: int) -> None:
    """Tasks through a cluster of two workers: scheduler and driver share this process."""
    marks: dict[int, tuple[float, float, int]] = {}

    def done(_: int, __: int) -> None:
        done.count += 1  # type: ignore[attr-defined]
        if done.count in (n // 4, n):  # type: ignore[attr-defined]
            marks[done.count] = (time.perf_counter(), time.process_time(), resident())  # type: ignore[attr-defined]

    done.count = 0  # type: ignore[attr-defined]
    run_windowed(nothing, range(n), ExecutionOptions("local", workers=2), on_done=done, on_failed=print, inline=False)
    (t0, c0, m0), (t1, c1, m1) = marks[n // 4], marks[n]
    rest = n - n // 4
    report("engine: a task's time", (t1 - t0) / rest * 1e3, "ms")
    report("engine: driver and scheduler CPU a task", (c1 - c0) / rest * 1e3, "ms", target={"at_most": 4})
    report("engine: growth of their memory", max(0, m1 - m0) / rest, "bytes a task", note=f"{m1 / 1e6:.0f} MB at the end")


PARTS = {"planning": planning, "proving": proving, "engine": engine}


def main() -> None:
    """Run each part in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--work", help="unused: nothing large is written")
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("-n", type=int)
    options = parser.parse_args()
    sizes = {"planning": 10**6, "proving": 10**5 if options.quick else 10**6, "engine": 2_000 if options.quick else 20_000}
    if options.part:
        PARTS[options.part](options.n or sizes[options.part])
        return
    for part, n in sizes.items():
        subprocess.run([sys.executable, os.path.abspath(__file__), "--part", part, "-n", str(n)], check=True)


if __name__ == "__main__":
    main()

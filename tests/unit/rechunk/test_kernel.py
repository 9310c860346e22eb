"""Tasks: receipts, resume, duplicates, proofs, and what a kill leaves behind."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from services.rechunk_run import Prepared, prepare_run, write_granules

from drystone.errors import GranuleChanged, PlanError, TableError
from drystone.model.options import OutputOptions
from drystone.rechunk.plan_file import load_plan, resumed_plan, write_plan
from drystone.rechunk.receipts import ObjectsHeld, load_receipts, proved, sweep_temporary, target_sizes
from drystone.storage.local import TEMPORARY_SUFFIX

SHAPE = (12, 10, 8)
OUTPUT = OutputOptions(
    "store",
    "zarr",
    "out:s",
    chunks={"d0": 3, "d1": 5, "d2": 4},
    shards={"d0": 6, "d1": 5, "d2": 8},
    codecs=(("blosc", {"level": 1}),),
)


def values(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 50, SHAPE).astype("i2")


def make(folder: Path, seed: int = 0) -> Prepared:
    write_granules(folder / "raw", values(seed), [4, 4, 4], (2, 10, 8))
    return prepare_run(folder / "raw", folder / "out", OUTPUT, 100_000_000, slots=4)


def test_receipts_prove_every_task(tmp_path: Path) -> None:
    run = make(tmp_path)
    receipts = run.run_all()
    assert run.plan.n_tasks == 4
    state = run.state()
    assert state.done.all()
    assert state.bytes_written == sum(o.size for r in receipts for o in r.objects)
    assert receipts[0].sources == ((0, 7), (1, 7))
    assert receipts[0].peak_rss > 10_000_000
    assert receipts[0].bytes_decoded > 0


def test_duplicates_and_any_order_write_the_same_bytes(tmp_path: Path) -> None:
    one, two = make(tmp_path / "a"), make(tmp_path / "b")
    one.run_all()
    two.run_all([3, 1, 0, 2, 1, 3])
    assert one.bytes() == two.bytes()
    assert two.state().n_done == 4


def test_job_is_small_and_travels(tmp_path: Path) -> None:
    run = make(tmp_path)
    again = pickle.loads(pickle.dumps(dataclasses.replace(run.job, rows=None)))  # type: ignore[arg-type]
    assert again.places.url(again.run) == run.job.places.url(run.job.run)
    assert len(pickle.dumps(again)) < 700


def test_plan_file_round_trip(tmp_path: Path) -> None:
    run = make(tmp_path)
    loaded = load_plan(run.store, run.run)
    assert loaded is not None
    assert loaded.fingerprint == run.plan.fingerprint
    assert [loaded.task(i).task_id for i in range(4)] == [run.plan.task(i).task_id for i in range(4)]
    assert load_plan(run.store, "elsewhere") is None


def test_plan_of_other_placements_is_refused(tmp_path: Path) -> None:
    run = make(tmp_path)
    document = json.loads(run.store.get("run/plan.json"))
    other = run.plan.arrays[0]
    changed = dataclasses.replace(other, digests=other.digests + 1)
    write_plan(run.store, "run", dataclasses.replace(run.plan, arrays=(changed,)))
    run.store.put("run/plan.json", json.dumps(document).encode())
    with pytest.raises(TableError, match="do not belong together"):
        load_plan(run.store, "run")


def test_task_of_a_replaced_plan_stops(tmp_path: Path) -> None:
    run = make(tmp_path)
    stale = dataclasses.replace(run, job=dataclasses.replace(run.job, fingerprint="0" * 32))
    with pytest.raises(TableError, match="another plan"):
        stale.run_all([0])


def test_target_that_someone_resized_is_not_written(tmp_path: Path) -> None:
    run = make(tmp_path)
    document = json.loads(run.store.get("s/v/zarr.json"))
    document["chunk_grid"]["configuration"]["chunk_shape"] = [3, 5, 8]
    run.store.put("s/v/zarr.json", json.dumps(document).encode())
    with pytest.raises(PlanError, match="someone else changed the store"):
        run.run_all([0])
    assert not [k for k in run.bytes() if "/c/" in k and k.startswith("s/v")]


@pytest.mark.parametrize(
    "harm", ["removed", "cut short", "of another plan", "receipt torn"], ids=["removed", "cut", "other plan", "torn"]
)
def test_only_a_valid_receipt_counts(tmp_path: Path, harm: str) -> None:
    run = make(tmp_path)
    receipts = run.run_all()
    key = f"s/{receipts[2].objects[0].key}"
    undisturbed = run.bytes()
    if harm == "removed":
        run.store.delete(key)
    elif harm == "cut short":
        path = tmp_path / "out" / key
        path.write_bytes(path.read_bytes()[:-1])
    else:
        (segment,) = [k for k, _ in run.store.list("run/receipts/")]
        lines = [line + b"\n" for line in run.store.get(segment).split(b"\n") if line]
        if harm == "receipt torn":
            lines = [*lines[:-1], lines[-1][:-20]]
        else:
            lines[2] = lines[2].replace(receipts[2].fingerprint.encode(), b"0" * 32)
        run.store.put(segment, b"".join(lines))
    pending = run.state().pending()
    assert pending == ([3] if harm == "receipt torn" else [2])
    run.run_all(pending)
    assert run.state().pending() == []
    assert run.bytes() == undisturbed


def test_all_fill_cells_leave_no_object_and_a_stale_one_goes(tmp_path: Path) -> None:
    data = values()
    data[6:] = 0
    write_granules(tmp_path / "raw", data, [4, 4, 4], (2, 10, 8))
    run = prepare_run(tmp_path / "raw", tmp_path / "out", OUTPUT, 100_000_000, slots=4)
    run.store.put("s/v/c/1/0/0", b"an older run's")
    receipts = run.run_all()
    assert [o.size for r in receipts for o in r.objects].count(-1) == 2
    assert sorted(k for k in target_sizes(run.store, "s") if k.startswith("v/c")) == ["v/c/0/0/0", "v/c/0/1/0"]
    assert run.state().done.all()
    run.store.put("s/v/c/1/0/0", b"someone else's")
    assert run.state().n_done == 3


def test_changed_granule_fails_its_tasks_and_leaves_no_receipt(tmp_path: Path) -> None:
    run = make(tmp_path)
    victim = tmp_path / "raw" / "g002.nc"
    os.utime(victim, ns=(1, 1))
    run.run_all([0, 1])
    with pytest.raises(GranuleChanged, match=r"g002\.nc"):
        run.run_all([2])
    assert run.state().pending() == [2, 3]


def test_changed_granule_changes_the_fingerprints_of_its_tasks_only(tmp_path: Path) -> None:
    one = make(tmp_path / "a")
    write_granules(tmp_path / "b" / "raw", np.where(np.arange(12)[:, None, None] < 8, values(), 7), [4, 4, 4], (2, 10, 8))
    for i in range(2):  # the same files, not merely the same values: their stamps are part of what they are
        (tmp_path / "b" / "raw" / f"g{i:03d}.nc").unlink()
        os.link(tmp_path / "a" / "raw" / f"g{i:03d}.nc", tmp_path / "b" / "raw" / f"g{i:03d}.nc")
    two = prepare_run(tmp_path / "b" / "raw", tmp_path / "b" / "out", OUTPUT, 100_000_000, slots=4)
    same = [one.plan.task(i).fingerprint == two.plan.task(i).fingerprint for i in range(4)]
    assert same == [True, True, False, False]
    assert one.plan.fingerprint != two.plan.fingerprint


def test_more_memory_does_not_change_the_run(tmp_path: Path) -> None:
    run = make(tmp_path)
    again = prepare_run(tmp_path / "raw", tmp_path / "out", OUTPUT, 300_000_000, slots=1)
    assert again.plan.n_tasks < run.plan.n_tasks
    assert again.plan.fingerprint == run.plan.fingerprint
    kept = resumed_plan(again.plan, run.plan, 300_000_000)
    assert [kept.task(i) for i in range(4)] == [run.plan.task(i) for i in range(4)]
    assert resumed_plan(again.plan, run.plan, 1000) is again.plan
    assert resumed_plan(again.plan, None, 10**9) is again.plan


def test_another_plan_of_the_same_content_is_seen_by_a_process_that_had_the_first(tmp_path: Path) -> None:
    run = make(tmp_path)
    run.run_all([0])
    again = prepare_run(tmp_path / "raw", tmp_path / "out", OUTPUT, 300_000_000, slots=1)
    again.run_all()
    assert again.state().done.all()


def test_segment_that_was_cleared_away_is_begun_anew(tmp_path: Path) -> None:
    run = make(tmp_path)
    run.run_all([0])
    for key, _ in list(run.store.list("run/receipts/")):
        run.store.delete(key)
    run.run_all([1])
    assert run.state().pending() == [0, 2, 3]


CHILD = """
    import sys
    from pathlib import Path
    from test_kernel import make
    import drystone.storage.local as local, os, time
    folder = Path(sys.argv[1])
    run = make(folder)
    replace = os.replace
    def slow(a, b):          # a window in which a temporary file is there
        print("writing", flush=True)
        time.sleep(0.05)
        replace(a, b)
    local.os.replace = slow
    run.run_all()
    print("done", flush=True)
"""


@pytest.mark.parametrize("writes", [0, 3, 5, 9, 11])
def test_killed_and_resumed_is_byte_for_byte_the_same(tmp_path: Path, writes: int) -> None:
    undisturbed = make(tmp_path / "whole")
    undisturbed.run_all()
    script = tmp_path / "child.py"
    script.write_text(textwrap.dedent(CHILD))
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parents[1]), *sys.path])
    command = [sys.executable, str(script), str(tmp_path / "killed")]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for _ in range(writes + 1):
            if child.stdout.readline().strip() == "done":
                break
        os.kill(child.pid, signal.SIGKILL)
    # the granules stay as they were: their stamps are in the fingerprint
    resumed = prepare_run(tmp_path / "killed" / "raw", tmp_path / "killed" / "out", OUTPUT, 100_000_000, slots=4)
    sweep_temporary(resumed.store, resumed.key)
    state = resumed.state()
    held = ObjectsHeld(target_sizes(resumed.store, resumed.key))
    done = [r for _, r in proved(resumed.plan, load_receipts(resumed.store, resumed.run), held)]
    kept = {
        o.key: (tmp_path / "killed" / "out" / "s" / o.key).stat().st_mtime_ns for r in done for o in r.objects if o.size >= 0
    }
    assert sum(state.cells.values()) == len(kept)
    time.sleep(0.01)
    resumed.run_all(state.pending())
    assert resumed.state().done.all()
    assert resumed.bytes() == undisturbed.bytes()
    assert {k: (tmp_path / "killed" / "out" / "s" / k).stat().st_mtime_ns for k in kept} == kept
    assert not list((tmp_path / "killed" / "out" / "s").rglob(f"*{TEMPORARY_SUFFIX}"))
    assert len({r.task_id for r in load_receipts(resumed.store, resumed.run)}) == 4

"""One ``store:`` output from plan to publish: metadata, tasks, receipts, verification, root."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from drystone.codecs.zarr_forms import packed_dtype
from drystone.emit.view import TableView
from drystone.errors import ConsentNeeded, DrystoneError, IncompleteRun, TableError
from drystone.execute.engine import run_windowed
from drystone.execute.resources import resolve
from drystone.fetch.fetcher import Fetcher
from drystone.model.options import OutputOptions
from drystone.model.placement import CombinedArray
from drystone.model.progress import Progress
from drystone.pipeline.archive import Archive
from drystone.pipeline.combined import Whole, fetcher_for
from drystone.pipeline.digests import write_digests
from drystone.pipeline.passes import Passes, shuffle_sizes, sweep_between
from drystone.pipeline.planning import OutputPlan
from drystone.pipeline.published import PublishedRecord, read_published, write_published
from drystone.pipeline.verifying import verified_text, verify_one
from drystone.plan.layout import TargetLayout
from drystone.plan.memory import task_memory
from drystone.rechunk.digesting import digests_of
from drystone.rechunk.kernel import TaskDone, TaskJob, run_task
from drystone.rechunk.plan_file import ArrayPlan, RechunkPlan, content_digests, load_plan, resumed_plan, write_plan
from drystone.rechunk.receipts import RunState, load_receipts, proved, remove_objects, run_state, sweep_temporary, target_sizes
from drystone.rechunk.target import is_published, prepare, publish, stray_objects, withdraw

__all__ = ["StoreOutcome", "StoreWork", "ask", "rechunk_plan", "run_store", "state_of", "store_work"]


@dataclass(frozen=True, slots=True)
class StoreOutcome:
    """What a run did to a store."""

    identity: str
    fresh: bool
    tasks: int
    tasks_done: int
    bytes_written: int
    verified: str


def rechunk_plan(whole: Whole, plan: OutputPlan) -> RechunkPlan:
    """The plan of an output's tasks."""
    arrays = []
    for a in plan.arrays:
        if a.tasks is None or a.layout is None:
            continue
        combined = plan.combined.array(a.path)
        granules = [whole.granules[g] for g in combined.placements.granule_id.tolist()]
        attempts = np.array([g.attempt_id for g in granules], np.int32)
        arrays.append(ArrayPlan(combined, a.layout, a.tasks, content_digests(granules), attempts))
    return RechunkPlan(plan.index, plan.output.at, tuple(arrays))


def state_of(archive: Archive, output: OutputOptions, plan: RechunkPlan) -> RunState:
    """What is done of a plan, from receipts and one listing of the target, and of what lies between two passes."""
    run = archive.run_key(output)
    store, key = archive.places.resolve(plan.target)
    between = shuffle_sizes(*archive.places.resolve(archive.scratch(output)))
    return run_state(plan, load_receipts(archive.store, run), target_sizes(store, key), between)


@dataclass(frozen=True, slots=True)
class StoreWork:
    """What is to be done for a store, and what an earlier run left of it.

    Parameters
    ----------
    plan, rechunk
        Of the output, and of its tasks.
    layouts
        Of every array.
    values
        Path to values, of the arrays that the driver writes.
    identity
        Hash of all that decides the store's bytes.
    state
        Tasks that are done.
    before
        What was published at this address, or None.
    leftover
        Arrays that an earlier plan had and this one has not.
    changed
        Whether an earlier run of this output had another plan.
    """

    plan: OutputPlan
    rechunk: RechunkPlan
    layouts: tuple[TargetLayout, ...]
    values: Mapping[str, NDArray[np.generic]]
    identity: str
    state: RunState
    before: PublishedRecord | None
    leftover: tuple[str, ...]
    changed: bool


def store_work(archive: Archive, whole: Whole, plan: OutputPlan) -> StoreWork:
    """Look what is to be done; writes nothing."""
    run = archive.run_key(plan.output)
    saved, readable = _saved_plan(archive, run)
    host = resolve(archive.config.execution, None)
    rechunk = resumed_plan(rechunk_plan(whole, plan), saved, task_memory(host.memory))
    layouts = tuple(a.layout for a in plan.arrays if a.layout is not None)
    values = _driver_values(archive, whole, plan)
    before = read_published(archive, plan.output)
    earlier = {
        *(before.arrays if before is not None else ()),
        *(a.layout.path for a in (saved.arrays if saved is not None else ())),
    }
    return StoreWork(
        plan,
        rechunk,
        layouts,
        values,
        _identity(rechunk, layouts, values),
        state_of(archive, plan.output, rechunk),
        before,
        tuple(sorted(earlier - {lay.path for lay in layouts})),
        not readable or (saved is not None and saved.fingerprint != rechunk.fingerprint),
    )


def run_store(archive: Archive, whole: Whole, work: StoreWork, check: Callable[[], None], progress: Progress) -> StoreOutcome:
    """Write, verify and publish one store, or find that it is up to date.

    Raises
    ------
    IncompleteRun
        Tasks were set aside; the message names the first and how many.
    VerifyError
        Values differ; the store stays invisible.
    """
    plan, rechunk, identity, before, state = work.plan, work.rechunk, work.identity, work.before, work.state
    layouts, run = work.layouts, archive.run_key(plan.output)
    store, key = archive.places.resolve(plan.output.at)
    if before is not None and before.identity == identity and state.n_done == rechunk.n_tasks and is_published(store, key):
        return StoreOutcome(identity, False, rechunk.n_tasks, 0, 0, before.verified)
    check()
    if is_published(store, key) and (before is None or before.identity != identity):
        withdraw(store, key)
    sweep_temporary(store, key)
    write_plan(archive.store, run, rechunk)
    prepare(store, key, layouts, plan.combined.groups, work.values)
    written = _run_tasks(archive, whole, plan.output, rechunk, state, progress)
    sweep_temporary(store, key)  # a worker that died in this run left its half-written object; no writer is left
    sizes = target_sizes(store, key)
    state = run_state(rechunk, load_receipts(archive.store, run), sizes)
    sweep_between(*archive.places.resolve(archive.scratch(plan.output)))
    if state.n_done < rechunk.n_tasks:
        raise IncompleteRun(
            f"{plan.output.at}: {rechunk.n_tasks - state.n_done} of {rechunk.n_tasks} tasks are left although their "
            "receipts were written: objects vanished or changed size meanwhile; run again",
            kind="receipts-lost",
        )
    remove_objects(store, key, stray_objects(layouts, sizes, work.leftover), work.leftover)
    TableView(plan.combined, whole.table, archive.places, fetcher_for(archive, whole.table)).recheck()
    if archive.config.verify.values == "digest":
        receipts = (r for _, r in proved(rechunk, load_receipts(archive.store, run), sizes))
        write_digests(archive, plan.output, identity, digests_of(rechunk, receipts))
    verified = _verify(archive, whole, plan, identity, progress)
    check()
    _fold_receipts(archive, whole, run, rechunk, sizes)
    publish(store, key, layouts, plan.combined.groups)
    write_published(archive, plan.output, PublishedRecord(identity, plan.published, verified))
    return StoreOutcome(identity, True, rechunk.n_tasks, written[0], written[1], verified)


def _fold_receipts(archive: Archive, whole: Whole, run: str, plan: RechunkPlan, sizes: Mapping[str, int]) -> None:
    """Record in the table what proves the store: before it is published, once, however often the run is killed here."""
    receipts = [r for _, r in proved(plan, load_receipts(archive.store, run), sizes)]
    tasks = "".join(sorted(r.task_id for r in receipts))
    name = hashlib.blake2b(f"{plan.fingerprint} {tasks}".encode(), digest_size=16).hexdigest()
    whole.table.commit_receipts(receipts, run_id=f"receipts-{name}", sequence=1)


def _driver_values(archive: Archive, whole: Whole, plan: OutputPlan) -> dict[str, NDArray[np.generic]]:
    fetcher = fetcher_for(archive, whole.table)
    combined = plan.combined
    return {
        a.path: _values(fetcher, combined.array(a.path), combined.coordinates.get(a.path))
        for a in plan.arrays
        if a.mode == "driver"
    }


def _values(fetcher: Fetcher, array: CombinedArray, known: NDArray[np.generic] | None) -> NDArray[np.generic]:
    return known if known is not None else fetcher.read_box(array, (0,) * len(array.shape), array.shape)


def _identity(rechunk: RechunkPlan, layouts: Sequence[TargetLayout], values: Mapping[str, NDArray[np.generic]]) -> str:
    """Hash of all that decides the store's bytes."""
    h = hashlib.blake2b(rechunk.fingerprint.encode(), digest_size=16)
    for layout in layouts:
        h.update(layout.to_json().encode())
    for path, array in sorted(values.items()):
        h.update(path.encode())
        # what lies between the fields of a compound differs from read to read
        packed = np.ascontiguousarray(array, packed_dtype(array.dtype))
        h.update(json.dumps(packed.tolist()).encode() if packed.dtype.kind == "T" else packed.tobytes())
    return h.hexdigest()


def _saved_plan(archive: Archive, run: str) -> tuple[RechunkPlan | None, bool]:
    """The plan that an earlier run wrote; False where there is one that this version cannot go on with."""
    try:
        return load_plan(archive.store, run), True
    except TableError:
        return None, False


def ask(archive: Archive, work: StoreWork) -> None:
    """Ask before work that is done is done again.

    Raises
    ------
    ConsentNeeded
        The plan changed since this output was begun.
    """
    plan, rechunk, before, state = work.plan, work.rechunk, work.before, work.state
    begun = before is not None or any(True for _ in load_receipts(archive.store, archive.run_key(plan.output)))
    if not work.changed or not begun:
        return
    raise ConsentNeeded(
        f"{plan.output.at}: config, sources or codecs changed since this store was begun, so {rechunk.n_tasks - state.n_done} "
        f"of its {rechunk.n_tasks} tasks would be done again"
        + (" and the store would be invisible meanwhile" if before is not None else "")
        + "; nothing was changed: say yes with --accept-changes, or give the output another `at:`",
        kind="plan-changed",
        tasks=rechunk.n_tasks,
        redo=rechunk.n_tasks - state.n_done,
    )


def _run_tasks(
    archive: Archive, whole: Whole, output: OutputOptions, plan: RechunkPlan, state: RunState, progress: Progress
) -> tuple[int, int]:
    """Do what is left; returns tasks done and bytes written."""
    scratch = archive.scratch(output)
    passes = Passes(plan, state, *archive.places.resolve(scratch))
    passes.sweep()
    if state.n_done == plan.n_tasks:
        return 0, 0
    stage = f"rechunk {plan.target}"
    progress.start(stage, plan.n_tasks, "tasks")
    progress.advance(stage, state.n_done)
    place = archive.config.work.partition(":")[0]
    run, digest = f"{place}:{archive.run_key(output)}", archive.config.verify.values == "digest"
    job = TaskJob(archive.places, run, whole.table.pin(), plan.fingerprint, scratch=scratch, digest=digest)
    failed: list[tuple[int, DrystoneError]] = []
    sums = [0, 0]

    def done(index: int, task: TaskDone) -> None:
        sums[0] += 1
        sums[1] += task.receipt.bytes_written
        passes.done(index)
        progress.advance(stage)

    def broke(index: int, error: DrystoneError) -> None:
        failed.append((index, error))
        passes.failed(index)
        progress.note(f"task {index} set aside: {error.message}")

    run_windowed(
        partial(run_task, job),
        passes,
        archive.config.execution,
        on_done=done,
        on_failed=broke,
        tries=archive.config.failures.tries,
        inline=resolve(archive.config.execution, plan.nbytes).inline,
    )
    progress.finish(stage)
    if failed:
        index, error = failed[0]
        task = plan.task(index)
        waiting = f", {passes.held_back} wait for what they would have written" if passes.held_back else ""
        raise IncompleteRun(
            f"{plan.target}: {len(failed)} of {plan.n_tasks} tasks were set aside{waiting}, the others are done and kept; the "
            f"first is task {index} ({task.array} from {task.start} to {task.stop}): {error.message}; mend the cause and run "
            "again",
            kind=error.kind,
            failed=len(failed),
            tasks=plan.n_tasks,
        )
    return sums[0], sums[1]


def _verify(archive: Archive, whole: Whole, plan: OutputPlan, identity: str, progress: Progress) -> str:
    options = archive.config.verify
    if options.values != "none":
        verify_one(archive, plan.output, whole, plan.published, progress=progress, identity=identity)
    return verified_text(options)

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
from drystone.pipeline.verifying import location_of, verified_text, verify_one
from drystone.plan.layout import TargetLayout
from drystone.plan.memory import task_memory
from drystone.rechunk.digesting import digests_of
from drystone.rechunk.kernel import TaskDone, TaskJob, run_task
from drystone.rechunk.plan_file import ArrayPlan, RechunkPlan, content_digests, load_plan, resumed_plan, write_plan
from drystone.rechunk.receipts import Held, RunState, load_receipts, proved, run_state
from drystone.rechunk.repository_target import RepositoryTarget
from drystone.rechunk.store_target import ObjectStoreTarget, Stock, StoreTarget

__all__ = ["StoreOutcome", "StoreWork", "ask", "rechunk_plan", "run_store", "state_of", "store_work", "target_of"]


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


def target_of(archive: Archive, output: OutputOptions, fingerprint: str, before: PublishedRecord | None) -> StoreTarget:
    """The target of an output, for a plan with this fingerprint."""
    store, key = archive.places.resolve(output.at)
    if output.form == "icechunk":
        return RepositoryTarget(store, key, fingerprint)
    return ObjectStoreTarget(store, key, output.at, None if before is None else before.identity)


def state_of(archive: Archive, output: OutputOptions, plan: RechunkPlan, held: Held | None = None) -> RunState:
    """What is done of a plan, from receipts, what the target holds (looked up, if not given) and what lies between passes."""
    held = held or target_of(archive, output, plan.fingerprint, None).held()
    between = shuffle_sizes(*archive.places.resolve(archive.scratch_of(output)))
    return run_state(plan, load_receipts(archive.store, archive.run_key(output)), held, between)


@dataclass(frozen=True, slots=True)
class StoreWork:
    """What is to be done for a store, and what an earlier run left of it.

    Parameters
    ----------
    plan, rechunk
        Of the output, and of its tasks.
    target
        What is written.
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
    target: StoreTarget
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
    target = target_of(archive, plan.output, rechunk.fingerprint, before)
    return StoreWork(
        plan,
        rechunk,
        target,
        layouts,
        values,
        _identity(rechunk, layouts, values),
        state_of(archive, plan.output, rechunk, target.held()),
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
    plan, rechunk, target, before, state = work.plan, work.rechunk, work.target, work.before, work.state
    run = archive.run_key(plan.output)
    stands = target.stands(work.identity)
    if before is not None and before.identity == stands and state.n_done == rechunk.n_tasks:
        sweep_between(*archive.places.resolve(archive.scratch_of(plan.output)))  # what a worker wrote that was thought dead
        return StoreOutcome(before.identity, False, rechunk.n_tasks, 0, 0, before.verified)
    check()
    write_plan(archive.store, run, rechunk)
    target.prepare(_stock(work), check)
    written = _run_tasks(archive, whole, work, progress)
    held = target.held()
    state = run_state(rechunk, load_receipts(archive.store, run), held)
    sweep_between(*archive.places.resolve(archive.scratch_of(plan.output)))
    if state.n_done < rechunk.n_tasks:
        raise IncompleteRun(
            f"{plan.output.at}: {rechunk.n_tasks - state.n_done} of {rechunk.n_tasks} tasks are left although their "
            "receipts were written: objects vanished or changed size meanwhile; run again",
            kind="receipts-lost",
        )
    version = target.finish(state)
    TableView(plan.combined, whole.table, archive.places, fetcher_for(archive, whole.table)).recheck()
    if archive.config.verify.values == "digest":
        receipts = (r for _, r in proved(rechunk, load_receipts(archive.store, run), held))
        write_digests(archive, plan.output, version or work.identity, digests_of(rechunk, receipts))
    verified = _verify(archive, whole, plan, version, work.identity, progress)
    check()
    _fold_receipts(archive, whole, run, rechunk, state, held)
    identity = target.publish()
    write_published(archive, plan.output, PublishedRecord(identity, plan.published, verified))
    return StoreOutcome(identity, True, rechunk.n_tasks, written[0], written[1], verified)


def _stock(work: StoreWork) -> Stock:
    axes = {a.layout.path: a.array.placements.axis for a in work.rechunk.arrays}
    groups = work.plan.combined.groups
    return Stock(work.identity, work.layouts, groups, work.values, axes, work.state.task_ids, work.leftover)


def _fold_receipts(archive: Archive, whole: Whole, run: str, plan: RechunkPlan, state: RunState, held: Held) -> None:
    """Record in the table what proves the store: before it is published, once, however often the run is killed here."""
    receipts = (r for _, r in proved(plan, load_receipts(archive.store, run), held))
    name = hashlib.blake2b(state.task_ids.tobytes() + plan.fingerprint.encode(), digest_size=16).hexdigest()
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
        + (" and the store would be invisible meanwhile" if before is not None and work.target.hides else "")
        + "; nothing was changed: say yes with --accept-changes, or give the output another `at:`",
        kind="plan-changed",
        tasks=rechunk.n_tasks,
        redo=rechunk.n_tasks - state.n_done,
    )


def _run_tasks(archive: Archive, whole: Whole, work: StoreWork, progress: Progress) -> tuple[int, int]:
    """Do what is left; returns tasks done and bytes written."""
    plan, target, state, output = work.rechunk, work.target, work.state, work.plan.output
    scratch = archive.scratch_of(output)
    passes = Passes(plan, state, *archive.places.resolve(scratch))
    passes.sweep()
    if state.n_done == plan.n_tasks:
        return 0, 0
    stage = f"rechunk {plan.target}"
    progress.start(stage, plan.n_tasks, "tasks")
    progress.advance(stage, state.n_done)
    place = archive.config.work.partition(":")[0]
    run, digest = f"{place}:{archive.run_key(output)}", archive.config.verify.values == "digest"
    job = TaskJob(archive.places, run, whole.table.pin(), plan.fingerprint, target.opener, scratch, digest)
    failed: list[tuple[int, DrystoneError]] = []
    sums = [0, 0]

    def done(index: int, task: TaskDone) -> None:
        sums[0] += 1
        sums[1] += task.receipt.bytes_written
        for number in target.take(index, task):
            passes.done(number)
        progress.advance(stage)

    def broke(index: int, error: DrystoneError) -> None:
        failed.append((index, error))
        passes.failed(index)
        progress.note(f"task {index} set aside: {error.message}")

    try:
        run_windowed(
            partial(run_task, job),
            passes,
            archive.config.execution,
            on_done=done,
            on_failed=broke,
            tries=archive.config.failures.tries,
            inline=resolve(archive.config.execution, plan.nbytes).inline,
        )
    finally:  # what is done counts, however the rest ended
        for number in target.settle():
            passes.done(number)
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


def _verify(archive: Archive, whole: Whole, plan: OutputPlan, version: str | None, identity: str, progress: Progress) -> str:
    options = archive.config.verify
    if options.values != "none":
        staged = (location_of(archive, plan.output.at), version)
        verify_one(archive, plan.output, whole, plan.published, progress=progress, staged=staged, identity=version or identity)
    return verified_text(options)

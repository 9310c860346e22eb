"""Granules to a store through the real parts (scanner, combine, plan, tasks), without table and config."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray
from services.repositories import values

from drystone.fetch.memory_rows import MemoryRows
from drystone.model.granule import Granule
from drystone.model.options import AxisOptions, CombineOptions, OutputOptions
from drystone.model.placement import Combined
from drystone.model.task import Receipt
from drystone.plan.chunking import target_layout, whole_layout
from drystone.plan.combine import combine
from drystone.plan.forms import form_of
from drystone.plan.layout import TargetLayout
from drystone.plan.members import from_scans
from drystone.plan.repack import plan_copies, repack_layout, structure_problem
from drystone.plan.shards import TaskPlan, Weighed, weigh
from drystone.protocols import ScanOptions, Source
from drystone.rechunk.kernel import TaskJob, run_task
from drystone.rechunk.plan_file import ArrayPlan, RechunkPlan, content_digests, write_plan
from drystone.rechunk.receipts import RunState, load_receipts, run_state
from drystone.rechunk.repository_target import RepositoryTarget
from drystone.rechunk.store_target import ObjectStoreTarget, Stock, StoreTarget
from drystone.scan.hdf5 import Hdf5Scanner
from drystone.storage.address import Places
from drystone.storage.repository import repository_storage
from drystone.storage.store import Place, Store

__all__ = ["NoCandidateError", "Prepared", "picked", "plain", "prepare_run", "write_granules"]


class NoCandidateError(Exception):
    """The planner names fewer candidates."""


def write_granules(
    folder: Path,
    values: NDArray[np.generic],
    lengths: Sequence[int],
    chunk: tuple[int, ...],
    *,
    unwritten: Iterable[int] = (),
    fill: object = None,
    name: str = "v",
    gaps: Sequence[int] = (),
    columns: int | None = None,
    missing: object = None,
) -> None:
    """Cut ``values`` along axis 0 into netCDF-4-like files of the given lengths.

    Chunks of the files in ``unwritten`` are never written, so they read as ``fill``; of the others only the first ``columns``
    elements along the last axis are. ``gaps`` are places that no file holds before each of them, which read as ``missing``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    first = 0
    for i, n in enumerate(lengths):
        first += gaps[i] if gaps else 0
        with h5py.File(folder / f"g{i:03d}.nc", "w") as f:
            part = values[first : first + n]
            edge = tuple(max(1, min(c, m)) for c, m in zip((chunk[0], *chunk[1:]), (10**9, *values.shape[1:]), strict=True))
            dims = [f"d{k}" for k in range(values.ndim)]
            f["d0"] = np.arange(first, first + n, dtype="f8")
            f["d0"].make_scale("d0")
            for k in range(1, values.ndim):
                f[dims[k]] = np.arange(values.shape[k], dtype="f4")
                f[dims[k]].make_scale(dims[k])
            v = f.create_dataset(
                name,
                part.shape,
                values.dtype,
                chunks=edge,
                maxshape=(None, *part.shape[1:]),
                compression="gzip",
                compression_opts=1,
                shuffle=True,
                fillvalue=None if fill is None else np.asarray(fill, values.dtype)[()],
            )
            for k, d in enumerate(dims):
                v.dims[k].attach_scale(f[d])
            if missing is not None:
                v.attrs["_FillValue"] = np.asarray(missing, values.dtype)[()]
            if i not in unwritten:
                v[..., :columns] = part[..., :columns]
        first += n


@dataclass(frozen=True)
class Prepared:
    """A run that is ready for its tasks."""

    job: TaskJob
    plan: RechunkPlan
    combined: Combined
    layouts: tuple[TargetLayout, ...]
    target: StoreTarget
    store: Store
    key: str
    run: str

    def run_all(self, indices: Iterable[int] | None = None) -> list[Receipt]:
        """Do tasks in this process, those of a first pass before those of a second."""
        receipts = []
        every = sorted(range(self.plan.n_tasks), key=lambda i: self.plan.task(i).pass_)
        for i in every if indices is None else indices:
            done = run_task(self.job, i)
            self.target.take(i, done)
            receipts.append(done.receipt)
        self.target.settle()
        return receipts

    def state(self) -> RunState:
        """What is done."""
        between = {key: stamp.size for key, stamp in self.store.list(f"{self.run}/shuffle/")}
        return run_state(self.plan, load_receipts(self.store, self.run), self.target.held(), between)

    def publish(self) -> str:
        """Make it visible."""
        self.target.finish(self.state())
        return self.target.publish()

    def bytes(self) -> dict[str, bytes]:
        """Every object of the target; of a repository every value of ``main``, without the ledger."""
        if not isinstance(self.target, RepositoryTarget):
            return {key: self.store.get(key) for key, _ in self.store.list(f"{self.key}/")}
        found = values(repository_storage(self.store, self.key))
        return {f"{self.key}/{key}": value for key, value in found.items()}


def plain(found: dict[str, bytes]) -> dict[str, bytes]:
    """Without the root, which differs: whatever else is alike in every form of a store."""
    return {key.partition("/")[2]: value for key, value in found.items() if key.count("/") > 1}


def prepare_run(
    raw: Path,
    out: Path | Place,
    output: OutputOptions,
    memory: int,
    *,
    arrays: Sequence[str] = ("/v",),
    threads: int = 2,
    slots: int = 1,
    copies: bool = False,
    only: str | None = None,
    pick: int = 0,
    along: AxisOptions | None = None,
) -> Prepared:
    """Scan ``raw``, plan the arrays, write plan and metadata below ``out``, a folder or a place of that name.

    ``only`` names the way that the planner must take, ``pick`` says which of the candidates of that way; where there are not
    as many :class:`NoCandidateError` is raised.
    """
    places = Places.of([Place("raw", raw.as_uri()), Place("out", out.as_uri()) if isinstance(out, Path) else out])
    source = places.store("raw")
    scans, granules = {}, {}
    for i, (key, stamp) in enumerate(source.list()):
        scans[i] = Hdf5Scanner().scan(Source(source, key, f"raw:{key}", stamp), ScanOptions())
        granules[i] = Granule(i, f"raw:{key}", stamp, "hdf5", 7, scans[i].n_rows, scans[i].digest())
    options = CombineOptions((along or AxisOptions("d0"),))
    combined = combine(from_scans(scans), scans[0].groups, {i: g.address for i, g in granules.items()}, options)
    combined = form_of(combined, output)
    plans, layouts, whole = [], [], {}
    for array in combined.arrays:
        if array.path not in arrays:
            layouts.append(whole_layout(array, output))
            whole[array.path] = combined.coordinates[array.path]
            continue
        layout = repack_layout(array, output, memory) if copies else target_layout(array, output, memory)
        layouts.append(layout)
        placed = [granules[g] for g in array.placements.granule_id.tolist()]
        attempts = np.array([g.attempt_id for g in placed], np.int32)
        if copies:
            assert structure_problem(array, str) is None
            tasks = plan_copies(array, layout, memory, math.prod(array.shape), threads=threads, slots=slots)
        else:
            remote = not isinstance(out, Path)
            tasks = picked(
                weigh(array, layout, memory, threads=threads, slots=slots, joined=remote, parted=remote, only=only), pick
            )
        plans.append(ArrayPlan(array, layout, tasks, content_digests(placed), attempts))
    plan = RechunkPlan(0, output.at, tuple(plans))
    store, key = places.resolve(output.at)
    write_plan(store, "run", plan)
    target: StoreTarget = ObjectStoreTarget(store, key, output.at, None)
    if output.form == "icechunk":
        target = RepositoryTarget(store, key, plan.fingerprint)
    axes = {a.layout.path: a.array.placements.axis for a in plans}
    ids = run_state(plan, load_receipts(store, "run"), target.held()).task_ids
    target.prepare(Stock("the store", tuple(layouts), combined.groups, whole, axes, ids), lambda: None)
    job = TaskJob(places, "out:run", MemoryRows(granules, scans), plan.fingerprint, target.opener)
    return Prepared(job, plan, combined, tuple(layouts), target, store, key, "run")


def picked(weighed: Weighed, number: int) -> TaskPlan:
    """The plan that one of the candidates makes, whether it fits or not."""
    if number >= len(weighed.candidates):
        raise NoCandidateError(number)
    candidate = weighed.candidates[number]
    shared = {f.name for f in fields(TaskPlan)} & {f.name for f in fields(candidate)}
    return replace(weighed.plan, **{name: getattr(candidate, name) for name in shared})

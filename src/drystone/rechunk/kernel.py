"""One task, from references to objects to a receipt; a function of the job and a number.

The job says where the plan, the table and the places are; the plan is loaded once a process. The worker proves again, from
the target's own metadata, that its region is whole write cells, before it writes: a target that was resized or replaced, or
a plan that is not this target's, ends here and not in another task's shard.

A region's raw values lie in one buffer that is kept between tasks, since getting hundreds of MB from the system anew costs
as much as decoding a tenth of them.
"""

from __future__ import annotations

import json
import math
import resource
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drystone.codecs.zarr_grids import chunk_grid_v3, read_chunk_grid_v3
from drystone.errors import PlanError, StorageError, TableError
from drystone.fetch.fetcher import Fetcher
from drystone.grid.alignment import check_region_in
from drystone.model.task import Receipt, StoredObject, Task
from drystone.plan.layout import TargetLayout
from drystone.plan.memory import REMOTE_THREADS
from drystone.plan.shuffle import Shuffle
from drystone.protocols import RowSource
from drystone.rechunk.cells import write_region
from drystone.rechunk.copying import copy_region
from drystone.rechunk.digesting import TaskDigest, takes_digest
from drystone.rechunk.gather import Gatherer
from drystone.rechunk.plan_file import ArrayPlan, RechunkPlan, load_plan
from drystone.rechunk.receipts import ReceiptLog
from drystone.rechunk.shuffle import element_of_fill, scatter
from drystone.rechunk.streaming import steps_of, stream_shard
from drystone.rechunk.writer import ObjectTarget, TargetOpener, TargetWriter
from drystone.storage.address import Places
from drystone.storage.stamp import Stamp
from drystone.table.table import ReferenceTable, TablePin

__all__ = ["TaskDone", "TaskJob", "run_task"]

_MAX_SOURCES = 4096


@dataclass(frozen=True, slots=True)
class TaskJob:
    """What all tasks of a run share; a few hundred bytes.

    Parameters
    ----------
    places
        Names of places to their stores.
    run
        ``place:key`` of the run's folder, which holds the plan and takes the receipts.
    rows
        Table version to read references from; or, within one process, any row source.
    fingerprint
        Of the plan: a worker that finds another plan stops.
    target
        What tasks write through; None: objects where the plan says.
    scratch
        ``place:key`` of the folder for what lies between two passes; empty: in the run's.
    digest
        Whether receipts have digests of what was read.
    """

    places: Places
    run: str
    rows: TablePin | RowSource
    fingerprint: str
    target: TargetOpener | None = None
    scratch: str = ""
    digest: bool = False


@dataclass(frozen=True, slots=True)
class TaskDone:
    """What a task gives back: its receipt, and the changes that the driver must take for it to count."""

    receipt: Receipt
    changes: bytes = b""


class _Context:
    """What a process keeps between tasks of one run."""

    def __init__(self, job: TaskJob) -> None:
        store, key = job.places.resolve(job.run)
        plan = load_plan(store, key)
        if plan is None or plan.fingerprint != job.fingerprint:
            raise TableError(
                f"{job.run} holds {'no plan' if plan is None else 'another plan'} than the one that this task belongs to "
                f"({job.fingerprint}); the run was replaced while it ran: run again",
                kind="plan-fingerprint",
            )
        self.plan: RechunkPlan = plan
        self.rows: RowSource = ReferenceTable.at(job.rows) if isinstance(job.rows, TablePin) else job.rows
        self._target, self._places = job.target or ObjectTarget(plan.target), job.places
        self.scratch, self.folder = job.places.resolve(job.scratch or f"{job.run}/shuffle")
        self.log = ReceiptLog(store, key)
        # one for all tasks of the process: they share its threads and its bytes in flight
        self.fetcher = Fetcher(
            job.places,
            self.rows,
            threads=max((a.tasks.threads for a in plan.arrays), default=1),
            bytes_in_flight=min((a.tasks.in_flight for a in plan.arrays), default=1 << 20),
        )
        self._cells: dict[str, tuple[tuple[int, ...], Edges]] = {}
        self._bases: dict[str, bytes] = {}
        self._gatherers: dict[str, Gatherer] = {}
        self._buffers: list[NDArray[np.uint8]] = []
        self._lock = threading.Lock()

    def base(self, a: ArrayPlan) -> bytes:
        """The array's part of its tasks' fingerprints, hashed once."""
        if a.layout.path not in self._bases:
            self._bases[a.layout.path] = a.base()
        return self._bases[a.layout.path]

    def writer(self) -> TargetWriter:
        """For one task."""
        return self._target.open(self._places)

    def target_cells(self, writer: TargetWriter, layout: TargetLayout) -> tuple[tuple[int, ...], Edges]:
        """Shape and write cells of an array as they are in the target."""
        if layout.path not in self._cells:
            self._cells[layout.path] = _read_cells(writer, layout)
        return self._cells[layout.path]

    def gatherer(self, a: ArrayPlan, shuffle: Shuffle) -> Gatherer:
        """Reads what lies between the two passes of an array."""
        base, first = self.base(a), a.tasks.n_regions
        with self._lock:
            if a.layout.path not in self._gatherers:
                self._gatherers[a.layout.path] = Gatherer(
                    self.scratch,
                    self.folder,
                    shuffle,
                    lambda index: self.plan.task_of(a, first + index, base),
                    a.array.dtype,
                    element_of_fill(a),
                    a.tasks.threads * (1 if self.scratch.root is not None else REMOTE_THREADS),
                    a.tasks.in_flight,
                )
            return self._gatherers[a.layout.path]

    @contextmanager
    def slab(self, start: Sequence[int], stop: Sequence[int], dtype: np.dtype) -> Iterator[NDArray[np.generic]]:
        """An uninitialised native array of a box, in a buffer that is kept for the next one."""
        extent = tuple(b - a for a, b in zip(start, stop, strict=True))
        if dtype.kind == "T":
            yield np.empty(extent, dtype)
            return
        buffer = self._take_buffer(math.prod(extent) * dtype.itemsize)
        try:
            yield buffer[: math.prod(extent) * dtype.itemsize].view(dtype).reshape(extent)
        finally:
            with self._lock:
                self._buffers.append(buffer)

    def _take_buffer(self, nbytes: int) -> NDArray[np.uint8]:
        with self._lock:
            while self._buffers:
                buffer = self._buffers.pop()
                if len(buffer) >= nbytes:
                    return buffer
        return np.empty(nbytes, np.uint8)


type Edges = tuple[int | tuple[int, ...], ...]
type _Key = tuple[str, str, Stamp, object, str]

_contexts: dict[_Key, _Context] = {}
_contexts_lock = threading.Lock()


def _context(job: TaskJob) -> _Context:
    store, run = job.places.resolve(job.run)
    # a later run of the same content may have other regions, or another table: workers outlive drivers
    version = job.rows.versions if isinstance(job.rows, TablePin) else None
    key = (f"{store.url}/{run}", job.fingerprint, store.stat(f"{run}/plan.json"), version, job.scratch)
    with _contexts_lock:
        if key not in _contexts:
            _contexts.clear()  # buffers of a run that is over are no use to the next
            _contexts[key] = _Context(job)
        return _contexts[key]


def _read_cells(writer: TargetWriter, layout: TargetLayout) -> tuple[tuple[int, ...], Edges]:
    key = f"{layout.key}/zarr.json".lstrip("/")
    try:
        document = json.loads(writer.get(key))
    except StorageError as error:
        if error.kind != "not-found":
            raise
        raise PlanError(
            f"{writer.address(key)} is not there: the target was removed while the run wrote it; run again",
            kind="target-missing",
        ) from error
    return tuple(document["shape"]), read_chunk_grid_v3(document["chunk_grid"])


def run_task(job: TaskJob, index: int) -> TaskDone:
    """Do one task and record its receipt.

    Parameters
    ----------
    job
        Of the run.
    index
        Number of the task in the plan.

    Returns
    -------
    The receipt, already durable in the run's folder, and the changes.

    Raises
    ------
    DrystoneError
        Whatever reading, decoding or writing says; nothing is recorded then, and what was written is written again by
        the next try.
    """
    began = time.perf_counter()
    context = _context(job)
    a, local = context.plan.locate(index)
    task = context.plan.task_of(a, local, context.base(a))
    writer = context.writer()
    shape, cells = context.target_cells(writer, a.layout)
    wanted = read_chunk_grid_v3(chunk_grid_v3(a.layout.edges, a.layout.shape))
    if shape != a.layout.shape or cells != wanted:
        raise PlanError(
            f"{a.layout.path}: the target has shape {shape} and write cells of {cells}, the plan {a.layout.shape} and "
            f"{wanted}; someone else changed the store: remove it or plan again",
            kind="target-changed",
            array=a.layout.path,
        )
    if task.pass_ == 2:
        check_region_in(task.start, task.stop, a.layout.cells, what=f"task {local} of {a.layout.path}")
    _reset_peak()
    fetcher = context.fetcher
    read, decoded = fetcher.bytes_read, fetcher.bytes_decoded
    digest = TaskDigest(a, task.start, task.stop) if job.digest and task.pass_ == 2 and takes_digest(a) else None
    objects = _written(context, writer, a, task, digest)
    sources = a.sources(task.start, task.stop)
    receipt = Receipt(
        task.task_id,
        task.fingerprint,
        task.array,
        local,
        objects,
        # beyond some thousands the plan's placements say the same in less room
        tuple(sources) if len(sources) <= _MAX_SOURCES else (),
        fetcher.bytes_read - read,
        fetcher.bytes_decoded - decoded,
        sum(max(o.size, 0) for o in objects),
        round(time.perf_counter() - began, 4),
        peak_rss(),
        context.log.worker,
        "" if digest is None else digest.text(),
    )
    changes = writer.changes() if task.pass_ == 2 else b""  # a first pass leaves the target alone
    context.log.append(receipt)
    return TaskDone(receipt, changes)


def _written(
    context: _Context, writer: TargetWriter, a: ArrayPlan, task: Task, digest: TaskDigest | None
) -> tuple[StoredObject, ...]:
    """Read, encode and put a task's region, whole or step by step; copy it as it is encoded; or cut it for a second pass."""
    if a.tasks.copies:
        return copy_region(writer, a, (task.start, task.stop), context.fetcher)
    layout, threads, stream, dtype = a.layout, a.tasks.threads, a.tasks.stream, a.array.dtype
    shuffle = a.tasks.shuffle
    if shuffle is not None and task.pass_ == 1:
        with context.slab(task.start, task.stop, dtype) as slab:
            context.fetcher.read_box(a.array, task.start, task.stop, out=slab)
            index = task.index - a.tasks.n_regions
            fill = element_of_fill(a)
            return (scatter(context.scratch, context.folder, slab, shuffle, index, fill, task, threads),)

    def read(start: tuple[int, ...], stop: tuple[int, ...], slab: NDArray[np.generic]) -> None:
        if shuffle is None:
            context.fetcher.read_box(a.array, start, stop, out=slab)
        else:
            context.fetcher.bytes_read += context.gatherer(a, shuffle).read(start, stop, slab)
        if digest is not None:
            digest.add(start, slab)

    if stream is not None:
        first = next(steps_of(task.start, task.stop, stream))
        with context.slab(*first, dtype) as one, context.slab(*first, dtype) as other:
            return (stream_shard(writer, layout, read, (one, other), task.start, task.stop, stream, threads),)
    with context.slab(task.start, task.stop, dtype) as slab:
        read(task.start, task.stop, slab)
        return write_region(writer, layout, slab, task.start, threads)


def _reset_peak() -> None:
    """Let the kernel measure the peak anew; where it cannot, the peak is the process's so far."""
    try:
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")
    except OSError:
        return


def peak_rss() -> int:
    """Largest resident size of this process in bytes, since the last reset where there is such a thing."""
    try:
        with open("/proc/self/status") as f:
            for line in f:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass  # no /proc: the whole life's peak below
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

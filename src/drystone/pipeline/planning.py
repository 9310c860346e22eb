"""Plan: what a run would do, per output and array, before anything is written."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import cast

import numpy as np

from drystone import registry
from drystone.codecs.zarr_forms import unkept_attributes
from drystone.codecs.zarr_names import name_problem
from drystone.emit.readers import layout_notes, uneven_notes
from drystone.errors import ConfigError, PlanError, UnsupportedError
from drystone.execute.resources import resolve
from drystone.model.options import ArchiveConfig, OutputOptions
from drystone.model.placement import Combined, CombinedArray
from drystone.model.progress import Progress, Silent
from drystone.pipeline.archive import Archive
from drystone.pipeline.combined import Whole, whole_of
from drystone.pipeline.read_costs import costs_of
from drystone.pipeline.scan import list_granules
from drystone.pipeline.timing import Clock
from drystone.pipeline.verifying import arrays_of, names_of
from drystone.plan.advice import Ways, ways_of
from drystone.plan.calendar import calendar_periods
from drystone.plan.candidates import Candidate
from drystone.plan.chunking import stray_sizes, target_layout, whole_layout
from drystone.plan.costs import ReadCost
from drystone.plan.forms import form_of, has_data, refuse_asked
from drystone.plan.layout import TargetLayout
from drystone.plan.memory import task_memory
from drystone.plan.predict import Prediction
from drystone.plan.repack import (
    options_problem,
    plan_copies,
    readers_notes,
    repack_layout,
    rows_problem,
    structure_problem,
    unsourced,
)
from drystone.plan.shards import TaskPlan, weigh
from drystone.protocols import Emitter
from drystone.rechunk.target import array_document
from drystone.table.table import ReferenceTable
from drystone.verify.run import ZARR_V3_FORMS, require_readers

__all__ = ["OutputPlan", "PlannedArray", "RunPlan", "plan_archive", "plan_output"]

DRIVER_BYTES = 1 << 20  # arrays up to this size are written whole by the driver


@dataclass(frozen=True, slots=True)
class PlannedArray:
    """One array of one output.

    ``mode``: ``virtual`` (references), ``driver`` (small: written whole by the driver), ``rechunk``, ``repack``
    (encoded chunks are copied), or ``refused``.
    """

    path: str
    mode: str
    reason: str
    shape: tuple[int, ...]
    dtype: str
    source_chunks: int
    encoded_bytes: int
    layout: TargetLayout | None = None
    tasks: TaskPlan | None = None
    reads: tuple[tuple[ReadCost, ReadCost], ...] = ()
    ways: Ways | None = None
    predicted: Prediction | None = None

    @property
    def raw_bytes(self) -> int:
        """Decoded size."""
        return 0 if self.layout is None else math.prod(self.shape) * self.layout.dtype.itemsize


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """One output."""

    index: int
    output: OutputOptions
    arrays: tuple[PlannedArray, ...]
    combined: Combined
    predicted: Prediction | None = None

    @property
    def published(self) -> tuple[str, ...]:
        """Paths that it will hold."""
        return tuple(a.path for a in self.arrays if a.mode != "refused")

    @property
    def refused(self) -> dict[str, str]:
        """Path to reason."""
        return {a.path: a.reason for a in self.arrays if a.mode == "refused"}

    @property
    def holds_data(self) -> bool:
        """Whether some array that it will hold is no dimension's coordinate."""
        return has_data(self.combined.array(p) for p in self.published)

    def notes(self) -> tuple[str, ...]:
        """Arrays, groups and attributes that it cannot hold, and arrays that few readers can open, one line each."""
        combined = self.combined
        lost = stray_sizes(combined, self.output)
        lost += [f"{self.output.at}: {why}; it is left out" for why in combined.left_out]
        groups = [(g.path, name_problem(g.path)) for g in combined.groups]
        lost += [f"{self.output.at}: the group {path} is left out: {why}" for path, why in groups if why is not None]
        if self.output.form in ZARR_V3_FORMS:
            for a in (combined.array(p) for p in self.published):
                lost += [f"{self.output.at}: {a.path}: {why}" for why in unkept_attributes(a.attributes, a.dtype).values()]
        if self.output.kind == "virtual" and self.output.form in ZARR_V3_FORMS:
            kept = replace(combined, arrays=tuple(combined.array(p) for p in self.published))
            lost += [f"{self.output.at}: {note}" for note in layout_notes(kept, self.output.emitted)]
        uneven = [a.path for a in self.arrays if a.layout is not None and a.layout.sizes]
        lost += [f"{self.output.at}: {note}" for note in uneven_notes(uneven)]
        laid = ((a.layout, a.mode == "repack") for a in self.arrays if a.layout is not None)
        lost += [f"{self.output.at}: {note}" for note in readers_notes(laid)]
        return tuple(lost)


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What ``run`` would do."""

    whole: Whole
    outputs: tuple[OutputPlan, ...]

    def to_json(self) -> dict[str, object]:
        """For ``--json``."""
        from drystone.pipeline.plan_text import plan_json

        return plan_json(self)

    def lines(self) -> list[str]:
        """For people."""
        from drystone.pipeline.plan_text import plan_lines

        return plan_lines(self)


def _nbytes(array: CombinedArray) -> int:
    return math.prod(array.shape) * array.dtype.itemsize


def _by_driver(array: CombinedArray, combined: Combined) -> bool:
    """Whether an array is written whole by the driver: text, coordinates, and what is small beside fields on a joined axis."""
    if array.made or array.dtype.kind == "T" or (array.path in combined.coordinates and len(array.shape) < 2):
        return True
    beside = combined.axis is not None and array.holder.placements.axis is None
    return _nbytes(array) <= DRIVER_BYTES and (len(array.shape) < 2 or beside)


def plan_archive(archive: Archive, *, progress: Progress | None = None) -> RunPlan:
    """Plan every output of a config; reads the table, writes nothing."""
    progress = progress or Silent()
    progress.start("plan", len(archive.config.outputs), "outputs")
    whole = whole_of(archive, list_granules(archive) if archive.config.granules else None)
    outputs = []
    for index, output in enumerate(archive.config.outputs):
        outputs.append(_with_reads(archive, whole, plan_output(archive, whole, index, output)))
        progress.advance("plan")
    progress.finish("plan")
    return RunPlan(whole, tuple(outputs))


def _with_reads(archive: Archive, whole: Whole, plan: OutputPlan) -> OutputPlan:
    """The plan with what the config's reads cost."""
    costed = ("rechunk", "repack", "virtual")

    def reads(a: PlannedArray) -> tuple[tuple[ReadCost, ReadCost], ...]:
        return costs_of(archive, whole, plan.combined.array(a.path), a.layout, a.encoded_bytes, plan.output.form)

    return replace(plan, arrays=tuple(replace(a, reads=reads(a)) if a.mode in costed else a for a in plan.arrays))


def plan_output(archive: Archive, whole: Whole, index: int, output: OutputOptions) -> OutputPlan:
    """Plan one output.

    Raises
    ------
    UnsupportedError
        An array that the output names, or every array but coordinates, has no exact form in it.
    PlanError
        Impossible within the memory given.
    """
    if archive.config.verify.values != "none":
        require_readers(output.form)
    combined = form_of(whole.combined, output)
    wanted = arrays_of(combined, output)
    _check_asked(combined, output)
    unmarked = {} if output.coverage else {p: t for p, t in combined.unmarked.items() if p in wanted}
    refuse_asked(unmarked, (*(output.arrays or ()), *(archive.config.combine.variables or ())), output.at)
    refused = [
        _array_plan(whole.table, combined.array(p), "refused", reason.removeprefix(f"{p}: "))
        for p, reason in sorted(unmarked.items())
    ]
    wanted = tuple(p for p in wanted if p not in unmarked)
    timed = None
    if output.kind == "virtual":
        plans = _virtual(whole.table, combined, wanted, output)
    else:
        nbytes = sum(_nbytes(combined.array(p)) for p in wanted)
        between = archive.scratch_of(output)
        remote, parted = (archive.places.resolve(address)[0].root is None for address in (output.at, between))
        fields = sum(not _by_driver(combined.array(p), combined) for p in wanted)
        clock = Clock.of(archive.places, whole.table, output.at, between)
        store = _Store(archive.config, whole.table, combined, output, nbytes, fields, remote, parted, clock)
        plans = [store.array(p) for p in wanted]
        timed = clock.total(
            [(a.predicted, a.tasks.n_tasks) for a in plans if a.predicted is not None and a.tasks is not None],
            resolve(archive.config.execution, nbytes),
        )
    plan = OutputPlan(index, output, tuple(sorted((*plans, *refused), key=lambda a: a.path)), combined, timed)
    if not plan.holds_data:
        refuse_asked(unmarked, tuple(unmarked), output.at)
    _enforce(plan)
    return plan


def _check_asked(combined: Combined, output: OutputOptions) -> None:
    """What an output asks for by name must be there; a name that fits nothing would be lost without a word."""
    known = {name for a in combined.arrays for name in names_of(a)}
    unknown = [name for name in output.arrays or () if name not in known]
    if unknown:
        paths = ", ".join(a.path for a in combined.arrays)
        raise ConfigError(
            f"{output.at}: arrays: {', '.join(unknown)}: there is no such array (there are: {paths}; what was refused when it "
            "was scanned is named by `drystone status`)",
            kind="array",
            output=output.at,
            array=unknown[0],
        )


def _virtual(table: ReferenceTable, combined: Combined, wanted: tuple[str, ...], output: OutputOptions) -> list[PlannedArray]:
    emitter = cast(Emitter, registry.load("emitters", output.form))
    problems = emitter.problems(combined, output.emitted)
    plans = []
    for path in wanted:
        array = combined.array(path)
        reason = problems.get(path, "")
        mode = "refused" if reason else ("driver" if path in combined.coordinates else "virtual")
        plans.append(_array_plan(table, array, mode, reason))
    return plans


def _array_plan(table: ReferenceTable, array: CombinedArray, mode: str, reason: str) -> PlannedArray:
    encoded = _encoded_bytes(table, array)
    return PlannedArray(array.path, mode, reason, array.shape, str(array.dtype), array.grid.n_chunks, encoded)


def _encoded_bytes(table: ReferenceTable, array: CombinedArray) -> int:
    """Encoded size of what is taken, from the first rows of the table (exact where they are all and none is left out)."""
    if array.made:
        return 0
    total = rows = 0
    batches = iter(table.rows(array.inner))
    for batch in islice(batches, 4):
        total += int(batch.length.sum())
        rows += len(batch)
    if rows <= array.grid.n_chunks and next(batches, None) is None:
        return total  # places in no granule have no rows and no bytes
    return total * array.grid.n_chunks // rows if rows else 0


@dataclass(frozen=True, slots=True)
class _Store:
    """A store to plan: bytes of all its arrays, fields that workers write, whether target and scratch are no folders."""

    config: ArchiveConfig
    table: ReferenceTable
    combined: Combined
    output: OutputOptions
    nbytes: int
    fields: int
    remote: bool
    parted: bool
    clock: Clock

    @property
    def whole(self) -> bool:
        """Whether the target takes a write cell in one piece, not in parts."""
        return self.output.form == "icechunk"

    def array(self, path: str) -> PlannedArray:
        """One array; what Zarr cannot say is refused by name, and loses no other array."""
        array = self.combined.array(path)
        problem = name_problem(array.path)
        if problem is None:
            try:
                array_document(whole_layout(array, self.output))
            except UnsupportedError as error:
                problem = error.message.removesuffix("; rechunk this array")
        if problem is not None:
            return _array_plan(self.table, array, "refused", problem)
        base = _array_plan(self.table, array, "driver", "")
        if _by_driver(array, self.combined):
            return replace(base, layout=whole_layout(array, self.output))
        host = resolve(self.config.execution, self.nbytes)
        limit = task_memory(host.memory)
        slots = max(1, host.workers // max(self.fields, 1))  # the other arrays' tasks run beside this one's
        ends = self.clock.ends(array, base.encoded_bytes, slots)
        problem = self.in_the_way(array)
        if problem is None:
            layout = repack_layout(array, self.output, limit, partial(calendar_periods, self.combined, array))
            tasks = plan_copies(array, layout, limit, base.encoded_bytes, threads=host.threads, slots=slots, whole=self.whole)
            time = self.clock.copies(tasks, array, layout, ends, host)
            return replace(base, mode="repack", layout=layout, tasks=tasks, predicted=time)
        layout = target_layout(array, unsourced(array, self.output), limit, partial(calendar_periods, self.combined, array))

        def timed(way: Candidate) -> Prediction:
            return self.clock.way(way, array, layout, ends, host)

        weighed = weigh(
            array,
            layout,
            limit,
            threads=host.threads,
            slots=slots,
            joined=self.remote or self.whole,
            whole=self.whole,
            timer=lambda way: timed(way).seconds,
            parted=self.parted,
            reread=self.config.execution.reread,
        )
        ways = ways_of(weighed.candidates, layout, limit, self.config.execution.reread)
        why = f"not copied: {problem}" if self.output.mode == "auto" else ""
        time = timed(weighed.candidates[0])
        return replace(base, mode="rechunk", reason=why, layout=layout, tasks=weighed.plan, ways=ways, predicted=time)

    def in_the_way(self, array: CombinedArray) -> str | None:
        """Why encoded chunks are not copied; None where they are.

        Raises
        ------
        PlanError
            ``not-repackable``: the output asks that they be.
        """
        mode = self.output.mode
        if mode == "rechunk":
            return "the output says so"
        problem = options_problem(array, self.output) or structure_problem(array, self.named, self.output.portable)
        if problem is None:
            ids = np.unique(array.placements.granule_id)
            rows = (b.at(array.fixed) for b in self.table.rows(array.inner, ids))
            problem = rows_problem(array, rows, self.named)
        if problem is not None and mode == "repack":
            raise PlanError(
                f"{self.output.at}: the chunks of {array.path} cannot be copied as they are: {problem}; write `mode: auto`, "
                "which decodes and encodes such arrays, or leave it out of this output's `arrays:`",
                kind="not-repackable",
                output=self.output.at,
                array=array.path,
            )
        return problem

    def named(self, granule_id: int) -> str:
        """Address of a granule."""
        return self.table.granule(granule_id).address


def _enforce(plan: OutputPlan) -> None:
    """Refused arrays are named and left out, unless that would leave nothing worth having, or they were asked for."""
    refused = plan.refused
    if not plan.holds_data and plan.combined.left_out:
        reasons = "; ".join((*plan.combined.left_out, *refused.values()))
        raise UnsupportedError(f"{plan.output.at} ({plan.output.form}) would hold no array: {reasons}", kind="no-zarr-form")
    if not refused:
        return
    asked = plan.output.arrays is not None
    if asked or not plan.holds_data:
        reasons = "; ".join(r if r.startswith(f"{path}:") else f"{path}: {r}" for path, r in sorted(refused.items()))
        virtual = plan.output.kind == "virtual"
        remedies = ["publish them with an output `store: zarr`, which rechunks them exactly"] if virtual else []
        remedies += ["take them out of this output's arrays:"] if asked else []
        raise UnsupportedError(
            f"{plan.output.at} ({plan.output.form}) cannot hold {len(refused)} of its arrays"
            f"{' as references' if virtual else ''}: {reasons}"
            + "".join(f"; {'or ' * bool(i)}{r}" for i, r in enumerate(remedies)),
            kind="not-virtual" if virtual else "no-zarr-form",
            output=plan.output.at,
            arrays=", ".join(sorted(refused)),
        )

"""A plan as JSON and as text with a small picture: what moves, what it costs, what reads cost before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drystone.model.placement import CombinedArray
from drystone.model.sizes import duration_text, size_text
from drystone.pipeline.reads_text import reads_json, reads_lines
from drystone.plan.regions import largest as largest_of

if TYPE_CHECKING:
    from drystone.pipeline.planning import OutputPlan, PlannedArray, RunPlan
    from drystone.plan.advice import Ways
    from drystone.plan.candidates import Candidate
    from drystone.plan.layout import TargetLayout
    from drystone.plan.shuffle import Shuffle

__all__ = ["plan_json", "plan_lines"]


def plan_json(plan: RunPlan) -> dict[str, object]:
    """The plan as JSON."""
    c = plan.whole.combined
    return {
        "granules": len(plan.whole.granules),
        "set_aside": list(plan.whole.set_aside),
        "axis": c.axis,
        "warnings": list(c.notes),
        "outputs": [_output_json(o) for o in plan.outputs],
    }


def _output_json(o: OutputPlan) -> dict[str, object]:
    return {
        "at": o.output.at,
        "form": o.output.form,
        "kind": o.output.kind,
        "tasks": sum(a.tasks.n_tasks for a in o.arrays if a.tasks is not None),
        "arrays": [_array_json(a, o.combined.array(a.path)) for a in o.arrays],
        "predicted": None if o.predicted is None else o.predicted.to_json(),
        "notes": list(o.notes()),
    }


def _array_json(a: PlannedArray, array: CombinedArray) -> dict[str, object]:
    return {
        "path": a.path,
        "mode": a.mode,
        "reason": a.reason,
        "shape": list(a.shape),
        "dtype": a.dtype,
        "source_chunks": a.source_chunks,
        "encoded_bytes": a.encoded_bytes,
        "raw_bytes": a.raw_bytes,
        "loss": None if array.loss is None else array.loss.to_json(),
        "chunk": None if a.layout is None else list(a.layout.chunk),
        "shard": None if a.layout is None or a.layout.shard is None else list(a.layout.shard),
        "ways": None if a.ways is None else a.ways.to_json(),
        "predicted": None if a.predicted is None else a.predicted.to_json(),
        "sizes": None if a.layout is None or not a.layout.sizes else a.layout.sizes,
        "tasks": 0 if a.tasks is None else a.tasks.n_tasks,
        "objects": 0 if a.tasks is None else a.tasks.n_cells,
        "amplification": 1.0 if a.tasks is None else a.tasks.amplification,
        "task_memory": 0 if a.tasks is None else a.tasks.memory,
        "reads": reads_json(a.reads),
    }


def plan_lines(plan: RunPlan) -> list[str]:
    """The plan as text."""
    c = plan.whole.combined
    along = f", joined along {c.axis}" if c.axis else ""
    out = [f"{len(plan.whole.granules)} granules{along}, {len(c.arrays)} arrays"]
    out += [f"  set aside: {a}" for a in plan.whole.set_aside]
    out += [f"  note: {w}" for w in c.notes]
    for o in plan.outputs:
        out += ["", f"{o.output.kind} {o.output.form} at {o.output.at}"]
        for a in o.arrays:
            out += _array_lines(a, o.combined.array(a.path))
        if o.predicted is not None and o.predicted.seconds is not None:
            start = dict(o.predicted.parts).get("start", 0.0)
            begun = f", {duration_text(start)} of it until workers have started" if start else ""
            out.append(f"  all tasks take {duration_text(o.predicted.seconds)} as predicted{begun}")
        out += [f"  note: {n}" for n in o.notes()]
    return out


def _sizes_text(layout: TargetLayout) -> str:
    """Edges of a write cell; where they differ along an axis, the least and the largest."""
    axes = [str(e) if isinstance(e, int) else f"{min(e)} to {max(e)}" for e in layout.edges]
    return f"({', '.join(axes)}{',' * (len(axes) == 1)})"


def _way_name(c: Candidate, array: CombinedArray) -> str:
    name, comma, more = c.name.partition(",")
    return name if c.stream is None else f"{name}, {c.stream[1]} of {array.dims[c.stream[0]]}{comma}{more}"


def _way_lines(a: PlannedArray, ways: Ways, array: CombinedArray) -> list[str]:
    """The candidates as a table, the chosen one marked."""
    lines = [f"    {'way':<34}{'tasks':>10}{'reads':>12}{'decoded':>12}{'between':>12}{'a task needs':>16}{'time':>10}"]
    for i, c in enumerate(ways.candidates):
        fits = "" if c.memory <= ways.memory else f"  more than {size_text(ways.memory)}"
        mark = "*" if i == 0 else " "
        between = "" if c.shuffle is None else size_text(c.shuffle.cells_between * ways.itemsize)
        lines.append(
            f"  {mark} {_way_name(c, array):<34}{c.n_tasks:>10,}{f'{c.amplification:.3g}x':>12}"
            f"{size_text(a.raw_bytes * c.amplification):>12}{between:>12}{size_text(c.memory):>16}"
            f"{'?' if c.seconds is None else duration_text(c.seconds):>10}{fits}"
        )
    return [*lines, f"    chosen: {ways.why}", *(f"    advice: {text}" for text in ways.advice)]


def _loss_lines(array: CombinedArray) -> list[str]:
    return [] if array.loss is None else [f"    loses precision: {array.loss.text}"]


def _array_lines(a: PlannedArray, array: CombinedArray) -> list[str]:
    dims = " × ".join(f"{d} {n}" for d, n in zip(array.dims, a.shape, strict=True)) or "scalar"
    head = f"  {a.path}  ({dims}) {a.dtype}"
    if a.mode == "refused":
        return [head, f"    refused: {a.reason.removeprefix(f'{a.path}: ')}"]
    if a.mode == "virtual":
        virtual = f"    virtual: {a.source_chunks:,} references to {size_text(a.encoded_bytes)}, no bytes move"
        return [head, virtual, *(f"    {line}" for line in reads_lines(a.reads))]
    if a.mode == "driver" or a.layout is None or a.tasks is None:
        return [head, "    written whole by the driver", *_loss_lines(array)]
    t = a.tasks
    step = "" if t.stream is None else f", {t.stream[1]} along {array.dims[t.stream[0]]} at a time"
    cell = _sizes_text(a.layout)
    shard = f" in shards of {cell}" if a.layout.shard else ""
    chunk = cell if a.layout.shard is None else str(a.layout.chunk)
    if a.mode == "repack":
        framed = a.layout.codecs.codecs[-1].name == "gzip" and array.codecs.codecs[-1].name != "gzip"
        work = "inflates each chunk once for gzip's checksum" if framed else "decodes nothing"
        return [
            head,
            f"    repack: {a.source_chunks:,} source chunks of {chunk} are copied as they are encoded{shard}",
            f"    {t.n_tasks:,} tasks of {t.region}, at most {t.n_cells:,} objects, {size_text(t.memory)} a task",
            f"    reads and writes {size_text(a.encoded_bytes)}, {work}, no temporary copy",
            *_time_lines(a),
            *(f"    {line}" for line in reads_lines(a.reads)),
        ]
    lines = [
        head,
        f"    rechunk: {a.source_chunks:,} source chunks to chunks of {chunk}{shard}",
        f"    {t.n_regions:,} tasks of {t.region}{step}, at most {t.n_cells:,} objects, {size_text(t.memory)} a task",
        (
            f"    reads {size_text(a.encoded_bytes * t.amplification)} (each source chunk {t.amplification:.3g} times), "
            f"decodes {size_text(a.raw_bytes * t.amplification)}{'' if t.shuffle else ', no temporary copy'}"
        ),
        *([] if t.shuffle is None else _between_lines(t.shuffle, a)),
        *_loss_lines(array),
    ]
    lines += _time_lines(a)
    if a.ways is not None:
        lines += _way_lines(a, a.ways, array)
    if array.unaligned is not None:
        lines.append(f"    no virtual form: {array.unaligned.removeprefix(f'{a.path}: ')}")
    if a.reason:
        lines.append(f"    {a.reason}")
    lines += [f"    {line}" for line in reads_lines(a.reads)]
    return lines


def _between_lines(shuffle: Shuffle, a: PlannedArray) -> list[str]:
    """What a first pass does, and what lies between the passes."""
    itemsize = 1 if a.layout is None else a.layout.dtype.itemsize
    largest = tuple(largest_of(d) for d in shuffle.sources.dimensions)
    n, piece = shuffle.groups.n_chunks, a.raw_bytes // max(shuffle.n_pieces, 1)
    order = f"in {n:,} groups, one after the other" if n > 1 else "the first pass is whole before the second begins"
    return [
        f"    before them {shuffle.n_sources:,} tasks of {largest} that cut what they read by destination; {order}",
        (
            f"    in between at most {size_text(shuffle.cells_between * itemsize)} raw in {shuffle.objects_between:,} objects "
            f"at a time, of {shuffle.n_sources:,}; read in {shuffle.n_pieces:,} ranges of some {size_text(piece)}"
        ),
    ]


def _time_lines(a: PlannedArray) -> list[str]:
    """Predicted time, and what takes most of it."""
    if a.predicted is None:
        return []
    if a.predicted.seconds is None:
        return [f"    time {a.predicted.why}"]
    parts = sorted(a.predicted.parts, key=lambda p: -p[1])[:3]
    most = ", ".join(f"{name} {duration_text(seconds)}" for name, seconds in parts)
    return [f"    takes {duration_text(a.predicted.seconds)} as predicted (of CPUs and places: {most})"]

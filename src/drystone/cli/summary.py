"""A config in a few lines: what ``check`` and ``show`` tell of it."""

from __future__ import annotations

from drystone.cli.readers import readers_of
from drystone.model.options import ArchiveConfig, AxisOptions, CombineOptions, OutputOptions, Selection

__all__ = ["config_json", "config_lines"]


def config_json(config: ArchiveConfig) -> dict[str, object]:
    """The config's meaning, defaults filled in."""
    return {
        "name": config.name,
        "digest": config.digest,
        "places": {name: url for name, (url, _) in config.places.items()},
        "granules": [{"lister": g.lister, "pattern": g.pattern} for g in config.granules],
        "along": [a.name for a in config.combine.along],
        "outputs": [_output_json(o) for o in config.outputs],
    }


def _output_json(output: OutputOptions) -> dict[str, object]:
    readers = readers_of(output)
    return {
        "kind": output.kind,
        "form": output.form,
        "at": output.at,
        "can_read": list(readers.can),
        "cannot_read": list(readers.cannot),
    }


def config_lines(config: ArchiveConfig) -> list[str]:
    """For people."""
    lines = [f"{config.name} (config {config.digest[:8]})", "  granules"]
    lines += [f"    {g.lister}: {g.pattern}" for g in config.granules]
    if config.versions is not None:
        kept = "the final one replaces the others" if config.versions.prefer == "final" else "none is replaced"
        lines.append(f"    versions named {config.versions.of}: {kept}")
    lines += [*_combine_lines(config.combine), "  places"]
    lines += [f"    {name}: {url}" for name, (url, _) in config.places.items()]
    for output in config.outputs:
        readers = readers_of(output)
        lines.append(f"  {output.kind} {output.form} at {output.at}{_extras(output)}")
        lines += [f"    read by      {text}" for text in readers.can]
        lines += [f"    not read by  {text}" for text in readers.cannot]
    return lines


def _combine_lines(combine: CombineOptions) -> list[str]:
    joined = ", ".join(map(_axis_text, combine.along)) or "the axis that differs between granules"
    lines = [f"  joined along {joined}"]
    lines += [f"    of {name}: {_selection_text(s)}" for name, s in combine.select.items()]
    d, default = combine.differences, CombineOptions().differences
    changed = [f for f in d.__slots__ if getattr(d, f) != getattr(default, f)]
    if changed:
        lines.append(f"    where granules differ: {', '.join(f'{f} {getattr(d, f)}' for f in changed)}")
    said = {"duplicates": combine.duplicates, "overlap": combine.overlap, "gaps": combine.gaps}
    usual = {"duplicates": "error", "overlap": "error", "gaps": "fill"}
    lines += [f"    {k}: {v}" for k, v in said.items() if v != usual[k]]
    return lines


def _axis_text(axis: AxisOptions) -> str:
    placed = f"attribute {axis.attribute}" if axis.position == "attribute" else axis.position
    if axis.axis == "sequence":
        return f"{axis.name}, placed by {placed}"
    origin = "the first there is" if axis.origin is None else axis.origin
    stop = "" if axis.stop is None else f" until {axis.stop}"
    return f"{axis.name}, placed by {placed} in slots of {axis.step} from {origin}{stop}"


def _selection_text(selection: Selection) -> str:
    """What is taken, in words."""
    values, step = selection.values, f", one of {selection.step}" if selection.step > 1 else ""
    match selection.kind:
        case "range":
            return f"{_end(values[0], 'the lowest')} to {_end(values[1], 'the highest')}{step}"
        case "slice":
            stop = "the end" if values[1] is None else f"before {values[1]}"
            return f"places {_end(values[0], '0')} to {stop}{step}"
        case "value":
            return f"the place at {values[0]}"
        case "index":
            return f"place number {values[0]}"
        case "points" | "point_values":
            return f"{len(values)} points"
        case _:
            return f"{len(values)} places{' by value' if selection.kind == 'values' else ''}"


def _end(value: str | float | None, otherwise: str) -> str:
    return otherwise if value is None else str(value)


def _extras(output: OutputOptions) -> str:
    said = {
        "rectilinear grid": output.grid == "rectilinear",
        "cropped chunks": output.crop,
        "coverage": output.coverage,
        f"{output.values} values": output.values != "auto",
        f"values packed anew ({', '.join(output.pack)})": bool(output.pack),
        f"other types ({', '.join(output.dtype)})": bool(output.dtype),
        f"other numbers for missing ({', '.join(output.fill_value)})": bool(output.fill_value),
        f"rounded values ({', '.join(output.round)})": bool(output.round),
    }
    words = [word for word, on in said.items() if on]
    return f", with {', '.join(words)}" if words else ""

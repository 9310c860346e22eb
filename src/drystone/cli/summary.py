"""A config in a few lines: what ``check`` and ``show`` tell of it."""

from __future__ import annotations

from drystone.cli.readers import readers_of
from drystone.model.options import ArchiveConfig, OutputOptions

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
    readers = readers_of(output.kind, output.form)
    return {
        "kind": output.kind,
        "form": output.form,
        "at": output.at,
        "can_read": list(readers.can),
        "cannot_read": list(readers.cannot),
    }


def config_lines(config: ArchiveConfig) -> list[str]:
    """For people."""
    along = config.combine.along
    lines = [f"{config.name} (config {config.digest[:8]})", "  granules"]
    lines += [f"    {g.lister}: {g.pattern}" for g in config.granules]
    joined = ", ".join(f"{a.name}, placed by {a.position}" for a in along) or "the axis that differs between granules"
    lines += [f"  joined along {joined}", "  places"]
    lines += [f"    {name}: {url}" for name, (url, _) in config.places.items()]
    for output in config.outputs:
        readers = readers_of(output.kind, output.form)
        lines.append(f"  {output.kind} {output.form} at {output.at}")
        lines += [f"    read by      {text}" for text in readers.can]
        lines += [f"    not read by  {text}" for text in readers.cannot]
    return lines

"""Slot axes keep their origin: fixed when first published, or a late granule before it would move every place."""

from __future__ import annotations

import json
from dataclasses import replace

from drystone.errors import StorageError, TableError
from drystone.model.options import CombineOptions
from drystone.model.placement import Combined
from drystone.pipeline.archive import Archive

__all__ = ["keep_origins", "with_origins"]


def _kept(archive: Archive) -> dict[str, str]:
    try:
        found = json.loads(archive.store.get(archive.key("axes.json")))
    except StorageError as error:
        if error.kind != "not-found":
            raise
        return {}
    except ValueError as error:
        raise TableError(
            f"{archive.store.url}/{archive.key('axes.json')} holds no JSON, so the origin of the slot axes is not known and "
            "places would move; put it back from a copy, or give combine: along: origin",
            kind="axes-damaged",
        ) from error
    return {str(name): str(origin) for name, origin in found.items()}


def with_origins(archive: Archive, options: CombineOptions) -> CombineOptions:
    """The options, with the origins that were published where the config names none."""
    if not any(a.axis == "slots" and a.origin is None for a in options.along):
        return options
    kept = _kept(archive)
    along = tuple(
        replace(a, origin=kept[a.name]) if a.axis == "slots" and a.origin is None and a.name in kept else a
        for a in options.along
    )
    return replace(options, along=along)


def keep_origins(archive: Archive, combined: Combined) -> None:
    """Keep the origins of what is about to be released."""
    if combined.origins:
        now = {**_kept(archive), **dict(combined.origins)}
        archive.store.put(archive.key("axes.json"), json.dumps(now, sort_keys=True).encode())

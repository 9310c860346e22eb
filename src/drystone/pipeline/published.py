"""What was published at each output: the record that later runs, ``status`` and ``verify`` go by."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from drystone.errors import StorageError
from drystone.model.options import OutputOptions
from drystone.model.release import Release
from drystone.pipeline.archive import Archive

__all__ = ["PublishedRecord", "is_released", "read_published", "recorded", "write_published"]


@dataclass(frozen=True, slots=True)
class PublishedRecord:
    """Identity of an output as published, the arrays in it, and how it was verified."""

    identity: str
    arrays: tuple[str, ...]
    verified: str


def _key(archive: Archive, output: OutputOptions) -> str:
    return f"{archive.run_key(output)}/published.json"


def read_published(archive: Archive, output: OutputOptions) -> PublishedRecord | None:
    """The record of an output, or None where it was never published at this address."""
    found = _read(archive, output)
    return None if found is None or found[0] != archive.places.url(output.at) else found[1]


def recorded(archive: Archive, output: OutputOptions) -> PublishedRecord | None:
    """The record of an output, wherever its place led to when it was published."""
    found = _read(archive, output)
    return None if found is None else found[1]


def _read(archive: Archive, output: OutputOptions) -> tuple[str, PublishedRecord] | None:
    try:
        record = json.loads(archive.store.get(_key(archive, output)))
    except StorageError as error:
        if error.kind == "not-found":
            return None
        raise
    return str(record["at"]), PublishedRecord(record["identity"], tuple(record["arrays"]), record["verified"])


def is_released(releases: Sequence[Release], published: Iterable[tuple[str, str, str]]) -> bool:
    """Whether the last release names just these outputs: (form, address, identity) of each.

    A run that was killed, or whose disk was full, between its last publish and its record left one unnamed.
    """
    return bool(releases) and {(o.form, o.address, o.identity) for o in releases[-1].outputs} == set(published)


def write_published(archive: Archive, output: OutputOptions, record: PublishedRecord) -> None:
    """Record a publish."""
    document = {"at": archive.places.url(output.at), **asdict(record)}
    archive.store.put(_key(archive, output), json.dumps(document, indent=2).encode())

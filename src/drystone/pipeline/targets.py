"""Whose is what stands at an output's address? A run writes where there is nothing, or what an earlier run of its own left.

Before the first write a note of the address is put into the output's run folder; what is found there later is ours. Where
there is no such note, as after everything was moved together, the content itself must prove it: an object that a receipt
names with its checksum, the snapshot that was published, files with the digest that was recorded. Everything else is
somebody else's and is neither changed nor removed, whatever its form.
"""

from __future__ import annotations

import json
import os
from itertools import islice

from drystone.emit.folder import folder_fingerprint
from drystone.errors import ConfigError, StorageError
from drystone.model.options import OutputOptions
from drystone.pipeline.archive import Archive
from drystone.pipeline.published import recorded
from drystone.rechunk.receipts import load_receipts
from drystone.rechunk.shard import checksum
from drystone.storage.store import Store

__all__ = ["claim_targets"]

_SHOWN = 3
_PROOFS = 5  # objects read at most: one that fits is proof


def claim_targets(archive: Archive, *, dry_run: bool = False) -> None:
    """See that nothing of others stands at any output's address, and note the addresses as this archive's own.

    Raises
    ------
    ConfigError
        ``target-foreign``: there is something that no run of this archive wrote; nothing was changed.
    """
    for output in archive.config.outputs:
        _claim(archive, output, dry_run)


def _claim(archive: Archive, output: OutputOptions, dry_run: bool) -> None:
    run, url = archive.run_key(output), archive.places.url(output.at)
    if _noted(archive, run) == url:
        return
    store, key = archive.places.resolve(output.at)
    found = _found(store, key)
    if found and not _proved(archive, output, run):
        more = ", …" if len(found) > _SHOWN else ""
        raise ConfigError(
            f"{output.at}: {url} holds what no run of this archive wrote ({', '.join(found[:_SHOWN])}{more}), going by the "
            f"notes in {archive.store.url}/{archive.key('runs')}; it would be overwritten, so nothing was started: give the "
            "output another `at:`, or move or remove what is there",
            kind="target-foreign",
            output=output.at,
            target=url,
        )
    if not dry_run:
        archive.store.put(f"{run}/target.json", json.dumps({"url": url}, indent=2).encode())


def _noted(archive: Archive, run: str) -> str | None:
    try:
        return str(json.loads(archive.store.get(f"{run}/target.json"))["url"])
    except StorageError as error:
        if error.kind == "not-found":
            return None
        raise


def _found(store: Store, key: str) -> list[str]:
    """Some names of what is there; an empty folder is nothing."""
    if store.root is not None:
        path = os.path.join(store.root, key)
        if os.path.lexists(path) and not os.path.isdir(path):
            return [key.rsplit("/", 1)[-1]]
    elif store.exists(key):
        return [key.rsplit("/", 1)[-1]]
    return [name.removeprefix(f"{key}/") for name, _ in islice(store.list(f"{key}/"), _SHOWN + 1)]


def _proved(archive: Archive, output: OutputOptions, run: str) -> bool:
    """Whether the content is what a run of this archive wrote, wherever it lay then."""
    store, key = archive.places.resolve(output.at)
    record = recorded(archive, output)
    if output.form == "icechunk":
        return record is not None and store.exists(f"{key}/snapshots/{record.identity}")
    if output.kind == "store":
        objects = (o for r in load_receipts(archive.store, run) for o in r.objects if o.size >= 0)
        return any(_is_object(store, f"{key}/{o.key}", o.size, o.crc32c) for o in islice(objects, _PROOFS))
    return record is not None and folder_fingerprint(store, key) == record.identity


def _is_object(store: Store, key: str, size: int, crc32c: int) -> bool:
    try:
        return store.stat(key).size == size and checksum([store.get(key)]) == crc32c
    except StorageError as error:
        if error.kind in ("not-found", "no-file"):
            return False
        raise

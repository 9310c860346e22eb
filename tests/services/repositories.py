"""What an Icechunk repository holds, read by icechunk and zarr alone."""

from __future__ import annotations

from pathlib import Path

import icechunk
import numpy as np
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

__all__ = ["committed", "opened", "values"]

_LEDGER = "drystone_ledger/"


def opened(path: Path | icechunk.Storage) -> icechunk.Repository:
    """The repository in a folder, or in a storage."""
    icechunk.set_logs_filter("error")
    return icechunk.Repository.open(icechunk.local_filesystem_storage(str(path)) if isinstance(path, Path) else path)


def values(path: Path | icechunk.Storage, branch: str = "main") -> dict[str, bytes]:
    """Every value of a branch by key, without the ledger."""
    found = sync(_values(opened(path).readonly_session(branch).store))
    return {key: value for key, value in found.items() if not key.startswith(_LEDGER)}


def committed(path: Path | icechunk.Storage) -> set[int]:
    """Ids of the tasks in the ledger of the branch that a run left, else of main."""
    repo = opened(path)
    branch = next((b for b in repo.list_branches() if b.startswith("drystone-run-")), "main")
    found = sync(_values(repo.readonly_session(branch).store))
    parts = [np.frombuffer(v, "<u8") for k, v in found.items() if k.startswith(f"{_LEDGER}tasks/c/")]
    return {i for part in parts for i in part.tolist() if i}


async def _values(store: icechunk.IcechunkStore) -> dict[str, bytes]:
    prototype = default_buffer_prototype()
    keys = [key async for key in store.list_prefix("")]
    return {key: value.to_bytes() for key in keys if (value := await store.get(key, prototype)) is not None}

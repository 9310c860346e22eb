"""Digests of a store as it was written, kept beside its record for those who verify it later."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from drystone.errors import StorageError
from drystone.grid.digest import NAME
from drystone.model.options import OutputOptions
from drystone.pipeline.archive import Archive

__all__ = ["read_digests", "write_digests"]

_IDENTITY = "."  # no array has this name


def _key(archive: Archive, output: OutputOptions) -> str:
    return f"{archive.run_key(output)}/digests-{NAME}.npz"


def write_digests(archive: Archive, output: OutputOptions, identity: str, digests: Mapping[str, NDArray[np.uint64]]) -> None:
    """Keep digests of arrays, uint64 one a step, of a store with an identity."""
    buffer = io.BytesIO()
    save: Callable[..., None] = np.savez
    # members of the archive are files, whose names begin with no slash
    save(buffer, **{_IDENTITY: np.array(identity)}, **{path[1:]: d for path, d in digests.items()})
    archive.store.put(_key(archive, output), buffer.getvalue())


def read_digests(archive: Archive, output: OutputOptions, identity: str) -> dict[str, NDArray[np.uint64]]:
    """Those that were kept of a store with this identity; none where it was written without."""
    try:
        data = archive.store.get(_key(archive, output))
    except StorageError as error:
        if error.kind == "not-found":
            return {}
        raise
    with np.load(io.BytesIO(data), allow_pickle=False) as kept:
        if str(kept[_IDENTITY]) != identity:
            return {}
        return {f"/{name}": kept[name] for name in kept.files if name != _IDENTITY}

"""An Icechunk repository at a store's key: its storage, its errors in our words, its manifests' windows.

Emitters of references and the engine's target stand on it alike. Repositories that drystone wrote hold a group, the ledger,
that says from what; one without it is somebody else's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlparse

from drystone.errors import ConfigError, StorageError, UnsupportedError
from drystone.storage.store import Store

if TYPE_CHECKING:
    import icechunk

    type _Dimension = (
        icechunk.ManifestSplitDimCondition.Axis
        | icechunk.ManifestSplitDimCondition.DimensionName
        | icechunk.ManifestSplitDimCondition.Any
    )

__all__ = [
    "LEDGER_GROUP",
    "MAIN",
    "is_tip",
    "last_fingerprint",
    "manifest_windows",
    "open_or_create",
    "quiet",
    "repository_errors",
    "repository_storage",
    "run_in_zarr",
    "sweep_unborn",
    "with_windows",
]

MAIN = "main"
LEDGER_GROUP = "drystone_ledger"
WINDOW_REFERENCES = 65_000
_NEVER = 65_535  # the most that the option takes, and more than a window holds

# the system's words in Icechunk's errors: kind and remedy
_FULL = ("no-space", "nothing was published: free some space (or inodes) and run again")
_DENIED = ("no-permission", "nothing was published")
_CAUSES = {
    "No space left": _FULL,
    "uota exceeded": _FULL,
    "File too large": ("no-space", "nothing was published: a file would exceed the size limit (ulimit -f)"),
    "ermission denied": _DENIED,
    "Read-only file system": _DENIED,
}


def quiet() -> None:
    """Keep Icechunk from logging a warning about concurrent writers at each opening; the lease answers it."""
    import icechunk

    if "ICECHUNK_LOG" not in os.environ:
        icechunk.set_logs_filter("error")


def run_in_zarr[T](work: Coroutine[object, object, T]) -> T:
    """Run a coroutine on the event loop that zarr keeps for its stores."""
    from zarr.core.sync import sync

    return sync(work)


def repository_storage(target: Store, key: str) -> icechunk.Storage:
    """The repository's storage.

    Raises
    ------
    UnsupportedError
        Icechunk writes to folders, S3 and Google storage only, as far as drystone goes.
    """
    import icechunk

    quiet()
    if target.root is not None:
        return icechunk.local_filesystem_storage(os.path.join(target.root, key))
    url = urlparse(f"{target.url}/{key}")
    prefix = url.path.strip("/")
    options = getattr(target, "options", {})
    if url.scheme == "s3":
        endpoint, region = options.get("endpoint"), options.get("region")
        return icechunk.s3_storage(
            bucket=url.netloc,
            prefix=prefix,
            region=None if region is None else str(region),
            endpoint_url=None if endpoint is None else str(endpoint),
            allow_http=str(endpoint or "").startswith("http://"),
            anonymous=bool(options.get("anonymous")) or None,
            from_env=None if options.get("anonymous") else True,
            force_path_style=endpoint is not None,
        )
    if url.scheme == "gs":
        return icechunk.gcs_storage(bucket=url.netloc, prefix=prefix, from_env=True)
    raise UnsupportedError(
        f"no Icechunk repository can be written at {target.url}/{key}: give a folder, s3:// or gs://",
        kind="icechunk-storage",
        target=f"{target.url}/{key}",
    )


@contextmanager
def repository_errors(address: str) -> Iterator[None]:
    """Icechunk's errors as ours."""
    import icechunk

    try:
        yield
    except icechunk.ConflictError as error:
        raise StorageError(
            f"{address}: another writer committed meanwhile, so nothing was committed; run again",
            kind="conflict",
            target=address,
        ) from error
    except icechunk.IcechunkError as error:
        text = str(error).strip() or type(error).__name__
        kind, remedy = next((v for words, v in _CAUSES.items() if words in text), ("icechunk", "nothing was published"))
        raise StorageError(
            f"{address}: Icechunk failed: {text.splitlines()[0]}; {remedy}", kind=kind, target=address
        ) from error


def last_fingerprint(repo: icechunk.Repository, address: str, snapshot: str | None = None) -> str | None:
    """The fingerprint in the ledger of a snapshot, the tip of ``main`` by default; None for an empty repository.

    Raises
    ------
    ConfigError
        ``target-foreign``: there is no ledger.
    """
    import zarr

    session = repo.readonly_session(MAIN) if snapshot is None else repo.readonly_session(snapshot_id=snapshot)
    if run_in_zarr(session.store.is_empty("")):
        return None
    try:
        group = zarr.open_group(session.store, path=LEDGER_GROUP, mode="r", zarr_format=3)
    except FileNotFoundError as error:
        raise ConfigError(
            f"{address} is a repository that drystone did not write (it has no {LEDGER_GROUP}), and its content would be "
            "replaced; name another target",
            kind="target-foreign",
            target=address,
        ) from error
    return str(group.attrs.get("fingerprint"))


def manifest_windows(grid: tuple[int, ...], axis: int | None) -> dict[int, int]:
    """Chunks per manifest along each axis that is cut, so that a window holds at most 65,000 references.

    Cut along the combine axis, so that an append touches the last window; along others only where one step of it is
    larger than a window.

    Examples
    --------
    >>> manifest_windows((3650, 4, 8), 0), manifest_windows((10, 1000, 2000), 0)
    ({0: 2031}, {0: 1, 1: 32})
    """
    if not grid:
        return {}
    first = 0 if axis is None else axis
    cut: dict[int, int] = {}
    for i in (first, *(j for j in range(len(grid)) if j != first)):
        others = 1
        for j, n in enumerate(grid):
            if j != i:
                others *= cut.get(j, max(1, n))
        cut[i] = max(1, WINDOW_REFERENCES // others)
        if others <= WINDOW_REFERENCES:
            break
    return cut


def with_windows(
    config: icechunk.RepositoryConfig, grids: Mapping[str, tuple[tuple[int, ...], int | None]]
) -> icechunk.RepositoryConfig:
    """A config whose manifests have windows and are compressed.

    Parameters
    ----------
    config
        Is changed and returned.
    grids
        Path to chunks along each axis, and the combine axis. Where no array needs windows, those that there are stay.
    """
    import icechunk

    splits: dict[icechunk.ManifestSplitCondition, dict[_Dimension, int]] = {}
    for path, (grid, axis) in grids.items():
        window = manifest_windows(grid, axis)
        # Icechunk tries every condition on every array: only those that cut something are worth it
        if all(n >= grid[i] for i, n in window.items()):
            continue
        cut: dict[_Dimension, int] = {icechunk.ManifestSplitDimCondition.Axis(i): n for i, n in window.items()}
        splits[icechunk.ManifestSplitCondition.path_matches(f"^{re.escape(path)}$")] = cut
    splitting = None if config.manifest is None else config.manifest.splitting
    if splits:
        splitting = icechunk.ManifestSplittingConfig.from_dict(splits)
    # compressing each location by itself takes a third of a commit and saves nothing once the manifest is compressed as a
    # whole; in our manifests level 1 also gives the smaller files
    plain = icechunk.ManifestVirtualChunkLocationCompressionConfig(min_num_chunks=_NEVER)
    config.manifest = icechunk.ManifestConfig(splitting=splitting, virtual_chunk_location_compression=plain)
    config.compression = icechunk.CompressionConfig(icechunk.CompressionAlgorithm.Zstd, 1)
    return config


def sweep_unborn(target: Store, key: str) -> None:
    """Remove what an interrupted creation left where there is no repository yet; the caller knows that it is its own.

    Icechunk creates repositories in empty folders only, so that a full disk at the wrong moment would be the end of it.
    """
    import icechunk

    left = [name for name, _ in target.list(f"{key}/")]
    if left and not icechunk.Repository.exists(repository_storage(target, key)):
        for name in left:
            target.delete(name)


def open_or_create(place: icechunk.Storage, config: icechunk.RepositoryConfig) -> icechunk.Repository:
    """Open the repository, or create it with a config."""
    import icechunk

    if icechunk.Repository.exists(place):
        return icechunk.Repository.open(place)
    return icechunk.Repository.create(place, config=config)


def is_tip(repo: icechunk.Repository, branch: str, snapshot: str) -> None:
    """See that a branch ends where it was put: on folders Icechunk loses changes of concurrent writers without a word."""
    if repo.lookup_branch(branch) != snapshot:
        raise StorageError(
            f"the commit {snapshot} is not in the repository's history (branch {branch}): another process committed to it at "
            "the same time; run again with one writer only",
            kind="commit-lost",
            snapshot=snapshot,
        )

"""An Icechunk repository at a store's key: storage, virtual chunk containers, manifest windows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlparse

from drystone.emit.addresses import container_prefix
from drystone.emit.documents import Layout
from drystone.errors import UnsupportedError
from drystone.protocols import PublicRoot
from drystone.storage.store import Store

if TYPE_CHECKING:
    import icechunk

    type _Dimension = (
        icechunk.ManifestSplitDimCondition.Axis
        | icechunk.ManifestSplitDimCondition.DimensionName
        | icechunk.ManifestSplitDimCondition.Any
    )

__all__ = [
    "container",
    "containers_differ",
    "manifest_windows",
    "open_or_create",
    "repository_config",
    "storage",
    "sweep_unborn",
    "windows",
]

WINDOW_REFERENCES = 65_000
_NEVER = 65_535  # the most that the option takes, and more than a window holds


def storage(target: Store, key: str) -> icechunk.Storage:
    """The repository's storage.

    Raises
    ------
    UnsupportedError
        Icechunk writes to folders, S3 and Google storage only, as far as drystone goes.
    """
    import icechunk

    if "ICECHUNK_LOG" not in os.environ:
        # opening a repository in a folder logs a warning about concurrent writers each time; the lease answers it
        icechunk.set_logs_filter("error")
    if target.root is not None:
        return icechunk.local_filesystem_storage(os.path.join(target.root, key))
    url = urlparse(f"{target.url}/{key}")
    prefix = url.path.strip("/")
    options = getattr(target, "options", {})
    if url.scheme == "s3":
        endpoint = options.get("endpoint")
        return icechunk.s3_storage(
            bucket=url.netloc,
            prefix=prefix,
            region=_text(options.get("region")),
            endpoint_url=_text(endpoint),
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


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def container(root: PublicRoot) -> icechunk.VirtualChunkContainer:
    """The named container of a root of public addresses.

    Raises
    ------
    UnsupportedError
        Icechunk reads no such addresses.
    """
    import icechunk

    prefix = container_prefix(root)
    scheme = prefix.partition("://")[0]
    options = root.options
    if scheme == "file":
        local = icechunk.local_filesystem_store(prefix.removeprefix("file://"))
        return icechunk.VirtualChunkContainer(prefix, local, name=root.name)
    if scheme == "s3":
        endpoint = options.get("endpoint")
        s3 = icechunk.s3_store(
            region=_text(options.get("region")),
            endpoint_url=_text(endpoint),
            allow_http=str(endpoint or "").startswith("http://"),
            anonymous=bool(options.get("anonymous")),
            s3_compatible=endpoint is not None,
            force_path_style=endpoint is not None,
        )
        return icechunk.VirtualChunkContainer(prefix, s3, name=root.name)
    if scheme in ("http", "https"):
        opts = {"allow_http": "true"} if scheme == "http" else {}
        return icechunk.VirtualChunkContainer(prefix, icechunk.http_store(opts), name=root.name)
    if scheme == "gs":
        return icechunk.VirtualChunkContainer(prefix, icechunk.gcs_store({}), name=root.name)
    raise UnsupportedError(
        f"Icechunk cannot read granules below {root.url}; publish them under file://, s3://, gs:// or http(s):// with a "
        "public: rule",
        kind="icechunk-container",
        url=root.url,
    )


def windows(layout: Layout) -> dict[int, int]:
    """Chunks per manifest along each axis that is cut, so that a window holds at most 65,000 references.

    Cut along the combine axis, so that an append touches the last window; along others only where one step of it is
    larger than a window.

    Examples
    --------
    >>> manifest_windows((3650, 4, 8), 0), manifest_windows((10, 1000, 2000), 0)
    ({0: 2031}, {0: 1, 1: 32})
    """
    return manifest_windows(layout.grid_shape, layout.array.placements.axis)


def manifest_windows(grid: tuple[int, ...], axis: int | None) -> dict[int, int]:
    """See :func:`windows`."""
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


def repository_config(
    roots: Iterable[PublicRoot], layouts: Mapping[str, Layout], base: icechunk.RepositoryConfig | None = None
) -> icechunk.RepositoryConfig:
    """Containers, manifest windows and compression, on top of ``base``; containers that older snapshots name are kept."""
    import icechunk

    config = base or icechunk.RepositoryConfig.default()
    for root in roots:
        config.set_virtual_chunk_container(container(root))
    splits: dict[icechunk.ManifestSplitCondition, dict[_Dimension, int]] = {}
    for path, layout in layouts.items():
        window = windows(layout)
        # Icechunk tries every condition on every array: only those that cut something are worth it
        if layout.native or all(n >= layout.grid_shape[i] for i, n in window.items()):
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


def containers_differ(repo: icechunk.Repository, roots: Iterable[PublicRoot]) -> bool:
    """Whether the repository's stored containers lack one of these or have it elsewhere."""
    have = {c.name: c.url_prefix for c in (repo.config.virtual_chunk_containers or {}).values()}
    return any(have.get(r.name) != container_prefix(r) for r in roots)


def sweep_unborn(target: Store, key: str) -> None:
    """Remove what an interrupted creation left where there is no repository yet; the caller knows that it is its own.

    Icechunk creates repositories in empty folders only, so that a full disk at the wrong moment would be the end of it.
    """
    import icechunk

    left = [name for name, _ in target.list(f"{key}/")]
    if left and not icechunk.Repository.exists(storage(target, key)):
        for name in left:
            target.delete(name)


def open_or_create(place: icechunk.Storage, config: icechunk.RepositoryConfig) -> icechunk.Repository:
    """Open the repository, or create it with a config."""
    import icechunk

    if icechunk.Repository.exists(place):
        return icechunk.Repository.open(place)
    return icechunk.Repository.create(place, config=config)

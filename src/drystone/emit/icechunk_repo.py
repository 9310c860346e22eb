"""How a repository of references is set up: virtual chunk containers, manifest windows, compression."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from drystone.emit.addresses import container_prefix
from drystone.emit.documents import Layout
from drystone.errors import UnsupportedError
from drystone.protocols import PublicRoot
from drystone.storage.repository import with_windows

if TYPE_CHECKING:
    import icechunk

__all__ = ["container", "containers_differ", "repository_config"]


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


def repository_config(
    roots: Iterable[PublicRoot], layouts: Mapping[str, Layout], base: icechunk.RepositoryConfig | None = None
) -> icechunk.RepositoryConfig:
    """Containers, manifest windows and compression, on top of ``base``; containers that older snapshots name are kept."""
    import icechunk

    config = base or icechunk.RepositoryConfig.default()
    for root in roots:
        config.set_virtual_chunk_container(container(root))
    return with_windows(
        config, {p: (lay.grid_shape, lay.array.placements.axis) for p, lay in layouts.items() if not lay.native}
    )


def containers_differ(repo: icechunk.Repository, roots: Iterable[PublicRoot]) -> bool:
    """Whether the repository's stored containers lack one of these or have it elsewhere."""
    have = {c.name: c.url_prefix for c in (repo.config.virtual_chunk_containers or {}).values()}
    return any(have.get(r.name) != container_prefix(r) for r in roots)

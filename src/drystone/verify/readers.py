"""The published side of a comparison, read by libraries that are not ours; and what both sides share.

The witness loads this file by its path, so it imports nothing of drystone's.

The published form opens as a zarr group: through a folder or object store, an icechunk session, or fsspec's reference file
system.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast
from urllib.parse import unquote, urlparse

if TYPE_CHECKING:
    import icechunk
    import zarr
    from obstore.store import ObjectStore as ObstoreStore
    from zarr.abc.store import Store

__all__ = ["Options", "Readable", "Unreadable", "local_path", "object_store", "open_published", "options_of", "read_box"]

type Options = Mapping[str, str | bool]


class Unreadable(Exception):
    """A granule or a published form cannot be read."""


class Readable(Protocol):
    """What the witness needs of an array: h5py's dataset, netCDF4's variable or zarr's array."""

    @property
    def shape(self) -> tuple[int, ...] | None:
        """In elements; None for HDF5's null space."""
        ...

    @property
    def dtype(self) -> object:
        """As the library says it."""
        ...

    @property
    def attrs(self) -> Mapping[str, object]:
        """Attributes."""
        ...

    def __getitem__(self, box: tuple[slice, ...], /) -> object:
        """Values."""
        ...


def read_box(array: Readable, box: tuple[slice, ...]) -> object:
    """Values of a box, as the library gives them but for scalars, which forget how long their text may be."""
    import numpy as np

    rank = len(array.shape or ())
    values = array[box[:rank]]
    if rank == 0 and getattr(array.dtype, "kind", "") == "S":
        values = np.asarray(values, array.dtype)  # type: ignore[call-overload]
    for axis, part in enumerate(box[rank:], rank):
        values = np.moveaxis(np.moveaxis(np.asarray(values), axis, 0)[part], 0, axis)
    return values


def local_path(location: str) -> str | None:
    """The path of a ``file:`` URL or a bare path, None for other URLs."""
    if location.startswith("file:"):
        return unquote(urlparse(location).path)
    return None if "://" in location else location


def options_of(url: str, options: Mapping[str, Options]) -> Options:
    """The options of the longest prefix that a URL starts with."""
    found = [p for p in options if url.startswith(p)]
    return options[max(found, key=len)] if found else {}


def object_store(url: str, options: Options) -> ObstoreStore:
    """The object store below a URL."""
    import obstore.store as stores

    plain = str(options.get("endpoint", url)).startswith("http://")
    if url.startswith(("http://", "https://")):
        return stores.HTTPStore.from_url(url, client_options={"allow_http": plain})
    config: dict[str, object] = {}
    if options.get("endpoint"):
        config |= {"endpoint": options["endpoint"], "virtual_hosted_style_request": False}
    if options.get("region"):
        config["region"] = options["region"]
    if options.get("anonymous"):
        config["skip_signature"] = True
    return stores.from_url(url, client_options={"allow_http": plain}, **config)  # type: ignore[call-overload, no-any-return]


# ---------------------------------------------------------------------------------------------------------------
# the published side


def open_published(
    form: str, location: str, options: Mapping[str, Options], version: str | None = None
) -> zarr.Group | Unpublished:
    """The root group of a published form, read-only; of a store without a root yet, its arrays.

    Parameters
    ----------
    form
        ``zarr``, ``icechunk`` or ``kerchunk-parquet``.
    location
        Path or URL.
    options
        URL prefix to what its object store needs: endpoint, region, anonymous.
    version
        Icechunk snapshot; None for the tip of ``main``.
    """
    import zarr

    zarr.config.set({"array.rectilinear_chunks": True})
    store = _published_store(form, location, options, version)
    # references answer a question for the other Zarr version's metadata with an error, at times
    known: Literal[2] | None = 2 if form == "kerchunk-parquet" else None
    try:
        return zarr.open_group(store, mode="r", zarr_format=known)
    except zarr.errors.GroupNotFoundError:
        if form != "zarr":
            raise
        return Unpublished(store)


class Unpublished:
    """A Zarr store whose root is not written yet: it is verified before it is made visible, array by array."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, path: str) -> zarr.Array[Any] | None:
        """An array, or None."""
        import zarr

        try:
            return zarr.open_array(self._store, path=path, mode="r")
        except zarr.errors.ArrayNotFoundError:
            return None

    def members(self, max_depth: int | None = None) -> list[tuple[str, zarr.Array[Any]]]:
        """None are known without a root."""
        return []


def _published_store(form: str, location: str, options: Mapping[str, Options], version: str | None) -> Store:
    path = local_path(location)
    if path is not None and not Path(path).is_dir():
        raise Unreadable(f"{location}: there is no such folder")
    if form == "zarr":
        from zarr.storage import LocalStore, ObjectStore

        if path is not None:
            return LocalStore(path, read_only=True)
        return ObjectStore(object_store(location, options_of(location, options)), read_only=True)
    if form == "icechunk":
        return _icechunk(location, options, version)
    if form == "kerchunk-parquet":
        return _references(path or location, options)
    raise Unreadable(f"no reader is known for the form {form!r}")


def _references(location: str, options: Mapping[str, Options]) -> Store:
    """The reference file system of fsspec over kerchunk's Parquet."""
    import fsspec
    from zarr.storage import FsspecStore

    target = _first_target(location)
    protocol = target.partition("://")[0] if "://" in target else "file"
    given = options_of(target, options)
    remote: dict[str, object] = {"asynchronous": True}
    if protocol == "s3":
        remote |= {"anon": bool(given.get("anonymous"))}
        if given.get("endpoint"):
            remote["client_kwargs"] = {"endpoint_url": given["endpoint"]}
    files = fsspec.filesystem(
        "reference", fo=location, asynchronous=True, remote_protocol=protocol, remote_options=remote, skip_instance_cache=True
    )
    return FsspecStore(files, read_only=True)


def _first_target(location: str) -> str:
    """The first URL that references name; left to itself, fsspec walks all keys for it and stumbles over groups."""
    import fsspec
    import pyarrow.parquet as pq

    files, root = fsspec.core.url_to_fs(location)
    for name in sorted(n for n in files.find(root) if n.endswith(".parq")):
        with files.open(name, "rb") as f:
            column = pq.read_table(f, columns=["path"]).column("path").drop_null()
        if len(column):
            return str(column[0])
    return ""


def _icechunk(location: str, options: Mapping[str, Options], version: str | None) -> Store:
    import icechunk as ic

    ic.set_logs_filter("error")
    path = local_path(location)
    if path is not None:
        storage = ic.local_filesystem_storage(path)
    elif location.startswith("s3://"):
        bucket, _, prefix = location.removeprefix("s3://").partition("/")
        given = options_of(location, options)
        endpoint = str(given["endpoint"]) if given.get("endpoint") else None
        anonymous = bool(given.get("anonymous"))
        storage = ic.s3_storage(
            bucket=bucket,
            prefix=prefix,
            region=str(given["region"]) if given.get("region") else None,
            endpoint_url=endpoint,
            allow_http=endpoint is not None and endpoint.startswith("http://"),
            force_path_style=endpoint is not None,
            anonymous=anonymous or None,
            from_env=None if anonymous else True,
        )
    elif location.startswith(("http://", "https://")):
        storage = ic.http_storage(location)
    else:
        raise Unreadable(f"{location}: icechunk repositories are read from folders, s3:// and http(s)://")
    config = ic.Repository.fetch_config(storage)
    containers = (config.virtual_chunk_containers if config is not None else None) or {}
    access: dict[str, _Access | None] = {
        c.url_prefix: _access(c.store, options_of(c.url_prefix, options)) for c in containers.values()
    }
    repo = ic.Repository.open(storage, authorize_virtual_chunk_access=ic.containers_credentials(access))
    session = repo.readonly_session("main") if version is None else repo.readonly_session(snapshot_id=version)
    return cast("Store", session.store)


type _Access = (
    icechunk.AnyS3Credential
    | icechunk.AnyGcsCredential
    | icechunk.AnyAzureCredential
    | icechunk.Credentials.LocalFileSystemAccess
    | icechunk.Credentials.HttpAccess
)


def _access(store: object, options: Options) -> _Access:
    """Leave to read the granules below a container, as its kind of store asks for it."""
    import icechunk as ic

    kind = type(store).__name__
    if kind == "LocalFileSystem":
        return ic.credentials.LocalFileSystemAccess
    if kind == "Http":
        return ic.credentials.HttpAccess
    if kind.startswith("S3") or kind == "Tigris":
        return ic.s3_anonymous_credentials() if options.get("anonymous") else ic.s3_from_env_credentials()
    return ic.gcs_from_env_credentials() if kind == "Gcs" else ic.azure_from_env_credentials()

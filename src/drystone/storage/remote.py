"""Object stores and http(s) through obstore.

Two traps are handled here: an environment variable (``AWS_ENDPOINT_URL_S3``) silently overrides an explicit endpoint in
obstore, so that two places could become one; and a lost answer to a create may hide a success, so that the object is
read back and compared with what this call wrote.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from drystone.errors import ConfigError, StorageError
from drystone.storage.stamp import Stamp

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore

__all__ = ["RemoteStore"]

_SCRUBBED = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


def _build(url: str, options: Mapping[str, str | bool]) -> ObjectStore:
    import obstore.store as stores

    if url.startswith("memory:"):
        return stores.MemoryStore()
    endpoint = options.get("endpoint")
    for name in _SCRUBBED:
        value = os.environ.get(name)
        if endpoint and value and value.rstrip("/") != str(endpoint).rstrip("/"):
            raise ConfigError(
                f"the environment variable {name}={value} would override the endpoint {endpoint} of {url}, and bytes "
                f"would be read from or written to the wrong store; unset {name}",
                kind="endpoint-override",
                variable=name,
            )
    plain_http = str(endpoint or url).startswith("http://")
    client: ClientConfig = {"allow_http": True} if plain_http else {}
    if url.startswith(("http://", "https://")):
        return stores.HTTPStore.from_url(url, client_options=client)
    config: dict[str, object] = {}
    if endpoint:
        config["endpoint"] = str(endpoint)
        config["virtual_hosted_style_request"] = False
    if "region" in options:
        config["region"] = str(options["region"])
    if options.get("anonymous"):
        config["skip_signature"] = True
    return stores.from_url(url, client_options=client, **config)  # type: ignore[call-overload, no-any-return]


def _errors() -> tuple[type[Exception], ...]:
    """What obstore raises: its own tree, and Python's OSError tree for files that are not there or not allowed."""
    from obstore.exceptions import BaseError

    return (BaseError, OSError)


class RemoteStore:
    """Objects behind a URL.

    Parameters
    ----------
    url
        ``s3://bucket/prefix``, ``gs://…``, ``az://…``, ``http(s)://…`` or ``memory://``.
    options
        ``endpoint``, ``region``, ``anonymous``. Credentials come from the environment.
    """

    def __init__(self, url: str, options: Mapping[str, str | bool] | None = None) -> None:
        self._url = url.rstrip("/")
        self._options = dict(options or {})
        try:
            self._store = _build(url, self._options)
        except _errors() as error:
            first = str(error).splitlines()[0]
            raise StorageError(
                f"cannot open {self._url}: {first}; credentials and the account come from the environment",
                kind="io",
                path=self._url,
            ) from error

    @property
    def url(self) -> str:
        """The address of the root."""
        return self._url

    @property
    def root(self) -> str | None:
        """None: no folder."""
        return None

    @property
    def options(self) -> Mapping[str, str | bool]:
        """Endpoint, region, anonymous: what another library needs to open the same store."""
        return self._options

    def __reduce__(self) -> tuple[object, ...]:
        return RemoteStore, (self._url, self._options)

    def _fail(self, error: Exception, action: str, key: str) -> NoReturn:
        from obstore.exceptions import NotFoundError, PermissionDeniedError, UnauthenticatedError

        address = f"{self._url}/{key}"
        if isinstance(error, NotFoundError | FileNotFoundError):
            raise StorageError(
                f"cannot {action} {address}: there is nothing under this name", kind="not-found", path=address
            ) from error
        if isinstance(error, PermissionDeniedError | UnauthenticatedError):
            raise StorageError(f"cannot {action} {address}: access denied", kind="no-permission", path=address) from error
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StorageError(f"cannot {action} {address}: {first}", kind="io", path=address) from error

    def get(self, key: str) -> bytes:
        """A whole object."""
        import obstore

        try:
            return bytes(obstore.get(self._store, key).bytes())
        except _errors() as error:
            self._fail(error, "read", key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``start``."""
        return self.get_ranges(key, (start,), (length,))[0]

    def get_ranges(self, key: str, starts: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        """Several ranges of one object, exact; obstore coalesces neighbours."""
        import obstore

        try:
            got = [bytes(b) for b in obstore.get_ranges(self._store, key, starts=list(starts), lengths=list(lengths))]
        except _errors() as error:
            self._fail(error, "read", key)
        for start, length, data in zip(starts, lengths, got, strict=True):
            if len(data) != length:
                raise StorageError(
                    f"{self._url}/{key}: bytes {start} to {start + length} were asked for and {len(data)} came; the object "
                    "was cut short or replaced since it was scanned",
                    kind="short-read",
                    path=f"{self._url}/{key}",
                    start=start,
                    length=length,
                )
        return got

    def put(self, key: str, data: bytes | memoryview | Iterable[bytes | memoryview]) -> None:
        """Write an object whole; parts that come one by one go as a multipart upload."""
        import obstore

        body: bytes | Iterator[bytes]
        if isinstance(data, bytes | bytearray | memoryview):
            body = bytes(data)
        else:
            parts = map(bytes, data)
            body = b"".join(parts) if isinstance(data, Sequence) else parts
        try:
            obstore.put(self._store, key, body, max_concurrency=4)
        except _errors() as error:
            self._fail(error, "write", key)

    def create(self, key: str, data: bytes) -> bool:
        """Write an object if there is none."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        try:
            obstore.put(self._store, key, data, mode="create")
        except AlreadyExistsError:
            return False
        except _errors() as error:
            # the answer may be lost though the object was written: what lies there decides
            if self.exists(key) and self.get(key) == data:
                return True
            self._fail(error, "create", key)
        return True

    def swap(self, key: str, data: bytes, etag: str) -> bool:
        """Write an object only if it still has this ETag; False where it changed or is gone."""
        import obstore
        from obstore.exceptions import PreconditionError

        try:
            obstore.put(self._store, key, data, mode={"e_tag": etag})
        except (PreconditionError, FileNotFoundError):
            return False
        except _errors() as error:
            self._fail(error, "update", key)
        return True

    def stat(self, key: str) -> Stamp:
        """Size, time and ETag."""
        import obstore

        try:
            meta = obstore.head(self._store, key)
        except _errors() as error:
            self._fail(error, "look at", key)
        return _stamp(meta["size"], meta["last_modified"], meta.get("e_tag"))

    def exists(self, key: str) -> bool:
        """Whether there is an object."""
        try:
            self.stat(key)
        except StorageError as error:
            if error.kind == "not-found":
                return False
            raise
        return True

    def list(self, prefix: str = "") -> Iterator[tuple[str, Stamp]]:
        """Objects whose keys start with ``prefix``, in key order within the server's pages."""
        import obstore

        folder, _, _ = prefix.rpartition("/")
        try:
            for page in obstore.list(self._store, folder or None):
                for meta in page:
                    if meta["path"].startswith(prefix):
                        yield meta["path"], _stamp(meta["size"], meta["last_modified"], meta.get("e_tag"))
        except _errors() as error:
            self._fail(error, "list", prefix)

    def delete(self, key: str) -> None:
        """Remove an object."""
        import obstore

        try:
            obstore.delete(self._store, key)
        except FileNotFoundError:
            return
        except _errors() as error:
            self._fail(error, "delete", key)


def _stamp(size: int, modified: dt.datetime, etag: str | None) -> Stamp:
    whole = int(modified.timestamp())
    return Stamp(size, whole * 1_000_000_000 + modified.microsecond * 1000, etag)

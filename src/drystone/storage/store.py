"""The store interface, and the value that names a place.

A key is a ``/``-separated path below the store's root, without a leading slash. Every method raises
:class:`~drystone.errors.StorageError` (``kind`` ``not-found``, ``no-file``, ``no-permission``, ``no-space``,
``short-read`` or ``io``) with the full address in its message; nothing ever answers a failure with empty bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from drystone.storage.stamp import Stamp

__all__ = ["Place", "Store"]


@dataclass(frozen=True, slots=True)
class Place:
    """A named root from the config's ``storage:``.

    Parameters
    ----------
    name
        As written in addresses, ``name:relative/path``.
    url
        ``file:///abs``, ``s3://bucket/prefix``, ``http(s)://…``, ``memory://``.
    options
        Endpoint, region, anonymous, profile: never a credential.
    """

    name: str
    url: str
    options: Mapping[str, str | bool] = field(default_factory=dict)


@runtime_checkable
class Store(Protocol):
    """Bytes under keys."""

    @property
    def url(self) -> str:
        """Address of the root, without a trailing slash."""
        ...

    @property
    def root(self) -> str | None:
        """Absolute folder for a local store, else None."""
        ...

    def get(self, key: str) -> bytes:
        """A whole object."""
        ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``start``; fewer is an error (``short-read``)."""
        ...

    def get_ranges(self, key: str, starts: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        """Several ranges of one object, exact."""
        ...

    def put(self, key: str, data: bytes | memoryview | Iterable[bytes | memoryview]) -> None:
        """Write an object whole, atomically and durably; readers see the old one or the new one.

        Parts that come one by one are not all held, though a few at a time: none may change meanwhile. Where their source
        fails, there is no new object.
        """
        ...

    def create(self, key: str, data: bytes) -> bool:
        """Write an object if there is none, atomically; False where there was one."""
        ...

    def stat(self, key: str) -> Stamp:
        """Size, time and ETag."""
        ...

    def exists(self, key: str) -> bool:
        """Whether there is an object."""
        ...

    def list(self, prefix: str = "") -> Iterator[tuple[str, Stamp]]:
        """Objects whose keys start with ``prefix``, in key order."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object; no error where there is none."""
        ...

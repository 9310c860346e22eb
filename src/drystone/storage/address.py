"""Addresses: ``place:relative/path``, resolved through the places of the config."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlparse

from drystone.errors import ConfigError
from drystone.storage.local import LocalStore
from drystone.storage.remote import RemoteStore
from drystone.storage.store import Place, Store

__all__ = ["Places", "open_store", "place_key", "split_address"]


def split_address(address: str) -> tuple[str, str]:
    """``place:relative/path`` to its two parts.

    Examples
    --------
    >>> split_address("raw:1981/a.nc")
    ('raw', '1981/a.nc')
    """
    place, colon, key = address.partition(":")
    if not colon or not place or "/" in place:
        raise ConfigError(f"{address!r} is no address; write place:relative/path", kind="address", address=address)
    return place, key


def local_folder(url: str, base: str | None = None) -> str | None:
    """The folder of a ``file:`` URL or a bare path, relative ones below ``base``; None for other schemes."""
    parsed = urlparse(url)
    if parsed.scheme == "file":
        # file:./work and file:work are relative, file:///abs is not
        path = unquote(parsed.path) if parsed.netloc in ("", "localhost") else unquote(parsed.netloc + parsed.path)
    elif parsed.scheme == "" or len(parsed.scheme) == 1:
        path = url
    else:
        return None
    return os.path.abspath(os.path.join(base or os.getcwd(), os.path.expanduser(path)))


def open_store(url: str, options: Mapping[str, str | bool] | None = None, base: str | None = None) -> Store:
    """The store of a URL or folder.

    Examples
    --------
    >>> import tempfile
    >>> open_store(tempfile.gettempdir()).url.startswith("file:///")
    True
    """
    folder = local_folder(url, base)
    if folder is not None:
        return LocalStore(folder)
    return RemoteStore(url, options)


def place_key(store: Store) -> str:
    """What a store's speed belongs to: the mount point of a folder, else endpoint and bucket or host.

    Examples
    --------
    >>> place_key(RemoteStore("s3://bucket/some/where", {"endpoint": "http://127.0.0.1:9", "region": "x"}))
    's3://bucket http://127.0.0.1:9'
    """
    if store.root is None:
        parsed = urlparse(store.url)
        endpoint = f" {store.options.get('endpoint', '')}" if isinstance(store, RemoteStore) else ""
        return f"{parsed.scheme}://{parsed.netloc}{endpoint}".rstrip()
    folder = os.path.realpath(store.root)
    while not os.path.ismount(folder):
        folder = os.path.dirname(folder)
    return f"file://{folder}"


@dataclass(frozen=True)
class Places:
    """The places of one config, by name; stores are opened once.

    Examples
    --------
    >>> places = Places.of([Place("raw", "file:///data")])
    >>> places.url("raw:a/b.nc")
    'file:///data/a/b.nc'
    """

    by_name: Mapping[str, Place]
    base: str | None = None
    _stores: dict[str, Store] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, places: Iterable[Place], base: str | None = None) -> Places:
        """From place values; ``base`` is the folder that relative URLs start from (the config's)."""
        return cls({p.name: p for p in places}, base)

    def __reduce__(self) -> tuple[object, ...]:
        return Places, (dict(self.by_name), self.base)

    def store(self, name: str) -> Store:
        """The store of a place."""
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise ConfigError(f"there is no place {name!r} in storage: (known: {known})", kind="unknown-place", place=name)
        if name not in self._stores:
            place = self.by_name[name]
            self._stores[name] = open_store(place.url, place.options, self.base)
        return self._stores[name]

    def resolve(self, address: str) -> tuple[Store, str]:
        """Store and key of an address."""
        name, key = split_address(address)
        return self.store(name), key

    def url(self, address: str) -> str:
        """The full URL of an address."""
        name, key = split_address(address)
        place = self.by_name.get(name)
        if place is None:
            self.store(name)  # raises, with the known names
            raise AssertionError
        folder = local_folder(place.url, self.base)
        root = place.url if folder is None else Path(folder).as_uri()
        return f"{root.rstrip('/')}/{key}"

"""Public addresses as the readers of each form take them.

A view gives roots and keys unquoted. Icechunk takes a container's prefix as it is, spaces and all, but its locations as
URLs; a prefix with ``%``, ``?`` or ``#`` matches nothing (tried on 2.3.0), so such a folder moves into the location.
"""

from __future__ import annotations

from urllib.parse import quote

from drystone.protocols import PublicRoot

__all__ = ["container_prefix", "fsspec_address", "vcc_location"]

_SAFE = "/:@!$&'()*+,;=~"


def _split(url: str) -> tuple[str, str]:
    """A root's URL cut before the first folder whose name a container's prefix cannot hold."""
    at = min((i for i in (url.find(c) for c in "%?#") if i >= 0), default=len(url))
    cut = url.rfind("/", 0, at) + 1 if at < len(url) else len(url)
    return url[:cut], url[cut:]


def container_prefix(root: PublicRoot) -> str:
    """The prefix of a root's virtual chunk container.

    Examples
    --------
    >>> container_prefix(PublicRoot("raw", "file:///a/b #1/c/", {}, False))
    'file:///a/'
    """
    return _split(root.url)[0]


def vcc_location(root: PublicRoot, key: str) -> str:
    """A granule's location below its root's container.

    Examples
    --------
    >>> vcc_location(PublicRoot("raw", "file:///a/b #1/c/", {}, False), "x y.nc")
    'vcc://raw/b%20%231/c/x%20y.nc'
    """
    return f"vcc://{root.name}/{quote(_split(root.url)[1] + key, safe=_SAFE)}"


def fsspec_address(root: PublicRoot, key: str) -> str:
    """What fsspec takes: a plain path for files, a quoted URL for http, the bare key for object stores.

    Examples
    --------
    >>> fsspec_address(PublicRoot("raw", "file:///a/", {}, False), "x y.nc")
    '/a/x y.nc'
    >>> fsspec_address(PublicRoot("raw", "https://x.org/a b/", {}, False), "x y.nc")
    'https://x.org/a%20b/x%20y.nc'
    """
    url = root.url + key
    if url.startswith("file://"):
        return url.removeprefix("file://")
    if url.startswith(("http://", "https://")):
        scheme, _, rest = url.partition("://")
        return f"{scheme}://{quote(rest, safe=_SAFE)}"
    return url

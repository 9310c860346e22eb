"""What ``drystone.open`` is given: files, globs, URLs, a table or a config, turned into places and granules."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from drystone.errors import ConfigError, GranuleMissing, StorageError
from drystone.model.granule import Listed
from drystone.storage.address import Places
from drystone.storage.stamp import Stamp
from drystone.storage.store import Place

__all__ = ["Sources", "expand", "locate"]


@dataclass(frozen=True, slots=True)
class Sources:
    """Granules with the places that their addresses name."""

    places: Places
    listed: tuple[Listed, ...]


def expand(sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """Paths and URLs, globs spelled out, in sorted order per glob.

    Raises
    ------
    ConfigError
        A glob that matches nothing, or no source at all.
    """
    items = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    out: list[str] = []
    for item in items:
        text = os.fspath(item)
        if "://" not in text and glob.has_magic(text) and not os.path.exists(text):
            hits = sorted(glob.glob(text, recursive=True))
            if not hits:
                raise ConfigError(f"no file matches {os.path.abspath(text)}", kind="no-match", pattern=text)
            out += hits
        else:
            out.append(text)
    if not out:
        raise ConfigError("no source given: pass a path, a URL, or a list of them", kind="no-sources")
    return out


def locate(paths: Sequence[str]) -> Sources:
    """Give every path a place: one for local files (their common folder), one for each URL root.

    Raises
    ------
    GranuleMissing
        There is no such file.
    """
    local = [os.path.abspath(p.removeprefix("file://")) for p in paths if "://" not in p or p.startswith("file://")]
    places: dict[str, Place] = {}
    addresses: list[str] = []
    base = os.path.commonpath([os.path.dirname(p) for p in local]) if local else ""
    if local:
        places["files"] = Place("files", Path(base).as_uri())
    for path in paths:
        if "://" not in path or path.startswith("file://"):
            full = os.path.abspath(path.removeprefix("file://"))
            addresses.append(f"files:{os.path.relpath(full, base)}")
            continue
        scheme, _, rest = path.partition("://")
        host, _, key = rest.partition("/")
        name = f"{scheme}-{host}".replace(":", "-")
        places.setdefault(name, Place(name, f"{scheme}://{host}"))
        addresses.append(f"{name}:{key}")
    opened = Places.of(places.values())
    return Sources(opened, tuple(Listed(a, _stamp(opened, a)) for a in addresses))


def _stamp(places: Places, address: str) -> Stamp:
    store, key = places.resolve(address)
    try:
        return store.stat(key)
    except StorageError as error:
        if error.kind == "not-found":
            raise GranuleMissing(f"{store.url}/{key}: there is no such file", granule=address) from error
        raise

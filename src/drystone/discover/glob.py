"""Granules by pattern.

``place:folder/*/name-????.nc``: ``*`` and ``?`` match within one folder, ``[..]`` one character, ``**`` as a whole path
part any number of folders. The store lists from the pattern's literal part on; what comes is in key order and each
granule comes once. A link to a folder is followed, unless it leads back to a folder that holds it.

Finding nothing is an error, and says what was there instead: an archive of no granules is never what was meant.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from itertools import islice

from drystone.errors import ConfigError, StorageError
from drystone.model.granule import Listed
from drystone.storage.address import Places, split_address
from drystone.storage.stamp import Stamp
from drystone.storage.store import Store

__all__ = ["GlobLister", "literal_prefix", "pattern_regex"]

_SEEN_AT_MOST = 10_000  # keys looked at for the message that nothing matched


class GlobLister:
    """Lists what matches ``place:pattern``.

    Examples
    --------
    >>> import tempfile
    >>> from drystone.storage.store import Place
    >>> places = Places.of([Place("raw", tempfile.mkdtemp())])
    >>> for name in ("1981/b.nc", "1981/a.nc", "1982/c.nc", "readme.txt"):
    ...     places.store("raw").put(name, b"x")
    >>> [g.address for g in GlobLister().list(places, "raw:*/[a-c].nc")]
    ['raw:1981/a.nc', 'raw:1981/b.nc', 'raw:1982/c.nc']
    """

    def list(self, places: Places, pattern: str) -> Iterator[Listed]:
        """Yield matching granules in key order.

        Raises
        ------
        ConfigError
            ``no-granules``: nothing matches; the message tells what was there. ``pattern``: the pattern is malformed.
        StorageError
            A folder or bucket cannot be read; nothing is skipped in silence.
        """
        place, glob = split_address(pattern)
        store = places.store(place)
        regex = pattern_regex(glob)
        prefix = literal_prefix(glob)
        n = 0
        for key, stamp in _keys(store, glob, prefix):
            if regex.fullmatch(key):
                n += 1
                yield Listed(f"{place}:{key}", stamp)
        if not n:
            raise _nothing(store, place, glob, prefix)


def literal_prefix(glob: str) -> str:
    """The part of a pattern before its first wildcard.

    Examples
    --------
    >>> literal_prefix("data/v2/avhrr-*/x.nc"), literal_prefix("a/b.nc")
    ('data/v2/avhrr-', 'a/b.nc')
    """
    return re.split(r"[*?\[]", glob, maxsplit=1)[0]


def pattern_regex(glob: str) -> re.Pattern[str]:
    """The regular expression of a pattern, for whole keys.

    Examples
    --------
    >>> r = pattern_regex("**/20*/[!x]?.nc")
    >>> [bool(r.fullmatch(k)) for k in ("2001/ab.nc", "a/b/2001/ab.nc", "2001/xb.nc", "a/2001/c/ab.nc")]
    [True, True, False, False]
    """
    parts = glob.split("/")
    out = []
    for i, part in enumerate(parts):
        last = i == len(parts) - 1
        if part == "**":
            # any folders, none too; as the last part: any file at any depth
            out.append("(?:[^/]+/)*[^/]+" if last else "(?:[^/]+/)*")
        elif "**" in part:
            raise ConfigError(
                f"the pattern {glob!r} has ** inside {part!r}; ** stands alone between slashes: **/{part.replace('**', '*')}",
                kind="pattern",
                pattern=glob,
            )
        else:
            out.append(_part(part, glob) + ("" if last else "/"))
    return re.compile("".join(out), re.DOTALL)


def _part(part: str, glob: str) -> str:
    out, i = [], 0
    while i < len(part):
        c = part[i]
        i += 1
        if c == "*":
            out.append("[^/]*")
        elif c == "?":
            out.append("[^/]")
        elif c == "[":
            end = part.find("]", i + 2 if part[i : i + 1] in ("!", "^") else i + 1)
            if end < 0:
                raise ConfigError(
                    f"the pattern {glob!r} opens a [ that nothing closes; write [[] for the character itself",
                    kind="pattern",
                    pattern=glob,
                )
            negate = part[i] in "!^"
            inner = part[i + negate : end].replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^")
            inner = re.sub(r"([&~|])", r"\\\1", inner)
            try:
                re.compile(f"[{inner}]")
            except re.error as error:
                raise ConfigError(
                    f"the pattern {glob!r} has a malformed [{part[i:end]}]: {error}", kind="pattern", pattern=glob
                ) from error
            out.append(f"(?!/)[{'^' if negate else ''}{inner}]")
            i = end + 1
        else:
            out.append(re.escape(c))
    return "".join(out)


def _keys(store: Store, glob: str, prefix: str) -> Iterator[tuple[str, Stamp]]:
    if prefix == glob:  # no wildcard: one object, named
        try:
            yield glob, store.stat(glob)
        except StorageError as error:
            if error.kind != "not-found":
                raise
        return
    if store.root is None:
        yield from sorted(store.list(prefix))
        return
    depth = None if "**" in glob.split("/") else glob.count("/")
    yield from _walk(store, prefix, depth)


def _walk(store: Store, prefix: str, depth: int | None) -> Iterator[tuple[str, Stamp]]:
    """Keys of a local store below a prefix, in key order, no deeper than the pattern reaches, loops cut.

    ``Store.list`` would descend into every folder, and for ever into a link that leads back up.
    """
    assert store.root is not None
    folder, _, start = prefix.rpartition("/")
    parts = folder.split("/") if folder else []
    holders = [os.path.join(store.root, *parts[:i]) for i in range(len(parts))]
    above = tuple(_identity(path) for path in holders if os.path.isdir(path))
    yield from _folder(store, folder, start, depth, above)


def _folder(
    store: Store, folder: str, start: str, depth: int | None, above: tuple[tuple[int, int], ...]
) -> Iterator[tuple[str, Stamp]]:
    path = os.path.join(store.root or "", folder)
    try:
        identity = _identity(path)
        with os.scandir(path) as found:
            entries = [(e.name, _is_folder(e), e) for e in found]
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise _unreadable(error, path) from error
    if identity in above:  # a link to a folder that holds it
        return
    level = folder.count("/") + 1 if folder else 0
    for name, is_folder, entry in sorted(entries, key=lambda e: e[0] + ("/" if e[1] else "")):
        key = f"{folder}/{name}" if folder else name
        if not name.startswith(start) or name.endswith(".drystone-tmp"):
            continue
        if is_folder:
            if depth is None or level < depth:
                yield from _folder(store, key, "", depth, (*above, identity))
        elif depth is None or level == depth:
            try:
                status = entry.stat()
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ELOOP):  # removed while we looked, or a link to nothing
                    continue
                raise _unreadable(error, entry.path) from error
            yield key, Stamp(status.st_size, status.st_mtime_ns)


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link to itself
            return False
        raise


def _unreadable(error: OSError, path: str) -> StorageError:
    kind = "no-permission" if isinstance(error, PermissionError) else "io"
    message = f"cannot list {path}: {error.strerror}; granules in it would be missed, so nothing was scanned"
    return StorageError(message, kind=kind, path=path)


def _nothing(store: Store, place: str, glob: str, prefix: str) -> ConfigError:
    """What was there instead, for the message."""
    folder = prefix.rpartition("/")[0]
    while True:
        keys = [k for k, _ in islice(_below(store, folder), _SEEN_AT_MOST)]
        if keys or not folder:
            break
        folder = folder.rpartition("/")[0]
    asked = prefix.rpartition("/")[0]
    lost = f"{store.url}/{asked} holds nothing, or is not there; " if keys and asked != folder else ""
    where = f"{store.url}/{folder}" if folder else store.url
    if not keys:
        there = f"{where} holds nothing, or is not there"
    else:
        count = f"{len(keys)} files" if len(keys) < _SEEN_AT_MOST else f"more than {_SEEN_AT_MOST} files"
        shown = ", ".join(keys[:3]) + (", …" if len(keys) > 3 else "")
        there = f"{where} holds {count}: {shown}"
    return ConfigError(
        f"no granule matches {place}:{glob}; {lost}{there}",
        kind="no-granules",
        pattern=f"{place}:{glob}",
        files_there=len(keys),
    )


def _below(store: Store, folder: str) -> Iterator[tuple[str, Stamp]]:
    prefix = f"{folder}/" if folder else ""
    return store.list(prefix) if store.root is None else _walk(store, prefix, None)

"""Granules by a list: a text file with one address or path a line.

``#`` at the start of a line or after a space begins a comment; empty lines are passed over. A line is an address
(``place:relative/path``) or a path, relative to the list's own folder in the list's own place. Order is the list's. What
is named twice or is not there is told with its line numbers, all at once, before anything is scanned.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator

from drystone.errors import ConfigError, StorageError
from drystone.model.granule import Listed
from drystone.storage.address import Places, split_address

__all__ = ["ListFileLister", "parse_lines"]

_MOST = 20  # problems told in one message


class ListFileLister:
    r"""Lists what ``place:granules.txt`` names.

    Examples
    --------
    >>> import tempfile
    >>> from drystone.storage.store import Place
    >>> places = Places.of([Place("raw", tempfile.mkdtemp())])
    >>> places.store("raw").put("days/b.nc", b"x")
    >>> places.store("raw").put("days/list.txt", b"# one day\nb.nc\n")
    >>> [g.address for g in ListFileLister().list(places, "raw:days/list.txt")]
    ['raw:days/b.nc']
    """

    def list(self, places: Places, pattern: str) -> Iterator[Listed]:
        """Yield granules in the order of the list.

        Raises
        ------
        ConfigError
            ``granule-list``: lines that are no address, name a granule twice or name one that is not there, with their
            numbers. ``no-granules``: the list names none.
        StorageError
            The list itself, or a granule's place, cannot be read.
        """
        store, key = places.resolve(pattern)
        url = places.url(pattern)
        addresses, problems = parse_lines(_text(store.get(key), url), pattern, known=places.by_name)
        granules: list[Listed] = []
        for number, address in addresses:
            granule_store, granule_key = places.resolve(address)
            try:
                granules.append(Listed(address, granule_store.stat(granule_key)))
            except StorageError as error:
                if error.kind not in ("not-found", "outside"):
                    raise
                problems.append((number, f"{places.url(address)} is not there"))
        if problems:
            raise _refuse(url, sorted(problems))
        if not granules:
            raise ConfigError(f"{url} names no granule", kind="no-granules", pattern=pattern)
        yield from granules


def _text(data: bytes, url: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError(
            f"{url} is no list of granules: line {line} is not UTF-8 text; give one address or path a line",
            kind="granule-list",
            line=line,
        ) from error


def parse_lines(
    text: str, list_address: str, known: Container[str] | None = None
) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    r"""Line numbers and addresses, and line numbers and problems; no I/O.

    Parameters
    ----------
    text
        Of the list.
    list_address
        The list's own address: bare paths start at its folder.
    known
        Names of places (a container), or None to take any.

    Examples
    --------
    >>> parse_lines("a.nc  # day 1\n\nother:x/b.nc\na.nc", "raw:days/list.txt")
    ([(1, 'raw:days/a.nc'), (3, 'other:x/b.nc')], [(4, 'raw:days/a.nc was named in line 1 already')])
    """
    place, key = split_address(list_address)
    folder = key.rpartition("/")[0]
    first: dict[str, int] = {}
    problems: list[tuple[int, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        entry = re.sub(r"(^|\s)#.*$", "", line).strip()
        if not entry:
            continue
        address, problem = _address(entry, place, folder)
        if problem is None and known is not None and split_address(address)[0] not in known:
            problem = f"{entry}: there is no place {split_address(address)[0]!r} in storage"
        if problem is not None:
            problems.append((number, problem))
        elif address in first:
            problems.append((number, f"{address} was named in line {first[address]} already"))
        else:
            first[address] = number
    return [(number, address) for address, number in first.items()], problems


def _address(entry: str, place: str, folder: str) -> tuple[str, str | None]:
    if "://" in entry or entry.startswith(("/", "~")):
        return "", f"{entry} is a URL or an absolute path; name its root in storage and write place:relative/path"
    head, colon, rest = entry.partition(":")
    if colon and "/" not in head:
        parts = rest.split("/")
        place = head
    else:
        parts = [*folder.split("/"), *entry.split("/")]
    kept: list[str] = []
    for part in parts:
        if part == "..":
            if not kept:
                return "", f"{entry} climbs out of the place {place}"
            kept.pop()
        elif part not in ("", "."):
            kept.append(part)
    return f"{place}:{'/'.join(kept)}", None


def _refuse(url: str, problems: list[tuple[int, str]]) -> ConfigError:
    shown = "".join(f"\n  {url}:{number}: {text}" for number, text in problems[:_MOST])
    more = f"\n  and {len(problems) - _MOST} more" if len(problems) > _MOST else ""
    n = f"{len(problems)} line{'' if len(problems) == 1 else 's'}"
    return ConfigError(
        f"{url} has {n} that cannot be used; nothing was scanned{shown}{more}", kind="granule-list", lines=len(problems)
    )

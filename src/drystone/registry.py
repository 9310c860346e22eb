"""Plugins by entry point, loaded when asked for.

Groups: ``drystone.scanners``, ``drystone.emitters``, ``drystone.listers``. An entry point names a class that is built
without arguments. Nothing is imported until a name is used, so that ``--help`` stays fast and a missing extra matters
only to those who ask for it.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from drystone.errors import ConfigError, MissingExtra

__all__ = ["load", "names"]


@cache
def _points(kind: str) -> dict[str, EntryPoint]:
    return {p.name: p for p in entry_points(group=f"drystone.{kind}")}


def names(kind: str) -> list[str]:
    """Known names of a kind: ``scanners``, ``emitters`` or ``listers``.

    Examples
    --------
    >>> "hdf5" in names("scanners")
    True
    """
    return sorted(_points(kind))


def load(kind: str, name: str) -> object:
    """Build one plugin.

    Raises
    ------
    ConfigError
        No such name; the message lists the known ones.
    MissingExtra
        A library that it needs is not installed; the message has the install line.
    """
    points = _points(kind)
    if name not in points:
        raise ConfigError(
            f"there is no {kind[:-1]} {name!r} (known: {', '.join(sorted(points)) or 'none'})", kind=f"unknown-{kind[:-1]}"
        )
    try:
        plugin = points[name].load()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("drystone"):
            raise
        extra = points[name].extras[0] if points[name].extras else name
        raise MissingExtra.of(error.name, extra, f"the {kind[:-1]} {name!r}") from error
    return plugin()

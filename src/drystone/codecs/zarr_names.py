r"""Names that a Zarr hierarchy can hold.

A name becomes a part of keys: a folder on a disk, a segment of an object's name. What the format itself stores under a
name, and what readers take apart or fold together (``\`` is ``/`` to zarr), cannot be the name of an array or a group.
"""

from __future__ import annotations

__all__ = ["name_problem"]

_RESERVED = frozenset({"zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata"})
_OWN = "drystone_ledger"
_MOST_BYTES = 255  # of a folder's name


def name_problem(path: str) -> str | None:
    r"""Why a path cannot be that of an array or group in a Zarr form; None where it can.

    Examples
    --------
    >>> name_problem("/ocean/sst"), name_problem("/g/zarr.json")
    (None, "'zarr.json' is a name that Zarr keeps for itself")
    >>> name_problem("/a\\b")
    "'a\\\\b' has a backslash, which zarr takes for a slash"
    """
    parts = path.strip("/").split("/")
    if parts[0] == _OWN:
        return f"{_OWN!r} is a name that drystone keeps for itself"
    for part in parts:
        if part in _RESERVED:
            return f"{part!r} is a name that Zarr keeps for itself"
        if "\\" in part:
            return f"{part!r} has a backslash, which zarr takes for a slash"
        if part and not part.strip("."):
            return f"{part!r} is no name but a step in a folder tree"
        if len(part.encode("utf-8", "surrogateescape")) > _MOST_BYTES:
            return f"{part[:20]!r}... has {len(part.encode('utf-8', 'surrogateescape'))} bytes, and a folder's name at most 255"
    return None

"""Which arrays a list of variables asks for: the variables, and what gives their values meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from drystone.model.attributes import Attributes

__all__ = ["wanted_paths"]

# CF attributes that name other variables
_NAMING = (
    "coordinates",
    "bounds",
    "climatology",
    "grid_mapping",
    "ancillary_variables",
    "cell_measures",
    "formula_terms",
    "mesh",
    "geometry",
    "node_coordinates",
    "node_count",
    "part_node_count",
)


def wanted_paths(
    variables: tuple[str, ...] | None, arrays: Mapping[str, tuple[tuple[str, ...], Attributes]]
) -> set[str] | None:
    """Paths to scan, or None for all.

    Parameters
    ----------
    variables
        Names or paths.
    arrays
        Path to dimension names and attributes.

    Examples
    --------
    >>> none = Attributes()
    >>> sst = Attributes.of({"coordinates": "area"})
    >>> sorted(wanted_paths(("sst",), {"/sst": (("t",), sst), "/t": (("t",), none), "/area": ((), none), "/x": ((), none)}))
    ['/area', '/sst', '/t']
    """
    if variables is None:
        return None
    asked = set(variables)
    pending = [p for p in arrays if asked & {p, p.lstrip("/"), p.rsplit("/", 1)[-1]}]
    found: set[str] = set()
    while pending:
        path = pending.pop()
        if path in found:
            continue
        found.add(path)
        dims, attributes = arrays[path]
        for name in (*dims, *_named(attributes)):
            other = _lookup(name, path.rsplit("/", 1)[0], arrays)
            if other is not None:
                pending.append(other)
    return found


def _named(attributes: Attributes) -> Iterator[str]:
    for key in _NAMING:
        if key in attributes:
            for text in attributes[key].text:
                # "area: cell_area" and "a: A b: B" name roles before the colon
                yield from (word for word in text.split() if not word.endswith(":"))


def _lookup(name: str, group: str, arrays: Mapping[str, object]) -> str | None:
    """The nearest array of that name, from the group up to the root."""
    while True:
        path = f"{group}/{name}"
        if path in arrays:
            return path
        if not group:
            return None
        group = group.rsplit("/", 1)[0]

"""Which arrays are wanted: those asked for, and those that give them their meaning."""

from __future__ import annotations

from collections.abc import Mapping

from drystone.errors import CombineError
from drystone.model.array import ArraySpec
from drystone.plan.members import ArrayMembers

__all__ = ["LINKS", "named_by", "nearest", "select_variables"]

LINKS = ("bounds", "climatology")  # attributes that name the array whose units are those of the array that has them


def select_variables(members: Mapping[str, ArrayMembers], variables: tuple[str, ...] | None) -> dict[str, ArrayMembers]:
    """The arrays wanted and what they need: coordinates of their dimensions and arrays that their attributes name.

    Raises
    ------
    CombineError
        A wanted variable is in no granule.
    """
    if variables is None:
        return dict(members)
    chosen: dict[str, ArrayMembers] = {}
    for want in variables:
        hits = [m for m in members.values() if m.path == want or m.path == f"/{want}" or m.name == want]
        if not hits:
            known = ", ".join(sorted(m.path for m in members.values()))
            raise CombineError(
                f"no granule has a variable {want!r} that can be referenced (there are: {known}; what was refused when it was "
                "scanned is named by `drystone status`)",
                kind="variable-unknown",
                variable=want,
            )
        chosen.update({m.path: m for m in hits})
    pending = list(chosen.values())
    while pending:
        found = pending.pop()
        for name in {n for spec in found.variants for n in (*spec.dims, *named_by(spec))}:
            other = nearest(name, found.variants[0].group, members)
            if other is not None and other.path not in chosen:
                chosen[other.path] = other
                pending.append(other)
    return chosen


def named_by(
    spec: ArraySpec, keys: tuple[str, ...] = ("coordinates", "grid_mapping", "bounds", "climatology", "ancillary_variables")
) -> set[str]:
    """Names of arrays that an array's attributes name."""
    needed: set[str] = set()
    for key in keys:
        value = spec.attributes.get(key)
        if value is not None and value.dtype == "text":
            needed |= {w.rstrip(":") for w in " ".join(value.text).split()}
    return needed


def nearest(name: str, group: str, members: Mapping[str, ArrayMembers]) -> ArrayMembers | None:
    """The array of that name in the group, or in the nearest one above."""
    at = group.rstrip("/")
    while True:
        if f"{at}/{name}" in members:
            return members[f"{at}/{name}"]
        if not at:
            return None
        at = at.rpartition("/")[0]

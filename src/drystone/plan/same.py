"""Granules that stand for one another off an array's axes: equal by what their values mean, or refused by name.

Stored numbers say nothing alone: two granules may hold the same numbers and scale them, date them or mark missing ones
otherwise. So stand-ins are reconciled with the granules that are published as any others are, and what is compared are the
numbers after that. Values that scans kept are compared here; the rest is promised to whoever can read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from drystone.errors import CombineError, DecodeError
from drystone.model.options import DifferenceOptions
from drystone.model.placement import Equal
from drystone.model.recode import Recode
from drystone.plan.compare import VALUE_ATTRIBUTES
from drystone.plan.differences import Reconciled, reconcile
from drystone.plan.findings import LEAVE
from drystone.plan.members import ArrayMembers
from drystone.plan.placing import Placed

__all__ = ["Alike", "stand_ins", "static_differs"]


@dataclass(frozen=True, slots=True)
class Alike:
    """What is left to prove of stand-ins, names of attributes that they do not share, and what is to be told."""

    promises: tuple[Equal, ...] = ()
    dropped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def stand_ins(
    members: ArrayMembers,
    placed: Placed,
    joined: frozenset[str],
    names: Mapping[int, str],
    policies: DifferenceOptions,
    parent: ArrayMembers | None,
) -> Alike:
    """Compare the granules that others stand for with those.

    Parameters
    ----------
    members
        Of the array, in order of granules.
    placed
        Where they land, and who stands for whom.
    joined
        Dimensions whose sizes may differ.
    names
        Granule id to address.
    policies
        What may differ.
    parent
        For bounds: the coordinate they belong to.

    Raises
    ------
    CombineError
        ``static-differs`` or ``difference``, naming the variable and both granules.
    """
    pairs = placed.stands_for
    if not len(pairs) or policies.static == "first":
        return Alike()
    every = np.concatenate([placed.members.granule_id, pairs[:, 0]])
    rows = np.searchsorted(members.granule_id, every)
    concerned = members.take(rows)
    # how either is stored is nobody's concern: only one is published
    one = reconcile(concerned, joined, names, replace(policies, codec="rechunk"), parent)
    if one.apart is not None:
        raise CombineError(
            f"{one.apart}; but it has no part in the joined axis, so one must stand for all: {LEAVE}",
            kind="static-differs",
            variable=members.path,
        )
    variant = np.full(len(members), -1, np.int32)
    variant[rows] = one.variant
    promises = tuple(_promised(members, variant, one, pairs, names, policies.coordinate_tolerance))
    mine = placed.members.spec(0).attributes
    dropped = tuple(sorted(k for k in mine if k not in one.attributes and k not in VALUE_ATTRIBUTES))
    text = f"{members.path}: attributes that differ between granules were left out: {', '.join(dropped)}"
    return Alike(promises, dropped, (text,) if dropped else ())


def _promised(
    members: ArrayMembers,
    variant: NDArray[np.int32],
    one: Reconciled,
    pairs: NDArray[np.int32],
    names: Mapping[int, str],
    tolerance: float,
) -> Iterator[Equal]:
    mine, shown = (np.searchsorted(members.granule_id, pairs[:, k]) for k in (0, 1))
    first, other = members.coordinate[shown], members.coordinate[mine]
    kept = (first >= 0) & (other >= 0)
    differ = kept & ((first != other) | (variant[shown] != variant[mine]))
    # a million granules share a few arrays and variants
    code = np.stack([first, other, variant[shown], variant[mine]], axis=1)[differ]
    _, at = np.unique(code, axis=0, return_index=True)
    for i in np.flatnonzero(differ)[np.sort(at)].tolist():
        a, b = (members.coordinates[int(c[i])] for c in (first, other))
        says, theirs = (one.recodes[int(variant[r[i]])] for r in (shown, mine))
        two = names[int(pairs[i, 1])], names[int(pairs[i, 0])]
        try:
            a, b = _meant(a, says), _meant(b, theirs)
        except DecodeError as error:
            raise static_differs(members.path, *two, f" ({error})") from error
        if not _equal(a, b, tolerance):
            raise static_differs(members.path, *two, _first_difference(a, b))
    rest = pairs[~kept]
    if len(rest):
        ids = np.concatenate([rest[:, 1], rest[:, 0]])
        ids, at = np.unique(ids, return_index=True)
        group = np.concatenate([rest[:, 1], rest[:, 1]])[at]
        which = variant[np.searchsorted(members.granule_id, ids)]
        recodes = one.recodes if any(r is not None for r in one.recodes) else ()
        yield Equal(members.path, ids.astype(np.int32), group.astype(np.int32), tolerance, which, recodes)


def _meant(values: NDArray[np.generic], recode: Recode | None) -> NDArray[np.generic]:
    return values if recode is None else recode.apply(values)


def _equal(a: NDArray[np.generic], b: NDArray[np.generic], tolerance: float) -> bool:
    if a.shape != b.shape:
        return False
    if a.dtype == b.dtype and a.dtype.kind == "V":
        return a.tobytes() == b.tobytes()
    if a.dtype.kind in "iuf" and b.dtype.kind in "iuf":
        if tolerance and "f" in (a.dtype.kind, b.dtype.kind):
            return bool(np.allclose(a.astype(np.float64), b.astype(np.float64), rtol=0, atol=tolerance, equal_nan=True))
        return bool(((a == b) | ((a != a) & (b != b))).all())
    return a.dtype == b.dtype and bool((a == b).all())


def static_differs(path: str, one: str, two: str, text: str) -> CombineError:
    """The error for granules that cannot stand for one another.

    Examples
    --------
    >>> static_differs("/mask", "a.nc", "b.nc", " in shape").kind
    'static-differs'
    """
    return CombineError(
        f"{path} has no part in the joined axis, so one value must stand for all granules, and {one} and {two} "
        f"differ{text}; leave the variable out with combine: {{variables: […]}}, let the first one's count with "
        "combine: {differences: {static: first}}, or split the archive where it changes",
        kind="static-differs",
        variable=path,
        granule=one,
        other=two,
    )


def _first_difference(a: NDArray[np.generic], b: NDArray[np.generic]) -> str:
    if a.shape != b.shape:
        return f" in shape ({a.shape} and {b.shape})"
    if a.dtype != b.dtype or a.dtype.kind in "TV":
        return ""
    bits = np.flatnonzero((a.reshape(-1) != b.reshape(-1)) & ~((a != a) & (b != b)).reshape(-1))
    if not len(bits):
        return ""
    i = int(bits[0])
    return f" at {i} ({a.reshape(-1)[i]!r} and {b.reshape(-1)[i]!r})"

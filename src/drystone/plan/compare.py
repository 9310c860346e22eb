"""The distinct specs of one array, paired with the granules that have them, and how differences are told.

What is compared are values, not text: attributes by type and bits, and the specs of bounds together with those of the
coordinate that gives them their units. What a difference means is :mod:`~drystone.plan.differences`'s.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drystone.errors import CombineError
from drystone.model.array import ArraySpec
from drystone.model.attributes import Attribute, Attributes
from drystone.plan.members import ArrayMembers

__all__ = [
    "VALUE_ATTRIBUTES",
    "Variants",
    "canonical",
    "refusal",
    "same",
    "show",
    "variants_of",
]

# attributes that change what a stored number means
VALUE_ATTRIBUTES = (
    "_FillValue",
    "missing_value",
    "scale_factor",
    "add_offset",
    "_Unsigned",
    "units",
    "calendar",
    "flag_values",
    "flag_masks",
    "flag_meanings",
    "valid_min",
    "valid_max",
    "valid_range",
    "dtype",
    "positive",
)


def show(value: Attribute | None) -> str:
    """An attribute for messages, numbers with their type."""
    if value is None:
        return "none"
    plain = value.to_plain()
    kind = "" if value.dtype in ("text", "bytes") else f" ({np.dtype(value.dtype).name})"
    return f"{plain!r}{kind}"


def refusal(path: str, what: str, one: str, a: str, two: str, b: str, ways: str) -> CombineError:
    """The error that names both granules and both values."""
    return CombineError(
        f"{path}: {what} differs between granules: {a} in {one}, {b} in {two}; joined as they are, values would be "
        f"wrong; {ways}",
        kind="difference",
        variable=path,
        what=what,
        granule=one,
        other=two,
        value=a,
        other_value=b,
    )


def same(a: Attribute | None, b: Attribute | None) -> bool:
    """Whether two attributes say one thing: numbers by value, one number alone or in a list of one, text as it is.

    Examples
    --------
    >>> same(Attribute.of(np.float32(0.5)), Attribute.of(np.array([0.5]))), same(Attribute.of("a"), None)
    (True, False)
    """
    return a == b or canonical(a) == canonical(b)


def canonical(attribute: Attribute | None) -> str:
    """Text that is equal for attributes that say one thing."""
    if attribute is None:
        return ""
    if attribute.dtype == "text":
        return json.dumps(attribute.text)
    if attribute.dtype == "bytes":
        return attribute.data.hex()
    numbers = np.asarray(attribute.value).reshape(-1).tolist()
    exact = [n if isinstance(n, int) else int(n) if isinstance(n, float) and n.is_integer() else repr(n) for n in numbers]
    return str([str(n) for n in exact])


@dataclass(frozen=True, slots=True)
class Variants:
    """The distinct specs of an array's granules, with what bounds inherit, and who has which.

    Parameters
    ----------
    path
        Of the array.
    specs
        Distinct; where a bounds array inherits from several, one for each pair.
    row
        int32 (n,): which of ``specs`` each member has.
    attributes
        Of each spec, what it inherits included.
    inherits
        Whether a spec has its units from its parent.
    used
        Those that granules have, the first granule's first, then in order of placement.
    granules
        Address of the first granule of each in ``used``, by number of spec.
    """

    path: str
    specs: tuple[ArraySpec, ...]
    row: NDArray[np.int32]
    attributes: tuple[Attributes, ...]
    inherits: tuple[bool, ...]
    used: tuple[int, ...]
    granules: Mapping[int, str]

    @property
    def base(self) -> int:
        """The first granule's."""
        return self.used[0]

    def said(self, key: str) -> Callable[[int], str]:
        """Text of an attribute by number of spec, equal where the attributes say one thing."""
        return lambda v: canonical(self.attributes[v].get(key))

    def shown(self, key: str) -> Callable[[int], str]:
        """The same for people."""
        return lambda v: show(self.attributes[v].get(key))

    def refuse(self, what: str, other: int, a: str, b: str, ways: str) -> CombineError:
        """The error that names the first granule, the one that differs, and both values."""
        return refusal(self.path, what, self.granules[self.base], a, self.granules[other], b, ways)


def variants_of(members: ArrayMembers, names: Mapping[int, str], parent: ArrayMembers | None) -> Variants:
    """Specs by number; where a parent is given, those without ``units`` are told apart by their parents' units.

    Raises
    ------
    CombineError
        A granule has the array and not the parent, and parents differ.
    """
    count = len(members.variants)
    source, pair, row = list(range(count)), [-1] * count, members.variant.astype(np.int32)
    if parent is not None:
        source, pair, row = _paired(members, parent, names)
    specs = [members.variants[v] for v in source]
    told = [_units_of(parent.variants[p]) if parent is not None and p >= 0 else {} for p in pair]
    gets = [{k: v for k, v in t.items() if k not in s.attributes} for t, s in zip(told, specs, strict=True)]
    attributes = [Attributes((*s.attributes.items_, *g.items())) for s, g in zip(specs, gets, strict=True)]
    inherits = ["units" in g for g in gets]
    used, where = np.unique(row, return_index=True)
    order = np.argsort(where, kind="stable")
    granules = {int(used[i]): names[int(members.granule_id[where[i]])] for i in order.tolist()}
    return Variants(members.path, tuple(specs), row, tuple(attributes), tuple(inherits), tuple(granules), granules)


def _units_of(spec: ArraySpec) -> dict[str, Attribute]:
    return {k: v for k, v in spec.attributes.items() if k in ("units", "calendar")}


def _paired(
    members: ArrayMembers, parent: ArrayMembers, names: Mapping[int, str]
) -> tuple[list[int], list[int], NDArray[np.int32]]:
    """The members' variants, a further one for each further parent; each one's parent variant (-1: none), and the rows."""
    texts = ["\0".join(canonical(_units_of(s).get(k)) for k in ("units", "calendar")) for s in parent.variants]
    first = {text: i for i, text in reversed(list(enumerate(texts)))}
    meaning = np.array([first[t] for t in texts], np.int64)  # one number for parents that say one thing
    order = np.argsort(parent.granule_id, kind="stable")
    at = np.searchsorted(parent.granule_id[order], members.granule_id).clip(max=len(order) - 1)
    mine = meaning[parent.variant[order][at]]
    lacks = np.flatnonzero(parent.granule_id[order][at] != members.granule_id)
    if len(lacks) and len(np.unique(meaning[parent.variant])) > 1:
        name = names[int(members.granule_id[lacks[0]])]
        raise CombineError(
            f"{name} holds {members.path} and not {parent.path}, whose units tell what its numbers mean and differ between "
            "granules; leave the variable out with combine: {variables: […]}, or the granule out of the list",
            kind="difference",
            variable=members.path,
            what="units",
            granule=name,
        )
    mine[lacks] = meaning[parent.variant[0]]
    own = np.array(["units" in s.attributes for s in members.variants], np.bool_)
    mine[own[members.variant]] = -1
    pairs, which = np.unique(np.stack([members.variant.astype(np.int64), mine], 1), axis=0, return_inverse=True)
    source, pair = list(range(len(members.variants))), [-1] * len(members.variants)
    number = np.zeros(len(pairs), np.int32)
    for i, (v, p) in enumerate(pairs.tolist()):
        if i and pairs[i - 1, 0] == v:
            number[i] = len(source)
            source.append(v)
            pair.append(p)
        else:
            number[i], pair[v] = v, p
    return source, pair, number[which.reshape(-1)]

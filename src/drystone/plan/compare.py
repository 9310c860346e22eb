"""What must be equal for granules of one array to be one array.

Compared by what decides values, not by text: element type, dimensions, sizes off the axis, packing, ``_FillValue``,
units and calendar. A difference is refused by name with both granules, both values and the ways out. Differences that
change no value (history, creation date) are dropped from the result with a note; differences of storage (codecs, chunk
shape, byte order, storage fill) leave values alone but rule out one virtual array, and say so.
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
    "check_variant",
    "merge_attributes",
    "refusal",
    "same",
    "show",
    "storage_difference",
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


def check_variant(base: ArraySpec, other: ArraySpec, axis: str | None, one: str, two: str) -> None:
    """Refuse what would change values.

    Parameters
    ----------
    base, other
        Specs of one array in two granules named ``one`` and ``two``.
    axis
        The combine axis, whose size may differ.

    Raises
    ------
    CombineError
        ``difference``, naming both granules and both values.
    """
    path = base.path
    leave = "leave the variable out with combine: {variables: […]}, or split the archive where it changes"
    if base.dims != other.dims:
        raise refusal(path, "dimensions", one, str(base.dims), two, str(other.dims), leave)
    if base.native_dtype != other.native_dtype:
        raise refusal(path, "element type", one, str(base.native_dtype), two, str(other.native_dtype), leave)
    for name, n, m in zip(base.dims, base.shape, other.shape, strict=True):
        if name != axis and n != m:
            raise refusal(path, f"size of {name}", one, str(n), two, str(m), leave)
    for key in VALUE_ATTRIBUTES:
        a, b = base.attributes.get(key), other.attributes.get(key)
        if a != b:
            raise refusal(path, key, one, show(a), two, show(b), leave)


def merge_attributes(variants: tuple[ArraySpec, ...]) -> tuple[Attributes, tuple[str, ...]]:
    """Attributes that all variants share, and the names of those dropped because they differ."""
    base = variants[0].attributes
    dropped = {k for k in base for v in variants[1:] if v.attributes.get(k) != base[k]}
    dropped |= {k for v in variants[1:] for k in v.attributes if k not in base}
    return base.without(*dropped), tuple(sorted(dropped))


def storage_difference(base: ArraySpec, other: ArraySpec, axis: int | None) -> str | None:
    """Why two variants cannot be one virtual array, though their values fit; None where they can."""
    if base.codecs.signature() != other.codecs.signature():
        return f"codecs {base.codecs.to_json()} and {other.codecs.to_json()}"
    if base.dtype != other.dtype:
        return f"stored element types {base.dtype} and {other.dtype}"
    if (base.fill or b"").strip(b"\0") != (other.fill or b"").strip(b"\0"):
        return f"storage fill values {(base.fill or b'').hex()} and {(other.fill or b'').hex()} (hex)"
    for i, (name, a, b) in enumerate(zip(base.dims, base.chunk_shape, other.chunk_shape, strict=True)):
        if i != axis and a != b:
            return f"chunk sizes {a} and {b} along {name}"
    return None


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

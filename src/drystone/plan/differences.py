"""Granules of one array reconciled: every difference exact, labelled by the user's word, or refused by name.

What is compared is what decides values: element type and byte order, codecs by what they decode to, chunk shape, storage
fill, missing-data numbers, packing, units and calendar, dimensions, and attributes that give numbers a meaning. Each
difference has a policy (:class:`~drystone.model.options.DifferenceOptions`); the answer says how each granule's numbers
become those of the one array, and which granules can share a virtual one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drystone.codecs.chain import Codec, CodecChain
from drystone.errors import DecodeError
from drystone.model.array import ArraySpec
from drystone.model.attributes import Attribute, Attributes
from drystone.model.options import DifferenceOptions
from drystone.model.recode import Recode
from drystone.plan.compare import VALUE_ATTRIBUTES, Variants, variants_of
from drystone.plan.findings import LEAVE, Findings, changed
from drystone.plan.members import ArrayMembers
from drystone.plan.numbers import FLAGS, LIMITS, PACKING, Rewriting, numbers_of, rewrite
from drystone.plan.sentinels import KEYS
from drystone.plan.time_plan import inherited_units, is_time_array, text_of, time_plan
from drystone.plan.times import is_time
from drystone.plan.wanted import LINKS

__all__ = ["Reconciled", "changed", "reconcile"]

_MEANING = (*LIMITS, *FLAGS, "flag_meanings", "dtype", "positive")


@dataclass(frozen=True, slots=True)
class Reconciled:
    """One array out of granules that differ.

    Parameters
    ----------
    dtype
        Native, after :attr:`recodes`.
    stored_dtype, fill, codecs
        The first granule's; where its numbers are rewritten, native ones of ``dtype``.
    attributes
        What holds for all: the first granule's words where they change values, else what is equal in all.
    variants, variant
        The members' specs, further ones for bounds whose parents differ; int32 (n,), which one each member has.
    recodes
        For each of ``variants`` how its numbers become the array's, None where they are.
    storage
        Why one virtual array does not hold all granules as stored; None where it may. Chunk lengths along joined axes are
        left to the chunk grid.
    keys
        For each of ``variants``: equal for those that one virtual array may hold, chunk lengths along joined axes included.
        Empty for one that no member has.
    notes
        What was left out or taken from the first granule, for people.
    apart
        Why there is no one array by value either, only groups (``era`` for units or attributes, which nothing converts).
    by_era
        Whether every difference found is one that policies let groups tell apart.
    """

    dtype: np.dtype
    stored_dtype: np.dtype
    fill: bytes | None
    codecs: CodecChain
    attributes: Attributes
    variants: tuple[ArraySpec, ...]
    variant: NDArray[np.int32]
    recodes: tuple[Recode | None, ...]
    storage: str | None
    keys: tuple[str, ...]
    notes: tuple[str, ...] = ()
    apart: str | None = None
    by_era: bool = False


def reconcile(
    members: ArrayMembers,
    joined: frozenset[str],
    names: Mapping[int, str],
    policies: DifferenceOptions,
    parent: ArrayMembers | None = None,
) -> Reconciled:
    """Compare the granules of an array and find the one array that they are.

    Parameters
    ----------
    members
        In order of placement: the first one is the base that others are compared with.
    joined
        Dimensions whose sizes may differ.
    names
        Granule id to address.
    policies
        What to do about each kind of difference.
    parent
        For bounds: the coordinate they belong to, in order of placement too. Bounds without units have its units.

    Raises
    ------
    CombineError
        ``difference``, naming both granules, the variable, what differs, both values and the ways out.
    """
    variants = variants_of(members, names, parent)
    findings = Findings(variants, policies)
    _check_shapes(variants, joined)
    _find_storage(variants, findings, joined)
    if all(variants.specs[v].dtype.kind in "iuf" for v in variants.used):
        numbers = numbers_of(variants, findings)
        times = None
        if is_time_array(variants):
            times = time_plan(variants, members, findings, numbers, None if parent is None else (parent, names))
        else:
            _find_units(variants, findings)
        _find_meanings(variants, findings, repacked=times is not None or len(set(numbers.packing.values())) > 1)
        out = rewrite(variants, findings, numbers, times)
        if times is None and parent is not None and is_time_array(variants):
            out.attributes |= inherited_units(variants, parent, names)
    else:
        out = _unrewritable(variants, findings)
    return _assembled(variants, findings, out)


def _check_shapes(variants: Variants, joined: frozenset[str]) -> None:
    base = variants.specs[variants.base]
    for v in variants.used[1:]:
        spec = variants.specs[v]
        if spec.dims != base.dims:
            raise variants.refuse("dimensions", v, str(base.dims), str(spec.dims), LEAVE)
        for name, n, m in zip(base.dims, base.shape, spec.shape, strict=True):
            if name not in joined and n != m:
                raise variants.refuse(f"size of {name}", v, str(n), str(m), LEAVE)


def _find_storage(variants: Variants, findings: Findings, joined: frozenset[str]) -> None:
    specs = variants.specs
    findings.find("codec", "codecs", lambda v: specs[v].codecs.signature(), lambda v: str(specs[v].codecs.to_json()))
    if len({specs[v].native_dtype for v in variants.used}) == 1:
        findings.find("codec", "byte order", lambda v: _order(specs[v].dtype))
    for i, name in enumerate(specs[variants.base].dims):
        if name not in joined:
            findings.find("codec", f"chunk size along {name}", _edge(specs, i))
    fills = {v: _fill_number(specs[v]) for v in variants.used}
    if len({specs[v].native_dtype for v in variants.used}) == 1:
        findings.find("codec", "storage fill", lambda v: fills[v].hex() + " (hex)")
    for i, name in enumerate(specs[variants.base].dims):
        if name in joined:
            inner = {specs[v].chunk_shape[i] for v in variants.used if specs[v].chunk_shape[i] != specs[v].shape[i]}
            findings.tell(f"chunks along {name}", _edge(specs, i, inner))


def _order(dtype: np.dtype) -> str:
    """Byte order of an element, or of each field."""
    if dtype.names:
        return ", ".join(f"{n} {_order(dtype[n])}" for n in dtype.names)
    return "" if dtype.kind == "T" else dtype.base.str[:1]


def _edge(specs: tuple[ArraySpec, ...], axis: int, told: set[int] | None = None) -> Callable[[int], str]:
    """A chunk edge as text; ``whole`` where it is the granule's own length, and no length that others cut at."""

    def text(v: int) -> str:
        edge = specs[v].chunk_shape[axis]
        return str(edge) if told is None or edge in told else "whole"

    return text


def _fill_number(spec: ArraySpec) -> bytes:
    """What unwritten chunks read as, native; zero where the format says nothing."""
    if spec.dtype.kind == "T":
        return (spec.fill or b"").rstrip(b"\0")
    if spec.fill is None:
        return bytes(spec.dtype.itemsize)
    return np.frombuffer(spec.fill, spec.dtype, 1).astype(spec.native_dtype).tobytes()


def _find_units(variants: Variants, findings: Findings) -> None:
    said, shown = variants.said("units"), variants.shown("units")
    texts = {v: text_of(variants.attributes[v], "units") for v in variants.used}
    other = next((v for v in variants.used if is_time(texts[v]) != is_time(texts[variants.base])), None)
    if other is not None:
        why = "numbers that are times and numbers that are none are not one array"
        raise findings.refuse("units", other, shown(variants.base), shown(other), why)
    findings.find("units", "units", lambda v: said(v) if texts[v] is None else repr(texts[v]), shown)
    findings.find("attributes", "calendar", variants.said("calendar"), variants.shown("calendar"))


def _find_meanings(variants: Variants, findings: Findings, repacked: bool) -> None:
    """Other attributes that decide values; limits in units of numbers as stored mean nothing once those are rewritten."""
    for key in (*_MEANING, *_mapping_numbers(variants), *_torn_links(variants)):
        if not (repacked and key in LIMITS):
            findings.find("attributes", key, variants.said(key), variants.shown(key))


def _torn_links(variants: Variants) -> tuple[str, ...]:
    """Links to bounds that name one array here and another there: numbers of either would lose their units."""
    said = {k: {variants.said(k)(v) for v in variants.used} - {""} for k in LINKS}
    return tuple(k for k in LINKS if len(said[k]) > 1)


def _mapping_numbers(variants: Variants) -> tuple[str, ...]:
    """Attributes of a grid mapping whose values are all that it says: its name and its numbers."""
    found = [variants.attributes[v] for v in variants.used]
    if not any("grid_mapping_name" in a for a in found):
        return ()
    numbers = {k for a in found for k in a if a[k].dtype not in ("text", "bytes")} - {*VALUE_ATTRIBUTES}
    return ("grid_mapping_name", *sorted(numbers))


def _unrewritable(variants: Variants, findings: Findings) -> Rewriting:
    """Text, truth values, complex numbers and compounds: as they are, in the widest type of one kind, or not at all."""
    specs = variants.specs
    native = {v: specs[v].native_dtype for v in variants.used}
    kinds = {v: str(d) for v, d in native.items()}
    out = Rewriting(native[variants.base])
    wide = {d.kind for d in native.values()} in ({"S"}, {"c"})
    if wide and findings.find("dtype", "element type", kinds.__getitem__):
        if findings.policy("dtype") != "first":
            out.dtype = max(native.values(), key=lambda d: d.itemsize)
        out.recodes = {v: Recode(out.dtype) for v, d in native.items() if d != out.dtype}
    elif findings.policy("dtype") != "era" or len(set(kinds.values())) == 1:
        findings.impossible("element type", kinds.__getitem__, "no type holds both exactly")
    elif findings.find("dtype", "element type", kinds.__getitem__):
        findings.apart = findings.storage
    for key in (*PACKING, *KEYS):
        findings.impossible(key, variants.shown(key), "values of this type are not rewritten")
    _find_units(variants, findings)
    _find_meanings(variants, findings, repacked=False)
    return out


def _assembled(variants: Variants, findings: Findings, out: Rewriting) -> Reconciled:
    base = variants.specs[variants.base]
    attributes, dropped = _attributes(variants, out)
    if dropped:
        findings.notes.append(f"{variants.path}: attributes that differ between granules were left out: {', '.join(dropped)}")
    same = out.dtype == base.native_dtype
    stored = base.dtype if same else out.dtype
    return Reconciled(
        out.dtype,
        stored,
        _fill(variants, out, stored),
        base.codecs if same else _retyped_chain(base.codecs, out.dtype),
        attributes,
        variants.specs,
        variants.row,
        tuple(out.recodes.get(v) for v in range(len(variants.specs))),
        findings.storage,
        findings.keys(len(variants.specs)),
        tuple(findings.notes),
        findings.apart,
        findings.by_era,
    )


def _attributes(variants: Variants, out: Rewriting) -> tuple[Attributes, tuple[str, ...]]:
    """The first granule's where they decide values and as rewritten; of the others what is equal in all."""
    specs = [variants.specs[v] for v in variants.used]
    names = dict.fromkeys(k for s in specs for k in s.attributes)
    decide = {*VALUE_ATTRIBUTES, *_mapping_numbers(variants), *_torn_links(variants)}
    kept: dict[str, Attribute] = {}
    dropped = []
    for name in names:
        mine = specs[0].attributes.get(name)
        said = [a for s in specs if (a := s.attributes.get(name)) is not None]
        if name in decide:
            if mine is not None:
                kept[name] = mine
        elif all(a == said[0] for a in said[1:]) and (name in LINKS or len(said) == len(specs)):
            kept[name] = said[0]  # a link that some do not say: without it the linked numbers have no units
        else:
            dropped.append(name)
    for name, value in out.attributes.items():
        if value is None:
            kept.pop(name, None)
        else:
            kept[name] = value
    return Attributes(tuple(kept.items())), tuple(sorted(dropped))


def _fill(variants: Variants, out: Rewriting, stored: np.dtype) -> bytes | None:
    """What an unwritten chunk reads as, by the first granule that may have one, rewritten as its numbers are."""
    v = next((v for v in variants.used if variants.specs[v].sparse), variants.base)
    spec, recode = variants.specs[v], out.recodes.get(v)
    if recode is None and (spec.dtype == stored or spec.fill is None or spec.dtype.kind == "T"):
        return spec.fill
    if spec.fill is None:
        return out.sentinel
    number = np.frombuffer(spec.fill, spec.dtype, 1).astype(spec.native_dtype)
    try:
        return (number if recode is None else recode.apply(number)).astype(stored).tobytes()
    except DecodeError:
        return out.sentinel


def _retyped_chain(chain: CodecChain, dtype: np.dtype) -> CodecChain:
    """The chain that would store the rewritten numbers: for readers of the description, no stored chunk has it."""
    size = dtype.itemsize
    order = "little" if np.dtype(dtype).newbyteorder("=").str[0] in "<|" else "big"
    first = Codec.of("bytes", endian=order) if size > 1 else Codec("bytes")
    rest = [Codec.of("shuffle", elementsize=size) if c.name == "shuffle" else c for c in chain.filters]
    return CodecChain.of(first, *rest)

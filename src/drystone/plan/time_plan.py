"""Which time encoding granules share, and bounds with their coordinate.

Equal meaning in another spelling is no difference. Calendars are never mixed. Bounds that have no units of their own count
as their coordinate does, granule by granule, and end in the encoding that it ends in.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from drystone.model.attributes import Attribute, Attributes
from drystone.plan.compare import Variants, variants_of
from drystone.plan.findings import Findings
from drystone.plan.members import ArrayMembers
from drystone.plan.numbers import PACKING, Numbers
from drystone.plan.packing import packing_of, read_as
from drystone.plan.sentinels import drop_missing, missing_of
from drystone.plan.times import TimeEncoding, TimeTarget, calendar_of, choose, is_time, parse, same_calendar

__all__ = ["inherited_units", "is_time_array", "same_clock", "text_of", "time_plan"]

# no bounds reach further from their coordinate than this
_CENTURY = 36_525 * 86_400 * 10**9


def text_of(attributes: Attributes, key: str) -> str | None:
    """A text attribute without white space at its ends."""
    value = attributes.get(key)
    return value.text[0].strip() if value is not None and value.dtype == "text" and len(value.text) == 1 else None


def is_time_array(variants: Variants) -> bool:
    """Whether every granule's numbers are times since a date."""
    return all(
        variants.specs[v].dtype.kind in "iuf" and is_time(text_of(variants.attributes[v], "units")) for v in variants.used
    )


def same_clock(one: Attributes, two: Attributes) -> bool:
    """Whether units and calendar of two arrays give equal numbers one meaning."""
    clocks = [parse(text_of(a, "units") or "", text_of(a, "calendar")) for a in (one, two)]
    if None in clocks:
        return all(text_of(one, k) == text_of(two, k) for k in ("units", "calendar"))
    return clocks[0] == clocks[1]


def inherited_units(variants: Variants, parent: ArrayMembers, names: Mapping[int, str]) -> dict[str, Attribute]:
    """Units that bounds which nothing rewrites must say themselves: their coordinate's granules differ, so it is rewritten."""
    base = variants.base
    if not variants.inherits[base] or len(set(_encodings(variants_of(parent, names, None)).values())) == 1:
        return {}
    return {k: a for k in ("units", "calendar") if (a := variants.attributes[base].get(k)) is not None}


def _encodings(variants: Variants) -> dict[int, TimeEncoding | None]:
    at = variants.attributes
    return {v: parse(text_of(at[v], "units") or "", text_of(at[v], "calendar")) for v in variants.used}


def time_plan(
    variants: Variants,
    members: ArrayMembers,
    findings: Findings,
    numbers: Numbers,
    parent: tuple[ArrayMembers, Mapping[int, str]] | None,
) -> tuple[TimeTarget, dict[int, TimeEncoding]] | None:
    """Find differences of units and calendar, and the encoding for all; None where nothing has to be rewritten.

    Raises
    ------
    CombineError
        Calendars differ, units have no exact meaning, or no encoding holds every time.
    """
    at = variants.attributes
    calendars = {v: calendar_of(text_of(at[v], "calendar")) for v in variants.used}
    found = _encodings(variants)
    known = {v: e for v, e in found.items() if e is not None}
    base = variants.base
    earliest = _earliest(variants, members, known, numbers, parent) if len(set(calendars.values())) > 1 else None
    if len(set(calendars.values())) > 1 and not (len(known) == len(found) and same_calendar(known.values(), earliest)):
        other = next(v for v in variants.used if calendars[v] != calendars[base])
        one, two = (text_of(at[v], "calendar") or "none, which is standard" for v in (base, other))
        raise findings.refuse("calendar", other, one, two, _why_calendars({calendars[base], calendars[other]}))
    texts = {v: text_of(at[v], "units") for v in variants.used}
    if len(known) < len(found):
        findings.impossible("units", lambda v: repr(texts[v]), "one of them has no exact length, or no date that can be read")
        return None
    if not findings.find("time", "units", lambda v: f"{known[v].unit} ns since {known[v].reference}", lambda v: repr(texts[v])):
        return None
    if any(not numbers.packing[v].plain for v in variants.used):
        other = next(v for v in variants.used if known[v] != known[base])
        raise findings.refuse(
            "units", other, repr(texts[base]), repr(texts[other]), f"packed times ({PACKING[0]}) are not re-encoded"
        )
    target = _target(variants, members, known, numbers, parent)
    if target is None:
        other = next(v for v in variants.used if known[v] != known[base])
        why = "no unit since the first granule's date holds every time exactly in 64 bits"
        raise findings.refuse("units", other, repr(texts[base]), repr(texts[other]), why)
    return target, known


def _why_calendars(names: set[str]) -> str:
    if names == {"standard", "proleptic_gregorian"}:
        return "these two agree from 1582-10-15 on only, and not every time and reference date is known to be later"
    return "a date of one calendar is no date of another"


def _kept(variants: Variants, members: ArrayMembers) -> dict[int, list[NDArray[np.generic]] | None]:
    """The values that scans kept of each variant, None where they did not."""
    pairs = np.unique(np.stack([variants.row, members.coordinate], 1), axis=0)
    out: dict[int, list[NDArray[np.generic]] | None] = {v: [] for v in variants.used}
    for v, c in pairs.tolist():
        held = out[v]
        if c < 0 or held is None:
            out[v] = None
        else:
            held.append(members.coordinates[c])
    return out


def _data(
    variants: Variants, members: ArrayMembers, numbers: Numbers
) -> tuple[dict[int, list[NDArray[np.generic]] | None], bool]:
    """Kept values without what is missing, and whether NaN is or may be among them."""
    out: dict[int, list[NDArray[np.generic]] | None] = {}
    gaps = False
    for v, arrays in _kept(variants, members).items():
        floating = numbers.read[v].kind == "f"
        gaps |= floating and (arrays is None or any(bool(np.isnan(a.astype(np.float64)).any()) for a in arrays))
        out[v] = None if arrays is None else [drop_missing(a, numbers.missing[v], numbers.read[v]) for a in arrays]
    return out, gaps


def _earliest(
    variants: Variants,
    members: ArrayMembers,
    known: Mapping[int, TimeEncoding],
    numbers: Numbers,
    parent: tuple[ArrayMembers, Mapping[int, str]] | None,
) -> int | None:
    """The first instant of any granule, None where that is not known; for bounds long before their coordinate's."""
    if any(variants.inherits) and parent is not None:
        above = variants_of(parent[0], parent[1], None)
        found = {v: e for v, e in _encodings(above).items() if e is not None}
        if len(found) < len(above.used):
            return None
        first = _earliest(above, parent[0], found, _numbers(above), None)
        return None if first is None else first - _CENTURY
    data, _ = _data(variants, members, numbers)
    instants: list[int] = []
    for v, arrays in data.items():
        if arrays is None or v not in known:
            return None
        instants += [int(known[v].ticks(a[[a.argmin()]], True)[0]) + known[v].reference for a in arrays if a.size]
    return min(instants, default=min(e.reference for e in known.values()))


def _numbers(variants: Variants) -> Numbers:
    at, used = variants.attributes, variants.used
    native = {v: variants.specs[v].native_dtype for v in used}
    read = {v: read_as(at[v], native[v]) for v in used}
    packing = {v: p for v in used if (p := packing_of(at[v])) is not None}
    return Numbers(native, read, packing, {v: missing_of(at[v], native[v]) or () for v in used})


def _target(
    variants: Variants,
    members: ArrayMembers,
    known: Mapping[int, TimeEncoding],
    numbers: Numbers,
    parent: tuple[ArrayMembers, Mapping[int, str]] | None,
) -> TimeTarget | None:
    used, base = variants.used, variants.base
    data, gaps = _data(variants, members, numbers)
    units = text_of(variants.attributes[base], "units") or ""
    if parent is None or not any(variants.inherits):
        target = choose([known[v] for v in used], [numbers.read[v] for v in used], [data[v] for v in used], units)
        return None if target is None else TimeTarget(target.encoding, target.dtype, target.fine, target.units, gaps)
    above = variants_of(parent[0], parent[1], None)
    found = {v: e for v, e in _encodings(above).items() if e is not None}
    theirs = known[base]
    if variants.inherits[base] and len(set(found.values())) > 1:
        target = _target(above, parent[0], found, _numbers(above), None)
        if target is None:
            return None
        theirs = target.encoding
    # whole numbers where every number stays one; else doubles that decode to the same instants, or an error when read
    steps = [n for v in used for n in (known[v].unit, known[v].reference - theirs.reference)]
    whole = all(numbers.read[v].kind != "f" for v in used) and all(n % theirs.unit == 0 for n in steps)
    fine = theirs.fine and all(known[v].fine for v in used)
    return TimeTarget(theirs, np.dtype("i8" if whole else "f8"), fine, None, gaps)

"""One array of numbers out of granules that type, pack, date and mark missing values in ways of their own.

Everything that differs was found and let through before; here is how each granule's numbers are rewritten. Nothing
is, where nothing differs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from drystone.model.attributes import Attribute
from drystone.model.recode import Recode
from drystone.plan.compare import Variants, canonical
from drystone.plan.findings import Findings
from drystone.plan.packing import Packing, common, is_unsigned, packing_of, read_as
from drystone.plan.sentinels import KEYS, Sentinel, attribute_of, missing_of, number_text, retyped, sentinel, wider
from drystone.plan.times import TimeEncoding, TimeTarget

__all__ = ["Numbers", "Rewriting", "numbers_of", "rewrite"]

PACKING = ("scale_factor", "add_offset", "_Unsigned")
LIMITS = ("valid_min", "valid_max", "valid_range")
FLAGS = ("flag_values", "flag_masks")


@dataclass(frozen=True, slots=True)
class Numbers:
    """How each variant's numbers are read, by number of variant."""

    native: dict[int, np.dtype]
    read: dict[int, np.dtype]
    packing: dict[int, Packing]
    missing: dict[int, tuple[bytes, ...]]


@dataclass(slots=True)
class Rewriting:
    """The array of all: its type, how each variant becomes it, and attributes that change (None: taken away)."""

    dtype: np.dtype
    recodes: dict[int, Recode] = field(default_factory=dict)
    attributes: dict[str, Attribute | None] = field(default_factory=dict)
    sentinel: bytes | None = None


def numbers_of(variants: Variants, findings: Findings) -> Numbers:
    """Read what every variant says of its numbers, and find what differs.

    Raises
    ------
    CombineError
        By policy, or where an attribute that differs is no number.
    """
    at, used = variants.attributes, variants.used
    native = {v: variants.specs[v].native_dtype for v in used}
    read = {v: read_as(at[v], native[v]) for v in used}
    packing = {v: packing_of(at[v]) for v in used}
    missing = {v: missing_of(at[v], native[v]) for v in used}
    for keys, known in ((PACKING[:2], packing), (KEYS, missing)):
        if any(known[v] is None for v in used):
            for key in keys:
                findings.impossible(key, variants.shown(key), "one of them is no number")
    if any(d.kind == "u" and "_Unsigned" in at[v] for v, d in native.items()):
        findings.impossible("_Unsigned", variants.shown("_Unsigned"), "readers take it differently on unsigned types")
    findings.find("dtype", "element type", lambda v: str(native[v]))
    plain = {v: p or Packing() for v, p in packing.items()}
    said = {
        "scale_factor": {v: str(plain[v].scale) for v in used},
        "add_offset": {v: str(plain[v].offset) for v in used},
        "_Unsigned": {v: str(is_unsigned(at[v], native[v])) for v in used},
    }
    # the granule that differs first is named, so what it differs in comes first
    for key in sorted(PACKING, key=lambda k: next((i for i, v in enumerate(used) if said[k][v] != said[k][used[0]]), 0)):
        findings.find("packing", key, said[key].__getitem__, variants.shown(key))
    told = {v: m or () for v, m in missing.items()}
    key = next((k for k in KEYS if len({canonical(at[v].get(k)) for v in used}) > 1), KEYS[0])
    findings.find(
        "fill",
        key,
        lambda v: str(sorted(_marks(told[v], read[v]))),
        variants.shown(key),
    )
    return Numbers(native, read, plain, told)


def rewrite(
    variants: Variants, findings: Findings, numbers: Numbers, times: tuple[TimeTarget, dict[int, TimeEncoding]] | None
) -> Rewriting:
    """One type for all and how to get there.

    Raises
    ------
    CombineError
        No exact one, or the policy forbids it.
    """
    if times is not None:
        return _timed(variants, findings, numbers, *times)
    used, base = variants.used, variants.base
    if len({numbers.packing[v] for v in used}) > 1:
        return _repacked(variants, findings, numbers)
    same = {numbers.native[v] for v in used} == {numbers.native[base]} and {numbers.read[v] for v in used} == {
        numbers.read[base]
    }
    if not same:
        return _widened(variants, findings, numbers)
    out = Rewriting(numbers.native[base])
    _double_scales(variants, out, numbers.packing[base].plain)
    if len({_marks(numbers.missing[v], numbers.read[v]) for v in used}) > 1:
        found = _sentinel(variants, numbers, numbers.read[base])
        if found is not None and not found.proved and findings.policy("fill") == "widen":
            return _widened(variants, findings, numbers)
        out.sentinel = _unproved(variants, findings, found, numbers.read[base])
        for v in used:
            _put(out, v, numbers, Recode(out.dtype), kept=True)
        if out.sentinel is not None:
            _say_missing(out, numbers.native[base])
    elif any(variants.said(k)(v) != variants.said(k)(base) for v in used for k in KEYS):
        # the same numbers, under names or types of their own; or NaN, which some say is missing and in none is data
        mark = next((numbers.missing[v][0] for v in used if numbers.missing[v]), None)
        out.attributes |= {} if mark is None else {"_FillValue": attribute_of(mark, out.dtype)}
    return out


def _marks(missing: tuple[bytes, ...], dtype: np.dtype) -> frozenset[str]:
    """Numbers that say missing; NaN does so without being named."""
    return frozenset(number_text(m, dtype) for m in missing) - {"nan"}


def _sentinel(variants: Variants, numbers: Numbers, target: np.dtype) -> Sentinel | None:
    used = variants.used
    return sentinel([numbers.missing[v] for v in used], [numbers.read[v] for v in used], target)


def _unproved(variants: Variants, findings: Findings, found: Sentinel | None, target: np.dtype) -> bytes | None:
    """The number that says missing for all; a note where some granule may hold it as data."""
    if found is None or found.proved:
        return None if found is None else found.element
    number = number_text(found.element, target)
    findings.notes.append(
        f"{variants.path}: granules say missing with numbers of their own, and {number} is to say it for all; a granule that "
        f"holds {number} as data is refused when it is read; combine: {{differences: {{fill: widen}}}} takes a wider type "
        "and a number that none can hold"
    )
    return found.element


def _say_missing(out: Rewriting, dtype: np.dtype) -> None:
    """One ``_FillValue`` and nothing else says missing."""
    if out.sentinel is not None:
        out.attributes |= {"_FillValue": attribute_of(out.sentinel, dtype), "missing_value": None}


def _put(out: Rewriting, v: int, numbers: Numbers, how: Recode, kept: bool = False) -> None:
    """Keep a variant's rewriting, where it does anything."""
    missing = numbers.missing[v] if out.sentinel is not None else ()
    nan = out.sentinel is not None and out.dtype.kind == "f" and bool(np.isnan(np.frombuffer(out.sentinel, out.dtype)[0]))
    unsigned = numbers.read[v] != numbers.native[v] and not kept
    same = how.scale == 1 and how.offset == 0 and how.dtype == numbers.native[v] and not unsigned
    done = missing == (() if out.sentinel is None else (out.sentinel,)) or (nan and not missing)
    if not (same and done):
        out.recodes[v] = Recode(how.dtype, unsigned, missing, out.sentinel, how.scale, how.offset, how.tick, how.step)


def _double_scales(variants: Variants, out: Rewriting, plain: bool) -> None:
    """Where some say one scale in single precision and some in double, double it is; 1 and 0 need not be said by any."""
    for key in PACKING[:2]:
        lacks = any(key not in variants.attributes[v] for v in variants.used)
        if lacks and key in variants.attributes[variants.base] and plain:
            out.attributes[key] = None
            continue
        kinds = {a.dtype for v in variants.used if (a := variants.attributes[v].get(key)) is not None}
        first = variants.attributes[variants.base].get(key)
        if len(kinds) > 1 and first is not None and first.dtype not in ("text", "bytes"):
            out.attributes[key] = Attribute.of(np.float64(np.asarray(first.value).reshape(-1)[0]))


def _widened(variants: Variants, findings: Findings, numbers: Numbers) -> Rewriting:
    used, base = variants.used, variants.base
    reads = [numbers.read[v] for v in used]
    target = numbers.read[base] if findings.policy("dtype") == "first" else widest(reads)
    found = _sentinel(variants, numbers, target)
    if found is not None and not found.proved and findings.policy("fill") == "widen":
        target = wider(reads) or target
        found = _sentinel(variants, numbers, target)
    out = Rewriting(target, attributes={"_Unsigned": None})
    _double_scales(variants, out, numbers.packing[base].plain)
    out.sentinel = _unproved(variants, findings, found, target)
    for v in used:
        _put(out, v, numbers, Recode(target))
    _say_missing(out, target)
    _retype(variants, findings, numbers, out)
    return out


def widest(dtypes: list[np.dtype]) -> np.dtype:
    """A type that holds the numbers of all; where NumPy would leave whole numbers for it, int64, checked when read.

    Examples
    --------
    >>> widest([np.dtype("i4"), np.dtype("f4")]), widest([np.dtype("u8"), np.dtype("i2")])
    (dtype('float64'), dtype('int64'))
    """
    found = np.result_type(*dtypes)
    return np.dtype("i8") if found.kind == "f" and all(d.kind in "iu" for d in dtypes) else found


def _retype(variants: Variants, findings: Findings, numbers: Numbers, out: Rewriting) -> None:
    """Limits and flags are numbers as stored: of the array's type."""
    base = variants.base
    attributes, read = variants.attributes[base], numbers.read[base]
    for key in (*LIMITS, *FLAGS):
        if key not in attributes:
            continue
        value = attributes[key]
        if value.dtype in ("text", "bytes"):
            continue
        own = np.asarray(value.value)
        exact = own.view(read) if own.dtype == numbers.native[base] and read != own.dtype else own
        elements = [retyped(np.asarray(n).tobytes(), exact.dtype, out.dtype) for n in exact.reshape(-1)]
        if None in elements:
            out.attributes[key] = None
            findings.notes.append(f"{variants.path}: {key} is no {out.dtype} and was left out")
            continue
        typed = np.frombuffer(b"".join(e for e in elements if e is not None), out.dtype)
        out.attributes[key] = Attribute.of(typed[0] if own.ndim == 0 else typed.reshape(own.shape))


def _repacked(variants: Variants, findings: Findings, numbers: Numbers) -> Rewriting:
    """An exact packing for all, or doubles."""
    used, base = variants.used, variants.base
    packings, reads = [numbers.packing[v] for v in used], [numbers.read[v] for v in used]
    single = all(variants.attributes[v][k].dtype == "<f4" for v in used for k in PACKING[:2] if k in variants.attributes[v])
    found = common(packings, reads, any(numbers.missing[v] for v in used), single)
    if findings.policy("packing") == "first" and (found is None or found.packing != packings[0]):
        other = next(v for v in used if numbers.packing[v] != numbers.packing[base])
        raise findings.refuse(
            "packing", other, _say(packings[0]), _say(numbers.packing[other]),
            "the first granule's packing does not hold the other's numbers exactly; say combine: {differences: "
            "{packing: rechunk}} to decode to float64",
        )  # fmt: skip
    flags = next((v for v in used for k in FLAGS if k in variants.attributes[v]), None)
    if flags is not None:
        other = next(v for v in used if numbers.packing[v] != numbers.packing[base])
        raise findings.refuse(
            "packing",
            other,
            _say(packings[0]),
            _say(numbers.packing[other]),
            "flags are numbers as stored, one meaning for all",
        )
    out = Rewriting(np.dtype("f8") if found is None else found.dtype, attributes=dict.fromkeys(PACKING))
    if found is None:
        out.sentinel = np.float64("nan").tobytes() if any(numbers.missing[v] for v in used) else None
        for v in used:
            p = numbers.packing[v]
            _put(out, v, numbers, Recode(out.dtype, scale=p.scale, offset=p.offset))
        findings.notes.append(f"{variants.path}: granules pack differently and no exact common packing is: decoded to float64")
    else:
        if found.spare is not None and any(numbers.missing[v] for v in used):
            out.sentinel = np.array(found.spare, found.dtype).tobytes()
        for v, k, m in zip(used, found.times, found.plus, strict=True):
            _put(out, v, numbers, Recode(out.dtype, scale=Fraction(k), offset=Fraction(m)))
        kind = np.float32 if single else np.float64
        if found.packing.scale != 1:
            out.attributes["scale_factor"] = Attribute.of(kind(found.packing.scale))
        if found.packing.offset != 0:
            out.attributes["add_offset"] = Attribute.of(kind(found.packing.offset))
    _say_missing(out, out.dtype)
    _drop_limits(variants, findings, out)
    return out


def _say(packing: Packing) -> str:
    return f"scale {float(packing.scale)!r} and offset {float(packing.offset)!r}"


def _drop_limits(variants: Variants, findings: Findings, out: Rewriting) -> None:
    gone = [k for k in LIMITS if any(k in variants.attributes[v] for v in variants.used)]
    out.attributes |= dict.fromkeys(gone)
    if gone:
        findings.notes.append(
            f"{variants.path}: {', '.join(gone)} left out: in units of numbers as stored, which are rewritten"
        )


def _timed(
    variants: Variants, findings: Findings, numbers: Numbers, target: TimeTarget, encodings: dict[int, TimeEncoding]
) -> Rewriting:
    used = variants.used
    out = Rewriting(target.dtype, attributes={"_Unsigned": None})
    if (target.gaps and target.dtype.kind != "f") or any(numbers.missing[v] for v in used):
        out.sentinel = _time_sentinel(target.dtype)
    for v in used:
        e, to = encodings[v], target.encoding
        scale, offset = Fraction(e.unit, to.unit), Fraction(e.reference - to.reference, to.unit)
        plain = scale == 1 and offset == 0 and (numbers.read[v].kind == out.dtype.kind or numbers.read[v].kind != "f")
        tick = 0 if plain else e.unit
        how = Recode(out.dtype, scale=scale, offset=offset, tick=tick, step=1 if target.fine or plain else 1000)
        mine = numbers
        if numbers.read[v].kind == "f" and out.sentinel is not None:
            nans = np.array(np.nan, numbers.read[v]).tobytes()
            mine = Numbers(numbers.native, numbers.read, numbers.packing, {v: (*numbers.missing[v], nans)})
        _put(out, v, mine, how)
    _say_missing(out, out.dtype)
    _drop_limits(variants, findings, out)
    if target.units is not None and not variants.inherits[variants.base]:
        out.attributes["units"] = Attribute.of(target.units)
    return out


def _time_sentinel(dtype: np.dtype) -> bytes:
    """NaN, or the number that readers take for not-a-time."""
    number = np.nan if dtype.kind == "f" else np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max
    return np.array(number, dtype).tobytes()

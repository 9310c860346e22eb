"""Values by what they mean: the numbers of both sides, each decoded with its own attributes as CF says.

The witness loads this file by its path, so it imports nothing of drystone's.

Where granules pack, date or mark missing values in different ways, no published array holds the bits of all of them. Then
each side is decoded for itself: what is missing must be missing on the other side too; whole numbers must be the same
numbers; times the same instants; unpacked numbers the same to a few units in the last place of a double.
"""

from __future__ import annotations

import importlib
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from drystone.verify import compare, instants
else:
    # the witness's copies beside this one, or the package's
    compare, instants = (importlib.import_module(f"{__name__.removesuffix('meaning')}{n}") for n in ("compare", "instants"))

__all__ = ["Coding", "differs", "missing", "problems", "published", "stored", "within"]

type Array = np.ndarray[Any, np.dtype[Any]]
type Plain = dict[str, Any]
type Bound = tuple[float, float]
"""Most that a published value is off: as a share of it, and beside that."""

_ULPS = 4
_TIME = ("units", "calendar")
_MISSING = ("_FillValue", "missing_value")
_PACKING = ("scale_factor", "add_offset", "_Unsigned")
# in stored numbers, which are others after rewriting
_LIMITS = ("valid_min", "valid_max", "valid_range")
_FLAGS = ("flag_values", "flag_masks", "flag_meanings")
_NAMES = (*_TIME, *_MISSING, *_PACKING)


def stored(attributes: Mapping[str, object]) -> Plain:
    """The coding attributes of a granule's array as Python values: lists of numbers, or text.

    Examples
    --------
    >>> stored({"_FillValue": np.array([-9], ">i2"), "units": b"K", "history": "…"})
    {'units': 'K', '_FillValue': [-9]}
    """
    return {name: _plain(attributes[name]) for name in _NAMES if name in attributes}


def published(attributes: Mapping[str, object], dtype: object) -> Plain:
    """The same of a published array, whose attributes are JSON.

    Examples
    --------
    >>> published({"_FillValue": "AAAAAAAA+H8=", "scale_factor": 0.5}, np.dtype("f4"))
    {'_FillValue': [nan], 'scale_factor': [0.5]}
    """
    out: Plain = {}
    for name in _NAMES:
        value = attributes.get(name)
        if value is None:
            continue
        if name in _MISSING:
            integer = getattr(dtype, "kind", "") in "iu"
            out[name] = [compare.number(v, integer) for v in (value if isinstance(value, list) else [value])]
        else:
            out[name] = value if isinstance(value, str | list) else [value]
    return out


def _plain(value: object) -> object:
    if isinstance(value, str | bytes):
        return compare.text(value)
    flat = np.asarray(value).reshape(-1)
    if flat.dtype.kind in "OSU" and flat.size == 1:
        return compare.text(flat[0])
    return flat.tolist()


@dataclass(frozen=True)
class Coding:
    """How one side's numbers are read.

    Parameters
    ----------
    unsigned
        Signed numbers are read as unsigned ones, or (False) unsigned ones as signed; None: as they are.
    missing
        Numbers that say missing, besides NaN.
    scale, offset
        None where the attributes say none.
    clock
        What times count, or None.
    """

    unsigned: bool | None
    missing: tuple[float, ...]
    scale: float | None
    offset: float | None
    clock: instants.Clock | None

    @classmethod
    def of(cls, attributes: Plain) -> Coding:
        """From plain attributes."""
        word = str(attributes.get("_Unsigned", "")).lower()
        gone = [v for name in _MISSING for v in _numbers(attributes.get(name))]
        scale, offset = (next(iter(_numbers(attributes.get(n))), None) for n in ("scale_factor", "add_offset"))
        return cls({"true": True, "false": False}.get(word), tuple(gone), scale, offset, instants.Clock.of(attributes))

    @property
    def packed(self) -> bool:
        """Whether numbers are scaled or shifted."""
        return self.scale not in (None, 1) or self.offset not in (None, 0)

    def view(self, raw: Array) -> Array:
        """Numbers as signed or unsigned as the attributes say."""
        if self.unsigned is True and raw.dtype.kind == "i":
            return raw.view(raw.dtype.str.replace("i", "u"))
        if self.unsigned is False and raw.dtype.kind == "u":
            return raw.view(raw.dtype.str.replace("u", "i"))
        return raw

    def gone(self, values: Array) -> Array:
        """Which are missing, of what :meth:`view` gave."""
        out = values != values
        for number in self.missing:
            element = _element(number, values.dtype)
            if element is not None:
                out |= values == element
        return np.asarray(out, bool)

    def unpack(self, values: Array) -> Array:
        """In double precision: one multiplication, one addition."""
        return values.astype(np.float64) * float(self.scale or 1 if self.scale != 0 else 0) + float(self.offset or 0)

    @property
    def fractions(self) -> instants.Packing | None:
        """Scale and offset as the exact numbers that they are."""
        if not self.packed:
            return None
        return Fraction(1 if self.scale is None else self.scale), Fraction(self.offset or 0)


def _numbers(value: object) -> list[float]:
    return [v for v in value if isinstance(v, int | float)] if isinstance(value, list) else []


def _element(number: float, dtype: np.dtype[Any]) -> Any:  # noqa: ANN401  a NumPy scalar of any kind
    """A number as an element of a type, its other reading where it is signed the other way; None where there is none."""
    if dtype.kind == "f":
        return dtype.type(number)
    if dtype.kind not in "iu" or number != number or number in (float("inf"), -float("inf")) or number != int(number):
        return None
    limits, span = np.iinfo(dtype), 2 ** (8 * dtype.itemsize)
    for whole in (int(number), int(number) + span, int(number) - span):
        if limits.min <= whole <= limits.max:
            return dtype.type(whole)
    return None


def missing(raw: Array, coding: Coding) -> Array:
    """Which cells read as missing, bool."""
    if raw.dtype.kind not in "iuf":
        return np.zeros(raw.shape, bool)
    return coding.gone(coding.view(raw))


def within(ours: Array, mine: Coding, theirs: Array, their: Coding, bound: Bound) -> Array:
    """Where two native arrays hold data on both sides, no further apart than a stated loss, bool.

    Examples
    --------
    >>> plain = Coding.of({"_FillValue": [-9.0]})
    >>> ours, theirs = np.array([1.5, 2.0, -9.0, np.inf]), np.array([1.4, 1.4, -9.1, np.inf])
    >>> within(ours, plain, theirs, plain, (0.125, 0.0)).tolist()
    [True, False, False, False]
    """
    data = np.asarray(np.isfinite(ours) & np.isfinite(theirs) & ~mine.gone(mine.view(ours)) & ~their.gone(their.view(theirs)))
    data[data] = _near(ours[data].astype(np.float64), theirs[data].astype(np.float64), bound)
    return data


def _near(x: Array, y: Array, bound: Bound) -> Array:
    """Where doubles are no further apart than ``bound`` says of the second; their difference is exact where they are near."""
    relative, absolute = bound
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.abs(x - y) <= relative * np.abs(y) + absolute, bool)


def differs(ours: Array, mine: Coding, theirs: Array, their: Coding, bound: Bound = (0.0, 0.0)) -> Array:
    """Where two native arrays of one shape mean different things, bool.

    Parameters
    ----------
    ours, mine
        Published numbers and how they are read.
    theirs, their
        The granule's.
    bound
        What the published form was said to lose.

    Examples
    --------
    >>> packed = Coding.of({"scale_factor": [0.5], "add_offset": [10.0], "_FillValue": [-1]})
    >>> plain = Coding.of({"_FillValue": [float("nan")]})
    >>> differs(np.array([11.0, np.nan, 11.5]), plain, np.array([2, -1, 2], "i2"), packed).tolist()
    [False, False, True]
    """
    if ours.dtype.kind not in "biuf" or theirs.dtype.kind not in "biuf":
        if {ours.dtype.kind, theirs.dtype.kind} == {"S"}:
            return np.asarray(ours.astype(object) != theirs.astype(object), bool)
        if {ours.dtype.kind, theirs.dtype.kind} == {"c"} and ours.dtype != theirs.dtype:
            return np.asarray((ours != theirs) & ~(np.isnan(ours) & np.isnan(theirs)), bool)
        return compare.differs(ours, theirs)
    ours, theirs = mine.view(ours), their.view(theirs)
    gone, lost = mine.gone(ours), their.gone(theirs)
    wrong = np.asarray(gone != lost, bool)
    both = ~gone & ~lost
    a, b = ours[both], theirs[both]
    if mine.clock is not None and their.clock is not None:
        wrong[both] = instants.differs(a, mine.clock, b, their.clock, (mine.fractions, their.fractions))
    elif mine.packed or their.packed:
        wrong[both] = _apart(a, mine, b, their, bound)
    else:
        wrong[both] = _unequal(a, b)
        if any(bound):
            wrong &= ~within(ours, mine, theirs, their, bound)
    return wrong


def _apart(a: Array, mine: Coding, b: Array, their: Coding, bound: Bound) -> Array:
    """Where unpacked numbers are more than a few units in the last place and what was said to be lost apart."""
    with np.errstate(over="ignore", invalid="ignore"):
        x = mine.unpack(a) if mine.packed else a.astype(np.float64)
        y = their.unpack(b) if their.packed else b.astype(np.float64)
        size = np.maximum(np.abs(x), np.abs(y))
        if mine.packed:  # packed anew: a sum that cancels is as exact as what went into it
            size = np.maximum(size, max(abs(mine.offset or 0), abs(their.offset or 0)))
        near = np.abs(x - y) <= _ULPS * np.spacing(size) + bound[0] * np.abs(y) + bound[1]
    return np.asarray(~(near | (x == y)), bool)


def _unequal(a: Array, b: Array) -> Array:
    """Where two numbers are not the same number, whatever their types."""
    kinds = {a.dtype.kind, b.dtype.kind}
    wide = max(v.dtype.itemsize for v in (a, b) if v.dtype.kind in "iu") if kinds & set("iu") else 0
    mixed = ("f" in kinds and len(kinds) > 1) or {"i", "u"} <= kinds
    if mixed and wide == 8:  # a double cannot tell these apart
        return np.asarray(a.astype(object) != b.astype(object), bool)
    return np.asarray(a != b, bool)


def _sentinels(coding: Coding, dtype: np.dtype[Any]) -> set[bytes]:
    """Elements that say missing in an array of a type; NaN always does."""
    kind = coding.view(np.zeros(0, dtype)).dtype
    elements = [_element(number, kind) for number in coding.missing]
    return {e.tobytes() for e in elements if e is not None and e == e}


def problems(
    ours: Mapping[str, object],
    mine: Plain,
    theirs: Mapping[str, object],
    their: Plain,
    dtype: object,
    unkept: Container[str] = (),
    rewritten: bool = False,
    accepted: Iterable[str] = (),
) -> Iterator[str]:
    """Attributes that make the same number mean something else, one line each.

    Parameters
    ----------
    ours, theirs
        Attributes of the published array and of the granule's, units of a parent included.
    mine, their
        Their plain forms.
    dtype
        Of the published array.
    unkept
        Names that the published form was said not to hold.
    rewritten
        Numbers are compared by what they mean, so that packing, missing values and the units of times may differ.
    accepted
        Names that may differ by the user's own word.

    Examples
    --------
    >>> a, b = {"units": "days since 2000-1-1"}, {"units": "days since 2000-01-01 00:00", "calendar": "gregorian"}
    >>> list(problems(a, published(a, None), b, stored(b), np.dtype("f4")))
    []
    """
    skip = set(accepted)
    one, two = Coding.of(mine), Coding.of(their)
    if one.clock is not None and two.clock is not None and (rewritten or one.clock.counts_as(two.clock)):
        skip.update(_TIME)
    elif instants.calendar_of(mine) == instants.calendar_of(their) or " since " not in f"{mine} {their}".lower():
        skip.add("calendar")  # the same, or of no times
    if rewritten:
        skip.update((*_MISSING, *_PACKING, *_LIMITS))
        signs = one.unsigned is not None or two.unsigned is not None
        skip.update(n for n in _FLAGS if n not in ours or signs)
    elif isinstance(dtype, np.dtype) and dtype.kind in "iuf":
        if _sentinels(one, dtype) == _sentinels(two, dtype):
            skip.update(_MISSING)
        if one.view(np.zeros(0, dtype)).dtype == two.view(np.zeros(0, dtype)).dtype:
            skip.add("_Unsigned")
    neutral = {"scale_factor": [1], "add_offset": [0]}
    skip.update(n for n, v in neutral.items() if mine.get(n, v) == v == their.get(n, v))
    yield from compare.coding_problems(ours, theirs, unkept, skip)

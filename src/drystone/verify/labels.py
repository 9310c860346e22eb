"""What a granule's name or attribute says of its place on an axis, found without the code that placed it.

The witness loads this file by its path, so it imports nothing of drystone's.

A date pattern is searched as a regular expression in which every number has its full width; a date that cuts no number in
two counts before one that does. One granule says one date, or nothing is proved.
"""

from __future__ import annotations

import datetime as dt
import importlib
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np

if TYPE_CHECKING:
    from drystone.verify import compare, granules, instants, meaning
else:
    # the witness's copies beside this one, or the package's
    _here = __name__.removesuffix("labels")
    compare, granules, instants, meaning = (
        importlib.import_module(_here + n) for n in ("compare", "granules", "instants", "meaning")
    )

__all__ = ["Label", "Unclear", "differs", "of"]

type Array = np.ndarray[Any, np.dtype[Any]]
type Label = str | int | float | dt.datetime

_WIDTHS = {
    "Y": r"\d{4}", "m": r"\d{2}", "d": r"\d{2}", "H": r"\d{2}", "I": r"\d{2}", "M": r"\d{2}", "S": r"\d{2}", "j": r"\d{3}",
    "y": r"\d{2}", "f": r"\d{1,6}", "b": r"[^\W\d_]{3}", "B": r"[^\W\d_]+", "p": r"[AP]M", "z": r"(?:Z|[+-]\d{2}:?\d{2})",
    "%": "%",
}  # fmt: skip
_MICROSECONDS = instants.Clock(1000, 0, 0, "proleptic_gregorian")


class Unclear(Exception):
    """Nothing can be proved of a value: the rule cannot be followed by other code than that which made it."""


def of(rule: Mapping[str, Any], granule: str, sources: granules.Sources) -> Label:
    """What a granule says of its place: text, a number, or the date that a pattern of dates finds."""
    pattern = rule["pattern"]
    if rule["position"] == "name":
        path = unquote(granule) if granule.startswith("file:") else granule
        return _found(pattern, path.rpartition("/")[2], granule)
    attributes = sources.root_attributes(granule)
    if rule["attribute"] not in attributes:
        raise Unclear(f"{granule}: it has no attribute {rule['attribute']}")
    value = attributes[rule["attribute"]]
    flat = np.asarray(value).reshape(-1)
    if isinstance(value, str | bytes) or flat.dtype.kind in "OSU":
        text = compare.text(value) if isinstance(value, str | bytes) else " ".join(compare.text(v) for v in flat.tolist())
        return text if pattern is None else _found(pattern, text, granule)
    number: int | float = flat[0].item()
    return number if pattern is None else _found(pattern, str(number), granule)


def _found(pattern: str, text: str, granule: str) -> Label:
    if "%" in pattern:
        dates = _dates(pattern, text)
        if len(dates) != 1:
            raise Unclear(f"{granule}: the pattern {pattern!r} finds {len(dates)} dates in {text!r}, and one is needed")
        return dates.pop()
    match = re.search(pattern, text)
    if match is None:
        raise Unclear(f"{granule}: the pattern {pattern!r} finds nothing in {text!r}")
    return str(match.group(1))


def _dates(pattern: str, text: str) -> set[dt.datetime]:
    """The dates that a text holds."""
    whole = _date(pattern, text)
    if whole is not None:
        return {whole}
    wide = re.sub(r"%(.)|([^%]+)", lambda m: _WIDTHS.get(m[1], ".+?") if m[1] else re.escape(m[2]), pattern)
    spans = [(m.start(1), m.end(1)) for m in re.finditer(f"(?=({wide}))", text, re.IGNORECASE)]
    found = [(a, b, date) for a, b in spans if (date := _date(pattern, text[a:b])) is not None]
    clean = {date for a, b, date in found if not _cuts(text, a) and not _cuts(text, b)}
    return clean or {date for _, _, date in found}


def _cuts(text: str, at: int) -> bool:
    """Whether a place in a text has digits on both sides."""
    return text[at - 1 : at].isdigit() and text[at : at + 1].isdigit()


def _date(pattern: str, text: str) -> dt.datetime | None:
    try:
        date = dt.datetime.strptime(text, pattern)  # noqa: DTZ007  UTC where the pattern has no zone
    except ValueError:
        return None
    return date.replace(tzinfo=date.tzinfo or dt.UTC)


def differs(ours: Array, coding: meaning.Coding, label: Label) -> Array:
    """Where published values are not a label, bool.

    Examples
    --------
    >>> plain = meaning.Coding.of({})
    >>> differs(np.array([7, 8]), plain, "007").tolist(), differs(np.array([b"r1", b"r2"], object), plain, "r1").tolist()
    ([False, True], [False, True])
    """
    if ours.dtype.kind == "O":
        return np.asarray(ours != str(label).encode("utf-8", "surrogateescape"), bool)
    if coding.clock is not None:
        clock, number = _MICROSECONDS, 0
        if isinstance(label, dt.datetime):
            number = (label - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
        else:
            read = instants.Clock.of({"units": f"days since {label}", "calendar": "proleptic_gregorian"})
            if read is None:
                return np.ones(ours.shape, bool)
            clock = read
        return instants.differs(ours, coding.clock, np.full(ours.shape, number), clock, (coding.fractions, None))
    if isinstance(label, dt.datetime) or ours.dtype.kind not in "iuf":
        return np.ones(ours.shape, bool)
    try:
        exact = Fraction(label)
    except ValueError:
        return np.ones(ours.shape, bool)
    return np.array([v != float(exact) if isinstance(v, float) else v != exact for v in ours.tolist()], bool)

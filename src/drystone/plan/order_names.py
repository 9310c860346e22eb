"""Keys that are not in arrays: read from file names, from global attributes, or from the listed order."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from drystone.errors import CombineError, ConfigError
from drystone.model.attributes import Attributes
from drystone.model.options import AxisOptions
from drystone.plan.order_keys import Granules, Keys
from drystone.plan.order_times import from_iso, narrow

__all__ = ["granule_keys", "natural"]

_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)

type _Value = int | float | str | dt.datetime


def natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """A name for sorting: runs of digits count as numbers.

    Examples
    --------
    >>> sorted(["r10", "r9", "q"], key=natural)
    ['q', 'r9', 'r10']
    """
    parts = re.split(r"(\d+)", name)
    return tuple((0, int(p)) if i % 2 else (1, p) for i, p in enumerate(parts) if p)


def granule_keys(axis: AxisOptions, granules: Granules, attributes: Mapping[int, Attributes], new: bool) -> Keys:
    """One key for each granule.

    Raises
    ------
    CombineError
        ``axis-name-pattern``, ``axis-attribute``
    """
    n = len(granules)
    if axis.position == "order":
        return _keys(axis, "the listed order", "number", granules.listed())
    _check_pattern(axis)
    if axis.position == "name":
        if not axis.pattern:
            raise ConfigError(
                f"{axis.name}: position: name needs a pattern, such as oisst.%Y%m%d.nc or run_(\\d+)", kind="axis-pattern"
            )
        # the place ends at the first colon; file names may have some of their own
        bases = [(granules.name(i).partition(":")[2] or granules.name(i)).rsplit("/", 1)[-1] for i in range(n)]
        found = [_read(axis.pattern, text, granules.name(i), "its name") for i, text in enumerate(bases)]
        return _of(axis, "file names", found, granules, new)
    return _of(
        axis, f"the attribute {axis.attribute}", [_attribute(axis, granules, i, attributes) for i in range(n)], granules, new
    )


def _check_pattern(axis: AxisOptions) -> None:
    if axis.pattern is None or "%" in axis.pattern:
        return
    try:
        groups = re.compile(axis.pattern).groups
    except re.error as error:
        raise ConfigError(
            f"{axis.name}: the pattern {axis.pattern!r} is no regular expression: {error}", kind="axis-pattern"
        ) from error
    if groups != 1:
        raise ConfigError(
            f"{axis.name}: the pattern {axis.pattern!r} has {groups} groups; put one, in ( ), around what tells them apart, "
            "and (?: ) around the others",
            kind="axis-pattern",
        )


def _attribute(axis: AxisOptions, granules: Granules, i: int, attributes: Mapping[int, Attributes]) -> _Value:
    name, own = granules.name(i), attributes.get(int(granules.ids[i]), Attributes())
    if not axis.attribute:
        raise ConfigError(f"{axis.name}: position: attribute needs the attribute's name", kind="axis-attribute")
    value = own.get(axis.attribute)
    if value is None or value.dtype == "bytes":
        known = ", ".join(own) or "none"
        raise CombineError(
            f"{name}: there is no global attribute {axis.attribute} to place the granule along {axis.name} by (there are: "
            f"{known}); "
            "leave the granule out, or say position: name",
            kind="axis-attribute",
            granule=name,
        )
    if value.dtype == "text":
        text = " ".join(value.text)
        return _read(axis.pattern, text, name, f"its attribute {axis.attribute} ({text!r})") if axis.pattern else text
    numbers = np.asarray(value.value).reshape(-1).tolist()
    if len(numbers) != 1:
        raise CombineError(
            f"{name}: the global attribute {axis.attribute} holds {len(numbers)} numbers, and a place along {axis.name} is one",
            kind="axis-attribute",
            granule=name,
        )
    return _read(axis.pattern, str(numbers[0]), name, f"its attribute {axis.attribute}") if axis.pattern else numbers[0]


def _read(pattern: str, text: str, granule: str, what: str) -> _Value:
    if "%" in pattern:
        dates = _dates(pattern, text)
        if len(dates) == 1:
            return dates[0]
        if dates:
            raise CombineError(
                f"{granule}: the pattern {pattern!r} finds {' and '.join(d.isoformat() for d in dates)} in {what}; write "
                "more of the "
                "text around the date into the pattern",
                kind="axis-name-pattern",
                granule=granule,
            )
    else:
        match = re.search(pattern, text)
        if match and match.group(1) is not None:
            return match.group(1)
    raise CombineError(
        f"{granule}: the pattern {pattern!r} does not match {what}; write a date pattern such as oisst.%Y%m%d.nc or a regular "
        "expression with one group around a number",
        kind="axis-name-pattern",
        granule=granule,
    )


def _dates(pattern: str, text: str) -> list[dt.datetime]:
    """The dates that a pattern finds: in the whole text, else in parts of it that cut no number, else in any part."""
    whole = _date(pattern, text)
    if whole is not None:
        return [whole]
    length = len(dt.datetime(2000, 11, 22, 13, 14, 15, tzinfo=dt.UTC).strftime(pattern))
    starts = range(max(0, len(text) - length) + 1)
    for clean in (True, False):
        found = {
            d
            for i in starts
            if not clean or not (_cuts(text, i) or _cuts(text, i + length))
            if (d := _date(pattern, text[i : i + length])) is not None
        }
        if found:
            return sorted(found)
    return []


def _cuts(text: str, i: int) -> bool:
    return 0 < i < len(text) and text[i - 1].isdigit() and text[i].isdigit()


def _date(pattern: str, text: str) -> dt.datetime | None:
    try:
        date = dt.datetime.strptime(text, pattern)  # noqa: DTZ007 - UTC where the pattern has no zone
    except ValueError:
        return None
    return date.replace(tzinfo=dt.UTC) if date.tzinfo is None else date.astimezone(dt.UTC)


def _of(axis: AxisOptions, path: str, values: Sequence[_Value], granules: Granules, new: bool) -> Keys:
    """Keys of one kind: times, numbers where all are, else labels on a new axis."""
    if all(isinstance(v, dt.datetime) for v in values):
        times = [_instant(v) for v in values if isinstance(v, dt.datetime)]
        return _keys(axis, path, "time", narrow(np.array(times, object)))
    raw = axis.position == "attribute" and axis.pattern is None
    texts = [str(v) for v in values]
    numbers = None if raw and new and any(isinstance(v, str) for v in values) else _numbers(values, texts)
    if numbers is not None and not (new and numbers.dtype == object):
        return _keys(axis, path, "number", numbers)
    if new:
        return _keys(axis, path, "label", np.array(texts, object))
    times_of = [from_iso(t, "proleptic_gregorian") for t in texts]
    if all(t is not None for t in times_of):
        return _keys(axis, path, "time", narrow(np.array(times_of, object)))
    i = next(i for i, t in enumerate(texts) if not _is_number(t))
    raise CombineError(
        f"{granules.name(i)}: {texts[i]!r}, read from {path}, is neither a number nor a time, and granules are put in "
        "order along "
        f"{axis.name} by one",
        kind="axis-name-pattern",
        granule=granules.name(i),
    )


def _instant(date: dt.datetime) -> int:
    """Nanoseconds since 1970, in whole numbers throughout."""
    since = date - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return ((since.days * 86_400 + since.seconds) * 10**6 + since.microseconds) * 1000


def _numbers(values: Sequence[_Value], texts: Sequence[str]) -> NDArray[np.generic] | None:
    """All as numbers: whole ones exactly, or none."""
    if all(_WHOLE.fullmatch(t) for t in texts):
        return narrow(np.array([int(t) for t in texts], object))
    if not all(_is_number(t) for t in texts):
        return None
    return np.array([v if isinstance(v, float) else float(t) for v, t in zip(values, texts, strict=True)], np.float64)


def _is_number(text: str) -> bool:
    return _DECIMAL.fullmatch(text) is not None and bool(np.isfinite(float(text)))


def _keys(axis: AxisOptions, path: str, kind: Literal["time", "number", "label"], flat: NDArray[np.generic]) -> Keys:
    n = len(flat)
    calendar = "proleptic_gregorian" if kind == "time" else ""
    offset, segment = np.arange(n + 1, dtype=np.int64), np.arange(n, dtype=np.int32)
    return Keys(axis.name, path, kind, flat, offset, segment, calendar=calendar)

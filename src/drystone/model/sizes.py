"""Sizes in bytes, as people write and read them: decimal units, and binary ones where they say so."""

from __future__ import annotations

import math
import re
from decimal import Decimal

__all__ = ["SIZE_PATTERN", "duration_text", "parse_size", "size_text"]

SIZE_PATTERN = r"^[0-9]+(\.[0-9]+)? ?([kKMGT]i?)?B$"

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kKMGT]?)(i?)B\Z")
# a unit, its seconds, and from which seconds on the next one reads better
_UNITS = (
    ("ns", 1e-9, 1e-6),
    ("us", 1e-6, 1e-3),
    ("ms", 1e-3, 1.0),
    ("s", 1.0, 120.0),
    ("min", 60.0, 5400.0),
    ("h", 3600.0, 172_800.0),
    ("d", 86_400.0, math.inf),
)
_POWER = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_size(text: str) -> int | None:
    """Bytes of ``4 GB`` (10^9) or ``4 GiB`` (2^30); None where the text is no size.

    Examples
    --------
    >>> parse_size("256 kB"), parse_size("1.5GiB"), parse_size("4 gigs")
    (256000, 1610612736, None)
    """
    match = _SIZE.match(text.strip())
    if match is None or (match[3] and not match[2]):
        return None
    factor = (1024 if match[3] else 1000) ** _POWER[match[2]]
    return int(Decimal(match[1]) * factor)


def size_text(n: float) -> str:
    """Bytes for people, in decimal units, three digits.

    Examples
    --------
    >>> size_text(512), size_text(123_456), size_text(999_999), size_text(2_500_000_000)
    ('512 B', '123 kB', '1 MB', '2.5 GB')
    """
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if abs(n) < 999.5 or unit == "PB":
            return f"{n:.0f} {unit}" if unit == "B" or n >= 99.5 else f"{n:.3g} {unit}"
        n /= 1000
    raise AssertionError


def duration_text(seconds: float) -> str:
    """Seconds for people, two digits.

    Examples
    --------
    >>> [duration_text(s) for s in (4e-8, 0.0004, 0.25, 7.3, 95, 5400, 200_000)]
    ['40 ns', '400 us', '250 ms', '7.3 s', '95 s', '1.5 h', '2.3 d']
    """
    unit, size = next((unit, size) for unit, size, most in _UNITS if seconds < most)
    n = seconds / size
    return f"{n:.0f} {unit}" if n >= 9.95 else f"{n:.2g} {unit}"

"""Sizes in bytes and shares in percent, as people write them."""

from __future__ import annotations

import re
from decimal import Decimal

__all__ = ["SHARE_PATTERN", "SIZE_PATTERN", "parse_share", "parse_size"]

SIZE_PATTERN = r"^[0-9]+(\.[0-9]+)? ?([kKMGT]i?)?B$"
SHARE_PATTERN = r"^[0-9]+(\.[0-9]+)? ?%$"

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kKMGT]?)(i?)B\Z")
_SHARE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?%\Z")
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


def parse_share(text: str) -> float | None:
    """0 to 1 from ``1%``; None where the text is no percentage or is above 100.

    Examples
    --------
    >>> parse_share("1%"), parse_share("0.5 %"), parse_share("101%"), parse_share("1")
    (0.01, 0.005, None, None)
    """
    match = _SHARE.match(text.strip())
    if match is None:
        return None
    share = Decimal(match[1]) / 100
    return float(share) if share <= 1 else None

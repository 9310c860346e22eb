"""Shares in percent, as people write them."""

from __future__ import annotations

import re
from decimal import Decimal

__all__ = ["SHARE_PATTERN", "parse_share"]

SHARE_PATTERN = r"^[0-9]+(\.[0-9]+)? ?%$"

_SHARE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?%\Z")


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

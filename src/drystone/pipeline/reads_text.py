"""What reads cost, as JSON and as a table of two rows a read, source above target, with a bar each."""

from __future__ import annotations

import math
from collections.abc import Sequence

from drystone.model.sizes import size_text
from drystone.plan.costs import ReadCost

__all__ = ["reads_json", "reads_lines"]

_BAR = 16
_WIDTHS = (8, 12, 12, 12, 10, 12, 12, 14)


def reads_json(reads: Sequence[tuple[ReadCost, ReadCost]]) -> list[dict[str, object]]:
    """For ``--json``."""
    return [{"name": b.name, "source": _json(b), "target": _json(t)} for b, t in reads]


def _json(c: ReadCost) -> dict[str, float | str]:
    return {
        "chunks": c.chunks,
        "stored": c.stored,
        "objects": c.objects,
        "requests": c.requests,
        "probes": c.probes,
        "fetched": c.fetched,
        "decoded": c.decoded,
        "wanted": c.wanted,
        "amplification": c.amplification,
        "places": c.places,
        "counted": c.counted,
        "note": c.note,
    }


def reads_lines(reads: Sequence[tuple[ReadCost, ReadCost]]) -> list[str]:
    r"""Lines of text; bars are as long as the logarithm of what is decoded for each element wanted.

    Examples
    --------
    >>> source = ReadCost("series", 128, 128, 96, 1, 3, 2, 1e5, 128 * 12288.0)
    >>> target = ReadCost("series", 128, 1, 1, 1, 2, 0, 900, 16384)
    >>> print("\n".join(reads_lines([(source, target)])))
    read                  chunks      stored    requests    probes     fetched     decoded    per wanted
    series  source           128          96           3         2      100 kB     1.57 MB      12,288.0  ████████████████
            target             1           1           2         0       900 B     16.4 kB         128.0  ████████
    """
    if not reads:
        return []
    name = max(len("read"), *(len(b.name) for b, _ in reads)) + 2
    most = max(2.0, *(c.amplification for pair in reads for c in pair))
    head = ("", "chunks", "stored", "requests", "probes", "fetched", "decoded", "per wanted")
    lines = [f"{'read':<{name}}{_cells(head)}"]
    notes: dict[str, None] = {}
    for pair in reads:
        for side, c in zip(("source", "target"), pair, strict=True):
            lines.append(
                f"{c.name if side == 'source' else '':<{name}}{_cells(_row(side, c))}  {_bar(c.amplification, most)}".rstrip()
            )
            if c.counted < c.places:
                notes[f"{c.name}: means over {c.counted:,} of {c.places:,} places, spread evenly"] = None
            if c.note:
                notes[f"{side}: {c.note}"] = None
    return lines + [f"  {note}" for note in notes]


def _row(side: str, c: ReadCost) -> tuple[str, ...]:
    numbers = (_number(n) for n in (c.chunks, c.stored, c.requests, c.probes))
    return (side, *numbers, size_text(c.fetched), size_text(c.decoded), f"{c.amplification:,.1f}")


def _cells(cells: Sequence[str]) -> str:
    return f"{cells[0]:<{_WIDTHS[0]}}" + "".join(f"{c:>{w}}" for c, w in zip(cells[1:], _WIDTHS[1:], strict=True))


def _number(n: float) -> str:
    return f"{n:,.0f}" if abs(n - round(n)) < 0.005 else f"{n:,.2f}"


def _bar(amplification: float, most: float) -> str:
    if amplification <= 0:
        return ""
    return "█" * max(1, round(_BAR * math.log(max(amplification, 1.0)) / math.log(most)))

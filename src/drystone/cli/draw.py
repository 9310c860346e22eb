"""Chunk grids drawn as text: pure, from integers to lines.

The last two axes are drawn as a face, one block a chunk, blocks as tall and wide as the chunk's shape suggests; a heavy
line marks a shard's edge, and the part of an edge chunk that hangs over the array's end is shaded. The axes before them
are strips. Where there are more chunks than room, the middle is left out and said to be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from drystone.model.sizes import size_text

__all__ = ["ArrayDrawing", "array_lines", "draw_grid"]

_WIDTH = 60
_ROWS = 7
_FULL, _OVER, _MORE = "█", "░", "⋯"
_BY = " \N{MULTIPLICATION SIGN} "


@dataclass(frozen=True, slots=True)
class ArrayDrawing:
    """What is drawn of one array.

    Parameters
    ----------
    path, dims, shape, dtype
        Of the array.
    chunk, shard
        In elements; ``shard`` None where each chunk lies by itself.
    codecs
        Names and parameters, in encoding order.
    stored_chunks, stored_bytes
        What is stored, encoded; None where it was not counted.
    note
        A remark, such as why it cannot be referenced.
    """

    path: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    chunk: tuple[int, ...]
    shard: tuple[int, ...] | None
    codecs: tuple[str, ...]
    itemsize: int = 0
    stored_chunks: int | None = None
    stored_bytes: int | None = None
    note: str = ""

    @property
    def n_chunks(self) -> int:
        """Chunks in all, stored or not."""
        return math.prod(-(-n // c) for n, c in zip(self.shape, self.chunk, strict=True))

    @property
    def raw_bytes(self) -> int:
        """Decoded size."""
        return math.prod(self.shape) * self.itemsize

    @property
    def chunk_bytes(self) -> int:
        """Decoded size of one chunk."""
        return math.prod(self.chunk) * self.itemsize

    def to_json(self) -> dict[str, object]:
        """For ``--json``."""
        return {
            "path": self.path,
            "dims": list(self.dims),
            "shape": list(self.shape),
            "dtype": self.dtype,
            "chunk": list(self.chunk),
            "shard": None if self.shard is None else list(self.shard),
            "codecs": list(self.codecs),
            "chunks": self.n_chunks,
            "stored_chunks": self.stored_chunks,
            "raw_bytes": self.raw_bytes,
            "stored_bytes": self.stored_bytes,
            "note": self.note,
        }


def array_lines(a: ArrayDrawing) -> list[str]:
    """One array: facts, then its grid."""
    shape = _BY.join(f"{d} {n:,}" for d, n in zip(a.dims, a.shape, strict=True)) or "one value"
    lines = [f"{a.path}  {a.dtype}  ({shape})"]
    facts = [f"{a.n_chunks:,} chunk{'' if a.n_chunks == 1 else 's'} of {_edges(a.chunk)}"]
    if a.itemsize:
        facts[0] += f" = {size_text(a.chunk_bytes)}"
    if a.shard is not None:
        n = math.prod(-(-n // s) for n, s in zip(a.shape, a.shard, strict=True))
        facts.append(f"{n:,} shard{'' if n == 1 else 's'} of {_edges(a.shard)} = {size_text(math.prod(a.shard) * a.itemsize)}")
    facts.append(", ".join(a.codecs) or "no compression")
    lines += [f"  {fact}" for fact in facts]
    if a.stored_bytes is not None:
        ratio = f" of {size_text(a.raw_bytes)} decoded" if a.raw_bytes else ""
        unwritten = "" if a.stored_chunks in (None, a.n_chunks) else f" in {a.stored_chunks:,} written chunks"
        lines.append(f"  {size_text(a.stored_bytes)} stored{ratio}{unwritten}")
    elif a.itemsize:
        lines.append(f"  {size_text(a.raw_bytes)} decoded")
    if a.note:
        lines.append(f"  {a.note}")
    if a.n_chunks > 1:
        lines += [f"  {line}" for line in draw_grid(a.dims, a.shape, a.chunk, a.shard)]
    return lines


def _edges(shape: Sequence[int]) -> str:
    return _BY.join(f"{n:,}" for n in shape) or "one value"


def draw_grid(dims: Sequence[str], shape: Sequence[int], chunk: Sequence[int], shard: Sequence[int] | None = None) -> list[str]:
    r"""The grid: a strip for each axis but the last two, and the face of those.

    Parameters
    ----------
    dims, shape, chunk
        Equal in length; in elements.
    shard
        A multiple of ``chunk``, or None.

    Examples
    --------
    >>> print("\n".join(draw_grid(("t", "y", "x"), (3, 4, 10), (1, 2, 4), (2, 2, 8))))
    t 3 ████ ████┃████
    y 4 ████ ████┃██░░
        ━━━━━━━━━╋━━━━
        ████ ████┃██░░
        x 10
    """
    if not shape or 0 in shape:
        return []
    axes = [
        _Axis(d, n, c, 0 if shard is None else shard[i]) for i, (d, n, c) in enumerate(zip(dims, shape, chunk, strict=True))
    ]
    if len(axes) == 1:
        return [_strip(axes[0])]
    lead = max(len(f"{a.name} {a.extent:,}") for a in axes[:-1]) + 1
    lines = [_strip(a, lead) for a in axes[:-2]]
    return lines + _face(axes[-2], axes[-1], lead)


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis in chunks; ``shard`` 0 where there are none."""

    name: str
    extent: int
    chunk: int
    shard: int

    @property
    def n(self) -> int:
        return -(-self.extent // self.chunk)

    def shown(self, room: int) -> list[int | None]:
        """Numbers of the chunks to draw; None where some are left out."""
        if self.n <= room:
            return list(range(self.n))
        keep = max(1, room - 3)
        return [*range(keep), None, self.n - 2, self.n - 1] if room >= 4 else [0, None]

    def fill(self, number: int, width: int) -> str:
        """A block, shaded where the chunk hangs over the end."""
        data = min(self.chunk, self.extent - number * self.chunk)
        full = max(1, round(width * data / self.chunk))
        return _FULL * full + _OVER * (width - full)

    def joint(self, before: int | None, after: int | None) -> str:
        """What lies between two neighbours: a shard's edge, or a chunk's."""
        if before is None or after is None:
            return " "
        return "┃" if self.shard and after * self.chunk % self.shard == 0 else " "


def _row(axis: _Axis, shown: Sequence[int | None], width: int) -> str:
    out = []
    for i, number in enumerate(shown):
        if i:
            out.append(axis.joint(shown[i - 1], number))
        out.append(_MORE if number is None else axis.fill(number, width))
    return "".join(out)


def _strip(axis: _Axis, lead: int = 0) -> str:
    label = f"{axis.name} {axis.extent:,} "
    width = max(1, min(8, (_WIDTH // max(axis.n, 1)) - 1)) if axis.n <= _WIDTH // 2 else 1
    return f"{label:<{lead}}{_row(axis, axis.shown(_WIDTH // (width + 1)), min(width, 4) if axis.n > 1 else 8)}"


def _face(y: _Axis, x: _Axis, lead: int) -> list[str]:
    rows = y.shown(_ROWS)
    # a character is about twice as tall as wide
    wanted = round(2 * x.chunk / y.chunk) if y.n > 1 else 8
    least = 4 if x.n * 5 <= _WIDTH else 2  # wide enough to show how far an edge chunk hangs over
    width = max(least, min(wanted, 12, _WIDTH // min(x.n, 12) - 1))
    columns = x.shown(max(4, _WIDTH // (width + 1)))
    lines: list[str] = []
    label = f"{y.name} {y.extent:,} "
    for i, number in enumerate(rows):
        if i and y.joint(rows[i - 1], number) == "┃":
            lines.append(" " * lead + _rule(x, columns, width))
        text = _row(x, columns, width)
        if number is None:
            text = text.replace(_FULL, " ").replace(_OVER, " ").replace(_MORE, "⋱").replace("┃", "┃")
            text = _MORE + text[1:]
        elif y.extent - number * y.chunk < y.chunk:
            text = text.replace(_FULL, "▀")  # the lower part hangs over
        lines.append(f"{label if not lines else '':<{lead}}{text}".rstrip())
    lines.append(f"{'':<{lead}}{x.name} {x.extent:,}")
    return lines


def _rule(x: _Axis, columns: Sequence[int | None], width: int) -> str:
    out = []
    for i, number in enumerate(columns):
        if i:
            out.append("╋" if x.joint(columns[i - 1], number) == "┃" else "━")
        out.append("━" * (1 if number is None else width))
    return "".join(out)

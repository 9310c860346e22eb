"""Problems of a config, gathered rather than thrown: a user mends all of them in one go.

A :class:`Report` also remembers where every value was written, so that checks between distant keys can point at the
line of the one to change.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

__all__ = ["Problem", "Report", "join"]

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing to mend.

    Parameters
    ----------
    file
        As the caller named it.
    line, column
        Counted from 1.
    where
        Path of the key, ``outputs[1].chunks.lat``; empty for the file as a whole.
    expected, found
        What the key takes, and what is written there (never a credential).
    hint
        The nearest known key, or what to write instead; may be empty.

    Examples
    --------
    >>> str(Problem("a.yaml", 3, 5, "outputs[0].chunk", "a known key", "'chunk'", "did you mean chunks?"))
    "a.yaml:3:5: outputs[0].chunk: expected a known key, found 'chunk'; did you mean chunks?"
    """

    file: str
    line: int
    column: int
    where: str
    expected: str
    found: str
    hint: str = ""

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{self.file}:{self.line}:{self.column}: {where}expected {self.expected}, found {self.found}{hint}"

    def to_json(self) -> dict[str, str | int]:
        """For ``--json``."""
        return {
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "where": self.where,
            "expected": self.expected,
            "found": self.found,
            "hint": self.hint,
        }


@dataclass(slots=True)
class Report:
    """The problems found so far, and the place of every key read so far."""

    file: str
    problems: list[Problem] = field(default_factory=list)
    positions: dict[str, tuple[int, int]] = field(default_factory=dict)

    def mark(self, where: str, line: int, column: int) -> None:
        """Remember where a value is written."""
        self.positions[where] = (line, column)

    def add(self, where: str, expected: str, found: str, hint: str = "", at: tuple[int, int] | None = None) -> None:
        """Note a problem, at ``at`` or at the nearest marked key that holds ``where``."""
        line, column = at or self._nearest(where)
        self.problems.append(Problem(self.file, line, column, where, expected, found, hint))

    def _nearest(self, where: str) -> tuple[int, int]:
        while where and where not in self.positions:
            cut = max(where.rfind("."), where.rfind("["))
            where = where[: max(cut, 0)]
        return self.positions.get(where, (1, 1))

    def sorted(self) -> list[Problem]:
        """All problems in the order of the file, each once."""
        return sorted(set(self.problems))


def join(where: str, key: str | int) -> str:
    """The path of a key below another.

    Examples
    --------
    >>> join(join("outputs", 1), "at"), join("", "name"), join("outputs[0].public", "raw:")
    ('outputs[1].at', 'name', 'outputs[0].public["raw:"]')
    """
    if isinstance(key, int):
        return f"{where}[{key}]"
    if not _PLAIN_KEY.match(key):
        return f'{where}["{key}"]'
    return f"{where}.{key}" if where else key

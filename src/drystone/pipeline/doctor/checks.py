"""What a check is, and what it says. A new one is one more small class in the list of :mod:`drystone.pipeline.doctor.run`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

__all__ = ["Check", "Status", "Verdict", "worst"]

type Status = Literal["ok", "warn", "fail"]
type Fact = str | int | float | bool | None

_ORDER: tuple[Status, ...] = ("ok", "warn", "fail")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found of one thing.

    Parameters
    ----------
    check
        Its name, stable for programs.
    subject
        What was looked at: an address, a folder, ``this machine``.
    status
        ``ok``; ``warn``: works, and is odd; ``fail``: a run would fail or could lose data.
    text
        With numbers, and where it is not ok with the way out.
    facts
        The numbers, for programs.
    """

    check: str
    subject: str
    status: Status
    text: str
    facts: Mapping[str, Fact] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """For ``--json``."""
        return {
            "check": self.check,
            "subject": self.subject,
            "status": self.status,
            "text": self.text,
            "facts": dict(self.facts),
        }


class Check(Protocol):
    """One thing to look at."""

    def writes(self) -> list[str]:
        """What it writes while it looks, one line each; all of it is removed afterwards."""
        ...

    def look(self) -> Iterator[Verdict]:
        """Look; what fails is a verdict and no error."""
        ...


def worst(verdicts: list[Verdict]) -> Status:
    """The worst status there is.

    Examples
    --------
    >>> worst([Verdict("a", "x", "ok", ""), Verdict("b", "x", "warn", "")])
    'warn'
    """
    return max((v.status for v in verdicts), key=_ORDER.index, default="ok")

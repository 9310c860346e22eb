"""How long work tells where it is, without knowing who listens."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Progress", "Silent"]


class Progress(Protocol):
    """A listener: the command line draws bars, the library stays silent."""

    def start(self, stage: str, total: int | None, unit: str) -> None:
        """A stage begins; ``total`` None where it is not known yet."""
        ...

    def advance(self, stage: str, n: int = 1) -> None:
        """Some of it is done."""
        ...

    def note(self, message: str) -> None:
        """A line worth showing between bars."""
        ...

    def finish(self, stage: str) -> None:
        """The stage is over."""
        ...


class Silent:
    """Hears nothing."""

    def start(self, stage: str, total: int | None, unit: str) -> None:
        """Do nothing."""

    def advance(self, stage: str, n: int = 1) -> None:
        """Do nothing."""

    def note(self, message: str) -> None:
        """Do nothing."""

    def finish(self, stage: str) -> None:
        """Do nothing."""

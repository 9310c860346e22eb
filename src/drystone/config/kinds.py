"""Kinds of values: the small algebra that the table of keys (:mod:`drystone.config.keys`) is written in.

A kind reads a node (noting every problem, stopping at none), tells its JSON schema, and describes itself for people. So
validation, the schema for editors and the reference page say the same thing, because they are one thing. Kinds of
containers are in :mod:`drystone.config.sections`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from drystone.config.nodes import Node
from drystone.config.problem import Report
from drystone.model.sizes import SIZE_PATTERN, parse_size

__all__ = [
    "INVALID",
    "Choice",
    "Either",
    "Integer",
    "Invalid",
    "Kind",
    "Parsed",
    "Size",
    "Text",
    "Truth",
    "did_you_mean",
    "nearest",
]

type Schema = dict[str, object]


class Invalid(Enum):
    """The type of :data:`INVALID`."""

    INVALID = "invalid"


INVALID: Final = Invalid.INVALID
"""What reading gives where a problem was noted."""


class Kind(Protocol):
    """One kind of value."""

    @property
    def expected(self) -> str:
        """What it takes, for messages and the reference."""
        ...

    def read(self, node: Node, where: str, report: Report) -> object:
        """The value, or :data:`INVALID` with at least one problem noted."""
        ...

    def schema(self) -> Schema:
        """As JSON schema."""
        ...


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that this one was likely meant to be.

    Examples
    --------
    >>> nearest("chunk", ["chunks", "shards"]), nearest("foo", ["chunks"])
    ('chunks', None)
    """
    folded = {k.lower().replace("-", "_"): k for k in known}
    found = difflib.get_close_matches(word.lower().replace("-", "_"), folded, n=1, cutoff=0.6)
    return folded[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint: the nearest known word, or all of them."""
    words = list(known)
    close = nearest(word, words)
    return f"did you mean {close}?" if close else f"known: {', '.join(words) or 'none'}"


@dataclass(frozen=True, slots=True)
class Text:
    """A text that is not empty.

    Numbers are taken too where ``numbers`` says so (a dimension or variable may be called 500).
    """

    noun: str = "a text"
    pattern: str | None = None
    numbers: bool = False

    @property
    def expected(self) -> str:
        """The noun."""
        return self.noun

    def read(self, node: Node, where: str, report: Report) -> object:
        """The text."""
        value = str(node.scalar) if self.numbers and node.kind == "int" else node.scalar
        if not isinstance(value, str):
            hint = "put it in quotes" if node.kind in ("int", "float", "bool") else ""
            report.add(where, self.noun, node.found(), hint, node.at)
            return INVALID
        if not value.strip() or (self.pattern is not None and not re.match(self.pattern, value)):
            report.add(where, self.noun, node.found() if value.strip() else "an empty text", "", node.at)
            return INVALID
        return value

    def schema(self) -> Schema:
        """A string."""
        limit: Schema = {"minLength": 1} if self.pattern is None else {"pattern": self.pattern}
        schema: Schema = {"type": "string", **limit}
        return {"anyOf": [schema, {"type": "integer"}]} if self.numbers else schema


@dataclass(frozen=True, slots=True)
class Parsed:
    """A text that a function turns into a value.

    ``parse`` gives the value, or a text that says what is wrong, as ``(False, hint)``.
    """

    noun: str
    parse: Callable[[str], tuple[bool, object]]
    pattern: str | None = None

    @property
    def expected(self) -> str:
        """The noun."""
        return self.noun

    def read(self, node: Node, where: str, report: Report) -> object:
        """What ``parse`` makes of it."""
        if not isinstance(node.scalar, str) or not node.scalar.strip():
            report.add(where, self.noun, node.found(), "", node.at)
            return INVALID
        good, value = self.parse(node.scalar)
        if not good:
            report.add(where, self.noun, node.found(), str(value), node.at)
            return INVALID
        return value

    def schema(self) -> Schema:
        """A string."""
        return {"type": "string", "minLength": 1} if self.pattern is None else {"type": "string", "pattern": self.pattern}


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number within bounds."""

    minimum: int | None = None
    maximum: int | None = None

    @property
    def expected(self) -> str:
        """With the bounds."""
        if self.minimum is None:
            return "a whole number"
        if self.minimum == self.maximum:
            return str(self.minimum)
        if self.maximum is None:
            return f"a whole number of at least {self.minimum}"
        return f"a whole number from {self.minimum} to {self.maximum}"

    def read(self, node: Node, where: str, report: Report) -> object:
        """The number."""
        value = node.scalar
        if (
            node.kind != "int"
            or not isinstance(value, int)
            or (self.minimum is not None and value < self.minimum)
            or (self.maximum is not None and value > self.maximum)
        ):
            report.add(where, self.expected, node.found(), "", node.at)
            return INVALID
        return value

    def schema(self) -> Schema:
        """An integer."""
        schema: Schema = {"type": "integer"}
        if self.minimum is not None:
            schema["minimum"] = self.minimum
        if self.maximum is not None:
            schema["maximum"] = self.maximum
        return schema


@dataclass(frozen=True, slots=True)
class Truth:
    """true or false."""

    @property
    def expected(self) -> str:
        """Both words."""
        return "true or false"

    def read(self, node: Node, where: str, report: Report) -> object:
        """The truth value."""
        if node.kind != "bool":
            report.add(where, self.expected, node.found(), "", node.at)
            return INVALID
        return node.scalar

    def schema(self) -> Schema:
        """A boolean."""
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some words; ``later`` ones are known to come but not here yet, ``refused`` ones are told why."""

    words: tuple[str, ...]
    later: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def expected(self) -> str:
        """The words."""
        return " or ".join(self.words) if len(self.words) < 3 else "one of " + ", ".join(self.words)

    def read(self, node: Node, where: str, report: Report) -> object:
        """The word."""
        value = node.scalar
        if isinstance(value, str) and value in self.words:
            return value
        if isinstance(value, str) and value in self.refused:
            report.add(where, self.expected, node.found(), self.refused[value], node.at)
        elif isinstance(value, str) and value in self.later:
            report.add(where, self.expected, node.found(), f"{value} is not yet available in this version of drystone", node.at)
        else:
            close = nearest(value, self.words) if isinstance(value, str) else None
            report.add(where, self.expected, node.found(), f"did you mean {close}?" if close else "", node.at)
        return INVALID

    def schema(self) -> Schema:
        """An enum."""
        return {"enum": list(self.words)}


@dataclass(frozen=True, slots=True)
class Size:
    """A number of bytes; ``as_text`` keeps what was written, for those who read the unit themselves."""

    as_text: bool = False

    @property
    def expected(self) -> str:
        """With examples."""
        return "a size such as 256 kB or 4 GiB"

    def read(self, node: Node, where: str, report: Report) -> object:
        """Bytes, or the text in one form."""
        if isinstance(node.scalar, str):
            size = parse_size(node.scalar)
            if size is not None and size >= 1:
                return " ".join(node.scalar.split()) if self.as_text else size
        hint = "write the unit: 4 GB" if node.kind in ("int", "float") else "units: B, kB, MB, GB, TB, KiB, MiB, GiB, TiB"
        report.add(where, self.expected, node.found(), hint, node.at)
        return INVALID

    def schema(self) -> Schema:
        """A string with a unit."""
        return {"type": "string", "pattern": SIZE_PATTERN}


@dataclass(frozen=True, slots=True)
class Either:
    """The first kind that takes the value; where none does, one problem that names them all.

    ``deep`` says, by kind of node, which alternative it must be meant for: that one's own problems are then told.
    """

    kinds: tuple[Kind, ...]
    deep: tuple[tuple[str, int], ...] = ()

    @property
    def expected(self) -> str:
        """All of them."""
        return (", or " if len(self.kinds) > 2 else " or ").join(k.expected for k in self.kinds)

    def read(self, node: Node, where: str, report: Report) -> object:
        """What the first that fits reads."""
        for kind_name, index in self.deep:
            if node.kind == kind_name:
                return self.kinds[index].read(node, where, report)
        hints: list[str] = []
        for kind in self.kinds:
            trial = Report(report.file)
            value = kind.read(node, where, trial)
            if not trial.problems:
                report.positions.update(trial.positions)
                return value
            hints += [p.hint for p in trial.problems if p.hint and p.hint not in hints]
        # a bare "quote it" beside the alternatives that take numbers would mislead
        report.add(where, self.expected, node.found(), "; ".join(h for h in hints if "quotes" not in h), node.at)
        return INVALID

    def schema(self) -> Schema:
        """Any of them."""
        return {"anyOf": [k.schema() for k in self.kinds]}

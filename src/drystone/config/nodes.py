"""YAML text to a small tree of values that know their line and column.

Safe by construction: nothing but scalars, lists and mappings comes out; tags that build objects, merge keys, keys given
twice and recursive aliases are problems, and so is a file that is larger, deeper or, with its aliases written out, longer
than any config has a reason to be. Scalars follow the YAML 1.2 core schema, as editors do: ``no`` is a text, and
``1e-5`` is a number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import yaml

from drystone.config.addresses import has_credentials
from drystone.config.problem import Report, join

__all__ = ["MAX_BYTES", "MAX_DEPTH", "MAX_NODES", "Entry", "Node", "parse"]

MAX_BYTES = 256 << 10
MAX_DEPTH = 40
MAX_NODES = 20_000
_MAX_DIGITS = 40

type NodeKind = Literal["null", "bool", "int", "float", "text", "list", "mapping"]
type Plain = bool | int | float | str | list[Plain] | dict[str, Plain] | None


@dataclass(frozen=True, slots=True)
class Entry:
    """A key of a mapping and its value."""

    key: str
    line: int
    column: int
    node: Node


@dataclass(frozen=True, slots=True)
class Node:
    """A value with its place.

    ``scalar`` holds the value of a scalar, ``items`` those of a list, ``entries`` those of a mapping; ``kind`` says which.
    """

    kind: NodeKind
    line: int
    column: int
    scalar: bool | int | float | str | None = None
    items: tuple[Node, ...] = ()
    entries: tuple[Entry, ...] = ()

    @property
    def at(self) -> tuple[int, int]:
        """Line and column."""
        return self.line, self.column

    def get(self, key: str) -> Node | None:
        """The value of a key."""
        return next((e.node for e in self.entries if e.key == key), None)

    def found(self) -> str:
        """The value in a few words, for messages."""
        match self.kind:
            case "null":
                return "nothing"
            case "bool":
                return "true" if self.scalar else "false"
            case "list":
                return f"a list of {len(self.items)}"
            case "mapping":
                keys = ", ".join(e.key for e in self.entries[:5])
                return f"a mapping with the keys {_short(keys)}" if keys else "an empty mapping"
            case _:
                hidden = isinstance(self.scalar, str) and has_credentials(self.scalar)
                return "a URL that carries credentials (not shown)" if hidden else _short(repr(self.scalar))

    def plain(self) -> Plain:
        """The value without places."""
        if self.kind == "list":
            return [n.plain() for n in self.items]
        if self.kind == "mapping":
            return {e.key: e.node.plain() for e in self.entries}
        return self.scalar


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


class _CoreLoader(yaml.SafeLoader):  # type: ignore[misc]  # pyyaml has no types
    """The core schema's scalars and no others."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  # pyyaml's own protocol


_TAG = "tag:yaml.org,2002:"
for _name, _pattern, _first in (
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)\Z", "tTfF"),
    ("null", r"(?:~|null|Null|NULL|)\Z", "~nN\0"),
    ("int", r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z", "-+0123456789"),
    ("float", r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z", ""),
):
    # pyyaml looks resolvers up by a scalar's first character ("" stands for the empty scalar)
    _starts = [*"-+.0123456789"] if not _first else ["" if c == "\0" else c for c in _first]
    _CoreLoader.add_implicit_resolver(_TAG + _name, re.compile(_pattern), _starts)


def parse(data: bytes, report: Report) -> Node | None:
    r"""The tree of a YAML file, or None where it does not parse; problems go to the report.

    Examples
    --------
    >>> report = Report("a.yaml")
    >>> node = parse(b"name: no\nsizes: [1, 1e-3]", report)
    >>> node.plain(), node.entries[1].node.items[1].at, report.problems
    ({'name': 'no', 'sizes': [1, 0.001]}, (2, 12), [])
    """
    if len(data) > MAX_BYTES:
        report.add("", f"a config of at most {MAX_BYTES} bytes", f"{len(data)} bytes", "name granules in a list file", (1, 1))
        return None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        report.add("", "UTF-8 text", f"the byte 0x{data[error.start]:02x}", "save the file as UTF-8", (line, column))
        return None
    try:
        if not _shallow(text, report):
            return None
        root = yaml.compose(text, Loader=_CoreLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        context = f" ({error.context})" if error.context else ""
        report.add("", "well-formed YAML", f"{error.problem}{context}", "", at)
        return None
    except yaml.YAMLError as error:
        report.add("", "well-formed YAML", _short(" ".join(str(error).split())), "", (1, 1))
        return None
    if root is None:
        report.add("", "a mapping with name, granules and outputs", "an empty file", "", (1, 1))
        return None
    return _Builder(report).build(root, "")


def _shallow(text: str, report: Report) -> bool:
    """Look at the nesting before composing, which recurses."""
    depth = 0
    for event in yaml.parse(text, Loader=_CoreLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            mark = event.start_mark
            at = (mark.line + 1, mark.column + 1)
            report.add("", f"at most {MAX_DEPTH} levels of nesting", "more", "a bracket may be missing", at)
            return False
    return True


class _TooLong(Exception):
    """The tree with its aliases written out passes the limit."""


class _Builder:
    """pyyaml's nodes to ours, aliases written out within a budget."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.budget = MAX_NODES
        self.open: set[int] = set()

    def build(self, root: yaml.Node, where: str) -> Node | None:  # pyyaml has no types
        try:
            return self._node(root, where)
        except _TooLong:
            self.report.add(
                "", f"at most {MAX_NODES} values, aliases written out", "more", "name granules in a list file", (1, 1)
            )
            return None

    def _node(self, node: yaml.Node, where: str) -> Node:
        self.budget -= 1
        if self.budget < 0:
            raise _TooLong
        line, column = node.start_mark.line + 1, node.start_mark.column + 1
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, where, line, column)
        expected_tag = _TAG + ("seq" if isinstance(node, yaml.SequenceNode) else "map")
        if node.tag != expected_tag:
            self.report.add(where, "plain YAML", f"the tag {_short(node.tag)}", "remove the tag", (line, column))
            return Node("null", line, column)
        if id(node) in self.open:
            self.report.add(where, "a value", "an alias to something that holds it", "", (line, column))
            return Node("null", line, column)
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                items = tuple(self._node(n, join(where, i)) for i, n in enumerate(node.value))
                return Node("list", line, column, items=items)
            return Node("mapping", line, column, entries=self._entries(node, where))
        finally:
            self.open.discard(id(node))

    def _entries(self, node: yaml.Node, where: str) -> tuple[Entry, ...]:
        entries: dict[str, Entry] = {}
        for key_node, value_node in node.value:
            line, column = key_node.start_mark.line + 1, key_node.start_mark.column + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.report.add(where, "a text as key", "a list or mapping", "", (line, column))
                continue
            key = str(key_node.value)
            if key in entries:
                first = entries[key]
                self.report.add(
                    join(where, key), "each key once", f"{key} again", f"the first one is in line {first.line}", (line, column)
                )
                continue
            entries[key] = Entry(key, line, column, self._node(value_node, join(where, key)))
        return tuple(entries.values())

    def _scalar(self, node: yaml.Node, where: str, line: int, column: int) -> Node:
        text, tag = str(node.value), str(node.tag).removeprefix(_TAG)
        if tag == "str":
            return Node("text", line, column, text)
        if tag == "null":
            return Node("null", line, column)
        if tag == "bool":
            return Node("bool", line, column, text.lower() == "true")
        if tag in ("int", "float") and len(text) <= _MAX_DIGITS:
            try:
                if tag == "int":
                    base = {"0o": 8, "0x": 16}.get(text[:2], 10)
                    return Node("int", line, column, int(text, base))
                return Node("float", line, column, float(text.lower().replace(".inf", "inf").replace(".nan", "nan")))
            except ValueError:  # an explicit !!int on something else: said below
                pass
        found = f"{_short(repr(text))} with the tag {_short(tag)}"
        self.report.add(where, "plain YAML", found, "remove the tag", (line, column))
        return Node("null", line, column)

"""Kinds that hold others: lists, mappings with free keys, sections with known keys, and variants of a section.

This is where unknown keys are caught: each gets the nearest known key, a word where it belongs elsewhere, or is not yet
available, and a plain refusal where it looks like a credential, whose value is never repeated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from drystone.config.addresses import CREDENTIAL_HINT
from drystone.config.kinds import INVALID, Kind, Schema, did_you_mean, nearest
from drystone.config.nodes import Entry, Node
from drystone.config.problem import Report, join

__all__ = ["Chosen", "Key", "ListOf", "MapOf", "OneKey", "Section", "Variants", "looks_secret"]

_SECRET = re.compile(r"secret|token|passw|credential|acces+_?key|api_?key|private_?key|account_?key|shared_?key|(^|_)sas(_|$)")


def looks_secret(key: str) -> bool:
    """Whether a key's name says that its value is a credential.

    Examples
    --------
    >>> looks_secret("aws-secret-access-key"), looks_secret("accessKey"), looks_secret("keys")
    (True, True, False)
    """
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).lower().replace("-", "_")
    return _SECRET.search(snake) is not None


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a section.

    Parameters
    ----------
    name, kind
        What it is called and takes.
    doc
        One or two sentences for the reference and the editor.
    default
        As the reference shows it; None: required, or nothing happens without it.
    required
        Whether it must be there.
    """

    name: str
    kind: Kind
    doc: str
    default: str | None = None
    required: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping with known keys, read into a dict of those that were given and are good.

    ``later`` keys are known to come; ``elsewhere`` maps keys that people put here to where they belong.
    """

    noun: str
    keys: tuple[Key, ...]
    later: tuple[str, ...] = ()
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    @property
    def expected(self) -> str:
        """The noun and the keys."""
        return f"{self.noun} (a mapping with {', '.join(k.name for k in self.keys)})" if self.keys else self.noun

    def key(self, name: str) -> Key | None:
        """A key by name."""
        return next((k for k in self.keys if k.name == name), None)

    def read(self, node: Node, where: str, report: Report) -> object:
        """A dict of key to value."""
        if node.kind != "mapping":
            report.add(where, self.expected, node.found(), "", node.at)
            return INVALID
        report.mark(where, node.line, node.column)
        values: dict[str, object] = {}
        for entry in node.entries:
            here = join(where, entry.key)
            key = self.key(entry.key)
            if key is None:
                self._unknown(entry, here, report)
                continue
            report.mark(here, entry.node.line, entry.node.column)
            values[key.name] = key.kind.read(entry.node, here, report)
        self._missing(node, where, report, values)
        return values

    def _missing(self, node: Node, where: str, report: Report, values: dict[str, object]) -> None:
        known = [k.name for k in self.keys]
        misspelt = {nearest(e.key, known) for e in node.entries if self.key(e.key) is None}
        for key in self.keys:
            if key.required and node.get(key.name) is None:
                values[key.name] = INVALID
                if key.name not in misspelt:  # the misspelt key was told already
                    report.add(join(where, key.name), key.kind.expected, "nothing", f"add the key {key.name}", node.at)

    def _unknown(self, entry: Entry, here: str, report: Report) -> None:
        at = (entry.line, entry.column)
        if entry.key in self.later:
            hint = "it is not yet available in this version of drystone"
            report.add(here, f"a key of this version in {self.noun}", entry.key, hint, at)
        elif looks_secret(entry.key):
            report.add(here, "no credential", f"{entry.key} (its value is not shown)", CREDENTIAL_HINT, at)
        elif entry.key in self.elsewhere:
            report.add(here, f"a key of {self.noun}", entry.key, self.elsewhere[entry.key], at)
        elif entry.key == "<<":
            report.add(here, f"a key of {self.noun}", "a merge key", "write the keys out, or alias the whole value", at)
        else:
            report.add(
                here,
                f"a key of {self.noun}",
                entry.key or "an empty one",
                did_you_mean(entry.key, [k.name for k in self.keys]),
                at,
            )

    def schema(self) -> Schema:
        """An object that takes no other keys."""
        properties: dict[str, object] = {}
        for k in self.keys:
            default = "" if k.default is None else f" Default: {k.default}."
            properties[k.name] = {**k.kind.schema(), "description": k.doc + default}
        schema: Schema = {"type": "object", "additionalProperties": False, "properties": properties}
        required = [k.name for k in self.keys if k.required]
        return {**schema, "required": required} if required else schema


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of at least one, read into a tuple of the good ones; INVALID stays in its place."""

    noun: str
    item: Kind

    @property
    def expected(self) -> str:
        """The noun."""
        return self.noun

    def read(self, node: Node, where: str, report: Report) -> object:
        """A tuple."""
        if node.kind != "list" or not node.items:
            report.add(where, self.noun, node.found() if node.kind != "list" else "an empty list", "", node.at)
            return INVALID
        out = []
        for i, item in enumerate(node.items):
            here = join(where, i)
            report.mark(here, item.line, item.column)
            out.append(self.item.read(item, here, report))
        return tuple(out)

    def schema(self) -> Schema:
        """An array."""
        return {"type": "array", "minItems": 1, "items": self.item.schema()}


@dataclass(frozen=True, slots=True)
class MapOf:
    """A mapping whose keys the user names; ``special`` keys have kinds of their own."""

    noun: str
    value: Kind
    key_noun: str
    key_pattern: str = r"^\S(.*\S)?$"
    special: Mapping[str, Kind] = field(default_factory=dict)

    @property
    def expected(self) -> str:
        """The noun."""
        return self.noun

    def read(self, node: Node, where: str, report: Report) -> object:
        """A dict."""
        if node.kind != "mapping" or not node.entries:
            report.add(where, self.noun, node.found(), "", node.at)
            return INVALID
        report.mark(where, node.line, node.column)
        values: dict[str, object] = {}
        for entry in node.entries:
            here = join(where, entry.key)
            report.mark(here, entry.node.line, entry.node.column)
            if entry.key not in self.special and not re.match(self.key_pattern, entry.key):
                report.add(here, self.key_noun, repr(entry.key), "", (entry.line, entry.column))
                continue
            values[entry.key] = self.special.get(entry.key, self.value).read(entry.node, here, report)
        return values

    def schema(self) -> Schema:
        """An object with free keys."""
        pattern = self.key_pattern
        within = [re.escape(k) for k in self.special if re.match(pattern, k)]
        if within:  # a special key that also fits the pattern would have to satisfy both
            pattern = f"^(?!(?:{'|'.join(within)})$){pattern.removeprefix('^')}"
        schema: Schema = {
            "type": "object",
            "minProperties": 1,
            "patternProperties": {pattern: self.value.schema()},
            "additionalProperties": False,
        }
        if self.special:
            schema["properties"] = {k: v.schema() for k, v in self.special.items()}
        return schema


@dataclass(frozen=True, slots=True)
class Chosen:
    """The key that told which section it is, and that section's values (INVALID where they are no mapping)."""

    key: str
    values: object


@dataclass(frozen=True, slots=True)
class OneKey:
    """A mapping with exactly one key, whose value's kind depends on it; read into :class:`Chosen`.

    A bare word stands for the key with nothing said, where ``words`` allows.
    """

    noun: str
    options: Mapping[str, Section]
    later: tuple[str, ...] = ()
    words: bool = True

    @property
    def expected(self) -> str:
        """The noun and the keys."""
        return f"{self.noun} ({', '.join(self.options)})"

    def read(self, node: Node, where: str, report: Report) -> object:
        """What was chosen."""
        if self.words and isinstance(node.scalar, str):
            name, at, value = node.scalar, node.at, Node("mapping", node.line, node.column)
        elif node.kind == "mapping" and len(node.entries) == 1:
            entry = node.entries[0]
            name, at, value = entry.key, (entry.line, entry.column), entry.node
        else:
            report.add(where, self.expected, node.found(), "one name with its parameters: {zstd: {level: 3}}", node.at)
            return INVALID
        if name not in self.options:
            hint = (
                f"{name} is not yet available in this version of drystone"
                if name in self.later
                else did_you_mean(name, self.options)
            )
            report.add(where, self.expected, name, hint, at)
            return INVALID
        return Chosen(name, self.options[name].read(value, join(where, name), report))

    def schema(self) -> Schema:
        """Any of the options."""
        options: list[object] = [
            {"type": "object", "additionalProperties": False, "required": [k], "properties": {k: s.schema()}}
            for k, s in self.options.items()
        ]
        return {"anyOf": [{"enum": list(self.options)}, *options] if self.words else options}


@dataclass(frozen=True, slots=True)
class Variants:
    """Sections told apart by a key that only one of them has; read into :class:`Chosen`."""

    noun: str
    options: Mapping[str, Section]
    later: tuple[str, ...] = ()

    @property
    def expected(self) -> str:
        """The noun and the telling keys."""
        return f"{self.noun}, told by the key {' or '.join(self.options)}"

    def read(self, node: Node, where: str, report: Report) -> object:
        """What was chosen."""
        if node.kind != "mapping":
            report.add(where, self.expected, node.found(), "", node.at)
            return INVALID
        told = [e for e in node.entries if e.key in self.options]
        if len(told) == 1:
            return Chosen(told[0].key, self.options[told[0].key].read(node, where, report))
        coming = next((e for e in node.entries if e.key in self.later), None)
        if len(told) > 1:
            found = " and ".join(e.key for e in told)
            report.add(where, self.expected, found, "make two of it", (told[1].line, told[1].column))
        elif coming is not None:
            hint = f"{coming.key} is not yet available in this version of drystone"
            report.add(where, self.expected, coming.key, hint, (coming.line, coming.column))
        else:
            hint = did_you_mean(node.entries[0].key, self.options) if node.entries else ""
            report.add(where, self.expected, node.found(), hint, node.at)
        return INVALID

    def schema(self) -> Schema:
        """One of the sections."""
        return {"oneOf": [s.schema() for s in self.options.values()]}

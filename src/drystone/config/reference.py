"""The reference page of the config's keys, made from the table of keys.

``python -m drystone.config.reference`` writes it; ``docs/reference/config.md`` is that text, and a test says when it is
out of date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from drystone.config.examples import EXAMPLES
from drystone.config.keys import ROOT
from drystone.config.kinds import Either, Kind
from drystone.config.sections import ListOf, MapOf, OneKey, Section, Variants

__all__ = ["reference"]

_HEAD = """# The config, key by key

Made from `drystone.config.keys` by `python -m drystone.config.reference`; edit the table there, not this page.

One YAML file says where an archive's granules are, how they combine and what to publish. `drystone check FILE` tells all
problems of one at once, with line, column, what was expected and the nearest known key; unknown keys are errors.
`configs/drystone.schema.json` completes keys in an editor: put this line first,

```yaml
# yaml-language-server: $schema=drystone.schema.json
```

The shortest useful config:

```yaml title="sst.yaml"
name: sst
granules: "raw/*.nc"
outputs:
  - virtual: icechunk
    at: sst.icechunk
```
```bash
drystone check sst.yaml
```

**Addresses** are written `place:relative/path`, where `place` is named in `storage`. A bare path starts at the config's own
folder (the implicit place `here`). Absolute paths, URLs and `..` are refused where an address is meant: name a place, so
that an archive that moves needs one line changed. The place `work` holds the table, the runs and their receipts.

**Credentials** never go into a config. They come from the environment or the usual profile files.

**Scalars** follow YAML 1.2: `no`, `on` and `y` are texts, `1e-5` is a number. Sizes carry their unit (`256 kB` is 256,000
bytes, `256 KiB` is 262,144), shares their percent sign.
"""


def _below(kind: Kind, path: str) -> Iterator[tuple[str, Section]]:
    """Sections inside a kind, each with the path that leads there."""
    if isinstance(kind, Section):
        yield path, kind
        for key in kind.keys:
            yield from _below(key.kind, f"{path}.{key.name}" if path else key.name)
    elif isinstance(kind, Either):
        for k in kind.kinds:
            yield from _below(k, path)
    elif isinstance(kind, ListOf):
        yield from _below(kind.item, f"{path}[]" if not path.endswith("[]") else path)
    elif isinstance(kind, MapOf):
        yield from _below(kind.value, f"{path}.<{kind.key_noun.split(' (')[0]}>")
    elif isinstance(kind, Variants):
        for name, section in kind.options.items():
            yield from _below(section, f"{path} with {name}")
    elif isinstance(kind, OneKey):
        for name, section in kind.options.items():
            yield from _below(section, f"{path}.{name}")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _table(section: Section) -> list[str]:
    lines = ["| key | takes | default | meaning |", "|---|---|---|---|"]
    for k in section.keys:
        default = "required" if k.required else (k.default or "")
        takes = k.kind.noun if isinstance(k.kind, Section) else k.kind.expected
        lines.append(f"| `{k.name}` | {_cell(takes)} | {_cell(default)} | {_cell(k.doc)} |")
    return lines


def reference() -> str:
    """The page."""
    lines = [_HEAD]
    seen: set[int] = set()
    for path, section in _below(ROOT, ""):
        if not section.keys or id(section) in seen:
            continue
        seen.add(id(section))
        lines += [f"## `{path}`" if path else "## Top level", "", *_table(section), ""]
        if path in EXAMPLES:
            lines += [EXAMPLES[path]]
        if section.later:
            lines += ["Not yet available: " + ", ".join(f"`{w}`" for w in section.later) + ".", ""]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    sys.stdout.write(reference())

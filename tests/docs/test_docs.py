"""Every fenced block in the documentation runs, and every link leads somewhere.

Each file runs in one temporary folder, top to bottom:

- ```` ```python ```` is executed; blocks of one file share their names. A block that starts with ``>>>`` is a doctest.
- ```` ```bash ```` is a shell script that must succeed.
- ```` ```console ```` has commands after ``$ ``; the lines below a command must be what it prints, ``...`` being anything.
- A block of any language with ``title="name"`` is written to that file.

A block is left out only with a reason, in a comment on the line before it: ``<!-- not run: why -->``.
"""

from __future__ import annotations

import argparse
import ast
import doctest
import os
import re
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("benchmarks", "demo", "pipelines", "slurm")
FILES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(p for f in FOLDERS for p in ROOT.glob(f"{f}/*.md"))])
FENCE = re.compile(
    r"(?:^[ ]*<!-- not run: (?P<reason>.*?) -->\n\n?)?"
    r"^(?P<indent>[ ]*)```(?P<language>\w*)(?P<options>[^\n]*)\n(?P<body>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
TIMEOUT = 240


@dataclass(frozen=True)
class Block:
    language: str
    options: str
    body: str
    line: int
    reason: str | None

    @property
    def title(self) -> str | None:
        match = re.search(r'title="([^"]+)"', self.options)
        return match.group(1) if match else None


def blocks(path: Path) -> list[Block]:
    text = path.read_text()
    out = []
    for m in FENCE.finditer(text):
        indent = len(m["indent"])
        body = "".join(line[indent:] for line in m["body"].splitlines(keepends=True))
        out.append(Block(m["language"], m["options"], body, text.count("\n", 0, m.start("body")), m["reason"]))
    return out


def shell(script: str, where: str) -> str:
    env = {
        **os.environ,
        "PATH": f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "120",
        "NO_COLOR": "1",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{where}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def console(body: str, where: str) -> None:
    """Run each ``$ command`` (continued by ``> ``) and compare what it prints with the lines below it."""
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        n = 1
        while n < len(lines) and lines[n].startswith("> "):
            n += 1
        command = "\n".join([lines[0], *(line[2:] for line in lines[1:n])])
        expected = "\n".join(lines[n:]).strip()
        printed = shell(command + " 2>&1", where)
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        if expected:
            same = doctest.OutputChecker().check_output(expected + "\n", printed.strip() + "\n", flags)
            assert same, f"{where}: $ {command}\nexpected:\n{expected}\nprinted:\n{printed}"


def python(body: str, names: dict[str, object], where: str, line: int) -> None:
    if body.lstrip().startswith(">>>"):
        test = doctest.DocTestParser().get_doctest(body, names, where, where, line)
        report: list[str] = []
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        runner = doctest.DocTestRunner(optionflags=flags)
        runner.run(test, out=report.append, clear_globs=False)
        names.update(test.globs)
        assert runner.failures == 0, "\n".join(report)
    else:
        # the padding makes a traceback name the line of the file
        exec(compile("\n" * line + body, where, "exec", dont_inherit=True), names)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_blocks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names: dict[str, object] = {"__name__": "__docs__"}
    for block in blocks(path):
        where = f"{path.relative_to(ROOT)}:{block.line}"
        if block.reason is not None:
            assert len(block.reason) > 10, f"{where}: a block that is not run says why"
        elif block.title:
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(block.body)
        elif block.language == "python":
            python(block.body, names, str(path.relative_to(ROOT)), block.line)
        elif block.language in ("bash", "sh"):
            shell(block.body, where)
        elif block.language == "console":
            console(block.body, where)
        else:
            assert block.language, f"{where}: a block names its language (text where it is none)"


def anchors(path: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower().replace("`", "")).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), f"{path.relative_to(ROOT)}: {target} leads nowhere"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), f"{path.relative_to(ROOT)}: {target}: no such heading"


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / t.partition("#")[0]).resolve() for t in re.findall(r"\]\(([^)\s]+)\)", index.read_text())}
    missing = [str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md") if p != index and p not in linked]
    assert not missing, f"not linked from docs/index.md: {missing}"


def test_reference_lists_every_error_kind() -> None:
    from drystone import errors

    page = (ROOT / "docs" / "reference" / "errors.md").read_text().partition("## Finer kinds")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| `([\w-]+)` \|", page, re.MULTILINE))
    found = {n: getattr(errors, n) for n in errors.__all__ if issubclass(getattr(errors, n), errors.DrystoneError)}
    assert rows == {name: cls.default_kind for name, cls in found.items()}


def raised_kinds() -> dict[str, set[str]]:
    """Class of an error to the kinds that the source gives it in words."""
    from drystone import errors

    found: dict[str, set[str]] = {}
    for path in (ROOT / "src").rglob("*.py"):
        for call in (n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)):
            name = call.func.id if isinstance(call.func, ast.Name) else ""
            if name not in errors.__all__:
                continue
            for given in (k.value for k in call.keywords if k.arg == "kind"):
                both = (given.body, given.orelse) if isinstance(given, ast.IfExp) else (given,)
                found.setdefault(name, set()).update(str(c.value) for c in both if isinstance(c, ast.Constant))
    return found


def test_reference_lists_every_finer_kind() -> None:
    from drystone import errors

    page = (ROOT / "docs" / "reference" / "errors.md").read_text().partition("## Finer kinds")[2]
    rows = {c: set(re.findall(r"`([\w-]+)`", k)) for c, k in re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE)}
    for name, kinds in raised_kinds().items():
        missing = kinds - rows.get(name, set()) - {getattr(errors, name).default_kind}
        assert not missing, f"docs/reference/errors.md, finer kinds of {name}: add {sorted(missing)}"
    source = "".join(p.read_text() for p in (ROOT / "src").rglob("*.py"))
    computed = {"unknown-emitter", "unknown-lister", "unknown-scanner"}
    stale = {k for kinds in rows.values() for k in kinds if f'"{k}"' not in source} - computed
    assert not stale, f"docs/reference/errors.md names kinds that nothing raises: {sorted(stale)}"


def test_reference_lists_every_verb_and_option() -> None:
    from drystone.cli.parser import build_parser

    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    verbs = next(a.choices for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    assert re.findall(r"^## `drystone (\w+)", page, re.MULTILINE) == list(verbs)
    options = {o for verb in verbs.values() for action in verb._actions for o in action.option_strings}
    documented = set(re.findall(r"(?<=`)--?[a-z][\w-]*", page))
    assert documented - {"--version"} == options


def test_reference_lists_every_column() -> None:
    from drystone.table.schema import SCHEMAS

    page = (ROOT / "docs" / "reference" / "table.md").read_text()
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert set(sections) == set(SCHEMAS)
    for name, schema in SCHEMAS.items():
        named = set(re.findall(r"`(\w+)`", sections[name]))
        dims = {f"dim_{i}" for i in range(8)}
        missing = set(schema.names) - named - (dims if {"dim_0", "dim_7"} <= named else set())
        assert not missing, f"docs/reference/table.md, {name}: {missing}"
        typed = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", sections[name], re.MULTILINE))
        wrong = {c: t for c, t in typed.items() if c in schema.names and str(schema.field(c).type) != t}
        assert not wrong, f"docs/reference/table.md, {name}: {wrong}"


def test_reference_lists_every_state() -> None:
    from drystone.model.chunk_rows import State

    page = (ROOT / "docs" / "reference" / "table.md").read_text()
    assert all(f"{s.value} {s.name.lower()}" in page for s in State)

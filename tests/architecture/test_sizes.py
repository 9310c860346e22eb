"""Modules and functions stay small enough to be read at one sitting."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "src" / "drystone").rglob("*.py"))
MODULE_LINES = 400
FUNCTION_LINES = 60


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from ``def`` to the end, without the docstring: an example in it must never be cut to please this test."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def test_there_is_something_to_measure() -> None:
    assert len(MODULES) > 20


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT / "src")))
def test_module_and_function_sizes(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= MODULE_LINES, f"{path} has {text.count(chr(10))} lines, the cap is {MODULE_LINES}: split it"
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = {f"{n.name} (line {n.lineno})": body_lines(n) for n in functions if body_lines(n) > FUNCTION_LINES}
    assert not long, f"functions over {FUNCTION_LINES} lines: {long}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT / "src")))
def test_every_module_says_what_it_is(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), f"{path} has no module docstring"
    if path.name == "__init__.py" and path.parent.name != "drystone" and path.parent.parent.name == "drystone":
        imports = [
            n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom) and getattr(n, "module", "") != "__future__"
        ]
        assert not imports, f"{path} imports: packages of a layer stay empty, so that importing one part loads no other"

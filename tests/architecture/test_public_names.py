"""What users and plugins may rely on, pinned: a change here is a change of the public interface and goes in the changelog."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import pytest

import drystone
from drystone import errors, protocols

SRC = Path(__file__).parents[2] / "src" / "drystone"

ERROR_KINDS = {
    "DrystoneError": (5, "error"),
    "ConfigError": (2, "config"),
    "ConsentNeeded": (2, "consent-needed"),
    "GranuleError": (5, "granule"),
    "ScanError": (5, "scan"),
    "GranuleChanged": (5, "granule-changed"),
    "GranuleMissing": (5, "granule-missing"),
    "CombineError": (5, "combine"),
    "UnsupportedError": (5, "unsupported"),
    "PlanError": (5, "plan"),
    "DecodeError": (5, "decode"),
    "TableError": (5, "table"),
    "Stopped": (75, "stopped"),
    "StorageError": (4, "storage"),
    "LeaseError": (3, "lease-held"),
    "IncompleteRun": (4, "incomplete"),
    "VerifyError": (5, "verify"),
    "MissingExtra": (2, "missing-extra"),
}

SEAMS = {
    "Emitter": {"problems", "emit"},
    "Lister": {"list"},
    "ReferenceView": {
        "combined",
        "encoded",
        "granule",
        "granule_ids",
        "public_parts",
        "public_roots",
        "public_url",
        "recheck",
        "references",
        "stamp",
        "values",
    },
    "RowSource": {"rows", "granule"},
    "Scanner": {"sniff", "scan"},
}

STORE = {"url", "root", "get", "get_range", "get_ranges", "put", "create", "stat", "exists", "list", "delete"}


def test_root_names() -> None:
    options = {"AxisOptions", "DifferenceOptions", "Selection"}
    assert set(drystone.__all__) == {"__version__", "open", "plan", "run", "scan"} | options
    assert all(callable(getattr(drystone, name)) for name in drystone.__all__ if name != "__version__")


def test_errors_their_kinds_and_exit_codes() -> None:
    found = {name: getattr(errors, name) for name in errors.__all__ if not issubclass(getattr(errors, name), Warning)}
    assert set(errors.__all__) - set(found) == {"LeftOut"}
    assert {name: (cls.exit_code, cls.default_kind) for name, cls in found.items()} == ERROR_KINDS
    assert all(issubclass(cls, errors.DrystoneError) for cls in found.values())
    everything = {cls.__name__ for cls in _subclasses(errors.DrystoneError)}
    assert everything <= set(ERROR_KINDS), "an error class outside drystone.errors"


def _subclasses(cls: type) -> list[type]:
    return [
        s for direct in cls.__subclasses__() if direct.__module__.startswith("drystone") for s in [direct, *_subclasses(direct)]
    ]


@pytest.mark.parametrize("name", sorted(ERROR_KINDS))
def test_errors_cross_process_borders_whole(name: str) -> None:
    error = getattr(errors, name)("what, where, why", kind="own-kind", granule="a.nc", count=3)
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), back.kind, back.facts) == (
        type(error),
        "what, where, why",
        "own-kind",
        {"granule": "a.nc", "count": 3},
    )


def members(cls: ast.ClassDef) -> set[str]:
    return {n.name for n in cls.body if isinstance(n, ast.FunctionDef)}


def classes(module: str) -> dict[str, ast.ClassDef]:
    tree = ast.parse((SRC / module).read_text())
    return {n.name: n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)}


def test_protocols() -> None:
    found = classes("protocols.py")
    assert {name: members(found[name]) for name in SEAMS} == SEAMS
    assert set(protocols.__all__) == set(SEAMS) | {"PublicRoot", "ScanOptions", "Source"}
    assert members(classes("storage/store.py")["Store"]) == STORE


@pytest.mark.parametrize(
    "module", ["protocols.py", "storage/store.py", "model/chunk_rows.py", "model/task.py", "model/placement.py"]
)
def test_no_any_at_the_seams(module: str) -> None:
    names = {n.id for n in ast.walk(ast.parse((SRC / module).read_text())) if isinstance(n, ast.Name)}
    assert "Any" not in names, f"{module} says Any: a seam names its types"


def test_names_listed_in_all_exist() -> None:
    """What ``__all__`` lists is there."""
    for path in SRC.rglob("*.py"):
        if path.name == "__init__.py":
            continue
        tree = ast.parse(path.read_text())
        listed = [
            ast.literal_eval(n.value)
            for n in tree.body
            if isinstance(n, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in n.targets)
        ]
        assert len(listed) <= 1, path
        defined = {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)}
        for n in ast.walk(tree):
            if isinstance(n, ast.Assign):
                defined |= {name.id for t in n.targets for name in ast.walk(t) if isinstance(name, ast.Name)}
            elif isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name):
                defined.add(n.target.id)
            elif isinstance(n, ast.TypeAlias):
                defined.add(n.name.id)
            elif isinstance(n, ast.ImportFrom):
                defined |= {a.asname or a.name for a in n.names}
        assert set(listed[0] if listed else ()) <= defined, f"{path}: __all__ names what is not there"

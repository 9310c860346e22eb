"""What the repository's files say: no machine's paths, no registry's host, a reason for each dependency, pins for all."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYPROJECT = (ROOT / "pyproject.toml").read_text()

# written in pieces, so that this file does not name what it forbids
FORBIDDEN = [
    "py" + r"pi\.org",
    "python" + r"hosted\.org",
    "npm" + r"js\.(org|com)",
    "deb" + r"ian\.org",
    r"proxy\.go" + r"lang",
    r"--(extra-)?index" + "-url",
    "/opt/" + "pypi",
    r"/work" + r"/(shared|main|venv|realdata|\.library|\.mirror)\b",
    r"(^|[\s\"'=(])/(root|ho" + r"me)/\w",
]
OPAQUE = {".nc", ".npz", ".npy", ".h5", ".hdf5", ".png", ".parquet", ".zip"}


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("this is no git clone: what is tracked cannot be told from what lies about")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_no_machine_and_no_registry_is_named() -> None:
    files = [p for p in tracked() if p.suffix not in OPAQUE and p.name != "LICENSE"]
    assert len(files) > 50
    pattern = re.compile("|".join(f"(?:{f})" for f in FORBIDDEN), re.MULTILINE)
    found = [
        f"{p.relative_to(ROOT)}: {m.group(0).strip()!r}" for p in files for m in pattern.finditer(p.read_text(errors="replace"))
    ]
    assert not found, "\n".join(found)


def test_no_large_file_is_tracked() -> None:
    large = {str(p.relative_to(ROOT)): p.stat().st_size for p in tracked() if p.stat().st_size > 1_000_000}
    assert not large, f"files over 1 MB: {large}"


def dependency_lines() -> list[str]:
    names = "dependencies|codecs|verify|demo|test|lint|bench"
    lists = re.findall(rf"^(?:{names}) = \[\n(.*?)^\]", PYPROJECT, re.MULTILINE | re.DOTALL)
    return [line for block in lists for line in block.splitlines() if line.strip()]


def test_every_dependency_says_why() -> None:
    lines = dependency_lines()
    project = tomllib.loads(PYPROJECT)["project"]
    assert len(lines) == len(project["dependencies"]) + sum(len(v) for v in project["optional-dependencies"].values())
    assert not [line for line in lines if not re.search(r'",\s+# \w.{8,}', line)]


def test_every_dependency_is_pinned() -> None:
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", pin) for pin in pins), "names and exact versions only"
    pinned = {normal(pin.split("==")[0]) for pin in pins}
    wanted = {normal(re.match(r'\s*"([A-Za-z0-9._-]+)', line).group(1)) for line in dependency_lines()}  # type: ignore[union-attr]
    assert wanted - {"drystone"} <= pinned, f"not pinned: {wanted - pinned}; run 'make constraints'"


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_lint_ignore_says_why() -> None:
    source = "\n".join(p.read_text() for p in (ROOT / "src").rglob("*.py"))
    bare = [
        m.group(0)
        for m in re.finditer(r"# noqa.*", source)
        if not re.search(r"# noqa: [A-Z]+\d+(, ?[A-Z]+\d+)*\s+\S.{5,}", m.group(0))
    ]
    assert not bare, f"write '# noqa: CODE - why': {bare}"


def test_entry_points_exist() -> None:
    from drystone import registry

    for kind in ("scanners", "listers", "emitters"):
        for name in registry.names(kind):
            registry.load(kind, name)

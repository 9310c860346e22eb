"""Short runs load no library that they have no use for: each takes longer to import than a hundred files to scan."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from e2e import archives

HEAVY = ("pandas", "xarray", "dask", "distributed", "fsspec", "obstore", "netCDF4", "kerchunk")
PROGRAM = """\
import json, sys
from drystone.cli.main import main
code = main(sys.argv[1:])
print(json.dumps([code, sorted(m for m in sys.modules if "." not in m)]), file=sys.stderr)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    archives.write_archive(tmp_path, (3, 3))
    config = archives.write_config(tmp_path, archives.KERCHUNK + archives.STORE, more="execution: {cluster: inline}")
    config.write_text(config.read_text().replace("verify: {values: full}", "verify: {values: none}"))
    return tmp_path


def loaded(folder: Path, verb: str) -> set[str]:
    """Which of the heavy libraries a verb loads, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, verb, "little.yaml"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    code, modules = json.loads(done.stderr.strip().splitlines()[-1])
    assert code == 0, done.stderr
    return set(HEAVY) & set(modules)


def test_scan_and_plan_load_nothing_heavy(folder: Path) -> None:
    for verb in ("scan", "plan"):
        assert loaded(folder, verb) == set(), verb


def test_run_and_a_run_that_finds_nothing_to_do_load_nothing_heavy(folder: Path) -> None:
    assert loaded(folder, "run") == set()
    assert loaded(folder, "run") == set()

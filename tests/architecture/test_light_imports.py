"""``import drystone`` and ``drystone --help`` cost nothing: no heavy library is loaded by either."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = [
    "dask",
    "deltalake",
    "distributed",
    "fsspec",
    "h5py",
    "icechunk",
    "numcodecs",
    "numpy",
    "obstore",
    "pandas",
    "pyarrow",
    "xarray",
    "zarr",
]
REPORT = "import json, sys; print('LOADED', json.dumps(sorted(m for m in sys.modules)))"


def loaded(program: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("LOADED "))
    return set(json.loads(line.removeprefix("LOADED ")))


def test_the_probe_sees_what_is_loaded() -> None:
    assert "numpy" in loaded(f"import numpy; {REPORT}")


@pytest.mark.parametrize(
    "program",
    [
        "import drystone, drystone.errors, drystone.registry",
        "import contextlib, drystone.cli.main as c\nwith contextlib.suppress(SystemExit): c.main(['--help'])\n",
        "import contextlib, drystone.cli.main as c\nwith contextlib.suppress(SystemExit): c.main(['run', '--help'])\n",
    ],
    ids=["import", "help", "run-help"],
)
def test_nothing_heavy_is_loaded(program: str) -> None:
    found = loaded(f"{program}\n{REPORT}")
    assert not found.intersection(HEAVY), f"loaded: {sorted(found.intersection(HEAVY))}"

"""The planned bytes of a task are an upper bound of what it takes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

CHILD = """
    import sys
    from pathlib import Path
    import numpy as np
    from services.rechunk_run import prepare_run, write_granules
    from drystone.model.options import OutputOptions
    from drystone.rechunk.kernel import peak_rss

    def resident():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * 4096

    folder, kind = Path(sys.argv[1]), sys.argv[2]
    rng = np.random.default_rng(0)
    small = np.zeros((4, 8, 8), "i2")
    write_granules(folder / "warm" / "raw", small, [4], (4, 8, 8))
    prepare_run(folder / "warm" / "raw", folder / "warm" / "out", OutputOptions("store", "zarr", "out:s"), 10**8).run_all()

    shape = (48, 500, 800) if kind != "few large chunks" else (8, 1500, 1600)
    values = rng.integers(0, 2**16, shape, np.uint16)
    if kind == "compressible":
        values[:] = np.arange(shape[2], dtype="u2") // 16
    chunk = (1, 50, 40) if kind == "many small chunks" else (1 if kind != "few large chunks" else 8, *shape[1:])
    write_granules(folder / "raw", values, [shape[0] // 2] * 2, chunk)
    del values
    shards = {"d0": "all", "d1": 250, "d2": 400} if kind != "few large chunks" else {"*": "none"}
    out = OutputOptions("store", "zarr", "out:s", chunks={"d0": "all", "d1": 50, "d2": 100}, shards=shards)
    run = prepare_run(folder / "raw", folder / "out", out, 10**9)
    before = resident()
    receipts = run.run_all()
    print(max(r.peak_rss for r in receipts) - before, run.plan.memory)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("kind", ["incompressible", "compressible", "many small chunks", "few large chunks"])
def test_prediction_is_an_upper_bound(tmp_path: Path, kind: str) -> None:
    script = tmp_path / "child.py"
    script.write_text(textwrap.dedent(CHILD))
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), kind],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    taken, planned = map(int, done.stdout.split())
    assert taken > 20_000_000  # the measure sees the slab
    assert taken <= planned
    assert planned < 6 * taken + 60_000_000  # and the bound is not so loose as to be useless

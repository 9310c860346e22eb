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


RECODING = """
    import dataclasses, sys
    from fractions import Fraction
    import numpy as np
    from unit.fetch.archive import Archive, combined, spec
    from drystone.model.options import OutputOptions
    from drystone.model.recode import Recode
    from drystone.plan.chunking import target_layout
    from drystone.plan.memory import MemoryModel
    from drystone.rechunk.kernel import peak_rss

    def resident():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * 4096

    kind, f8, i8 = sys.argv[2], np.dtype("f8"), np.dtype("i8")
    gone = {"missing": (np.int32(70).tobytes(),), "missing_as": np.float64("nan").tobytes()}
    whole = {**gone, "missing_as": np.int64(-9).tobytes()}
    unpacked, nan = Recode(f8, **gone, scale=Fraction(1, 100), offset=Fraction(3)), (np.float64("nan").tobytes(),)
    packed = Recode(np.dtype("i4"), False, nan, np.int32(-1).tobytes(), Fraction(1, 7), near=True)
    recode = {
        "unpacked": unpacked,
        "unpacked and packed anew": dataclasses.replace(unpacked, then=packed),
        "unpacked to single": dataclasses.replace(unpacked, then=Recode(np.dtype("f4"), near=True)),
        "widened": Recode(f8, **gone),
        "days to hours": Recode(i8, **whole, scale=Fraction(24), offset=Fraction(1)),
        "too large for 64 bits": Recode(i8, **whole, scale=Fraction(1, 10), offset=Fraction(10**18)),
    }[kind]
    archive, one = Archive(sys.argv[1]), spec((1, 1000, 1000), (1, 1000, 1000), "<i4")
    for g in range(3):
        archive.add(g, one, np.random.default_rng(g).integers(0, 10**6, one.shape, np.int32) * 10)
    array = combined([one], [(g, 0, 1, g, 0) for g in range(3)], (3, 1000, 1000))
    array = dataclasses.replace(array, dtype=recode.result.dtype, stored_dtype=recode.result.dtype, recodes=(recode,))
    fetcher = archive.fetcher(threads=2, bytes_in_flight=16_000_000)
    layout = target_layout(array, OutputOptions("store", "zarr", "out:x"))
    model = MemoryModel.of(array, layout, threads=2, in_flight=16_000_000)
    before = resident()
    fetcher.read_box(array, (0, 0, 0), array.shape)
    print(peak_rss() - before, model.peak(3_000_000))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    "kind", ["unpacked", "widened", "days to hours", "too large for 64 bits", "unpacked and packed anew", "unpacked to single"]
)
def test_prediction_holds_for_recoded_numbers(tmp_path: Path, kind: str) -> None:
    script = tmp_path / "child.py"
    script.write_text(textwrap.dedent(RECODING))
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), kind],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    taken, planned = map(int, done.stdout.split())
    assert 30_000_000 < taken < planned

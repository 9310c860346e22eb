"""Stores in Icechunk beside the same in plain Zarr, and what many tasks cost the driver.

*rechunk*, *copy*: ``drystone.run`` from a scan that is there, of daily maps to time-long shards (``rechunk_bench.py``), in
this process, decoded and encoded or copied; wall and CPU seconds, forms turn about, medians. Plain Zarr is flushed to the
disk, which Icechunk's library does not do.

*tasks*: small cells through forks, merged and committed in batches as a run does; driver's milliseconds a task, bytes that come
back from a task, and how much more memory the driver has after all tasks than after the first tenth.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from make_archive import make

import drystone
from drystone.codecs.chain import CodecChain
from drystone.model.array import GroupSpec
from drystone.model.task import Receipt
from drystone.plan.layout import TargetLayout
from drystone.rechunk.kernel import TaskDone
from drystone.rechunk.receipts import RunState
from drystone.rechunk.repository_target import RepositoryTarget
from drystone.rechunk.store_target import Stock
from drystone.storage.address import Places
from drystone.storage.local import LocalStore

HERE = Path(__file__).parent
CONFIG = """
version: 1
name: bench
storage: {{raw: "{raw}", work: "{out}/work", out: "{out}"}}
granules: "raw:*.nc"
outputs:
  - {{store: {form}, at: "out:store", {how}}}
execution: {{cluster: inline}}
verify: {{values: none}}
"""
HOW = {
    "rechunk": "chunks: {time: all, zlev: 1, lat: 90, lon: 144}, shards: {time: all, zlev: 1, lat: 360, lon: 720}, "
    "codecs: [{blosc: {cname: zstd, level: 1, shuffle: shuffle}}]",
    "copy": "mode: repack, shards: {time: 50}",
}


def seconds_of(raw: Path, form: str, how: str, scratch: Path) -> tuple[float, float]:
    """Wall and CPU of one run, scanned before."""
    with tempfile.TemporaryDirectory(dir=scratch) as made:
        out = Path(made)
        config = out / "bench.yaml"
        config.write_text(CONFIG.format(raw=raw.resolve().as_uri(), out=out.resolve().as_uri(), form=form, how=how))
        drystone.scan(config)
        os.sync()
        began, spent = time.perf_counter(), time.process_time()
        drystone.run(config)
        return time.perf_counter() - began, time.process_time() - spent


def resident() -> int:
    """Bytes of this process in memory, without what its allocator keeps for later."""
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def many(n: int, scratch: Path) -> None:
    """``n`` tasks of four cells of 4 kB."""
    with tempfile.TemporaryDirectory(dir=scratch) as made:
        target = RepositoryTarget(LocalStore(made), "ice", "bench")
        chunk = 1024
        lay = TargetLayout("/a", ("x",), (4 * n * chunk,), np.dtype("i4"), (chunk,), None, CodecChain.of("bytes"), bytes(4))
        target.prepare(Stock("bench", (lay,), (GroupSpec("/"),), {}, {"/a": 0}, np.zeros(n, np.uint64)), lambda: None)
        opener, places, data = target.opener, Places.of([]), bytes(range(256)) * 16
        spent, sizes, early = 0.0, [], 0
        for i in range(n):
            writer = opener.open(places)
            for cell in range(4 * i, 4 * i + 4):
                writer.put(lay.cell_key((cell,)), [data])
            receipt = Receipt(f"{i + 1:016x}", "f", "/a", i, (), (), 0, 0, 0, 0.0, 0, "w")
            done = TaskDone(receipt, writer.changes())
            sizes.append(len(done.changes))
            began = time.perf_counter()
            target.take(i, done)
            spent += time.perf_counter() - began
            if i == n // 10:
                early = resident()
        began = time.perf_counter()
        target.settle()
        late = resident()
        target.finish(RunState(np.ones(n, np.bool_), cells={"/a": 4 * n}))
        target.publish()
        spent += time.perf_counter() - began
    case = f"{n} tasks of 4 cells"
    report(case, "drystone", spent / n * 1000, "ms a task", target={"at_most": 4})
    report(case, "drystone", statistics.median(sizes), "bytes from a task")
    report(case, "drystone", (late - early) / 1e6, "MB more after the last task than after a tenth")


def report(case: str, subject: str, value: float, unit: str, **more: object) -> None:
    line = {"bench": "icechunk", "case": case, "subject": subject, "value": value, "unit": unit, "more": False, **more}
    print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=HERE / "work")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true", help="figures only; the default prints them too")
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    count, rounds, n = (20, 1, 1000) if asked.quick else (200, 3, 10_000)
    raw = asked.work / f"oisst-{count}"
    for file in make("oisst", raw, count):
        file.read_bytes()
    with tempfile.TemporaryDirectory(dir=asked.work) as scratch:
        for name, how in HOW.items():
            spent: dict[str, list[tuple[float, float]]] = {"zarr": [], "icechunk": []}
            for _ in range(rounds):
                for form, found in spent.items():
                    found.append(seconds_of(raw, form, how, Path(scratch)))
            for at, unit in enumerate(("s", "CPU s")):
                medians = {form: statistics.median(s[at] for s in found) for form, found in spent.items()}
                for form, value in medians.items():
                    report(f"{name} oisst {count} x 2", f"drystone, {form}", value, unit)
                ratio = medians["icechunk"] / medians["zarr"]
                report(f"{name} oisst {count} x 2", "drystone", ratio, f"x the {unit} of plain Zarr")
        many(n, Path(scratch))


if __name__ == "__main__":
    main()

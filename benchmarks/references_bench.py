"""References at scale: scan results committed, combined, planned and published as Icechunk and as kerchunk Parquet.

The granules are sparse files, and their scan results are made up (five arrays of 1,000 chunks each); from the table on it is
the ordinary `drystone run`. Every step is a process of its own, so that its peak of memory is its own; time should grow
with the references and memory should not. `--references 1e8` takes 20,000 granules and some 10 GB of disk.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import batched
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from services.table_scans import gridded, listed  # noqa: E402  (tests' generators, found by path)

from drystone.pipeline.api import run  # noqa: E402
from drystone.storage.local import LocalStore  # noqa: E402
from drystone.table.table import ReferenceTable  # noqa: E402
from drystone.table.write import WrittenBatch, write_batch  # noqa: E402

ROWS = 5_000  # of a granule
BATCH = 100  # granules
FORMS = ("icechunk", "kerchunk-parquet")
TABLE = "work/scale/table"

CONFIG = """version: 1
name: scale
storage: {{raw: "file:raw", work: "file:work", out: "file:out"}}
archive: {{granules: [{{glob: "raw:a/*.nc"}}]}}
combine: {{along: {{t: {{position: order}}}}}}
outputs: [{{virtual: {form}, at: "out:{form}"}}]
execution: {{cluster: inline}}
verify: {{values: none}}
"""


def peak() -> int:
    """Peak resident bytes of this program."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def report(case: str, value: float, unit: str, *, more: bool = True, **rest: object) -> None:
    """Print one figure."""
    row = {"bench": "references", "case": case, "subject": "drystone", "value": value, "unit": unit, "more": more, **rest}
    print(json.dumps(row), flush=True)


def some(folder: str, number: int, granules: tuple[int, ...]) -> WrittenBatch:
    """What a worker does with a batch: its files, and the rows of its scans."""
    for g in granules:
        entry = listed(g)
        path = Path(folder, "raw", entry.address.partition(":")[2])
        with path.open("wb") as f:
            f.truncate(entry.stamp.size)
        os.utime(path, ns=(entry.stamp.mtime_ns or 0, entry.stamp.mtime_ns or 0))
    return write_batch(LocalStore(folder), TABLE, [gridded(g) for g in granules], number)


def scanned(folder: str, granules: int) -> None:
    """Make files and scan results, and commit them as they come."""
    Path(folder, "raw", "a").mkdir(parents=True)
    table = ReferenceTable.create(LocalStore(folder), TABLE)
    seconds = 0.0
    with ProcessPoolExecutor(2) as pool:
        parts = list(batched(range(granules), BATCH))
        results = pool.map(some, [folder] * len(parts), range(1, len(parts) + 1), parts)
        for number, batch in enumerate(results):
            start = time.perf_counter()
            table.commit([batch], run_id="scale", sequence=number + 1)
            seconds += time.perf_counter() - start
    size = sum(p.stat().st_size for p in Path(folder, TABLE).rglob("*") if p.is_file())
    print(json.dumps({"commits": seconds, "bytes": size, "peak": peak()}))


def published(folder: str, form: str) -> None:
    """`drystone run`, of one form."""
    config = Path(folder, f"{form}.yaml")
    config.write_text(CONFIG.format(form=form))
    start = time.perf_counter()
    run(config)
    print(json.dumps({"seconds": time.perf_counter() - start, "peak": peak()}))


def apart(*command: object) -> dict[str, float]:
    """One step in a process of its own."""
    done = subprocess.run(
        [sys.executable, os.path.abspath(__file__), *(str(c) for c in command)], check=True, stdout=subprocess.PIPE, text=True
    )
    figures: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def measure(work: Path | None, references: int) -> None:
    """All steps for one number of references."""
    granules = references // ROWS
    size = f"{granules * ROWS:,}"
    with tempfile.TemporaryDirectory(dir=work) as folder:
        made = apart("--folder", folder, "--scan", granules)
        report(f"{size} committed", made["commits"] / granules * BATCH * 1e3, "ms/commit", more=False)
        report(f"{size} committed: stored", made["bytes"] / granules / ROWS, "B/ref", more=False)
        report(f"{size} committed: driver's peak", made["peak"] / 1e6, "MB", more=False, target={"at_most": 4000})
        for form in FORMS:
            out = apart("--folder", folder, "--publish", form)
            report(f"{size} run, {form}", granules * ROWS / out["seconds"], "refs/s")
            report(f"{size} run, {form}: peak", out["peak"] / 1e6, "MB", more=False, target={"at_most": 4000})


def main() -> None:
    """Run for each number of references."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, help="where files are written; by default the folder for temporary files")
    parser.add_argument("--quick", action="store_true", help="100,000 references only")
    parser.add_argument("--references", help="numbers, apart by commas; by default 1e6,1e7")
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--scan", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--publish", choices=FORMS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.scan:
        scanned(asked.folder, asked.scan)
    elif asked.publish:
        published(asked.folder, asked.publish)
    else:
        if asked.work:
            asked.work.mkdir(parents=True, exist_ok=True)
        for n in (asked.references or ("1e5" if asked.quick else "1e6,1e7")).split(","):
            measure(asked.work, int(float(n)))


if __name__ == "__main__":
    main()

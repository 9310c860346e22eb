"""The reference table: rows written, committed, streamed and looked up, and the bytes that a row takes.

``small``: granules of six arrays with one chunk each. ``big``: granules of five arrays with a thousand chunks each. The
scans are made up in memory, so that the table alone is measured; one core.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from services.table_scans import Scan, gridded, single_chunks  # noqa: E402  (tests' generators, found by path)

from drystone.storage.local import LocalStore  # noqa: E402
from drystone.table.table import ReferenceTable  # noqa: E402
from drystone.table.write import write_batch  # noqa: E402


def report(case: str, value: float, unit: str, *, more: bool = True, **rest: object) -> None:
    row = {"bench": "table", "case": case, "subject": "drystone", "value": value, "unit": unit, "more": more, **rest}
    print(json.dumps(row), flush=True)


def peak() -> int:
    """Peak resident bytes of this program; ru_maxrss would be the parent's where that is larger."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def write(table: ReferenceTable, scans: list[Scan], size: int, sequence: int) -> tuple[float, float, int]:
    """Write and commit scans in batches; seconds of both and bytes of the references."""
    writing = committing = 0.0
    stored = 0
    for i in range(0, len(scans), size):
        start = time.perf_counter()
        batch = write_batch(table.store, table.key, scans[i : i + size], sequence + i + 1)
        middle = time.perf_counter()
        table.commit([batch], run_id="bench", sequence=sequence + i)
        writing, committing = writing + middle - start, committing + time.perf_counter() - middle
        stored += sum(p.size for t, p in batch.parts if t == "references")
    return writing, committing, stored


def small(folder: str, quick: bool) -> None:
    table = ReferenceTable.create(LocalStore(folder), "small")
    n = 2_000 if quick else 10_000
    scans = [single_chunks(g) for g in range(n)]
    write_batch(table.store, "warm", scans[:500], 1)
    writing, committing, stored = write(table, scans, 500, 0)
    report("small", n / writing, "granules/s written", target={"at_least": 2000})
    report("small", committing / (n / 500) * 1e3, "ms/commit", more=False, note="of 500 granules")
    report("small", stored / (6 * n), "B/row at rest", more=False, target={"at_most": 6})
    start = time.perf_counter()
    assert sum(len(b) for b in table.rows("/sst")) == n
    report("small", n / (time.perf_counter() - start), "rows/s streamed", note="one row a granule, first read")


def big(folder: str, quick: bool) -> None:
    table = ReferenceTable.create(LocalStore(folder), "big")
    n = 100 if quick else 1000
    rows, writing, stored = 0, 0.0, 0
    for k in range(0, n, 100):
        scans = [gridded(g) for g in range(k, k + 100)]
        seconds, _, size = write(table, scans, 100, k)
        rows, writing, stored = rows + 500_000, writing + seconds, stored + size
    report("big", rows / writing, "rows/s written", target={"at_least": 3e6})
    report("big", stored / rows, "B/row at rest", more=False, target={"at_most": 6})
    chunk_rows = scans[0][2].arrays[0].rows
    report("big", chunk_rows.nbytes / len(chunk_rows), "B/row in flight", more=False, target={"at_most": 48})
    report("big", len(pickle.dumps(chunk_rows)) / len(chunk_rows), "B/row pickled", more=False, target={"at_most": 48})
    table = ReferenceTable.open(table.store, "big")
    lookups = []
    for granule in np.random.default_rng(0).integers(0, n, 50).tolist():
        start = time.perf_counter()
        assert sum(len(b) for b in table.rows("/v3", np.array([granule], np.int32))) == 1000
        lookups.append(time.perf_counter() - start)
    report("big", float(np.median(lookups)) * 1e3, "ms/granule look-up", more=False, note="one array, 1000 rows")


def stream(folder: str) -> None:
    """Stream every row of the big table in a process of its own, whose memory says that nothing was loaded whole."""
    table = ReferenceTable.open(LocalStore(folder), "big")
    before = peak()
    start, rows = time.perf_counter(), 0
    for i in range(5):
        rows += sum(len(b) for b in table.rows(f"/v{i}"))
    seconds = time.perf_counter() - start
    report("big", rows / seconds, "rows/s streamed")
    report("big", (peak() - before) / 1e6, "MB grown, streaming", more=False, note=f"{rows:,} rows")


def in_flight(folder: str) -> None:
    """What writing a batch takes beside its rows."""
    scans = [gridded(g) for g in range(400)]
    rows = sum(s.n_rows for _, _, s in scans)
    write_batch(LocalStore(folder), "warm", scans[:1], 1)
    pool = pa.default_memory_pool()
    start = pool.bytes_allocated()
    tracemalloc.start()
    write_batch(LocalStore(folder), "flight", scans, 1)
    numpy_peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    arrow_peak = max(0, (pool.max_memory() or 0) - start)
    report("big", (numpy_peak + arrow_peak) / rows, "B/row to write", more=False, note="NumPy's and Arrow's peaks, added")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=HERE / "work")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--stream", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if asked.stream:
        stream(asked.stream)
        return
    asked.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=asked.work) as folder:
        in_flight(folder)
        small(folder, asked.quick)
        big(folder, asked.quick)
        subprocess.run([sys.executable, __file__, "--stream", folder], check=True)


if __name__ == "__main__":
    main()

"""Scanning into the committed reference table, beside the peers, which only hold references in memory.

``bran``: one file of 94,860 tiny chunks, in references a second. ``oisst``: small files, in files a second. Every subject
runs on one core, in a process of its own, on files read before.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from make_archive import make

HERE = Path(__file__).parent
CASES = {"bran": ("refs/s", 1, 1), "oisst": ("files/s", 200, 20)}
SUBJECTS = {
    "kerchunk": ("scan-kerchunk", True, "SingleHdf5ToZarr, in memory"),
    "VirtualiZarr": ("scan-virtualizarr-dataset", True, "open_virtual_dataset, in memory"),
    "VirtualiZarr's parser": ("scan-virtualizarr", False, "HDFParser alone, in memory"),
    "h5py, chunks only": ("scan-h5py", False, "lower bound: low-level iteration"),
    "h5py, with attributes": ("scan-h5py-attrs", False, "lower bound: low-level iteration and every attribute"),
}
TIMES = {"bran": 6, "oisst": 7}


def scan(folder: Path) -> None:
    """Scan a folder with drystone into a new table, on this process's core, and print the figures."""
    import drystone
    from drystone.model.options import ArchiveConfig, ExecutionOptions, GranuleSet

    def config(work: str, pattern: str) -> ArchiveConfig:
        return ArchiveConfig(
            name="bench",
            places={"raw": (folder.resolve().as_uri(), {}), "work": (Path(work).resolve().as_uri(), {})},
            base=str(folder),
            granules=(GranuleSet("glob", f"raw:{pattern}"),),
            outputs=(),
            execution=ExecutionOptions(cluster="inline", workers=1, threads_per_worker=1),
        )

    names = sorted(p.name for p in folder.glob("*.nc"))
    with tempfile.TemporaryDirectory() as warm, tempfile.TemporaryDirectory() as work:
        drystone.scan(config(warm, names[0]))  # imports and warm caches, as for the peers
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter()
        drystone.scan(config(work, "*.nc"))
        seconds = time.perf_counter() - start
        parquet = sum(p.stat().st_size for p in Path(work).rglob("*.parquet"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        json.dumps(
            {"seconds": seconds, "peak_bytes": peak * 1024, "grown_bytes": (peak - before) * 1024, "table_bytes": parquet}
        )
    )


def run(command: list[str], core: int) -> dict[str, float]:
    """One subject on one core; its last line is its answer."""
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=HERE / "work")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--scan", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.scan:
        scan(asked.scan)
        return
    core = max(os.sched_getaffinity(0))
    for case, (unit, full, quick) in CASES.items():
        count = quick if asked.quick else full
        folder = asked.work / f"{case}-{count}"
        files = make(case, folder, count)
        for file in files:
            file.read_bytes()
        for subject, (task, peer, note) in SUBJECTS.items():
            got = run([str(HERE / "peers.py"), task, str(folder)], core)
            units = got["files"] if unit == "files/s" else got["units"]
            report(case, subject, units / got["seconds"], unit, peer=peer, note=note)
            references = got["units"]
        got = run([__file__, "--scan", str(folder)], core)
        value = (len(files) if unit == "files/s" else references) / got["seconds"]
        report(case, "drystone", value, unit, target={"times": TIMES[case]}, note="into the committed table")
        if case == "bran":
            report(
                case,
                "drystone",
                got["table_bytes"] / references,
                "B/ref at rest",
                more=False,
                target={"at_most": 6},
                note="Parquet",
            )


def report(case: str, subject: str, value: float, unit: str, **more: object) -> None:
    print(
        json.dumps({"bench": "scan", "case": case, "subject": subject, "value": value, "unit": unit, "more": True, **more}),
        flush=True,
    )


if __name__ == "__main__":
    main()

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
CASES = {"bran": ("refs/s", 1, 1), "oisst": ("files/s", 365, 20)}
SUBJECTS = {
    "kerchunk": ("scan-kerchunk", True, "SingleHdf5ToZarr, in memory"),
    "VirtualiZarr": ("scan-virtualizarr-dataset", True, "open_virtual_dataset, in memory"),
    "VirtualiZarr's parser": ("scan-virtualizarr", False, "HDFParser alone, in memory"),
    "h5py, chunks only": ("scan-h5py", False, "lower bound: low-level iteration"),
    "h5py, with attributes": ("scan-h5py-attrs", False, "lower bound: low-level iteration and every attribute"),
}
TIMES = {"bran": 6, "oisst": 7}
ROUNDS = 3  # turn about, the fastest of each counts: other programs use the machine too


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
        commands = {subject: [str(HERE / "peers.py"), task, str(folder)] for subject, (task, _, _) in SUBJECTS.items()}
        commands["drystone"] = [__file__, "--scan", str(folder)]
        best: dict[str, dict[str, float]] = {}
        for _ in range(1 if asked.quick else ROUNDS):
            for subject, command in commands.items():
                got = run(command, core)
                best[subject] = min(best.get(subject, got), got, key=lambda g: g["seconds"])
        references = best["h5py, chunks only"]["units"]
        for subject, (_, peer, note) in SUBJECTS.items():
            units = len(files) if unit == "files/s" else references
            report(case, subject, units / best[subject]["seconds"], unit, peer=peer, note=note)
        ours = best["drystone"]
        value = (len(files) if unit == "files/s" else references) / ours["seconds"]
        report(case, "drystone", value, unit, target={"times": TIMES[case]}, note="into the committed table")
        if case == "bran":
            size = ours["table_bytes"] / references
            report(case, "drystone", size, "B/ref at rest", more=False, target={"at_most": 6}, note="Parquet")


def report(case: str, subject: str, value: float, unit: str, **more: object) -> None:
    print(
        json.dumps({"bench": "scan", "case": case, "subject": subject, "value": value, "unit": unit, "more": True, **more}),
        flush=True,
    )


if __name__ == "__main__":
    main()

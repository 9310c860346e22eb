"""Predicted beside measured: what ``plan`` says a run will take, after ``doctor`` measured this machine, and what it took.

Runs of different kinds, each on all cores, after the system was asked to forget the granules. Measured is the wall time of all
tasks, with the start of workers where there are any, the best of a few rounds, since other programs use the machine too; and
CPU seconds of this process, which say more where it is busy. Predicted CPU seconds are the parts of the prediction that are no
waiting.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import repack_bench
from make_archive import make

import drystone
from drystone.execute.engine import Outcome
from drystone.pipeline import api, storing

FACTOR = 1.5
WAITING = {"read", "write", "start"}
CONFIG = """
version: 1
name: bench
storage: {{raw: "{raw}", work: "{out}/work", out: "{out}"}}
granules: "raw:*.nc"
outputs:
  - {{store: zarr, at: "out:store.zarr", {output}}}
execution: {{{execution}}}
verify: {{values: none}}
"""
ZSTD = "codecs: [{blosc: {cname: zstd, level: 1, shuffle: shuffle}}]"
LZ4 = "codecs: [{blosc: {cname: lz4, level: 5, shuffle: shuffle}}]"
CASES = {
    "rechunk, maps to time-long shards": (
        "oisst",
        "chunks: {time: all, zlev: 1, lat: 90, lon: 144}, shards: {time: all, zlev: 1, lat: 360, lon: 720}, " + ZSTD,
        "cluster: inline",
    ),
    "tiles to shards": (
        "mur",
        "chunks: {time: all, lat: 300, lon: 300}, shards: {time: all, lat: 1800, lon: 1800}, " + ZSTD,
        "cluster: inline",
    ),
    "streamed shards": (
        "oisst",
        "chunks: {time: 5, zlev: 1, lat: 720, lon: 1440}, shards: {time: 50, zlev: 1, lat: 720, lon: 1440}, " + ZSTD,
        "cluster: inline, memory_per_worker: 480 MB",
    ),
    "two workers": (
        "oisst",
        "chunks: {time: all, zlev: 1, lat: 90, lon: 144}, shards: {time: all, zlev: 1, lat: 360, lon: 720}, " + ZSTD,
        "cluster: local, workers: 2",
    ),
    "unpacked": (
        "mur",
        "values: decoded, chunks: {time: all, lat: 300, lon: 300}, shards: {time: all, lat: 1800, lon: 1800}, " + ZSTD,
        "cluster: inline",
    ),
    "little memory": (
        "oisst",
        "chunks: {time: all, zlev: 1, lat: 90, lon: 144}, shards: {time: all, zlev: 1, lat: 360, lon: 720}, " + ZSTD,
        "cluster: inline, memory_per_worker: 520 MB",
    ),
    "lz4, small inner chunks": (
        "mur",
        "chunks: {time: 1, lat: 100, lon: 100}, shards: {time: 1, lat: 1800, lon: 1800}, " + LZ4,
        "cluster: inline",
    ),
    "repack": ("repack", "mode: repack, shards: {time: 64, y: 720, x: 1440}", "cluster: inline"),
}


def granules(kind: str, work: Path, quick: bool) -> list[Path]:
    """The files of one kind, made once."""
    if kind == "repack":
        return repack_bench.make(work / "repack-raw", 64 if quick else 256)
    count = {"oisst": 20, "mur": 2}[kind] if quick else {"oisst": 100, "mur": 8}[kind]
    return make(kind, work / f"{kind}-{count}", count)


def forget(files: list[Path]) -> None:
    """Have the system drop what it holds of files."""
    for path in files:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measured(config: Path, files: list[Path]) -> tuple[float, float, int]:
    """Wall and CPU seconds of all tasks of a run (CPU of this process alone), and how many there were."""
    spent = [0.0, 0.0, 0]
    run_windowed = storing.run_windowed

    def timed(*args: object, **options: object) -> Outcome:
        wall, cpu = time.perf_counter(), time.process_time()
        outcome = run_windowed(*args, **options)
        spent[0] += time.perf_counter() - wall
        spent[1] += time.process_time() - cpu
        spent[2] += outcome.done
        return outcome

    storing.run_windowed = timed
    try:
        forget(files)
        drystone.run(config)
    finally:
        storing.run_windowed = run_windowed
    return spent[0], spent[1], spent[2]


def one(case: str, work: Path, quick: bool, rounds: int) -> dict[str, object]:
    """Predict and run one case."""
    kind, output, execution = CASES[case]
    files = granules(kind, work, quick)
    found = []
    parts: dict[str, float] = {}
    predicted, ways = 0.0, []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=work) as folder:
            config = Path(folder) / "bench.yaml"
            uris = {"raw": files[0].parent.as_uri(), "out": Path(folder).as_uri()}
            config.write_text(CONFIG.format(**uris, output=output, execution=execution))
            drystone.scan(config)
            planned = drystone.plan(config).outputs[0]
            if planned.predicted is None or planned.predicted.seconds is None:
                raise SystemExit(f"{case}: {planned.predicted and planned.predicted.why}")
            predicted, parts = planned.predicted.seconds, dict(planned.predicted.parts)
            arrays = [a for a in planned.arrays if a.tasks is not None]
            ways = [a.mode if a.ways is None else a.ways.candidates[0].name for a in arrays]
            found.append(measured(config, files))
    wall, cpu, tasks = min(f[0] for f in found), min(f[1] for f in found), found[0][2]
    cpu_predicted = sum(seconds for name, seconds in parts.items() if name not in WAITING)
    return {
        "bench": "predict",
        "case": case,
        "subject": "drystone",
        "unit": "predicted/measured",
        "value": round(predicted / wall, 3),
        "predicted_seconds": round(predicted, 3),
        "measured_seconds": round(wall, 3),
        "predicted_cpu": round(cpu_predicted, 3),
        "measured_cpu": round(cpu, 3),
        "cpu_ratio": round(cpu_predicted / cpu, 3),
        "parts": {name: round(seconds, 3) for name, seconds in parts.items()},
        "tasks": tasks,
        "ways": sorted(set(ways)),
        "load": round(os.getloadavg()[0], 1),
        "within": 1 / FACTOR <= predicted / wall <= FACTOR,
    }


def main() -> None:
    """Print a JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "drystone-bench")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true", help="figures only; the default prints them too")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help=f"cases whose names hold this: {', '.join(CASES)}")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    os.environ["XDG_CACHE_HOME"] = str((args.work / "cache").resolve())
    os.chdir(args.work)
    report = api.doctor()
    if not args.json:
        print("\n".join(report.lines()))
    for case in CASES:
        if not args.only or args.only in case:
            print(json.dumps(one(case, args.work.resolve(), args.quick, 1 if args.quick else args.rounds)), flush=True)


if __name__ == "__main__":
    main()

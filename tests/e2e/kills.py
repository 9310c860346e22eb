"""Kill a run at system calls drawn from its whole span, run it again, and compare with an undisturbed run.

usage: python tests/e2e/kills.py [--kills 50] [--seed N] [--cluster inline|local] [--json]

The reference run is traced: every call that changes something below the archive's folder, from the first write to the last
(the release record), is a point. Each kill draws one, SIGKILLs the process that makes the call (driver or worker), waits for
what it leaves, and runs again without tracing. Checked: exit 0; the store byte for byte the reference's, and each value of the
repository; no temporary file left; every shard whose task had a receipt untouched (inode and time), no task done again whose
cells were committed; the forms verified in full against the files.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from e2e import archives, syscalls
from services import repositories

from drystone.model.task import Receipt
from drystone.storage.local import TEMPORARY_SUFFIX

STORES = """\
  - store: zarr
    at: "out:series.zarr"
    chunks: {time: 4, lat: 4, lon: 6}
    shards: {time: 8, lat: 4, lon: 6}
  - store: icechunk
    at: "out:series.ice"
    chunks: {time: 4, lat: 4, lon: 6}
    shards: {time: 8, lat: 4, lon: 6}
"""


def make(folder: Path, cluster: str) -> None:
    """An archive of its own for each run, so that nothing is shared but the bytes."""
    archives.write_archive(folder, (3,) * 8)
    workers = ", workers: 2, threads_per_worker: 1" if cluster == "local" else ""
    archives.write_config(folder, archives.ICECHUNK + STORES, f"execution: {{cluster: {cluster}{workers}}}")
    for path in (folder / "raw").iterdir():
        os.utime(path, ns=(10**18, 10**18))


def command() -> list[str]:
    """As a user types it."""
    return [sys.executable, "-m", "drystone.cli.main", "run", "little.yaml", "--quiet"]


def phase(path: str) -> str:
    """What a path belongs to, for the histogram."""
    for mark, name in (
        ("/receipts/", "receipt"), ("out/little.icechunk", "icechunk"), ("/c/", "shard"),
        ("out/series.ice", "repository"), ("out/series.zarr", "metadata"),
        ("/table/releases", "release"), ("/table/placements", "release"), ("/table/", "table"), ("/lease", "lease"),
    ):  # fmt: skip
        if mark in f"/{path}" or path.startswith(mark):
            return name
    return "run folder"


def receipts(folder: Path) -> list[Receipt]:
    """Whole receipts on disk."""
    found = []
    for path in (folder / "work").rglob("receipts/*.jsonl"):
        for line in path.read_bytes().split(b"\n")[:-1]:
            try:
                found.append(Receipt.from_json(line.decode()))
            except (ValueError, KeyError, TypeError):
                continue
    return found


def proved(folder: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of every shard that a receipt names."""
    out = {}
    for receipt in receipts(folder):
        for o in receipt.objects:
            path = folder / "out/series.zarr" / o.key
            if o.size >= 0 and path.exists():
                s = path.stat()
                out[o.key] = (s.st_ino, s.st_mtime_ns)
    return out


def tries(folder: Path) -> Counter[int]:
    """Task id to receipts, of the tasks whose cells are committed."""
    if not (folder / "out/series.ice/repo").exists():
        return Counter()
    done = repositories.committed(folder / "out/series.ice")
    return Counter(number for r in receipts(folder) if (number := int(r.task_id, 16)) in done)


def orphans(folder: Path) -> list[int]:
    """Processes that still work in a folder."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                if os.readlink(f"/proc/{entry}/cwd") == str(folder):
                    found.append(int(entry))
            except OSError:
                continue
    return found


def one(folder: Path, reference: tuple[dict[str, bytes], dict[str, bytes]], kill_at: int, cluster: str) -> dict[str, object]:
    """One kill and one rerun."""
    make(folder, cluster)
    env = dict(os.environ)
    trace = syscalls.run(command(), str(folder), env=env, cwd=str(folder), kill_at=kill_at, log=str(folder / "log"))
    deadline = time.monotonic() + 20
    while orphans(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = orphans(folder)
    before, tried = proved(folder), tries(folder)
    again = subprocess.run(command(), cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)
    after = proved(folder)
    problems = []
    if left:
        problems.append(f"processes left: {left}")
    if again.returncode:
        problems.append(f"rerun exit {again.returncode}: {again.stderr[-400:]}")
    store = archives.tree(folder / "out/series.zarr") if (folder / "out/series.zarr").exists() else {}
    repository = repositories.values(folder / "out/series.ice") if not again.returncode else {}
    for name, found, wanted in zip(("store", "repository"), (store, repository), reference, strict=True):
        differ = sorted(k for k in found.keys() | wanted.keys() if found.get(k) != wanted.get(k))
        if differ:
            problems.append(f"{name} differs: {differ[:5]}")
    temporary = [str(p) for p in (folder / "out").rglob(f"*{TEMPORARY_SUFFIX}")]
    if temporary:
        problems.append(f"temporary files left: {temporary[:3]}")
    redone = [k for k, s in before.items() if after.get(k) != s]
    if redone:
        problems.append(f"done again although a receipt proved it: {redone[:5]}")
    twice = [f"{i:016x}" for i, n in tries(folder).items() if i in tried and n != tried[i]]
    if twice:
        problems.append(f"done again although it was committed: {twice}")
    call, path = trace.calls[kill_at] if kill_at < len(trace.calls) else ("none", "none")
    return {
        "at": kill_at,
        "call": call,
        "phase": phase(path),
        "driver": trace.status == -9,
        "proved": len(before),
        "problems": problems,
    }


def verify(folder: Path) -> int:
    """Every published form against the files, in full."""
    args = [sys.executable, "-m", "drystone.cli.main", "verify", "little.yaml", "--quiet"]
    return subprocess.run(args, cwd=folder, capture_output=True, timeout=300, check=False).returncode


def campaign(kills: int, seed: int, cluster: str, say: object = print) -> dict[str, object]:
    """The whole show; returns what it found."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="drystone-kills-") as temporary:
        base = Path(temporary).resolve()
        make(base / "reference", cluster)
        folder = base / "reference"
        trace = syscalls.run(command(), str(folder), env=dict(os.environ), cwd=str(folder), log=str(folder / "log"))
        if trace.status:
            raise SystemExit(f"the undisturbed run failed: {(folder / 'log').read_text()[-2000:]}")
        reference = archives.tree(folder / "out/series.zarr"), repositories.values(folder / "out/series.ice")
        span = len(trace.calls)
        results = []
        for i in range(kills):
            at = rng.randrange(span)
            run = base / "killed"
            results.append(one(run, reference, at, cluster))
            if not results[-1]["problems"] and verify(run):
                results[-1]["problems"] = ["verify failed"]
            if callable(say):
                r = results[-1]
                say(f"{i + 1:3d}  call {at:5d} of {span}  {r['call']:<16} {r['phase']:<10} "
                    f"{'driver' if r['driver'] else 'worker'}  {r['problems'] or 'ok'}")  # fmt: skip
            shutil.rmtree(run)
    return {
        "seed": seed,
        "cluster": cluster,
        "span": span,
        "kills": kills,
        "failed": sum(bool(r["problems"]) for r in results),
        "by_phase": dict(Counter(str(r["phase"]) for r in results)),
        "by_call": dict(Counter(str(r["call"]) for r in results)),
        "by_tenth": [sum(r["at"] * 10 // span == t for r in results) for t in range(10)],  # type: ignore[operator]
        "drivers": sum(bool(r["driver"]) for r in results),
        "results": results,
    }


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--cluster", choices=["inline", "local"], default="inline")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = campaign(args.kills, args.seed, args.cluster, None if args.json else print)
    if args.json:
        print(json.dumps(found, indent=2))
    else:
        print(f"seed {found['seed']}, {found['kills']} kills over {found['span']} calls, {found['drivers']} of the driver, "
              f"{found['failed']} failed")  # fmt: skip
        for name in ("by_phase", "by_call"):
            counts: dict[str, int] = found[name]  # type: ignore[assignment]
            for key, n in sorted(counts.items(), key=lambda kv: -kv[1]):
                print(f"  {key:<18} {n:3d} {'#' * n}")
        print("  by tenth of the span:", found["by_tenth"])
    return 1 if found["failed"] else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Encoded chunks copied into shards beside ``cp`` of the same bytes, both flushed to the disk.

Files of one packed variable, deflated by maps; ``drystone.run`` with ``mode: repack`` writes shards of many steps from a scan
that is there already. ``cp`` copies the files one by one and flushes each, and their folder. Wall seconds of what moves bytes:
the tasks' of drystone (planning and metadata are told apart), medians of several rounds turn about.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np

import drystone
from drystone.model.task import Receipt

AT_LEAST = 0.8
CONFIG = """
version: 1
name: bench
storage: {{raw: "{raw}", work: "{out}/work", out: "{out}"}}
granules: "raw:*.nc"
outputs:
  - {{store: zarr, at: "out:store.zarr", mode: repack, shards: {{time: 64, y: 720, x: 1440}}}}
execution: {{cluster: {cluster}}}
verify: {{values: none}}
"""


def make(folder: Path, n: int) -> list[Path]:
    """``n`` daily maps of four chunks each, some 1 MB a file; made once."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    smooth = np.cumsum(rng.integers(-3, 4, (720, 1440)), axis=1).astype("i2")
    for day in range(n):
        path = folder / f"{day:05}.nc"
        if path.exists():
            continue
        with h5py.File(path, "w") as file:
            for name, axis in (("time", [float(day)]), ("y", np.arange(720.0)), ("x", np.arange(1440.0))):
                file[name] = axis
                file[name].make_scale(name)
            file["time"].attrs["units"] = "days since 2000-01-01"
            noise = rng.integers(0, 8, (720, 1440), "i2")
            v = file.create_dataset(
                "v", data=(smooth + noise)[None], chunks=(1, 360, 720), maxshape=(None, 720, 1440), compression=4, shuffle=True
            )
            for axis, name in enumerate(("time", "y", "x")):
                v.dims[axis].attach_scale(file[name])
    return sorted(folder.glob("*.nc"))


def copy(files: list[Path], folder: Path) -> float:
    """Copy and flush each file; seconds."""
    folder.mkdir()
    began = time.perf_counter()
    for path in files:
        shutil.copyfile(path, folder / path.name)
        with open(folder / path.name, "rb") as file:
            os.fsync(file.fileno())
    fd = os.open(folder, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    return time.perf_counter() - began


def repack(config: Path) -> tuple[float, float, int]:
    """Seconds of the tasks (first begun to last done), of the whole run, and bytes copied."""
    began = time.perf_counter()
    drystone.run(config)
    whole = time.perf_counter() - began
    lines = [line for p in config.parent.rglob("receipts/*.jsonl") for line in p.read_text().splitlines() if line]
    receipts = [Receipt.from_json(line) for line in lines]
    return sum(r.seconds for r in receipts), whole, sum(r.bytes_written for r in receipts)


def main() -> None:
    """Print a JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "drystone-bench")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true", help="figures only; the default prints them too")
    parser.add_argument("--cluster", default="inline")
    args = parser.parse_args()
    n, rounds = (64, 3) if args.quick else (512, 5)
    files = make(args.work / "repack-raw", n)
    files = files[:n]
    for path in files:
        path.read_bytes()
    speeds: dict[str, list[float]] = {"cp": [], "tasks": [], "run": []}
    nbytes = sum(p.stat().st_size for p in files)
    raw = args.work / f"repack-raw-{n}"
    raw.mkdir(exist_ok=True)
    for path in files:
        if not (raw / path.name).exists():
            os.link(path, raw / path.name)
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=args.work) as folder:
            out = Path(folder)
            config = out / "bench.yaml"
            config.write_text(CONFIG.format(raw=raw.as_uri(), out=out.as_uri(), cluster=args.cluster))
            drystone.scan(config)
            os.sync()
            speeds["cp"].append(nbytes / copy(files, out / "copied") / 1e6)
            os.sync()
            tasks, whole, moved = repack(config)
            speeds["tasks"].append(moved / tasks / 1e6)
            speeds["run"].append(moved / whole / 1e6)
    case = f"{n} files, {nbytes / 1e6:.0f} MB"
    medians = {k: statistics.median(v) for k, v in speeds.items()}
    base = {"bench": "repack", "case": case, "unit": "MB/s", "more": True}
    target = {"at_least": round(AT_LEAST * medians["cp"], 1)}
    print(json.dumps({**base, "subject": "drystone", "value": round(medians["tasks"], 1), "target": target}))
    print(json.dumps({**base, "subject": "drystone, whole run", "value": round(medians["run"], 1), "peer": False}))
    print(json.dumps({**base, "subject": "cp and fsync", "value": round(medians["cp"], 1), "peer": False}))


if __name__ == "__main__":
    main()

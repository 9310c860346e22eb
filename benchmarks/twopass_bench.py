"""Maps to time series where a task's memory is a small part of the array: two passes, what they move, and how many objects.

usage: twopass_bench.py [--work FOLDER] [--quick] [--files N] [--memory MB] [--edge N] [--rechunker PYTHON] [--json FILE]

The archive is ``--files`` files of fifty daily maps, int16 (50, 720, 1440), 104 MB raw each; the store has chunks of the
whole time axis and ``--edge`` by ``--edge`` cells, each an object, blosc zstd 1. ``--memory`` is what a worker's process may
take; a task plans with 0.85 of it less 256 MB. With ``--files 200 --memory 2000`` it is 20 GB in 2 GB a worker, which
needs 45 GB of disk.

Bytes are counted by the receipts: what the first pass read, what it wrote in between, what the second read of that, what it
wrote. The floor of two passes is each once. What lies in between is also looked at while the run works.

rechunker 0.5.2 runs with neither Zarr 3 nor the Dask of today, so it is run by an interpreter of its own, where one is given
(``pip install rechunker==0.5.2 'zarr<3' 'numcodecs<0.16' 'dask[array]==2024.8.0' xarray h5netcdf h5py``): the same files
through xarray, ``max_mem`` what a drystone task may take, two threads. Its intermediate chunks are counted when its copy is
whole.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).parent
RAW = 50 * 720 * 1440 * 2  # of a file
CONFIG = """
name: bench
storage: {{raw: "{raw}", work: "{out}/work", out: "{out}"}}
granules: "raw:*.nc"
outputs:
  - {{store: zarr, at: "out:store.zarr", mode: rechunk, chunks: {{time: all, lat: {edge}, lon: {edge}}}, shards: none,
     codecs: [{{blosc: {{cname: zstd, level: 1, shuffle: shuffle}}}}]}}
execution: {{cluster: local, workers: 2, threads_per_worker: 1, memory_per_worker: {memory} MB}}
verify: {{values: none}}
"""


def objects(folder: Path) -> int:
    """Files below a folder, without metadata."""
    return sum(1 for p in folder.rglob("*") if p.is_file() and not p.name.startswith(".z"))


class Watch(threading.Thread):
    """The most bytes and files that were in a folder at a time."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder, self.nbytes, self.files, self.over = folder, 0, 0, threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.2):
            sizes = []
            for path in self.folder.rglob("*"):
                try:
                    sizes.append(path.stat().st_size if path.is_file() else -1)
                except FileNotFoundError:  # its last reader is done
                    continue
            sizes = [n for n in sizes if n >= 0]
            self.nbytes, self.files = max(self.nbytes, sum(sizes)), max(self.files, len(sizes))


def drystone_run(files: list[Path], out: Path, memory: int, edge: int) -> dict[str, float]:
    """Run once; seconds, bytes, objects, peak."""
    from drystone.pipeline.api import plan, scan

    config = out / "bench.yaml"
    config.write_text(
        CONFIG.format(raw=files[0].parent.resolve().as_uri(), out=out.resolve().as_uri(), edge=edge, memory=memory)
    )
    scan(config)
    (array,) = (a for a in plan(config).outputs[0].arrays if a.path == "/sst")
    assert array.tasks is not None
    shuffle = array.tasks.shuffle
    if shuffle is None:
        raise SystemExit(f"{memory} MB a worker are enough for one pass: {array.ways}")
    watch = Watch(out / "work")
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    watch.start()
    program = "import sys; from drystone.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", program, "run", str(config), "--quiet"], capture_output=True, text=True, check=False
    )
    watch.over.set()
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(done.stderr[-4000:])
    receipts = [
        json.loads(line) for path in (out / "work").rglob("receipts/*.jsonl") for line in path.read_text().splitlines() if line
    ]
    first = [r for r in receipts if r["index"] >= array.tasks.n_regions]
    second = [r for r in receipts if r["index"] < array.tasks.n_regions]
    return {
        "seconds": seconds,
        "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "read": sum(r["bytes_read"] for r in first),
        "written between": sum(r["bytes_written"] for r in first),
        "read between": sum(r["bytes_read"] for r in second),
        "written": sum(r["bytes_written"] for r in second),
        "source": array.encoded_bytes,
        "chunks read": array.tasks.amplification,
        "objects": len(first),
        "ranges": shuffle.n_pieces,
        "between at once": watch.nbytes,
        "peak": max(r["peak_rss"] for r in receipts),
        "predicted": array.tasks.memory,
        "first seconds": sum(r["seconds"] for r in first),
        "second seconds": sum(r["seconds"] for r in second),
    }


def check(files: list[Path], out: Path) -> None:
    """A store that is not right is not fast."""
    import h5py
    import numpy as np
    import zarr

    store = zarr.open_group(str(out), mode="r")["sst"]
    for i in range(0, len(files), max(1, len(files) // 4)):
        with h5py.File(files[i]) as f:
            if not np.array_equal(f["sst"][7, 100:200], store[50 * i + 7, 100:200]):
                raise SystemExit(f"{out}: what {files[i].name} holds is not there")


def as_rechunker(folder: Path, out: Path, memory: int, edge: int) -> None:
    """The peer, in its own interpreter."""
    import dask
    import xarray as xr
    from numcodecs import Blosc
    from rechunker import rechunk

    files = sorted(map(str, folder.glob("*.nc")))
    source = xr.open_mfdataset(
        files, engine="h5netcdf", combine="nested", concat_dim="time", chunks={}, mask_and_scale=False, data_vars="minimal",
        coords="minimal", compat="override",
    )["sst"].data  # fmt: skip
    start = time.perf_counter()
    plan = rechunk(
        source, (source.shape[0], edge, edge), memory, str(out / "store.zarr"), temp_store=str(out / "temp.zarr"),
        target_options={"compressor": Blosc("zstd", 1, Blosc.SHUFFLE)},
        temp_options={"compressor": Blosc("lz4", 1, Blosc.SHUFFLE)},
    )  # fmt: skip
    with dask.config.set(scheduler="threads", num_workers=2):
        plan.execute()
    print(json.dumps({"seconds": time.perf_counter() - start, "objects": objects(out / "temp.zarr")}))


def peer(python: str, folder: Path, out: Path, memory: int, edge: int) -> dict[str, float]:
    """Run the peer."""
    command = [python, __file__, "--as-rechunker", str(folder), str(out), "--memory", str(memory), "--edge", str(edge)]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(done.stderr[-4000:])
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=HERE / "work")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--files", type=int, help="104 MB raw each")
    parser.add_argument("--memory", type=int, help="MB of a worker")
    parser.add_argument("--edge", type=int, default=24, help="cells of a target chunk along latitude and longitude")
    parser.add_argument("--rechunker", metavar="PYTHON", help="an interpreter that has rechunker")
    parser.add_argument("--json", type=Path, help="write all figures there")
    parser.add_argument("--as-rechunker", nargs=2, type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.as_rechunker:
        as_rechunker(*asked.as_rechunker, asked.memory, asked.edge)
        return
    from make_archive import make

    from drystone.plan.memory import task_memory

    count = asked.files or (4 if asked.quick else 20)
    memory = asked.memory or (350 if asked.quick else 440)
    folder = asked.work / f"maps-{count}"
    files = make("maps", folder, count)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    case = f"{count * RAW / 1e9:.3g} GB, {memory} MB a worker"
    with tempfile.TemporaryDirectory(dir=asked.work) as scratch:
        out = Path(scratch)
        found = drystone_run(files, out, memory, asked.edge)
        check(files, out / "store.zarr")
        shutil.rmtree(out)
        other = None
        if asked.rechunker:
            out.mkdir()
            other = peer(asked.rechunker, folder, out, task_memory(memory * 10**6), asked.edge)
        out.mkdir(exist_ok=True)

    def say(subject: str, value: float, unit: str, more: bool = False, **extra: object) -> None:
        line = {"bench": "twopass", "case": case, "subject": subject, "value": round(value, 4), "unit": unit, "more": more}
        print(json.dumps({**line, **extra}), flush=True)

    moved = [found["read"] / found["source"], found["read between"] / found["written between"]]
    say(
        "drystone",
        found["seconds"],
        "s",
        note=f"first pass {found['first seconds']:.0f}, second {found['second seconds']:.0f} s of tasks",
    )
    say("drystone", found["cpu"], "CPU s")
    say("drystone", moved[0], "source bytes read, of its own", target={"at_most": 1.01})
    say("drystone", moved[1], "bytes between read, of those written", target={"at_most": 1.01})
    say(
        "drystone", found["between at once"] / 1e9, "GB between at once", note=f"{found['written between'] / 1e9:.3g} GB in all"
    )
    say("drystone", found["peak"] / (memory * 1e6), "peak, of the worker's limit", target={"at_most": 1})
    least = None if other is None else {"at_most": 0.01 * other["objects"]}
    say(
        "drystone",
        found["objects"],
        "objects between",
        note=f"{found['ranges']:,.0f} ranges",
        **({"target": least} if least else {}),
    )
    if other is not None:
        say("rechunker", other["seconds"], "s")
        say("rechunker", other["objects"], "objects between", peer=False)
    if asked.json:
        asked.json.write_text(json.dumps({"case": case, "drystone": found, "rechunker": other}, indent=2))


if __name__ == "__main__":
    main()

"""Daily maps to time-long shards, files to store: ``drystone.run`` beside VirtualiZarr and xarray with Dask.

Every subject starts from the files, with its imports and nothing scanned, and ends with a store that others can read:
chunks (T, 1, 90, 144) in shards (T, 1, 360, 720), blosc zstd 1 with shuffle, int16 as packed. Two threads or processes
each; wall seconds of the whole program, and CPU seconds, which say more on a machine that others use. Two rounds turn about,
the fastest of each counts. Drystone also flushes every file to the disk; peers do not.

The *floor* decodes every chunk and encodes every inner chunk on two threads, from memory to memory, with the fastest
codecs we know of: what no program that uses them can undercut.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from make_archive import make

import drystone

HERE = Path(__file__).parent
SUBJECTS = {
    "VirtualiZarr, then dask": "rechunk-virtualizarr",
    "xarray and dask": "rechunk-xarray",
    "xarray and dask, p2p": "rechunk-p2p",
}
TIMES = 3.5
ROUNDS = 2  # turn about, the fastest of each counts: other programs use the machine too
CONFIG = """
version: 1
name: bench
storage:
  raw: {{url: "{raw}"}}
  work: {{url: "{out}/work"}}
  out: {{url: "{out}"}}
archive:
  granules:
    - glob: "raw:*.nc"
outputs:
  - store: zarr
    at: "out:store.zarr"
    chunks: {{time: all, zlev: 1, lat: 90, lon: 144}}
    shards: {{time: all, zlev: 1, lat: 360, lon: 720}}
    codecs: [{{blosc: {{cname: zstd, level: 1, shuffle: shuffle}}}}]
verify: {{values: none}}
"""


def floor(files: list[Path]) -> dict[str, float]:
    """Decode and encode alone, in seconds."""
    import h5py
    import numpy as np
    from numcodecs import blosc

    from drystone.codecs.chain import Codec, CodecChain
    from drystone.codecs.decode import decoder

    blosc.use_threads = False
    steps, names = len(files), ("sst", "anom")
    chain = CodecChain.of(Codec.of("bytes", endian="little"), Codec.of("shuffle", elementsize=2), Codec.of("zlib", level=4))
    decode = decoder(chain, np.dtype("<i2"), (1, 1, 720, 1440))
    chunks = []
    for file in files:
        with h5py.File(file) as f:
            where = [f[name].id.get_chunk_info(0) for name in names]
        data = file.read_bytes()
        chunks.append([data[w.byte_offset : w.byte_offset + w.size] for w in where])
    cubes = [np.zeros((steps, 1, 720, 1440), "i2") for _ in names]
    jobs = [(cube, i, k) for k, cube in enumerate(cubes) for i in range(steps)]
    with ThreadPoolExecutor(2) as pool:
        start = time.perf_counter()
        list(pool.map(lambda job: decode.into(chunks[job[1]][job[2]], job[0][job[1] : job[1] + 1]), jobs))
        decoded = time.perf_counter()
        inner = [
            np.ascontiguousarray(cube[:, :, y : y + 90, x : x + 144])
            for cube in cubes
            for y in range(0, 720, 90)
            for x in range(0, 1440, 144)
        ]
        copied = time.perf_counter()
        list(pool.map(lambda a: blosc.compress(a.reshape(-1).view("u1"), b"zstd", 1, 1, 0, 2), inner))
        encoded = time.perf_counter()
    return {"seconds": decoded - start + encoded - copied}


def drystone_run(folder: Path, out: Path) -> list[str]:
    """The command of a whole run."""
    config = out / "bench.yaml"
    config.write_text(CONFIG.format(raw=folder.resolve().as_uri(), out=out.resolve().as_uri()))
    program = "import sys; from drystone.cli.main import main; sys.exit(main(sys.argv[1:]))"
    return [sys.executable, "-c", program, "run", str(config)]


def run(command: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds of a program and its children."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def one(subject: str, folder: Path, files: list[Path], scratch: Path) -> tuple[float, float | None]:
    """Wall and CPU seconds of one subject; what it wrote is gone afterwards."""
    with tempfile.TemporaryDirectory(dir=scratch) as made:
        out = Path(made)
        if subject == "floor":
            command = [sys.executable, __file__, "--floor", str(folder)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            return json.loads(done.stdout.splitlines()[-1])["seconds"], None
        if subject == "drystone":
            figures = run(drystone_run(folder, out))
            check(files, out / "store.zarr")
            return figures
        task = [sys.executable, str(HERE / "peers.py"), SUBJECTS[subject], str(folder), str(out / "peer.zarr")]
        return run([*task, "--threads", "2"])


def check(files: list[Path], out: Path) -> None:
    """A store that is not right is not fast."""
    import h5py
    import numpy as np
    import zarr

    group = zarr.open_group(str(out), mode="r")
    for i in range(0, len(files), max(1, len(files) // 5)):
        with h5py.File(files[i]) as f:
            for name in ("sst", "anom"):
                if not np.array_equal(f[name][0], group[name][i]):
                    raise SystemExit(f"{out}: {name} of {files[i].name} is wrong")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=HERE / "work")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--floor", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--alone", action="store_true", help="without the peers, which take minutes")
    asked = parser.parse_args()
    if asked.floor:
        print(json.dumps(floor(sorted(asked.floor.glob("*.nc")))))
        return
    count = 20 if asked.quick else 200
    folder = asked.work / f"oisst-{count}"
    files = make("oisst", folder, count)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    for file in files:
        file.read_bytes()
    case = f"oisst {count} x 2"
    # as an installer does for every package, the peers' among them; a checkout's modules may never have been compiled
    compileall.compile_dir(str(Path(drystone.__file__).parent), quiet=1)
    best: dict[str, tuple[float, float | None]] = {}
    with tempfile.TemporaryDirectory(dir=asked.work) as scratch:
        for _ in range(1 if asked.quick else ROUNDS):
            for subject in ([] if asked.alone else list(SUBJECTS)) + ["floor", "drystone"]:
                figures = one(subject, folder, files, Path(scratch))
                best[subject] = min(best.get(subject, figures), figures, key=lambda f: f[0])
    for subject in [s for s in SUBJECTS if s in best]:
        report(case, subject, *best[subject])
    seconds = best["floor"][0]
    report(case, "floor", seconds, None, peer=False, note="decode and encode alone, from memory to memory")
    wall, cpu = best["drystone"]
    report(case, "drystone", wall, cpu, target={"times": TIMES}, note=f"{wall / seconds:.2f} x the floor")


def report(case: str, subject: str, wall: float, cpu: float | None, **more: object) -> None:
    target = more.pop("target", None)
    for unit, value in (("s", wall), ("CPU s", cpu)):
        if value is not None:
            extra = {**more, "target": target} if target and unit == "s" else more
            line = {"bench": "rechunk", "case": case, "subject": subject, "value": value, "unit": unit, "more": False, **extra}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

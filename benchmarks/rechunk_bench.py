"""Daily maps to time-long shards: ``drystone.run`` beside VirtualiZarr and xarray with Dask.

*oisst*: 200 days of two maps of one chunk each, to chunks (T, 1, 90, 144) in shards (T, 1, 360, 720). *mur*: 8 days of one map
in tiles of 900 x 900, to chunks (T, 300, 300) in shards (T, 1800, 1800). Both int16 as packed, to blosc zstd 1 with shuffle.

Every subject starts from the files, with its imports and nothing scanned, and ends with a store that others can read. In the
cases *from a table* drystone has scanned before, and VirtualiZarr's virtual Icechunk store is there. Two threads or processes
each; wall seconds of the whole program, and CPU seconds, which say more on a machine that others use. Rounds turn about,
the fastest of each counts. Drystone also flushes every file to the disk; peers do not.

The *floor* decodes every chunk and encodes every inner chunk on two threads, from memory to memory, with the fastest
codecs we know of: what no program that uses them can undercut.
"""

from __future__ import annotations

import argparse
import compileall
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from make_archive import KINDS, make
from peers import SPLIT, VARIABLES

import drystone

HERE = Path(__file__).parent
XARRAY = {"xarray and dask": "rechunk-xarray"}
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
    chunks: {chunks}
    shards: {shards}
    codecs: [{{blosc: {{cname: zstd, level: 1, shuffle: shuffle}}}}]
verify: {{values: none}}
"""


@dataclass(frozen=True)
class Case:
    """An archive, what drystone is measured beside, and how many times faster it should be.

    ``above`` is the bound as a multiple of the floor, ``table`` whether sides start from what they know of the files.
    """

    kind: str
    files: int
    subjects: dict[str, str]
    times: float
    above: float | None
    table: bool = False

    @property
    def name(self) -> str:
        return f"{self.kind} {self.files} x {len(VARIABLES[self.kind])}" + (", from a table" if self.table else "")


CASES = (
    Case(
        "oisst",
        200,
        {"VirtualiZarr, then dask": "rechunk-virtualizarr", **XARRAY, "xarray and dask, p2p": "rechunk-p2p"},
        5.0,
        1.3,
    ),
    Case("oisst", 200, {"VirtualiZarr's store, then dask": "rechunk-existing"}, 2.2, None, True),
    Case("mur", 8, XARRAY, 6.0, 1.3),
)


def floor(files: list[Path], kind: str) -> dict[str, float]:
    """Decode and encode alone, in seconds."""
    import h5py
    import numpy as np
    from numcodecs import blosc

    from drystone.codecs.chain import Codec, CodecChain
    from drystone.codecs.decode import decoder

    blosc.use_threads = False
    tile, level, names = KINDS[kind].chunks, KINDS[kind].level, VARIABLES[kind]
    chain = CodecChain.of(Codec.of("bytes", endian="little"), Codec.of("shuffle", elementsize=2), Codec.of("zlib", level=level))
    decode = decoder(chain, np.dtype("<i2"), tile)
    shape = (len(files), *list(KINDS[kind].dims.values())[1:])
    jobs, cubes = [], [np.zeros(shape, "i2") for _ in names]
    for step, file in enumerate(files):
        data = file.read_bytes()
        with h5py.File(file) as f:
            for cube, name in zip(cubes, names, strict=True):
                for i in range(f[name].id.get_num_chunks()):
                    w = f[name].id.get_chunk_info(i)
                    at = (slice(step, step + 1), *(slice(o, o + n) for o, n in zip(w.chunk_offset[1:], tile[1:], strict=True)))
                    jobs.append((data[w.byte_offset : w.byte_offset + w.size], cube[at]))
    inner = [c for c, _ in SPLIT[kind].values()]
    with ThreadPoolExecutor(2) as pool:
        start = time.perf_counter()
        list(pool.map(lambda job: decode.into(*job), jobs))
        decoded = time.perf_counter()
        axes = [[slice(i, i + c) for i in range(0, n, c)] for n, c in zip(shape[1:], inner, strict=True)]
        parts = [np.ascontiguousarray(cube[:, *place]) for cube in cubes for place in itertools.product(*axes)]
        copied = time.perf_counter()
        list(pool.map(lambda a: blosc.compress(a.reshape(-1).view("u1"), b"zstd", 1, 1, 0, 2), parts))
        encoded = time.perf_counter()
    return {"seconds": decoded - start + encoded - copied}


def write_config(case: Case, folder: Path, out: Path) -> Path:
    """What drystone is to do."""
    chunks = {"time": "all", **{dim: c for dim, (c, _) in SPLIT[case.kind].items()}}
    shards = {"time": "all", **{dim: s for dim, (_, s) in SPLIT[case.kind].items()}}
    text = CONFIG.format(
        raw=folder.resolve().as_uri(), out=out.resolve().as_uri(), chunks=json.dumps(chunks), shards=json.dumps(shards)
    )
    config = out / "bench.yaml"
    config.write_text(text)
    return config


def drystone_command(verb: str, config: Path) -> list[str]:
    """A verb of the command line."""
    program = "import sys; from drystone.cli.main import main; sys.exit(main(sys.argv[1:]))"
    return [sys.executable, "-c", program, verb, str(config)]


def run(command: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds of a program and its children."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def one(case: Case, subject: str, folder: Path, files: list[Path], scratch: Path) -> tuple[float, float | None]:
    """Wall and CPU seconds of one subject; what it wrote is gone afterwards."""
    with tempfile.TemporaryDirectory(dir=scratch) as made:
        out = Path(made)
        if subject == "floor":
            command = [sys.executable, __file__, "--floor", str(folder), "--kind", case.kind]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            return json.loads(done.stdout.splitlines()[-1])["seconds"], None
        if subject == "drystone":
            config = write_config(case, folder, out)
            if case.table:
                run(drystone_command("scan", config))
            figures = run(drystone_command("run", config))
            check(case, files, out / "store.zarr")
            return figures
        rest = [str(folder), str(out / "peer.zarr"), "--threads", "2"]
        if case.table:
            run([sys.executable, str(HERE / "peers.py"), "virtual", *rest])
        return run([sys.executable, str(HERE / "peers.py"), case.subjects[subject], *rest])


def check(case: Case, files: list[Path], out: Path) -> None:
    """A store that is not right is not fast."""
    import h5py
    import numpy as np
    import zarr

    group = zarr.open_group(str(out), mode="r")
    for i in range(0, len(files), max(1, len(files) // 5)):
        with h5py.File(files[i]) as f:
            for name in VARIABLES[case.kind]:
                if not np.array_equal(f[name][0], group[name][i]):
                    raise SystemExit(f"{out}: {name} of {files[i].name} is wrong")


def measure(case: Case, work: Path, rounds: int, alone: bool) -> None:
    """All subjects of a case."""
    folder = work / f"{case.kind}-{case.files}"
    files = make(case.kind, folder, case.files)
    for file in files:
        file.read_bytes()
    best: dict[str, tuple[float, float | None]] = {}
    with tempfile.TemporaryDirectory(dir=work) as scratch:
        for _ in range(rounds):
            for subject in ([] if alone else list(case.subjects)) + ["floor", "drystone"]:
                figures = one(case, subject, folder, files, Path(scratch))
                best[subject] = min(best.get(subject, figures), figures, key=lambda f: f[0])
    for subject in [s for s in case.subjects if s in best]:
        report(case, subject, *best[subject])
    seconds = best["floor"][0]
    report(case, "floor", seconds, None, peer=False, note="decode and encode alone, from memory to memory")
    wall, cpu = best["drystone"]
    report(case, "drystone", wall, cpu, target={"times": case.times})
    if case.above is not None:
        line = {"bench": "rechunk", "case": case.name, "subject": "drystone", "value": wall / seconds, "unit": "x the floor"}
        print(json.dumps({**line, "more": False, "target": {"at_most": case.above}}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=HERE / "work")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--floor", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    parser.add_argument("--alone", action="store_true", help="without the peers, which take minutes")
    asked = parser.parse_args()
    if asked.floor:
        print(json.dumps(floor(sorted(asked.floor.glob("*.nc")), asked.kind)))
        return
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    # as an installer does for every package, the peers' among them; a checkout's modules may never have been compiled
    compileall.compile_dir(str(Path(drystone.__file__).parent), quiet=1)
    for case in CASES:
        if asked.quick:
            case = Case(case.kind, min(case.files, 20), case.subjects, case.times, case.above, case.table)
        measure(case, asked.work, 1 if asked.quick else ROUNDS, asked.alone)


def report(case: Case, subject: str, wall: float, cpu: float | None, **more: object) -> None:
    target = more.pop("target", None)
    for unit, value in (("s", wall), ("CPU s", cpu)):
        if value is not None:
            extra = {**more, "target": target} if target and unit == "s" else more
            line = {
                "bench": "rechunk",
                "case": case.name,
                "subject": subject,
                "value": value,
                "unit": unit,
                "more": False,
                **extra,
            }
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

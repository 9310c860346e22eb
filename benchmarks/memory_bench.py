"""Memory of rechunk tasks: what a worker may take, what the plan predicts, and the peak that receipts record.

One run for each way and shape, on two Dask workers with a limit. The peak is the largest resident size of a worker's process
while it did a task, its libraries included; the prediction is the task's bound and the idle process. A peak must be below the
prediction always, and at least half of it, or workers would stand idle for memory that nobody uses.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from make_archive import make

import drystone
from drystone.config.load import load_config
from drystone.pipeline.archive import Archive
from drystone.plan.memory import BASELINE
from drystone.rechunk.plan_file import load_plan
from drystone.rechunk.receipts import load_receipts

HERE = Path(__file__).parent
CONFIG = """version: 1
name: memory
storage: {{raw: "{raw}", work: "{out}/work", out: "{out}"}}
archive: {{granules: [{{glob: "raw:*.nc"}}]}}
outputs: [{output}]
execution: {{cluster: local, workers: 2, threads_per_worker: 1, memory_per_worker: "{limit}"}}
verify: {{values: none}}
"""
ZSTD = [{"blosc": {"cname": "zstd", "level": 1, "shuffle": "shuffle"}}]


@dataclass(frozen=True)
class Case:
    """A run: archive, memory of a worker, and the output."""

    name: str
    kind: str
    files: int
    limit: str
    output: dict[str, object]


def series(time: object, lat: int, lon: int, **more: object) -> dict[str, object]:
    """Time-long chunks and shards of four by five of them, of the OISST-like archive."""
    chunks = {"time": time, "zlev": 1, "lat": lat, "lon": lon}
    return {"chunks": chunks, "shards": {**chunks, "lat": 4 * lat, "lon": 5 * lon}, "codecs": ZSTD, **more}


CASES = (
    Case("one pass", "oisst", 200, "1 GB", series("all", 90, 144)),
    Case("one pass, small memory", "oisst", 200, "500 MB", series("all", 90, 72)),
    Case("one pass, decoded", "oisst", 200, "3 GB", series("all", 45, 72, values="decoded")),
    Case("one pass, unsharded", "oisst", 200, "600 MB", {"chunks": {"time": "all", "zlev": 1, "lat": 90, "lon": 144}}),
    Case(
        "streamed",
        "oisst",
        200,
        "500 MB",
        series(20, 180, 288) | {"shards": {"time": "all", "zlev": 1, "lat": 720, "lon": 1440}},
    ),
    Case("two passes", "oisst", 200, "450 MB", series("all", 90, 144)),
    Case(
        "repack",
        "bran",
        2,
        "600 MB",
        {"mode": "repack", "chunks": "source", "shards": {"time": 31, "lev": 51, "lat": 50, "lon": 144}},
    ),
    Case(
        "tiles",
        "mur",
        8,
        "1500 MB",
        {"chunks": {"time": "all", "lat": 300, "lon": 300}, "shards": {"time": "all", "lat": 1800, "lon": 1800}},
    ),
)


def measure(case: Case, work: Path, files: int) -> None:
    """One run; its figures on standard output."""
    raw = work / f"{case.kind}-{files}"
    make(case.kind, raw, files)
    with tempfile.TemporaryDirectory(dir=work) as folder:
        out = Path(folder).resolve()
        config = out / "memory.yaml"
        output = json.dumps({"store": "zarr", "at": "out:store.zarr", **case.output})
        config.write_text(CONFIG.format(raw=raw.resolve().as_uri(), out=out.as_uri(), output=output, limit=case.limit))
        drystone.run(config)
        archive = Archive.of(load_config(config))
        run = archive.run_key(archive.config.outputs[0])
        plan = load_plan(archive.store, run)
        assert plan is not None
        peak = max(r.peak_rss for r in load_receipts(archive.store, run))
    predicted = plan.memory + BASELINE
    note = f"peak {peak / 1e6:.0f} MB, predicted {predicted / 1e6:.0f}, limit {case.limit}, {plan.n_tasks} tasks"
    line = {"bench": "memory", "case": case.name, "subject": "drystone", "value": peak / predicted, "unit": "of the prediction"}
    print(json.dumps({**line, "more": True, "target": {"at_least": 0.5}, "note": note}), flush=True)


def main() -> None:
    """Run all, or some."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=HERE / "work")
    parser.add_argument("--quick", action="store_true", help="fewer files, no claim")
    parser.add_argument("--only", help="names of cases, apart by commas")
    asked = parser.parse_args()
    for case in CASES:
        if asked.only is None or case.name in asked.only.split(","):
            measure(case, asked.work, min(case.files, 20) if asked.quick else case.files)


if __name__ == "__main__":
    main()

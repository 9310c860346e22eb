"""Publishing one million references: Icechunk and kerchunk Parquet, beside VirtualiZarr in the same run.

The references are made up: 1,000 granules of 1,000 chunks each, at offsets and lengths as compressed chunks have them.
No granule is read by either side. Every subject runs in a process of its own, on all cores, turn about, and the fastest
of its runs counts; both start from what they hold in memory (columns; a manifest) and end with the form committed. Ours
looks at each granule again before the commit and counts the references after it, which is in its time.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drystone.codecs.chain import Codec, CodecChain
from drystone.emit.view import TableView
from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.array import ArraySpec, GroupSpec
from drystone.model.chunk_rows import RowBatch
from drystone.model.granule import Granule
from drystone.model.placement import Combined, CombinedArray, Placements
from drystone.storage.address import Places
from drystone.storage.local import LocalStore
from drystone.storage.store import Place

GRANULES = 1000
CHUNK = (1, 10, 10)


def name(i: int) -> str:
    """A path as archives have them."""
    return f"avhrr-only-v2.{1981 + i // 365}/sst.day.mean.{1981 + i // 365}.{i:06d}.nc"


def columns(per: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offsets and lengths of all chunks, one row a granule."""
    rng = np.random.default_rng(0)
    length = rng.integers(2_000, 40_000, (GRANULES, per))
    return np.cumsum(length, axis=1) - length + 4096, length


@dataclass
class MadeUpRows:
    """A row source of whole granules in batches of 200,000 rows."""

    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    granules: dict[int, Granule]
    grid: tuple[int, int]

    def granule(self, granule_id: int) -> Granule:
        return self.granules[granule_id]

    def rows(self, path: str, granule_ids: NDArray[np.int32] | None = None) -> Iterator[RowBatch]:
        per = self.offset.shape[1]
        step = max(1, 200_000 // per)
        y, x = (c.reshape(-1) for c in np.indices(self.grid, np.int32))
        for start in range(0, GRANULES, step):
            n = min(step, GRANULES - start)
            coords = np.stack([np.zeros(n * per, np.int32), np.tile(y, n), np.tile(x, n)])
            yield RowBatch(
                np.repeat(np.arange(start, start + n, dtype=np.int32), per),
                coords,
                self.offset[start : start + n].reshape(-1),
                self.length[start : start + n].reshape(-1),
                np.zeros(n * per, np.int8),
            )


def our_view(folder: Path, per: int) -> TableView:
    """A view over sparse files, so that they can be looked at again before the commit."""
    grid = (per // 25, 25)
    shape = (GRANULES, grid[0] * CHUNK[1], grid[1] * CHUNK[2])
    chain = CodecChain.of(Codec.of("bytes", endian="little"), Codec.of("shuffle", elementsize=2), Codec.of("zlib", level=4))
    dtype = np.dtype("<i2")
    spec = ArraySpec("/sst", ("time", "lat", "lon"), (1, *shape[1:]), CHUNK, dtype, None, chain)
    ids = np.arange(GRANULES, dtype=np.int32)
    placements = Placements(0, ids, ids * np.int64(0), ids * np.int64(0) + 1, ids.astype(np.int64), ids * np.int32(0))
    array = CombinedArray(
        "/sst", spec.dims, shape, dtype, dtype, None, chain, spec.attributes, ChunkGrid.regular(shape, CHUNK), None, placements,
        (spec,),
    )  # fmt: skip
    places = Places.of([Place("raw", folder.as_uri())])
    store = places.store("raw")
    offset, length = columns(per)
    granules = {i: Granule(i, f"raw:{name(i)}", store.stat(name(i)), "hdf5", 0, per, f"{i:032x}") for i in ids.tolist()}
    rows = MadeUpRows(offset, length, granules, grid)
    return TableView(Combined((GroupSpec("/"),), (array,), "time"), rows, places, None)  # type: ignore[arg-type]


def ours_icechunk(folder: Path, out: Path, per: int) -> Callable[[], object]:
    import icechunk  # noqa: F401
    import zarr  # noqa: F401

    from drystone.emit.icechunk import IcechunkEmitter

    view = our_view(folder, per)
    return lambda: IcechunkEmitter().emit(view, LocalStore(out), "repo", {})


def ours_kerchunk(folder: Path, out: Path, per: int) -> Callable[[], object]:
    import pyarrow.parquet  # noqa: F401

    from drystone.emit.kerchunk_parquet import KerchunkParquetEmitter

    view = our_view(folder, per)
    return lambda: KerchunkParquetEmitter().emit(view, LocalStore(out), "refs", {})


def peer_dataset(folder: Path, per: int) -> object:
    """The same references as a virtual dataset."""
    import xarray as xr
    from virtualizarr.manifests import ChunkManifest, ManifestArray
    from virtualizarr.manifests.utils import create_v3_array_metadata
    from zarr.codecs import BytesCodec
    from zarr.codecs.numcodecs import Shuffle, Zlib

    offset, length = columns(per)
    grid = (GRANULES, per // 25, 25)
    paths = np.array([f"{folder.as_uri()}/{name(i)}" for i in range(GRANULES)], np.dtypes.StringDType())
    manifest = ChunkManifest.from_arrays(
        paths=np.repeat(paths, per).reshape(grid),
        offsets=offset.astype(np.uint64).reshape(grid),
        lengths=length.astype(np.uint64).reshape(grid),
    )
    metadata = create_v3_array_metadata(
        shape=(GRANULES, grid[1] * CHUNK[1], grid[2] * CHUNK[2]),
        data_type=np.dtype("<i2"),
        chunk_shape=CHUNK,
        fill_value=0,
        codecs=[c.to_dict() for c in (BytesCodec(), Shuffle(elementsize=2), Zlib(level=4))],
        dimension_names=("time", "lat", "lon"),
    )
    return xr.Dataset({"sst": (("time", "lat", "lon"), ManifestArray(metadata=metadata, chunkmanifest=manifest))})


def peer_icechunk(folder: Path, out: Path, per: int) -> Callable[[], object]:
    import icechunk
    import virtualizarr  # noqa: F401

    icechunk.set_logs_filter("error")
    vds = peer_dataset(folder, per)

    def work() -> None:
        config = icechunk.RepositoryConfig.default()
        prefix = f"{folder.as_uri()}/"
        config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, icechunk.local_filesystem_store(str(folder))))
        repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(out / "repo")), config=config)
        session = repo.writable_session("main")
        vds.vz.to_icechunk(session.store, last_updated_at=dt.datetime.now(dt.UTC))  # type: ignore[attr-defined]
        session.commit("peer")

    return work


def peer_kerchunk(folder: Path, out: Path, per: int) -> Callable[[], object]:
    vds = peer_dataset(folder, per)
    return lambda: vds.vz.to_kerchunk(str(out / "refs.parq"), format="parquet")  # type: ignore[attr-defined]


WORK = {f.__name__: f for f in (ours_icechunk, ours_kerchunk, peer_icechunk, peer_kerchunk)}


def peak_rss() -> int:
    """Bytes, of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def one(kind: str, folder: Path, per: int) -> None:
    """Measure in this process; print JSON."""
    with tempfile.TemporaryDirectory() as out:
        work = WORK[kind](folder, Path(out), per)
        before = peak_rss()
        start, cpu = time.perf_counter(), time.process_time()
        work()
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        size = sum(p.stat().st_size for p in Path(out).rglob("*") if p.is_file())
        print(
            json.dumps(
                {"seconds": seconds, "cpu_seconds": cpu, "rss_before": before, "peak_rss": peak_rss(), "bytes_on_disk": size}
            )
        )


def measure(kind: str, folder: Path, per: int) -> dict[str, float]:
    """One run in a process of its own."""
    command = [sys.executable, __file__, "--one", kind, "--folder", str(folder), "--per", str(per)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def has_peer() -> bool:
    """Whether VirtualiZarr is installed."""
    try:
        version("virtualizarr")
    except PackageNotFoundError:
        return False
    return True


TARGETS = {"icechunk": {"times": 1}, "kerchunk": {"times": 80}}


def report(form: str, subject: str, best: dict[str, float], references: int) -> None:
    """Print the figures of one subject."""
    target = TARGETS[form] if subject == "drystone" else None
    rows: list[tuple[str, float, str, bool, object]] = [
        (form, references / best["seconds"], "refs/s", True, target),
        (f"{form}, processor", best["cpu_seconds"] / references * 1e6, "s/million", False, None),
        (f"{form}, peak memory", best["peak_rss"], "B", False, {"at_most": 1e9} if target else None),
        (f"{form}, stored", best["bytes_on_disk"] / references, "B/ref", False, None),
    ]
    for case, value, unit, more, aim in rows:
        row: dict[str, object] = {
            "bench": "emit", "case": case, "subject": subject, "value": value, "unit": unit, "more": more
        }  # fmt: skip
        print(json.dumps(row | ({"target": aim} if aim else {})), flush=True)


def main() -> None:
    """Run all and print one JSON object a figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, help="where files are written; by default the folder for temporary files")
    parser.add_argument("--quick", action="store_true", help="50,000 references, one run each")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--one", choices=sorted(WORK), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--per", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        one(args.one, args.folder, args.per)
        return
    per, repeat = (50, 1) if args.quick else (1000, args.repeat)
    if args.work:
        args.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.work) as temporary:
        folder = Path(temporary)
        for i in range(GRANULES):
            path = folder / name(i)
            path.parent.mkdir(exist_ok=True)
            path.touch()
        subjects = {"ours": "drystone", "peer": "VirtualiZarr"} if has_peer() else {"ours": "drystone"}
        for form in TARGETS:
            # the peer's Parquet writer takes half a minute and is not near: once is enough
            turns = 1 if form == "kerchunk" else repeat
            runs: dict[str, list[dict[str, float]]] = {who: [] for who in subjects}
            for turn in range(repeat):
                for who in subjects:
                    if who == "ours" or turn < turns:
                        runs[who].append(measure(f"{who}_{form}", folder, per))
            for who, subject in subjects.items():
                report(form, subject, min(runs[who], key=lambda r: r["seconds"]), GRANULES * per)


if __name__ == "__main__":
    main()

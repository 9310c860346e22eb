"""What a task does between its references and its objects, in CPU seconds, beside forty plain lines that do the same.

*inner*: writing a slab in inner chunks of 32 kB and of 1 MB, from memory to memory, blosc lz4 and zstd; the figure is how
much more a byte of small chunks costs. *round*: the same in chunks of 1 MB, values rounded to 7 bits of mantissa in the
encoder's buffer, where the fill, which stays, lies apart from them and where it lies among them; and rounding by itself.
*slab*: float32 (512, 256, 512), blosc lz4, chunks (4, 256, 512) in one file to 16 shards (512, 64, 128) of inner chunks (64,
32, 32), one CPU. The plain loop reads with ``os.pread``, decodes into a slab, cuts, encodes and writes each shard with its
index; it neither checks for fill, nor flushes, nor takes checksums of what it wrote, as drystone does. Both in one process,
turn about; the median of each, and of the ratios of rounds, counts. Drystone's side is its fetcher and its writer: no scan,
no plan, no receipt. The shards of both must have the same bytes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import google_crc32c
import numpy as np
from numcodecs import blosc

from drystone.codecs.chain import Codec, CodecChain
from drystone.fetch.fetcher import Fetcher
from drystone.fetch.memory_rows import MemoryRows
from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.array import ArraySpec
from drystone.model.attributes import Attributes
from drystone.model.chunk_rows import ChunkRows, ScannedArray, ScanResult
from drystone.model.granule import Granule
from drystone.model.placement import CombinedArray, Placements
from drystone.model.rounding import Rounding
from drystone.plan.layout import TargetLayout
from drystone.rechunk.cells import write_region
from drystone.rechunk.writer import ObjectWriter
from drystone.storage.address import Places
from drystone.storage.local import LocalStore
from drystone.storage.store import Place

SHARD, INNER, SOURCE = (512, 64, 128), (64, 32, 32), (4, 256, 512)


class Nowhere:
    """A store that forgets."""

    url = "nowhere:"

    def put(self, key: str, data: Iterable[bytes]) -> None:
        sum(map(len, data))

    def delete(self, key: str) -> None:
        return


def layout(shape: tuple[int, ...], chunk: tuple[int, ...], shard: tuple[int, ...], name: str, level: int) -> TargetLayout:
    codec = Codec.of("blosc", cname=name, clevel=level, shuffle="shuffle")
    chain = CodecChain.of(Codec.of("bytes", endian="little"), codec)
    return TargetLayout("/a", ("t", "y", "x"), shape, np.dtype("f4"), chunk, shard, chain, bytes(4))


def field(shape: tuple[int, int, int]) -> np.ndarray:
    """Waves and noise of 12 mantissa bits."""
    t, y, x = (np.arange(n, dtype="f4") for n in shape)
    noise = np.random.default_rng(1).normal(0, 0.01, shape).astype("f4")
    noise += np.sin(t / 20)[:, None, None] + np.cos(y / 30)[:, None] + x / 100
    return (noise.view("u4") & np.uint32(0xFFFFF800)).view("f4")


def cpu(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def inner(rounds: int) -> None:
    slab = field((256, 256, 256))
    for name, level in (("lz4", 5), ("zstd", 1)):
        spent: dict[str, list[float]] = {"32 kB": [], "1 MB": []}
        for _ in range(rounds):
            for case, chunk in (("32 kB", (8, 32, 32)), ("1 MB", (64, 64, 64))):
                lay = layout(slab.shape, chunk, (256, 128, 128), name, level)
                spent[case].append(cpu(lambda lay=lay: write_region(ObjectWriter(Nowhere(), ""), lay, slab, (0, 0, 0), 1)))  # type: ignore[misc]
        for case, seconds in spent.items():
            report(f"inner {name} {case}", "drystone", slab.nbytes / 1e6 / statistics.median(seconds), "MB/CPU s", more=True)
        ratio = statistics.median(a / b for a, b in zip(spent["32 kB"], spent["1 MB"], strict=True))
        report(f"inner {name}", "drystone", ratio, "x a byte of 1 MB", more=False, target={"at_most": 1.5})


def rounding(rounds: int) -> None:
    slab, seven = field((256, 256, 256)), Rounding(keepbits=7)
    chunk, shard = (64, 64, 64), (256, 128, 128)
    for name, level in (("lz4", 5), ("zstd", 1)):
        exact = layout(slab.shape, chunk, shard, name, level)
        among = replace(exact, rounding=seven)
        cases = {"exact": exact, "fill apart": replace(among, fill=np.float32(-999).tobytes()), "fill among values": among}
        spent: dict[str, list[float]] = {case: [] for case in (*cases, "rounding alone")}
        for _ in range(rounds):
            for case, lay in cases.items():
                spent[case].append(cpu(lambda lay=lay: write_region(ObjectWriter(Nowhere(), ""), lay, slab, (0, 0, 0), 1)))  # type: ignore[misc]
            copy = slab.copy()
            spent["rounding alone"].append(cpu(lambda copy=copy: seven.apply(copy, np.array([-999], "f4"))))  # type: ignore[misc]
        for case, seconds in spent.items():
            report(f"round {name} {case}", "drystone", slab.nbytes / 1e6 / statistics.median(seconds), "MB/CPU s", more=True)
        for case in ("fill apart", "fill among values"):
            ratio = statistics.median(a / b for a, b in zip(spent[case], spent["exact"], strict=True))
            report(f"round {name} {case}, cost", "drystone", ratio, "x the time of exact values", more=False)


def plain(path: Path, table: list[tuple[int, int]], shape: tuple[int, ...], out: Path) -> None:
    """The bare slab loop."""
    blosc.use_threads = False
    slab = np.empty(shape, "f4")
    file = os.open(path, os.O_RDONLY)
    for i, (offset, length) in enumerate(table):
        blosc.decompress(os.pread(file, length, offset), slab[i * SOURCE[0] : (i + 1) * SOURCE[0]])
    os.close(file)
    for cell in itertools.product(*(range(0, n, s) for n, s in zip(shape, SHARD, strict=True))):
        parts, index, at = [], [], 0
        for place in itertools.product(*(range(0, n, c) for n, c in zip(SHARD, INNER, strict=True))):
            box = tuple(slice(a + b, a + b + c) for a, b, c in zip(cell, place, INNER, strict=True))
            raw = np.ascontiguousarray(slab[box]).reshape(-1).view("u1")
            parts.append(blosc.compress(raw, b"lz4", 5, blosc.SHUFFLE, 0, 4))
            index.append((at, len(parts[-1])))
            at += len(parts[-1])
        tail = np.array(index, "<u8").tobytes()
        key = out / "c" / "/".join(str(a // s) for a, s in zip(cell, SHARD, strict=True))
        key.parent.mkdir(parents=True, exist_ok=True)
        key.write_bytes(b"".join([*parts, tail, google_crc32c.value(tail).to_bytes(4, "little")]))


def make(path: Path, shape: tuple[int, int, int]) -> list[tuple[int, int]]:
    """The source file; offset and length of each chunk."""
    blosc.use_threads = False
    values, table = field(shape), []
    with path.open("wb") as f:
        for i in range(0, shape[0], SOURCE[0]):
            raw = values[i : i + SOURCE[0]].reshape(-1).view("u1")
            data = blosc.compress(raw, b"lz4", 5, blosc.SHUFFLE, 0, 4)
            table.append((f.tell(), len(data)))
            f.write(data)
    return table


def fetcher_of(folder: Path, name: str, table: list[tuple[int, int]], lay: TargetLayout) -> tuple[Fetcher, CombinedArray]:
    shape = lay.shape
    spec = ArraySpec("/a", lay.dims, shape, SOURCE, np.dtype("<f4"), None, lay.codecs, Attributes(), (False,) * 3, False, True)
    coords = np.zeros((3, len(table)), np.int32)
    coords[0] = np.arange(len(table))
    offsets, lengths = np.array(table, np.int64).T.copy()
    scanned = ScannedArray(spec, ChunkRows(coords, offsets, lengths, np.zeros(len(table), np.int8)), {}, {})
    granule = Granule(0, f"here:{name}", LocalStore(str(folder)).stat(name), "test", 0, 0, "")
    rows = MemoryRows({0: granule}, {0: ScanResult("test", (), (scanned,))})
    zero = np.zeros(1, np.int64)
    placed = Placements(0, zero.astype(np.int32), zero, np.array([shape[0]]), zero, zero.astype(np.int32))
    array = CombinedArray(
        "/a", lay.dims, shape, spec.native_dtype, spec.dtype, None, spec.codecs, spec.attributes,
        ChunkGrid.regular(shape, SOURCE), None, placed, (spec,),
    )  # fmt: skip
    places = Places.of([Place("here", folder.resolve().as_uri())])
    return Fetcher(places, rows, threads=1, bytes_in_flight=32 << 20), array


def slab(rounds: int, shape: tuple[int, int, int], work: Path) -> None:
    with tempfile.TemporaryDirectory(dir=work) as made:
        folder = Path(made)
        table = make(folder / "source.bin", shape)
        lay = layout(shape, INNER, SHARD, "lz4", 5)
        fetcher, array = fetcher_of(folder, "source.bin", table, lay)
        store, buffer = LocalStore(str(folder / "ours")), np.empty(shape, "f4")

        def ours() -> None:
            fetcher.read_box(array, (0, 0, 0), shape, out=buffer)
            write_region(ObjectWriter(store, ""), lay, buffer, (0, 0, 0), 1)

        spent: dict[str, list[float]] = {"plain loop": [], "drystone": []}
        for i in range(rounds + 1):
            seconds = {
                "plain loop": cpu(lambda: plain(folder / "source.bin", table, shape, folder / "plain")),
                "drystone": cpu(ours),
            }
            for subject in spent if i else ():  # the first round warms up
                spent[subject].append(seconds[subject])
        files = [p.relative_to(folder / "plain") for p in sorted((folder / "plain").rglob("*")) if p.is_file()]
        if not all((folder / "plain" / f).read_bytes() == (folder / "ours" / "a" / f).read_bytes() for f in files):
            raise SystemExit("the shards differ from the plain loop's")
    for subject, found in spent.items():
        report("slab lz4", subject, buffer.nbytes / 1e6 / statistics.median(found), "MB/CPU s", more=True)
    ratio = statistics.median(a / b for a, b in zip(spent["plain loop"], spent["drystone"], strict=True))
    report("slab lz4", "drystone", ratio, "x the plain loop", more=True, target={"at_least": 1})


def report(case: str, subject: str, value: float, unit: str, **more: object) -> None:
    print(json.dumps({"bench": "loop", "case": case, "subject": subject, "value": value, "unit": unit, **more}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path(__file__).parent / "work")
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    inner(3 if asked.quick else 9)
    rounding(3 if asked.quick else 9)
    slab(3 if asked.quick else 9, (512, 256, 512), asked.work)


if __name__ == "__main__":
    main()

"""What the engine itself takes, beside codecs and storage: per chunk, per granule, per task, per byte moved in memory.

The engine's own functions are run on next to nothing, in memory where they can be, so that what is measured is what a run
pays.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from google_crc32c import value
from numpy.typing import NDArray

from drystone.codecs.chain import Codec, CodecChain
from drystone.codecs.encode import encode_chunk
from drystone.execute.engine import run_windowed
from drystone.fetch.fetcher import Fetcher
from drystone.fetch.memory_rows import MemoryRows
from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.array import ArraySpec
from drystone.model.attributes import Attributes
from drystone.model.chunk_rows import ChunkRows, ScannedArray, ScanResult
from drystone.model.granule import Granule
from drystone.model.options import ExecutionOptions
from drystone.model.placement import CombinedArray
from drystone.model.placements import Placements
from drystone.pipeline.doctor.codecs import busy_seconds
from drystone.plan.layout import TargetLayout
from drystone.rechunk.cells import write_region
from drystone.rechunk.shard import ChunkEncoder
from drystone.rechunk.writer import ObjectWriter
from drystone.storage.address import Places
from drystone.storage.local import LocalStore
from drystone.storage.store import Place

__all__ = ["Handling", "cluster_start", "measure_handling"]

_I2 = np.dtype("<i2")
_PLAIN = CodecChain.of("bytes")
_CHAIN = CodecChain.of("bytes", Codec.of("shuffle", elementsize=2), Codec.of("zlib", level=1))
_TINY = 64  # elements of a chunk whose codec costs next to nothing
_CHUNKS, _GRANULES = 2000, 200
_FRESH = 64_000_000
_SLAB = (512, 64, 1024)  # 64 MB, more than most caches hold
_ROWS = 256  # elements that a chunk takes of each step


@dataclass(frozen=True, slots=True)
class Handling:
    """See :class:`~drystone.model.rates.Rates`."""

    gather_byte: float
    gather_row: float
    fresh: float
    chunk_read: float
    chunk_write: float
    granule: float
    checksum: float


def measure_handling(folder: str, cpus: int) -> Handling:
    """Run the engine's parts on next to nothing.

    Parameters
    ----------
    folder
        Empty; a file of some hundred kB is written there.
    """
    wide, narrow = _gathered(256, cpus), _gathered(32, cpus)
    row = max(0.0, (narrow - wide) / (1 / 64 - 1 / 512))
    one = _reading(folder, 1, _CHUNKS) / _CHUNKS
    each = _reading(folder, _GRANULES, 1) / _GRANULES
    data = np.zeros(1 << 22, np.uint8)
    return Handling(
        max(0.0, wide - row / 512),
        row,
        _fresh(),
        one,
        _writing(folder) / _CHUNKS,
        max(0.0, each - one),
        len(data) / busy_seconds(lambda: value(data), cpus),
    )


def _gathered(run: int, cpus: int) -> float:
    """CPU seconds for each byte that is cut out of a slab in rows of ``run`` elements of two bytes."""
    steps, height, width = _SLAB
    shape = (steps, _ROWS // run, run)
    slab, plain = np.ones(_SLAB, _I2), np.ones(shape, _I2)
    encoder = ChunkEncoder(_layout(shape, None))
    corners = itertools.product(range(0, height, shape[1]), range(0, width, run))
    places = itertools.cycle(corners)

    def copy() -> object:
        y, x = next(places)  # another place each time, or the cache would have it
        return encoder.encode(slab[:, y : y + shape[1], x : x + run])

    return max(1e-12, busy_seconds(copy, cpus) - busy_seconds(lambda: encoder.encode(plain), cpus)) / plain.nbytes


def _layout(chunk: tuple[int, ...], shard: tuple[int, ...] | None) -> TargetLayout:
    dims = ("t", "y", "x")[-len(chunk) :]
    return TargetLayout("/v", dims, shard or chunk, _I2.newbyteorder("="), chunk, shard, _PLAIN, bytes(2))


def _fresh() -> float:
    """CPU seconds for each byte that is got from the system and written first, above those of writing it again."""

    def spent() -> tuple[float, float]:
        began = time.thread_time()
        memory = np.empty(_FRESH, np.uint8)
        memory.fill(1)
        first = time.thread_time() - began
        memory.fill(2)
        return first, time.thread_time() - began - first

    runs = [spent() for _ in range(3)]
    return max(0.0, min(first for first, _ in runs) - min(again for _, again in runs)) / _FRESH


def _writing(folder: str) -> float:
    """Seconds of cutting and laying many tiny inner chunks."""
    side = math.isqrt(_TINY)
    shard = (side * 40, side * _CHUNKS // 40)
    layout = _layout((side, side), shard)
    slab, writer = np.arange(math.prod(shard)).astype(_I2).reshape(shard), ObjectWriter(LocalStore(folder), "")
    return _best(lambda: write_region(writer, layout, slab, (0, 0), 1))


def _reading(folder: str, granules: int, chunks: int) -> float:
    """Seconds of reading tiny chunks of some granules, through references held in memory."""
    values = np.arange(_TINY, dtype=_I2)
    data = encode_chunk(values, _CHAIN, _I2)
    store = LocalStore(folder)
    store.put("tiny", data * chunks)
    stamp = store.stat("tiny")
    shape = (chunks * _TINY,)
    spec = ArraySpec("/v", ("x",), shape, (_TINY,), _I2, None, _CHAIN, Attributes(), (False,), False, True)
    at = np.arange(chunks)
    rows = ChunkRows(at[None].astype(np.int32), at * len(data), np.full(chunks, len(data)), np.zeros(chunks, np.int8))
    scan = ScanResult("doctor", (), (ScannedArray(spec, rows, {}, {}),))
    known = {g: Granule(g, "here:tiny", stamp, "doctor", 0, chunks, "") for g in range(granules)}
    fetcher = Fetcher(
        Places.of([Place("here", store.url)]), MemoryRows(known, dict.fromkeys(known, scan)), threads=1, bytes_in_flight=1 << 24
    )
    number, n = np.arange(granules, dtype=np.int32), chunks * _TINY
    long = number.astype(np.int64)
    where = Placements(0, number, 0 * long, 0 * long + n, n * long, 0 * number)
    whole = (granules * n,)
    array = CombinedArray(
        "/v",
        ("x",),
        whole,
        values.dtype.newbyteorder("="),
        _I2,
        None,
        _CHAIN,
        Attributes(),
        ChunkGrid.regular(whole, (_TINY,)),
        None,
        where,
        (spec,),
    )
    out: NDArray[np.generic] = np.empty(whole, array.dtype)
    return _best(lambda: fetcher.read_box(array, (0,), whole, out=out))


def _best(work: Callable[[], object], times: int = 3) -> float:
    """CPU seconds of this process for one call; the best of a few, after one that does not count."""
    work()
    spent = []
    for _ in range(times):
        began = time.process_time()
        work()
        spent.append(time.process_time() - began)
    return min(spent)


def cluster_start(workers: int) -> float:
    """Seconds until a cluster of processes on this host has run its first task."""
    began = time.perf_counter()
    first: list[float] = []
    run_windowed(
        abs,
        range(workers),
        ExecutionOptions("local", workers=workers, memory_per_worker=1 << 30),
        on_done=lambda *_: first.append(time.perf_counter() - began),
        on_failed=lambda *_: None,
        inline=False,
    )
    return first[0]

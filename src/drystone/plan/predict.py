"""How long a way of writing an array will take: a pure function of what it does and of rates that were measured.

:class:`Work` says what all tasks of one pass do, in counts and bytes; a way of several passes is several of them, and its
time the sum. Inside a task

- ranges are fetched and decoded by its threads, so one thread's wait is another's decoding, until the place gives no more;
- encoding runs while the write cell before is put, so the longer of the two counts, and of the shorter one cell;
- a streamed object and a copied one are flushed when all of it was read and encoded;
- what Python does for a chunk keeps the other threads of the process waiting.

Tasks share the place's bandwidth and the host's cores. Scanning, verifying and publishing are no part of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from drystone.codecs.chain import Codec, CodecChain
from drystone.model.rates import CodecRate, CodecUse, Rates
from drystone.model.recode import Recode
from drystone.model.rounding import Rounding

__all__ = [
    "UNMEASURED",
    "Coded",
    "Crew",
    "Prediction",
    "Work",
    "decode_uses",
    "encode_uses",
    "predict",
    "recode_uses",
    "round_use",
]

UNMEASURED = "not predicted: run `drystone doctor`"


@dataclass(frozen=True, slots=True)
class Crew:
    """Who works: processes, threads in each, and the cores they share."""

    workers: int
    threads: int
    cores: int


@dataclass(frozen=True, slots=True)
class Coded:
    """Bytes that go through a codec: raw ones, how many encoded ones come to each, and in how many calls."""

    use: CodecUse
    nbytes: float
    share: float
    calls: float = 0.0


@dataclass(frozen=True, slots=True)
class Work:
    """What all tasks of one pass do.

    Parameters
    ----------
    source, target
        Keys of the places that are read and written.
    tasks
        How many.
    busiest
        Share of the work that the slot with the most of it has, times the slots: 1 where all have as much.
    granules, chunks, fetched
        Granules opened, chunks read and bytes fetched, over all tasks: what is opened by two tasks counts twice.
    decoded
        Bytes through each codec.
    moved
        (bytes, bytes of a contiguous row) of each copy in memory.
    encoded
        As ``decoded``.
    written_chunks, objects, written
        Inner chunks encoded, objects put, their bytes.
    fresh
        Bytes of buffers, over all workers.
    checked, reread
        Bytes summed, and of those that are read back from the target, which the system still has in memory.
    how
        ``whole``: a region is read, then encoded; ``streamed``: both at once; ``copied``: each object by a thread of its own.
    streams
        Objects that one task copies at a time.
    """

    source: str
    target: str
    tasks: int
    busiest: float
    granules: float
    chunks: float
    fetched: float
    decoded: tuple[Coded, ...]
    moved: tuple[tuple[float, float], ...]
    encoded: tuple[Coded, ...]
    written_chunks: float
    objects: float
    written: float
    fresh: float = 0.0
    checked: float = 0.0
    reread: float = 0.0
    how: Literal["whole", "streamed", "copied"] = "whole"
    streams: int = 1


@dataclass(frozen=True, slots=True)
class Prediction:
    """Seconds of a way, and what they are spent on; or why nobody knows.

    Parameters
    ----------
    seconds
        Wall time of all tasks; None: not predicted.
    parts
        CPU seconds by what they do, and seconds of waiting for places, for comparison only: they overlap.
    why
        Where it is not predicted.
    """

    seconds: float | None
    parts: tuple[tuple[str, float], ...] = ()
    why: str = ""

    def to_json(self) -> dict[str, object]:
        """For ``--json``."""
        return {"seconds": self.seconds, "parts": dict(self.parts), "why": self.why}


def predict(passes: Sequence[Work], rates: Rates | None, crew: Crew) -> Prediction:
    """Wall seconds of one pass after the other.

    Examples
    --------
    >>> predict((), None, Crew(1, 2, 2)).why
    'not predicted: run `drystone doctor`'
    >>> from drystone.model.rates import PlaceRates
    >>> place = PlaceRates(1e9, 1e9, 0.0, 1e8, 1e8, 0.0, 0.0, 0.0, True)
    >>> inflate = CodecRate(CodecUse("zlib"), ((0.5, 5e8),))
    >>> rates = Rates("h", "0", "", 2, (inflate,), (), 0, 0, 0, 0, 0, 0, 0, 0, 1e9, {"p": place})
    >>> zlib = Coded(CodecUse("zlib"), 10**9, 0.5)
    >>> predict([Work("p", "p", 1, 1.0, 1, 1, 0, (zlib,), (), (), 1, 1, 10**8)], rates, Crew(1, 2, 2)).seconds
    2.0
    """
    if rates is None:
        return Prediction(None, why=UNMEASURED)
    for work in passes:
        missing = next((key for key in (work.source, work.target) if key not in rates.places), None)
        if missing is None and rates.places[work.target].write is None:
            missing = f"writing to {work.target}"
        if missing is not None:
            return Prediction(None, why=f"{UNMEASURED} CONFIG, which measures {missing}")
        for coded, known in ((work.decoded, rates.decode), (work.encoded, rates.encode)):
            odd = next((c.use for c in coded if _nearest(known, c.use) is None), None)
            if odd is not None:
                return Prediction(None, why=f"not predicted: the codec {odd.name} was not measured")
    parts: dict[str, float] = {}
    seconds = sum(_one(work, rates, crew, parts) for work in passes)
    return Prediction(seconds, tuple(parts.items()))


def _one(work: Work, rates: Rates, crew: Crew, parts: dict[str, float]) -> float:
    """Seconds of one pass; what they are spent on is added to ``parts``."""
    source, target = rates.places[work.source], rates.places[work.target]
    slots = min(crew.workers, max(1, work.tasks))
    cpus = max(1, min(slots * crew.threads, crew.cores))
    decode, encode = _coded(work.decoded, rates.decode), _coded(work.encoded, rates.encode)
    move = work.fresh * rates.fresh + sum(n * rates.gather_byte + n / max(row, 1) * rates.gather_row for n, row in work.moved)
    check = work.checked / rates.checksum + work.reread * rates.gather_byte
    handing = work.written * target.write_cpu
    held = {
        "chunks": work.chunks * rates.chunk_read + work.written_chunks * rates.chunk_write,
        "granules": work.granules * rates.granule,
        "tasks": work.tasks * rates.task,
    }
    told = {"decode": decode, "move": move, "encode": encode, "check": check, **held}
    told["hand over"] = handing + work.fetched * source.read_cpu
    most = work.fetched / source.read, work.written / (target.write or 1.0)
    for name, value in {**told, "read": most[0], "write": most[1]}.items():
        parts[name] = parts.get(name, 0.0) + value

    streams = min(work.streams, max(1.0, work.objects / max(work.tasks, 1)))
    readers = slots * (streams if work.how == "copied" else crew.threads)
    read = (work.fetched / source.read_one + work.granules * source.request) / readers
    put = (work.written / (target.write_one or 1.0) + work.objects * (target.put or 0.0)) / (slots * streams)
    # a copying thread hands over by itself, so that it is in the time of putting
    beside = 0.0 if work.how == "copied" else handing
    front, back = read + (decode + move / 2) / cpus, (encode + move / 2 + check + beside) / cpus
    if work.how == "whole":
        put = max(most[1], put)
        total = max(most[0], front) + max(back, put) + min(back, put) * min(1.0, work.tasks / max(work.objects, 1.0))
    else:
        # what was written is flushed at the end of an object, when there is nothing left to do beside
        total = max(front + back + put, *most)
    # one interpreter a process: its threads wait for one another
    return work.busiest * (total + sum(held.values()) / slots)


def _coded(coded: Iterable[Coded], known: Sequence[CodecRate]) -> float:
    seconds = 0.0
    for c in coded:
        rate = _nearest(known, c.use)
        seconds += rate.seconds(c.nbytes, c.share, c.calls) if rate is not None else 0.0
    return seconds


def _nearest(known: Sequence[CodecRate], use: CodecUse) -> CodecRate | None:
    """The rate of a codec, or of its nearest level and size of element."""
    same = [r for r in known if r.use.name == use.name]
    return min(
        same,
        key=lambda r: (abs(r.use.level - use.level), abs(math.log2(max(r.use.itemsize, 1) / max(use.itemsize, 1)))),
        default=None,
    )


def _use(codec: Codec, encoding: bool) -> CodecUse:
    if codec.name == "shuffle":
        return CodecUse("shuffle", 0, codec.int_of("elementsize", 1))
    if codec.name == "delta":
        return CodecUse("delta", 0, np.dtype(str(codec.get("dtype"))).itemsize)
    if codec.name == "blosc":
        kind = codec.get("shuffle", 1)
        mode = kind if isinstance(kind, str) else ("noshuffle", "shuffle", "bitshuffle")[int(kind or 0)]
        level = codec.int_of("clevel", 3) if encoding else 0
        return CodecUse(f"blosc-{codec.get('cname', 'zstd')}-{mode}", level, codec.int_of("typesize", 1))
    return CodecUse(codec.name, codec.int_of("level", 0) if encoding else 0)


def decode_uses(chain: CodecChain) -> tuple[CodecUse, ...]:
    """What decoding a chain runs.

    Examples
    --------
    >>> chain = CodecChain.of("bytes", Codec.of("shuffle", elementsize=2), Codec.of("zlib", level=4))
    >>> [str(use) for use in decode_uses(chain)]
    ['shuffle, 2 bytes', 'zlib']
    """
    return tuple(_use(codec, False) for codec in chain.filters)


def encode_uses(chain: CodecChain) -> tuple[CodecUse, ...]:
    """What encoding a chain runs.

    Examples
    --------
    >>> blosc = Codec.of("blosc", cname="zstd", clevel=1, shuffle="shuffle", typesize=2)
    >>> [str(use) for use in encode_uses(CodecChain.of("bytes", blosc))]
    ['blosc-zstd-shuffle 1, 2 bytes']
    """
    return tuple(_use(codec, True) for codec in chain.filters)


def recode_uses(recode: Recode | None, stored: np.dtype) -> tuple[CodecUse, ...]:
    """What rewriting numbers on their way runs, step by step; each takes elements of the size that it names.

    Examples
    --------
    >>> from fractions import Fraction
    >>> [str(use) for use in recode_uses(Recode(np.dtype("f4"), scale=Fraction(1, 100)), np.dtype("i2"))]
    ['recode-scaled, 2 bytes']
    """
    if recode is None:
        return ()
    kind = "exact"
    if recode.tick and "f" in (stored.kind, recode.dtype.kind):
        kind = "times"
    elif recode.near and stored.kind == "f" and recode.dtype.kind in "iu":
        kind = "packed"
    elif recode.dtype.kind == "f" and not (recode.scale == 1 and recode.offset == 0):
        kind = "scaled"
    return (CodecUse(f"recode-{kind}", 0, stored.itemsize), *recode_uses(recode.then, recode.dtype))


def round_use(rounding: Rounding | None, itemsize: int) -> tuple[CodecUse, ...]:
    """What rounding runs before a chunk is encoded.

    Examples
    --------
    >>> [str(use) for use in round_use(Rounding(keepbits=7), 4)]
    ['round-bits, 4 bytes']
    """
    return () if rounding is None else (CodecUse(f"round-{'digits' if rounding.keepbits is None else 'bits'}", 0, itemsize),)

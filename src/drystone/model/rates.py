"""How fast this machine and its places are, as measured by ``drystone doctor``: what a plan's predicted times come from.

A codec's rate depends on how well the data compress, so it is kept at a few *shares*: encoded bytes for each raw one.
Between them seconds a byte are interpolated. Rates are of one CPU while all others are at work too, since that is how tasks
run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import cast

import numpy as np

__all__ = ["CodecRate", "CodecUse", "PlaceRates", "Rates"]


@dataclass(frozen=True, slots=True)
class CodecUse:
    """One codec as a chain uses it.

    Parameters
    ----------
    name
        ``zlib``, ``zstd``, ``shuffle``…; of blosc with compressor and filter: ``blosc-zstd-shuffle``.
    level
        Of an encoder; 0 where it has none, and for decoding.
    itemsize
        Of the elements that are shuffled; 1 elsewhere.
    """

    name: str
    level: int = 0
    itemsize: int = 1

    def __str__(self) -> str:
        level = f" {self.level}" if self.level else ""
        return f"{self.name}{level}" + (f", {self.itemsize} bytes" if self.itemsize > 1 else "")


@dataclass(frozen=True, slots=True)
class CodecRate:
    """Raw bytes a second of one CPU.

    Parameters
    ----------
    use
        Which codec.
    points
        (encoded bytes for each raw one, raw bytes a second), by ascending share.
    call
        CPU seconds of a call beside that, which small chunks show.

    Examples
    --------
    >>> rate = CodecRate(CodecUse("zlib"), ((0.1, 1e9), (0.5, 5e8)), 1e-6)
    >>> rate.seconds(10**9, 0.05), rate.seconds(10**9, 0.3), rate.seconds(10**9, 0.9, calls=1_000_000)
    (1.0, 1.5, 3.0)
    """

    use: CodecUse
    points: tuple[tuple[float, float], ...]
    call: float = 0.0

    def seconds(self, nbytes: float, share: float, calls: float = 0.0) -> float:
        """CPU seconds for so many raw bytes of data of a share; beyond the ends as at the nearest end."""
        shares = [s for s, _ in self.points]
        return nbytes * float(np.interp(share, shares, [1 / rate for _, rate in self.points])) + calls * self.call


@dataclass(frozen=True, slots=True)
class PlaceRates:
    """One file system or bucket.

    Parameters
    ----------
    read_one, read
        Bytes a second of one reader, and of one a CPU together.
    request
        Seconds from asking for a small range of an object to having it.
    write_one, write
        As for readers, each object flushed; None where nothing may be written.
    put
        Seconds to write a small object, flushed.
    read_cpu, write_cpu
        CPU seconds of this process for each byte, which are no waiting.
    cached
        Whether what was read may have come from the system's memory.
    """

    read_one: float
    read: float
    request: float
    write_one: float | None
    write: float | None
    put: float | None
    read_cpu: float
    write_cpu: float
    cached: bool


@dataclass(frozen=True, slots=True)
class Rates:
    """One machine.

    Parameters
    ----------
    host, version, measured
        Its name, drystone's version, and when (ISO 8601, UTC).
    cores
        That a process may use.
    decode, encode
        A rate for each codec.
    gather_byte, gather_row
        CPU seconds for each byte that is moved in memory, and beside that for each contiguous row.
    fresh
        CPU seconds for each byte of memory that is got from the system and written first.
    chunk_read, chunk_write
        Seconds in which one process does nothing else, for each source chunk that is read and inner chunk that is written.
    granule
        The same for each granule that a task opens.
    task, start
        Seconds of a task without chunks, and until a cluster of workers can run the first.
    checksum
        Bytes a second of one CPU (CRC-32C).
    places
        By :func:`drystone.storage.address.place_key`.
    """

    host: str
    version: str
    measured: str
    cores: int
    decode: tuple[CodecRate, ...]
    encode: tuple[CodecRate, ...]
    gather_byte: float
    gather_row: float
    fresh: float
    chunk_read: float
    chunk_write: float
    granule: float
    task: float
    start: float
    checksum: float
    places: Mapping[str, PlaceRates]

    def to_json(self) -> dict[str, object]:
        """Exact JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, d: Mapping[str, object]) -> Rates:
        """Read back what :meth:`to_json` wrote.

        Raises
        ------
        KeyError, TypeError, ValueError
            It is not what this version writes.
        """
        codecs = {k: tuple(map(_rate_from_json, cast(Sequence[Mapping[str, object]], d[k]))) for k in ("decode", "encode")}
        given = cast(Mapping[str, Mapping[str, object]], d["places"])
        places = {name: PlaceRates(**p) for name, p in given.items()}  # type: ignore[arg-type]
        return cls(**{**d, **codecs, "places": places})  # type: ignore[arg-type]


def _rate_from_json(d: Mapping[str, object]) -> CodecRate:
    use = cast(Mapping[str, object], d["use"])
    points = cast(Sequence[Sequence[float]], d["points"])
    at = tuple((float(s), float(r)) for s, r in points)
    return CodecRate(CodecUse(**use), at, cast(float, d["call"]))  # type: ignore[arg-type]

"""How fast the engine's own codecs decode and encode, per CPU, while every CPU that it may use is at work.

Data are smooth fields with noise of several strengths, since a codec's speed depends on how much is left after it. CPU
seconds are counted, not the clock's, so that other programs on the machine do not count.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from drystone.codecs.chain import Codec, CodecChain
from drystone.codecs.decode import Decoder, decoder
from drystone.codecs.encode import encoder_of
from drystone.codecs.inflate import INTO, Buffer
from drystone.model.rates import CodecRate
from drystone.model.recode import Recode
from drystone.model.rounding import Rounding
from drystone.plan.predict import decode_uses, encode_uses, recode_uses, round_use

__all__ = ["busy_seconds", "measure_decoding", "measure_encoding"]

_DECODED, _ENCODED = 1 << 20, 1 << 18  # elements: a map of a source, a chunk of a store
_SLAB_CHUNKS = 32  # what is decoded goes to a buffer of so many, more than caches hold
_SECONDS = 0.01  # of one loop, at least
_LOOPS = 3
_NOISE = (0, 1, 24, 4000)
_TYPICAL, _SMALL = 24, 1 << 13  # of what shows a call's own time
# what is measured whether a config asks for it or not: the default, and a few levels around
_ENCODERS: tuple[Codec, ...] = (
    Codec.of("blosc", cname="lz4", clevel=5, shuffle="shuffle", typesize=2),
    Codec.of("blosc", cname="lz4", clevel=5, shuffle="bitshuffle", typesize=1),
    Codec.of("blosc", cname="zstd", clevel=1, shuffle="shuffle", typesize=2),
    Codec.of("blosc", cname="zstd", clevel=3, shuffle="shuffle", typesize=2),
    Codec.of("blosc", cname="zstd", clevel=3, shuffle="shuffle", typesize=4),
    Codec.of("blosc", cname="zstd", clevel=5, shuffle="shuffle", typesize=2),
    Codec.of("blosc", cname="zstd", clevel=3, shuffle="bitshuffle", typesize=1),
    Codec.of("zstd", level=1),
    Codec.of("zstd", level=3),
    Codec.of("gzip", level=1),
    Codec.of("gzip", level=5),
)
_DECODERS: tuple[Codec, ...] = (
    Codec.of("zlib", level=1),
    Codec.of("gzip", level=1),
    Codec.of("zstd", level=1),
    Codec.of("bz2", level=1),
    Codec.of("blosc", cname="lz4", clevel=5, shuffle="shuffle", typesize=2),
    Codec.of("blosc", cname="lz4", clevel=5, shuffle="bitshuffle", typesize=2),
    Codec.of("blosc", cname="zstd", clevel=1, shuffle="shuffle", typesize=2),
    Codec.of("blosc", cname="zstd", clevel=1, shuffle="bitshuffle", typesize=2),
    Codec.of("blosc", cname="blosclz", clevel=5, shuffle="shuffle", typesize=2),
    Codec.of("blosc", cname="zlib", clevel=1, shuffle="shuffle", typesize=2),
)


_ORDERS = (
    *(Codec.of("shuffle", elementsize=n) for n in (2, 4, 8)),
    *(Codec.of("delta", dtype=f"<i{n}") for n in (2, 4, 8)),
)


def busy_seconds(work: Callable[[], object], cpus: int) -> float:
    """CPU seconds of one call, while as many threads as there are CPUs call it; the best of a few loops."""

    def loop(least: float) -> float:
        calls, began = 0, time.thread_time()
        while True:
            work()
            calls += 1
            spent = time.thread_time() - began
            if spent >= least:
                return spent / calls

    first = loop(0.0)
    loops = _LOOPS if first < _SECONDS else 1
    with ThreadPoolExecutor(cpus) as pool:
        return min(sum(pool.map(lambda _: loop(_SECONDS), range(cpus))) / cpus for _ in range(loops))


def field(noise: int, itemsize: int, elements: int) -> NDArray[np.uint8]:
    """Bytes of a packed map: waves, land, and numbers up to ``noise`` that nobody can foretell; 0: in coarse steps."""
    rng = np.random.default_rng(noise)
    height = 1 << (elements.bit_length() - 1) // 2
    y, x = np.linspace(-1, 1, height)[:, None], np.linspace(0, 2 * np.pi, elements // height)[None, :]
    waves = np.zeros((height, elements // height))
    for k in range(1, 6):
        waves += 800 / k * np.cos(k * x + k) * np.cos(k * np.pi * y / 2 + 1 / k)
    packed = waves + rng.integers(0, noise, waves.shape) if noise else np.round(waves, -2)
    packed[np.cos(3 * x) * np.sin(4 * y) > 0.6] = -999
    if itemsize == 1:
        return np.ascontiguousarray(packed / 16).astype("i1").reshape(-1).view(np.uint8)
    if itemsize == 2:
        return packed.astype("i2").reshape(-1).view(np.uint8)
    return (packed / 256).astype(f"f{itemsize}").reshape(-1).view(np.uint8)


def _given(noise: int, codec: Codec, elements: int) -> Buffer:
    """What the compressor of a common source is given: byte planes, unless it makes them itself."""
    data = field(noise, 2, elements)
    if codec.name == "blosc":
        return data
    return encoder_of(CodecChain.of("bytes", Codec.of("shuffle", elementsize=2)), 2)(data)


def measure_decoding(cpus: int) -> Iterator[CodecRate]:
    """Rates of all that the engine decodes with: compressors, shuffles, checksums, and what rewrites numbers."""
    slab = np.ones(2 * _DECODED * _SLAB_CHUNKS, np.uint8)
    for codec in _DECODERS:
        yield _compressor(codec, encoder_of(CodecChain.of("bytes", codec), 2), slab, cpus)
    yield from _recodings(cpus)
    lzf = _lzf_encode()
    if lzf is not None:
        yield _compressor(Codec.of("lzf"), lzf, slab, cpus)
    for codec in (*_ORDERS, Codec.of("fletcher32"), Codec.of("crc32c")):
        size = _itemsize(codec)
        chain, dtype = CodecChain.of("bytes", codec), np.dtype(f"u{size}")
        data = encoder_of(chain, size)(field(40, size, 2 * _DECODED // size))
        run, places = decoder(chain, dtype, (2 * _DECODED // size,)), _places(slab)
        seconds = busy_seconds(partial(_into, run, data, places, dtype), cpus)
        yield CodecRate(decode_uses(chain)[0], ((1.0, 2 * _DECODED / seconds),))


def _recodings(cpus: int) -> Iterator[CodecRate]:
    """Rewriting of numbers, as where files pack differently or a store has other values."""
    missing = np.int16(-999).tobytes()
    packed = field(_TYPICAL, 2, _DECODED).view(np.int16)
    plain = (packed * np.float32(0.01)).astype(np.float32)
    nan, hundredth = np.float64("nan").tobytes(), Fraction(1, 100)
    steps: tuple[tuple[Recode, NDArray[np.generic]], ...] = (
        (Recode(np.dtype("f8"), missing=(missing,), missing_as=nan, scale=hundredth), packed),
        (Recode(np.dtype("i4"), missing=(missing,), missing_as=np.int32(-99999).tobytes()), packed),
        (Recode(np.dtype("i2"), scale=hundredth, near=True), plain),
        (Recode(np.dtype("f8"), scale=Fraction(1, 24), tick=3_600_000_000_000), np.arange(1 << 12, dtype=np.float64)),
    )
    for recode, values in steps:
        seconds = busy_seconds(partial(recode.apply, values), cpus)
        yield CodecRate(recode_uses(recode, values.dtype)[0], ((1.0, values.nbytes / seconds),))


def _roundings(cpus: int) -> Iterator[CodecRate]:
    values = (field(_TYPICAL, 2, _ENCODED).view(np.int16) * np.float32(0.01)).astype(np.float32)
    kept = np.array([-9.99], np.float32)
    for rounding in (Rounding(keepbits=9), Rounding(digits=2)):

        def fresh(rounding: Rounding = rounding) -> None:
            rounding.apply(values.copy(), kept)

        seconds = busy_seconds(fresh, cpus)
        yield CodecRate(round_use(rounding, 4)[0], ((1.0, values.nbytes / seconds),))


def _itemsize(codec: Codec) -> int:
    """Bytes of an element; two where the codec does not care."""
    if codec.name == "delta":
        return np.dtype(str(codec.get("dtype"))).itemsize
    return codec.int_of("elementsize", codec.int_of("typesize", 2))


def _places(slab: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:
    """Parts of a slab in turn, as chunks of a region are: no cache has them."""
    return itertools.cycle(slab.reshape(_SLAB_CHUNKS, -1))


def _into(run: Decoder, data: Buffer, places: Iterator[NDArray[np.uint8]], dtype: np.dtype) -> None:
    run.into(data, next(places).view(dtype))


def _compressor(codec: Codec, encode: Callable[[Buffer], Buffer], slab: NDArray[np.uint8], cpus: int) -> CodecRate:
    chain, points, places = CodecChain.of("bytes", codec), [], _places(slab)
    for noise in _NOISE:
        raw = _given(noise, codec, _DECODED)
        data, run = encode(raw), decoder(chain, np.dtype(np.uint8), (len(raw),))
        # what cannot write into place gives bytes, which a shuffle then places
        work = partial(_into, run, data, places, run.dtype) if codec.name in INTO else partial(run.unfiltered, data, run.steps)
        points.append((len(data) / len(raw), len(raw) / busy_seconds(work, cpus)))
    rate = CodecRate(decode_uses(chain)[0], tuple(sorted(points)))
    raw = _given(_TYPICAL, codec, _SMALL)
    data, run = encode(raw), decoder(chain, np.dtype(np.uint8), (len(raw),))
    return _with_call(rate, raw, data, busy_seconds(partial(run.bytes, data), cpus))


def _with_call(rate: CodecRate, raw: Buffer, data: Buffer, seconds: float) -> CodecRate:
    """What a call of few bytes takes beyond its bytes."""
    return replace(rate, call=max(0.0, seconds - rate.seconds(len(raw), len(data) / len(raw))))


def _lzf_encode() -> Callable[[Buffer], Buffer] | None:
    """Lzf is encoded by a library that need not be there; then nothing is known of its decoding."""
    try:
        from imagecodecs import lzf_encode
    except ImportError:
        return None
    return lambda data: bytes(lzf_encode(bytes(data)))


def measure_encoding(cpus: int, more: Iterable[Codec] = ()) -> Iterator[CodecRate]:
    """Rates of the compressors of stores.

    Parameters
    ----------
    more
        Those that a config asks for.
    """
    yield from _roundings(cpus)
    for codec in dict.fromkeys((*more, *_ORDERS, *_ENCODERS)):
        size = _itemsize(codec)
        chain, points = CodecChain.of("bytes", codec), []
        encode = encoder_of(chain, size)
        # what only puts bytes in another order takes as long for any
        for noise in (_TYPICAL,) if codec.name in ("shuffle", "delta") else _NOISE:
            raw = field(noise, size, _ENCODED)
            seconds = busy_seconds(partial(encode, raw), cpus)
            points.append((len(encode(raw)) / len(raw), len(raw) / seconds))
        rate = CodecRate(encode_uses(chain)[0], tuple(sorted(points)))
        raw = field(_TYPICAL, size, _SMALL)
        yield _with_call(rate, raw, encode(raw), busy_seconds(partial(encode, raw), cpus))

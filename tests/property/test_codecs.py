"""Whatever bytes come, a decoder gives exactly the chunk or a DecodeError, and never more memory than the chunk needs."""

import tracemalloc
import zlib

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings

from drystone.codecs.chain import Codec, CodecChain
from drystone.codecs.decode import decode_bytes, decode_chunk, decoder
from drystone.codecs.encode import encode_chunk
from drystone.codecs.inflate import DECOMPRESSORS, decompress
from drystone.codecs.lzf import lzf_decompress, lzf_decompress_python
from drystone.codecs.shuffle import shuffle, unshuffle
from drystone.errors import DecodeError

FILTERS = st.sampled_from(
    [
        Codec.of("zlib", level=1),
        Codec.of("gzip", level=1),
        Codec.of("bz2", level=1),
        Codec.of("zstd", level=1),
        Codec.of("zstd", level=1, checksum=True),
        Codec.of("blosc", cname="lz4", clevel=1, shuffle=1),
        Codec.of("blosc", cname="zstd", clevel=1, shuffle=2),
        Codec.of("fletcher32"),
        Codec.of("crc32c"),
        Codec.of("shuffle", elementsize=2),
        Codec.of("shuffle", elementsize=3),
        Codec.of("shuffle", elementsize=8),
    ]
)
DTYPES = st.sampled_from(["<i2", ">i2", "<f4", ">f4", "<f8", ">u8", "i1", "S3", "<c8", "?", "<f2"])
CHAINS = st.lists(FILTERS, max_size=4).map(lambda fs: CodecChain.of("bytes", *fs))


@given(st.data(), CHAINS, DTYPES, st.lists(st.integers(1, 5), max_size=3).map(tuple), st.integers(0, 15))
@settings(deadline=None, max_examples=200)
def test_round_trip_of_any_chain_under_any_mask(data, chain, dtype, shape, mask):
    dtype = np.dtype(dtype)
    raw = data.draw(st.binary(min_size=int(np.prod(shape)) * dtype.itemsize, max_size=int(np.prod(shape)) * dtype.itemsize))
    if dtype.kind == "b":
        raw = bytes(b & 1 for b in raw)
    values = np.frombuffer(raw, dtype).reshape(shape)
    stored = encode_chunk(values, chain.masked(mask), dtype)
    got = decode_chunk(stored, chain, dtype, shape, mask)
    assert got.dtype == dtype.newbyteorder("=")
    assert got.shape == shape
    assert got.flags.writeable
    assert got.astype(dtype).tobytes() == raw
    # straight into a strided target, in part and as a whole
    ready = decoder(chain, dtype, shape, mask)
    target = np.zeros((2, *shape), got.dtype)[::2][0, ...]
    ready.into(stored, target)
    assert target.tobytes() == got.tobytes()
    part = tuple(slice(data.draw(st.integers(0, n - 1)), n, data.draw(st.sampled_from([1, 2]))) for n in shape)
    wide = np.zeros((*(len(range(*p.indices(n))) for p, n in zip(part, shape, strict=True)), 3), got.dtype)
    ready.into(stored, wide[..., 1], part)
    assert wide[..., 1].tobytes() == got[(*part, ...)].tobytes()
    assert not wide[..., 0].any()


@given(CHAINS, st.binary(max_size=80), st.integers(0, 80), st.data())
@settings(deadline=None, max_examples=300)
def test_damage_is_an_error_or_harmless_but_never_a_wrong_size(chain, raw, wanted, data):
    stored = bytearray(encode_chunk(np.frombuffer(raw, "u1"), chain, np.dtype("u1")))
    for _ in range(data.draw(st.integers(0, 3))):
        what = data.draw(st.sampled_from(["flip", "cut", "add"]))
        at = data.draw(st.integers(0, max(0, len(stored) - 1)))
        if what == "flip" and stored:
            stored[at] ^= 1 << data.draw(st.integers(0, 7))
        elif what == "cut":
            del stored[at:]
        else:
            stored += data.draw(st.binary(max_size=5))
    try:
        got = decode_bytes(bytes(stored), chain, wanted)
    except DecodeError:
        return
    assert len(got) == wanted


@given(st.sampled_from(sorted(DECOMPRESSORS)), st.binary(max_size=300), st.integers(0, 5000))
@settings(deadline=None, max_examples=300)
@example("zstd", b"\x28\xb5\x2f\xfd\x00\x00", 10)
@example("zstd", b"\x28\xb5\x2f\xfd\xe0\x00\x00\x00\x00\x00\x00\x00\x00\x00", 10)
@example("blosc", bytes([2, 1, 0x22, 1, 10, 0, 0, 0, 10, 0, 0, 0, 16, 0, 0, 0]), 10)
@example("lzf", bytes([0xE0]), 10)
def test_junk_never_gets_past_a_decompressor(name, junk, most):
    try:
        out = decompress(name, junk, most)
    except DecodeError:
        return
    assert len(out) <= most


@pytest.mark.parametrize("name", ["zlib", "gzip", "bz2", "zstd", "blosc"])
def test_a_bomb_costs_its_own_size(name):
    """64 MB of zeros where 1000 bytes are right."""
    chain = CodecChain.of("bytes", Codec(name))
    bomb = encode_chunk(np.zeros(64 << 20, "u1"), chain, np.dtype("u1"))
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError) as info:
            decode_bytes(bomb, chain, 1000)
        assert tracemalloc.get_traced_memory()[1] < (1 << 20)
    finally:
        tracemalloc.stop()
    assert info.value.kind in ("too-long", "truncated", "corrupt")


@pytest.mark.parametrize("name", ["zlib", "gzip", "lzf"])
def test_a_table_that_promises_too_much_allocates_nothing(name):
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            decode_bytes(zlib.compress(b"stone"), CodecChain.of("bytes", name), 1 << 40)
        assert tracemalloc.get_traced_memory()[1] < (1 << 20)
    finally:
        tracemalloc.stop()


def lzf_compress(raw):
    """A plain encoder, greedy over three bytes."""
    out, literals, at, seen = bytearray(), bytearray(), 0, {}

    def flush():
        for i in range(0, len(literals), 32):
            part = literals[i : i + 32]
            out.append(len(part) - 1)
            out.extend(part)
        literals.clear()

    while at < len(raw):
        key = bytes(raw[at : at + 3])
        start = seen.get(key)
        seen[key] = at
        if len(key) == 3 and start is not None and at - start <= 8192:
            n = 3
            while n < 264 and at + n < len(raw) and raw[start + n] == raw[at + n]:
                n += 1
            flush()
            distance, size = at - start - 1, n - 2
            out.extend([size << 5 | distance >> 8] if size < 7 else [7 << 5 | distance >> 8, size - 7])
            out.append(distance & 255)
            at += n
        else:
            literals.append(raw[at])
            at += 1
    flush()
    return bytes(out)


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=6), st.integers(1, 90)), max_size=12))
@settings(deadline=None)
def test_lzf_in_python_and_in_c_agree(runs):
    raw = b"".join(part * n for part, n in runs)
    stored = lzf_compress(raw)
    assert bytes(lzf_decompress_python(stored, len(raw))) == raw
    assert bytes(lzf_decompress(stored, len(raw))) == raw
    if raw:
        for run in (lzf_decompress, lzf_decompress_python):
            with pytest.raises(DecodeError):
                run(stored, len(raw) - 1)


@given(st.integers(0, 16), st.binary(max_size=3000))
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_shuffle_is_what_hdf5_says_it_is(size, raw):
    src = np.frombuffer(raw, "u1")
    whole = len(raw) // size * size if size > 1 else 0
    want = b"".join(raw[i:whole:size] for i in range(size if whole else 0)) + raw[whole:]
    got = shuffle(src, size)
    assert got.tobytes() == want
    back = np.empty_like(src)
    unshuffle(got, size, back)
    assert back.tobytes() == raw

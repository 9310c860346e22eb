import threading

import numpy as np
import pytest
from numcodecs import zstd

from drystone.codecs import inflate, lzf
from drystone.codecs.chain import Codec, CodecChain
from drystone.codecs.decode import decode_bytes, decode_chunk, decoder
from drystone.codecs.encode import encode_chunk
from drystone.errors import DecodeError, UnsupportedError

PLAIN = CodecChain.of("bytes")


def test_an_unfiltered_chunk_of_another_size_says_both_numbers():
    with pytest.raises(DecodeError, match="gave 7 bytes where the array's structure needs 8") as info:
        decode_chunk(bytes(7), PLAIN, np.dtype("<i4"), (2,))
    assert info.value.kind == "wrong-size"
    assert dict(info.value.facts) == {"got": 7, "expected": 8}


@pytest.mark.parametrize("chain", [PLAIN, CodecChain.of("bytes", Codec.of("zlib", level=1))])
def test_results_are_writable_and_own_their_memory(chain):
    stored = bytearray(encode_chunk(np.arange(4, dtype="<i4"), chain, np.dtype("<i4")))
    got = decode_chunk(stored, chain, np.dtype("<i4"), (4,))
    stored[:] = bytes(len(stored))
    got += 1
    assert got.tolist() == [1, 2, 3, 4]


def test_into_a_given_buffer():
    chain = CodecChain.of("bytes", Codec.of("shuffle", elementsize=4), Codec.of("zlib", level=1))
    values = np.arange(5000, dtype="<i4")
    out = np.zeros(values.nbytes, "u1")
    assert decode_bytes(encode_chunk(values, chain, values.dtype), chain, values.nbytes, out=out) is out
    assert out.tobytes() == values.tobytes()


def test_gaps_of_compounds_in_other_byte_order_become_zeros():
    dtype = np.dtype({"names": ["a", "b"], "formats": [">i2", [("x", ">f8"), ("y", "i1")]], "offsets": [0, 8], "itemsize": 24})
    stored = np.frombuffer(bytes(range(1, 49)), "u1")
    got = decode_chunk(stored.tobytes(), PLAIN, dtype, (2,))
    want = stored.view(dtype)
    assert got.dtype.isnative
    assert got["a"].tolist() == want["a"].tolist()
    assert got["b"]["x"].tolist() == want["b"]["x"].tolist()
    assert got["b"]["y"].tolist() == want["b"]["y"].tolist()
    assert decode_chunk(stored.tobytes(), PLAIN, dtype, (2,)).tobytes() == got.tobytes()


def test_a_zstd_frame_that_hides_its_size():
    """As streaming writers make it: the content size is cut out of the header by hand, the rest is the same frame."""
    raw = np.random.default_rng(0).integers(0, 9, 70000, dtype="u1").tobytes()
    frame = zstd.compress(raw, 3, True)
    flags = frame[4]
    assert flags >> 6 == 2  # four bytes of size
    assert flags >> 5 & 1  # and no window
    hidden = frame[:4] + bytes([flags & 0x1F, 0x60]) + frame[9:]  # window of 4 MB
    chain = CodecChain.of("bytes", "zstd")
    assert decode_bytes(hidden, chain, len(raw)).tobytes() == raw
    for wrong in (len(raw) - 1, len(raw) + 1, 10):
        with pytest.raises(DecodeError):
            decode_bytes(hidden, chain, wrong)


@pytest.mark.parametrize("name", ["zlib", "gzip", "bz2"])
def test_a_stream_that_ends_early_is_named_as_such(name):
    chain = CodecChain.of("bytes", Codec(name))
    stored = encode_chunk(np.random.default_rng(0).integers(0, 255, 9000, dtype="u1"), chain, np.dtype("u1"))
    with pytest.raises(DecodeError, match="does not end") as info:
        decode_bytes(stored[:-20], chain, 9000)
    assert info.value.kind == "truncated"
    assert info.value.facts["expected"] == 9000


def test_a_deflate_stream_with_a_wrong_checksum_is_refused():
    for n in (100, 100_000):
        chain = CodecChain.of("bytes", "zlib")
        stored = bytearray(encode_chunk(np.arange(n, dtype="u1"), chain, np.dtype("u1")))
        stored[-1] ^= 1
        with pytest.raises(DecodeError, match="no zlib stream"):
            decode_bytes(stored, chain, n)


def test_without_libdeflate_and_imagecodecs_the_same_values_come(monkeypatch):
    values = np.random.default_rng(0).integers(0, 50, 40_000).astype("<i2")
    chain = CodecChain.of("bytes", Codec.of("shuffle", elementsize=2), Codec.of("zlib", level=1))
    stored = encode_chunk(values, chain, values.dtype)
    monkeypatch.setattr(inflate, "_LIBDEFLATE", {})
    monkeypatch.setattr(lzf, "_fast", lambda: None)
    assert np.array_equal(decode_chunk(stored, chain, values.dtype, values.shape), values)
    assert bytes(lzf.lzf_decompress(bytes([0, 97, 0xE0, 10, 0]), 20)) == b"a" * 20


def test_text_that_lies_about_its_length():
    text = np.dtype(np.dtypes.StringDType())
    chain = CodecChain.of("vlen-utf8")
    stored = encode_chunk(np.array(["ab", "c"], text), chain, text)
    assert decode_chunk(stored, chain, text, (2,)).tolist() == ["ab", "c"]
    with pytest.raises(DecodeError, match="text 1 of 2 says it has 1 bytes, but 0 are left"):
        decode_chunk(stored[:-1], chain, text, (2,))
    with pytest.raises(DecodeError):
        decode_chunk(stored, chain, text, (3,))
    with pytest.raises(DecodeError, match="no UTF-8"):
        decode_chunk(stored[:-1] + b"\xff", chain, text, (2,))


def test_filters_of_the_library_are_refused_by_name():
    with pytest.raises(UnsupportedError, match="hdf5-filter-4"):
        decoder(CodecChain.of("bytes", Codec.of("hdf5-filter-4", name="szip")), np.dtype("i2"), (2,))
    with pytest.raises(UnsupportedError, match="lzf"):
        encode_chunk(np.zeros(2, "i2"), CodecChain.of("bytes", "lzf"), np.dtype("i2"))


def test_blosc_gives_the_same_bytes_from_any_thread():
    values = np.random.default_rng(0).normal(size=500_000).astype("f4")
    chain = CodecChain.of("bytes", Codec.of("blosc", cname="zstd", clevel=1, shuffle=1))
    found = {encode_chunk(values, chain, values.dtype)}
    threads = [threading.Thread(target=lambda: found.add(encode_chunk(values, chain, values.dtype))) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 1

"""Chunks as the HDF5 library writes them, decoded by us from their stored bytes: every value and every bit."""

import h5py
import numpy as np
import pytest

from drystone.codecs.chain import Codec, CodecChain
from drystone.codecs.decode import decode_chunk
from drystone.codecs.encode import encode_chunk
from drystone.codecs.hdf5 import chain_from_filters
from drystone.errors import DecodeError

SHAPE, CHUNK = (13, 9), (5, 4)
COMPOUND = np.dtype({"names": ["a", "b"], "formats": [">i2", "<f8"], "offsets": [0, 8], "itemsize": 24})

DTYPES = ["<i2", ">i2", "<f4", ">f4", "<f8", ">f8", "i1", "u1", "<u8", ">i4", "<f2", "<c8", ">c16", "S3", "?"]
FILTERS = {
    "none": {},
    "deflate": {"compression": "gzip", "compression_opts": 4},
    "shuffle deflate": {"compression": "gzip", "shuffle": True},
    "shuffle": {"shuffle": True},
    "fletcher32": {"fletcher32": True},
    "shuffle deflate fletcher32": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "lzf": {"compression": "lzf"},
    "shuffle lzf": {"compression": "lzf", "shuffle": True},
}


def values(dtype, shape=SHAPE, seed=0):
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(seed)
    if dtype.kind == "?" or dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind == "S":
        return rng.choice(np.array([b"", b"a", b"abc", b"z"], dtype), shape)
    if dtype.kind == "V":
        out = np.zeros(shape, dtype)
        for name in dtype.names:
            out[name] = values(dtype[name], shape, seed)
        return out
    # runs and noise, so that every compressor does something, with every bit pattern that a float can have at the end
    data = np.repeat(rng.integers(0, 256, (*shape, 1), dtype="u1"), dtype.itemsize, -1)
    data[::2] = rng.integers(0, 256, data[::2].shape, dtype="u1")
    return np.ascontiguousarray(data).view(dtype)[..., 0]


def chunks_of(path):
    """(coords, mask, stored bytes) of each chunk of ``/v``, and its chain, dtype, fill and values by h5py."""
    with h5py.File(path) as f:
        d = f["v"]
        plist = d.id.get_create_plist()
        filters = [plist.get_filter(i) for i in range(plist.get_nfilters())]
        dtype = d.dtype
        chain = chain_from_filters([(i, flags, v) for i, flags, v, _ in filters], dtype)
        found = []
        for i in range(d.id.get_num_chunks()):
            where = d.id.get_chunk_info(i).chunk_offset
            mask, data = d.id.read_direct_chunk(where)
            found.append((where, mask, data))
        return found, chain, dtype, d.chunks, d[...]


def reassemble(path):
    found, chain, dtype, chunk, expected = chunks_of(path)
    padded = np.zeros([-(-n // c) * c for n, c in zip(expected.shape, chunk, strict=True)], dtype.newbyteorder("="))
    for where, mask, data in found:
        block = decode_chunk(data, chain, dtype, chunk, mask)
        assert block.shape == chunk
        assert block.dtype.isnative
        assert block.flags.c_contiguous
        assert block.flags.writeable
        padded[tuple(slice(o, o + c) for o, c in zip(where, chunk, strict=True))] = block
    return padded[tuple(slice(0, n) for n in expected.shape)], expected


def same_bits(a, b):
    assert a.shape == b.shape
    b = b.astype(b.dtype.newbyteorder("="))
    if a.dtype.names:
        for name in a.dtype.names:
            same_bits(np.ascontiguousarray(a[name]), np.ascontiguousarray(b[name]))
    else:
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("filters", FILTERS)
@pytest.mark.parametrize("dtype", [*DTYPES, COMPOUND], ids=str)
def test_every_dtype_through_every_pipeline(tmp_path, dtype, filters):
    dtype = np.dtype(dtype)
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f.create_dataset("v", data=values(dtype), dtype=dtype, chunks=CHUNK, **FILTERS[filters])
    same_bits(*reassemble(tmp_path / "a.h5"))


@pytest.mark.parametrize("dtype", ["<f8", "<f4", "<i2", "S3"])
def test_fletcher32_before_shuffle_leaves_the_checksum_unshuffled(tmp_path, dtype):
    dtype = np.dtype(dtype)
    data = values(dtype, (32,), seed=5)
    with h5py.File(tmp_path / "a.h5", "w") as f:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((16,))
        plist.set_fletcher32()
        plist.set_shuffle()
        plist.set_deflate(4)
        d = h5py.h5d.create(f.id, b"v", h5py.h5t.py_create(dtype), h5py.h5s.create_simple((32,)), plist)
        d.write(h5py.h5s.ALL, h5py.h5s.ALL, data)
    found, chain, *_ = chunks_of(tmp_path / "a.h5")
    assert [c.name for c in chain.filters] == ["fletcher32", "shuffle", "zlib"]
    assert chain.codecs[1:] == chain.filters
    same_bits(*reassemble(tmp_path / "a.h5"))
    # and a flipped bit inside is seen, whatever stands after it
    import zlib

    where, _, stored = found[0]
    inner = bytearray(zlib.decompress(stored))
    inner[3] ^= 1
    with pytest.raises(DecodeError, match="checksum"):
        decode_chunk(zlib.compress(bytes(inner)), chain, dtype, (16,))
    assert where == (0,)


def test_filter_masks_of_chunks_written_around_the_pipeline(tmp_path):
    data = values("<i4", (12,), seed=2)
    with h5py.File(tmp_path / "a.h5", "w") as f:
        d = f.create_dataset("v", (12,), "<i4", chunks=(4,), shuffle=True, compression="gzip")
        chain = CodecChain.of("bytes", Codec.of("shuffle", elementsize=4), Codec.of("zlib", level=4))
        for i, mask in enumerate((1, 2, 3)):
            part = data[4 * i : 4 * i + 4]
            d.id.write_direct_chunk((4 * i,), encode_chunk(part, chain.masked(mask), part.dtype), mask)
    found, *_, expected = chunks_of(tmp_path / "a.h5")
    assert [mask for _, mask, _ in found] == [1, 2, 3]
    assert expected.tolist() == data.tolist()  # the library reads what we encoded under masks
    same_bits(*reassemble(tmp_path / "a.h5"))


def test_lzf_that_does_not_compress_is_masked_by_the_library(tmp_path):
    noise = np.random.default_rng(0).integers(0, 1 << 16, (64, 64), dtype="u2")
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f.create_dataset("v", data=noise, chunks=(32, 64), compression="lzf", shuffle=True)
    found, *_ = chunks_of(tmp_path / "a.h5")
    assert {mask for _, mask, _ in found} == {2}
    same_bits(*reassemble(tmp_path / "a.h5"))


def test_zstd_bzip2_and_blosc_of_hdf5plugin(tmp_path):
    hdf5plugin = pytest.importorskip("hdf5plugin")
    data = np.arange(40 * 30, dtype="<f4").reshape(40, 30)
    for i, filters in enumerate(
        [
            hdf5plugin.Zstd(clevel=5),
            hdf5plugin.BZip2(blocksize=3),
            *(hdf5plugin.Blosc(cname=c, clevel=3, shuffle=s) for c in ("lz4", "zstd", "zlib") for s in (0, 1, 2)),
        ]
    ):
        path = tmp_path / f"{i}.h5"
        with h5py.File(path, "w") as f:
            f.create_dataset("v", data=data, chunks=(16, 30), **filters)
        same_bits(*reassemble(path))


def test_large_chunks_take_the_fast_paths(tmp_path):
    """Above the thresholds where libdeflate and numcodecs take over."""
    for dtype in ("<i2", "<f4", ">f8"):
        data = values(dtype, (200, 300), seed=9)
        path = tmp_path / f"{dtype[1:]}.h5"
        with h5py.File(path, "w") as f:
            f.create_dataset("v", data=data, chunks=(70, 110), shuffle=True, compression="gzip")
        same_bits(*reassemble(path))


@pytest.mark.parametrize("n", range(1, 12))
def test_fletcher32_of_every_length(tmp_path, n):
    """The library sums 16-bit words; what it does with an odd byte at the end is its own affair."""
    data = np.arange(200, 200 + n, dtype="u1")
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f.create_dataset("v", data=data, chunks=(n,), fletcher32=True)
    found, chain, dtype, chunk, _ = chunks_of(tmp_path / "a.h5")
    assert encode_chunk(data, chain, dtype) == found[0][2]
    assert decode_chunk(found[0][2], chain, dtype, chunk).tolist() == data.tolist()

"""The Zarr forms of chains, dtypes, fill values and attributes, read back by zarr and xarray."""

import json
import warnings

import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from drystone.codecs.chain import Codec, CodecChain
from drystone.codecs.encode import encode_chunk
from drystone.codecs.zarr_forms import (
    attributes_v2,
    attributes_v3,
    codecs_v2,
    codecs_v3,
    data_type_v2,
    data_type_v3,
    fill_v2,
    fill_v3,
    mask_fill_v2,
    unkept_attributes,
)
from drystone.errors import UnsupportedError
from drystone.model.attributes import Attributes

# zarr warns of data types that have no specification yet, for S, V and compounds
pytestmark = [
    pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning"),
    pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning"),
    pytest.mark.filterwarnings("ignore:.*not in the Zarr version 3 specification"),
]

PACKED = np.dtype([("a", "<i2"), ("b", "<f8"), ("s", "S3")])
GAPS = np.dtype({"names": ["a", "b"], "formats": ["<i2", "<f8"], "offsets": [0, 8], "itemsize": 16})
MIXED = np.dtype([("a", "<i2"), ("b", ">f8")])
DTYPES = ["<i2", ">i2", "<f4", ">f4", "<f8", "<u8", "i1", "?", "S5", "<c8", ">c16", "<f2", "V3", "<U4", PACKED]
CHAINS = {
    "plain": (),
    "zlib": (Codec.of("zlib", level=4),),
    "shuffle zlib": ("shuffle", Codec.of("zlib", level=4)),
    "shuffle zlib fletcher32": ("shuffle", Codec.of("zlib", level=4), Codec.of("fletcher32")),
    "fletcher32": (Codec.of("fletcher32"),),
    "zstd": (Codec.of("zstd", level=3),),
    "blosc": (Codec.of("blosc", cname="lz4", clevel=5, shuffle=1, typesize=4, blocksize=0),),
    "gzip": (Codec.of("gzip", level=1),),
}


def chain_of(name, dtype):
    shuffle = Codec.of("shuffle", elementsize=dtype.itemsize)
    return CodecChain.of("bytes", *(shuffle if c == "shuffle" else c for c in CHAINS[name]))


def values_of(dtype, shape=(3, 4)):
    rng = np.random.default_rng(1)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "SU":
        return rng.choice(np.array(["", "a", "abc"], dtype), shape)
    if dtype.names:
        out = np.zeros(shape, dtype)
        for name in dtype.names:
            out[name] = values_of(dtype[name], shape)
        return out
    if dtype.kind in "fc":
        return rng.normal(size=shape).astype(dtype)
    raw = rng.integers(0, 256, (*shape, dtype.itemsize), dtype="u1")
    return np.ascontiguousarray(raw).view(dtype)[..., 0]


def put(store, key, data):
    sync(store.set(key, default_buffer_prototype().buffer.from_bytes(data)))


def strict(value):
    return json.dumps(value, allow_nan=False).encode()


def store_v3(chain, dtype, shape, chunk, chunks, fill=None, attributes=None):
    store = zarr.storage.MemoryStore()
    put(store, "zarr.json", strict({"zarr_format": 3, "node_type": "group", "attributes": {}}))
    put(
        store,
        "v/zarr.json",
        strict(
            {
                "zarr_format": 3,
                "node_type": "array",
                "shape": shape,
                "data_type": data_type_v3(dtype),
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
                "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
                "fill_value": fill_v3(fill, dtype),
                "codecs": codecs_v3(chain, dtype),
                "attributes": attributes or {},
                "dimension_names": [f"d{i}" for i in range(len(shape))],
            }
        ),
    )
    for coords, data in chunks.items():
        put(store, "v/c" + "".join(f"/{i}" for i in coords), data)
    return store


def store_v2(chain, dtype, shape, chunk, chunks, fill, attributes=None):
    store = zarr.storage.MemoryStore()
    compressor, filters = codecs_v2(chain, dtype)
    put(store, ".zgroup", strict({"zarr_format": 2}))
    put(
        store,
        "v/.zarray",
        strict(
            {
                "zarr_format": 2,
                "shape": shape,
                "chunks": chunk,
                "dtype": data_type_v2(dtype),
                "compressor": compressor,
                "filters": filters,
                "fill_value": fill,
                "order": "C",
            }
        ),
    )
    put(store, "v/.zattrs", strict({**(attributes or {}), "_ARRAY_DIMENSIONS": [f"d{i}" for i in range(len(shape))]}))
    for coords, data in chunks.items():
        put(store, "v/" + ".".join(map(str, coords)), data)
    return store


def same_bits(got, want):
    native = want.dtype.newbyteorder("=") if want.dtype.kind != "T" else want.dtype
    assert got.dtype.newbyteorder("=") == native if got.dtype.kind != "T" else got.dtype == native
    if native.kind == "T":
        assert got.tolist() == want.tolist()
    elif native.names:
        for name in native.names:
            same_bits(np.ascontiguousarray(got[name]), np.ascontiguousarray(want[name]))
    else:
        assert got.astype(native).tobytes() == want.astype(native).tobytes()


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("version", [3, 2])
def test_zarr_decodes_what_the_forms_say(version, dtype, name):
    dtype = np.dtype(dtype)
    chain, data = chain_of(name, dtype), values_of(dtype)
    chunks = {(0, 0): encode_chunk(data, chain, dtype)}
    if version == 3:
        store = store_v3(chain, dtype, (3, 4), (3, 4), chunks)
    else:
        store = store_v2(chain, dtype, (3, 4), (3, 4), chunks, fill_v2(None, dtype))
    same_bits(zarr.open_array(store, path="v", mode="r")[...], data)


@pytest.mark.parametrize("version", [3, 2])
def test_mixed_byte_orders_of_a_compound(version):
    data = values_of(MIXED)
    chain = CodecChain.of("bytes")
    chunks = {(0, 0): encode_chunk(data, chain, MIXED)}
    if version == 3:
        with pytest.raises(UnsupportedError, match="mixes little- and big-endian"):
            codecs_v3(chain, MIXED)
        return
    same_bits(zarr.open_array(store_v2(chain, MIXED, (3, 4), (3, 4), chunks, None), path="v", mode="r")[...], data)


@pytest.mark.parametrize("version", [3, 2])
def test_text(version):
    text = np.array(["", "é", "stone", "a\0b", "x" * 300, "°C"], np.dtypes.StringDType()).reshape(2, 3)
    chain = CodecChain.of("vlen-utf8", Codec.of("zlib", level=1))
    chunks = {(0, 0): encode_chunk(text, chain, text.dtype)}
    make = store_v3 if version == 3 else store_v2
    fill = None if version == 3 else fill_v2(None, text.dtype)
    same_bits(zarr.open_array(make(chain, text.dtype, (2, 3), (2, 3), chunks, fill), path="v", mode="r")[...], text)


FILLS = {
    "<f4": ["00000000", "0000c07f", "0100c07f", "0000c0ff", "0000807f", "000080ff", "00000080", "c2bdf07c", "01000000"],
    ">f4": ["7fc00000", "ffc12345", "7cf0bdc2"],
    "<f8": ["000000000000f87f", "010000000000f8ff", "9a9999999999b93f", "0100000000000000"],
    "<f2": ["007e", "ff7b"],
    "<i2": ["0180", "f7ff"],
    ">i4": ["80000001"],
    "<u8": ["ffffffffffffffff"],
    "?": ["01"],
    "S5": ["6162000000", "0000000000", "ff00ff0000"],
    "V3": ["010203"],
    "<c8": ["0100c07f000080ff"],
    "<U4": ["61000000620000000000000000000000"],
    PACKED: ["0100000000000000f83f616200"],
}


UNUSUAL_NANS = ("0100c07f", "0000c0ff", "ffc12345", "010000000000f8ff", "0100c07f000080ff")


@pytest.mark.parametrize(("dtype", "bits"), [(d, b) for d, some in FILLS.items() for b in some], ids=str)
@pytest.mark.parametrize("version", [3, 2])
def test_unwritten_chunks_read_as_the_fill_bit_for_bit(version, dtype, bits):
    dtype, fill = np.dtype(dtype), bytes.fromhex(bits)
    want = np.frombuffer(fill * 2, dtype)
    if version == 3:
        store = store_v3(CodecChain.of("bytes"), dtype, (2,), (2,), {}, fill)
    else:
        if dtype.kind in "fc" and bits in UNUSUAL_NANS:
            with pytest.raises(UnsupportedError, match="NaN with bits"):
                fill_v2(fill, dtype)
            return
        form = fill_v2(fill, dtype)
        store = store_v2(CodecChain.of("bytes"), dtype, (2,), (2,), {}, form)
    got = zarr.open_array(store, path="v", mode="r")[...]
    same_bits(got, want)


def test_nans_whose_bits_zarr_loses_are_still_written_as_the_specification_has_them():
    assert fill_v3(bytes.fromhex("017e"), np.dtype("<f2")) == "0x7e01"
    assert fill_v3(bytes.fromhex("0100807f"), np.dtype("<f4")) == "0x7f800001"


def test_no_fill_means_zeros():
    for dtype in DTYPES:
        dtype = np.dtype(dtype)
        got = zarr.open_array(store_v3(CodecChain.of("bytes"), dtype, (2,), (2,), {}), path="v", mode="r")[...]
        assert not any(got.tobytes())


REFUSED = {
    "lzf": (CodecChain.of("bytes", "lzf"), "<i2", "4 bytes of length"),
    "szip": (CodecChain.of("bytes", Codec.of("hdf5-filter-4", name="szip")), "<i2", r"szip \(4\)"),
    "fletcher32 before shuffle": (
        CodecChain.of("bytes", "fletcher32", Codec.of("shuffle", elementsize=8), "zlib"),
        "<f8",
        "leaves the last 4 bytes of a chunk unshuffled",
    ),
    "shuffle after zlib": (CodecChain.of("bytes", "zlib", Codec.of("shuffle", elementsize=4)), "<f4", "after a compressor"),
    "odd shuffle": (CodecChain.of("bytes", Codec.of("shuffle", elementsize=8)), "<f4", "8-byte elements"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_exact_form_is_refused_with_the_bytes_in_the_way(case):
    chain, dtype, reason = REFUSED[case]
    for form in (codecs_v3, codecs_v2):
        with pytest.raises(UnsupportedError, match=reason) as info:
            form(chain, np.dtype(dtype))
        assert info.value.kind == "no-zarr-form"


@pytest.mark.parametrize("version", [3, 2])
@pytest.mark.parametrize("dtype", ["<f4", "<i2"])
def test_fletcher32_before_a_shuffle_that_divides_it_is_exact(version, dtype):
    """HDF5 shuffles the 4 bytes of checksum as one or two more elements, and so does Zarr's shuffle."""
    dtype = np.dtype(dtype)
    chain = CodecChain.of("bytes", "fletcher32", Codec.of("shuffle", elementsize=dtype.itemsize), Codec.of("zlib", level=1))
    data = values_of(dtype)
    chunks = {(0, 0): encode_chunk(data, chain, dtype)}
    store = (store_v3 if version == 3 else store_v2)(chain, dtype, (3, 4), (3, 4), chunks, None)
    same_bits(zarr.open_array(store, path="v", mode="r")[...], data)


@pytest.mark.parametrize("dtype", [GAPS, np.dtype([("a", "<i2", (2,))]), np.dtype(np.longdouble), np.dtype("S0")], ids=str)
def test_dtypes_without_a_form_are_refused(dtype):
    for form in (data_type_v3, data_type_v2):
        with pytest.raises(UnsupportedError):
            form(dtype)


def open_with_xarray(store, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # xarray warns of data types and attributes, which are what is tested here
        return xr.open_zarr(store, consolidated=False, chunks=None, **options)


FILL_ATTRIBUTES = [
    ("<f4", np.float32(1e37)),
    ("<f4", np.array([9.96921e36], "f4")),
    ("<f4", np.float32(np.nan)),
    (">f4", np.float32(-999.9)),
    ("<f8", np.float64(0.1)),
    ("<i2", np.int16(-32767)),
    ("<i2", np.array([-9], "i2")),
    ("<u8", np.uint64(2**64 - 1)),
    ("i1", np.int8(-127)),
    ("?", np.uint8(1)),
]


@pytest.mark.parametrize("version", [3, 2])
@pytest.mark.parametrize(("dtype", "value"), FILL_ATTRIBUTES, ids=str)
def test_fill_attribute_through_xarray(version, dtype, value):
    dtype = np.dtype(dtype)
    attributes = Attributes.of({"_FillValue": value, "units": "K"})
    one = np.asarray(value).reshape(-1)[0]
    data = np.array([one, 1, one, 0], dtype)
    chain = CodecChain.of("bytes")
    chunks = {(0,): encode_chunk(data, chain, dtype)}
    if version == 3:
        store = store_v3(chain, dtype, (4,), (4,), chunks, None, attributes_v3(attributes, dtype))
    else:
        fill = mask_fill_v2(None, attributes, dtype, sparse=False)
        store = store_v2(chain, dtype, (4,), (4,), chunks, fill, attributes_v2(attributes, dtype))
    raw = open_with_xarray(store, mask_and_scale=False)["v"]
    same_bits(raw.values, data)
    got = np.asarray(raw.attrs["_FillValue"]).astype(one.dtype)
    assert got.tobytes() == one.tobytes()
    assert raw.attrs["units"] == "K"
    if dtype.kind == "b":  # xarray masks no booleans
        return
    decoded = open_with_xarray(store)["v"].values
    assert np.isnan(decoded[[0, 2]]).all()
    assert (np.isnan(decoded[1:4:2]) == (data[1:4:2] == one)).all()


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("S5", "ab"), ("S1", b"\0"), (np.dtypes.StringDType(), "x"), ("<f4", "-999"), ("<i2", np.float32("nan")), (PACKED, 3)],
    ids=str,
)
def test_a_fill_attribute_that_xarray_cannot_open_is_left_out_and_named(dtype, value):
    dtype = np.dtype(dtype)
    attributes = Attributes.of({"_FillValue": value, "long_name": "v"})
    assert list(unkept_attributes(attributes, dtype)) == ["_FillValue"]
    chain = CodecChain.of("vlen-utf8" if dtype.kind == "T" else "bytes")
    store = store_v3(chain, dtype, (2,), (2,), {}, None, attributes_v3(attributes, dtype))
    v = open_with_xarray(store, concat_characters=False)["v"]
    assert v.attrs["long_name"] == "v"
    assert v.shape == (2,)


def test_odd_attributes_are_strict_json_and_keep_their_values():
    attributes = Attributes.of(
        {
            "limit": np.inf,
            "nanval": np.float32("nan"),
            "big": np.uint64(2**64 - 1),
            "vec": np.array([1.5, np.nan, -np.inf]),
            "deg": b"\xb0C",
            "empty": "",
            "one": np.array([7]),
            "f4": np.float32(0.1),
        }
    )
    want = {
        "limit": "Infinity",
        "nanval": "NaN",
        "big": 18446744073709551615,
        "vec": [1.5, "NaN", "-Infinity"],
        "deg": "°C",
        "empty": "",
        "one": [7],
        "f4": float(np.float32(0.1)),
    }
    dtype = np.dtype("<f4")
    assert attributes_v3(attributes, dtype) == attributes_v2(attributes, dtype) == want
    chunks = {(0,): np.arange(4, dtype="<f4").tobytes()}
    v3 = store_v3(CodecChain.of("bytes"), dtype, (4,), (4,), chunks, None, attributes_v3(attributes, dtype))
    v2 = store_v2(CodecChain.of("bytes"), dtype, (4,), (4,), chunks, None, attributes_v2(attributes, dtype))
    for store in (v3, v2):
        v = open_with_xarray(store)["v"]
        assert v.attrs == want
        assert v.values.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("fill", "attribute", "want"),
    [
        (None, -9, [0, 0]),
        (b"\xf7\xff", -9, ["nan", "nan"]),
        (None, 0, ["nan", "nan"]),
        (b"\xf7\xff", None, None),
        (b"\xf7\xff", 3, None),
    ],
)
def test_version_2_fill_of_sparse_arrays_masks_what_the_attribute_says(fill, attribute, want):
    dtype = np.dtype("<i2")
    attributes = Attributes.of({} if attribute is None else {"_FillValue": np.int16(attribute)})
    if want is None:
        with pytest.raises(UnsupportedError, match="unwritten chunks read as -9"):
            mask_fill_v2(fill, attributes, dtype, sparse=True)
        return
    form = mask_fill_v2(fill, attributes, dtype, sparse=True)
    store = store_v2(CodecChain.of("bytes"), dtype, (2,), (2,), {}, form, attributes_v2(attributes, dtype))
    assert [str(v) if np.isnan(v) else v for v in open_with_xarray(store)["v"].values] == want

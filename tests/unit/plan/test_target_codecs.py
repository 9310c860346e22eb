"""Codecs of stores: what is accepted, what is refused with which words, and that readers of others get every bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorstore
import zarr
from numcodecs import Delta, blosc

from drystone.codecs.decode import decode_chunk
from drystone.codecs.encode import encode_chunk
from drystone.codecs.zarr_forms import codecs_v2
from drystone.errors import ConfigError
from drystone.plan.layout import TargetLayout
from drystone.plan.target_codecs import target_codecs
from drystone.rechunk.cells import write_region
from drystone.rechunk.target import prepare, publish
from drystone.rechunk.writer import ObjectWriter
from drystone.storage.local import LocalStore

type Wanted = tuple[str, dict[str, int | str | bool]]

CODECS: list[Wanted] = [
    *(("blosc", {"cname": c, "clevel": 3}) for c in blosc.list_compressors()),
    *(("blosc", {"cname": "lz4", "shuffle": s}) for s in ("noshuffle", "shuffle", "bitshuffle")),
    ("blosc", {"clevel": 0}),
    ("blosc", {"clevel": 9, "blocksize": 4096}),
    *(("zstd", {"level": n}) for n in (-5, 0, 22)),
    ("zstd", {"checksum": True}),
    ("gzip", {"level": 0}),
    ("gzip", {"level": 9}),
    ("none", {}),
]


def written(folder: Path, codecs: list[Wanted], dtype: str) -> np.ndarray:
    """An array of these codecs in a store; its values."""
    rng, kind = np.random.default_rng(1), np.dtype(dtype)
    values = rng.integers(0, 99, (13, 21)).astype(kind)
    chain = target_codecs(codecs, kind)
    lay = TargetLayout("/v", ("y", "x"), values.shape, kind, (4, 8), (8, 16), chain, bytes(kind.itemsize))
    store = LocalStore(folder)
    prepare(store, "", [lay], [], {})
    write_region(ObjectWriter(store, ""), lay, values, (0, 0), 2)
    publish(store, "", [lay], [])
    return values


@pytest.mark.parametrize("codec", CODECS, ids=str)
@pytest.mark.parametrize("dtype", ["i1", "i2", "f4", "f8", "c16"])
def test_zarr_and_tensorstore_read_every_bit(codec: Wanted, dtype: str, tmp_path: Path) -> None:
    values = written(tmp_path, [codec], dtype)
    assert np.asarray(zarr.open_group(tmp_path, mode="r")["v"][...]).tobytes() == values.tobytes()  # type: ignore[index]
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{tmp_path}/v/"}}
    assert np.asarray(tensorstore.open(spec, open=True).result().read().result()).tobytes() == values.tobytes()


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3")
@pytest.mark.parametrize(
    "names", [["delta"], ["shuffle"], ["delta", "shuffle", "gzip"], ["delta", "blosc"], ["shuffle", "zstd"]]
)
@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "u8", "f4"])
def test_filters_are_read_by_those_who_are_named(names: list[str], dtype: str, tmp_path: Path) -> None:
    values = written(tmp_path, [(n, {}) for n in names], dtype)
    array = zarr.open_group(tmp_path, mode="r")["v"]
    assert np.asarray(array[...]).tobytes() == values.tobytes()  # type: ignore[index]
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{tmp_path}/v/"}}
    used = {c.name for c in target_codecs([(n, {}) for n in names], np.dtype(dtype)).filters}
    if used.isdisjoint({"delta", "shuffle"}):
        assert tensorstore.open(spec, open=True).result().read().result().tobytes() == values.tobytes()
    else:  # what `plan` and `check` say of it
        with pytest.raises(ValueError, match="is not registered"):
            tensorstore.open(spec, open=True).result()


@pytest.mark.parametrize("dtype", ["<i1", "<u2", "<i4", "<u8"])
def test_differences_are_numcodecs_and_come_back(dtype: str) -> None:
    kind = np.dtype(dtype)
    values = np.random.default_rng(2).integers(np.iinfo(kind).min, np.iinfo(kind).max, 999, kind, endpoint=True)
    chain = target_codecs([("delta", {}), ("shuffle", {}), ("zstd", {})], kind)
    assert encode_chunk(values, target_codecs([("delta", {})], kind), kind) == Delta(dtype).encode(values).tobytes()
    assert decode_chunk(encode_chunk(values, chain, kind), chain, kind, values.shape).tobytes() == values.tobytes()
    assert (
        codecs_v2(chain, kind)[1]
        == [{"id": "delta", "dtype": kind.str}, {"id": "shuffle", "elementsize": kind.itemsize}][: 1 + (kind.itemsize > 1)]
    )


def test_one_spelling_of_no_shuffle() -> None:
    none, no = (target_codecs([("blosc", {"shuffle": s})], np.dtype("f4")) for s in ("none", "noshuffle"))
    assert none == no


@pytest.mark.parametrize(
    ("codec", "says"),
    [
        (("lzma", {}), "there is no target codec 'lzma'; known: delta, shuffle, blosc, zstd, gzip, none"),
        (("delta", {"dtype": "i2"}), "codec delta has no parameter 'dtype'; known: none"),
        (("zstd", {"cname": "x"}), "codec zstd has no parameter 'cname'; known: checksum, level"),
        (("zstd", {"level": 23}), "zstd's level is a whole number from -131072 to 22, not 23"),
        (("gzip", {"level": 10}), "gzip's level is a whole number from 0 to 9, not 10"),
        (("gzip", {"level": True}), "gzip's level is a whole number from 0 to 9, not True"),
        (("blosc", {"clevel": 10}), "blosc's level is a whole number from 0 to 9, not 10"),
        (("blosc", {"shuffle": "bits"}), "blosc's shuffle is auto, noshuffle (or none), shuffle or bitshuffle, not 'bits'"),
        (("blosc", {"cname": "brotli"}), "blosc has no compressor 'brotli'; known: zstd, lz4, lz4hc, zlib, blosclz, snappy"),
    ],
    ids=str,
)
def test_what_is_refused(codec: Wanted, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        target_codecs([codec], np.dtype("f4"))
    assert caught.value.message == says


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["zstd", "gzip"], "one compressor a store, not 2 (zstd, gzip); keep one"),
        (["zstd", "delta"], "codecs are listed as they encode, each once: delta, shuffle, then a compressor, not zstd, delta"),
        (
            ["delta", "delta"],
            "codecs are listed as they encode, each once: delta, shuffle, then a compressor, not delta, delta",
        ),
        (["shuffle", "blosc"], "blosc shuffles by itself; take shuffle out"),
        (["delta", "none"], "none stands alone; take it or the others out"),
    ],
)
def test_codecs_in_an_order_that_is_none(names: list[str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        target_codecs([(n, {}) for n in names], np.dtype("i2"))
    assert caught.value.message == says


@pytest.mark.skipif("snappy" in blosc.list_compressors(), reason="this blosc has snappy")
def test_snappy_is_refused_where_the_library_lacks_it() -> None:
    with pytest.raises(ConfigError, match="was built without 'snappy'; it has blosclz, lz4"):
        target_codecs([("blosc", {"cname": "snappy"})], np.dtype("f4"))

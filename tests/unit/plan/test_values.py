"""Stores with unpacked numbers, and stores that refuse to unpack."""

from __future__ import annotations

import numpy as np
import pytest

from drystone.codecs.chain import Codec, CodecChain
from drystone.errors import CombineError
from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.array import ArraySpec
from drystone.model.attributes import Attributes
from drystone.model.options import DifferenceOptions
from drystone.model.placement import CombinedArray, Placements
from drystone.plan.differences import reconcile
from drystone.plan.members import ArrayMembers
from drystone.plan.values import decoded, packed_or_refuse

RAW = CodecChain.of(Codec.of("bytes", endian="little"))


def combined(*attributes: dict[str, object], dtype: str = "i2") -> CombinedArray:
    """Two elements a granule, joined."""
    fill = np.array(-9, dtype).tobytes()
    specs = tuple(
        ArraySpec("/v", ("t",), (2,), (2,), np.dtype(dtype), fill, RAW, Attributes.of(a), sparse=True) for a in attributes
    )
    i = np.arange(len(specs), dtype=np.int32)
    r = reconcile(
        ArrayMembers("/v", i, i, specs, i * 0 - 1),
        frozenset({"t"}),
        {n: f"g{n}.nc" for n in range(len(i))},
        DifferenceOptions(),
    )
    q = np.arange(len(specs), dtype=np.int64)
    return CombinedArray(
        "/v", ("t",), (2 * len(q),), r.dtype, r.stored_dtype, r.fill, r.codecs, r.attributes,
        ChunkGrid.regular((2 * len(q),), (2,)), r.storage, Placements(0, i, q * 0, q * 0 + 2, q * 2, r.variant), r.variants,
        recodes=r.recodes,
    )  # fmt: skip


def read(array: CombinedArray, *raw: list[int], dtype: str = "i2") -> list[list[float]]:
    out = []
    for v, numbers in enumerate(raw):
        how, values = array.recode(v), np.array(numbers, dtype)
        out.append((values if how is None else how.apply(values)).tolist())
    return out


def test_packed_numbers_are_unpacked_and_nothing_says_otherwise():
    array = decoded(combined({"scale_factor": 0.5, "add_offset": 1.0, "_FillValue": np.int16(-9), "valid_min": np.int16(0)}))
    assert array.dtype == np.dtype("f8")
    assert set(array.attributes) == {"_FillValue"}
    assert np.isnan(array.fill_scalar)
    assert array.unaligned is not None
    ((a, b),) = read(array, [4, -9])
    assert a == 3.0
    assert np.isnan(b)


def test_granules_packed_exactly_alike_are_unpacked_each_by_its_own_words():
    packed = combined({"scale_factor": 0.5}, {"scale_factor": 0.25})
    assert packed.dtype.kind == "i"
    assert read(packed, [4, 5], [4, 5]) == [[8, 10], [4, 5]]
    assert read(decoded(packed), [4, 5], [4, 5]) == [[2.0, 2.5], [1.0, 1.25]]
    assert packed_or_refuse(packed) is packed


def test_unpacked_arrays_are_left_alone():
    plain = combined({"_FillValue": np.int16(-9)})
    assert decoded(plain) is plain
    assert packed_or_refuse(plain) is plain
    floats = combined({}, dtype="f4")
    assert packed_or_refuse(floats) is floats


def test_unsigned_numbers_are_unpacked_as_such():
    array = decoded(combined({"scale_factor": 2.0, "_Unsigned": "true"}, dtype="i1"))
    assert read(array, [-1, 1], dtype="i1") == [[510.0, 2.0]]


def test_what_combining_had_to_unpack_cannot_be_packed():
    array = combined({"scale_factor": 0.01, "add_offset": 292.17}, {"scale_factor": 0.01, "add_offset": 288.44})
    assert decoded(array) is array
    with pytest.raises(CombineError, match=r"add_offset 292\.17 .*; scale_factor 0\.01 .* add_offset 288\.44") as caught:
        packed_or_refuse(array)
    assert "values: decoded" in caught.value.message


def test_a_scale_that_is_no_number_unpacks_nothing():
    with pytest.raises(CombineError, match=r"no number says how to unpack it \(scale_factor 'half'\)"):
        decoded(combined({"scale_factor": "half"}))

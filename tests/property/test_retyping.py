"""Numbers in another type, packing and with another fill against NumPy: every one as NumPy has it, or refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from drystone.codecs.chain import Codec, CodecChain
from drystone.errors import ConfigError, DecodeError
from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.array import ArraySpec
from drystone.model.attributes import Attributes
from drystone.model.options import OutputOptions
from drystone.model.placement import Combined, CombinedArray, Placements
from drystone.plan.forms import form_of

NUMBERS = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")
NAMES = {"i": "int", "u": "uint", "f": "float"}
LITTLE = CodecChain.of(Codec.of("bytes", endian="little"))


def one_granule(dtype: np.dtype, attributes: dict[str, object], fill: np.generic | None = None) -> CombinedArray:
    raw = None if fill is None else np.asarray(fill, dtype).tobytes()
    said = Attributes.of(attributes)
    spec = ArraySpec("/v", ("t",), (4,), (4,), dtype, raw, LITTLE, said, sparse=True)
    one, zero = np.ones(1, np.int64), np.zeros(1, np.int64)
    placed = Placements(0, zero.astype(np.int32), zero, one * 4, zero, zero.astype(np.int32))
    return CombinedArray(
        "/v", ("t",), (4,), dtype, dtype, raw, LITTLE, said, ChunkGrid.regular((4,), (4,)), None, placed, (spec,)
    )  # fmt: skip


def stored(array: CombinedArray, **options: object) -> CombinedArray:
    output = OutputOptions("store", "zarr", "out:x", **options)  # type: ignore[arg-type]
    return form_of(Combined((), (array,), None), output).array("/v")


def recoded(array: CombinedArray, values: NDArray[np.generic]) -> NDArray[np.generic]:
    recode = array.recode(0)
    return values if recode is None else recode.apply(values)


def outcome(array: CombinedArray, values: NDArray[np.generic]) -> NDArray[np.generic] | str:
    """The store's numbers, or the kind of refusal."""
    try:
        return recoded(array, values)
    except DecodeError as error:
        return error.kind


def bit_patterns(dtype: np.dtype) -> st.SearchStrategy[NDArray[np.generic]]:
    word = np.dtype(f"u{dtype.itemsize}")
    ends = [0, 1, 2 ** (8 * dtype.itemsize - 1), 2 ** (8 * dtype.itemsize - 1) - 1, 2 ** (8 * dtype.itemsize) - 1]
    some = st.one_of(st.integers(0, 2 ** (8 * dtype.itemsize) - 1), st.sampled_from(ends), st.integers(0, 200))
    small = st.integers(-100, 100).map(lambda n: int(np.asarray(n).astype(dtype).view(word)))
    return arrays(word, st.integers(0, 6), elements=st.one_of(some, small)).map(lambda a: a.view(dtype))


@settings(deadline=None, max_examples=400)
@given(st.data())
def test_every_pair_of_types(data: st.DataObject) -> None:
    source, target = (np.dtype(data.draw(st.sampled_from(NUMBERS))) for _ in range(2))
    values = data.draw(bit_patterns(source))
    array = stored(one_granule(source, {}), dtype={"v": str(target)})
    assert array.dtype == target
    narrower = source.kind == target.kind == "f" and source.itemsize > target.itemsize
    with np.errstate(all="ignore"):
        expected = values.astype(target)
    if narrower:
        fits = not (np.isinf(expected) & np.isfinite(values)).any()
    else:  # in Python's numbers, which do not overflow
        fits = all(a == b or (a != a and b != b) for a, b in zip(values.tolist(), expected.tolist(), strict=True))
    got = outcome(array, values)
    if isinstance(got, str):
        assert not fits, values
        assert got == ("recode-range" if narrower else "recode-inexact")
        return
    assert fits
    assert got.dtype == target
    same = (got == expected) | ((got != got) & (expected != expected))
    assert same.all()
    assert (array.loss is not None) == narrower
    if array.loss is not None:
        data_ = np.isfinite(values)
        x, y = values[data_].astype("f8"), got[data_].astype("f8")
        assert (np.abs(x - y) <= array.loss.relative * np.abs(x) + array.loss.absolute).all()


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_missing_numbers_become_the_fill_and_no_data_does(data: st.DataObject) -> None:
    source, target = (np.dtype(data.draw(st.sampled_from(["i1", "i2", "i4", "f4", "f8"]))) for _ in range(2))
    gone, fill = data.draw(st.integers(-9, 9)), data.draw(st.integers(-9, 9))
    values = data.draw(arrays(source, st.integers(1, 8), elements=st.integers(-9, 9)))
    unwritten = data.draw(st.sampled_from([None, source.type(gone), source.type(3)]))
    array = stored(
        one_granule(source, {"_FillValue": source.type(gone)}, unwritten), dtype={"v": str(target)}, fill_value={"v": fill}
    )
    assert array.gap_scalar == fill == array.attributes["_FillValue"].value
    reads_as = source.type(0) if unwritten is None else unwritten
    if reads_as != gone and reads_as != fill:
        assert array.fill_scalar == reads_as  # what was never written is no gap
    elif reads_as == gone:
        assert array.fill_scalar == fill
    clash = bool(((values == fill) & (values != gone)).any())
    got = outcome(array, values)
    if isinstance(got, str):
        assert clash
        assert got == "recode-missing"
        return
    assert not clash
    assert np.array_equal(got, np.where(values == gone, fill, values))


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_packed_numbers_are_those_of_writers_and_decode_to_within_half_a_step(data: st.DataObject) -> None:
    source, target = (
        np.dtype(data.draw(st.sampled_from(["f4", "f8"]))),
        np.dtype(data.draw(st.sampled_from(["i2", "u2", "i4"]))),
    )
    scale = data.draw(st.sampled_from([0.01, -0.5, 0.1, 3.0, 1e-3]))
    offset = data.draw(st.sampled_from([0.0, 273.15, -1e3]))
    values = data.draw(arrays(source, st.integers(0, 8), elements=st.floats(-500, 500, width=32)))
    if data.draw(st.booleans()):
        values = np.append(values, np.array([np.nan], source))
    wish = {"dtype": str(target), "scale_factor": scale, "add_offset": offset}
    array = stored(one_granule(source, {}), pack={"v": wish})
    fill = np.iinfo(target).min or np.iinfo(target).max
    steps = np.rint((values.astype("f8") - offset) / scale)
    limits = np.iinfo(target)
    fits = ((steps >= limits.min) & (steps <= limits.max)) | np.isnan(values)
    clash = (steps == fill) & ~np.isnan(values)
    got = outcome(array, values)
    if isinstance(got, str):
        assert not fits.all() or clash.any()
        assert got == ("recode-range" if not fits.all() else "recode-missing")
        return
    assert fits.all()
    assert np.array_equal(got, np.where(np.isnan(values), fill, np.nan_to_num(steps)))
    assert array.loss is not None
    kept = ~np.isnan(values)
    read = got[kept].astype("f8") * scale + offset
    slack = 4 * np.spacing(np.maximum(np.abs(read), abs(offset)))
    assert (np.abs(read - values[kept]) <= array.loss.absolute + slack).all()


def test_unsigned_numbers_packed_ones_and_their_flags() -> None:
    said = {"_Unsigned": "true", "flag_values": np.array([0, -1], "i1"), "_FillValue": np.int8(-2)}
    array = stored(one_granule(np.dtype("i1"), said), dtype={"v": "int16"})
    assert recoded(array, np.array([-1, -2, 1], "i1")).tolist() == [255, 254, 1]
    assert "_Unsigned" not in array.attributes
    assert np.asarray(array.attributes["flag_values"].value).tolist() == [0, 255]
    assert array.gap_scalar == 254
    packed = one_granule(np.dtype("i2"), {"scale_factor": 0.5, "add_offset": 10.0, "_FillValue": np.int16(-9)})
    wider = stored(packed, dtype={"v": "int32"})
    assert wider.attributes["scale_factor"].value == 0.5
    assert recoded(wider, np.array([7, -9], "i2")).tolist() == [7, -9]
    single = stored(packed, values="decoded", dtype={"v": "float32"})
    got = recoded(single, np.array([7, -9], "i2"))
    assert got.dtype == np.dtype("f4")
    assert got[0] == 13.5
    assert np.isnan(got[1])
    again = stored(packed, pack={"v": {"dtype": "int16", "scale_factor": 0.25, "add_offset": 10.0}})
    assert recoded(again, np.array([7, -9], "i2")).tolist() == [14, -32768]
    assert again.recodes[0] is not None
    assert type(again.recodes[0]).from_json(again.recodes[0].to_json()) == again.recodes[0]
    assert again.recodes[0].result.scale == Fraction(0.25)


@pytest.mark.parametrize(
    ("dtype", "attributes", "options", "says"),
    [
        (
            "i2",
            {"_FillValue": np.int16(-99)},
            {"dtype": {"v": "uint8"}},
            "its _FillValue -99 is no uint8; say fill_value: {v: …}",
        ),
        (
            "f8",
            {"_FillValue": 1e300},
            {"dtype": {"v": "float32"}},
            "its _FillValue 1e+300 is no float32; say fill_value: {v: …}",
        ),
        ("f4", {"_FillValue": np.float32("nan")}, {"dtype": {"v": "int16"}}, "its _FillValue nan is no int16"),
        ("i2", {}, {"fill_value": {"v": 40000}}, "fill_value 40000 is no int16"),
        ("i2", {}, {"fill_value": {"v": 0.5}}, "fill_value 0.5 is no int16"),
        ("i2", {}, {"fill_value": {"v": "NaN"}}, "fill_value NaN is no int16"),
        ("f4", {}, {"fill_value": {"v": 1e40}}, "fill_value 1e+40 is no float32"),
        ("f4", {"_FillValue": "none"}, {"fill_value": {"v": 1}}, "no number says what is missing (_FillValue 'none')"),
        (
            "i2",
            {"scale_factor": 0.1},
            {"dtype": {"v": "float32"}},
            "its numbers are packed, so as float32 they would be neither",
        ),
        (
            "i1",
            {"_Unsigned": "true"},
            {"fill_value": {"v": 1}},
            "its numbers are read as unsigned (_Unsigned); say dtype as well",
        ),
        ("c8", {}, {"dtype": {"v": "float32"}}, "it holds complex64, and only numbers of granules"),
        ("f8", {"units": "days since 2000-01-01"}, {"dtype": {"v": "float32"}}, "it holds times, and as float32"),
        ("f8", {"units": "days since 2000-01-01"}, {"pack": {"v": {"dtype": "int16", "scale_factor": 1.0}}}, "it holds times"),
        ("i2", {}, {"pack": {"v": {"dtype": "int16", "scale_factor": 1.0}}}, "it holds int16 that are not packed"),
        ("f4", {}, {"pack": {"v": {"dtype": "int16", "scale_factor": 1.0}}, "dtype": {"v": "float64"}}, "keep one"),
    ],
)
def test_what_an_array_cannot_be(dtype: str, attributes: dict[str, object], options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        stored(one_granule(np.dtype(dtype), attributes), **options)
    assert says in caught.value.message
    assert caught.value.message.startswith("out:x: /v: ")


def test_gaps_need_a_number() -> None:
    array = one_granule(np.dtype("f4"), {})
    gap = replace(array, shape=(6,), grid=ChunkGrid.regular((6,), (4,)))
    with pytest.raises(
        ConfigError, match="places that no granule holds read as NaN, which no int16 is; say fill_value as well"
    ):
        stored(gap, dtype={"v": "int16"})
    marked = stored(gap, dtype={"v": "int16"}, fill_value={"v": -1})
    assert marked.gap_scalar == -1
    assert marked.fill_scalar == 0


def test_what_granules_lost_before_is_still_said() -> None:
    rounded = one_granule(np.dtype("f8"), {"precision_loss": "rounded by others"})
    array = stored(rounded, dtype={"v": "float32"}, round={"v": ("digits", 2)})
    assert array.loss is not None
    assert array.attributes["precision_loss"].value == f"rounded by others; {array.loss.text}"


def test_a_star_takes_what_fits_and_leaves_the_rest() -> None:
    assert stored(one_granule(np.dtype("i2"), {}), dtype={"*": "float32"}).dtype == np.dtype("i2")
    assert stored(one_granule(np.dtype("f8"), {}), dtype={"*": "float32"}).dtype == np.dtype("f4")
    for said in ({"units": "degrees_north"}, {"standard_name": "longitude"}, {"axis": "X"}, {"units": "days since 2000-01-01"}):
        place = one_granule(np.dtype("f8"), said)
        assert stored(place, dtype={"*": "float32"}, round={"*": ("keepbits", 3)}).dtype == np.dtype("f8")
        if " since " not in str(said):
            assert stored(place, dtype={"v": "float32"}).dtype == np.dtype("f4")  # by its own name, as it is wished
    huge = one_granule(np.dtype("f8"), {"_FillValue": 1e300})
    assert stored(huge, dtype={"*": "float32"}).dtype == np.dtype("f8")

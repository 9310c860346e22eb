"""Each kind of difference: what becomes of it by policy, and what the message names."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from drystone.codecs.chain import Codec, CodecChain
from drystone.errors import CombineError
from drystone.model.array import ArraySpec
from drystone.model.attributes import Attributes
from drystone.model.options import DifferenceOptions
from drystone.plan.differences import Reconciled, changed, reconcile
from drystone.plan.members import ArrayMembers

LITTLE = CodecChain.of(Codec.of("bytes", endian="little"))
NAMES = {i: f"g{i}.nc" for i in range(9)}
NAN = np.float64("nan").tobytes()


def spec(dtype="i2", shape=(2, 4), chunks=(1, 4), codecs=LITTLE, dims=("t", "y"), fill=None, sparse=False, **attributes):
    return ArraySpec(
        "/v", dims, shape, chunks, np.dtype(dtype), fill, codecs, Attributes.of(attributes), sparse=sparse
    )  # fmt: skip


def members(*specs: ArraySpec, values: tuple[np.ndarray, ...] = ()) -> ArrayMembers:
    i = np.arange(len(specs), dtype=np.int32)
    return ArrayMembers("/v", i, i, specs, i if values else i * 0 - 1, values)


def joined(*specs: ArraySpec, values: tuple[np.ndarray, ...] = (), **policies: object) -> Reconciled:
    return reconcile(members(*specs, values=values), frozenset({"t"}), NAMES, DifferenceOptions(**policies))


def times(*texts: str, dtype: str = "i4", values: tuple[list[float], ...] = (), calendars: tuple[str, ...] = (), **policies):
    specs = tuple(
        spec(dtype, (2,), (2,), dims=("t",), units=t, **({"calendar": calendars[i]} if calendars else {}))
        for i, t in enumerate(texts)
    )
    return joined(*specs, values=tuple(np.array(v, dtype) for v in values), **policies)


REFUSED = {
    "dimensions": (spec(), spec(dims=("t", "x"))),
    "size of y": (spec(), spec(shape=(2, 5))),
    "codecs": (spec(), spec(codecs=CodecChain.of(LITTLE.codecs[0], Codec.of("shuffle", elementsize=2)))),
    "chunk size along y": (spec(), spec(chunks=(1, 2))),
    "byte order": (spec("<i2"), spec(">i2")),
    "storage fill": (spec(fill=b"\1\0", sparse=True), spec(fill=b"\0\1", sparse=True)),
    "element type": (spec("i2"), spec("f4")),
    "scale_factor": (spec(scale_factor=0.5), spec(scale_factor=0.25)),
    "add_offset": (spec(scale_factor=0.5, add_offset=1.0), spec(scale_factor=0.5)),
    "_Unsigned": (spec("i1", _Unsigned="true"), spec("i1")),
    "_FillValue": (spec(_FillValue=np.int16(-1)), spec()),
    "missing_value": (spec(_FillValue=np.int16(-1)), spec(_FillValue=np.int16(-1), missing_value=np.int16(-2))),
    "units": (spec(units="K"), spec(units="degC")),
    "flag_meanings": (spec(flag_meanings="a b"), spec(flag_meanings="b a")),
    "valid_range": (spec(valid_range=np.int16([0, 9])), spec(valid_range=np.int16([0, 8]))),
}
TOPIC = {
    "codecs": "codec", "chunk size along y": "codec", "byte order": "codec", "storage fill": "codec", "element type": "dtype",
    "scale_factor": "packing", "add_offset": "packing", "_Unsigned": "packing", "_FillValue": "fill", "missing_value": "fill",
    "units": "units", "flag_meanings": "attributes", "valid_range": "attributes",
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_refused_difference_names_both_granules_the_variable_what_and_the_ways_out(what):
    policies = {TOPIC[what]: "refuse"} if what in TOPIC else {}
    with pytest.raises(CombineError) as caught:
        joined(*REFUSED[what], **policies)
    error = caught.value
    assert error.kind == "difference"
    assert (error.facts["what"], error.facts["variable"]) == (what, "/v")
    assert (error.facts["granule"], error.facts["other"]) == ("g0.nc", "g1.nc")
    assert error.facts["value"] != error.facts["other_value"]
    assert all(str(error.facts[k]) in error.message for k in ("what", "granule", "other", "value", "other_value"))
    assert "leave the variable out with combine: {variables: […]}" in error.message
    if what in TOPIC:
        assert f"combine: {{differences: {{{TOPIC[what]}: " in error.message


@pytest.mark.parametrize("what", [w for w in TOPIC if TOPIC[w] not in ("units", "attributes")])
def test_a_difference_let_through_is_a_reason_against_one_virtual_array_and_names_eras(what):
    r = joined(*REFUSED[what])
    assert r.storage is not None
    assert "/v: g0.nc and g1.nc" in r.storage
    assert what in r.storage
    assert changed(*r.keys) == (what,)
    assert r.apart is None


def test_deflate_levels_are_no_difference_and_nothing_is_rewritten():
    chains = [CodecChain.of(LITTLE.codecs[0], Codec.of("zlib", level=n)) for n in (4, 9)]
    r = joined(*(spec(codecs=c) for c in chains))
    assert (r.storage, r.recodes, r.keys[0] == r.keys[1]) == (None, (None, None), True)


def test_another_storage_fill_is_a_difference_though_every_chunk_has_a_row():
    # a row may say that its chunk was never written
    r = joined(spec(fill=b"\1\0"), spec(fill=b"\2\0"))
    assert "storage fill 0100 (hex) and 0200 (hex)" in r.storage
    assert changed(*r.keys) == ("storage fill",)
    assert joined(spec(fill=None), spec(fill=b"\0\0")).storage is None


def test_chunk_lengths_along_the_joined_axis_are_the_grids_and_only_tell_eras_apart():
    months = joined(spec(shape=(31, 4), chunks=(31, 4)), spec(shape=(28, 4), chunks=(28, 4)))
    assert months.storage is None
    assert months.keys[0] == months.keys[1]
    cut = joined(spec(shape=(31, 4), chunks=(31, 4)), spec(shape=(28, 4), chunks=(1, 4)))
    assert cut.storage is None
    assert changed(*cut.keys) == ("chunks along t",)


@pytest.mark.parametrize(
    ("one", "two", "whole"),
    [("i2", "i4", "i4"), ("u1", "i2", "i2"), ("f4", "f8", "f8"), ("i4", "f8", "f8"), ("i4", "f4", "f8"), ("u8", "i2", "i8")],
)
def test_types_are_widened_and_what_is_typed_like_the_variable_with_them(one, two, whole):
    mark = np.dtype(one).type(7)
    r = joined(spec(one, _FillValue=mark, valid_min=np.dtype(one).type(1)), spec(two, _FillValue=mark, valid_min=1))
    assert r.dtype == np.dtype(whole)
    assert (r.attributes["_FillValue"].dtype.lstrip("<|"), r.attributes["_FillValue"].value) == (whole, 7)
    assert r.attributes["valid_min"].dtype.lstrip("<|") == whole


def test_text_and_numbers_are_never_one_array():
    with pytest.raises(CombineError, match=r"element type differs between granules: int16 in g0.nc, <U3 in g1.nc"):
        joined(spec("i2"), spec("U3"))
    r = joined(spec("i2"), spec("U3"), dtype="era")
    assert r.apart is not None
    assert changed(*r.keys) == ("element type",)


def test_packings_without_a_common_one_are_decoded_and_say_so():
    r = joined(
        spec(scale_factor=0.01, add_offset=292.17, _FillValue=np.int16(-9), valid_min=np.int16(0)),
        spec(scale_factor=0.01, add_offset=288.44, _FillValue=np.int16(-9), valid_min=np.int16(0)),
    )
    assert r.dtype == np.dtype("f8")
    assert set(r.attributes) == {"_FillValue"}
    assert np.isnan(r.attributes["_FillValue"].value)
    assert [(h.scale, h.offset, h.missing_as) for h in r.recodes] == [
        (Fraction(0.01), Fraction(292.17), NAN),
        (Fraction(0.01), Fraction(288.44), NAN),
    ]
    assert any("decoded to float64" in n for n in r.notes)
    assert any("valid_min left out" in n for n in r.notes)


def test_the_first_granules_packing_is_taken_only_where_it_is_exact():
    assert joined(spec(scale_factor=0.25), spec(scale_factor=0.5), packing="first").attributes["scale_factor"].value == 0.25
    with pytest.raises(CombineError, match="does not hold the other's numbers exactly"):
        joined(spec(scale_factor=0.5), spec(scale_factor=0.25), packing="first")


def test_one_scale_in_two_precisions_is_said_in_double_and_rewrites_nothing():
    r = joined(spec(scale_factor=np.float32(0.1)), spec(scale_factor=np.float64(np.float32(0.1))))
    assert r.recodes == (None, None)
    assert r.attributes["scale_factor"].dtype == "<f8"


def test_a_scale_that_is_text_is_refused_where_it_differs():
    with pytest.raises(CombineError, match="one of them is no number"):
        joined(spec(scale_factor="0.1"), spec(scale_factor="0.2"))


def test_missing_numbers_become_the_first_granules():
    r = joined(spec(_FillValue=np.int16(-9)), spec(_FillValue=np.int16(-99), missing_value=np.int16(-8)))
    assert r.recodes[0] is None
    assert r.recodes[1].apply(np.array([-99, -8, 3], "i2")).tolist() == [-9, -9, 3]
    assert r.attributes.values_python() == {"_FillValue": np.int16(-9)}


def test_a_number_that_only_others_call_missing_is_data_where_nobody_does():
    r = joined(spec(), spec(_FillValue=np.int16(-9)))
    assert r.recodes[0].apply(np.array([-8], "i2")).tolist() == [-8]
    assert r.recodes[0].missing_as == np.int16(-9).tobytes()
    assert r.recodes[1] is None


def test_labels_are_taken_from_the_first_granule_or_tell_groups_apart():
    first = joined(spec(units="K"), spec(units="kelvin"), units="first")
    assert (first.attributes["units"].value, first.storage, first.recodes) == ("K", None, (None, None))
    assert "'K' in g0.nc is taken for all, 'kelvin' in g1.nc is not" in first.notes[0]
    era = joined(spec(units="K"), spec(units="degC"), units="era")
    assert "units 'K' and 'degC'" in era.apart
    assert changed(*era.keys) == ("units",)
    assert joined(spec(units="K"), spec(units="K ")).recodes == (None, None)


def test_times_are_no_durations():
    with pytest.raises(CombineError, match="numbers that are times and numbers that are none"):
        joined(spec(units="days since 2000-01-01"), spec(units="days"), units="first")


def test_other_attributes_are_left_out_where_they_differ():
    r = joined(spec(history="a", long_name="x"), spec(history="b", long_name="x"))
    assert set(r.attributes) == {"long_name"}
    assert r.notes == ("/v: attributes that differ between granules were left out: history",)


def test_spellings_of_one_date_are_no_difference():
    r = times("days since 2000-1-1", "d since 2000-01-01 01:00:00 +01:00")
    assert (r.recodes, r.storage, r.attributes["units"].value) == ((None, None), None, "days since 2000-1-1")


def test_whole_days_stay_whole_and_hours_make_hours():
    days = times("days since 2000-01-01", "days since 2000-02-01", values=([0, 1], [0, 1]))
    assert (days.dtype, days.attributes["units"].value) == (np.dtype("i4"), "days since 2000-01-01")
    assert days.recodes[1].apply(np.array([0, 1], "i4")).tolist() == [31, 32]
    hours = times("days since 2000-01-01", "hours since 2000-02-01", values=([0, 1], [0, 1]))
    assert (hours.dtype, hours.attributes["units"].value) == (np.dtype("i8"), "hours since 2000-01-01")
    assert [h.apply(np.array([0, 1], "i4")).tolist() for h in hours.recodes] == [[0, 24], [744, 745]]


def test_times_that_nobody_has_seen_are_counted_so_that_all_whole_numbers_fit():
    r = times("days since 2000-01-01", "hours since 2000-01-01 00:30")
    assert (r.dtype, r.attributes["units"].value) == (np.dtype("i8"), "minutes since 2000-01-01")


@pytest.mark.parametrize(
    ("texts", "calendars", "what"),
    [
        (("days since 2000-01-01",) * 2, ("noleap", "standard"), "calendar"),
        (("days since 2000-01-01",) * 2, ("standard", "julian"), "calendar"),
        (("days since 1500-01-01",) * 2, ("standard", "proleptic_gregorian"), "calendar"),
        (("months since 2000-01-01", "months since 2001-01-01"), (), "units"),
        (("days since yesterday", "days since 2001-01-01"), (), "units"),
    ],
)
def test_times_without_a_common_meaning_are_refused(texts, calendars, what):
    with pytest.raises(CombineError) as caught:
        times(*texts, calendars=calendars, values=([1, 2], [3, 4]))
    assert caught.value.facts["what"] == what
    assert "g1.nc" in caught.value.message


def test_one_calendar_under_two_names_and_gregorian_ones_of_our_age_are_one():
    assert times(*("days since 2000-01-01",) * 2, calendars=("noleap", "365_day")).storage is None
    both = ("standard", "proleptic_gregorian")
    assert times(*("days since 2000-01-01",) * 2, calendars=both, values=([1, 2], [3, 4])).storage is None


def test_time_can_be_refused():
    with pytest.raises(CombineError, match=r"say combine: \{differences: \{time: rechunk\}\}"):
        times("days since 2000-01-01", "days since 2001-01-01", time="refuse")


def test_bounds_of_one_spec_are_told_apart_by_their_coordinates():
    i = np.arange(2, dtype=np.int32)
    both = tuple(spec("i4", (2,), (2,), dims=("t",), units=f"days since 200{n}-01-01") for n in (0, 1))
    parent = ArrayMembers("/t", i, i, both, i, (np.array([0, 1], "i4"),) * 2)
    bounds = ArrayMembers("/t_bnds", i, i * 0, (spec("f8", (2, 2), (2, 2), dims=("t", "nv")),), i * 0 - 1)
    r = reconcile(bounds, frozenset({"t"}), NAMES, DifferenceOptions(), parent)
    assert (len(r.variants), r.variant.tolist()) == (2, [0, 1])
    assert "units" not in r.attributes
    got = [a if h is None else h.apply(a) for h in r.recodes for a in (np.array([[0.0, 0.5]]),)]
    assert [g.tolist() for g in got] == [[[0.0, 0.5]], [[366.0, 366.5]]]


def test_bounds_whose_coordinate_is_lacking_are_refused_where_coordinates_differ():
    i = np.arange(3, dtype=np.int32)
    both = tuple(spec("i4", (2,), (2,), dims=("t",), units=f"days since 200{n}-01-01") for n in (0, 1))
    parent = ArrayMembers("/t", i[:2], i[:2], both, i[:2] * 0 - 1)
    bounds = ArrayMembers("/t_bnds", i, i * 0, (spec("f8", (2, 2), (2, 2), dims=("t", "nv")),), i * 0 - 1)
    with pytest.raises(CombineError, match=r"g2.nc holds /t_bnds and not /t"):
        reconcile(bounds, frozenset({"t"}), NAMES, DifferenceOptions(), parent)


def test_nothing_differs_between_a_granule_and_itself():
    same = spec("i1", _Unsigned="true", scale_factor=0.1, _FillValue=np.int8(-1), units="K")
    r = joined(same, same)
    assert (r.recodes, r.storage, r.notes, r.attributes) == ((None, None), None, (), same.attributes)
    assert (r.dtype, r.stored_dtype, r.codecs, r.variants) == (same.native_dtype, same.dtype, same.codecs, (same, same))

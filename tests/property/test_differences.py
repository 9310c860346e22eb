"""Granules that differ are one array with the values that readers decode from each, or are refused."""

from __future__ import annotations

import datetime as dt
import warnings

import cftime
import numpy as np
import xarray as xr
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from drystone.codecs.chain import Codec, CodecChain
from drystone.errors import CombineError, DecodeError
from drystone.model.array import ArraySpec
from drystone.model.attributes import Attributes
from drystone.model.options import DifferenceOptions
from drystone.plan.differences import Reconciled, reconcile
from drystone.plan.members import ArrayMembers

RAW = CodecChain.of(Codec.of("bytes", endian="little"))


def members(arrays: list[np.ndarray], attributes: list[dict[str, object]], path: str = "/v", kept: bool = True) -> ArrayMembers:
    """A granule for each array."""
    specs = tuple(
        ArraySpec(path, ("t",), a.shape, (max(1, a.size),), a.dtype, None, RAW, Attributes.of(t), padded=False)
        for a, t in zip(arrays, attributes, strict=True)
    )
    i = np.arange(len(arrays), dtype=np.int32)
    return ArrayMembers(path, i, i, specs, i if kept else i * 0 - 1, tuple(arrays) if kept else ())


def joined(m: ArrayMembers, arrays: list[np.ndarray], **kw: object) -> tuple[Reconciled, list[np.ndarray]]:
    """What readers of the whole get, before decoding."""
    r = reconcile(m, frozenset({"t"}), {i: f"g{i}.nc" for i in range(len(arrays))}, DifferenceOptions(), **kw)
    out = []
    for variant, a in zip(r.variant.tolist(), arrays, strict=True):
        how = r.recodes[variant]
        out.append(a if how is None else how.apply(a))
        assert out[-1].dtype == r.dtype
    assert (r.storage is None) == (not any(r.recodes))
    assert r.storage is not None or len({k for k in r.keys if k}) == 1
    return r, out


def decode(raw: np.ndarray, attributes: dict[str, object]) -> list[object]:
    """As the conventions say, number by number; None is missing."""
    if attributes.get("_Unsigned") == "true":
        raw = raw.view(f"u{raw.dtype.itemsize}")
    gone = np.isnan(raw) if raw.dtype.kind == "f" else np.zeros(raw.shape, bool)
    for key in ("_FillValue", "missing_value"):
        if key in attributes:
            number = np.asarray(attributes[key])
            if attributes.get("_Unsigned") == "true":
                number = number.view(raw.dtype)
            gone |= raw == number.astype(raw.dtype)
    scale, offset = float(attributes.get("scale_factor", 1)), float(attributes.get("add_offset", 0))
    if (scale, offset) != (1, 0):
        with np.errstate(over="ignore", invalid="ignore"):
            raw = raw.astype("f8") * scale + offset
    return [None if g else v for g, v in zip(gone.tolist(), raw.tolist(), strict=True)]


@st.composite
def granules(draw: st.DrawFn) -> tuple[np.ndarray, dict[str, object]]:
    dtype = np.dtype(draw(st.sampled_from(["i1", "u1", "i2", "u2", "i4", "f4", "f8", "i8"])))
    attributes: dict[str, object] = {}
    kind = draw(st.sampled_from([np.float32, np.float64]))
    if draw(st.booleans()):
        attributes["scale_factor"] = kind(draw(st.sampled_from([1.0, 0.5, 0.25, 0.01, 0.02, -0.5, 2.0])))
    if draw(st.booleans()):
        attributes["add_offset"] = kind(draw(st.sampled_from([0.0, 1.5, 273.15, -7.25, 292.17])))
    if dtype.kind == "i" and draw(st.booleans()) and draw(st.booleans()):
        attributes["_Unsigned"] = "true"
    marks = [np.nan, -999.0, 1e20] if dtype.kind == "f" else [np.iinfo(dtype).min, np.iinfo(dtype).max, 0, 7]
    with np.errstate(over="ignore"):
        if draw(st.booleans()):
            attributes["_FillValue"] = dtype.type(draw(st.sampled_from(marks)))
        if draw(st.booleans()) and draw(st.booleans()):
            attributes["missing_value"] = dtype.type(draw(st.sampled_from(marks)))
    elements = st.sampled_from(marks) | hnp.from_dtype(dtype, allow_infinity=False)
    values = np.array(draw(st.lists(elements, min_size=1, max_size=6)), object)
    with np.errstate(over="ignore"):
        return values.astype(dtype), attributes


@settings(max_examples=300, deadline=None)
@given(st.lists(granules(), min_size=2, max_size=3))
def test_numbers_decode_as_in_their_own_granule_or_are_refused(found):
    arrays, attributes = [a for a, _ in found], [t for _, t in found]
    try:
        r, out = joined(members(arrays, attributes), arrays)
    except (CombineError, DecodeError):
        return
    told = r.attributes.values_python()
    for a, t, b in zip(arrays, attributes, out, strict=True):
        assert decode(a, t) == decode(b, told), (r.recodes, told)


def test_packings_with_whole_steps_between_them_stay_packed():
    """Not everything is decoded to floating point: the property above would hold for that too."""
    arrays = [np.array([0, 5], "i2"), np.array([0, 5], "i2")]
    attributes = [{"scale_factor": 0.5, "add_offset": 10.0}, {"scale_factor": 0.25, "add_offset": 12.0}]
    r, out = joined(members(arrays, attributes), arrays)
    assert r.dtype == np.dtype("i4")
    assert [o.tolist() for o in out] == [[0, 10], [8, 13]]


# spellings that xarray knows: of others it leaves the decoding to cftime
UNITS = ["days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "Days"]
GREGORIAN = ["standard", "gregorian", "proleptic_gregorian", None]
DATES = [
    "2000-01-01",
    "2000-1-1 00:00:00",
    "1999-12-30T12:00",
    "1950-01-01 00:00 +01:30",
    "2001-02-28 06:30:00.5",
    "1850-01-01",
]


@st.composite
def times(draw: st.DrawFn, calendars: list[str | None]) -> tuple[np.ndarray, dict[str, object]]:
    unit = draw(st.sampled_from(UNITS))
    attributes: dict[str, object] = {"units": f"{unit} since {draw(st.sampled_from(DATES))}"}
    if (calendar := draw(st.sampled_from(calendars))) is not None:
        attributes["calendar"] = calendar
    dtype = np.dtype(draw(st.sampled_from(["i4", "i8", "f8", "f4"])))
    if dtype.kind == "i":
        numbers = st.integers(-30_000, 30_000)
    else:
        numbers = st.integers(-3000, 60_000).map(lambda n: n / 24) | st.floats(-1000, 30_000, width=32)
        if draw(st.booleans()):
            numbers |= st.just(np.nan)
    return np.array(draw(st.lists(numbers, min_size=1, max_size=4)), dtype), attributes


def nanoseconds(values: np.ndarray, attributes: dict[str, object]) -> list[int]:
    """As xarray decodes; a missing time is the smallest number."""
    t = xr.Variable("t", values, attributes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = xr.conventions.decode_cf_variable("t", t).to_numpy()
    assert found.dtype == np.dtype("M8[ns]")
    return found.astype("i8").tolist()


def check_times(found: list[int], wanted: list[int], exact: bool) -> None:
    """Of floating-point times xarray cuts off what is less than a nanosecond, and cftime is a microsecond off at times."""
    assert all(abs(a - b) <= (0 if exact else 2) for a, b in zip(found, wanted, strict=True)), (found, wanted)


@settings(max_examples=150, deadline=None)
@given(st.lists(times(GREGORIAN), min_size=2, max_size=3), st.booleans())
def test_times_are_the_instants_that_xarray_decodes(found, kept):
    arrays, attributes = [a for a, _ in found], [t for _, t in found]
    try:
        r, out = joined(members(arrays, attributes, kept=kept), arrays)
    except (CombineError, DecodeError) as error:
        refused, out = error, []
    if not out:
        # what is planned from values is never refused: these calendars are one, and a nanosecond holds every time
        assert not kept
        assert isinstance(refused, DecodeError) or refused.facts["what"] == "calendar"
        return
    told = r.attributes.values_python()
    for a, t, b in zip(arrays, attributes, out, strict=True):
        check_times(nanoseconds(b, told), nanoseconds(a, t), exact=a.dtype.kind == b.dtype.kind == "i")


@settings(max_examples=80, deadline=None)
@given(st.lists(times(["noleap", "365_day"]) | times(["360_day"]) | times(["julian"]), min_size=2, max_size=3))
def test_times_of_other_calendars_are_those_of_cftime_and_never_mixed(found):
    arrays, attributes = [a for a, _ in found], [t for _, t in found]
    calendars = {str(t["calendar"]).replace("365_day", "noleap") for t in attributes}
    assume(all(np.isfinite(a).all() for a in arrays))
    try:
        r, out = joined(members(arrays, attributes), arrays)
    except CombineError as error:
        refused, out = error, []
    if not out:
        assert len(calendars) > 1
        assert refused.facts["what"] == "calendar"
        return
    assert len(calendars) == 1
    told = r.attributes.values_python()
    for a, t, b in zip(arrays, attributes, out, strict=True):
        check_times(microseconds(b, told), microseconds(a, t), a.dtype.kind == b.dtype.kind == "i")


def microseconds(values: np.ndarray, attributes: dict[str, object]) -> list[int]:
    """As cftime decodes."""
    calendar = attributes["calendar"]
    origin = cftime.datetime(1900, 1, 1, calendar=calendar)
    return [(d - origin) // dt.timedelta(microseconds=1) for d in cftime.num2date(values, attributes["units"], calendar)]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(times([None]), st.booleans()), min_size=2, max_size=4), st.data())
def test_bounds_are_dated_as_their_coordinate_is(found, data):
    arrays, attributes = [a for (a, _), _ in found], [t for (_, t), _ in found]
    assume(all(np.isfinite(a).all() for a in arrays))
    parent = members(arrays, attributes, "/t")
    kind = data.draw(st.sampled_from(["i4", "f8"]))
    raw = [np.floor(a).astype(kind) for a in arrays]
    m = members(raw, [{} for _ in raw], "/t_bnds", kept=False)
    same = tuple(np.zeros(len(raw), np.int32) for _ in range(2))
    m = ArrayMembers(m.path, m.granule_id, same[0], m.variants[:1], same[1] - 1)
    try:
        above, _ = joined(parent, arrays)
        r, out = joined(m, raw, parent=parent)
    except (CombineError, DecodeError):
        return
    told = {"units": above.attributes["units"].value}
    assert "units" not in r.attributes
    for a, t, b in zip(raw, attributes, out, strict=True):
        check_times(nanoseconds(b, told | r.attributes.values_python()), nanoseconds(a, t), a.dtype.kind == b.dtype.kind == "i")

"""The witness's reading of numbers against ours: what reconciling makes of random granules means what the granules mean.

Neither shares code with the other, so one is the other's test: what is rewritten is accepted, and what a combiner publishes
that rewrites nothing is not.
"""

from __future__ import annotations

import datetime as dt
import json

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from drystone.codecs.chain import CodecChain
from drystone.codecs.zarr_forms import attributes_v3
from drystone.errors import CombineError, DecodeError
from drystone.model.array import ArraySpec
from drystone.model.attributes import Attributes
from drystone.model.options import DifferenceOptions
from drystone.plan.differences import reconcile
from drystone.plan.members import ArrayMembers
from drystone.verify import instants, meaning

type Granule = tuple[np.ndarray, dict[str, object]]

DTYPES = ("i1", "u1", "i2", "u2", "i4", "i8", "f4", "f8")
SCALES = (None, 1.0, 0.5, 0.25, np.float32(0.1), 0.1, 0.01, 2)
OFFSETS = (None, 0.0, 10.0, -2.5, 273.15, np.float32(273.15))
UNITS = ("days since 2000-01-01", "hours since 2000-01-01", "seconds since 1999-12-31 12:00", "days since 2000-1-1 00:00:00")
CALENDARS = (None, "standard", "gregorian", "proleptic_gregorian")


@st.composite
def granules(draw: st.DrawFn, times: bool) -> Granule:
    dtype = np.dtype(draw(st.sampled_from(DTYPES[2:] if times else DTYPES)))
    whole = draw(st.lists(st.integers(0 if dtype.kind == "u" or times else -100, 100), min_size=3, max_size=3))
    values = np.array(whole).astype(dtype)
    if dtype.kind == "f":
        values += np.array(draw(st.sampled_from([(0, 0, 0), (0.5, 0.25, 0), (0.1, np.nan, 0.3)])), dtype)
    attributes: dict[str, object] = {}
    sentinel = draw(st.sampled_from([None, 7, -1, 100, np.nan, -32768]))
    if sentinel is not None and (
        dtype.kind == "f" or (sentinel == sentinel and np.iinfo(dtype).min <= sentinel <= np.iinfo(dtype).max)
    ):
        attributes[draw(st.sampled_from(["_FillValue", "missing_value"]))] = dtype.type(sentinel)
        values[draw(st.integers(0, 2))] = sentinel
    if times:
        attributes["units"] = draw(st.sampled_from(UNITS))
        calendar = draw(st.sampled_from(CALENDARS))
        return values, attributes | ({} if calendar is None else {"calendar": calendar})
    if dtype.kind in "iu":
        for key, choice in (("scale_factor", SCALES), ("add_offset", OFFSETS)):
            number = draw(st.sampled_from(choice))
            if number is not None:
                attributes[key] = number
        if dtype.kind == "i" and draw(st.booleans()):
            attributes["_Unsigned"] = "true"
    return values, attributes


def spec_of(values: np.ndarray, attributes: dict[str, object]) -> ArraySpec:
    return ArraySpec(
        "/v", ("t",), (3,), (3,), values.dtype.newbyteorder("<"), None, CodecChain.of("bytes"), Attributes.of(attributes)
    )


def wrong(published: np.ndarray, words: dict[str, object], granule: Granule, rewritten: bool) -> bool:
    """Whether the witness objects to a granule's part of the whole."""
    values, attributes = granule
    mine, their = meaning.published(words, published.dtype), meaning.stored(attributes)
    if list(meaning.problems(words, mine, attributes, their, published.dtype, (), rewritten)):
        return True
    if not rewritten and published.tobytes() != values.tobytes():
        return True
    return bool(meaning.differs(published, meaning.Coding.of(mine), values, meaning.Coding.of(their)).any())


@settings(max_examples=600, deadline=None)
@given(st.booleans().flatmap(lambda times: st.tuples(granules(times), granules(times))))
def test_what_is_reconciled_means_the_same_and_what_is_not_does_not(pair: tuple[Granule, Granule]) -> None:
    one = np.arange(2, dtype=np.int32)
    specs = tuple(spec_of(*g) for g in pair)
    same = specs[0] == specs[1]
    members = ArrayMembers("/v", one, one * (not same), specs[:1] if same else specs, one, tuple(v for v, _ in pair))
    try:
        found = reconcile(members, frozenset("t"), {0: "a.nc", 1: "b.nc"}, DifferenceOptions())
        parts = []
        for i, (values, _) in enumerate(pair):
            recode = found.recodes[int(found.variant[i])]
            parts.append(values if recode is None else recode.apply(values))
    except (CombineError, DecodeError):
        assume(False)
    assert all(p.dtype == found.dtype for p in parts)
    words = json.loads(json.dumps(attributes_v3(found.attributes, found.dtype)))
    rewritten = any(r is not None for r in found.recodes)
    for part, granule in zip(parts, pair, strict=True):
        assert not wrong(part, words, granule, rewritten), (part, words, granule)
        off = part.copy()
        off[0] = 55 if off[0] != 55 else 56
        assert wrong(off, words, granule, rewritten)
    if found.recodes[int(found.variant[1])] is not None and pair[1][0].dtype == found.dtype:
        # the second granule's bytes under what is published
        raw, theirs = pair[1][0], parts[1]
        reads = [meaning.Coding.of(meaning.published(words, found.dtype))] * 2
        if meaning.differs(raw, reads[0], theirs, reads[1]).any():
            assert wrong(raw, words, pair[1], True)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(["standard", "proleptic_gregorian", "julian", "noleap", "all_leap", "360_day"]),
    st.tuples(st.integers(1, 3000), st.integers(1, 12), st.integers(1, 28)),
    st.tuples(st.integers(0, 23), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999_999)),
    st.sampled_from(["days", "hours", "minutes", "seconds", "milliseconds", "microseconds"]),
)
def test_references_are_the_dates_that_cftime_says(
    calendar: str, date: tuple[int, int, int], time: tuple[int, int, int, int], unit: str
) -> None:
    import cftime

    assume(calendar != "standard" or date[:2] != (1582, 10))
    text = "{:04d}-{:02d}-{:02d}".format(*date) + "T{:02d}:{:02d}:{:02d}.{:06d}".format(*time)
    clock = instants.Clock.of({"units": f"{unit} since {text}", "calendar": calendar})
    other = instants.Clock.of({"units": "days since 1900-03-01", "calendar": calendar})
    assert clock is not None
    assert other is not None
    moment = cftime.datetime(*date, *time, calendar=calendar)
    apart = moment - cftime.datetime(1900, 3, 1, calendar=calendar)
    expected = (apart.days, (apart.seconds * 10**6 + apart.microseconds) * 1000)
    assert (clock.day - other.day, clock.within - other.within) == expected
    number = np.array([17])
    moved = apart + dt.timedelta(**{unit: 17})
    as_microseconds = np.array([(moved.days * 86_400 + moved.seconds) * 10**6 + moved.microseconds])
    micro = instants.Clock.of({"units": "microseconds since 1900-03-01", "calendar": calendar})
    assert micro is not None
    assert not instants.differs(number, clock, as_microseconds, micro).any()
    assert instants.differs(number, clock, as_microseconds + 1, micro).all()

"""Combining is concatenation in coordinate order, whatever order granules are listed in, or a refusal."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drystone.codecs.chain import Codec, CodecChain
from drystone.errors import CombineError
from drystone.model.array import ArraySpec
from drystone.model.attributes import Attributes
from drystone.model.chunk_rows import ChunkRows, ScannedArray, ScanResult
from drystone.model.options import AxisOptions, CombineOptions, DifferenceOptions
from drystone.plan.combine import combine
from drystone.plan.forms import read_form
from drystone.plan.members import from_scans

RAW = CodecChain.of(Codec.of("bytes", endian="little"))


def granule(start: int, count: int, chunk: int = 1, padded: bool = True, **attributes: object) -> ScanResult:
    """A granule of `count` steps from `start`, with a coordinate and one array."""
    time = np.arange(start, start + count, dtype="f8")
    t = ArraySpec(
        "/time",
        ("time",),
        (count,),
        (max(count, 1),),
        np.dtype("f8"),
        None,
        RAW,
        Attributes.of({"units": "days since 2000-01-01"}),
        (True,),
        padded=False,
    )
    v = ArraySpec(
        "/v",
        ("time", "x"),
        (count, 4),
        (chunk, 4),
        np.dtype("i2"),
        None,
        RAW,
        Attributes.of(attributes),
        (True, False),
        padded=padded,
    )
    x = ArraySpec("/x", ("x",), (4,), (4,), np.dtype("f4"), None, RAW, Attributes(), (False,), padded=False)
    return ScanResult(
        "hdf5",
        (),
        (
            ScannedArray(t, ChunkRows.single(1, 0, 8 * count), coordinate=time),
            ScannedArray(v, ChunkRows.empty(2)),
            ScannedArray(x, ChunkRows.single(1, 0, 16), coordinate=np.arange(4, dtype="f4")),
        ),
    )


def whole(scans: dict[int, ScanResult], **options: object):
    return combine(from_scans(scans), (), {g: f"raw:{g}.nc" for g in scans}, CombineOptions(**options))


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), min_size=2, max_size=8), st.randoms(), st.integers(1, 4), st.booleans())
def test_granules_land_by_coordinate_whatever_their_listed_order(counts, rng, chunk, padded):
    """dest is the cumulative sum in coordinate order; the grid's data sizes cover the axis."""
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    if sum(c > 0 for c in counts) < 2:
        return
    ids = list(range(len(counts)))
    rng.shuffle(ids)
    combined = whole({g: granule(int(s), c, chunk, padded) for g, s, c in zip(ids, starts, counts, strict=True)})
    v = combined.array("/v")
    assert combined.axis == "time"
    assert v.shape == (sum(counts), 4)
    assert combined.coordinates["/time"].tolist() == list(range(sum(counts)))
    at = {int(g): int(d) for g, d, c in zip(v.placements.granule_id, v.placements.dest, v.placements.count, strict=True) if c}
    assert at == {g: int(s) for g, s, c in zip(ids, starts, counts, strict=True) if c}
    edges = v.grid.dimensions[0].edges()
    assert edges[-1] == sum(counts)
    held = [c for c in counts if c]
    lined_up = all(c % chunk == 0 for c in held[:-1]) and (held[-1] % chunk == 0 or padded)
    assert (v.unaligned is None and v.grid.is_regular) == lined_up


@pytest.mark.parametrize(
    ("key", "a", "b"),
    [
        ("scale_factor", np.float32(0.01), np.float32(0.02)),
        ("scale_factor", np.float32(0.01), np.float64(0.01)),
        ("_FillValue", np.int16(-999), np.int16(-32768)),
        ("units", "K", "degC"),
        ("add_offset", np.float32(1), None),
    ],
)
def test_what_would_change_values_is_refused_by_name(key, a, b):
    """Both granules, the variable and both values are in the message."""
    attributes = [{key: v} if v is not None else {} for v in (a, b)]
    refuse = DifferenceOptions(packing="refuse", fill="refuse")
    with pytest.raises(CombineError) as caught:
        whole({0: granule(0, 2, **attributes[0]), 1: granule(2, 2, **attributes[1])}, differences=refuse)
    text = str(caught.value)
    assert caught.value.kind == "difference"
    assert all(part in text for part in ("/v", key, "raw:0.nc", "raw:1.nc"))


def test_attributes_that_change_no_value_are_dropped_with_a_note():
    """A creation date differs in every file of every archive."""
    combined = whole({0: granule(0, 2, history="a", long_name="sst"), 1: granule(2, 2, history="b", long_name="sst")})
    assert list(combined.array("/v").attributes) == ["long_name"]
    assert any("history" in w for w in combined.warnings)


@pytest.mark.parametrize(("second", "kind"), [((0, 2), "axis-duplicate"), ((1, 2), "axis-overlap")])
def test_granules_that_claim_one_place_are_refused(second, kind):
    """Which of two counts is not for a guess."""
    with pytest.raises(CombineError) as caught:
        whole({0: granule(0, 2), 1: granule(*second)}, along=(AxisOptions("time"),))
    assert caught.value.kind == kind


def test_a_variable_that_one_granule_lacks_is_refused():
    """A gap would pass for data."""
    lacking = granule(2, 2)
    lacking = ScanResult("hdf5", (), tuple(a for a in lacking.arrays if a.spec.path != "/v"))
    combined = whole({0: granule(0, 2), 1: lacking})
    assert "/v: raw:1.nc" in combined.unmarked["/v"]
    with pytest.raises(CombineError, match=r"/v: raw:1.nc .*no _FillValue"):
        read_form(combined)
    with pytest.raises(CombineError, match=r"/v is in raw:0.nc and not in raw:1.nc"):
        whole({0: granule(0, 2), 1: lacking}, differences=DifferenceOptions(missing_variable="refuse"))


def test_a_static_coordinate_that_differs_is_refused():
    """The first granule's x may not stand for the others."""
    other = granule(2, 2)
    x = other.arrays[2]
    moved = ScannedArray(x.spec, x.rows, coordinate=np.arange(4, dtype="f4") + 0.5)
    with pytest.raises(CombineError) as caught:
        whole({0: granule(0, 2), 1: ScanResult("hdf5", (), (*other.arrays[:2], moved))}, along=(AxisOptions("time"),))
    assert caught.value.kind == "static-differs"
    assert "/x" in str(caught.value)


@pytest.mark.parametrize("pattern", [r"(\d+)", "%Y%m%d"])
def test_order_by_name_pattern(pattern):
    """Names tell the order where coordinates cannot."""
    names = {0: "raw:d20200103.nc", 1: "raw:d20200101.nc", 2: "raw:d20200102.nc"}
    scans = {g: granule(0, 1) for g in names}
    combined = combine(from_scans(scans), (), names, CombineOptions(along=(AxisOptions("time", "name", pattern),)))
    assert combined.array("/v").placements.granule_id.tolist() == [1, 2, 0]

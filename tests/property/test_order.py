"""Placing granules against a model that paints values one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from drystone.errors import CombineError
from drystone.model.options import AxisOptions
from tests.services.order_granules import order, series, tile

SETS = st.lists(st.sets(st.integers(0, 12), min_size=0, max_size=5), min_size=2, max_size=6)
UNITS = {"days since 2000-01-01": (1, 0), "hours since 2000-01-01": (24, 0), "days since 1999-12-22": (1, 10)}


def _scans(sets, units):
    """A granule for each set of days, each in units of its own."""
    out = {}
    for i, (days, unit) in enumerate(zip(sets, units, strict=True)):
        factor, shift = UNITS[unit]
        out[f"g{i}"] = series([(d + shift) * factor for d in sorted(days)], units=unit)
    return out


def _painted(found, n_axes=1):
    """Place to (granule, source) as the boxes say; no place twice."""
    whole = {}
    for g, s, c, d in zip(found.granule_id, found.src_offset, found.count, found.dest, strict=True):
        for at in itertools.product(*(range(n) for n in c)):
            place = tuple(int(a + b) for a, b in zip(d, at, strict=True))
            assert place not in whole
            whole[place] = (int(g), tuple(int(a + b) for a, b in zip(s, at, strict=True)))
    assert [tuple(d) for d in found.dest.tolist()] == sorted(tuple(d) for d in found.dest.tolist())
    return whole


@given(SETS, st.data(), st.sampled_from(["first", "last", "newest", "error"]), st.booleans())
def test_one_axis_is_the_model(sets, data, policy, slots):
    """First, last and newest paint in their order; an error is where two hold one place, or lie between each other."""
    units = data.draw(st.lists(st.sampled_from(list(UNITS)), min_size=len(sets), max_size=len(sets)))
    held = sorted(set().union(*sets))
    assume(held)
    axis = AxisOptions("time", axis="slots", step="1D", origin="2000-01-01") if slots else AxisOptions("time")
    places = {d: d if slots else held.index(d) for d in held}
    twice = sum(len(s) for s in sets) > len(held)
    torn = any(held.index(b) - held.index(a) > 1 for s in sets for a, b in itertools.pairwise(sorted(s)))
    if policy == "error" and (twice or (torn and not slots)):
        with pytest.raises(CombineError, match=r"both hold time|overlap along time"):
            order(_scans(sets, units), axis, duplicates=policy)
        return
    found = order(_scans(sets, units), axis, duplicates=policy)
    model = {}
    for g in range(len(sets)) if policy != "first" else range(len(sets) - 1, -1, -1):
        for i, day in enumerate(sorted(sets[g])):
            model[(places[day],)] = (g, (i,))
    assert _painted(found) == model
    assert found.axes[0].extent == (held[-1] + 1 if slots else len(held))
    if slots:
        values = found.axes[0].values
        factor, shift = UNITS[found.axes[0].attributes["units"].value]
        assert values.tolist() == [(d + shift) * factor for d in range(held[-1] + 1)]


@given(SETS, st.randoms(), st.sampled_from(["newest", "error"]), st.booleans())
def test_the_list_does_not_matter(sets, rng, policy, slots):
    """Any order of the list, any ids: the same boxes of the same granules, on slots and in sequences."""
    assume(any(sets))
    units = ["days since 2000-01-01"] * len(sets)
    scans = _scans(sets, units)
    axis = AxisOptions("time", axis="slots", step="1D", origin="2000-01-01") if slots else AxisOptions("time")

    def outcome(names, ids):
        try:
            found = order({n: scans[n] for n in names}, axis, ids=ids, duplicates=policy)
        except CombineError:
            return "refused"
        by_id = dict(zip(ids, names, strict=True))
        boxes = [
            (by_id[int(g)], *s, *c, *d)
            for g, s, c, d in zip(
                found.granule_id, found.src_offset.tolist(), found.count.tolist(), found.dest.tolist(), strict=True
            )
        ]
        return boxes, found.axes[0].extent, found.axes[0].values.tolist() if slots else None

    names, ids = list(scans), list(range(len(scans)))
    straight = outcome(names, ids)
    rng.shuffle(names)
    rng.shuffle(ids)
    assert outcome(names, ids) == straight


BOX = st.tuples(*(st.tuples(st.integers(0, 6), st.integers(1, 4)) for _ in range(2)))


@given(st.lists(st.tuples(st.integers(0, 1), BOX), min_size=1, max_size=6), st.sampled_from(["first", "last"]))
def test_several_axes_are_the_model(boxes, policy):
    """Tiles of a series of maps: duplicates and overlaps by the same policy are painting in that order."""
    scans = {f"g{i}": tile(np.arange(y, y + h), np.arange(x, x + w), [t]) for i, (t, ((y, h), (x, w))) in enumerate(boxes)}
    found = order(scans, "time", "y", "x", duplicates=policy, overlap=policy)
    axes = [a.values.tolist() for a in found.axes]
    model = {}
    for g, (t, ((y, h), (x, w))) in list(enumerate(boxes))[:: 1 if policy == "last" else -1]:
        for dy, dx in itertools.product(range(h), range(w)):
            place = (axes[0].index(t), axes[1].index(y + dy), axes[2].index(x + dx))
            model[place] = (g, (0, dy, dx))
    assert _painted(found) == model
    if sum(h * w for _, ((_, h), (_, w)) in boxes) > len(model):
        with pytest.raises(CombineError, match="both hold time"):
            order(scans, "time", "y", "x")
    else:
        assert _painted(order(scans, "time", "y", "x")) == model

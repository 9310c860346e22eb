"""Rounding against numcodecs, bit for bit, over every bit pattern; what must stay does, and the stated loss holds."""

from __future__ import annotations

import numcodecs
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from drystone.model.rounding import Rounding, elements, mantissa_bits
from drystone.verify.meaning import Coding, differs, within

FLOATS = ("f2", "f4", "f8")


def theirs(values: NDArray[np.generic], rounding: Rounding) -> NDArray[np.generic]:
    with np.errstate(all="ignore"):
        if rounding.digits is not None:
            return np.asarray(numcodecs.Quantize(rounding.digits, values.dtype).encode(values))
        return np.asarray(numcodecs.BitRound(rounding.keepbits).encode(values)).view(values.dtype)


@st.composite
def cases(draw: st.DrawFn) -> tuple[NDArray[np.generic], Rounding, NDArray[np.generic]]:
    dtype = np.dtype(draw(st.sampled_from(FLOATS)))
    unsigned = np.dtype(f"u{dtype.itemsize}")
    raw = draw(arrays(unsigned, st.integers(0, 40), elements=st.integers(0, 2 ** (8 * dtype.itemsize) - 1))).view(dtype)
    near = draw(arrays(dtype, st.integers(0, 40), elements=st.floats(-1000, 1000, width=8 * dtype.itemsize)))  # type: ignore[arg-type]
    kept = draw(st.sampled_from([[], [-999.0], [0.0, 512.0], [np.nan, 1.0]]))
    values = np.concatenate([raw, near, np.array([*kept, *(np.array(kept) * 1.001), 0.0, np.inf, -np.inf], dtype)])
    bits = draw(st.integers(0, mantissa_bits(dtype)))
    rounding = draw(st.sampled_from([Rounding(keepbits=bits), Rounding(digits=draw(st.integers(-6, 8)))]))
    return values, rounding, elements([np.array(k, dtype).tobytes() for k in kept], dtype)


@settings(deadline=None, max_examples=300)
@given(cases())
def test_every_bit_is_numcodecs_and_what_must_stay_stays(
    case: tuple[NDArray[np.generic], Rounding, NDArray[np.generic]],
) -> None:
    values, rounding, kept = case
    expected = theirs(values.copy(), rounding)
    got = values.copy()
    rounding.apply(got, kept)
    stays = ~np.isfinite(values) | np.isin(values, kept)
    word = f"u{values.itemsize}"
    assert np.array_equal(got[stays].view(word), values[stays].view(word))  # bit for bit, the payloads of NaN too
    unfit = ~np.isfinite(expected) | np.isin(expected, kept)
    rounded = np.where(stays | unfit, values, expected)
    assert np.array_equal(got.view(word), rounded.view(word))
    assert not (np.isin(got, kept) & ~np.isin(values, kept)).any()
    again = got.copy()
    rounding.apply(again, kept)
    assert again.tobytes() == got.tobytes()


@settings(deadline=None, max_examples=200)
@given(cases())
def test_no_value_is_further_off_than_is_said(case: tuple[NDArray[np.generic], Rounding, NDArray[np.generic]]) -> None:
    values, rounding, kept = case
    got = values.copy()
    rounding.apply(got, kept)
    data = np.isfinite(values)
    x, y = values[data].astype("f8"), got[data].astype("f8")
    loss = rounding.loss(values.dtype)
    if loss is None:
        assert got.tobytes() == values.tobytes()
    else:
        assert (np.abs(y - x) <= loss.relative * np.abs(x) + loss.absolute).all()


def test_the_bound_is_reached() -> None:
    for rounding, worst in ((Rounding(keepbits=3), 1 + 0.5**4), (Rounding(digits=1), 0.03125)):
        value = np.array([worst], "f8")
        rounding.apply(value, np.zeros(0))
        loss = rounding.loss(value.dtype)
        assert loss is not None
        assert abs(value[0] - worst) > 0.9 * loss.relative * worst
        assert abs(value[0] - worst) >= loss.absolute * (rounding.digits is not None)


def test_the_witness_compares_a_single_number_too() -> None:
    plain = Coding.of({})
    for ours, wrong in ((1.01, False), (1.2, True), (np.nan, True)):
        pair = np.array(ours), plain, np.array(1.0), plain
        assert bool(within(*pair, (0.1, 0.0))) != wrong
        assert bool(differs(*pair, (0.1, 0.0))) == wrong

"""Rewriting of stored numbers: exact, or an error with the number."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from drystone.errors import DecodeError
from drystone.model.recode import Recode, whole_ticks

DAY = 86_400 * 10**9


@pytest.mark.parametrize(
    ("recode", "values"),
    [
        (Recode(np.dtype("u2")), np.array([-1], "i2")),
        (Recode(np.dtype("i8")), np.array([2**63], "u8")),
        (Recode(np.dtype("i8")), np.array([2.0**63])),
        (Recode(np.dtype("i2")), np.array([np.nan])),
        (Recode(np.dtype("i2")), np.array([0.5])),
        (Recode(np.dtype("f8")), np.array([2**53 + 1])),
        (Recode(np.dtype("f4")), np.array([0.1])),
        (Recode(np.dtype("i8"), scale=Fraction(1, 24)), np.array([1])),
        (Recode(np.dtype("i1"), offset=Fraction(1)), np.array([127], "i1")),
        (Recode(np.dtype("i8"), tick=DAY, scale=Fraction(24)), np.array([0.3])),
        (Recode(np.dtype("i8"), tick=DAY, scale=Fraction(24)), np.array([np.nan])),
        (Recode(np.dtype("f4"), tick=DAY, scale=Fraction(24)), np.array([0.37 + 1e6])),
        (Recode(np.dtype("i2"), missing_as=np.int16(-9).tobytes()), np.array([-9], "i2")),
    ],
)
def test_what_has_no_exact_place_is_refused(recode, values):
    with pytest.raises(DecodeError):
        recode.apply(values)


def test_missing_numbers_are_not_checked_and_become_the_sentinel():
    recode = Recode(np.dtype("i1"), missing=(np.int16(-999).tobytes(),), missing_as=np.int8(-128).tobytes())
    assert recode.apply(np.array([5, -999], "i2")).tolist() == [5, -128]


def test_unsigned_numbers_are_widened_as_unsigned():
    assert Recode(np.dtype("i2"), unsigned=True).apply(np.array([-1, 1], "i1")).tolist() == [255, 1]


def test_float_times_are_the_instants_that_readers_decode():
    days = np.array([1 / 24, 0.5, np.nan])
    nan = np.float64("nan").tobytes()
    to_hours = Recode(np.dtype("i8"), missing=(nan,), missing_as=np.int64(-1).tobytes(), scale=Fraction(24), tick=DAY)
    assert to_hours.apply(days).tolist() == [1, 12, -1]
    later = Recode(np.dtype("f8"), offset=Fraction(31), tick=DAY).apply(days)
    assert whole_ticks(later[:2], DAY).tolist() == [31 * DAY + DAY // 24, 31 * DAY + DAY // 2]
    assert np.isnan(later[2])


def test_microseconds_are_rounded_from_the_exact_product():
    # in double precision the product is off by thousands of nanoseconds
    number = 730_000.041666666
    assert whole_ticks(np.array([number]), DAY, 1000)[0] == round(Fraction(number) * DAY / 1000) * 1000


def test_json_keeps_everything():
    recode = Recode(np.dtype("i8"), True, (b"\1",), b"\2" * 8, Fraction(1, 3), Fraction(-2), DAY, 1000)
    assert Recode.from_json(recode.to_json()) == recode

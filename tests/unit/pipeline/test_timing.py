"""The time of an output: its arrays' tasks run side by side, and workers take time to start."""

from __future__ import annotations

from typing import cast

import pytest

from drystone.execute.resources import Resources
from drystone.model.rates import PlaceRates, Rates
from drystone.pipeline.timing import Clock
from drystone.plan.predict import Prediction
from drystone.storage.address import Places
from drystone.table.table import ReferenceTable

PLACE = PlaceRates(1e9, 1e9, 1e-4, 1e8, 1e8, 1e-2, 0.0, 0.0, False)
RATES = Rates("h", "1", "", 2, (), (), 0, 0, 0, 0, 0, 0, 0, 3.0, 1e9, {"file:///": PLACE})
INLINE, TWO = Resources(True, 1, 2, 10**9), Resources(False, 2, 1, 10**9)


def clock(rates: Rates | None = RATES) -> Clock:
    return Clock(rates, "why", Places.of([]), cast(ReferenceTable, None), "file:///", "file:///")


def total(arrays: list[tuple[float, int]], host: Resources) -> float:
    found = clock().total([(Prediction(s, (("decode", s),)), n) for s, n in arrays], host)
    assert found is not None
    assert found.seconds is not None
    return found.seconds


def test_in_one_process_arrays_come_one_after_the_other() -> None:
    assert total([(2.0, 1), (4.0, 8)], INLINE) == pytest.approx(6.0)


def test_on_workers_arrays_of_one_task_run_side_by_side() -> None:
    assert total([(2.0, 1), (2.0, 1)], TWO) == pytest.approx(3.0 + 2.0)
    assert total([(2.0, 8), (2.0, 8)], TWO) == pytest.approx(3.0 + 4.0)
    assert total([(5.0, 1), (1.0, 1)], TWO) == pytest.approx(3.0 + 5.0)


def test_one_unknown_time_makes_the_whole_unknown() -> None:
    unknown = Prediction(None, why="because")
    found = clock().total([(Prediction(1.0), 1), (unknown, 1)], TWO)
    assert found is unknown
    assert clock().total([], TWO) is None


def test_without_rates_the_reason_is_told() -> None:
    assert clock(None)._time((), INLINE) == Prediction(None, why="why")

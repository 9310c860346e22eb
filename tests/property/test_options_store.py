"""Granules to a store of another type, precision, fill and codecs, by any way: zarr reads what NumPy and numcodecs say."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from services.rechunk_run import prepare_run, write_granules

from drystone.model.options import AxisOptions, OutputOptions

FILTERS: list[list[tuple[str, dict[str, int | str | bool]]]] = [
    [],
    [("delta", {})],
    [("shuffle", {})],
    [("delta", {}), ("shuffle", {})],
]
SLOTS = AxisOptions("d0", axis="slots", step=1.0)
TYPES = {"i2": ["int32", "float32", "float64"], "f4": ["float64"], "f8": ["float32"], ">f8": ["float32"]}


@pytest.fixture(autouse=True, scope="module")
def no_waiting_for_the_disk() -> Iterator[None]:
    """Hundreds of small stores need not survive a power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


def rounded(values: np.ndarray, way: str, number: int, kept: list[float]) -> np.ndarray:
    if way == "digits":
        new = np.asarray(numcodecs.Quantize(number, values.dtype).encode(values))
    else:
        new = np.asarray(numcodecs.BitRound(number).encode(values)).view(values.dtype)
    stay = np.isin(values, kept) | np.isin(new, kept) | np.isnan(values)
    return np.where(stay, values, new)


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3")
@settings(deadline=None, max_examples=50)
@given(st.data())
def test_store_holds_what_the_options_make_of_the_values(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    gaps = data.draw(st.lists(st.integers(0, 2), min_size=len(lengths), max_size=len(lengths)))
    missing = data.draw(st.sampled_from([None, -7]))
    dtype = np.dtype(data.draw(st.sampled_from(list(TYPES))))
    options: dict[str, object] = {}
    target = dtype.newbyteorder("=")
    if data.draw(st.booleans()):
        target = np.dtype(data.draw(st.sampled_from(TYPES[dtype.str.lstrip("<")])))
        options["dtype"] = {"v": str(target)}
    says: float | None = missing
    if data.draw(st.booleans()):
        options["fill_value"], says = {"v": -500}, -500
    if says is None and target.kind != "f":
        gaps = [0] * len(gaps)  # nothing could mark them
    shape = (sum(lengths) + sum(gaps[1:]), data.draw(st.integers(1, 9)))
    gaps[0] = 0  # slots begin with the first granule
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    values = (rng.normal(0, 30, shape) if dtype.kind == "f" else rng.integers(-99, 99, shape)).astype(dtype)
    values[rng.random(shape) < 0.5] = 3
    unwritten = data.draw(st.sets(st.integers(0, len(lengths) - 1), max_size=2))
    storage = data.draw(st.sampled_from([None, 3]))
    kept = [float(storage or 0), *([] if says is None else [float(says)])]
    rounding = (
        data.draw(st.sampled_from([None, ("keepbits", 4), ("digits", 1), ("digits", -1)])) if target.kind == "f" else None
    )
    if rounding is not None:
        options["round"] = {"v": rounding}
    codecs = (*data.draw(st.sampled_from(FILTERS)), data.draw(st.sampled_from([("zstd", {"level": 1}), ("gzip", {})])))
    chunks = {"d0": data.draw(st.integers(2, 7)), "d1": data.draw(st.integers(2, 9))}
    only = data.draw(st.sampled_from([None, "one pass", "two passes"]))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_granules(root / "raw", values, lengths, (2, 3), unwritten=unwritten, fill=storage, gaps=gaps, missing=missing)
        output = OutputOptions("store", "zarr", "out:s", chunks=chunks, codecs=codecs, **options)  # type: ignore[arg-type]
        run = prepare_run(root / "raw", root / "out", output, 100_000_000, only=only, along=SLOTS)
        run.run_all()
        assert run.state().n_done == run.plan.n_tasks
        run.publish()
        expected, first = np.full(shape, np.nan if says is None and target.kind == "f" else says or 0, target), 0
        for i, n in enumerate(lengths):
            first += gaps[i]
            part = np.full_like(values[first : first + n], storage or 0) if i in unwritten else values[first : first + n]
            gone = np.zeros(part.shape, bool) if missing is None else part == missing
            expected[first : first + n] = np.where(gone, target.type(says or 0), part.astype(target))
            first += n
        if rounding is not None:
            expected = rounded(expected, *rounding, kept)
        array = zarr.open_group(str(root / "out" / "s"), mode="r", use_consolidated=True)["v"]
        assert isinstance(array, zarr.Array)
        assert array.dtype == target
        assert np.asarray(array[...]).tobytes() == expected.tobytes()
        assert array.fill_value == (storage or 0)
        assert ("precision_loss" in array.attrs) == (rounding is not None or (dtype.itemsize, target.str) == (8, "<f4"))

"""Granules with random differences: what is opened is NumPy's concatenation of decoded values, or it is refused."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import drystone
from drystone.errors import CombineError, LeftOut

X = 3
FILL = -99


@dataclass(frozen=True)
class Granule:
    """Steps on one run of whole days, and how they are stored."""

    steps: int
    dtype: str
    chunk: int
    gzip: bool
    shuffle: bool
    packing: tuple[float, float] | None
    fill: int | None
    hole: bool
    hours: bool
    epoch: int


granules = st.builds(
    Granule,
    steps=st.integers(1, 4),
    dtype=st.sampled_from(["<i2", ">i2", "<i4", "<f4", "<f8"]),
    chunk=st.integers(1, 3),
    gzip=st.booleans(),
    shuffle=st.booleans(),
    packing=st.sampled_from([None, (0.5, 10.0), (0.25, -3.0), (0.01, 273.15)]),
    fill=st.sampled_from([None, FILL, -32768]),
    hole=st.booleans(),
    hours=st.booleans(),
    epoch=st.integers(0, 2),
)


def write(path: Path, granule: Granule, start: int, day: int) -> np.ndarray:
    """The file; its decoded values."""
    stored = (1 + start * X + np.arange(granule.steps * X).reshape(granule.steps, X)).astype(granule.dtype)
    if granule.hole and granule.fill is not None:
        stored[0, 0] = granule.fill
    days = np.arange(day, day + granule.steps, dtype="f8") - granule.epoch
    with h5py.File(path, "w") as f:
        f["time"] = days * 24 if granule.hours else days
        f["time"].attrs["units"] = f"{'hours' if granule.hours else 'days'} since 2000-01-0{1 + granule.epoch}"
        f["time"].make_scale("time")
        filters = {"compression": "gzip" if granule.gzip else None, "shuffle": granule.shuffle}
        v = f.create_dataset("v", data=stored, chunks=(min(granule.chunk, granule.steps), X), maxshape=(None, X), **filters)
        if granule.fill is not None:
            v.attrs["_FillValue"] = np.array([granule.fill], granule.dtype)
        if granule.packing is not None:
            v.attrs["scale_factor"], v.attrs["add_offset"] = granule.packing
        v.dims[0].attach_scale(f["time"])
    decoded = stored.astype("f8")
    missing = np.zeros(stored.shape, bool) if granule.fill is None else stored == granule.fill
    if granule.packing is not None:
        decoded = decoded * granule.packing[0] + granule.packing[1]
    return np.where(missing, np.nan, decoded)


def opened(files: list[str], **options: object) -> tuple[np.ndarray, list[np.datetime64]] | str:
    """Decoded values and times; the message where it is refused."""
    try:
        dataset = drystone.open(files, decode=True, **options)  # type: ignore[arg-type]
        return dataset["v"].values.astype("f8"), dataset["time"].values.astype("M8[s]").tolist()
    except (CombineError, LeftOut) as error:
        return str(error)


def days(start: int, steps: int) -> list[object]:
    return (np.datetime64("2000-01-01", "s") + np.arange(start, start + steps) * np.timedelta64(86400, "s")).tolist()


# float32 decoded by readers in float32 may lie this far from float64
TOLERANCE = {"rtol": 1e-6, "atol": 1e-5}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(granules, min_size=2, max_size=4), st.randoms())
def test_values_are_numpys_concatenation_or_refused_in_whatever_order_files_are_listed(drawn, rng) -> None:
    with tempfile.TemporaryDirectory() as name:
        files, parts, start = [], [], 0
        for n, granule in enumerate(drawn):
            files.append(str(Path(name) / f"{n}.nc"))
            parts.append(write(Path(files[-1]), granule, start, start))
            start += granule.steps
        got = opened(files)
        if isinstance(got, str):
            # both granules are named, in words of the files
            assert sum(f"{n}.nc" in got for n in range(len(files))) >= 2, got
        else:
            np.testing.assert_allclose(got[0], np.concatenate(parts), **TOLERANCE)
            assert got[1] == days(0, start)
        rng.shuffle(files)
        again = opened(files)
        assert isinstance(again, str) == isinstance(got, str)
        if not isinstance(again, str) and not isinstance(got, str):
            np.testing.assert_allclose(again[0], got[0], **TOLERANCE)
            assert again[1] == got[1]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(granules, min_size=2, max_size=4), st.lists(st.integers(0, 3), min_size=4, max_size=4), st.randoms())
def test_slots_do_not_depend_on_the_order_of_the_list(drawn, gaps, rng) -> None:
    slots = {"along": {"time": {"axis": "slots", "step": "1D"}}}
    with tempfile.TemporaryDirectory() as name:
        files, day, want = [], 0, []
        for n, granule in enumerate(drawn):
            files.append(str(Path(name) / f"{n}.nc"))
            want.append((day, write(Path(files[-1]), granule, 10 * n, day)))
            day += granule.steps + gaps[n]
        got = opened(files, **slots)
        rng.shuffle(files)
        again = opened(files, **slots)
        assert isinstance(again, str) == isinstance(got, str)
        if isinstance(got, str) or isinstance(again, str):
            return
        whole = np.full((want[-1][0] + len(want[-1][1]), X), np.nan)
        for at, values in want:
            whole[at : at + len(values)] = values
        for found in (got, again):
            np.testing.assert_allclose(found[0], whole, **TOLERANCE)
            assert found[1] == days(0, len(whole))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(granules, min_size=3, max_size=3))
def test_what_is_joined_piece_by_piece_is_what_is_joined_at_once(drawn) -> None:
    """Associative: the first two and the third, the first and the last two, laid end to end, are all three."""
    with tempfile.TemporaryDirectory() as name:
        files, start = [], 0
        for n, granule in enumerate(drawn):
            files.append(str(Path(name) / f"{n}.nc"))
            write(Path(files[-1]), granule, start, start)
            start += granule.steps
        whole = opened(files)
        if isinstance(whole, str):
            return
        for cut in (1, 2):
            parts = [opened(files[:cut]), opened(files[cut:])]
            assert not any(isinstance(p, str) for p in parts), parts
            np.testing.assert_allclose(np.concatenate([p[0] for p in parts]), whole[0], **TOLERANCE)
            assert [t for p in parts for t in p[1]] == whole[1]

"""Random eras and random selections: what is opened or published, eras laid end to end, is NumPy's choice of decoded values."""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr
from e2e.combining import FORMS, datasets_of, publish, tree_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import drystone
from drystone.errors import CombineError, LeftOut, UnsupportedError

# fsspec reads Parquet references with fastparquet, which pandas 3 warns about
pytestmark = pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated")

Y, X = 2, 3
DIFFERENCES = {"units": "era", "missing_variable": "era"}
Chosen = dict[str, dict[str, object]]


@dataclass(frozen=True)
class Granule:
    """Days that follow on one another, after days that no granule has."""

    gap: int
    days: int
    chunk: int
    shuffle: bool
    fill: bool
    units: str
    scale: float
    epoch: int
    has: bool


granules = st.builds(
    Granule,
    gap=st.sampled_from([0, 0, 0, 1, 2]),
    days=st.integers(1, 3),
    chunk=st.integers(1, 2),
    shuffle=st.booleans(),
    fill=st.booleans(),
    units=st.sampled_from(["K", "K", "K", "degC"]),
    scale=st.sampled_from([1.0, 1.0, 0.5]),
    epoch=st.integers(0, 1),
    has=st.sampled_from([True, True, True, False]),
)


def write(folder: Path, drawn: list[Granule], slots: bool) -> tuple[np.ndarray, np.ndarray]:
    """The files; decoded values of the whole, NaN where nobody has any, and its days."""
    days, parts, day = [], [], 0
    for n, g in enumerate(drawn):
        missing = g.gap if slots and n else 0
        day += g.gap if n else 0
        parts += [np.full((missing, Y, X), np.nan)] if missing else []
        days += list(range(day - missing, day + g.days))
        stored = (1 + np.arange(day * Y * X, (day + g.days) * Y * X)).reshape(g.days, Y, X).astype("i2")
        with netCDF4.Dataset(folder / f"g{n}.nc", "w") as nc:
            for name, size in (("time", None), ("y", Y), ("x", X)):
                nc.createDimension(name, size)
            time = nc.createVariable("time", "f8", ("time",))
            time.units = f"days since 2000-01-0{1 + g.epoch}"
            time[:] = np.arange(day, day + g.days) - g.epoch
            nc.createVariable("y", "f4", ("y",))[:] = [10, 20]
            nc.createVariable("area", "i4", ("y", "x"))[:] = np.arange(Y * X).reshape(Y, X)
            nc.createVariable("w", "f4", ("time",))[:] = np.arange(day, day + g.days)
            if g.has:
                fill = -99 if g.fill else False
                chunk = (min(g.chunk, g.days), Y, X)
                v = nc.createVariable(
                    "v", "i2", ("time", "y", "x"), zlib=True, shuffle=g.shuffle, chunksizes=chunk, fill_value=fill
                )
                v.set_auto_maskandscale(False)
                v.setncatts({"units": g.units} | ({"scale_factor": g.scale} if g.scale != 1 else {}))
                v[:] = stored
        parts.append(stored * g.scale if g.has else np.full(stored.shape, np.nan))
        day += g.days
    return np.concatenate(parts), np.array(days)


@st.composite
def selections(draw: st.DrawFn, days: int) -> Chosen:
    """Something of time, and something or nothing of y and x."""
    place = st.integers(0, days - 1)
    points = draw(st.sampled_from([(), (), (), ("time", "x"), ("time", "y", "x"), ("y", "x")]))
    n = draw(st.integers(1, 5))
    out: Chosen = {
        p: {"points": {"index": draw(st.lists(st.integers(0, {"time": days, "y": Y, "x": X}[p] - 1), min_size=n, max_size=n))}}
        for p in points
    }
    if "time" not in points:
        start = draw(place)
        out["time"] = draw(
            st.one_of(
                st.builds(lambda i: {"index": i}, place),
                st.builds(lambda i: {"index": i}, st.lists(place, min_size=1, max_size=6)),
                st.builds(lambda n: {"index": {"start": start, "stop": start + n, "step": 1}}, st.integers(1, days)),
                st.builds(lambda n: {"index": {"start": start, "stop": days, "step": n}}, st.integers(2, 4)),
            )
        )
    if not points and draw(st.booleans()):
        out["y"] = draw(st.sampled_from([{"index": 1}, {"index": [1, 0, 1]}, {"index": {"start": 1, "stop": 2, "step": 1}}]))
    return out


def taken(whole: np.ndarray, dims: tuple[str, ...], chosen: Chosen) -> np.ndarray:
    """By NumPy alone."""
    points = [d for d in dims if "points" in chosen.get(d, {})]
    for axis, name in enumerate(dims):
        what = chosen.get(name, {}).get("index")
        if isinstance(what, dict):
            whole = np.take(whole, range(*slice(what["start"], what["stop"], what["step"]).indices(whole.shape[axis])), axis)
        elif what is not None:
            whole = np.take(whole, np.atleast_1d(what), axis)
    if points:
        at = [dims.index(d) for d in points]
        front = np.moveaxis(whole, at, range(len(at)))
        whole = np.moveaxis(front[tuple(np.array(chosen[d]["points"]["index"]) for d in points)], 0, at[0])  # type: ignore[index]
    kept = [d for d in dims if d not in points[1:]]
    return whole[tuple(0 if isinstance(chosen.get(d, {}).get("index"), int) else slice(None) for d in kept)]


def clean(drawn: list[Granule], whole: np.ndarray, days: np.ndarray, chosen: Chosen) -> bool:
    """Whether nothing of what is selected stands in the way of values, whatever the other granules hold."""
    last = np.cumsum([(g.gap if n else 0) + g.days for n, g in enumerate(drawn)])
    owners = {int(np.searchsorted(last, d, side="right")) for d in np.atleast_1d(taken(days, ("time",), chosen)).tolist()}
    one = len({drawn[n].units for n in owners}) == 1
    return one and not np.isnan(taken(whole, ("time", "y", "x"), chosen)).any()


def compare(parts: list[xr.Dataset], whole: np.ndarray, days: np.ndarray, chosen: Chosen, told: str | None) -> None:
    """Eras end to end; ``told`` is what was said of what is left out, None where no file has the array at all."""
    want, at = taken(whole, ("time", "y", "x"), chosen), 0
    when = np.datetime64("2000-01-01", "s") + taken(days, ("time",), chosen) * np.timedelta64(86400, "s")
    parts = [p for p in parts if "time" in p.variables]
    for part in parts:
        n = part["time"].size
        mine = slice(at, at + n) if part["time"].dims else ()
        assert (part["time"].values.astype("M8[s]") == when[mine]).all()
        if "v" in part.variables:
            np.testing.assert_allclose(part["v"].values.astype("f8"), want[mine], rtol=1e-6)
        else:
            assert told is None or "/v" in told or (np.isnan(want[mine]).all() and len(parts) > 1)
        if not {"y", "x"} & set(chosen):
            assert part["area"].values.tolist() == np.arange(Y * X).reshape(Y, X).tolist()
        at += n
    assert at == when.size


def datasets(opened: xr.Dataset | xr.DataTree) -> list[xr.Dataset]:
    return [opened] if isinstance(opened, xr.Dataset) else list(datasets_of(opened))


drawn_granules = st.lists(granules, min_size=2, max_size=5)


@given(drawn_granules, st.booleans(), st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_is_opened_is_what_numpy_takes(drawn, slots, data) -> None:
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        whole, days = write(Path(name), drawn, slots)
        chosen = data.draw(selections(len(days)))
        along = {"time": {"axis": "slots", "step": "1D", "origin": "2000-01-01"}} if slots else "time"
        said = {"along": along, "select": chosen, "differences": DIFFERENCES}
        try:
            parts = datasets(drystone.open(f"{name}/*.nc", decode=True, **said))
        except CombineError as error:
            refused = error
            assert not clean(drawn, whole, days, chosen)
        else:
            told = " ".join(str(w.message) for w in caught if issubclass(w.category, LeftOut))
            compare(parts, whole, days, chosen, told if any(g.has for g in drawn) else None)
            assert "/v" not in told or not clean(drawn, whole, days, chosen)
            return
        assert refused.kind in ("difference", "no-eras", "packing"), refused
        assert "/v" in str(refused)


@given(drawn_granules, st.booleans(), st.data())
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.parametrize("form", FORMS)
def test_what_is_published_is_what_numpy_takes(form, drawn, slots, data) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole, days = write(folder, drawn, slots)
        chosen = data.draw(selections(len(days)))
        along = {"time": {"axis": "slots", "step": "1D", "origin": "2000-01-01"}} if slots else {"time": {}}
        combine = {"along": along, "select": chosen, "differences": DIFFERENCES}
        try:
            report = publish(folder, form, combine)
        except (CombineError, UnsupportedError) as error:
            refused = str(error)
        else:
            refused = ""
        if refused:
            assert "/v" in refused
            return
        assert report.outputs[0].verified == "full"
        tree = tree_of(folder, form)
        told = " ".join((*report.warnings, *(f"{p}: {r}" for p, r in report.outputs[0].refused)))
        compare(list(datasets_of(tree)), whole, days, chosen, told if any(g.has for g in drawn) else None)

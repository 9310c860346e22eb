"""Kinds of difference between granules: small netCDF-4 files, and what their values are once joined.

Each kind writes two or three files of an array ``v(time, y, x)`` into a folder. ``values`` are the decoded numbers of ``v``
joined along time (NaN where missing), ``times`` the instants; None: no one answer is right, and a tool should refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np

__all__ = ["KINDS", "Kind"]

T, Y, X = 2, 4, 6


@dataclass(frozen=True)
class Kind:
    """One kind: its name, what differs, how files are written, and what is right.

    ``options`` are what drystone's config needs to say under ``combine:`` to get values where it refuses by default.
    """

    name: str
    what: str
    write: Callable[[Path], tuple[np.ndarray | None, list[str] | None]]
    options: Mapping[str, Any] = field(default_factory=dict)


def raw(start: int, steps: int = T, dtype: str = "i2") -> np.ndarray:
    """Numbers that tell every cell apart."""
    base = 1 + np.arange(Y * X).reshape(1, Y, X) + 100 * (start + np.arange(steps)).reshape(-1, 1, 1)
    return base.astype(dtype)


def days(start: int, steps: int = T) -> list[str]:
    """ISO days from 2000-01-01."""
    first = np.datetime64("2000-01-01")
    return [str(first + np.timedelta64(start + i, "D")) for i in range(steps)]


def write(
    path: Path,
    start: int,
    *,
    values: np.ndarray | None = None,
    times: np.ndarray | None = None,
    units: str = "days since 2000-01-01",
    calendar: str = "standard",
    attrs: Mapping[str, Any] | None = None,
    fill: Any = None,
    chunks: tuple[int, ...] | None = (1, Y, X),
    filters: Mapping[str, Any] | None = None,
    y: np.ndarray | None = None,
    more: Callable[[h5py.File], None] | None = None,
    without: bool = False,
) -> Path:
    """One file."""
    values = raw(start) if values is None else values
    with h5py.File(path, "w") as f:
        steps = values.shape[0]
        numbers = np.arange(start, start + steps, dtype="f8") if times is None else times
        f.create_dataset("time", data=numbers, maxshape=(None,), chunks=(1,))
        f["time"].attrs["units"], f["time"].attrs["calendar"] = units, calendar
        f["y"] = np.arange(values.shape[1], dtype="f8") if y is None else y
        f["x"] = np.arange(values.shape[2], dtype="f8")
        for name in ("time", "y", "x"):
            f[name].make_scale(name)
        if not without:
            options = dict({"compression": "gzip", "shuffle": True} if filters is None else filters)
            v = f.create_dataset(
                "v", data=values, chunks=chunks, maxshape=None if chunks is None else (None, *values.shape[1:]), fillvalue=fill,
                **(options if chunks is not None else {}),
            )  # fmt: skip
            if fill is not None:
                v.attrs["_FillValue"] = np.array([fill], v.dtype)
            for key, value in (attrs or {}).items():
                v.attrs[key] = value
            for i, name in enumerate(("time", "y", "x")):
                v.dims[i].attach_scale(f[name])
        if more is not None:
            more(f)
    return path


def _two(folder: Path, first: Mapping[str, Any], second: Mapping[str, Any]) -> np.ndarray:
    write(folder / "a.nc", 0, **first)
    write(folder / "b.nc", T, **second)
    return np.concatenate([raw(0), raw(T)]).astype("f8")


def simple(first: Mapping[str, Any], second: Mapping[str, Any]) -> Callable[[Path], tuple[np.ndarray, list[str]]]:
    """Values as they are, whatever the difference."""
    return lambda folder: (_two(folder, first, second), days(0, 2 * T))


def refused(first: Mapping[str, Any], second: Mapping[str, Any]) -> Callable[[Path], tuple[None, None]]:
    """No one answer is right."""

    def make(folder: Path) -> tuple[None, None]:
        _two(folder, first, second)
        return None, None

    return make


def packing(folder: Path) -> tuple[np.ndarray, list[str]]:
    write(folder / "a.nc", 0, attrs={"scale_factor": 0.5, "add_offset": 10.0})
    write(folder / "b.nc", T, attrs={"scale_factor": 0.25, "add_offset": -3.0})
    return np.concatenate([raw(0) * 0.5 + 10, raw(T) * 0.25 - 3]), days(0, 2 * T)


def sentinel(folder: Path) -> tuple[np.ndarray, list[str]]:
    parts = []
    for name, start, fill in (("a.nc", 0, -99), ("b.nc", T, -32768)):
        values = raw(start)
        values[0, 1, 2] = fill
        write(folder / name, start, values=values, fill=fill)
        parts.append(np.where(values == fill, np.nan, values.astype("f8")))
    return np.concatenate(parts), days(0, 2 * T)


def seam(folder: Path) -> tuple[np.ndarray, list[str]]:
    for name, start, steps in (("a.nc", 0, 3), ("b.nc", 3, 3)):
        write(folder / name, start, values=raw(start, steps), chunks=(2, Y, X))
    return np.concatenate([raw(0, 3), raw(3, 3)]).astype("f8"), days(0, 6)


def short_end(folder: Path) -> tuple[np.ndarray, list[str]]:
    for name, start, steps in (("a.nc", 0, 4), ("b.nc", 4, 3)):
        write(folder / name, start, values=raw(start, steps), chunks=(2, Y, X))
    return raw(0, 7).astype("f8"), days(0, 7)


def contiguous(folder: Path) -> tuple[np.ndarray, list[str]]:
    for name, start, steps in (("a.nc", 0, 2), ("b.nc", 2, 3)):
        write(folder / name, start, values=raw(start, steps), chunks=None)
    return raw(0, 5).astype("f8"), days(0, 5)


def time_units(folder: Path) -> tuple[np.ndarray, list[str]]:
    numbers = np.arange(T, dtype="f8")
    return _two(folder, {"times": numbers}, {"times": numbers, "units": "days since 2000-01-03"}), days(0, 2 * T)


def sub_daily(folder: Path) -> tuple[np.ndarray, list[str]]:
    first = {"times": np.array([0, 1], "i4")}
    second = {"times": np.array([54, 60], "i4"), "units": "hours since 2000-01-01"}
    return _two(folder, first, second), [*days(0, 2), "2000-01-03T06", "2000-01-03T12"]


def lacking(folder: Path) -> tuple[np.ndarray, list[str]]:
    write(folder / "a.nc", 0, fill=-99)
    write(folder / "b.nc", T, without=True)
    write(folder / "c.nc", 2 * T, fill=-99)
    gap = np.full((T, Y, X), np.nan)
    return np.concatenate([raw(0).astype("f8"), gap, raw(2 * T).astype("f8")]), days(0, 3 * T)


def extra(folder: Path) -> tuple[np.ndarray, list[str]]:
    def more(f: h5py.File) -> None:
        f["w"] = np.zeros((T, Y, X), "f4")
        for i, name in enumerate(("time", "y", "x")):
            f["w"].dims[i].attach_scale(f[name])

    return _two(folder, {}, {"more": more}), days(0, 2 * T)


def out_of_order(folder: Path) -> tuple[np.ndarray, list[str]]:
    write(folder / "a.nc", T)
    write(folder / "b.nc", 0)
    return raw(0, 2 * T).astype("f8"), days(0, 2 * T)


def duplicate(folder: Path) -> tuple[None, None]:
    write(folder / "a.nc", 0)
    write(folder / "b.nc", 1)
    return None, None


def static(folder: Path) -> tuple[None, None]:
    def mask(value: int) -> Callable[[h5py.File], None]:
        def more(f: h5py.File) -> None:
            f["mask"] = np.full((Y, X), value, "i1")
            for i, name in enumerate(("y", "x")):
                f["mask"].dims[i].attach_scale(f[name])

        return more

    _two(folder, {"more": mask(0)}, {"more": mask(1)})
    return None, None


def unsigned(folder: Path) -> tuple[np.ndarray, list[str]]:
    low = raw(0).astype("i2")
    high = (raw(T).astype("i4") + 40000).astype("u2").view("i2")
    write(folder / "a.nc", 0, values=low)
    write(folder / "b.nc", T, values=high, attrs={"_Unsigned": "true"})
    return np.concatenate([low.astype("f8"), raw(T).astype("f8") + 40000]), days(0, 2 * T)


PLAIN = {"filters": {"compression": "gzip"}}
KINDS = (
    Kind(
        "level",
        "deflate level 4 and 9",
        simple({}, {"filters": {"compression": "gzip", "compression_opts": 9, "shuffle": True}}),
    ),
    Kind("deflate", "deflated, and not", simple({"filters": {}}, {})),
    Kind("shuffle", "shuffled, and not", simple({}, PLAIN)),
    Kind("chunks", "chunk shape", simple({}, {"chunks": (1, 2, X)})),
    Kind("byte order", "little and big endian", simple({}, {"values": raw(T, dtype=">i2")})),
    Kind("type", "float32 and float64", simple({"values": raw(0, dtype="f4")}, {"values": raw(T, dtype="f8")})),
    Kind("seam", "a padded chunk in the middle", seam),
    Kind("short end", "a padded chunk at the end", short_end),
    Kind("contiguous", "contiguous files of 2 and 3 steps", contiguous),
    Kind("packing", "scale_factor and add_offset", packing),
    Kind("unsigned", "_Unsigned in one file", unsigned),
    Kind("fill", "_FillValue", sentinel),
    Kind("units", "units K and degC", refused({"attrs": {"units": "K"}}, {"attrs": {"units": "degC"}})),
    Kind("time units", "every file counts from its own day", time_units),
    Kind("sub-daily", "hours after whole days", sub_daily),
    Kind("calendar", "calendars", refused({"calendar": "noleap"}, {})),
    Kind("missing variable", "the middle file lacks it", lacking),
    Kind("extra variable", "the last file has one more", extra),
    Kind("shifted grid", "another y coordinate", refused({}, {"y": np.arange(Y) + 0.5})),
    Kind("static", "a mask that differs", static),
    Kind("order", "files not in order of time", out_of_order),
    Kind("overlap", "one day in two files", duplicate),
)

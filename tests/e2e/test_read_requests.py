"""What ``plan`` says of reads beside the reads themselves: every request that reaches storage is counted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import fsspec
import icechunk
import netCDF4
import numpy as np
import pytest
import zarr
from e2e.combining import KERCHUNK, STORE, store_of, write_config
from services.web import RangeHandler, serve

import drystone
from drystone.storage.local import LocalStore

SHAPE = (60, 90, 80)
READS: dict[str, tuple[dict[str, int], dict[str, int]]] = {
    # sizes and places: a series, a small column, maps, a slab, a box across edges, everything
    "series": ({"y": 1, "x": 1}, {"time": 0, "y": 17, "x": 61}),
    "column": ({"y": 3, "x": 5}, {"time": 0, "y": 44, "x": 28}),
    "map": ({"time": 1}, {"time": 31, "y": 0, "x": 0}),
    "late map": ({"time": 1}, {"time": 59, "y": 0, "x": 0}),
    "slab": ({"y": 20}, {"time": 0, "y": 41, "x": 0}),
    "box": ({"time": 11, "y": 30, "x": 33}, {"time": 25, "y": 29, "x": 7}),
    "all": ({"time": 60}, {"time": 0, "y": 0, "x": 0}),
}


def write_file(path: Path, values: np.ndarray, at: Sequence[int], chunk: tuple[int, ...] | None) -> None:
    """Part of the whole; contiguous without a chunk."""
    with netCDF4.Dataset(path, "w") as nc:
        for name, n, first in zip(("time", "y", "x"), values.shape, at, strict=True):
            nc.createDimension(name, n)
            nc.createVariable(name, "f8", (name,))[:] = first + np.arange(n)
        nc["time"].units = "days since 2001-01-20"
        how = {"contiguous": True} if chunk is None else {"chunksizes": chunk, "zlib": True, "complevel": 1}
        v = nc.createVariable("v", "i2", ("time", "y", "x"), fill_value=-999, **how)
        v.set_auto_maskandscale(False)
        v[...] = values


def tiles(values: np.ndarray) -> Iterator[tuple[np.ndarray, tuple[int, int, int]]]:
    for t in range(0, 60, 20):
        for y, n in ((0, 50), (50, 40)):
            yield values[t : t + 20, y : y + n], (t, y, 0)


def steps(values: np.ndarray, days: Sequence[int], n: int) -> Iterator[tuple[np.ndarray, tuple[int, int, int]]]:
    for t in days:
        yield values[t : t + n], (t, 0, 0)


class Archive:
    """Granules of one kind in a folder, and the combine options that join them."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.folder = folder
        self.values = np.random.default_rng(7).integers(0, 4000, SHAPE).astype("i2")
        self.combine: dict[str, object] = {}
        chunk: tuple[int, ...] | None = (4, 30, 32)
        parts: Iterator[tuple[np.ndarray, tuple[int, int, int]]] = steps(self.values, range(0, 60, 15), 15)
        if kind == "contiguous":
            chunk = None
        elif kind == "mosaic":
            parts, self.combine = tiles(self.values), {"along": "time", "mosaic": {"y": "coordinate"}}
        elif kind == "gaps":
            days = [d for d in range(60) if d not in (3, 4, 5, 31, 40)]
            parts, chunk = steps(self.values, days, 1), (1, 90, 80)
            self.combine = {"along": {"time": {"axis": "slots", "step": "1D"}}}
            self.values[[3, 4, 5, 31, 40]] = -999
        for number, (part, at) in enumerate(parts):
            write_file(folder / f"{number:03}.nc", part, at, chunk)

    def config(self, **output: object) -> Path:
        reads = {name: {**sizes, "at": {d: at[d] for d in sizes}} for name, (sizes, at) in READS.items()}
        return write_config(self.folder, STORE, self.combine, more=f"reads: {json.dumps(reads)}\n", **output)


def box(name: str) -> tuple[slice, ...]:
    sizes, at = READS[name]
    return tuple(slice(at[d], at[d] + sizes.get(d, n)) for d, n in zip(("time", "y", "x"), SHAPE, strict=True))


def planned(config: Path) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
    """Cost by read and side."""
    drystone.scan(config)
    [array] = [a for a in drystone.plan(config).to_json()["outputs"][0]["arrays"] if a["path"] == "/v"]  # type: ignore[index]
    return {r["name"]: r for r in array["reads"]}


class Count:
    """Ranges that a local folder was asked for, their bytes, and looks at files."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.requests = self.nbytes = self.looks = 0
        ranges, stat = LocalStore.get_ranges, LocalStore.stat

        def counted_ranges(store: LocalStore, key: str, starts: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
            self.requests += len(starts)
            self.nbytes += sum(lengths)
            return ranges(store, key, starts, lengths)

        def counted_stat(store: LocalStore, key: str) -> object:
            self.looks += key.endswith(".nc")  # not at the table
            return stat(store, key)

        patch.setattr(LocalStore, "get_ranges", counted_ranges)
        patch.setattr(LocalStore, "stat", counted_stat)

    def take(self) -> tuple[int, int, int]:
        """What was counted since the last time."""
        taken = self.requests, self.nbytes, self.looks
        self.requests = self.nbytes = self.looks = 0
        return taken


@pytest.mark.parametrize("kind", ["chunked", "contiguous", "mosaic", "gaps"])
def test_the_source_is_read_as_the_plan_says(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive(kind, tmp_path)
    config = archive.config()
    costs = planned(config)
    dataset = drystone.open(config)
    count = Count(monkeypatch)
    for name in READS:
        count.take()
        got = dataset["v"][box(name)].values
        requests, nbytes, looks = count.take()
        np.testing.assert_array_equal(got, archive.values[box(name)])
        said = costs[name]["source"]
        assert (said["requests"], said["fetched"]) == (requests, nbytes), name
        # two threads that meet a granule at the same time both look at it
        assert said["probes"] <= looks <= said["probes"] + 8, name


class Asked(RangeHandler):
    """Counts what a reader asks over HTTP."""

    ranges: ClassVar[list[int]] = []
    looks: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        self.ranges.append(int(last) + 1 - int(first))
        super().do_GET()

    def do_HEAD(self) -> None:
        self.looks.append(self.path)
        super().do_HEAD()


@pytest.mark.parametrize("kind", ["chunked", "contiguous", "mosaic", "gaps"])
def test_a_source_elsewhere_is_read_as_the_plan_says(kind: str, tmp_path: Path) -> None:
    archive = Archive(kind, tmp_path)
    config = archive.config()
    names = sorted(p.name for p in tmp_path.glob("*.nc"))
    (tmp_path / "list.txt").write_text("".join(f"raw:{name}\n" for name in names))
    with serve(tmp_path, Asked) as address:
        text = config.read_text().replace("raw: 'file:.'", f"raw: '{address}'")
        config.write_text(text.replace('granules: "raw:*.nc"', "archive: {granules: {list: list.txt}}"))
        costs = planned(config)
        dataset = drystone.open(config)
        for name in READS:
            Asked.ranges.clear()
            Asked.looks.clear()
            got = dataset["v"][box(name)].values
            np.testing.assert_array_equal(got, archive.values[box(name)])
            said = costs[name]["source"]
            assert (said["requests"], said["fetched"]) == (len(Asked.ranges), sum(Asked.ranges)), name
            assert said["probes"] <= len(Asked.looks) <= said["probes"] + 8, name


PICKED = {
    "stride": {"y": {"index": [3, 80, 7]}, "time": {"index": [2, 58]}},
    "points": {"y": {"points": {"index": [3, 44, 45, 88]}}, "x": {"points": {"index": [70, 9, 8, 0]}}},
}


@pytest.mark.parametrize("how", PICKED)
def test_picked_places_are_read_as_the_plan_says(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive("chunked", tmp_path)
    archive.combine = {"select": PICKED[how]}
    reads = {"series": {"time": "all", ("points" if how == "points" else "y"): 1}, "all": {"time": "all"}}
    config = write_config(tmp_path, STORE, archive.combine, more=f"reads: {json.dumps(reads)}\n")
    costs = planned(config)
    dataset = drystone.open(config)
    count = Count(monkeypatch)
    shape = dataset["v"].shape
    for name, n in (("series", shape[1]), ("all", 1)):
        if n == 1:
            _ = dataset["v"].values
        for i in range(n if n > 1 else 0):
            _ = dataset["v"][:, i : i + 1].values
        requests, nbytes, looks = count.take()
        said = costs[name]["source"]
        assert said["counted"] == n
        assert (said["requests"], said["fetched"]) == pytest.approx((requests / n, nbytes / n)), name
        assert said["probes"] * n <= looks


def test_a_read_of_any_place_is_the_mean_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive("gaps", tmp_path)
    config = write_config(tmp_path, STORE, archive.combine, more="reads: {any days: {time: 2}}\n", codecs=["none"])
    said = planned(config)["any days"]
    assert (said["source"]["counted"], said["source"]["places"]) == (59, 59)
    dataset = drystone.open(config)
    count = Count(monkeypatch)
    for first in range(59):
        _ = dataset["v"][first : first + 2].values
    requests, nbytes, _ = count.take()
    assert (said["source"]["requests"], said["source"]["fetched"]) == pytest.approx((requests / 59, nbytes / 59))


@pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated")
def test_references_are_read_chunk_by_chunk(tmp_path: Path) -> None:
    archive = Archive("gaps", tmp_path)
    more = "reads: {series: {y: 1, x: 1}, map: {time: 1, at: {time: 31}}}\n"
    config = write_config(tmp_path, KERCHUNK, archive.combine, more=more)
    costs = planned(config)
    said = {n: (c["target"]["chunks"], c["target"]["requests"], c["target"]["probes"]) for n, c in costs.items()}
    assert said == {"series": (60, 55, 0), "map": (1, 0, 0)}
    assert costs["series"]["target"]["decoded"] == 55 * 90 * 80 * 2
    drystone.run(config)
    files = fsspec.filesystem(
        "reference", fo=str(tmp_path / "out/out.parq"), remote_protocol="file", lazy=True, asynchronous=True
    )
    asked: list[str] = []
    fetch = type(files)._cat_file

    async def counted(self: object, path: str, *args: object, **options: object) -> bytes:
        data = await fetch(self, path, *args, **options)
        asked.append(path)
        return data

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(files), "_cat_file", counted)
        array = zarr.open_array(zarr.storage.FsspecStore(files, read_only=True, path=""), path="v", mode="r", zarr_format=2)
        for name, (_, requests, _) in said.items():
            asked.clear()
            where = (slice(None), 0, 0) if name == "series" else (31,)
            np.testing.assert_array_equal(array[where], archive.values[where])
            assert len(asked) == requests, name


def test_slabs_of_plain_chunks_are_read_one_by_one(tmp_path: Path) -> None:
    values = np.zeros(SHAPE, "i2")
    for first, stop in ((0, 20), (20, 32), (32, 60)):
        write_file(tmp_path / f"{first:02}.nc", values[first:stop], (first, 0, 0), None)
    costs = planned(write_config(tmp_path, KERCHUNK, more="reads: {series: {y: 1, x: 1}, map: {time: 1}}\n"))
    slab = 4 * 90 * 80 * 2  # four steps are what divides 20, 12 and 28
    said = {n: (c["target"]["chunks"], c["target"]["requests"], c["target"]["fetched"]) for n, c in costs.items()}
    assert said == {"series": (15, 15, 15 * slab), "map": (1, 1, slab)}


class CountingStore(zarr.storage.WrapperStore):
    """Counts what a reader asks of another store."""

    found = missing = nbytes = 0
    get_ranges = zarr.abc.store.Store.get_ranges  # over this store's own get

    async def get(self, key: str, prototype: object, byte_range: object = None) -> object:
        data = await self._store.get(key, prototype, byte_range)
        if data is None:
            self.missing += 1
        else:
            self.found += 1
            self.nbytes += len(data)
        return data

    def take(self) -> tuple[int, int, int]:
        """What was counted since the last time."""
        taken = self.found, self.missing, self.nbytes
        self.found = self.missing = self.nbytes = 0
        return taken


TARGETS: dict[str, dict[str, object]] = {
    "chunks": {"chunks": {"time": 16, "y": 20, "x": 33}, "shards": "none"},
    "shards": {"chunks": {"time": 8, "y": 15, "x": 40}, "shards": {"time": 24, "y": 45, "x": 80}},
    "months": {"chunks": {"time": "months", "y": 40}, "shards": "none", "grid": "rectilinear"},
    "shards of months": {"chunks": {"time": 1, "y": 30, "x": 30}, "shards": {"time": "months"}, "grid": "rectilinear"},
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["contiguous", "gaps"])
def test_the_target_is_read_as_the_plan_says(kind: str, target: str, tmp_path: Path) -> None:
    archive = Archive(kind, tmp_path)
    config = archive.config(codecs=["none"], **TARGETS[target])
    costs = planned(config)
    drystone.run(config)
    read_and_count(CountingStore(store_of(tmp_path, STORE)), archive, costs, known=kind == "contiguous")


@pytest.mark.parametrize("target", ["chunks", "shards"])
def test_a_repository_is_read_as_the_plan_says(target: str, tmp_path: Path) -> None:
    archive = Archive("gaps", tmp_path)
    config = archive.config(codecs=["none"], **TARGETS[target])
    config.write_text(config.read_text().replace('"store": "zarr"', '"store": "icechunk"'))
    costs = planned(config)
    drystone.run(config)
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path / "out/out.zarr")))
    store = CountingStore(repository.readonly_session("main").store)
    read_and_count(store, archive, costs, known=False, holes_are_known=True)


def read_and_count(
    store: CountingStore,
    archive: Archive,
    costs: Mapping[str, Mapping[str, Mapping[str, float]]],
    *,
    known: bool,
    holes_are_known: bool = False,
) -> None:
    """Do every read; ``known``: there are no codecs on either side, so encoded sizes are known."""
    with zarr.config.set({"array.rectilinear_chunks": True}):
        array = zarr.open_array(store, path="v", mode="r")
        for name in READS:
            store.take()
            got = array[box(name)]
            found, missing, nbytes = store.take()
            np.testing.assert_array_equal(got, archive.values[box(name)])
            said = costs[name]["target"]
            assert (said["requests"], said["probes"]) == (found, 0 if holes_are_known else missing), name
            if known:
                assert said["fetched"] == pytest.approx(nbytes), name

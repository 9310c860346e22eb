"""Mosaics whose granules pack, place and date in their own way, through the kernel into one store."""

from __future__ import annotations

import dataclasses
import itertools
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import zarr
from services.rechunk_run import picked
from unit.fetch.archive import DEFLATE, Archive, spec

from drystone.codecs.chain import CodecChain
from drystone.errors import DecodeError
from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.array import GroupSpec
from drystone.model.attributes import Attributes
from drystone.model.options import OutputOptions
from drystone.model.placement import CombinedArray, Placements, Tile
from drystone.model.recode import Recode
from drystone.plan.chunking import target_layout
from drystone.plan.layout import TargetLayout
from drystone.plan.shards import weigh
from drystone.rechunk.kernel import TaskJob, run_task
from drystone.rechunk.plan_file import ArrayPlan, RechunkPlan, content_digests, load_plan, write_plan
from drystone.rechunk.receipts import ObjectsHeld, load_receipts, run_state, target_sizes
from drystone.rechunk.target import prepare, publish
from drystone.storage.address import Places
from drystone.storage.store import Place

MEMBERS, TIMES, WIDTH = 2, 6, 10
COLUMNS = ((0, 4), (4, 6))  # (first, elements) of the tiles along x
GAP = -9.0
SENTINEL = np.int16(-99)


def recode(offset: int, unsigned: bool = False) -> Recode:
    return Recode(
        np.dtype("f8"),
        unsigned,
        (SENTINEL.tobytes(),),
        np.float64(GAP).tobytes(),
        Fraction(1, 2),
        Fraction(offset),
    )


class Mosaic:
    """Members on a new axis, columns of unequal width, days in granules of two, each column packed in its own way."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.archive, self.whole = Archive(folder), np.full((MEMBERS, TIMES, WIDTH), GAP)
        left = spec((2, 7), (1, 3), path="/raw/v")
        right = spec((2, 6), (2, 6), ">i2", CodecChain.of("bytes"), path="/raw/v")
        self.recodes = (recode(10), recode(20))
        rows = []
        for g, (member, start, column) in enumerate(itertools.product(range(MEMBERS), range(0, TIMES, 2), range(2))):
            if (member, start, column) == (1, 2, 0):
                continue  # a granule that is not there
            one = (left, right)[column]
            values = np.arange(np.prod(one.shape)).reshape(one.shape).astype("i2") + 30 * g
            values[0, 2] = SENTINEL
            self.archive.add(g, one, values)
            first, n = COLUMNS[column]
            part = values[:, 2:6] if column == 0 else values  # the left tiles are cropped
            decoded = np.where(part == SENTINEL, GAP, part * 0.5 + (10, 20)[column])
            self.whole[member, start : start + 2, first : first + n] = decoded
            rows.append((2 * member + column, start, g, column))
        rows.sort()
        tile, dest, ids, variant = np.array(rows, np.int64).T
        two = np.full(len(rows), 2, np.int64)
        tiles = [
            Tile((0, 0, 2 if column == 0 else 0), (1, 0, COLUMNS[column][1]), (member, 0, COLUMNS[column][0]))
            for member in range(MEMBERS)
            for column in range(2)
        ]
        placements = Placements(1, ids.astype("i4"), two * 0, two, dest, variant.astype("i4"), tuple(tiles), tile.astype("i4"))
        outer = [
            dataclasses.replace(v, dims=("m", "t", "x"), shape=(1, *v.shape), chunk_shape=(1, *v.chunk_shape), unlimited=())
            for v in (left, right)
        ]
        self.array = CombinedArray(
            "/v", ("m", "t", "x"), self.whole.shape, np.dtype("f8"), np.dtype("<f8"), np.float64(GAP).tobytes(), DEFLATE,
            Attributes.of({"_FillValue": np.float64(GAP)}), ChunkGrid.regular(self.whole.shape, (1, 2, 4)),
            "granules pack in ways of their own", placements, tuple(outer), "/raw/v", (0,), self.recodes,
        )  # fmt: skip


class Run:
    """A plan and its job."""

    def __init__(
        self, folder: Path, mosaic: Mosaic, array: CombinedArray | None = None, only: str | None = None, pick: int = 0
    ) -> None:
        self.array = mosaic.array if array is None else array
        out = Place("out", (folder / "out").as_uri())
        self.places = Places.of([Place("here", f"file://{mosaic.archive.folder}"), out])
        output = OutputOptions("store", "zarr", "out:s", chunks={"m": 1, "t": 3, "x": 5}, shards={"m": 2, "t": 3, "x": 5})
        self.layout: TargetLayout = target_layout(self.array, output)
        tasks = picked(weigh(self.array, self.layout, 5_000_000, slots=9, only=only), pick)
        granules = [mosaic.archive.granules[g] for g in self.array.placements.granule_id.tolist()]
        digests, attempts = content_digests(granules), np.zeros(len(granules), np.int32)
        self.plan = RechunkPlan(0, "out:s", (ArrayPlan(self.array, self.layout, tasks, digests, attempts),))
        self.store, _ = self.places.resolve("out:s")
        write_plan(self.store, "run", self.plan)
        prepare(self.store, "s", [self.layout], [GroupSpec("/")], {})
        self.job = TaskJob(self.places, "out:run", mosaic.archive.rows(), self.plan.fingerprint)


def test_the_store_holds_what_numpy_says(tmp_path: Path) -> None:
    mosaic = Mosaic(tmp_path / "raw")
    run = Run(tmp_path, mosaic)
    assert run.plan.n_tasks == 4
    receipts = [run_task(run.job, i).receipt for i in range(run.plan.n_tasks)]
    publish(run.store, "s", [run.layout], [GroupSpec("/")])
    read = zarr.open_group(str(tmp_path / "out" / "s"), mode="r")["v"]
    assert isinstance(read, zarr.Array)
    assert np.array_equal(np.asarray(read[...]), mosaic.whole)
    assert (mosaic.whole == GAP).sum() == 2 * 4 + 11  # a granule that is not there, and sentinels
    state = run_state(run.plan, load_receipts(run.store, "run"), ObjectsHeld(target_sizes(run.store, "s")))
    assert state.done.all()
    # the first task's region: both members, days 0 to 2, x 0 to 4
    ids = {(m, s, c): g for g, (m, s, c) in enumerate(itertools.product(range(2), range(0, 6, 2), range(2)))}
    touched = {ids[m, s, c] for m in range(2) for s in (0, 2) for c in range(2)} - {ids[1, 2, 0]}
    assert {g for g, _ in receipts[0].sources} == touched
    assert sorted(g for g, _ in receipts[0].sources) == sorted(touched)


@pytest.mark.parametrize("pick", range(4))
def test_two_passes_over_tiles_of_many_kinds(tmp_path: Path, pick: int) -> None:
    mosaic = Mosaic(tmp_path / "raw")
    run = Run(tmp_path, mosaic, only="two passes", pick=pick)
    for i in sorted(range(run.plan.n_tasks), key=lambda i: run.plan.task(i).pass_):
        run_task(run.job, i)
    publish(run.store, "s", [run.layout], [GroupSpec("/")])
    assert np.array_equal(np.asarray(zarr.open_group(str(tmp_path / "out" / "s"), mode="r")["v"]), mosaic.whole)


def test_the_plan_keeps_tiles_and_recodes(tmp_path: Path) -> None:
    run = Run(tmp_path, Mosaic(tmp_path / "raw"))
    loaded = load_plan(run.store, "run")
    assert loaded is not None
    again, array = loaded.arrays[0].array, run.array
    assert again.placements.tiles == array.placements.tiles
    assert again.placements.tile.tolist() == array.placements.tile.tolist()
    assert (again.recodes, again.source, again.new_axes) == (array.recodes, "/raw/v", (0,))
    assert loaded.fingerprint == run.plan.fingerprint


def fingerprints(folder: Path, mosaic: Mosaic, array: CombinedArray | None = None) -> list[str]:
    folder.mkdir()
    plan = Run(folder, mosaic, array).plan
    return [plan.task(i).fingerprint for i in range(plan.n_tasks)]


def test_fingerprints_know_tiles_recodes_and_sources(tmp_path: Path) -> None:
    mosaic = Mosaic(tmp_path / "raw")
    array, p = mosaic.array, mosaic.array.placements
    base = fingerprints(tmp_path / "base", mosaic)

    def same(name: str, other: CombinedArray) -> list[bool]:
        return [a == b for a, b in zip(base, fingerprints(tmp_path / name, mosaic, other), strict=True)]

    assert same("again", array) == [True] * 4
    # tasks are (times 0-2, x 0-4), (times 0-2, x 5-9), …: the left column lies in the first and third
    moved = (dataclasses.replace(p.tiles[0], src_offset=(0, 0, 1)), *p.tiles[1:])
    assert same("moved", dataclasses.replace(array, placements=dataclasses.replace(p, tiles=moved))) == [False, True] * 2
    other = dataclasses.replace(array, recodes=(recode(11), recode(20)))
    assert same("recoded", other) == [False, True] * 2
    assert same("source", dataclasses.replace(array, source="/other/v")) == [False] * 4


def test_a_number_that_has_no_place_stops_its_tasks_only(tmp_path: Path) -> None:
    mosaic = Mosaic(tmp_path / "raw")
    whole_numbers = tuple(dataclasses.replace(r, dtype=np.dtype("i8"), missing=(), missing_as=None) for r in mosaic.recodes)
    array = dataclasses.replace(
        mosaic.array, dtype=np.dtype("i8"), stored_dtype=np.dtype("i8"), fill=bytes(8), attributes=Attributes(),
        recodes=whole_numbers,
    )  # fmt: skip
    run = Run(tmp_path, mosaic, array)
    with pytest.raises(DecodeError, match=r"g\d+\.bin: chunk \(0, 0\) of /raw/v, published as /v"):
        run_task(run.job, 1)
    assert not list(load_receipts(run.store, "run"))

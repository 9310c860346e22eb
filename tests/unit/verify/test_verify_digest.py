"""Whole arrays by digests: what they find, and what the writer's record says of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from drystone.codecs.chain import CodecChain
from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.digest import combined, step_digests
from drystone.model.array import ArraySpec
from drystone.model.attributes import Attributes
from drystone.model.placement import Combined, CombinedArray, Placements
from drystone.verify.report import VerifyReport
from drystone.verify.run import verify_output

STEPS, HEIGHT, WIDTH = 40, 6, 8
DIMS = ("time", "y", "x")
WHERE = ((0, 0, 0), DIMS, 0)


@dataclass
class Made:
    """Ten granules of four steps, and a store of time-long chunks."""

    folder: Path
    values: np.ndarray

    def verify(self, written: np.ndarray | None = None) -> VerifyReport:
        n = 10
        ids, four = np.arange(n, dtype="i4"), np.full(n, 4, np.int64)
        where = Placements(0, ids, 0 * four, four, 4 * np.arange(n), 0 * ids)
        kind = self.values.dtype
        spec = ArraySpec("/v", DIMS, (4, HEIGHT, WIDTH), (4, HEIGHT, WIDTH), kind, None, CodecChain.of("bytes"))
        grid = ChunkGrid.regular(self.values.shape, (4, HEIGHT, WIDTH))
        array = CombinedArray(
            "/v", DIMS, self.values.shape, kind, kind, None, spec.codecs, Attributes(), grid, None, where, (spec,)
        )
        known = {} if written is None else {"/v": written}
        granules = {i: str(self.folder / f"{i}.h5") for i in range(n)}
        return verify_output(
            "zarr",
            str(self.folder / "out"),
            Combined((), (array,), "time"),
            granules,
            mode="digest",
            written=known,
            slab_bytes=4096,
        )

    def store(self) -> zarr.Array:
        return zarr.open_group(str(self.folder / "out"), mode="r+")["v"]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    values = np.random.default_rng(5).normal(size=(STEPS, HEIGHT, WIDTH)).astype("f4")
    for i in range(10):
        with h5py.File(tmp_path / f"{i}.h5", "w") as f:
            f.create_dataset("v", data=values[4 * i : 4 * i + 4], chunks=(1, 3, 8))
    root = zarr.create_group(tmp_path / "out")
    root.create_array("v", data=values, chunks=(40, 2, 4), dimension_names=DIMS)
    return Made(tmp_path, values)


def test_equal_and_the_digest_is_the_values_own(made: Made) -> None:
    sums = step_digests(made.values, *WHERE)
    report = made.verify(sums)
    assert report.ok, report.lines()
    (array,) = report.arrays
    assert (array.cells, array.digest) == (made.values.size, f"{combined(sums, 'time'):016x}")
    assert "1 of them by the digest dsd1 of each step" in report.lines()[0]


def test_a_damaged_store_is_told_from_a_writer_that_read_wrongly(made: Made) -> None:
    right = step_digests(made.values, *WHERE)
    made.store()[17, 3, 2:5] = 0
    wrong = step_digests(made.store()[:], *WHERE)
    report = made.verify(right)
    assert report.arrays[0].mismatches == 3
    assert report.arrays[0].first is not None
    assert (report.arrays[0].first.index, report.arrays[0].first.source_index) == ((17, 3, 2), (1, 3, 2))
    assert "1 steps along time differ, the first 17" in report.first_problem()
    assert "the writer had the granules' values" in report.first_problem()
    assert "the writer had other values" in made.verify(wrong).first_problem()
    assert "17" not in (made.verify().arrays[0].problems or ("",))[0]  # without a record nothing is said of the writer


def test_a_record_that_is_of_another_store(made: Made) -> None:
    sums = step_digests(made.values, *WHERE)
    sums[3] += np.uint64(1)
    report = made.verify(sums)
    assert not report.ok
    assert "1 steps along time (the first: 3) have other digests in the record" in report.first_problem()


def test_many_wrong_steps_are_counted_and_some_compared(made: Made) -> None:
    made.store()[::2] = 1
    report = made.verify()
    assert report.arrays[0].mismatches == 8 * HEIGHT * WIDTH
    assert "20 steps along time differ, in 20 runs, of which 8 were compared by cells" in " ".join(report.arrays[0].problems)


def test_types_that_differ_are_a_problem(made: Made, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "4.h5", "w") as f:
        f["v"] = made.values[16:20].astype("f8")
    report = made.verify()
    assert "published as float32, stored as float64" in report.first_problem()

"""Read costs against counting every position."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from drystone.codecs.chain import Codec, CodecChain
from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import DimensionGrid, RectilinearDimension, RegularDimension
from drystone.model.array import ArraySpec
from drystone.model.attributes import Attributes
from drystone.model.options import OutputOptions, ReadPattern
from drystone.model.placement import CombinedArray, Placements, Tile
from drystone.model.recode import Recode
from drystone.plan.chunking import target_layout
from drystone.plan.costs import by_grids, mean_touched, read_cost
from drystone.plan.occupied import TargetGrid
from drystone.plan.reach import AxisRead, sample


@pytest.mark.parametrize(
    "dimension",
    [RegularDimension(10, 4), RegularDimension(10, 1), RegularDimension(10, 30), RectilinearDimension((3, 1, 4, 2))],
)
@pytest.mark.parametrize("size", [1, 2, 5, 10, 99])
def test_mean_is_the_count_over_all_positions(dimension: DimensionGrid, size: int) -> None:
    n, k = dimension.extent, min(size, dimension.extent)
    counts = [len(set(dimension.indices_to_chunks(np.arange(a, a + k)).tolist())) for a in range(n - k + 1)]
    assert mean_touched(dimension, size) == pytest.approx(np.mean(counts))


def test_series_before_and_after() -> None:
    series = ReadPattern("point series", {"lat": 1, "lon": 1})
    dims = ("time", "lat", "lon")
    before = read_cost(series, dims, ChunkGrid.regular((200, 720, 1440), (1, 720, 1440)), 2, ratio=2.0)
    shards = ChunkGrid.regular((200, 720, 1440), (200, 360, 720))
    after = read_cost(series, dims, ChunkGrid.regular((200, 720, 1440), (200, 90, 144)), 2, objects=shards, sharded=True)
    assert (before.wanted, before.chunks, before.requests, before.decoded) == (400, 200, 200, 200 * 720 * 1440 * 2)
    assert before.fetched == before.decoded / 2
    assert (after.chunks, after.objects, after.requests, after.decoded) == (1, 1, 2, 200 * 90 * 144 * 2)


def test_padding_is_decoded_too() -> None:
    cost = read_cost(ReadPattern("all", {}), ("x",), ChunkGrid.regular((5,), (4,)), 1)
    assert (cost.wanted, cost.decoded, cost.amplification) == (5, 8, 1.6)


def test_a_mosaic_of_packed_granules_is_costed_as_stored() -> None:
    chain, i2, f8 = CodecChain.of("bytes", Codec.of("zlib", level=1)), np.dtype("i2"), np.dtype("f8")
    one = ArraySpec("/v", ("t", "x"), (5, 10), (5, 10), i2, None, chain)
    # two columns of two granules each, by tile and then by place along t
    dest = np.array([0, 5, 0, 5], np.int64)
    placements = Placements(
        0,
        np.arange(4, dtype=np.int32),
        dest * 0,
        np.full(4, 5, np.int64),
        dest,
        np.zeros(4, np.int32),
        (Tile((0, 0), (0, 10), (0, 0)), Tile((0, 0), (0, 10), (0, 10))),
        np.array([0, 0, 1, 1], np.int32),
    )
    array = CombinedArray(
        "/v", ("t", "x"), (10, 20), f8, f8, None, chain, Attributes(), ChunkGrid.regular((10, 20), (5, 10)),
        "packed in ways of their own", placements, (one,), recodes=(Recode(f8, scale=Fraction(1, 2)),),
    )  # fmt: skip
    target = TargetGrid.of(target_layout(array, OutputOptions("store", "zarr", "out:s")))
    before, after = by_grids(array, target, ReadPattern("series", {"x": 1}), 1.0, 1.0)
    assert (before.wanted, before.chunks, before.objects, before.decoded) == (20, 2, 2, 2 * 50 * 2)
    assert (after.wanted, after.decoded) == (80, 10 * 20 * 8)
    assert (before.amplification, after.amplification) == (10, 20)  # in elements, whatever they take
    whole, _ = by_grids(array, target, ReadPattern("all", {}), 1.0, 1.0)
    assert (whole.chunks, whole.objects) == (4, 4)


def test_places_are_all_taken_or_spread_evenly() -> None:
    few = [AxisRead(1, 0, 3), AxisRead(9, 5, 1), AxisRead(2, 1, 4)]
    every = sample(few, 12).tolist()
    assert sorted(every) == every == [[t, 5, x] for t in range(3) for x in range(1, 5)]
    many = [AxisRead(1, 0, 1000), AxisRead(3, 10, 500)]
    starts = sample(many, 50)
    assert starts[:, 0].tolist() == list(range(10, 1000, 20))
    assert len(np.unique(starts[:, 1])) == 50
    counts, _ = np.histogram(starts[:, 1], bins=5, range=(10, 510))
    assert counts.min() >= 8

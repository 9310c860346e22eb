"""Read costs against counting every position."""

from __future__ import annotations

import numpy as np
import pytest

from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import DimensionGrid, RectilinearDimension, RegularDimension
from drystone.model.options import ReadPattern
from drystone.plan.costs import mean_touched, read_cost


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

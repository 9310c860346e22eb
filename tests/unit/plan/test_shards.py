"""Target layouts and one-pass tasks, by example."""

from __future__ import annotations

import numpy as np
import pytest

from drystone.codecs.chain import Codec, CodecChain
from drystone.errors import ConfigError, PlanError
from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import RectilinearDimension, RegularDimension
from drystone.model.array import ArraySpec
from drystone.model.attributes import Attributes
from drystone.model.options import OutputOptions
from drystone.model.placement import CombinedArray, Placements, Tile
from drystone.model.sizes import parse_size
from drystone.plan.chunking import target_layout, whole_layout
from drystone.plan.layout import TargetLayout
from drystone.plan.shards import weigh
from drystone.plan.target_codecs import target_codecs


def maps(
    shape: tuple[int, ...], chunk: tuple[int, ...], dtype: str = "i2", dims: str = "tyxz", compressed: bool = True
) -> CombinedArray:
    """An array of one granule a chunk along the first axis."""
    n = -(-shape[0] // chunk[0])
    dest = np.arange(n, dtype=np.int64) * chunk[0]
    count = np.minimum(dest + chunk[0], shape[0]) - dest
    ids = np.arange(n, dtype=np.int32)
    where = Placements(0, ids, np.zeros(n, np.int64), count, dest, np.zeros(n, np.int32))
    t = np.dtype(dtype)
    chain = CodecChain.of("bytes", Codec.of("zlib", level=4)) if compressed else CodecChain.of("bytes")
    return CombinedArray(
        "/v", tuple(dims[: len(shape)]), shape, t, t, None, chain, Attributes(),
        ChunkGrid.regular(shape, chunk), None, where, (),
    )  # fmt: skip


def output(**options: object) -> OutputOptions:
    return OutputOptions("store", "zarr", "out:x", **options)  # type: ignore[arg-type]


def layout_of(shape: tuple[int, ...], chunk: tuple[int, ...], shard: tuple[int, ...] | None, dtype: str = "f4") -> TargetLayout:
    t = np.dtype(dtype)
    return TargetLayout("/v", tuple("tyxz"[: len(shape)]), shape, t, chunk, shard, CodecChain.of("bytes"), bytes(t.itemsize))


class TestLayout:
    def test_as_asked(self) -> None:
        array = maps((200, 720, 1440), (1, 720, 1440))
        asked = output(chunks={"t": "all", "y": 90, "x": 144, "unknown": 3}, shards={"t": "all", "y": 360, "x": 720})
        layout = target_layout(array, asked)
        assert (layout.chunk, layout.shard) == ((200, 90, 144), (200, 360, 720))

    def test_defaults_are_near_their_sizes_and_balanced(self) -> None:
        layout = target_layout(maps((12_000, 720, 1440), (1, 720, 1440)), output())
        assert 0.4e6 < layout.chunk_bytes < 2.5e6
        assert layout.shard is not None
        assert 30e6 < layout.cell_bytes < 260e6
        t, y, x = (-(-n // c) for n, c in zip(layout.shape, layout.chunk, strict=True))
        assert 0.4 < t / (y * x) < 2.5  # a series touches about as many chunks as a map

    def test_size_in_bytes(self) -> None:
        layout = target_layout(maps((12_000, 720, 1440), (1, 720, 1440)), output(chunks={"*": "256 kB"}, shards={"*": "16 MB"}))
        assert 100e3 < layout.chunk_bytes < 600e3
        assert layout.cell_bytes <= 16e6

    def test_given_axis_leaves_the_rest_balanced(self) -> None:
        layout = target_layout(maps((1000, 720, 1440), (1, 720, 1440)), output(chunks={"t": "all"}))
        assert layout.chunk[0] == 1000
        assert 0.4e6 < layout.chunk_bytes < 2.5e6

    def test_balanced_chunk_divides_a_given_shard(self) -> None:
        layout = target_layout(maps((4000, 720, 1440), (1, 720, 1440)), output(shards={"t": 365, "y": 720, "x": 720}))
        assert layout.shard == (365, 720, 720)
        assert all(s % c == 0 for s, c in zip(layout.shard, layout.chunk, strict=True))

    def test_none_means_unsharded(self) -> None:
        assert target_layout(maps((400, 72, 144), (1, 72, 144)), output(shards={"*": "none"})).shard is None

    def test_array_of_one_chunk_has_no_shard(self) -> None:
        assert target_layout(maps((10, 7, 14), (1, 7, 14)), output()).shard is None

    def test_wrong_multiple_names_the_nearest(self) -> None:
        with pytest.raises(PlanError, match="90 or 180 would do") as info:
            target_layout(maps((400, 720, 1440), (1, 720, 1440)), output(chunks={"y": 90}, shards={"y": 100}))
        assert info.value.kind == "shard-multiple"

    @pytest.mark.parametrize(
        "options",
        [{"chunks": {"t": 0}}, {"chunks": {"t": "20 MB"}}, {"chunks": {"*": "big"}}, {"shards": {"t": True}}],
        ids=["zero", "size under a name", "no size", "bool"],
    )
    def test_odd_values_are_refused(self, options: dict[str, object]) -> None:
        with pytest.raises(ConfigError):
            target_layout(maps((400, 720, 1440), (1, 720, 1440)), output(**options))

    def test_scalar_and_empty(self) -> None:
        scalar = maps((3,), (1,))
        assert whole_layout(scalar, output()).chunk == (3,)
        assert target_layout(maps((0, 5), (1, 5)), output()).n_cells == 0

    def test_memory_bounds_default_shards(self) -> None:
        era5 = maps((350_640, 721, 1440), (1, 721, 1440), "f4")
        layout = target_layout(era5, output(chunks={"*": "1 MB"}))
        plan = weigh(era5, layout, 3_200_000_000).plan
        assert plan.amplification == 1.0

    def test_json_round_trip(self) -> None:
        layout = target_layout(maps((400, 720, 1440), (1, 720, 1440)), output())
        assert TargetLayout.from_json(layout.to_json()) == layout

    def test_sizes(self) -> None:
        assert [parse_size(t) for t in ("1 B", "2 kB", "1.5 MiB", "3GB", "1 TB")] == [1, 2000, 1572864, 3 * 10**9, 10**12]


class TestCodecs:
    def test_default_is_blosc_zstd_3(self) -> None:
        chain = target_codecs((), np.dtype("i2"))
        assert dict(chain.codecs[1].params) == {
            "cname": "zstd", "clevel": 3, "shuffle": "shuffle", "typesize": 2, "blocksize": 0,
        }  # fmt: skip

    def test_auto_is_bit_shuffle_for_single_bytes(self) -> None:
        assert target_codecs((("blosc", {"shuffle": "auto"}),), np.dtype("u1")).codecs[1].get("shuffle") == "bitshuffle"

    @pytest.mark.parametrize(
        "codecs",
        [(("zip", {}),), (("blosc", {"levl": 1}),), (("blosc", {"cname": "x"}),), (("zstd", {}), ("gzip", {}))],
    )
    def test_odd_codecs_are_refused(self, codecs: tuple[tuple[str, dict[str, object]], ...]) -> None:
        with pytest.raises(ConfigError):
            target_codecs(codecs, np.dtype("i2"))  # type: ignore[arg-type]


class TestTasks:
    def test_maps_to_series_reads_each_once_when_it_fits(self) -> None:
        array = maps((200, 720, 1440), (1, 720, 1440))
        layout = target_layout(array, output(chunks={"t": "all", "y": 90, "x": 144}, shards={"t": "all", "y": 360, "x": 720}))
        plan = weigh(array, layout, 2_000_000_000).plan
        assert (plan.region, plan.amplification, plan.n_tasks) == ((200, 720, 1440), 1.0, 1)

    def test_less_memory_reads_again_and_says_how_often(self) -> None:
        array = maps((200, 720, 1440), (1, 720, 1440))
        layout = target_layout(array, output(chunks={"t": "all", "y": 90, "x": 144}, shards={"t": "all", "y": 360, "x": 720}))
        plan = weigh(array, layout, 450_000_000, reread=4).plan
        assert plan.amplification == 4.0
        assert plan.memory <= 450_000_000

    def test_era5_by_month_is_one_pass_in_3_2_gb(self) -> None:
        array = maps((350_640, 721, 1440), (1, 721, 1440), "f4")
        layout = layout_of(array.shape, (744, 24, 48), (744, 72, 144))
        assert weigh(array, layout, 3_400_000_000).plan.amplification == 1.0
        assert 1.0 < weigh(array, layout, 2_000_000_000).plan.amplification <= 3.0

    def test_other_axis_orders(self) -> None:
        """Sources thin along the last axis: a planner that grows only the last axis would read again."""
        shape = (1000, 800, 600)
        array = maps(shape, (1000, 800, 1), "f4")
        layout = layout_of(shape, (50, 40, 60), (100, 80, 60))
        plan = weigh(array, layout, 400_000_000).plan
        assert plan.amplification == 1.0
        assert plan.region[:2] == (1000, 800)

    def test_months_of_any_length(self) -> None:
        days = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
        base = maps((365, 90), (1, 90))
        grid = ChunkGrid((RectilinearDimension(days), RegularDimension(90, 90)))
        array = CombinedArray(
            base.path, base.dims, base.shape, base.dtype, base.dtype, None, base.codecs, base.attributes, grid, None,
            base.placements, (),
        )  # fmt: skip
        plan = weigh(array, layout_of((365, 90), (59, 90), (59, 90), "i2"), 13_000_000, slots=4).plan
        # 59 = end of February is a month's end, later multiples of 59 are not
        assert plan.source_chunks == 12
        brute = sum(
            int((np.cumsum(days) > a).sum() - (np.concatenate([[0], np.cumsum(days)[:-1]]) >= b).sum())
            for a, b in ((plan.bounds(i)[0][0], plan.bounds(i)[1][0]) for i in range(plan.n_tasks))
        )
        assert plan.chunk_reads == brute

    def test_refusal_has_the_numbers(self) -> None:
        """Case R04: one target chunk of 8 MB cannot be made in 4 MB."""
        array = maps((1000, 1000, 1000), (1, 1000, 1000), "f8")
        said = r"a task may take 4 MB \(max_mem\), .* is 8000000 bytes raw .*memory_per_worker: \d+ B \("
        with pytest.raises(PlanError, match=said) as info:
            weigh(array, layout_of(array.shape, (1000, 1000, 1), None, "f8"), 4_000_000)
        assert info.value.kind == "memory"
        needed = int(info.value.facts["needed"] or 0)
        plan = weigh(array, layout_of(array.shape, (1000, 1000, 1), None, "f8"), needed * 2).plan
        assert plan.memory <= needed * 2

    @pytest.mark.parametrize(
        ("shape", "source", "target", "memory"),
        [
            ((175_320, 721, 1440), (24, 721, 1440), (21_915, 103, 10), 12 * 10**9),
            ((96_432, 721, 1440), (1, 721, 1440), (8760, 72, 144), 8 * 10**9),
        ],
    )
    def test_plans_of_case_r04_fit(
        self, shape: tuple[int, ...], source: tuple[int, ...], target: tuple[int, ...], memory: int
    ) -> None:
        plan = weigh(maps(shape, source, "f4"), layout_of(shape, target, None), memory).plan
        assert plan.memory <= memory
        assert plan.n_tasks < 10_000

    def test_a_million_tasks_are_one_value(self) -> None:
        shape = (1_000_000, 100, 100)
        array = maps(shape, (1, 100, 100), "f8")
        plan = weigh(array, layout_of(shape, (10, 100, 100), (10, 100, 100), "f8"), 10_000_000).plan
        assert plan.n_tasks >= 50_000
        assert plan.bounds(plan.n_tasks - 1)[1] == shape

    def test_small_cells_are_gathered_into_tasks(self) -> None:
        shape = (36_500, 72, 144)
        array = maps(shape, (1, 72, 144), "f4")
        plan = weigh(array, layout_of(shape, (1, 72, 144), None), 2_000_000_000, slots=2).plan
        assert 8 <= plan.n_tasks < 100

    def test_rows_of_unfiltered_chunks_are_read_apart(self) -> None:
        """A contiguous variable is one chunk of any size: that is neither memory nor reading again."""
        shape = (4000, 100, 100)
        layout = layout_of(shape, (100, 50, 50), (100, 100, 100), "f8")
        plan = weigh(maps(shape, shape, "f8", compressed=False), layout, 60_000_000).plan
        assert plan.amplification == 1.0
        with pytest.raises(PlanError):
            weigh(maps(shape, shape, "f8"), layout, 60_000_000)
        days = weigh(maps((40, 1000, 1000), (1, 1000, 1000), "f4", compressed=False),
                          layout_of((40, 1000, 1000), (40, 50, 50), (40, 100, 1000)), 80_000_000).plan  # fmt: skip
        assert (days.region[1], days.amplification) < (1000, 1.01)

    def test_tasks_for_all_slots(self) -> None:
        """Eight workers are not left with the one task that would read everything once."""
        shape = (64, 800, 800)
        array = maps(shape, (8, 800, 800), "f4")
        plan = weigh(array, layout_of(shape, (8, 100, 100), (8, 800, 800)), 2_000_000_000, slots=8).plan
        assert plan.n_tasks >= 8

    def test_empty_array_has_no_tasks(self) -> None:
        array = maps((0, 5), (1, 5))
        plan = weigh(array, layout_of((0, 5), (1, 5), None, "i2"), 100_000_000).plan
        assert plan.n_tasks == 0
        with pytest.raises(IndexError):
            plan.bounds(0)


def test_a_mosaic_reads_no_more_chunks_than_it_has() -> None:
    """Two columns, one with a gap and chunks that are staggered against the other's: the grid of the whole cannot say that."""
    i2, chain = np.dtype("i2"), CodecChain.of("bytes", Codec.of("zlib", level=1))
    variants = tuple(ArraySpec("/v", ("t", "x"), (n, 8), (n, 4), i2, None, chain) for n in (4, 6))
    dest, count = np.array([0, 4, 8, 0, 6], np.int64), np.array([4, 4, 4, 6, 3], np.int64)
    tiles = (Tile((0, 0), (0, 8), (0, 0)), Tile((0, 1), (0, 7), (0, 8)))
    variant = np.array([0, 0, 0, 1, 1], np.int32)
    where = Placements(0, np.arange(5, dtype=np.int32), dest * 0, count, dest, variant, tiles, variant)
    array = CombinedArray(
        "/v", ("t", "x"), (12, 15), i2, i2, None, chain, Attributes(), ChunkGrid.regular((12, 15), (2, 2)), "staggered", where,
        variants,
    )  # fmt: skip
    layout = layout_of((12, 15), (12, 15), None, "i2")
    plan = weigh(array, layout, 50_000_000).plan
    assert (plan.source_chunks, plan.chunk_reads) == (10, 10)
    narrow = weigh(array, layout_of((12, 15), (12, 2), None, "i2"), 50_000_000, slots=100).plan
    assert narrow.region == (12, 2)
    # region edges inside chunks: at 2 and 6 of three granules on the left, at 10, 12 and 14 of two cropped ones on the right
    assert (narrow.source_chunks, narrow.chunk_reads) == (10, 10 + 2 * 3 + 3 * 2)

"""Drawings: what they say must be so for any grid, and fit a terminal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drystone.cli.draw import ArrayDrawing, array_lines, draw_grid


def test_sharded_map_series() -> None:
    assert draw_grid(("time", "lat", "lon"), (1000, 180, 360), (250, 90, 90), (500, 90, 180)) == [
        "time 1,000 ████ ████┃████ ████",
        "lat 180    ████ ████┃████ ████",
        "           ━━━━━━━━━╋━━━━━━━━━",
        "           ████ ████┃████ ████",
        "           lon 360",
    ]


def test_overhang_is_shaded() -> None:
    assert draw_grid(("y", "x"), (5, 10), (4, 8)) == ["y 5 ████ █░░░", "    ▀▀▀▀ ▀░░░", "    x 10"]


def test_one_axis() -> None:
    assert draw_grid(("x",), (7,), (3,), (6,)) == ["x 7 ████ ████┃█░░░"]


def test_nothing_to_draw() -> None:
    assert draw_grid((), (), ()) == []
    assert draw_grid(("x", "y"), (0, 3), (1, 3)) == []


type Grid = tuple[tuple[str, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...] | None]


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    rank = draw(st.integers(0, 5))
    shape = tuple(draw(st.integers(0, 10**9)) for _ in range(rank))
    chunk = tuple(draw(st.integers(1, 10**6)) for _ in range(rank))
    times = tuple(draw(st.integers(1, 50)) for _ in range(rank))
    shard = draw(st.sampled_from([None, tuple(c * t for c, t in zip(chunk, times, strict=True))]))
    return tuple(f"dim_{i}" for i in range(rank)), shape, chunk, shard


@given(grids())
def test_any_grid_fits_a_terminal(grid: Grid) -> None:
    dims, shape, chunk, shard = grid
    lines = draw_grid(dims, shape, chunk, shard)
    assert bool(lines) == (bool(shape) and 0 not in shape)
    assert len(lines) <= 20
    assert all(len(line) <= 100 for line in lines), max(map(len, lines))


@given(st.lists(st.integers(1, 6), min_size=2, max_size=2), st.lists(st.integers(1, 5), min_size=2, max_size=2))
def test_small_grids_show_every_chunk_of_the_face(counts: list[int], chunk: list[int]) -> None:
    shape = [n * c for n, c in zip(counts, chunk, strict=True)]
    lines = draw_grid(("y", "x"), shape, chunk)[:-1]
    assert len(lines) == counts[0]
    assert all(len(line.split()[-counts[1] :]) == counts[1] and set(line.split()[-1]) == {"█"} for line in lines)


def test_facts_of_an_array() -> None:
    a = ArrayDrawing("/sst", ("t", "y"), (10, 4), "int16", (1, 4), (5, 4), ("zlib (level 4)",), 2, 9, 40, "a remark")
    assert array_lines(a)[:5] == [
        "/sst  int16  (t 10 \N{MULTIPLICATION SIGN} y 4)",
        "  10 chunks of 1 \N{MULTIPLICATION SIGN} 4 = 8 B",
        "  2 shards of 5 \N{MULTIPLICATION SIGN} 4 = 40 B",
        "  zlib (level 4)",
        "  40 B stored of 80 B decoded in 9 written chunks",
    ]
    assert "  a remark" in array_lines(a)

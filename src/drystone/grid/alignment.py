"""Proofs that no two writers touch one write cell.

:func:`prove_aligned` is the planner's: regions start and stop on write-cell edges or the array's end, no two share a cell,
and together they cover the array. :func:`check_region` is the worker's: its own region again, from the numbers it was sent
and those it finds in the target, before it writes. With both, no lock is needed and a retry writes the same bytes.

Both work on cells' edges per axis, not on one chunk shape, so rectilinear write grids need nothing special. Disjointness and
cover are proved together: every region adds one on the cells it holds, by differences at its corners and one cumulative sum
an axis, and each cell must come out as exactly one. The sum runs over the edges that regions use, never over more cells than
the grid has.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from drystone.errors import PlanError
from drystone.grid.chunk_grid import ChunkGrid

__all__ = ["check_region", "check_region_in", "prove_aligned"]

type Int64 = NDArray[np.int64]


def prove_aligned(starts: NDArray[np.integer], stops: NDArray[np.integer], grid: ChunkGrid, *, what: str = "region") -> None:
    """Prove that regions are aligned to write cells, disjoint, and cover the array.

    Parameters
    ----------
    starts, stops
        int64 (n, rank): region ``i`` is the box [starts[i], stops[i]), in elements.
    grid
        The write grid: shards, or chunks where there are none.
    what
        What a region is called in messages.

    Raises
    ------
    PlanError
        ``kind`` ``region-outside``, ``region-unaligned``, ``regions-overlap`` or ``regions-gap``; the message names the
        region, the axis and the numbers.

    Examples
    --------
    >>> g = ChunkGrid.regular((10,), (4,))
    >>> prove_aligned(np.array([[0], [8]]), np.array([[8], [10]]), g)
    >>> try:
    ...     prove_aligned(np.array([[0], [6]]), np.array([[6], [10]]), g)
    ... except PlanError as error:
    ...     print(error.kind, dict(error.facts))
    region-unaligned {'region': 1, 'axis': 0, 'at': 6, 'cell_start': 4, 'cell_stop': 8}
    """
    a = np.asarray(starts, np.int64).reshape(len(starts), len(grid.shape))
    b = np.asarray(stops, np.int64).reshape(len(stops), len(grid.shape))
    if a.shape != b.shape:
        raise PlanError(f"{len(a)} starts and {len(b)} stops", kind="region-shape")
    for axis in range(a.shape[1]):
        _check_axis(a[:, axis], b[:, axis], grid, axis, what)
    _prove_once(a, b, grid, what)


def check_region(
    start: tuple[int, ...],
    stop: tuple[int, ...],
    shape: tuple[int, ...],
    write_cell: tuple[int, ...],
    *,
    what: str = "this task",
) -> None:
    """The worker's proof over a regular write grid: one region lies in the array and on write-cell edges.

    Parameters
    ----------
    start, stop
        The box, in elements.
    shape, write_cell
        Of the target as the worker found it, in elements.

    Raises
    ------
    PlanError
        As :func:`prove_aligned`.

    Examples
    --------
    >>> check_region((4, 0), (10, 6), (10, 6), (4, 6))
    """
    check_region_in(start, stop, ChunkGrid.regular(shape, write_cell), what=what)


def check_region_in(start: tuple[int, ...], stop: tuple[int, ...], grid: ChunkGrid, *, what: str = "this task") -> None:
    """:func:`check_region` over any write grid.

    Examples
    --------
    >>> check_region_in((4, 0), (10, 6), ChunkGrid.regular((10, 6), (4, 6)))
    """
    if not len(start) == len(stop) == len(grid.shape):
        raise PlanError(f"{what}: a region of {len(start)} axes for an array of {len(grid.shape)}", kind="region-shape")
    for axis, (a, b) in enumerate(zip(start, stop, strict=True)):
        _check_axis(np.array([a], np.int64), np.array([b], np.int64), grid, axis, what)


def _check_axis(a: Int64, b: Int64, grid: ChunkGrid, axis: int, what: str) -> None:
    dimension = grid.dimensions[axis]
    extent = dimension.extent
    wrong = (a < 0) | (b > extent) | (a >= b)
    if wrong.any():
        i = int(np.argmax(wrong))
        raise PlanError(
            f"{_name(what, i, len(a))}, axis {axis}: elements {a[i]} to {b[i]} are no part of an axis of {extent}; "
            "the target was resized or the plan is of another array: plan again",
            kind="region-outside",
            region=i,
            axis=axis,
            start=int(a[i]),
            stop=int(b[i]),
            extent=extent,
        )
    for verb, at in (("starts", a), ("stops", b)):
        off = ~dimension.is_edge(at)
        if off.any():
            i = int(np.argmax(off))
            cell = dimension.index_to_chunk(int(at[i]))
            low = dimension.chunk_offset(cell)
            high = low + dimension.data_size(cell)
            raise PlanError(
                f"{_name(what, i, len(a))}, axis {axis}: it {verb} at element {at[i]}, inside the write cell {low}..{high}; "
                "two writers would share that cell and one would undo the other. "
                f"Move that edge to {low} or {high}",
                kind="region-unaligned",
                region=i,
                axis=axis,
                at=int(at[i]),
                cell_start=low,
                cell_stop=high,
            )


def _name(what: str, i: int, n: int) -> str:
    return what if n == 1 and what != "region" else f"{what} {i}"


def _prove_once(a: Int64, b: Int64, grid: ChunkGrid, what: str) -> None:
    rank = a.shape[1]
    if any(n == 0 for n in grid.shape):
        return  # no cell, and a region with elements was refused above
    if rank == 0:
        counts, marks = np.array(len(a)), []
    else:
        # edges that any region uses, with 0 and the extent so that uncovered ends are seen
        marks = [np.unique(np.concatenate([a[:, k], b[:, k], [0, grid.shape[k]]])) for k in range(rank)]
        low = [np.searchsorted(marks[k], a[:, k]) for k in range(rank)]
        high = [np.searchsorted(marks[k], b[:, k]) for k in range(rank)]
        counts = np.zeros(tuple(len(m) for m in marks), np.int32)
        for corner in itertools.product((0, 1), repeat=rank):
            at = tuple(high[k] if c else low[k] for k, c in enumerate(corner))
            np.add.at(counts, at, -1 if sum(corner) % 2 else 1)
        for k in range(rank):
            np.cumsum(counts, axis=k, out=counts)
        counts = counts[(slice(None, -1),) * rank]
    if (counts == 1).all():
        return
    first = np.unravel_index(int(np.argmax(counts != 1)), counts.shape)
    element = np.array([int(marks[k][i]) for k, i in enumerate(first)], np.int64)
    where = "(" + ", ".join(str(n) for n in element) + ")"
    if counts[first] == 0:
        raise PlanError(
            f"no {what} covers element {where} of an array of shape {grid.shape}: it would never be written",
            kind="regions-gap",
            element=where,
        )
    both = np.flatnonzero(((a <= element) & (element < b)).all(axis=1))
    one, two = int(both[0]), int(both[1])
    raise PlanError(
        f"{what}s {one} and {two} both hold element {where}: two writers would share a write cell and one would undo the other",
        kind="regions-overlap",
        region=one,
        other=two,
        element=where,
    )

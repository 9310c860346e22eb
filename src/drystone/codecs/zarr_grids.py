"""Chunk grids as Zarr v3 metadata: regular, or rectilinear with every edge listed.

A rectilinear grid lists every axis: zarr takes a bare number for a regular one, Icechunk does not.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import cast

__all__ = ["chunk_grid_v3", "read_chunk_grid_v3", "run_lengths"]

type Edge = int | tuple[int, ...]


def chunk_grid_v3(edges: Sequence[Edge], shape: Sequence[int]) -> dict[str, object]:
    """The value of ``chunk_grid``.

    Parameters
    ----------
    edges
        Along each axis the one size of a chunk, or every chunk's.
    shape
        Of the array, in elements.

    Examples
    --------
    >>> chunk_grid_v3((4, 5), (10, 5))["configuration"]
    {'chunk_shape': [4, 5]}
    >>> chunk_grid_v3(((31, 28), 5), (59, 9))["configuration"]
    {'kind': 'inline', 'chunk_shapes': [[31, 28], [[5, 2]]]}
    """
    if all(isinstance(e, int) for e in edges):
        return {"name": "regular", "configuration": {"chunk_shape": list(edges)}}
    every = [(e,) * max(1, -(-n // e)) if isinstance(e, int) else e for e, n in zip(edges, shape, strict=True)]
    return {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [run_lengths(e) for e in every]}}


def read_chunk_grid_v3(document: object) -> tuple[Edge, ...]:
    """The edges that :func:`chunk_grid_v3` wrote.

    Examples
    --------
    >>> read_chunk_grid_v3(chunk_grid_v3(((31, 28), 5), (59, 9)))
    ((31, 28), (5, 5))
    """
    configuration = cast("dict[str, list[object]]", cast("dict[str, object]", document)["configuration"])
    if "chunk_shape" in configuration:
        return tuple(cast("list[int]", configuration["chunk_shape"]))
    return tuple(_written_out(cast("list[int | list[int]]", axis)) for axis in configuration["chunk_shapes"])


def _written_out(runs: Sequence[int | list[int]]) -> tuple[int, ...]:
    return tuple(itertools.chain.from_iterable([r] if isinstance(r, int) else [r[0]] * r[1] for r in runs))


def run_lengths(sizes: Sequence[int]) -> list[int | list[int]]:
    """Sizes as zarr writes them: runs as ``[size, times]`` where that is shorter.

    Examples
    --------
    >>> run_lengths((31, 28, 31)), run_lengths((5, 5, 5, 2))
    ([31, 28, 31], [[5, 3], 2])
    """
    runs: list[int | list[int]] = []
    for size, run in itertools.groupby(sizes):
        n = sum(1 for _ in run)
        runs.append(size if n == 1 else [size, n])
    return runs if len(runs) < len(sizes) else list(sizes)

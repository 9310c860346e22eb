"""The whole as one output publishes it: eras or one array, packed or unpacked, cut, with coverage."""

from __future__ import annotations

from dataclasses import replace

from drystone.model.options import OutputOptions
from drystone.model.placement import Combined, CombinedArray
from drystone.plan.coverage import with_coverage
from drystone.plan.cutting import cut_grid
from drystone.plan.values import decoded, packed_or_refuse

__all__ = ["form_of"]


def form_of(combined: Combined, output: OutputOptions) -> Combined:
    """What an output holds of a whole.

    Raises
    ------
    UnsupportedError
        ``values: packed`` and granules that have no exact common packing.

    Examples
    --------
    >>> form_of(Combined((), (), "time"), OutputOptions("store", "zarr", "out:a.zarr")).axis
    'time'
    """
    if output.kind == "virtual":
        whole = combined.by_era or combined
        whole = replace(whole, arrays=tuple(_cut(a, output) for a in whole.arrays))
    else:
        change = {"decoded": decoded, "packed": packed_or_refuse}.get(output.values)
        whole = replace(combined, by_era=None)
        if change is not None:
            whole = replace(whole, arrays=tuple(a if a.path in whole.coordinates else change(a) for a in whole.arrays))
    return with_coverage(whole) if output.coverage else whole


def _cut(array: CombinedArray, output: OutputOptions) -> CombinedArray:
    """Plain chunks that do not line up as slabs that do; a grid of different sizes stays where the output asks for one."""
    uneven = not array.grid.is_regular and output.grid == "regular"
    if array.picked is not None or (array.unaligned is None and not uneven):
        return array
    grid = cut_grid(array if array.unaligned is not None else replace(array, unaligned="its chunks have different sizes"))
    return array if grid is None else replace(array, grid=grid, unaligned=None)

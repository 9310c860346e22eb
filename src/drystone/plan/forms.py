"""The whole as one output publishes it: eras or one array, packed or unpacked, cut, with coverage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from drystone.errors import CombineError
from drystone.model.options import OutputOptions
from drystone.model.placement import Combined, CombinedArray
from drystone.plan.coverage import with_coverage
from drystone.plan.cutting import cut_grid
from drystone.plan.precision import with_rounding
from drystone.plan.retyping import with_types
from drystone.plan.values import decoded, packed_or_refuse

__all__ = ["form_of", "has_data", "read_form", "refuse_asked"]


def form_of(combined: Combined, output: OutputOptions) -> Combined:
    """What an output holds of a whole.

    Raises
    ------
    CombineError
        ``values: packed`` and granules that have no exact common packing.
    ConfigError
        What an output wishes for an array that it names, that array cannot be.

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
        whole = with_rounding(with_types(whole, output), output)
    return with_coverage(whole) if output.coverage else whole


def read_form(combined: Combined, asked: Sequence[str] | None = None) -> tuple[Combined, tuple[str, ...]]:
    """What a reader without an output gets of a whole, and what that lacks, with reasons.

    The whole without arrays of which gaps would pass for data; where some array lies in eras alone, the eras.

    Parameters
    ----------
    combined
        The whole.
    asked
        Names or paths of arrays that must not be left out.

    Raises
    ------
    CombineError
        ``gaps-unmarked``: an array that was asked for, or every array but coordinates, would be left out.
    """
    eras, only, lost = combined.by_era, [], list(combined.left_out)
    form, mine = combined, {a.inner for a in combined.arrays if a.path not in combined.unmarked}
    if eras is not None:
        there = {a.inner for a in eras.arrays if a.path not in eras.unmarked} - mine
        if there:
            names = ", ".join(g.path for g in eras.groups if "drystone_era" in g.attributes)
            form, lost = eras, list(eras.left_out)
            why = {**{t.partition(":")[0]: t for t in combined.left_out}, **combined.unmarked}
            only = [f"{why.get(path, path)}; it is left out of the root group and is in {names}" for path in sorted(there)]
    unmarked = dict(form.unmarked)
    kept = tuple(a for a in form.arrays if a.path not in unmarked)
    refuse_asked(unmarked, asked or ())
    if not has_data(kept):
        refuse_asked(unmarked, tuple(unmarked))
    lost += unmarked.values()
    return replace(form, arrays=kept, unmarked={}), (*only, *(f"{text}; it is left out" for text in lost))


def has_data(arrays: Iterable[CombinedArray]) -> bool:
    """Whether some array is no dimension's coordinate."""
    arrays = tuple(arrays)
    dims = {d for a in arrays for d in a.dims}
    return any(a.name not in dims and not a.made for a in arrays)


def refuse_asked(unmarked: Mapping[str, str], asked: Sequence[str], output: str = "") -> None:
    """Refuse arrays with unmarked gaps that somebody asked for by name; ``output`` begins the message.

    Raises
    ------
    CombineError
        ``gaps-unmarked``
    """
    hit = [p for p in unmarked if {p, p.lstrip("/"), p.rsplit("/", 1)[-1]} & set(asked)]
    if hit:
        text = "; ".join(unmarked[p] for p in hit)
        raise CombineError(f"{output}: {text}" if output else text, kind="gaps-unmarked", variable=", ".join(hit))


def _cut(array: CombinedArray, output: OutputOptions) -> CombinedArray:
    """Plain chunks that do not line up as slabs that do; a grid of different sizes stays where the output asks for one."""
    uneven = not array.grid.is_regular and output.grid == "regular"
    if array.picked is not None or (array.unaligned is None and not uneven):
        return array
    grid = cut_grid(array if array.unaligned is not None else replace(array, unaligned="its chunks have different sizes"))
    return array if grid is None else replace(array, grid=grid, unaligned=None)

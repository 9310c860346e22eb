"""Granules to one whole: placements, global shapes, chunk grids, or a refusal by name.

Pure: specs in, :class:`~drystone.model.placement.Combined` out. The work is columnar over granules; Python loops run
over distinct specs only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drystone.errors import CombineError
from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import DimensionGrid, RectilinearDimension, RegularDimension
from drystone.model.array import ArraySpec, GroupSpec
from drystone.model.options import AxisOptions, CombineOptions
from drystone.model.placement import Combined, CombinedArray, Placements
from drystone.plan.axis import AxisOrder, find_axis, order_granules
from drystone.plan.compare import check_variant, merge_attributes, storage_difference
from drystone.plan.members import ArrayMembers

__all__ = ["combine", "select_variables"]


@dataclass(frozen=True, slots=True)
class _Context:
    order: AxisOrder | None
    granule_ids: NDArray[np.int32]
    names: Mapping[int, str]

    def name(self, granule_id: int) -> str:
        return self.names[granule_id]


def combine(
    members: Mapping[str, ArrayMembers],
    groups: Sequence[GroupSpec],
    names: Mapping[int, str],
    options: CombineOptions,
) -> Combined:
    """Join granules along one axis.

    Parameters
    ----------
    members
        Arrays by path.
    groups
        Of the first granule.
    names
        Granule id to address, in listed order; its keys are the granules to join.
    options
        The axis, or None to find it; the variables wanted.

    Returns
    -------
    Combined
        With the coordinates that scans kept values of.

    Raises
    ------
    CombineError
        Whatever differs and would change values.
    """
    granule_ids = np.array(sorted(names), np.int32)
    if not len(granule_ids):
        raise CombineError("there is no granule to combine: none was listed, or all were set aside", kind="no-granules")
    wanted = select_variables(members, options.variables)
    if options.variables == ():
        raise CombineError("the list of wanted variables is empty; leave it out for all", kind="no-arrays")
    if not wanted:
        first, n = names[int(granule_ids[0])], len(granule_ids)
        raise CombineError(
            f"{first}{f' and {n - 1} more granules hold' if n > 1 else ' holds'} no array that can be referenced: nothing but "
            "attributes, or arrays that were refused when it was scanned (`drystone status` names each with its reason)",
            kind="no-arrays",
            granule=first,
        )
    axis = options.along[0] if options.along else _found(find_axis(wanted, len(granule_ids)))
    order = None if axis is None else order_granules(wanted, axis, granule_ids, names)
    context = _Context(order, granule_ids, names)
    arrays: list[CombinedArray] = []
    coordinates: dict[str, np.ndarray] = {}
    warnings: list[str] = []
    for path in sorted(wanted):
        array, values, notes = _combine_array(wanted[path], context)
        arrays.append(array)
        warnings.extend(notes)
        if values is not None:
            coordinates[path] = values
    return Combined(
        _groups(groups, arrays),
        tuple(arrays),
        axis.name if axis else None,
        coordinates,
        tuple(warnings),
        (axis.name,) if axis else (),
    )


def _found(name: str | None) -> AxisOptions | None:
    return None if name is None else AxisOptions(name)


def _groups(groups: Sequence[GroupSpec], arrays: Sequence[CombinedArray]) -> tuple[GroupSpec, ...]:
    """The groups that arrays live in, their parents, and those without arrays, in path order."""
    known = {g.path: g for g in groups}
    for array in arrays:
        path = array.group
        while path not in known:
            known[path] = GroupSpec(path)
            path = path.rsplit("/", 1)[0] or "/"
    known.setdefault("/", GroupSpec("/"))
    return tuple(known[p] for p in sorted(known))


def select_variables(members: Mapping[str, ArrayMembers], variables: tuple[str, ...] | None) -> dict[str, ArrayMembers]:
    """The arrays wanted and what they need: coordinates of their dimensions and arrays that their attributes name.

    Raises
    ------
    CombineError
        A wanted variable is in no granule.
    """
    if variables is None:
        return dict(members)
    chosen: dict[str, ArrayMembers] = {}
    for want in variables:
        hits = [m for m in members.values() if m.path == want or m.path == f"/{want}" or m.name == want]
        if not hits:
            known = ", ".join(sorted(m.path for m in members.values()))
            raise CombineError(
                f"no granule has a variable {want!r} that can be referenced (there are: {known}; what was refused when it was "
                "scanned is named by `drystone status`)",
                kind="variable-unknown",
                variable=want,
            )
        chosen.update({m.path: m for m in hits})
    pending = list(chosen.values())
    while pending:
        spec = pending.pop().variants[0]
        for name in _needed(spec):
            other = _nearest(name, spec.group, members)
            if other is not None and other.path not in chosen:
                chosen[other.path] = other
                pending.append(other)
    return chosen


def _needed(spec: ArraySpec) -> set[str]:
    """Names that give an array its meaning: its dimensions, and what its attributes name."""
    needed = set(spec.dims)
    for key in ("coordinates", "grid_mapping", "bounds", "ancillary_variables"):
        value = spec.attributes.get(key)
        if value is not None and value.dtype == "text":
            needed |= {w.rstrip(":") for w in " ".join(value.text).split()}
    return needed


def _nearest(name: str, group: str, members: Mapping[str, ArrayMembers]) -> ArrayMembers | None:
    """The array of that name in the group, or in the nearest one above."""
    at = group.rstrip("/")
    while True:
        if f"{at}/{name}" in members:
            return members[f"{at}/{name}"]
        if not at:
            return None
        at = at.rpartition("/")[0]


def _combine_array(members: ArrayMembers, context: _Context) -> tuple[CombinedArray, np.ndarray | None, list[str]]:
    _check_present(members, context)
    order = context.order
    axis = None if order is None or order.name not in members.variants[0].dims else members.variants[0].dims.index(order.name)
    if order is not None:
        members = members.take(np.searchsorted(members.granule_id, order.granule_id))
    base = members.spec(0)
    _check_variants(members, order.name if order and axis is not None else None, context)
    attributes, dropped = merge_attributes(_used(members))
    notes = [f"{members.path}: attributes that differ between granules were left out: {', '.join(dropped)}"] if dropped else []
    if axis is None or order is None:
        placements = _static(members)
        shape = base.shape
        grid, unaligned = _own_grid(base), None
        values = _static_values(members, context)
    else:
        count = order.count
        placements = Placements(axis, members.granule_id, np.zeros(len(count), np.int64), count, order.dest, members.variant)
        shape = (*base.shape[:axis], int(count.sum()), *base.shape[axis + 1 :])
        grid, unaligned = _joined_grid(members, axis, order, context)
        values = _joined_values(members, axis)
    array = CombinedArray(
        members.path, base.dims, shape, base.native_dtype, base.dtype, base.fill, base.codecs, attributes, grid,
        unaligned, placements, members.variants,
    )  # fmt: skip
    return array, values, notes


def _check_present(members: ArrayMembers, context: _Context) -> None:
    if len(members) == len(context.granule_ids):
        return
    have = set(members.granule_id.tolist())
    lacking = next(g for g in context.granule_ids.tolist() if g not in have)
    one, n = context.name(int(members.granule_id[0])), len(context.granule_ids) - len(members)
    raise CombineError(
        f"{members.path} is in {one} and not in {context.name(lacking)} ({n} of {len(context.granule_ids)} granules "
        "lack it, or it was refused there: see `drystone status`); a gap would pass for data; leave the variable out with "
        "combine: {variables: […]}, or those granules out of the list",
        kind="variable-missing",
        variable=members.path,
        granule=context.name(lacking),
        other=one,
    )


def _used(members: ArrayMembers) -> tuple[ArraySpec, ...]:
    first = int(members.variant[0])
    rest = [int(v) for v in np.unique(members.variant) if v != first]
    return tuple(members.variants[v] for v in (first, *rest))


def _check_variants(members: ArrayMembers, axis: str | None, context: _Context) -> None:
    used, where = np.unique(members.variant, return_index=True)
    base = members.spec(0)
    one = context.name(int(members.granule_id[0]))
    for variant, i in zip(used.tolist(), where.tolist(), strict=True):
        check_variant(base, members.variants[variant], axis, one, context.name(int(members.granule_id[i])))


def _static(members: ArrayMembers) -> Placements:
    zero = np.zeros(1, np.int64)
    return Placements(None, members.granule_id[:1], zero, zero + 1, zero, members.variant[:1])


def _static_values(members: ArrayMembers, context: _Context) -> np.ndarray | None:
    """Values of an array without the axis; equal in every granule, or refused."""
    first = members.values(0)
    if first is None:
        return None
    other = np.flatnonzero(members.coordinate != members.coordinate[0])
    if len(other):
        i = int(other[0])
        values = members.values(i)
        one, two = context.name(int(members.granule_id[0])), context.name(int(members.granule_id[i]))
        text = _first_difference(first, values)
        raise CombineError(
            f"{members.path} has no part in the joined axis, so one value must stand for all granules, and {one} and {two} "
            f"differ{text}; leave the variable out with combine: {{variables: […]}}, or split the archive where it changes",
            kind="static-differs",
            variable=members.path,
            granule=one,
            other=two,
        )
    return np.asarray(first)


def _first_difference(a: NDArray[np.generic], b: NDArray[np.generic] | None) -> str:
    if b is None or a.shape != b.shape or a.dtype != b.dtype or a.dtype.kind in "TV":
        return ""
    bits = np.flatnonzero((a.reshape(-1) != b.reshape(-1)) & ~((a != a) & (b != b)).reshape(-1))
    if not len(bits):
        return ""
    i = int(bits[0])
    return f" at {i} ({a.reshape(-1)[i]!r} and {b.reshape(-1)[i]!r})"


def _joined_values(members: ArrayMembers, axis: int) -> np.ndarray | None:
    if len(members.variants[0].dims) != 1 or np.any(members.coordinate < 0):
        return None
    return np.concatenate([members.coordinates[c] for c in members.coordinate.tolist()], axis=axis)


def _own_grid(spec: ArraySpec) -> ChunkGrid:
    return ChunkGrid.regular(spec.shape, spec.chunk_shape)


def _joined_grid(members: ArrayMembers, axis: int, order: AxisOrder, context: _Context) -> tuple[ChunkGrid, str | None]:
    """The chunks of the whole, and why they are no Zarr grid, if so."""
    base = members.spec(0)
    dims: list[DimensionGrid] = [RegularDimension(n, c) for n, c in zip(base.shape, base.chunk_shape, strict=True)]
    edge = np.array([v.chunk_shape[axis] for v in members.variants], np.int64)[members.variant]
    padded = np.array([v.padded for v in members.variants])[members.variant]
    count, dest = order.count, order.dest
    held = np.flatnonzero(count > 0)
    last = int(held[-1]) if len(held) else 0
    size = int(edge[held[0]]) if len(held) else int(edge[0])
    reason = _storage_reason(members, axis, context)
    # one edge everywhere, each granule starts on it, and only the last may end off it (stored full, as Zarr wants)
    off = (edge != size) | (dest % size != 0) | ((count % size != 0) & ((np.arange(len(count)) != last) | ~padded))
    bad = np.flatnonzero(off & (count > 0))
    total = int(count.sum())
    if not len(bad):
        dims[axis] = RegularDimension(total, size)
        return ChunkGrid(tuple(dims)), reason
    i = int(bad[0])
    if reason is None:
        reason = (
            f"{members.path}: {context.name(int(members.granule_id[i]))} lands at {order.name} = {dest[i]} with "
            f"{count[i]} elements in chunks of {edge[i]}, off the grid of {size} that the first granule sets, so its bytes are "
            "no whole chunks of one Zarr array; publish it as a store (rechunk)"
        )
    dims[axis] = _rectilinear(edge, count, padded)
    return ChunkGrid(tuple(dims)), reason


def _storage_reason(members: ArrayMembers, axis: int, context: _Context) -> str | None:
    base = members.spec(0)
    used, where = np.unique(members.variant, return_index=True)
    for variant, i in zip(used.tolist(), where.tolist(), strict=True):
        text = storage_difference(base, members.variants[variant], axis)
        if text is not None:
            one, two = context.name(int(members.granule_id[0])), context.name(int(members.granule_id[i]))
            return (
                f"{members.path}: {one} and {two} are stored differently ({text}), so no one Zarr array describes both; "
                "publish it as a store (rechunk)"
            )
    return None


def _rectilinear(edge: NDArray[np.int64], count: NDArray[np.int64], padded: NDArray[np.bool_]) -> RectilinearDimension:
    n = -(-count // edge)
    sizes = np.repeat(edge, n)
    ends = np.cumsum(n)[n > 0] - 1
    rest = (count - (n - 1) * edge)[n > 0]
    encoded = sizes.copy()
    sizes[ends] = rest
    encoded[ends] = np.where(padded[n > 0], edge[n > 0], rest)
    return RectilinearDimension(tuple(sizes.tolist()), tuple(encoded.tolist()))

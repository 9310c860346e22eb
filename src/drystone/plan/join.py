"""One array after another: its granules in place, their differences reconciled, its values where scans kept them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from drystone.codecs.chain import Codec, CodecChain
from drystone.errors import CombineError
from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.attributes import Attributes
from drystone.model.made import AxisRule
from drystone.model.options import CombineOptions
from drystone.model.placement import CombinedArray, Equal, Placements
from drystone.plan.differences import Reconciled, reconcile
from drystone.plan.joined import joined_grid
from drystone.plan.members import ArrayMembers
from drystone.plan.order import Axis, Order
from drystone.plan.order_made import unpacked
from drystone.plan.placing import Placed, lifted, place
from drystone.plan.same import stand_ins
from drystone.plan.time_plan import same_clock
from drystone.plan.wanted import LINKS, named_by, nearest

__all__ = ["Joined", "Joiner", "made_array"]

_MOST_WRITTEN = 64 << 20  # bytes of joined values that outputs write natively


@dataclass(frozen=True, slots=True)
class Joined:
    """The arrays of a whole, what scans kept of them, and what is to be told or proved.

    ``keys`` has for each array that may be cut into eras, by path, a key a variant: granules of equal keys may share a virtual
    array. ``apart`` are arrays that only eras can hold, ``left_out`` says by path why. ``unmarked`` says by path of which
    arrays places without a granule would pass for data. ``held`` has the granules that hold an array which others lack, where
    that makes eras. ``storage`` says by path why granules' chunks are no one virtual array on whatever grid.
    ``rules`` say what coordinates' values come from that the order gives.
    """

    arrays: tuple[CombinedArray, ...]
    coordinates: dict[str, np.ndarray]
    equal: tuple[Equal, ...]
    notes: tuple[str, ...]
    left_out: Mapping[str, str]
    keys: Mapping[str, tuple[str, ...]]
    apart: tuple[CombinedArray, ...] = ()
    unmarked: Mapping[str, str] = field(default_factory=dict)
    held: Mapping[str, NDArray[np.int32]] = field(default_factory=dict)
    storage: Mapping[str, str | None] = field(default_factory=dict)
    rules: Mapping[str, AxisRule] = field(default_factory=dict)


@dataclass(slots=True)
class _Parts:
    arrays: list[CombinedArray] = field(default_factory=list)
    coordinates: dict[str, np.ndarray] = field(default_factory=dict)
    equal: list[Equal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    apart: list[CombinedArray] = field(default_factory=list)
    unmarked: dict[str, str] = field(default_factory=dict)
    held: dict[str, NDArray[np.int32]] = field(default_factory=dict)
    storage: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Joiner:
    """Joins the wanted arrays by an order, or by a part of one.

    Parameters
    ----------
    members
        Arrays by path.
    names
        Granule id to address, in listed order.
    options
        What to do where granules differ.
    refused
        By path, granule id to the reason: arrays (or whole groups) that a granule has and no exact reference to.
    """

    members: Mapping[str, ArrayMembers]
    names: Mapping[int, str]
    options: CombineOptions
    refused: Mapping[str, Mapping[int, str]] = field(default_factory=dict)

    def arrays(self, order: Order, paths: frozenset[str] | None = None) -> Joined:
        """All arrays, or some.

        Raises
        ------
        CombineError
            Granules differ in what no policy lets pass.
        """
        parts = _Parts()
        for path in sorted(self.members):
            if paths is None or path in paths:
                self._join(path, order, parts)
        for k, axis in enumerate(order.axes):
            known = any(a.path == axis.path for a in parts.arrays)
            if _is_made(order, k, self.members) and not known and (paths is None or axis.path in paths):
                parts.arrays.append(made_array(axis, self.members.get(axis.path)))
                parts.coordinates[axis.path] = np.asarray(axis.values)
        arrays = tuple(sorted(parts.arrays, key=lambda a: a.path))
        return Joined(
            arrays,
            parts.coordinates,
            tuple(parts.equal),
            tuple(parts.notes),
            parts.left_out,
            parts.keys,
            tuple(parts.apart),
            parts.unmarked,
            parts.held,
            parts.storage,
            {a.path: a.rule for a in order.axes if a.rule is not None and (paths is None or a.path in paths)},
        )

    def within(self, order: Order) -> Joiner:
        """The same of an order's granules alone: what only others say counts no more."""
        ids = np.unique(order.granule_id)
        members = {path: m.only(ids) for path, m in self.members.items()}
        return replace(self, members={path: m for path, m in members.items() if len(m)})

    def _join(self, path: str, order: Order, parts: _Parts) -> None:
        members = self._present(path, order)
        if members is None or any(a.path == path and _is_made(order, k, self.members) for k, a in enumerate(order.axes)):
            return
        self._check_dims(members)
        members, new_axes = lifted(members, self._new_axes(members, order))
        placed = place(members, order, self.names)
        parent = self._parent(path, order)
        joined = frozenset(placed.members.variants[0].dims[d] for d in placed.joined)
        one = reconcile(placed.members, joined, self.names, self.options.differences, parent)
        if parent is not None:
            one = self._told_apart(one, parent, joined, order)
        placed = replace(
            placed,
            members=replace(placed.members, variants=one.variants, variant=one.variant),
            placements=replace(placed.placements, variant=one.variant),
        )
        present = None if parent is None else self._present(parent.path, order)
        every = parent if parent is None or present is None else _then_others(parent, present)
        alike = stand_ins(members, placed, joined, self.names, self.options.differences, every)
        parts.equal.extend(alike.promises)
        one = replace(one, attributes=one.attributes.without(*alike.dropped))
        parts.notes.extend((*one.notes, *alike.notes))
        array = self._array(path, placed, one, new_axes)
        parts.storage[path] = one.storage
        values = self._values(array, placed, one)
        if one.by_era:
            parts.keys[path] = one.keys
        lacking = len(np.unique(members.granule_id)) < len(np.unique(order.granule_id))
        if lacking and placed.joined and self.options.differences.missing_variable == "era":
            parts.held[path] = np.unique(members.granule_id)
        if one.apart is not None:
            parts.left_out[path] = one.apart
            parts.apart.append(array)
            return
        if values is None and placed.gaps and not array.marks_missing and array.dtype.kind != "T":
            parts.unmarked[path] = self._unmarked(array, order)
        if values is not None:
            parts.coordinates[path] = values
        parts.arrays.append(array)

    def _present(self, path: str, order: Order) -> ArrayMembers | None:
        """The array's members among the order's granules."""
        wanted = np.unique(order.granule_id)
        members = self.members[path].only(wanted)
        if not len(members):
            return None
        self._check_refused(members, wanted)
        if len(members) < len(wanted) and self.options.differences.missing_variable == "refuse":
            have = set(members.granule_id.tolist())
            lacking = next(g for g in wanted.tolist() if g not in have)
            one, n = self.names[int(members.granule_id[0])], len(wanted) - len(members)
            raise CombineError(
                f"{path} is in {one} and not in {self.names[lacking]} ({n} of {len(wanted)} granules lack it, or it was "
                "refused there: see `drystone status`); let its places there read as missing with combine: {differences: "
                "{missing_variable: fill}}, leave the variable out with combine: {variables: […]}, or those granules out",
                kind="variable-missing",
                variable=path,
                granule=self.names[lacking],
                other=one,
            )
        return members

    def _check_refused(self, members: ArrayMembers, wanted: NDArray[np.int32]) -> None:
        """What a granule has and cannot be referenced in it is no missing variable: its values are there."""
        path = members.path
        for at in (path, *(path[:i] for i in range(1, len(path)) if path[i] == "/")):
            for g, reason in self.refused.get(at, {}).items():
                if g in wanted and g not in members.granule_id:
                    raise CombineError(
                        f"{path} is in {self.names[int(members.granule_id[0])]}, and of {self.names[g]} it has no exact "
                        f"reference ({reason}): its places there would read as missing, and are not; leave the variable out "
                        "with combine: {variables: […]}, or that granule out",
                        kind="variable-missing",
                        variable=path,
                        granule=self.names[g],
                        other=self.names[int(members.granule_id[0])],
                    )

    def _check_dims(self, members: ArrayMembers) -> None:
        used, where = np.unique(members.variant, return_index=True)
        base = members.spec(0)
        for v, i in zip(used.tolist(), where.tolist(), strict=True):
            if members.variants[v].dims != base.dims:
                one, two = (self.names[int(members.granule_id[j])] for j in (0, i))
                raise CombineError(
                    f"{members.path}: dimensions differ between granules: {base.dims} in {one}, {members.variants[v].dims} in "
                    f"{two}; joined as they are, values would be wrong; leave the variable out with combine: "
                    "{variables: […]}, or split the archive where it changes",
                    kind="difference",
                    variable=members.path,
                    what="dimensions",
                    granule=one,
                    other=two,
                    value=str(base.dims),
                    other_value=str(members.variants[v].dims),
                )

    def _new_axes(self, members: ArrayMembers, order: Order) -> tuple[Axis, ...]:
        """The axes that granules' arrays lack and this one gets: none for what stands for all."""
        spec = members.spec(0)
        new = tuple(a for a in order.axes if a.new and a.name not in spec.dims)
        own = tuple(a for a in new if members.path in (a.path, self._bounds(a.path)))
        if own or not new:
            return own
        if spec.dims == (spec.name,):
            return ()
        kept_equal = len(np.unique(members.coordinate)) == 1
        if self._describes(members) and (kept_equal or int(members.coordinate.min()) < 0):
            return ()
        return new

    def _bounds(self, path: str) -> str | None:
        """The path of a coordinate's bounds."""
        mine = self.members.get(path)
        names = set() if mine is None else named_by(mine.variants[0], LINKS)
        found = (nearest(n, mine.variants[0].group, self.members) for n in sorted(names) if mine is not None)
        return next((m.path for m in found if m is not None), None)

    def _describes(self, members: ArrayMembers) -> bool:
        """Whether an array only describes others: a scalar, bounds, a grid mapping, an auxiliary coordinate."""
        if not members.variants[0].dims:
            return True
        return any(members.name in named_by(v) for m in self.members.values() if m.path != members.path for v in m.variants)

    def _parent(self, path: str, order: Order) -> ArrayMembers | None:
        """The coordinate that names this array as its bounds, as it is joined: what it ends up in depends on who is in it."""
        members = self.members[path]
        for other in self.members.values():
            said = [named_by(v, (key,)) for key in LINKS for v in other.variants]
            # those of all, or where they name several, the first's
            names = next((n for n in said if n), set())
            if members.name in names and nearest(members.name, other.variants[0].group, self.members) is members:
                present = self._present(other.path, order)
                if present is None:
                    return None
                return place(lifted(present, self._new_axes(present, order))[0], order, self.names).members
        return None

    def _told_apart(self, one: Reconciled, parent: ArrayMembers, joined: frozenset[str], order: Order) -> Reconciled:
        """Bounds count as granules' coordinates do: they say so themselves where the order's coordinate has other units."""
        axis = next((a for k, a in enumerate(order.axes) if a.path == parent.path and _is_made(order, k, self.members)), None)
        if axis is None or "units" in one.attributes:
            return one
        theirs = reconcile(parent, joined, self.names, self.options.differences).attributes
        if same_clock(theirs, axis.attributes):
            return one
        own = Attributes(tuple((k, v) for k in ("units", "calendar") if (v := theirs.get(k)) is not None))
        return replace(one, attributes=Attributes((*one.attributes.items_, *own.items_)))

    def _array(self, path: str, placed: Placed, one: Reconciled, new_axes: tuple[int, ...]) -> CombinedArray:
        dims = placed.members.variants[0].dims
        grid, unaligned = joined_grid(path, dims, placed.shape, placed.placements, placed.members.variants, self.names)
        recodes = one.recodes if any(r is not None for r in one.recodes) else ()
        return CombinedArray(
            path, dims, placed.shape, one.dtype, one.stored_dtype, one.fill, one.codecs, one.attributes, grid,
            one.storage or unaligned, placed.placements, placed.members.variants, "", new_axes, recodes,
        )  # fmt: skip

    def _unmarked(self, array: CombinedArray, order: Order) -> str:
        """Why places of an array that no granule holds cannot be published: nothing would tell them from data."""
        axes = ", ".join(a.name for a in order.axes if a.name in array.dims)
        have = set(array.placements.granule_id.tolist())
        lacking = next((self.names[g] for g in order.granule_id.tolist() if g not in have), None)
        where = f"{lacking} and maybe others lack it" if lacking else f"places along {axes} have no granule"
        mark = "_FillValue that is one of its numbers" if "_FillValue" in array.attributes else "_FillValue"
        return (
            f"{array.path}: {where}, and it has no {mark}, so its values there would pass for data; publish which places "
            "hold a granule with coverage: true for this output, say a number for them in a store with fill_value: "
            f"{{{array.name}: …}}, leave the variable out with combine: {{variables: […]}}, or those granules"
        )

    def _values(self, array: CombinedArray, placed: Placed, one: Reconciled) -> np.ndarray | None:
        """Values of the whole, where scans kept all granules' and they are few."""
        members = placed.members
        if not len(members) or np.any(members.coordinate < 0) or (len(array.dims) != 1 and not array.recodes and placed.joined):
            return None
        if placed.gaps and not array.marks_missing:
            return None
        if int(np.prod(array.shape)) * max(array.dtype.itemsize, 1) > _MOST_WRITTEN:
            return None
        done: dict[tuple[int, int], NDArray[np.generic]] = {}
        for c, v in {*zip(members.coordinate.tolist(), members.variant.tolist(), strict=True)}:
            recode = one.recodes[v]
            done[c, v] = members.coordinates[c] if recode is None else recode.apply(members.coordinates[c])
        pairs = zip(members.coordinate.tolist(), members.variant.tolist(), strict=True)
        p = array.placements
        if len(array.dims) == 1 and not placed.gaps and p.axis == 0:
            spans = zip(pairs, p.src_offset.tolist(), p.count.tolist(), strict=True)
            return np.concatenate([done[pair][a : a + n] for pair, a, n in spans])
        out = np.full(array.shape, array.gap_scalar, array.dtype)
        for i, pair in enumerate(pairs):
            box = p.box(i, array.shape)
            source = tuple(slice(a, a + n) for a, n in zip(box.src_offset, box.count, strict=True))
            out[tuple(slice(a, b) for a, b in zip(box.dest, box.stop, strict=True))] = done[pair][source]
        return out


def _then_others(first: ArrayMembers, every: ArrayMembers) -> ArrayMembers:
    """Members in their order, then the other granules'."""
    others = ~np.isin(every.granule_id, first.granule_id)
    return every.take(np.concatenate([np.searchsorted(every.granule_id, first.granule_id), np.flatnonzero(others)]))


def _is_made(order: Order, k: int, members: Mapping[str, ArrayMembers]) -> bool:
    """Whether an axis' coordinate is the order's: no granule holds it, or places without a granule have values too."""
    axis = order.axes[k]
    if axis.values is None:
        return False
    if axis.rule is not None and (axis.new or axis.rule.origin is not None) and axis.rule.source != axis.path:
        return True  # new axes and slots have what places granules, whether or not there are gaps today
    if axis.path not in members or len(order.axes) > 1:
        return True
    held = np.zeros(axis.extent + 1, np.int64)
    np.add.at(held, order.dest[:, k], 1)
    np.add.at(held, order.dest[:, k] + order.count[:, k], -1)
    return bool((np.cumsum(held)[: axis.extent] == 0).any())


def made_array(axis: Axis, members: ArrayMembers | None) -> CombinedArray:
    """A coordinate that no granule holds as a whole: values come from names, a step or an order."""
    values = np.asarray(axis.values)
    attributes = axis.attributes
    if members is not None and not len(attributes):
        attributes = unpacked(members.spec(0).attributes)
        if values.dtype.kind != "M":
            attributes = attributes.without("units", "calendar")  # what a name or an attribute counts is not told by them
    text = values.dtype.kind == "T"
    codecs = CodecChain.of("vlen-utf8") if text else CodecChain.of(Codec.of("bytes", endian="little"))
    nothing = np.zeros(0, np.int64)
    ids = np.zeros(0, np.int32)
    placements = Placements(None, ids, nothing, nothing, nothing, ids)
    grid = ChunkGrid.regular(values.shape, tuple(max(1, n) for n in values.shape))
    return CombinedArray(
        axis.path, (axis.name,), values.shape, values.dtype, values.dtype, None, codecs, attributes, grid, None, placements, ()
    )

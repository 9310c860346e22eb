"""Eras: runs of granules that agree, each a group of its own in outputs that hold chunks as they are.

An array whose granules are stored, packed or marked in different ways is no one Zarr array, and one that only some granules
have is one with gaps. Where its policy is ``era``, every run of granules that agree is a group ``/era-1``, ``/era-2-codecs``,
``/era-3-with-ice``…, named for what changed since the one before. A
group is a whole dataset: all arrays of the joined axis, and the coordinates of other dimensions. What has no part in the axis
stays in the root, which then has no joined axis of its own: a group whose axis had another length than its parent's would be
no tree that xarray opens.

Where places of the axis are taken, a run is one of neighbours among them whose granules agree: a list that goes from one
era to another and back makes three groups. Laid end to end they are always the whole in its order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from drystone.model.array import GroupSpec
from drystone.model.attributes import Attributes
from drystone.model.placement import Combined, CombinedArray
from drystone.plan.differences import changed
from drystone.plan.join import Joined, Joiner
from drystone.plan.narrow import narrowed
from drystone.plan.order import Order
from drystone.plan.select import select
from drystone.plan.taken import POINTS, Choice, Taken

__all__ = ["MOST_ERAS", "with_eras"]

_MOST_WORDS = 3  # in a group's name; its attributes say all
MOST_ERAS = 100  # more runs than this are no eras but a mixture, which nobody could read as groups


@dataclass(frozen=True, slots=True)
class _Run:
    """Published places ``first`` to ``last``, and which of the parts that edges make they are of."""

    first: int
    last: int
    parts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Cut:
    """What is cut: the whole, how it is joined, along which axis and where, the arrays that differ, and what is taken."""

    whole: Combined
    joiner: Joiner
    order: Order
    joined: Joined
    k: int
    edges: Sequence[int]
    apart: Mapping[str, CombinedArray]
    choice: Choice

    @property
    def axis(self) -> str:
        return self.order.axes[self.k].name

    @property
    def taken(self) -> Taken | None:
        """What is taken of the axis, if not all."""
        return self.choice.axes.get(self.axis)

    @property
    def published(self) -> str:
        """The axis as it is published."""
        return POINTS if self.taken is not None and self.taken.points else self.axis

    def runs(self) -> list[_Run]:
        """Eras in the order in which they are published."""
        edges = np.array(self.edges)
        places = edges[:-1] if self.taken is None else self.taken.places
        part = np.searchsorted(edges, places, side="right") - 1
        era = self._eras(edges)[part]
        starts = [0, *(np.flatnonzero(np.diff(era)) + 1).tolist(), len(era)]
        at = edges if self.taken is None else np.arange(len(places) + 1)
        return [_Run(int(at[a]), int(at[b]), tuple(np.unique(part[a:b]).tolist())) for a, b in pairwise(starts) if a < b]

    def _eras(self, edges: NDArray[np.int64]) -> NDArray[np.intp]:
        """A number for each part, equal where granules agree in all."""
        columns = []
        for path, array in self.apart.items():
            dest, number = _numbers(array, self.axis, self.joined.keys[path])
            columns.append(_first_of(dest, number, edges))
        dest, ids = self.order.dest[:, self.k], self.order.granule_id
        columns += [_first_of(dest, np.isin(ids, held).astype(np.int64), edges) for held in self.joined.held.values()]
        return np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)[1].reshape(-1)

    def keys(self, run: _Run) -> dict[str, str]:
        """What granules of a run agree in, by array, and whether they have those that some lack."""
        start, stop = self.edges[run.parts[0]], self.edges[run.parts[0] + 1]
        found = {path: _variant_in(array, self.axis, start, stop) for path, array in self.apart.items()}
        keys = {path: self.joined.keys[path][variant] for path, variant in found.items() if variant is not None}
        mine = self.order.granule_id[(self.order.dest[:, self.k] >= start) & (self.order.dest[:, self.k] < stop)]
        return keys | {f"here {path}": str(bool(np.isin(mine, held).any())) for path, held in self.joined.held.items()}

    def part(self, run: _Run) -> tuple[Order, Choice]:
        """Where granules of a run lie, and what is taken there."""
        order, taken = self.order, self.taken
        rows = np.isin(np.searchsorted(self.edges, order.dest[:, self.k], side="right") - 1, run.parts)
        order = replace(
            order, granule_id=order.granule_id[rows], src_offset=order.src_offset[rows], count=order.count[rows],
            dest=order.dest[rows],
        )  # fmt: skip
        if taken is None:
            return narrowed(order, {self.axis: Taken(np.arange(run.first, run.last))})[0], self.choice
        choice = self.choice.part(self.axis, run.first, run.last)
        names = [n for n, t in choice.axes.items() if n == self.axis or (taken.points and t.points)]
        order, axes = narrowed(order, {n: choice.axes[n] for n in names})
        return order, replace(choice, axes={**choice.axes, **axes})


def with_eras(whole: Combined, joiner: Joiner, order: Order, joined: Joined, choice: Choice) -> Combined | None:
    """What is taken of the whole, cut into eras; None where no array needs any, or no axis tells the runs apart."""
    arrays = (*whole.arrays, *joined.apart)
    apart = {a.path: a for a in arrays if _needs(a, joined)}
    some = {a.path: a for a in arrays if a.path in joined.held}
    for k in range(len(order.axes)):
        if any(order.axes[k].name not in a.dims for a in (*apart.values(), *some.values())):
            continue
        edges = _edges(apart, joined, order, k)
        if edges is None:
            continue
        cut = _Cut(whole, joiner, order, joined, k, edges, apart, choice)
        runs = cut.runs()
        if len(runs) > MOST_ERAS:
            warnings = (*whole.warnings, _too_many(len(runs), cut.published, [*apart, *some]))
            return replace(select(whole, choice, joiner.names, joined.storage), warnings=warnings)
        if len(runs) > 1:
            return _cut(cut, runs)
    return None


def _too_many(runs: int, axis: str, paths: list[str]) -> str:
    return (
        f"granules of {', '.join(sorted(set(paths)))} differ {runs - 1} times along {axis}: more than {MOST_ERAS} runs are no "
        "eras but a mixture, so virtual outputs have no groups for them; publish a store, which holds one array"
    )


def _needs(array: CombinedArray, joined: Joined) -> bool:
    keys = joined.keys.get(array.path, ())
    used = {keys[v] for v in np.unique(array.placements.variant).tolist()} if keys else set()
    return array.unaligned is not None and len(used) > 1 and array.path not in joined.coordinates


def _edges(apart: Mapping[str, CombinedArray], joined: Joined, order: Order, k: int) -> list[int] | None:
    """Where runs begin and end along an axis; None where an array has not one key in every run."""
    edges = {0, order.axes[k].extent}
    for path, array in apart.items():
        changes = _changes(*_numbers(array, order.axes[k].name, joined.keys[path]))
        if changes is None:
            return None
        edges.update(changes)
    for held in joined.held.values():
        changes = _changes(order.dest[:, k], np.isin(order.granule_id, held).astype(np.int64))
        if changes is None:
            return None
        edges.update(changes)
    begin, end = order.dest[:, k], order.dest[:, k] + order.count[:, k]
    for edge in edges:  # a granule that lies across an edge would be cut
        if np.any((begin < edge) & (end > edge)):
            return None
    return sorted(edges) if apart or joined.held else None


def _numbers(array: CombinedArray, name: str, keys: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where granules of an array begin along an axis, and a number for the key of each."""
    axis, p = array.dims.index(name), array.placements
    dest = p.dest if axis == p.axis else np.array([t.dest[axis] for t in p.tiles], np.int64)[p.tile]
    names: dict[str, int] = {}
    number = np.array([names.setdefault(key, len(names)) for key in keys], np.int64)[p.variant]
    return dest[p.count > 0], number[p.count > 0]


def _first_of(dest: NDArray[np.int64], number: NDArray[np.int64], edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of the first granule in each part; -1 where there is none."""
    order = np.argsort(dest, kind="stable")
    at = np.searchsorted(dest[order], edges[:-1])
    known = at < np.searchsorted(dest[order], edges[1:])
    return np.where(known, number[order][np.where(known, at, 0)], -1) if len(dest) else np.full(len(edges) - 1, -1)


def _changes(dest: NDArray[np.int64], number: NDArray[np.int64]) -> list[int] | None:
    """Places from which on another number counts; None where two count at one place."""
    pairs = np.unique(np.stack([dest, number], axis=1), axis=0)
    if len(np.unique(pairs[:, 0])) < len(pairs):
        return None
    changes: list[int] = pairs[1:][pairs[1:, 1] != pairs[:-1, 1], 0].tolist()
    return changes


def _cut(cut: _Cut, runs: Sequence[_Run]) -> Combined:
    whole, joiner, joined = cut.whole, cut.joiner, cut.joined
    static = [a for a in whole.arrays if cut.axis not in a.dims]
    # points along the axis are as many as an era has, not as the whole
    rooted = [a for a in static if cut.published != POINTS or not cut.choice.points(a)]
    root = select(_only(whole, rooted), cut.choice, joiner.names, joined.storage)
    paths = frozenset(a.path for a in whole.arrays if cut.axis in a.dims) | frozenset(a.path for a in joined.apart)
    arrays, groups, coordinates, unmarked = list(root.arrays), list(whole.groups), root.coordinates, dict(root.unmarked)
    rules = dict(root.rules)
    notes: list[str] = []
    before: dict[str, str] = {}
    left_out = {path: text for path, text in joined.left_out.items() if path not in paths}
    for i, run in enumerate(runs):
        order, choice = cut.part(run)
        mine = joiner.arrays(order, paths)
        keys = cut.keys(run)
        words = _words(before, keys)
        before |= keys
        name = f"era-{i + 1}{''.join(f'-{w}' for w in words[:_MOST_WORDS])}".replace(" ", "-")
        era = select(_only(whole, static, mine), choice, joiner.names, {**joined.storage, **mine.storage})
        left_out |= mine.left_out
        unmarked |= {f"/{name}{path}": f"/{name}{text}" for path, text in era.unmarked.items()}
        rules |= {f"/{name}{path}": rule for path, rule in era.rules.items()}
        arrays += [replace(a, path=f"/{name}{a.path}", source=a.inner) for a in era.arrays]
        coordinates |= {f"/{name}{path}": values for path, values in era.coordinates.items()}
        said = f"{cut.published} {run.first} to {run.last}"
        groups += _groups(name, whole, era.arrays, said, words)
        notes.append(
            f"/{name}: places {run.first} to {run.last} of {cut.published}, from {_first(cut, order, choice)} on"
            + (f": {', '.join(words)} changed" if words else "")
            + f" ({', '.join(sorted({*cut.apart, *joined.held}))})"
        )
    return replace(
        root,
        groups=tuple(sorted(groups, key=lambda g: g.path)),
        arrays=tuple(sorted(arrays, key=lambda a: a.path)),
        coordinates=coordinates,
        warnings=(*whole.warnings, *notes),
        by_era=None,
        left_out=tuple(left_out.values()),
        unmarked=unmarked,
        rules=rules,
    )


def _only(whole: Combined, static: Sequence[CombinedArray], era: Joined | None = None) -> Combined:
    """Some arrays of a whole, with those of an era."""
    paths = {a.path for a in static}
    coordinates = {p: v for p, v in whole.coordinates.items() if p in paths}
    unmarked = {p: t for p, t in whole.unmarked.items() if p in paths}
    rules = {p: r for p, r in whole.rules.items() if p in paths}
    if era is None:
        return replace(whole, arrays=tuple(static), coordinates=coordinates, unmarked=unmarked, rules=rules)
    return replace(
        whole,
        arrays=(*era.arrays, *static),
        coordinates=coordinates | era.coordinates,
        unmarked={**unmarked, **era.unmarked},
        rules={**rules, **era.rules},
    )


def _first(cut: _Cut, order: Order, choice: Choice) -> str:
    """The granule that holds the first place taken of an era, or where none does the next one."""
    place = int(choice.axes[cut.axis].places[0]) if cut.axis in choice.axes else 0
    end = order.dest[:, cut.k] + order.count[:, cut.k]
    after = np.flatnonzero(end > place)
    rows = after if len(after) else np.arange(len(end))
    return cut.joiner.names[int(order.granule_id[rows[np.argmin(order.dest[rows, cut.k])]])]


def _words(before: Mapping[str, str], keys: Mapping[str, str]) -> list[str]:
    """What changed since the era before, in words."""
    words: set[str] = set()
    for key, value in keys.items():
        if before.get(key, value) == value:
            continue
        if key.startswith("here "):
            words.add(f"{'with' if value == 'True' else 'without'} {key.rsplit('/', 1)[-1]}")
        else:
            words.update(changed(before[key], value))
    return sorted(words)


def _variant_in(array: CombinedArray, name: str, start: int, stop: int) -> int | None:
    """The variant of the first granule between two places of an axis; None where no granule there has the array."""
    axis, p = array.dims.index(name), array.placements
    dest = p.dest if axis == p.axis else np.array([t.dest[axis] for t in p.tiles], np.int64)[p.tile]
    inside = np.flatnonzero((dest >= start) & (dest < stop) & (p.count > 0))
    return int(p.variant[inside[np.argmin(dest[inside])]]) if len(inside) else None


def _groups(name: str, whole: Combined, arrays: tuple[CombinedArray, ...], places: str, words: list[str]) -> list[GroupSpec]:
    """The era's groups: as those of the whole, with the run in the attributes of its root."""
    said = {"drystone_era": places + (f"; changed: {', '.join(words)}" if words else "")}
    paths = {"/"} | {g for a in arrays for g in _above(a.group)}
    out = []
    for g in whole.groups:
        if g.path not in paths:
            continue
        attributes = g.attributes
        if g.path == "/":
            attributes = Attributes.of({**attributes, **said})
        out.append(GroupSpec(f"/{name}{'' if g.path == '/' else g.path}", attributes, g.dimensions))
    return out


def _above(path: str) -> list[str]:
    out = [path]
    while path != "/":
        path = path.rsplit("/", 1)[0] or "/"
        out.append(path)
    return out

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
from drystone.plan.order import Order
from drystone.plan.placing import restricted
from drystone.plan.select import select
from drystone.plan.taken import POINTS, Taken

__all__ = ["MOST_ERAS", "with_eras"]

_MOST_WORDS = 3  # in a group's name; its attributes say all
MOST_ERAS = 100  # more runs than this are no eras but a mixture, which nobody could read as groups


@dataclass(frozen=True, slots=True)
class _Run:
    """Places ``start`` to ``stop`` of an axis that one era holds, of which the published ``first`` to ``last`` are taken."""

    start: int
    stop: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class _Cut:
    """What is cut: the whole, how it is joined, along which axis, the arrays that differ, and what is taken."""

    whole: Combined
    joiner: Joiner
    order: Order
    joined: Joined
    k: int
    apart: Mapping[str, CombinedArray]
    taken: Mapping[str, Taken]

    @property
    def axis(self) -> str:
        return self.order.axes[self.k].name

    @property
    def published(self) -> str:
        """The axis as it is published."""
        return POINTS if self.axis in self.taken and self.taken[self.axis].points else self.axis

    def of(self, run: _Run) -> dict[str, Taken]:
        """What is taken of one era."""
        out = dict(self.taken)
        mine = out.get(self.axis)
        if mine is not None:
            positions = slice(run.first, run.last)
            out |= {n: t.at(t.places[positions]) for n, t in out.items() if mine.points and t.points}
            out[self.axis] = mine.at(mine.places[positions] - run.start)
        return out


def with_eras(whole: Combined, joiner: Joiner, order: Order, joined: Joined, taken: Mapping[str, Taken]) -> Combined | None:
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
        runs = _runs(edges, taken.get(order.axes[k].name))
        cut = _Cut(whole, joiner, order, joined, k, apart, taken)
        if len(runs) > MOST_ERAS:
            warnings = (*whole.warnings, _too_many(len(runs), cut.published, [*apart, *some]))
            return replace(select(whole, taken, joiner.names, joined.storage), warnings=warnings)
        if len(runs) > 1:
            return _cut(cut, runs)
    return None


def _runs(edges: Sequence[int], taken: Taken | None) -> list[_Run]:
    """Eras in the order in which they are published."""
    if taken is None:
        return [_Run(a, b, a, b) for a, b in pairwise(edges)]
    era = np.searchsorted(edges, taken.places, side="right") - 1
    starts = [0, *(np.flatnonzero(np.diff(era)) + 1).tolist(), len(era)]
    return [_Run(edges[era[a]], edges[era[a] + 1], a, b) for a, b in pairwise(starts) if a < b]


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
        axis, p = array.dims.index(order.axes[k].name), array.placements
        names: dict[str, int] = {}
        number = np.array([names.setdefault(key, len(names)) for key in joined.keys[path]], np.int64)[p.variant]
        dest = p.dest if axis == p.axis else np.array([t.dest[axis] for t in p.tiles], np.int64)[p.tile]
        used = p.count > 0
        changes = _changes(dest[used], number[used])
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
    walked = {n for n, t in cut.taken.items() if t.points and cut.published == POINTS}  # as long as an era, not as the whole
    root = select(_only(whole, [a for a in static if not walked & {*a.dims}]), cut.taken, joiner.names, joined.storage)
    paths = frozenset(a.path for a in whole.arrays if cut.axis in a.dims) | frozenset(a.path for a in joined.apart)
    arrays, groups, coordinates, unmarked = list(root.arrays), list(whole.groups), root.coordinates, dict(root.unmarked)
    rules = dict(root.rules)
    notes: list[str] = []
    before: dict[str, str] = {}
    left_out = {path: text for path, text in joined.left_out.items() if path not in paths}
    known: dict[int, Joined] = {}
    for i, run in enumerate(runs):
        part = restricted(cut.order, cut.k, run.start, run.stop)
        mine = known.get(run.start) or joiner.arrays(part, paths)
        known[run.start] = mine
        era = _only(whole, static, mine)
        keys = {p: joined.keys[p][_variant_at(a, cut.axis, run.start)] for p, a in cut.apart.items() if p in mine.storage}
        keys |= {f"here {path}": str(path in mine.storage) for path in joined.held}
        words = _words(before, keys)
        before |= keys
        name = f"era-{i + 1}{''.join(f'-{w}' for w in words[:_MOST_WORDS])}".replace(" ", "-")
        era = select(era, cut.of(run), joiner.names, {**joined.storage, **mine.storage})
        left_out |= mine.left_out
        unmarked |= {f"/{name}{path}": f"/{name}{text}" for path, text in era.unmarked.items()}
        rules |= {f"/{name}{path}": rule for path, rule in era.rules.items()}
        arrays += [replace(a, path=f"/{name}{a.path}", source=a.inner) for a in era.arrays]
        coordinates |= {f"/{name}{path}": values for path, values in era.coordinates.items()}
        said = f"{cut.published} {run.first} to {run.last}"
        groups += _groups(name, whole, era.arrays, said, words)
        notes.append(
            f"/{name}: places {run.first} to {run.last} of {cut.published}, from {_first(cut, part, run)} on"
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


def _first(cut: _Cut, part: Order, run: _Run) -> str:
    """The granule that holds the first place taken of an era, or where none does the next one."""
    taken = cut.taken.get(cut.axis)
    place = 0 if taken is None else int(taken.places[run.first]) - run.start
    end = part.dest[:, cut.k] + part.count[:, cut.k]
    after = np.flatnonzero(end > place)
    rows = after if len(after) else np.arange(len(end))
    return cut.joiner.names[int(part.granule_id[rows[np.argmin(part.dest[rows, cut.k])]])]


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


def _variant_at(array: CombinedArray, axis_name: str, start: int) -> int:
    """The variant of the first granule from a place on."""
    axis, p = array.dims.index(axis_name), array.placements
    dest = p.dest if axis == p.axis else np.array([t.dest[axis] for t in p.tiles], np.int64)[p.tile]
    after = np.flatnonzero((dest >= start) & (p.count > 0))
    return int(p.variant[after[np.argmin(dest[after])]])


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

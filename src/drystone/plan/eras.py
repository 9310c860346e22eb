"""Eras: runs of granules that agree, each a group of its own in outputs that hold chunks as they are.

An array whose granules are stored, packed or marked in different ways is no one Zarr array, and one that only some granules
have is one with gaps. Where its policy is ``era``, every run of granules that agree is a group ``/era-1``, ``/era-2-codecs``,
``/era-3-with-ice``…, named for what changed since the one before. A
group is a whole dataset: all arrays of the joined axis, and the coordinates of other dimensions. What has no part in the axis
stays in the root, which then has no joined axis of its own: a group whose axis had another length than its parent's would be
no tree that xarray opens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
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

__all__ = ["MOST_ERAS", "with_eras"]

_MOST_WORDS = 3  # in a group's name; its attributes say all
MOST_ERAS = 100  # more runs than this are no eras but a mixture, which nobody could read as groups


def with_eras(whole: Combined, joiner: Joiner, order: Order, joined: Joined) -> Combined | None:
    """The whole with arrays that need eras cut into them; None where none does, or no axis tells the runs apart."""
    arrays = (*whole.arrays, *joined.apart)
    apart = {a.path: a for a in arrays if _needs(a, joined)}
    some = {a.path: a for a in arrays if a.path in joined.held}
    for k in range(len(order.axes)):
        if any(order.axes[k].name not in a.dims for a in (*apart.values(), *some.values())):
            continue
        edges = _edges(apart, joined, order, k)
        if edges is not None and len(edges) > MOST_ERAS + 1:
            return replace(whole, warnings=(*whole.warnings, _too_many(len(edges) - 1, order.axes[k].name, [*apart, *some])))
        if edges is not None and len(edges) > 2:
            return _cut(whole, joiner, order, k, edges, apart, joined)
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


def _cut(
    whole: Combined,
    joiner: Joiner,
    order: Order,
    k: int,
    edges: list[int],
    apart: Mapping[str, CombinedArray],
    joined: Joined,
) -> Combined:
    axis = order.axes[k].name
    static = [a for a in whole.arrays if axis not in a.dims]
    paths = frozenset(a.path for a in whole.arrays if axis in a.dims) | frozenset(a.path for a in joined.apart)
    arrays, groups = list(static), list(whole.groups)
    coordinates = {a.path: whole.coordinates[a.path] for a in static if a.path in whole.coordinates}
    notes: list[str] = []
    before: dict[str, str] = {}
    left_out = {path: text for path, text in joined.left_out.items() if path not in paths}
    unmarked = {a.path: whole.unmarked[a.path] for a in static if a.path in whole.unmarked}
    for i, (start, stop) in enumerate(pairwise(edges)):
        part = restricted(order, k, start, stop)
        if not len(part.granule_id):
            continue
        mine = joiner.arrays(part, paths)
        here = {a.path for a in mine.arrays}
        keys = {path: joined.keys[path][_variant_at(a, axis, start)] for path, a in apart.items() if path in here}
        keys |= {f"here {path}": str(path in here) for path in joined.held}
        words = _words(before, keys)
        before |= keys
        name = f"era-{i + 1}{''.join(f'-{w}' for w in words[:_MOST_WORDS])}".replace(" ", "-")
        left_out |= mine.left_out
        unmarked |= {f"/{name}{path}": f"/{name}{text}" for path, text in mine.unmarked.items()}
        for a in (*mine.arrays, *static):
            arrays.append(replace(a, path=f"/{name}{a.path}", source=a.inner))
            values = mine.coordinates.get(a.path, coordinates.get(a.path))
            if values is not None:
                coordinates[f"/{name}{a.path}"] = values
        groups += _groups(name, whole, (*mine.arrays, *static), (axis, start, stop), words)
        first = joiner.names[int(part.granule_id[0])]
        notes.append(
            f"/{name}: places {start} to {stop} of {axis}, from {first} on"
            + (f": {', '.join(words)} changed" if words else "")
            + f" ({', '.join(sorted({*apart, *joined.held}))})"
        )
    return replace(
        whole,
        groups=tuple(sorted(groups, key=lambda g: g.path)),
        arrays=tuple(sorted(arrays, key=lambda a: a.path)),
        coordinates=coordinates,
        warnings=(*whole.warnings, *notes),
        by_era=None,
        left_out=tuple(left_out.values()),
        unmarked=unmarked,
    )


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


def _groups(
    name: str, whole: Combined, arrays: tuple[CombinedArray, ...], run: tuple[str, int, int], words: list[str]
) -> list[GroupSpec]:
    """The era's groups: as those of the whole, with the run in the attributes of its root."""
    said = {"drystone_era": f"{run[0]} {run[1]} to {run[2]}" + (f"; changed: {', '.join(words)}" if words else "")}
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

"""Which granule counts where two hold one place, and what to say where nobody was told."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from drystone.errors import CombineError
from drystone.plan.order_axis import Context, Work
from drystone.plan.order_keys import Granules
from drystone.plan.order_names import natural
from drystone.plan.order_places import check_contiguous
from drystone.plan.order_rows import Boxes, Clash, product, resolve

__all__ = ["resolved", "say_place"]


def _policy(context: Context, tiles: bool) -> str:
    """What counts where two granules meet; tiles along one axis only go by either policy."""
    duplicates, overlap = context.options.duplicates, context.options.overlap
    return overlap if tiles and (duplicates == "error" or overlap == "crop") else duplicates


def _ranks(policy: str, granules: Granules) -> NDArray[np.int64] | None:
    """The rank of each granule, lowest counts."""
    if policy == "error":
        return None
    if policy == "newest":
        keys = [
            (natural(granules.name(i).rsplit("/", 1)[-1]), natural(granules.name(i)), granules.name(i))
            for i in range(len(granules))
        ]
        order = sorted(range(len(granules)), key=keys.__getitem__)
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        return -rank
    listed = granules.listed()
    return listed if policy == "first" else -listed


def resolved(work: list[Work], context: Context) -> Boxes:
    """Boxes of which each place has one, by policy.

    Raises
    ------
    CombineError
        ``axis-duplicate``, ``axis-overlap``
    """
    granules = context.granules
    boxes = product([w.places for w in work], len(granules))
    held = np.zeros(len(granules), np.bool_)
    held[boxes.granule[(boxes.count > 0).all(axis=1)]] = True
    empty = np.flatnonzero(~held)
    if len(empty):
        context.notes.append(f"{_some(empty, granules)}: nothing along {work[0].options.name}, so no place")

    def refuse(at: Boxes, clashes: list[Clash], tiles: bool) -> None:
        raise _clash_error(at, clashes, tiles, work, context)

    spatial = tuple(i for i, w in enumerate(work) if w.spatial)
    single = len(work) == 1
    duplicates = _policy(context, single and _is_tile_axis(work[0]))
    crop = context.options.overlap == "crop"
    if single:
        spatial = (0,) if duplicates == "crop" else ()
    out = resolve(
        boxes,
        spatial,
        lambda: _ranks(context.options.duplicates if crop else duplicates, granules),
        lambda: _ranks(context.options.overlap, granules),
        refuse,
        crop=crop and bool(spatial),
    )
    for w in work:
        if w.grid is None and (w.spatial or duplicates in ("error", "crop")):
            check_contiguous(w.places, granules, _ways(w, work))
    held[out.granule] = False
    lost = np.flatnonzero(held)
    if len(lost):
        context.notes.append(
            f"{_some(lost, granules)}: superseded, other granules count in all of its places (duplicates: "
            f"{context.options.duplicates}, "
            f"overlap: {context.options.overlap})"
        )
    return out


def _is_tile_axis(work: Work) -> bool:
    return not work.new and work.places.by_element and work.places.keys.kind == "number"


def _some(which: NDArray[np.int64], granules: Granules) -> str:
    names = ", ".join(granules.name(int(i)) for i in which[:3])
    return names if len(which) <= 3 else f"{names} and {len(which) - 3} more"


def _clash_error(boxes: Boxes, clashes: list[Clash], tiles: bool, work: list[Work], context: Context) -> CombineError:
    """Names pairs of granules, and the first place that both hold."""
    granules = context.granules
    parts = []
    for clash in clashes[:5]:
        one, two = (granules.name(int(boxes.granule[r])) for r in (clash.one, clash.two))
        where = ", ".join(
            f"{w.options.name} = "
            f"{w.places.say(int(boxes.granule[clash.one]), int(boxes.src[clash.one, i] + p - boxes.dest[clash.one, i]))}"
            for i, (w, p) in enumerate(zip(work, clash.place, strict=True))
        )
        parts.append(f"{one} and {two} both hold {where}")
    first = clashes[0]
    same = bool(
        (boxes.dest[first.one] == boxes.dest[first.two]).all() and (boxes.count[first.one] == boxes.count[first.two]).all()
    )
    more = f"; and {len(clashes) - 5} more pairs" if len(clashes) > 5 else ""
    policy = (
        "overlap: first or last (in listed order), or crop where each reaches past the other, which cuts them half way"
        if tiles
        else "duplicates: first or last (in listed order) or newest (by name)"
    )
    axes = ", ".join(w.options.name for w in work)
    return CombineError(
        f"{'; '.join(parts)}{more}: which one counts is not for a guess; say combine: {{{policy}}}, leave one out of the "
        "granules, or tell them apart "
        f"by a new axis beside {axes} (from a scalar coordinate, an attribute or the name)",
        kind="axis-duplicate" if same else "axis-overlap",
        granule=granules.name(int(boxes.granule[first.one])),
        other=granules.name(int(boxes.granule[first.two])),
    )


def _ways(work: Work, all_axes: list[Work]) -> str:
    if work.spatial and len(all_axes) > 1:
        return (
            "tiles must hold neighbours side by side, with equal coordinate values where they meet: leave one out of the "
            f"granules, or say combine: {{along: {{{work.options.name}: {{position: name, pattern: …}}}}}}"
        )
    return (
        "say combine: {duplicates: first}, last or newest to merge them value by value, leave one out of the granules, or say "
        f"combine: {{along: {{{work.options.name}: {{position: order}}}}}}"
    )


def say_place(work: Work, place: int) -> str:
    """A place by the value that lies there."""
    if work.grid is not None:
        return work.places.keys.say(work.grid.keys_at(np.array([place // work.block], np.int64))[0])
    return work.places.say_at(place)

"""Placements at each release: stored as what changed, so that a daily append adds a day's rows and not the archive's.

The state at a release is, for each (array, granule, tile, source offset), the row of the highest ``valid_from`` up to it; a row
whose ``valid_to`` is its ``valid_from`` ends a placement. Until a release is published its placements are a draft: one
commit swaps the draft's part for a new one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from drystone.errors import TableError
from drystone.model.placement import Placements, Tile
from drystone.storage.store import Store
from drystone.table.arrow import DTYPES, column, numbers, texts
from drystone.table.commit import put_part
from drystone.table.log import DeltaLog
from drystone.table.schema import PLACEMENTS
from drystone.table.stream import part_by_part
from drystone.table.write import array_id

__all__ = ["commit_placements", "placements_at"]

_STATE = ("granule_id", "tile", "src_offset", "axis", "count", "dest", "variant")


def placements_at(store: Store, log: DeltaLog, path: str, release: int) -> Placements:
    """Placements of one array as they were at a release.

    Raises
    ------
    TableError
        ``no-placements``: the array is not in that release.
    """
    state, places = _state(store, log, array_id(path), release)
    if len(state) == 0:
        raise TableError(
            f"release {release} has no placements of {path}: the array is not part of it",
            kind="no-placements",
            path=path,
            release=release,
        )
    state = state[np.lexsort((state["dest"], state["tile"]))]
    axis = int(state["axis"][0])
    ids, src, count, dest, variant, tile = (
        np.ascontiguousarray(state[n]) for n in ("granule_id", "src_offset", "count", "dest", "variant", "tile")
    )
    tiles = tuple(Tile.from_json(places[n]) for n in range(max(places) + 1)) if places else ()
    number = tile if places else np.zeros(0, np.int32)
    return Placements(None if axis < 0 else axis, ids, src, count, dest, variant, tiles, number)


def commit_placements(store: Store, log: DeltaLog, release: int, placements: Mapping[str, Placements]) -> int:
    """Record the placements of a release that is not published yet; calling again, with the same or others, is right.

    Returns
    -------
    int
        Rows that differ from the release before.
    """
    log.make()
    live = log.live()
    drafts = [n for n, last in zip(live.names, live.high["valid_from"], strict=True) if last >= release]
    pieces = [p for p in _changes(store, log, release, placements) if len(p)]
    changed = sum(len(p) for p in pieces)
    if drafts and changed and _same(store, log, release, pieces):
        return changed
    if pieces:
        part = put_part(store, log.folder, "placements", [pa.concat_tables(pieces)])
        log.commit([part], removed=drafts)
    elif drafts:
        log.commit([], removed=drafts)
    return changed


def _changes(store: Store, log: DeltaLog, release: int, placements: Mapping[str, Placements]) -> Iterator[pa.Table]:
    """Rows that turn the state of the release before into the one wanted, array by array in id order."""
    wanted = {array_id(path): p for path, p in placements.items()}
    for number in sorted({*wanted, *_arrays_before(store, log, release)}):
        before, old = _state(store, log, number, release - 1)
        after = _as_state(wanted[number]) if number in wanted else np.zeros(0, before.dtype)
        new = dict(enumerate(t.to_json() for t in wanted[number].tiles)) if number in wanted else {}
        kept = np.array([n for n in {*old, *new} if old.get(n) == new.get(n)] if old or new else [0], np.int32)
        fresh = after[~(np.isin(after, before) & np.isin(after["tile"], kept))]
        gone = before[~np.isin(_keys(before), _keys(after))]
        rows = np.concatenate([fresh, gone])
        ends = np.r_[np.zeros(len(fresh), np.bool_), np.ones(len(gone), np.bool_)]
        place = [(old if end else new).get(n) for n, end in zip(rows["tile"].tolist(), ends.tolist(), strict=True)]
        order = np.argsort(_keys(rows), kind="stable")
        rows, ends, place = rows[order], ends[order], [place[i] for i in order.tolist()]
        columns = {n: column(np.ascontiguousarray(rows[n])) for n in _STATE}
        since = np.full(len(rows), release, np.int32)
        columns |= {
            "place": texts(place, pa.string()) if new or old else pa.nulls(len(rows), pa.string()),
            "array_id": column(np.full(len(rows), number, np.int32)),
            "valid_from": column(since),
            "valid_to": column(since, ~ends),
        }
        yield pa.table([columns[n] for n in PLACEMENTS.names], schema=PLACEMENTS)


def _same(store: Store, log: DeltaLog, release: int, pieces: list[pa.Table]) -> bool:
    live = log.live()
    found = pa.Table.from_batches(list(part_by_part(store, log, chosen=live.high["valid_from"] >= release)), PLACEMENTS)
    order = [("array_id", "ascending"), ("granule_id", "ascending"), ("src_offset", "ascending")]
    return bool(found.sort_by(order).combine_chunks().equals(pa.concat_tables(pieces).sort_by(order).combine_chunks()))


_DTYPE = np.dtype([(n, DTYPES[PLACEMENTS.field(n).type]) for n in _STATE])


def _as_state(p: Placements) -> np.ndarray:
    out = np.zeros(len(p), _DTYPE)
    out["axis"] = -1 if p.axis is None else p.axis
    for name in ("granule_id", "src_offset", "count", "dest", "variant"):
        out[name] = getattr(p, name)
    out["tile"] = p.tile if len(p.tile) else 0
    return out


def _keys(state: np.ndarray) -> np.ndarray:
    names = ("granule_id", "tile", "src_offset")
    out = np.zeros(len(state), np.dtype([(n, state.dtype[n]) for n in names]))
    for name in names:
        out[name] = state[name]
    return out


def _state(store: Store, log: DeltaLog, number: int, release: int) -> tuple[np.ndarray, dict[int, str]]:
    """The placements of one array at a release, one record each, and the tiles that are not whole, as JSON."""
    live = log.live()
    chosen = live.holding("array_id", number) & (live.low["valid_from"] <= release)
    pieces: list[np.ndarray] = []
    since: list[np.ndarray] = []
    ended: list[np.ndarray] = []
    places: list[pa.Array] = []
    for batch in part_by_part(store, log, ("array_id", "valid_from", "valid_to", "place", *_STATE), chosen=chosen):
        first = numbers(batch.column("valid_from"))
        keep = np.flatnonzero((numbers(batch.column("array_id")) == number) & (first <= release))
        piece = np.zeros(len(keep), _DTYPE)
        for name in _STATE:
            piece[name] = numbers(batch.column(name))[keep]
        pieces.append(piece)
        places.append(batch.column("place").take(column(keep)))
        since.append(first[keep])
        ended.append(numbers(batch.column("valid_to").is_valid())[keep])
    if not pieces:
        return np.zeros(0, _DTYPE), {}
    state, start, end = np.concatenate(pieces), np.concatenate(since), np.concatenate(ended)
    order = np.lexsort((start, state["src_offset"], state["tile"], state["granule_id"]))
    keys = _keys(state[order])
    newest = order[np.r_[keys[1:] != keys[:-1], True]] if len(order) else order
    valid = newest[~end[newest]]
    said = pa.concat_arrays(places).take(column(valid)).to_pylist() if any(p.null_count < len(p) for p in places) else []
    return state[valid], {int(n): text for n, text in zip(state["tile"][valid], said, strict=False) if text is not None}


def _arrays_before(store: Store, log: DeltaLog, release: int) -> set[int]:
    live = log.live()
    out: set[int] = set()
    for batch in part_by_part(store, log, ("array_id",), chosen=live.low["valid_from"] < release):
        out.update(np.unique(numbers(batch.column("array_id"))).tolist())
    return out

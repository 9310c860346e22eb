"""The plan of one output's rechunk, as a value and as files under the run's folder.

``plan.json`` holds arrays, layouts and task grids; ``placements.npz`` the placement columns and tiles, each distinct set
once, with a digest of every placed granule's content. A worker gets the run's address and a number, loads both once, and
derives the task; no task and no reference is ever sent to it.

Two fingerprints. A *task's* hashes what decides its bytes: layout, region, the placements in it, the contents of their
granules, how their numbers are recoded, the encoders' versions; a receipt counts only where it matches. The *run's* hashes
the same for all tasks, with attributes and shapes but without regions: so a run that is resumed with other memory goes on
with the tasks it had.
"""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numcodecs import blosc, zstd
from numpy.typing import NDArray

from drystone.codecs.chain import CodecChain
from drystone.errors import StorageError, TableError
from drystone.model.granule import Granule
from drystone.model.placement import CombinedArray, Placements, Tile
from drystone.model.task import Task
from drystone.plan.layout import TargetLayout
from drystone.plan.shards import TaskPlan
from drystone.storage.store import Store

__all__ = ["ArrayPlan", "RechunkPlan", "content_digests", "encoder_versions", "load_plan", "resumed_plan", "write_plan"]

_VERSION = 6
# changes when this package makes other bytes of the same values
_FORM = "drystone-shards-1"
_COLUMNS = ("granule_id", "src_offset", "count", "dest", "variant", "tile")


def encoder_versions(chain: CodecChain) -> tuple[tuple[str, str], ...]:
    """Versions of the libraries that decide the bytes of a chain, by name.

    Examples
    --------
    >>> [name for name, _ in encoder_versions(CodecChain.of("bytes"))]
    ['form']
    """
    found = {"form": _FORM}
    for codec in chain.codecs:
        if codec.name == "blosc":
            found["blosc"] = str(blosc.VERSION_STRING)
        elif codec.name == "zstd":
            found["zstd"] = str(zstd.VERSION_NUMBER)
        elif codec.name in ("gzip", "zlib"):
            found["zlib"] = zlib.ZLIB_RUNTIME_VERSION
    return tuple(sorted(found.items()))


def content_digests(granules: Iterable[Granule]) -> NDArray[np.uint8]:
    """uint8 (n, 16): for each granule a digest of its rows, its stamp and those of its companions, its id left out."""
    rows = []
    for g in granules:
        text = json.dumps([g.content, g.stamp.size, g.stamp.mtime_ns, g.stamp.etag])
        rows.append(np.frombuffer(hashlib.blake2b(text.encode(), digest_size=16).digest(), np.uint8))
    return np.stack(rows) if rows else np.zeros((0, 16), np.uint8)


@dataclass(frozen=True, slots=True)
class ArrayPlan:
    """One array of a rechunk.

    Parameters
    ----------
    array
        What is read.
    layout
        What is written.
    tasks
        By whom.
    digests
        uint8 (n, 16): see :func:`content_digests`, a row for each placement.
    attempts
        int32 (n,): scan attempt of each placement's granule.
    """

    array: CombinedArray
    layout: TargetLayout
    tasks: TaskPlan
    digests: NDArray[np.uint8]
    attempts: NDArray[np.int32]

    def __post_init__(self) -> None:
        n = len(self.array.placements)
        if self.digests.shape != (n, 16) or self.attempts.shape != (n,):
            raise ValueError(f"{self.layout.path}: {n} placements, {len(self.digests)} digests, {len(self.attempts)} attempts")

    def placed(self, start: Sequence[int], stop: Sequence[int]) -> slice | NDArray[np.intp]:
        """The placements that touch a region."""
        placements = self.array.placements
        if placements.is_tiled:
            return placements.touching(tuple(start), tuple(stop))
        axis = placements.axis
        if axis is None:
            return slice(0, len(placements))
        return placements.overlapping(start[axis], stop[axis])

    def sources(self, start: Sequence[int], stop: Sequence[int]) -> list[tuple[int, int]]:
        """(granule id, attempt id) of the granules that touch a region, each once."""
        part = self.placed(start, stop)
        ids = self.array.placements.granule_id[part].tolist()
        return list(dict.fromkeys(zip(ids, self.attempts[part].tolist(), strict=True)))

    def base(self) -> bytes:
        """Digest of what decides the bytes of every task alike."""
        lay = self.layout
        parts = [lay.path, str(lay.dtype), lay.chunk, lay.shard, lay.codecs.to_json(), lay.fill.hex()]
        gap = self.array.attributes.get("_FillValue")  # what places without a granule read as
        whole: list[object] = [parts, encoder_versions(lay.codecs), None if gap is None else gap.to_json()]
        array = self.array
        if array.inner != array.path or array.new_axes:
            whole.append([array.inner, array.new_axes])
        if lay.sizes:
            whole.append(["sizes", lay.sizes])
        if lay.rounding is not None:
            kept = array.attributes.get("missing_value")  # beside _FillValue and the fill, what rounding leaves alone
            whole.append(["rounding", lay.rounding.to_json(), None if kept is None else kept.to_json()])
        if array.fixed:
            whole.append(["fixed", array.fixed])
        if array.picked is not None:
            whole.append(array.to_json())
        if self.tasks.copies:
            whole.append(["copies", array.codecs.to_json()])
        text = json.dumps(whole)
        return hashlib.blake2b(text.encode(), digest_size=16).digest()

    def fingerprint(self, start: Sequence[int], stop: Sequence[int], base: bytes) -> str:
        """Hash of what decides the bytes of one region; ``base`` from :meth:`base`."""
        h = hashlib.blake2b(base, digest_size=16)
        h.update(np.array([start, stop], np.int64).tobytes())
        self._update(h, self.placed(start, stop))
        return h.hexdigest()

    def _update(self, h: hashlib.blake2b, part: slice | NDArray[np.intp]) -> None:
        p = self.array.placements
        h.update(str(p.axis).encode())
        for column in (p.src_offset, p.count, p.dest):
            h.update(np.ascontiguousarray(column[part], "<i8").tobytes())
        h.update(np.ascontiguousarray(self.digests[part]).tobytes())
        if p.is_tiled:  # places, not their numbers: a tile more changes no others
            tile = p.tile if len(p.tile) else np.zeros(len(p), np.int32)
            h.update(np.ascontiguousarray(_tile_numbers(p)[tile[part]], "<i8").tobytes())
        if any(r is not None for r in self.array.recodes):
            texts = [json.dumps(None if r is None else r.to_json()).encode() for r in self.array.recodes]
            known = [np.frombuffer(hashlib.blake2b(t, digest_size=16).digest(), np.uint8) for t in texts]
            h.update(np.ascontiguousarray(np.stack(known)[p.variant[part]]).tobytes())


def _tile_numbers(placements: Placements) -> NDArray[np.int64]:
    """int64 (tiles, 3, rank): source offsets, counts and destinations."""
    rank = len(placements.tiles[0].dest) if placements.tiles else 0
    rows = [[t.src_offset, t.count, t.dest] for t in placements.tiles]
    return np.array(rows, np.int64).reshape(len(rows), 3, rank)


def _tiles(numbers: NDArray[np.int64]) -> tuple[Tile, ...]:
    """Back from :func:`_tile_numbers`."""
    return tuple(Tile(*(tuple(row) for row in rows)) for rows in numbers.tolist())


@dataclass(frozen=True, slots=True)
class RechunkPlan:
    """All tasks of one output, numbered array by array.

    Parameters
    ----------
    output
        Which output of the config, by position.
    target
        ``place:key`` of the store's root.
    arrays
        In the order of their tasks.
    """

    output: int
    target: str
    arrays: tuple[ArrayPlan, ...]

    @property
    def n_tasks(self) -> int:
        """Tasks in all."""
        return sum(a.tasks.n_tasks for a in self.arrays)

    @property
    def memory(self) -> int:
        """Bytes that the largest task takes at most, above an idle process."""
        return max((a.tasks.memory for a in self.arrays), default=0)

    @property
    def nbytes(self) -> int:
        """Raw bytes of all arrays."""
        return sum(int(np.prod(a.layout.shape, dtype=object)) * a.layout.dtype.itemsize for a in self.arrays)

    def locate(self, index: int) -> tuple[ArrayPlan, int]:
        """The array of a task and the task's number within it."""
        for a, first in self.offsets():
            if first <= index < first + a.tasks.n_tasks:
                return a, index - first
        raise IndexError(f"the plan has tasks 0 to {self.n_tasks - 1}, not {index}")

    def offsets(self) -> Iterator[tuple[ArrayPlan, int]]:
        """Each array and the number of its first task."""
        first = 0
        for a in self.arrays:
            yield a, first
            first += a.tasks.n_tasks

    def task(self, index: int) -> Task:
        """A task by its number in the plan."""
        a, local = self.locate(index)
        return self.task_of(a, local, a.base())

    def task_of(self, a: ArrayPlan, local: int, base: bytes) -> Task:
        """A task by array and number within it; ``base`` is the array's, computed once by who asks for many."""
        start, stop = a.tasks.bounds(local)
        if a.tasks.shuffle is None or local < a.tasks.n_regions:
            return Task(self.output, a.layout.path, local, start, stop, a.fingerprint(start, stop, base))
        cut = base + bytes.fromhex(a.tasks.shuffle.digest)
        return Task(self.output, a.layout.path, local, start, stop, a.fingerprint(start, stop, cut), 1)

    @property
    def fingerprint(self) -> str:
        """Of the run: layouts, sources and encoders, without regions."""
        h = hashlib.blake2b(digest_size=16)
        h.update(self.target.encode())
        for a in self.arrays:
            h.update(a.base())
            h.update(a.layout.to_json().encode())
            a._update(h, slice(0, len(a.array.placements)))
        return h.hexdigest()


def resumed_plan(plan: RechunkPlan, saved: RechunkPlan | None, memory: int) -> RechunkPlan:
    """The plan with the tasks that an earlier run of the same content had, so that its receipts go on counting.

    Parameters
    ----------
    plan
        As planned now: perhaps with other regions, since memory or workers changed.
    saved
        From :func:`load_plan`.
    memory
        Bytes of a task now: tasks that would not fit are planned anew, and what was done is done again.
    """
    if saved is None or saved.fingerprint != plan.fingerprint or saved.memory > memory:
        return plan
    pairs = zip(plan.arrays, saved.arrays, strict=True)
    return replace(plan, arrays=tuple(replace(now, tasks=then.tasks) for now, then in pairs))


def write_plan(store: Store, key: str, plan: RechunkPlan) -> None:
    """Write a plan under a run's folder; ``plan.json`` last, so that a plan is there whole or not at all."""
    columns: dict[str, NDArray[np.generic]] = {}
    names: dict[bytes, str] = {}
    entries = []
    for a in plan.arrays:
        p = a.array.placements
        mine = {name: getattr(p, name) for name in _COLUMNS}
        mine |= {"tiles": _tile_numbers(p), "digests": a.digests, "attempts": a.attempts}
        text = b"".join(str(c.shape).encode() + np.ascontiguousarray(c).tobytes() for c in mine.values())
        content = hashlib.blake2b(text).digest()
        if content not in names:
            names[content] = f"p{len(names)}"
            columns.update({f"{names[content]}.{k}": v for k, v in mine.items()})
        entries.append(
            {
                "array": a.array.to_json(),
                "layout": a.layout.to_json(),
                "tasks": a.tasks.to_json(),
                "axis": p.axis,
                "placements": names[content],
            }
        )
    buffer = io.BytesIO()
    save: Callable[..., None] = np.savez
    save(buffer, **columns)
    store.put(f"{key}/placements.npz", buffer.getvalue())
    document = {
        "version": _VERSION,
        "fingerprint": plan.fingerprint,
        "output": plan.output,
        "target": plan.target,
        "arrays": entries,
    }
    store.put(f"{key}/plan.json", json.dumps(document, ensure_ascii=False).encode())


def load_plan(store: Store, key: str) -> RechunkPlan | None:
    """Read a plan back; None where the run has none yet.

    Raises
    ------
    TableError
        The files are of another version or do not belong together.
    """
    try:
        document = json.loads(store.get(f"{key}/plan.json"))
    except StorageError as error:
        if error.kind == "not-found":
            return None
        raise
    if document["version"] != _VERSION:
        raise TableError(
            f"{store.url}/{key}/plan.json has version {document['version']}, this drystone writes {_VERSION}; "
            "finish the run with the version that began it, or start a new run",
            kind="plan-version",
        )
    arrays = []
    with np.load(io.BytesIO(store.get(f"{key}/placements.npz")), allow_pickle=False) as columns:
        for entry in document["arrays"]:
            name = entry["placements"]
            part = {c: columns[f"{name}.{c}"] for c in (*_COLUMNS, "tiles", "digests", "attempts")}
            digests, attempts, tiles = part.pop("digests"), part.pop("attempts"), _tiles(part.pop("tiles"))
            array = CombinedArray.from_json(entry["array"], Placements(entry["axis"], **part, tiles=tiles))
            arrays.append(
                ArrayPlan(array, TargetLayout.from_json(entry["layout"]), TaskPlan.from_json(entry["tasks"]), digests, attempts)
            )
    plan = RechunkPlan(document["output"], document["target"], tuple(arrays))
    if plan.fingerprint != document["fingerprint"]:
        raise TableError(
            f"{store.url}/{key}: plan.json and placements.npz do not belong together, or another encoder version began the run "
            f"(fingerprint {document['fingerprint']}, now {plan.fingerprint}); start a new run",
            kind="plan-fingerprint",
        )
    return plan

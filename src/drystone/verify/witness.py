"""A program that compares a published form with its granules, and shares no code with what wrote it.

It runs as ``python -I witness.py job.json``, in a process of its own. The first thing it does is to forbid the import of
drystone (:func:`seal`), the last is to prove that none was imported. Its helpers (``boxes``, ``compare``, ``readers``,
``granules``) import nothing of drystone's either and are loaded by their path.

A line of JSON on standard output for progress, and the report in the file that the job names. Memory is bounded by a few
slabs, or by two published chunks where those are larger.
"""

from __future__ import annotations

import bisect
import importlib.abc
import importlib.metadata
import importlib.util
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

_OWN = "drystone_ledger/"  # a form's own record of what it was made from, no data of any granule


class _Forbidden(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname.partition(".")[0] == "drystone":
            raise ImportError("the witness shares no code with drystone")


def seal() -> None:
    """Forbid the import of drystone."""
    sys.meta_path.insert(0, _Forbidden())


def breaches() -> list[str]:
    """Modules of drystone that were imported all the same."""
    return sorted(n for n in sys.modules if n.partition(".")[0] == "drystone")


def _sibling(name: str) -> ModuleType:
    """A helper beside this file, loaded without its package."""
    known = f"_witness_{name}"
    if known not in sys.modules:
        spec = importlib.util.spec_from_file_location(known, Path(__file__).with_name(f"{name}.py"))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[known] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[known]


if TYPE_CHECKING:
    from drystone.verify import boxes, compare, granules, readers
else:
    if __name__ == "__main__":
        seal()
    boxes, compare, readers = _sibling("boxes"), _sibling("compare"), _sibling("readers")
    granules = _sibling("granules")  # after readers, which it asks for


@dataclass
class _Tally:
    """What was found of one array so far."""

    total: int = 0
    cells: int = 0
    boxes: int = 0
    mismatches: int = 0
    first: dict[str, Any] | None = None
    problems: list[str] = field(default_factory=list)


@dataclass
class _Progress:
    """Says how many cells were compared, at most five times a second."""

    cells: int = 0
    told: float = 0.0

    def advance(self, cells: int, force: bool = False) -> None:
        self.cells += cells
        now = time.monotonic()
        if self.cells and (force or now - self.told > 0.2):
            print(json.dumps({"cells": self.cells}), flush=True)
            self.cells, self.told = 0, now


@dataclass(frozen=True)
class _Piece:
    """A part of a box that one granule holds, or none (``granule`` None)."""

    start: tuple[int, ...]
    stop: tuple[int, ...]
    granule: str | None
    shift: tuple[int, ...]  # published index minus index in the granule


class _ReadError(Exception):
    """A reader failed on a box of the published array."""

    def __init__(self, box: boxes.Box, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.start, self.stop = box


class Witness:
    """One job.

    Parameters
    ----------
    job
        As ``drystone.verify.run`` writes it.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        self._sources = granules.Sources(job["options"])
        self._progress = _Progress()

    def run(self) -> dict[str, Any]:
        """The report as plain JSON."""
        job = self._job
        begin = time.monotonic()
        root = readers.open_published(job["form"], job["location"], job["options"], job["version"])
        arrays = [{"path": a["path"], **vars(self._array(root, a))} for a in job["arrays"]]
        self._progress.advance(0, force=True)
        asked = {a["path"].strip("/") for a in job["arrays"]}
        import zarr

        held = [name for name, node in root.members(max_depth=None) if isinstance(node, zarr.Array)]
        return {
            "form": job["form"],
            "location": job["location"],
            "mode": job["mode"],
            "share": job["share"],
            "seed": job["seed"],
            "seconds": round(time.monotonic() - begin, 3),
            "libraries": _libraries(),
            "arrays": arrays,
            "unverified": sorted(f"/{n}" for n in held if n not in asked and not n.startswith(_OWN)),
        }

    def _array(self, root: Any, spec: dict[str, Any]) -> _Tally:  # noqa: ANN401  zarr is not imported yet
        tally = _Tally(total=math.prod(spec["shape"]))
        node = root.get(spec["path"].strip("/"))
        if getattr(node, "shape", None) is None:
            tally.problems.append("the published form has no such array")
            return tally
        shape = tuple(spec["shape"])
        if node.shape != shape:
            tally.problems.append(f"published with the shape {node.shape}, not {shape}")
            return tally
        tally.problems.extend(self._meaning(node, spec))
        try:
            for start, stop, values in _ahead(node, self._boxes(node, spec)):
                self._box(spec, start, stop, values, tally)
        except (readers.Unreadable, compare.Incomparable) as error:
            tally.problems.append(str(error))
        except _ReadError as error:
            names = {p.granule: None for p in self._pieces(spec, error.start, error.stop, 1) if p.granule is not None}
            of = f", values of {', '.join(list(names)[:3])}{' and more' * (len(names) > 3)}" if names else ""
            tally.problems.append(f"the published array cannot be read from {error.start} to {error.stop}{of}: {error}")
        return tally

    def _meaning(self, node: Any, spec: dict[str, Any]) -> Iterator[str]:  # noqa: ANN401  as above
        """Dimension names and attributes that change what values mean."""
        attributes = dict(node.attrs)
        dims = getattr(node.metadata, "dimension_names", None) or attributes.get("_ARRAY_DIMENSIONS") or []
        if list(dims) != spec["dims"] and spec["shape"]:
            yield f"published with the dimensions {list(dims)}, not {spec['dims']}"
        placed = self._job["placements"][spec["placements"]]
        if placed["granule"]:
            granule = self._job["granules"][str(placed["granule"][0])]
            try:
                stored = self._sources.attributes(granule, spec["path"])
                yield from compare.coding_problems(attributes, stored, spec["unkept"])
            except readers.Unreadable as error:
                yield str(error)

    def _boxes(self, node: Any, spec: dict[str, Any]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:  # noqa: ANN401 - arrays of several libraries
        job = self._job
        placed = job["placements"][spec["placements"]]
        layout = boxes.Layout(node.shape, _chunk(node), _itemsize(node), placed["axis"], placed["dest"], placed["count"])
        if job["mode"] == "full":
            return boxes.slabs(layout, job["slab_bytes"])
        return iter(boxes.sample(layout, job["share"], job["seed"], spec["path"], job["slab_bytes"]))

    def _box(
        self, spec: dict[str, Any], start: tuple[int, ...], stop: tuple[int, ...], published: compare.Array, tally: _Tally
    ) -> None:
        tally.boxes += 1
        for piece in self._pieces(spec, start, stop, published.dtype.itemsize):
            # the Ellipsis keeps an array where a scalar would come out
            box: Any = (*(slice(a - s, b - s) for a, b, s in zip(piece.start, piece.stop, start, strict=True)), ...)
            ours = published[box]
            theirs = self._theirs(spec, piece, ours)
            wrong = compare.differs(ours, theirs)
            tally.cells += wrong.size
            self._progress.advance(wrong.size)
            count = int(wrong.sum())
            tally.mismatches += count
            if count and tally.first is None:
                tally.first = _first(piece, ours, theirs, wrong)

    def _theirs(self, spec: dict[str, Any], piece: _Piece, ours: compare.Array) -> compare.Array:
        if piece.granule is None:
            return _gap(spec["fill"], ours)
        at = [[v - s for v, s in zip(corner, piece.shift, strict=True)] for corner in (piece.start, piece.stop)]
        values = compare.native(self._sources.read(piece.granule, spec["path"], at[0], at[1]))
        if values.shape != ours.shape:
            raise readers.Unreadable(f"{piece.granule}, {spec['path']}: read {values.shape} where {ours.shape} was asked for")
        return values

    def _pieces(self, spec: dict[str, Any], start: tuple[int, ...], stop: tuple[int, ...], itemsize: int) -> Iterator[_Piece]:
        """The box cut at granules and gaps, and again so that a piece fits in a slab."""
        placed = self._job["placements"][spec["placements"]]
        axis = placed["axis"]
        if axis is None:
            name = self._job["granules"][str(placed["granule"][0])]
            whole = _Piece(start, stop, name, (0,) * len(start))
            yield from _thin(whole, self._job["slab_bytes"], itemsize)
            return
        for low, high, i in _spans(placed["dest"], placed["count"], start[axis], stop[axis]):
            shift = [0] * len(start)
            name = None
            if i is not None:
                shift[axis] = placed["dest"][i] - placed["src"][i]
                name = self._job["granules"][str(placed["granule"][i])]
            a = (*start[:axis], low, *start[axis + 1 :])
            b = (*stop[:axis], high, *stop[axis + 1 :])
            yield from _thin(_Piece(a, b, name, tuple(shift)), self._job["slab_bytes"], itemsize)


def _ahead(node: Any, chosen: Iterator[boxes.Box]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], compare.Array]]:  # noqa: ANN401 - as above
    """Boxes with their published values, the next one read while this one is compared."""

    def read(box: boxes.Box) -> compare.Array:
        try:
            return compare.native(readers.read_box(node, tuple(slice(a, b) for a, b in zip(*box, strict=True))))
        except Exception as error:  # whatever a reader raises on a published chunk is a finding
            raise _ReadError(box, error) from error

    with ThreadPoolExecutor(1) as pool:
        box = next(chosen, None)
        pending = None if box is None else pool.submit(read, box)
        while box is not None and pending is not None:
            values = pending.result()
            following = next(chosen, None)
            pending = None if following is None else pool.submit(read, following)
            yield *box, values
            box = following


def _spans(dest: Sequence[int], count: Sequence[int], start: int, stop: int) -> Iterator[tuple[int, int, int | None]]:
    """Runs of [start, stop) with the placement that holds them, or None for a gap."""
    at = start
    for i in range(max(0, bisect.bisect_right(dest, start) - 1), len(dest)):
        if dest[i] >= stop:
            break
        low, high = max(at, dest[i]), min(stop, dest[i] + count[i])
        if high <= low:
            continue
        if low > at:
            yield at, low, None
        yield low, high, i
        at = high
    if at < stop:
        yield at, stop, None


def _thin(piece: _Piece, budget: int, itemsize: int) -> Iterator[_Piece]:
    spans = [b - a for a, b in zip(piece.start, piece.stop, strict=True)]
    if math.prod(spans) * itemsize <= budget or not spans:
        yield piece
        return
    d = max(range(len(spans)), key=lambda k: (spans[k] > 1, -k))  # the slowest axis that can be cut
    if spans[d] < 2:
        yield piece
        return
    step = max(1, budget // max(1, math.prod(spans) // spans[d] * itemsize))
    for a in range(piece.start[d], piece.stop[d], step):
        start = (*piece.start[:d], a, *piece.start[d + 1 :])
        stop = (*piece.stop[:d], min(a + step, piece.stop[d]), *piece.stop[d + 1 :])
        yield from _thin(_Piece(start, stop, piece.granule, piece.shift), budget, itemsize)


def _gap(fill: str | None, like: compare.Array) -> compare.Array:
    """What cells that no granule covers must read as."""
    import numpy as np

    if like.dtype.kind == "O":
        out = np.empty(like.shape, object)
        out.reshape(-1)[:] = [b""] * like.size
        return out
    data = bytes.fromhex(fill) if fill else bytes(like.dtype.itemsize)
    if len(data) != like.dtype.itemsize:
        raise compare.Incomparable(f"published as {like.dtype}, and the fill value has {len(data)} bytes")
    return np.broadcast_to(np.frombuffer(data, like.dtype, 1).reshape((1,) * like.ndim), like.shape)


def _first(piece: _Piece, ours: compare.Array, theirs: compare.Array, wrong: compare.Array) -> dict[str, Any]:
    import numpy as np

    local = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape)) if wrong.ndim else ()
    index = tuple(a + i for a, i in zip(piece.start, local, strict=True))
    source = None if piece.granule is None else tuple(i - s for i, s in zip(index, piece.shift, strict=True))
    return {
        "index": index,
        "published": compare.show(ours[local]),
        "source": compare.show(theirs[local]),
        "granule": piece.granule,
        "source_index": source,
    }


def _chunk(node: Any) -> tuple[int, ...]:  # noqa: ANN401  zarr is not imported yet
    """The chunk that costs one decoding; of a rectilinear axis the largest."""
    try:
        return tuple(node.chunks)
    except NotImplementedError:
        return tuple(max(sizes, default=1) for sizes in node.read_chunk_sizes)


def _itemsize(node: Any) -> int:  # noqa: ANN401  as above
    return max(1, int(getattr(node.dtype, "itemsize", 16)))


def _libraries() -> list[list[str]]:
    found = [n for n in ("zarr", "icechunk", "fsspec", "h5py", "netCDF4", "numpy", "numcodecs") if n in sys.modules]
    return [["python", sys.version.split()[0]], *([n, importlib.metadata.version(n)] for n in found)]


def main(path: str) -> int:
    """Run a job file; 0 where a report was written, whatever it says."""
    job = json.loads(Path(path).read_text(encoding="utf-8"))
    sys.path.extend(p for p in job["paths"] if p not in sys.path)
    # external raw data lies beside the granule, not beside this process
    os.environ.setdefault("HDF5_EXTFILE_PREFIX", "${ORIGIN}")
    result: dict[str, Any]
    try:
        result = Witness(job).run()
    except readers.Unreadable as error:
        result = {"failed": str(error)}
    except ModuleNotFoundError as error:
        result = {"missing": str(error.name)}
    if breaches():
        result = {"failed": f"drystone was imported: {', '.join(breaches())}"}
    Path(job["result"]).write_text(json.dumps(result), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

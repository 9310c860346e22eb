"""A program that compares a published form with its granules, and shares no code with what wrote it.

It runs as ``python -I witness.py job.json``, in a process of its own. The first thing it does is to forbid the import of
drystone (:func:`seal`), the last is to prove that none was imported. Its helpers (``boxes``, ``pieces``, ``picks``,
``compare``, ``meaning``, ``instants``, ``subject``, ``made``, ``labels``, ``readers``, ``granules``, ``cropping``) import
nothing of drystone's either and are loaded by their path.

Where all granules of an array are coded alike, published values are theirs bit for bit, and each granule that is looked at
must have the coding attributes that are published. Where they are not, each side is decoded by its own attributes.

A line of JSON on standard output for progress, and the report in the file that the job names. Memory is bounded by a few
slabs, or by two published chunks where those are larger.
"""

from __future__ import annotations

import importlib.abc
import importlib.metadata
import importlib.util
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
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
    from drystone.verify import boxes, compare, granules, made, meaning, picks, pieces, readers, subject
else:
    if __name__ == "__main__":
        seal()
    boxes, compare, readers, pieces = (_sibling(n) for n in ("boxes", "compare", "readers", "pieces"))
    _sibling("instants")
    # after those that they ask for
    granules, meaning, subject, picks = (_sibling(n) for n in ("granules", "meaning", "subject", "picks"))
    _sibling("labels")
    made = _sibling("made")


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
        self._codings = subject.Codings(self._sources, job["accepted"])
        self._progress = _Progress()
        self._placed = [pieces.Placed(columns, job["granules"]) for columns in job["placements"]]

    def run(self) -> dict[str, Any]:
        """The report as plain JSON."""
        job = self._job
        begin = time.monotonic()
        _sibling("cropping").register()
        root = readers.open_published(job["form"], job["location"], job["options"], job["version"])
        arrays = [
            {
                "path": a["path"],
                "by_meaning": a["meaning"],
                "loss": "; ".join(a["loss"]["how"]) if a["loss"] else "",
                **vars(self._array(root, a)),
            }
            for a in job["arrays"]
        ]
        for spec in job["made"]:
            tally = made.check(root, spec, job, self._sources, self._codings)
            wrong = bool(tally.mismatches or tally.problems)
            if wrong or (spec["made"] and spec["rule"] is not None):
                arrays.append({"path": spec["path"], "by_meaning": True, **vars(tally)})
                self._progress.advance(tally.cells)
        self._progress.advance(0, force=True)
        asked = {a["path"].strip("/") for a in (*job["arrays"], *job["made"])}
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
            "made": [a["path"] for a in job["made"] if a["rule"] is None],
        }

    def _array(self, root: Any, spec: dict[str, Any]) -> subject.Tally:  # noqa: ANN401  zarr is not imported yet
        tally = subject.Tally(total=math.prod(spec["shape"]))
        node = subject.node_of(root, spec)
        tally.problems.extend(subject.form_problems(node, spec))
        if node is None or node.shape != tuple(spec["shape"]):
            return tally
        side, parent = subject.published(root, node, spec)
        picked = None if spec["picked"] is None else picks.Picks(spec["picked"])
        one = subject.Subject(spec, self._placed[spec["placements"]], tally, side, parent, picked)
        for granule in spec["firsts"]:
            try:
                self._codings.of(one, self._job["granules"][str(granule)])
            except readers.Unreadable as error:
                one.problem(str(error))
        try:
            for start, stop, values in _ahead(node, self._boxes(node, one)):
                self._box(one, start, stop, values)
        except (readers.Unreadable, compare.Incomparable) as error:
            one.problem(str(error))
        except _ReadError as error:
            around = (error.start, error.stop) if one.picks is None else one.picks.around(error.start, error.stop)
            names = {p.granule: None for p in one.placed.pieces(*around)}
            of = f", values of {', '.join(list(names)[:3])}{' and more' * (len(names) > 3)}" if names else ""  # type: ignore[arg-type]
            one.problem(f"the published array cannot be read from {error.start} to {error.stop}{of}: {error}")
        return tally

    def _boxes(self, node: Any, one: subject.Subject) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:  # noqa: ANN401 - arrays of several libraries
        job, spec = self._job, one.spec
        layout = boxes.Layout(node.shape, _chunk(node), _itemsize(node))
        if one.picks is None:
            columns = job["placements"][spec["placements"]]
            layout = replace(
                layout, axis=columns["axis"], dest=columns["dest"], count=columns["count"], tiles=one.placed.tiles()
            )
        if job["mode"] == "full":
            return boxes.slabs(layout, job["slab_bytes"])
        return iter(boxes.sample(layout, job["share"], job["seed"], spec["path"], job["slab_bytes"]))

    def _box(self, one: subject.Subject, start: tuple[int, ...], stop: tuple[int, ...], published: compare.Array) -> None:
        one.tally.boxes += 1
        budget, size = self._job["slab_bytes"], published.dtype.itemsize
        if one.picks is None:
            bare = self._placed_parts(one, start, stop, published)
        else:
            bare = self._picked_parts(one, one.picks, start, stop, published)
        if bare is None:
            return
        for piece in pieces.thin(pieces.Piece(start, stop, None, (0,) * len(start)), budget, size):
            box = _within(piece, start)
            cells = int(bare[box].sum())
            if cells:
                ours = published[box]
                theirs, wrong = self._gap(one, piece, ours)
                self._count(one, subject.Origin.of(piece, one), ours, theirs, wrong & bare[box], cells)

    def _placed_parts(
        self, one: subject.Subject, start: tuple[int, ...], stop: tuple[int, ...], published: compare.Array
    ) -> compare.Array | None:
        """Compare what granules hold of a box; the cells that none does."""
        held = list(one.placed.pieces(start, stop))
        budget, size = self._job["slab_bytes"], published.dtype.itemsize
        for piece in (part for whole in held for part in pieces.thin(whole, budget, size)):
            ours = published[_within(piece, start)]
            theirs = self._theirs(one, piece).reshape(ours.shape)
            self._count(one, subject.Origin.of(piece, one), ours, theirs, self._differs(one, piece, ours, theirs), ours.size)
        return pieces.uncovered(start, stop, held)

    def _picked_parts(
        self, one: subject.Subject, chosen: picks.Picks, start: tuple[int, ...], stop: tuple[int, ...], published: compare.Array
    ) -> compare.Array | None:
        """The same of an array that takes places of another one."""
        import numpy as np

        bare = np.ones(published.shape, bool)
        for part in chosen.parts(one.placed, start, stop, max(1, self._job["slab_bytes"] // max(1, published.dtype.itemsize))):
            where = part.within(start)
            ours = published[where]
            theirs = self._theirs(one, part.piece)[part.taken()].reshape(ours.shape)
            self._count(
                one, subject.Origin.picked(part, one), ours, theirs, self._differs(one, part.piece, ours, theirs), ours.size
            )
            bare[where] = False
        return bare if bare.any() else None

    def _differs(self, one: subject.Subject, piece: pieces.Piece, ours: compare.Array, theirs: compare.Array) -> compare.Array:
        mine, their = one.published.coding, self._codings.of(one, str(piece.granule))
        loss = one.spec["loss"]
        bound = (0.0, 0.0) if loss is None else (loss["relative"], loss["absolute"])
        if one.spec["meaning"]:
            return meaning.differs(ours, mine, theirs, their, bound)
        wrong = compare.differs(ours, theirs)
        if loss is not None:
            wrong[wrong] = ~meaning.within(ours[wrong], mine, theirs[wrong], their, bound)
        if mine.clock != their.clock and mine.clock is not None and their.clock is not None:
            wrong = wrong | meaning.differs(ours, mine, theirs, their)  # one number, and maybe two dates
        return wrong

    def _count(
        self,
        one: subject.Subject,
        origin: subject.Origin,
        ours: compare.Array,
        theirs: compare.Array,
        wrong: compare.Array,
        cells: int,
    ) -> None:
        tally = one.tally
        tally.cells += cells
        self._progress.advance(cells)
        count = int(wrong.sum())
        tally.mismatches += count
        if count and tally.first is None:
            tally.first = _first(origin, ours, theirs, wrong)

    def _theirs(self, one: subject.Subject, piece: pieces.Piece) -> compare.Array:
        """What a granule holds of a piece, in the piece's shape."""
        inner, new = one.spec["inner"], set(one.spec["new_axes"])
        at = [[v - s for v, s in zip(corner, piece.shift, strict=True)] for corner in (piece.start, piece.stop)]
        if any(at[0][d] != 0 or at[1][d] != 1 for d in new):
            raise readers.Unreadable(f"{piece.granule}, {inner}: it has one place on a new axis, {at[0]} to {at[1]} was placed")
        own = [subject.own_places(one.spec, corner, extent) for extent, corner in enumerate(at)]
        shape = tuple(b - a for a, b in zip(*own, strict=True))
        values = compare.native(self._sources.read(str(piece.granule), inner, own[0], own[1]))
        if values.shape != shape:
            raise readers.Unreadable(f"{piece.granule}, {inner}: read {values.shape} where {shape} was asked for")
        return values.reshape([b - a for a, b in zip(piece.start, piece.stop, strict=True)])

    def _gap(self, one: subject.Subject, piece: pieces.Piece, ours: compare.Array) -> tuple[compare.Array, compare.Array]:
        """What cells that no granule covers must read as, and where they do not."""
        spec = one.spec
        theirs = _gap(spec["fill"], ours, spec["dtype"])
        if not spec["meaning"]:
            return theirs, compare.differs(ours, theirs)
        if spec["gap_missing"]:
            return theirs, ~meaning.missing(ours, one.published.coding)
        if theirs.dtype == ours.dtype:
            return theirs, compare.differs(ours, theirs)
        first = self._codings.of(one, self._job["granules"][str(spec["firsts"][0])])
        return theirs, meaning.differs(ours, one.published.coding, theirs, first)


def _within(piece: pieces.Piece, start: tuple[int, ...]) -> Any:  # noqa: ANN401  an index of NumPy's
    """The piece in an array that begins at ``start``; the Ellipsis keeps an array where a scalar would come out."""
    return (*(slice(a - s, b - s) for a, b, s in zip(piece.start, piece.stop, start, strict=True)), ...)


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


def _gap(fill: str | None, like: compare.Array, dtype: str | None) -> compare.Array:
    """The value of a gap in the shape of what was published; ``dtype`` is that of ``fill`` where it is a number."""
    import numpy as np

    if like.dtype.kind == "O":
        out = np.empty(like.shape, object)
        out.reshape(-1)[:] = [bytes.fromhex(fill or "")] * like.size
        return out
    kind = like.dtype if dtype is None else np.dtype(dtype)
    data = bytes.fromhex(fill) if fill else bytes(kind.itemsize)
    if len(data) != kind.itemsize:
        raise compare.Incomparable(f"published as {like.dtype}, and the fill value has {len(data)} bytes")
    return np.broadcast_to(np.frombuffer(data, kind, 1).reshape((1,) * like.ndim), like.shape)


def _first(origin: subject.Origin, ours: compare.Array, theirs: compare.Array, wrong: compare.Array) -> dict[str, Any]:
    import numpy as np

    local = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape)) if wrong.ndim else ()
    return {
        "index": origin.index(local),
        "published": compare.show(ours[local]),
        "source": compare.show(theirs[local]),
        "granule": origin.granule,
        "source_index": None if origin.granule is None else origin.source(local),
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

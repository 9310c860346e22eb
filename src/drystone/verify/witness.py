"""A program that compares a published form with its granules, and shares no code with what wrote it.

It runs as ``python -I witness.py job.json``, in a process of its own. The first thing it does is to forbid the import of
drystone (:func:`seal`), the last is to prove that none was imported. Its helpers (``boxes``, ``pieces``, ``picks``,
``compare``, ``comparing``, ``digesting``, ``meaning``, ``instants``, ``subject``, ``made``, ``labels``, ``readers``,
``granules``, ``cropping``, and ``digest`` of the grid's) import nothing of drystone's either and are loaded by their path.

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


def _sibling(name: str, folder: str = ".") -> ModuleType:
    """A helper beside this file, or in a folder that is, loaded without its package."""
    known = f"_witness_{name}"
    if known not in sys.modules:
        spec = importlib.util.spec_from_file_location(known, Path(__file__).parent / folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[known] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[known]


if TYPE_CHECKING:
    from drystone.verify import boxes, compare, comparing, digesting, granules, made, picks, pieces, readers, subject
else:
    if __name__ == "__main__":
        seal()
    boxes, compare, readers, pieces = (_sibling(n) for n in ("boxes", "compare", "readers", "pieces"))
    _sibling("instants")
    # after those that they ask for
    granules, _, subject, picks = (_sibling(n) for n in ("granules", "meaning", "subject", "picks"))
    _sibling("labels")
    made, comparing = _sibling("made"), _sibling("comparing")
    _sibling("digest", "../grid")
    digesting = _sibling("digesting")


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
        self._comparison = comparing.Comparison(
            self._sources, self._codings, job["granules"], job["slab_bytes"], self._progress.advance
        )
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
            by_digest = self._job["mode"] == "digest" and digesting.by_digest(one, node.dtype)
            chosen = self._doubtful(node, one) if by_digest else self._boxes(node, one)
            for start, stop, values in _ahead(node, iter(chosen)):
                self._comparison.box(one, start, stop, values)
            if by_digest and chosen and not tally.mismatches:
                one.problem("digests differed, and no cell does: something reads otherwise from one time to the next")
        except (readers.Unreadable, compare.Incomparable) as error:
            one.problem(str(error))
        except _ReadError as error:
            around = (error.start, error.stop) if one.picks is None else one.picks.around(error.start, error.stop)
            names = {p.granule: None for p in one.placed.pieces(*around)}
            of = f", values of {', '.join(list(names)[:3])}{' and more' * (len(names) > 3)}" if names else ""  # type: ignore[arg-type]
            one.problem(f"the published array cannot be read from {error.start} to {error.stop}{of}: {error}")
        return tally

    def _doubtful(self, node: Any, one: subject.Subject) -> list[boxes.Box]:  # noqa: ANN401 - arrays of several libraries
        """Boxes to compare since their digests differ."""
        budget, layout, tally = self._job["slab_bytes"], self._layout(node, one), one.tally
        sums = digesting.digested(_ahead(node, boxes.slabs(layout, budget)), self._comparison, one, layout, budget)
        tally.digest = sums.total(one.spec["dims"])
        doubtful = digesting.doubtful(sums, one, node.shape)
        again = sum(pieces.volume(*box) for box in doubtful)
        tally.cells = tally.total - again
        self._progress.advance(-again)
        whole = (pieces.Piece(start, stop, None, start) for start, stop in doubtful)
        return [(p.start, p.stop) for w in whole for p in pieces.thin(w, budget, layout.itemsize)]

    def _layout(self, node: Any, one: subject.Subject) -> boxes.Layout:  # noqa: ANN401 - as above
        spec = one.spec
        layout = boxes.Layout(node.shape, _chunk(node), _itemsize(node))
        if one.picks is None:
            columns = self._job["placements"][spec["placements"]]
            layout = replace(
                layout, axis=columns["axis"], dest=columns["dest"], count=columns["count"], tiles=one.placed.tiles()
            )
        return layout

    def _boxes(self, node: Any, one: subject.Subject) -> Iterator[boxes.Box]:  # noqa: ANN401 - as above
        job, layout = self._job, self._layout(node, one)
        if job["mode"] != "sample":
            return boxes.slabs(layout, job["slab_bytes"])
        return iter(boxes.sample(layout, job["share"], job["seed"], one.spec["path"], job["slab_bytes"]))


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

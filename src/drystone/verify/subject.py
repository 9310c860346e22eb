"""One array under comparison: both sides' attributes, and what is wrong besides values.

The witness loads this file by its path, so it imports nothing of drystone's.

A granule's coding attributes are looked at the first time a value of it is, so that none whose packing or units are others
passes for one of the first granule's kind. Bounds without units have those of the array that names them as its bounds.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drystone.verify import compare, granules, meaning, picks, pieces, readers
else:
    # the witness's copies beside this one, or the package's
    _here = __name__.removesuffix("subject")
    compare, granules, meaning, pieces, readers = (
        importlib.import_module(_here + n) for n in ("compare", "granules", "meaning", "pieces", "readers")
    )

__all__ = ["Codings", "Origin", "Subject", "Tally", "form_problems", "node_of", "own_places", "published"]

_PROBLEMS = 20  # that are told of one array


@dataclass
class Tally:
    """What was found of one array so far."""

    total: int = 0
    cells: int = 0
    boxes: int = 0
    mismatches: int = 0
    first: dict[str, Any] | None = None
    problems: list[str] = field(default_factory=list)
    digest: str = ""  # of the whole, where it was compared so


@dataclass(frozen=True)
class Side:
    """The published array's type and attributes, and how they say that its numbers are read."""

    dtype: object
    attributes: Mapping[str, object]
    plain: dict[str, Any]
    coding: meaning.Coding


@dataclass
class Subject:
    """One array under comparison."""

    spec: dict[str, Any]
    placed: pieces.Placed
    tally: Tally
    published: Side
    parent: tuple[str, str] | None  # whose units it inherits: in the published form, and within granules
    picks: picks.Picks | None = None  # what it takes of the array that granules are placed in; None: it is that one
    seen: dict[str, meaning.Coding] = field(default_factory=dict)  # granules whose attributes were looked at

    def problem(self, text: str, granule: str | None = None) -> None:
        """Note what is wrong, once, however many granules it is wrong of."""
        found = self.tally.problems
        if any(p.startswith(text) for p in found) or len(found) >= _PROBLEMS:
            return
        found.append(text if granule is None else f"{text} ({granule})")


@dataclass(frozen=True)
class Origin:
    """Where cells that are compared lie: in the published array, and in a granule."""

    granule: str | None
    index: Callable[[tuple[int, ...]], tuple[int, ...]]
    source: Callable[[tuple[int, ...]], tuple[int, ...]]

    @classmethod
    def of(cls, piece: pieces.Piece, one: Subject) -> Origin:
        """Of a box."""

        def index(local: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(a + i for a, i in zip(piece.start, local, strict=True))

        return cls(piece.granule, index, lambda local: cls._own(index(local), piece, one))

    @classmethod
    def picked(cls, part: picks.Part, one: Subject) -> Origin:
        """Of cells that were picked."""

        def index(local: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(int(n[i]) for n, i in zip(part.index, local, strict=True))

        return cls(part.piece.granule, index, lambda local: cls._own(part.source(local), part.piece, one))

    @staticmethod
    def _own(place: tuple[int, ...], piece: pieces.Piece, one: Subject) -> tuple[int, ...]:
        return tuple(own_places(one.spec, [i - s for i, s in zip(place, piece.shift, strict=True)]))


def own_places(spec: Mapping[str, Any], places: Sequence[int], extent: int = 0) -> list[int]:
    """Places within a granule, one an axis of the whole, as one an axis of the granule's own array.

    Axes that it lacks go; those that the whole lacks come in, with the place taken there, plus ``extent``.
    """
    own = [v for d, v in enumerate(places) if d not in spec["new_axes"]]
    for axis, place in spec["fixed"]:  # ascending
        own.insert(axis, place + extent)
    return own


class Codings:
    """How granules' numbers are read.

    Parameters
    ----------
    sources
        The granules.
    accepted
        Attributes of which the first granule's count for all, by the user's own word; the units of times never do.
    """

    def __init__(self, sources: granules.Sources, accepted: Sequence[str]) -> None:
        self._sources = sources
        self._accepted = frozenset(accepted)

    def of(self, subject: Subject, granule: str) -> meaning.Coding:
        """How a granule's numbers are read; the first time, what its attributes say otherwise than the published ones."""
        known = subject.seen.get(granule)
        if known is not None:
            return known
        spec, ours = subject.spec, subject.published
        stored = dict(self._sources.attributes(granule, spec["inner"]))
        published = ours.attributes
        if subject.parent is not None:
            inherited = self._inherited(granule, spec["inner"], subject.parent[1])
            if inherited is None:  # nothing says what they count: no reason to doubt what is published
                inherited = {n: ours.attributes[n] for n in ("units", "calendar") if n in ours.attributes}
            stored = {**inherited, **stored}
        plain = meaning.stored(stored)
        times = " since " in str(ours.plain.get("units")).lower()  # nobody's word makes two dates one
        accepted = self._accepted - {"units"} if times else self._accepted
        for text in meaning.problems(
            published, ours.plain, stored, plain, ours.dtype, spec["unkept"], spec["meaning"], accepted
        ):
            subject.problem(text, granule)
        subject.seen[granule] = coding = meaning.Coding.of(plain)
        return coding

    def _inherited(self, granule: str, inner: str, likely: str) -> dict[str, object] | None:
        """Units and calendar of the array that bounds belong to, in one granule; None where none is known to be it."""
        name = inner.rpartition("/")[2]
        found: Mapping[str, object] | None = None
        try:
            found = self._sources.attributes(granule, likely)
        except readers.Unreadable:
            found = None
        if found is None or not _bounded_by(found, name):
            siblings = self._sources.siblings(granule, inner)
            found = next((attributes for _, attributes in siblings if _bounded_by(attributes, name)), found)
        return None if found is None else {n: found[n] for n in ("units", "calendar") if n in found}


def node_of(root: Any, spec: dict[str, Any]) -> Any:  # noqa: ANN401  zarr is not imported yet
    """The published array, or None."""
    node = root.get(spec["path"].strip("/"))
    return None if getattr(node, "shape", None) is None else node


def form_problems(node: Any, spec: dict[str, Any]) -> Iterator[str]:  # noqa: ANN401  as above
    """What is wrong of an array besides its values: presence, shape, names of dimensions."""
    if node is None:
        yield "the published form has no such array"
        return
    if node.shape != tuple(spec["shape"]):
        yield f"published with the shape {node.shape}, not {tuple(spec['shape'])}"
        return
    dims = getattr(node.metadata, "dimension_names", None) or dict(node.attrs).get("_ARRAY_DIMENSIONS") or []
    if list(dims) != spec["dims"] and spec["shape"]:
        yield f"published with the dimensions {list(dims)}, not {spec['dims']}"
    if spec.get("loss") and not dict(node.attrs).get("precision_loss"):
        yield "its values may be off, and no attribute precision_loss says so"


def _bounded_by(attributes: Mapping[str, object], name: str) -> bool:
    return any(n in attributes and compare.text(attributes[n]).strip() == name for n in ("bounds", "climatology"))


def published(root: Any, node: Any, spec: dict[str, Any]) -> tuple[Side, tuple[str, str] | None]:  # noqa: ANN401  as above
    """The published side, with the units of the array whose bounds it holds where it has none of its own.

    Granules may lack them where the published form has them, so the array is named in any case.
    """
    attributes: dict[str, object] = dict(node.attrs)
    parent = None
    for path, inner in spec["parents"]:
        other = node_of(root, {"path": path})
        if other is not None and _bounded_by(dict(other.attrs), spec["path"].rpartition("/")[2]):
            parent = (path, inner)
            attributes = {**{n: other.attrs[n] for n in ("units", "calendar") if n in other.attrs}, **attributes}
            break
    plain = meaning.published(attributes, node.dtype)
    return Side(node.dtype, attributes, plain, meaning.Coding.of(plain)), parent

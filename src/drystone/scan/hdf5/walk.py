"""Every object of a file, once, by its address: hard links may form cycles and give one dataset many names.

The walk opens each object and reads its attributes; it follows no soft and no external link, but lists them: a further
name of an array as a refusal, since whoever looks for it by that name will not find it, others as warnings.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from h5py import h5, h5d, h5g, h5l, h5o

from drystone.errors import ScanError
from drystone.model.chunk_rows import Refusal
from drystone.scan.hdf5.attributes import LIBRARY_ERRORS, ObjectAttributes, read_attributes
from drystone.scan.hdf5.heap import GlobalHeap
from drystone.scan.hdf5.opening import NeedsLibrary, OpenFile
from drystone.scan.hdf5.plain_objects import PlainDataset, Told

__all__ = ["ExternalLink", "FoundDataset", "FoundGroup", "Walk", "walk"]

MAX_OBJECTS = 1_000_000


@dataclass(frozen=True, slots=True)
class FoundGroup:
    """A group, ``path`` without a trailing slash but for the root."""

    path: str
    attributes: ObjectAttributes


@dataclass(frozen=True, slots=True)
class FoundDataset:
    """A dataset under its first name; ``header`` is its address from the file's base.

    It has the library's ``handle``, or, where the library was not asked, ``plain``, what its header says, and ``told``, what
    headers of its form mean.
    """

    path: str
    group: str
    handle: h5d.DatasetID | None
    header: int
    attributes: ObjectAttributes
    plain: PlainDataset | None = None
    told: Told | None = None

    @property
    def dsid(self) -> h5d.DatasetID:
        """The library's handle.

        Raises
        ------
        NeedsLibrary
            There is none.
        """
        if self.handle is None:
            raise NeedsLibrary
        return self.handle


@dataclass(frozen=True, slots=True)
class ExternalLink:
    """A link into another file."""

    path: str
    group: str
    file: str
    target: str


@dataclass(slots=True)
class Walk:
    """What the walk found, in file order within each group, groups in depth-first order."""

    groups: list[FoundGroup] = field(default_factory=list)
    datasets: list[FoundDataset] = field(default_factory=list)
    externals: list[ExternalLink] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    warnings: list[Refusal] = field(default_factory=list)
    seen: dict[int, str] = field(default_factory=dict)


def walk(file: OpenFile, heap: GlobalHeap) -> Walk:
    """Visit all objects.

    Raises
    ------
    ScanError
        The root cannot be read (``unreadable``), or there are more than a million objects (``too-many-objects``).
    """
    out = Walk()
    try:
        root = h5g.open(file.fid, b"/")
        header = h5o.get_info(root).addr
        out.seen[header] = "/"
    except LIBRARY_ERRORS as error:
        raise ScanError(
            f"{file.address}: its root group cannot be read: {error}", kind="unreadable", granule=file.address
        ) from error
    pending = [("/", root, header)]
    while pending:
        path, gid, header = pending.pop()
        out.groups.append(FoundGroup(path, read_attributes(gid, path, file, heap, header)))
        children = _visit_group(out, path, gid, file, heap)
        pending.extend(reversed(children))
        if len(out.seen) > MAX_OBJECTS:
            raise ScanError(
                f"{file.address}: it holds more than {MAX_OBJECTS} objects, which no known product does; taken for damaged",
                kind="too-many-objects",
                granule=file.address,
            )
    return out


def _links(gid: h5g.GroupID) -> list[tuple[bytes, int, int]]:
    """(name, type, address) in the order of creation where the file keeps it, else by name."""
    found: list[tuple[bytes, int, int]] = []

    def take(name: bytes, info: h5l.LinkInfo) -> None:
        found.append((name, info.type, info.u))

    try:
        gid.links.iterate(take, idx_type=h5.INDEX_CRT_ORDER, info=True)
    except LIBRARY_ERRORS:
        found.clear()
        gid.links.iterate(take, idx_type=h5.INDEX_NAME, info=True)
    return found


def _visit_group(
    out: Walk, path: str, gid: h5g.GroupID, file: OpenFile, heap: GlobalHeap
) -> list[tuple[str, h5g.GroupID, int]]:
    children: list[tuple[str, h5g.GroupID, int]] = []
    try:
        links = _links(gid)
    except LIBRARY_ERRORS as error:
        out.refusals.append(Refusal(path, "unreadable", f"the group {path} cannot be listed: {error}"))
        return children
    for raw, kind, address in links:
        child = f"{path.rstrip('/')}/{_text(raw)}"
        problem = _name_problem(raw)
        if problem is not None:
            out.refusals.append(Refusal(child, "name", f"{child}: {problem}"))
            continue
        try:
            if kind == h5l.TYPE_HARD:
                oid = _visit_hard(out, child, gid, raw, address)
                if isinstance(oid, h5g.GroupID):
                    children.append((child, oid, address))
                elif isinstance(oid, h5d.DatasetID):
                    attributes = read_attributes(oid, child, file, heap, address)
                    out.datasets.append(FoundDataset(child, path, oid, address, attributes))
            elif kind == h5l.TYPE_SOFT:
                _visit_soft(out, child, gid, raw)
            elif kind == h5l.TYPE_EXTERNAL:
                name, target = gid.links.get_val(raw)
                out.externals.append(ExternalLink(child, path, _text(name), _text(target)))
            else:
                out.refusals.append(Refusal(child, "link", f"{child} is a link of a user-defined kind ({kind})"))
        except LIBRARY_ERRORS as error:
            out.refusals.append(Refusal(child, "unreadable", f"{child} cannot be opened: {_first(error)}"))
    return children


def _visit_hard(out: Walk, path: str, gid: h5g.GroupID, raw: bytes, address: int) -> object:
    """Open an object under its first name; what is no group and no dataset is a named datatype, which holds no values."""
    if address in out.seen:
        first = out.seen[address]
        reason = f"{path} is a second name of {first}, which is scanned under that name only"
        # a second name of an array is an array that the result lacks; one of a group may well close a circle
        is_dataset = h5o.get_info(gid, raw).type == h5o.TYPE_DATASET
        (out.refusals if is_dataset else out.warnings).append(Refusal(path, "hard-link", reason))
        return None
    out.seen[address] = path
    return h5o.open(gid, raw)


def _visit_soft(out: Walk, path: str, gid: h5g.GroupID, raw: bytes) -> None:
    target = _text(gid.links.get_val(raw))
    try:
        there = bool(h5o.exists_by_name(gid, raw))
    except LIBRARY_ERRORS:
        there = False
    if there:
        reason = f"{path} is a soft link to {target}, which is scanned under its own name only"
        is_dataset = h5o.get_info(gid, raw).type == h5o.TYPE_DATASET
        (out.refusals if is_dataset else out.warnings).append(Refusal(path, "soft-link", reason))
    else:
        out.warnings.append(Refusal(path, "dangling-link", f"{path} is a soft link to {target}, which does not exist"))


def _name_problem(raw: bytes) -> str | None:
    if raw in (b".", b".."):
        return "its name is a step in a folder tree, which no published form may follow"
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return f"its name is no UTF-8 ({raw[:40]!r}), so that it has no exact form and another reader would not find it"
    return None


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _first(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__

"""One HDF5 or netCDF-4 file to a :class:`ScanResult`: walk, name dimensions, choose, build arrays, keep coordinates.

A fault of one object is a refusal with its path and reason, and the rest goes on; a fault of the file is a
:class:`ScanError`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from h5py import h5d, h5o

from drystone.errors import GranuleMissing, ScanError
from drystone.model.array import GroupSpec
from drystone.model.attributes import Attributes
from drystone.model.chunk_rows import Refusal, ScannedArray, ScanResult
from drystone.protocols import ScanOptions, Source
from drystone.scan.hdf5.arrays import build_array
from drystone.scan.hdf5.attributes import LIBRARY_ERRORS, flagged, read_attributes
from drystone.scan.hdf5.companions import Companions
from drystone.scan.hdf5.coordinates import coordinate_of
from drystone.scan.hdf5.describe import Description, describe, extent_of
from drystone.scan.hdf5.dimensions import PURE_DIMENSION, Axes, Extent, Names, local_name
from drystone.scan.hdf5.dtypes import UnsupportedType
from drystone.scan.hdf5.heap import GlobalHeap
from drystone.scan.hdf5.opening import OpenFile, opened
from drystone.scan.hdf5.subject import Budget, Subject
from drystone.scan.hdf5.walk import ExternalLink, FoundDataset, Walk, walk
from drystone.scan.hdf5.wanted import wanted_paths

__all__ = ["Scan", "scan_through_library"]


def scan_through_library(file: OpenFile, source: Source, options: ScanOptions) -> Scan:
    """Scan an open file with the library's help, which reads every kind of file."""
    scan = Scan(file, source, options)
    scan.run(walk(file, scan.heap))
    return scan


@dataclass(slots=True)
class _Member:
    """A dataset that may become an array."""

    path: str
    found: FoundDataset
    description: Description
    axes: Axes
    attributes: Attributes


@dataclass(slots=True)
class Scan:
    """The state of one scan.

    ``described`` has every dataset's description by its path in the file.
    """

    file: OpenFile
    source: Source
    options: ScanOptions
    walked: Walk = field(default_factory=Walk)
    names: Names = field(default_factory=Names)
    netcdf: bool = False
    arrays: list[ScannedArray] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    warnings: list[Refusal] = field(default_factory=list)
    described: dict[str, Description] = field(default_factory=dict)
    budget: Budget = field(init=False)
    companions: Companions = field(init=False)
    heap: GlobalHeap = field(init=False)

    def __post_init__(self) -> None:
        self.budget = Budget.of(self.options)
        self.companions = Companions(self.source)
        self.heap = GlobalHeap(self.file)

    def run(self, walked: Walk) -> None:
        """Make arrays of what a walk found."""
        self.walked = walked
        self.refusals.extend(self.walked.refusals)
        self.warnings.extend(self.walked.warnings)
        owners = [*(g.attributes for g in self.walked.groups), *(d.attributes for d in self.walked.datasets)]
        self.netcdf = any(o.own.netcdf for o in owners)
        members, refused = self._members()
        wanted = wanted_paths(self.options.variables, {m.path: (m.axes.dims, m.attributes) for m in members})
        for member in members:
            if wanted is None or member.path in wanted:
                self._add(member)
        self.refusals.extend(r for r in refused if _is_wanted(r.path, self.options.variables))
        for link in self.walked.externals:
            if _is_wanted(link.path, self.options.variables):
                self._follow(link)
        for owner in owners:
            self.warnings.extend(owner.warnings)

    def result(self) -> ScanResult:
        """What was found."""
        groups = tuple(
            GroupSpec(g.path, g.attributes.finished(netcdf=self.netcdf), self.names.dimensions(g.path))
            for g in self.walked.groups
        )
        return ScanResult(
            "hdf5",
            groups,
            tuple(self.arrays),
            tuple(self.refusals),
            tuple(self.warnings),
            tuple(self.companions.found[a] for a in sorted(self.companions.found)),
        )

    def _members(self) -> tuple[list[_Member], list[Refusal]]:
        """Describe every dataset, and name its axes."""
        refused: list[Refusal] = []
        extents: dict[str, Extent] = {}
        for found in self.walked.datasets:
            with_extent = self._try(refused, found.path, extent_of, found)
            if isinstance(with_extent, Extent):
                extents[found.path] = with_extent
            elif not refused or refused[-1].path != found.path:
                reason = f"{found.path}: it has a null dataspace: no values, only attributes"
                refused.append(Refusal(found.path, "null-dataspace", reason))
        datasets = [d for d in self.walked.datasets if d.path in extents]
        self.names = Names.of(datasets, extents)
        members: list[_Member] = []
        datasets = [d for d in datasets if not _is_pure_dimension(d)]
        taken = {d.path for d in datasets} | {g.path for g in self.walked.groups}
        for found in datasets:
            description = self._try(refused, found.path, describe, found, extents[found.path], self.file, self.heap)
            if description is None:
                continue
            self.described[found.path] = description
            axes = self.names.axes(found, extents[found.path], description.stored.inner)
            path = f"{found.group.rstrip('/')}/{local_name(found.path)}"
            path = found.path if path in taken else path
            attributes = flagged(found.attributes.finished(netcdf=self.netcdf), description.stored)
            members.append(_Member(path, found, description, axes, attributes))
        return members, refused

    def _add(self, member: _Member) -> None:
        found = member.found
        subject = Subject(
            member.path,
            found,
            member.description,
            member.axes,
            member.attributes,
            self.file,
            self.heap,
            self.source,
        )
        array = self._try(self.refusals, member.path, build_array, subject, self.budget, self.companions)
        self.warnings.extend((*member.axes.warnings, *subject.warnings))
        if array is not None:
            self.arrays.append(self._with_coordinate(array, subject))

    def _with_coordinate(self, array: ScannedArray, subject: Subject) -> ScannedArray:
        values = self._try(self.warnings, subject.path, coordinate_of, array, subject, self.options.coordinate_budget)
        if values is None:
            return array
        return ScannedArray(array.spec, array.rows, array.inline, array.masks, values)

    def _follow(self, link: ExternalLink) -> None:
        """Take over a dataset of another file."""
        array = self._try(self.refusals, link.path, self._linked, link)
        if array is not None:
            self.arrays.append(array)

    def _linked(self, link: ExternalLink) -> ScannedArray:
        what = f"it is an external link to {link.target} of"
        other = self.companions.beside(self.source, link.file, what)
        try:
            with opened(other.store, other.key, other.address, other.stamp.size) as file:
                oid = h5o.open(file.fid, link.target.encode())
                if not isinstance(oid, h5d.DatasetID):
                    raise UnsupportedType(
                        "external-link", f"{what} {link.file!r}, which is no dataset; such links are not followed"
                    )
                header = h5o.get_info(oid).addr
                heap = GlobalHeap(file)
                attributes = read_attributes(oid, link.path, file, heap, header)
                found = FoundDataset(link.path, link.group, oid, header, attributes)
                extent = extent_of(found)
                if extent is None:
                    raise UnsupportedType("null-dataspace", f"{what} {link.file!r}, which has a null dataspace")
                description = describe(found, extent, file, heap)
                subject = Subject(
                    link.path,
                    found,
                    description,
                    self.names.linked_axes(found, extent, description.stored.inner),
                    flagged(attributes.finished(netcdf=self.netcdf or attributes.own.netcdf), description.stored),
                    file,
                    heap,
                    other,
                    f"{link.target} of {other.address}",
                )
                array = build_array(subject, self.budget, self.companions)
                self.warnings.extend((*attributes.warnings, *subject.axes.warnings, *subject.warnings))
                return self._with_coordinate(array, subject)
        except (ScanError, GranuleMissing) as error:
            raise UnsupportedType("missing", f"{what} {link.file!r}, which cannot be read: {error}") from error
        except KeyError as error:
            raise UnsupportedType("missing", f"{what} {link.file!r}, which has no such object") from error

    def _try[**P, T](
        self, into: list[Refusal], path: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T | None:
        """Call; a fault of this one object goes into ``into`` under its path."""
        try:
            return function(*args, **kwargs)
        except UnsupportedType as found:
            into.append(Refusal(path, found.kind, f"{path}: {found.reason}"))
        except LIBRARY_ERRORS as error:
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            into.append(Refusal(path, "unreadable", f"{path}: the HDF5 library cannot read it: {text}"))
        return None


def _is_pure_dimension(found: FoundDataset) -> bool:
    """Whether it stands for a dimension and holds no values."""
    return found.attributes.own.is_scale and found.attributes.own.scale_name.startswith(PURE_DIMENSION)


def _is_wanted(path: str, variables: tuple[str, ...] | None) -> bool:
    return variables is None or any(v in (path, path.lstrip("/"), path.rsplit("/", 1)[-1]) for v in variables)

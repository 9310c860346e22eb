"""Names for the axes of HDF5 datasets, the way netCDF-4 finds them.

A dimension is a *scale*: a dataset that others attach their axes to. netCDF numbers its scales and notes each variable's
numbers, which is read first; plain HDF5 has object references in ``DIMENSION_LIST``. A dimension belongs to the group of
its scale and is known in the groups below. An axis without a scale gets a phony dimension: one for each size in a group,
and never the same one twice in one array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from h5py import h5a, h5o, h5r

from drystone.model.array import Dimension
from drystone.model.chunk_rows import Refusal
from drystone.scan.hdf5.attributes import LIBRARY_ERRORS
from drystone.scan.hdf5.walk import FoundDataset

__all__ = ["PURE_DIMENSION", "Axes", "Extent", "Names", "local_name"]

PURE_DIMENSION = b"This is a netCDF dimension but not a netCDF variable"
_NOT_COORDINATE = "_nc4_non_coord_"


@dataclass(frozen=True, slots=True)
class Extent:
    """Sizes of a dataset as stored, and which axes may grow."""

    shape: tuple[int, ...]
    unlimited: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Axes:
    """The dimensions of one array: names, sizes (a short netCDF variable is as long as its dimension) and warnings."""

    dims: tuple[str, ...]
    sizes: tuple[int, ...]
    warnings: tuple[Refusal, ...] = ()


@dataclass(slots=True)
class _Scale:
    """A dimension scale; an unlimited one is as long as the longest array along it, whatever the scale itself holds."""

    name: str
    group: str
    size: int
    unlimited: bool


def local_name(path: str) -> str:
    """The variable's own name: netCDF hides a prefix where a variable is named like a dimension that it is not."""
    return path.rsplit("/", 1)[-1].removeprefix(_NOT_COORDINATE)


@dataclass(slots=True)
class Names:
    """The dimensions of a file, and the axes of its arrays."""

    by_address: dict[int, _Scale] = field(default_factory=dict)
    by_id: dict[int, _Scale] = field(default_factory=dict)
    declared: dict[str, dict[str, Dimension]] = field(default_factory=dict)
    phony: dict[str, list[Dimension]] = field(default_factory=dict)
    attached: dict[str, list[_Scale | None]] = field(default_factory=dict)
    counter: int = 0

    @classmethod
    def of(cls, datasets: Sequence[FoundDataset], extents: Mapping[str, Extent]) -> Names:
        """Collect the scales of a file; ``extents`` by dataset path."""
        out = cls()
        scales = [d for d in datasets if d.attributes.own.is_scale and len(extents[d.path].shape) > 0]
        # netCDF's own order, where it numbered them
        scales.sort(key=lambda d: 1 << 31 if d.attributes.own.dimid is None else d.attributes.own.dimid)
        for d in scales:
            extent = extents[d.path]
            scale = _Scale(local_name(d.path), d.group, extent.shape[0], extent.unlimited[0])
            out.by_address[d.header] = scale
            if d.attributes.own.dimid is not None:
                out.by_id.setdefault(d.attributes.own.dimid, scale)
        for d in datasets:
            out.attached[d.path] = attached = out._scales(d, extents[d.path])
            if d.attributes.own.netcdf:
                extent = extents[d.path]
                for along, size, unlimited in zip(attached, extent.shape, extent.unlimited, strict=True):
                    if along is not None and unlimited and along.unlimited and size > along.size:
                        along.size = size
        for d in scales:
            scale = out.by_address[d.header]
            group = out.declared.setdefault(d.group, {})
            group.setdefault(scale.name, Dimension(scale.name, scale.size, scale.unlimited))
        out.counter = len(scales)
        return out

    def dimensions(self, group: str) -> tuple[Dimension, ...]:
        """What a group declares."""
        return (*self.declared.get(group, {}).values(), *self.phony.get(group, ()))

    def axes(self, found: FoundDataset, extent: Extent, inner: tuple[int, ...] = ()) -> Axes:
        """Name the axes of a dataset, and of the array type of its elements if it has one."""
        scales = self.attached[found.path]
        used: list[str] = []
        sizes: list[int] = []
        warnings: list[Refusal] = []
        full = (*extent.shape, *inner)
        for i, size in enumerate(full):
            scale = scales[i] if i < len(scales) else None
            unlimited = extent.unlimited[i] if i < len(extent.unlimited) else False
            name = None if scale is None else self._fit(scale, found, size, unlimited, warnings, used)
            if scale is not None and name is not None and size < scale.size:
                size = scale.size
            if name is None:
                name = self._phony(found.group, size, unlimited, used)
            used.append(name)
            sizes.append(size)
        return Axes(tuple(used), tuple(sizes), tuple(warnings))

    def linked_axes(self, found: FoundDataset, extent: Extent, inner: tuple[int, ...] = ()) -> Axes:
        """The axes of a dataset in another file: names of its scales where they fit here, else phony ones."""
        names = _scale_names(found, len(extent.shape))
        used: list[str] = []
        for i, size in enumerate((*extent.shape, *inner)):
            unlimited = i < len(extent.unlimited) and extent.unlimited[i]
            name = names[i] if i < len(names) else None
            scale = None if name is None else _Scale(name, "/", size, unlimited)
            if scale is None or scale.name in used or not self._reachable(scale, found.group):
                used.append(self._phony(found.group, size, unlimited, used))
            else:
                used.append(scale.name)
        return Axes(tuple(used), (*extent.shape, *inner))

    def _scales(self, found: FoundDataset, extent: Extent) -> list[_Scale | None]:
        own = found.attributes.own
        rank = len(extent.shape)
        ids = own.coordinate_ids
        if ids is not None and len(ids) == rank and all(i in self.by_id for i in ids):
            return [self.by_id[i] for i in ids]
        listed: list[_Scale | None] = [None] * rank
        if own.has_dimension_list:
            listed = self._listed(found, rank)
        if own.is_scale and rank and listed[0] is None:
            listed[0] = self.by_address.get(found.header)
        return listed

    def _listed(self, found: FoundDataset, rank: int) -> list[_Scale | None]:
        """The first scale of each axis that a ``DIMENSION_LIST`` attribute names."""
        addresses = found.attributes.own.scales
        if addresses is not None:
            known = [None if a is None else self.by_address.get(a) for a in addresses]
            return known if len(known) == rank else [None] * rank
        out: list[_Scale | None] = [None] * rank
        for i, reference in _first_references(found, rank):
            try:
                out[i] = self.by_address.get(h5o.get_info(h5r.dereference(reference, found.dsid)).addr)
            except LIBRARY_ERRORS as error:
                _warn(found, f"the dimension of axis {i} of {found.path} cannot be opened: {error}")
        return out

    def _fit(
        self, scale: _Scale, found: FoundDataset, size: int, unlimited: bool, warnings: list[Refusal], used: list[str]
    ) -> str | None:
        """The scale's name, if it may stand for this axis; None where a phony dimension must."""
        if scale.name in used:
            warnings.append(
                Refusal(
                    found.path,
                    "dimensions",
                    f"{found.path} has the dimension {scale.name} twice; its later axis is renamed",
                )
            )
            return None
        netcdf = found.attributes.own.netcdf
        if size != scale.size and not (netcdf and unlimited and scale.unlimited and size < scale.size):
            warnings.append(
                Refusal(
                    found.path,
                    "dimensions",
                    f"{found.path} has {size} elements along {scale.name}, which has {scale.size}; the axis is renamed",
                )
            )
            return None
        if size != scale.size:
            warnings.append(
                Refusal(
                    found.path,
                    "short-axis",
                    f"{found.path} holds {size} elements along the unlimited dimension {scale.name} of {scale.size}; the rest "
                    "reads as its fill value, as the netCDF library has it",
                )
            )
        return scale.name if self._reachable(scale, found.group) else None

    def _reachable(self, scale: _Scale, group: str) -> bool:
        """Whether the group sees the dimension; a scale of a sibling group is declared here too, where its name is free."""
        at = group
        while True:
            known = self.declared.get(at, {}).get(scale.name)
            if known is not None:
                return known.size == scale.size
            if at == "/":
                break
            at = at.rsplit("/", 1)[0] or "/"
        self.declared.setdefault(group, {})[scale.name] = Dimension(scale.name, scale.size, scale.unlimited)
        return True

    def _phony(self, group: str, size: int, unlimited: bool, used: list[str]) -> str:
        known = self.phony.setdefault(group, [])
        for dimension in known:
            if (dimension.size, dimension.unlimited) == (size, unlimited) and dimension.name not in used:
                return dimension.name
        while True:
            name = f"phony_dim_{self.counter}"
            self.counter += 1
            if not any(name in dims for dims in self.declared.values()):
                break
        known.append(Dimension(name, size, unlimited))
        return name


def _first_references(found: FoundDataset, rank: int) -> list[tuple[int, h5r.Reference]]:
    """Axis and first reference of a ``DIMENSION_LIST`` attribute."""
    try:
        aid = h5a.open(found.dsid, b"DIMENSION_LIST")
        if aid.shape != (rank,):
            return []
        lists = np.empty(rank, aid.dtype)
        aid.read(lists)
        out = []
        for i, references in enumerate(lists.tolist()):
            first = next((r for r in (() if references is None else references) if r), None)
            if first is not None:
                out.append((i, first))
        return out
    except LIBRARY_ERRORS as error:
        _warn(found, f"the dimension list of {found.path} cannot be read: {error}")
        return []


def _warn(found: FoundDataset, reason: str) -> None:
    found.attributes.warnings.append(Refusal(found.path, "dimensions", reason))


def _scale_names(found: FoundDataset, rank: int) -> list[str | None]:
    """The names of the scales that the axes are attached to, in whatever file."""
    out: list[str | None] = [None] * rank
    if found.attributes.own.has_dimension_list:
        for i, reference in _first_references(found, rank):
            try:
                raw = h5r.get_name(reference, found.dsid)
            except LIBRARY_ERRORS as error:
                _warn(found, f"the dimension of axis {i} of {found.path} cannot be named: {error}")
                continue
            out[i] = None if raw is None else local_name(raw.decode("utf-8", "replace"))
    return out

"""One granule to a :class:`ScanResult`: through the library the first time that a kind of file is met, then without.

The files of an archive are twins: the same objects with other sizes, addresses and values. Opening one through the HDF5
library and asking it for what its twin said already takes most of a small file's time. So what the library told of each
*form* (:mod:`drystone.scan.hdf5.plain_objects`) is noted in this process, and a file all of whose forms are noted is
scanned from its bytes. Nothing is guessed: a form is noted only after a file that has it was scanned both ways with equal
results, and whatever is not plain, odd or wrong about a file hands it to the library, from the start.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from drystone.errors import ScanError
from drystone.model.chunk_rows import ScannedArray, ScanResult
from drystone.protocols import ScanOptions, Source
from drystone.scan.hdf5.attributes import LIBRARY_ERRORS
from drystone.scan.hdf5.describe import Description
from drystone.scan.hdf5.dtypes import UnsupportedType
from drystone.scan.hdf5.heap import GlobalHeap
from drystone.scan.hdf5.opening import NeedsLibrary, OpenFile, opened
from drystone.scan.hdf5.plain_objects import Form, PlainDataset, PlainGroup, Told, plain_object, root_address
from drystone.scan.hdf5.scanner import Scan, scan_through_library
from drystone.scan.hdf5.values import fill_bytes
from drystone.scan.hdf5.walk import FoundDataset, FoundGroup, Walk

__all__ = ["PlainFile", "plain_file", "same_scans", "scan_file", "scan_plainly"]

_MAX_OBJECTS, _MAX_BYTES = 4096, 8 << 20  # of objects' headers and paths
_MAX_CHUNKS = 4096  # of one array: with more of them, what the library costs is little beside their rows
_TRIES = 3  # files of one kind that had to go back to the library, after which their twins go there at once

_told: dict[Form, Told | None] = {}
_failed: dict[int, int] = {}  # by hash of the forms of a file: whoever shares one by chance is scanned through the library
_NOTED = 1024


@dataclass(slots=True)
class PlainFile:
    """The objects of a plain file in the order of a walk, and what is known of their forms."""

    groups: list[tuple[str, PlainGroup]] = field(default_factory=list)
    datasets: list[tuple[str, str, int, PlainDataset]] = field(default_factory=list)  # path, group, header
    forms: frozenset[Form] = frozenset()

    def walk(self, heap: GlobalHeap, told: Mapping[Form, Told | None]) -> Walk:
        """The same as :func:`drystone.scan.hdf5.walk.walk` would find.

        Raises
        ------
        NeedsLibrary
            An attribute is in a form that only the library reads.
        """
        return Walk(
            [FoundGroup(path, g.attributes.collected(path, heap)) for path, g in self.groups],
            [
                FoundDataset(path, group, None, header, d.attributes.collected(path, heap), d, told[d.form])
                for path, group, header, d in self.datasets
            ],
        )


def scan_file(source: Source, options: ScanOptions) -> ScanResult:
    """Scan one granule; see :class:`drystone.protocols.Scanner`."""
    with opened(source.store, source.key, source.address, source.stamp.size) as file:
        plain = plain_file(file)
        if plain is None or _failed.get(hash(plain.forms), 0) >= _TRIES:
            return scan_through_library(file, source, options).result()
        told = {form: _told[form] for form in plain.forms & _told.keys()}
        if len(told) == len(plain.forms):
            found = scan_plainly(file, source, options, plain, told)
            if found is not None:
                return found
        scan = scan_through_library(file, source, options)
        result = scan.result()
        _learn(plain, scan, result)
        return result


def scan_plainly(
    file: OpenFile, source: Source, options: ScanOptions, plain: PlainFile, told: Mapping[Form, Told | None]
) -> ScanResult | None:
    """Scan a file of known forms from its bytes alone; None where the library must be asked for anything.

    Whatever is wrong with the file is left to the library to find again, so that it is told in one way.
    """
    scan = Scan(file, source, options)
    try:
        scan.run(plain.walk(scan.heap, told))
    except (NeedsLibrary, ScanError):
        return None
    return None if scan.refusals or scan.warnings else scan.result()


def _learn(plain: PlainFile, scan: Scan, result: ScanResult) -> None:
    """Note what the forms of a file mean, if a scan of it with that knowledge alone gives what the library gave."""
    told = _told_by(plain, scan)
    if told is None:
        return
    again = scan_plainly(scan.file, scan.source, scan.options, plain, told)
    # bounded by starting anew: no archive has so many kinds of files
    if again is None or not same_scans(again, result):
        if len(_failed) >= _NOTED:
            _failed.clear()
        _failed[hash(plain.forms)] = _failed.get(hash(plain.forms), 0) + 1
        return
    if len(_told) + len(told) > _NOTED:
        _told.clear()
    _told.update(told)
    _failed.pop(hash(plain.forms), None)


def _told_by(plain: PlainFile, scan: Scan) -> dict[Form, Told | None] | None:
    """What the library told of each form; None where that is not worth noting."""
    told: dict[Form, Told | None] = dict.fromkeys(plain.forms)
    if scan.options.variables is not None or len(told) > _NOTED // 4:
        return None
    for path, _, header, dataset in plain.datasets:
        d = scan.described.get(path)
        if d is None:
            continue  # refused, or a dimension without values
        if d.chunk_shape is not None and _n_chunks(d, d.chunk_shape) > _MAX_CHUNKS:
            return None
        try:
            fill = fill_bytes(d, scan.file, header)
        except (UnsupportedType, *LIBRARY_ERRORS):
            return None
        told[dataset.form] = Told(d.stored, d.layout, d.chunk_shape, d.chain, d.n_filters, fill)
    return told


def _n_chunks(d: Description, chunk_shape: tuple[int, ...]) -> int:
    return math.prod(-(-n // c) for n, c in zip(d.extent.shape, chunk_shape, strict=True))


def plain_file(file: OpenFile) -> PlainFile | None:
    """All objects of a file from their headers; None where any of them is not plain."""
    out = PlainFile()
    forms: set[Form] = set()
    seen: set[int] = set()
    try:
        root = root_address(file)
        found, n_bytes = plain_object(file, root)
        if not isinstance(found, PlainGroup):
            return None
        seen.add(root)
        groups = [("/", found)]
        while groups:
            path, group = groups.pop()
            out.groups.append((path, group))
            forms.add(group.form)
            inner: list[tuple[str, PlainGroup]] = []
            for link in group.links:
                if link.address in seen or len(seen) > _MAX_OBJECTS or n_bytes > _MAX_BYTES:
                    return None  # a second name of an object, or too much of it
                seen.add(link.address)
                child = f"{path.rstrip('/')}/{link.name}"
                found, more = plain_object(file, link.address)
                n_bytes += more + len(child)
                if isinstance(found, PlainGroup):
                    inner.append((child, found))
                else:
                    out.datasets.append((child, path, link.address, found))
                    forms.add(found.form)
            groups.extend(reversed(inner))
    except NeedsLibrary:
        return None
    out.forms = frozenset(forms)
    return out


def same_scans(a: ScanResult, b: ScanResult) -> bool:
    """Whether two results are equal to the bit."""
    return (
        (a.format, a.groups, a.refusals, a.warnings, a.companions) == (b.format, b.groups, b.refusals, b.warnings, b.companions)
        and len(a.arrays) == len(b.arrays)
        and all(_same_arrays(x, y) for x, y in zip(a.arrays, b.arrays, strict=True))
    )


def _same_arrays(a: ScannedArray, b: ScannedArray) -> bool:
    columns = [(getattr(a.rows, n), getattr(b.rows, n)) for n in ("coords", "offset", "length", "state")]
    return (
        a.spec == b.spec
        and a.spec.structure() == b.spec.structure()
        and all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in columns)
        and a.inline == b.inline
        and a.masks == b.masks
        and _same_values(a.coordinate, b.coordinate)
    )


def _same_values(a: NDArray[np.generic] | None, b: NDArray[np.generic] | None) -> bool:
    if a is None or b is None:
        return a is b
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    return a.tolist() == b.tolist() if a.dtype.kind == "T" else a.tobytes() == b.tobytes()

"""What one HDF5 dataset is: extent, type, storage layout, filters, fill value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import h5py
import numpy as np
from h5py import h5d, h5p, h5s

from drystone.codecs.chain import CodecChain
from drystone.codecs.hdf5 import FILTER_NAMES, chain_from_filters, foreign_codec
from drystone.scan.hdf5.dimensions import Extent
from drystone.scan.hdf5.dtypes import StoredType, UnsupportedType, stored_type
from drystone.scan.hdf5.heap import DESCRIPTOR, GlobalHeap
from drystone.scan.hdf5.object_header import read_fill
from drystone.scan.hdf5.opening import NeedsLibrary, OpenFile
from drystone.scan.hdf5.walk import FoundDataset
from drystone.storage.hdf5_library import load_plugins

__all__ = ["Description", "codec_chain", "describe", "extent_of", "library_reads"]

_OWN_FILTERS = frozenset({1, 2, 3, 307, 32000, 32001, 32015})


@dataclass(frozen=True, slots=True)
class Description:
    """A dataset's description.

    Parameters
    ----------
    extent
        As stored, without the axes of an array-typed element.
    stored
        Its type.
    properties
        Creation properties, where the library was asked.
    fill
        What :func:`~drystone.scan.hdf5.values.fill_bytes` gives, where the library was not asked.
    layout
        h5py's number: compact, contiguous, chunked or virtual.
    chunk_shape
        Of the dataset, or None where it is not chunked.
    chain
        Codecs; needs the library where a filter or the type is foreign.
    n_filters
        Of the pipeline.
    external
        Whether its bytes lie in other files.
    """

    extent: Extent
    stored: StoredType
    properties: h5p.PropDCID | None
    layout: int
    chunk_shape: tuple[int, ...] | None
    chain: CodecChain
    n_filters: int
    external: bool
    fill: bytes | None = None

    @property
    def plist(self) -> h5p.PropDCID:
        """Creation properties.

        Raises
        ------
        NeedsLibrary
            The library was not asked.
        """
        if self.properties is None:
            raise NeedsLibrary
        return self.properties


def extent_of(found: FoundDataset) -> Extent | None:
    """Shape and unlimited axes; None for a null dataspace."""
    if found.plain is not None:
        return Extent(found.plain.shape, found.plain.unlimited)
    space = found.dsid.get_space()
    if space.get_simple_extent_type() == h5s.NULL:
        return None
    shape = space.get_simple_extent_dims()
    limits = space.get_simple_extent_dims(True) if shape else ()
    return Extent(tuple(int(n) for n in shape), tuple(n == h5s.UNLIMITED for n in limits))


def describe(found: FoundDataset, extent: Extent, file: OpenFile, heap: GlobalHeap) -> Description:
    """Describe a dataset.

    Raises
    ------
    UnsupportedType
        A type or filter that nothing here reads.
    """
    told = found.told
    stored = stored_type(found.dsid.get_type()) if told is None else told.stored
    if stored.is_text:
        # asked for its properties, the library reads a fill text from the heap
        fill = read_fill(file, found.header)
        if fill is not None and len(fill) == DESCRIPTOR.itemsize:
            heap.vet(np.frombuffer(fill, DESCRIPTOR))
    if told is not None:
        return Description(
            extent, stored, None, told.layout, told.chunk_shape, told.chain, told.n_filters, external=False, fill=told.fill
        )
    plist = found.dsid.get_create_plist()
    layout = plist.get_layout()
    chunk_shape: tuple[int, ...] | None = None
    filters: list[tuple[int, int, tuple[int, ...]]] = []
    if layout == h5d.CHUNKED:
        chunk_shape = tuple(int(n) for n in plist.get_chunk())
        filters = [plist.get_filter(i)[:3] for i in range(plist.get_nfilters())]
    external = layout == h5d.CONTIGUOUS and plist.get_external_count() > 0
    return Description(extent, stored, plist, layout, chunk_shape, codec_chain(filters, stored), len(filters), external)


def codec_chain(filters: Sequence[tuple[int, int, Sequence[int]]], stored: StoredType) -> CodecChain:
    """The codecs of a dataset.

    Raises
    ------
    UnsupportedType
        A filter that nothing here reads.
    """
    chain = chain_from_filters(filters, stored.dtype)
    for code, _, _ in filters:
        if code not in _OWN_FILTERS and not library_reads(code):
            name = FILTER_NAMES.get(code, "unknown")
            raise UnsupportedType(
                "filter",
                f"it is stored through HDF5 filter {code} ({name}), which neither drystone nor the HDF5 library here can undo; "
                "pip install 'drystone[codecs]' adds the filters of hdf5plugin",
            )
    if stored.converted is not None:
        return CodecChain((*chain.codecs, foreign_codec(0, f"type conversion of {stored.converted}")))
    return chain


def library_reads(code: int) -> bool:
    """Whether the library, with the filter plugins of hdf5plugin where that is installed, can undo a filter."""
    return bool(h5py.h5z.filter_avail(code)) or (load_plugins() and bool(h5py.h5z.filter_avail(code)))

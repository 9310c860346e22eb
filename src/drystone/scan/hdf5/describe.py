"""What one HDF5 dataset is: extent, type, storage layout, filters, fill value."""

from __future__ import annotations

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
from drystone.scan.hdf5.opening import OpenFile
from drystone.storage.hdf5_library import load_plugins

__all__ = ["Description", "describe", "extent_of", "library_reads"]

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
    plist
        Creation properties.
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
    plist: h5p.PropDCID
    layout: int
    chunk_shape: tuple[int, ...] | None
    chain: CodecChain
    n_filters: int
    external: bool


def extent_of(dsid: h5d.DatasetID) -> Extent | None:
    """Shape and unlimited axes; None for a null dataspace."""
    space = dsid.get_space()
    if space.get_simple_extent_type() == h5s.NULL:
        return None
    shape = space.get_simple_extent_dims()
    limits = space.get_simple_extent_dims(True) if shape else ()
    return Extent(tuple(int(n) for n in shape), tuple(n == h5s.UNLIMITED for n in limits))


def describe(dsid: h5d.DatasetID, extent: Extent, file: OpenFile, heap: GlobalHeap, header: int) -> Description:
    """Describe a dataset.

    Raises
    ------
    UnsupportedType
        A type or filter that nothing here reads.
    """
    stored = stored_type(dsid.get_type())
    if stored.is_text:
        # asked for its properties, the library reads a fill text from the heap
        fill = read_fill(file, header)
        if fill is not None and len(fill) == DESCRIPTOR.itemsize:
            heap.vet(np.frombuffer(fill, DESCRIPTOR))
    plist = dsid.get_create_plist()
    layout = plist.get_layout()
    chunk_shape: tuple[int, ...] | None = None
    filters: list[tuple[int, int, tuple[int, ...]]] = []
    if layout == h5d.CHUNKED:
        chunk_shape = tuple(int(n) for n in plist.get_chunk())
        filters = [plist.get_filter(i)[:3] for i in range(plist.get_nfilters())]
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
        chain = CodecChain((*chain.codecs, foreign_codec(0, f"type conversion of {stored.converted}")))
    external = layout == h5d.CONTIGUOUS and plist.get_external_count() > 0
    return Description(extent, stored, plist, layout, chunk_shape, chain, len(filters), external)


def library_reads(code: int) -> bool:
    """Whether the library, with the filter plugins of hdf5plugin where that is installed, can undo a filter."""
    return bool(h5py.h5z.filter_avail(code)) or (load_plugins() and bool(h5py.h5z.filter_avail(code)))

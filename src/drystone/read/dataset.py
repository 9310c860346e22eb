"""The whole as xarray sees it: a Dataset, or a DataTree where there are nested groups.

Values come as stored, in native byte order, through references alone; attributes come as Python and NumPy values with
every bit; ``decode=True`` then applies xarray's own CF decoding. Coordinates whose values were kept at scan time are there
at once, everything else is read when it is asked for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from xarray.core import indexing

from drystone.errors import UnsupportedError
from drystone.fetch.fetcher import Fetcher
from drystone.model.array import GroupSpec
from drystone.model.attributes import Attributes
from drystone.model.placement import Combined, CombinedArray
from drystone.read.lazy_array import LazyArray

__all__ = ["dataset"]

# single numbers by convention, whatever shape a file gives them
_SINGLE = ("_FillValue", "missing_value", "scale_factor", "add_offset")


def dataset(combined: Combined, fetcher: Fetcher, *, decode: bool = False) -> xr.Dataset | xr.DataTree:
    """Open the whole lazily.

    Parameters
    ----------
    combined
        Groups and arrays.
    fetcher
        Reads values.
    decode
        Apply ``xarray.decode_cf``: masks, packing, times, coordinates.

    Returns
    -------
    A Dataset where all arrays lie in the root group, else a DataTree.

    Raises
    ------
    UnsupportedError
        A group says of a dimension of its parent that it has another size, which a DataTree cannot hold.

    Examples
    --------
    >>> from drystone.fetch.memory_rows import MemoryRows
    >>> from drystone.storage.address import Places
    >>> fetcher = Fetcher(Places.of([]), MemoryRows({}, {}), threads=1, bytes_in_flight=1 << 20)
    >>> dataset(Combined((GroupSpec("/", Attributes.of({"title": "t"})),), (), None), fetcher).attrs
    {'title': 't'}
    """
    groups = {g.path: g for g in combined.groups}
    paths = sorted({"/", *groups, *(a.group for a in combined.arrays)})
    nodes = {path: _node(groups.get(path, GroupSpec(path)), combined, fetcher, decode) for path in paths}
    if len(nodes) == 1:
        return nodes["/"]
    try:
        return xr.DataTree.from_dict(nodes)
    except (ValueError, xr.AlignmentError) as error:
        raise UnsupportedError(
            f"groups do not fit into one tree: {error}; open the arrays of one group by name (variables=...)",
            kind="tree",
        ) from error


def _node(group: GroupSpec, combined: Combined, fetcher: Fetcher, decode: bool) -> xr.Dataset:
    variables = {
        a.name: _variable(a, combined.coordinates.get(a.path), fetcher) for a in combined.arrays if a.group == group.path
    }
    node = xr.Dataset(variables, attrs=_attributes(group.attributes))
    unlimited = {d.name for d in group.dimensions if d.unlimited and d.name in node.dims}
    if unlimited:
        node.encoding["unlimited_dims"] = unlimited
    return xr.decode_cf(node) if decode else node


def _variable(array: CombinedArray, values: np.ndarray | None, fetcher: Fetcher) -> xr.Variable:
    # a copy: what the user does to a coordinate must not reach the whole
    data = indexing.LazilyIndexedArray(LazyArray(array, fetcher)) if values is None else values.copy()
    variable = xr.Variable(array.dims, data, _attributes(array.attributes), fastpath=values is None)
    chunks = {
        name: d.regular_size or tuple(d.data_sizes(np.arange(d.n_chunks)).tolist())
        for name, d in zip(array.dims, array.grid.dimensions, strict=True)
        if d.n_chunks
    }
    variable.encoding = {"preferred_chunks": chunks, "dtype": array.stored_dtype}
    return variable


def _attributes(attributes: Attributes) -> dict[str, Any]:
    """Python and NumPy values; single numbers by convention are scalars, as netCDF readers give them."""
    out = attributes.values_python()
    for name in _SINGLE:
        value = out.get(name)
        if isinstance(value, np.ndarray) and value.size == 1:
            out[name] = value.reshape(-1)[0]
    return out

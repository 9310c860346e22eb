"""The whole as xarray sees it: a Dataset, or a DataTree where there are nested groups.

Values come as stored, in native byte order, through references alone; attributes come as Python and NumPy values with
every bit; ``decode=True`` then applies xarray's own CF decoding. Coordinates whose values were kept at scan time are there
at once, everything else is read when it is asked for.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from xarray.core import indexing

from drystone.errors import LeftOut, UnsupportedError
from drystone.fetch.fetcher import Fetcher
from drystone.model.array import GroupSpec
from drystone.model.attributes import Attributes
from drystone.model.placement import Combined, CombinedArray
from drystone.read.lazy_array import LazyArray

__all__ = ["dataset"]

_XARRAY_ERRORS = (ValueError, TypeError, OverflowError, KeyError, AttributeError)
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
        why = _clash(nodes) or str(error).partition("\n")[0]
        raise UnsupportedError(
            f"groups do not fit into one tree of xarray: {why}; open the arrays of one group by path (variables=...), or "
            "publish them as a store, which holds them all",
            kind="tree",
        ) from error


def _clash(nodes: Mapping[str, xr.Dataset]) -> str | None:
    """The first dimension that a group and one above it do not agree on."""
    for path in sorted(nodes):
        above = path
        while above != "/":
            above = above.rpartition("/")[0] or "/"
            for name, size in nodes[path].sizes.items():
                other = nodes.get(above, nodes["/"])
                if other.sizes.get(name, size) != size:
                    return f"{name} has {size} elements in the group {path} and {other.sizes[name]} in {above}"
                mine, theirs = nodes[path].xindexes.get(name), other.xindexes.get(name)
                if mine is not None and theirs is not None and not mine.equals(theirs):
                    return f"the coordinate {name} of the group {path} has other values than that of {above}"
    return None


def _node(group: GroupSpec, combined: Combined, fetcher: Fetcher, decode: bool) -> xr.Dataset:
    variables = {
        a.name: _variable(a, combined.coordinates.get(a.path), fetcher) for a in combined.arrays if a.group == group.path
    }
    node = xr.Dataset(variables, attrs=_attributes(group.attributes))
    unlimited = {d.name for d in group.dimensions if d.unlimited and d.name in node.dims}
    if unlimited:
        node.encoding["unlimited_dims"] = unlimited
    return _decoded(node, group.path) if decode else node


def _decoded(node: xr.Dataset, path: str) -> xr.Dataset:
    """Decoded as xarray does; a variable that it fails on stays as stored, and a warning names it."""
    try:
        return xr.decode_cf(node)
    except _XARRAY_ERRORS as error:
        first = error
    bad = {name: text for name in node.variables if (text := _failure(node, name)) is not None}
    if not bad:
        raise UnsupportedError(f"xarray cannot decode the group {path}: {first}; open it with decode=False", kind="decode-cf")
    for name, why in bad.items():
        text = f"{path.rstrip('/')}/{name} is left out of decoding and stays as stored: xarray cannot decode it: {why}"
        warnings.warn(text, LeftOut, stacklevel=2)
    rest = xr.decode_cf(node.drop_vars(bad))
    return rest.assign({name: node.variables[name] for name in bad})


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


def _failure(node: xr.Dataset, name: Hashable) -> str | None:
    """Why one variable does not decode, if it does not."""
    try:
        xr.decode_cf(xr.Dataset({name: node.variables[name]}))
    except _XARRAY_ERRORS as error:
        return str(error)
    return None

"""NumPy dtypes as Zarr data types, version 3 and version 2."""

from __future__ import annotations

import numpy as np

from drystone.errors import UnsupportedError

__all__ = ["Json", "data_type_v2", "data_type_v3", "fields_of", "no_form", "packed_dtype"]

type Json = bool | int | float | str | list[Json] | dict[str, Json] | None

_PLAIN_KINDS = "biufc"


def no_form(why: str, **facts: str | int | float | bool | None) -> UnsupportedError:
    """The error for what Zarr cannot say."""
    return UnsupportedError(why, kind="no-zarr-form", **facts)


def fields_of(dtype: np.dtype) -> list[tuple[str, np.dtype]]:
    """Fields of a compound without gaps."""
    assert dtype.names is not None
    assert dtype.fields is not None
    at, out = 0, []
    for name in dtype.names:
        kind, offset = dtype.fields[name][:2]
        if offset != at:
            raise no_form(
                f"field {name!r} of the compound starts at byte {offset} of an element, the one before it ends at byte {at}; "
                "Zarr's compounds have no gaps; rechunk this array",
                field=name,
                offset=offset,
            )
        if kind.subdtype is not None:
            raise no_form(
                f"field {name!r} of the compound holds an array of shape {kind.shape}, and Zarr's compounds hold single values",
                field=name,
            )
        out.append((name, kind))
        at += kind.itemsize
    if at != dtype.itemsize:
        raise no_form(
            f"an element of the compound takes {dtype.itemsize} bytes and its fields end at {at}; Zarr's compounds have no "
            "gaps; rechunk this array",
            itemsize=dtype.itemsize,
        )
    return out


def packed_dtype(dtype: np.dtype) -> np.dtype:
    """The little-endian dtype without gaps that holds the same values: what an array is written anew as.

    Examples
    --------
    >>> inner = np.dtype({"names": ["x"], "formats": [">i2"], "offsets": [2], "itemsize": 8})
    >>> packed_dtype(np.dtype([("a", "i1"), ("b", inner)], align=True))
    dtype([('a', 'i1'), ('b', [('x', '<i2')])])
    """
    if dtype.subdtype is not None:
        return np.dtype((packed_dtype(dtype.subdtype[0]), dtype.subdtype[1]))
    if dtype.names is not None:
        assert dtype.fields is not None
        return np.dtype([(n, packed_dtype(dtype.fields[n][0])) for n in dtype.names])
    return dtype if dtype.kind == "T" else dtype.newbyteorder("<")


def data_type_v3(dtype: np.dtype) -> Json:
    """The ``data_type`` of a version 3 array.

    Raises
    ------
    UnsupportedError
        Version 3 has no such type: compounds with gaps or arrays in them, 80-bit floats.

    Examples
    --------
    >>> data_type_v3(np.dtype(">f4")), data_type_v3(np.dtype("S5"))
    ('float32', {'name': 'null_terminated_bytes', 'configuration': {'length_bytes': 5}})
    """
    if dtype.kind == "T":
        return "string"
    if dtype.names is not None:
        fields: list[Json] = [{"name": name, "data_type": data_type_v3(kind)} for name, kind in fields_of(dtype)]
        return {"name": "struct", "configuration": {"fields": fields}}
    _check_plain(dtype)
    if dtype.kind in _PLAIN_KINDS:
        return dtype.name
    if dtype.kind in "mM":
        unit, factor = np.datetime_data(dtype)
        name = "numpy.datetime64" if dtype.kind == "M" else "numpy.timedelta64"
        return {"name": name, "configuration": {"unit": unit, "scale_factor": factor}}
    name = {"S": "null_terminated_bytes", "U": "fixed_length_utf32", "V": "raw_bytes"}[dtype.kind]
    return {"name": name, "configuration": {"length_bytes": dtype.itemsize}}


def _check_plain(dtype: np.dtype) -> None:
    sizes = {"f": (2, 4, 8), "c": (8, 16)}.get(dtype.kind)
    if (
        dtype.kind not in "biufcmMSUV"
        or dtype.subdtype is not None
        or dtype.itemsize == 0
        or (sizes and dtype.itemsize not in sizes)
    ):
        raise no_form(f"Zarr has no data type for {dtype} of {dtype.itemsize} bytes an element", itemsize=dtype.itemsize)


def data_type_v2(dtype: np.dtype) -> Json:
    """The ``dtype`` of a version 2 array, byte order included.

    Examples
    --------
    >>> data_type_v2(np.dtype(">f4")), data_type_v2(np.dtype([("a", "<i2"), ("b", ">f8")]))
    ('>f4', [['a', '<i2'], ['b', '>f8']])
    """
    if dtype.kind == "T":
        return "|O"
    if dtype.names is not None:
        return [[name, data_type_v2(kind)] for name, kind in fields_of(dtype)]
    _check_plain(dtype)
    return dtype.str

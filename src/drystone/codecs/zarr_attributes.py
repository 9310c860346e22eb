"""Attributes as strict JSON, in the form that xarray reads from Zarr with every bit of ``_FillValue`` kept.

xarray 2026.9 reads ``_FillValue`` three ways. From a version 3 array it decodes the attribute: base64 of a
little-endian float64 for floats, a number for integers and booleans, and it fails to open the whole data set where the
array is of text, bytes or compounds, or the attribute is of the wrong kind. From a version 2 array it takes ``fill_value``
for ``_FillValue`` unless that is null, and the attribute as it stands otherwise.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from drystone.codecs.zarr_types import Json

__all__ = ["AttributeLike", "attributes_v2", "attributes_v3", "single", "unkept_attributes"]

_FILL = "_FillValue"


class AttributeLike(Protocol):
    """What is needed of :class:`drystone.model.attributes.Attribute`, which lies in a layer above."""

    @property
    def value(self) -> Any:  # noqa: ANN401  an attribute's type is data
        """As a Python or NumPy value."""
        ...

    def to_plain(self) -> Any:  # noqa: ANN401  JSON, whose recursive types of two modules do not match
        """As strict JSON."""
        ...


def single(value: Any) -> Any:  # noqa: ANN401  an attribute's type is data
    """One number out of a scalar or an array of one, which is how netCDF-4 stores numbers; else the value itself."""
    if isinstance(value, np.ndarray) and value.size == 1:
        return value.reshape(-1)[0]
    if isinstance(value, list) and len(value) == 1:
        return value[0]
    return value


def _float64(value: Any) -> str:  # noqa: ANN401 - an attribute's value is data
    return base64.b64encode(struct.pack("<d", float(value))).decode()


def _fill_attribute_v3(value: Any, dtype: np.dtype) -> Json:  # noqa: ANN401 - an attribute's value is data
    """``_FillValue`` as xarray decodes it; None where it could not."""
    number = isinstance(value, bool | int | float | np.bool | np.integer | np.floating)
    if dtype.kind == "f" and number:
        inexact = isinstance(value, int | np.integer) and int(float(value)) != int(value)
        return None if inexact else _float64(value)
    if dtype.kind == "c" and (number or isinstance(value, complex | np.complexfloating)):
        return [_float64(np.real(value)), _float64(np.imag(value))]
    if dtype.kind == "b" and number:
        return bool(value)
    if dtype.kind in "iu" and number and math.isfinite(value):
        return int(value) if value == int(value) else float(value)
    return None


def _as_read(fill: Json, attributes: Mapping[str, AttributeLike], dtype: np.dtype) -> Json:
    """A number that says missing, signed where readers take unsigned ones as signed: xarray fails on one beyond these."""
    word = attributes.get("_Unsigned")
    if dtype.kind != "u" or not isinstance(fill, int) or word is None or str(word.to_plain()).lower() != "false":
        return fill
    return fill - (1 << 8 * dtype.itemsize) if fill >> (8 * dtype.itemsize - 1) else fill


def attributes_v3(attributes: Mapping[str, AttributeLike], dtype: np.dtype) -> dict[str, Json]:
    """The ``attributes`` of a version 3 array.

    Parameters
    ----------
    attributes
        :class:`~drystone.model.attributes.Attributes`.
    dtype
        The array's. Those named by :func:`unkept_attributes` are left out.

    Examples
    --------
    >>> from drystone.model.attributes import Attributes
    >>> attributes_v3(Attributes.of({"_FillValue": np.float32(1e37), "limit": np.inf}), np.dtype("<f4"))
    {'_FillValue': 'AAAAQLgXnkc=', 'limit': 'Infinity'}
    """
    out: dict[str, Json] = {}
    for name, attribute in attributes.items():
        if name == _FILL:
            fill = _fill_attribute_v3(single(attribute.value), dtype)
            if fill is not None:
                out[name] = _as_read(fill, attributes, dtype)
        else:
            out[name] = attribute.to_plain()
    return out


def attributes_v2(attributes: Mapping[str, AttributeLike], dtype: np.dtype) -> dict[str, Json]:
    """The attributes of a version 2 array, without ``_ARRAY_DIMENSIONS``: ``_FillValue`` is a plain number.

    Examples
    --------
    >>> from drystone.model.attributes import Attributes
    >>> attributes_v2(Attributes.of({"_FillValue": np.array([-9], "i2"), "units": "K"}), np.dtype(">i2"))
    {'_FillValue': -9, 'units': 'K'}
    """
    out: dict[str, Json] = {name: attribute.to_plain() for name, attribute in attributes.items()}
    plain = out.get(_FILL)
    if isinstance(plain, list) and len(plain) == 1 and dtype.kind != "c":
        out[_FILL] = plain[0]
    return out


def unkept_attributes(attributes: Mapping[str, AttributeLike], dtype: np.dtype) -> dict[str, str]:
    """Attributes that :func:`attributes_v3` leaves out, and why.

    Examples
    --------
    >>> from drystone.model.attributes import Attributes
    >>> list(unkept_attributes(Attributes.of({"_FillValue": "-", "units": "1"}), np.dtype("S1")))
    ['_FillValue']
    """
    if _FILL not in attributes or _fill_attribute_v3(single(attributes[_FILL].value), dtype) is not None:
        return {}
    value = attributes[_FILL].value
    return {
        _FILL: f"_FillValue is {value!r} and the array is of {dtype}: xarray cannot open a Zarr 3 data set that says so, "
        "so the published array lacks this attribute; its values are unchanged"
    }

"""Fill values as strict JSON, version 3 and version 2, bit for bit."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from drystone.codecs.zarr_attributes import AttributeLike, single
from drystone.codecs.zarr_types import Json, fields_of, no_form

__all__ = ["fill_survives", "fill_v2", "fill_v3", "mask_fill_v2"]

_NAN_BITS = {2: 0x7E00, 4: 0x7FC00000, 8: 0x7FF8000000000000}


def _float(value: np.floating, version: int) -> Json:
    """A float; a NaN with other bits than the usual ones as the hex of its bits, which version 3 allows."""
    if not np.isnan(value):
        return float(value) if np.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")
    bits = int(value.view(f"u{value.itemsize}"))
    if bits == _NAN_BITS[value.itemsize]:
        return "NaN"
    word = f"0x{bits:0{value.itemsize * 2}x}"
    if version == 2:
        raise no_form(
            f"unwritten chunks read as the NaN with bits {word}, and Zarr 2 can only say the usual one, "
            f"0x{_NAN_BITS[value.itemsize]:x}; publish as Zarr 3, or rechunk this array",
            bits=word,
        )
    return word


def _element(fill: bytes | None, dtype: np.dtype) -> NDArray[np.generic]:
    """The fill as a 0-d native array; nothing means zeros, which is what HDF5 gives."""
    if dtype.kind == "T":
        return np.zeros((), np.dtypes.StringDType())
    if fill is None:
        return np.zeros((), dtype.newbyteorder("="))
    return np.frombuffer(fill, dtype, 1).astype(dtype.newbyteorder("=")).reshape(())


def _scalar(element: NDArray[np.generic], version: int) -> Json:
    dtype, value = element.dtype, element[()]
    if dtype.kind == "T":
        return ""
    if dtype.kind == "b":
        return bool(value)
    if dtype.kind in "iu":
        return int(value)
    if dtype.kind == "f":
        return _float(cast("np.floating", value), version)
    if dtype.kind == "c":
        return [_float(cast("np.floating", part), version) for part in (value.real, value.imag)]
    if dtype.kind in "mM":
        return int(value.view("i8"))
    if dtype.kind == "U":
        return str(value)
    raw = element.tobytes()
    return base64.b64encode(raw.rstrip(b"\0") if dtype.kind == "S" else raw).decode()


def fill_survives(fill: bytes | None, dtype: np.dtype) -> bool:
    r"""Whether zarr reads :func:`fill_v3` back bit for bit.

    zarr 3.4 takes fill values through Python floats: those of float16 lose the payload of a NaN, and a signalling NaN of
    float32 becomes a quiet one. Where this is False, no chunk may be left to the fill value.

    Examples
    --------
    >>> fill_survives(b"\x00\x7e", np.dtype("<f2")), fill_survives(b"\xff\x7f", np.dtype("<f2"))
    (True, False)
    >>> [fill_survives(bytes.fromhex(h), np.dtype(">f4")) for h in ("7fc00001", "7f800001", "ff800000")]
    [True, False, True]
    """
    if fill is None or dtype.kind == "T":
        return True
    if dtype.names is not None:
        assert dtype.fields is not None
        parts = [dtype.fields[n][:2] for n in dtype.names]
        return all(fill_survives(fill[at : at + kind.itemsize], kind) for kind, at in parts)
    if dtype.subdtype is not None:
        base = dtype.subdtype[0]
        return all(fill_survives(fill[i : i + base.itemsize], base) for i in range(0, len(fill), base.itemsize))
    if dtype.kind == "c":
        part, half = np.dtype(f"{dtype.str[0]}f{dtype.itemsize // 2}"), dtype.itemsize // 2
        return fill_survives(fill[:half], part) and fill_survives(fill[half:], part)
    if dtype.kind == "b":
        return fill in (b"\0", b"\1")
    if dtype.kind != "f" or dtype.itemsize not in (2, 4):
        return True
    bits = int(np.frombuffer(fill, f"{dtype.str[0]}u{dtype.itemsize}", 1)[0])
    if dtype.itemsize == 2:
        return bits & 0x7FFF <= 0x7C00 or bits & 0x7FFF == 0x7E00
    return bits & 0x7FFFFFFF <= 0x7F800000 or bits & 0x00400000 != 0


def fill_v3(fill: bytes | None, dtype: np.dtype) -> Json:
    """The ``fill_value`` of a version 3 array: what unwritten chunks read as, bit for bit.

    A NaN with unusual bits is written as the hex that the specification has for it; zarr 3.4 reads that exactly but for
    float16 and for signalling NaNs, whose bits it loses on the way through a Python float.

    Parameters
    ----------
    fill
        One element in stored form; None: zeros.
    dtype
        As stored.

    Examples
    --------
    >>> fill_v3(np.float32(9.96921e36).tobytes(), np.dtype("<f4")), fill_v3(None, np.dtype("i2"))
    (9.969209968386869e+36, 0)
    >>> fill_v3(bytes.fromhex("ffc00000"), np.dtype(">f4"))
    '0xffc00000'
    """
    if dtype.names is not None:
        out: dict[str, Json] = {}
        at = 0
        for name, kind in fields_of(dtype):
            out[name] = fill_v3(None if fill is None else fill[at : at + kind.itemsize], kind)
            at += kind.itemsize
        return out
    return _scalar(_element(fill, dtype), 3)


def fill_v2(fill: bytes | None, dtype: np.dtype) -> Json:
    r"""The ``fill_value`` of a version 2 array: what unwritten chunks read as.

    xarray takes a version 2 fill value for missing data as well; see
    :func:`~drystone.codecs.zarr_fills.mask_fill_v2` for one that says both, where one can.

    Examples
    --------
    >>> fill_v2(b"\xff\xf7", np.dtype(">i2"))
    -9
    """
    if dtype.names is not None:
        fields_of(dtype)
        raw = bytes(dtype.itemsize) if fill is None else fill
        return base64.b64encode(raw).decode()
    return _scalar(_element(fill, dtype), 2)


def mask_fill_v2(fill: bytes | None, attributes: Mapping[str, AttributeLike], dtype: np.dtype, *, sparse: bool) -> Json:
    """A version 2 ``fill_value`` with which xarray reads unwritten chunks right and masks exactly ``_FillValue``.

    Parameters
    ----------
    fill
        One stored element that unwritten chunks read as; None: zeros.
    sparse
        Whether any chunk may be unwritten.

    Returns
    -------
    JSON, or None, which says nothing: xarray then masks by the attribute, and zarr reads unwritten chunks as zeros.

    Raises
    ------
    UnsupportedError
        Unwritten chunks read as one value and missing data are another, and version 2 has room for one.

    Examples
    --------
    >>> from drystone.model.attributes import Attributes
    >>> a = Attributes.of({"_FillValue": np.int16(-9)})
    >>> mask_fill_v2(None, a, np.dtype("<i2"), sparse=False), mask_fill_v2(None, a, np.dtype("<i2"), sparse=True)
    (-9, None)
    """
    native = dtype.newbyteorder("=") if dtype.kind != "T" else dtype
    mask = _exact(single(attributes["_FillValue"].value), native) if "_FillValue" in attributes else None
    if not sparse:
        return None if mask is None else fill_v2(mask, native)
    stored = np.frombuffer(fill, dtype, 1).astype(native).tobytes() if fill is not None and dtype.kind != "T" else None
    if stored is None or not any(stored):
        return fill_v2(mask, native) if mask is not None and not any(mask) else None
    if stored == mask:
        return fill_v2(mask, native)
    raise no_form(
        f"unwritten chunks read as {fill_v2(stored, native)!r}, which Zarr 2 can only say as fill_value, and xarray takes "
        "that for missing data, which this array's attributes do not say; publish as Zarr 3, or rechunk this array",
    )


def _exact(value: Any, native: np.dtype) -> bytes | None:  # noqa: ANN401 - an attribute's value is data
    """One native element with exactly this value, or None."""
    if native.kind not in "biufc" or not isinstance(value, bool | int | float | complex | np.generic):
        return None
    kind = np.asarray(value).dtype.kind
    if kind not in "biufc" or (kind == "c" and native.kind != "c"):
        return None
    with np.errstate(all="ignore"):
        try:
            cast = np.asarray(value).astype(native)
        except (OverflowError, ValueError, TypeError):
            return None
    same = bool(cast == value) or bool(cast != cast and value != value)  # NaN is NaN
    return cast.tobytes() if same else None

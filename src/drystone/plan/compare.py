"""What must be equal for granules of one array to be one array.

Compared by what decides values, not by text: element type, dimensions, sizes off the axis, packing, ``_FillValue``,
units and calendar. A difference is refused by name with both granules, both values and the ways out. Differences that
change no value (history, creation date) are dropped from the result with a note; differences of storage (codecs, chunk
shape, byte order, storage fill) leave values alone but rule out one virtual array, and say so.
"""

from __future__ import annotations

import numpy as np

from drystone.errors import CombineError
from drystone.model.array import ArraySpec
from drystone.model.attributes import Attribute, Attributes

__all__ = ["VALUE_ATTRIBUTES", "check_variant", "merge_attributes", "storage_difference"]

# attributes that change what a stored number means
VALUE_ATTRIBUTES = (
    "_FillValue",
    "missing_value",
    "scale_factor",
    "add_offset",
    "_Unsigned",
    "units",
    "calendar",
    "flag_values",
    "flag_masks",
    "flag_meanings",
    "valid_min",
    "valid_max",
    "valid_range",
    "dtype",
)


def _show(value: Attribute | None) -> str:
    if value is None:
        return "none"
    plain = value.to_plain()
    kind = "" if value.dtype in ("text", "bytes") else f" ({np.dtype(value.dtype).name})"
    return f"{plain!r}{kind}"


def _refuse(path: str, what: str, one: str, a: str, two: str, b: str, ways: str) -> CombineError:
    return CombineError(
        f"{path}: {what} differs between granules: {a} in {one}, {b} in {two}; joined as they are, values would be "
        f"wrong; {ways}",
        kind="difference",
        variable=path,
        what=what,
        granule=one,
        other=two,
        value=a,
        other_value=b,
    )


def check_variant(base: ArraySpec, other: ArraySpec, axis: str | None, one: str, two: str) -> None:
    """Refuse what would change values.

    Parameters
    ----------
    base, other
        Specs of one array in two granules named ``one`` and ``two``.
    axis
        The combine axis, whose size may differ.

    Raises
    ------
    CombineError
        ``difference``, naming both granules and both values.
    """
    path = base.path
    leave = "leave the variable out with combine: {variables: […]}, or split the archive where it changes"
    if base.dims != other.dims:
        raise _refuse(path, "dimensions", one, str(base.dims), two, str(other.dims), leave)
    if base.native_dtype != other.native_dtype:
        raise _refuse(path, "element type", one, str(base.native_dtype), two, str(other.native_dtype), leave)
    for name, n, m in zip(base.dims, base.shape, other.shape, strict=True):
        if name != axis and n != m:
            raise _refuse(path, f"size of {name}", one, str(n), two, str(m), leave)
    for key in VALUE_ATTRIBUTES:
        a, b = base.attributes.get(key), other.attributes.get(key)
        if a != b:
            raise _refuse(path, key, one, _show(a), two, _show(b), leave)


def merge_attributes(variants: tuple[ArraySpec, ...]) -> tuple[Attributes, tuple[str, ...]]:
    """Attributes that all variants share, and the names of those dropped because they differ."""
    base = variants[0].attributes
    dropped = {k for k in base for v in variants[1:] if v.attributes.get(k) != base[k]}
    dropped |= {k for v in variants[1:] for k in v.attributes if k not in base}
    return base.without(*dropped), tuple(sorted(dropped))


def storage_difference(base: ArraySpec, other: ArraySpec, axis: int | None) -> str | None:
    """Why two variants cannot be one virtual array, though their values fit; None where they can."""
    if base.codecs.signature() != other.codecs.signature():
        return f"codecs {base.codecs.to_json()} and {other.codecs.to_json()}"
    if base.dtype != other.dtype:
        return f"stored element types {base.dtype} and {other.dtype}"
    if (base.fill or b"").strip(b"\0") != (other.fill or b"").strip(b"\0"):
        return f"storage fill values {(base.fill or b'').hex()} and {(other.fill or b'').hex()} (hex)"
    for i, (name, a, b) in enumerate(zip(base.dims, base.chunk_shape, other.chunk_shape, strict=True)):
        if i != axis and a != b:
            return f"chunk sizes {a} and {b} along {name}"
    return None

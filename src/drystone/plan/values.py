"""Stores with unpacked numbers, or with packed ones and nothing else: ``values: decoded`` and ``values: packed``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from drystone.codecs.chain import Codec, CodecChain
from drystone.errors import CombineError, DecodeError
from drystone.model.array import ArraySpec
from drystone.model.attributes import Attribute, Attributes
from drystone.model.placement import CombinedArray
from drystone.model.recode import Recode
from drystone.plan.compare import show
from drystone.plan.numbers import FLAGS, LIMITS, PACKING
from drystone.plan.packing import is_unsigned, packing_of
from drystone.plan.sentinels import missing_of

__all__ = ["decoded", "packed_or_refuse"]

_NAN = np.float64("nan")


def _is_packed(attributes: Attributes, dtype: np.dtype) -> bool:
    """Whether numbers stand for others."""
    return dtype.kind in "iuf" and any(k in attributes for k in PACKING[:2])


def _used(array: CombinedArray) -> list[int]:
    return sorted(set(array.placements.variant.tolist()))


def decoded(array: CombinedArray) -> CombinedArray:
    """The same array with packed numbers unpacked to float64; an array that is not packed is as it was.

    Missing data become NaN. Limits and flags, which are numbers as stored, are left out. Every granule is unpacked by its
    own attributes: combining has proved that they say the same as the array's.

    Raises
    ------
    CombineError
        The packing attributes are no numbers.
    """
    if array.made or not _is_packed(array.attributes, array.dtype):
        return array
    used = _used(array)
    gaps = bool(missing_of(array.attributes, array.dtype)) or any(
        missing_of(array.variants[v].attributes, array.variants[v].dtype) for v in used
    )
    recodes = tuple(_unpacking(array, array.variants[v], gaps) if v in used else None for v in range(len(array.variants)))
    attributes = array.attributes.without(*PACKING, *LIMITS, *FLAGS, "flag_meanings", "_FillValue", "missing_value")
    if gaps:
        attributes = Attributes((*attributes.items_, ("_FillValue", Attribute.of(_NAN))))
    return replace(
        array,
        dtype=np.dtype("f8"),
        stored_dtype=np.dtype("<f8"),
        fill=_fill(array, recodes),
        codecs=CodecChain.of(Codec.of("bytes", endian="little")),
        attributes=attributes,
        recodes=recodes,
        picked=None if array.picked is None else replace(array.picked, base=decoded(array.picked.base)),
        unaligned=array.unaligned or f"{array.path}: its numbers are unpacked, so no granule's bytes are its chunks",
    )


def _unpacking(array: CombinedArray, spec: ArraySpec, gaps: bool) -> Recode:
    packing, missing = packing_of(spec.attributes), missing_of(spec.attributes, spec.dtype)
    if packing is None or missing is None:
        said = ", ".join(f"{k} {show(spec.attributes.get(k))}" for k in (*PACKING, "_FillValue") if k in spec.attributes)
        raise CombineError(
            f"{array.path}: no number says how to unpack it ({said}); say values: auto, or leave it out with arrays: […]",
            kind="packing",
            variable=array.path,
        )
    says = _NAN.tobytes() if gaps else None
    unsigned = is_unsigned(spec.attributes, spec.dtype)
    return Recode(np.dtype("f8"), unsigned, missing, says, packing.scale, packing.offset)


def _fill(array: CombinedArray, recodes: tuple[Recode | None, ...]) -> bytes | None:
    """What unwritten chunks read as, unpacked as the first granule that may have one is."""
    v = next((int(v) for v in array.placements.variant.tolist() if array.variants[v].sparse), None)
    how = None if v is None else recodes[v]
    if v is None or how is None:
        return None
    spec = array.variants[v]
    if spec.fill is None:
        return None
    try:
        number = how.apply(np.frombuffer(spec.fill, spec.dtype, 1).astype(spec.native_dtype)).astype("<f8")
    except DecodeError:
        return how.missing_as
    return bytes(number.tobytes())


def packed_or_refuse(array: CombinedArray) -> CombinedArray:
    """The same array, where combining did not have to unpack it.

    Raises
    ------
    CombineError
        Granules pack differently and no exact common packing is.
    """
    if array.made or array.dtype.kind != "f" or _is_packed(array.attributes, array.dtype):
        return array
    said = [array.variants[v] for v in _used(array) if _is_packed(array.variants[v].attributes, array.variants[v].dtype)]
    if not said:
        return array
    texts = list(dict.fromkeys(", ".join(f"{k} {show(s.attributes.get(k))}" for k in PACKING[:2]) for s in said))
    raise CombineError(
        f"{array.path}: granules pack differently ({'; '.join(texts[:3])}{'; …' if len(texts) > 3 else ''}) and no packing "
        "holds the numbers of all exactly, so they can be stored as float64 and not packed; say values: decoded or auto",
        kind="packing",
        variable=array.path,
    )

"""Numbers of a store in another type, packing or with another number for missing: ``dtype``, ``pack`` and ``fill_value``.

Each is one more step of how a granule's numbers become the store's (:class:`~drystone.model.recode.Recode`), taken chunk by
chunk while they are read, so that a number that has no place there is refused with its granule. All that says missing becomes
one number, which no other may become. What unwritten cells read as goes the same way as data, and is missing only where it was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import numpy as np

from drystone.codecs.chain import Codec, CodecChain
from drystone.errors import ConfigError, DecodeError
from drystone.model.attributes import Attribute, Attributes
from drystone.model.options import OutputOptions
from drystone.model.placement import Combined, CombinedArray
from drystone.model.recode import Recode
from drystone.model.rounding import Loss, mantissa_bits
from drystone.plan.compare import show
from drystone.plan.coverage import Coverage
from drystone.plan.numbers import FLAGS, LIMITS, PACKING
from drystone.plan.packing import is_unsigned, packing_of
from drystone.plan.precision import named, with_loss
from drystone.plan.sentinels import KEYS, attribute_of, element_of, missing_of, retyped
from drystone.plan.values import decoded

__all__ = ["with_types"]

_NAN = np.float64("nan").tobytes()


def with_types(combined: Combined, output: OutputOptions) -> Combined:
    """The whole with arrays in the types, packings and with the fill values that an output wishes.

    Raises
    ------
    ConfigError
        ``retype``: an array that is named cannot be that; the message has the array and the reason.
    """
    if not (output.dtype or output.pack or output.fill_value):
        return combined
    dtypes = named(combined, output.dtype, "dtype", output.at)
    packs = named(combined, output.pack, "pack", output.at)
    fills = named(combined, output.fill_value, "fill_value", output.at)
    arrays = []
    for a in combined.arrays:
        dtype, dtype_named = dtypes.get(a.path, (None, False))
        pack, pack_named = packs.get(a.path, (None, False))
        fill, fill_named = fills.get(a.path, (None, False))
        if pack_named and dtype_named:
            raise _refused(a, output.at, "dtype and pack both say its type; keep one")
        try:
            if pack is not None and not dtype_named:
                a = _packed(a, pack, fill)
            elif dtype is not None or fill is not None:
                a = _retyped(a, a.dtype if dtype is None else np.dtype(dtype), fill)
        except _Impossible as problem:
            if dtype_named or pack_named or fill_named:
                raise _refused(a, output.at, str(problem)) from problem
        arrays.append(a)
    unmarked = {p: t for p, t in combined.unmarked.items() if not next(a for a in arrays if a.path == p).marks_missing}
    return replace(combined, arrays=tuple(arrays), unmarked=unmarked)


class _Impossible(Exception):
    """Why an array cannot be what is wished."""


def _refused(array: CombinedArray, at: str, why: str) -> ConfigError:
    return ConfigError(f"{at}: {array.path}: {why}", kind="retype", output=at, array=array.path)


def _retyped(array: CombinedArray, target: np.dtype, fill: float | str | None) -> CombinedArray:
    """The numbers in a type, exactly but for floating-point numbers in a narrower one."""
    unsigned = is_unsigned(array.attributes, array.dtype)
    if array.dtype == target and fill is None:
        return array
    if array.made or array.dtype.kind not in "iuf":
        raise _Impossible(f"it holds {array.dtype}, and only numbers of granules are stored in another type")
    packing = packing_of(array.attributes)
    if target.kind == "f" and target != array.dtype and (packing is None or not packing.plain):
        raise _Impossible(f"its numbers are packed, so as {target} they would be neither; values: decoded unpacks them")
    if unsigned and array.dtype == target:
        raise _Impossible("its numbers are read as unsigned (_Unsigned); say dtype as well, uint8 or a larger type")
    narrower = array.dtype.kind == target.kind == "f" and mantissa_bits(target) < mantissa_bits(array.dtype)
    if narrower and " since " in str(getattr(array.attributes.get("units"), "value", "")):
        raise _Impossible(f"it holds times, and as {target} they would be others")
    missing, sentinel = _missing(array, target, fill)
    how = Recode(target, unsigned, missing, sentinel, near=narrower)
    attributes = _flags_read_as(array.attributes, array.dtype) if unsigned else array.attributes
    out = _through(array, how, attributes.without(*(["_Unsigned"] if unsigned else [])))
    if not narrower:
        return out
    half = 0.5 ** (mantissa_bits(target) + 1)
    words = f"{array.dtype} to {target}, at most {half:.3g} of a value off"
    return with_loss(out, Loss(half, float(np.finfo(target).smallest_subnormal) / 2, (words,)))


def _packed(array: CombinedArray, wish: Mapping[str, float | str], fill: float | str | None) -> CombinedArray:
    """The numbers as whole ones of a scale and an offset."""
    array = decoded(array)
    target, scale, offset = np.dtype(str(wish["dtype"])), float(wish["scale_factor"]), float(wish.get("add_offset", 0.0))
    if array.made or array.dtype.kind != "f":
        raise _Impossible(f"it holds {array.dtype} that are not packed, and only floating-point numbers are packed")
    if " since " in str(getattr(array.attributes.get("units"), "value", "")):
        raise _Impossible("it holds times, which are not packed")
    limits = np.iinfo(target)
    # the end of the type that people expect for it, since NaN is no whole number
    missing, sentinel = _missing(array, target, fill if fill is not None else limits.min or limits.max)
    how = Recode(target, False, missing, sentinel, Fraction(scale), Fraction(offset), near=True)
    kept = array.attributes.without(*PACKING, *LIMITS, *FLAGS, "flag_meanings").items_
    packing = (("scale_factor", Attribute.of(np.float64(scale))), ("add_offset", Attribute.of(np.float64(offset))))
    out = _through(array, how, Attributes((*kept, *packing)))
    half = abs(scale) / 2
    return with_loss(out, Loss(0.0, half, (f"packed into {target} in steps of {abs(scale):g}, at most {half:.3g} off",)))


def _missing(array: CombinedArray, target: np.dtype, fill: float | str | None) -> tuple[tuple[bytes, ...], bytes | None]:
    """Elements of the array that say missing, and the one of the store that says so for all."""
    missing = missing_of(array.attributes, array.dtype)
    if missing is None:
        said = ", ".join(f"{k} {show(array.attributes.get(k))}" for k in KEYS if k in array.attributes)
        raise _Impossible(f"no number says what is missing ({said})")
    if fill is not None:
        number = float(fill) if isinstance(fill, str) else fill
        sentinel = element_of(number, target)
        if sentinel is None or _overflows(sentinel, target, number):
            raise _Impossible(f"fill_value {fill} is no {target}")
    elif missing:
        read = array.dtype if not is_unsigned(array.attributes, array.dtype) else np.dtype(f"u{array.dtype.itemsize}")
        sentinel = retyped(missing[0], read, target)
        number = np.frombuffer(missing[0], read, 1)[0].item()
        if sentinel is None or _overflows(sentinel, target, number):
            raise _Impossible(f"its _FillValue {number} is no {target}; say fill_value: {{{array.name}: …}} as well")
    else:
        sentinel = None
    if target.kind in "iu" and array.dtype.kind == "f":
        if sentinel is not None:
            missing = (*missing, np.array(np.nan, array.dtype).tobytes())  # as readers take it
        elif Coverage.of(array).has_gaps:
            raise _Impossible(f"places that no granule holds read as NaN, which no {target} is; say fill_value as well")
    return missing, sentinel


def _overflows(element: bytes, dtype: np.dtype, number: float) -> bool:
    """Whether a finite number became an infinite one."""
    return dtype.kind == "f" and bool(np.isinf(np.frombuffer(element, dtype, 1)[0])) and math.isfinite(number)


def _flags_read_as(attributes: Attributes, dtype: np.dtype) -> Attributes:
    """Limits and flags, which are numbers as stored, as unsigned ones."""
    items = []
    for name, attribute in attributes.items_:
        if name in (*LIMITS, *FLAGS) and attribute.dtype not in ("text", "bytes") and np.dtype(attribute.dtype).kind == "i":
            numbers = np.asarray(attribute.value).astype(dtype)
            attribute = Attribute.of(numbers.view(f"u{dtype.itemsize}"))
        items.append((name, attribute))
    return Attributes(tuple(items))


def _through(array: CombinedArray, how: Recode, attributes: Attributes) -> CombinedArray:
    """The array with one more step of recoding."""
    known = array.recodes or (None,) * len(array.variants)
    if how.missing_as is not None:
        says = attribute_of(how.missing_as, how.dtype)
        attributes = Attributes((*attributes.without(*KEYS).items_, ("_FillValue", says)))
    return replace(
        array,
        dtype=how.dtype,
        stored_dtype=how.dtype.newbyteorder("<"),
        fill=_fill(array, how),
        codecs=CodecChain.of(Codec.of("bytes", endian="little") if how.dtype.itemsize > 1 else "bytes"),
        attributes=attributes,
        recodes=tuple(how if r is None else _after(r, how) for r in known),
        picked=None if array.picked is None else replace(array.picked, base=_through(array.picked.base, how, attributes)),
        unaligned=array.unaligned
        or f"{array.path}: its numbers are rewritten as {how.dtype}, so no granule's bytes are its chunks",
    )


def _after(first: Recode, how: Recode) -> Recode:
    """One rewriting and then another.

    They are one where whole numbers stay what they are, so that data may be what would say missing between the two.
    """
    if first.then is not None:
        return replace(first, then=_after(first.then, how))
    same = first.dtype.kind in "iu" and how.dtype.kind in "iu" and how.scale == 1 and how.offset == 0 and not how.unsigned
    if same and first.missing_as is not None and how.missing_as is not None:
        return replace(first, dtype=how.dtype, missing_as=how.missing_as)
    return replace(first, then=how)


def _fill(array: CombinedArray, how: Recode) -> bytes | None:
    """What unwritten chunks read as; where that has no place, a cell that reads so is refused by its granule."""
    if array.fill is None and how.missing_as is None:
        return None
    try:
        number = how.apply(array.fill_scalar.reshape(1))
    except DecodeError:
        return how.missing_as
    return number.astype(how.dtype.newbyteorder("<")).tobytes()

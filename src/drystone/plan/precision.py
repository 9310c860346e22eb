"""Which arrays of a store lose precision, how, and what then says so: the option ``round``.

An array that is named must be one that can be rounded; ``"*"`` means those that nobody would mind: floating-point numbers that
are no coordinate, no bounds and no times. The array gets the attributes that netCDF's tools know, and one in plain words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from drystone.errors import ConfigError
from drystone.model.attributes import Attribute, Attributes
from drystone.model.options import OutputOptions
from drystone.model.placement import Combined, CombinedArray
from drystone.model.rounding import Loss, Rounding, mantissa_bits
from drystone.plan.packing import packing_of

__all__ = ["LOSS", "named", "with_loss", "with_rounding"]

LOSS = "precision_loss"
"""The attribute that says in words how far values may be from the granules'."""

_POSITIONS = ("lat", "lon", "latitude", "longitude", "time", "projection_x_coordinate", "projection_y_coordinate")
_REFERRING = ("coordinates", "bounds", "climatology")


def _secondary(combined: Combined) -> Iterator[str]:
    """Paths of arrays that place others: coordinates and bounds."""
    yield from combined.coordinates
    dims = {(a.group, d) for a in combined.arrays for d in a.dims}
    for a in combined.arrays:
        if (a.group, a.name) in dims or _places(a):
            yield a.path
        for key in _REFERRING:
            said = a.attributes.get(key)
            if said is not None:
                yield from (f"{a.group.rstrip('/')}/{name}" for name in str(said.value).split())


def _places(array: CombinedArray) -> bool:
    """Whether its name or attributes say that it holds positions."""
    said = {key: str(getattr(array.attributes.get(key), "value", "")).lower() for key in ("standard_name", "units", "axis")}
    if (
        array.name.lower() in _POSITIONS
        or said["standard_name"].removeprefix("grid_") in _POSITIONS
        or said["axis"] in tuple("xyzt")
    ):
        return True
    return said["units"].startswith(
        ("degrees_n", "degree_n", "degrees_e", "degree_e", "degreen", "degreee", "degreesn", "degreese")
    )


def named[T](combined: Combined, wishes: Mapping[str, T], key: str, at: str) -> dict[str, tuple[T, bool]]:
    """By path what is wished for an array, and whether it was named; ``"*"`` is for floating-point fields that were not.

    Raises
    ------
    ConfigError
        A name that no array has, or a coordinate's.
    """
    if not wishes:
        return {}
    aside = frozenset(_secondary(combined))
    found: dict[str, tuple[T, bool]] = {}
    for a in combined.arrays:
        times = " since " in str(getattr(a.attributes.get("units"), "value", ""))
        if "*" in wishes and a.dtype.kind == "f" and a.path not in aside and not times:
            found[a.path] = wishes["*"], False
    for name, wish in wishes.items():
        hits = [a.path for a in combined.arrays if name in (a.name, a.path, a.path.lstrip("/"))]
        if not hits and name != "*":
            there = ", ".join(a.path for a in combined.arrays)
            raise ConfigError(
                f"{at}: {key}: {name}: there is no such array (there are: {there})", kind="array", output=at, array=name
            )
        for path in hits:
            if path in combined.coordinates:
                raise ConfigError(
                    f"{at}: {key}: {name}: {path} is a coordinate or a scalar, which stores hold as granules have it; take it "
                    "out",
                    kind="coordinate",
                    output=at,
                    array=path,
                )
            found[path] = wish, True
    return found


def with_loss(array: CombinedArray, loss: Loss | None) -> CombinedArray:
    """The array with one more loss, and the attribute that says all of them, what granules lost before included."""
    if loss is None:
        return array
    whole = loss if array.loss is None else array.loss.then(loss)
    before = array.attributes.get(LOSS)
    text = loss.text if before is None else f"{before.value}; {loss.text}"
    attributes = Attributes((*array.attributes.without(LOSS).items_, (LOSS, Attribute.of(text))))
    return replace(array, attributes=attributes, loss=whole)


def with_rounding(combined: Combined, output: OutputOptions) -> Combined:
    """The whole with arrays rounded as an output wishes.

    Raises
    ------
    ConfigError
        An array that is named is no floating-point one, has fewer bits than are to be kept, or is a coordinate or not there.
    """
    wishes = named(combined, output.round, "round", output.at)
    arrays = tuple(_rounded(a, *wishes[a.path], output.at) if a.path in wishes else a for a in combined.arrays)
    return replace(combined, arrays=arrays)


def _rounded(array: CombinedArray, wish: tuple[str, int], asked: bool, at: str) -> CombinedArray:
    way, number = wish
    problem = ""
    if array.dtype.kind != "f":
        problem = f"it holds {array.dtype}, and only floating-point numbers are rounded"
    elif (packing := packing_of(array.attributes)) is None or not packing.plain:
        problem = "its numbers are packed, and rounding them says little of what they stand for; values: decoded unpacks them"
    elif way == "keepbits" and number > mantissa_bits(array.dtype):
        problem = f"a {array.dtype} has {mantissa_bits(array.dtype)} bits of mantissa, {number} cannot be kept"
    if problem and asked:
        raise ConfigError(f"{at}: round: {array.path}: {problem}; take it out", kind="round", output=at, array=array.path)
    rounding = Rounding(keepbits=number) if way == "keepbits" else Rounding(digits=number)
    loss = None if problem else rounding.loss(array.dtype)
    if loss is None:
        return array
    said = tuple((name, Attribute.of(value)) for name, value in rounding.attributes.items())
    kept = array.attributes.without(*rounding.attributes).items_
    return with_loss(replace(array, rounding=rounding, attributes=Attributes((*kept, *said))), loss)

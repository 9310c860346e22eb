"""Which axes granules are joined along, where the config says none; and the coordinates to place them by.

The axis is the one dimension whose coordinate or length differs between granules; where nothing differs, the one that
is unlimited, or a new one by the one scalar coordinate that differs. Several candidates are an error that lists them, never a
guess.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from drystone.errors import CombineError
from drystone.model.array import ArraySpec
from drystone.model.options import AxisOptions
from drystone.plan.members import ArrayMembers
from drystone.plan.times import is_time

__all__ = ["axes_of", "coordinates_of", "dimension_sizes", "scalar_of", "telling_times"]

_COORDINATES = frozenset(
    [
        "time",
        "forecast_reference_time",
        "forecast_period",
        "realization",
        "height",
        "depth",
        "altitude",
        "air_pressure",
        "latitude",
        "longitude",
        "projection_x_coordinate",
        "projection_y_coordinate",
        "grid_latitude",
        "grid_longitude",
        "model_level_number",
        "atmosphere_hybrid_sigma_pressure_coordinate",
        "radiation_wavelength",
    ]
)


def coordinates_of(members: Mapping[str, ArrayMembers], dimension: str) -> list[ArrayMembers]:
    """All coordinate arrays of a dimension (one-dimensional, named as it), those nearest the root first."""
    found = [m for m in members.values() if m.name == dimension and m.variants[0].dims == (dimension,)]
    return sorted(found, key=lambda m: (m.path.count("/"), m.path))


def dimension_sizes(members: Mapping[str, ArrayMembers]) -> dict[str, set[int]]:
    """Sizes that dimensions have anywhere."""
    sizes: dict[str, set[int]] = {}
    for m in members.values():
        for spec in m.variants:
            for name, n in zip(spec.dims, spec.shape, strict=True):
                sizes.setdefault(name, set()).add(n)
    return sizes


def telling_times(members: Mapping[str, ArrayMembers], dimension: str, n_granules: int) -> list[ArrayMembers]:
    """One-dimensional auxiliary times along a dimension that differ between granules and are known in all."""
    return sorted(
        (
            m
            for m in members.values()
            if m.name != dimension
            and all(s.dims == (dimension,) and _says_time(s) for s in m.variants)
            and len(m) == n_granules
            and bool((m.coordinate >= 0).all())
            and _differs(m)
        ),
        key=lambda m: (m.path.count("/"), m.path),
    )


def scalar_of(members: Mapping[str, ArrayMembers], name: str) -> ArrayMembers | None:
    """The scalar or one-element variable of that name, nearest the root."""
    found = [m for m in members.values() if m.name == name and all(np.prod(s.shape) == 1 for s in m.variants)]
    return min(found, key=lambda m: (m.path.count("/"), m.path)) if found else None


def axes_of(members: Mapping[str, ArrayMembers], n_granules: int) -> tuple[AxisOptions, ...]:
    """The axis that is found by itself; none where one granule needs none.

    Raises
    ------
    CombineError
        ``axis-ambiguous`` with the candidates, ``axis-none`` where nothing tells granules apart.
    """
    if n_granules == 1:
        return ()
    unlimited = {d for m in members.values() for s in m.variants for d, u in zip(s.dims, s.unlimited, strict=False) if u}
    sizes = dimension_sizes(members)
    differs = {n for n in sizes if (c := coordinates_of(members, n)) and _differs(c[0])}
    differs |= {name for name, lengths in _per_granule_sizes(members).items() if len(lengths) > 1}
    scalars = set() if differs else _telling_scalars(members, n_granules)
    if not differs:
        differs = {d for d in sizes if telling_times(members, d, n_granules)}
    candidates = differs or scalars or unlimited
    if len(candidates) > 1 and len(candidates & unlimited) == 1:
        candidates &= unlimited
    if len(candidates) == 1:
        return (AxisOptions(next(iter(candidates))),)
    if not candidates:
        raise CombineError(
            f"{n_granules} granules have equal coordinates and no unlimited dimension, so nothing says along which of "
            f"({', '.join(sorted(sizes))}) they are joined; say so with combine: "
            f"{{along: {{DIMENSION: {{position: order}}}}}}, or "
            "name a new axis: combine: {along: {member: {position: name, pattern: …}}}",
            kind="axis-none",
        )
    raise CombineError(
        f"granules could be joined along any of {', '.join(sorted(candidates))}; choose one with combine: {{along: DIMENSION}}",
        kind="axis-ambiguous",
        candidates=", ".join(sorted(candidates)),
    )


def _differs(members: ArrayMembers) -> bool:
    """Whether values, or the units that give them their meaning, differ between granules."""
    if len(np.unique(members.coordinate)) > 1:
        return True
    meanings = {tuple(_text(s, k) for k in ("units", "calendar")) for s in members.variants}
    return len(meanings) > 1 and _says_time(members.variants[0])


def _telling_scalars(members: Mapping[str, ArrayMembers], n_granules: int) -> set[str]:
    """Names of scalar coordinates, known in all granules, that tell granules apart."""
    named = {w for m in members.values() for s in m.variants for w in (_text(s, "coordinates") or "").split()}
    return {
        m.name
        for m in members.values()
        if all(np.prod(s.shape) == 1 and (not s.dims or s.dims != (s.name,)) and len(s.dims) <= 1 for s in m.variants)
        and all(s.dtype.kind in "iuf" and (m.name in named or _is_coordinate(s)) for s in m.variants)
        and len(m) == n_granules
        and bool((m.coordinate >= 0).all())
        and _differs(m)
    }


def _is_coordinate(spec: ArraySpec) -> bool:
    return (
        _says_time(spec)
        or _text(spec, "axis") is not None
        or (_text(spec, "standard_name") or "") in _COORDINATES
        or spec.name == "time"
    )


def _says_time(spec: ArraySpec) -> bool:
    return is_time(_text(spec, "units"))


def _text(spec: ArraySpec, key: str) -> str | None:
    value = spec.attributes.get(key)
    return value.text[0] if value is not None and value.text else None


def _per_granule_sizes(members: Mapping[str, ArrayMembers]) -> dict[str, set[int]]:
    """Sizes of a dimension over granules, where each granule has one size of it (groups may reuse a name)."""
    out: dict[str, set[int]] = {}
    for m in members.values():
        for axis, name in enumerate(m.variants[0].dims):
            sizes = {s.shape[axis] for s in m.variants if len(s.shape) > axis}
            if len(sizes) > 1:
                out.setdefault(name, set()).update(sizes)
    return out

"""What the combine step works on: each array's specs over all granules, as columns.

A million granules share a handful of distinct specs, so a spec is held once and granules index it; the same for the
values of small coordinate arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from drystone.model.array import ArraySpec
from drystone.model.chunk_rows import ScanResult

__all__ = ["ArrayMembers", "from_scans"]


@dataclass(frozen=True, slots=True)
class ArrayMembers:
    """One array's specs over granules, sorted by granule id.

    Parameters
    ----------
    path
        ``/group/name``.
    granule_id
        int32 (n,), ascending.
    variant
        int32 (n,): index into ``variants``.
    variants
        The distinct specs.
    coordinate
        int32 (n,): index into ``coordinates``, -1 where the scan kept no values.
    coordinates
        The distinct values.
    """

    path: str
    granule_id: NDArray[np.int32]
    variant: NDArray[np.int32]
    variants: tuple[ArraySpec, ...]
    coordinate: NDArray[np.int32]
    coordinates: tuple[NDArray[np.generic], ...] = ()

    def __len__(self) -> int:
        return len(self.granule_id)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rsplit("/", 1)[-1]

    def spec(self, i: int) -> ArraySpec:
        """The spec of the i-th granule."""
        return self.variants[int(self.variant[i])]

    def values(self, i: int) -> NDArray[np.generic] | None:
        """The coordinate values of the i-th granule, where the scan kept them."""
        c = int(self.coordinate[i])
        return None if c < 0 else self.coordinates[c]

    def take(self, order: NDArray[np.intp]) -> ArrayMembers:
        """The same granules in another order, or some of them."""
        return ArrayMembers(
            self.path, self.granule_id[order], self.variant[order], self.variants, self.coordinate[order], self.coordinates
        )

    def only(self, granule_ids: NDArray[np.int32]) -> ArrayMembers:
        """Some granules, without specs that none of them has: those of others, that they supersede, have no say."""
        members = self.take(np.flatnonzero(np.isin(self.granule_id, granule_ids)))
        used, variant = np.unique(members.variant, return_inverse=True)
        if len(used) == len(self.variants):
            return members
        specs = tuple(self.variants[v] for v in used.tolist())
        return replace(members, variant=variant.reshape(-1).astype(np.int32), variants=specs)


class _Builder:
    """Collects rows of one path; interns specs and values."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.rows: list[tuple[int, int, int]] = []
        self.specs: dict[tuple[str, str], int] = {}
        self.variants: list[ArraySpec] = []
        self.keys: dict[tuple[str, tuple[int, ...], bytes], int] = {}
        self.values: list[NDArray[np.generic]] = []

    def add(self, granule_id: int, spec: ArraySpec, key: tuple[str, str], values: NDArray[np.generic] | None) -> None:
        variant = self.specs.setdefault(key, len(self.variants))
        if variant == len(self.variants):
            self.variants.append(spec)
        self.rows.append((granule_id, variant, self._value(values)))

    def _value(self, values: NDArray[np.generic] | None) -> int:
        if values is None:
            return -1
        raw = "\0".join(values.reshape(-1).tolist()).encode() if values.dtype.kind == "T" else values.tobytes()
        index = self.keys.setdefault((str(values.dtype), values.shape, raw), len(self.values))
        if index == len(self.values):
            self.values.append(values)
        return index

    def build(self) -> ArrayMembers:
        rows = np.array(sorted(self.rows), dtype=np.int32).reshape(-1, 3)
        return ArrayMembers(self.path, rows[:, 0], rows[:, 1], tuple(self.variants), rows[:, 2], tuple(self.values))


def from_scans(scans: Mapping[int, ScanResult] | Iterable[tuple[int, ScanResult]]) -> dict[str, ArrayMembers]:
    """Members of scans held in memory, by path.

    Examples
    --------
    >>> from_scans({})
    {}
    """
    builders: dict[str, _Builder] = {}
    for granule_id, scan in scans.items() if isinstance(scans, Mapping) else scans:
        for array in scan.arrays:
            spec = array.spec
            builder = builders.setdefault(spec.path, _Builder(spec.path))
            builder.add(granule_id, spec, (spec.structure(), spec.attributes.to_json()), array.coordinate)
    return {path: b.build() for path, b in builders.items()}

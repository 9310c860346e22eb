"""Granules that replace others: only the newest of each name counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from drystone.model.options import VersionOptions
from drystone.plan.versions import newest_only

__all__ = ["current", "replaced"]


def current(addresses: Sequence[str], versions: VersionOptions | None) -> list[str]:
    """The addresses that count, in their order.

    Examples
    --------
    >>> current(["a_preliminary.nc", "a.nc"], VersionOptions("{stem}_preliminary"))
    ['a.nc']
    """
    if versions is None:
        return list(addresses)
    kept, _ = newest_only(addresses, versions)
    return [addresses[i] for i in kept]


def replaced(gone: Iterable[str], listed: Iterable[str], versions: VersionOptions | None) -> set[str]:
    """Those of the addresses that are gone that a listed one stands for: nobody misses them."""
    gone = list(gone)
    if versions is None:
        return set()
    return set(gone) - set(current([*gone, *listed], versions))

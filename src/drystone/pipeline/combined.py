"""The whole as the table knows it: granules that are listed and scanned, combined and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from drystone.errors import CombineError
from drystone.fetch.fetcher import Fetcher
from drystone.model.granule import Granule, Listed
from drystone.model.placement import Combined
from drystone.pipeline.archive import Archive
from drystone.pipeline.axes import with_origins
from drystone.pipeline.granules import granule_rows
from drystone.pipeline.members import by_path, group_texts, members_of, merged_groups
from drystone.pipeline.roots import roots_of_table
from drystone.pipeline.scan import list_granules
from drystone.pipeline.statics import DigestCache, check_statics
from drystone.pipeline.versions import current
from drystone.plan.combine import combine
from drystone.table.table import ReferenceTable

__all__ = ["Whole", "fetcher_for", "whole_of"]


@dataclass(frozen=True, slots=True)
class Whole:
    """The combined archive, with the table it comes from and the granules in it."""

    combined: Combined
    table: ReferenceTable
    granules: dict[int, Granule]
    set_aside: tuple[str, ...]

    @property
    def names(self) -> dict[int, str]:
        """Granule id to address."""
        return {g: granule.address for g, granule in self.granules.items()}


def fetcher_for(archive: Archive, table: ReferenceTable, threads: int = 4) -> Fetcher:
    """A fetcher over the archive's table."""
    return Fetcher(archive.places, table, threads=threads, bytes_in_flight=256 << 20)


def whole_of(archive: Archive, listed: Sequence[Listed] | None, *, remember: bool = False) -> Whole:
    """Combine what the table holds.

    Parameters
    ----------
    archive
        The config resolved.
    listed
        Granules now in the archive, in order; None: every granule that the table knows.
    remember
        Keep digests of static arrays beside the table, so that they are not read again; else nothing is written.

    Raises
    ------
    CombineError
        Nothing was scanned, or granules do not fit together.
    """
    if not archive.has_table():
        raise CombineError(
            f"{archive.config.name}: nothing is scanned yet; run `drystone scan` first (table: "
            f"{archive.store.url}/{archive.key('table')})",
            kind="not-scanned",
        )
    table = archive.table()
    rows = granule_rows(table)
    if listed is None:
        addresses = _in_listed_order(archive, [a for a, r in rows.items() if r.status != "withdrawn"])
    else:
        addresses = [g.address for g in listed]
    unscanned = [a for a in addresses if a not in rows]
    if unscanned:
        raise CombineError(
            f"{len(unscanned)} of {len(addresses)} granules are not in the table (first: {unscanned[0]}); run `drystone scan`",
            kind="not-scanned",
        )
    good = {a: rows[a] for a in addresses if rows[a].status == "scanned"}
    kept = current([*good], archive.config.versions)
    good = {a: good[a] for a in kept}
    if not good:
        raise CombineError(f"{archive.config.name}: every granule was set aside; see `drystone status`", kind="no-granules")
    granules = {r.granule.granule_id: r.granule for r in good.values()}
    names = {g: granule.address for g, granule in granules.items()}
    ids = np.array(sorted(names), np.int32)
    members = members_of(table, ids)
    groups, notes = merged_groups(group_texts(table, ids))
    options = with_origins(archive, archive.config.combine)
    refused = by_path((r.granule.granule_id, (p, why)) for r in good.values() for p, _, why in r.refused())
    roots = roots_of_table(table, ids, options)
    combined = combine(members, groups, names, options, attributes=roots, notes=notes, refused=refused)
    cache = DigestCache(archive.store, archive.key("statics.json"))
    check_statics(combined, members, fetcher_for(archive, table), names, cache)
    if remember:
        cache.save()
    return Whole(combined, table, granules, tuple(a for a in addresses if rows[a].status != "scanned"))


def _in_listed_order(archive: Archive, addresses: list[str]) -> list[str]:
    """Where the listed order places granules, that order; a table alone knows only the one in which they came to it."""
    along = archive.config.combine.along
    if not any(a.position == "order" for a in along) or not archive.config.granules:
        return addresses
    rank = {g.address: i for i, g in enumerate(list_granules(archive))}
    return sorted(addresses, key=lambda a: rank.get(a, len(rank)))

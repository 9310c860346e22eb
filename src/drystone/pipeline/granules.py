"""The table's granules as values, by address."""

from __future__ import annotations

import json
from dataclasses import dataclass

from drystone.model.granule import Companion, Granule
from drystone.storage.stamp import Stamp
from drystone.table.table import ReferenceTable

__all__ = ["GranuleRow", "granule_rows"]


_COLUMNS = (
    "address",
    "granule_id",
    "size",
    "mtime_ns",
    "etag",
    "format",
    "attempt_id",
    "n_rows",
    "digest",
    "status",
    "reason",
    "refusals",
    "companions",
)


@dataclass(frozen=True, slots=True)
class GranuleRow:
    """The newest row of one granule: what it is, whether it was scanned, and if not, why."""

    granule: Granule
    status: str
    reason: str | None
    refusals: str

    def refused(self) -> list[tuple[str, str, str]]:
        """(path, kind, reason) of each array that has no exact reference."""
        return [(str(p), str(k), str(r)) for p, k, r in json.loads(self.refusals)]


def granule_rows(table: ReferenceTable) -> dict[str, GranuleRow]:
    """Every granule that the table knows, by address."""
    columns = table.granules(columns=_COLUMNS).to_pydict()
    out = {}
    for address, g, size, mtime, etag, form, attempt, n, digest, status, reason, refusals, companions in zip(
        *(columns[name] for name in _COLUMNS), strict=True
    ):
        found = Companion.all_of(companions)
        granule = Granule(g, address, Stamp(size, mtime, etag), form, attempt, n, digest, found)
        out[address] = GranuleRow(granule, status, reason, refusals)
    return out

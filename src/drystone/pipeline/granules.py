"""The table's granules as values, by address."""

from __future__ import annotations

import json
from dataclasses import dataclass

from drystone.model.granule import Granule
from drystone.storage.stamp import Stamp
from drystone.table.table import ReferenceTable

__all__ = ["GranuleRow", "granule_rows"]


@dataclass(frozen=True, slots=True)
class GranuleRow:
    """The newest row of one granule: what it is, whether it was scanned, and if not, why."""

    granule: Granule
    status: str
    reason: str | None
    groups: str
    refusals: str

    def refused(self) -> list[tuple[str, str, str]]:
        """(path, kind, reason) of each array that has no exact reference."""
        return [(str(p), str(k), str(r)) for p, k, r in json.loads(self.refusals)]


def granule_rows(table: ReferenceTable) -> dict[str, GranuleRow]:
    """Every granule that the table knows, by address."""
    names = (
        "address", "granule_id", "size", "mtime_ns", "etag", "format", "attempt_id", "n_rows", "digest", "status", "reason",
        "groups", "refusals",
    )  # fmt: skip
    columns = table.granules().select(list(names)).to_pydict()
    return {
        address: GranuleRow(
            Granule(g, address, Stamp(size, mtime, etag), form, attempt, n, digest), status, reason, groups, refusals
        )
        for address, g, size, mtime, etag, form, attempt, n, digest, status, reason, groups, refusals in zip(
            *(columns[n] for n in names), strict=True
        )
    }

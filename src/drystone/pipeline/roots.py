"""Attributes of granules' root groups, for axes that are placed by one."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from drystone.model.array import GroupSpec
from drystone.model.attributes import Attributes
from drystone.model.chunk_rows import ScanResult
from drystone.model.options import CombineOptions
from drystone.table.table import ReferenceTable

__all__ = ["roots_of_scans", "roots_of_table"]


def _needed(options: CombineOptions) -> bool:
    return any(a.position == "attribute" for a in options.along)


def roots_of_table(table: ReferenceTable, granule_ids: NDArray[np.int32], options: CombineOptions) -> dict[int, Attributes]:
    """Granule id to the attributes of its root group; empty where no axis asks for them."""
    if not _needed(options):
        return {}
    rows = table.granules(columns=("granule_id", "groups"))
    rows = rows.filter(pc.is_in(rows.column("granule_id"), pa.array(granule_ids, pa.int32())))
    known: dict[str, Attributes] = {}
    out: dict[int, Attributes] = {}
    for granule_id, text in zip(rows.column("granule_id").to_pylist(), rows.column("groups").to_pylist(), strict=True):
        if text not in known:
            known[text] = _root([GroupSpec.from_json(item) for item in json.loads(text)])
        out[granule_id] = known[text]
    return out


def roots_of_scans(scans: Mapping[int, ScanResult], options: CombineOptions) -> dict[int, Attributes]:
    """The same of scans held in memory.

    Examples
    --------
    >>> roots_of_scans({}, CombineOptions())
    {}
    """
    return {g: _root(list(scan.groups)) for g, scan in scans.items()} if _needed(options) else {}


def _root(groups: list[GroupSpec]) -> Attributes:
    return next((g.attributes for g in groups if g.path == "/"), Attributes())

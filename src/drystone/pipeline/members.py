"""From the table's ``arrays`` rows to the columns that combining works on."""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from drystone.model.array import ArraySpec, GroupSpec
from drystone.plan.members import ArrayMembers
from drystone.table.arrow import column, numbers
from drystone.table.table import ReferenceTable
from drystone.table.write import coordinate_from_bytes

__all__ = ["by_path", "group_texts", "members_of", "merged_groups"]

_COLUMNS = ("granule_id", "path", "structure", "attributes", "coordinate")


def members_of(table: ReferenceTable, granule_ids: NDArray[np.int32]) -> dict[str, ArrayMembers]:
    """Members of the given granules, by path.

    The rows are dictionary-encoded, so that work grows with distinct specs, not with granules.
    """
    by_path: dict[str, list[pa.RecordBatch]] = {}
    for kept in table.arrays(columns=_COLUMNS, granule_ids=granule_ids):
        paths = kept.column("path").dictionary_encode()
        code = numbers(paths.indices)
        for i, path in enumerate(paths.dictionary.to_pylist()):
            by_path.setdefault(path, []).append(_encoded(kept.filter(column(code == i))))
    return {path: _build(path, pa.Table.from_batches(batches)) for path, batches in sorted(by_path.items())}


def _encoded(rows: pa.RecordBatch) -> pa.RecordBatch:
    columns = {name: rows.column(name) for name in ("granule_id",)}
    for name in ("structure", "attributes", "coordinate"):
        values = rows.column(name)
        columns[name] = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    return pa.RecordBatch.from_pydict(columns)


def _build(path: str, rows: pa.Table) -> ArrayMembers:
    rows = rows.unify_dictionaries().combine_chunks().sort_by("granule_id")
    structure, attributes, coordinate = (_codes(rows, c) for c in ("structure", "attributes", "coordinate"))
    n = len(attributes[1])
    pairs, variant = np.unique(structure[0].astype(np.int64) * max(n, 1) + attributes[0], return_inverse=True)
    variants = tuple(ArraySpec.from_parts(structure[1][p // max(n, 1)], attributes[1][p % max(n, 1)]) for p in pairs.tolist())
    granule_id = numbers(rows.column("granule_id")).astype(np.int32)
    keys, index = np.unique(np.stack([coordinate[0], variant.astype(np.int64)]), axis=1, return_inverse=True)
    values: list[NDArray[np.generic]] = []
    place = np.full(keys.shape[1], -1, np.int32)
    seen: dict[tuple[int, str, tuple[int, ...]], int] = {}
    for i, (code, v) in enumerate(keys.T.tolist()):
        if code >= 0:
            spec = variants[v]
            key = (code, str(spec.native_dtype), spec.shape)
            if key not in seen:
                seen[key] = len(values)
                values.append(coordinate_from_bytes(coordinate[1][code], spec))
            place[i] = seen[key]
    return ArrayMembers(path, granule_id, variant.astype(np.int32), variants, place[index].astype(np.int32), tuple(values))


def _codes(rows: pa.Table, name: str) -> tuple[NDArray[np.int64], list[str | bytes]]:
    values = rows.column(name)
    array = values.chunk(0) if values.num_chunks == 1 else pa.concat_arrays(values.chunks)
    return numbers(array.indices, null=-1).astype(np.int64), array.dictionary.to_pylist()


def group_texts(table: ReferenceTable, granule_ids: NDArray[np.int32]) -> list[str]:
    """The distinct ``groups`` texts of the given granules, in order of the first granule that has each."""
    rows = table.granules(columns=("granule_id", "groups"))
    rows = rows.filter(pc.is_in(rows.column("granule_id"), column(np.asarray(granule_ids, np.int32)))).sort_by("granule_id")
    return [str(text) for text in pc.unique(rows.column("groups")).to_pylist()]


def by_path(items: Iterable[tuple[int, tuple[str, str]]]) -> dict[str, dict[int, str]]:
    """Granule id and (path, reason) of what was refused, as granule id to reason by path.

    Examples
    --------
    >>> by_path([(1, ("/v", "why")), (2, ("/v", "why"))])
    {'/v': {1: 'why', 2: 'why'}}
    """
    out: dict[str, dict[int, str]] = {}
    for granule_id, (path, reason) in items:
        out.setdefault(path, {})[granule_id] = reason
    return out


def merged_groups(texts: Iterable[str]) -> tuple[list[GroupSpec], list[str]]:
    """Groups of all granules, with the attributes that they share.

    Parameters
    ----------
    texts
        The ``groups`` column of the granules.

    Returns
    -------
    tuple
        Groups by path, and notes that name the attributes left out because they differ.

    Examples
    --------
    >>> merged_groups([])
    ([], [])
    """
    merged: dict[str, GroupSpec] = {}
    dropped: dict[str, set[str]] = {}
    for text in dict.fromkeys(texts):
        for item in json.loads(text):
            group = GroupSpec.from_json(item)
            known = merged.setdefault(group.path, group)
            if known.attributes == group.attributes:
                continue
            differ = {k for k in known.attributes if group.attributes.get(k) != known.attributes[k]}
            dropped.setdefault(group.path, set()).update(differ, (k for k in group.attributes if k not in known.attributes))
            merged[group.path] = GroupSpec(known.path, known.attributes.without(*differ), known.dimensions)
    notes = [
        f"{p}: attributes that differ between granules were left out: {', '.join(sorted(n))}"
        for p, n in sorted(dropped.items())
    ]
    return list(merged.values()), notes

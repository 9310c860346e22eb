"""The proof that a granule's rows are the ones that were scanned: its digest, made again from the stored rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drystone.errors import TableError
from drystone.model.array import GroupSpec
from drystone.model.chunk_rows import RowBatch
from drystone.model.granule import Granule

__all__ = ["verify_granule"]


class _Readable(Protocol):
    """What a table must offer to be verified."""

    def groups(self, granule_id: int) -> tuple[GroupSpec, ...]: ...

    def arrays(
        self,
        paths: None = None,
        columns: Sequence[str] | None = None,
        granule_ids: NDArray[np.int32] | None = None,
    ) -> Iterator[pa.RecordBatch]: ...

    def rows(self, path: str, granule_ids: NDArray[np.int32] | None = None) -> Iterator[RowBatch]: ...


def verify_granule(table: _Readable, granule: Granule) -> int:
    """Read one granule back and compare count and digest with what its scan recorded. Gives its rows.

    Raises
    ------
    TableError
        ``lost-rows`` or ``digest``.
    """
    ids = np.array([granule.granule_id], np.int32)
    h = hashlib.blake2b(digest_size=16)
    for group in table.groups(granule.granule_id):
        h.update(group.to_json().encode())
    found = 0
    columns = ("path", "structure", "attributes")
    arrays = [row for batch in table.arrays(None, columns, ids) for row in batch.to_pylist()]
    for array in sorted(arrays, key=lambda row: str(row["path"])):
        h.update(array["structure"].encode())
        h.update(array["attributes"].encode())
        found += _digest_rows(h, list(table.rows(array["path"], ids)))
    if found != granule.n_rows:
        raise TableError(
            f"granule {granule.granule_id} ({granule.address}) has {found} chunk rows in the table where its scan counted "
            f"{granule.n_rows}: rows or whole arrays were lost; scan it again",
            kind="lost-rows",
            granule=granule.granule_id,
            found=found,
            expected=granule.n_rows,
        )
    if h.hexdigest() != granule.digest:
        raise TableError(
            f"the rows of granule {granule.granule_id} ({granule.address}) have the digest {h.hexdigest()}, its scan had "
            f"{granule.digest}: the table was altered; scan it again",
            kind="digest",
            granule=granule.granule_id,
        )
    return found


def _digest_rows(h: hashlib.blake2b, batches: Sequence[RowBatch]) -> int:
    """Feed one array's rows to a digest; gives how many."""
    if not batches:
        return 0
    columns = [np.concatenate([getattr(b, n) for b in batches]) for n in ("offset", "length", "state")]
    for column in (np.concatenate([b.coords for b in batches], axis=1), *columns):
        h.update(np.ascontiguousarray(column).tobytes())
    start = 0
    inline: list[tuple[int, bytes]] = []
    masks: list[tuple[int, int]] = []
    for batch in batches:
        inline += [(start + row, data) for row, data in batch.inline.items()]
        masks += [(start + row, mask) for row, mask in batch.masks.items()]
        start += len(batch)
    for row, data in sorted(inline):
        h.update(row.to_bytes(8, "little") + data)
    for row, mask in sorted(masks):
        h.update(row.to_bytes(8, "little") + mask.to_bytes(4, "little"))
    return start

"""Which rows count: the newest attempt of each granule, as columns sorted by granule id."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drystone.table.arrow import column, numbers

__all__ = ["Validity"]


@dataclass(frozen=True, slots=True)
class Validity:
    """Granule ids, ascending, and the attempt of each whose rows are valid; 8 bytes a granule.

    Examples
    --------
    >>> v = Validity(np.array([2, 5], np.int32), np.array([1, 3], np.int32))
    >>> ids = {"granule_id": [2, 2, 5, 5], "attempt_id": [1, 1, 2, 3]}
    >>> rows = pa.record_batch({name: pa.array(values, pa.int32()) for name, values in ids.items()})
    >>> v.keep(rows).column("granule_id").to_pylist()
    [2, 2, 5]
    """

    ids: NDArray[np.int32]
    attempts: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.ids)

    def restrict(self, granule_ids: NDArray[np.int32]) -> tuple[Validity, NDArray[np.int32]]:
        """Only the given granules, and those of them that are not valid."""
        wanted = np.unique(np.asarray(granule_ids, np.int32))
        at, known = self.find(wanted)
        return Validity(wanted[known], self.attempts[at[known]]), wanted[~known]

    def find(self, granule_ids: NDArray[np.int32]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Position of each id, and whether it is there (else the position means nothing)."""
        if len(self.ids) == 0:
            return np.zeros(len(granule_ids), np.intp), np.zeros(len(granule_ids), np.bool_)
        at = np.minimum(np.searchsorted(self.ids, granule_ids), len(self.ids) - 1)
        return at, self.ids[at] == granule_ids

    def keep(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The valid rows of a batch; the batch itself, without a copy, where all are."""
        if batch.num_rows == 0:
            return batch
        granule, attempt = numbers(batch.column("granule_id")), numbers(batch.column("attempt_id"))
        # rows come in runs of one granule and attempt, so the search is done once a run
        starts = np.flatnonzero(np.r_[True, (granule[1:] != granule[:-1]) | (attempt[1:] != attempt[:-1])])
        at, known = self.find(granule[starts])
        if len(self.ids):
            known &= self.attempts[at] == attempt[starts]
        if known.all():
            return batch
        if not known.any():
            return batch.slice(0, 0)
        mask = np.repeat(known, np.diff(np.r_[starts, batch.num_rows]))
        return batch.filter(column(mask))

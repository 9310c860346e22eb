"""A row source without a table: scans held in memory, as ``drystone.open`` of a few files has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from drystone.errors import TableError
from drystone.model.chunk_rows import RowBatch, ScannedArray, ScanResult
from drystone.model.granule import Granule

__all__ = ["MemoryRows"]

# rows of a batch: columns long enough for NumPy, short enough for the cache
_BATCH_ROWS = 200_000


class MemoryRows:
    """Scans by granule id, as a :class:`~drystone.protocols.RowSource`; picklable.

    Examples
    --------
    >>> from drystone.storage.stamp import Stamp
    >>> rows = MemoryRows({3: Granule(3, "here:a.nc", Stamp(9), "hdf5", 0, 0, "")}, {3: ScanResult("hdf5", (), ())})
    >>> list(rows.rows("/sst")), rows.granule(3).address
    ([], 'here:a.nc')
    """

    def __init__(self, granules: Mapping[int, Granule], scans: Mapping[int, ScanResult]) -> None:
        self._granules = dict(granules)
        self._arrays: dict[str, dict[int, ScannedArray]] = {}
        for granule_id in sorted(scans):
            for array in scans[granule_id].arrays:
                self._arrays.setdefault(array.spec.path, {})[granule_id] = array

    def granule(self, granule_id: int) -> Granule:
        """One granule by id."""
        try:
            return self._granules[granule_id]
        except KeyError:
            raise TableError(
                f"there is no granule {granule_id} among the {len(self._granules)} scanned", kind="unknown-granule"
            ) from None

    def rows(self, path: str, granule_ids: NDArray[np.int32] | None = None) -> Iterator[RowBatch]:
        """Rows of one array, by granule id and then C order, in batches of some 200,000."""
        by_granule = self._arrays.get(path, {})
        wanted = list(by_granule) if granule_ids is None else sorted(set(np.asarray(granule_ids).tolist()))
        batch: list[tuple[int, ScannedArray]] = []
        n = 0
        for granule_id in wanted:
            array = by_granule.get(granule_id)
            if array is None or len(array.rows) == 0:
                continue
            batch.append((granule_id, array))
            n += len(array.rows)
            if n >= _BATCH_ROWS:
                yield _join(batch)
                batch, n = [], 0
        if batch:
            yield _join(batch)


def _join(batch: list[tuple[int, ScannedArray]]) -> RowBatch:
    counts = [len(a.rows) for _, a in batch]
    inline: dict[int, bytes] = {}
    masks: dict[int, int] = {}
    first = 0
    for n, (_, array) in zip(counts, batch, strict=True):
        if array.inline:
            inline.update((first + row, data) for row, data in array.inline.items())
        if array.masks:
            masks.update((first + row, mask) for row, mask in array.masks.items())
        first += n
    return RowBatch(
        np.repeat(np.array([g for g, _ in batch], np.int32), counts),
        np.concatenate([a.rows.coords for _, a in batch], axis=1),
        np.concatenate([a.rows.offset for _, a in batch]),
        np.concatenate([a.rows.length for _, a in batch]),
        np.concatenate([a.rows.state for _, a in batch]),
        inline,
        masks,
    )

"""Placed rows as calls that Icechunk takes: dense boxes in C order, or single references.

``set_virtual_refs_arr`` takes a box of the chunk grid as columns and costs half a microsecond a reference, but has one
checksum a call, so a call serves the granules of one modification time. Where a box would be mostly holes or hold a
handful of references, ``set_virtual_refs`` with one object a reference is cheaper. Holes leave what is there alone.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from drystone.emit.addresses import vcc_location
from drystone.errors import StorageError
from drystone.model.chunk_rows import RowBatch
from drystone.protocols import ReferenceView
from drystone.storage.stamp import Stamp

if TYPE_CHECKING:
    import icechunk

__all__ = ["Checksum", "ReferenceWriter", "checksum_of"]

type Checksum = dt.datetime | str | None

_FEW = 16  # references a granule below which one object each is cheaper than a call (measured: 10 µs a call)
_HOLES = 4  # cells of a box per reference above which it is not worth filling


def checksum_of(stamp: Stamp, url: str) -> Checksum:
    """What Icechunk compares before it reads: the ETag on S3, elsewhere the first whole second not before the change.

    Examples
    --------
    >>> checksum_of(Stamp(1, 1_500_000_000), "file:///a").isoformat()
    '1970-01-01T00:00:02+00:00'
    >>> checksum_of(Stamp(1, 5, '"abc"'), "s3://b/a")
    '"abc"'
    """
    if url.startswith("s3://") and stamp.etag is not None:
        return stamp.etag
    if stamp.mtime_ns is None:
        return None
    return dt.datetime.fromtimestamp(-(-stamp.mtime_ns // 1_000_000_000), dt.UTC)


@dataclass(frozen=True, slots=True)
class _Source:
    """One granule as Icechunk sees it."""

    location: str
    checksum: Checksum


class ReferenceWriter:
    """Sends the references of one array.

    Parameters
    ----------
    path
        The array.
    containers
        Names of the repository's virtual chunk containers.
    checksums
        Whether references carry the stamp of their granule, given the root of its address.
    """

    def __init__(
        self,
        view: ReferenceView,
        path: str,
        containers: frozenset[str],
        checksums: Callable[[bool], bool],
    ) -> None:
        self._view, self._path, self._containers = view, path, containers
        self._checksums = checksums
        self.count = 0

    def _source(self, granule_id: int) -> _Source:
        root, key = self._view.public_parts(granule_id)
        if root.name not in self._containers:
            # proved once a granule: Icechunk's own validation takes a third of the time to send a reference
            raise StorageError(
                f"{self._path}: the repository has no virtual chunk container {root.name!r} for {root.url}{key}; nothing was "
                "committed",
                kind="icechunk-container",
                array=self._path,
                container=root.name,
            )
        location = vcc_location(root, key)
        checksum = checksum_of(self._view.stamp(granule_id), root.url) if self._checksums(root.remapped) else None
        return _Source(location, checksum)

    def send(self, store: icechunk.IcechunkStore, batch: RowBatch, rows: NDArray[np.intp]) -> None:
        """Send some rows of a batch, all of them plain references, to the store of a writable session."""
        if not len(rows):
            return
        coords = batch.coords[:, rows].astype(np.int64)
        offset, length = batch.offset[rows].astype(np.uint64), batch.length[rows].astype(np.uint64)
        ids, where = np.unique(batch.granule_id[rows], return_inverse=True)
        sources = [self._source(g) for g in ids.tolist()]
        for group, one_checksum in _groups(sources, where):
            part = (coords[:, group], where[group], sources, offset[group], length[group])
            if one_checksum:
                self._box(store, *part, sources[int(where[group[0]])].checksum)
            else:
                self._singles(store, *part)
        self.count += len(rows)

    def _box(
        self,
        store: icechunk.IcechunkStore,
        coords: NDArray[np.int64],
        where: NDArray[np.intp],
        sources: list[_Source],
        offset: NDArray[np.uint64],
        length: NDArray[np.uint64],
        checksum: Checksum,
    ) -> None:
        low = coords.min(axis=1)
        shape = tuple((coords.max(axis=1) - low + 1).tolist())
        cells = math.prod(shape)
        n = len(where)
        if cells > _HOLES * n + 1024:
            self._singles(store, coords, where, sources, offset, length)
            return
        number = np.ravel_multi_index(tuple(coords - low[:, None]), shape) if shape else np.zeros(n, np.int64)
        names = np.array(["", *(s.location for s in sources)], object)
        pick = np.zeros(cells, np.intp)
        offsets, lengths = np.zeros(cells, np.uint64), np.zeros(cells, np.uint64)
        pick[number], offsets[number], lengths[number] = where + 1, offset, length
        failed = store.set_virtual_refs_arr(
            self._path,
            shape,
            names[pick].tolist(),
            offsets,
            lengths,
            validate_containers=False,
            arr_offset=tuple(low.tolist()),
            checksum=checksum,
        )
        self._check(failed)

    def _singles(
        self,
        store: icechunk.IcechunkStore,
        coords: NDArray[np.int64],
        where: NDArray[np.intp],
        sources: list[_Source],
        offset: NDArray[np.uint64],
        length: NDArray[np.uint64],
    ) -> None:
        import icechunk

        specs = []
        for index, w, o, n in zip(coords.T.tolist(), where.tolist(), offset.tolist(), length.tolist(), strict=True):
            s = sources[w]
            etag, changed = (s.checksum, None) if isinstance(s.checksum, str) else (None, s.checksum)
            specs.append(icechunk.VirtualChunkSpec(index, s.location, o, n, etag, changed))
        self._check(store.set_virtual_refs(self._path, specs, validate_containers=False))

    def _check(self, failed: list[tuple[int, ...]] | None) -> None:
        # the library returns what it did not store instead of raising, and such chunks would read as fill
        if failed is not None:
            raise StorageError(
                f"{self._path}: Icechunk refused {len(failed)} references, the first at chunk {tuple(failed[0])}; nothing "
                "was committed",
                kind="icechunk-container",
                array=self._path,
                failed=len(failed),
            )


def _groups(sources: list[_Source], where: NDArray[np.intp]) -> Iterator[tuple[NDArray[np.intp], bool]]:
    """Rows that may share a call, True where they have one checksum; what is left over comes together, with False."""
    keys: dict[Checksum, int] = {}
    key = np.array([keys.setdefault(s.checksum, len(keys)) for s in sources], np.intp)[where]
    if len(keys) == 1:
        yield np.arange(len(where)), True
        return
    order = np.argsort(key, kind="stable")
    few: list[NDArray[np.intp]] = []
    for group in np.split(order, np.flatnonzero(np.diff(key[order])) + 1):
        if len(group) >= _FEW:
            yield group, True
        else:
            few.append(group)
    if few:
        yield np.concatenate(few), False

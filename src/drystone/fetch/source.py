"""A granule as something to read from: its store, key and stamp, and what its failures mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drystone.errors import DecodeError, DrystoneError, GranuleChanged, GranuleMissing, StorageError
from drystone.model.granule import Companion, Granule
from drystone.storage.address import Places
from drystone.storage.store import Store

__all__ = ["MOST_SPAN", "GranuleSource", "coalesce", "companion_difference", "gap_of"]

# reading a gap costs less than asking twice: a seek in a local file, a round trip to an object store
_LOCAL_GAP = 64 << 10
_REMOTE_GAP = 1 << 20
MOST_SPAN = 16 << 20  # of a request that holds several ranges


@dataclass(frozen=True, slots=True)
class GranuleSource:
    """One granule, ready to be read."""

    granule: Granule
    store: Store
    key: str
    companions: tuple[tuple[Companion, Store, str], ...] = ()

    @classmethod
    def of(cls, granule: Granule, places: Places) -> GranuleSource:
        """Resolve its address, and those of its companions."""
        store, key = places.resolve(granule.address)
        return cls(granule, store, key, tuple((c, *places.resolve(c.address)) for c in granule.companions))

    @property
    def full_path(self) -> str:
        """The file, or the URL."""
        return f"{(self.store.root or self.store.url).rstrip('/')}/{self.key}"

    @property
    def gap(self) -> int:
        """Bytes that are rather read than skipped."""
        return gap_of(self.store.root is None)

    def check(self) -> None:
        """Compare what storage says now with what it said at the scan.

        Raises
        ------
        GranuleChanged, GranuleMissing
            It is not what was scanned.
        """
        try:
            now = self.store.stat(self.key)
        except StorageError as error:
            raise self.meaning(error) from error
        difference = self.granule.stamp.differs(now)
        if difference is not None:
            raise self._changed(difference)
        for companion, store, key in self.companions:
            difference = companion_difference(companion, store, key)
            if difference is not None:
                raise GranuleChanged(
                    f"{companion.address}, which {self.granule.address} takes values from, changed since that was scanned: "
                    f"{difference}; no value of it is given; scan it again",
                    granule=self.granule.address,
                    path=companion.address,
                )

    def _changed(self, difference: str) -> GranuleChanged:
        return GranuleChanged(
            f"{self.granule.address} changed since it was scanned: {difference} ({self.full_path}); its references point into "
            "the old file, so no value of it is given; scan it again",
            granule=self.granule.address,
            path=self.full_path,
        )

    def meaning(self, error: DrystoneError) -> DrystoneError:
        """What a failure to read or decode this granule means: missing and changed files are named as such."""
        if isinstance(error, StorageError):
            if error.kind == "not-found":
                return GranuleMissing(
                    f"{self.full_path} is not there, though it was scanned as {self.granule.address}; put it back, or edit the "
                    "place in storage: if the archive moved, or run scan to drop it",
                    granule=self.granule.address,
                    path=self.full_path,
                )
            if error.kind != "short-read":
                return error
        elif not isinstance(error, DecodeError):
            return error
        # bytes that are cut short or do not decode are most often those of another file under the same name
        try:
            difference = self.granule.stamp.differs(self.store.stat(self.key))
        except StorageError as later:
            return self.meaning(later) if later.kind == "not-found" else later
        return error if difference is None else self._changed(difference)

    def read(self, offsets: Sequence[int], lengths: Sequence[int]) -> tuple[list[memoryview], int]:
        """Several ranges, ascending by offset: their bytes, and how many were read for them."""
        starts, sizes, where = coalesce(offsets, lengths, self.gap)
        try:
            blobs = [memoryview(b) for b in self.store.get_ranges(self.key, starts, sizes)]
        except StorageError as error:
            raise self.meaning(error) from error
        parts = [
            blobs[span][offset - starts[span] : offset - starts[span] + length]
            for span, offset, length in zip(where, offsets, lengths, strict=True)
        ]
        return parts, sum(sizes)


def companion_difference(companion: Companion, store: Store, key: str) -> str | None:
    """How a companion is no longer what it was at the scan, or None."""
    try:
        return companion.stamp.differs(store.stat(key))
    except StorageError as error:
        if error.kind != "not-found":
            raise
        return "it is gone"


def gap_of(remote: bool) -> int:
    """The most bytes between two ranges of an object that are read along with them."""
    return _REMOTE_GAP if remote else _LOCAL_GAP


def coalesce(offsets: Sequence[int], lengths: Sequence[int], gap: int) -> tuple[list[int], list[int], list[int]]:
    """Join neighbouring ranges.

    Parameters
    ----------
    offsets, lengths
        Bytes; offsets ascend.
    gap
        The most bytes between two ranges that are read along with them.

    Returns
    -------
    Starts and lengths of the joined ranges, and for each range which of them holds it. A joined range of several holds at
    most 16 MiB.

    Examples
    --------
    >>> coalesce([0, 10, 5000], [10, 10, 10], 100)
    ([0, 5000], [20, 10], [0, 0, 1])
    """
    starts: list[int] = []
    stops: list[int] = []
    where: list[int] = []
    for offset, length in zip(offsets, lengths, strict=True):
        stop = offset + length
        if not starts or offset > stops[-1] + gap or max(stop, stops[-1]) - starts[-1] > MOST_SPAN:
            starts.append(offset)
            stops.append(stop)
        elif stop > stops[-1]:
            stops[-1] = stop
        where.append(len(starts) - 1)
    return starts, [b - a for a, b in zip(starts, stops, strict=True)], where

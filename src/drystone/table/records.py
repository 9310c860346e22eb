"""What the table records beside scans: placements, releases and receipts; the base of the table's class."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from drystone.errors import TableError
from drystone.model.placement import Placements
from drystone.model.release import Release
from drystone.model.task import Receipt
from drystone.storage.store import Store
from drystone.table.ledger import commit_receipts, commit_release, read_receipts, read_releases
from drystone.table.log import DeltaLog, probe_create_only
from drystone.table.placements import commit_placements, placements_at
from drystone.table.schema import SCHEMAS

__all__ = ["Records"]


class Records:
    """The logs of one table, and its records.

    Parameters
    ----------
    store, key
        Where the table lies.
    versions
        Of each log, to read at; None: the newest.
    """

    def __init__(self, store: Store, key: str, versions: Mapping[str, int] | None = None) -> None:
        self.store, self.key = store, key.strip("/")
        self._logs = {name: DeltaLog(store, self.key, name, None if versions is None else versions[name]) for name in SCHEMAS}
        self._probed = store.root is not None

    def _probe(self) -> None:
        if not self._probed:
            probe_create_only(self.store, self.key)
            self._probed = True

    def commit_placements(self, release_id: int, placements: Mapping[str, Placements]) -> int:
        """Record where everything lands at a release that is to be published; gives the rows that changed.

        Raises
        ------
        TableError
            ``release-taken``: that release is published and fixed for ever.
        """
        if release_id < self.next_release_id():
            raise TableError(
                f"release {release_id} is published: its placements are fixed; the next one is {self.next_release_id()}",
                kind="release-taken",
                release=release_id,
            )
        self._probe()
        return commit_placements(self.store, self._logs["placements"], release_id, placements)

    def placements(self, release_id: int, path: str) -> Placements:
        """Where the granules of one array land at a release."""
        return placements_at(self.store, self._logs["placements"], path, release_id)

    def releases(self) -> list[Release]:
        """All releases, oldest first."""
        return read_releases(self.store, self._logs["releases"])

    def release_record(self, release_id: int) -> Release:
        """One release; ``no-release`` where there is none."""
        known = self.releases()
        for release in known:
            if release.release_id == release_id:
                return release
        raise TableError(
            f"there is no release {release_id}; there are {[r.release_id for r in known] or 'none'}",
            kind="no-release",
            release=release_id,
        )

    def next_release_id(self) -> int:
        """The number of the next publish; granules committed now first count in it."""
        return int(self._logs["releases"].live().high["release_id"].max(initial=0)) + 1

    def commit_release(self, release: Release) -> None:
        """Record a publish; the same record again changes nothing."""
        self._probe()
        commit_release(self.store, self._logs["releases"], release)

    def commit_receipts(self, receipts: Iterable[Receipt], *, run_id: str, sequence: int) -> bool:
        """Record receipts, exactly once; False where this sequence number was recorded before, or there are none."""
        self._probe()
        return commit_receipts(self.store, self._logs["receipts"], receipts, run_id, sequence)

    def last_receipts_sequence(self, run_id: str) -> int | None:
        """The last sequence number that a run recorded receipts under, or None."""
        return self._logs["receipts"].transaction(run_id)

    def receipts(self, fingerprints: Collection[str] | None = None, array: str | None = None) -> Iterator[Receipt]:
        """Receipts, one a task, of some fingerprints and of one array path, or all."""
        return read_receipts(self.store, self._logs["receipts"], fingerprints, array)

"""The branch on which a snapshot is made and proved before ``main`` moves to it.

A session keeps all that it was given in memory, half a kilobyte a reference, and its commit takes time with the references
times the manifest windows. So what is sent is committed to the branch in parts of a million references: time and memory
then grow with the references alone, or not at all. Most archives are one part, and ``main`` gets one commit. Of a larger one
``main`` moves past all parts in one step; in its history they stand before the whole and say that they are not it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from drystone.storage.repository import MAIN, is_tip

if TYPE_CHECKING:
    import icechunk

__all__ = ["Staging"]

_BRANCH = "drystone-staging"  # holds commits until they are proved; readers of main never see it before
PART_REFERENCES = 1_000_000


class Staging:
    """The staging branch at the tip of main, in place of one that a killed run left.

    Parameters
    ----------
    repo
        Whose branch.
    fence
        Called before each commit; raises if it must not happen.
    message
        Of the last commit; those of earlier parts begin with it.
    """

    def __init__(self, repo: icechunk.Repository, fence: Callable[[], object], message: str) -> None:
        self._repo, self._fence, self._message = repo, fence, message
        self.tip = repo.lookup_branch(MAIN)
        if _BRANCH in repo.list_branches():
            repo.delete_branch(_BRANCH)
        repo.create_branch(_BRANCH, self.tip)
        self._session = repo.writable_session(_BRANCH)
        self._held = self._parts = 0

    @property
    def store(self) -> icechunk.IcechunkStore:
        """Of the session that takes what is sent now; another one after each part."""
        return self._session.store

    def sent(self, references: int) -> None:
        """Take note of references that went into the store; commits a part when there are enough of them."""
        self._held += references
        if self._held >= PART_REFERENCES:
            self._parts += 1
            self._fence()
            self._session.commit(f"{self._message}: part {self._parts}, not the whole yet")
            self._session = self._repo.writable_session(_BRANCH)
            self._held = 0

    def commit(self, metadata: dict[str, object]) -> str:
        """Commit the rest; returns the snapshot, which is the whole."""
        self._fence()
        return self._session.commit(self._message, metadata)

    def is_tip_of(self, place: icechunk.Storage, snapshot: str) -> icechunk.Repository:
        """The repository, opened anew, once it is known that the branch ends with a snapshot."""
        import icechunk

        # every manifest is looked at once
        once = icechunk.RepositoryConfig(caching=icechunk.CachingConfig(num_chunk_refs=0))
        repo = icechunk.Repository.open(place, config=once)
        is_tip(repo, _BRANCH, snapshot)
        return repo

    def publish(self, place: icechunk.Storage, snapshot: str) -> None:
        """Move main from where it was to a snapshot, in one step, and leave."""
        import icechunk

        self._fence()
        self._repo.reset_branch(MAIN, snapshot, from_snapshot_id=self.tip)
        is_tip(icechunk.Repository.open(place), MAIN, snapshot)
        self._repo.delete_branch(_BRANCH)

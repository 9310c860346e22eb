"""A granule: one source object with identity."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from drystone.storage.stamp import Stamp

__all__ = ["Companion", "Granule", "Listed", "Stamp"]


@dataclass(frozen=True, slots=True)
class Companion:
    """Another object whose bytes a granule's values depend on: an external raw file, a linked or virtual source."""

    address: str
    stamp: Stamp

    def to_json(self) -> list[str | int | None]:
        """As the table keeps it."""
        return [self.address, self.stamp.size, self.stamp.mtime_ns, self.stamp.etag]

    @classmethod
    def all_of(cls, text: str) -> tuple[Companion, ...]:
        """Read back a JSON list of them.

        Examples
        --------
        >>> Companion.all_of('[["raw:b.h5", 9, 1, null]]')[0].address
        'raw:b.h5'
        """
        if text == "[]":  # nearly always, and of every granule
            return ()
        return tuple(cls(a, Stamp(size, mtime, etag)) for a, size, mtime, etag in json.loads(text))


@dataclass(frozen=True, slots=True)
class Listed:
    """What a lister yields: an address as ``place:relative/path`` and its stamp.

    Examples
    --------
    >>> Listed("raw:1981/a.nc", Stamp(1)).name
    'a.nc'
    """

    address: str
    stamp: Stamp

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.address.rsplit("/", 1)[-1].rsplit(":", 1)[-1]


@dataclass(frozen=True, slots=True)
class Granule:
    """A listed granule that the table knows under an id.

    Parameters
    ----------
    granule_id
        Small integer, unique in the table, handed out by the driver in list order.
    address
        ``place:relative/path``; an archive moves by editing the place.
    stamp
        Size, time and ETag when it was scanned.
    format
        Name of the scanner that read it.
    attempt_id
        The scan attempt whose rows are valid.
    n_rows
        Chunk rows of that attempt.
    digest
        Hex digest of those rows, granule and attempt ids left out.
    companions
        Other objects that its values depend on.
    """

    granule_id: int
    address: str
    stamp: Stamp
    format: str
    attempt_id: int
    n_rows: int
    digest: str
    companions: tuple[Companion, ...] = ()

    @property
    def content(self) -> str:
        """``digest``, or, where there are companions, one of their stamps as well."""
        if not self.companions:
            return self.digest
        stamps = json.dumps([c.to_json() for c in self.companions])
        return hashlib.blake2b(f"{self.digest} {stamps}".encode(), digest_size=16).hexdigest()

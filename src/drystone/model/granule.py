"""A granule: one source object with identity."""

from __future__ import annotations

from dataclasses import dataclass

from drystone.storage.stamp import Stamp

__all__ = ["Granule", "Listed", "Stamp"]


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
    """

    granule_id: int
    address: str
    stamp: Stamp
    format: str
    attempt_id: int
    n_rows: int
    digest: str

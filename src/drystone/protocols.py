"""The three seams on one page: Lister, Scanner, Emitter.

A **lister** says which granules there are. A **scanner** turns one granule into rows, from its metadata alone. An
**emitter** writes one published form from a :class:`ReferenceView`. All three are found by entry point
(:mod:`drystone.registry`), built without arguments, and hold no state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from drystone.model.chunk_rows import RowBatch, ScanResult
from drystone.model.granule import Granule, Listed
from drystone.model.placement import Combined
from drystone.model.release import OutputIdentity
from drystone.storage.address import Places
from drystone.storage.stamp import Stamp
from drystone.storage.store import Store

__all__ = ["Emitter", "Lister", "PublicRoot", "ReferenceView", "RowSource", "ScanOptions", "Scanner", "Source"]


class Lister(Protocol):
    """Lists granules."""

    def list(self, places: Places, pattern: str) -> Iterator[Listed]:
        """Yield granules in a stable order; ``pattern`` is what the config says, place first."""
        ...


@dataclass(frozen=True, slots=True)
class Source:
    """One granule for a scanner: where its bytes are, and what storage says of them."""

    store: Store
    key: str
    address: str
    stamp: Stamp

    @property
    def path(self) -> str | None:
        """The file, where the store is a local folder."""
        return None if self.store.root is None else f"{self.store.root.rstrip('/')}/{self.key}"


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """Limits of one scan.

    Parameters
    ----------
    variables
        Names or paths wanted, or None for all; coordinates of wanted variables are scanned too.
    inline_budget
        Bytes of one granule that may be inlined in all (compact, text, masked and foreign arrays).
    coordinate_budget
        Largest decoded size, in bytes, of an array kept as ``coordinate``.
    max_rows
        Chunk rows at which a granule is refused as hostile.
    """

    variables: tuple[str, ...] | None = None
    inline_budget: int = 16 << 20
    coordinate_budget: int = 1 << 20
    max_rows: int = 50_000_000


class Scanner(Protocol):
    """Granule to rows."""

    def sniff(self, head: bytes, source: Source) -> bool:
        """Whether the first bytes (at least 4 kB, or all there are) are this format's; a suffix proves nothing."""
        ...

    def scan(self, source: Source, options: ScanOptions) -> ScanResult:
        """Read metadata only; an odd array becomes a ``Refusal``, a broken granule a ``ScanError``."""
        ...


class RowSource(Protocol):
    """Where chunk rows come from: a table at one release, or scans held in memory."""

    def rows(self, path: str, granule_ids: NDArray[np.int32] | None = None) -> Iterator[RowBatch]:
        """Valid rows of one array, coordinates within each granule, by granule id and then C order, in batches.

        A granule's rows may be split over batches. Only the given granules, or all.
        """
        ...

    def granule(self, granule_id: int) -> Granule:
        """One granule by id."""
        ...


@dataclass(frozen=True, slots=True)
class PublicRoot:
    """Where public addresses start from.

    Parameters
    ----------
    name
        Short and stable: the place's name, or the remap rule's with ``-public`` behind it.
    url
        Ends with ``/``, unquoted.
    options
        Of the place that the URL lies in (endpoint, region, anonymous), where one is known.
    remapped
        True where a remap rule made it: the stamps of the scan are then not known to hold for these objects.
    """

    name: str
    url: str
    options: Mapping[str, str | bool]
    remapped: bool


class ReferenceView(Protocol):
    """What an emitter sees: one release of the table, combined."""

    @property
    def combined(self) -> Combined:
        """Groups and arrays."""
        ...

    def references(self, path: str) -> Iterator[RowBatch]:
        """Rows of one array in the whole's chunk coordinates, in order of placement, in batches; bounded memory."""
        ...

    def public_roots(self) -> tuple[PublicRoot, ...]:
        """The roots that public addresses start from: one a place and one a remap rule in use."""
        ...

    def public_parts(self, granule_id: int) -> tuple[PublicRoot, str]:
        """The root of a granule's public address and the key below it, unquoted."""
        ...

    def public_url(self, granule_id: int) -> str:
        """The address that references record, after the output's remap rules, unquoted: root and key together."""
        ...

    def granule(self, granule_id: int) -> Granule:
        """One granule: identity and digest of its rows."""
        ...

    def granule_ids(self) -> NDArray[np.int32]:
        """Every granule that any array of the whole is placed from, ascending."""
        ...

    def recheck(self) -> None:
        """Look at every granule again; ``GranuleChanged`` or ``GranuleMissing`` where one is no longer what was scanned."""
        ...

    def stamp(self, granule_id: int) -> Stamp:
        """Of the granule when it was scanned."""
        ...

    def values(self, path: str) -> NDArray[np.generic]:
        """Decoded native values of one whole array, for coordinates and small arrays written natively."""
        ...

    def encoded(self, path: str, coords: tuple[int, ...]) -> bytes | None:
        """One chunk re-encoded in the array's own chain, for chunks that no reference can say; None if unwritten."""
        ...


class Emitter(Protocol):
    """Writes one published form."""

    def problems(self, combined: Combined, options: Mapping[str, object]) -> dict[str, str]:
        """Array path to the reason why this form cannot hold it; empty where all is well. No I/O.

        ``options`` are among others ``grid``, ``crop`` and ``coverage`` of the output, as :meth:`emit` gets them.
        """
        ...

    def emit(self, view: ReferenceView, target: Store, key: str, options: Mapping[str, object]) -> OutputIdentity:
        """Write the form at ``target``/``key`` and make it visible last."""
        ...

"""What emitters see: one release of the table, combined, as a stream of placed rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import batched
from typing import Protocol
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from drystone.emit.placing import Placer, reorder
from drystone.errors import GranuleChanged, GranuleMissing, StorageError
from drystone.model.chunk_rows import RowBatch
from drystone.model.granule import Granule
from drystone.model.placement import Combined, CombinedArray
from drystone.plan.cropping import cropped
from drystone.protocols import PublicRoot, RowSource
from drystone.storage.address import Places, split_address
from drystone.storage.stamp import Stamp

__all__ = ["TableView"]

_WINDOW_ROWS = 500_000
_STAT_THREADS = 16


class _Fetcher(Protocol):
    """The part of ``drystone.fetch`` that a view needs."""

    def read_box(self, array: CombinedArray, start: Sequence[int], stop: Sequence[int]) -> NDArray[np.generic]: ...

    def encoded_chunk(self, array: CombinedArray, coords: Sequence[int]) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class _Rule:
    """A remap rule: addresses that start with ``prefix`` are published below ``root``."""

    prefix: str
    root: PublicRoot


@dataclass(frozen=True)
class TableView:
    """A :class:`~drystone.protocols.ReferenceView` over a row source.

    Parameters
    ----------
    combined
        The whole.
    rows
        Where its rows come from; read in batches, never as a whole.
    places
        Where addresses lie.
    fetcher
        Reads and decodes (``read_box``, ``encoded_chunk``).
    public
        Remap rules, ``place:`` prefix to URL; the longest prefix that fits wins.

    Examples
    --------
    >>> from drystone.storage.store import Place
    >>> places = Places.of([Place("raw", "file:///data")])
    >>> view = TableView(Combined((), (), None), None, places, None, public=(("raw:1981/", "https://x.org/a/"),))
    >>> [(r.name, r.url) for r in view.public_roots()]
    [('raw-public', 'https://x.org/a/'), ('raw', 'file:///data/')]
    """

    combined: Combined
    rows: RowSource
    places: Places
    fetcher: _Fetcher
    public: tuple[tuple[str, str], ...] = ()
    _rules: list[_Rule] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rules", self._make_rules())

    def _make_rules(self) -> list[_Rule]:
        rules: list[_Rule] = []
        names: set[str] = set()
        for prefix, url in sorted(self.public, key=lambda r: (-len(r[0]), r[0])):
            place = split_address(prefix)[0]
            if place not in self.places.by_name:
                self.places.store(place)  # raises, with the known names
            name, n = f"{place}-public", 1
            while name in names:
                n += 1
                name = f"{place}-public-{n}"
            names.add(name)
            root = PublicRoot(name, _unquoted(url).rstrip("/") + "/", self._options_of(url), remapped=True)
            rules.append(_Rule(prefix.rstrip("/") + "/" if not prefix.endswith(":") else prefix, root))
        for name, at in sorted(self.places.by_name.items()):
            store = None if at.url.startswith("memory:") else self.places.store(name)
            url = _unquoted(at.url) if store is None else _plain_url(store.root, store.url)
            rules.append(_Rule(f"{name}:", PublicRoot(name, url.rstrip("/") + "/", at.options, remapped=False)))
        return rules

    def _options_of(self, url: str) -> dict[str, str | bool]:
        for place in self.places.by_name.values():
            if (url.rstrip("/") + "/").startswith(place.url.rstrip("/") + "/"):
                return dict(place.options)
        return {}

    def public_roots(self) -> tuple[PublicRoot, ...]:
        """Remap rules, longest first, then places."""
        return tuple(r.root for r in self._rules)

    def public_parts(self, granule_id: int) -> tuple[PublicRoot, str]:
        """The root of a granule's public address and the key below it, unquoted."""
        address = self.granule(granule_id).address
        for rule in self._rules:
            if address.startswith(rule.prefix):
                return rule.root, address[len(rule.prefix) :].lstrip("/")
        self.places.resolve(address)  # raises, with the known names
        raise AssertionError

    def public_url(self, granule_id: int) -> str:
        """The address that references record, unquoted."""
        root, key = self.public_parts(granule_id)
        return root.url + key

    def granule(self, granule_id: int) -> Granule:
        """One granule."""
        return self.rows.granule(granule_id)

    def granule_ids(self) -> NDArray[np.int32]:
        """Every granule that any array is placed from, ascending."""
        columns = [a.placements.granule_id for a in self.combined.arrays]
        return np.unique(np.concatenate(columns)) if columns else np.zeros(0, np.int32)

    def stamp(self, granule_id: int) -> Stamp:
        """Of the granule when it was scanned."""
        return self.granule(granule_id).stamp

    def recheck(self) -> None:
        """Look at every granule again.

        Raises
        ------
        GranuleChanged
            One is no longer what was scanned.
        GranuleMissing
            One is gone.
        """
        with ThreadPoolExecutor(_STAT_THREADS) as pool:
            # in groups, so that the first failure stops the rest; some granules a call, since a local one takes 10 µs
            for group in batched(batched(self.granule_ids().tolist(), 32), 128):
                list(pool.map(self._recheck_some, group))

    def _recheck_some(self, granule_ids: tuple[int, ...]) -> None:
        for granule_id in granule_ids:
            self._recheck_one(granule_id)

    def _recheck_one(self, granule_id: int) -> None:
        granule = self.granule(granule_id)
        for companion in granule.companions:
            self._recheck_object(companion.address, companion.stamp)
        self._recheck_object(granule.address, granule.stamp)

    def _recheck_object(self, address: str, stamp: Stamp) -> None:
        store, key = self.places.resolve(address)
        try:
            now = store.stat(key)
        except StorageError as error:
            if error.kind != "not-found":
                raise
            raise GranuleMissing(
                f"{self.places.url(address)} is gone since it was scanned; nothing was published; bring it back, or "
                "scan again without it",
                granule=address,
            ) from error
        difference = stamp.differs(now)
        if difference is not None:
            raise GranuleChanged(
                f"{self.places.url(address)} changed since it was scanned: {difference}; references would point at the "
                "wrong bytes, so nothing was published; scan again and rerun",
                granule=address,
            )

    def references(self, path: str) -> Iterator[RowBatch]:
        """Rows of one array in the whole's chunk coordinates, in order of placement, in batches.

        Raises
        ------
        UnsupportedError
            ``unaligned``: a granule's chunks are no whole chunks of the array.
        TableError
            The rows are not those that the placements call for.
        """
        array = self._array(path)
        placer = Placer(array)
        ids = array.placements.granule_id
        if np.all(ids[1:] > ids[:-1]):
            for batch in self.rows.rows(array.inner, ids):
                yield placer.place(batch)[0]
        else:
            for window in self._windows(ids):
                yield from self._ordered(array, placer, window)
        placer.finish()

    def _array(self, path: str) -> CombinedArray:
        """An array as it is published: one whose padded chunks the codec ``drystone.crop`` makes fit has their grid."""
        array = self.combined.array(path)
        return cropped(array) or array

    def _windows(self, ids: NDArray[np.int32]) -> Iterator[slice]:
        """Positions of placements, cut so that a window's rows fit in memory."""
        start = rows = 0
        for i, granule_id in enumerate(ids.tolist()):
            rows += self.granule(granule_id).n_rows
            if rows >= _WINDOW_ROWS:
                yield slice(start, i + 1)
                start, rows = i + 1, 0
        if start < len(ids):
            yield slice(start, len(ids))

    def _ordered(self, array: CombinedArray, placer: Placer, window: slice) -> Iterator[RowBatch]:
        """A window's rows sorted by placement; rows that arrive in order already are passed on as they come."""
        ids = np.unique(array.placements.granule_id[window])
        batches = [placer.place(b, window) for b in self.rows.rows(array.inner, ids)]
        whole = _join([b for b, _ in batches])
        if whole is not None:
            yield reorder(whole, np.argsort(np.concatenate([at for _, at in batches]), kind="stable"))

    def values(self, path: str) -> NDArray[np.generic]:
        """Decoded native values of one whole array."""
        if path in self.combined.coordinates:
            return self.combined.coordinates[path]
        array = self.combined.array(path)
        return self.fetcher.read_box(array, (0,) * len(array.shape), array.shape)

    def encoded(self, path: str, coords: tuple[int, ...]) -> bytes | None:
        """One chunk re-encoded in the array's own chain; None if unwritten."""
        return self.fetcher.encoded_chunk(self._array(path), coords)


def _plain_url(root: str | None, url: str) -> str:
    """The URL of a store, unquoted where it is a folder (``Store.url`` quotes those)."""
    return _unquoted(url) if root is None else f"file://{root}"


def _unquoted(url: str) -> str:
    """URLs of http and files are written quoted, object keys are not."""
    return unquote(url) if url.startswith(("http://", "https://", "file://")) else url


def _join(batches: list[RowBatch]) -> RowBatch | None:
    if not batches:
        return None
    inline: dict[int, bytes] = {}
    masks: dict[int, int] = {}
    n = 0
    for b in batches:
        inline.update({n + i: data for i, data in b.inline.items()})
        masks.update({n + i: mask for i, mask in b.masks.items()})
        n += len(b)
    return RowBatch(
        np.concatenate([b.granule_id for b in batches]),
        np.concatenate([b.coords for b in batches], axis=1),
        np.concatenate([b.offset for b in batches]),
        np.concatenate([b.length for b in batches]),
        np.concatenate([b.state for b in batches]),
        inline,
        masks,
    )

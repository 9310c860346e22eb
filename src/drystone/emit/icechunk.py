"""Icechunk: virtual references with history.

One snapshot holds everything: metadata, natively written values, references with checksums, and the ledger. It is made on
a branch of its own (:mod:`~drystone.emit.icechunk_staging`), proved there, and ``main`` moves to it in one step. References
name their granules as ``vcc://<place>/<key>``, so that an archive moves by editing the container, which a rerun does.
Readers of a repository see the old state or the new one; a run that fails leaves unreferenced objects at most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from drystone.codecs.chain import Codec
from drystone.emit.boxes import ReferenceWriter
from drystone.emit.columns import check_states, chunk_bytes
from drystone.emit.documents import (
    NO_OPTIONS,
    Layout,
    array_v3,
    explicit_fill,
    explicit_gap,
    group_v3,
    groups_of,
    layouts,
    settings,
    skipped,
    strict_json,
)
from drystone.emit.gaps import gap_chunks
from drystone.emit.icechunk_repo import containers_differ, repository_config
from drystone.emit.icechunk_staging import Staging
from drystone.emit.layout import ConstantChunks
from drystone.emit.ledger import Ledger
from drystone.emit.native import native_chunks
from drystone.emit.proof import proof
from drystone.errors import ConfigError, StorageError
from drystone.model.chunk_rows import State
from drystone.model.placement import Combined
from drystone.model.release import OutputIdentity
from drystone.protocols import PublicRoot, ReferenceView
from drystone.storage.repository import (
    LEDGER_GROUP,
    MAIN,
    last_fingerprint,
    open_or_create,
    repository_errors,
    repository_storage,
    run_in_zarr,
)
from drystone.storage.repository_count import count_chunks
from drystone.storage.store import Store

if TYPE_CHECKING:
    import icechunk

__all__ = ["IcechunkEmitter"]

_FORM = "icechunk"
_ZSTD = Codec.of("zstd", level=3)
_CACHED = 500_000  # references


@dataclass(frozen=True, slots=True)
class _Sent:
    """What went into one array: references and natively written chunks."""

    virtual: int
    native: int


class IcechunkEmitter:
    """Writes references into an Icechunk repository (see the module).

    Options: ``skip`` (paths that may be left out), ``grid``, ``crop`` and ``coverage`` (as the output's), ``checksums``
    (``auto``: for addresses that no remap rule changed; ``always``; ``never``), ``proof`` (called with address and snapshot
    before ``main`` moves to it; raises if values are wrong), ``fence`` (called just before the commit; raises if it must not
    happen: on folders Icechunk loses commits of concurrent writers without a word, so the caller holds a lease and gives its
    ``check``), ``message``.
    """

    def problems(self, combined: Combined, options: Mapping[str, object] = NO_OPTIONS) -> dict[str, str]:
        """Arrays that Zarr 3 cannot hold, each with the reason."""
        return layouts(combined, 3, _ZSTD, options)[1]

    def emit(self, view: ReferenceView, target: Store, key: str, options: Mapping[str, object]) -> OutputIdentity:
        """Write the repository's next snapshot, or none where the last one has the same content.

        Raises
        ------
        UnsupportedError
            An array has no form and is not in ``skip``, or a chunk has no reference.
        ConfigError
            ``target-foreign``: the repository holds data that drystone did not write.
        GranuleChanged, GranuleMissing
            A granule is no longer what was scanned; nothing was published.
        StorageError
            Writing failed, or what was stored is not what was sent.
        """
        good, problems = layouts(view.combined, 3, _ZSTD, options)
        skipped(options, problems, _FORM)
        checksums = _checksums(options)
        fence = options.get("fence")
        check: Callable[[], object] = fence if callable(fence) else _no_fence
        ledger = Ledger.of(view, good, f"{options.get('checksums', 'auto')} {settings(options)}")
        roots = _roots_in_use(view, ledger)
        address = f"{target.url}/{key}"
        with repository_errors(address):
            place = repository_storage(target, key)
            repo = open_or_create(place, repository_config(roots, good))
            found = last_fingerprint(repo, address)
            if found == ledger.fingerprint:
                if containers_differ(repo, roots):
                    check()
                    _reconfigured(place, repo, roots, good)
                return OutputIdentity(_FORM, address, repo.lookup_branch(MAIN))
            repo = _reconfigured(place, repo, roots, good)
            staging = Staging(repo, check, str(options.get("message", _message(view, good))))
            sent = _write(staging, view, good, ledger, checksums)
            view.recheck()
            about: dict[str, object] = {"fingerprint": ledger.fingerprint, "granules": len(ledger.granule_id)}
            snapshot = staging.commit({"drystone": about})
            _prove(staging.is_tip_of(place, snapshot), snapshot, sent)
            proof(options, address, snapshot)
            staging.publish(place, snapshot)
        return OutputIdentity(_FORM, address, snapshot)


def _no_fence() -> None:
    return None


def _message(view: ReferenceView, good: Mapping[str, Layout]) -> str:
    along = f" along {view.combined.axis}" if view.combined.axis else ""
    return f"drystone: {len(good)} arrays of {len(view.granule_ids())} granules{along}"


def _checksums(options: Mapping[str, object]) -> Callable[[bool], bool]:
    kind = options.get("checksums", "auto")
    if kind not in ("auto", "always", "never"):
        raise ConfigError(f"checksums is auto, always or never, not {kind!r}", kind="checksums")
    return lambda remapped: kind == "always" or (kind == "auto" and not remapped)


def _roots_in_use(view: ReferenceView, ledger: Ledger) -> tuple[PublicRoot, ...]:
    used = set(ledger.root.tolist())
    return tuple(r for r in view.public_roots() if r.name in used)


def _reconfigured(
    place: icechunk.Storage, repo: icechunk.Repository, roots: tuple[PublicRoot, ...], good: Mapping[str, Layout]
) -> icechunk.Repository:
    """The repository with our containers and windows stored in its config; opened for writing, which reads nothing twice."""
    import icechunk

    config = repository_config(roots, good, repo.config)
    icechunk.Repository.open(place, config=config).save_config()
    # what was written last stays cached otherwise, 15 million references and more than a gigabyte of it
    config.caching = icechunk.CachingConfig(num_chunk_refs=_CACHED)
    return icechunk.Repository.open(place, config=config)


def _put(store: icechunk.IcechunkStore, key: str, data: bytes) -> None:
    from zarr.core.buffer import default_buffer_prototype

    run_in_zarr(store.set(key, default_buffer_prototype().buffer.from_bytes(data)))


def _chunk_key(path: str, coords: tuple[int, ...]) -> str:
    return "/".join([path[1:], "c", *(str(c) for c in coords)])


def _write(
    staging: Staging,
    view: ReferenceView,
    good: Mapping[str, Layout],
    ledger: Ledger,
    checksums: Callable[[bool], bool],
) -> dict[str, _Sent]:
    """Replace everything on the branch; what was sent, by path."""
    store = staging.store
    run_in_zarr(store.clear())
    for group in groups_of(view.combined):
        _put(store, f"{group.path.strip('/')}/zarr.json".lstrip("/"), strict_json(group_v3(group)))
    sent = {}
    for path, layout in good.items():
        _put(staging.store, f"{path[1:]}/zarr.json", strict_json(array_v3(layout)))
        if layout.native:
            sent[path] = _write_native(staging.store, view, layout)
        else:
            sent[path] = _write_references(staging, view, layout, checksums)
    _write_ledger(staging.store, ledger)
    return sent


def _write_native(store: icechunk.IcechunkStore, view: ReferenceView, layout: Layout) -> _Sent:
    path, n = layout.array.path, 0
    for coords, data in native_chunks(layout, view.values(path)):
        _put(store, _chunk_key(path, coords), data)
        n += 1
    return _Sent(0, n)


def _write_references(staging: Staging, view: ReferenceView, layout: Layout, checksums: Callable[[bool], bool]) -> _Sent:
    path, native = layout.array.path, 0
    containers = staging.store.session.config.virtual_chunk_containers or {}
    writer = ReferenceWriter(view, path, frozenset(c.name for c in containers.values() if c.name), checksums)
    element = explicit_fill(layout, 3)
    fill = None if element is None else ConstantChunks(layout, element)
    for batch in view.references(path):
        store = staging.store
        check_states(batch, path)
        plain = batch.state == State.REFERENCED
        plain[list(batch.masks)] = False
        writer.send(store, batch, np.flatnonzero(plain))
        rest = ~plain & (batch.state != State.MISSING)
        for i in np.flatnonzero(rest).tolist():
            data = chunk_bytes(view, path, batch, i)
            if data is not None:
                _put(store, _chunk_key(path, tuple(batch.coords[:, i].tolist())), data)
                native += 1
        if fill is not None:
            unwritten = batch.coords[:, batch.state == State.MISSING].T.tolist()
            for coords in unwritten:
                _put(store, _chunk_key(path, tuple(coords)), fill(tuple(coords)))
            native += len(unwritten)
        staging.sent(len(batch))
    return _Sent(writer.count, native + _write_gaps(staging, layout))


def _write_gaps(staging: Staging, layout: Layout) -> int:
    """Chunks that no granule holds, where leaving them out would not say missing; returns how many."""
    element, n = explicit_gap(layout, 3), 0
    if element is not None and layout.gaps is not None:
        missing = ConstantChunks(layout, element)
        for coords in gap_chunks(layout.array, layout.gaps):
            _put(staging.store, _chunk_key(layout.array.path, coords), missing(coords))
            staging.sent(1)
            n += 1
    return n


def _write_ledger(store: icechunk.IcechunkStore, ledger: Ledger) -> None:
    import zarr

    group = zarr.create_group(store, path=LEDGER_GROUP, attributes={"fingerprint": ledger.fingerprint})
    for name, column in ledger.columns().items():
        array = group.create_array(
            name,
            shape=column.shape,
            chunks=(max(1, min(len(column), 100_000)),),
            dtype=column.dtype,
            dimension_names=["drystone_granule"],
        )
        array[:] = column


def _prove(repo: icechunk.Repository, snapshot: str, sent: Mapping[str, _Sent]) -> None:
    """Count every array's chunks in the manifests that readers will read, of a repository that was opened anew.

    Raises
    ------
    StorageError
        ``commit-differs``.
    """
    counted = run_in_zarr(count_chunks(repo, snapshot))
    for path, what in sent.items():
        virtual, native = counted.get(path, (0, 0))
        if (virtual, native) != (what.virtual, what.native):
            raise StorageError(
                f"{path}: {what.virtual} references and {what.native} native chunks were sent, {virtual} and {native} are "
                f"stored; do not use snapshot {snapshot}; run again",
                kind="commit-differs",
                array=path,
                snapshot=snapshot,
            )

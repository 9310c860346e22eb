"""``show``: what lies under a path, as arrays with their grids.

Told apart by content: a config by its suffix, a Zarr v3 store by ``zarr.json``, kerchunk Parquet by ``.zmetadata``, an
Icechunk repository by its folders; anything else is a granule and goes to the scanners.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from drystone.cli.draw import ArrayDrawing, array_lines
from drystone.cli.foreign import codec_text, icechunk_arrays, kerchunk_arrays, zarr_arrays
from drystone.cli.summary import config_json, config_lines
from drystone.errors import ConfigError, StorageError
from drystone.model.chunk_rows import ScannedArray, State
from drystone.model.sizes import size_text
from drystone.storage.address import Places, open_store
from drystone.storage.store import Place, Store

__all__ = ["Shown", "show_path"]


@dataclass(frozen=True, slots=True)
class Shown:
    """What ``show`` tells.

    ``kind``: ``config``, ``hdf5`` or another scanner's name, ``zarr``, ``icechunk`` or ``kerchunk-parquet``. ``facts`` are
    shown before the arrays.
    """

    path: str
    kind: str
    arrays: tuple[ArrayDrawing, ...] = ()
    facts: tuple[str, ...] = ()
    config: dict[str, object] | None = None

    def to_json(self) -> dict[str, object]:
        """For ``--json``."""
        return {
            "path": self.path,
            "kind": self.kind,
            "facts": list(self.facts),
            "arrays": [a.to_json() for a in self.arrays],
            "config": self.config,
        }

    def lines(self) -> list[str]:
        """For people."""
        raw = sum(a.raw_bytes for a in self.arrays)
        head = f"{self.path}: {self.kind}" + (f", {len(self.arrays)} arrays, {size_text(raw)} decoded" if self.arrays else "")
        lines = [head, *self.facts]
        for a in self.arrays:
            lines += ["", *array_lines(a)]
        return lines


def show_path(path: str, only: tuple[str, ...] = ()) -> Shown:
    """Look at a path.

    Parameters
    ----------
    path
        A file, a folder or a URL.
    only
        Names or paths of the arrays wanted; empty: all.

    Raises
    ------
    ConfigError
        There is nothing of this name, or nothing that is known; or no array of a name that was asked for.
    """
    if path.endswith((".yaml", ".yml")):
        return _config(path)
    shown = _look(path)
    if not only:
        return shown
    kept = tuple(a for a in shown.arrays if a.path in only or a.path.rsplit("/", 1)[-1] in only)
    missing = [n for n in only if not any(n in (a.path, a.path.rsplit("/", 1)[-1]) for a in kept)]
    if missing:
        known = ", ".join(a.path for a in shown.arrays) or "none"
        raise ConfigError(f"{path} has no array {missing[0]!r} (it has: {known})", kind="no-array", path=path)
    return Shown(shown.path, shown.kind, kept, shown.facts)


def _config(path: str) -> Shown:
    from drystone.config.load import load_config

    config = load_config(path)
    return Shown(path, "config", facts=tuple(config_lines(config)), config=config_json(config))


def _look(path: str) -> Shown:
    local = "://" not in path
    if local and not os.path.exists(path):
        raise ConfigError(f"there is nothing at {os.path.abspath(path)}", kind="not-found", path=path)
    if local and os.path.isfile(path):
        folder, name = os.path.split(os.path.abspath(path))
        return _granule(path, open_store(folder), folder, name)
    store = open_store(path)
    for kind, key, read in (("zarr", "zarr.json", zarr_arrays), ("kerchunk-parquet", ".zmetadata", kerchunk_arrays)):
        if _holds(store, key):
            try:
                return _shown(path, kind, read(store))
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError(
                    f"{path}/{key} is no metadata that drystone can read: {type(error).__name__} {error}", kind="metadata"
                ) from error
    if _holds(store, "repo") or any(True for _ in store.list("snapshots/")):
        return _shown(path, "icechunk", icechunk_arrays(store))
    if not local:
        root, _, name = path.rstrip("/").rpartition("/")
        return _granule(path, open_store(root), root, name)
    inside = sorted(os.listdir(path))
    some = ", ".join(inside[:5]) + (", …" if len(inside) > 5 else "") if inside else "nothing"
    raise ConfigError(
        f"{path} is a folder that holds {some}, and no store that is known (Zarr v3, kerchunk Parquet, Icechunk)",
        kind="unknown-store",
        path=path,
    )


def _holds(store: Store, key: str) -> bool:
    try:
        return store.exists(key)
    except StorageError as error:
        # a plain file host answers in many ways for what is not there
        if error.kind == "no-permission":
            return False
        raise


def _shown(path: str, kind: str, arrays: Iterable[ArrayDrawing]) -> Shown:
    return Shown(path, kind, tuple(sorted(arrays, key=lambda a: a.path)))


def _granule(path: str, store: Store, root: str, name: str) -> Shown:
    from drystone.model.granule import Listed
    from drystone.pipeline.scan import scan_source

    result = scan_source(Places.of([Place("show", root)]), Listed(f"show:{name}", store.stat(name)))
    arrays = [_scanned(a) for a in result.arrays]
    facts = [f"not referenced: {r.path}: {r.reason}" for r in result.refusals]
    facts += [f"note: {w.path}: {w.reason}" for w in result.warnings]
    return Shown(path, result.format, tuple(sorted(arrays, key=lambda a: a.path)), tuple(facts))


def _scanned(scanned: ScannedArray) -> ArrayDrawing:
    spec, state = scanned.spec, scanned.rows.state
    # an unwritten chunk may have a row that says so
    written = int((state != State.MISSING).sum())
    library = bool((state == State.LIBRARY).any())
    return ArrayDrawing(
        spec.path,
        spec.dims,
        spec.shape,
        "text" if spec.dtype.kind == "T" else str(spec.dtype),
        spec.chunk_shape,
        None,
        tuple(codec_text(c.name, dict(c.params)) for c in spec.codecs.codecs if c.name != "bytes"),
        spec.dtype.itemsize,
        written,
        None if library else int(scanned.rows.length.sum()),
        "read through the format's own library: no codec elsewhere undoes its filters" if library else "",
    )

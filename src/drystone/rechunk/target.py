"""The target store, as the driver sees it: metadata and small arrays first, what makes it visible last.

Order of writes::

    prepare   arrays' zarr.json, groups' zarr.json but the root's, arrays written whole      (driver, before any task)
    tasks     shards                                                                          (workers)
    publish   the root's zarr.json, with the metadata of everything inline                    (driver, after verification)

Until the root is there, no reader finds a group to open. Bytes hold no time and no order of arrival, so a store that was
resumed equals one that was not, and what is already there with the right bytes is not written again.

Where a store is published already and its metadata would change, the root is taken away first: better no store for a
while than half of two.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from drystone.codecs.zarr_attributes import attributes_v3
from drystone.codecs.zarr_forms import codecs_v3, data_type_v3, fill_v3
from drystone.codecs.zarr_grids import chunk_grid_v3
from drystone.codecs.zarr_names import name_problem
from drystone.model.array import GroupSpec
from drystone.plan.layout import TargetLayout
from drystone.rechunk.shard import ChunkEncoder
from drystone.rechunk.writer import ObjectWriter, TargetWriter, current, put_new
from drystone.storage.store import Store

__all__ = [
    "array_document",
    "array_of",
    "documents",
    "group_document",
    "is_published",
    "json_bytes",
    "prepare",
    "publish",
    "stray_objects",
    "withdraw",
    "write_whole",
]

_ROOT = "zarr.json"


def json_bytes(document: object) -> bytes:
    """Metadata as it is stored."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False).encode()


def _at(prefix: str, key: str) -> str:
    return f"{prefix}/{key}" if prefix else key


def array_document(layout: TargetLayout) -> dict[str, object]:
    """The ``zarr.json`` of an array, as a JSON value with keys in a fixed order.

    Raises
    ------
    UnsupportedError
        Zarr v3 has no exact form for its dtype or attributes.

    Examples
    --------
    >>> from drystone.codecs.chain import CodecChain
    >>> lay = TargetLayout("/a", ("x",), (5,), np.dtype("i2"), (2,), (4,), CodecChain.of("bytes"), bytes(2))
    >>> [c["name"] for c in array_document(lay)["codecs"]]
    ['sharding_indexed']
    """
    dtype = layout.stored_dtype
    codecs: list[object] = list(codecs_v3(layout.codecs, dtype))
    if layout.shard is not None:
        inside = {
            "chunk_shape": list(layout.chunk),
            "codecs": codecs,
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
            "index_location": "end",
        }
        codecs = [{"name": "sharding_indexed", "configuration": inside}]
    document: dict[str, object] = {
        "shape": list(layout.shape),
        "data_type": data_type_v3(dtype),
        "chunk_grid": chunk_grid_v3(layout.edges, layout.shape),
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill_v3(layout.fill or None, dtype),
        "codecs": codecs,
        "attributes": attributes_v3(layout.attributes, layout.dtype),
    }
    if layout.dims:  # tensorstore refuses null, so a scalar has no such key
        document["dimension_names"] = list(layout.dims)
    return {**document, "zarr_format": 3, "node_type": "array", "storage_transformers": []}


def group_document(group: GroupSpec) -> dict[str, object]:
    """The ``zarr.json`` of a group, as a JSON value."""
    attributes = {name: value.to_plain() for name, value in group.attributes.items()}
    return {"attributes": attributes, "zarr_format": 3, "node_type": "group"}


def _all_groups(layouts: Sequence[TargetLayout], groups: Iterable[GroupSpec]) -> dict[str, GroupSpec]:
    """Every group of the store by path without slashes, ``""`` the root; parents of arrays are there even if unnamed."""
    found = {g.path.strip("/"): g for g in groups if name_problem(g.path) is None}
    for name in [lay.key for lay in layouts] + list(found):
        parts = name.split("/")[:-1]
        for n in range(len(parts) + 1):
            path = "/".join(parts[:n])
            found.setdefault(path, GroupSpec(f"/{path}"))
    return found


def _root_document(layouts: Sequence[TargetLayout], groups: Iterable[GroupSpec]) -> dict[str, object]:
    all_groups = _all_groups(layouts, groups)
    members: dict[str, object] = {lay.key: array_document(lay) for lay in layouts}
    for path, group in all_groups.items():
        if path:
            document = group_document(group)
            # zarr-python writes an empty one for each group inside, and reads the flat list of the root
            empty = {"kind": "inline", "must_understand": False, "metadata": {}}
            members[path] = {
                "attributes": document["attributes"],
                "zarr_format": 3,
                "consolidated_metadata": empty,
                "node_type": "group",
            }
    return {
        "attributes": group_document(all_groups[""])["attributes"],
        "zarr_format": 3,
        "consolidated_metadata": {
            "kind": "inline",
            "must_understand": False,
            "metadata": dict(sorted(members.items(), key=lambda item: (item[0].count("/"), item[0]))),
        },
        "node_type": "group",
    }


def documents(layouts: Sequence[TargetLayout], groups: Iterable[GroupSpec]) -> dict[str, bytes]:
    """The ``zarr.json`` of every array and group by key, the root's without that of what is in it.

    Raises
    ------
    UnsupportedError
        An array has no exact form in Zarr v3.
    """
    found = {f"{lay.key}/{_ROOT}".lstrip("/"): json_bytes(array_document(lay)) for lay in layouts}
    return found | {
        f"{path}/{_ROOT}".lstrip("/"): json_bytes(group_document(g)) for path, g in _all_groups(layouts, groups).items()
    }


def prepare(
    store: Store,
    key: str,
    layouts: Sequence[TargetLayout],
    groups: Iterable[GroupSpec],
    values: Mapping[str, NDArray[np.generic]],
) -> int:
    """Write everything but the tasks' objects and the root.

    Parameters
    ----------
    store, key
        Target.
    layouts
        Of every array of the store: those that tasks write, and those in ``values`` (see
        :func:`drystone.plan.layout.whole_layout`), whose chunk is the whole array.
    groups
        With attributes; parents of arrays that are left out get none.
    values
        Path to native values of the arrays that the driver writes.

    Returns
    -------
    Objects written; 0 where all were there.

    Raises
    ------
    UnsupportedError
        An array has no exact form in Zarr v3; nothing is written then.
    StorageError
        The target cannot be written.
    """
    groups, writer = tuple(groups), ObjectWriter(store, key)
    root = json_bytes(_root_document(layouts, groups))  # refuses before the first write what has no form
    published = current(writer, _ROOT)
    if published is not None and published != root:
        withdraw(store, key)
    found = documents(layouts, groups)
    written = sum(put_new(writer, name, data) for name, data in sorted(found.items()) if name != _ROOT)
    by_path = {lay.path: lay for lay in layouts}
    for path, array in values.items():
        written += write_whole(writer, by_path[path], array)
    return written


def write_whole(writer: TargetWriter, layout: TargetLayout, values: NDArray[np.generic]) -> int:
    """Write an array of one chunk, unless it is there with the same bytes; returns how many objects that took."""
    if layout.shard is not None or any(c < n for c, n in zip(layout.chunk, layout.shape, strict=True)):
        raise ValueError(f"{layout.path}: an array written whole has one chunk, not chunks of {layout.chunk}")
    if values.shape != layout.shape:
        raise ValueError(f"{layout.path}: values of shape {values.shape} for an array of shape {layout.shape}")
    chunk = layout.cell_key((0,) * len(layout.shape))
    data = None if 0 in layout.shape else ChunkEncoder(layout).encode(values)
    if data is None:
        writer.delete(chunk)
        return 0
    return put_new(writer, chunk, data)


def publish(store: Store, key: str, layouts: Sequence[TargetLayout], groups: Iterable[GroupSpec]) -> bool:
    """Make the store visible; returns False where it was, just so.

    ``layouts`` and ``groups`` as in :func:`prepare`.
    """
    return bool(put_new(ObjectWriter(store, key), _ROOT, json_bytes(_root_document(layouts, tuple(groups)))))


def is_published(store: Store, key: str) -> bool:
    """Whether a root is there."""
    return store.exists(_at(key, _ROOT))


def withdraw(store: Store, key: str) -> None:
    """Take the root away: readers find no store until it is published again."""
    store.delete(_at(key, _ROOT))


def array_of(name: str) -> str:
    """The array that an object of a store is of, by its key; any text where it is of none."""
    for end in (f"/{_ROOT}", "/c"):
        if name.endswith(end):
            return name.removesuffix(end)
    return name.rpartition("/c/")[0]


def stray_objects(layouts: Sequence[TargetLayout], names: Iterable[str], leftover: Iterable[str] = ()) -> list[str]:
    """Chunk objects of our arrays that lie outside their grids, and all of arrays that are no more: left by another plan.

    Parameters
    ----------
    layouts
        Of every array.
    names
        Keys below the target.
    leftover
        Paths of arrays that an earlier plan had.
    """
    gone = {path.strip("/") for path in leftover}
    grids = {f"{lay.key}/c".lstrip("/"): lay.cell_grid for lay in layouts}
    strays = []
    for name in names:
        if array_of(name) in gone:
            strays.append(name)
            continue
        array, found, rest = name.rpartition("/c/")
        head = f"{array}/c"
        if name in grids:  # the one chunk of a scalar
            if grids[name]:
                strays.append(name)
            continue
        if not found or head not in grids:
            continue
        grid, parts = grids[head], rest.split("/")
        inside = len(parts) == len(grid) and all(p.isdigit() and int(p) < n for p, n in zip(parts, grid, strict=True))
        if not inside:
            strays.append(name)
    return strays

"""Arrays of published stores, from their metadata alone, for ``show``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import cast

from drystone.cli.draw import ArrayDrawing
from drystone.errors import ConfigError
from drystone.storage.store import Store

__all__ = ["codec_text", "icechunk_arrays", "kerchunk_arrays", "zarr_arrays"]

type Json = Mapping[str, object]


def codec_text(name: str, params: Json) -> str:
    """A codec in a few words.

    Examples
    --------
    >>> codec_text("zlib", {"level": 4}), codec_text("fletcher32", {})
    ('zlib (level 4)', 'fletcher32')
    """
    inside = ", ".join(f"{k} {v if isinstance(v, str) else json.dumps(v)}" for k, v in params.items() if v is not None)
    return f"{name} ({inside})" if inside else name


def zarr_arrays(store: Store) -> Iterator[ArrayDrawing]:
    """Arrays of a Zarr v3 store: from the root's consolidated metadata, else from every ``zarr.json`` below it."""
    root = json.loads(store.get("zarr.json"))
    consolidated = root.get("consolidated_metadata")
    if root.get("node_type") == "array":
        yield v3_array("/", root)
    elif isinstance(consolidated, dict):
        for path, node in consolidated["metadata"].items():
            if node["node_type"] == "array":
                yield v3_array(f"/{path}", node)
    else:
        for key, _ in store.list():
            if key.endswith("/zarr.json") and (node := json.loads(store.get(key)))["node_type"] == "array":
                yield v3_array("/" + key.removesuffix("/zarr.json"), node)


def v3_array(path: str, node: Json) -> ArrayDrawing:
    """One array of Zarr v3 metadata."""
    shape = tuple(cast("list[int]", node["shape"]))
    grid = cast("dict[str, object]", node["chunk_grid"])
    note = "" if grid["name"] == "regular" else f"{grid['name']} grid: its largest chunk is drawn"
    outer = _edges(cast("dict[str, object]", grid["configuration"]), len(shape))
    codecs = cast("list[dict[str, object]]", node["codecs"])
    inner = next((c for c in codecs if c["name"] == "sharding_indexed"), None)
    shard: tuple[int, ...] | None = None
    if inner is not None:
        configuration = cast("dict[str, object]", inner["configuration"])
        shard, outer = outer, tuple(cast("list[int]", configuration["chunk_shape"]))
        codecs = cast("list[dict[str, object]]", configuration["codecs"])
    names = cast("list[str | None] | None", node.get("dimension_names")) or [None] * len(shape)
    dims = tuple(n or f"dim_{i}" for i, n in enumerate(names))
    texts = tuple(_v3_codec(c) for c in codecs if c["name"] != "bytes")
    dtype = node["data_type"]
    name = dtype if isinstance(dtype, str) else str(cast("dict[str, object]", dtype)["name"])
    return ArrayDrawing(path, dims, shape, name, outer, shard, texts, _itemsize(dtype), note=note)


def _v3_codec(codec: Json) -> str:
    return codec_text(str(codec["name"]), cast(Json, codec.get("configuration") or {}))


def _edges(configuration: Json, rank: int) -> tuple[int, ...]:
    if "chunk_shape" in configuration:
        return tuple(cast("list[int]", configuration["chunk_shape"]))
    sizes = cast("list[object]", configuration["chunk_shapes"])
    return tuple(max(_rectilinear(sizes[i])) for i in range(rank))


def _rectilinear(axis: object) -> list[int]:
    """Edges of a rectilinear axis, runs written out once."""
    if isinstance(axis, int):
        return [axis]
    return [e[0] if isinstance(e, list) else e for e in cast("list[int | list[int]]", axis)]


def _itemsize(dtype: object) -> int:
    if not isinstance(dtype, str):
        return 0
    if dtype == "bool":
        return 1
    digits = "".join(c for c in dtype if c.isdigit())
    return int(digits) // 8 if digits and dtype.startswith(("int", "uint", "float", "complex")) else 0


def kerchunk_arrays(store: Store) -> Iterator[ArrayDrawing]:
    """Arrays of kerchunk Parquet references."""
    import numpy as np

    metadata: dict[str, dict[str, object]] = json.loads(store.get(".zmetadata"))["metadata"]
    for key, node in metadata.items():
        if not key.endswith(".zarray"):
            continue
        name = key.removesuffix("/.zarray")
        shape = tuple(cast("list[int]", node["shape"]))
        attributes = metadata.get(f"{name}/.zattrs", {})
        dims = cast("list[str]", attributes.get("_ARRAY_DIMENSIONS") or [f"dim_{i}" for i in range(len(shape))])
        filters = cast("list[dict[str, object]]", node.get("filters") or [])
        compressor = cast("dict[str, object] | None", node.get("compressor"))
        steps = [*filters, *([compressor] if compressor else [])]
        texts = tuple(codec_text(str(s["id"]), {k: v for k, v in s.items() if k != "id"}) for s in steps)
        dtype = node["dtype"]
        itemsize = np.dtype(dtype).itemsize if isinstance(dtype, str) else 0
        chunk = tuple(cast("list[int]", node["chunks"]))
        yield ArrayDrawing(f"/{name}", tuple(dims), shape, str(dtype), chunk, None, texts, itemsize)


def icechunk_arrays(store: Store) -> Iterator[ArrayDrawing]:
    """Arrays at the head of ``main`` of an Icechunk repository."""
    import icechunk
    from zarr.core.buffer import default_buffer_prototype
    from zarr.core.sync import sync

    from drystone.storage.repository import repository_storage

    try:
        session = icechunk.Repository.open(repository_storage(store, "")).readonly_session("main")
    except icechunk.IcechunkError as error:
        first = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"{store.url} looks like an Icechunk repository, but does not open: {first}", kind="icechunk"
        ) from error

    async def documents() -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        async for key in session.store.list_prefix(""):
            if key.endswith("zarr.json"):
                data = await session.store.get(key, default_buffer_prototype())
                if data is not None:
                    found[key] = data.to_bytes()
        return found

    for key, data in sync(documents()).items():
        node = json.loads(data)
        if node["node_type"] == "array":
            yield v3_array("/" + key.removesuffix("zarr.json").strip("/"), node)

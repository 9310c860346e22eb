"""Shards and chunks of any shape, dtype and fill, read back by zarr's two pipelines and by tensorstore."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from drystone.codecs.chain import CodecChain
from drystone.errors import DecodeError
from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import grouped
from drystone.plan.candidates import stream_axis
from drystone.plan.layout import TargetLayout
from drystone.plan.shards import TaskPlan
from drystone.plan.target_codecs import target_codecs
from drystone.rechunk.cells import write_region
from drystone.rechunk.streaming import steps_of, stream_shard
from drystone.rechunk.target import prepare, publish
from drystone.rechunk.writer import ObjectWriter
from drystone.storage.local import LocalStore

DTYPES = ["u1", "i2", "u4", "i8", "f2", "f4", "f8", "c8", "?", "S3", "M8[s]"]
CODECS = ["blosc", "zstd", "gzip", "none"]
PIPELINES = ["Batched", "Fused"]


def bits(values: NDArray[np.generic]) -> bytes:
    return np.ascontiguousarray(values).tobytes()


@st.composite
def layouts(draw: st.DrawFn) -> TargetLayout:
    rank = draw(st.integers(0, 3))
    shape = tuple(draw(st.integers(1, 9)) for _ in range(rank))
    chunk = tuple(draw(st.integers(1, n + 2)) for n in shape)
    shard = tuple(c * draw(st.integers(1, 3)) for c in chunk) if draw(st.booleans()) else None
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    fill = bytes(dtype.itemsize)
    if dtype.kind in "iuf" and draw(st.booleans()):
        fill = np.array(draw(st.sampled_from([0, 1, 7])), dtype).tobytes()
    if dtype.kind == "f" and draw(st.booleans()):
        fill = np.array(np.nan, dtype).tobytes()
    codecs = target_codecs(((draw(st.sampled_from(CODECS)), {}),), dtype)
    cell, sizes = list(chunk if shard is None else shard), [None] * rank
    for axis in range(rank):
        if draw(st.integers(0, 3)) == 0:  # chunks, or shards of whole inner chunks, of any size
            step = 1 if shard is None else chunk[axis]
            sizes[axis] = tuple(step * n for n in draw(st.lists(st.integers(1, 4), min_size=1, max_size=5)))
            cell[axis] = max(sizes[axis])
    shape = tuple(n if e is None else sum(e) for n, e in zip(shape, sizes, strict=True))
    chunk, shard = (tuple(cell), None) if shard is None else (chunk, tuple(cell))
    spans = tuple(sizes) if any(sizes) else ()
    return TargetLayout("/g/v", tuple("abc"[:rank]), shape, dtype, chunk, shard, codecs, fill, sizes=spans)


def random_values(layout: TargetLayout, seed: int, share_of_fill: float) -> NDArray[np.generic]:
    rng = np.random.default_rng(seed)
    size = int(np.prod(layout.shape)) * layout.dtype.itemsize
    raw = rng.integers(0, 2 if layout.dtype.kind == "b" else 127, size, np.uint8).view(layout.dtype).reshape(layout.shape)
    values = np.array(raw)
    values[rng.random(layout.shape) < share_of_fill] = layout.fill_scalar
    return values


def write_all(root: str, layout: TargetLayout, values: NDArray[np.generic], region: tuple[int, ...]) -> None:
    store = LocalStore(root)
    prepare(store, "out", [layout], [], {})
    regions = ChunkGrid(tuple(grouped(d, n) for d, n in zip(layout.cells.dimensions, region, strict=True)))
    plan = TaskPlan(layout.path, layout.cells, regions, 1, 1, 0, 0, 1)
    for i in range(plan.n_tasks):
        start, stop = plan.bounds(i)
        slab = values[(..., *(slice(a, b) for a, b in zip(start, stop, strict=True)))]
        write_region(ObjectWriter(store, "out"), layout, slab, start, 2)
    publish(store, "out", [layout], [])


@pytest.fixture(autouse=True, scope="module")
def no_waiting_for_the_disk() -> Iterator[None]:
    """Hundreds of small stores need not survive a power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@settings(deadline=None, max_examples=80)
@given(layouts(), st.integers(0, 99), st.sampled_from([0.0, 0.5, 1.0]), st.data())
def test_zarr_reads_every_bit(layout: TargetLayout, seed: int, share: float, data: st.DataObject) -> None:
    values = random_values(layout, seed, share)
    region = tuple(data.draw(st.integers(1, 3)) for _ in layout.cell)
    with tempfile.TemporaryDirectory() as root:
        write_all(root, layout, values, region)
        for name in PIPELINES:
            pipeline = {"codec_pipeline.path": f"zarr.core.codec_pipeline.{name}CodecPipeline"}
            with zarr.config.set(pipeline | {"array.rectilinear_chunks": True}):
                read = zarr.open_group(f"{root}/out", mode="r", use_consolidated=True)["g/v"]
                assert isinstance(read, zarr.Array)
                assert bits(np.asarray(read[...], values.dtype)) == bits(values), name
                if layout.shape:  # a partial read goes through the index
                    part = tuple(slice(n // 3, n // 3 + 1) for n in layout.shape)
                    assert bits(np.asarray(read[part])) == bits(values[part]), name


@settings(deadline=None, max_examples=30)
@given(layouts().filter(lambda lay: lay.dtype.kind in "iuf" and not lay.sizes), st.integers(0, 99))
def test_tensorstore_reads_every_bit(layout: TargetLayout, seed: int) -> None:
    tensorstore = pytest.importorskip("tensorstore")
    values = random_values(layout, seed, 0.5)
    with tempfile.TemporaryDirectory() as root:
        write_all(root, layout, values, (1,) * len(layout.cell))
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{root}/out/g/v"}}
        read = tensorstore.open(spec, open=True).result().read().result()
        assert bits(np.asarray(read)) == bits(values)


@settings(deadline=None, max_examples=100)
@given(
    layouts().filter(lambda lay: stream_axis(lay) is not None), st.integers(0, 99), st.sampled_from([0.0, 0.5, 1.0]), st.data()
)
def test_streamed_shards_have_the_same_bytes(layout: TargetLayout, seed: int, share: float, data: st.DataObject) -> None:
    values = random_values(layout, seed, share)
    axis = stream_axis(layout)
    assert axis is not None
    step = layout.chunk[axis] * data.draw(st.integers(1, 3))

    def read(start: tuple[int, ...], stop: tuple[int, ...], out: NDArray[np.generic]) -> None:
        out[...] = values[tuple(slice(a, b) for a, b in zip(start, stop, strict=True))]

    plan = TaskPlan(layout.path, layout.cells, layout.cells, 1, 1, 0, 0, 1, (axis, step))
    with tempfile.TemporaryDirectory() as root:
        store = LocalStore(root)
        for i in range(plan.n_tasks):
            start, stop = plan.bounds(i)
            slab = values[tuple(slice(a, b) for a, b in zip(start, stop, strict=True))]
            first = [b - a for a, b in zip(*next(steps_of(start, stop, (axis, step))), strict=True)]
            buffers = (np.empty(first, values.dtype), np.empty(first, values.dtype))
            (whole,) = write_region(ObjectWriter(store, "whole"), layout, slab, start, 2)
            streamed = stream_shard(ObjectWriter(store, "streamed"), layout, read, buffers, start, stop, (axis, step), 2)
            assert whole == streamed
            if whole.size >= 0:
                assert store.get(f"whole/{whole.key}") == store.get(f"streamed/{whole.key}")
        assert not [name for _, _, names in os.walk(root) for name in names if "tmp" in name]


def test_a_source_that_fails_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    layout = TargetLayout("/v", ("t",), (40,), np.dtype("i2"), (4,), (40,), CodecChain.of("bytes"), bytes(2))

    def read(start: tuple[int, ...], stop: tuple[int, ...], out: NDArray[np.generic]) -> None:
        if start[0] >= 16:
            raise DecodeError("the third step", kind="test")
        out[...] = 1

    store = LocalStore(tmp_path)
    with pytest.raises(DecodeError, match="the third step"):
        stream_shard(ObjectWriter(store, ""), layout, read, (np.empty(8, "i2"), np.empty(8, "i2")), (0,), (40,), (0, 8), 1)
    assert [name for _, _, names in os.walk(tmp_path) for name in names] == []


@settings(deadline=None, max_examples=30)
@given(layouts(), st.integers(0, 99))
def test_regions_and_threads_do_not_show_in_the_bytes(layout: TargetLayout, seed: int) -> None:
    values = random_values(layout, seed, 0.3)
    found = []
    for factor in (1, 2):
        with tempfile.TemporaryDirectory() as root:
            write_all(root, layout, values, (factor,) * len(layout.cell))
            store = LocalStore(root)
            found.append({key: store.get(key) for key, _ in store.list("out/")})
    assert found[0] == found[1]

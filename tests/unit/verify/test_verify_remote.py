"""The witness on object stores and over HTTP: published forms and granules elsewhere than on this disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import h5py
import icechunk
import numpy as np
import obstore
import obstore.store
import pytest
import zarr
from services.s3 import ACCESS_KEY, SECRET_KEY, Bucket
from services.web import serve

from drystone.codecs.chain import CodecChain
from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.attributes import Attributes
from drystone.model.placement import Combined, CombinedArray, Placements
from drystone.verify.run import verify_output

VALUES = np.arange(40, dtype="i4").reshape(8, 5)


def whole() -> Combined:
    none, half = np.zeros(2, np.int64), np.array([4, 4], np.int64)
    placements = Placements(0, np.arange(2, dtype=np.int32), none, half, np.array([0, 4], np.int64), np.zeros(2, np.int32))
    grid = ChunkGrid.regular(VALUES.shape, (4, 5))
    array = CombinedArray(
        "/v", ("t", "x"), VALUES.shape, VALUES.dtype, VALUES.dtype, None, CodecChain.of("bytes"), Attributes(), grid, None,
        placements, (),
    )  # fmt: skip
    return Combined((), (array,), "t")


def write_granules(folder: Path) -> list[str]:
    names = []
    for i in range(2):
        with h5py.File(folder / f"g {i}.h5", "w") as f:
            f.create_dataset("v", data=VALUES[4 * i : 4 * i + 4], chunks=(2, 5), compression="gzip")
        names.append(f"g {i}.h5")
    return names


def bucket_store(s3: Bucket, prefix: str) -> obstore.store.ObjectStore:
    return obstore.store.from_url(
        f"{s3.url}/{prefix}",
        endpoint=s3.endpoint,
        region="us-east-1",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )


@pytest.mark.services
def test_granules_and_a_store_on_s3(s3: Bucket, tmp_path: Path) -> None:
    raw = bucket_store(s3, "witness/raw")
    for name in write_granules(tmp_path):
        obstore.put(raw, name, (tmp_path / name).read_bytes())
    root = zarr.create_group(zarr.storage.ObjectStore(bucket_store(s3, "witness/out")))
    array = root.create_array("v", data=VALUES, chunks=(8, 2), dimension_names=("t", "x"))
    granules = {i: f"{s3.url}/witness/raw/g {i}.h5" for i in range(2)}

    def verify() -> list[str]:
        options = {s3.url: s3.options}
        report = verify_output("zarr", f"{s3.url}/witness/out", whole(), granules, mode="full", options=options)
        return [] if report.ok else report.lines()

    assert verify() == []
    array[7, 4] = 0
    assert "first at (7, 4): published 0 (0x00000000), source 39" in verify()[1]


@pytest.mark.services
def test_icechunk_on_s3(s3: Bucket, tmp_path: Path) -> None:
    storage = icechunk.s3_storage(
        bucket=s3.name,
        prefix="witness/ice",
        region="us-east-1",
        endpoint_url=s3.endpoint,
        allow_http=True,
        force_path_style=True,
        access_key_id=ACCESS_KEY,
        secret_access_key=SECRET_KEY,
    )
    session = icechunk.Repository.create(storage).writable_session("main")
    root = zarr.create_group(session.store)
    root.create_array("v", data=VALUES, chunks=(8, 2), dimension_names=("t", "x"))
    session.commit("all")
    granules = {i: str(tmp_path / name) for i, name in enumerate(write_granules(tmp_path))}
    options = {s3.url: s3.options}
    report = verify_output("icechunk", f"{s3.url}/witness/ice", whole(), granules, mode="full", options=options)
    assert report.ok, report.lines()


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    with serve(tmp_path) as address:
        yield address


def test_granules_over_http(web: str, tmp_path: Path) -> None:
    names = write_granules(tmp_path)
    root = zarr.create_group(tmp_path / "out")
    array = root.create_array("v", data=VALUES, chunks=(8, 2), dimension_names=("t", "x"))
    granules = {i: f"{web}/{name}" for i, name in enumerate(names)}
    report = verify_output("zarr", str(tmp_path / "out"), whole(), granules, mode="full")
    assert report.ok, report.lines()
    array[0, 0] = 1
    assert not verify_output("zarr", str(tmp_path / "out"), whole(), granules, mode="full").ok
    (tmp_path / names[1]).unlink()
    report = verify_output("zarr", str(tmp_path / "out"), whole(), granules, mode="full")
    assert f"{web}/{names[1]}" in " ".join(report.arrays[0].problems)

"""A target and a run's folder on an object store: the same bytes, receipts as objects, resume."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from services.rechunk_run import prepare_run, write_granules
from services.s3 import Bucket

from drystone.model.options import OutputOptions
from drystone.storage.store import Place

OUTPUT = OutputOptions("store", "zarr", "out:s", chunks={"d0": 3, "d1": 5, "d2": 4}, shards={"d0": 6, "d1": 5, "d2": 8})


def test_object_store_holds_what_a_folder_holds(tmp_path: Path, s3: Bucket) -> None:
    write_granules(tmp_path / "raw", np.random.default_rng(0).integers(0, 50, (12, 10, 8)).astype("i2"), [4, 4, 4], (2, 10, 8))
    local = prepare_run(tmp_path / "raw", tmp_path / "out", OUTPUT, 100_000_000, slots=4)
    local.run_all()
    local.publish()
    place = Place("out", f"{s3.url}/rechunk", s3.options)
    remote = prepare_run(tmp_path / "raw", place, OUTPUT, 100_000_000, slots=4)
    remote.run_all([2, 0])
    assert remote.state().pending() == [1, 3]
    again = prepare_run(tmp_path / "raw", place, OUTPUT, 100_000_000, slots=4)
    again.run_all(again.state().pending())
    again.publish()
    assert again.state().done.all()
    assert again.bytes() == local.bytes()
    assert len([k for k, _ in again.store.list("run/receipts/")]) == 4

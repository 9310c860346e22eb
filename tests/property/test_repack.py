"""Granules' chunks copied into a store, whatever the grids, shards, dtypes and holes: zarr reads what NumPy says."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from services.rechunk_run import plain, prepare_run, write_granules

from drystone.model.options import OutputOptions


@pytest.fixture(autouse=True, scope="module")
def no_waiting_for_the_disk() -> Iterator[None]:
    """Hundreds of small stores need not survive a power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_store_holds_the_granules_chunks(data: st.DataObject) -> None:
    step = data.draw(st.integers(1, 4))
    lengths = [step * n for n in data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))]
    lengths[-1] = max(1, lengths[-1] - data.draw(st.integers(0, step - 1)))  # clipped at the array's end
    inner = tuple(data.draw(st.lists(st.integers(1, 9), min_size=0, max_size=2)))
    shape = (sum(lengths), *inner)
    dtype = np.dtype(data.draw(st.sampled_from(["i1", "<i2", ">i2", "f4", ">f8"])))
    values = np.random.default_rng(data.draw(st.integers(0, 99))).integers(-9, 9, shape).astype(dtype)
    chunk = (step, *(data.draw(st.integers(1, n)) for n in inner))
    fill = data.draw(st.sampled_from([None, 3]))
    unwritten = data.draw(st.sets(st.integers(0, len(lengths) - 1), max_size=2))
    shards: dict[str, int | str] = {"*": "none"}
    if data.draw(st.booleans()):
        shards = {f"d{k}": c * data.draw(st.integers(1, 4)) for k, c in enumerate(chunk)}
    slots = data.draw(st.sampled_from([1, 50]))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_granules(root / "raw", values, lengths, chunk, unwritten=unwritten, fill=fill)
        output = OutputOptions("store", "zarr", "out:s.zarr", shards=shards, mode="repack")
        run = prepare_run(root / "raw", root / "out", output, 100_000_000, slots=slots, copies=True)
        receipts = run.run_all()
        run.publish()
        expected, first, stored = values.copy(), 0, 0
        for i, n in enumerate(lengths):
            if i in unwritten:
                expected[first : first + n] = 0 if fill is None else fill
            with h5py.File(root / "raw" / f"g{i:03d}.nc") as file:
                v = file["v"].id
                stored += sum(v.get_chunk_info(k).size for k in range(v.get_num_chunks()))
            first += n
        found = zarr.open_group(root / "out/s.zarr", mode="r")["v"]
        np.testing.assert_array_equal(found[...], expected)
        assert found.chunks == chunk
        assert sum(r.bytes_read for r in receipts) == stored
        assert run.state().n_done == run.plan.n_tasks
        before = run.bytes()
        run.run_all()
        assert run.bytes() == before
        form = replace(output, form="icechunk")
        again = prepare_run(root / "raw", root / "ice", form, 100_000_000, slots=slots, copies=True)
        again.run_all()
        again.publish()
        assert plain(again.bytes()) == plain(before)

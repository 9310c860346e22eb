"""Granules to store, whatever the grids, dtypes, fills and memory: zarr reads what NumPy says."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from services.rechunk_run import plain, prepare_run, write_granules

from drystone.errors import PlanError
from drystone.model.options import OutputOptions


@pytest.fixture(autouse=True, scope="module")
def no_waiting_for_the_disk() -> Iterator[None]:
    """Hundreds of small stores need not survive a power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_store_holds_the_granules_values(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    inner = tuple(data.draw(st.lists(st.integers(1, 9), min_size=0, max_size=2)))
    shape = (sum(lengths), *inner)
    dtype = np.dtype(data.draw(st.sampled_from(["i1", "<i2", ">i2", "f4", ">f8", "c8"])))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    values = rng.integers(-9, 9, shape).astype(dtype)
    if data.draw(st.booleans()):
        values[rng.random(shape) < 0.8] = 3
    chunk = tuple(data.draw(st.integers(1, n + 1)) for n in shape)
    unwritten = data.draw(st.sets(st.integers(0, len(lengths) - 1), max_size=2))
    fill = data.draw(st.sampled_from([None, 3]))
    names = [f"d{k}" for k in range(len(shape))]
    chunks = {n: data.draw(st.integers(-(-m // 3), m + 2)) for n, m in zip(names, shape, strict=True)}
    shards: dict[str, int | str] = {"*": "none"}
    if data.draw(st.booleans()):
        shards = {n: chunks[n] * data.draw(st.integers(1, 3)) for n in names}
    memory = data.draw(st.sampled_from([500_000, 4_300_000, 100_000_000]))
    only = data.draw(st.sampled_from([None, "one pass", "two passes"]))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_granules(root / "raw", values, lengths, chunk, unwritten=unwritten, fill=fill)
        output = OutputOptions("store", "zarr", "out:s", chunks=chunks, shards=shards, codecs=(("zstd", {"level": 1}),))
        try:
            run = prepare_run(root / "raw", root / "out", output, memory, slots=data.draw(st.integers(1, 4)), only=only)
        except PlanError as error:
            run = prepare_run(root / "raw", root / "out", output, int(error.facts["needed"] or 0), only=only)
        receipts = run.run_all()
        assert run.state().n_done == run.plan.n_tasks
        assert (run.plan.arrays[0].tasks.shuffle is not None) == (only == "two passes")
        assert {o.key for r in receipts for o in r.objects if o.size >= 0 and run.plan.task(r.index).pass_ == 2} == {
            k for k in (key.removeprefix("s/") for key in run.bytes()) if k.startswith("v/c")
        }
        run.publish()
        first = 0
        for i, n in enumerate(lengths):
            if i in unwritten:
                values[first : first + n] = 0 if fill is None else fill
            first += n
        group = zarr.open_group(str(root / "out" / "s"), mode="r", use_consolidated=True)
        read = group["v"]
        assert isinstance(read, zarr.Array)
        got = np.asarray(read[...])
        assert got.tobytes() == values.astype(dtype.newbyteorder("=")).tobytes()
        assert np.array_equal(np.asarray(group["d0"][...]), np.arange(shape[0]))  # type: ignore[index]
        form = replace(output, form="icechunk")
        again = prepare_run(root / "raw", root / "ice", form, max(memory, run.plan.memory), slots=3, only=only)
        order = data.draw(st.permutations(range(again.plan.n_tasks)))
        again.run_all(sorted(order, key=lambda i: again.plan.task(i).pass_))
        again.publish()
        assert plain(again.bytes()) == plain(run.bytes())

"""Every way to write an array, forced in turn: whatever the grids, shards, dtypes, fills, memory and gaps, zarr reads what
NumPy says, and all ways but copying write the same bytes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import event, given, settings
from hypothesis import strategies as st
from services.rechunk_run import NoCandidateError, Prepared, prepare_run, write_granules

from drystone.errors import PlanError
from drystone.model.options import AxisOptions, OutputOptions
from drystone.plan.candidates import WAYS

DTYPES = ["i1", "<i2", ">i2", "u8", "f2", "f4", ">f8", "c8"]
MISSING = 9
ALONG = AxisOptions("d0", axis="slots", step=1)


@pytest.fixture(autouse=True, scope="module")
def no_waiting_for_the_disk() -> Iterator[None]:
    """Hundreds of small stores need not survive a power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


class Archive:
    """Granules in a folder, what they hold as a whole, and their chunk shape; ``step``: all lie on a grid of such steps."""

    def __init__(self, root: Path, data: st.DataObject, *, stepped: bool) -> None:
        draw = data.draw
        self.raw, self.out = root / "raw", root / "out"
        step = draw(st.integers(1, 4)) if stepped else 1
        lengths = [step * n for n in draw(st.lists(st.integers(1, 3 if stepped else 6), min_size=1, max_size=4))]
        gaps = [0, *(step * draw(st.sampled_from([0, 0, 1, 2])) for _ in lengths[1:])]
        if stepped:
            lengths[-1] -= draw(st.integers(0, step - 1))  # clipped at the array's end
        inner = tuple(draw(st.lists(st.integers(1, 7), max_size=3)))
        self.dtype = np.dtype(draw(st.sampled_from(DTYPES)))
        self.values = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 8, (sum(lengths), *inner)).astype(self.dtype)
        if draw(st.booleans()):
            self.values[self.values < 7] = 0
        self.chunk = (step if stepped else draw(st.integers(1, 7)), *(draw(st.integers(1, n + 1)) for n in inner))
        self.chunk = (self.chunk[0], *(min(c, n) for c, n in zip(self.chunk[1:], inner, strict=True)))
        unwritten = draw(st.sets(st.integers(0, len(lengths) - 1), max_size=2))
        fill = draw(st.sampled_from([None, 3]))
        columns = draw(st.none() | st.integers(0, inner[-1])) if inner else None
        write_granules(
            self.raw, self._spread(lengths, gaps, 0), lengths, self.chunk, unwritten=unwritten, fill=fill, gaps=gaps,
            columns=columns, missing=MISSING,
        )  # fmt: skip
        at = 0
        for i, n in enumerate(lengths):
            part = self.values[at : at + n]
            part[..., (0 if i in unwritten else columns if columns is not None else part.shape[-1]) :] = fill or 0
            if i in unwritten:
                part[...] = fill or 0
            at += n
        self.values = self._spread(lengths, gaps, MISSING)

    def _spread(self, lengths: list[int], gaps: list[int], between: int) -> np.ndarray:
        """The values with places between granules."""
        whole = np.full((sum(lengths) + sum(gaps), *self.values.shape[1:]), between, self.dtype)
        first = at = 0
        for n, gap in zip(lengths, gaps, strict=True):
            first += gap
            whole[first : first + n] = self.values[at : at + n]
            first, at = first + n, at + n
        return whole

    def check(self, run: Prepared) -> None:
        """Do the tasks, and read."""
        run.run_all()
        assert run.state().n_done == run.plan.n_tasks
        run.publish()
        found = zarr.open_group(str(self.out / "s"), mode="r", use_consolidated=True)["v"]
        assert isinstance(found, zarr.Array)
        assert np.asarray(found[...]).tobytes() == self.values.astype(self.dtype.newbyteorder("=")).tobytes()


def sizes(names: list[str], edges: list[int]) -> dict[str, int | str]:
    return dict(zip(names, edges, strict=True))


@pytest.mark.parametrize("way", WAYS)
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_every_candidate_of_a_way(way: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        archive = Archive(Path(folder), data, stepped=False)
        shape = archive.values.shape
        names = [f"d{k}" for k in range(len(shape))]
        chunk = [data.draw(st.integers(-(-n // 3), n + 2)) for n in shape]
        shards: dict[str, int | str] = {"*": "none"}
        if way == "streamed" or (way == "two passes" and data.draw(st.booleans())):  # there must be a step to take
            chunk = [data.draw(st.integers(1, max(1, n // 2))) for n in shape]
            shards = sizes(names, [c * data.draw(st.integers(1 + (n > 1), 4)) for c, n in zip(chunk, shape, strict=True)])
        elif data.draw(st.booleans()):
            shards = sizes(names, [c * data.draw(st.integers(1, 3)) for c in chunk])
        output = OutputOptions("store", "zarr", "out:s", chunks=sizes(names, chunk), shards=shards, codecs=(("zstd", {}),))
        memory = data.draw(st.sampled_from([500_000, 4_300_000, 100_000_000]))
        slots, written, number = data.draw(st.integers(1, 4)), None, 0
        while True:
            archive.out = Path(folder) / f"out{number}"
            how = {"slots": slots, "only": way, "pick": number, "along": ALONG}
            try:
                run = prepare_run(archive.raw, archive.out, output, memory, **how)
            except PlanError as error:
                if error.kind == "no-way":  # of a shard that is one inner chunk long no step is taken
                    assert way == "streamed"
                    event("no way")
                    return
                memory = int(error.facts["needed"] or 0)  # what it says would do does
                continue
            except NoCandidateError:
                break
            archive.check(run)
            objects = {key: data for key, data in run.bytes().items() if "/c/" in key}
            written = objects if written is None else written
            assert objects == written
            number += 1
        event(f"{number} candidates")
        assert number


@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_copied(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        archive = Archive(Path(folder), data, stepped=True)
        shards: dict[str, int | str] = {"*": "none"}
        if data.draw(st.booleans()):
            shards = {f"d{k}": c * data.draw(st.integers(1, 4)) for k, c in enumerate(archive.chunk)}
        output = OutputOptions("store", "zarr", "out:s", shards=shards, mode="repack")
        slots = data.draw(st.sampled_from([1, 50]))
        run = prepare_run(archive.raw, archive.out, output, 100_000_000, slots=slots, copies=True, along=ALONG)
        archive.check(run)
        assert run.plan.arrays[0].tasks.copies

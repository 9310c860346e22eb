"""Shuffle objects: what is cut by destination comes back bit for bit, and whatever is wrong with an object is found."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from services.rechunk_run import Prepared, prepare_run, write_granules

from drystone.errors import StorageError
from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.options import OutputOptions
from drystone.model.task import StoredObject, Task
from drystone.plan.regions import bounds
from drystone.plan.shuffle import Shuffle
from drystone.rechunk.gather import Gatherer
from drystone.rechunk.shuffle import blocks_of, scatter, shuffle_key
from drystone.storage.local import LocalStore


def task(index: int) -> Task:
    return Task(0, "/v", index, (), (), f"{index:032x}", 1)


def shuffled(
    store: LocalStore, values: NDArray[np.generic], sources: tuple[int, ...], boxes: tuple[int, ...], block: int = 1 << 20
) -> tuple[Shuffle, list[StoredObject], Callable[..., Gatherer]]:
    """Write every object of an array; gives what reads them."""
    shuffle = Shuffle(
        ChunkGrid.regular(values.shape, sources),
        ChunkGrid.regular(values.shape, boxes),
        ChunkGrid.regular(values.shape, values.shape),
        block,
    )
    fill = bytes(values.dtype.itemsize)
    stored = []
    for i in range(shuffle.n_sources):
        start, stop = bounds(shuffle.sources, i)
        slab = np.asarray(values[tuple(map(slice, start, stop))], values.dtype)
        stored.append(scatter(store, "run", slab, shuffle, i, fill, task(i), 2))

    def reader(kept: int = 1 << 20, threads: int = 2) -> Gatherer:
        return Gatherer(store, "run", shuffle, task, values.dtype, fill, threads, kept)

    return shuffle, stored, reader


def gathered(shuffle: Shuffle, reader: Gatherer, dtype: np.dtype) -> NDArray[np.generic]:
    """All boxes, put together."""
    whole = np.empty(shuffle.boxes.shape, dtype)
    for i in range(shuffle.boxes.n_chunks):
        start, stop = bounds(shuffle.boxes, i)
        slab = np.empty([b - a for a, b in zip(start, stop, strict=True)], dtype)
        reader.read(start, stop, slab)
        whole[tuple(map(slice, start, stop))] = slab
    return whole


@pytest.mark.parametrize("block", [1, 64, 1 << 20])
@pytest.mark.parametrize("dtype", ["i1", "<i2", "f4", "f8", "c16", "S3", "<M8[s]", "bool"])
def test_values_come_back_bit_for_bit(tmp_path: Path, dtype: str, block: int) -> None:
    rng = np.random.default_rng(3)
    t = np.dtype(dtype)
    raw = rng.integers(0, 2 if dtype == "bool" else 256, 9 * 10 * 7 * t.itemsize).astype("u1")
    values = raw.view(t).reshape(9, 10, 7)
    values[2:5] = np.zeros((), t)
    shuffle, _, reader = shuffled(LocalStore(tmp_path), values, (2, 10, 7), (9, 4, 3), block)
    assert gathered(shuffle, reader(kept=1), t).tobytes() == values.tobytes()


def test_not_a_number_and_minus_zero_keep_their_bits(tmp_path: Path) -> None:
    bits = np.array([0x7FC00001, 0x80000000, 0xFFC00000, 0, 0x7F800001, 1], "u4").repeat(20)
    values = bits.view("f4").reshape(10, 12)
    shuffle, _, reader = shuffled(LocalStore(tmp_path), values, (3, 12), (10, 5))
    assert gathered(shuffle, reader(), values.dtype).tobytes() == values.tobytes()


def test_a_scalar_has_one_piece(tmp_path: Path) -> None:
    shuffle, stored, reader = shuffled(LocalStore(tmp_path), np.array(7, "i4"), (), ())
    assert len(stored) == 1
    assert gathered(shuffle, reader(), np.dtype("i4"))[()] == 7


def test_what_is_all_fill_has_no_bytes(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (8, 4096)).astype("u1")
    full, half = noise.copy(), noise.copy()
    half[:, :2048] = 0
    sizes = [shuffled(LocalStore(tmp_path / n), v, (8, 4096), (8, 2048))[1][0].size for n, v in (("a", full), ("b", half))]
    assert sizes[0] - sizes[1] == 8 * 2048


def test_the_same_values_make_the_same_bytes(tmp_path: Path) -> None:
    values = (np.random.default_rng(1).normal(size=(40, 64, 64)) * 9).astype("i2")
    one, other = (shuffled(LocalStore(tmp_path / n), values, (10, 64, 64), (40, 16, 32), 4096)[1] for n in "ab")
    assert one == other
    assert sum(o.size for o in one) < values.nbytes


def test_objects_are_one_for_each_task_and_not_one_for_each_piece(tmp_path: Path) -> None:
    values = np.arange(24 * 24 * 24, dtype="i4").reshape(24, 24, 24)
    shuffle, stored, _ = shuffled(LocalStore(tmp_path), values, (6, 24, 24), (24, 6, 6))
    assert (len(stored), shuffle.n_pieces) == (4, 64)
    assert len([p for p in tmp_path.rglob("*") if p.is_file()]) == 4


def test_a_byte_that_changed_is_found_wherever_it_is(tmp_path: Path) -> None:
    values = np.random.default_rng(1).integers(0, 9, (6, 20)).astype("i2")
    store = LocalStore(tmp_path)
    shuffle, _, reader = shuffled(store, values, (3, 20), (6, 10))
    key = shuffle_key("run", task(1))
    good = store.get(key)
    for at in range(len(good)):
        store.put(key, good[:at] + bytes([good[at] ^ 0x20]) + good[at + 1 :])
        with pytest.raises(StorageError, match="run again") as caught:
            gathered(shuffle, reader(), values.dtype)
        assert caught.value.kind == "shuffle-lost"
        assert not store.exists(key)
    store.put(key, good)
    assert np.array_equal(gathered(shuffle, reader(), values.dtype), values)


@pytest.mark.parametrize("keep", [0, 10, 40, 100, -1])
def test_an_object_that_was_cut_short_is_found(tmp_path: Path, keep: int) -> None:
    values = np.random.default_rng(1).integers(0, 9, (6, 20)).astype("i2")
    store = LocalStore(tmp_path)
    shuffle, _, reader = shuffled(store, values, (3, 20), (6, 10))
    key = shuffle_key("run", task(0))
    store.put(key, store.get(key)[:keep])
    with pytest.raises(StorageError, match="removed") as caught:
        gathered(shuffle, reader(), values.dtype)
    assert caught.value.kind == "shuffle-lost"


def test_the_object_of_another_task_is_not_taken(tmp_path: Path) -> None:
    values = np.random.default_rng(1).integers(0, 9, (6, 20)).astype("i2")
    store = LocalStore(tmp_path)
    shuffle, _, reader = shuffled(store, values, (3, 20), (6, 10))
    store.put(shuffle_key("run", task(0)), store.get(shuffle_key("run", task(1))))
    with pytest.raises(StorageError, match="another task"):
        gathered(shuffle, reader(), values.dtype)


def test_blocks_cover_a_box_once_and_in_order() -> None:
    for shape in itertools.product(range(1, 5), repeat=3):
        whole = np.arange(np.prod(shape)).reshape(shape)
        for most in (1, 2, 3, 7, 100):
            parts = [whole[part].ravel() for part in blocks_of(shape, most)]
            assert max(map(len, parts)) <= most
            assert np.concatenate(parts).tolist() == list(range(whole.size))


@pytest.fixture
def run(tmp_path: Path) -> Prepared:
    """An array that is written in two passes, as its tasks are."""
    values = np.arange(60 * 100 * 120, dtype="i4").reshape(60, 100, 120)
    write_granules(tmp_path / "raw", values, [7] * 8 + [4], (1, 100, 120))
    output = OutputOptions("store", "zarr", "out:s", chunks={"d0": 60, "d1": 25, "d2": 30}, shards={"*": "none"})
    return prepare_run(tmp_path / "raw", tmp_path / "out", output, 3_000_000, slots=2, only="two passes")


def passes(run: Prepared) -> tuple[list[int], list[int]]:
    numbers = range(run.plan.n_tasks)
    return [i for i in numbers if run.plan.task(i).pass_ == 1], [i for i in numbers if run.plan.task(i).pass_ == 2]


def test_a_first_pass_is_left_only_where_somebody_needs_its_object(run: Prepared) -> None:
    first, second = passes(run)
    assert len(first) >= 2
    assert len(second) >= 2
    assert run.state().pending() == [*second, *first]
    run.run_all(first)
    assert run.state().pending() == second
    lost = shuffle_key(f"{run.run}/shuffle", run.plan.task(first[0]))
    run.store.delete(lost)
    assert run.state().pending() == [*second, first[0]]
    run.run_all([first[0], *second[:-1]])
    assert run.state().pending() == second[-1:]
    run.run_all(second[-1:])
    for i in first:
        run.store.delete(shuffle_key(f"{run.run}/shuffle", run.plan.task(i)))
    assert run.state().pending() == []
    assert run.state().n_done == run.plan.n_tasks


def test_a_receipt_does_not_stand_for_an_object_of_another_size(run: Prepared) -> None:
    first, _ = passes(run)
    run.run_all(first)
    key = shuffle_key(f"{run.run}/shuffle", run.plan.task(first[0]))
    run.store.put(key, run.store.get(key)[:-1])
    assert first[0] in run.state().pending()


def test_a_damaged_object_is_written_anew(run: Prepared) -> None:
    first, second = passes(run)
    run.run_all(first)
    key = shuffle_key(f"{run.run}/shuffle", run.plan.task(first[-1]))
    good = run.store.get(key)
    run.store.put(key, good[:9] + bytes([good[9] ^ 1]) + good[10:])
    assert first[-1] not in run.state().pending()  # its size is right
    with pytest.raises(StorageError, match="shuffle"):
        run.run_all(second)
    assert first[-1] in run.state().pending()
    run.run_all([first[-1]])
    assert run.store.get(key) == good
    run.run_all(second)
    assert run.state().pending() == []


def test_what_was_written_in_another_place_is_written_here(run: Prepared) -> None:
    first, second = passes(run)
    replace(run, job=replace(run.job, scratch="out:elsewhere")).run_all(first)
    before = run.state()
    assert before.pending() == [*second, *first]
    run.run_all(first)
    assert run.state().pending() == second
    assert run.state().bytes_written == before.bytes_written  # one receipt a task counts


def test_another_way_of_cutting_is_another_task(run: Prepared) -> None:
    (a,) = run.plan.arrays
    assert a.tasks.shuffle is not None
    tasks = replace(a.tasks, shuffle=replace(a.tasks.shuffle, block=a.tasks.shuffle.block // 2))
    other = replace(run.plan, arrays=(replace(a, tasks=tasks),))
    first, second = passes(run)
    assert all(run.plan.task(i).task_id != other.task(i).task_id for i in first)
    assert all(run.plan.task(i).task_id == other.task(i).task_id for i in second)
    assert run.plan.fingerprint == other.fingerprint

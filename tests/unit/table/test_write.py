"""Parts: what a row costs, what is refused, and that nothing is visible before a commit."""

from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from services.table_scans import CHAIN, gridded, listed, odd_scan, single_chunks

from drystone.errors import TableError
from drystone.model.array import ArraySpec, array_id
from drystone.model.chunk_rows import ChunkRows, ScannedArray, ScanResult
from drystone.storage.local import LocalStore
from drystone.table.schema import SCHEMAS
from drystone.table.table import ReferenceTable
from drystone.table.write import write_batch


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


@pytest.mark.parametrize(("make", "rows"), [(gridded, 200_000), (single_chunks, 30_000)])
def test_a_realistic_row_takes_at_most_six_bytes(store: LocalStore, make, rows: int) -> None:
    scans = [make(g) for g in range(rows // make(0)[2].n_rows)]
    batch = write_batch(store, "t", scans, 1)
    part = dict(batch.parts)["references"]
    assert part.n_rows == rows
    assert part.size == store.stat(f"t/references/{part.name}").size
    assert part.size <= 6 * part.n_rows


def test_rows_in_flight_take_at_most_48_bytes() -> None:
    rows = gridded(0)[2].arrays[0].rows
    assert rows.nbytes <= 48 * len(rows)
    assert len(pickle.dumps(rows)) <= 48 * len(rows)


def test_part_is_sorted_compressed_and_has_row_groups_of_65536(store: LocalStore) -> None:
    batch = write_batch(store, "t", [gridded(g) for g in (7, 3, 5) for _ in [0]] + [gridded(g) for g in range(10, 50)], 9)
    part = dict(batch.parts)["references"]
    with pq.ParquetFile(store.path(f"t/references/{part.name}")) as file:
        assert file.schema_arrow.equals(SCHEMAS["references"])
        assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [65_536, 65_536, 65_536, 18_392]
        assert {file.metadata.row_group(0).column(i).compression for i in range(14)} == {"ZSTD"}
        table = file.read()
    keys = np.stack(
        [table.column(n).to_numpy().astype(np.int64) for n in ("array_id", "granule_id", "dim_0", "dim_1", "dim_2")]
    )
    order = np.lexsort(keys[::-1])
    assert np.array_equal(order, np.arange(len(order)))
    assert table.column("dim_3").null_count == len(table)
    assert set(table.column("attempt_id").to_pylist()) == {9}


def test_statistics_are_the_logs_and_true(store: LocalStore) -> None:
    batch = write_batch(store, "t", [gridded(g) for g in range(2, 6)], 9)
    stats = json.loads(dict(batch.parts)["references"].stats)
    assert stats["numRecords"] == 20_000
    assert (stats["minValues"]["granule_id"], stats["maxValues"]["granule_id"]) == (2, 5)
    assert (stats["minValues"]["dim_1"], stats["maxValues"]["dim_1"]) == (0, 39)
    assert stats["nullCount"]["dim_3"] == 20_000
    assert "dim_3" not in stats["minValues"]


def test_a_batch_is_small_and_crosses_processes(store: LocalStore) -> None:
    batch = write_batch(store, "t", [gridded(g) for g in range(40)], 1)
    assert pickle.loads(pickle.dumps(batch)) == batch
    assert len(pickle.dumps(batch)) < 10_000
    assert (batch.n_granules, batch.n_rows) == (40, 200_000)


def test_the_batchs_digest_is_the_scans_digest() -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        scan = odd_scan(rng)
        texts = {id(a): (a.spec.structure(), a.spec.attributes.to_json()) for a in scan.arrays}
        assert scan.digest(texts) == scan.digest()


def test_empty_batch(store: LocalStore) -> None:
    batch = write_batch(store, "t", [], 1)
    assert (batch.parts, batch.n_granules) == ((), 0)
    assert list(store.list()) == []


def _one(rows: ChunkRows, path: str = "/a") -> tuple[int, object, ScanResult]:
    spec = ArraySpec(path, ("y", "x"), (9, 9), (1, 1), np.dtype("i2"), None, CHAIN)
    array = ScannedArray(spec, rows)
    return 4, listed(4), ScanResult("hdf5", (), (array,))


@pytest.mark.parametrize("coords", [[[0, 1, 0], [0, 0, 1]], [[0, 0], [3, 3]]], ids=["out of order", "twice"])
def test_rows_out_of_order_or_double_are_refused_by_name(store: LocalStore, coords) -> None:
    c = np.array(coords, np.int32)
    n = c.shape[1]
    rows = ChunkRows(c, np.arange(n, dtype=np.int64), np.ones(n, np.int64), np.zeros(n, np.int8))
    with pytest.raises(TableError, match=r"raw:a/00004\.nc: the rows of /a") as e:
        write_batch(store, "t", [_one(rows)], 1)
    assert e.value.kind == "unsorted-rows"


def test_rank_that_does_not_fit_is_refused(store: LocalStore) -> None:
    with pytest.raises(TableError) as e:
        write_batch(store, "t", [_one(ChunkRows.single(1, 0, 1))], 1)
    assert e.value.kind == "rank"


def test_one_granule_twice_in_a_batch_is_refused(store: LocalStore) -> None:
    with pytest.raises(TableError) as e:
        write_batch(store, "t", [gridded(1), gridded(1)], 1)
    assert e.value.kind == "duplicate-array"


def _colliding_paths() -> tuple[str, str]:
    seen: dict[int, str] = {}
    for i in range(1_000_000):
        path = f"/v{i}"
        if array_id(path) in seen:
            return seen[array_id(path)], path
        seen[array_id(path)] = path
    raise AssertionError


def test_array_id_collision_is_refused_within_a_batch_and_across_commits(store: LocalStore) -> None:
    first, second = _colliding_paths()
    a, b = _one(ChunkRows.single(2, 0, 1), first), _one(ChunkRows.single(2, 0, 1), second)
    both = ScanResult("hdf5", (), (*a[2].arrays, *b[2].arrays))
    with pytest.raises(TableError, match=f"{first} and {second}") as e:
        write_batch(store, "t", [(4, listed(4), both)], 1)
    assert e.value.kind == "array-id-collision"
    table = ReferenceTable.create(store, "t")
    table.commit([write_batch(store, "t", [a], 1)], run_id="r", sequence=0)
    other = write_batch(store, "t", [(5, listed(5), b[2])], 1)
    with pytest.raises(TableError) as e:
        ReferenceTable.open(store, "t").commit([other], run_id="r", sequence=1)
    assert e.value.kind == "array-id-collision"
    assert ReferenceTable.open(store, "t").granule_ids().tolist() == [4]
    table = ReferenceTable.create(store, "u")
    with pytest.raises(TableError):
        table.commit(
            [write_batch(store, "u", [a], 1), write_batch(store, "u", [(5, listed(5), b[2])], 1)], run_id="r", sequence=0
        )
    assert ReferenceTable.open(store, "u").granule_ids().tolist() == []


def test_text_that_is_no_utf8_is_refused_by_name(store: LocalStore) -> None:
    granule, _, scan = _one(ChunkRows.single(2, 0, 1))
    odd = dataclasses.replace(listed(granule), address="raw:caf\udce9.nc")
    with pytest.raises(TableError) as e:
        write_batch(store, "t", [(granule, odd, scan)], 1)
    assert e.value.kind == "not-utf8"

"""The table as readers see it: rows exact and in order, never whole in memory, never lost in silence."""

from __future__ import annotations

import dataclasses
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from services.table_scans import PATHS, assert_holds, gridded, joined, listed, odd_scan, single_chunks, wanted

import drystone.table.rows
import drystone.table.stream
from drystone.errors import TableError
from drystone.model.chunk_rows import ChunkRows, ScannedArray, ScanResult
from drystone.storage.local import LocalStore
from drystone.table.commit import put_part
from drystone.table.log import DeltaLog
from drystone.table.schema import SCHEMAS
from drystone.table.table import ReferenceTable
from drystone.table.write import array_id, coordinate_from_bytes, write_batch


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)


@pytest.fixture
def table(store: LocalStore) -> ReferenceTable:
    return ReferenceTable.create(store, "t")


def fill(table: ReferenceTable, scans, *, attempt: int = 1, sequence: int = 0, run: str = "r") -> bool:
    return table.commit([write_batch(table.store, table.key, scans, attempt)], run_id=run, sequence=sequence)


def odd(granules, seed: int = 0) -> dict[int, ScanResult]:
    return {g: odd_scan(np.random.default_rng([seed, g])) for g in granules}


def as_scans(found: dict[int, ScanResult]):
    return [(g, listed(g), s) for g, s in found.items()]


def test_making_and_opening(store: LocalStore) -> None:
    with pytest.raises(TableError) as e:
        ReferenceTable.open(store, "t")
    assert e.value.kind == "no-table"
    ReferenceTable.open_or_create(store, "t")
    ReferenceTable.open_or_create(store, "t")
    with pytest.raises(TableError) as e:
        ReferenceTable.create(store, "t")
    assert e.value.kind == "table-exists"


def test_folder_names_with_odd_letters(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "my täble+#?=1")
    table = ReferenceTable.create(store, "deep/er")
    found = odd(range(3))
    fill(table, as_scans(found))
    assert_holds(ReferenceTable.open(store, "deep/er"), found)


def test_folder_with_a_percent_sign_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError) as e:
        ReferenceTable.create(LocalStore(tmp_path / "50%20"), "t")
    assert e.value.kind == "percent-in-path"


def test_values_come_back_exactly(table: ReferenceTable) -> None:
    found = odd(range(40))
    fill(table, as_scans(found))
    assert_holds(table, found)
    assert_holds(ReferenceTable.open(table.store, "t"), found)


def test_granules_come_back_exactly(table: ReferenceTable) -> None:
    scans = as_scans(odd(range(5)))
    fill(table, scans, attempt=3)
    for granule, where, scan in scans:
        known = table.granule(granule)
        assert (known.address, known.stamp, known.attempt_id) == (where.address, where.stamp, 3)
        assert (known.n_rows, known.digest, known.format) == (scan.n_rows, scan.digest(), "hdf5")
        assert table.groups(granule) == scan.groups
    assert table.granules(columns=["granule_id", "status"]).to_pydict() == {
        "granule_id": [0, 1, 2, 3, 4],
        "status": ["scanned"] * 5,
    }
    assert table.next_granule_id() == 5
    assert table.next_attempt_id() == 4


def test_arrays_come_back_exactly_with_coordinates(table: ReferenceTable) -> None:
    granule, where, scan = single_chunks(2)
    values = np.linspace(0, 1, 7, dtype=">f8")
    spec = dataclasses.replace(
        scan.arrays[0].spec, path="/lat", dims=("y",), shape=(7,), chunk_shape=(7,), dtype=np.dtype(">f8")
    )
    text = dataclasses.replace(spec, path="/name", dtype=np.dtypes.StringDType())
    words = np.array(["", "å", 'b"c', "d", "e", "f", "g"], np.dtypes.StringDType())
    none = ChunkRows.empty(1)
    arrays = (ScannedArray(spec, none, coordinate=values), ScannedArray(text, none, coordinate=words))
    fill(table, [(granule, where, dataclasses.replace(scan, arrays=arrays))])
    (batch,) = table.arrays(["/lat"])
    row = batch.to_pylist()[0]
    assert type(spec).from_parts(row["structure"], row["attributes"]) == spec
    got = coordinate_from_bytes(row["coordinate"], spec)
    assert np.array_equal(got, values)
    assert got.dtype == np.dtype("f8")
    (batch,) = table.arrays(["/name"], columns=["coordinate"])
    assert coordinate_from_bytes(batch.to_pylist()[0]["coordinate"], text).tolist() == words.tolist()


def test_granules_of_interleaved_commits_come_in_order(table: ReferenceTable) -> None:
    found = odd(range(60), seed=1)
    for k in range(6):
        fill(table, as_scans({g: found[g] for g in list(found)[k::6]}), sequence=k)
    assert_holds(table, found)


def test_only_the_granules_asked_for(table: ReferenceTable) -> None:
    found = odd(range(50), seed=2)
    for k in range(5):
        fill(table, as_scans({g: found[g] for g in list(found)[k * 10 : k * 10 + 10]}), sequence=k)
    for ids in ([7], [49, 0, 12, 12], [], list(range(5, 45))):
        got = joined(list(table.rows("/a", np.array(ids, np.int32))))
        assert got == wanted({g: found[g] for g in ids}, "/a")


def test_unknown_granules_and_arrays_are_errors(table: ReferenceTable) -> None:
    fill(table, as_scans(odd(range(3))))
    with pytest.raises(TableError, match="granule 77 is unknown") as e:
        list(table.rows("/a", np.array([1, 77], np.int32)))
    assert e.value.kind == "no-granule"
    with pytest.raises(TableError) as e:
        list(table.rows("/typo"))
    assert e.value.kind == "no-array"


def test_batches_are_bounded_and_the_table_is_never_in_memory(table: ReferenceTable) -> None:
    n = 0
    for k in range(8):
        fill(table, [gridded(g, (10, 40, 25), 2) for g in range(k * 8, k * 8 + 8)], sequence=k)
    table = ReferenceTable.open(table.store, "t")
    before = pa.total_allocated_bytes()
    highest = 0
    for batch in table.rows("/v1"):
        assert 0 < len(batch) <= 65_536
        highest = max(highest, pa.total_allocated_bytes() - before)
        n += len(batch)
    assert n == 640_000
    assert highest < 12e6  # 640,000 rows would take 26 MB, the table 52 MB


def test_many_overlapping_parts_share_one_budget_of_rows(table: ReferenceTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drystone.table.stream, "_BUFFERED_ROWS", 4000)
    scans = {g: gridded(g, (1, 40, 50), 1)[2] for g in range(24)}
    for k in range(12):
        fill(table, as_scans({g: scans[g] for g in list(scans)[k::12]}), sequence=k)
    assert_holds(table, scans)


def test_inline_bytes_are_bounded_by_cutting_batches(table: ReferenceTable, monkeypatch: pytest.MonkeyPatch) -> None:
    found = odd(range(80), seed=4)
    fill(table, as_scans(found))
    whole = len(list(table.rows("/a")))
    monkeypatch.setattr(drystone.table.rows, "_SIDE_BYTES", 100)
    monkeypatch.setattr(drystone.table.rows, "_SIDE_ROWS", 3)
    assert_holds(table, found)
    assert len(list(table.rows("/a"))) > whole


def test_a_granule_split_over_batches(table: ReferenceTable, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(8)
    found = {g: odd_scan(rng, 30) for g in range(6)}
    fill(table, as_scans(found))
    monkeypatch.setattr(drystone.table.rows, "ROW_GROUP", 40)
    monkeypatch.setattr(drystone.table.rows, "_SMALLEST", 20)
    monkeypatch.setattr(drystone.table.stream, "_BUFFERED_ROWS", 1)
    assert_holds(table, found)


def test_an_early_stop_leaves_nothing_open(table: ReferenceTable) -> None:
    fill(table, [gridded(g) for g in range(40)])
    rows = table.rows("/v0")
    next(rows)
    del rows  # an unclosed file would be a ResourceWarning, which is an error here


def test_threads_may_share_a_table(table: ReferenceTable) -> None:
    found = odd(range(30), seed=6)
    for k in range(3):
        fill(table, as_scans({g: found[g] for g in list(found)[k::3]}), sequence=k)
    shared = ReferenceTable.at(table.pin())
    tasks = [(path, g) for path in PATHS for g in range(30)]

    def read(task: tuple[str, int]) -> bool:
        path, g = task
        assert shared.granule(g).digest == found[g].digest()
        return joined(list(shared.rows(path, np.array([g], np.int32)))) == wanted({g: found[g]}, path)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, tasks))


# ---------------------------------------------------------------------- attempts and visibility


def test_a_new_attempt_replaces_the_old_rows(table: ReferenceTable) -> None:
    old, new = odd(range(6)), odd([2, 4], seed=9)
    fill(table, as_scans(old))
    fill(table, as_scans(new), attempt=2, sequence=1)
    assert_holds(table, old | new)
    assert table.granules().num_rows == 6


def test_a_late_attempt_is_refused(table: ReferenceTable) -> None:
    found = odd(range(3))
    fill(table, as_scans(found), attempt=5)
    for attempt in (4, 5):
        with pytest.raises(TableError) as e:
            fill(table, as_scans(odd([1], seed=3)), attempt=attempt, sequence=1)
        assert e.value.kind == "attempt-old"
    assert_holds(table, found)


def test_a_commit_repeated_counts_once(table: ReferenceTable) -> None:
    found = odd(range(3))
    batch = write_batch(table.store, "t", as_scans(found), 1)
    assert table.commit([batch], run_id="r", sequence=4)
    assert not table.commit([batch], run_id="r", sequence=4)
    other = ReferenceTable.open(table.store, "t")
    assert not other.commit([batch], run_id="r", sequence=4)
    assert other.last_sequence("r") == 4
    assert_holds(other, found)


@pytest.mark.parametrize("reached", [("references",), ("references", "side"), ("references", "side", "arrays")])
def test_a_crash_between_the_commits_shows_nothing_and_is_mended(table: ReferenceTable, reached) -> None:
    before, lost = odd(range(3)), odd([3, 4], seed=1)
    fill(table, as_scans(before))
    batch = write_batch(table.store, "t", as_scans(lost), 2)
    for name in reached:
        parts = [p for t, p in batch.parts if t == name]
        DeltaLog(table.store, "t", name).commit(parts, transactions={"r": 1})
    table = ReferenceTable.open(table.store, "t")
    assert_holds(table, before)
    assert table.next_attempt_id() == 3  # an attempt that nobody sees is taken all the same
    assert table.next_granule_id() == 5
    # the driver that died comes back with its own batch
    again = ReferenceTable.open(table.store, "t")
    assert again.commit([batch], run_id="r", sequence=1)
    assert_holds(again, before | lost)


def test_another_batch_under_the_sequence_number_of_a_crashed_commit(table: ReferenceTable) -> None:
    scans = odd([0, 1])
    batch = write_batch(table.store, "t", as_scans(scans), 1)
    for name in ("references", "side", "arrays"):
        DeltaLog(table.store, "t", name).commit([p for t, p in batch.parts if t == name], transactions={"r": 0})
    table = ReferenceTable.open(table.store, "t")
    fill(table, as_scans(scans), attempt=table.next_attempt_id())
    assert_holds(table, scans)


def test_granules_set_aside_and_withdrawn_have_no_rows(table: ReferenceTable) -> None:
    found = odd(range(4))
    fill(table, as_scans(found))
    table.set_aside([(1, listed(1), "truncated", "cut at 5 kB"), (9, listed(9), "empty", "0 bytes")], run_id="r", sequence=1)
    table.withdraw([2], "bad sensor", run_id="r", sequence=2)
    assert_holds(table, {0: found[0], 3: found[3]})
    rows = {r["granule_id"]: (r["status"], r["reason"]) for r in table.granules().to_pylist()}
    assert rows[1] == ("set aside", "truncated: cut at 5 kB")
    assert rows[2] == ("withdrawn", "bad sensor")
    assert rows[9][0] == "set aside"
    with pytest.raises(TableError, match="set aside"):
        table.granule(9)
    assert table.next_granule_id() == 10
    fill(table, as_scans({1: found[1]}), attempt=table.next_attempt_id(), sequence=3)
    assert_holds(table, {0: found[0], 1: found[1], 3: found[3]})


def test_a_committer_that_goes_on_need_not_read_its_own_commits_again(table: ReferenceTable, monkeypatch) -> None:
    """The price of an append must not grow with the table."""
    fill(table, as_scans(odd([0])))
    opened: list[str] = []
    real = drystone.table.stream.open_part

    def watched(store, key, *args, **kwargs):
        opened.append(key)
        return real(store, key, *args, **kwargs)

    monkeypatch.setattr(drystone.table.stream, "open_part", watched)
    for k in range(1, 5):
        fill(table, as_scans(odd([k])), sequence=k)
    assert opened == []
    assert_holds(table, odd(range(5)))
    with pytest.raises(TableError) as e:
        fill(table, as_scans(odd([3])), sequence=9)
    assert e.value.kind == "attempt-old"


# ---------------------------------------------------------------------- pins


def test_a_pin_stays_where_it_is(table: ReferenceTable) -> None:
    empty = table.pin()
    old = odd(range(3))
    fill(table, as_scans(old))
    pin = table.pin()
    fill(table, as_scans(odd([1, 5], seed=3)), attempt=2, sequence=1)
    again = ReferenceTable.at(pickle.loads(pickle.dumps(pin)))
    assert_holds(again, old)
    assert ReferenceTable.at(pickle.loads(pickle.dumps(pin))) is again
    assert len(pickle.dumps(pin)) < 1000
    assert ReferenceTable.at(empty).granules().num_rows == 0
    with pytest.raises(TableError) as e:
        fill(again, as_scans(odd([8])), attempt=9, sequence=9)
    assert e.value.kind == "read-only"


def test_a_pin_whose_version_is_gone_says_so(table: ReferenceTable) -> None:
    fill(table, as_scans(odd(range(2))))
    pin = table.pin()
    gone = dataclasses.replace(pin, versions=tuple((n, v + 50 if v >= 0 else v) for n, v in pin.versions))
    with pytest.raises(TableError) as e:
        ReferenceTable.at(gone)
    assert e.value.kind == "version-gone"


def test_refresh_shows_what_others_committed(table: ReferenceTable) -> None:
    other = ReferenceTable.open(table.store, "t")
    found = odd(range(2))
    fill(table, as_scans(found))
    assert len(other.granule_ids()) == 0
    other.refresh()
    assert_holds(other, found)


# ---------------------------------------------------------------------- damage


def _part(store: LocalStore, name: str) -> Path:
    (key,) = [k for k, _ in store.list(f"t/{name}/part-")]
    return Path(store.path(key))


def test_lost_rows_are_an_error_and_never_a_fill(table: ReferenceTable) -> None:
    found = odd(range(6))
    fill(table, as_scans({g: found[g] for g in range(3)}))
    fill(table, as_scans({g: found[g] for g in range(3, 6)}), sequence=1)
    log = DeltaLog(table.store, "t", "references")
    log.commit([], removed=[log.live().names[1]])
    table = ReferenceTable.open(table.store, "t")
    with pytest.raises(TableError, match="has 0 chunk rows of /a") as e:
        list(table.rows("/a"))
    assert e.value.kind == "lost-rows"
    assert table.verify_rows(np.array([0, 1, 2], np.int32))
    with pytest.raises(TableError):
        table.verify_rows()


def test_rows_committed_twice_are_an_error(table: ReferenceTable) -> None:
    scans = [gridded(0, (1, 3, 3), 1)]
    fill(table, scans)
    twin = write_batch(table.store, "t", scans, 1)
    DeltaLog(table.store, "t", "references").commit([p for t, p in twin.parts if t == "references"])
    with pytest.raises(TableError):
        list(ReferenceTable.open(table.store, "t").rows("/v0"))


def test_lost_arrays_are_found_by_verification(table: ReferenceTable) -> None:
    fill(table, [gridded(0)])
    log = DeltaLog(table.store, "t", "arrays")
    log.commit([], removed=list(log.live().names))
    with pytest.raises(TableError) as e:
        ReferenceTable.open(table.store, "t").verify_rows()
    assert e.value.kind == "lost-rows"


def test_a_lost_side_part_is_an_error(table: ReferenceTable) -> None:
    fill(table, as_scans(odd(range(6))))
    log = DeltaLog(table.store, "t", "side")
    log.commit([], removed=list(log.live().names))
    with pytest.raises(TableError) as e:
        list(ReferenceTable.open(table.store, "t").rows("/a"))
    assert e.value.kind == "side-missing"


def test_a_part_that_is_gone_cut_or_damaged_is_named(table: ReferenceTable) -> None:
    fill(table, [gridded(g) for g in range(4)])
    part = _part(table.store, "references")
    good = part.read_bytes()
    for damaged, kind in [
        (good[:-100], "part-corrupt"),
        (good + b"more", "part-corrupt"),
        (good[:5000] + bytes([good[5000] ^ 1]) + good[5001:], "part-corrupt"),
        (None, "part-missing"),
    ]:
        part.unlink()
        if damaged is not None:
            part.write_bytes(damaged)
        with pytest.raises(TableError, match=part.name) as e:
            [list(ReferenceTable.open(table.store, "t").rows(f"/v{i}")) for i in range(5)]
        assert e.value.kind == kind


def test_side_rows_without_a_chunk_row_are_an_error(table: ReferenceTable) -> None:
    found = odd(range(6))
    fill(table, as_scans(found))
    (batch,) = table.arrays(["/a"], columns=["granule_id", "attempt_id"])
    extra = {"array_id": array_id("/a"), "granule_id": batch.column(0)[0].as_py(), "attempt_id": 1, "filter_mask": 1}
    extra |= {f"dim_{i}": 99 for i in range(8)}
    rows = pa.Table.from_pylist([extra], SCHEMAS["side"])
    log = DeltaLog(table.store, "t", "side")
    log.commit([put_part(table.store, "t/side", "side", [rows])])
    with pytest.raises(TableError) as e:
        list(ReferenceTable.open(table.store, "t").rows("/a"))
    assert e.value.kind == "side-orphan"


def test_a_part_out_of_order_is_an_error(table: ReferenceTable) -> None:
    fill(table, [gridded(0, (1, 2, 3), 1)])
    good = pq.read_table(_part(table.store, "references"))
    for order in ([0, 2, 1, 3, 4, 5], [0, 1, 2, 3, 4, 4]):
        log = DeltaLog(table.store, "t", "references")
        new = put_part(table.store, "t/references", "references", [good.take(order)])
        log.commit([new], removed=list(log.live().names))
        with pytest.raises(TableError) as e:
            list(ReferenceTable.open(table.store, "t").rows("/v0"))
        assert e.value.kind == "unsorted-rows"


# ---------------------------------------------------------------------- housekeeping


def test_sweep_removes_orphans_only(table: ReferenceTable) -> None:
    found = odd(range(3))
    fill(table, as_scans(found))
    write_batch(table.store, "t", as_scans(odd([7])), 2)
    assert table.sweep() == 0  # younger than a week: perhaps about to be committed
    time.sleep(0.02)
    assert table.sweep(older_than=0.01) == 3
    assert_holds(ReferenceTable.open(table.store, "t"), found)

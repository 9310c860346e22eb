"""From one YAML and a folder of netCDF-4 files to three published forms, read by readers that are not ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import fsspec
import h5py
import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr
from e2e import archives

import drystone
from drystone.errors import CombineError, ConsentNeeded, GranuleChanged, GranuleMissing, ScanError, VerifyError
from drystone.pipeline import api
from drystone.rechunk.shard import checksum
from drystone.storage.local import LocalStore
from drystone.table.table import ReferenceTable

# fsspec reads Parquet references with fastparquet, which pandas 3 warns about
pytestmark = pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated")


def drystone_cli(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command as a user types it."""
    return subprocess.run(
        [sys.executable, "-m", "drystone.cli.main", *args], cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )


def open_icechunk(path: Path, raw: Path) -> xr.Dataset:
    """As a reader without drystone does."""
    prefix = f"file://{raw}/"
    repo = icechunk.Repository.open(
        icechunk.local_filesystem_storage(str(path)),
        authorize_virtual_chunk_access={prefix: icechunk.credentials.LocalFileSystemAccess},
    )
    return xr.open_zarr(repo.readonly_session("main").store, consolidated=False, mask_and_scale=False, decode_times=False)


def open_kerchunk(path: Path) -> xr.Dataset:
    """As a reader without drystone does."""
    fs = fsspec.filesystem("reference", fo=str(path), remote_protocol="file", lazy=True, asynchronous=True)
    store = zarr.storage.FsspecStore(fs, read_only=True, path="")
    return xr.open_zarr(store, consolidated=False, zarr_format=2, mask_and_scale=False, decode_times=False)


def check(ds: xr.Dataset, whole: dict[str, np.ndarray]) -> None:
    """Bit for bit."""
    for name, want in whole.items():
        got = ds[name].values
        assert got.dtype == want.dtype, name
        assert got.tobytes() == want.tobytes(), name


@pytest.fixture
def archive(tmp_path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """Eight files and a config."""
    whole = archives.write_archive(tmp_path)
    archives.write_config(tmp_path)
    return tmp_path, whole


def test_run_publishes_three_forms_that_others_read_exactly(archive):
    """scan, plan, run, status, verify by the command line; values by xarray through zarr, icechunk and fsspec."""
    folder, whole = archive
    for verb in ("check", "scan", "plan", "run", "status", "verify"):
        done = drystone_cli(verb, "little.yaml", "--json", cwd=folder)
        assert done.returncode == 0, (verb, done.stderr)
        json.loads(done.stdout)
    check(xr.open_zarr(folder / "out/series.zarr", mask_and_scale=False, decode_times=False), whole)
    check(open_icechunk(folder / "out/little.icechunk", folder / "raw"), whole)
    check(open_kerchunk(folder / "out/little.parq"), whole)
    store = zarr.open_group(folder / "out/series.zarr", mode="r")
    assert store["sst"].shards == (16, 8, 12)
    assert store["sst"].chunks == (8, 4, 6)


def test_a_second_run_changes_no_byte(archive):
    """Everything is up to date: exit 0, same files, same times."""
    folder, _ = archive
    drystone.run(folder / "little.yaml")
    before = {p: os.stat(folder / "out" / p).st_mtime_ns for p in archives.tree(folder / "out")}
    report = drystone.run(folder / "little.yaml")
    assert report.release is None
    assert {p: os.stat(folder / "out" / p).st_mtime_ns for p in archives.tree(folder / "out")} == before


def test_the_table_tells_what_proved_each_task_once(archive):
    """Receipts are folded into the table before the store is published, and not again by a run that finds it up to date."""
    folder, _ = archive
    tasks = next(o.tasks for o in drystone.run(folder / "little.yaml").outputs if o.tasks)
    drystone.run(folder / "little.yaml")
    table = ReferenceTable.open(LocalStore(str(folder / "work/little")), "table")
    receipts = list(table.receipts())
    assert len({r.task_id for r in receipts}) == len(receipts) == tasks
    assert {g for r in receipts for g, _ in r.sources} == set(table.granule_ids().tolist())
    for o in (o for r in receipts for o in r.objects if o.size >= 0):
        assert checksum([(folder / "out/series.zarr" / o.key).read_bytes()]) == o.crc32c


def test_position_order_is_the_order_of_the_list(tmp_path):
    """Not that of names, nor that in which granules came to the table: a list that grows in the middle is a rebuild."""
    for value, name in enumerate("abc"):
        with h5py.File(tmp_path / f"{name}.h5", "w") as f:
            f.create_dataset("v", data=np.full((2, 3), value), maxshape=(None, 3), chunks=(2, 3))
    config = tmp_path / "order.yaml"
    config.write_text(
        "name: order\nstorage: {raw: file:.}\narchive: {granules: {list: list.txt}}\n"
        "combine: {along: {phony_dim_0: {position: order}}}\n"
        "outputs: [{store: zarr, at: out.zarr}, {virtual: icechunk, at: out.icechunk}]\n"
        "verify: {values: full}\nexecution: {cluster: inline}\n"
    )
    for names in ("ca", "cba"):
        (tmp_path / "list.txt").write_text("".join(f"raw:{name}.h5\n" for name in names))
        drystone.run(config, accept_changes=True)
        wanted = ["abc".index(name) for name in names for _ in range(2)]
        assert zarr.open_group(tmp_path / "out.zarr", mode="r")["v"][:, 0].tolist() == wanted
        assert open_icechunk(tmp_path / "out.icechunk", tmp_path)["v"].values[:, 0].tolist() == wanted
        assert drystone.open(config)["v"].values[:, 0].tolist() == wanted
        assert api.verify(config, mode="full").ok
        assert drystone.run(config).release is None


def test_open_needs_no_other_argument(archive):
    """Paths, a glob, the config and the table give one and the same Dataset."""
    folder, whole = archive
    paths = sorted((folder / "raw").glob("*.nc"))
    check(drystone.open(paths), whole)
    check(drystone.open(str(folder / "raw" / "*.nc")), whole)
    drystone.scan(folder / "little.yaml")
    check(drystone.open(folder / "little.yaml"), whole)
    check(drystone.open(folder / "work/little/table"), whole)


def test_open_decodes_as_xarray_does(archive):
    """decode=True equals xarray's own open of the concatenated files."""
    folder, _ = archive
    paths = sorted((folder / "raw").glob("*.nc"))
    ours = drystone.open(paths, decode=True)
    theirs = xr.open_mfdataset(
        paths,
        engine="h5netcdf",
        combine="nested",
        concat_dim="time",
        data_vars="minimal",
        coords="minimal",
        compat="override",
        join="override",
    )
    for name in ("sst", "err", "time", "mask"):
        np.testing.assert_array_equal(ours[name].values, theirs[name].values)
        assert ours[name].dtype == theirs[name].dtype


def test_dry_runs_change_nothing(archive):
    """No file below the folder is made, changed or touched."""
    folder, _ = archive

    def state() -> dict[str, tuple[int, int]]:
        return {
            os.path.join(d, n): (os.stat(os.path.join(d, n)).st_mtime_ns, os.stat(os.path.join(d, n)).st_size)
            for d, dirs, names in os.walk(folder) for n in [*names, *dirs]
        }  # fmt: skip

    before = state()
    for verb in ("scan", "run"):
        assert drystone_cli(verb, "little.yaml", "--dry-run", cwd=folder).returncode == 0
        assert state() == before
    drystone.scan(folder / "little.yaml")
    before = state()
    assert drystone_cli("run", "little.yaml", "--dry-run", cwd=folder).returncode == 0
    assert state() == before


def test_a_granule_that_changes_after_the_scan_is_refused_by_name(archive):
    """Same size, new time: nothing is published from it."""
    folder, _ = archive
    drystone.scan(folder / "little.yaml")
    victim = folder / "raw/day0006.nc"
    ds = drystone.open(folder / "little.yaml")
    os.utime(victim, ns=(1, 1))
    with pytest.raises(GranuleChanged, match=r"day0006\.nc.*changed"):
        ds["sst"].values  # noqa: B018


def test_packing_that_differs_is_refused_with_both_granules(archive):
    """What peers publish as silent wrong numbers, where the config wants no other."""
    folder, _ = archive
    archives.write_day(folder / "raw/day0024.nc", 24, 3, scale=0.02)
    config = folder / "little.yaml"
    config.write_text(config.read_text() + "combine: {differences: {packing: refuse}}\n")
    with pytest.raises(CombineError, match=r"scale_factor.*day0000\.nc.*day0024\.nc"):
        drystone.run(folder / "little.yaml")
    assert not (folder / "out").exists()


def test_static_array_that_differs_is_refused(archive):
    """mask has no time axis and is too large to be kept by the scan; it is compared all the same."""
    folder, _ = archive
    archives.write_day(folder / "raw/day0024.nc", 24, 3, mask=np.zeros((8, 12), "i1"))
    with pytest.raises(CombineError, match=r"/mask.*day0000\.nc.*day0024\.nc"):
        drystone.open(sorted((folder / "raw").glob("*.nc")))


def test_strict_by_default_keep_going_by_config(archive):
    """One truncated file stops the run by name; with failures allowed it is set aside and named."""
    folder, whole = archive
    good = (folder / "raw/day0000.nc").read_bytes()
    (folder / "raw/day0099.nc").write_bytes(good[: len(good) // 2])
    with pytest.raises(ScanError, match=r"day0099\.nc"):
        drystone.run(folder / "little.yaml")
    archives.write_config(folder, more="failures: {granules: 1}")
    report = drystone.run(folder / "little.yaml")
    assert [f.address for f in report.scan.failed] == ["raw:day0099.nc"]
    check(xr.open_zarr(folder / "out/series.zarr", mask_and_scale=False, decode_times=False), whole)
    assert "day0099.nc" in "\n".join(drystone_cli("status", "little.yaml", cwd=folder).stdout.splitlines())


def test_changed_codecs_ask_before_work_is_redone(archive):
    """The flag that says yes is named; saying yes ends in the new store."""
    folder, whole = archive
    drystone.run(folder / "little.yaml")
    text = (folder / "little.yaml").read_text()
    (folder / "little.yaml").write_text(text.replace("cname: zstd, level: 1", "cname: lz4, level: 1"))
    with pytest.raises(ConsentNeeded, match="--accept-changes"):
        drystone.run(folder / "little.yaml")
    assert drystone_cli("run", "little.yaml", "--accept-changes", cwd=folder).returncode == 0
    check(xr.open_zarr(folder / "out/series.zarr", mask_and_scale=False, decode_times=False), whole)


def test_verify_finds_a_changed_value(archive):
    """A flipped bit in a published shard is found and named."""
    folder, _ = archive
    drystone.run(folder / "little.yaml")
    a = zarr.open_array(folder / "out/series.zarr/sst", mode="r+")
    a[5, 2, 3] = a[5, 2, 3] + 1
    with pytest.raises(VerifyError, match="sst"):
        api.verify(folder / "little.yaml", mode="full")


def test_moved_archive_is_one_edited_line(archive, tmp_path_factory):
    """Reading the old place names the missing path; the new place gives the same values."""
    folder, whole = archive
    drystone.scan(folder / "little.yaml")
    elsewhere = tmp_path_factory.mktemp("moved") / "there"
    os.rename(folder / "raw", elsewhere)
    with pytest.raises(GranuleMissing, match=r"raw/day0000\.nc"):
        drystone.open(folder / "little.yaml")["sst"].values  # noqa: B018
    text = (folder / "little.yaml").read_text()
    (folder / "little.yaml").write_text(text.replace('"file:./raw"', f'"file://{elsewhere}"'))
    check(drystone.open(folder / "little.yaml"), whole)
    assert drystone.scan(folder / "little.yaml").scanned == 0

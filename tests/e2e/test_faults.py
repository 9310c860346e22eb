"""What an operator's bad day does to an archive: full and read-only disks, changed and hostile files, two drivers at once.

Every fault is real: file systems of a few kilobytes, processes of another user, signals, bytes on disk. What is held each
time: the error names its cause, nothing is half-published, nothing of others is touched, and a run after the cause is gone
ends byte for byte as an undisturbed one.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import icechunk
import netCDF4
import pytest
import zarr
from e2e import archives
from e2e.faults import (
    AT,
    FORMS,
    INLINE,
    Meddler,
    check_err,
    cli,
    disk,
    make,
    measured,
    mountable,
    read_only,
    snapshot,
    start,
    states,
    values,
    visible,
    wait_for,
    without_override,
)

import drystone
from drystone.config.load import load_config
from drystone.pipeline.archive import Archive

pytestmark = pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated")


# ---------------------------------------------------------------------------------------------------- disks


NO_MOUNT = mountable()
mounts = pytest.mark.skipif(bool(NO_MOUNT), reason=NO_MOUNT or "")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """A folder to run in, always the same since references name it, and what an undisturbed run publishes there."""
    folder = tmp_path_factory.mktemp("faults") / "a"
    make(folder, verify="full")
    assert cli(folder, "run", "little.yaml").code == 0
    good = values(folder)
    shutil.rmtree(folder)
    return folder, good


# where a file system ends, how large it is, and a name that the message holds; found by trying sizes
FULL = [
    ("out", "size=8k", "little.icechunk"),
    ("out", "size=64m,nr_inodes=6", "little.icechunk"),
    ("out", "size=64m,nr_inodes=20", "little.icechunk"),
    ("out/little.icechunk/snapshots", "size=4k,nr_inodes=2", "little.icechunk"),
    ("out", "size=64m,nr_inodes=38", "little.parq"),
    ("out/series.zarr/sst", "size=64m,nr_inodes=2", "series.zarr/sst"),
    ("out/series.zarr/err", "size=4k", "series.zarr/err"),
    ("work", "size=64m,nr_inodes=2", "lease.lock"),
    ("work", "size=64m,nr_inodes=16", "table/"),
    ("work/little/table/references/_delta_log", "size=64m,nr_inodes=2", "table/references"),
    ("work/little/table/granules", "size=12k", "table/granules"),
    ("work/little/table/releases", "size=64m,nr_inodes=1", "table/releases"),
    ("receipts", "size=64m,nr_inodes=1", "receipts"),
]


@mounts
@pytest.mark.parametrize(("where", "options", "named"), FULL, ids=[f"{w}-{o}" for w, o, _ in FULL])
def test_a_full_disk_loses_and_publishes_nothing(
    undisturbed: tuple[Path, dict[str, bytes]], where: str, options: str, named: str
) -> None:
    """Bytes or inodes run out in each kind of write; with room again, a run ends as if nothing had been."""
    folder, good = undisturbed
    make(folder)
    if where == "receipts":
        archive = Archive.of(load_config(folder / "little.yaml"))
        where = f"work/{archive.run_key(archive.config.outputs[-1])}/receipts"
    try:
        with disk(folder / where, options) as remount:
            ended = cli(folder, "run", "little.yaml")
            assert ended.code == 4, ended
            assert named in ended.err, ended
            assert "full" in ended.err or "space left" in ended.err.lower(), ended
            assert "\n" not in ended.err.strip(), "one line"
            before = visible(folder)
            assert before == {k for k, s in zip(FORMS, states(folder), strict=True) if s == "published"} or (
                "published.json" in ended.err
            ), "a form is visible where it is recorded"
            assert cli(folder, "status", "little.yaml").code == 4
            for form in before & {"icechunk"}:
                assert {k: v for k, v in values(folder).items() if k.startswith(form)} == {
                    k: v for k, v in good.items() if k.startswith(form)
                }
            assert not [k for k in archives.tree(folder / "out") if ".drystone-tmp" in k] if (folder / "out").exists() else True
            remount("size=64m,nr_inodes=10000")
            assert cli(folder, "run", "little.yaml").code == 0
            assert values(folder) == good
            assert cli(folder, "status", "little.yaml").code == 0
    finally:
        shutil.rmtree(folder)


@mounts
@pytest.mark.parametrize("room", [48, 100, 140, 180, 220])
def test_one_full_disk_for_everything(undisturbed: tuple[Path, dict[str, bytes]], room: int) -> None:
    """Granules, work and outputs on one file system that has so many kilobytes left."""
    folder, good = undisturbed
    with disk(folder, "size=64m") as remount:
        make(folder)
        remount(f"size={shutil.disk_usage(folder).used // 1024 + room}k")
        ended = cli(folder, "run", "little.yaml")
        assert ended.code == 4, ended
        assert "full" in ended.err or "space" in ended.err.lower()
        assert visible(folder) <= {k for k, s in zip(FORMS, states(folder), strict=True) if s == "published"}
        remount("size=64m")
        assert cli(folder, "run", "little.yaml").code == 0
        assert values(folder) == good
    shutil.rmtree(folder)


@mounts
@pytest.mark.parametrize(("where", "named"), [("out", "little.icechunk"), ("work", "lease.lock")])
def test_a_read_only_file_system_is_named(undisturbed: tuple[Path, dict[str, bytes]], where: str, named: str) -> None:
    """Nothing is published before; reading verbs need no writing."""
    folder, good = undisturbed
    make(folder)
    try:
        with read_only(folder / where):
            ended = cli(folder, "run", "little.yaml")
            assert (ended.code, visible(folder)) == (4, set())
            assert named in ended.err
            assert "read-only" in ended.err.lower()
            assert cli(folder, "status", "little.yaml").code == 4
        assert cli(folder, "run", "little.yaml").code == 0
        assert values(folder) == good
        with read_only(folder):
            for verb, code in (("check", 0), ("status", 0), ("plan", 0), ("scan", 4), ("run", 4)):
                assert cli(folder, verb, "little.yaml").code == code, verb
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize(("limit", "named"), [(2_000, "table/granules"), (7_000, "series.zarr/zarr.json")])
def test_a_limit_on_the_size_of_files_is_named(undisturbed: tuple[Path, dict[str, bytes]], limit: int, named: str) -> None:
    """``ulimit -f``: the system cuts a write short, and the file that it belongs to never shows."""
    folder, good = undisturbed
    make(folder)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            ended = cli(folder, "run", "little.yaml")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert ended.code == 4
        assert named in ended.err
        assert "size limit" in ended.err
        assert "store" not in visible(folder)
        assert cli(folder, "run", "little.yaml").code == 0
        assert values(folder) == good
    finally:
        shutil.rmtree(folder)


@pytest.mark.skipif(sys.platform != "linux" and os.geteuid() == 0, reason="root passes by permissions here")
@pytest.mark.parametrize("what", ["raw", "raw/day0003.nc", "out", "work", "work/little/table"])
def test_no_permission_is_named(tmp_path: Path, what: str) -> None:
    """A closed folder or file: its path and the reason, and nothing published."""
    folder = make(tmp_path, more=f"{INLINE}\nfailures: {{granules: 1}}" if what == "raw" else INLINE)
    (folder / "out").mkdir()
    (folder / what).mkdir(parents=True, exist_ok=True) if "." not in what else None
    (folder / what).chmod(0o000 if what.startswith("raw") else 0o555)
    try:
        with start(folder, "run", "little.yaml", preexec_fn=without_override) as process:
            _, err = process.communicate(timeout=120)
    finally:
        (folder / what).chmod(0o777)
    assert process.returncode == (5 if what.endswith(".nc") else 4), err
    assert str(folder / what) in err
    assert re.search(r"[Pp]ermission denied", err)
    assert "Traceback" not in err
    assert visible(folder) == set()
    assert cli(folder, "run", "little.yaml").code == 0


# ---------------------------------------------------------------------------------------------------- granules


def rewritten(path: Path) -> None:
    """Other values in the same places: the same size and every chunk's too, only the time is later."""
    with h5py.File(path, "r") as f:
        chunk = f["err"].id.get_chunk_info(0)
    raw = bytearray(path.read_bytes())
    inside = slice(chunk.byte_offset, chunk.byte_offset + chunk.size)
    data = zlib.decompress(raw[inside])
    for at in range(len(data)):
        other = zlib.compress(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], 4)
        if len(other) == chunk.size:
            raw[inside] = other
            path.write_bytes(raw)
            return
    raise AssertionError("no value of the same compressed size")


def revalued(path: Path) -> None:
    """A whole new file with other values, as a provider replaces one."""
    archives.write_day(path, int(path.stem[3:]), 3, seed=99)


HARMS: dict[str, Callable[[Path], None]] = {
    "deleted": Path.unlink,
    "same size": rewritten,
    "replaced": revalued,
    "older time": lambda p: os.utime(p, ns=(1, 1)),
    "cut short": lambda p: os.truncate(p, 5000),
    "a folder": lambda p: (p.unlink(), p.mkdir()),  # type: ignore[dict-item, return-value]
    "a link to itself": lambda p: (p.unlink(), p.symlink_to(p)),  # type: ignore[dict-item, return-value]
    "a pipe": lambda p: (p.unlink(), os.mkfifo(p)),  # type: ignore[dict-item, return-value, func-returns-value]
}


MOMENTS = [
    *(("store", "rechunk", "advance", harm) for harm in HARMS),
    *(("store", "scan", "finish", harm) for harm in ("deleted", "same size", "cut short")),
    *((form, "emit", "start", harm) for form in ("icechunk", "kerchunk") for harm in ("deleted", "same size", "older time")),
]


@pytest.mark.parametrize(("form", "stage", "at", "harm"), MOMENTS)
def test_a_granule_that_changes_in_a_run_is_named_and_nothing_is_published(
    tmp_path: Path, form: str, stage: str, at: str, harm: str
) -> None:
    """Between scan and write, and between two tasks."""
    folder = make(tmp_path, FORMS[form])
    victim = folder / "raw/day0003.nc"
    with pytest.raises(drystone.errors.DrystoneError, match=r"day0003\.nc"):
        drystone.run(folder / "little.yaml", progress=Meddler(stage, lambda: HARMS[harm](victim), at))
    assert visible(folder) == set()
    if harm in ("same size", "replaced", "older time"):
        assert cli(folder, "run", "little.yaml", "--accept-changes").code == 0
        check_err(folder, form)


@pytest.mark.parametrize("form", FORMS)
def test_a_granule_that_changes_between_write_and_verify_is_named(tmp_path: Path, form: str) -> None:
    """The witness compares with what the file holds now."""
    folder = make(tmp_path, FORMS[form], verify="full")
    victim = folder / "raw/day0003.nc"
    with pytest.raises(drystone.errors.DrystoneError, match=r"day0003\.nc"):
        drystone.run(folder / "little.yaml", progress=Meddler("verify", lambda: revalued(victim)))
    assert visible(folder) == set()
    assert cli(folder, "run", "little.yaml", "--accept-changes").code == 0
    check_err(folder, form)


def test_a_granule_that_changes_all_the_time_is_never_published(tmp_path: Path) -> None:
    """A writer that does not stop: same size, again and again, while tasks run."""
    folder = make(tmp_path, archives.STORE, days=(3,) * 8)
    victim, stop = folder / "raw/day0006.nc", threading.Event()

    def meddle() -> None:
        while not stop.is_set():
            rewritten(victim)

    thread = threading.Thread(target=meddle)
    try:
        with pytest.raises(drystone.errors.DrystoneError, match=r"day0006\.nc"):
            drystone.run(folder / "little.yaml", progress=Meddler("rechunk", thread.start))
        assert visible(folder) == set()
    finally:
        stop.set()
        thread.join()
    assert cli(folder, "run", "little.yaml", "--accept-changes").code == 0
    check_err(folder, "store")


def test_a_granule_that_changes_after_publish_asks_before_anything_is_redone(tmp_path: Path) -> None:
    """verify says so by name, run names the flag and touches nothing, with it every form has the new values."""
    folder = make(tmp_path)
    assert cli(folder, "run", "little.yaml").code == 0
    before = archives.tree(folder / "out")
    revalued(folder / "raw/day0003.nc")
    ended = cli(folder, "verify", "little.yaml")
    assert (ended.code, "day0003.nc" in ended.err) == (5, True)
    ended = cli(folder, "run", "little.yaml")
    assert ended.code == 2
    assert "tasks would be done again" in ended.err
    assert "--accept-changes" in ended.err
    assert archives.tree(folder / "out") == before
    assert cli(folder, "status", "little.yaml").code == 4, "scanned, and in no release"
    ended = cli(folder, "verify", "little.yaml")
    assert (ended.code, "day0003.nc" in ended.err) == (5, True)
    assert cli(folder, "run", "little.yaml", "--accept-changes").code == 0
    check_err(folder, *FORMS)
    assert cli(folder, "status", "little.yaml").code == 0


@pytest.mark.parametrize("published", [False, True])
def test_a_granule_that_is_gone_needs_consent(tmp_path: Path, published: bool) -> None:
    """An archive does not shrink in silence; with consent it does, and stays so."""
    folder = make(tmp_path, archives.KERCHUNK + archives.STORE, days=(3, 3, 3))
    assert cli(folder, "run" if published else "scan", "little.yaml").code == 0
    before = archives.tree(folder / "out") if published else {}
    (folder / "raw/day0003.nc").unlink()
    assert "day0003.nc" in json.loads(cli(folder, "scan", "little.yaml", "--json").out)["gone"][0]
    ended = cli(folder, "run", "little.yaml")
    assert ended.code == 2
    assert "day0003.nc" in ended.err
    assert "--accept-changes" in ended.err
    assert (archives.tree(folder / "out") if published else {}) == before
    assert published or not (folder / "out").exists()
    assert cli(folder, "run", "little.yaml", "--accept-changes").code == 0
    assert cli(folder, "verify", "little.yaml").code == 0, "it compares with what was not withdrawn"
    assert cli(folder, "run", "little.yaml").code == 0, "asked once"
    assert zarr.open_group(folder / AT["store"], mode="r")["sst"].shape == (6, 8, 12)
    archives.write_day(folder / "raw/day0003.nc", 3, 3)
    assert cli(folder, "run", "little.yaml", "--accept-changes").code == 0
    assert zarr.open_group(folder / AT["store"], mode="r")["sst"].shape == (9, 8, 12)


# ---------------------------------------------------------------------------------------------------- what is not ours


def _put(path: Path, data: bytes = b"theirs") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _zarr(version: int) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        array = zarr.open_group(path, mode="w", zarr_format=version).create_array("sst", shape=(4,), chunks=(2,), dtype="i4")
        array[:] = 7
        if version == 2:
            zarr.consolidate_metadata(path, zarr_format=2)

    return write


def _repository(path: Path) -> None:
    session = icechunk.Repository.create(icechunk.local_filesystem_storage(str(path))).writable_session("main")
    zarr.create_group(session.store, path="mine")
    session.commit("theirs")


def _references(path: Path) -> None:
    _put(path / ".zmetadata", b'{"metadata": {}, "record_size": 1}')
    _put(path / "sst/refs.0.parq")


def _of_another_archive(path: Path) -> None:
    other = make(
        path.parent.parent / "another", FORMS[{v: k for k, v in AT.items()}[str(path.relative_to(path.parent.parent))]]
    )
    assert cli(other, "run", "little.yaml").code == 0
    path.parent.mkdir(exist_ok=True)
    shutil.move(other / path.relative_to(path.parent.parent), path)


FOREIGN: dict[str, Callable[[Path], None]] = {
    "a file": _put,
    "some files": lambda p: _put(p / "notes" / "a.txt"),
    "zarr 3": _zarr(3),
    "zarr 2": _zarr(2),
    "icechunk": _repository,
    "references": _references,
    "a pipe": lambda p: (p.parent.mkdir(), os.mkfifo(p)),  # type: ignore[dict-item, return-value, func-returns-value]
    "a link to a folder": lambda p: (_put(p.parent / "there/x"), p.symlink_to("there")),  # type: ignore[dict-item, return-value, func-returns-value]
    "another archive's output": _of_another_archive,
}


@pytest.mark.parametrize("what", FOREIGN)
@pytest.mark.parametrize("form", FORMS)
def test_what_others_put_at_an_output_is_never_touched(tmp_path: Path, form: str, what: str) -> None:
    """Whatever stands there, and whatever flag is given; a dry run says so too."""
    folder = make(tmp_path / "a", FORMS[form])
    FOREIGN[what](folder / AT[form])
    before = snapshot(folder / "out")
    for words in (["--dry-run"], [], ["--accept-changes"]):
        ended = cli(folder, "run", "little.yaml", *words)
        assert ended.code == 2, ended
        assert AT[form] in ended.err
        assert snapshot(folder / "out") == before
    error = json.loads(cli(folder, "run", "little.yaml", "--json").out)["error"]
    assert error["kind"] == "target-foreign"


def test_an_archive_that_is_moved_as_a_whole_is_known_again(tmp_path: Path) -> None:
    """Its outputs are its own by their content: nothing is done twice, and virtual forms name the new place."""
    folder = make(tmp_path / "here")
    assert cli(folder, "run", "little.yaml").code == 0
    shards = {p: p.stat().st_mtime_ns for p in (folder / AT["store"]).rglob("c/*/*/*")}
    moved = tmp_path / "there"
    folder.rename(moved)
    assert cli(moved, "run", "little.yaml").code == 0
    assert {folder / p.relative_to(moved): p.stat().st_mtime_ns for p in (moved / AT["store"]).rglob("c/*/*/*")} == shards
    check_err(moved, *FORMS)


def test_outputs_may_change_places_in_the_config(tmp_path: Path) -> None:
    """What is known of an output goes by its address: nothing is withdrawn or redone."""
    folder = make(tmp_path, archives.STORE)
    assert cli(folder, "run", "little.yaml").code == 0
    before = snapshot(folder / AT["store"])
    archives.write_config(folder, archives.KERCHUNK + archives.STORE, INLINE)
    run = json.loads(cli(folder, "run", "little.yaml", "--json").out)
    assert [o["fresh"] for o in run["outputs"]] == [True, False]
    assert snapshot(folder / AT["store"]) == before


def test_arrays_that_an_output_loses_are_gone_from_it(tmp_path: Path) -> None:
    """Also for readers that list a store instead of reading its consolidated metadata."""
    folder = make(tmp_path, archives.STORE)
    assert cli(folder, "run", "little.yaml").code == 0
    archives.write_config(folder, archives.STORE + "    arrays: [sst, time, lat, lon]\n", INLINE)
    assert cli(folder, "run", "little.yaml").code == 2
    assert cli(folder, "run", "little.yaml", "--accept-changes").code == 0
    assert set(zarr.open_group(folder / AT["store"], mode="r", use_consolidated=False)) == {"sst", "time", "lat", "lon"}


def test_a_work_folder_that_is_lost_is_no_licence(tmp_path: Path) -> None:
    """Nobody knows then whose the outputs are; and a table made anew in this very process is not taken for the old one."""
    folder = make(tmp_path, archives.STORE)
    assert cli(folder, "run", "little.yaml").code == 0
    shutil.rmtree(folder / "work")
    before = snapshot(folder / "out")
    assert cli(folder, "run", "little.yaml").code == 2
    assert snapshot(folder / "out") == before
    shutil.rmtree(folder / "out")
    assert cli(folder, "run", "little.yaml").code == 0
    check_err(folder, "store")


OVERLAPS = {
    "two places, one folder": ("two: {url: './out'}", "raw:*.nc", ["out:a", "two:a"]),
    "one in the other": ("two: {url: './out/a'}", "raw:*.nc", ["out:a", "two:b"]),
    "one in the other, by a link": ("two: {url: './link'}", "raw:*.nc", ["out:a", "two:a/b"]),
    "around the work folder": ("", "raw:*.nc", ["here:work"]),
    "in the work folder": ("two: {url: 'work/little'}", "raw:*.nc", ["two:table"]),
    "the granules' folder": ("", "raw:*.nc", ["here:raw"]),
    "around the granules' folder": ("", "here:raw/*/*.nc", ["here:raw"]),
    "a name of a granule": ("", "raw:*.nc", ["raw:day0000.nc"]),
    "among granules at any depth": ("", "raw:**", ["raw:a.zarr"]),
    "the work folder among granules": ("work: {url: './raw'}", "raw:**/*", ["out:a"]),
}


@pytest.mark.parametrize("form", ["store: zarr", "virtual: icechunk", "virtual: kerchunk-parquet"])
@pytest.mark.parametrize("case", OVERLAPS)
def test_places_that_overlap_are_refused_by_line(tmp_path: Path, case: str, form: str) -> None:
    """However they are written: by two places, by a link, by a pattern that would match what is written."""
    place, granules, at = OVERLAPS[case]
    folder = make(tmp_path)
    (folder / "out/a").mkdir(parents=True)
    (folder / "link").symlink_to("out")
    config = folder / "c.yaml"
    config.write_text(
        f'name: little\nstorage:\n  raw: {{url: "./raw"}}\n  out: {{url: "./out"}}\n  {place}\n'
        f'granules: "{granules}"\noutputs:\n' + "".join(f'  - {form}\n    at: "{a}"\n' for a in at)
    )
    before = snapshot(folder)
    for verb in ("check", "run", "scan"):
        ended = cli(folder, verb, "c.yaml")
        assert ended.code == 2, (verb, ended)
        assert re.search(r"c\.yaml:\d+:\d+: (outputs\[\d\]\.at|storage\.work): ", ended.err)
        assert snapshot(folder) == before


def test_an_output_beside_granules_is_allowed_where_no_pattern_reaches_it(tmp_path: Path) -> None:
    """`*.nc` matches nothing of a store in the same folder."""
    folder = make(tmp_path, '  - store: zarr\n    at: "raw:series.zarr"\n')
    for _ in range(2):
        assert cli(folder, "run", "little.yaml").code == 0


# ---------------------------------------------------------------------------------------------------- processes

SMALL_SHARDS = """\
  - store: zarr
    at: "out:series.zarr"
    chunks: {time: 8, lat: 4, lon: 6}
    shards: {time: 8, lat: 4, lon: 6}
"""
LONG = {"outputs": SMALL_SHARDS, "days": (2,) * 24}


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a run of a dozen tasks publishes."""
    folder = make(tmp_path_factory.mktemp("long"), **LONG)  # type: ignore[arg-type]
    assert cli(folder, "run", "little.yaml").code == 0
    return values(folder)


def test_a_second_driver_is_refused_and_status_tells_the_truth_meanwhile(tmp_path: Path, long_run: dict[str, bytes]) -> None:
    """The holder is named; a stopped one still holds; nobody else writes; what is done only grows."""
    folder = make(tmp_path, **LONG)  # type: ignore[arg-type]
    with start(folder, "run", "little.yaml") as process:
        wait_for((folder / AT["store"]).exists, process)
        process.send_signal(signal.SIGSTOP)
        before = {p: p.stat().st_mtime_ns for p in folder.rglob("*")}
        for verb in ("run", "scan"):
            ended = cli(folder, verb, "little.yaml")
            assert ended.code == 3
            assert f"process {process.pid}" in ended.err
        status = json.loads(cli(folder, "status", "little.yaml", "--json").out)
        assert (status["exit_code"], status["running"]["pid"]) == (3, process.pid)
        assert {p: p.stat().st_mtime_ns for p in folder.rglob("*")} == before
        process.send_signal(signal.SIGCONT)
        done = [status["outputs"][0]["done"]]
        while process.poll() is None:
            ended = cli(folder, "status", "little.yaml", "--json")
            assert ended.code in (0, 3, 4)
            done.append(json.loads(ended.out)["outputs"][0]["done"])
    assert process.returncode == 0
    assert done == sorted(done)
    assert cli(folder, "status", "little.yaml").code == 0
    assert values(folder) == long_run


@pytest.mark.parametrize(("number", "code"), [("SIGTERM", 75), ("SIGINT", 75), ("SIGKILL", -9), ("SIGHUP", -1)])
def test_a_run_that_is_stopped_goes_on(tmp_path: Path, long_run: dict[str, bytes], number: str, code: int) -> None:
    """In the middle of its tasks: nothing is visible, status says how far it came, a rerun redoes nothing that is done."""
    folder = make(tmp_path, **LONG)  # type: ignore[arg-type]
    with start(folder, "run", "little.yaml") as process:
        wait_for((folder / AT["store"] / "sst" / "c").exists, process)
        process.send_signal(getattr(signal, number))
        _, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert visible(folder) == set()
    status = json.loads(cli(folder, "status", "little.yaml", "--json").out)
    assert (status["exit_code"], status["running"], status["outputs"][0]["state"]) == (4, None, "in work")
    done = status["outputs"][0]["done"]
    tasks = status["outputs"][0]["tasks"]
    assert 0 <= done < tasks
    if code == 75:
        assert "continues" in err
    run = json.loads(cli(folder, "run", "little.yaml", "--json").out)
    assert run["outputs"][0]["tasks_done"] == tasks - done
    assert values(folder) == long_run


@pytest.mark.parametrize(
    ("shell", "verb", "code", "named"),
    [
        ("exec 1>&-", "status", 4, ""),
        ("exec 2>&-", "run", 0, ""),
        ("exec 1>/dev/full", "status", 4, "No space left"),
        ("ulimit -n 24", "run", 4, "Too many open files"),
    ],
)
def test_what_a_shell_takes_away_is_named(tmp_path: Path, shell: str, verb: str, code: int, named: str) -> None:
    """Closed or full streams, too few descriptors; a rerun ends well."""
    folder = make(tmp_path)
    command = f'{shell}; exec "$0" -m drystone.cli.main {verb} little.yaml'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code, done.stderr
    # a thread of Icechunk's may find the event loop closed when the program ends on an error: its words, not ours
    own = done.stderr if "Event loop is closed" not in done.stderr else done.stderr.partition("Traceback")[0]
    assert "Traceback (most recent call last)" not in own
    assert "bug in drystone" not in done.stderr
    assert named in done.stderr
    assert cli(folder, "run", "little.yaml").code == 0
    check_err(folder, *FORMS)


# ---------------------------------------------------------------------------------------------------- hostile files


def _hostile(raw: Path) -> set[str]:
    """Files of every kind of damage beside good ones; those that must be named."""
    good, rng = (raw / "day0003.nc").read_bytes(), random.Random(7)
    signature = good[:8]
    files = {f"random{i}": signature + rng.randbytes(5000) for i in range(8)}
    files |= {f"cut{n}": good[:n] for n in (1, 7, 8, 9, 40, 47, 48, 95, 96, 500, 2000, 10_000, len(good) - 1)}
    files |= {"empty": b"", "html": b"<!DOCTYPE html><title>log in</title>", "zeros": bytes(10_000), "signature": signature}
    # the end of the file, and the root group, as far away as the superblock can say
    files["far end"] = good[:40] + b"\xff" * 7 + b"\x7f" + good[48:]
    files["far root"] = good[:64] + b"\xf0" * 8 + good[72:]
    files["doubled"] = good[: len(good) // 2] * 2
    for name, data in files.items():
        (raw / f"x-{name}.nc").write_bytes(data)
    named = {f"x-{name}.nc" for name in files}
    os.mkfifo(raw / "x-pipe.nc")
    with contextlib.chdir(raw), socket.socket(socket.AF_UNIX) as s:
        s.bind("x-socket.nc")
    (raw / "folder.nc").mkdir()
    _put(raw / "folder.nc" / "inner.nc")
    return named | {"x-pipe.nc", "x-socket.nc"}


def test_hostile_files_are_named_in_bounded_time_and_memory(tmp_path: Path) -> None:
    """Each with its reason; the others are published."""
    folder = make(tmp_path, more=f"{INLINE}\nfailures: {{granules: 100}}")
    names = _hostile(folder / "raw")
    code, out, err, peak = measured(folder, "run", "little.yaml", "--json")
    assert code == 0, err
    failed = {f["granule"].removeprefix("raw:"): f["reason"] for f in json.loads(out)["scan"]["failed"]}
    assert set(failed) == names
    assert all(name in reason for name, reason in failed.items())
    assert peak < 600 << 20
    assert zarr.open_group(folder / AT["store"], mode="r")["sst"].shape == (6, 8, 12)
    status = json.loads(cli(folder, "status", "little.yaml", "--json").out)
    assert {s["granule"].removeprefix("raw:") for s in status["set_aside"]} == names
    assert status["exit_code"] == 0
    assert json.loads(cli(folder, "run", "little.yaml", "--json").out)["release"] is None


def test_a_chunk_that_inflates_without_end_is_named_in_bounded_memory(tmp_path: Path) -> None:
    """Most of a gigabyte behind a few megabytes: decoding ends where the chunk should."""
    folder = make(tmp_path, archives.STORE)
    packer = zlib.compressobj(1)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(768)) + packer.flush()
    with h5py.File(folder / "raw/day0003.nc", "r+") as f:
        f["sst"].id.write_direct_chunk((1, 0, 0), bomb)
    code, _, err, peak = measured(folder, "run", "little.yaml")
    assert code == 4
    assert "day0003.nc" in err
    assert "/sst" in err
    assert peak < 600 << 20
    assert visible(folder) == set()


@pytest.mark.parametrize(
    ("shape", "chunk"), [((10**6, 10**6, 100), (1000, 1000, 100)), ((2**40,), (2**28,)), ((2**62,), (2**20,))]
)
def test_arrays_that_declare_more_than_there_is_take_no_memory(
    tmp_path: Path, shape: tuple[int, ...], chunk: tuple[int, ...]
) -> None:
    """Nothing was ever written of them: to scan and plan them costs what they are, not what they say."""
    folder = make(tmp_path, archives.STORE, f"{INLINE[:-1]}, memory_per_worker: 1 GB}}")
    for path in (folder / "raw").iterdir():
        path.unlink()
    with h5py.File(folder / "raw/a.nc", "w") as f:
        f.create_dataset("huge", shape=shape, chunks=chunk, dtype="f8", compression="gzip")
    code, _, err, peak = measured(folder, "run", "little.yaml")
    assert code == 5
    assert "/huge" in err or "a.nc" in err
    assert peak < 600 << 20


# ---------------------------------------------------------------------------------------------------- configs


def _mutated(text: str, rng: random.Random) -> str:
    """One slip of a keyboard, an editor or a merge."""
    lines = text.splitlines()
    i = rng.randrange(len(lines))
    words = list(re.finditer(r"[\w.]+", lines[i]))
    odd = [
        "null",
        "-1",
        "0",
        "1e400",
        ".nan",
        "[]",
        "{}",
        "2024-01-01",
        "9" * 21,
        "''",
        "!!python/name:os.system",
        "*a",
        "&a b",
        "<<",
    ]
    match rng.randrange(8):
        case 0:
            del lines[i]
        case 1:
            lines.insert(i, lines[rng.randrange(len(lines))])
        case 2:
            lines[i] = lines[i].replace(":", " ", 1)
        case 3:
            lines[i] = lines[i][: rng.randrange(len(lines[i]) + 1)]
        case 4:
            lines[i] = "  " + lines[i]
        case 5:
            at = rng.randrange(len(lines[i]) + 1)
            lines[i] = lines[i][:at] + rng.choice("\0\t:{}[]&*!|>'\"%@`#,?-é\u202e") + lines[i][at + 1 :]
        case 6 if words:
            word = rng.choice(words)
            lines[i] = lines[i][: word.start()] + rng.choice(odd) + lines[i][word.end() :]
        case _:
            lines.append(
                rng.choice(["extra: 1", "? [a]: b", "---\nb: 2", "outputs: []", "storage: 3", "- a", "\x07", "work: x"])
            )
    return "\n".join(lines)


def test_any_slip_in_a_config_is_told_by_line(tmp_path: Path) -> None:
    """Exit 0 or 2 and a line number, never a traceback; nothing is written."""
    folder = make(tmp_path, more=f"{INLINE}\nfailures: {{granules: 1, tries: 2}}\ncombine: {{along: time}}")
    text, rng = (folder / "little.yaml").read_text(), random.Random(11)
    before = snapshot(folder / "raw")
    refused = 0
    for _ in range(200):
        bad = text
        for _ in range(rng.randrange(1, 4)):
            bad = _mutated(bad, rng)
        (folder / "bad.yaml").write_text(bad)
        ended = cli(folder, "check", "bad.yaml")
        assert ended.code in (0, 2), bad
        refused += ended.code == 2
        assert ended.code == 0 or all(re.match(r"  bad\.yaml:\d+:\d+: ", x) for x in ended.err.strip().splitlines()[1:]), bad
        if ended.code == 2:
            assert cli(folder, "run", "bad.yaml").code == 2
    assert refused > 100
    assert snapshot(folder / "raw") == before
    assert not (folder / "out").exists()
    assert not (folder / "work").exists()


@pytest.mark.parametrize(
    ("find", "put", "named"),
    [
        ('"file:./raw"', '"file:./nowhere"', "nowhere"),
        ('"file:./out"', '"file:./little.yaml"', "little.yaml"),
        ('"raw:*.nc"', '"raw:*.grib"', "day0000.nc"),
        ('"raw:*.nc"', '"raw:none/*.nc"', "none"),
    ],
)
def test_places_that_are_not_there_are_named(tmp_path: Path, find: str, put: str, named: str) -> None:
    """What is there instead is told."""
    folder = make(tmp_path, archives.STORE)
    config = folder / "little.yaml"
    config.write_text(config.read_text().replace(find, put))
    ended = cli(folder, "run", "little.yaml")
    assert ended.code in (2, 4)
    assert named in ended.err
    assert visible(folder) == set()


# ---------------------------------------------------------------------------------------------------- odd archives

NAMES = [
    "a b.nc", "ü_é.nc", "日本.nc", "100%25.nc", "p%c3%a9.nc", "hash#1.nc", "quest?ion.nc", "semi;colon.nc", "q'uo\"te.nc",
    "star*.nc", "br[ack].nc", "back\\slash.nc", " lead.nc", "-dash.nc", "colon:x.nc", "&amp.nc", "{b}.nc", "~t.nc",
]  # fmt: skip


def test_any_name_of_a_granule_is_published_and_read(tmp_path: Path) -> None:
    """Through references of both kinds: quoting is the readers' trouble, and ours."""
    folder = make(tmp_path, days=(1,) * len(NAMES))
    for path, name in zip(sorted((folder / "raw").iterdir()), sorted(NAMES), strict=True):
        path.rename(folder / "raw" / name)
    assert cli(folder, "run", "little.yaml").code == 0
    check_err(folder, *FORMS)


def test_a_name_that_a_library_cannot_take_is_refused_by_name(tmp_path: Path) -> None:
    """A line break in a name, and bytes that are no text: nothing is published."""
    folder = make(tmp_path, verify="full")
    (folder / "raw/day0003.nc").rename(folder / "raw/new\nline.nc")
    ended = cli(folder, "run", "little.yaml")
    assert (ended.code, visible(folder)) == (5, set())
    assert "line.nc" in ended.err
    os.rename(folder / "raw/new\nline.nc", os.fsencode(folder / "raw") + b"/bad\xff.nc")
    ended = cli(folder, "run", "little.yaml", "--accept-changes")
    assert (ended.code, visible(folder)) == (5, set())
    assert "udcff" in ended.err


@pytest.mark.parametrize("name", ["sp ace", "h#ash", "q?mark", "ün", "br[a]ck", "per%20cent"])
def test_an_archive_may_lie_in_any_folder(tmp_path: Path, name: str) -> None:
    """But for a percent sign, which the table's library cannot take, and which is refused by name."""
    folder = make(tmp_path / name)
    ended = cli(folder, "run", "little.yaml")
    if "%" in name:
        assert (ended.code, "percent" in ended.err, visible(folder)) == (5, True, set())
        return
    assert ended.code == 0, ended
    check_err(folder, *FORMS)


def test_one_file_and_links_and_deep_folders(tmp_path: Path) -> None:
    """Folders that are links, files that are links, files sixty folders down."""
    folder = make(tmp_path, days=(3, 3, 3))
    deep = folder.joinpath("raw", *["d"] * 60)
    deep.mkdir(parents=True)
    (folder / "elsewhere").mkdir()
    (folder / "raw/day0000.nc").rename(deep / "a.nc")
    (folder / "raw/day0003.nc").rename(folder / "elsewhere/b.nc")
    (folder / "raw/day0006.nc").rename(folder / "elsewhere/c.nc")
    (folder / "raw/linked").symlink_to("../elsewhere")
    (folder / "raw/back").symlink_to(".")
    config = folder / "little.yaml"
    config.write_text(config.read_text().replace("raw:*.nc", "raw:**/*.nc"))
    assert cli(folder, "run", "little.yaml").code == 0
    assert zarr.open_group(folder / AT["store"], mode="r")["sst"].shape == (9, 8, 12)
    shutil.rmtree(folder / "out")
    shutil.rmtree(folder / "work")
    config.write_text(config.read_text().replace("raw:**/*.nc", "raw:linked/b.nc"))
    assert cli(folder, "run", "little.yaml").code == 0
    assert zarr.open_group(folder / AT["store"], mode="r")["sst"].shape == (3, 8, 12)


def test_granules_without_arrays_are_refused_by_name(tmp_path: Path) -> None:
    """All of them, or one among good ones."""
    folder = make(tmp_path)
    netCDF4.Dataset(folder / "raw/empty.nc", "w").close()
    ended = cli(folder, "run", "little.yaml")
    assert (ended.code, "empty.nc" in ended.err, visible(folder)) == (5, True, set())
    for name in ("day0000.nc", "day0003.nc"):
        (folder / "raw" / name).unlink()
    ended = cli(folder, "run", "little.yaml", "--accept-changes")
    assert (ended.code, visible(folder)) == (5, set())
    assert "empty.nc" in ended.err


COUNT = """import collections, json, sys
opened = collections.Counter()
def hear(event, args):
    if event == "open" and str(args[0]).endswith(".nc"):
        opened[str(args[0])] += 1
sys.addaudithook(hear)
from drystone.cli.main import main
code = main(sys.argv[1:])
print(json.dumps([code, len(opened), max(opened.values(), default=0)]))
"""


def test_many_tiny_files_are_opened_a_few_times_and_hardly_again(tmp_path: Path) -> None:
    """Memory does not grow with them; a run that has nothing to do opens one of them at most."""
    n = 150
    folder = make(tmp_path, days=(1,))
    first = folder / "raw/day0000.nc"
    for i in range(1, n):
        path = folder / f"raw/day{i:04d}.nc"
        shutil.copy(first, path)
        with h5py.File(path, "r+") as f:
            f["time"][0] = i
    found = []
    for verb in ("scan", "run", "run"):
        done = subprocess.run(
            [sys.executable, "-c", COUNT, verb, "little.yaml", "--quiet"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(json.loads(done.stdout.splitlines()[-1]))
    assert [f[0] for f in found] == [0, 0, 0]
    assert found[0][1] == n
    assert found[0][2] <= 4, "a scan opens a file for its first bytes and for its index"
    assert found[1][2] <= 8, "a run opens it once an array and task that it is in"
    assert found[2][1] <= 1, "a scalar that is no coordinate is compared with the plan"
    code, _, err, peak = measured(folder, "run", "little.yaml")
    assert code == 0, err
    assert peak < 400 << 20

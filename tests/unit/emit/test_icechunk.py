"""The Icechunk emitter: one commit or none, checksums, containers, refusals."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import h5py
import icechunk
import numpy as np
import pytest
import zarr
from services.emit_archive import HandArchive, hand_archive
from services.s3 import Bucket

from drystone.emit.icechunk import IcechunkEmitter
from drystone.errors import ConfigError, GranuleChanged, LeaseError, StorageError, UnsupportedError
from drystone.model.chunk_rows import State
from drystone.model.placement import Combined
from drystone.storage.address import Places
from drystone.storage.local import LocalStore
from drystone.storage.remote import RemoteStore
from drystone.storage.repository import LEDGER_GROUP
from drystone.storage.store import Place


def write(path: Path, n: int, *, chunks: tuple[int, ...] = (1, 2, 4), **kwargs: object) -> None:
    """A file of three steps; values are unique over all files."""
    with h5py.File(path, "w") as f:
        time = f.create_dataset("time", data=np.arange(3 * n, 3 * n + 3, dtype="f8"), maxshape=(None,), chunks=(3,))
        time.make_scale("time")
        values = np.arange(60, dtype="i4").reshape(3, 4, 5) + 100 * n
        d = f.create_dataset("v", data=values, chunks=chunks, **kwargs)
        d.dims[0].attach_scale(time)


@pytest.fixture
def archive(tmp_path: Path) -> HandArchive:
    (tmp_path / "raw").mkdir()
    for i in range(3):
        write(tmp_path / "raw" / f"{i}.nc", i)
        # changed at different whole seconds, long ago
        os.utime(tmp_path / "raw" / f"{i}.nc", ns=(0, (1_000_000_000 + i) * 1_000_000_000 + 5))
    return hand_archive(tmp_path / "raw", ["0.nc", "1.nc", "2.nc"])


def storage(tmp_path: Path) -> icechunk.Storage:
    return icechunk.local_filesystem_storage(str(tmp_path / "out" / "repo"))


def opened(tmp_path: Path) -> icechunk.IcechunkStore:
    containers = icechunk.Repository.open(storage(tmp_path)).config.virtual_chunk_containers or {}
    access = dict.fromkeys([c.url_prefix for c in containers.values()], icechunk.credentials.LocalFileSystemAccess)
    repo = icechunk.Repository.open(storage(tmp_path), authorize_virtual_chunk_access=access)
    return repo.readonly_session("main").store


def history(tmp_path: Path) -> list[icechunk.SnapshotInfo]:
    return list(icechunk.Repository.open(storage(tmp_path)).ancestry(branch="main"))


def emit(archive: HandArchive, tmp_path: Path, **options: object) -> str:
    public = options.pop("public", ())
    return IcechunkEmitter().emit(archive.view(public=public), LocalStore(tmp_path / "out"), "repo", options).identity


def test_exactly_one_commit_that_says_what_it_is(archive: HandArchive, tmp_path: Path) -> None:
    identity = emit(archive, tmp_path)
    commits = history(tmp_path)
    assert len(commits) == 2  # the second one is the repository's birth
    assert commits[0].id == identity
    assert commits[0].message == "drystone: 2 arrays of 3 granules along time"
    assert commits[0].metadata["drystone"]["granules"] == 3


def test_readers_keep_their_own_cache(archive: HandArchive, tmp_path: Path) -> None:
    """The writer caps its cache of references; the repository's stored config must not."""
    for change in ((), (("raw:", "https://x.org/"),)):
        emit(archive, tmp_path, public=change)
        assert icechunk.Repository.open(storage(tmp_path)).config.caching is None


def test_the_same_again_commits_nothing(archive: HandArchive, tmp_path: Path) -> None:
    first = emit(archive, tmp_path)
    files = sorted((p, p.stat().st_mtime_ns) for p in (tmp_path / "out").rglob("*"))
    assert emit(archive, tmp_path) == first
    assert sorted((p, p.stat().st_mtime_ns) for p in (tmp_path / "out").rglob("*")) == files


@pytest.mark.parametrize("change", ["attribute", "rows", "stamp"])
def test_any_change_makes_one_more_commit(archive: HandArchive, tmp_path: Path, change: str) -> None:
    first = emit(archive, tmp_path)
    path = tmp_path / "raw" / "1.nc"
    if change == "stamp":
        os.utime(path, ns=(0, 10**18))
    else:
        with h5py.File(path, "a") as f:
            if change == "attribute":
                f["v"].attrs["units"] = "K"
            else:
                f["v"][0, 0, 0] = -1
    if change == "attribute":
        for i in (0, 2):
            with h5py.File(tmp_path / "raw" / f"{i}.nc", "a") as f:
                f["v"].attrs["units"] = "K"
    again = hand_archive(tmp_path / "raw", ["0.nc", "1.nc", "2.nc"])
    assert emit(again, tmp_path) != first
    assert len(history(tmp_path)) == 3
    np.testing.assert_array_equal(zarr.open_array(opened(tmp_path), path="v", mode="r")[:], again.values("/v"))


def test_arrays_that_are_gone_are_gone_and_history_keeps_them(archive: HandArchive, tmp_path: Path) -> None:
    first = emit(archive, tmp_path)
    kept = replace(archive.combined, arrays=tuple(a for a in archive.combined.arrays if a.path == "/time"))
    IcechunkEmitter().emit(replace(archive.view(), combined=kept), LocalStore(tmp_path / "out"), "repo", {})
    assert set(zarr.open_group(opened(tmp_path), mode="r")) == {"time", LEDGER_GROUP}
    old = icechunk.Repository.open(storage(tmp_path)).readonly_session(snapshot_id=first).store
    assert "v" in zarr.open_group(old, mode="r")


def test_the_ledger_says_what_each_granule_was(archive: HandArchive, tmp_path: Path) -> None:
    emit(archive, tmp_path)
    ledger = zarr.open_group(opened(tmp_path), path=LEDGER_GROUP, mode="r")
    assert ledger["address"][:].tolist() == ["raw:0.nc", "raw:1.nc", "raw:2.nc"]
    assert ledger["mtime_ns"][:].tolist() == [archive.rows.granule(i).stamp.mtime_ns for i in range(3)]
    assert ledger["digest"][:].tolist() == [archive.rows.granule(i).digest for i in range(3)]
    assert ledger["size"][:].tolist() == [(tmp_path / "raw" / f"{i}.nc").stat().st_size for i in range(3)]


@pytest.mark.parametrize("few", [True, False], ids=["singles", "boxes"])
def test_a_granule_that_changes_after_publishing_is_not_read(
    archive: HandArchive, tmp_path: Path, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import drystone.emit.boxes as boxes

    monkeypatch.setattr(boxes, "_FEW", 1000 if few else 1)
    emit(archive, tmp_path)
    array = zarr.open_array(opened(tmp_path), path="v", mode="r")
    np.testing.assert_array_equal(array[:], archive.values("/v"))
    # one second later than the first whole second after its change; its neighbours are older and newer
    os.utime(tmp_path / "raw" / "1.nc", ns=(0, 1_000_000_003 * 1_000_000_000))
    array = zarr.open_array(opened(tmp_path), path="v", mode="r")
    np.testing.assert_array_equal(array[:3], archive.values("/v")[:3])
    with pytest.raises(icechunk.IcechunkError):
        array[3]
    np.testing.assert_array_equal(array[6:], archive.values("/v")[6:])


def test_without_checksums_it_is_read(archive: HandArchive, tmp_path: Path) -> None:
    emit(archive, tmp_path, checksums="never")
    os.utime(tmp_path / "raw" / "1.nc")
    zarr.open_array(opened(tmp_path), path="v", mode="r")[:]
    with pytest.raises(ConfigError, match="auto, always or never"):
        emit(archive, tmp_path, checksums="sometimes")


def test_a_granule_that_changes_while_publishing_stops_the_commit(archive: HandArchive, tmp_path: Path) -> None:
    first = emit(archive, tmp_path)
    with h5py.File(tmp_path / "raw" / "1.nc", "a") as f:
        f["v"].attrs["x"] = 1
    stale = replace(archive.combined, arrays=tuple(a for a in archive.combined.arrays if a.path == "/v"))
    with pytest.raises(GranuleChanged):
        IcechunkEmitter().emit(replace(archive.view(), combined=stale), LocalStore(tmp_path / "out"), "repo", {})
    assert history(tmp_path)[0].id == first


def test_the_fence_is_asked_just_before_the_commit(archive: HandArchive, tmp_path: Path) -> None:
    def lost() -> None:
        raise LeaseError("lost", kind="lease-lost")

    with pytest.raises(LeaseError):
        emit(archive, tmp_path, fence=lost)
    assert len(history(tmp_path)) == 1
    asked: list[int] = []
    emit(archive, tmp_path, fence=lambda: asked.append(len(history(tmp_path))))
    assert asked == [1, 1]  # before the commit on the staging branch, and before main moves to it


def test_an_archive_that_moved_needs_a_new_container_and_no_commit(archive: HandArchive, tmp_path: Path) -> None:
    first = emit(archive, tmp_path)
    (tmp_path / "raw").rename(tmp_path / "moved")
    moved = hand_archive(tmp_path / "moved", ["0.nc", "1.nc", "2.nc"])
    assert emit(moved, tmp_path) == first
    np.testing.assert_array_equal(zarr.open_array(opened(tmp_path), path="v", mode="r")[:], moved.values("/v"))


def test_public_addresses_are_recorded_and_those_of_the_scan_are_not(archive: HandArchive, tmp_path: Path) -> None:
    (tmp_path / "copy").symlink_to(tmp_path / "raw")
    emit(archive, tmp_path, public=(("raw:", (tmp_path / "copy").as_uri()),))
    repo = icechunk.Repository.open(storage(tmp_path))
    assert {c.name for c in repo.config.virtual_chunk_containers.values()} == {"raw-public"}
    where = repo.readonly_session("main").all_virtual_chunk_locations()
    assert {w.rsplit("/", 1)[0] for w in where} == {(tmp_path / "copy").as_uri()}
    np.testing.assert_array_equal(zarr.open_array(opened(tmp_path), path="v", mode="r")[:], archive.values("/v"))


def test_a_repository_of_somebody_else_is_left_alone(archive: HandArchive, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    session = icechunk.Repository.create(storage(tmp_path)).writable_session("main")
    zarr.create_group(session.store, attributes={"mine": True})
    session.commit("mine")
    with pytest.raises(ConfigError, match="did not write") as caught:
        emit(archive, tmp_path)
    assert caught.value.kind == "target-foreign"
    assert len(history(tmp_path)) == 2


def test_one_writer_that_commits_meanwhile_wins(archive: HandArchive, tmp_path: Path) -> None:
    def other() -> None:
        session = icechunk.Repository.open(storage(tmp_path)).writable_session("main")
        zarr.create_group(session.store, overwrite=True)
        session.commit("other")

    with pytest.raises(StorageError) as caught:
        emit(archive, tmp_path, fence=other)
    assert caught.value.kind == "conflict"
    assert history(tmp_path)[0].message == "other"


def test_a_commit_that_is_not_in_the_history_is_an_error(
    archive: HandArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Icechunk in a folder loses commits of concurrent writers without a word."""
    real = icechunk.Session.commit

    def and_reset(session: icechunk.Session, message: str, metadata: dict[str, object]) -> str:
        branch = session.branch
        assert branch is not None
        snapshot = real(session, message, metadata)
        icechunk.Repository.open(storage(tmp_path)).reset_branch(branch, history(tmp_path)[-1].id)
        return snapshot

    monkeypatch.setattr(icechunk.Session, "commit", and_reset)
    with pytest.raises(StorageError, match="not in the repository's history"):
        emit(archive, tmp_path)


def test_a_publish_that_another_writer_undid_is_an_error(
    archive: HandArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = icechunk.Repository.reset_branch

    def and_back(repo: icechunk.Repository, branch: str, snapshot: str, *, from_snapshot_id: str) -> None:
        real(repo, branch, snapshot, from_snapshot_id=from_snapshot_id)
        real(repo, branch, from_snapshot_id)

    monkeypatch.setattr(icechunk.Repository, "reset_branch", and_back)
    with pytest.raises(StorageError, match="branch main") as caught:
        emit(archive, tmp_path)
    assert caught.value.kind == "commit-lost"


@pytest.mark.parametrize("known", [True, False], ids=["manifests", "chunks"])
def test_references_that_did_not_arrive_are_an_error(
    archive: HandArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """Counted in manifests, or chunk by chunk where a later Icechunk shows manifests otherwise."""
    if not known:

        async def otherwise(repo: icechunk.Repository, manifest: str) -> dict[str, object]:
            return {"v2": manifest}

        monkeypatch.setattr(icechunk.Repository, "inspect_manifest_async", otherwise)
        emit(archive, tmp_path, message="good")
        shutil.rmtree(tmp_path / "out")
    real = icechunk.IcechunkStore.set_virtual_refs_arr

    def drop_one(self: icechunk.IcechunkStore, path: str, shape: object, where: list[str], *args: object, **kw: object) -> None:
        real(self, path, shape, ["", *where[1:]], *args, **kw)  # type: ignore[arg-type]

    monkeypatch.setattr(icechunk.IcechunkStore, "set_virtual_refs_arr", drop_one)
    with pytest.raises(StorageError, match="were sent") as caught:
        emit(archive, tmp_path, checksums="never")
    assert caught.value.kind == "commit-differs"


def problem_archive(tmp_path: Path) -> HandArchive:
    """A large array behind lzf, a small one behind it, a good one."""
    (tmp_path / "raw").mkdir()
    with h5py.File(tmp_path / "raw" / "a.nc", "w") as f:
        f.create_dataset("large", data=np.zeros((1 << 21) + 1, "f8"), chunks=(1 << 16,), compression="lzf")
        f.create_dataset("small", data=np.arange(600.0), chunks=(100,), compression="lzf")
        f.create_dataset("good", data=np.arange(600.0), chunks=(100,), compression="gzip")
    return hand_archive(tmp_path / "raw", ["a.nc"])


def test_what_no_reference_can_say_is_written_where_small_and_named_where_large(tmp_path: Path) -> None:
    archive = problem_archive(tmp_path)
    emitter = IcechunkEmitter()
    problems = emitter.problems(archive.combined)
    assert list(problems) == ["/large"]
    assert "lzf" in problems["/large"]
    with pytest.raises(UnsupportedError, match=r"/large: .*lzf"):
        emit(archive, tmp_path)
    assert not (tmp_path / "out").exists()
    emit(archive, tmp_path, skip=["/large"])
    group = zarr.open_group(opened(tmp_path), mode="r")
    assert "large" not in group
    np.testing.assert_array_equal(group["small"][:], np.arange(600.0))
    np.testing.assert_array_equal(group["good"][:], np.arange(600.0))


@pytest.mark.parametrize("state", [State.LIBRARY, State.HELD])
def test_rows_that_only_the_library_can_decode_stop_everything(archive: HandArchive, tmp_path: Path, state: State) -> None:
    scan = archive.rows.scans[1]
    for a in scan.arrays:
        if a.spec.path == "/v":
            a.rows.state[2] = state
    with pytest.raises(UnsupportedError, match=f"/v: some of its chunks are in the state {state.name}"):
        emit(archive, tmp_path)
    assert len(history(tmp_path)) == 1


def test_chunks_marked_missing_read_as_the_fill(archive: HandArchive, tmp_path: Path) -> None:
    scan = archive.rows.scans[1]
    for a in scan.arrays:
        if a.spec.path == "/v":
            a.rows.state[:] = State.MISSING
            a.rows.offset[:] = -1
    emit(archive, tmp_path)
    got = zarr.open_array(opened(tmp_path), path="v", mode="r")[:]
    assert not got[3:6].any()
    np.testing.assert_array_equal(got[:3], archive.values("/v")[:3])


def test_metadata_is_strict_json(archive: HandArchive, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "raw" / "0.nc", "a") as f:
        f.attrs["limits"] = np.array([np.nan, np.inf])
        f["v"].attrs["odd"] = np.bytes_(b"\xb0C")
    emit(hand_archive(tmp_path / "raw", ["0.nc"]), tmp_path)
    store = opened(tmp_path)
    for key in ("zarr.json", "v/zarr.json"):
        from zarr.core.buffer import default_buffer_prototype
        from zarr.core.sync import sync

        text = sync(store.get(key, default_buffer_prototype())).to_bytes().decode()

        def refuse(word: str) -> object:
            raise AssertionError(word)

        json.loads(text, parse_constant=refuse)
    assert zarr.open_group(store, mode="r").attrs["limits"] == ["NaN", "Infinity"]
    assert zarr.open_array(store, path="v", mode="r").attrs["odd"] == "°C"


def test_a_place_in_memory_is_refused(archive: HandArchive, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="no Icechunk repository can be written"):
        IcechunkEmitter().emit(archive.view(), RemoteStore("memory://"), "repo", {})


def test_nothing_to_publish_is_published(archive: HandArchive, tmp_path: Path) -> None:
    view = replace(archive.view(), combined=Combined(archive.combined.groups, (), None))
    IcechunkEmitter().emit(view, LocalStore(tmp_path / "out"), "repo", {})
    assert set(zarr.open_group(opened(tmp_path), mode="r")) == {LEDGER_GROUP}


@pytest.mark.services
def test_granules_and_repository_on_s3(archive: HandArchive, tmp_path: Path, s3: Bucket) -> None:
    url = f"{s3.url}/emit-{time.time_ns()}"
    store = RemoteStore(url, s3.options)
    names = ["y 1/0#.nc", "y 1/1%.nc", "y 1/2?.nc"]
    for i, name in enumerate(names):
        store.put(f"raw/{name}", (tmp_path / "raw" / f"{i}.nc").read_bytes())
    places = Places.of([Place("raw", f"{url}/raw", s3.options), Place("out", url, s3.options)])
    granules = {
        i: replace(archive.rows.granule(i), address=f"raw:{name}", stamp=store.stat(f"raw/{name}"))
        for i, name in enumerate(names)
    }
    view = replace(archive.view(), rows=replace(archive.rows, granules=granules), places=places)
    first = IcechunkEmitter().emit(view, store, "repo", {}).identity
    assert IcechunkEmitter().emit(view, store, "repo", {}).identity == first

    def values() -> np.ndarray:
        keys = {"access_key_id": os.environ["AWS_ACCESS_KEY_ID"], "secret_access_key": os.environ["AWS_SECRET_ACCESS_KEY"]}
        bucket, _, prefix = url.removeprefix("s3://").partition("/")
        at = icechunk.s3_storage(
            bucket=bucket, prefix=f"{prefix}/repo", region="us-east-1", endpoint_url=s3.endpoint, allow_http=True,
            force_path_style=True, **keys,
        )  # fmt: skip
        access = icechunk.containers_credentials({f"{url}/raw/": icechunk.s3_credentials(**keys)})
        repo = icechunk.Repository.open(at, authorize_virtual_chunk_access=access)
        return zarr.open_array(repo.readonly_session("main").store, path="v", mode="r")[:]

    np.testing.assert_array_equal(values(), archive.values("/v"))
    # the same size, written again: the ETag differs
    data = bytearray((tmp_path / "raw" / "1.nc").read_bytes())
    data[-1] ^= 1
    store.put(f"raw/{names[1]}", bytes(data))
    with pytest.raises(icechunk.IcechunkError):
        values()

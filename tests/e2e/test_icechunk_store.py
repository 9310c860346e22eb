"""Stores in Icechunk: whole or not at all, whatever ends the run; others' repositories and commits are left alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr
from e2e import archives
from services import repositories
from services.s3 import Bucket

import drystone
from drystone.cli.main import main
from drystone.errors import ConfigError, ConsentNeeded, IncompleteRun, VerifyError
from drystone.pipeline import api
from drystone.rechunk.repository_target import RepositoryTarget

STORE = """\
  - store: icechunk
    at: "out:series.ice"
    chunks: {time: 4, lat: 4, lon: 6}
    shards: {time: 8, lat: 4, lon: 6}
"""
INLINE = "execution: {cluster: inline}"


@pytest.fixture
def archive(tmp_path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """Eight files and a config."""
    whole = archives.write_archive(tmp_path)
    archives.write_config(tmp_path, STORE, INLINE)
    return tmp_path, whole


def opened(folder: Path, branch: str = "main") -> xr.Dataset:
    """As a reader without drystone does."""
    store = repositories.opened(folder / "out/series.ice").readonly_session(branch).store
    return xr.open_zarr(store, consolidated=False, mask_and_scale=False, decode_times=False)


def check(folder: Path, whole: dict[str, np.ndarray]) -> None:
    """Bit for bit."""
    ds = opened(folder)
    for name, want in whole.items():
        got = ds[name].values
        assert got.dtype == want.dtype, name
        assert got.tobytes() == want.tobytes(), name


def history(folder: Path) -> list[str]:
    """Messages of main's commits, the newest first."""
    return [s.message for s in repositories.opened(folder / "out/series.ice").ancestry(branch="main")]


def test_every_verb_and_readers_that_are_not_ours(archive, capsys):
    """Values, grids, one commit, no branch left; the release and the record name the snapshot."""
    folder, whole = archive
    config = str(folder / "little.yaml")
    assert main(["check", config]) == 0
    assert "store icechunk at out:series.ice" in capsys.readouterr().out
    for verb in (["scan"], ["run", "--dry-run"], ["plan"], ["run"], ["status"], ["verify"]):
        assert main([verb[0], config, *verb[1:], "--json"]) == 0, verb
        said = json.loads(capsys.readouterr().out)
        if verb == ["run", "--dry-run"]:
            assert not (folder / "out").exists()
        if verb == ["run"]:
            (output,) = said["outputs"]
    check(folder, whole)
    repo = repositories.opened(folder / "out/series.ice")
    assert repo.list_branches() == {"main"}
    assert repo.lookup_branch("main") == output["identity"]
    assert history(folder)[1:] == ["Repository initialized"]
    sst = zarr.open_group(repo.readonly_session("main").store, mode="r")["sst"]
    assert isinstance(sst, zarr.Array)
    assert (sst.chunks, sst.shards) == ((4, 4, 6), (8, 4, 6))


def test_a_second_run_changes_no_byte(archive):
    folder, _ = archive
    drystone.run(folder / "little.yaml")
    before = archives.tree(folder / "out")
    report = drystone.run(folder / "little.yaml")
    assert (report.release, report.outputs[0].fresh) == (None, False)
    assert archives.tree(folder / "out") == before


@pytest.mark.parametrize("shards", ["", "    shards: none\n"], ids=["sharded", "unsharded"])
def test_each_value_is_that_of_the_zarr_form(archive, shards):
    """Chunks, shards and arrays' metadata, byte for byte, decoded values too."""
    folder, _ = archive
    text = STORE.replace("    shards: {time: 8, lat: 4, lon: 6}\n", shards) if shards else STORE
    text += "    values: decoded\n"
    archives.write_config(folder, text + text.replace("store: icechunk", "store: zarr").replace("series.ice", "b.zarr"), INLINE)
    drystone.run(folder / "little.yaml")
    ours = {k: v for k, v in repositories.values(folder / "out/series.ice").items() if k != "zarr.json"}
    assert ours == {k: v for k, v in archives.tree(folder / "out/b.zarr").items() if k != "zarr.json"}


def test_encoded_chunks_are_copied_into_it(archive):
    """mode: repack; into shards of the files' own chunks."""
    folder, whole = archive
    archives.write_config(folder, '  - {store: icechunk, at: "out:series.ice", mode: repack, shards: {time: 12}}\n', INLINE)
    drystone.run(folder / "little.yaml")
    check(folder, whole)
    assert {a.mode for a in api.plan(folder / "little.yaml").outputs[0].arrays if a.path in ("/sst", "/err")} == {"repack"}


def test_what_changes_is_a_new_commit_and_the_old_one_stays(archive):
    """Consent is asked for; readers of the old snapshot and of main while it is made see what was published."""
    folder, whole = archive
    first = drystone.run(folder / "little.yaml").outputs[0].identity
    text = (folder / "little.yaml").read_text()
    (folder / "little.yaml").write_text(text.replace("chunks: {time: 4,", "chunks: {time: 2,"))
    with pytest.raises(ConsentNeeded) as asked:
        drystone.run(folder / "little.yaml")
    assert "invisible" not in asked.value.message
    drystone.run(folder / "little.yaml", accept_changes=True)
    check(folder, whole)
    assert opened(folder)["sst"].encoding["chunks"] == (2, 4, 6)
    assert len(history(folder)) == 3
    old = repositories.opened(folder / "out/series.ice").readonly_session(snapshot_id=first)
    assert zarr.open_group(old.store, mode="r")["sst"].chunks == (4, 4, 6)


def test_a_longer_archive_does_only_what_is_new(archive):
    """Tasks whose granules are the same count, though the array is longer; a shorter one leaves nothing outside."""
    folder, whole = archive
    archives.write_config(folder, '  - {store: icechunk, at: "out:series.ice", chunks: {time: 3}, shards: none}\n', INLINE)
    first = drystone.run(folder / "little.yaml").outputs[0]
    archives.write_day(folder / "raw/day0024.nc", 24, 3)
    done = drystone.run(folder / "little.yaml", accept_changes=True).outputs[0]
    assert (first.tasks, done.tasks, done.tasks_done) == (8, 10, 2)
    assert opened(folder).sizes["time"] == 27
    (folder / "raw/day0024.nc").unlink()
    drystone.run(folder / "little.yaml", accept_changes=True)
    check(folder, whole)
    assert not [k for k in repositories.values(folder / "out/series.ice") if k.startswith("sst/c/8/")]


def test_a_task_that_fails_keeps_the_others(archive, monkeypatch):
    """On the branch of the run, which no reader of main sees; the next run does what is left."""
    folder, whole = archive
    drystone.scan(folder / "little.yaml")
    with (folder / "raw/day0012.nc").open("r+b") as f:
        before = os.stat(f.name)
        damage(Path(f.name))
    os.utime(folder / "raw/day0012.nc", ns=(before.st_mtime_ns, before.st_mtime_ns))
    with pytest.raises(IncompleteRun) as caught:
        drystone.run(folder / "little.yaml")
    failed = int(str(caught.value.facts["failed"]))
    assert history(folder) == ["Repository initialized"]
    status = api.status(folder / "little.yaml").outputs[0]
    assert (status.state, status.done) == ("in work", status.tasks - failed)
    assert len(repositories.committed(folder / "out/series.ice")) == status.done > failed > 0
    damage(folder / "raw/day0012.nc")
    os.utime(folder / "raw/day0012.nc", ns=(before.st_mtime_ns, before.st_mtime_ns))
    assert drystone.run(folder / "little.yaml").outputs[0].tasks_done == failed
    check(folder, whole)
    assert len(history(folder)) == 2


def damage(path: Path) -> None:
    """Invert the first bytes of the chunks of sst, or put them back."""
    import h5py

    with h5py.File(path) as f:
        v = f["sst"].id
        offsets = [v.get_chunk_info(i).byte_offset for i in range(v.get_num_chunks())]
    with path.open("r+b") as f:
        for at in offsets:
            f.seek(at)
            data = f.read(8)
            f.seek(at)
            f.write(bytes(b ^ 0xFF for b in data))


def test_values_that_differ_are_not_published(archive, monkeypatch):
    """Verification looks at the branch; main and its readers keep what there was."""
    folder, _ = archive
    put = RepositoryTarget.finish

    def spoiled(self, state):
        self._session = self._repo.writable_session(self._branch)
        zarr.open_array(self._session.store, path="mask", mode="r+")[0, 0] = 77
        return put(self, state)

    with monkeypatch.context() as patch:
        patch.setattr(RepositoryTarget, "finish", spoiled)
        with pytest.raises(VerifyError, match="/mask"):
            drystone.run(folder / "little.yaml")
    assert history(folder) == ["Repository initialized"]
    drystone.run(folder / "little.yaml")
    assert len(history(folder)) == 2


@pytest.mark.parametrize("where", ["publish", "_prove", "prepare after"])
def test_killed_between_commits(archive, where):
    """SIGKILL before main moves, before the whole is proved, and right after the metadata is committed."""
    folder, whole = archive
    name, after = where.split()[0], where.endswith("after")
    program = (
        "import os, signal, drystone\nfrom drystone.rechunk.repository_target import RepositoryTarget as T\n"
        f"old = T.{name}\n"
        f"def die(*a):\n    {'old(*a)' if after else 'pass'}\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        f"T.{name} = die\ndrystone.run('little.yaml')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, timeout=300)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert history(folder) == ["Repository initialized"]
    report = drystone.run(folder / "little.yaml").outputs[0]
    assert report.tasks_done == (report.tasks if after else 0)
    check(folder, whole)
    assert len(history(folder)) == 2


def test_killed_after_main_moved(archive):
    """Published, though no record says so yet: nothing is done again, and nothing committed."""
    folder, whole = archive
    program = (
        "import os, signal, drystone\nfrom drystone.pipeline import storing\n"
        "storing.write_published = lambda *a: os.kill(os.getpid(), signal.SIGKILL)\ndrystone.run('little.yaml')\n"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, timeout=300).returncode < 0
    check(folder, whole)
    tip = repositories.opened(folder / "out/series.ice").lookup_branch("main")
    report = drystone.run(folder / "little.yaml").outputs[0]
    assert (report.identity, report.tasks_done) == (tip, 0)
    assert repositories.opened(folder / "out/series.ice").list_branches() == {"main"}


def test_others_repositories_are_refused(archive):
    folder, _ = archive
    place = icechunk.local_filesystem_storage(str(folder / "out/series.ice"))
    session = icechunk.Repository.create(place).writable_session("main")
    zarr.create_group(session.store)
    session.commit("mine")
    with pytest.raises(ConfigError, match="no run of this archive wrote"):
        drystone.run(folder / "little.yaml")
    shutil.rmtree(folder / "work")
    drystone.scan(folder / "little.yaml")
    assert history(folder) == ["mine", "Repository initialized"]


def test_what_others_committed_meanwhile_is_kept(archive):
    """A branch that does not begin at the tip of main any more is dropped: their commit is in the new one's history."""
    folder, whole = archive
    drystone.run(folder / "little.yaml")
    text = (folder / "little.yaml").read_text()
    (folder / "little.yaml").write_text(text.replace("chunks: {time: 4,", "chunks: {time: 2,"))
    program = (
        "import os, signal, drystone\nfrom drystone.rechunk.repository_target import RepositoryTarget as T\n"
        "T.publish = lambda self: os.kill(os.getpid(), signal.SIGKILL)\ndrystone.run('little.yaml', accept_changes=True)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, timeout=300).returncode < 0
    session = repositories.opened(folder / "out/series.ice").writable_session("main")
    zarr.open_group(session.store).attrs["note"] = "mine"
    session.commit("mine")
    drystone.run(folder / "little.yaml", accept_changes=True)
    assert history(folder)[1] == "mine"
    check(folder, whole)


def test_workers_on_dask_and_small_messages(archive, monkeypatch):
    """What comes back from a task is its receipt and some tens of bytes a cell."""
    folder, whole = archive
    archives.write_config(folder, STORE, "execution: {cluster: local, workers: 2, threads_per_worker: 1}")
    sizes = []
    take = RepositoryTarget.take

    def noted(self, number, done):
        sizes.append((len(done.changes), len(done.receipt.objects)))
        return take(self, number, done)

    monkeypatch.setattr(RepositoryTarget, "take", noted)
    report = drystone.run(folder / "little.yaml").outputs[0]
    check(folder, whole)
    assert len(sizes) == report.tasks
    assert all(n < 1000 + 600 * cells for n, cells in sizes)


def test_a_repository_on_an_object_store(archive, s3: Bucket):
    """The same values; the run's branch and main move by conditional writes."""
    folder, _ = archive
    text = archives.CONFIG.format(outputs=STORE, more=INLINE)
    place = f'{{url: "{s3.url}/ice{os.getpid()}", endpoint: "{s3.endpoint}", region: us-east-1}}'
    (folder / "little.yaml").write_text(text.replace('{url: "file:./out"}', place))
    drystone.run(folder / "little.yaml")
    assert api.verify(folder / "little.yaml", mode="full").ok
    assert drystone.run(folder / "little.yaml").release is None
    storage = icechunk.s3_storage(
        bucket=s3.name, prefix=f"ice{os.getpid()}/series.ice", region="us-east-1", endpoint_url=s3.endpoint, allow_http=True,
        force_path_style=True, from_env=True,
    )  # fmt: skip
    found = repositories.values(storage)
    archives.write_config(folder, STORE, INLINE)
    shutil.rmtree(folder / "work")
    drystone.run(folder / "little.yaml")
    assert found == repositories.values(folder / "out/series.ice")

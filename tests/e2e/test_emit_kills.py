"""An emitter killed anywhere leaves what was there, or the whole of what it wrote; run again, it ends the same."""

from __future__ import annotations

import hashlib
import random
import shutil
import sys
from pathlib import Path

import h5py
import icechunk
import numpy as np
import pytest
from e2e import syscalls

from drystone.emit.folder import fingerprint

pytestmark = pytest.mark.skipif(not syscalls.supported(), reason="system calls are traced on Linux (x86_64, aarch64) only")

SEED, POINTS = 20, 8
PROGRAM = """
import sys
from pathlib import Path
from services.emit_archive import hand_archive
from drystone import registry
from drystone.storage.local import LocalStore
form, folder, variant = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
archive = hand_archive(folder / "raw", ["0.nc", "1.nc"])
options = {"record_size": variant} if form == "kerchunk-parquet" else {"checksums": ["auto", "never"][variant % 2]}
print(registry.load("emitters", form).emit(archive.view(), LocalStore(folder / "out"), "it", options).identity)
"""


def write(folder: Path) -> None:
    (folder / "raw").mkdir()
    for n in range(2):
        with h5py.File(folder / "raw" / f"{n}.nc", "w") as f:
            time = f.create_dataset("time", data=np.arange(3 * n, 3 * n + 3, dtype="f8"), maxshape=(None,), chunks=(3,))
            time.make_scale("time")
            f.create_dataset("v", data=np.arange(12, dtype="i4").reshape(3, 4), chunks=(1, 4)).dims[0].attach_scale(time)


def run(folder: Path, form: str, variant: int, kill_at: int | None = None) -> syscalls.Trace:
    """One emission, killed at a call below ``out`` or not; ``variant`` decides what is published."""
    argv = [sys.executable, "-c", PROGRAM, form, str(folder), str(variant)]
    tests = str(Path(__file__).parents[1])
    env = {"PYTHONPATH": tests, "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    return syscalls.run(argv, str(folder / "out"), env=env, cwd=str(folder), kill_at=kill_at, log=str(folder / "log"))


def digests(folder: Path) -> str:
    """Of a kerchunk store's files."""
    files = {
        str(p.relative_to(folder)): hashlib.blake2b(p.read_bytes(), digest_size=16).hexdigest()
        for p in folder.rglob("*")
        if p.is_file()
    }
    return fingerprint(files)


def printed(folder: Path) -> str:
    return (folder / "log").read_text().strip().splitlines()[-1]


@pytest.mark.parametrize("fresh", [True, False], ids=["fresh", "replacing"])
def test_kerchunk_parquet(tmp_path: Path, fresh: bool) -> None:
    write(tmp_path)
    (tmp_path / "out").mkdir()
    out = tmp_path / "out" / "it"
    first = run(tmp_path, "kerchunk-parquet", 3)
    old = printed(tmp_path)
    second = run(tmp_path, "kerchunk-parquet", 2)
    new = printed(tmp_path)
    total = len((first if fresh else second).calls) - 5  # the two variants differ by some files
    assert total > 20
    assert old != new
    for at in sorted(random.Random(SEED).sample(range(total), POINTS)):
        if fresh:
            shutil.rmtree(tmp_path / "out")
            (tmp_path / "out").mkdir()
        else:
            run(tmp_path, "kerchunk-parquet", 3)
        assert run(tmp_path, "kerchunk-parquet", 2, kill_at=at).killed
        if out.exists():
            assert digests(out) in ({new} if fresh else {old, new}), f"killed at call {at} of {total}"
        else:
            assert fresh, f"killed at call {at} of {total}, what was there is gone"
        run(tmp_path, "kerchunk-parquet", 2)
        assert printed(tmp_path) == new == digests(out)
        assert [p.name for p in (tmp_path / "out").iterdir()] == ["it"]


def test_icechunk(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "out").mkdir()
    run(tmp_path, "icechunk", 1)
    total = len(run(tmp_path, "icechunk", 0).calls)
    assert total > 20
    commits = 2
    for i, at in enumerate(sorted(random.Random(SEED).sample(range(total), POINTS)), start=1):
        # each time something else is published, so that each must commit
        assert run(tmp_path, "icechunk", i, kill_at=at).killed
        run(tmp_path, "icechunk", i)
        commits += 1
        last = printed(tmp_path)
        repo = icechunk.Repository.open(icechunk.local_filesystem_storage(str(tmp_path / "out" / "it")))
        history = [s.id for s in repo.ancestry(branch="main")]
        assert history[0] == last, f"killed at call {at} of {total}"
        assert len(history) == commits + 1, f"killed at call {at} of {total}: committed twice or not at all"

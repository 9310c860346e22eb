"""What the tests of faults share: commands and how they end, file systems that fail, what a reader sees meanwhile."""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import fsspec
import h5py
import icechunk
import numpy as np
import xarray as xr
import zarr
from e2e import archives

from drystone.cli import main as program

INLINE = "execution: {cluster: inline}"


FORMS = {"icechunk": archives.ICECHUNK, "kerchunk": archives.KERCHUNK, "store": archives.STORE}


AT = {"icechunk": "out/little.icechunk", "kerchunk": "out/little.parq", "store": "out/series.zarr"}


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


def cli(folder: Path, *words: str) -> Ended:
    """A command in this process, which is quick; never a traceback, never a bug."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = program.main([*words, "--quiet"] if "--json" not in words else list(words))
    assert "Traceback" not in err.getvalue()
    assert "bug in drystone" not in err.getvalue()
    return Ended(code, out.getvalue(), err.getvalue())


def start(folder: Path, *words: str, preexec_fn: Callable[[], None] | None = None) -> subprocess.Popen[str]:
    """A command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "drystone.cli.main", *words, "--quiet"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=preexec_fn,  # noqa: PLW1509 - set before any test starts a thread that lasts
    )


def wait_for(what: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Until a thing is so; fails where the process ended first."""
    deadline = time.monotonic() + 60
    while not what():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)


def make(
    folder: Path,
    outputs: str = "".join(FORMS.values()),
    more: str = INLINE,
    days: tuple[int, ...] = (3, 3),
    verify: str = "none",
) -> Path:
    """An archive, with fixed times so that two are alike; unverified by default, since bytes are compared here."""
    folder.mkdir(parents=True, exist_ok=True)
    archives.write_archive(folder, days)
    config = archives.write_config(folder, outputs, more)
    config.write_text(config.read_text().replace("values: full", f"values: {verify}"))
    for i, path in enumerate(sorted((folder / "raw").iterdir())):
        os.utime(path, ns=(10**18 + i, 10**18 + i))
    return folder


def values(folder: Path) -> dict[str, bytes]:
    """Everything that is published but the Icechunk repository, whose ids are drawn, which is read instead."""
    found = {k: v for k, v in archives.tree(folder / "out").items() if not k.startswith("little.icechunk")}
    if (folder / AT["icechunk"]).exists():
        with opened_icechunk(folder) as ds:
            found |= {f"icechunk/{name}": ds[name].values.tobytes() for name in ds.variables}
    return found


@contextlib.contextmanager
def opened_icechunk(folder: Path) -> Iterator[xr.Dataset]:
    storage = icechunk.local_filesystem_storage(str(folder / AT["icechunk"]))
    known = icechunk.Repository.open(storage).config.virtual_chunk_containers or {}
    access = {c.url_prefix: icechunk.credentials.LocalFileSystemAccess for c in known.values()}
    repo = icechunk.Repository.open(storage, authorize_virtual_chunk_access=access)
    store = repo.readonly_session("main").store
    with xr.open_zarr(store, consolidated=False, mask_and_scale=False, decode_times=False) as ds:
        yield ds


def visible(folder: Path) -> set[str]:
    """The forms that a reader finds."""
    found = set()
    if (folder / AT["store"] / "zarr.json").exists():
        found.add("store")
    if (folder / AT["kerchunk"] / ".zmetadata").exists():
        found.add("kerchunk")
    if (folder / AT["icechunk"] / "repo").exists():
        with contextlib.suppress(FileNotFoundError, zarr.errors.GroupNotFoundError), opened_icechunk(folder) as ds:
            if len(ds.variables):
                found.add("icechunk")
    return found


def states(folder: Path) -> list[str]:
    """What ``status`` says of each output."""
    return [o["state"] for o in json.loads(cli(folder, "status", "little.yaml", "--json").out)["outputs"]]


def mountable() -> str:
    """Why no file system can be mounted here; "" where one can."""
    if os.geteuid() != 0:
        return "only root can mount file systems"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "drystone", folder], capture_output=True, text=True)
        if done.returncode == 0:
            subprocess.run(["umount", "-l", folder], check=True)
        return done.stderr.strip()


@contextlib.contextmanager
def disk(folder: Path, options: str) -> Iterator[Callable[[str], None]]:
    """A file system of its own at a folder; gives a function that changes its options."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "drystone", str(folder)], check=True)

    def remount(other: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{other}", str(folder)], check=True)

    try:
        yield remount
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """A folder whose file system refuses writes."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def without_override() -> None:
    """In a child: root no longer passes by permissions (the interpreter's own files may be closed to any other user)."""
    if os.geteuid() == 0:
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            ctypes.CDLL(None, use_errno=True).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP, which exec obeys


def check_err(folder: Path, *forms: str) -> None:
    """The values of published forms are the files' own."""
    parts = []
    for path in sorted((folder / "raw").iterdir()):
        with h5py.File(path, "r") as f:
            parts.append((f["time"][0], f["err"][...]))
    want = np.concatenate([values for _, values in sorted(parts, key=lambda p: p[0])]).tobytes()
    for form in forms:
        if form == "icechunk":
            with opened_icechunk(folder) as ds:
                got = ds["err"].values
        elif form == "store":
            got = zarr.open_array(folder / AT[form] / "err", mode="r")[...]
        else:
            fs = fsspec.filesystem("reference", fo=str(folder / AT[form]), remote_protocol="file", lazy=True, asynchronous=True)
            got = zarr.open_array(zarr.storage.FsspecStore(fs, read_only=True, path=""), path="err", mode="r", zarr_format=2)[
                ...
            ]
        assert np.asarray(got).tobytes() == want, form


class Meddler:
    """A progress that does harm at a stage."""

    def __init__(self, stage: str, harm: Callable[[], None], at: str = "start") -> None:
        self.stage, self.harm, self.at, self.done = stage, harm, at, False

    def _maybe(self, stage: str, at: str) -> None:
        if not self.done and stage.startswith(self.stage) and at == self.at:
            self.done = True
            self.harm()

    def start(self, stage: str, total: int | None, unit: str) -> None:
        self._maybe(stage, "start")

    def advance(self, stage: str, n: int = 1) -> None:
        if n:
            self._maybe(stage, "advance")

    def finish(self, stage: str) -> None:
        self._maybe(stage, "finish")

    def note(self, message: str) -> None:
        pass


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    found = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        found[str(path)] = (status.st_ino, status.st_mtime_ns, path.read_bytes() if path.is_file() else b"")
    return found


def measured(folder: Path, *words: str) -> tuple[int, str, str, int]:
    """Exit code, output, errors and peak memory in bytes of a command."""
    report = "import resource,sys;r=resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss;open('peak','w').write(str(r))"
    code = f"import subprocess,sys;p=subprocess.run(sys.argv[1:]);{report};sys.exit(p.returncode)"
    command = [sys.executable, "-c", code, sys.executable, "-m", "drystone.cli.main", *words, "--quiet"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr, int((folder / "peak").read_text()) * 1024

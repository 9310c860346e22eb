"""A form is proved where it is staged; what is not proved never becomes visible."""

from __future__ import annotations

from pathlib import Path

import h5py
import icechunk
import numpy as np
import pytest
import zarr
from services.emit_archive import HandArchive, hand_archive

from drystone.emit import icechunk_staging
from drystone.emit.icechunk import IcechunkEmitter
from drystone.emit.kerchunk_parquet import KerchunkParquetEmitter
from drystone.errors import VerifyError
from drystone.storage.local import LocalStore


def archive(folder: Path, first: int) -> HandArchive:
    """One granule whose values tell archives apart."""
    folder.mkdir(exist_ok=True)
    with h5py.File(folder / f"{first}.h5", "w") as f:
        f.create_dataset("v", data=np.arange(first, first + 20, dtype="i4").reshape(4, 5), chunks=(2, 5), compression=1)
    return hand_archive(folder, [f"{first}.h5"])


def refuse(location: str, version: str | None) -> None:
    """A verifier that found something."""
    assert Path(location.removeprefix("file://")).exists()
    raise VerifyError("values differ")


def tip(path: Path) -> list[str]:
    """Messages of main's history and names of branches."""
    repo = icechunk.Repository.open(icechunk.local_filesystem_storage(str(path)))
    return [s.message for s in repo.ancestry(branch="main")]


def test_icechunk_main_does_not_move_to_what_is_not_proved(tmp_path: Path) -> None:
    """First publish and replacement alike; a later good run lands with one commit."""
    target, emitter = LocalStore(tmp_path), IcechunkEmitter()
    with pytest.raises(VerifyError):
        emitter.emit(archive(tmp_path / "raw", 0).view(), target, "ice", {"proof": refuse})
    assert tip(tmp_path / "ice") == ["Repository initialized"]
    seen: list[tuple[str, str | None]] = []
    identity = emitter.emit(archive(tmp_path / "raw", 0).view(), target, "ice", {"proof": lambda *at: seen.append(at)})
    assert [version for _, version in seen] == [identity.identity]
    before = tip(tmp_path / "ice")
    with pytest.raises(VerifyError):
        emitter.emit(archive(tmp_path / "raw", 100).view(), target, "ice", {"proof": refuse})
    assert tip(tmp_path / "ice") == before
    assert len(before) == 2


def test_kerchunk_target_is_not_touched_by_what_is_not_proved(tmp_path: Path) -> None:
    """Neither made nor replaced, and nothing is left beside it."""
    target, emitter = LocalStore(tmp_path / "out"), KerchunkParquetEmitter()
    with pytest.raises(VerifyError):
        emitter.emit(archive(tmp_path / "raw", 0).view(), target, "refs", {"proof": refuse})
    assert not list((tmp_path / "out").iterdir())
    emitter.emit(archive(tmp_path / "raw", 0).view(), target, "refs", {"proof": lambda *at: None})
    before = {p: p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()}
    with pytest.raises(VerifyError):
        emitter.emit(archive(tmp_path / "raw", 100).view(), target, "refs", {"proof": refuse})
    assert {p: p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()} == before


def stored(path: Path) -> dict[str, object]:
    """Values of every array of main, read through the references."""
    place = icechunk.local_filesystem_storage(str(path))
    containers = icechunk.Repository.open(place).config.virtual_chunk_containers or {}
    access = dict.fromkeys([c.url_prefix for c in containers.values()], icechunk.credentials.LocalFileSystemAccess)
    repo = icechunk.Repository.open(place, authorize_virtual_chunk_access=access)
    group = zarr.open_group(repo.readonly_session("main").store, mode="r")
    return {name: node[...].tolist() for name, node in group.members(None) if isinstance(node, zarr.Array)}


def several(folder: Path) -> HandArchive:
    """Some granules of two arrays each, so that parts end within an array and between two."""
    folder.mkdir(exist_ok=True)
    for n in range(5):
        with h5py.File(folder / f"{n}.h5", "w") as f:
            t = f.create_dataset("time", data=np.arange(4.0) + 4 * n, maxshape=(None,), chunks=(4,))
            t.make_scale("time")
            for name in ("v", "w"):
                values = np.arange(20, dtype="i4").reshape(4, 5) + 100 * n + ord(name)
                f.create_dataset(name, data=values, chunks=(2, 5), compression=1).dims[0].attach_scale(t)
    return hand_archive(folder, [f"{n}.h5" for n in range(5)])


@pytest.mark.parametrize("part", [1, 3, 10, 25])
def test_icechunk_in_parts_holds_what_one_commit_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    """Main moves once, past parts that say what they are; the fence is asked before each; a rerun commits nothing."""
    source = several(tmp_path / "raw")
    IcechunkEmitter().emit(source.view(), LocalStore(tmp_path), "whole", {})
    monkeypatch.setattr(icechunk_staging, "PART_REFERENCES", part)
    asked: list[list[str]] = []
    place = tmp_path / "parts"
    target = LocalStore(tmp_path)
    emitted = IcechunkEmitter().emit(
        source.view(), target, "parts", {"fence": lambda: asked.append(tip(place)), "message": "m"}
    )
    assert stored(place) == stored(tmp_path / "whole")
    last, *parts, birth = tip(place)
    assert (last, birth) == ("m", "Repository initialized")
    assert parts == [f"m: part {i}, not the whole yet" for i in range(len(parts), 0, -1)]
    assert len(parts) == {1: 2, 3: 2, 10: 2, 25: 0}[part]
    # before each commit, and before main moves
    assert asked == [["Repository initialized"]] * (len(parts) + 2)
    assert IcechunkEmitter().emit(source.view(), target, "parts", {}) == emitted
    assert tip(place) == [last, *parts, birth]


def test_icechunk_parts_of_a_publish_that_fails_are_not_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in main nor in the history of the publish that follows."""
    source = several(tmp_path / "raw")
    monkeypatch.setattr(icechunk_staging, "PART_REFERENCES", 3)
    with pytest.raises(VerifyError):
        IcechunkEmitter().emit(source.view(), LocalStore(tmp_path), "ice", {"proof": refuse})
    assert tip(tmp_path / "ice") == ["Repository initialized"]
    monkeypatch.undo()
    IcechunkEmitter().emit(source.view(), LocalStore(tmp_path), "ice", {"message": "m"})
    assert tip(tmp_path / "ice") == ["m", "Repository initialized"]

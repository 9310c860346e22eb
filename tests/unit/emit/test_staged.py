"""A form is proved where it is staged; what is not proved never becomes visible."""

from __future__ import annotations

from pathlib import Path

import h5py
import icechunk
import numpy as np
import pytest
from services.emit_archive import HandArchive, hand_archive

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

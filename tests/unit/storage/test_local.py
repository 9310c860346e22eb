"""Objects of many parts in a folder: written whole, whatever their sizes and whatever the system takes at a time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from drystone.errors import StorageError
from drystone.storage.local import LocalStore


@pytest.mark.parametrize("sizes", [[], [0, 0], [1] * 3000, [5, 0, 3 << 20, 1, 0, 7], [(1 << 20) - 1, 1, 1]])
def test_parts_of_any_size_are_laid_one_after_the_other(tmp_path: Path, sizes: list[int]) -> None:
    parts = [os.urandom(n) for n in sizes]
    store = LocalStore(tmp_path)
    store.put("whole", iter(parts))
    store.put("views", [memoryview(p) for p in parts])
    assert store.get("whole") == store.get("views") == b"".join(parts)


def test_writes_that_the_system_cuts_short_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = os.writev
    calls = []

    def short(fd: int, views: list[memoryview]) -> int:
        calls.append(len(views))
        return taken(fd, [views[0][:3]])

    monkeypatch.setattr(os, "writev", short)
    parts = [b"1234567", b"", b"89", b"abc"]
    LocalStore(tmp_path).put("a", parts)
    assert (tmp_path / "a").read_bytes() == b"".join(parts)
    assert calls == [3, 3, 3, 2, 1]


def test_parts_are_not_all_held(tmp_path: Path) -> None:
    most = 0
    alive: list[int] = []

    class Part(bytes):
        def __del__(self) -> None:
            alive.pop()

    def parts() -> object:
        nonlocal most
        for _ in range(100):
            alive.append(1)
            most = max(most, len(alive))
            yield Part(1 << 18)

    LocalStore(tmp_path).put("a", parts())  # type: ignore[arg-type]
    assert (tmp_path / "a").stat().st_size == 100 << 18
    assert most < 12


def test_a_file_where_a_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for key in ("file/a", "file/deep/a"):
        with pytest.raises(StorageError, match=f"cannot write .*/{key}"):
            LocalStore(tmp_path).put(key, b"1")

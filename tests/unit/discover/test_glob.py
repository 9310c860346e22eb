"""Globs over a folder: what matches, in which order, and what is said where nothing does."""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drystone.discover.glob import GlobLister, pattern_regex
from drystone.errors import ConfigError, StorageError
from drystone.storage.address import Places
from drystone.storage.store import Place

TREE = [
    "1981/a.nc",
    "1981/b.nc",
    "1981/b.txt",
    "1982/a.nc",
    "1982/deep/er/c.nc",
    "a.nc",
    "[x].nc",
    "1981-x/a.nc",
    ".hidden/a.nc",
]


@pytest.fixture
def places(tmp_path: Path) -> Places:
    for name in TREE:
        path = tmp_path / "raw" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return Places.of([Place("raw", str(tmp_path / "raw"))])


def listed(places: Places, pattern: str) -> list[str]:
    return [g.address.removeprefix("raw:") for g in GlobLister().list(places, f"raw:{pattern}")]


@pytest.mark.parametrize(
    ("pattern", "keys"),
    [
        ("*.nc", ["[x].nc", "a.nc"]),
        ("1981/*", ["1981/a.nc", "1981/b.nc", "1981/b.txt"]),
        ("*/a.nc", [".hidden/a.nc", "1981-x/a.nc", "1981/a.nc", "1982/a.nc"]),
        ("19*/?.nc", ["1981-x/a.nc", "1981/a.nc", "1981/b.nc", "1982/a.nc"]),
        ("198[13]/[!b].nc", ["1981/a.nc"]),
        ("1982/**/*.nc", ["1982/a.nc", "1982/deep/er/c.nc"]),
        ("**/c.nc", ["1982/deep/er/c.nc"]),
        ("1982/**", ["1982/a.nc", "1982/deep/er/c.nc"]),
        ("[[]x].nc", ["[x].nc"]),
        ("a.nc", ["a.nc"]),
        ("1981/a.nc", ["1981/a.nc"]),
    ],
)
def test_what_matches_in_key_order(places: Places, pattern: str, keys: list[str]) -> None:
    assert listed(places, pattern) == keys


def test_stamps_are_the_files(places: Places, tmp_path: Path) -> None:
    (granule,) = GlobLister().list(places, "raw:1982/a.nc")
    status = (tmp_path / "raw" / "1982" / "a.nc").stat()
    assert (granule.stamp.size, granule.stamp.mtime_ns) == (status.st_size, status.st_mtime_ns)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("1981/*.grib", ["raw:1981/*.grib", "/raw/1981 holds 3 files: 1981/a.nc"]),
        ("1999/*.nc", ["raw:1999/*.nc", "/raw/1999 holds nothing, or is not there; ", f"/raw holds {len(TREE)} files"]),
        ("1999/a.nc", ["raw:1999/a.nc", f"/raw holds {len(TREE)} files"]),
    ],
)
def test_nothing_found_says_what_was_there(places: Places, pattern: str, said: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        listed(places, pattern)
    assert caught.value.kind == "no-granules"
    assert all(text in str(caught.value) for text in said), str(caught.value)


def test_an_absent_root_is_said_to_be(tmp_path: Path) -> None:
    places = Places.of([Place("raw", str(tmp_path / "nowhere"))])
    with pytest.raises(ConfigError, match="nowhere holds nothing, or is not there"):
        listed(places, "*.nc")


def test_an_unknown_place_is_named(places: Places) -> None:
    with pytest.raises(ConfigError, match=r"'row'.*known: raw"):
        list(GlobLister().list(places, "row:*.nc"))


@pytest.mark.parametrize("pattern", ["a[bc.nc", "x**y/*.nc", "[z-a].nc"])
def test_malformed_patterns_are_refused(places: Places, pattern: str) -> None:
    with pytest.raises(ConfigError) as caught:
        listed(places, pattern)
    assert caught.value.kind == "pattern"
    assert pattern in str(caught.value)


def test_links_are_followed_but_not_in_circles(places: Places, tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    (raw / "1982" / "up").symlink_to(raw)
    (raw / "1982" / "self").symlink_to("self")
    (raw / "1982" / "gone.nc").symlink_to("nothing.nc")
    other = tmp_path / "other"
    other.mkdir()
    (other / "z.nc").write_bytes(b"z")
    (raw / "linked").symlink_to(other)
    assert listed(places, "1982/**/*.nc") == ["1982/a.nc", "1982/deep/er/c.nc"]
    assert listed(places, "linked/*.nc") == ["linked/z.nc"]
    assert "linked/z.nc" in listed(places, "**/*.nc")


def test_temporary_files_are_no_granules(places: Places, tmp_path: Path) -> None:
    (tmp_path / "raw" / "1982" / "x.drystone-tmp").write_bytes(b"half")
    assert listed(places, "1982/*") == ["1982/a.nc"]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable to root")
def test_an_unreadable_folder_is_an_error(places: Places, tmp_path: Path) -> None:
    folder = tmp_path / "raw" / "1982" / "deep"
    folder.chmod(0)
    try:
        with pytest.raises(StorageError) as caught:
            listed(places, "1982/**/*.nc")
    finally:
        folder.chmod(0o755)
    assert caught.value.kind == "no-permission"
    assert "deep" in str(caught.value)


def test_an_unreadable_folder_is_an_error_also_for_root(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.scandir

    def deny(path: str) -> object:
        if str(path).endswith("deep"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", deny)
    with pytest.raises(StorageError, match=r"deep.*would be missed") as caught:
        listed(places, "1982/**/*.nc")
    assert caught.value.kind == "no-permission"


def test_folders_beyond_the_pattern_are_not_looked_into(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    real = os.scandir

    def note(path: str) -> object:
        seen.append(str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", note)
    listed(places, "1982/*.nc")
    assert [Path(p).name for p in seen] == ["1982"]


NAMES = st.text(alphabet="ab.[]!-^\\&~|1é", min_size=1, max_size=5)
PATTERNS = st.text(alphabet="ab*?[]!-1.", min_size=1, max_size=6)


@given(NAMES, PATTERNS)
def test_one_part_agrees_with_fnmatch(name: str, pattern: str) -> None:
    """The standard library's fnmatch is the oracle, but for brackets that nothing closes, which are refused here."""
    if "**" in pattern:
        return
    try:
        mine = pattern_regex(pattern).fullmatch(name) is not None
    except ConfigError:
        return
    if "^" in pattern or any(a > b for a, b in zip(pattern, pattern[2:], strict=False)):
        return
    assert mine == fnmatch.fnmatchcase(name, pattern)

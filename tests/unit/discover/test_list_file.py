"""Granules named by a list: order, comments, and every bad line told with its number."""

from __future__ import annotations

from pathlib import Path

import pytest

from drystone.discover.list_file import ListFileLister
from drystone.errors import ConfigError, StorageError
from drystone.storage.address import Places
from drystone.storage.store import Place


@pytest.fixture
def places(tmp_path: Path) -> Places:
    for name in ("raw/days/b.nc", "raw/days/a.nc", "raw/top.nc", "raw/days/with space.nc", "raw/days/x#1.nc", "other/z.nc"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return Places.of([Place("raw", str(tmp_path / "raw")), Place("other", str(tmp_path / "other"))])


def listed(places: Places, tmp_path: Path, text: str | bytes) -> list[str]:
    data = text if isinstance(text, bytes) else text.encode()
    (tmp_path / "raw" / "days" / "list.txt").write_bytes(data)
    return [g.address for g in ListFileLister().list(places, "raw:days/list.txt")]


def test_order_comments_and_every_way_to_name(places: Places, tmp_path: Path) -> None:
    text = "# days\n\nb.nc\n  ./a.nc   # second\r\nraw:top.nc\nother:z.nc\nwith space.nc\nx#1.nc\n"
    assert listed(places, tmp_path, text) == [
        "raw:days/b.nc",
        "raw:days/a.nc",
        "raw:top.nc",
        "other:z.nc",
        "raw:days/with space.nc",
        "raw:days/x#1.nc",
    ]


def test_a_path_may_climb_within_its_place(places: Places, tmp_path: Path) -> None:
    assert listed(places, tmp_path, "../top.nc\n") == ["raw:top.nc"]


def test_all_bad_lines_at_once(places: Places, tmp_path: Path) -> None:
    text = "a.nc\nmissing.nc\n./a.nc\n/abs/x.nc\nnope:x.nc\n../../x.nc\ns3://b/x.nc\nb.nc\n"
    with pytest.raises(ConfigError) as caught:
        listed(places, tmp_path, text)
    assert caught.value.kind == "granule-list"
    assert caught.value.facts["lines"] == 6
    message = str(caught.value)
    for line in (
        "list.txt:2: file://",
        "missing.nc is not there",
        "list.txt:3: raw:days/a.nc was named in line 1 already",
        "list.txt:4: /abs/x.nc is a URL or an absolute path",
        "list.txt:5: nope:x.nc: there is no place 'nope'",
        "list.txt:6: ../../x.nc climbs out of the place raw",
        "list.txt:7: s3://b/x.nc is a URL",
    ):
        assert line in message, message


@pytest.mark.parametrize("text", ["", "# nothing\n\n"])
def test_an_empty_list_is_an_error(places: Places, tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"list\.txt names no granule") as caught:
        listed(places, tmp_path, text)
    assert caught.value.kind == "no-granules"


def test_a_missing_list_is_an_error(places: Places) -> None:
    with pytest.raises(StorageError) as caught:
        list(ListFileLister().list(places, "raw:no.txt"))
    assert caught.value.kind == "not-found"


def test_a_binary_file_is_no_list(places: Places, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="line 2 is not UTF-8"):
        listed(places, tmp_path, b"a.nc\n\x89HDF\r\n")


def test_many_bad_lines_are_cut_short(places: Places, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="and 80 more"):
        listed(places, tmp_path, "".join(f"missing-{i}.nc\n" for i in range(100)))

"""The view: placed rows, public addresses, and granules looked at again."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from services.emit_archive import HandArchive, hand_archive

from drystone.emit.view import TableView
from drystone.errors import ConfigError, GranuleChanged, GranuleMissing, TableError, UnsupportedError
from drystone.model.chunk_rows import ChunkRows
from drystone.model.placement import Combined, Placements
from drystone.storage.address import Places
from drystone.storage.store import Place


def write(path: Path, start: int, steps: int = 2, chunk: int = 1, *, level_first: bool = False) -> None:
    """``start`` is the first time step; values are unique over all files."""
    with h5py.File(path, "w") as f:
        time = f.create_dataset("time", data=np.arange(start, start + steps, dtype="f8"), maxshape=(None,), chunks=(chunk,))
        time.make_scale("time")
        shape = (3, steps, 4) if level_first else (steps, 3, 4)
        values = np.arange(np.prod(shape), dtype="i4").reshape(shape) + 1000 * start
        at = int(level_first)
        chunks = [3, 4]
        chunks.insert(at, chunk)
        d = f.create_dataset("v", data=values, chunks=(1, *chunks[1:]) if level_first else tuple(chunks))
        d.dims[at].attach_scale(time)


@pytest.fixture
def archive(tmp_path: Path) -> HandArchive:
    """Three files whose ids are not in the order of time."""
    for name, start in (("c.nc", 4), ("a.nc", 0), ("b.nc", 2)):
        write(tmp_path / name, start)
    return hand_archive(tmp_path, ["c.nc", "a.nc", "b.nc"], batch=4)


def placed(view: TableView, path: str) -> list[tuple[int, tuple[int, ...], int]]:
    """Granule, chunk, offset of every row, in the order given."""
    return [
        (g, tuple(c), o)
        for batch in view.references(path)
        for g, c, o in zip(batch.granule_id.tolist(), batch.coords.T.tolist(), batch.offset.tolist(), strict=True)
    ]


def test_rows_come_in_order_of_placement_in_the_wholes_coordinates(archive: HandArchive) -> None:
    rows = placed(archive.view(), "/v")
    assert [(g, c[0]) for g, c, _ in rows] == [(1, 0), (1, 1), (2, 2), (2, 3), (0, 4), (0, 5)]
    for granule_id, coords, offset in rows:
        store, key = archive.places.resolve(archive.rows.granule(granule_id).address)
        expected = archive.values("/v")[coords[0]]
        assert store.get_range(key, offset, expected.nbytes) == expected.tobytes()


def test_the_joined_axis_may_be_any(tmp_path: Path) -> None:
    for i in range(2):
        write(tmp_path / f"{i}.nc", 4 * i, steps=4, chunk=2, level_first=True)
    archive = hand_archive(tmp_path, ["0.nc", "1.nc"], batch=3)
    coords = sorted(c for _, c, _ in placed(archive.view(), "/v"))
    assert coords == [(z, t, 0) for z in range(3) for t in range(4)]


def test_a_slab_of_a_granule_takes_only_its_chunks(archive: HandArchive) -> None:
    """The middle file gives its second step only; nothing else of it is referenced."""
    array = archive.combined.array("/v")
    p = array.placements
    columns = [np.array(c) for c in (p.src_offset, p.count, p.dest)]
    columns[0][1], columns[1][1], columns[2][2] = 1, 1, 3
    placements = Placements(0, p.granule_id, *columns, p.variant)
    cut = replace(array, shape=(5, 3, 4), placements=placements, grid=type(array.grid).regular((5, 3, 4), (1, 3, 4)))
    view = replace(archive.view(), combined=Combined((), (cut,), "time"))
    assert [(g, c[0]) for g, c, _ in placed(view, "/v")] == [(1, 0), (1, 1), (2, 2), (0, 3), (0, 4)]


def test_a_slab_off_the_chunk_edges_is_refused_with_its_numbers(archive: HandArchive) -> None:
    array = archive.combined.array("/v")
    grid = type(array.grid).regular(array.shape, (2, 3, 4))
    variants = tuple(replace(v, chunk_shape=(2, 3, 4)) for v in array.variants)
    p = array.placements
    moved = Placements(0, p.granule_id, p.src_offset, p.count, p.dest + np.array([0, 0, 1]), p.variant)
    odd = replace(array, grid=grid, variants=variants, shape=(7, 3, 4), placements=moved)
    odd = replace(odd, grid=type(array.grid).regular((7, 3, 4), (2, 3, 4)))
    view = replace(archive.view(), combined=Combined((), (odd,), "time"))
    with pytest.raises(UnsupportedError, match=r"granule 0 gives elements 0 to 2 of its 2 along time, to land at 5") as caught:
        list(view.references("/v"))
    assert caught.value.kind == "unaligned"


@pytest.mark.parametrize("what", ["codecs", "chunk_shape", "fill", "dtype"])
def test_a_granule_stored_otherwise_is_refused(archive: HandArchive, what: str) -> None:
    array = archive.combined.array("/v")
    change: dict[str, object] = {
        "codecs": type(array.codecs).of("bytes", "fletcher32"),
        "chunk_shape": (1, 3, 2),
        "fill": b"\1\0\0\0",
        "dtype": np.dtype(">i4"),
    }
    odd = replace(array.variants[0], **{what: change[what]})  # type: ignore[arg-type]
    p = array.placements
    variant = p.variant.copy()
    variant[1] = 1
    mixed = replace(
        array, variants=(array.variants[0], odd), placements=Placements(0, p.granule_id, p.src_offset, p.count, p.dest, variant)
    )
    view = replace(archive.view(), combined=Combined((), (mixed,), "time"))
    with pytest.raises(UnsupportedError):
        list(view.references("/v"))


def test_lacking_rows_are_an_error_where_the_format_leaves_none_out(archive: HandArchive) -> None:
    array = archive.combined.array("/v")
    dense = replace(array, variants=tuple(replace(v, sparse=False) for v in array.variants))
    view = replace(archive.view(), combined=Combined((), (dense,), "time"))
    list(view.references("/v"))
    scan = archive.rows.scans[2]
    cut = tuple(
        replace(a, rows=ChunkRows(a.rows.coords[:, :1], a.rows.offset[:1], a.rows.length[:1], a.rows.state[:1]))
        if a.spec.path == "/v"
        else a
        for a in scan.arrays
    )
    archive.rows.scans[2] = replace(scan, arrays=cut)
    with pytest.raises(TableError, match="1 chunks of granule 2 and 2 are due"):
        list(view.references("/v"))
    # where chunks may be unwritten, the same rows are fine
    assert len(placed(archive.view(), "/v")) == 5


def test_a_row_twice_is_an_error(archive: HandArchive) -> None:
    scan = archive.rows.scans[2]

    def twice(r: ChunkRows) -> ChunkRows:
        return ChunkRows(*(np.repeat(c, 2, axis=-1) for c in (r.coords, r.offset, r.length, r.state)))

    doubled = tuple(replace(a, rows=twice(a.rows)) for a in scan.arrays)
    archive.rows.scans[2] = replace(scan, arrays=doubled)
    with pytest.raises(TableError, match="4 chunks of granule 2 and 2 are due"):
        list(archive.view().references("/v"))


def test_a_row_outside_the_grid_is_an_error(archive: HandArchive) -> None:
    scan = archive.rows.scans[2]
    shifted = tuple(
        replace(a, rows=replace(a.rows, coords=a.rows.coords + np.array([[0], [1], [0]], np.int32)))
        if a.spec.path == "/v"
        else a
        for a in scan.arrays
    )
    archive.rows.scans[2] = replace(scan, arrays=shifted)
    with pytest.raises(TableError, match="outside the array's grid"):
        list(archive.view().references("/v"))


def test_the_longest_remap_rule_wins_and_whole_names_only(tmp_path: Path) -> None:
    (tmp_path / "1981").mkdir()
    (tmp_path / "1981x").mkdir()
    names = ["1981/a.nc", "1981x/a.nc", "a.nc"]
    for i, name in enumerate(names):
        write(tmp_path / name, 2 * i)
    archive = hand_archive(tmp_path, names)
    view = archive.view(public=(("raw:", "s3://b/all"), ("raw:1981", "https://x.org/a%20b/")))
    assert [view.public_url(i) for i in range(3)] == [
        "https://x.org/a b/a.nc", "s3://b/all/1981x/a.nc", "s3://b/all/a.nc",
    ]  # fmt: skip
    assert [(r.name, r.remapped) for r in view.public_roots()] == [("raw-public", True), ("raw-public-2", True), ("raw", False)]


def test_a_rule_into_a_known_place_takes_its_options() -> None:
    places = Places.of([Place("raw", "file:///data"), Place("pub", "s3://b/x", {"region": "eu-1"})])
    view = TableView(Combined((), (), None), None, places, None, public=(("raw:", "s3://b/x/y"),))  # type: ignore[arg-type]
    assert view.public_roots()[0].options == {"region": "eu-1"}


def test_a_rule_for_no_address_is_refused() -> None:
    with pytest.raises(ConfigError):
        TableView(Combined((), (), None), None, Places.of([]), None, public=(("https://x", "s3://b"),))  # type: ignore[arg-type]


def test_recheck_names_what_changed_and_what_is_gone(archive: HandArchive, tmp_path: Path) -> None:
    view = archive.view()
    view.recheck()
    os.utime(tmp_path / "b.nc", ns=(1, 1))
    with pytest.raises(GranuleChanged, match=r"b\.nc changed since it was scanned: modified time"):
        view.recheck()
    (tmp_path / "b.nc").unlink()
    with pytest.raises(GranuleMissing, match=r"b\.nc is gone"):
        view.recheck()

"""What is said of readers, and that it is so."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import zarr
from services.emit_whole import archive_of, array_of, emit_icechunk, placements, with_arrays, write

from drystone.emit.readers import form_readers, layout_notes
from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import RectilinearDimension, RegularDimension
from drystone.model.placement import Combined
from drystone.plan.coverage import with_coverage


def combined(folder: Path, *, crop: bool) -> tuple[Combined, Path]:
    return _whole(folder, crop=crop).combined, folder


def _whole(folder: Path, *, crop: bool):
    for i, n in enumerate((4, 3)):
        chunk = 4 if crop else n
        write(folder / f"{i}.nc", np.arange(1, n + 1, dtype="i2"), chunks=(chunk,), maxshape=(None,), compression=1)
        write(folder / f"{i}.nc", np.arange(n, dtype="i2"), name="w", chunks=(1,), compression=1)
    archive = archive_of(folder, ["0.nc", "1.nc"])
    rows = [(1, 0, 3, 0), (0, 0, 4, 3)]
    grid = ChunkGrid((RectilinearDimension((3, 4), (4, 4) if crop else None),))
    array = array_of(archive, placements(0, rows, variant=[1, 0]), (7,), grid, granules=(0, 1), dims=("t",))
    w = array_of(
        archive, placements(0, rows, variant=[1, 0]), (7,), ChunkGrid((RegularDimension(7, 1),)), granules=(0, 1),
        source="/w", path="/w", dims=("t",),
    )  # fmt: skip
    if crop:
        array = dataclasses.replace(array, unaligned="/v: a padded chunk lies in the middle")
    return with_arrays(archive, array, w)


@pytest.mark.parametrize("crop", [False, True])
def test_notes_name_the_array_and_its_readers(tmp_path: Path, *, crop: bool) -> None:
    whole, _ = combined(tmp_path / "raw", crop=crop)
    notes = layout_notes(whole, {"grid": "rectilinear", "crop": crop})
    assert "zarr-python from 3.2" in notes[0]
    assert all(n.startswith("/v: ") for n in notes)
    assert ("drystone.crop" in notes[-1]) == crop


def test_without_the_setting_a_rectilinear_data_set_opens_for_nobody(tmp_path: Path) -> None:
    store = emit_icechunk(_whole(tmp_path / "raw", crop=False), tmp_path / "out", grid="rectilinear")
    with zarr.config.set({"array.rectilinear_chunks": False}), pytest.raises(Exception, match="rectilinear"):
        list(zarr.open_group(store, mode="r").arrays())
    with zarr.config.set({"array.rectilinear_chunks": True}):
        assert zarr.open_group(store, mode="r")["v"][:].tolist() == [1, 2, 3, 1, 2, 3, 4]


def test_stores_say_nothing_of_crop() -> None:
    assert form_readers("zarr", {"crop": True}) == ((), ())
    assert len(form_readers("icechunk", {"crop": True, "grid": "rectilinear"})[0]) == 2


def test_coverage_says_what_was_held(tmp_path: Path) -> None:
    whole = _whole(tmp_path / "raw", crop=False)
    array = whole.combined.array("/w")
    p = dataclasses.replace(array.placements, dest=array.placements.dest + np.array([0, 2]))
    gappy = dataclasses.replace(array, placements=p, shape=(9,), grid=ChunkGrid.regular((9,), (1,)))
    covered = with_coverage(with_arrays(whole, gappy).combined)
    assert covered.coordinates["/w_coverage"].tolist() == [1, 1, 1, 0, 0, 1, 1, 1, 1]
    store = emit_icechunk(dataclasses.replace(whole, combined=covered), tmp_path / "out", coverage=True)
    assert zarr.open_group(store, mode="r")["w_coverage"][:].tolist() == [1, 1, 1, 0, 0, 1, 1, 1, 1]
    assert zarr.open_group(store, mode="r")["w"][:].tolist() == [0, 1, 2, 0, 0, 0, 1, 2, 3]

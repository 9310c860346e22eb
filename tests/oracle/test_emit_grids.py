"""Tiles, gaps, rectilinear grids, slabs and cropped blocks through zarr, Icechunk and fsspec, against NumPy."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr
from numpy.typing import NDArray
from services.emit_archive import HandArchive
from services.emit_whole import archive_of, array_of, emit_icechunk, emit_kerchunk, placements, with_arrays, write
from zarr.core.buffer import default_buffer_prototype

from drystone.emit.icechunk import IcechunkEmitter
from drystone.emit.kerchunk_parquet import KerchunkParquetEmitter
from drystone.emit.placing import Placer
from drystone.errors import UnsupportedError
from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import RectilinearDimension, RegularDimension
from drystone.model.placement import CombinedArray, Tile
from drystone.plan.coverage import with_coverage
from drystone.plan.cropping import crop_grid
from drystone.plan.cutting import cut_grid

pytestmark = pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated")
FORMS = pytest.mark.parametrize("emit", [emit_icechunk, emit_kerchunk])
type Emit = Callable[..., zarr.abc.store.Store]
DEFLATE = {"compression": 4, "shuffle": True}


@pytest.fixture
def rectilinear() -> Iterator[None]:
    with zarr.config.set({"array.rectilinear_chunks": True}):
        yield


def numbers(*shape: int, dtype: str = "i2", start: int = 1) -> NDArray[np.generic]:
    """No two alike, none zero."""
    return (np.arange(np.prod(shape)) + start).reshape(shape).astype(dtype)


def read(store: zarr.abc.store.Store, name: str = "v") -> NDArray[np.generic]:
    return np.asarray(zarr.open_group(store, mode="r")[name][...])


def native_counts(store: zarr.abc.store.Store, path: str) -> tuple[int, int]:
    """References and chunks of its own that Icechunk holds."""

    async def count() -> tuple[int, int]:
        virtual = total = 0
        async for _, kinds, *_ in store.array_chunk_iterator(path, 1000):
            total += len(kinds)
            virtual += int((kinds == icechunk.ChunkType.virtual).sum())
        return virtual, total - virtual

    return zarr.core.sync.sync(count())


# --- tiles, several placements, new axes, sources -------------------------------------------------------------------------


def mosaic(folder: Path, *, batch: int = 1000) -> tuple[HandArchive, NDArray[np.generic]]:
    """Two times of four tiles, the ones on the right and below smaller; a granule each, listed in no order."""
    whole = numbers(2, 10, 7)
    cuts = [(0, 6), (6, 10)], [(0, 4), (4, 7)]
    tiles, rows, which, variant, names = [], [], [], [], []
    kinds = {}
    for a, b in cuts[0]:
        for c, d in cuts[1]:
            tiles.append(Tile((0, 0, 0), (0, b - a, d - c), (0, a, c)))
            for t in (1, 0):
                name = f"{t}-{a}-{c}.nc"
                write(folder / name, whole[t : t + 1, a:b, c:d], chunks=(1, 2, 4) if d - c == 4 else (1, 2, 3), **DEFLATE)
                names.append(name)
    for n, name in enumerate(names):
        t, a, c = (int(x) for x in name[:-3].split("-"))
        tile = [x.dest[1:] for x in tiles].index((a, c))
        kinds.setdefault(tile, n)
        which.append((tile, t, n))
    which.sort()
    rows = [(n, 0, 1, t) for _, t, n in which]
    variant = [tile for tile, _, _ in which]
    archive = archive_of(folder, names, batch=batch)
    p = placements(0, rows, variant=variant, tiles=tuple(tiles), tile=[tile for tile, _, _ in which])
    grid = ChunkGrid((RegularDimension(2, 1), RegularDimension(10, 2), RectilinearDimension((4, 3))))
    array = array_of(archive, p, whole.shape, grid, granules=[kinds[i] for i in range(4)])
    return with_arrays(archive, array), whole


@pytest.mark.usefixtures("rectilinear")
@pytest.mark.parametrize("batch", [1000, 3])
def test_a_mosaic_of_uneven_tiles(tmp_path: Path, batch: int) -> None:
    archive, whole = mosaic(tmp_path / "raw", batch=batch)
    np.testing.assert_array_equal(read(emit_icechunk(archive, tmp_path / "out", grid="rectilinear")), whole)


@FORMS
@pytest.mark.parametrize("batch", [1000, 3])
def test_a_mosaic_on_a_regular_grid(emit: Emit, tmp_path: Path, batch: int) -> None:
    whole = numbers(3, 8, 6, dtype=">f4")
    tiles = (Tile((0, 0, 0), (0, 8, 4), (0, 0, 0)), Tile((0, 0, 0), (0, 8, 2), (0, 0, 4)))
    names = []
    for t in range(3):
        for name, part in (("l", whole[t : t + 1, :, :4]), ("r", whole[t : t + 1, :, 4:])):
            write(tmp_path / "raw" / f"{t}{name}.nc", part, chunks=(1, 3, 2), **DEFLATE)
            names.append(f"{t}{name}.nc")
    archive = archive_of(tmp_path / "raw", names, batch=batch)
    p = placements(
        0, [(0, 0, 1, 0), (2, 0, 1, 1), (4, 0, 1, 2), (1, 0, 1, 0), (3, 0, 1, 1), (5, 0, 1, 2)],
        variant=[0, 0, 0, 1, 1, 1], tiles=tiles, tile=[0, 0, 0, 1, 1, 1],
    )  # fmt: skip
    array = array_of(archive, p, whole.shape, ChunkGrid.regular(whole.shape, (1, 3, 2)), granules=(0, 1))
    store = emit(with_arrays(archive, array), tmp_path / "out")
    np.testing.assert_array_equal(read(store), whole)


@FORMS
@pytest.mark.parametrize("batch", [1000, 2])
def test_a_granule_placed_several_times(emit: Emit, tmp_path: Path, batch: int) -> None:
    """The file's steps 2 and 3 come first, then another file, then steps 0 and 1, then step 3 once more."""
    one, two = numbers(4, 5), numbers(2, 5, start=100)
    write(tmp_path / "raw" / "a.nc", one, chunks=(1, 3), **DEFLATE)
    write(tmp_path / "raw" / "b.nc", two, chunks=(1, 3), **DEFLATE)
    archive = archive_of(tmp_path / "raw", ["a.nc", "b.nc"], batch=batch)
    p = placements(0, [(0, 2, 2, 0), (1, 0, 2, 2), (0, 0, 2, 4), (0, 3, 1, 6)], variant=[0, 1, 0, 0])
    array = array_of(archive, p, (7, 5), ChunkGrid.regular((7, 5), (1, 3)), granules=(0, 1))
    store = emit(with_arrays(archive, array), tmp_path / "out")
    np.testing.assert_array_equal(read(store), np.concatenate([one[2:], two, one[:2], one[3:]]))


@FORMS
def test_a_new_axis_from_another_path(emit: Emit, tmp_path: Path) -> None:
    members = [numbers(2, 6, start=100 * m) for m in range(3)]
    for m, values in enumerate(members):
        write(tmp_path / "raw" / f"{m}.nc", values, name="inner", chunks=(1, 4), **DEFLATE)
    archive = archive_of(tmp_path / "raw", ["0.nc", "1.nc", "2.nc"])
    tiles = tuple(Tile((0, 0, 0), (1, 0, 6), (m, 0, 0)) for m in range(3))
    p = placements(1, [(m, 0, 2, 0) for m in range(3)], tiles=tiles, tile=[0, 1, 2])
    array = array_of(
        archive, p, (3, 2, 6), ChunkGrid.regular((3, 2, 6), (1, 1, 4)), source="/inner", dims=("member", "t", "x"), new=(0,)
    )
    made = dataclasses.replace(
        array, path="/member", dims=("member",), shape=(3,), dtype=np.dtype("i8"), stored_dtype=np.dtype("i8"), variants=(),
        fill=None,
        grid=ChunkGrid.regular((3,), (3,)), placements=placements(None, []), source="", new_axes=(),
    )  # fmt: skip
    store = emit(with_arrays(archive, array, made, member=np.array([7, 8, 9])), tmp_path / "out")
    np.testing.assert_array_equal(read(store), np.stack(members))
    np.testing.assert_array_equal(read(store, "member"), [7, 8, 9])


# --- gaps -----------------------------------------------------------------------------------------------------------------


def slots(
    folder: Path, dtype: str, *, fill: object, attrs: dict[str, object], holes: bool
) -> tuple[HandArchive, NDArray[np.generic]]:
    """Places 0, 2 and 4 of six are held; with ``holes`` each granule leaves its second chunk unwritten."""
    import h5py

    parts = []
    folder.mkdir(parents=True)
    for i in range(3):
        values = numbers(1, 4, dtype=dtype, start=10 * i + 1)
        with h5py.File(folder / f"{i}.nc", "w") as f:
            d = f.create_dataset("v", (1, 4), dtype, chunks=(1, 2), fillvalue=fill, **DEFLATE)
            d.attrs.update(attrs)
            d[:, :2] = values[:, :2]
            if holes:
                values[:, 2:] = fill
            else:
                d[:, 2:] = values[:, 2:]
        parts.append(values)
    archive = archive_of(folder, ["0.nc", "1.nc", "2.nc"])
    for scan_id, scan in archive.rows.scans.items():
        arrays = tuple(dataclasses.replace(a, spec=dataclasses.replace(a.spec, sparse=holes)) for a in scan.arrays)
        archive.rows.scans[scan_id] = dataclasses.replace(scan, arrays=arrays)
    p = placements(0, [(0, 0, 1, 0), (1, 0, 1, 2), (2, 0, 1, 4)])
    array = array_of(archive, p, (6, 4), ChunkGrid.regular((6, 4), (1, 2)), dims=("t", "x"))
    whole = np.full((6, 4), np.nan if dtype[1] == "f" else 0, dtype)
    if "_FillValue" in attrs:
        whole[:] = attrs["_FillValue"]
    whole[0::2] = np.concatenate(parts)
    return with_arrays(archive, array), whole


@FORMS
@pytest.mark.parametrize("holes", [False, True], ids=["full", "holes"])
@pytest.mark.parametrize(
    ("dtype", "fill", "attrs"),
    [
        ("<i2", 0, {"_FillValue": np.int16(-9)}),
        ("<i2", -9, {"_FillValue": np.int16(-9)}),
        (">i4", 5, {"_FillValue": np.int32(-1)}),
        ("<f4", 0.0, {}),
        ("<f4", np.nan, {}),
        ("<f8", 3.5, {"_FillValue": np.float64(1e20)}),
    ],
)
def test_gaps_read_as_missing_and_holes_as_the_storage_fill(
    emit: Emit, tmp_path: Path, dtype: str, fill: float, attrs: dict[str, object], *, holes: bool
) -> None:
    archive, whole = slots(tmp_path / "raw", dtype, fill=fill, attrs=attrs, holes=holes)
    store = emit(archive, tmp_path / "out")
    np.testing.assert_array_equal(read(store), whole)
    missing = attrs.get("_FillValue", np.nan)
    with xr.open_zarr(store, consolidated=False, chunks=None) as ds:
        masked = np.isnan(whole.astype("f8")) if missing != missing else whole == missing
        np.testing.assert_array_equal(np.isnan(ds["v"].values.astype("f8")), masked)
        assert masked[1::2].all()


def test_gaps_cost_chunks_only_where_the_fill_value_cannot_say_them(tmp_path: Path) -> None:
    archive, _ = slots(tmp_path / "a", "<i2", fill=0, attrs={"_FillValue": np.int16(-9)}, holes=False)
    assert native_counts(emit_icechunk(archive, tmp_path / "o1"), "/v") == (6, 0)
    archive, _ = slots(tmp_path / "b", "<i2", fill=0, attrs={"_FillValue": np.int16(-9)}, holes=True)
    assert native_counts(emit_icechunk(archive, tmp_path / "o2"), "/v") == (3, 6)


@pytest.mark.parametrize("emitter", [IcechunkEmitter(), KerchunkParquetEmitter()])
def test_a_gap_that_would_pass_for_data_is_refused_by_name(tmp_path: Path, emitter: IcechunkEmitter) -> None:
    archive, _ = slots(tmp_path / "raw", "<i2", fill=0, attrs={}, holes=False)
    text = emitter.problems(archive.combined, {})["/v"]
    assert "/v: no granule holds t 1 to 2" in text
    assert "coverage: true" in text
    assert "gaps: error" in text
    assert "/v" in emitter.problems(archive.combined, {"coverage": True})  # nobody made it
    covered = with_coverage(archive.combined)
    assert "/v" in emitter.problems(covered, {})
    assert emitter.problems(covered, {"coverage": True}) == {}


def test_a_fill_value_that_no_element_can_have_says_nothing(tmp_path: Path) -> None:
    archive, _ = slots(tmp_path / "raw", "<u1", fill=0, attrs={"_FillValue": np.int16(-999)}, holes=False)
    assert set(IcechunkEmitter().problems(archive.combined, {})) == {"/v"}


def test_gaps_that_would_cost_too_much_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive, _ = slots(tmp_path / "raw", "<i2", fill=0, attrs={"_FillValue": np.int16(-9)}, holes=True)
    monkeypatch.setattr("drystone.emit.documents.NATIVE_LIMIT", 0)
    assert IcechunkEmitter().problems(archive.combined, {}) == {}
    monkeypatch.setattr("drystone.emit.gaps._MOST_CHUNKS", 5)
    assert "no granule holds 6 of its chunks" in IcechunkEmitter().problems(archive.combined, {})["/v"]


def test_tiles_that_overlap_are_refused(tmp_path: Path) -> None:
    for name in ("a.nc", "b.nc"):
        write(tmp_path / name, numbers(2, 4), chunks=(1, 2), **DEFLATE)
    archive = archive_of(tmp_path, ["a.nc", "b.nc"])
    tiles = (Tile((0, 0), (0, 4), (0, 0)), Tile((0, 0), (0, 4), (0, 2)))
    p = placements(0, [(0, 0, 2, 0), (1, 0, 2, 0)], tiles=tiles, tile=[0, 1])
    array = array_of(archive, p, (2, 6), ChunkGrid.regular((2, 6), (1, 2)), dims=("t", "x"))
    text = IcechunkEmitter().problems(with_arrays(archive, array).combined, {})["/v"]
    assert "two granules hold the element (0, 2)" in text


# --- rectilinear ----------------------------------------------------------------------------------------------------------


def months(
    folder: Path, lengths: tuple[int, ...], chunks: tuple[int, ...], **how: object
) -> tuple[HandArchive, CombinedArray, NDArray[np.generic]]:
    """Files of some steps each, in chunks of ``chunks`` along time."""
    whole = numbers(sum(lengths), 5)
    at, rows = 0, []
    for i, (n, c) in enumerate(zip(lengths, chunks, strict=True)):
        more = {"chunks": (c, 3), "maxshape": (None, 5)} if c else {}
        write(folder / f"{i}.nc", whole[at : at + n], **more, **how)
        rows.append((i, 0, n, at))
        at += n
    names = [f"{i}.nc" for i in range(len(lengths))]
    archive = archive_of(folder, names)
    p = placements(0, rows, variant=range(len(lengths)))
    sizes, encoded = [], []
    for n, c in zip(lengths, chunks, strict=True):
        edge = c or n
        sizes += [edge] * (n // edge) + ([n % edge] if n % edge else [])
        encoded += [edge] * -(-n // edge)
    x = 3 if chunks[0] else 5
    grid = ChunkGrid((RectilinearDimension(tuple(sizes), tuple(encoded)), RegularDimension(5, x)))
    array = array_of(archive, p, whole.shape, grid, granules=range(len(lengths)), dims=("t", "x"))
    return archive, array, whole


@pytest.mark.usefixtures("rectilinear")
@pytest.mark.parametrize(
    ("lengths", "chunks"),
    [((31, 28, 31), (31, 28, 31)), ((6, 4, 5), (3, 2, 3)), ((4, 4, 4, 3), (4, 4, 4, 4)), ((9, 2), (3, 3))],
)
def test_chunks_of_several_lengths_as_a_rectilinear_grid(
    tmp_path: Path, lengths: tuple[int, ...], chunks: tuple[int, ...]
) -> None:
    archive, array, whole = months(tmp_path / "raw", lengths, chunks, **DEFLATE)
    store = emit_icechunk(with_arrays(archive, array), tmp_path / "out", grid="rectilinear")
    np.testing.assert_array_equal(read(store), whole)
    assert native_counts(store, "/v")[1] == 0
    with xr.open_zarr(store, consolidated=False, chunks={}) as ds:
        np.testing.assert_array_equal(ds["v"].values, whole)
    # zarr itself writes the very same grid, but for Icechunk's sake never a bare number
    ours = json.loads(zarr.core.sync.sync(store.get("v/zarr.json", default_buffer_prototype())).to_bytes())["chunk_grid"]
    theirs = zarr.open_array(store, path="v", mode="r").metadata.to_dict()["chunk_grid"]
    assert json.loads(json.dumps(theirs)) == ours
    if ours["name"] == "rectilinear":
        assert all(isinstance(axis, list) for axis in ours["configuration"]["chunk_shapes"])


def test_rectilinear_is_refused_where_it_was_not_asked_for(tmp_path: Path) -> None:
    archive, array, _ = months(tmp_path / "raw", (31, 28), (31, 28), **DEFLATE)
    big = dataclasses.replace(array, dtype=np.dtype("i2"))
    combined = with_arrays(archive, big).combined
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("drystone.emit.documents.NATIVE_LIMIT", 0)
        text = IcechunkEmitter().problems(combined, {"grid": "regular"})["/v"]
        assert "different sizes along t" in text
        assert "grid: rectilinear" in text
        assert "zarr-python from 3.2" in text
        assert IcechunkEmitter().problems(combined, {"grid": "rectilinear"}) == {}
        assert "Zarr 2" in KerchunkParquetEmitter().problems(combined, {"grid": "rectilinear"})["/v"]


# --- slabs ----------------------------------------------------------------------------------------------------------------


@FORMS
@pytest.mark.parametrize(
    ("lengths", "chunks", "slab"),
    [
        ((6, 4, 8), (0, 0, 0), 2),
        ((5, 3), (0, 0), 1),
        ((6, 9), (4, 4), 2),
        ((6, 9), (3, 5), 1),
        ((8, 6, 5), (4, 4, 4), 2),
        ((4, 6, 2), (2, 6, 2), 2),
    ],
)
def test_plain_chunks_are_cut_into_slabs(
    emit: Emit, tmp_path: Path, lengths: tuple[int, ...], chunks: tuple[int, ...], slab: int
) -> None:
    archive, array, whole = months(tmp_path / "raw", lengths, chunks)
    grid = cut_grid(dataclasses.replace(array, unaligned="chunks do not line up"))
    assert grid is not None
    assert grid.regular_shape == (slab, 3 if chunks[0] else 5)
    store = emit(with_arrays(archive, dataclasses.replace(array, grid=grid)), tmp_path / "out")
    np.testing.assert_array_equal(read(store), whole)
    if emit is emit_icechunk:
        assert native_counts(store, "/v") == (grid.n_chunks, 0)


def test_what_is_not_plain_is_not_cut(tmp_path: Path) -> None:
    _, array, _ = months(tmp_path / "a", (6, 4), (6, 4), **DEFLATE)
    assert cut_grid(dataclasses.replace(array, unaligned="no")) is None
    whole = numbers(2, 10)
    write(tmp_path / "b" / "0.nc", whole[:, :6])
    write(tmp_path / "b" / "1.nc", whole[:, 6:])
    archive = archive_of(tmp_path / "b", ["0.nc", "1.nc"])
    grid = ChunkGrid((RegularDimension(2, 2), RectilinearDimension((6, 4))))
    p = placements(1, [(0, 0, 6, 0), (1, 0, 4, 6)], variant=[0, 1])
    second = array_of(archive, p, (2, 10), grid, granules=(0, 1), dims=("y", "t"))
    assert cut_grid(dataclasses.replace(second, unaligned="no")) is None


# --- crop -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def codec() -> None:
    """An editable install made before the codec was there has no entry point for it."""
    from zarr.registry import register_codec

    from drystone.codecs.crop import CropCodec

    register_codec("drystone.crop", CropCodec)


@pytest.mark.usefixtures("rectilinear")
@pytest.mark.parametrize(
    ("lengths", "grid"),
    [((4, 4, 4), "regular"), ((4, 4, 2), "regular"), ((13, 10, 7), "rectilinear"), ((9, 5, 10), "rectilinear")],
)
@pytest.mark.parametrize("pipeline", ["BatchedCodecPipeline", "FusedCodecPipeline"])
def test_padded_chunks_in_the_middle_are_cropped(tmp_path: Path, lengths: tuple[int, ...], grid: str, pipeline: str) -> None:
    edge = 10 if grid == "regular" else 5
    archive, array, whole = months(tmp_path / "raw", lengths, (edge,) * len(lengths), **DEFLATE)
    odd = dataclasses.replace(array, unaligned="/v: padded chunks lie in the middle")
    store = emit_icechunk(with_arrays(archive, odd), tmp_path / "out", crop=True, grid=grid)
    with zarr.config.set({"codec_pipeline.path": f"zarr.core.codec_pipeline.{pipeline}"}):
        np.testing.assert_array_equal(read(store), whole)
        np.testing.assert_array_equal(zarr.open_array(store, path="v", mode="r")[2:9:3, 1:4], whole[2:9:3, 1:4])
    assert native_counts(store, "/v")[1] == 0
    with xr.open_zarr(store, consolidated=False, chunks={}) as ds:
        np.testing.assert_array_equal(ds["v"].values, whole)


def test_crop_is_refused_by_name_where_it_was_not_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive, array, _ = months(tmp_path / "raw", (13, 10), (5, 5), **DEFLATE)
    odd = dataclasses.replace(array, unaligned="/v: padded chunks lie in the middle")
    combined = with_arrays(archive, odd).combined
    monkeypatch.setattr("drystone.emit.documents.NATIVE_LIMIT", 0)
    text = IcechunkEmitter().problems(combined, {})["/v"]
    assert "`crop: true` and `grid: rectilinear`" in text
    assert "not even its other arrays" in text
    assert "grid: rectilinear" in IcechunkEmitter().problems(combined, {"crop": True})["/v"]
    assert "crop: true" in KerchunkParquetEmitter().problems(combined, {"crop": True})["/v"]


def test_blocks_of_several_shapes_are_not_cropped(tmp_path: Path) -> None:
    _, array, _ = months(tmp_path / "raw", (13, 10), (5, 4), **DEFLATE)
    assert crop_grid(dataclasses.replace(array, unaligned="no")) is None


# --- hostile --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tile", "row"),
    [
        (Tile((0, 0), (0, 4), (0, 1)), (0, 0, 2, 0)),
        (Tile((0, 1), (0, 3), (0, 0)), (0, 0, 2, 0)),
        (Tile((0, 0), (0, 3), (0, 2)), (0, 0, 2, 0)),
        (Tile((0, 0), (0, 6), (0, 0)), (0, 0, 2, 0)),
        (Tile((0, 0), (0, 4), (0, 0)), (0, 1, 2, 0)),
        (Tile((0, 0), (0, 4), (0, 0)), (0, 0, 2, 1)),
        (Tile((0, 0), (0, 4), (0, 0)), (0, 2, 4, 0)),
        (Tile((0, 0), (0, 4), (0, 0)), (0, 0, 1, 0)),
    ],
)
def test_any_shift_off_the_grid_raises(tmp_path: Path, tile: Tile, row: tuple[int, int, int, int]) -> None:
    """A whole of 8 by 8 in chunks of 2 by 2, a granule of 4 by 4; each case is off by one somewhere, or takes too much."""
    write(tmp_path / "a.nc", numbers(4, 4), chunks=(2, 2), **DEFLATE)
    archive = archive_of(tmp_path, ["a.nc"])
    p = placements(0, [row], tiles=(tile,))
    with pytest.raises(UnsupportedError) as caught:
        Placer(array_of(archive, p, (8, 8), ChunkGrid.regular((8, 8), (2, 2)), dims=("t", "x")))
    assert caught.value.kind == "unaligned"


@pytest.mark.parametrize("sizes", [(30, 29), (31, 27, 1), (28, 31)])
def test_a_rectilinear_grid_that_is_not_the_granules_raises(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    _, array, _ = months(tmp_path / "raw", (31, 28), (31, 28), **DEFLATE)
    grid = ChunkGrid((RectilinearDimension(sizes), RegularDimension(5, 3)))
    with pytest.raises(UnsupportedError, match="off the chunk edges"):
        Placer(dataclasses.replace(array, grid=grid))


@pytest.mark.parametrize("size", [3, 4, 5])
def test_slabs_that_do_not_divide_raise(tmp_path: Path, size: int) -> None:
    _, array, _ = months(tmp_path / "raw", (6, 4), (0, 0))
    with pytest.raises(UnsupportedError):
        Placer(dataclasses.replace(array, grid=ChunkGrid.regular((10, 5), (size, 5))))

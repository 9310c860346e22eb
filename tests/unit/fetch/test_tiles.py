"""Mosaics, crops, new axes and recodes, by example."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
from unit.fetch.archive import DEFLATE, Archive, combined, spec, static

from drystone.codecs.chain import CodecChain
from drystone.errors import DecodeError, TableError, UnsupportedError
from drystone.fetch.group import Group
from drystone.fetch.tiles import covers
from drystone.model.attributes import Attributes
from drystone.model.chunk_rows import ChunkRows, ScannedArray, State
from drystone.model.placement import Placements, Tile
from drystone.model.recode import Recode


def numbers(shape, start=0, dtype="i2"):
    return (np.arange(np.prod(shape)) + start).reshape(shape).astype(dtype)


def tiled(array, rows, tiles, axis=0):
    """``rows``: (granule id, source offset, count, destination, variant, tile) each."""
    c = np.array(rows, np.int64).reshape(-1, 6).T
    where = Placements(
        axis, c[0].astype("i4"), c[1], c[2], c[3], c[4].astype("i4"), tuple(Tile(*t) for t in tiles), c[5].astype("i4")
    )
    return dataclasses.replace(array, placements=where)


def as_whole(array, **changes):
    return dataclasses.replace(array, **changes)


@pytest.fixture
def mosaic(tmp_path):
    """Two days of two columns of (1, 4, 3) and (1, 4, 5); the second column's second day is missing."""
    archive, whole = Archive(tmp_path), np.full((2, 4, 8), -1, "i2")
    left, right = spec((1, 4, 3), (1, 2, 2)), spec((1, 4, 5), (1, 4, 4))
    for g, (one, day, at) in enumerate([(left, 0, 0), (left, 1, 0), (right, 0, 3)]):
        values = numbers(one.shape, 100 * g)
        archive.add(g, one, values)
        whole[day, :, at : at + one.shape[2]] = values[0]
    base = combined([left, right], [], whole.shape, attributes=Attributes.of({"_FillValue": np.int16(-1)}))
    tiles = [((0, 0, 0), (0, 4, 3), (0, 0, 0)), ((0, 0, 0), (0, 4, 5), (0, 0, 3))]
    return archive, tiled(base, [(0, 0, 1, 0, 0, 0), (1, 0, 1, 1, 0, 0), (2, 0, 1, 0, 1, 1)], tiles), whole


def test_columns_of_a_mosaic_with_a_gap(mosaic):
    archive, array, whole = mosaic
    fetcher = archive.fetcher()
    assert np.array_equal(fetcher.read(array, ...), whole)
    assert np.array_equal(fetcher.read(array, (-1, [3, 0, 3], slice(None, None, -2))), whole[-1][[3, 0, 3]][:, ::-2])
    assert np.array_equal(fetcher.read_box(array, (1, 0, 3), (2, 4, 8)), whole[1:, :, 3:])


def test_only_touched_tiles_are_read(mosaic):
    archive, array, whole = mosaic
    fetcher = archive.fetcher()
    assert np.array_equal(fetcher.read(array, (slice(None), slice(0, 2), slice(0, 2))), whole[:, :2, :2])
    assert fetcher.bytes_decoded == 2 * 2 * 2 * 2
    fetcher = archive.fetcher()
    assert (fetcher.read(array, (1, ..., slice(3, 8))) == -1).all()
    assert fetcher.bytes_read == 0


def test_every_element_is_written(mosaic):
    """What tiles leave out is filled, whatever was in the target."""
    archive, array, whole = mosaic
    for start, stop in [((0, 0, 0), (2, 4, 8)), ((0, 1, 1), (1, 4, 7)), ((0, 0, 0), (1, 4, 3)), ((1, 2, 2), (2, 3, 6))]:
        box = tuple(map(slice, start, stop))
        out = np.full(whole[box].shape, 77, "i2")
        archive.fetcher().read_box(array, start, stop, out=out)
        assert np.array_equal(out, whole[box])


def test_a_crop_of_static_and_stacked_arrays(tmp_path):
    archive = Archive(tmp_path)
    values = numbers((7, 9))
    one = spec((7, 9), (3, 4))
    archive.add(0, one, values)
    crop = [((2, 1), (4, 6), (0, 0))]
    fixed = tiled(static(one, 0, (4, 6)), [(0, 0, 1, 0, 0, 0)], crop, axis=None)
    assert np.array_equal(archive.fetcher().read(fixed, ...), values[2:6, 1:7])
    stacked = tiled(combined([one], [], (3, 6)), [(0, 4, 3, 0, 0, 0)], [((0, 3), (0, 6), (0, 0))])
    assert np.array_equal(archive.fetcher().read(stacked, ...), values[4:7, 3:9])


def test_members_on_a_new_axis(tmp_path):
    """Granules of (4, 5) become (member, 4, 5), under another name; the library reads one of them."""
    h5py = pytest.importorskip("h5py")
    archive, inner = Archive(tmp_path), spec((4, 5), (2, 3), path="/raw/v")
    values = [numbers((4, 5), 100 * g) for g in range(3)]
    archive.add(0, inner, values[0])
    archive.add(2, inner, values[2], holes=())
    with h5py.File(tmp_path / "g1.h5", "w") as f:
        f["/raw/v"] = values[1]
    at = np.array([(y, x) for y in range(2) for x in range(2)], "i4").T
    library = ChunkRows(at, np.full(4, -1), np.zeros(4, np.int64), np.full(4, State.LIBRARY, np.int8))
    archive.register(1, "g1.h5", ScannedArray(inner, library))
    outer = spec((1, 4, 5), (1, 2, 3), path="/raw/v")
    array = combined([outer], [(g, 0, 1, g, 0) for g in range(3)], (3, 4, 5))
    array = as_whole(array, path="/v", source="/raw/v", new_axes=(0,))
    assert np.array_equal(archive.fetcher().read(array, ...), np.stack(values))
    assert np.array_equal(
        archive.fetcher().read(array, (slice(None, None, -1), 1, [4, 0])), np.stack(values)[::-1, 1][:, [4, 0]]
    )
    (tmp_path / "g2.bin").write_bytes(b"HEAD" + bytes(400))
    stale = archive.fetcher(check_stamps=False)
    with pytest.raises(Exception, match=r"g2\.bin"):
        stale.read(array, 2)


@pytest.mark.parametrize("chain", [DEFLATE, CodecChain.of("bytes")], ids=["deflate", "plain"])
@pytest.mark.parametrize("dtype", ["<i2", ">i2"])
def test_packings_of_two_granules_become_one(tmp_path, chain, dtype):
    archive, nan = Archive(tmp_path), np.float64("nan").tobytes()
    one = spec((2, 300), (1, 200), dtype, chain, np.array(-99, dtype).tobytes(), sparse=True)
    first, second = numbers((2, 300), dtype=dtype), numbers((2, 300), 7, dtype=dtype)
    first[0, 5] = -99
    archive.add(0, one, first)
    archive.add(1, one, second, holes={(1, 0)})
    halves = Recode(np.dtype("f8"), missing=(np.int16(-99).tobytes(),), missing_as=nan, scale=Fraction(1, 2))
    tens = dataclasses.replace(halves, scale=Fraction(1), offset=Fraction(10))
    other = dataclasses.replace(one, attributes=Attributes.of({"add_offset": 10.0}))
    array = combined([one, other], [(0, 0, 2, 0, 0), (1, 0, 2, 2, 1)], (4, 300))
    array = as_whole(array, dtype=np.dtype("f8"), stored_dtype=np.dtype("f8"), fill=nan, recodes=(halves, tens))
    want = np.concatenate([first * 0.5, second + 10.0])
    want[0, 5] = want[3, :200] = np.nan
    for threads in (1, 2):
        fetcher = archive.fetcher(threads=threads)
        assert np.array_equal(fetcher.read(array, ...), want, equal_nan=True)
        got = fetcher.read(array, (slice(None), slice(None, None, -7)))
        assert np.array_equal(got, want[:, ::-7], equal_nan=True)


def test_padding_is_not_recoded(tmp_path):
    """What lies past the end of a granule is no value, so it may not stop a read."""
    archive, one = Archive(tmp_path), spec((3,), (4,), "<i2", CodecChain.of("bytes"))
    archive.add(0, one, np.array([3, 6, 9], "i2"))
    blob = tmp_path / "g0.bin"
    blob.write_bytes(b"HEAD" + np.array([3, 6, 9, 10], "<i2").tobytes())
    archive.granules[0] = dataclasses.replace(archive.granules[0], stamp=archive.places().store("here").stat("g0.bin"))
    thirds = Recode(np.dtype("i8"), scale=Fraction(1, 3))
    array = as_whole(combined([one], [(0, 0, 3, 0, 0)], (3,)), dtype=np.dtype("i8"), recodes=(thirds,))
    assert archive.fetcher().read(array, ...).tolist() == [1, 2, 3]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_number_without_an_exact_place_is_named_with_granule_and_chunk(tmp_path, threads):
    archive, one = Archive(tmp_path), spec((4,), (2,), path="/in/v")
    archive.add(0, one, np.array([3, 6, 9, 10], "i2"))
    thirds = Recode(np.dtype("i8"), scale=Fraction(1, 3))
    array = as_whole(
        combined([one], [(0, 0, 4, 0, 0)], (4,)), path="/v", source="/in/v", dtype=np.dtype("i8"), recodes=(thirds,)
    )
    fetcher = archive.fetcher(threads=threads)
    assert fetcher.read(array, slice(0, 3)).tolist() == [1, 2, 3]
    with pytest.raises(DecodeError, match=r"g0\.bin: chunk \(1,\) of /in/v, published as /v .*number 10") as caught:
        fetcher.read(array, ...)
    assert caught.value.kind == "recode-inexact"
    assert caught.value.facts["array"] == "/v"


def test_an_unwritten_chunk_without_an_exact_place_is_named(tmp_path):
    archive, one = Archive(tmp_path), spec((4,), (2,), fill=np.int16(10).tobytes(), sparse=True)
    archive.add(0, one, np.array([3, 6, 9, 9], "i2"), holes={(1,)})
    array = as_whole(
        combined([one], [(0, 0, 4, 0, 0)], (4,)),
        dtype=np.dtype("i8"),
        recodes=(Recode(np.dtype("i8"), scale=Fraction(1, 3)),),
    )
    assert archive.fetcher().read(array, slice(0, 2)).tolist() == [1, 2]
    with pytest.raises(DecodeError, match=r"here:g0\.bin: chunk \(1,\) of /v was never written .*number 10"):
        archive.fetcher().read(array, ...)


def test_a_recoded_scalar(tmp_path):
    archive, one = Archive(tmp_path), spec((), ())
    archive.add(0, one, np.array(3, "i2"))
    sparse = spec((), (), fill=np.int16(4).tobytes(), sparse=True)
    archive.add(1, sparse, np.array(3, "i2"), holes={()})
    twice = Recode(np.dtype("f8"), scale=Fraction(2))
    for g, variant, want in [(0, one, 6.0), (1, sparse, 8.0)]:
        array = as_whole(static(variant, g), dtype=np.dtype("f8"), recodes=(twice,))
        assert archive.fetcher().read(array, ()) == want


def test_what_was_made_is_not_read_from_granules(tmp_path):
    archive, one = Archive(tmp_path), spec((4,), (2,))
    array = as_whole(combined([one], [], (4,)), path="/run", variants=())
    for read in (
        lambda f: f.read(array, ...),
        lambda f: f.read_box(array, (0,), (0,)),
        lambda f: f.encoded_chunk(array, (0,)),
    ):
        with pytest.raises(TableError, match=r"^/run: no granule holds this array") as caught:
            read(archive.fetcher())
        assert caught.value.kind == "made-array"


@pytest.mark.parametrize(
    ("rows", "tiles", "match"),
    [
        ([(0, 0, 1, 0, 0, 0)], [((0, 2), (0, 4), (0, 0))], "has 5 elements along axis 1 .y. and 2 to 6 are wanted"),
        ([(0, 0, 1, 0, 0, 0)], [((0, 0), (0, 5), (0, 2))], "a tile takes 2 to 7 along axis 1 .y. of 6"),
        ([(0, 1, 2, 0, 0, 0)], [((0, 0), (0, 5), (0, 0))], "elements up to 3 along axis 0"),
        ([(0, 0, 2, 0, 0, 0)], [], "has 5 elements along axis 1 .y. where the whole has 6"),
        ([(0, 0, 2, 0, 0, 0), (0, 0, 2, 0, 0, 1)], [((0, 0), (0, 5), (0, 0))] * 2, "tiles hold 20 elements of 12"),
    ],
)
def test_placements_that_do_not_fit(tmp_path, rows, tiles, match):
    archive, one = Archive(tmp_path), spec((2, 5), (1, 5))
    archive.add(0, one, numbers((2, 5)))
    if tiles:
        array = tiled(combined([one], [], (2, 6)), rows, tiles)
    else:
        array = combined([one], [r[:5] for r in rows], (2, 6))
    with pytest.raises(TableError, match=match) as caught:
        archive.fetcher().read(array, ...)
    assert caught.value.kind == "plan-mismatch"


def test_a_recode_of_another_type_does_not_fit(tmp_path):
    archive, one = Archive(tmp_path), spec((2,), (2,))
    archive.add(0, one, numbers((2,)))
    array = as_whole(combined([one], [(0, 0, 2, 0, 0)], (2,)), recodes=(Recode(np.dtype("f8")),))
    with pytest.raises(TableError, match="stores int16, which reads as float64 where the whole has int16"):
        archive.fetcher().read(array, ...)


@pytest.mark.parametrize(
    ("fill", "dtype", "want"),
    [
        (np.int16(-5), "i2", -5),
        (np.float64(-5), "i2", -5),
        (np.uint8(255), "i1", -1),
        (np.int8(-1), "u1", 255),
        (np.float64(1e20), "f4", np.float32(1e20)),
        (np.float64("nan"), "i2", None),
        (np.float64(1.5), "i2", None),
        (np.int32(70000), "i2", None),
    ],
)
def test_the_gap_value(tmp_path, fill, dtype, want):
    one = spec((2,), (2,), dtype, CodecChain.of("bytes"))
    array = combined([one], [], (2,), attributes=Attributes.of({"_FillValue": fill}))
    if want is None:
        with pytest.raises(UnsupportedError, match="/v: places that no granule holds") as caught:
            Archive(tmp_path).fetcher().read(array, ...)
        assert caught.value.kind == "gap-fill"
    else:
        assert Archive(tmp_path).fetcher().read(array, ...).tolist() == [want] * 2


def test_counts_of_tiles_that_overlap_prove_nothing():
    apart = [Tile((0, 0), (0, 4), (0, 0)), Tile((0, 0), (0, 4), (0, 4))]
    over = [Tile((0, 0), (0, 4), (0, 0)), Tile((0, 0), (0, 4), (0, 3))]
    assert covers([8, 8], apart, 16, 0)
    assert not covers([8, 7], apart, 16, 0)
    assert not covers([8, 8], over, 16, 0)
    assert covers([16], over[:1], 16, 0)
    assert not covers([8] * 100, apart * 50, 800, 0)


def test_a_group_finds_its_few_rows_in_a_batch(tmp_path):
    """Each tile's group looks at its own granules' rows, in sorted batches and in others."""
    archive, one = Archive(tmp_path), spec((2, 2), (1, 2))
    tiles = [((0, 0), (0, 2), (0, 2 * g)) for g in range(20)]
    whole = np.empty((2, 40), "i2")
    for g in range(20):
        whole[:, 2 * g : 2 * g + 2] = numbers((2, 2), 10 * g)
        archive.add(g, one, numbers((2, 2), 10 * g))
    array = tiled(combined([one], [], (2, 40)), [(g, 0, 2, 0, 0, g) for g in range(20)], tiles)
    assert np.array_equal(archive.fetcher().read(array, ...), whole)
    [batch] = archive.rows().rows("/v")
    back = dataclasses.replace(
        batch,
        **{k: getattr(batch, k)[..., ::-1] for k in ("granule_id", "coords", "offset", "length", "state")},
    )
    group = Group(0, "/v", one, np.array([3, 3], "i4"), np.array([0, 1]), [], [], apart=True)
    assert group._rows(batch).tolist() == [6, 7]
    assert len(group._rows(back)) == 40

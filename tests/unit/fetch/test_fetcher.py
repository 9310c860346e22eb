import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from unit.fetch.archive import DEFLATE, Archive, combined, spec, static

from drystone.codecs.chain import Codec, CodecChain
from drystone.codecs.decode import decode_chunk
from drystone.errors import DecodeError, GranuleChanged, GranuleMissing, StorageError, TableError, UnsupportedError
from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import RectilinearDimension, RegularDimension
from drystone.model.attributes import Attributes
from drystone.model.chunk_rows import State


def numbers(shape, start=0):
    return (np.arange(np.prod(shape)) + start).reshape(shape).astype("i2")


@pytest.fixture
def daily(tmp_path):
    """Ten granules of one day each, (1, 6, 7) in chunks of (1, 4, 4)."""
    archive = Archive(tmp_path)
    one = spec((1, 6, 7), (1, 4, 4))
    whole = numbers((10, 6, 7))
    for i in range(10):
        archive.add(i, one, whole[i : i + 1])
    return archive, combined([one], [(i, 0, 1, i, 0) for i in range(10)], whole.shape), whole


@pytest.mark.parametrize("threads", [1, 3])
def test_whole_and_boxes(daily, threads):
    archive, array, whole = daily
    fetcher = archive.fetcher(threads=threads, bytes_in_flight=100)
    got = fetcher.read_box(array, (0, 0, 0), whole.shape)
    assert got.dtype == np.dtype("i2")
    assert got.flags.c_contiguous
    assert np.array_equal(got, whole)
    for start, stop in [((3, 2, 1), (8, 5, 7)), ((9, 0, 0), (10, 1, 1)), ((2, 3, 3), (2, 5, 5)), ((0, 4, 4), (10, 6, 7))]:
        box = tuple(slice(a, b) for a, b in zip(start, stop, strict=True))
        assert np.array_equal(fetcher.read_box(array, start, stop), whole[box])
    assert fetcher.bytes_read > 0
    assert fetcher.bytes_decoded % 32 == 0


def test_only_the_chunks_of_the_box_are_read(daily):
    archive, array, _ = daily
    fetcher = archive.fetcher()
    fetcher.read_box(array, (4, 0, 0), (5, 4, 4))
    assert fetcher.bytes_decoded == 32
    fetcher.read(array, (slice(None, None, 5), [0, 5], 0))  # days 0 and 5, chunk rows 0 and 1, chunk column 0
    assert fetcher.bytes_decoded == 32 + 4 * 32


def test_out_is_filled_in_place_with_any_strides(daily):
    archive, array, whole = daily
    target = np.full((6, 10, 7), -1, "i2")
    view = target.transpose(1, 0, 2)
    assert archive.fetcher().read_box(array, (0, 0, 0), whole.shape, out=view) is view
    assert np.array_equal(target, whole.transpose(1, 0, 2))
    for wrong in (np.empty((10, 6, 6), "i2"), np.empty((10, 6, 7), "i4")):
        with pytest.raises(ValueError, match="the target has shape"):
            archive.fetcher().read_box(array, (0, 0, 0), whole.shape, out=wrong)


def test_boxes_and_selections_outside_are_refused(daily):
    archive, array, _ = daily
    with pytest.raises(IndexError):
        archive.fetcher().read_box(array, (0, 0, 0), (11, 6, 7))
    with pytest.raises(IndexError):
        archive.fetcher().read(array, 10)


@pytest.mark.parametrize(
    "selection",
    [
        (3,),
        (-1, slice(None, None, -1), slice(5, 1, -2)),
        (slice(8, 1, -3), 2, slice(None)),
        ([9, 0, 3, 3], slice(1, 6, 2), [6, 0]),
        ([9, 0, 3, 3], [5, 0], [1, 1, 6]),
        (slice(None), np.array([True, False, True, False, False, True]), -1),
        (slice(0, 0),),
        ([],),
        (Ellipsis, 4),
        (slice(1, 9, 4), Ellipsis),
    ],
)
def test_orthogonal_selections(daily, selection):
    archive, array, whole = daily
    want = whole
    full = list(selection)
    if Ellipsis in [s for s in full if not isinstance(s, np.ndarray | list)]:
        at = next(i for i, s in enumerate(full) if s is Ellipsis)
        full[at : at + 1] = [slice(None)] * (whole.ndim - len(full) + 1)
    for axis in reversed(range(len(full))):
        part = np.asarray(full[axis], int) if isinstance(full[axis], list) else full[axis]
        want = want[(slice(None),) * axis + (part,)]
    got = archive.fetcher().read(array, selection)
    assert got.shape == want.shape
    assert np.array_equal(got, want)


def test_pieces_of_granules_gaps_and_order(tmp_path):
    archive = Archive(tmp_path)
    one = spec((10, 4), (4, 3), fill=b"\x07\x00", attributes=Attributes.of({"_FillValue": np.array([-9], "i2")}))
    values = {g: numbers((10, 4), 100 * g) for g in (4, 2)}
    for g, v in values.items():
        archive.add(g, one, v)
    # rows 3 to 8 of granule 4 at 2, then a gap, then rows 0 to 10 of granule 2 at 10, then rows 9 to 10 of granule 4 at 21
    array = combined([one], [(4, 3, 5, 2, 0), (2, 0, 10, 10, 0), (4, 9, 1, 21, 0)], (24, 4))
    want = np.full((24, 4), -9, "i2")
    want[2:7], want[10:20], want[21:22] = values[4][3:8], values[2], values[4][9:]
    fetcher = archive.fetcher()
    assert np.array_equal(fetcher.read_box(array, (0, 0), (24, 4)), want)
    for selection in [slice(23, None, -1), slice(0, 24, 5), [22, 21, 3, 8, 8, 0], slice(7, 10), 23, slice(20, 3, -4)]:
        assert np.array_equal(fetcher.read(array, selection), want[selection])


def test_a_gap_without_fill_attribute_reads_as_the_storage_fill(tmp_path):
    archive = Archive(tmp_path)
    one = spec((1, 2), (1, 2), dtype=">i2", fill=b"\x00\x07", chain=CodecChain.of("bytes"))
    archive.add(0, one, numbers((1, 2)))
    assert archive.fetcher().read_box(combined([one], [(0, 0, 1, 1, 0)], (2, 2)), (0, 0), (2, 2)).tolist() == [[7, 7], [0, 1]]


def test_combining_along_the_last_axis(tmp_path):
    archive = Archive(tmp_path)
    one = spec((5, 3), (2, 2))
    whole = numbers((5, 9))
    for i in range(3):
        archive.add(i, one, whole[:, 3 * i : 3 * i + 3])
    array = combined([one], [(i, 0, 3, 3 * i, 0) for i in range(3)], (5, 9), axis=1)
    assert np.array_equal(archive.fetcher().read(array, (slice(None, None, -2), [8, 0, 4])), whole[::-2][:, [8, 0, 4]])


def test_granules_that_are_stored_differently(tmp_path):
    """Big-endian, other chunks, other codecs, short chunks, other lengths: each granule by its own spec."""
    archive = Archive(tmp_path)
    variants = [
        spec((3, 5), (2, 2)),
        spec((4, 5), (3, 5), dtype=">i2", chain=CodecChain.of("bytes", Codec.of("zlib", level=9))),
        spec((2, 5), (2, 2)),
        spec((3, 5), (2, 4), chain=CodecChain.of("bytes"), padded=False),
    ]
    whole = numbers((12, 5))
    at, placements = 0, []
    for g, one in enumerate(variants):
        n = one.shape[0]
        archive.add(g, one, whole[at : at + n])
        placements.append((g, 0, n, at, g))
        at += n
    array = combined(variants, placements, whole.shape)
    assert np.array_equal(archive.fetcher().read_box(array, (0, 0), (12, 5)), whole)
    assert np.array_equal(archive.fetcher().read(array, (slice(11, None, -2), [4, 1])), whole[::-2][:, [4, 1]])


def test_unwritten_missing_inline_and_masked_chunks(tmp_path):
    archive = Archive(tmp_path)
    one = spec((4, 4), (2, 2), fill=b"\xff\xff", sparse=True)
    other = spec((4, 4), (2, 2), fill=b"\x05\x00", sparse=True)
    whole = numbers((8, 4))
    archive.add(0, one, whole[:4], states={(0, 0): State.MISSING, (0, 1): State.INLINE}, holes=[(1, 1)], masks={(1, 0): 1})
    archive.add(1, other, whole[4:], holes=[(0, 0), (0, 1), (1, 0)], masks={(1, 1): 3})
    array = combined([one, other], [(0, 0, 4, 0, 0), (1, 0, 4, 4, 1)], (8, 4))
    want = whole.copy()
    want[0:2, 0:2] = want[2:4, 2:4] = -1
    want[4:6] = want[6:8, :2] = 5
    assert np.array_equal(archive.fetcher().read_box(array, (0, 0), (8, 4)), want)


def test_a_row_that_should_be_there_is_never_a_fill_value(tmp_path):
    archive = Archive(tmp_path)
    one = spec((4, 4), (2, 2))
    archive.add(0, one, numbers((4, 4)), holes=[(1, 0)])
    array = static(one, 0)
    assert archive.fetcher().read_box(array, (0, 0), (2, 4)).shape == (2, 4)
    with pytest.raises(TableError, match=r"no row for chunk \(1, 0\) of /v in here:g0.bin") as info:
        archive.fetcher().read_box(array, (0, 0), (4, 4))
    assert info.value.kind == "row-missing"


def test_states_that_no_reader_follows_are_refused(tmp_path):
    archive = Archive(tmp_path)
    one = spec((2,), (2,))
    archive.add(0, one, numbers((2,)), states={(0,): State.HELD})
    with pytest.raises(TableError, match="state 3"):
        archive.fetcher().read_box(static(one, 0), (0,), (2,))


def test_scalars_text_and_zero_length(tmp_path):
    archive = Archive(tmp_path)
    scalar = spec((), (), dtype=">f8", chain=CodecChain.of("bytes"), path="/s")
    archive.add(0, scalar, np.float64(2.5))
    got = archive.fetcher().read_box(static(scalar, 0), (), ())
    assert (got.shape, got.dtype.str, got[()]) == ((), "<f8", 2.5)
    assert archive.fetcher().read(static(scalar, 0), ()) == 2.5
    text = spec((3,), (2,), dtype=np.dtypes.StringDType(), chain=CodecChain.of("vlen-utf8"), path="/t")
    words = np.array(["a", "", "°C"], np.dtypes.StringDType())
    archive.add(1, text, words, states={(0,): State.INLINE})
    assert archive.fetcher().read_box(static(text, 1), (0,), (3,)).tolist() == ["a", "", "°C"]
    assert archive.fetcher().read(static(text, 1), [2, 0]).tolist() == ["°C", "a"]
    empty = spec((0, 3), (1, 3), path="/e")
    assert archive.fetcher().read_box(combined([empty], [], (0, 3)), (0, 0), (0, 3)).shape == (0, 3)


def test_a_granule_that_changed_or_vanished_is_named(daily, tmp_path):
    archive, array, whole = daily
    fetcher = archive.fetcher()
    path = tmp_path / "g3.bin"
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(GranuleChanged, match=r"here:g3.bin changed since it was scanned: size \d+ bytes, now") as info:
        fetcher.read_box(array, (0, 0, 0), whole.shape)
    assert info.value.facts["granule"] == "here:g3.bin"
    assert np.array_equal(fetcher.read_box(array, (4, 0, 0), whole.shape), whole[4:])  # the others are still there
    path.unlink()
    with pytest.raises(GranuleMissing, match=str(path)):
        fetcher.read_box(array, (3, 0, 0), (4, 6, 7))


def test_a_granule_that_is_replaced_during_the_read_is_seen_at_its_end(daily, tmp_path, monkeypatch):
    archive, array, whole = daily
    fetcher = archive.fetcher(threads=1)
    from drystone.storage.local import LocalStore

    real = LocalStore.get_ranges

    def touched(store, key, starts, lengths):
        data = real(store, key, starts, lengths)
        if key == "g5.bin":
            (tmp_path / key).write_bytes((tmp_path / key).read_bytes() + b"more")
        return data

    monkeypatch.setattr(LocalStore, "get_ranges", touched)
    with pytest.raises(GranuleChanged, match=r"g5\.bin"):
        fetcher.read_box(array, (0, 0, 0), whole.shape)


@pytest.mark.parametrize("threads", [1, 2])
def test_damaged_bytes_are_named_with_granule_chunk_and_place(daily, tmp_path, threads):
    archive, array, whole = daily
    store_path = tmp_path / "g7.bin"
    data = bytearray(store_path.read_bytes())
    data[4:12] = b"\xff" * 8
    store_path.write_bytes(data)
    archive.register(7, "g7.bin", *archive.scans[7].arrays)  # as if it had been so at the scan
    with pytest.raises(DecodeError, match=r"g7\.bin: chunk \(0, 0, 0\) of /v \(\d+ bytes at 4\): ") as info:
        archive.fetcher(threads=threads).read_box(array, (0, 0, 0), whole.shape)
    assert info.value.facts["granule"] == "here:g7.bin"
    # the same damage in a file that is not what was scanned says so instead
    archive.register(7, "g7.bin", *archive.scans[7].arrays)
    fetcher = archive.fetcher(threads=threads, check_stamps=False)
    store_path.write_bytes(data + b"x")
    with pytest.raises(GranuleChanged):
        fetcher.read_box(array, (0, 0, 0), whole.shape)


def test_a_row_past_the_end_of_the_file(tmp_path):
    archive = Archive(tmp_path)
    one = spec((2,), (2,))
    archive.add(0, one, numbers((2,)))
    rows = archive.scans[0].arrays[0].rows
    rows.offset[0] = 1 << 40
    with pytest.raises(StorageError, match="were asked for"):
        archive.fetcher().read_box(static(one, 0), (0,), (2,))


def test_many_threads_share_a_fetcher_and_it_pickles(daily):
    archive, array, whole = daily
    fetcher = pickle.loads(pickle.dumps(archive.fetcher(threads=2, bytes_in_flight=64)))
    with ThreadPoolExecutor(6) as pool:
        for got in pool.map(lambda i: fetcher.read_box(array, (i % 9, 0, 0), (i % 9 + 2, 6, 7)), range(60)):
            assert got.shape == (2, 6, 7)
    assert fetcher._budget.held == 0
    assert np.array_equal(fetcher.read_box(array, (0, 0, 0), whole.shape), whole)


def test_library_arrays_are_read_through_the_library(tmp_path):
    import h5py

    from drystone.model.chunk_rows import ChunkRows, ScannedArray

    whole = np.arange(2 * 30 * 4, dtype="<i4").reshape(60, 4)
    archive = Archive(tmp_path)
    one = spec((30, 4), (8, 4), dtype="<i4", chain=CodecChain.of("bytes", Codec.of("hdf5-filter-6", name="scaleoffset")))
    for g in range(2):
        with h5py.File(tmp_path / f"{g}.h5", "w") as f:
            f.create_dataset("v", data=whole[30 * g : 30 * g + 30], chunks=(8, 4), scaleoffset=0)
        rows = ChunkRows(
            np.array([range(4), [0] * 4], np.int32), np.full(4, -1), np.zeros(4, np.int64), np.full(4, State.LIBRARY, np.int8)
        )
        archive.register(g, f"{g}.h5", ScannedArray(one, rows))
    array = combined([one], [(0, 0, 30, 0, 0), (1, 0, 30, 30, 0)], (60, 4))
    assert np.array_equal(archive.fetcher().read_box(array, (0, 0), (60, 4)), whole)
    assert np.array_equal(archive.fetcher().read(array, (slice(50, 2, -7), [3, 0])), whole[50:2:-7][:, [3, 0]])


def test_encoded_chunks_of_the_whole(tmp_path):
    archive = Archive(tmp_path)
    one = spec((3, 4), (2, 4), dtype=">i2", fill=b"\x00\x07", sparse=True)
    whole = numbers((6, 4), 300)
    archive.add(0, one, whole[:3])
    archive.add(1, one, whole[3:], holes=[(0, 0), (1, 0)])
    whole[3:] = 7
    # chunks of 2, 2, 2 do not line up with granules of 3 rows
    array = combined([one], [(0, 0, 3, 0, 0), (1, 0, 3, 3, 0)], (6, 4), grid=ChunkGrid.regular((6, 4), (2, 4)))
    fetcher = archive.fetcher()
    for i in (0, 1):
        data = fetcher.encoded_chunk(array, (i, 0))
        assert np.array_equal(decode_chunk(data, DEFLATE, np.dtype(">i2"), (2, 4)), whole[2 * i : 2 * i + 2])
    assert fetcher.encoded_chunk(array, (2, 0)) is None
    # short chunks that are stored padded
    grid = ChunkGrid((RectilinearDimension((3, 3), (4, 4)), RegularDimension(4, 4)))
    data = fetcher.encoded_chunk(combined([one], [(0, 0, 3, 0, 0), (1, 0, 3, 3, 0)], (6, 4), grid=grid), (0, 0))
    assert np.array_equal(decode_chunk(data, DEFLATE, np.dtype(">i2"), (4, 4)), np.vstack([whole[:3], np.full((1, 4), 7)]))


def test_encoded_chunk_of_a_codec_that_is_not_written(tmp_path):
    archive = Archive(tmp_path)
    one = spec((2,), (2,), dtype="i1", chain=CodecChain.of("bytes"))
    archive.add(0, one, np.zeros(2, "i1"))
    from dataclasses import replace

    with pytest.raises(UnsupportedError, match="lzf"):
        archive.fetcher().encoded_chunk(replace(static(one, 0), codecs=CodecChain.of("bytes", "lzf")), (0,))


def test_a_granule_placed_twice(tmp_path):
    archive = Archive(tmp_path)
    one = spec((4,), (3,))
    archive.add(0, one, numbers((4,)))
    array = combined([one], [(0, 0, 2, 0, 0), (0, 0, 4, 2, 0)], (6,))
    assert archive.fetcher().read_box(array, (0,), (6,)).tolist() == [0, 1, 0, 1, 2, 3]


def test_a_map_out_of_a_contiguous_variable_reads_its_own_bytes(tmp_path):
    archive = Archive(tmp_path)
    one = spec((40, 100, 200), (40, 100, 200), dtype=">i2", chain=CodecChain.of("bytes"))
    whole = numbers((40, 100, 200))
    archive.add(0, one, whole)
    array = static(one, 0)
    fetcher = archive.fetcher()
    assert np.array_equal(fetcher.read(array, 17), whole[17])
    assert fetcher.bytes_read == whole[17].nbytes
    assert np.array_equal(fetcher.read(array, (slice(None, None, -10), 3)), whole[::-10, 3])
    assert fetcher.bytes_read <= whole[17].nbytes * 41
    before = fetcher.bytes_read
    assert np.array_equal(fetcher.read_box(array, (3, 10, 7), (4, 20, 190)), whole[3:4, 10:20, 7:190])
    assert fetcher.bytes_read - before == 10 * 200 * 2
    assert np.array_equal(fetcher.read(array, ([39, 2, 2], [99, 0], [5, 4])), whole[np.ix_([39, 2, 2], [99, 0], [5, 4])])
    rows = archive.scans[0].arrays[0].rows
    rows.length[0] -= 2
    with pytest.raises(DecodeError, match="are stored for an unfiltered chunk of 1600000"):
        archive.fetcher().read(array, 17)


def test_gaps_of_floats_without_a_fill_value_read_as_nan(tmp_path):
    """Zero, which HDF5 gives unwritten cells, would pass for data."""
    archive = Archive(tmp_path)
    one = spec((2, 4), (1, 4), dtype="<f4", chain=CodecChain.of("bytes"))
    archive.add(0, one, np.ones((2, 4), "f4"))
    whole = combined([one], [(0, 0, 2, 3, 0)], (5, 4))
    got = archive.fetcher().read_box(whole, (0, 0), (5, 4))
    assert np.isnan(got[:3]).all()
    assert (got[3:] == 1).all()

"""The chunk index read directly equals the library's, and what contradicts itself is refused."""

import h5py
import numpy as np
import pytest
from scanned_values import by_path, scan, source_of

from drystone.errors import ScanError
from drystone.model.chunk_rows import State
from drystone.scan.hdf5 import chunk_index
from drystone.scan.hdf5.chunk_index import ChunkColumns, TooManyChunks, library_columns, tree_columns
from drystone.scan.hdf5.dtypes import UnsupportedType
from drystone.scan.hdf5.heap import GlobalHeap
from drystone.scan.hdf5.object_header import messages, read_fill, read_layout
from drystone.scan.hdf5.opening import opened
from drystone.scan.hdf5.rows import Grid, rows_of
from drystone.scan.hdf5.walk import walk


def open_granule(path):
    source = source_of(path)
    return opened(source.store, source.key, source.address, source.stamp.size)


@pytest.mark.parametrize("block", [0, 1024])
@pytest.mark.parametrize(("shape", "chunk"), [((400, 30), (2, 3)), ((70,), (1,)), ((9, 9, 9, 9), (2, 1, 4, 3)), ((5,), (9,))])
def test_tree_equals_library(tmp_path, shape, chunk, block):
    path = tmp_path / "x.h5"
    rng = np.random.default_rng(1)
    with h5py.File(path, "w", userblock_size=block) as f:
        d = f.create_dataset("v", shape, "<i4", chunks=chunk, compression="gzip", maxshape=(None,) * len(shape))
        # written in no order, with gaps
        for _ in range(400):
            at = tuple(int(rng.integers(0, n)) for n in shape)
            d[at] = int(rng.integers(0, 1000))
        d.id.write_direct_chunk((0,) * len(shape), b"raw" * 5, filter_mask=1)
    with open_granule(path) as file:
        (found,) = walk(file, GlobalHeap(file)).datasets
        layout = read_layout(file, found.header, len(shape))
        assert layout.tree is not None
        assert not layout.unfiltered_edges
        mine = tree_columns(file, layout.tree, len(shape), 10**6)
        library = library_columns(found.dsid, len(shape), 10**6)
    for name in ("start", "offset", "length", "mask"):
        assert np.array_equal(getattr(mine, name), getattr(library, name)), name
    assert mine.mask[0] == 1


def test_limits(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as f:
        f.create_dataset("v", data=np.zeros(3000, "i1"), chunks=(1,))
    with open_granule(path) as file:
        (found,) = walk(file, GlobalHeap(file)).datasets
        tree = read_layout(file, found.header, 1).tree
        with pytest.raises(TooManyChunks):
            tree_columns(file, tree, 1, 2999)
        with pytest.raises(TooManyChunks):
            library_columns(found.dsid, 1, 2999)
        assert len(tree_columns(file, tree, 1, 3000).offset) == 3000
    with pytest.raises(ScanError, match="more than 2999 chunks") as caught:
        scan(path, max_rows=2999)
    assert caught.value.kind == "too-many-rows"


def test_library_index_in_several_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(chunk_index, "_FLUSH", 100)
    path = tmp_path / "x.h5"
    with h5py.File(path, "w", libver="latest") as f:
        f.create_dataset("v", data=np.zeros((50, 21), "i1"), chunks=(1, 2), maxshape=(None, 21))
    with open_granule(path) as file:
        (found,) = walk(file, GlobalHeap(file)).datasets
        columns = library_columns(found.dsid, 2, 10**6)
        with pytest.raises(TooManyChunks):
            library_columns(found.dsid, 2, 149)
    assert len(columns.offset) == 550
    assert columns.start[-1].tolist() == [49, 20]


def test_a_damaged_node_gives_the_walk_back_to_the_library(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as f:
        f.create_dataset("v", data=np.zeros(3000, "i1"), chunks=(1,))
    with open_granule(path) as file:
        (found,) = walk(file, GlobalHeap(file)).datasets
        tree = read_layout(file, found.header, 1).tree
    whole = path.read_bytes()
    for offset, byte in ((0, 0), (4, 9), (5, 200), (6, 255), (7, 255)):
        data = bytearray(whole)
        data[tree + offset] = byte
        path.write_bytes(data)
        with open_granule(path) as file:
            assert tree_columns(file, tree, 1, 10**6) is None
    path.write_bytes(whole[: tree + 100])
    source = source_of(path)
    with pytest.raises(ScanError, match="truncated"), opened(source.store, source.key, source.address, 0):
        pass


def test_object_header_messages(tmp_path):
    path = tmp_path / "x.h5"
    for libver in ("earliest", "latest"):
        with h5py.File(path, "w", libver=libver) as f:
            d = f.create_dataset("v", (10,), "<i4", chunks=(3,), fillvalue=77)
            for i in range(30):  # long enough for continuation blocks
                d.attrs[f"a{i}"] = "x" * 100
        with open_granule(path) as file:
            (found,) = walk(file, GlobalHeap(file)).datasets
            assert np.frombuffer(read_fill(file, found.header), "<i4").tolist() == [77]
            assert read_layout(file, found.header, 1).version == (3 if libver == "earliest" else 4)
            assert read_layout(file, found.header + 7, 1) is None
            # many attributes lie in a heap of their own in the newer format
            assert (len(messages(file, found.header)) > 30) == (libver == "earliest")


def columns(start, offset=None, length=None, mask=None):
    start = np.array(start, np.int64)
    n = len(start)
    return ChunkColumns(
        start,
        np.array(range(100, 100 + 10 * n, 10) if offset is None else offset, np.int64),
        np.array([10] * n if length is None else length, np.int64),
        np.array([0] * n if mask is None else mask, np.int64),
    )


GRID = Grid("/v", (5, 4), (2, 2), 16)


def rows(found, grid=GRID, n_filters=1, limit=10**6, state=State.REFERENCED):
    return rows_of(found, grid, file_size=1000, address="raw:x.nc", n_filters=n_filters, limit=limit, state=state)


def test_order_gaps_and_masks():
    out = rows(columns([[4, 2], [0, 0], [2, 2]], mask=[0, 3, 1]), n_filters=3)
    assert out.rows.coords.T.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]]
    assert out.rows.state.tolist() == [0, 2, 2, 0, 2, 0]
    assert out.rows.offset.tolist() == [110, -1, -1, 120, -1, 100]
    assert out.rows.length.tolist() == [10, 0, 0, 10, 0, 10]
    assert out.masks == {0: 3, 3: 1}
    assert not out.sparse


def test_sparse_beyond_the_limit():
    out = rows(columns([[4, 2], [0, 0]]), limit=5)
    assert out.sparse
    assert out.rows.coords.T.tolist() == [[0, 0], [2, 1]]


def test_library_state_has_no_places():
    out = rows(columns([[0, 0], [4, 2]]), state=State.LIBRARY)
    assert out.rows.state.tolist() == [4, 2, 2, 2, 2, 4]
    assert set(out.rows.offset.tolist()) == {-1}
    assert set(out.rows.length.tolist()) == {0}


def test_chunks_outside_are_left_out_and_counted():
    out = rows(columns([[0, 0], [6, 0], [0, 8]]))
    assert out.outside == 2
    assert (out.rows.state == 0).sum() == 1


@pytest.mark.parametrize(
    ("found", "n_filters", "words"),
    [
        (columns([[0, 0], [0, 0]]), 1, "one chunk twice"),
        (columns([[1, 0]]), 1, "between grid lines"),
        (columns([[0, 0]], length=[0]), 1, "0 bytes"),
        (columns([[0, 0]], length=[15]), 0, "unfiltered chunks of 15 bytes"),
        (columns([[0, 0]], length=[15], mask=[1]), 1, "unfiltered chunks of 15 bytes"),
    ],
)
def test_contradictions_refuse_the_array(found, n_filters, words):
    with pytest.raises(UnsupportedType, match=words) as caught:
        rows(found, n_filters=n_filters)
    assert caught.value.kind == "chunk-index"


@pytest.mark.parametrize(("offset", "length"), [(995, 10), (-5, 10), (2**62, 2**62), (0, -1)])
def test_ranges_beyond_the_file_are_a_truncation(offset, length):
    with pytest.raises(ScanError, match=r"lie beyond the end of the file") as caught:
        rows(columns([[0, 0]], offset=[offset], length=[length]))
    assert caught.value.kind == "truncated"


def test_a_million_rows_stay_columns():
    n = 1000
    start = np.stack(np.meshgrid(np.arange(n), np.arange(n), indexing="ij"), -1).reshape(-1, 2)
    out = rows(columns(start, offset=np.zeros(n * n), length=np.ones(n * n)), Grid("/v", (n, n), (1, 1), 1), limit=10**7)
    assert len(out.rows) == n * n
    assert out.rows.nbytes == n * n * 25


def test_grid_too_large_to_number(tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as f:
        f.create_dataset("wide", (2**33,), "i1", chunks=(1,))
        d = f.create_dataset("deep", (2**40, 2**20), "i1", chunks=(2**10, 2**10))
        d[5 * 2**10, 7 * 2**10] = 1
    result = scan(path)
    assert [(r.path, r.kind) for r in result.refusals] == [("/wide", "chunk-index")]
    deep = by_path(result)["/deep"]
    assert deep.spec.sparse
    assert deep.rows.coords.T.tolist() == [[5, 7]]

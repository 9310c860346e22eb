import pickle
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from unit.fetch.archive import Archive, combined, spec, static

from drystone.codecs.chain import CodecChain
from drystone.errors import GranuleChanged, UnsupportedError
from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import RectilinearDimension, RegularDimension
from drystone.model.array import Dimension, GroupSpec
from drystone.model.attributes import Attributes
from drystone.model.placement import Combined
from drystone.read.dataset import dataset

PACKED = Attributes.of(
    {
        "_FillValue": np.array([-9], "i2"),
        "scale_factor": np.array([0.5], "f4"),
        "units": "K",
        "coordinates": "lat",
        "flags": np.array([1, 2], "i1"),
        "one": np.array([7]),
    }
)


@pytest.fixture
def opened(tmp_path):
    """Three granules of two days, one coordinate kept, one read lazily."""
    archive = Archive(tmp_path)
    one = spec((2, 4), (1, 3), attributes=PACKED)
    lat = replace(spec((4,), (2,), dtype=">f8", path="/lat", chain=CodecChain.of("bytes")), dims=("y",))
    time = replace(spec((2,), (2,), dtype="<i4", path="/t", chain=CodecChain.of("bytes")), dims=("t",))
    time = replace(time, attributes=Attributes.of({"units": "days since 2000-01-01"}))
    whole = np.arange(24, dtype="i2").reshape(6, 4)
    whole[1, 1] = -9
    for g in range(3):
        archive.add(g, one, whole[2 * g : 2 * g + 2])
    archive.add(3, lat, np.array([1.5, 2.5, 3.5, 4.5]))
    placements = [(g, 0, 2, 2 * g, 0) for g in range(3)]
    grid = ChunkGrid((RectilinearDimension((2, 1, 3)), RegularDimension(4, 3)))
    arrays = (combined([one], placements, (6, 4), grid=grid), static(lat, 3), combined([time], placements, (6,)))
    groups = (
        GroupSpec("/", Attributes.of({"title": "°C", "n": np.float32(0.1)}), (Dimension("t", 6, True), Dimension("y", 4))),
    )
    both = Combined(groups, arrays, "t", {"/t": np.arange(6, dtype="i4")})
    return archive, both, whole


def test_values_as_stored_and_attributes_with_their_types(opened):
    archive, both, whole = opened
    fetcher = archive.fetcher()
    ds = dataset(both, fetcher)
    assert isinstance(ds, xr.Dataset)
    assert fetcher.bytes_read == 0  # nothing is read before values are asked for
    assert dict(ds.sizes) == {"t": 6, "y": 4}
    assert list(ds.indexes) == ["t"]
    assert ds["v"].dtype == np.dtype("int16")
    assert np.array_equal(ds["v"].values, whole)
    assert ds["lat"].dtype == np.dtype("float64")
    assert ds["lat"].values.tolist() == [1.5, 2.5, 3.5, 4.5]
    assert ds["t"].values.tolist() == list(range(6))
    attributes = ds["v"].attrs
    assert attributes["_FillValue"].dtype == np.dtype("int16")
    assert (attributes["_FillValue"], attributes["scale_factor"].tobytes()) == (-9, np.float32(0.5).tobytes())
    assert attributes["flags"].tolist() == [1, 2]
    assert attributes["one"].tolist() == [7]
    assert (ds.attrs["title"], ds.attrs["n"].dtype) == ("°C", np.dtype("f4"))
    assert ds.encoding["unlimited_dims"] == {"t"}
    assert ds["v"].encoding["preferred_chunks"] == {"t": (2, 1, 3), "y": 3}


@pytest.mark.parametrize(
    "index",
    [
        {"t": 3},
        {"t": slice(None, None, -2), "y": [3, 0]},
        {"t": [5, 0, 0], "y": slice(1, 3)},
        {"t": xr.DataArray([0, 5, 2], dims="p"), "y": xr.DataArray([3, 0, 1], dims="p")},
    ],
)
def test_lazy_indexing_of_every_kind(opened, index):
    archive, both, whole = opened
    lazy = dataset(both, archive.fetcher())["v"].isel(index)
    want = xr.DataArray(whole, dims=("t", "y")).isel(index)
    assert lazy.shape == want.shape
    assert np.array_equal(lazy.values, want.values)


def test_a_slice_reads_only_its_chunks(opened):
    archive, both, _ = opened
    fetcher = archive.fetcher()
    _ = dataset(both, fetcher)["v"][4, :2].values
    assert fetcher.bytes_decoded == 3 * 2


def test_decoding_is_that_of_xarray(opened):
    archive, both, whole = opened
    ds = dataset(both, archive.fetcher(), decode=True)
    want = np.where(whole == -9, np.nan, whole * 0.5)
    assert np.array_equal(ds["v"].values, want.astype(ds["v"].dtype), equal_nan=True)
    assert ds["t"].values[5] == np.datetime64("2000-01-06")
    assert "lat" in ds.coords
    assert ds["v"].encoding["_FillValue"] == -9


def test_dask_and_pickle(opened):
    pytest.importorskip("dask.array")
    archive, both, whole = opened
    ds = dataset(both, archive.fetcher())
    chunked = ds.chunk(ds["v"].encoding["preferred_chunks"])
    assert chunked["v"].chunks == ((2, 1, 3), (3, 1))
    assert np.array_equal(chunked["v"].compute(scheduler="threads").values, whole)
    assert np.array_equal(pickle.loads(pickle.dumps(ds))["v"].values, whole)


def test_coordinates_are_copies(opened):
    archive, both, _ = opened
    both.coordinates["/lat"] = np.arange(4.0)
    ds = dataset(both, archive.fetcher())
    ds["lat"].values[0] = 99
    assert both.coordinates["/lat"][0] == 0


def test_groups_make_a_tree(opened):
    archive, both, whole = opened
    inner = tuple(replace(a, path="/deep/er" + a.path) for a in both.arrays[:1])
    for scan in list(archive.scans.values())[:3]:
        [one] = scan.arrays
        archive.scans[len(archive.scans) + 10] = scan
        assert one.spec.path == "/v"
    tree = dataset(
        replace(both, arrays=both.arrays[1:], groups=(*both.groups, GroupSpec("/deep", Attributes.of({"k": 1})))),
        archive.fetcher(),
    )
    assert isinstance(tree, xr.DataTree)
    assert tree["deep"].attrs == {"k": 1}
    assert tree["lat"].values.tolist() == [1.5, 2.5, 3.5, 4.5]
    tree = dataset(replace(both, arrays=(*both.arrays, *inner)), archive.fetcher())
    assert tree["deep/er/v"].shape == whole.shape


def test_groups_that_contradict_each_other_are_refused_by_name(opened):
    archive, both, _ = opened
    time = replace(both.arrays[2], path="/g/t", shape=(5,))
    with pytest.raises(UnsupportedError, match="do not fit into one tree"):
        dataset(
            replace(both, arrays=(*both.arrays, time), coordinates={**both.coordinates, "/g/t": np.arange(5)}),
            archive.fetcher(),
        )


def test_errors_come_through_xarray(opened, tmp_path):
    archive, both, _ = opened
    ds = dataset(both, archive.fetcher())
    (tmp_path / "g1.bin").write_bytes(b"other")
    with pytest.raises(GranuleChanged, match=r"g1\.bin changed since it was scanned"):
        _ = ds["v"].values


def test_text(tmp_path):
    archive = Archive(tmp_path)
    one = replace(spec((2,), (2,), dtype=np.dtypes.StringDType(), path="/name", chain=CodecChain.of("vlen-utf8")), dims=("n",))
    archive.add(0, one, np.array(["é", ""], np.dtypes.StringDType()))
    ds = dataset(Combined((), (static(one, 0),), None), archive.fetcher())
    assert ds["name"].values.tolist() == ["é", ""]
    assert ds["name"][0].item() == "é"

"""netCDF-4 files: dimensions, groups, attributes and values against the netCDF library."""

import h5py
import netCDF4
import numpy as np
import pytest
from scanned_values import by_path, scan, values_of


def write_model(path):
    with netCDF4.Dataset(path, "w") as nc:
        nc.createDimension("time", None)
        nc.createDimension("y", 4)
        nc.createDimension("x", 6)
        nc.createDimension("strlen", 5)
        t = nc.createVariable("time", "f8", ("time",))
        t.units = "days since 2000-01-01"
        y = nc.createVariable("y", ">f4", ("y",), endian="big")
        v = nc.createVariable("v", "i2", ("time", "y", "x"), zlib=True, shuffle=True, fill_value=-99, chunksizes=(2, 3, 4))
        v.scale_factor = np.float32(0.01)
        v.valid_range = np.array([-10, 10], "i2")
        s = nc.createVariable("short", "f4", ("time",))
        name = nc.createVariable("name", "S1", ("y", "strlen"))
        label = nc.createVariable("label", str, ("y",))
        crs = nc.createVariable("crs", "i4", ())
        crs.grid_mapping_name = "latitude_longitude"
        for var in (t, y, v, s, name, label, crs):
            var.set_auto_maskandscale(False)
        t[:] = np.arange(5.0)
        y[:] = [1, 2, 3, 4]
        v[:] = np.arange(5 * 24).reshape(5, 4, 6)
        s[:2] = [1, 2]
        name[:] = np.array([list("abcde")] * 4, "S1")
        label[:] = np.array(["a", "", "é", "long " * 50], object)
        crs[:] = 7
        # a variable named like a dimension that it does not run along
        other = nc.createVariable("x", "f4", ("y",))
        other[:] = [9, 8, 7, 6]
        g = nc.createGroup("inner")
        g.createDimension("z", 3)
        w = g.createVariable("w", "f8", ("time", "z", "x"))
        w[:] = np.arange(5 * 18).reshape(5, 3, 6)
        deep = g.createGroup("deep")
        deep.createDimension("y", 2)  # hides the root's
        deep.createVariable("u", "u8", ("y", "z"))[:] = np.arange(6).reshape(2, 3)
        grid = g.createVariable("z", "f4", ("z", "x"))  # a coordinate of two dimensions
        grid[:] = np.arange(18).reshape(3, 6)


def variables(group):
    yield from group.variables.values()
    for child in group.groups.values():
        yield from variables(child)


def path_of(variable):
    folder = variable.group().path
    return f"{folder.rstrip('/')}/{variable.name}"


def groups(group):
    yield group
    for child in group.groups.values():
        yield from groups(child)


def compare(path):
    result = scan(path)
    arrays = by_path(result)
    declared = {g.path: {d.name: (d.size, d.unlimited) for d in g.dimensions} for g in result.groups}
    with netCDF4.Dataset(path) as nc:
        nc.set_auto_maskandscale(False)
        nc.set_auto_chartostring(False)
        found = {path_of(v): v for v in variables(nc)}
        assert arrays.keys() == found.keys()
        for name, variable in found.items():
            spec = arrays[name].spec
            assert spec.dims == variable.dimensions, name
            assert spec.shape == variable.shape, name
            values = np.asarray(variable[...])
            got = values_of(arrays[name], path)
            if values.dtype.kind in "OU":
                assert got.tolist() == values.tolist()
            else:
                assert got.tobytes() == values.astype(values.dtype.newbyteorder("=")).tobytes(), name
            attributes = {k: variable.getncattr(k) for k in variable.ncattrs()}
            same_attributes(spec.attributes, attributes)
        for group in groups(nc):
            dims = {d.name: (len(d), d.isunlimited()) for d in group.dimensions.values()}
            assert declared[group.path] == dims
    return result


def same_attributes(ours, theirs):
    assert list(ours) == list(theirs)
    for key, value in theirs.items():
        got = ours[key].value
        if isinstance(value, str | list):
            assert got == value
        else:
            assert np.asarray(got).dtype == np.asarray(value).dtype, key
            assert np.asarray(got).tobytes() == np.asarray(value).tobytes(), key


def test_model_file(tmp_path):
    path = tmp_path / "m.nc"
    write_model(path)
    result = compare(path)
    assert result.refusals == ()
    assert [w.kind for w in result.warnings] == ["short-axis"]
    assert "/short" in result.warnings[0].reason


def test_coordinates_are_kept(tmp_path):
    path = tmp_path / "m.nc"
    write_model(path)
    arrays = by_path(scan(path))
    kept = {n: a.coordinate for n, a in arrays.items() if a.coordinate is not None}
    assert kept.keys() == {"/time", "/y", "/crs"}
    assert kept["/time"].tolist() == [0, 1, 2, 3, 4]
    assert kept["/y"].dtype == np.dtype("f4")
    assert kept["/y"].dtype.isnative
    assert kept["/crs"].shape == ()


def test_times_along_an_unlimited_dimension_are_kept(tmp_path):
    path = tmp_path / "m.nc"
    with netCDF4.Dataset(path, "w") as nc:
        nc.createDimension("time_counter", None)
        nc.createVariable("time_counter", "f8", ("time_counter",))[:] = [0.0]
        centered = nc.createVariable("time_centered", "f8", ("time_counter",))
        centered.units = "seconds since 1900-01-01"
        centered[:] = [5.0]
        nc.createVariable("depth", "f8", ("time_counter",))[:] = [5.0]
    arrays = by_path(scan(path))
    assert {n for n, a in arrays.items() if a.coordinate is not None} == {"/time_counter", "/time_centered"}


def test_coordinate_shorter_than_its_dimension(tmp_path):
    path = tmp_path / "m.nc"
    with netCDF4.Dataset(path, "w") as nc:
        nc.createDimension("t", None)
        nc.createVariable("t", "f8", ("t",), fill_value=-1.0)[:] = [5.0]
        nc.createVariable("v", "f8", ("t",))[:] = [1.0, 2.0, 3.0]
    result = compare(path)
    assert by_path(result)["/t"].coordinate.tolist() == [5.0, -1.0, -1.0]


def test_unlimited_dimension_without_a_variable(tmp_path):
    path = tmp_path / "m.nc"
    with netCDF4.Dataset(path, "w") as nc:
        nc.createDimension("t", None)
        nc.createDimension("n", 2)
        nc.createVariable("v", "f4", ("t", "n"))[:] = np.ones((3, 2))
    result = compare(path)
    assert result.warnings == ()


def test_attributes_of_every_type(tmp_path):
    path = tmp_path / "m.nc"
    with netCDF4.Dataset(path, "w") as nc:
        v = nc.createVariable("v", "f4", ())
        for i, dtype in enumerate(["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]):
            v.setncattr(f"one{i}", np.dtype(dtype).type(7))
            v.setncattr(f"many{i}", np.arange(3, dtype=dtype))
        v.setncattr("nan", np.array([np.nan, np.inf, -np.inf], "f4"))
        v.setncattr("big", np.uint64(2**64 - 1))
        v.setncattr("empty", "")
        v.setncattr("text", "°C é")
        v.setncattr_string("string", "vlen é")
        v.setncattr("strings", ["a", "", "é"])
        for i in range(20):  # past eight, the library stores attributes another way
            v.setncattr(f"more{i}", np.int32(i))
        nc.title = "t"
    result = compare(path)
    assert result.warnings == ()
    assert list(result.groups[0].attributes) == ["title"]


def test_enum_and_vlen_of_netcdf(tmp_path):
    path = tmp_path / "m.nc"
    with netCDF4.Dataset(path, "w") as nc:
        nc.createDimension("n", 3)
        kind = nc.createEnumType("u1", "cloud", {"clear": 0, "thick": 7})
        nc.createVariable("c", kind, ("n",), fill_value=7)[:] = [0, 7, 0]
        ragged = nc.createVLType("i4", "ragged")
        v = nc.createVariable("r", ragged, ("n",))
        v[0] = np.arange(3, dtype="i4")
    result = scan(path)
    assert [(r.path, r.kind) for r in result.refusals] == [("/r", "variable-length")]
    assert values_of(by_path(result)["/c"], path).tolist() == [0, 7, 0]


def test_phony_dimensions(tmp_path):
    path = tmp_path / "p.h5"
    with h5py.File(path, "w") as f:
        f["a"] = np.zeros((3, 4))
        f["b"] = np.zeros((5, 4))
        f["square"] = np.zeros((4, 4))
        f.create_dataset("grows", data=np.zeros((3,)), maxshape=(None,))
        f["g/c"] = np.zeros((3,))
    result = scan(path)
    dims = {n: a.spec.dims for n, a in by_path(result).items()}
    assert dims["/a"][1] == dims["/b"][1] == dims["/square"][0]
    assert dims["/a"][0] != dims["/b"][0]
    assert len(set(dims["/square"])) == 2
    assert dims["/grows"][0] != dims["/a"][0]
    sizes = [{d.name: d.size for d in g.dimensions} for g in result.groups]
    assert sorted(sizes[0].values()) == [3, 3, 4, 4, 5]
    assert list(sizes[1].values()) == [3]
    assert not sizes[0].keys() & sizes[1].keys()


def test_scales_of_plain_hdf5(tmp_path):
    path = tmp_path / "p.h5"
    with h5py.File(path, "w") as f:
        f["lat"] = np.arange(3.0)
        f["lat"].make_scale("some other label")
        f["alt"] = np.arange(3.0)
        f["alt"].make_scale()
        f["lonely"] = np.arange(7.0)
        f["lonely"].make_scale()
        f["v"] = np.zeros((3, 2))
        f["v"].dims[0].attach_scale(f["lat"])
        f["v"].dims[0].attach_scale(f["alt"])
        f["far/w"] = np.zeros((3,))
        f["far/w"].dims[0].attach_scale(f["lat"])
        f["sib/s"] = np.arange(4.0)
        f["sib/s"].make_scale()
        f["far/x"] = np.zeros((4,))
        f["far/x"].dims[0].attach_scale(f["sib/s"])
        f["wrong"] = np.zeros((5,))
        f["wrong"].dims[0].attach_scale(f["lat"])
    result = scan(path)
    dims = {n: a.spec.dims for n, a in by_path(result).items()}
    assert dims["/lat"] == ("lat",)
    assert dims["/lonely"] == ("lonely",)
    assert dims["/v"][0] == "lat"
    assert dims["/far/w"] == ("lat",)
    assert dims["/far/x"] == ("s",)
    assert dims["/wrong"][0].startswith("phony_dim_")
    assert [w.kind for w in result.warnings] == ["dimensions"]
    assert "5 elements along lat, which has 3" in result.warnings[0].reason
    declared = {g.path: {d.name for d in g.dimensions} for g in result.groups}
    assert "s" in declared["/far"]
    # the format's own attributes are not the user's
    assert all(not a.spec.attributes for a in by_path(result).values())


@pytest.mark.parametrize("asked", [("v",), ("/inner/w",)])
def test_only_wanted_variables_and_their_coordinates(tmp_path, asked):
    path = tmp_path / "m.nc"
    write_model(path)
    got = by_path(scan(path, variables=asked)).keys()
    assert got == ({"/v", "/time", "/y", "/x"} if asked == ("v",) else {"/inner/w", "/time", "/inner/z", "/x", "/y"})

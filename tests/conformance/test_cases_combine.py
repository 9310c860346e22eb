"""Cases of files that differ, from public bug reports: joined exactly in every form, or refused in the words of the case."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr
from e2e.combining import FORMS, ICECHUNK, STORE, VIRTUAL, eras, joined, publish, same, tree_of
from zarr.registry import register_codec

import drystone
from drystone.codecs.crop import CropCodec
from drystone.errors import CombineError, DrystoneError

# fsspec reads Parquet references with fastparquet, which pandas 3 warns about
pytestmark = pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated")

CASES = Path(__file__).parent.parent / "data" / "cases"
RAW = {"mask_and_scale": False, "decode_times": False}


class Case:
    """A copy of a case's files, or of those that are named, and what is right."""

    def __init__(self, case_id: str, folder: Path, *names: str) -> None:
        source = next(CASES.glob(f"{case_id}_*"))
        said = json.loads((source / "case.json").read_text())
        self.expected = said["expected"]
        self.folder = folder
        for name in names or said["files"]:
            shutil.copy(source / name, folder)
        with np.load(source / "expected.npz") as values:
            self.values = dict(values)

    @property
    def files(self) -> str:
        return str(self.folder / "*.nc")


def refusal(case: Case, form: str, combine: dict | None = None, array: str = "/sst") -> str:
    """What is said of an array that a virtual output leaves out, whether or not something else is left to publish."""
    try:
        report = publish(case.folder, form, combine)
    except DrystoneError as error:
        return str(error)
    return dict(report.outputs[0].refused)[array]


def says(text: object, words: list[str]) -> bool:
    return all(word in str(text) for word in words)


@pytest.fixture
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    return Case(request.param, tmp_path)


@pytest.mark.parametrize("case", ["C01"], indirect=True)
def test_c01_a_seam_inside_a_chunk(case: Case) -> None:
    want = case.values["sst__rechunked"]
    same(drystone.open(case.files)["sst"].values, want)
    publish(case.folder, STORE)
    same(joined(case.folder, STORE, "sst", "time", **RAW).values, want)
    for form in VIRTUAL:
        assert says(refusal(case, form), case.expected["message"])


@pytest.mark.parametrize("case", ["C01"], indirect=True)
def test_c01_cropped_for_readers_that_have_drystone(case: Case) -> None:
    report = publish(case.folder, ICECHUNK, crop=True, grid="rectilinear")
    assert report.outputs[0].refused == ()
    register_codec("drystone.crop", CropCodec)
    with zarr.config.set({"array.rectilinear_chunks": True}):
        same(joined(case.folder, ICECHUNK, "sst", "time", **RAW).values, case.values["sst__rechunked"])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", ["C02"], indirect=True)
def test_c02_a_short_last_file_is_no_reason_to_refuse(case: Case, form: str) -> None:
    assert publish(case.folder, form).outputs[0].refused == ()
    same(joined(case.folder, form, "sst", "time", **RAW).values, case.values["sst"])
    same(drystone.open(case.files)["sst"].values, case.values["sst"])


@pytest.mark.parametrize("case", ["C03"], indirect=True)
def test_c03_each_file_has_its_own_packing(case: Case) -> None:
    want, tolerance = case.values["sst__decoded"], case.expected["tolerance"]
    for how in ({}, {"values": "decoded"}):
        publish(case.folder, STORE, **how)
        np.testing.assert_allclose(joined(case.folder, STORE, "sst", "time").values, want, rtol=0, atol=tolerance)
        shutil.rmtree(case.folder / "out")
    np.testing.assert_allclose(drystone.open(case.files, decode=True)["sst"].values, want, rtol=0, atol=tolerance)
    for form in VIRTUAL:
        assert says(refusal(case, form), case.expected["message"])


@pytest.mark.parametrize("form", VIRTUAL)
@pytest.mark.parametrize("case", ["C03"], indirect=True)
def test_c03_as_eras(case: Case, form: str) -> None:
    publish(case.folder, form, {"differences": {"packing": "era"}})
    got = joined(case.folder, form, "sst", "time").values
    np.testing.assert_allclose(got, case.values["sst__decoded"], rtol=0, atol=case.expected["tolerance"])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", ["C04"], indirect=True)
def test_c04_each_file_counts_from_its_own_day(case: Case, form: str) -> None:
    want = np.array(case.expected["strings"]["time"], "M8[s]")
    assert publish(case.folder, form).outputs[0].refused == ()
    same(joined(case.folder, form, "sst", "time", **RAW).values, case.values["sst"])
    for dataset in (tree_of(case.folder, form).to_dataset(), drystone.open(case.files, decode=True)):
        np.testing.assert_array_equal(dataset["time"].values.astype("M8[s]"), want)


@pytest.mark.parametrize("form", VIRTUAL)
def test_c06_another_level_is_no_difference(form: str, tmp_path: Path) -> None:
    case = Case("C06", tmp_path, "a.nc", "b.nc")
    assert publish(tmp_path, form).outputs[0].refused == ()
    assert eras(tree_of(tmp_path, form)) == []
    same(joined(tmp_path, form, "sst", "time", **RAW).values, case.values["ab__virtual"])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", ["C06"], indirect=True)
def test_c06_eras_hold_what_one_array_cannot(case: Case, form: str) -> None:
    assert publish(case.folder, form).outputs[0].refused == ()
    found = eras(tree_of(case.folder, form))
    assert found == ([] if form == STORE else ["era-1", "era-2-codecs", "era-3-chunk-size-along-y-codecs"])
    same(joined(case.folder, form, "sst", "time", **RAW).values, case.values["all__rechunked"])
    same(drystone.open(case.files)["sst"].values, case.values["all__rechunked"])


@pytest.mark.parametrize(("name", "words"), [("c.nc", "message"), ("e.nc", "message2")])
def test_c06_refused_where_the_config_says_so(name: str, words: str, tmp_path: Path) -> None:
    case = Case("C06", tmp_path, "a.nc", "b.nc", name)
    with pytest.raises(CombineError) as caught:
        publish(tmp_path, ICECHUNK, {"differences": {"codec": "refuse"}})
    assert says(caught.value, case.expected[words])
    assert says(refusal(case, ICECHUNK, {"differences": {"codec": "rechunk"}}), case.expected[words])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", ["C07"], indirect=True)
def test_c07_a_granule_without_the_variable(case: Case, form: str) -> None:
    assert publish(case.folder, form).outputs[0].refused == ()
    same(joined(case.folder, form, "sst", "time", **RAW).values, case.values["sst"])
    same(drystone.open(case.files)["sst"].values, case.values["sst"])
    with pytest.raises(CombineError) as caught:
        publish(case.folder, form, {"differences": {"missing_variable": "refuse"}})
    assert says(caught.value, case.expected["message"])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", ["C09"], indirect=True)
@pytest.mark.parametrize("keep", ["last", "first"])
def test_c09_order_is_of_time_and_a_policy_decides_duplicates(case: Case, form: str, keep: str) -> None:
    # by name a_second, m_overlap, z_first, z_first_copy: of the day that two files hold, last keeps m_overlap's
    want = case.values[f"sst__keep_{keep}"]
    assert publish(case.folder, form, {"duplicates": keep}).outputs[0].refused == ()
    same(joined(case.folder, form, "sst", "time", **RAW).values, want)
    same(tree_of(case.folder, form, **RAW)["time"].values, case.values["time"])
    dataset = drystone.open(case.files, duplicates=keep)
    same(dataset["sst"].values, want)
    same(dataset["time"].values, case.values["time"])


def test_c09_duplicates_are_refused_by_default(tmp_path: Path) -> None:
    case = Case("C09", tmp_path, "a_second.nc", "m_overlap.nc", "z_first.nc")
    for attempt in (lambda: drystone.open(case.files), lambda: publish(tmp_path, STORE)):
        with pytest.raises(CombineError) as caught:
            attempt()
        assert says(caught.value, case.expected["message"])


@pytest.mark.parametrize("form", FORMS)
def test_c10_one_calendar_by_two_names(form: str, tmp_path: Path) -> None:
    case = Case("C10", tmp_path, "a_noleap.nc", "b_noleap.nc")
    assert publish(tmp_path, form).outputs[0].refused == ()
    same(joined(tmp_path, form, "sst", "time", **RAW).values, case.values["ab__virtual"])
    for dataset in (tree_of(tmp_path, form).to_dataset(), drystone.open(case.files, decode=True)):
        assert [t.isoformat() for t in dataset["time"].values] == case.expected["strings"]["time_ab"]
        assert dataset["time"].dt.calendar == "noleap"


@pytest.mark.parametrize("case", ["C10"], indirect=True)
def test_c10_calendars_are_never_mixed(case: Case) -> None:
    attempts = [lambda: drystone.open(case.files)]
    attempts += [lambda form=form: publish(case.folder, form) for form in FORMS]
    for attempt in attempts:
        with pytest.raises(CombineError) as caught:
            attempt()
        assert says(caught.value, case.expected["message"])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", ["C16"], indirect=True)
def test_c16_a_chunk_longer_than_the_coordinate(case: Case, form: str) -> None:
    assert publish(case.folder, form).outputs[0].refused == ()
    tree = tree_of(case.folder, form, **RAW)
    dataset = drystone.open(case.files)
    for name in ("e", "time"):
        same(tree[name].values, case.values[name])
        same(dataset[name].values, case.values[name])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", ["C18"], indirect=True)
def test_c18_static_arrays_appear_once_or_are_refused_by_name(case: Case, form: str) -> None:
    for attempt in (lambda: drystone.open(case.files), lambda: publish(case.folder, form)):
        with pytest.raises(CombineError) as caught:
            attempt()
        assert says(caught.value, case.expected["message"])
    first = {"differences": {"static": "first"}}
    assert publish(case.folder, form, first).outputs[0].refused == ()
    for found in (tree_of(case.folder, form, **RAW).to_dataset(), drystone.open(case.files, **first)):
        assert isinstance(found, xr.Dataset)
        same(found["v"].values, case.values["v"])
        same(found["lat2d"].values, case.values["lat2d"])
        same(found["mask"].values, case.values["mask__from_a"])
        assert found["crs"].dims == ()
        assert found["crs"].attrs["grid_mapping_name"] == "lambert_conformal_conic"

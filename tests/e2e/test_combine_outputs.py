"""What ``benchmarks/kinds.py`` writes, in every form: values as the kind says, or a refusal; slots, versions, new axes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import xarray as xr
from e2e.combining import FORMS, ICECHUNK, KERCHUNK, STORE, VIRTUAL, eras, joined, publish, same, tree_of, write_config

import drystone
from drystone.errors import CombineError, DrystoneError

# fsspec reads Parquet references with fastparquet, which pandas 3 warns about
pytestmark = pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated")

RAW = {"mask_and_scale": False, "decode_times": False}
REFUSED_AS_REFERENCES = {"type", "seam", "packing", "unsigned", "fill"}
AS_ERAS = {"deflate", "shuffle", "chunks", "byte order"}
SLOTS = {"along": {"time": {"axis": "slots", "step": "1D"}}}


def load_kinds() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "kinds.py"
    spec = importlib.util.spec_from_file_location("kinds", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["kinds"] = module
    spec.loader.exec_module(module)
    return module


kinds = load_kinds()
JOINED = [k for k in kinds.KINDS if k.name not in ("units", "calendar", "shifted grid", "static", "overlap")]
NO_ANSWER = [k for k in kinds.KINDS if k not in JOINED]


def compare(array: xr.DataArray, values: np.ndarray, times: list[str]) -> None:
    np.testing.assert_allclose(array.values.astype("f8"), values, rtol=1e-12, atol=0)
    assert [np.datetime64(t, "s") for t in times] == array["time"].values.astype("M8[s]").tolist()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", JOINED, ids=lambda k: k.name)
def test_a_kind_is_joined_exactly_or_refused_as_references(kind, form: str, tmp_path: Path) -> None:
    values, times = kind.write(tmp_path)
    compare(drystone.open(tmp_path / "*.nc", decode=True)["v"], values, times)
    if form in VIRTUAL and kind.name in REFUSED_AS_REFERENCES:
        with pytest.raises(DrystoneError, match=r"/v: .*a\.nc"):
            publish(tmp_path, form)
        assert not (tmp_path / "out").exists() or not list((tmp_path / "out").glob("*.parq"))
        return
    assert publish(tmp_path, form).outputs[0].refused == ()
    assert bool(eras(tree_of(tmp_path, form))) == (form in VIRTUAL and kind.name in AS_ERAS)
    compare(joined(tmp_path, form, "v", "time"), values, times)


@pytest.mark.parametrize("kind", NO_ANSWER, ids=lambda k: k.name)
def test_a_kind_without_one_answer_is_refused_by_both_names(kind, tmp_path: Path) -> None:
    kind.write(tmp_path)
    attempts = [lambda: drystone.open(tmp_path / "*.nc"), *(lambda form=form: publish(tmp_path, form) for form in FORMS)]
    for attempt in attempts:
        with pytest.raises(CombineError, match=r"a\.nc.*b\.nc"):
            attempt()


def test_eras_are_whole_datasets(tmp_path: Path) -> None:
    values, _ = next(k for k in kinds.KINDS if k.name == "shuffle").write(tmp_path)
    publish(tmp_path, ICECHUNK)
    tree = tree_of(tmp_path, ICECHUNK)
    assert eras(tree) == ["era-1", "era-2-codecs"]
    for n, name in enumerate(eras(tree)):
        era = tree[name].to_dataset()  # y and x are the root's, and inherited
        assert set(era.variables) == {"time", "y", "x", "v"}
        np.testing.assert_array_equal(era["v"].values, values[2 * n : 2 * n + 2])


@pytest.mark.parametrize("form", FORMS)
def test_slots_hold_a_gap_until_its_granule_comes_late(form: str, tmp_path: Path) -> None:
    kinds.write(tmp_path / "b.nc", 0, fill=-99)
    kinds.write(tmp_path / "a.nc", 4, fill=-99)
    publish(tmp_path, form, SLOTS, coverage=True)
    found = tree_of(tmp_path, form).to_dataset()
    want = np.concatenate([kinds.raw(0), np.full((2, 4, 6), -99, "i2"), kinds.raw(4)])
    same(joined(tmp_path, form, "v", "time", **RAW).values, want)
    assert np.isnan(found["v"].values[2:4]).all()
    covered = [n for n in found.data_vars if "coverage" in n]
    assert covered
    assert all(found[n].values.astype(bool).tolist() == [True, True, False, False, True, True] for n in covered)
    kinds.write(tmp_path / "z.nc", 2, fill=-99)
    publish(tmp_path, form, SLOTS, coverage=True)
    same(joined(tmp_path, form, "v", "time", **RAW).values, kinds.raw(0, 6))


@pytest.mark.parametrize("form", [STORE, ICECHUNK])
def test_the_origin_is_kept_when_an_earlier_granule_comes(form: str, tmp_path: Path) -> None:
    kinds.write(tmp_path / "b.nc", 4, fill=-99)
    publish(tmp_path, form, SLOTS)
    assert len(list(tmp_path.rglob("axes.json"))) == 1
    kinds.write(tmp_path / "a.nc", 0, fill=-99)
    with pytest.raises(DrystoneError, match=r"a\.nc"):
        publish(tmp_path, form, SLOTS)
    same(joined(tmp_path, form, "v", "time", **RAW).values, kinds.raw(4))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("delete", [True, False], ids=["preliminary deleted", "preliminary kept"])
def test_the_final_replaces_the_preliminary_once(form: str, delete: bool, tmp_path: Path) -> None:
    more = "archive: {granules: 'raw:*.nc', versions: {of: '{stem}_preliminary'}}\n"

    def run() -> None:
        config = write_config(tmp_path, form, SLOTS)
        config.write_text(config.read_text().replace('granules: "raw:*.nc"\n', more))
        drystone.run(config, accept_changes=True)

    kinds.write(tmp_path / "sst1.nc", 0, fill=-99)
    kinds.write(tmp_path / "sst2_preliminary.nc", 2, fill=-99, values=kinds.raw(40))
    run()
    same(joined(tmp_path, form, "v", "time", **RAW).values, np.concatenate([kinds.raw(0), kinds.raw(40)]))
    kinds.write(tmp_path / "sst2.nc", 2, fill=-99)
    if delete:
        (tmp_path / "sst2_preliminary.nc").unlink()
    run()
    same(joined(tmp_path, form, "v", "time", **RAW).values, kinds.raw(0, 4))


@pytest.mark.parametrize("form", FORMS)
def test_two_axes_one_of_them_new_by_name(form: str, tmp_path: Path) -> None:
    for member in (1, 2):
        for start in (0, 2):
            kinds.write(tmp_path / f"m{member}_{start}.nc", start, values=kinds.raw(start + 10 * member))
    along = {"time": "coordinate", "member": {"position": "name", "pattern": "m([0-9]+)_"}}
    publish(tmp_path, form, {"along": along})
    want = np.stack([kinds.raw(10, 4), kinds.raw(20, 4)])
    found = tree_of(tmp_path, form, **RAW).to_dataset()
    assert found["v"].dims == ("member", "time", "y", "x")
    same(found["v"].values, want)
    assert found["member"].values.tolist() == [1, 2]
    same(drystone.open(tmp_path / "*.nc", along=along)["v"].values, want)


@pytest.mark.parametrize("form", FORMS)
def test_a_new_axis_by_a_scalar_coordinate(form: str, tmp_path: Path) -> None:
    for name, level in (("a", 850), ("b", 500)):

        def more(f, level=level):
            f["level"] = np.int32(level)

        kinds.write(tmp_path / f"{name}.nc", 0, values=kinds.raw(level), more=more)
    publish(tmp_path, form, {"along": "level"})
    found = tree_of(tmp_path, form, **RAW).to_dataset()
    assert found["level"].values.tolist() == [500, 850]
    same(found["v"].values, np.stack([kinds.raw(500), kinds.raw(850)]))


@pytest.mark.parametrize("form", FORMS)
def test_a_mosaic(form: str, tmp_path: Path) -> None:
    whole = np.arange(2 * 8 * 6).reshape(2, 8, 6).astype("i2")
    for n, name in enumerate(("b", "a")):
        kinds.write(tmp_path / f"{name}.nc", 0, values=whole[:, 4 * n : 4 * n + 4], y=np.arange(4, dtype="f8") + 4 * n)
    publish(tmp_path, form, {"mosaic": {"y": "coordinate"}})
    same(tree_of(tmp_path, form, **RAW)["v"].values, whole)


@pytest.mark.parametrize("form", [STORE, ICECHUNK, KERCHUNK])
def test_groups(form: str, tmp_path: Path) -> None:
    for name, start in (("a", 0), ("b", 2)):

        def more(f, start=start):
            f["deep/w"] = kinds.raw(start + 50)
            for i, dim in enumerate(("time", "y", "x")):
                f["deep/w"].dims[i].attach_scale(f[dim])

        kinds.write(tmp_path / f"{name}.nc", start, more=more)
    publish(tmp_path, form)
    same(tree_of(tmp_path, form, **RAW)["deep/w"].values, kinds.raw(50, 4))
    tree = drystone.open(tmp_path / "*.nc")
    assert isinstance(tree, xr.DataTree)
    same(tree["deep/w"].values, kinds.raw(50, 4))

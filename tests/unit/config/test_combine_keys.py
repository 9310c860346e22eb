"""The keys of combining: what they mean, in YAML and in Python, and what is said where they make no sense."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pytest

from drystone.config.load import load_config, read_config
from drystone.config.python import combine_fields
from drystone.errors import ConfigError
from drystone.model.options import (
    AxisOptions,
    CombineOptions,
    DifferenceOptions,
    Selection,
    VersionOptions,
)

HEAD = "name: sst\ngranules: raw/*.nc\noutputs: [{virtual: icechunk, at: a}]\n"


def combined(folder: Path, text: str) -> CombineOptions:
    path = folder / "a.yaml"
    path.write_text(f"{HEAD}combine: {text}\n", encoding="utf-8")
    return load_config(path).combine


def told(folder: Path, text: str, head: str = HEAD) -> list[str]:
    path = folder / "a.yaml"
    path.write_text(f"{head}{text}\n", encoding="utf-8")
    config, problems = read_config(str(path))
    assert (config is None) == bool(problems)
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert all(1 <= p.line <= lines for p in problems)
    return [f"{p.where}: {p.expected} | {p.found} | {p.hint}" for p in problems]


SLOTS = AxisOptions("time", axis="slots", step="1D")


@pytest.mark.parametrize(
    ("written", "axes"),
    [
        ("time", (AxisOptions("time"),)),
        ("[time, y]", (AxisOptions("time"), AxisOptions("y"))),
        ("{time: {}}", (AxisOptions("time"),)),
        ("{time: order, x: coordinate}", (AxisOptions("time", "order"), AxisOptions("x"))),
        ("{time: {axis: slots, step: 1D}}", (SLOTS,)),
        ("{time: {axis: slots, step: '1 D'}}", (SLOTS,)),
        (
            "{time: {axis: slots, step: 1M, origin: 1981-09, stop: 2024-01-01T12:00Z}}",
            (AxisOptions("time", axis="slots", step="1M", origin="1981-09", stop="2024-01-01T12:00Z"),),
        ),
        (
            "{t: {axis: slots, step: 1D, origin: 1981, stop: 1990-06-01}}",
            (AxisOptions("t", axis="slots", step="1D", origin=1981, stop="1990-06-01"),),
        ),
        ("{t: {axis: slots, step: 1Y, origin: 2000-02-30}}", (AxisOptions("t", axis="slots", step="1Y", origin="2000-02-30"),)),
        (
            "{lat: {axis: slots, step: -0.25, origin: 90, stop: -90}}",
            (AxisOptions("lat", axis="slots", step=-0.25, origin=90, stop=-90),),
        ),
        (
            "{run: {position: name, pattern: '_(r[0-9]+)_'}, lead: {position: attribute, attribute: lead_time}}",
            (AxisOptions("run", "name", "_(r[0-9]+)_"), AxisOptions("lead", "attribute", attribute="lead_time")),
        ),
        (
            "{run: {position: attribute, attribute: started, pattern: 'run %Y-%m-%d'}}",
            (AxisOptions("run", "attribute", "run %Y-%m-%d", "started"),),
        ),
    ],
)
def test_along(tmp_path: Path, written: str, axes: tuple[AxisOptions, ...]) -> None:
    assert combined(tmp_path, f"{{along: {written}}}") == CombineOptions(axes)


def test_mosaic_is_along_and_overlap(tmp_path: Path) -> None:
    short = combined(tmp_path, "{mosaic: {y: coordinate, x: {position: name, pattern: 'x([0-9]+)'}, overlap: last}}")
    long = combined(tmp_path, "{along: {y: {}, x: {position: name, pattern: 'x([0-9]+)'}}, overlap: last}")
    assert short == long
    assert [a.name for a in long.along] == ["y", "x"]
    assert [a.name for a in combined(tmp_path, "{along: time, mosaic: {y: order}}").along] == ["time", "y"]


def test_differences(tmp_path: Path) -> None:
    assert combined(tmp_path, "{differences: {}}").differences == DifferenceOptions()
    text = (
        "{codec: refuse, packing: era, fill: refuse, dtype: era, units: first, time: refuse, attributes: first, "
        "missing_variable: era, static: first, coordinates: {tolerance: 1e-5}}"
    )
    found = combined(tmp_path, f"{{differences: {text}}}").differences
    assert found == DifferenceOptions(
        "refuse", "era", "refuse", "era", "first", "refuse", "first", "era", "first", coordinate_tolerance=1e-5
    )


def test_policies(tmp_path: Path) -> None:
    found = combined(tmp_path, "{duplicates: newest, overlap: first, gaps: error}")
    assert (found.duplicates, found.overlap, found.gaps) == ("newest", "first", "error")


SELECTIONS = [
    ("0", 0, Selection("value", (0,))),
    ("-0.5", -0.5, Selection("value", (-0.5,))),
    ("2001-01-16", "2001-01-16", Selection("value", ("2001-01-16",))),
    ("historical", "historical", Selection("value", ("historical",))),
    ("[-80, 80]", [-80, 80], Selection("range", (-80, 80))),
    ("[null, 80]", [None, 80], Selection("range", (None, 80))),
    ("{from: 1981, to: 2000-06, step: 2}", slice(1981, "2000-06", 2), Selection("range", (1981, "2000-06"), 2)),
    ("{from: 1981-05, to: '1981'}", slice("1981-05", "1981"), Selection("range", ("1981-05", "1981"))),
    ("{from: -80}", slice(-80, None), Selection("range", (-80, None))),
    ("{step: 4}", {"step": 4}, Selection("slice", (None, None), 4)),
    ("{values: [0, 2.5]}", {"values": np.array([0, 2.5])}, Selection("values", (0, 2.5))),
    ("{index: 3}", {"index": np.int64(3)}, Selection("index", (3,))),
    ("{index: -1}", {"index": -1}, Selection("index", (-1,))),
    ("{index: [5, 0]}", {"index": (5, 0)}, Selection("list", (5, 0))),
    ("{index: {start: 2, stop: 9, step: 3}}", {"index": {"start": 2, "stop": 9, "step": 3}}, Selection("slice", (2, 9), 3)),
    ("{index: {stop: -1}}", {"index": {"stop": -1}}, Selection("slice", (None, -1))),
    ("{points: [10.5, 11]}", {"points": [10.5, 11]}, Selection("point_values", (10.5, 11))),
    ("{points: {index: [4, 4]}}", {"points": {"index": [4, 4]}}, Selection("points", (4, 4))),
]


@pytest.mark.parametrize(("written", "given", "meant"), SELECTIONS, ids=lambda v: str(v)[:30])
def test_select_in_yaml_and_in_python(tmp_path: Path, written: str, given: object, meant: Selection) -> None:
    as_yaml = combined(tmp_path, f"{{select: {{x: {written}}}}}").select
    as_python = combine_fields({"select": {"x": given}})["select"]
    if isinstance(given, slice) and given.step is None:
        meant = Selection(meant.kind, meant.values)
    assert (dict(as_yaml), as_python) == ({"x": meant}, {"x": meant})


def test_versions(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    for of in ("{stem}_preliminary", "{stem}_v{version}", "v{version}-{stem}"):
        path.write_text(HEAD.replace("granules:", f'archive: {{versions: {{of: "{of}"}}, granules:').replace(".nc", ".nc}"))
        assert load_config(path).versions == VersionOptions(of)


def test_outputs(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "name: sst\ngranules: raw/*.nc\noutputs:\n"
        "- {virtual: icechunk, at: a, grid: rectilinear, crop: true, coverage: true}\n"
        "- {store: zarr, at: b, values: decoded, grid: regular, coverage: true}\n"
        "- {virtual: kerchunk-parquet, at: c, grid: regular, crop: false, coverage: true}\n"
    )
    virtual, store, parquet = load_config(path).outputs
    assert (virtual.grid, virtual.crop, virtual.coverage, virtual.values) == ("rectilinear", True, True, "auto")
    assert (store.grid, store.crop, store.coverage, store.values) == ("regular", False, True, "decoded")
    assert (parquet.grid, parquet.crop, parquet.coverage) == ("regular", False, True)


@pytest.mark.parametrize(
    ("written", "where", "said"),
    [
        # axes
        ("along: {t: {axis: slots}}", "along.t.step", "such as step: 1D"),
        ("along: {t: {axis: slot}}", "along.t.axis", "did you mean slots?"),
        ("along: {t: {axis: slots, step: 0}}", "along.t.step", "a number but 0 or a duration"),
        ("along: {t: {axis: slots, step: 1d}}", "along.t.step", "did you mean D?"),
        ("along: {t: {axis: slots, step: 1 month}}", "along.t.step", "did you mean M?"),
        ("along: {t: {axis: slots, step: 0.5M}}", "along.t.step", "whole numbers"),
        ("along: {t: {axis: slots, step: daily}}", "along.t.step", "such as 1D"),
        ("along: {t: {axis: slots, step: 1D, origin: first}}", "along.t.origin", "1981-09-01"),
        ("along: {t: {axis: slots, step: 1D, origin: 1981-13-01}}", "along.t.origin", "no month 13"),
        ("along: {t: {axis: slots, step: 1D, origin: 12}}", "along.t.origin", "a time, as step is 1D"),
        ("along: {t: {axis: slots, step: 1D, origin: 1990-01-01, stop: 1981-01-01}}", "along.t.stop", "stop is excluded"),
        ("along: {t: {axis: slots, step: 2, origin: 0, stop: 0}}", "along.t.stop", "beyond origin, 0"),
        ("along: {t: {axis: slots, step: -2, origin: 0, stop: 4}}", "along.t.stop", "beyond origin, 0"),
        ("along: {t: {axis: slots, step: 2, origin: 0, stop: 1981-01-01}}", "along.t.stop", "two numbers or two times"),
        ("along: {t: {axis: slots, step: 1D, position: order}}", "along.t.position", "an order has no values"),
        ("along: {t: {axis: slots, step: 1D, position: name, pattern: 'a([0-9]+)'}}", "along.t.step", "a strptime pattern"),
        ("along: {t: {step: 1D}}", "along.t.step", "add axis: slots"),
        ("along: {t: {axis: sequence, origin: 1}}", "along.t.origin", "add axis: slots"),
        ("along: {t: {position: attribute}}", "along.t.attribute", "as position is attribute"),
        ("along: {t: {attribute: x}}", "along.t.attribute", "add position: attribute"),
        ("along: {t: {position: order, pattern: x}}", "along.t.pattern", "add position: name"),
        ("along: {t: {position: attribute, attribute: a, pattern: 'x'}}", "along.t.pattern", "0 groups in 'x'"),
        ("along: {t: names}", "along.t", "did you mean name?"),
        ("along: [t, t]", "along[1]", "it is in combine.along[0] already"),
        ("along: []", "along", "an empty list"),
        ("along: t\n  mosaic: {t: coordinate}", "mosaic.t", "it is in combine.along already"),
        ("mosaic: {overlap: last}", "mosaic", "only overlap"),
        ("mosaic: {y: coordinate, overlap: cut}", "mosaic.overlap", "error, first, last, crop"),
        ("mosaic: {y: coordinate, x: order, overlap: last}\n  overlap: first", "mosaic.overlap", "keep one of them"),
        # policies
        ("differences: {codec: fill}", "differences.codec", "era, rechunk, refuse"),
        ("differences: {packing: fill}", "differences.packing", "rechunk, era, first, refuse"),
        ("differences: {fill: fill}", "differences.fill", "rechunk, widen, era, refuse"),
        ("differences: {time: first}", "differences.time", "rechunk, era, refuse"),
        ("differences: {static: era}", "differences.static", "refuse or first"),
        ("differences: {unit: first}", "differences.unit", "did you mean units?"),
        ("differences: {coordinates: {tolerance: -1}}", "differences.coordinates.tolerance", "at least 0"),
        ("differences: {coordinates: {tolerance: .nan}}", "differences.coordinates.tolerance", "nan"),
        ("differences: {coordinates: 1e-5}", "differences.coordinates", "tolerance"),
        ("duplicates: latest", "duplicates", "error, first, last, newest"),
        ("gaps: errors", "gaps", "did you mean error?"),
        ("revisions: replace", "revisions", "not yet available"),
        # selections
        ("select: {x: [1, 2, 3]}", "select.x", "for single places write {values: […]}"),
        ("select: {x: [80, -80]}", "select.x", "[-80, 80]: the lower end first"),
        ("select: {x: {from: 2001-05, to: 2001-04-30}}", "select.x", "the lower end first"),
        ("select: {x: [null, null]}", "select.x", "two open ends"),
        ("select: {x: [true, 1]}", "select.x[0]", "a coordinate's value"),
        ("select: {x: true}", "select.x", "a coordinate's value"),
        ("select: {x: .inf}", "select.x", "a number | inf"),
        ("select: {x: {}}", "select.x", "take it out for all of it"),
        ("select: {x: {values: [1], index: 2}}", "select.x", "values and index"),
        ("select: {x: {values: [1], step: 2}}", "select.x", "values and step"),
        ("select: {x: {index: 0, step: 2}}", "select.x", "index: {step: 2}"),
        ("select: {x: {index: 1.5}}", "select.x.index", "a whole number"),
        ("select: {x: {index: {start: 4, stop: 4}}}", "select.x.index.stop", "stop is excluded"),
        ("select: {x: {index: {}}}", "select.x.index", "start, stop or step"),
        ("select: {x: {step: 0}}", "select.x.step", "at least 1"),
        ("select: {x: {form: 1}}", "select.x.form", "did you mean from?"),
        ("select: {x: {points: [1, 2]}, y: {points: {index: [1]}}}", "select.y.points", "2 in x and 1 in y"),
        ("select: {}", "select", "an empty mapping"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_said_at_its_place(tmp_path: Path, written: str, where: str, said: str) -> None:
    (problem,) = told(tmp_path, f"combine:\n  {written}")
    assert problem.startswith(f"combine.{where}: ")
    assert said in problem


@pytest.mark.parametrize(
    ("output", "where", "said"),
    [
        ("virtual: kerchunk-parquet, grid: rectilinear", "grid", "icechunk has them"),
        ("virtual: kerchunk-parquet, crop: true", "crop", "icechunk takes it"),
        ("virtual: icechunk, values: packed", "values", "for store outputs"),
        ("store: zarr, crop: true", "crop", "for virtual outputs"),
        ("store: zarr, values: unpacked", "values", "did you mean packed?"),
        ("store: zarr, chunks: {time: months}", "chunks.time", "grid: rectilinear"),
        ("store: zarr, grid: rectilinear, chunks: {time: months}, shards: {lat: 10}", "chunks.time", "shards: none"),
        ("virtual: icechunk, grid: rectlinear", "grid", "did you mean rectilinear?"),
        ("store: zarr, coverage: all", "coverage", "true or false"),
    ],
)
def test_outputs_that_make_no_sense(tmp_path: Path, output: str, where: str, said: str) -> None:
    (problem,) = told(tmp_path, f"outputs: [{{at: a, {output}}}]", "name: sst\ngranules: raw/*.nc\n")
    assert problem.startswith(f"outputs[0].{where}: ")
    assert said in problem


@pytest.mark.parametrize(
    "of", ["preliminary", "{stem}", "{stem}{version}", "{stem}_{stem}", "{stem}_{x}", "a/{stem}_p", "{stem}_{"]
)
def test_versions_that_make_no_sense(tmp_path: Path, of: str) -> None:
    head = "name: sst\noutputs: [{virtual: icechunk, at: a}]\n"
    (problem,) = told(tmp_path, f'archive: {{granules: raw/*.nc, versions: {{of: "{of}"}}}}', head)
    assert problem.startswith("archive.versions.of: ")


def test_all_problems_of_combining_at_once(tmp_path: Path) -> None:
    problems = told(tmp_path, "combine:\n  along: {t: {axis: slots, patern: x}}\n  gaps: 1\n  select: {x: [1]}")
    assert sorted(p.partition(":")[0] for p in problems) == [
        "combine.along.t.patern", "combine.along.t.step", "combine.gaps", "combine.select.x",
    ]  # fmt: skip


CHANGES = [
    "combine: {along: {time: {axis: slots, step: 1D}}}",
    "combine: {along: {time: {axis: slots, step: 2D}}}",
    "combine: {along: {time: {axis: slots, step: 1D, origin: 1981-09-01}}}",
    "combine: {along: {time: {axis: slots, step: 1D, stop: 1981-09-01}}}",
    "combine: {along: {time: {position: attribute, attribute: a}}}",
    "combine: {along: {time: {position: attribute, attribute: b}}}",
    "combine: {along: [time, y]}",
    "combine: {along: [y, time]}",
    *(f"combine: {{differences: {{{k}: refuse}}}}" for k in ("codec", "packing", "fill", "dtype", "time", "missing_variable")),
    *(f"combine: {{differences: {{{k}: first}}}}" for k in ("units", "attributes", "static", "packing", "dtype")),
    "combine: {differences: {coordinates: {tolerance: 1e-5}}}",
    "combine: {duplicates: last}",
    "combine: {duplicates: newest}",
    "combine: {overlap: last}",
    "combine: {gaps: error}",
    *(f"combine: {{select: {{x: {written}}}}}" for written, _, _ in SELECTIONS),
    *(f"outputs: [{{virtual: icechunk, at: a, {k}}}]" for k in ("grid: rectilinear", "crop: true", "coverage: true")),
]


def test_each_of_them_changes_the_digest(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    texts = [HEAD]
    texts += [(HEAD if not c.startswith("outputs") else HEAD[: HEAD.index("outputs")]) + c + "\n" for c in CHANGES]
    texts.append(HEAD.replace("granules: raw/*.nc", 'archive: {granules: raw/*.nc, versions: {of: "{stem}_p"}}'))
    texts.append(HEAD.replace("granules: raw/*.nc", 'archive: {granules: raw/*.nc, versions: {of: "{stem}_p", prefer: all}}'))
    texts.append(HEAD.replace("virtual: icechunk", "store: zarr"))
    texts += [HEAD.replace("virtual: icechunk", f"store: zarr, values: {v}") for v in ("packed", "decoded")]
    digests = []
    for text in texts:
        path.write_text(text)
        digests.append(load_config(path).digest)
    assert len(set(digests)) == len(texts)


def test_what_is_default_changes_no_digest(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(HEAD)
    one = load_config(path).digest
    path.write_text(
        HEAD
        + "combine: {duplicates: error, overlap: error, gaps: fill, differences: {codec: era, coordinates: {tolerance: 0}}}"
    )
    assert load_config(path).digest == one


def test_python_takes_options_as_well_as_words() -> None:
    axis = AxisOptions("time", axis="slots", step="1D", origin="1981-09-01")
    given = {
        "along": [axis, "member"],
        "differences": DifferenceOptions(codec="refuse", coordinate_tolerance=0.5),
        "select": {"lat": Selection("range", (None, 3)), "lon": 4},
        "variables": ("sst",),
        "gaps": None,
    }
    assert combine_fields(given) == {
        "along": (axis, AxisOptions("member")),
        "differences": DifferenceOptions(codec="refuse", coordinate_tolerance=0.5),
        "select": {"lat": Selection("range", (None, 3)), "lon": Selection("value", (4,))},
        "variables": ("sst",),
    }
    assert combine_fields({"along": axis}) == {"along": (axis,)}
    assert combine_fields({"along": {"time": axis, "y": "order"}})["along"] == (axis, AxisOptions("y", "order"))
    assert combine_fields({}) == {}


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (dt.date(2001, 2, 3), "2001-02-03"),
        (dt.datetime(2001, 2, 3, 12, tzinfo=dt.UTC), "2001-02-03T12:00:00"),
        (np.datetime64("2001-02-03T12"), "2001-02-03T12"),
        (dt.datetime(2001, 2, 3, 12, tzinfo=dt.timezone(dt.timedelta(hours=2))), "2001-02-03T10:00:00"),
        (np.datetime64("2001-02-03T12", "ns"), "2001-02-03T12:00:00"),
        (np.datetime64("2001-02-03T12:00:00.250", "ns"), "2001-02-03T12:00:00.25"),
        (np.float32(0.5), 0.5),
        (np.str_("a"), "a"),
    ],
)
def test_python_values_of_coordinates(given: object, meant: object) -> None:
    assert combine_fields({"select": {"x": given}})["select"] == {"x": Selection("value", (meant,))}  # type: ignore[arg-type]


def test_python_ranges_of_times() -> None:
    found = combine_fields({"select": {"time": slice(np.datetime64("2001-01-01"), dt.date(2001, 3, 1))}})["select"]
    assert found == {"time": Selection("range", ("2001-01-01", "2001-03-01"))}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"along": {"time": {"axis": "slots"}}}, "along.time.step: expected a step, as axis is slots"),
        ({"along": ["t", "t"]}, "the dimension t twice"),
        ({"along": 3}, "along: expected"),
        ({"differences": {"codecs": "era"}}, "did you mean codec?"),
        ({"select": {"x": object()}}, "x"),
        ({"select": [1]}, "select: expected"),
        ({"variables": "sst"}, "variables: expected a list of names, found 'sst'"),
        ({"duplicates": "best"}, "duplicates: expected"),
        ({"along": AxisOptions("t", axis="slots", step="1D", origin="2000", stop="1999")}, "along.t.stop"),
    ],
)
def test_python_is_told_in_the_same_words(given: dict[str, object], said: str) -> None:
    if "object at" in str(given):
        assert combine_fields(given)  # text of an unknown object is a label, which no coordinate has
        return
    with pytest.raises(ConfigError) as caught:
        combine_fields(given)
    assert caught.value.kind == "combine-options"
    assert said in str(caught.value)

"""Whatever a config holds, the answer is a config or problems with a line: never an exception, never a shrug."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drystone.config.keys import ROOT
from drystone.config.load import read_config
from drystone.model.options import ArchiveConfig

EXAMPLE = {
    "version": 1,
    "name": "sst",
    "storage": {"raw": "s3://b", "out": {"url": "s3://c", "region": "x", "anonymous": False}},
    "archive": {"granules": [{"glob": "raw:*.nc"}, {"list": "g.txt"}, "a/*.nc"], "format": "auto",
                "versions": {"of": "{stem}_p", "prefer": "final"}},
    "combine": {"along": {"time": {"position": "name", "pattern": "x%Y", "axis": "slots", "step": "1D", "origin": "1981",
                                   "stop": "1990-02-03"}, "n": {"position": "attribute", "attribute": "a"}},
                "mosaic": {"y": "coordinate", "overlap": "last"}, "variables": ["sst"],
                "select": {"a": 0, "b": [-80, 80], "c": {"from": 1, "to": "x", "step": 2}, "d": {"values": [1]},
                           "e": {"index": [0, 1]}, "f": {"index": {"start": 1, "stop": 4}}, "g": {"points": [1]}},
                "differences": {"codec": "era", "coordinates": {"tolerance": 1e-5}}, "duplicates": "newest", "gaps": "fill"},
    "outputs": [
        {"virtual": "icechunk", "at": "out:a", "public": {"raw:": "https://x/"}, "arrays": ["sst"], "grid": "rectilinear",
         "crop": True},
        {"store": "zarr", "at": "out:b", "chunks": {"time": 4, "*": "1 MB"}, "shards": {"time": 8}, "values": "packed",
         "codecs": [{"blosc": {"level": 3}}]},
    ],
    "reads": {"map": {"time": 1}},
    "execution": {"cluster": "local", "workers": "auto", "memory_per_worker": "4 GB"},
    "failures": {"granules": "1%", "tries": 2},
    "verify": {"values": "sample 1%"},
}  # fmt: skip

WORDS = sorted({"", "none", "all", "raw:", "s3://x", "1%", "4 GB", "*", ":", "http://[", "a b", *(k.name for k in ROOT.keys)})
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-3, 10**30), st.floats(), st.sampled_from(WORDS), st.text(max_size=6))
VALUES = st.recursive(
    SCALARS, lambda v: st.one_of(st.lists(v, max_size=3), st.dictionaries(st.sampled_from(WORDS), v, max_size=3)), max_leaves=6
)


def paths(value: object, here: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    if isinstance(value, dict):
        return [here, *(p for k, v in value.items() for p in paths(v, (*here, k)))]
    if isinstance(value, list):
        return [here, *(p for i, v in enumerate(value) for p in paths(v, (*here, i)))]
    return [here]


def replaced(value: object, path: tuple[object, ...], new: object) -> object:
    if not path:
        return new
    if isinstance(value, dict):
        return {k: replaced(v, path[1:], new) if k == path[0] else v for k, v in value.items()}
    return [replaced(v, path[1:], new) if i == path[0] else v for i, v in enumerate(cast("list[object]", value))]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "a.yaml"


def look(file: Path, value: object) -> ArchiveConfig | None:
    file.write_text(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), encoding="utf-8")
    lines = len(file.read_text(encoding="utf-8").splitlines())
    config, problems = read_config(str(file))
    assert (config is None) == bool(problems)
    for p in problems:
        assert 1 <= p.line <= max(1, lines), p
        assert p.column >= 1
        assert p.expected
        assert p.found
    return config


def test_the_example_is_good(file: Path) -> None:
    assert look(file, EXAMPLE) is not None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(path=st.sampled_from(paths(EXAMPLE)), new=VALUES)
def test_any_value_anywhere(file: Path, path: tuple[object, ...], new: object) -> None:
    look(file, replaced(EXAMPLE, path, new))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(value=VALUES)
def test_any_value_as_the_whole(file: Path, value: object) -> None:
    look(file, value)

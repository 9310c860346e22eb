"""The JSON schema and the reference page: made from the table, up to date, and in agreement with the loader."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from drystone.config.examples import EXAMPLES
from drystone.config.json_schema import json_schema, json_schema_text
from drystone.config.keys import ROOT
from drystone.config.load import check_config
from drystone.config.nodes import parse
from drystone.config.problem import Report
from drystone.config.reference import reference

REPOSITORY = Path(__file__).parents[3]
CONFIGS = sorted((REPOSITORY / "configs").rglob("*.yaml"))
HEAD = 'name: sst\ngranules: "raw/*.nc"\n'
OUTPUT = "outputs: [{virtual: icechunk, at: x}]\n"
STORE = "outputs: [{store: zarr, at: x, %s}]\n"

# what the schema must refuse, and the loader too
BAD = [
    "",
    "name: sst\n" + OUTPUT,
    HEAD,
    HEAD + "outputs: []\n",
    HEAD + OUTPUT + "nme: x\n",
    HEAD + OUTPUT + "version: 2\n",
    HEAD + "outputs: [{virtual: icechunk}]\n",
    HEAD + "outputs: [{virtual: mdim-vrt, at: x}]\n",
    HEAD + "outputs: [{virtual: icechunk, at: x, chunks: {a: 1}}]\n",
    HEAD + "outputs: [{catalog: stac, at: x}]\n",
    HEAD + STORE % "chunks: {a: 0}",
    HEAD + STORE % "chunks: {a: most}",
    HEAD + STORE % 'chunks: {"*": 3}',
    HEAD + STORE % "codecs: [{zstd: {level: 23}}]",
    HEAD + STORE % "codecs: [{blosc: {shuffle: perhaps}}]",
    HEAD + STORE % "codecs: [lzo]",
    HEAD + STORE % "mode: copy",
    HEAD + OUTPUT + "storage: {raw: {region: x}}\n",
    HEAD + OUTPUT + "storage: {raw: {url: x, secret_key: y}}\n",
    HEAD + OUTPUT + "storage: {9raw: x}\n",
    HEAD + OUTPUT + "combine: {along: {time: {position: mtime}}}\n",
    HEAD + OUTPUT + "combine: {along: {time: {axis: slot, step: 1D}}}\n",
    HEAD + OUTPUT + "combine: {along: {time: {axis: slots, step: 0}}}\n",
    HEAD + OUTPUT + "combine: {along: {time: {axis: slots, step: 1 month}}}\n",
    HEAD + OUTPUT + "combine: {along: {time: {axis: slots, step: 1D, origin: yesterday}}}\n",
    HEAD + OUTPUT + "combine: {differences: {packing: fill}}\n",
    HEAD + OUTPUT + "combine: {differences: {coordinates: {tolerance: -1}}}\n",
    HEAD + OUTPUT + "combine: {duplicates: best}\n",
    HEAD + OUTPUT + "combine: {mosaic: {y: coordinate, overlap: half}}\n",
    HEAD + OUTPUT + "combine: {select: {x: [1, 2, 3]}}\n",
    HEAD + OUTPUT + "combine: {select: {x: {index: 1.5}}}\n",
    HEAD + OUTPUT + "combine: {select: {x: true}}\n",
    HEAD + OUTPUT + "combine: {revisions: replace}\n",
    HEAD + "outputs: [{virtual: icechunk, at: x, grid: round}]\n",
    HEAD + "outputs: [{virtual: icechunk, at: x, values: packed}]\n",
    HEAD + STORE % "crop: true",
    "name: sst\narchive: {granules: y, versions: {of: preliminary}}\n" + OUTPUT,
    HEAD + OUTPUT + "execution: {workers: 0}\n",
    HEAD + OUTPUT + "execution: {memory_per_worker: 4}\n",
    HEAD + OUTPUT + "failures: {granules: -1}\n",
    HEAD + OUTPUT + "failures: {granules: some}\n",
    HEAD + OUTPUT + "verify: {values: crc}\n",
    HEAD + OUTPUT + "reads: {map: {lat: 0}}\n",
]
GOOD = [
    HEAD + OUTPUT,
    HEAD + OUTPUT + "verify: {values: digest}\n",
    HEAD + OUTPUT + "version: 1\nstorage: {raw: x, b: {url: 's3://y', anonymous: true}}\n",
    HEAD + STORE % 'chunks: {a: 1, b: all, "*": 1.5 MiB}, shards: none, codecs: zstd',
    HEAD + STORE % 'chunks: 256 kB, shards: {a: 4, "*": none}, codecs: [{blosc: {level: 9}}]',
    "name: sst\narchive: {granules: [{list: granules.txt}, y], format: hdf5}\n" + OUTPUT,
    HEAD + OUTPUT + "combine: {along: time, variables: [a, 500]}\nfailures: {granules: 1%, tries: 1}\nverify: {values: full}\n",
    HEAD + OUTPUT + "combine: {along: {t: {axis: slots, step: 6h, origin: 1981, stop: 1990-01-01T00:00Z}}}\n",
    HEAD + OUTPUT + "combine: {along: {m: {position: attribute, attribute: run}, t: coordinate}}\n",
    HEAD + OUTPUT + "combine: {along: [time, y], duplicates: newest, gaps: error, overlap: first}\n",
    HEAD + OUTPUT + "combine: {mosaic: {y: coordinate, x: {position: order}, overlap: last}}\n",
    HEAD + OUTPUT + "combine: {differences: {codec: rechunk, units: first, coordinates: {tolerance: 1e-5}}}\n",
    HEAD + OUTPUT + "combine: {select: {a: 0, b: x, c: [null, 2], d: {from: 1981-01-01, step: 2}, e: {values: [1, x]}}}\n",
    HEAD + OUTPUT + "combine: {select: {a: {index: -1}, b: {index: [1, 0]}, c: {index: {step: 2}}, d: {points: [1.5]}}}\n",
    HEAD + "outputs: [{virtual: icechunk, at: x, grid: rectilinear, crop: true, coverage: true}]\n",
    HEAD + STORE % "values: decoded, grid: regular, coverage: false",
    "name: sst\narchive: {granules: y, versions: {of: '{stem}_v{version}', prefer: all}}\n" + OUTPUT,
    HEAD + OUTPUT + "execution: {cluster: inline, workers: auto, memory_per_worker: 4 GB}\nreads: {map: {lat: 1, lon: all}}\n",
]


def plain(text: bytes) -> object:
    node = parse(text, Report("x"))
    return None if node is None else node.plain()


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft7Validator:
    jsonschema.Draft7Validator.check_schema(json_schema())
    return jsonschema.Draft7Validator(json_schema())


def test_schema_file_is_up_to_date() -> None:
    stored = (REPOSITORY / "configs" / "drystone.schema.json").read_text(encoding="utf-8")
    assert stored == json_schema_text(), "run: python -m drystone.config.json_schema > configs/drystone.schema.json"


def test_reference_page_is_up_to_date() -> None:
    stored = (REPOSITORY / "docs" / "reference" / "config.md").read_text(encoding="utf-8")
    assert stored == reference(), "run: python -m drystone.config.reference > docs/reference/config.md"


def test_examples_have_a_place_on_the_page() -> None:
    assert [path for path, text in EXAMPLES.items() if text not in reference()] == []


def test_there_are_configs() -> None:
    assert {"minimal.yaml", "oisst.yaml", "local-netcdf.yaml"} <= {p.name for p in CONFIGS}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.name)
def test_shipped_configs_are_good(path: Path, validator: jsonschema.Draft7Validator) -> None:
    assert [str(p) for p in check_config(path)] == []
    validator.validate(plain(path.read_bytes()))
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# yaml-language-server: $schema="), "so that editors complete it"
    assert (path.parent / first.split("=", 1)[1]).is_file()


@pytest.mark.parametrize("text", BAD)
def test_schema_and_loader_refuse(text: str, validator: jsonschema.Draft7Validator, tmp_path: Path) -> None:
    assert not validator.is_valid(plain(text.encode()))
    (tmp_path / "a.yaml").write_text(text)
    assert check_config(tmp_path / "a.yaml")


@pytest.mark.parametrize("text", GOOD)
def test_schema_and_loader_accept(text: str, validator: jsonschema.Draft7Validator, tmp_path: Path) -> None:
    validator.validate(plain(text.encode()))
    (tmp_path / "a.yaml").write_text(text)
    assert [str(p) for p in check_config(tmp_path / "a.yaml")] == []


def test_every_key_is_described() -> None:
    def walk(schema: object) -> list[object]:
        if isinstance(schema, dict):
            here = list(schema.get("properties", {}).values()) if isinstance(schema.get("properties"), dict) else []
            return here + [x for v in schema.values() for x in walk(v)]
        return [x for v in schema for x in walk(v)] if isinstance(schema, list) else []

    keys = [k for k in walk({"root": ROOT.schema()}) if isinstance(k, dict) and "description" in k]
    assert len(keys) > 40
    assert all(len(str(k["description"])) > 5 for k in keys)

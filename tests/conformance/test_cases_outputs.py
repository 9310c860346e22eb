"""Cases from public bug reports, published: values that zarr reads from each form, or a refusal that names what and why."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import fsspec
import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr

import drystone
from drystone.errors import ScanError, UnsupportedError

# fsspec reads Parquet references with fastparquet, which pandas 3 warns about
pytestmark = pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated")

CASES = Path(__file__).parent.parent / "data" / "cases"
IDS = ["S01", "S02", "S03", "S05", "S06", "S08", "S09", "S11", "S12", "S13", "S15", "S16", "S18", "S20"]
FORMS = {"store: zarr": "out.zarr", "virtual: icechunk": "out.icechunk", "virtual: kerchunk-parquet": "out.parq"}


def prepare(case_id: str, folder: Path, output: str, more: str = "") -> tuple[dict, dict[str, np.ndarray], Path]:
    """A copy of a case's files with a config for one output."""
    case = next(CASES.glob(f"{case_id}_*"))
    said = json.loads((case / "case.json").read_text())
    (folder / "raw").mkdir()
    for name in said["files"]:
        shutil.copy(case / name, folder / "raw" / name)
    main = "main.h5" if "main.h5" in said["files"] else said["files"][0] if len(said["files"]) == 1 else "*.nc"
    config = folder / "case.yaml"
    config.write_text(
        f"name: case\nstorage: {{raw: file:raw}}\ngranules: 'raw:{main}'\n"
        f"outputs: [{{{output}, at: {FORMS[output]}}}]\nverify: {{values: full}}\nexecution: {{cluster: inline}}\n{more}"
    )
    with np.load(case / "expected.npz") as values:
        return said["expected"], dict(values), config


def opened(output: str, folder: Path) -> zarr.abc.store.Store:
    """The form as a store for readers without drystone."""
    path = folder / FORMS[output]
    if output == "store: zarr":
        return zarr.storage.LocalStore(path, read_only=True)
    if output == "virtual: icechunk":
        access = {f"{(folder / 'raw').as_uri()}/": icechunk.credentials.LocalFileSystemAccess}
        storage = icechunk.local_filesystem_storage(str(path))
        return icechunk.Repository.open(storage, authorize_virtual_chunk_access=access).readonly_session("main").store
    files = fsspec.filesystem("reference", fo=str(path), remote_protocol="file", lazy=True, asynchronous=True)
    return zarr.storage.FsspecStore(files, read_only=True, path="")


@pytest.mark.parametrize("output", FORMS)
@pytest.mark.parametrize("case_id", IDS)
def test_values_or_a_refusal_by_name(case_id: str, output: str, tmp_path: Path) -> None:
    expected, values, config = prepare(case_id, tmp_path, output)
    names = [n for n in expected["arrays"] if not n.endswith("__decoded")]
    refusal, report = None, None
    try:
        report = drystone.run(config)
    except UnsupportedError as error:
        refusal = error
    if report is None:
        # nothing that was wanted has references: only where the case leaves it open, and with the reason
        assert output != "store: zarr"
        assert expected["outcome"] == "values_or_refuse"
        assert all(word in str(refusal) for word in expected["message"])
        return
    refused = dict(report.outputs[0].refused)
    if output == "store: zarr":
        assert refused == {}
    group = zarr.open_group(opened(output, tmp_path), mode="r", zarr_format=2 if "kerchunk" in output else 3)
    for name in names:
        if f"/{name}" in refused:
            assert expected["outcome"] == "values_or_refuse"
            continue
        got = np.asarray(group[name][...])
        want = values[name].astype(values[name].dtype.newbyteorder("="))
        assert (got.shape, got.tobytes()) == (want.shape, want.tobytes()), name
    for name, texts in expected.get("strings", {}).items():
        assert group[name][...].tolist() == texts


@pytest.mark.parametrize("output", FORMS)
@pytest.mark.parametrize("case_id", ["S12", "S18"])
def test_decoded_values(case_id: str, output: str, tmp_path: Path) -> None:
    _, values, config = prepare(case_id, tmp_path, output)
    drystone.run(config)
    published = xr.open_zarr(
        opened(output, tmp_path), consolidated=False, zarr_format=2 if "kerchunk" in output else 3, decode_times=False
    )
    for dataset in (published, drystone.open(tmp_path / "raw" / "*", decode=True)):
        for name in (n for n in values if n.endswith("__decoded")):
            got = dataset[name.removesuffix("__decoded")].values
            np.testing.assert_array_equal(got.astype(values[name].dtype), values[name])


def strict(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


@pytest.mark.parametrize("output", FORMS)
def test_s20_attributes_are_strict_json_in_every_form(output: str, tmp_path: Path) -> None:
    expected, _, config = prepare("S20", tmp_path, output)
    drystone.run(config)
    path = tmp_path / FORMS[output]
    for document in (p for p in path.rglob("*") if p.name in ("zarr.json", ".zattrs", ".zarray", ".zmetadata")):
        json.loads(document.read_text(), parse_constant=strict)
    group = zarr.open_group(opened(output, tmp_path), mode="r", zarr_format=2 if "kerchunk" in output else 3)
    attributes = dict(group["v"].attrs)
    for name, value in expected["attrs"].items():
        if name != "deg":
            assert attributes[name] == value, name
    assert attributes["deg"] == "°C"


def test_s48_keep_going_and_strict(tmp_path: Path) -> None:
    expected, values, config = prepare("S48", tmp_path, "store: zarr", "failures: {granules: 3}\n")
    report = drystone.run(config)
    assert report.scan.scanned == 1
    reasons = {f.address.removeprefix("raw:"): f.reason for f in report.scan.failed}
    assert reasons.keys() == expected["failed_files"].keys()
    assert all(word in reasons[name] for name, word in expected["failed_files"].items())
    assert zarr.open_group(tmp_path / "out.zarr", mode="r")["sst"][...].tobytes() == values["sst"].tobytes()
    config.write_text(config.read_text().replace("failures: {granules: 3}", ""))
    with pytest.raises(ScanError) as caught:
        drystone.run(config)
    assert all(word in str(caught.value) for word in expected["message_strict"])

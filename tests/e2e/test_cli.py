"""The command line on a small archive: answers that fit their schema, dry runs that change nothing, exit codes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import jsonschema
import numpy as np
import obstore
import obstore.store
import pytest
import zarr
from e2e import archives
from services.s3 import Bucket

from drystone.cli import main as program

SCHEMA = json.loads((Path(program.__file__).parent / "schemas" / "output.schema.json").read_text())


def answer(folder: Path, verb: str, *words: str, code: int = 0) -> dict[str, object]:
    """The verb's JSON, which fits its schema (that of errors where it failed); in this process, which is quick."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        found = program.main([verb, *words, "--json"])
    assert found == code, (found, err.getvalue())
    assert "Traceback" not in err.getvalue()
    document = json.loads(out.getvalue())
    name = "error" if "error" in document else verb
    jsonschema.Draft202012Validator({**SCHEMA, "anyOf": [{"$ref": f"#/$defs/{name}"}]}).validate(document)
    return document


def snapshot(folder: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Every file and folder: inode, size, modification time and content."""
    out = {}
    for root, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = Path(root, name)
            s = path.lstat()
            content = path.read_bytes() if path.is_file() else b""
            out[str(path.relative_to(folder))] = (s.st_ino, s.st_size, s.st_mtime_ns, content)
    return out


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    archives.write_archive(tmp_path, (3, 3))
    archives.write_config(tmp_path, more="execution: {cluster: inline}")
    return tmp_path


def test_every_verb_answers_in_its_schema(folder: Path) -> None:
    config = "little.yaml"
    assert answer(folder, "check", config)["ok"]
    assert answer(folder, "status", config, code=4)["granules"] == 0
    assert len(answer(folder, "scan", config, "--dry-run")["to_scan"]) == 2  # type: ignore[arg-type]
    scan = answer(folder, "scan", config)
    assert (scan["listed"], scan["scanned"], scan["failed"]) == (2, 2, [])
    assert answer(folder, "scan", config)["unchanged"] == 2
    plan = answer(folder, "plan", config)
    assert plan["axis"] == "time"
    assert [o["form"] for o in plan["outputs"]] == ["icechunk", "kerchunk-parquet", "zarr"]  # type: ignore[attr-defined]
    assert answer(folder, "run", config, "--dry-run")["plan"] == plan
    run = answer(folder, "run", config)
    assert run["release"] == 1
    assert all(o["fresh"] and o["verified"] == "full" for o in run["outputs"])  # type: ignore[attr-defined]
    again = answer(folder, "run", config)
    assert again["release"] is None
    assert not any(o["fresh"] for o in again["outputs"])  # type: ignore[attr-defined]
    status = answer(folder, "status", config)
    assert (status["exit_code"], status["releases"], status["running"]) == (0, 1, None)
    assert answer(folder, "verify", config)["ok"]
    assert answer(folder, "verify", config, "--values", "sample")["ok"]
    for path, kind in (
        ("raw/day0000.nc", "hdf5"),
        ("out/series.zarr", "zarr"),
        ("out/little.icechunk", "icechunk"),
        ("little.yaml", "config"),
    ):
        shown = answer(folder, "show", path)
        assert shown["kind"] == kind
        if kind != "config":
            sst = next(a for a in shown["arrays"] if a["path"] == "/sst")  # type: ignore[attr-defined]
            assert sst["shape"][1:] == [8, 12]


def test_text_answers_are_for_people(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.chdir(folder):
        assert program.main(["run", "little.yaml"]) == 0
        out, err = capsys.readouterr()
        assert "2 granules listed, 0 unchanged, 2 scanned" in out
        assert "release 1" in out
        assert "scan: 2 granules to do" in err
        assert program.main(["run", "little.yaml", "--quiet"]) == 0
        assert capsys.readouterr() == ("", "")
        assert program.main(["plan", "little.yaml"]) == 0
        plan = capsys.readouterr().out
        assert "series" in plan
        assert {"source", "target"} <= set(plan.split())  # what reads cost, before and after
        assert program.main(["status", "little.yaml"]) == 0
        assert capsys.readouterr().out.startswith("little: 2 granules scanned")


@pytest.mark.parametrize("prepared", ["nothing", "scanned", "published"])
def test_dry_runs_change_no_file(folder: Path, prepared: str) -> None:
    if prepared != "nothing":
        answer(folder, "scan" if prepared == "scanned" else "run", "little.yaml")
        archives.write_day(folder / "raw" / "day0006.nc", 6, 3)  # so that there is something to do
    before = snapshot(folder)
    for verb in ("scan", "run"):
        answer(folder, verb, "little.yaml", "--dry-run")
        assert snapshot(folder) == before, verb


def test_reporting_verbs_change_no_file(folder: Path) -> None:
    answer(folder, "run", "little.yaml")
    before = snapshot(folder)
    for verb in ("check", "status", "show", "plan", "verify"):
        answer(folder, verb, "little.yaml")
        assert snapshot(folder) == before, verb


@pytest.mark.services
def test_dry_runs_change_no_object(tmp_path: Path, s3: Bucket) -> None:
    prefix = uuid.uuid4().hex
    archives.write_archive(tmp_path, (3, 3))
    options = f'endpoint: "{s3.endpoint}", region: us-east-1'
    config = archives.write_config(tmp_path, more="execution: {cluster: inline}")
    text = config.read_text().replace('{url: "file:./out"}', f'{{url: "{s3.url}/{prefix}/out", {options}}}')
    config.write_text(text.replace("storage:", f'storage:\n  work: {{url: "{s3.url}/{prefix}/work", {options}}}'))
    client = obstore.store.S3Store.from_url(
        s3.url,
        endpoint=s3.endpoint,
        region="us-east-1",
        client_options={"allow_http": True},
        virtual_hosted_style_request=False,
    )

    def objects() -> list[tuple[str, int, object, object]]:
        return sorted((m["path"], m["size"], m["e_tag"], m["last_modified"]) for m in obstore.list(client, prefix).collect())

    for verb in ("scan", "run"):
        answer(tmp_path, verb, "little.yaml", "--dry-run")
        assert objects() == [], verb
    answer(tmp_path, "scan", "little.yaml")
    before = objects()
    assert before
    archives.write_day(tmp_path / "raw" / "day0006.nc", 6, 3)
    for verb in ("scan", "run"):
        answer(tmp_path, verb, "little.yaml", "--dry-run")
        assert objects() == before, verb


def test_a_bad_granule_stops_a_strict_run_and_is_named(folder: Path) -> None:
    good = (folder / "raw" / "day0003.nc").read_bytes()
    (folder / "raw" / "day0006.nc").write_bytes(good[: len(good) // 2])
    (folder / "raw" / "day0009.nc").write_bytes(b"<html>log in</html>")
    error = answer(folder, "run", "little.yaml", code=5)["error"]
    for name in ("day0006.nc", "day0009.nc"):
        assert name in error["message"]  # type: ignore[index]
    assert not (folder / "out").exists()
    archives.write_config(folder, more="execution: {cluster: inline}\nfailures: {granules: 2}")
    run = answer(folder, "run", "little.yaml")
    assert {f["granule"] for f in run["scan"]["failed"]} == {"raw:day0006.nc", "raw:day0009.nc"}  # type: ignore[index]
    status = answer(folder, "status", "little.yaml")
    assert [s["granule"] for s in status["set_aside"]] == ["raw:day0006.nc", "raw:day0009.nc"]  # type: ignore[attr-defined]


def test_no_granules_is_a_config_error(folder: Path) -> None:
    for path in (folder / "raw").iterdir():
        path.rename(path.with_suffix(".grib"))
    error = answer(folder, "run", "little.yaml", code=2)["error"]
    assert error["kind"] == "no-granules"  # type: ignore[index]
    assert "holds 2 files: day0000.grib, day0003.grib" in error["message"]  # type: ignore[index]


def test_verify_finds_a_wrong_value(folder: Path) -> None:
    answer(folder, "run", "little.yaml")
    store = zarr.open_group(folder / "out" / "series.zarr", mode="r+", use_consolidated=False)
    store["sst"][4, 2, 5] = np.int16(77)
    error = answer(folder, "verify", "little.yaml", code=5)["error"]
    assert error["kind"] == "values-differ"  # type: ignore[index]
    for text in ("series.zarr", "/sst", "(4, 2, 5)", "day0003.nc"):
        assert text in error["message"], error  # type: ignore[index]


def test_verify_before_publishing_says_so(folder: Path) -> None:
    answer(folder, "scan", "little.yaml")
    assert "run" in answer(folder, "verify", "little.yaml", code=4)["error"]["message"]  # type: ignore[index, operator]


def test_a_changed_config_needs_consent(folder: Path) -> None:
    answer(folder, "run", "little.yaml")
    config = folder / "little.yaml"
    config.write_text(config.read_text().replace("chunks: {time: 8, lat: 4", "chunks: {time: 8, lat: 8"))
    error = answer(folder, "run", "little.yaml", code=2)["error"]
    assert error["kind"] == "plan-changed"  # type: ignore[index]
    assert "--accept-changes" in error["message"]  # type: ignore[index]
    answer(folder, "run", "little.yaml", "--accept-changes")
    assert zarr.open_group(folder / "out" / "series.zarr", mode="r")["sst"].chunks == (8, 8, 6)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda s: s.name)
def test_a_signal_stops_a_run_that_then_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    archives.write_archive(tmp_path, tuple([3] * 24))
    archives.write_config(tmp_path, more="execution: {cluster: inline}")
    command = [sys.executable, "-m", "drystone.cli.main", "run", "little.yaml", "--json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("scan:"):
                break
        time.sleep(0.05)
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 75, (process.returncode, err)
    error = json.loads(out)["error"]
    assert error["kind"] == "stopped"
    assert f"stopped by {number.name}" in err
    assert "run `drystone run little.yaml` again" in err
    answer(tmp_path, "status", "little.yaml", code=4)
    run = answer(tmp_path, "run", "little.yaml")
    assert all(o["verified"] == "full" for o in run["outputs"])  # type: ignore[attr-defined]

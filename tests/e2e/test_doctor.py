"""``drystone doctor`` on a small archive: answers that fit their schema, nothing left behind, times in plans afterwards."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from e2e import archives
from e2e.test_cli import answer, snapshot
from services.fault_proxy import FaultProxy
from services.s3 import Bucket

from drystone.config.load import load_config
from drystone.pipeline.archive import Archive
from drystone.pipeline.doctor import run
from drystone.pipeline.doctor.places import measure_place, probe_folder
from drystone.pipeline.doctor.stores import Sources, Target, targets_of
from drystone.storage.address import place_key
from drystone.storage.remote import RemoteStore


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive whose fields are no driver's, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    archives.write_archive(tmp_path, (3, 3))
    archives.write_config(tmp_path, more="execution: {cluster: inline}")
    return tmp_path


def times(folder: Path) -> list[tuple[float | None, str, list[float | None]]]:
    """Predicted seconds, why there are none, and those of the ways, of every array that has tasks."""
    outputs = answer(folder, "plan", "little.yaml")["outputs"]
    arrays = [a for o in outputs for a in o["arrays"] if a["predicted"] is not None]  # type: ignore[attr-defined]
    assert arrays
    return [(a["predicted"]["seconds"], a["predicted"]["why"], [c["seconds"] for c in a["ways"]["candidates"]]) for a in arrays]


def test_doctor_measures_once_and_plans_predict(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drystone.pipeline.doctor.codecs._SECONDS", 0.0)
    answer(folder, "scan", "little.yaml")
    for seconds, why, ways in times(folder):
        assert seconds is None
        assert "drystone doctor" in why
        assert set(ways) == {None}
    before = snapshot(folder)
    dry = answer(folder, "doctor", "little.yaml", "--dry-run")
    assert snapshot(folder) == before
    assert (dry["checks"], dry["rates"], dry["rates_file"]) == ([], None, None)
    assert len(dry["writes"]) > 3  # type: ignore[arg-type]
    report = answer(folder, "doctor", "little.yaml")
    assert report["status"] != "fail", report["checks"]
    after = {name: what for name, what in snapshot(folder).items() if not name.startswith("cache")}
    assert {k: v[3] for k, v in after.items()} == {k: v[3] for k, v in before.items()}
    assert str(report["rates_file"]).startswith(str(folder / "cache"))
    checks = {c["check"] for c in report["checks"]}  # type: ignore[attr-defined]
    assert checks >= {"cores", "memory", "source list", "source read", "target write", "speed", "engine"}
    for seconds, _, ways in times(folder):
        assert seconds is not None
        assert seconds > 0
        assert None not in ways
    answer(folder, "run", "little.yaml")


def test_what_fails_decides_the_exit_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_rates", lambda *_: None)
    for path in (folder / "raw").iterdir():
        path.unlink()
    report = answer(folder, "doctor", "little.yaml", code=5)
    assert report["rates_file"] is None
    failed = [c for c in report["checks"] if c["status"] == "fail"]  # type: ignore[attr-defined]
    assert [c["check"] for c in failed] == ["source list"]


@pytest.mark.services
def test_an_object_store_is_probed_and_measured(tmp_path: Path, s3: Bucket) -> None:
    prefix = uuid.uuid4().hex
    archives.write_archive(tmp_path, (3, 3))
    text = archives.write_config(tmp_path).read_text()
    options = f'endpoint: "{s3.endpoint}", region: us-east-1'
    place = f'{{url: "{s3.url}/{prefix}", {options}}}'
    (tmp_path / "little.yaml").write_text(text.replace('{url: "file:./out"}', place))
    archive = Archive.of(load_config(tmp_path / "little.yaml"))
    for name in sorted(p.name for p in (tmp_path / "raw").iterdir()):
        archive.places.store("out").put(f"raw/{name}", (tmp_path / "raw" / name).read_bytes())
    target = next(t for t in targets_of(archive) if t.store.root is None)
    found = list(target.look())
    assert {v.status for v in found} == {"ok"}, found
    assert {v.status for v in Sources(archive, "glob", "out:raw/*.nc").look()} == {"ok"}
    with probe_folder(target.store, target.prefix) as key:
        rates = measure_place(target.store, key, 2)
    assert min(rates.read, rates.write or 0, rates.put or 0) > 0
    assert place_key(target.store) == f"{s3.url} {s3.endpoint}"
    assert not [name for name, _ in target.store.list() if "doctor" in name]


@pytest.mark.services
def test_a_server_that_answers_503_is_a_verdict(fault_proxy: FaultProxy, s3: Bucket) -> None:
    store = RemoteStore(f"{s3.url}/{uuid.uuid4().hex}", {**s3.options, "endpoint": fault_proxy.endpoint})
    fault_proxy.set(p503=1.0)
    found = list(Target("output", store, "").look())
    assert found[-1].status == "fail"
    assert found[-1].check == "target write"

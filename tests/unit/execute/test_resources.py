"""Cores and memory that control groups leave, in both of their versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from drystone.execute.resources import cpu_affinity, cpu_count, cpu_quota, host_memory


def group(root: Path, path: str, files: dict[str, str]) -> None:
    folder = root / path
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


def own(tmp_path: Path, text: str) -> str:
    path = tmp_path / "own"
    path.write_text(text)
    return str(path)


def test_no_group_limits_nothing(tmp_path: Path) -> None:
    assert cpu_quota(str(tmp_path), str(tmp_path / "none")) is None
    assert host_memory(str(tmp_path), str(tmp_path / "none")) == host_memory("/nowhere", "/nowhere")


@pytest.mark.parametrize(("text", "quota"), [("max 100000", None), ("150000 100000", 1.5), ("broken", None)])
def test_quota_of_version_2(tmp_path: Path, text: str, quota: float | None) -> None:
    group(tmp_path, "", {"cpu.max": text})
    assert cpu_quota(str(tmp_path), "/nowhere") == quota


def test_the_tightest_group_above_counts(tmp_path: Path) -> None:
    group(tmp_path, "job", {"cpu.max": "200000 100000", "memory.max": "4000000"})
    group(tmp_path, "job/step", {"cpu.max": "max 100000", "memory.max": "max"})
    me = own(tmp_path, "0::/job/step\n")
    assert cpu_quota(str(tmp_path), me) == 2.0
    assert host_memory(str(tmp_path), me) == 4_000_000
    assert cpu_quota(str(tmp_path), own(tmp_path, "0::/\n")) is None


def test_version_1_has_a_tree_for_each_controller(tmp_path: Path) -> None:
    group(tmp_path, "cpu/batch", {"cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "100000"})
    group(tmp_path, "cpu", {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"})
    group(tmp_path, "memory/batch", {"memory.limit_in_bytes": "7000000"})
    me = own(tmp_path, "9:name=systemd:/\n4:memory:/batch\n3:cpu,cpuacct:/batch\n0::/\n")
    assert cpu_quota(str(tmp_path), me) == 0.5
    assert host_memory(str(tmp_path), me) == 7_000_000


def test_a_quota_below_one_core_still_leaves_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drystone.execute.resources.cpu_quota", lambda: 0.3)
    assert cpu_count() == 1
    monkeypatch.setattr("drystone.execute.resources.cpu_quota", lambda: 1e6)
    assert cpu_count() == cpu_affinity()

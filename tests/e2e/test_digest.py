"""``verify: digest``, from config to published, in each form and mode, and what it finds afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import zarr
from e2e.combining import FORMS, STORE, write_config
from e2e.test_repack import SHAPE, write_granules

import drystone
from drystone.cli.main import main
from drystone.grid.digest import combined, step_digests

SHARDS = {"chunks": {"time": 8, "y": 4, "x": 5}, "shards": {"time": 16, "y": 8, "x": 10}}


def by_digest(folder: Path, form: str, **output: object) -> Path:
    config = write_config(folder, form, **output)
    config.write_text(config.read_text().replace("{values: full}", "{values: digest}"))
    return config


def answer(capsys: pytest.CaptureFixture[str], *command: str) -> dict[str, object]:
    capsys.readouterr()
    main([*command, "--json"])
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("form", "output"),
    [
        *((form, {}) for form in FORMS if form != STORE),
        (STORE, SHARDS),
        (STORE, {"mode": "repack", "chunks": "source"}),
        (STORE, {"chunks": {"time": 18, "y": 2, "x": 14}}),
    ],
)
def test_each_form_is_published_by_digest(
    tmp_path: Path, form: str, output: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    values = write_granules(tmp_path)
    config = by_digest(tmp_path, form, **output)
    report = drystone.run(config)
    assert report.outputs[0].verified == "digest"
    found = answer(capsys, "verify", str(config))["outputs"][0]  # type: ignore[index]
    v = next(a for a in found["arrays"] if a["path"] == "/v")  # type: ignore[index]
    sums = step_digests(values, (0, 0, 0), ("time", "y", "x"), 0)
    assert (v["cells"], v["digest"]) == (np.prod(SHAPE), f"{combined(sums, 'time'):016x}")


def test_what_was_damaged_later_is_told_from_what_was_read_wrongly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_granules(tmp_path)
    config = by_digest(tmp_path, STORE, **SHARDS)
    drystone.run(config)
    zarr.open_group(str(tmp_path / "out" / "out.zarr"), mode="r+")["v"][7, 3, 4:6] = 199
    assert main(["verify", str(config)]) == 5
    said = capsys.readouterr().err
    assert "2 of 2772 compared cells differ, first at (7, 3, 4)" in said
    assert "the writer had the granules' values, so the store was damaged by then or since" in said


def test_a_run_that_went_on_with_another_wish_has_no_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tasks that were done without digests are not done again for them."""
    write_granules(tmp_path)
    config = by_digest(tmp_path, STORE, **SHARDS)
    text = config.read_text()
    config.write_text(text.replace("{values: digest}", "{values: none}"))
    drystone.run(config)
    config.write_text(text)
    again = drystone.run(config)
    assert not again.outputs[0].fresh
    assert answer(capsys, "verify", str(config))["ok"] is True

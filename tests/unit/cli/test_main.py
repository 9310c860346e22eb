"""The command line around the verbs: usage, errors, exit codes, JSON on stdout and words on stderr."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from drystone import errors
from drystone.cli import main as program
from drystone.cli import verbs
from drystone.cli.main import main
from drystone.cli.output import Output
from drystone.cli.parser import build_parser
from drystone.cli.signals import StopSignal, stoppable

SCHEMA = json.loads((Path(verbs.__file__).parent / "schemas" / "output.schema.json").read_text())
GOOD = 'name: sst\ngranules: "raw/*.nc"\noutputs:\n  - virtual: icechunk\n    at: sst.icechunk\n'
VERBS = ["check", "scan", "plan", "run", "status", "verify", "show", "doctor"]


def valid(document: object, verb: str) -> None:
    jsonschema.Draft202012Validator({**SCHEMA, "anyOf": [{"$ref": f"#/$defs/{verb}"}]}).validate(document)


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "a.yaml"
    path.write_text(GOOD)
    return str(path)


def failing(error: BaseException) -> Callable[[argparse.Namespace, Output], int]:
    def verb(args: argparse.Namespace, output: Output) -> int:
        raise error

    return verb


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("words", [[], ["frob"], ["check"], ["plan", "x", "--dry-run"], ["scan", "x", "y"]])
def test_usage_errors_are_short_and_exit_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("drystone: error: ")
    assert "--help" in err
    assert "Traceback" not in err


def test_usage_errors_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    valid(document, "error")
    assert document["error"]["kind"] == "usage"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    from drystone import __version__

    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"drystone {__version__}\n"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_the_options_it_promises(verb: str) -> None:
    parser = build_parser()
    args = parser.parse_args([verb, "x", "--json", "--quiet", "--debug"])
    assert (args.json, args.quiet, args.debug) == (True, True, True)
    if verb in ("scan", "run", "doctor"):
        assert parser.parse_args([verb, "x", "--dry-run"]).dry_run
    else:
        with pytest.raises(errors.ConfigError):
            parser.parse_args([verb, "x", "--dry-run"])


OURS = [getattr(errors, name) for name in sorted(errors.__all__)]


@pytest.mark.parametrize(
    "error",
    [cls("what, where, why", fact=1) for cls in OURS if issubclass(cls, errors.DrystoneError)],
    ids=lambda e: type(e).__name__,
)
def test_our_errors_become_a_line_a_document_and_their_exit_code(
    error: errors.DrystoneError, config: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verbs, "run_verb", failing(error))
    assert main(["plan", config, "--json"]) == error.exit_code
    out, err = capsys.readouterr()
    document = json.loads(out)
    valid(document, "error")
    assert document["error"]["kind"] == error.kind
    assert document["error"]["facts"] == {"fact": 1}
    assert err.startswith("drystone: error: ")
    assert len(err.splitlines()) == 1
    assert err == f"drystone: error: {document['error']['message']}\n"


@pytest.mark.parametrize(
    ("error", "code", "kind", "said"),
    [
        (OSError(28, "No space left on device", "/x/y"), 4, "io", "No space left on device (/x/y)"),
        (ZeroDivisionError("division by zero"), 5, "internal", "unexpected ZeroDivisionError"),
        (MemoryError(), 4, "no-memory", "out of memory; what is done is kept"),
        (StopSignal("SIGTERM"), 75, "stopped", "nothing was changed"),
    ],
)
def test_other_failures_are_words_too(
    error: BaseException,
    code: int,
    kind: str,
    said: str,
    config: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verbs, "run_verb", failing(error))
    assert main(["plan", config, "--json"]) == code
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["kind"] == kind
    assert said in err
    assert "Traceback" not in err


def test_debug_prints_where(config: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "run_verb", failing(ZeroDivisionError("x")))
    assert main(["plan", config, "--debug"]) == 5
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["scan", "run"])
def test_a_stopped_run_says_how_to_go_on(
    verb: str, config: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for error in (StopSignal("SIGTERM"), errors.Stopped("stopped", signal="SIGTERM")):
        monkeypatch.setattr(verbs, "run_verb", failing(error))
        assert main([verb, config]) == 75
        err = capsys.readouterr().err
        assert f"drystone: error: stopped by SIGTERM; what is done is kept: run `drystone {verb} {config}` again" in err
    monkeypatch.setattr(verbs, "run_verb", failing(StopSignal("SIGINT")))
    assert main([verb, config, "--dry-run"]) == 75
    assert "nothing was changed" in capsys.readouterr().err


def test_first_signal_raises_and_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(StopSignal, match="SIGTERM"), stoppable():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_signals_are_left_alone_outside_the_main_thread(config: str) -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(main(["check", config, "--quiet"])))
    thread.start()
    thread.join(30)
    assert codes == [0]


def test_check_good(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", config]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{config}: no problems\n")
    assert "authorize_virtual_chunk_access" in out
    assert err == ""
    assert main(["check", config, "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["check", config, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    valid(document, "check")
    assert document["ok"]
    assert document["config"]["granules"] == [{"lister": "glob", "pattern": "here:raw/*.nc"}]


def test_check_says_what_a_form_costs_in_readers(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    def readers(extra: str) -> tuple[str, str]:
        Path(config).write_text(f"{GOOD}    {extra}\n")
        assert main(["check", config, "--json"]) == 0
        (output,) = json.loads(capsys.readouterr().out)["config"]["outputs"]
        return " ".join(output["can_read"]), " ".join(output["cannot_read"])

    can, cannot = readers("grid: regular")
    assert "GDAL from 3.14" in can
    assert "rectilinear" not in can + cannot
    assert "drystone" not in can + cannot
    can, cannot = readers("grid: rectilinear")
    assert "a rectilinear grid: zarr-python from 3.2" in can
    assert "array.rectilinear_chunks" in can
    assert all(name in cannot.partition("rectilinear grid")[2] for name in ("tensorstore", "GDAL", "zarrita.js", "dask"))
    can, cannot = readers("crop: true")
    assert "where drystone is installed" in can
    assert "xarray without drystone" in cannot
    both = readers("grid: rectilinear\n    crop: true")
    assert all("rectilinear" in text and "drystone.crop" in text for text in both)


def test_check_says_how_granules_combine(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(config).write_text(
        f"{GOOD}    coverage: true\n"
        "combine:\n"
        "  along: {time: {axis: slots, step: 1D, stop: 2000-01-01}, run: {position: attribute, attribute: id}, y: order}\n"
        "  select: {a: 0, b: [-80, null], c: {index: 3}, d: {index: [3, 4]}, e: {step: 2}, "
        "f: {points: [1, 2]}, g: {values: [1]}}\n"
        "  differences: {codec: refuse, coordinates: {tolerance: 0.5}}\n"
        "  duplicates: newest\n"
        "  overlap: last\n"
        "  gaps: error\n"
    )
    assert main(["check", config]) == 0
    out = capsys.readouterr().out
    for line in (
        "  joined along time, placed by coordinate in slots of 1D from the first there is until 2000-01-01, run, placed by ",
        ", run, placed by attribute id, y, placed by order\n",
        "    of a: the place at 0\n",
        "    of b: -80 to the highest\n",
        "    of c: place number 3\n",
        "    of d: 2 places\n",
        "    of e: places 0 to the end, one of 2\n",
        "    of f: 2 points\n",
        "    of g: 1 places by value\n",
        "    where granules differ: codec refuse, coordinate_tolerance 0.5\n",
        "    duplicates: newest\n",
        "    overlap: last\n",
        "    gaps: error\n",
        "  virtual icechunk at here:sst.icechunk, with coverage\n",
    ):
        assert line in out
    assert main(["check", config, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    valid(document, "check")
    assert document["config"]["along"] == ["time", "run", "y"]


def test_check_bad(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(config).write_text(GOOD.replace("at:", "att:").replace("name", "nam"))
    assert main(["check", config]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "has 2 problems" in err
    assert f"{config}:1:1: nam: expected a key of the config, found nam; did you mean name?" in err
    assert f"{config}:5:5: outputs[0].att: " in err
    assert main(["check", config, "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    valid(document, "check")
    assert [p["line"] for p in document["problems"]] == [1, 5]


@pytest.mark.parametrize("verb", ["scan", "plan", "run", "status", "verify"])
def test_a_bad_config_stops_every_verb(verb: str, config: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(config).write_text(GOOD.replace("at:", "att:"))
    assert main([verb, config, "--json"]) == 2
    out, err = capsys.readouterr()
    document = json.loads(out)
    valid(document, "error")
    assert document["error"]["facts"]["list"][0]["where"] == "outputs[0].att"
    assert "nothing was started" in err
    assert sorted(p.name for p in Path(config).parent.iterdir()) == ["a.yaml"]


def test_a_reader_that_goes_away_is_no_failure(config: str) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "drystone.cli.main", "check", config],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_sigterm_to_the_process_exits_with_75(tmp_path: Path) -> None:
    script = tmp_path / "slow.py"
    script.write_text(
        "import sys, time\n"
        "from drystone.cli import main, verbs\n"
        "def slow(args, output):\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
        "verbs.run_verb = slow\n"
        "sys.exit(main.main(['run', 'a.yaml', '--json']))\n"
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert process.returncode == program.EXIT_STOPPED == 75
    assert json.loads(out)["error"]["kind"] == "stopped"
    assert "run `drystone run a.yaml` again" in err


def test_help_loads_no_heavy_library() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "drystone.cli.main", "--help"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    assert "exit codes: 0 done" in done.stdout
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    loaded = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in lines}
    assert "argparse" in loaded
    heavy = {"numpy", "pyarrow", "h5py", "dask", "distributed", "xarray", "icechunk", "zarr", "rich", "yaml", "obstore"}
    assert not loaded & heavy

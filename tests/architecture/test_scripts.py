"""The shell scripts: they parse, the interpreter is found wherever it is, and the job script ends as Slurm needs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = [*sorted((ROOT / "tools").glob("*.sh")), ROOT / ".ci" / "run", ROOT / "slurm" / "drystone.sbatch"]
FIND = ROOT / "tools" / "find_python.sh"
BASH = "/bin/bash"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.name)
def test_scripts_parse(path: Path) -> None:
    done = subprocess.run([BASH, "-n", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def find(path: str, home: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BASH, FIND], env={"PATH": path, "HOME": str(home), **env}, capture_output=True, text=True)


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{BASH}\n{text}\n")
    path.chmod(0o755)


def is_python(found: subprocess.CompletedProcess[str]) -> bool:
    code = "import sys; sys.exit(sys.version_info < (3, 12))"
    return found.returncode == 0 and subprocess.run([found.stdout.strip(), "-c", code]).returncode == 0


def test_python_named_by_the_user(tmp_path: Path) -> None:
    assert is_python(find("", tmp_path, DRYSTONE_PYTHON=sys.executable))
    wrong = find("", tmp_path, DRYSTONE_PYTHON="/no/such/python")
    assert (wrong.returncode, "/no/such/python" in wrong.stderr) == (1, True)


def test_python_on_path_is_asked_for_its_version(tmp_path: Path) -> None:
    # what stands under a name may be a shim that fails, or an older version
    script(tmp_path / "bin" / "python3.13", "exit 127")
    script(tmp_path / "bin" / "python3", f'exec "{sys.executable}" "$@"')
    assert is_python(find(str(tmp_path / "bin"), tmp_path))


def test_python_of_pyenv(tmp_path: Path) -> None:
    script(tmp_path / "pyenv" / "versions" / "3.13.1" / "bin" / "python", f'exec "{sys.executable}" "$@"')
    assert is_python(find("", tmp_path, PYENV_ROOT=str(tmp_path / "pyenv")))
    script(tmp_path / ".pyenv" / "versions" / "3.12.4" / "bin" / "python", f'exec "{sys.executable}" "$@"')
    assert is_python(find("", tmp_path))


def test_python_installed_by_uv(tmp_path: Path) -> None:
    # uv finds one only after it has installed one
    flag = tmp_path / "installed"
    script(
        tmp_path / "bin" / "uv",
        f'if [ "$2" = install ]; then : >"{flag}"; elif [ -e "{flag}" ]; then echo "{sys.executable}"; else exit 2; fi',
    )
    assert is_python(find(str(tmp_path / "bin"), tmp_path))
    assert flag.exists()


def test_no_python_says_what_to_do(tmp_path: Path) -> None:
    found = find(str(tmp_path), tmp_path)
    assert found.returncode == 1
    assert "no Python >= 3.12" in found.stderr
    assert "DRYSTONE_PYTHON=" in found.stderr
    assert found.stdout == ""


@pytest.mark.parametrize("code", [75, 5])
def test_job_script_hands_on_the_signal_and_requeues_what_can_continue(tmp_path: Path, code: int) -> None:
    """Slurm sends SIGTERM to the batch shell alone; the driver must hear it, and 75 means: back into the queue."""
    script(
        tmp_path / "bin" / "drystone",
        f"trap 'echo stopping >>log; sleep 0.3; echo stopped >>log; exit {code}' TERM\n"
        "echo started >>log\nfor i in $(seq 200); do sleep 0.1; done",
    )
    script(tmp_path / "bin" / "scontrol", 'echo "$@" >>log')
    env = {**os.environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}", "SLURM_JOB_ID": "42"}
    job = subprocess.Popen([BASH, ROOT / "slurm" / "drystone.sbatch", "a.yaml"], cwd=tmp_path, env=env)
    log = tmp_path / "log"
    while not log.exists():
        assert job.poll() is None
        time.sleep(0.02)
    job.send_signal(signal.SIGTERM)
    assert job.wait(30) == code
    assert log.read_text().split("\n")[:-1] == ["started", "stopping", "stopped"] + (["requeue 42"] if code == 75 else [])

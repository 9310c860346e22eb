"""The engine: every item ends somewhere, whatever happens to workers and driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from services.engine_functions import dies_twice, full, killer, odd, pid, slow

from drystone.errors import DrystoneError, Stopped, StorageError
from drystone.execute import attempts, engine, resources
from drystone.execute.engine import Outcome, run_windowed
from drystone.model.options import ExecutionOptions

LOCAL = ExecutionOptions("local", workers=2, memory_per_worker=2_000_000_000)
INLINE = ExecutionOptions("inline")


@pytest.fixture(autouse=True)
def workers_find_this_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in (str(Path(__file__).parents[2]), before) if p))


@pytest.fixture
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "_FIRST_DELAY", 0.01)


def collect(
    function: Callable[[Any], Any], items: Any, options: ExecutionOptions, **more: Any
) -> tuple[Outcome, dict[Any, Any], dict[Any, DrystoneError]]:
    done: dict[Any, Any] = {}
    failed: dict[Any, DrystoneError] = {}
    outcome = run_windowed(function, items, options, on_done=done.__setitem__, on_failed=failed.__setitem__, **more)
    return outcome, done, failed


@pytest.mark.parametrize("options", [INLINE, LOCAL], ids=["inline", "dask"])
def test_failures_are_set_aside_and_the_rest_goes_on(options: ExecutionOptions, no_delay: None) -> None:
    outcome, done, failed = collect(odd, range(8), options, inline=options is INLINE)
    assert sorted(done) == [0, 1, 2, 4, 6, 7]
    assert outcome == Outcome(done=6, failed=2, retried=2)  # ValueError had three tries, DecodeError one
    assert failed[5].kind == "decode"
    assert failed[3].kind == "unexpected"
    assert "ValueError: three" in failed[3].message


def test_two_processes_work(no_delay: None) -> None:
    _, done, _ = collect(pid, range(40), LOCAL, inline=False)
    assert len(set(done.values())) == 2
    assert os.getpid() not in done.values()


def test_killer_is_set_aside_by_name_and_its_neighbours_are_not() -> None:
    outcome, done, failed = collect(killer, range(12), LOCAL, inline=False)
    assert sorted(done) == [i for i in range(12) if i != 5]
    assert failed[5].kind == "worker-killed"
    assert outcome.lost == attempts.MAX_DEATHS


def test_deaths_use_up_no_tries(tmp_path: Path) -> None:
    outcome, done, failed = collect(dies_twice, [(str(tmp_path), i) for i in range(4)], LOCAL, inline=False, tries=1)
    assert len(done) == 4
    assert not failed
    assert outcome.failed == 0


def test_full_disk_ends_the_run_at_once() -> None:
    with pytest.raises(StorageError, match="disk is full"):
        collect(full, range(1000), INLINE)


def test_small_work_starts_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_run_dask", lambda *_: pytest.fail("a cluster was started"))
    _, done, _ = collect(abs, range(100), LOCAL)
    assert len(done) == 100


def test_long_work_moves_to_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_PATIENCE", 0.2)
    _, done, _ = collect(pid, range(30), LOCAL)
    assert len(done) == 30
    assert os.getpid() in done.values()
    assert len(set(done.values())) == 3


def test_items_are_drawn_late() -> None:
    drawn = 0

    def items() -> Iterator[int]:
        nonlocal drawn
        for i in range(50):
            drawn += 1
            yield i

    ahead = []
    run_windowed(abs, items(), INLINE, on_done=lambda i, _: ahead.append(drawn - i), on_failed=print)
    assert max(ahead) == 1
    drawn, ahead = 0, []
    run_windowed(pid, items(), LOCAL, on_done=lambda _, __: ahead.append(drawn - len(ahead)), on_failed=print, inline=False)
    assert max(ahead) <= 2 * 2 + 1  # the window: two for each of two workers


@pytest.mark.parametrize("options", [INLINE, LOCAL], ids=["inline", "dask"])
def test_sigterm_stops_and_keeps(options: ExecutionOptions) -> None:
    done: list[int] = []

    def on_done(item: int, _: int) -> None:
        done.append(item)
        if len(done) == 2:
            signal.raise_signal(signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Stopped, match="SIGTERM") as info:
        run_windowed(slow, range(100), options, on_done=on_done, on_failed=print, inline=options is INLINE)
    assert info.value.exit_code == 75
    assert 2 <= len(done) < 10
    assert signal.getsignal(signal.SIGTERM) == before


def test_second_signal_insists() -> None:
    def twice() -> None:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=twice)
    thread.start()
    start = time.monotonic()
    with pytest.raises(Stopped):
        collect(lambda _: time.sleep(60), range(3), INLINE)
    thread.join()
    assert time.monotonic() - start < 50


def test_callback_errors_are_not_swallowed() -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("the driver's own fault")

    with pytest.raises(RuntimeError, match="own fault"):
        run_windowed(abs, [1], INLINE, on_done=refuse, on_failed=print)


DRIVER = """
    from services.engine_functions import pid
    from drystone.execute.engine import run_windowed
    from drystone.model.options import ExecutionOptions
    if __name__ == "__main__":
        run_windowed(pid, range(10_000), ExecutionOptions("local", workers=2, memory_per_worker=2_000_000_000),
                     on_done=lambda _, p: print(p, flush=True), on_failed=print, inline=False)
"""


def test_workers_die_with_a_killed_driver(tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(textwrap.dedent(DRIVER))
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as driver:
        assert driver.stdout is not None
        pids = {int(driver.stdout.readline()) for _ in range(30)}
        driver.kill()
    assert len(pids) == 2
    deadline = time.monotonic() + 30
    while any(_alive(p) for p in pids):
        assert time.monotonic() < deadline, "a worker outlived its driver"
        time.sleep(0.1)


def _alive(number: int) -> bool:
    try:
        text = Path(f"/proc/{number}/stat").read_text()
    except FileNotFoundError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"  # nobody may be there to bury it


class TestResources:
    def test_a_small_run_stays_here(self) -> None:
        assert resources.resolve(ExecutionOptions(), 1000).inline
        assert not resources.resolve(ExecutionOptions(workers=2), 1000).inline

    def test_cores_are_shared_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(resources, "cpu_count", lambda: 8)
        monkeypatch.setattr(resources, "host_memory", lambda: 80)
        assert resources.resolve(ExecutionOptions(threads_per_worker=2), 10**12) == resources.Resources(False, 4, 2, 16)
        assert resources.resolve(ExecutionOptions(workers=2), 10**12).threads == 4
        assert resources.resolve(ExecutionOptions("inline")).threads == 8

    def test_memory_is_this_hosts(self) -> None:
        assert 10**8 < resources.host_memory() < 10**14

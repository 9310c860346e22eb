"""Progress: few lines where stderr is a file, bars on a terminal, nothing when quiet."""

from __future__ import annotations

import io
import threading

from drystone.cli.progress import Bars, Lines, progress_for
from drystone.model.progress import Progress, Silent


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_lines_are_few() -> None:
    out, clock = io.StringIO(), Clock()
    lines = Lines(out, clock=clock)
    lines.start("scan", 1000, "granules")
    for _ in range(1000):
        clock.now += 0.03125  # exact in binary
        lines.advance("scan")
    lines.note("a.nc has an odd variable")
    lines.finish("scan")
    lines.finish("never begun")
    lines.advance("never begun")
    assert out.getvalue().splitlines() == [
        "scan: 1,000 granules to do",
        "scan: 320 of 1,000 granules, 21 s left",
        "scan: 640 of 1,000 granules, 11 s left",
        "scan: 960 of 1,000 granules, 1 s left",
        "a.nc has an odd variable",
        "scan: 1,000 granules in 31.2 s",
    ]


def test_lines_without_a_total() -> None:
    out, clock = io.StringIO(), Clock()
    lines = Lines(out, clock=clock)
    lines.start("list", None, "granules")
    clock.now = 11.0
    lines.advance("list", 5)
    lines.finish("list")
    assert out.getvalue().splitlines() == ["list: 5 granules", "list: 5 granules in 11.0 s"]


def test_lines_count_from_many_threads() -> None:
    out = io.StringIO()
    lines = Lines(out)
    lines.start("write", 8000, "tasks")
    threads = [threading.Thread(target=lambda: [lines.advance("write") for _ in range(1000)]) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    lines.finish("write")
    assert out.getvalue().splitlines()[-1].startswith("write: 8,000 tasks in ")


def exercise(progress: Progress) -> None:
    progress.start("scan", None, "granules")
    progress.start("write", 3, "tasks")
    progress.advance("scan", 2)
    progress.advance("write")
    progress.note("[bold]not markup[/bold]")
    progress.finish("write")
    progress.finish("scan")
    progress.finish("scan")


def test_bars_on_a_terminal() -> None:
    terminal = Terminal()
    with progress_for(quiet=False, stream=terminal) as progress:
        assert isinstance(progress, Bars)
        exercise(progress)
    text = terminal.getvalue()
    assert "scan" in text
    assert "granules" in text
    assert "[bold]not markup[/bold]" in text


def test_lines_elsewhere_and_silence_when_quiet() -> None:
    stream = io.StringIO()
    with progress_for(quiet=False, stream=stream) as progress:
        assert isinstance(progress, Lines)
        exercise(progress)
    assert stream.getvalue()
    quiet = Terminal()
    with progress_for(quiet=True, stream=quiet) as progress:
        assert isinstance(progress, Silent)
        exercise(progress)
    assert quiet.getvalue() == ""

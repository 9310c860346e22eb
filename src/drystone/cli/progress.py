"""Progress on stderr: bars on a terminal, plain lines elsewhere (a log keeps every line, so there are few)."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from drystone.model.progress import Progress, Silent

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

__all__ = ["Bars", "Lines", "progress_for"]

_LINE_SECONDS = 10.0


@contextmanager
def progress_for(quiet: bool, stream: TextIO | None = None) -> Iterator[Progress]:
    """The listener that suits where stderr goes."""
    stream = stream or sys.stderr
    if quiet:
        yield Silent()
    elif stream.isatty():
        bars = Bars(stream)
        with bars.bars:
            yield bars
    else:
        yield Lines(stream)


@dataclass(slots=True)
class _Stage:
    total: int | None
    unit: str
    begun: float
    done: int = 0
    told: float = 0.0


@dataclass(slots=True)
class Lines:
    """A line when a stage begins, one each ten seconds while it lasts, one when it is over.

    Examples
    --------
    >>> import io
    >>> out = io.StringIO()
    >>> lines = Lines(out, clock=iter([0.0, 1.0, 2.0]).__next__)
    >>> lines.start("scan", 1200, "granules"); lines.advance("scan", 1200); lines.finish("scan")
    >>> print(out.getvalue(), end="")
    scan: 1,200 granules to do
    scan: 1,200 granules in 2.0 s
    """

    stream: TextIO
    clock: Callable[[], float] = time.monotonic
    _stages: dict[str, _Stage] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def _write(self, text: str) -> None:
        self.stream.write(f"{text}\n")
        self.stream.flush()

    def start(self, stage: str, total: int | None, unit: str) -> None:
        """Tell how much there is to do, where it is known."""
        with self._lock:
            now = self.clock()
            self._stages[stage] = _Stage(total, unit, now, told=now)
            if total is not None:
                self._write(f"{stage}: {total:,} {unit} to do")

    def advance(self, stage: str, n: int = 1) -> None:
        """Count; a line now and then."""
        with self._lock:
            s = self._stages.get(stage)
            if s is None:
                return
            s.done += n
            now = self.clock()
            if now - s.told < _LINE_SECONDS:
                return
            s.told = now
            of = "" if s.total is None else f" of {s.total:,}"
            left = ""
            if s.total and s.done:
                left = f", {(now - s.begun) * (s.total - s.done) / s.done:.0f} s left"
            self._write(f"{stage}: {s.done:,}{of} {s.unit}{left}")

    def note(self, message: str) -> None:
        """A line of its own."""
        with self._lock:
            self._write(message)

    def finish(self, stage: str) -> None:
        """Tell what was done and how long it took."""
        with self._lock:
            s = self._stages.pop(stage, None)
            if s is not None:
                what = "done" if s.total is None and not s.done else f"{s.done:,} {s.unit}"
                self._write(f"{stage}: {what} in {self.clock() - s.begun:.1f} s")


class Bars:
    """A bar a stage, drawn by rich."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as RichProgress

        self.bars: RichProgress = RichProgress(
            SpinnerColumn(),
            TextColumn("{task.description:<10}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(file=stream),
        )
        self._tasks: dict[str, TaskID] = {}

    def start(self, stage: str, total: int | None, unit: str) -> None:
        """Add a bar."""
        self._tasks[stage] = self.bars.add_task(stage, total=total, unit=unit)

    def advance(self, stage: str, n: int = 1) -> None:
        """Move a bar."""
        if stage in self._tasks:
            self.bars.advance(self._tasks[stage], n)

    def note(self, message: str) -> None:
        """Print above the bars, as written."""
        self.bars.console.print(message, markup=False, highlight=False)

    def finish(self, stage: str) -> None:
        """Leave the bar, full."""
        task = self._tasks.pop(stage, None)
        if task is not None:
            done = next(t.completed for t in self.bars.tasks if t.id == task)
            self.bars.update(task, total=done, completed=done)
            self.bars.stop_task(task)

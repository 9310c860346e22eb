"""Stopping on request: the first SIGTERM or SIGINT asks, the second insists.

Slurm sends SIGTERM half a minute before it kills, a terminal SIGINT. After the first, no new work is started and what runs
may end; after the second :class:`~drystone.errors.Stopped` is raised where the program is. Either way nothing is lost: a
task that was cut off is done again.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Self

from drystone.errors import Stopped

__all__ = ["StopRequest"]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Listens while it is entered; outside the main thread it hears nothing, since Python gives signals to that one.

    Examples
    --------
    >>> with StopRequest() as stop:
    ...     signal.raise_signal(signal.SIGTERM)
    ...     stop.name
    'SIGTERM'
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._before[number] = signal.signal(number, self._heard)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self.name is not None:
            raise self.stopped()
        self.name = signal.Signals(number).name

    def stopped(self) -> Stopped:
        """The error that says so."""
        return Stopped(f"stopped by {self.name}; what is done is kept, run again to go on", signal=self.name)

"""SIGTERM and SIGINT as one exception, so that leases are given back and half-written files removed on the way out.

Only the first signal is turned into :class:`StopSignal`; the default action is put back at once, so that a second one ends
the process even where the way out hangs. Nothing depends on a clean way out: a run killed outright resumes as well.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["EXIT_STOPPED", "StopSignal", "stoppable"]

EXIT_STOPPED = 75
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignal(BaseException):
    """The process was asked to stop; no handler of ordinary errors may hold it up."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def _stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a handler's signature
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_DFL)
    raise StopSignal(signal.Signals(number).name)


@contextmanager
def stoppable() -> Iterator[None]:
    """Inside, the first SIGTERM or SIGINT raises :class:`StopSignal` in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield  # a library caller's thread: signals are the main program's business
        return
    before = [signal.signal(each, _stop) for each in _SIGNALS]
    try:
        yield
    finally:
        for each, handler in zip(_SIGNALS, before, strict=True):
            signal.signal(each, handler)

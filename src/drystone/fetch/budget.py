"""A bound on bytes in flight."""

from __future__ import annotations

import threading

__all__ = ["Budget"]


class Budget:
    """Bytes that may be held at a time by fetched and not yet delivered chunks, shared by all readers of a fetcher.

    A demand larger than the whole budget waits until it is alone, then goes ahead: one chunk must always fit.

    Examples
    --------
    >>> budget = Budget(100)
    >>> budget.acquire(60)
    >>> budget.held
    60
    >>> budget.release(60)
    """

    def __init__(self, total: int) -> None:
        if total < 1:
            raise ValueError(f"a budget is at least 1 byte, not {total}")
        self.total = total
        self.held = 0
        self._change = threading.Condition()

    def acquire(self, nbytes: int) -> None:
        """Wait until so many bytes are free, and take them."""
        with self._change:
            self._change.wait_for(lambda: self.held == 0 or self.held + nbytes <= self.total)
            self.held += nbytes

    def release(self, nbytes: int) -> None:
        """Give them back."""
        with self._change:
            self.held -= nbytes
            self._change.notify_all()

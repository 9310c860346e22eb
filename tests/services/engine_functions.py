"""What tests run on workers: importable by name there."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from drystone.errors import DecodeError, StorageError


def pid(_: int) -> int:
    time.sleep(0.05)
    return os.getpid()


def odd(item: int) -> int:
    if item == 3:
        raise ValueError("three")
    if item == 5:
        raise DecodeError("five does not decode")
    return item * item


def killer(item: int) -> int:
    time.sleep(0.1)
    if item == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def dies_twice(args: tuple[str, int]) -> int:
    """Kill the worker on the first two calls with an item of 1."""
    folder, item = args
    if item == 1:
        marks = Path(folder)
        n = len(list(marks.iterdir()))
        if n < 2:
            (marks / str(n)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return item


def full(item: int) -> int:
    if item >= 2:
        raise StorageError("the disk is full", kind="no-space")
    return item


def slow(item: int) -> int:
    time.sleep(0.3)
    return item

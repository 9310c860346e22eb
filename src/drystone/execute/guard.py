"""Loaded by each Dask worker of a local cluster as it starts: a worker must not outlive its driver.

Dask's workers watch a pipe to their parent and exit when it closes, which needs the interpreter to be free. The kernel is
asked as well (``PR_SET_PDEATHSIG``), which also holds where a worker is deep in a C library.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

__all__ = ["dask_setup", "die_with_parent"]

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the one that started it ends; Linux only."""
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # the parent went before the kernel was asked


def dask_setup(worker: object) -> None:  # noqa: ARG001  the hook's signature
    """Dask's preload hook."""
    die_with_parent()

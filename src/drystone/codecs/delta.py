"""Differences of neighbours instead of whole numbers, as numcodecs' ``Delta`` takes them: each minus the one before.

Elements are taken in C order, as one row, and differences wrap as the type does, so that sums wrap back: nothing is lost.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["differences", "sums"]


def differences(src: NDArray[np.uint8], dtype: np.dtype) -> NDArray[np.uint8]:
    """Elements' bytes to those of their differences.

    Examples
    --------
    >>> differences(np.array([3, 4, 2], "u1"), np.dtype("u1")).tolist()
    [3, 1, 254]
    """
    numbers = src.view(dtype)
    out = np.empty_like(numbers)
    out[:1] = numbers[:1]
    np.subtract(numbers[1:], numbers[:-1], out=out[1:])
    return out.view(np.uint8)


def sums(src: NDArray[np.uint8], dtype: np.dtype) -> NDArray[np.uint8]:
    """The way back.

    Examples
    --------
    >>> sums(np.array([3, 1, 254], "u1"), np.dtype("u1")).tolist()
    [3, 4, 2]
    """
    numbers = src.view(dtype)
    return np.cumsum(numbers, dtype=numbers.dtype).astype(dtype, copy=False).view(np.uint8)

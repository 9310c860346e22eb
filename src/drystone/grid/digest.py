"""A digest of values that does not depend on how they are cut: ``dsd1``.

Of an array with named axes, for each step ``r`` of one of them::

    D[r] = sum over the step's elements of  prod over the other axes d of A_d(i_d)  *  M(bits of the value)    modulo 2**64
    A_d(i) = splitmix64(i * K1 + seed_d) | 1,  seed_d = the first 8 bytes of blake2b(name of the axis), little-endian

``M`` makes unrelated numbers of related bits: for elements of 8 bytes ``x = v ^ C0; x ^= x >> 32; x *= K1; x ^= x >> 32``, for
those of 4 ``x = v + C0; x *= K1; x ^= x >> 32``, for those of 1 and 2 ``x = v + C0``, where ``v`` are the element's bits as an
unsigned number. A complex number is two numbers along an axis without a name, behind the others.

So boxes of any shape, in any order, add up to the same, an axis may grow, and axes may change places. Every weight is odd, so
one changed element always shows; more of them go unseen about once in 2**40 or less. It finds faults, not forgers. Zeros
count as well: a hole of fill that should be zeros, or a block that is there twice, shows.

The file is loaded by its path too, by a program that must not import drystone: NumPy only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["NAME", "combined", "digestible", "mixed", "step_digests", "weights"]

NAME = "dsd1"

type Words = np.ndarray[Any, np.dtype[np.uint64]]

_K1 = np.uint64(0x9E3779B97F4A7C15)
_C0 = np.uint64(0xD1B54A32D192ED03)
_HALF = np.uint64(32)
_AT_ONCE = 1 << 15  # elements mixed at a time: two such buffers stay in a core's cache


def digestible(dtype: np.dtype[Any]) -> bool:
    """Whether elements of a type have a digest: numbers of 1 to 8 bytes, and complex ones.

    Examples
    --------
    >>> digestible(np.dtype(">f4")), digestible(np.dtype("S3"))
    (True, False)
    """
    return dtype.itemsize in ((8, 16) if dtype.kind == "c" else (1, 2, 4, 8)) and dtype.kind in "biufc"


def weights(name: str, start: int, stop: int) -> Words:
    """Weights of a part of an axis, uint64 (stop - start,), all odd.

    Examples
    --------
    >>> [hex(w) for w in weights("time", 0, 2).tolist()]
    ['0x8ce399d571659fb7', '0xcb8077ba79368faf']
    """
    seed = np.frombuffer(hashlib.blake2b(name.encode(), digest_size=8).digest(), "<u8").astype(np.uint64)
    x = np.arange(start, stop, dtype=np.uint64) * _K1 + seed
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return np.asarray(x | np.uint64(1))


def mixed(values: np.ndarray[Any, np.dtype[Any]], out: Words) -> Words:
    """``M`` of values in native byte order, into a buffer of their shape."""
    size = values.dtype.itemsize
    bits = values.view(f"u{size}")
    if size == 8:
        np.bitwise_xor(bits, _C0, out=out)
        out ^= out >> _HALF
    else:
        np.add(bits, _C0, out=out, dtype=np.uint64)
    if size >= 4:
        np.multiply(out, _K1, out=out)
        out ^= out >> _HALF
    return out


def step_digests(
    values: np.ndarray[Any, np.dtype[Any]],
    start: Sequence[int],
    dims: Sequence[str],
    axis: int | None,
    where: np.ndarray[Any, np.dtype[np.bool_]] | None = None,
) -> Words:
    """Digests of a box, one for each of its steps; add them to the array's at ``start[axis]``.

    Parameters
    ----------
    values
        The box: elements as they are stored (packed, unmasked), of any byte order and strides.
    start
        Its first element within the array.
    dims
        Names of the array's axes.
    axis
        The axis whose steps are kept apart; None: one digest of all.
    where
        Of the box's shape: the elements that count; None: all.

    Returns
    -------
    Words
        uint64 (values.shape[axis],), or (1,).

    Examples
    --------
    >>> a = np.arange(24, dtype="i2").reshape(2, 3, 4)
    >>> whole = step_digests(a, (0, 0, 0), ("time", "y", "x"), 0)
    >>> parts = [step_digests(a[:, :, i : i + 2], (0, 0, i), ("time", "y", "x"), 0) for i in (2, 0)]
    >>> bool((whole == parts[0] + parts[1]).all()), [hex(d) for d in whole.tolist()]
    (True, ['0xce6ca2c5935920f6', '0x84bc78d53288278e'])
    """
    values = values.astype(values.dtype.newbyteorder("="), copy=False)
    along = [weights(name, a, a + n) for name, a, n in zip(dims, start, values.shape, strict=True)]
    if values.dtype.kind == "c":
        values = np.ascontiguousarray(values)[..., None].view(values.dtype.type(0).real.dtype)
        where = None if where is None else np.broadcast_to(where[..., None], values.shape)
        along.append(weights("", 0, 2))
    if axis is None:
        values, axis, along = values[None], 0, [np.ones(1, np.uint64), *along]
        where = None if where is None else where[None]
    steps, rest = values.shape[axis], [w for i, w in enumerate(along) if i != axis]
    if not values.size:
        return np.zeros(steps, np.uint64)
    values = np.moveaxis(values, axis, 0)
    where = None if where is None else np.moveaxis(where, axis, 0)
    if not rest:  # one element a step
        values, rest = values[:, None], [np.ones(1, np.uint64)]
        where = None if where is None else where[:, None]
    rows = (steps, -1, values.shape[-1])
    return _sums(values.reshape(rows), rest, None if where is None else where.reshape(rows))


def _sums(
    values: np.ndarray[Any, np.dtype[Any]], rest: list[Words], where: np.ndarray[Any, np.dtype[np.bool_]] | None
) -> Words:
    """Weighted sums over all but the first axis of (steps, rows, columns)."""
    steps, rows, columns = values.shape
    middle = np.ones(1, np.uint64)
    for w in rest[:-1]:
        middle = (middle[:, None] * w).reshape(-1)
    sums = np.zeros(steps, np.uint64)
    width = max(1, min(columns, _AT_ONCE))
    height = max(1, min(rows, _AT_ONCE // width))
    depth = max(1, min(steps, _AT_ONCE // (width * height)))
    buffer = np.empty(depth * height * width, np.uint64)
    for t in range(0, steps, depth):
        for y in range(0, rows, height):
            for x in range(0, columns, width):
                box = (slice(t, t + depth), slice(y, y + height), slice(x, x + width))
                part = np.ascontiguousarray(values[box])
                words = mixed(part, buffer[: part.size].reshape(part.shape))
                if where is not None:
                    words *= where[box]
                sums[t : t + depth] += np.matmul(words, rest[-1][x : x + width]) @ middle[y : y + height]
    return sums


def combined(digests: Words, name: str) -> int:
    """One number of the digests of all steps, whose axis has a name.

    Examples
    --------
    >>> hex(combined(np.array([1, 2], np.uint64), "time"))
    '0x23e4894a63d2bf15'
    """
    return int((digests * weights(name, 0, len(digests))).sum(dtype=np.uint64))

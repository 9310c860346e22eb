"""The digest of values, beside its definition written out in Python's own integers."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import pytest

from drystone.grid.digest import combined, digestible, step_digests, weights

MASK = 2**64 - 1


def splitmix64(x: int) -> int:
    """Its finalizer, as published."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def weight(name: str, i: int) -> int:
    seed = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
    return splitmix64((i * 0x9E3779B97F4A7C15 + seed) & MASK) | 1


def mix(bits: int, size: int) -> int:
    if size < 8:
        x = bits + 0xD1B54A32D192ED03 & MASK
        if size < 4:
            return x
    else:
        x = bits ^ 0xD1B54A32D192ED03
        x ^= x >> 32
    x = x * 0x9E3779B97F4A7C15 & MASK
    return x ^ (x >> 32)


def by_definition(values: np.ndarray, start: tuple[int, ...], dims: tuple[str, ...], axis: int) -> list[int]:
    out = [0] * values.shape[axis]
    for at in itertools.product(*map(range, values.shape)):
        size = values.dtype.itemsize
        raw = values[at].astype(values.dtype.newbyteorder("<")).tobytes()
        lanes = [raw] if values.dtype.kind != "c" else [raw[: size // 2], raw[size // 2 :]]
        for lane, part in enumerate(lanes):
            term = mix(int.from_bytes(part, "little"), len(part))
            for d, (name, first, i) in enumerate(zip(dims, start, at, strict=True)):
                term = term * (weight(name, first + i) if d != axis else 1) & MASK
            if values.dtype.kind == "c":
                term = term * weight("", lane) & MASK
            out[at[axis]] = out[at[axis]] + term & MASK
    return out


DTYPES = ("i1", "u1", "?", "<i2", ">i2", "f2", "<f4", ">f4", "u4", "f8", ">i8", "c8", "c16")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_by_its_definition(dtype: str, axis: int) -> None:
    rng = np.random.default_rng(3)
    values = rng.integers(0, 2, (2, 3, 4)).astype(dtype) if dtype == "?" else rng.normal(0, 50, (2, 3, 4)).astype(dtype)
    where = (5, 0, 7), ("time", "lat", "lon")
    assert step_digests(values, *where, axis).tolist() == by_definition(values, *where, axis)


# of ``np.arange(24).reshape(2, 3, 4) * 7 - 50`` as each type, along ``time`` at (5, 0, 7): what other programs must find
VECTORS = {
    "i2": ["8688fef2874901b0", "858c418b72db1688"],
    "f4": ["36a8d4d884eae940", "a23c6fad37a00e25"],
    "f8": ["f143a52d8df0351d", "ccd8ce27371da5d9"],
    "c16": ["21f29c4c12f8da0b", "723ce3c43851876f"],
}


@pytest.mark.parametrize("dtype", VECTORS)
def test_vectors_stay(dtype: str) -> None:
    values = (np.arange(24).reshape(2, 3, 4) * 7 - 50).astype(dtype)
    found = step_digests(values, (5, 0, 7), ("time", "lat", "lon"), 0)
    assert [f"{d:016x}" for d in found.tolist()] == VECTORS[dtype]


def test_cuts_order_and_axes_do_not_matter() -> None:
    rng = np.random.default_rng(1)
    dims, values = ("t", "y", "x"), rng.normal(size=(9, 70, 800)).astype("f4")
    whole = step_digests(values, (0, 0, 0), dims, 0)
    for _ in range(10):
        out = np.zeros(9, np.uint64)
        edges = [[0, *sorted(set(rng.integers(1, n, 3).tolist())), n] for n in values.shape]
        boxes = list(itertools.product(*(list(itertools.pairwise(e)) for e in edges)))
        for i in rng.permutation(len(boxes)).tolist():
            box = tuple(slice(*ab) for ab in boxes[i])
            out[box[0]] += step_digests(values[box], [s.start for s in box], dims, 0)
        assert (out == whole).all()
    turned = step_digests(values.transpose(2, 0, 1), (0, 0, 0), ("x", "t", "y"), 1)
    assert (turned == whole).all()
    assert combined(whole, "t") == int(step_digests(values, (0, 0, 0), dims, None)[0])


def test_faults_show() -> None:
    """Swaps, shifts, holes of zeros, single bits, signs, payloads of NaN."""
    rng = np.random.default_rng(2)
    for dtype in ("i2", "f4", "f8"):
        values = rng.normal(0, 100, (6, 12, 16)).astype(dtype)
        whole = step_digests(values, (0, 0, 0), ("t", "y", "x"), 0)
        for _ in range(60):
            wrong = values.copy()
            t, y, x = (int(rng.integers(1, n - 4)) for n in (6, 12, 16))
            kind = int(rng.integers(0, 5))
            if kind == 0:
                wrong[t, y, x], wrong[t, y + 1, x + 1] = values[t, y + 1, x + 1], values[t, y, x]
            elif kind == 1:
                wrong[t] = np.roll(values[t], 1, axis=-1)
            elif kind == 2:
                wrong[t, y : y + 2, x : x + 2] = 0
            elif kind == 3:
                wrong[t, y : y + 2, x : x + 2] *= -1
            else:
                wrong.view(f"u{values.dtype.itemsize}")[t, y, x] ^= 1 << int(rng.integers(0, 8 * values.dtype.itemsize))
            found = step_digests(wrong, (0, 0, 0), ("t", "y", "x"), 0) != whole
            assert (
                found.tolist()
                == (wrong.view(f"u{values.dtype.itemsize}") != values.view(f"u{values.dtype.itemsize}"))
                .any(axis=(1, 2))
                .tolist()
            )


def test_masked_and_whole_parts_add_up() -> None:
    rng = np.random.default_rng(4)
    for dtype in ("i2", "c8"):
        values = rng.normal(0, 9, (3, 5, 7)).astype(dtype)
        mask = rng.random(values.shape) < 0.4
        args = ((0, 0, 0), ("t", "y", "x"), 1)
        parts = step_digests(values, *args, where=mask) + step_digests(values, *args, where=~mask)
        assert (parts == step_digests(values, *args)).all()


def test_odd_shapes() -> None:
    assert step_digests(np.float32(2.5), (), (), None).tolist() == by_definition(np.array([2.5], "f4"), (0,), ("",), 0)
    assert step_digests(np.zeros((3, 0), "i2"), (0, 0), ("t", "x"), 0).tolist() == [0, 0, 0]
    series = np.arange(4, dtype="f8")
    assert step_digests(series, (2,), ("t",), 0).tolist() == by_definition(series, (2,), ("t",), 0)
    assert weights("t", 5, 9).tolist() == [weight("t", i) for i in range(5, 9)]
    assert not digestible(np.dtype("f8, i4"))
    assert not digestible(np.dtype("S8"))
    assert not digestible(np.dtype(object))
    assert not digestible(np.dtype("longdouble"))

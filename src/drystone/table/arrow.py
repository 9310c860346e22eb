"""Between NumPy and Python values and Arrow columns, by their buffers.

``pyarrow.array`` and ``to_numpy`` import pandas wherever it is installed, whatever they are given, which takes longer than
scanning a hundred files or writing a million references.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from drystone.errors import PlanError

__all__ = ["DTYPES", "Values", "column", "dictionary", "numbers", "table", "texts"]

type Values = NDArray[np.generic] | Sequence[object] | pa.Array | pa.ChunkedArray

DTYPES = {  # of the types that numbers are stored in
    getattr(pa, name)(): np.dtype(name)
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")
}
_TYPES = {dtype: kind for kind, dtype in DTYPES.items()}
_MOST_TEXT = np.iinfo(np.int32).max


def column(values: NDArray[np.generic], null: NDArray[np.bool_] | None = None) -> pa.Array:
    """Numbers or truth values as an Arrow array of the same type.

    Parameters
    ----------
    values
        One-dimensional, native.
    null
        Where there is no value; None: nowhere.

    Examples
    --------
    >>> column(np.array([1, 2], np.int8), np.array([False, True])).to_pylist()
    [1, None]
    >>> column(np.array([True, False, True])).to_pylist()
    [True, False, True]
    """
    valid = None if null is None else _bits(~null)
    if values.dtype == np.bool_:
        return pa.Array.from_buffers(pa.bool_(), len(values), [valid, _bits(values)])
    kind = _TYPES[values.dtype]
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(np.ascontiguousarray(values))])


def _bits(values: NDArray[np.generic]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values.view(np.bool_), bitorder="little"))


def numbers(values: pa.Array | pa.ChunkedArray, null: int | None = None) -> np.ndarray:
    """A column of numbers or truth values as NumPy, read-only; without a copy where it is in one piece.

    Parameters
    ----------
    null
        What takes the place of nulls; None: there must be none.

    Raises
    ------
    ValueError
        There is a null.

    Examples
    --------
    >>> numbers(column(np.array([5, 6, 7])).slice(1)).tolist()
    [6, 7]
    >>> numbers(pa.chunked_array([column(np.zeros(2), np.array([False, True]))]), null=9).tolist()
    [0.0, 9.0]
    """
    pieces = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    if len(pieces) == 1:
        return _numbers(pieces[0], null)
    dtype = np.dtype(np.bool_) if pa.types.is_boolean(values.type) else DTYPES[values.type]
    return np.concatenate([np.zeros(0, dtype), *(_numbers(p, null) for p in pieces)])


def _numbers(values: pa.Array, null: int | None) -> np.ndarray:
    n, start = len(values), values.offset
    valid, data = values.buffers()
    if pa.types.is_boolean(values.type):
        out: np.ndarray = _from_bits(data, start, n)
    else:
        dtype = DTYPES[values.type]
        out = np.frombuffer(data, dtype, n, start * dtype.itemsize) if n else np.zeros(0, dtype)
    if values.null_count:
        if null is None:
            raise ValueError(f"a column that must be full lacks {values.null_count} of {n} values")
        out = np.where(_from_bits(valid, start, n), out, out.dtype.type(null))
    return out


def _from_bits(data: pa.Buffer | None, start: int, n: int) -> NDArray[np.bool_]:
    if data is None or n == 0:
        return np.ones(n, np.bool_)
    first = start // 8
    bits = np.unpackbits(np.frombuffer(data, np.uint8)[first : (start + n + 7) // 8], bitorder="little")
    return bits[start - 8 * first :][:n].view(np.bool_)


def texts(values: Sequence[object], kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Strings or byte strings as an Arrow column; in several pieces beyond 2 GiB.

    Parameters
    ----------
    values
        ``str`` or ``bytes``; None is null.
    kind
        ``pa.string()`` or ``pa.binary()``.

    Raises
    ------
    UnicodeEncodeError
        A string is no UTF-8.

    Examples
    --------
    >>> texts(["a", None, "é"], pa.string()).to_pylist()
    ['a', None, 'é']
    """
    data = [v.encode() if isinstance(v, str) else v or b"" for v in values]
    return _texts(data, np.array([v is None for v in values], np.bool_), kind)  # type: ignore[arg-type]


def _texts(data: list[bytes], null: NDArray[np.bool_], kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    bounds = np.zeros(len(data) + 1, np.int64)
    np.cumsum([len(v) for v in data], out=bounds[1:])
    if bounds[-1] > _MOST_TEXT and len(data) > 1:
        middle = len(data) // 2
        halves = [_texts(data[:middle], null[:middle], kind), _texts(data[middle:], null[middle:], kind)]
        return pa.chunked_array([c for h in halves for c in (h.chunks if isinstance(h, pa.ChunkedArray) else [h])])
    valid = _bits(~null) if null.any() else None
    return pa.Array.from_buffers(kind, len(data), [valid, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(b"".join(data))])


def table(columns: Mapping[str, Values], schema: pa.Schema) -> pa.Table:
    """A table of a schema, from NumPy arrays, lists or Arrow columns by name.

    Examples
    --------
    >>> schema = pa.schema([("n", pa.int32()), ("text", pa.string())])
    >>> table({"text": ["x", "y"], "n": [1, None]}, schema).to_pylist()
    [{'n': 1, 'text': 'x'}, {'n': None, 'text': 'y'}]
    """
    return pa.Table.from_arrays([_of_type(columns[field.name], field.type) for field in schema], schema=schema)


def _of_type(values: Values, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if kind in (pa.string(), pa.binary()):
        return texts(list(values), kind)
    if isinstance(values, np.ndarray):
        return column(values.astype(DTYPES[kind], casting="same_kind", copy=False))
    null = np.array([v is None for v in values], np.bool_)
    full = np.array([0 if v is None else v for v in values], DTYPES[kind])
    return column(full, null if null.any() else None)


def dictionary(codes: NDArray[np.int32], values: Sequence[bytes], kind: pa.DataType) -> pa.DictionaryArray:
    """A column of few distinct strings or byte strings; a negative code is null.

    Parameters
    ----------
    codes
        int32 (n,): positions in ``values``.
    kind
        ``pa.string()`` or ``pa.binary()``.
    """
    size = sum(map(len, values))
    if size > _MOST_TEXT:
        raise PlanError(
            f"the inlined bytes of one reference file come to {size}, and a column holds {_MOST_TEXT}; "
            "give a smaller record_size",
            kind="record-size",
        )
    return pa.DictionaryArray.from_arrays(column(np.maximum(codes, 0), codes < 0), texts(values, kind))

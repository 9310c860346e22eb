"""NumPy columns as Arrow arrays, from their buffers.

``pyarrow.array`` imports pandas wherever it is installed, which takes longer than writing a million references.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from drystone.errors import PlanError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["dictionary", "int64"]


def int64(column: NDArray[np.int64]) -> pa.Array:
    """A column without nulls."""
    import pyarrow as pa

    return pa.Array.from_buffers(pa.int64(), len(column), [None, pa.py_buffer(np.ascontiguousarray(column))])


def dictionary(codes: NDArray[np.int32], values: Sequence[bytes], kind: pa.DataType) -> pa.DictionaryArray:
    """A column of few distinct strings or byte strings; a negative code is null.

    Parameters
    ----------
    codes
        int32 (n,): positions in ``values``.
    kind
        ``pa.string()`` or ``pa.binary()``.
    """
    import pyarrow as pa

    bounds = np.zeros(len(values) + 1, np.int64)
    np.cumsum([len(v) for v in values], out=bounds[1:])
    if bounds[-1] > np.iinfo(np.int32).max:
        raise PlanError(
            f"the inlined bytes of one reference file come to {bounds[-1]}, and a column "
            "holds 2147483647; give a smaller record_size",
            kind="record-size",
        )
    data = [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(b"".join(values))]
    valid = np.packbits(codes >= 0, bitorder="little")
    indices = pa.Array.from_buffers(pa.int32(), len(codes), [pa.py_buffer(valid), pa.py_buffer(np.maximum(codes, 0))])
    return pa.DictionaryArray.from_arrays(indices, pa.Array.from_buffers(kind, len(values), data))

"""Values that are written again: small arrays, coordinates and text, cut into plain chunks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from drystone.codecs.encode import encode_chunk
from drystone.emit.documents import Layout
from drystone.errors import TableError

__all__ = ["native_chunks"]


def native_chunks(layout: Layout, values: NDArray[np.generic]) -> Iterator[tuple[tuple[int, ...], bytes]]:
    """Chunk coordinates and encoded bytes in C order; edge chunks are padded with the fill.

    Raises
    ------
    TableError
        The values have not the array's shape.
    """
    array, size = layout.array, layout.chunk_shape
    if values.shape != array.shape:
        raise TableError(
            f"{array.path}: values of shape {values.shape} are known and the whole has {array.shape}; scan the archive again",
            kind="coordinate-shape",
            array=array.path,
        )
    for coords in itertools.product(*(range(n) for n in layout.grid_shape)):
        box = tuple(slice(c * s, (c + 1) * s) for c, s in zip(coords, size, strict=True))
        part = values[box] if box else values  # indexing would take the scalar out of its array
        if part.shape != size:
            block = np.full(size, array.fill_scalar, values.dtype)
            block[tuple(slice(0, n) for n in part.shape)] = part
            part = block
        yield coords, encode_chunk(part, layout.codecs, layout.dtype)

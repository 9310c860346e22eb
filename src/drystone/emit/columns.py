"""References of one array laid out by chunk number, for forms whose rows are positional.

Rows come in order of placement and are wanted in C order of the whole's chunk grid. Both agree where arrays are joined
along their first axis; elsewhere they interleave, so columns as long as the grid are filled by number. Beyond four
million chunks they live in an unlinked scratch file, so that memory stays bounded; inline bytes spill the same way.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import batched
from typing import IO, Self

import numpy as np
from numpy.typing import NDArray

from drystone.emit.placing import unusable
from drystone.errors import UnsupportedError
from drystone.model.chunk_rows import RowBatch, State
from drystone.protocols import ReferenceView

__all__ = ["GAP", "MISSING", "RAW", "Positional", "Slice"]

MISSING, RAW, GAP = -1, -2, -3  # a granule left it unwritten, bytes of its own, no granule holds it
_IN_MEMORY = 4_000_000
_SPILL_AT = 64 << 20
_AT_ONCE = 100_000


@dataclass(frozen=True, slots=True)
class Slice:
    """A run of chunk numbers.

    Parameters
    ----------
    granule
        int32 (n,): position of the granule among the view's, or ``MISSING``, ``RAW`` or ``GAP``.
    offset, size
        int64 (n,); 0 where there is no reference.
    raw
        Row number to bytes, for ``RAW`` rows.
    """

    granule: NDArray[np.int32]
    offset: NDArray[np.int64]
    size: NDArray[np.int64]
    raw: dict[int, bytes]


class Positional:
    """Columns of one array by chunk number; a context manager, whose scratch files go at its end.

    Parameters
    ----------
    n_chunks
        Rows.
    """

    def __init__(self, n_chunks: int) -> None:
        self._granule: NDArray[np.int32] = _column(n_chunks, np.dtype(np.int32))
        self._offset: NDArray[np.int64] = _column(n_chunks, np.dtype(np.int64))
        self._size: NDArray[np.int64] = _column(n_chunks, np.dtype(np.int64))
        self._granule[:] = MISSING
        self._spill: IO[bytes] = tempfile.SpooledTemporaryFile(_SPILL_AT)  # noqa: SIM115  closed by __exit__
        self._spilled = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._spill.close()

    def __len__(self) -> int:
        return len(self._granule)

    def add(
        self, number: NDArray[np.int64], granule: NDArray[np.int32], offset: NDArray[np.int64], size: NDArray[np.int64]
    ) -> None:
        """References, one a row."""
        self._granule[number] = granule
        self._offset[number] = offset
        self._size[number] = size

    def add_raw(self, number: int, data: bytes) -> None:
        """Bytes that stand for a chunk."""
        self._granule[number], self._offset[number], self._size[number] = RAW, self._spilled, len(data)
        self._spill.write(data)
        self._spilled += len(data)

    def mark_gaps(self, chunks: Iterable[tuple[int, ...]], grid: tuple[int, ...]) -> None:
        """Chunks that no granule holds."""
        for part in batched(chunks, _AT_ONCE):
            self._granule[np.ravel_multi_index(tuple(np.array(part, np.int64).T), grid)] = GAP

    def slices(self, size: int) -> Iterator[Slice]:
        """Runs of ``size`` rows, the last one shorter."""
        for start in range(0, len(self), size):
            stop = min(start + size, len(self))
            granule = np.array(self._granule[start:stop])
            offset, length = np.array(self._offset[start:stop]), np.array(self._size[start:stop])
            raw: dict[int, bytes] = {}
            for i in np.flatnonzero(granule == RAW).tolist():
                self._spill.seek(int(offset[i]))
                raw[i] = self._spill.read(int(length[i]))
                offset[i] = length[i] = 0
            yield Slice(granule, offset, length, raw)

    def fill(self, view: ReferenceView, path: str, ids: NDArray[np.int32]) -> None:
        """Take every row that the view has of an array; ``ids`` are the view's granules, ascending.

        Raises
        ------
        UnsupportedError
            ``no-reference``: only the format's own library can decode some chunk.
        """
        grid = view.combined.array(path).grid.grid_shape
        for batch in view.references(path):
            check_states(batch, path)
            number = np.ravel_multi_index(tuple(batch.coords), grid) if grid else np.zeros(len(batch), np.int64)
            masked = np.zeros(len(batch), np.bool_)
            masked[list(batch.masks)] = True
            plain = np.flatnonzero((batch.state == State.REFERENCED) & ~masked)
            granule = np.searchsorted(ids, batch.granule_id[plain]).astype(np.int32)
            self.add(number[plain], granule, batch.offset[plain], batch.length[plain])
            for i in np.flatnonzero((batch.state == State.INLINE) | masked).tolist():
                data = chunk_bytes(view, path, batch, i)
                if data is not None:
                    self.add_raw(int(number[i]), data)


def chunk_bytes(view: ReferenceView, path: str, batch: RowBatch, i: int) -> bytes | None:
    """The bytes of a row that is no plain reference: inline ones as they are, masked ones encoded again."""
    if i in batch.inline and i not in batch.masks:
        return batch.inline[i]
    return view.encoded(path, tuple(batch.coords[:, i].tolist()))


def check_states(batch: RowBatch, path: str) -> None:
    """Refuse rows that no reference can say."""
    state = unusable(batch)
    if state is not None:
        raise UnsupportedError(
            f"{path}: some of its chunks are in the state {state.name}: only the format's own library can decode them, so no "
            "reference can say them; publish the array as a store (rechunk) or leave it out",
            kind="no-reference",
            array=path,
        )


def _column[T: np.generic](n: int, dtype: np.dtype[T]) -> NDArray[T]:
    if n <= _IN_MEMORY:
        return np.zeros(n, dtype)
    with tempfile.TemporaryFile() as scratch:
        # the mapping outlives the file object; the file has no name and goes with it
        scratch.truncate(n * dtype.itemsize)
        return np.memmap(scratch, dtype, "r+", shape=(n,))

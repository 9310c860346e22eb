"""Which tasks' cells a repository holds: a column of task ids that is committed together with the cells.

A receipt says that a task ended; the ledger, in the same commit as its cells, that they are there. A task's id says what it
does, so an id counts whatever its place, and ids of another plan's tasks count where the task is the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drystone.codecs.chain import CodecChain
from drystone.model.attributes import Attributes
from drystone.model.task import Receipt
from drystone.plan.layout import TargetLayout
from drystone.rechunk.writer import TargetWriter, current, put_new
from drystone.storage.repository import LEDGER_GROUP

__all__ = ["IdsHeld", "ledger_layout", "read_ids", "write_ids"]

_CHUNK = 4096  # ids: what a batch rewrites is small, and a million tasks are some hundred chunks


@dataclass(frozen=True, slots=True)
class IdsHeld:
    """Whether a receipt's task is in the ledger.

    Parameters
    ----------
    ids
        uint64, ascending.

    Examples
    --------
    >>> held = IdsHeld(np.array([3, 10], np.uint64))
    >>> receipt = Receipt("000000000000000a", "f", "/a", 0, (), (), 1, 2, 3, 0.5, 4, "w")
    >>> held(receipt), IdsHeld(held.ids[:1])(receipt)
    (True, False)
    """

    ids: NDArray[np.uint64]

    def __call__(self, receipt: Receipt) -> bool:
        """See :data:`~drystone.rechunk.receipts.Held`."""
        number = np.uint64(int(receipt.task_id, 16))
        at = int(np.searchsorted(self.ids, number))
        return at < len(self.ids) and bool(self.ids[at] == number)


def ledger_layout(n_tasks: int) -> TargetLayout:
    """The ledger's array, an id a task and 0 where it is not done."""
    note = Attributes.of({"long_name": "ids of the tasks whose cells this snapshot holds"})
    return TargetLayout(
        f"/{LEDGER_GROUP}/tasks", ("drystone_task",), (n_tasks,), np.dtype("u8"), (_CHUNK,), None, CodecChain.of("bytes"),
        bytes(8), note,
    )  # fmt: skip


def read_ids(writer: TargetWriter, n_tasks: int) -> NDArray[np.uint64]:
    """uint64 (n_tasks,): the ledger."""
    layout = ledger_layout(n_tasks)
    out = np.zeros(layout.n_cells * _CHUNK, np.uint64)
    for i in range(layout.n_cells):
        data = current(writer, layout.cell_key((i,)))
        if data is not None:
            out[i * _CHUNK : (i + 1) * _CHUNK] = np.frombuffer(data, "<u8")
    return out[:n_tasks]


def write_ids(writer: TargetWriter, ids: NDArray[np.uint64], changed: Iterable[int]) -> None:
    """Write the parts of the ledger that hold some tasks' ids."""
    layout = ledger_layout(len(ids))
    for i in sorted({number // _CHUNK for number in changed}):
        part = np.zeros(_CHUNK, "<u8")
        some = ids[i * _CHUNK : (i + 1) * _CHUNK]
        part[: len(some)] = some
        key = layout.cell_key((i,))
        if part.any() or current(writer, key) is not None:
            put_new(writer, key, part.tobytes())

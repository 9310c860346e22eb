"""Tasks and receipts: the unit of work and its proof."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

__all__ = ["Receipt", "StoredObject", "Task"]


@dataclass(frozen=True, slots=True)
class Task:
    """Whole write cells of one array of one output; or, in a first of two passes, a box that is read and cut.

    Parameters
    ----------
    output
        Which output of the config, by position when the run began.
    array
        Path of the target array.
    index
        Number of the task within the array's plan.
    start, stop
        The region, in elements; each edge lies on a write-cell edge or at the array's end. Of a first pass: what is read.
    fingerprint
        Hash of what decides the bytes: plan, source rows, codecs, library versions.
    pass_
        1 or 2; 2 where there is one pass.

    Examples
    --------
    >>> t = Task(0, "/sst", 3, (0, 0), (10, 20), "f00d")
    >>> t.task_id == Task(0, "/sst", 3, (0, 0), (10, 20), "f00d").task_id
    True
    >>> t.task_id == Task(0, "/sst", 3, (0, 0), (10, 20), "beef").task_id
    False
    """

    output: int
    array: str
    index: int
    start: tuple[int, ...]
    stop: tuple[int, ...]
    fingerprint: str
    pass_: int = 2

    @property
    def task_id(self) -> str:
        """Sixteen hex digits that say what this task does."""
        text = json.dumps([self.array, self.index, self.start, self.stop, self.fingerprint])
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object that a task wrote: key below the target, size and CRC-32C. Size -1: all fill, so no object exists.

    What a first pass writes lies between the passes; its key is whole.
    """

    key: str
    size: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof that a task is done; recorded after its objects are durable.

    Sizes are bytes, times seconds. ``sources`` are the (granule id, attempt id) pairs whose rows it read, ``digest`` is what
    :mod:`drystone.rechunk.digesting` says of what was read, where the run is to be verified so.
    """

    task_id: str
    fingerprint: str
    array: str
    index: int
    objects: tuple[StoredObject, ...]
    sources: tuple[tuple[int, int], ...]
    bytes_read: int
    bytes_decoded: int
    bytes_written: int
    seconds: float
    peak_rss: int
    worker: str
    digest: str = ""

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Receipt:
        """Read back what :meth:`to_json` wrote."""
        d = json.loads(text)
        d["objects"] = tuple(StoredObject(**o) for o in d["objects"])
        d["sources"] = tuple((int(g), int(a)) for g, a in d["sources"])
        return cls(**d)

"""What storage says of an object."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Stamp"]


@dataclass(frozen=True, slots=True)
class Stamp:
    """What storage says of an object: enough to tell that it changed.

    Parameters
    ----------
    size
        Bytes.
    mtime_ns
        Modification time in nanoseconds since 1970, or None where the store has none.
    etag
        The store's entity tag, or None.

    Examples
    --------
    >>> Stamp(10, 5).differs(Stamp(10, 6))
    'modified time 5 ns, now 6 ns'
    >>> Stamp(10, 5).differs(Stamp(10, 5)) is None
    True
    """

    size: int
    mtime_ns: int | None = None
    etag: str | None = None

    def differs(self, now: Stamp) -> str | None:
        """Say what differs between this stamp and a later one, or None. Fields that either side lacks are skipped."""
        if self.size != now.size:
            return f"size {self.size} bytes, now {now.size} bytes"
        if self.etag is not None and now.etag is not None:
            # an equal ETag is proof of equal content; a copy between hosts may move the time
            return None if self.etag == now.etag else f"ETag {self.etag}, now {now.etag}"
        if self.mtime_ns is not None and now.mtime_ns is not None and self.mtime_ns != now.mtime_ns:
            return f"modified time {self.mtime_ns} ns, now {now.mtime_ns} ns"
        return None

"""What is done to an encoded chunk on its way into a shard: nothing, a checksum cut off, or zlib's frame changed for gzip's.

zlib and gzip hold the same deflate stream in different frames. gzip's ends in the CRC-32 and the size of what comes out, so
that must be inflated once; nothing is deflated.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from drystone.codecs.chain import CodecChain
from drystone.codecs.checksum import strip_checksum
from drystone.codecs.inflate import Buffer, inflate_zlib
from drystone.errors import DecodeError

__all__ = ["Rewrap"]

_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # deflate, no name, no time, no system
_FLETCHER = 4
_GZIP_MORE = 12  # a header of 10 for one of 2, a trailer of 8 for one of 4


@dataclass(frozen=True, slots=True)
class Rewrap:
    """From the bytes of a granule's chunk to those of a store's.

    Parameters
    ----------
    stripped
        Whether a fletcher32 at the end is verified and cut off.
    framed
        Whether a zlib stream becomes a gzip member.
    nbytes
        Decoded bytes of a chunk.

    Examples
    --------
    >>> import gzip
    >>> stored = zlib.compress(b"stone" * 9)
    >>> wrap = Rewrap(False, True, 45)
    >>> gzip.decompress(b"".join(wrap(stored))) == b"stone" * 9, wrap.added + len(stored) == len(b"".join(wrap(stored)))
    (True, True)
    """

    stripped: bool
    framed: bool
    nbytes: int

    @classmethod
    def of(cls, source: CodecChain, target: CodecChain, nbytes: int) -> Rewrap:
        """What makes a chunk of one chain one of the other; see :func:`drystone.plan.repack.copied_chain`."""
        stripped = source.codecs[-1].name == "fletcher32" and len(source.codecs) != len(target.codecs)
        return cls(stripped, source.codecs[-2 if stripped else -1].name == "zlib" and target.codecs[-1].name == "gzip", nbytes)

    @property
    def plain(self) -> bool:
        """Whether bytes stay as they are."""
        return not (self.stripped or self.framed)

    @property
    def added(self) -> int:
        """Bytes by which a chunk grows."""
        return _GZIP_MORE * self.framed - _FLETCHER * self.stripped

    def __call__(self, data: Buffer) -> list[Buffer]:
        """The parts of the chunk in the store.

        Raises
        ------
        DecodeError
            A checksum fails, or the bytes are no zlib stream of a whole chunk.
        """
        view = memoryview(data).cast("B")
        if self.stripped:
            view = strip_checksum("fletcher32", view)
        return self._gzip(view) if self.framed else [view]

    def _gzip(self, view: memoryview) -> list[Buffer]:
        raw = inflate_zlib(view, self.nbytes)
        named = len(view) > 1 and bool(view[1] & 0x20)  # a preset dictionary, which gzip cannot name
        if len(raw) != self.nbytes or named or bytes(view[-4:]) != zlib.adler32(raw).to_bytes(4, "big"):
            raise DecodeError(
                f"{len(view)} stored bytes are no plain zlib stream of the {self.nbytes} bytes of a chunk ({len(raw)} came), "
                "so they cannot be framed as gzip; the granule is damaged, or write without `portable:`",
                kind="corrupt",
                codec="zlib",
            )
        trailer = zlib.crc32(raw).to_bytes(4, "little") + (len(raw) & 0xFFFFFFFF).to_bytes(4, "little")
        return [_GZIP_HEADER, view[2:-4], trailer]

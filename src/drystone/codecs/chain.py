"""A codec chain: how stored bytes become elements, as a frozen value.

A chain is listed in encoding order and starts with the step that turns elements into bytes (``bytes`` with a byte
order, or ``vlen-utf8``). It knows no library: :mod:`drystone.codecs.zarr_forms` writes it as Zarr metadata and
:mod:`drystone.codecs.decode` runs it.

Two chains with one :meth:`CodecChain.signature` decode any bytes to the same values: deflate levels do not matter to a
decoder, shuffle does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

__all__ = ["Codec", "CodecChain"]

# parameters that only an encoder reads, so that chains which differ in them alone decode alike
_ENCODER_ONLY = {
    "zlib": {"level"},
    "zstd": {"level", "checksum"},
    "blosc": {"cname", "clevel", "shuffle", "blocksize", "typesize"},  # a blosc frame says all this itself
    "bz2": {"level"},
    "gzip": {"level"},
}

type Param = int | str | bool | None


@dataclass(frozen=True, slots=True)
class Codec:
    """One step. ``name`` is the glossary's (see ``docs/reference/codecs.md``), ``params`` are sorted by key.

    A name of the form ``hdf5-filter-<id>`` is a filter that only the HDF5 library can undo.

    Examples
    --------
    >>> Codec.of("shuffle", elementsize=2)
    Codec(name='shuffle', params=(('elementsize', 2),))
    """

    name: str
    params: tuple[tuple[str, Param], ...] = ()

    @classmethod
    def of(cls, name: str, /, **params: Param) -> Codec:
        """Build from keywords."""
        return cls(name, tuple(sorted(params.items())))

    def get(self, key: str, default: Param = None) -> Param:
        """One parameter."""
        return dict(self.params).get(key, default)

    def int_of(self, key: str, default: int = 0) -> int:
        """One integer parameter."""
        value = self.get(key, default)
        return int(value) if value is not None else default

    @property
    def needs_library(self) -> bool:
        """True where no codec of ours can undo this step."""
        return self.name.startswith("hdf5-filter-")


@dataclass(frozen=True, slots=True)
class CodecChain:
    """Codecs in encoding order.

    Parameters
    ----------
    codecs
        The first one turns elements into bytes, the others bytes into bytes.

    Examples
    --------
    >>> a = CodecChain.of(Codec.of("bytes", endian="little"), Codec.of("shuffle", elementsize=2), Codec.of("zlib", level=4))
    >>> b = CodecChain.of(Codec.of("bytes", endian="little"), Codec.of("shuffle", elementsize=2), Codec.of("zlib", level=9))
    >>> a == b, a.signature() == b.signature()
    (False, True)
    >>> CodecChain.from_json(a.to_json()) == a
    True
    """

    codecs: tuple[Codec, ...]

    @classmethod
    def of(cls, *codecs: Codec | str) -> CodecChain:
        """Build from codecs or bare names."""
        return cls(tuple(c if isinstance(c, Codec) else Codec(c) for c in codecs))

    @property
    def filters(self) -> tuple[Codec, ...]:
        """The bytes-to-bytes steps, in encoding order (HDF5's pipeline order; filter-mask bit i is ``filters[i]``)."""
        return self.codecs[1:]

    @property
    def needs_library(self) -> bool:
        """True where only the format's own library can decode."""
        return any(c.needs_library for c in self.codecs)

    @property
    def compressed(self) -> bool:
        """True where any bytes-to-bytes step is present."""
        return len(self.codecs) > 1

    def signature(self) -> str:
        """Text that is equal exactly for chains that decode alike."""
        kept = [[c.name, [[k, v] for k, v in c.params if k not in _ENCODER_ONLY.get(c.name, ())]] for c in self.codecs]
        return json.dumps(kept, separators=(",", ":"))

    def masked(self, mask: int) -> CodecChain:
        """The chain of a chunk whose HDF5 filter mask is ``mask``: the filters of the set bits were skipped."""
        kept = tuple(c for i, c in enumerate(self.filters) if not mask >> i & 1)
        return CodecChain((self.codecs[0], *kept))

    def to_json(self) -> list[list[object]]:
        """Exact JSON."""
        return [[c.name, dict(c.params)] for c in self.codecs]

    @classmethod
    def from_json(cls, value: list[list[object]]) -> CodecChain:
        """Read back what :meth:`to_json` wrote."""
        return cls(tuple(Codec.of(str(name), **params) for name, params in value))  # type: ignore[arg-type]

"""The witness's own reading of the codec ``drystone.crop``: a chunk that was stored larger than it is.

The witness loads this file by its path, so it imports nothing of drystone's; zarr must be there.

Such a chunk was stored full size although the granule ends within it, as HDF5 does. The codec's configuration says the
block's edges; what is stored is the chunk rounded up to whole blocks, what is read its first elements.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import zarr.registry
from zarr.abc.codec import ArrayArrayCodec

if TYPE_CHECKING:
    from zarr.core.array_spec import ArraySpec
    from zarr.core.buffer import NDBuffer

__all__ = ["NAME", "Crop", "register"]

NAME = "drystone.crop"


@dataclass(frozen=True)
class Crop(ArrayArrayCodec):
    """Reads only."""

    block: tuple[int, ...]

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """From metadata."""
        return cls(tuple(int(n) for n in data["configuration"]["block"]))

    def to_dict(self) -> dict[str, Any]:
        """As metadata."""
        return {"name": NAME, "configuration": {"block": list(self.block)}}

    def resolve_metadata(self, chunk_spec: ArraySpec) -> ArraySpec:
        """What is stored: whole blocks."""
        return replace(chunk_spec, shape=tuple(-(-n // b) * b for n, b in zip(chunk_spec.shape, self.block, strict=True)))

    def _decode_sync(self, chunk_array: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer:
        return chunk_array[tuple(slice(0, n) for n in chunk_spec.shape)]

    async def _decode_single(self, chunk_data: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer:
        return self._decode_sync(chunk_data, chunk_spec)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        """Bytes of the whole blocks."""
        for n, b in zip(chunk_spec.shape, self.block, strict=True):
            input_byte_length = input_byte_length // max(1, n) * (-(-n // b) * b)
        return input_byte_length


def register() -> None:
    """Have zarr read the codec with this class, not with the one that drystone offers it."""
    getattr(zarr.registry, "_codec_registries", {}).pop(NAME, None)
    zarr.registry.register_codec(NAME, Crop)

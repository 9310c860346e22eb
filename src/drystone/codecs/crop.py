"""The zarr codec ``drystone.crop``: a chunk is stored as a larger block, of which its first elements count.

HDF5 stores the last chunk of a file at full size, whatever of it exists; where the next file goes on, such a chunk lies in
the middle of the whole. Stored chunks are blocks of one shape (or whole multiples of it); decoding keeps the first elements
on every axis, encoding pads with the fill value. It goes first in ``codecs``, on regular and rectilinear grids.

zarr finds it by its entry point and imports this module then; nothing else in drystone does, since it loads zarr.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self, cast

from zarr.abc.codec import ArrayArrayCodec
from zarr.core.common import parse_named_configuration

if TYPE_CHECKING:
    from zarr.core.array_spec import ArraySpec
    from zarr.core.buffer import NDBuffer
    from zarr.core.common import JSON
    from zarr.core.dtype.wrapper import TBaseDType, TBaseScalar, ZDType
    from zarr.core.metadata.v3 import ChunkGridMetadata

__all__ = ["CropCodec"]

_NAME = "drystone.crop"


@dataclass(frozen=True)
class CropCodec(ArrayArrayCodec):
    """Keeps the first elements of stored blocks.

    Parameters
    ----------
    block
        Shape that stored chunks are multiples of, at least 1 on every axis.

    Examples
    --------
    >>> CropCodec(block=(100, 40)).to_dict()
    {'name': 'drystone.crop', 'configuration': {'block': [100, 40]}}
    """

    is_fixed_size = True  # without an annotation, or the dataclass would make a field of it

    block: tuple[int, ...]

    def __init__(self, *, block: Iterable[int]) -> None:
        sizes = tuple(block)
        if any(type(n) is not int or n < 1 for n in sizes):
            raise ValueError(f"{_NAME}: block is a list of whole numbers of at least 1, not {list(sizes)!r}")
        object.__setattr__(self, "block", sizes)

    @classmethod
    def from_dict(cls, data: dict[str, JSON]) -> Self:
        """From an array's metadata."""
        _, configuration = parse_named_configuration(data, _NAME)
        return cls(block=cast("Iterable[int]", configuration["block"]))

    def to_dict(self) -> dict[str, JSON]:
        """For an array's metadata."""
        return {"name": _NAME, "configuration": {"block": list(self.block)}}

    def validate(
        self, *, shape: tuple[int, ...], dtype: ZDType[TBaseDType, TBaseScalar], chunk_grid: ChunkGridMetadata
    ) -> None:
        """Refuse a block of another rank than the array's."""
        if len(shape) != len(self.block):
            raise ValueError(f"{_NAME}: the block {list(self.block)} has {len(self.block)} axes, the array {len(shape)}")

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Self:
        """Nothing depends on the array."""
        return self

    def _stored_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(-(-n // b) * b for n, b in zip(shape, self.block, strict=True))

    def resolve_metadata(self, chunk_spec: ArraySpec) -> ArraySpec:
        """What later codecs see: the block."""
        return replace(chunk_spec, shape=self._stored_shape(chunk_spec.shape))

    def _decode_sync(self, chunk_array: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer:
        return chunk_array[tuple(slice(0, n) for n in chunk_spec.shape)]

    async def _decode_single(self, chunk_array: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer:
        return self._decode_sync(chunk_array, chunk_spec)

    def _encode_sync(self, chunk_array: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer | None:
        shape = self._stored_shape(chunk_spec.shape)
        if shape == chunk_spec.shape:
            return chunk_array
        fill = chunk_spec.fill_value
        out = chunk_spec.prototype.nd_buffer.create(
            shape=shape,
            dtype=chunk_spec.dtype.to_native_dtype(),
            order=chunk_spec.order,
            fill_value=chunk_spec.dtype.default_scalar() if fill is None else fill,
        )
        out[tuple(slice(0, n) for n in chunk_spec.shape)] = chunk_array
        return out

    async def _encode_single(self, chunk_array: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer | None:
        return self._encode_sync(chunk_array, chunk_spec)

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        """Bytes of a block, given those of the chunk."""
        size = 1
        for n in self._stored_shape(chunk_spec.shape):
            size *= n
        return size * chunk_spec.dtype.to_native_dtype().itemsize

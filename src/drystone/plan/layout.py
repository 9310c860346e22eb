"""The grid of a target array: inner chunks, shards and codecs, from what a user wrote and from defaults.

An axis is given as a number of elements, as ``"all"``, or not at all; ``"*"`` gives a size in bytes for the whole chunk
(or shard), ``"none"`` under ``shards: {"*": …}`` asks for no shards. Axes that are not given are balanced by this
module:

- *Inner chunks* are about 1 MB. The number of chunks along the combine axis equals the number across the other axes
  together, so that a series at a point and a map at an instant touch about as many chunks (Rew, "Chunking Data:
  Choosing Shapes"). A balanced edge divides a shard edge that the user gave.
- *Shards* are about 192 MB, grown from the inner chunk by doubling the axis with most shards left, never past the
  array. No axis grows to where one shard's source chunks would not fit 2 GB, or a task's memory where that is less: a shard
  that can be written in one pass beats a round number. (More memory does not make larger shards, or a store's layout would
  depend on the host.)
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from drystone.codecs.chain import CodecChain
from drystone.codecs.zarr_forms import fill_survives, packed_dtype
from drystone.errors import ConfigError, PlanError
from drystone.grid.chunk_grid import ChunkGrid
from drystone.model.array import dtype_from_json, dtype_to_json
from drystone.model.attributes import Attributes
from drystone.model.options import OutputOptions
from drystone.model.placement import CombinedArray
from drystone.model.sizes import parse_size
from drystone.plan.target_codecs import target_codecs

__all__ = ["TargetLayout", "target_layout", "whole_layout"]

CHUNK_BYTES = 1_000_000
SHARD_BYTES = 192_000_000
PASS_BYTES = 2_000_000_000


@dataclass(frozen=True, slots=True)
class TargetLayout:
    """How one array is laid out in a Zarr v3 store.

    Parameters
    ----------
    path, dims, shape
        Of the target array; the key of its metadata is ``path`` without the leading slash, then ``zarr.json``.
    dtype
        Native; numbers are stored little-endian.
    chunk
        Inner chunk shape, in elements.
    shard
        Shard shape, a multiple of ``chunk`` on every axis, or None: then each chunk is an object.
    codecs
        Chain of an inner chunk.
    fill
        One stored (little-endian) element that absent chunks read as; ``b""`` for text.
    attributes
        Exact.

    Examples
    --------
    >>> from drystone.codecs.chain import CodecChain
    >>> a = TargetLayout("/g/sst", ("t", "y"), (7, 11), np.dtype("i2"), (2, 3), (4, 6), CodecChain.of("bytes"), bytes(2))
    >>> a.cell, a.cell_grid, a.n_cells, a.cell_key((1, 0)), a.cell_bytes
    ((4, 6), (2, 2), 4, 'g/sst/c/1/0', 48)
    """

    path: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype
    chunk: tuple[int, ...]
    shard: tuple[int, ...] | None
    codecs: CodecChain
    fill: bytes
    attributes: Attributes = field(default_factory=Attributes)

    def __post_init__(self) -> None:
        if not len(self.dims) == len(self.shape) == len(self.chunk):
            raise ValueError(f"{self.path}: {self.dims}, {self.shape} and {self.chunk} have different ranks")
        if any(c < 1 for c in self.chunk):
            raise ValueError(f"{self.path}: chunk edges must be at least 1, not {self.chunk}")
        if self.shard is not None and (
            len(self.shard) != len(self.chunk) or any(s < c or s % c for s, c in zip(self.shard, self.chunk, strict=True))
        ):
            raise ValueError(f"{self.path}: the shard {self.shard} is no multiple of the inner chunk {self.chunk}")

    @property
    def key(self) -> str:
        """Key prefix of the array below the store's root, without slashes at the ends."""
        return self.path.strip("/")

    @property
    def stored_dtype(self) -> np.dtype:
        """What a stored element is: little-endian, fields without gaps."""
        return packed_dtype(self.dtype)

    @property
    def fill_scalar(self) -> np.ndarray:
        """0-d array of the stored dtype."""
        if self.dtype.kind == "T":
            return np.zeros((), self.dtype)
        return np.frombuffer(self.fill, self.stored_dtype, 1).reshape(())

    @property
    def cell(self) -> tuple[int, ...]:
        """Write cell: the shard, or the chunk of an unsharded array."""
        return self.chunk if self.shard is None else self.shard

    @property
    def cell_grid(self) -> tuple[int, ...]:
        """Write cells along each axis."""
        return tuple(-(-n // c) for n, c in zip(self.shape, self.cell, strict=True))

    @property
    def n_cells(self) -> int:
        """Write cells, at most one object each."""
        return math.prod(self.cell_grid)

    @property
    def inner_grid(self) -> tuple[int, ...]:
        """Inner chunks along each axis of a write cell."""
        return tuple(s // c for s, c in zip(self.cell, self.chunk, strict=True))

    @property
    def chunk_bytes(self) -> int:
        """Raw bytes of one inner chunk; text counts as 16 bytes an element."""
        return math.prod(self.chunk) * self.dtype.itemsize

    @property
    def cell_bytes(self) -> int:
        """Raw bytes of one full write cell."""
        return math.prod(self.cell) * self.dtype.itemsize

    @property
    def chunk_grid(self) -> ChunkGrid:
        """The grid of inner chunks over the array."""
        return ChunkGrid.regular(self.shape, self.chunk)

    @property
    def cells(self) -> ChunkGrid:
        """The grid of write cells over the array."""
        return ChunkGrid.regular(self.shape, self.cell)

    def cell_key(self, coords: Sequence[int]) -> str:
        """Key of a write cell's object below the store's root."""
        return "/".join([self.key, "c", *(str(c) for c in coords)]).lstrip("/")

    def to_json(self) -> str:
        """Exact JSON, keys in a fixed order."""
        return json.dumps(
            {
                "path": self.path,
                "dims": self.dims,
                "shape": self.shape,
                "dtype": dtype_to_json(self.dtype),
                "chunk": self.chunk,
                "shard": self.shard,
                "codecs": self.codecs.to_json(),
                "fill": self.fill.hex(),
                "attributes": self.attributes.to_json(),
            },
            ensure_ascii=False,
        )

    @classmethod
    def from_json(cls, text: str) -> TargetLayout:
        """Read back what :meth:`to_json` wrote."""
        d = json.loads(text)
        return cls(
            d["path"],
            tuple(d["dims"]),
            tuple(d["shape"]),
            dtype_from_json(d["dtype"]),
            tuple(d["chunk"]),
            None if d["shard"] is None else tuple(d["shard"]),
            CodecChain.from_json(d["codecs"]),
            bytes.fromhex(d["fill"]),
            Attributes.from_json(d["attributes"]),
        )


def _size(text: str) -> int:
    size = parse_size(text)
    if size is None:
        raise ConfigError(
            f"{text!r} is no size; write a number and a unit, such as '256 kB' or '1 MiB'", kind="size", value=text
        )
    return size


def _stored_fill(array: CombinedArray) -> bytes:
    if array.dtype.kind == "T":
        return b""
    stored = packed_dtype(array.dtype)
    # the bits, not the value: a NaN's payload and -0.0 stay
    fill = array.fill_scalar.astype(stored).tobytes()
    # what readers would read as another NaN is written out like any value
    return fill if fill_survives(fill, stored) else bytes(len(fill))


def whole_layout(array: CombinedArray, output: OutputOptions) -> TargetLayout:
    """The layout of an array that the driver writes whole: one chunk, no shard.

    Meant for coordinates, text and other small arrays: one request reads them.
    """
    chunk = tuple(max(n, 1) for n in array.shape)
    codecs = target_codecs(output.codecs, array.dtype)
    return TargetLayout(
        array.path, array.dims, array.shape, array.dtype, chunk, None, codecs, _stored_fill(array), array.attributes
    )


def target_layout(array: CombinedArray, output: OutputOptions, memory: int = PASS_BYTES) -> TargetLayout:
    """Resolve chunks, shards and codecs of one array.

    Parameters
    ----------
    array
        What is rechunked.
    output
        ``chunks``, ``shards``, ``codecs``. Names of dimensions that this array lacks are skipped (the options speak of
        all arrays of an output).
    memory
        Bytes of one task: default shards stay small enough for one pass in it, or in 2 GB where that is less.

    Raises
    ------
    ConfigError
        A value that is no size, or an unknown codec.
    PlanError
        A shard that is no multiple of its inner chunk; the message names the nearest that are.
    """
    chunks, chunk_bytes = _wanted(array, output.chunks, "chunks")
    shards, shard_bytes = _wanted(array, output.shards, "shards")
    itemsize = max(array.dtype.itemsize, 1)
    chunk = _balanced_chunk(array, chunks, shards, max(1, (chunk_bytes or CHUNK_BYTES) // itemsize))
    shard: tuple[int, ...] | None
    if output.shards.get("*") == "none":
        shard = None
    else:
        shard = _shard(array, chunk, shards, max(1, (shard_bytes or SHARD_BYTES) // itemsize), min(memory, PASS_BYTES))
        if shard == chunk and not output.shards:
            shard = None  # one chunk a shard would only add an index
    return TargetLayout(
        array.path,
        array.dims,
        array.shape,
        array.dtype,
        chunk,
        shard,
        target_codecs(output.codecs, array.dtype),
        _stored_fill(array),
        array.attributes,
    )


def _wanted(array: CombinedArray, options: Mapping[str, int | str], what: str) -> tuple[dict[int, int], int | None]:
    """Edges by axis, and the size in bytes under ``"*"``."""
    edges: dict[int, int] = {}
    size = None
    for name, value in options.items():
        if name == "*":
            if value != "none" or what != "shards":
                size = value if isinstance(value, int) else _size(value)
            continue
        if value != "all" and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise ConfigError(
                f'{what}: {name}: {value!r} is neither a number of elements, at least 1, nor "all" '
                "(a size in bytes goes under '*')",
                kind="chunks",
                dimension=name,
            )
        for axis, dim in enumerate(array.dims):
            if dim == name:
                edges[axis] = max(array.shape[axis], 1) if value == "all" else int(value)
    return edges, size


def _balanced_chunk(
    array: CombinedArray, chunks: Mapping[int, int], shards: Mapping[int, int], elements: int
) -> tuple[int, ...]:
    rank = len(array.shape)
    free = [d for d in range(rank) if d not in chunks]
    limit = {d: max(1, min(array.shape[d], shards.get(d, array.shape[d]))) for d in free}
    budget = max(1.0, elements / math.prod(chunks.values()))
    counts = _balanced_counts({d: limit[d] for d in free}, budget, array.placements.axis)
    edges = dict(chunks)
    for d in free:
        edge = -(-limit[d] // max(1, round(counts[d])))
        if d in shards:
            edge = _near_divisor(shards[d], edge)
        edges[d] = edge
    return tuple(edges[d] for d in range(rank))


def _balanced_counts(extents: Mapping[int, int], budget: float, combine_axis: int | None) -> dict[int, float]:
    """How many chunks along each axis, at least 1 and at most its extent, so that one holds ``budget`` elements."""
    counts = dict.fromkeys(extents, 1.0)
    open_axes = {d for d in extents if extents[d] > 1}
    total = math.prod(extents.values()) / budget
    while open_axes and total > 1:
        others = [d for d in open_axes if d != combine_axis]
        weights = {d: 1.0 if d == combine_axis else 1.0 / len(others) for d in open_axes}
        scale = sum(weights.values())
        share = {d: total ** (weights[d] / scale) for d in open_axes}
        full = {d for d in open_axes if share[d] >= extents[d]}
        if not full:
            counts.update(share)
            break
        for d in full:  # an axis cut into single elements gives no more; the others share what is left
            counts[d] = float(extents[d])
            total /= extents[d]
        open_axes -= full
    return counts


def _near_divisor(number: int, near: int) -> int:
    """The divisor of ``number`` that is nearest to ``near`` as a ratio."""
    divisors = {k for i in range(1, math.isqrt(number) + 1) if number % i == 0 for k in (i, number // i)}
    return min(sorted(divisors), key=lambda k: abs(math.log(k / near)))


def _shard(
    array: CombinedArray, chunk: tuple[int, ...], wanted: Mapping[int, int], elements: int, memory: int
) -> tuple[int, ...]:
    counts = [max(1, -(-n // c)) for n, c in zip(array.shape, chunk, strict=True)]
    multiples = [1] * len(chunk)
    for d, edge in wanted.items():
        if edge % chunk[d]:
            if edge == max(array.shape[d], 1):  # "all": round up to whole inner chunks
                edge = -(-edge // chunk[d]) * chunk[d]
            else:
                below, above = edge // chunk[d] * chunk[d], (edge // chunk[d] + 1) * chunk[d]
                near = f"{below} or {above}" if below else str(above)
                raise PlanError(
                    f"{array.path}: the shard has {edge} elements along {array.dims[d]!r}, which is no multiple of the inner "
                    f"chunk's {chunk[d]}; {near} would do",
                    kind="shard-multiple",
                    array=array.path,
                    dimension=array.dims[d],
                    shard=edge,
                    chunk=chunk[d],
                )
        multiples[d] = edge // chunk[d]
    free = {d for d in range(len(chunk)) if d not in wanted}
    while free:
        d = min(free, key=lambda k: (-(counts[k] / multiples[k]), k))
        grown = multiples.copy()
        grown[d] = min(2 * multiples[d], counts[d])
        size = math.prod(m * c for m, c in zip(grown, chunk, strict=True))
        too_large = size > elements or _tile_bytes(array, chunk, grown) > memory
        if multiples[d] >= counts[d] or too_large:
            free.discard(d)
        else:
            multiples = grown
    for d in range(len(chunk)):
        if d not in wanted:  # equal shards rather than a thin last one
            multiples[d] = -(-counts[d] // -(-counts[d] // multiples[d]))
    return tuple(m * c for m, c in zip(multiples, chunk, strict=True))


def _tile_bytes(array: CombinedArray, chunk: tuple[int, ...], multiples: Sequence[int]) -> int:
    """Raw bytes of the smallest region of whole shards that reads each source chunk once, and as much again for codecs."""
    cells = 1
    for dim, c, m, n in zip(array.grid.dimensions, chunk, multiples, array.shape, strict=True):
        source = dim.regular_size
        cells *= min(n, n if source is None else math.lcm(source, c * m)) if n else 1
    return cells * array.dtype.itemsize * 3 // 2

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
- *Calendar* edges (``months``, ``years``) are the caller's numbers, from the axis' own times. Inner chunks of one shard have
  one shape, so calendar chunks are objects of their own, and calendar shards hold chunks that divide every one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from drystone.codecs.zarr_forms import fill_survives, packed_dtype
from drystone.errors import ConfigError, PlanError
from drystone.model.options import OutputOptions
from drystone.model.placement import Combined, CombinedArray
from drystone.model.sizes import parse_size
from drystone.plan.layout import TargetLayout
from drystone.plan.target_codecs import target_codecs

__all__ = ["Periods", "stray_sizes", "target_layout", "whole_layout"]

CHUNK_BYTES = 1_000_000
SHARD_BYTES = 192_000_000
PASS_BYTES = 2_000_000_000

type Periods = Callable[[str, str], tuple[int, ...]]
"""From a dimension and ``months`` or ``years`` to the elements of each along the axis."""


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
        array.path, array.dims, array.shape, array.dtype, chunk, None, codecs, _stored_fill(array), array.attributes,
        rounding=array.rounding,
    )  # fmt: skip


def target_layout(
    array: CombinedArray, output: OutputOptions, memory: int = PASS_BYTES, periods: Periods | None = None
) -> TargetLayout:
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
    periods
        Elements of each calendar month or year along a dimension; needed only where the output asks for such chunks.

    Raises
    ------
    ConfigError
        A value that is no size, or an unknown codec.
    PlanError
        A shard that is no multiple of its inner chunk; the message names the nearest that are.
    """
    chunks = _wanted(array, output.chunks, "chunks", periods)
    shards = _wanted(array, output.shards, "shards", periods)
    itemsize = max(array.dtype.itemsize, 1)
    # a chunk must divide every calendar shard, hence their common divisor
    within = shards.edges | {d: math.gcd(*sizes) for d, sizes in shards.periods.items()}
    chunk = _balanced_chunk(array, chunks.edges, within, max(1, (chunks.nbytes or CHUNK_BYTES) // itemsize))
    shard: tuple[int, ...] | None
    if output.shards.get("*") == "none" or (chunks.periods and not output.shards):
        shard = None
    else:
        _check_periods(array, chunk, chunks, shards)
        most = max(1, (shards.nbytes or SHARD_BYTES) // itemsize)
        shard = _shard(array, chunk, shards, most, min(memory, PASS_BYTES))
        if shard == chunk and not output.shards:
            shard = None  # one chunk a shard would only add an index
    spans = chunks.periods if shard is None else shards.periods
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
        tuple(spans.get(d) for d in range(len(chunk))) if spans else (),
        array.rounding,
    )


def stray_sizes(combined: Combined, output: OutputOptions) -> list[str]:
    """Sizes for dimensions that no array has: one output's words may serve several archives, but a typo wants to be seen.

    Parameters
    ----------
    combined
        The arrays.
    output
        Its ``chunks`` and ``shards`` are looked at.

    Returns
    -------
    list[str]
        One line for each.

    Examples
    --------
    >>> from drystone.model.options import OutputOptions
    >>> from drystone.model.placement import Combined
    >>> stray_sizes(Combined((), (), None), OutputOptions(kind="store", form="zarr", at="here:o", chunks={"tiem": 4}))
    ['here:o: chunks: tiem: no array has that dimension (there are: ), so it counts for nothing']
    """
    dims = sorted({d for a in combined.arrays for d in a.dims})
    return [
        f"{output.at}: {key}: {name}: no array has that dimension (there are: {', '.join(dims)}), so it counts for nothing"
        for key, sizes in (("chunks", output.chunks), ("shards", output.shards))
        for name in sizes
        if name != "*" and name not in dims
    ]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Edges by axis, calendar periods by axis (the edge is then the longest), and the size in bytes under ``"*"``."""

    edges: dict[int, int]
    periods: dict[int, tuple[int, ...]]
    nbytes: int | None


def _wanted(array: CombinedArray, options: Mapping[str, int | str], what: str, periods: Periods | None) -> _Wanted:
    wanted = _Wanted({}, {}, None)
    size = None
    for name, value in options.items():
        if name == "*":
            if value != "none" or what != "shards":
                size = value if isinstance(value, int) else _size(value)
            continue
        calendar = value in ("months", "years") and periods is not None
        if value != "all" and not calendar and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise ConfigError(
                f'{what}: {name}: {value!r} is neither a number of elements, at least 1, nor "all" '
                "(a size in bytes goes under '*')",
                kind="chunks",
                dimension=name,
            )
        for axis, dim in enumerate(array.dims):
            if dim == name and calendar and periods is not None and array.shape[axis]:
                wanted.periods[axis] = periods(dim, str(value))
                wanted.edges[axis] = max(wanted.periods[axis])
            elif dim == name:
                wanted.edges[axis] = int(value) if isinstance(value, int) else max(array.shape[axis], 1)
    return _Wanted(wanted.edges, wanted.periods, size)


def _check_periods(array: CombinedArray, chunk: tuple[int, ...], chunks: _Wanted, shards: _Wanted) -> None:
    """A shard holds inner chunks of one shape, whole ones."""
    for d, sizes in chunks.periods.items():
        raise PlanError(
            f"{array.path}: the chunks follow the calendar along {array.dims[d]!r} ({min(sizes)} to {max(sizes)}), but "
            f"the chunks inside a shard all have one shape; write `shards: none`, or `shards: {{{array.dims[d]}: …}}` with the "
            f"calendar and chunks of a number that divides {math.gcd(*sizes)}",
            kind="calendar-shards",
            array=array.path,
            dimension=array.dims[d],
        )
    for d, sizes in shards.periods.items():
        common = math.gcd(*sizes)
        if common % chunk[d]:
            bad = next(i for i, n in enumerate(sizes) if n % chunk[d])
            raise PlanError(
                f"{array.path}: chunks of {chunk[d]} elements along {array.dims[d]!r} do not fill shards that follow the "
                f"calendar: number {bad} has {sizes[bad]}; a divisor of {common} would do",
                kind="shard-multiple",
                array=array.path,
                dimension=array.dims[d],
                shard=sizes[bad],
                chunk=chunk[d],
            )


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


def _shard(array: CombinedArray, chunk: tuple[int, ...], shards: _Wanted, elements: int, memory: int) -> tuple[int, ...]:
    wanted = shards.edges
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

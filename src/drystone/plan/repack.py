"""May an array's encoded chunks be copied as they are into the store's shards, and if not, why not?

Copying needs that an inner chunk of the store is a chunk of a granule, byte for byte: one shape, one chain of codecs, one
element type, one storage fill, no number recoded, every granule placed on chunk edges, no chunk that was stored with a filter
skipped. What the structures of the granules say is looked at first, then the rows of the table, in columns. The first thing in
the way is told with its numbers.

A checksum at the end of a chunk (fletcher32) is verified and cut off on the way; ``portable`` puts the streams of zlib into
the frame of gzip, which every reader of Zarr v3 knows. Neither compresses anything anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np

from drystone.codecs.chain import Codec, CodecChain
from drystone.codecs.encode import encode_bytes
from drystone.codecs.order import readers_of_codecs
from drystone.codecs.zarr_forms import codecs_v3, data_type_v3, fill_survives
from drystone.errors import PlanError, UnsupportedError
from drystone.grid.chunk_grid import ChunkGrid
from drystone.grid.dimension import DimensionGrid, grouped
from drystone.model.array import ArraySpec
from drystone.model.chunk_rows import RowBatch, State
from drystone.model.options import OutputOptions
from drystone.model.placement import CombinedArray
from drystone.plan.chunking import Periods, target_layout
from drystone.plan.layout import TargetLayout
from drystone.plan.memory import encoded_bound
from drystone.plan.regions import TASK_BYTES, most
from drystone.plan.shards import TaskPlan
from drystone.plan.target_codecs import target_codecs

__all__ = [
    "copied_chain",
    "options_problem",
    "plan_copies",
    "readers_notes",
    "repack_layout",
    "rows_problem",
    "structure_problem",
    "unsourced",
]

type Names = Callable[[int], str]
"""From a granule's id to its address."""

_CORE = frozenset({"gzip", "zstd", "blosc", "crc32c"})
_BUFFER = 16_000_000  # bytes that one thread copies at a time, at most, if chunks are no larger
_ROW = 200  # bytes that a chunk takes as columns while its region is worked out


def copied_chain(chain: CodecChain, portable: bool = False) -> CodecChain:
    """The chain that copied chunks have in the store: without a last fletcher32, and with gzip for zlib where asked for.

    Examples
    --------
    >>> zlib = Codec.of("zlib", level=4)
    >>> [c.name for c in copied_chain(CodecChain.of("bytes", zlib, "fletcher32")).codecs]
    ['bytes', 'zlib']
    >>> [c.name for c in copied_chain(CodecChain.of("bytes", zlib), portable=True).codecs]
    ['bytes', 'gzip']
    """
    codecs = list(chain.codecs)
    if codecs[-1].name == "fletcher32":
        codecs.pop()
    if portable and codecs[-1].name == "zlib":
        codecs[-1] = Codec.of("gzip", level=codecs[-1].int_of("level", 6))
    return CodecChain(tuple(codecs))


def readers_notes(layouts: Iterable[tuple[TargetLayout, bool]]) -> list[str]:
    """Who opens arrays whose codecs are not all Zarr v3's own: a line for those that are alike.

    With each layout comes whether its chunks are copied, so that its codecs are the granules'.
    """
    found: dict[str, list[str]] = {}
    for layout, copied in layouts:
        note = _readers_note(layout, copied)
        if note is not None:
            found.setdefault(note, []).append(layout.path)
    return [f"{', '.join(paths)}: {'its' if len(paths) == 1 else 'their'} {note}" for note, paths in found.items()]


def _readers_note(layout: TargetLayout, copied: bool) -> str | None:
    odd = [
        c.name
        for c in layout.codecs.filters
        if c.name not in _CORE and not (c.name == "shuffle" and layout.dtype.itemsize == 1)
    ]
    if not odd:
        return None
    names = " and ".join(f"numcodecs.{name}" for name in odd)
    can, cannot = readers_of_codecs(odd)
    whose, way = "have the codecs", "; blosc, zstd or gzip alone are read by all"
    if copied:
        whose = "keep the granules' codecs,"
        portable = "`portable: true` makes it gzip, which all read"
        way = f"; {portable if odd == ['zlib'] else '`mode: rechunk` writes codecs that all read'}"
    return f"chunks {whose} {names}: read by {can}, not by {cannot}{way}"


def unsourced(array: CombinedArray, output: OutputOptions) -> OutputOptions:
    """An output's wishes without the word ``source``: for arrays that are written anew after all."""
    chunks, codecs = output.chunks, output.codecs
    if chunks.get("*") == "source":
        sizes = [d.regular_size for d in array.grid.dimensions]
        chunks = {name: n for name, n in zip(array.dims, sizes, strict=True) if n is not None}
    if codecs and codecs[0][0] == "source":
        codecs = ()
    return replace(output, chunks=chunks, codecs=codecs)


def options_problem(array: CombinedArray, output: OutputOptions) -> str | None:
    """What an output wishes that copied chunks cannot be; None where they may be.

    With ``mode: auto`` only what the user wished is copied: chunks and codecs must be named, or called ``source``.
    """
    given = output.chunks
    if array.rounding is not None:
        return "its values are rounded"
    if output.mode == "auto" and not (given and output.codecs):
        return "chunks and codecs are not both given (the granules' own are called `source`)"
    if given.get("*", "source") != "source":
        return f"chunks of {given['*']} are wished, and copied chunks are as the granules have them"
    dims = zip(array.dims, array.grid.dimensions, array.shape, strict=True)
    for name, dimension, n in dims:
        size, wish = dimension.regular_size, given.get(name)
        if wish is None and output.mode == "auto" and "*" not in given:
            return f"no chunk edge is given along {name!r}"
        if wish is None or size is None or wish == size or (wish == "all" and size >= n):
            continue
        return f"chunks of {wish} along {name!r} are wished, and the granules have chunks of {size}"
    if output.codecs and output.codecs[0][0] != "source":
        wished, chain = target_codecs(output.codecs, array.dtype), copied_chain(array.codecs, output.portable)
        if wished != chain:
            return f"the codecs {_text(wished)} are wished, and the granules' chunks have {_text(chain)}"
    return None


def _text(chain: CodecChain) -> str:
    parts = [c.name + (f" {dict(c.params)}" if c.params else "") for c in chain.codecs]
    return " + ".join(parts)


def structure_problem(array: CombinedArray, name: Names, portable: bool = False) -> str | None:
    """The first thing in what granules say of themselves that keeps their chunks from being copied; None: nothing does."""
    if array.picked is not None or array.made:
        return "it takes places of other arrays, so its chunks are cut anew"
    if array.unaligned is not None:
        return array.unaligned.removeprefix(f"{array.path}: ")
    if array.stored_dtype.kind not in "biufcSVmM" or array.stored_dtype.names or array.stored_dtype.subdtype:
        return f"its elements are {array.stored_dtype}, whose stored form is not a store's"
    for dim, dimension in zip(array.dims, array.grid.dimensions, strict=True):
        if dimension.regular_size is None:
            sizes = dimension.data_sizes(np.arange(dimension.n_chunks))
            return f"chunks along {dim!r} have {sizes.min()} to {sizes.max()} elements; inner chunks are all of one shape"
    used = np.unique(array.placements.variant).tolist()
    for v in used:
        row = int(np.flatnonzero(array.placements.variant == v)[0])
        problem = _variant_problem(array, array.variants[v], array.recode(v) is not None)
        if problem is not None:
            return f"{name(int(array.placements.granule_id[row]))}: {problem}"
    return _chain_problem(array, portable) or _placement_problem(array, name) or _gap_problem(array, portable)


def _variant_problem(array: CombinedArray, spec: ArraySpec, recoded: bool) -> str | None:
    chunk = tuple(d.regular_size for d in array.grid.dimensions)
    if recoded:
        return "its numbers are recoded (another packing, fill or time origin, or `values: decoded`)"
    if spec.codecs.signature() != array.codecs.signature():
        return f"its chunks have {_text(spec.codecs)}, the first granule's {_text(array.codecs)}"
    if spec.dtype != array.stored_dtype:
        return f"its elements are {spec.dtype.str}, the first granule's {array.stored_dtype.str}"
    if spec.chunk_shape != chunk:
        return f"its chunks have the shape {spec.chunk_shape}, the whole's grid {chunk}"
    if not array.fills_as(spec):
        return "its unwritten chunks read as another fill than the first granule's"
    if not spec.padded and any(n % c for n, c in zip(spec.shape, spec.chunk_shape, strict=True)):
        return f"its last chunks are stored short (shape {spec.shape}, chunks {spec.chunk_shape}), and a store's are whole"
    return None


def _chain_problem(array: CombinedArray, portable: bool) -> str | None:
    chain, dtype = copied_chain(array.codecs, portable), array.stored_dtype
    try:
        codecs_v3(chain, dtype)
        data_type_v3(dtype)
    except UnsupportedError as error:
        return error.message.removesuffix("; rechunk this array")
    odd = [c.name for c in chain.filters if c.name not in _CORE and not (c.name == "shuffle" and dtype.itemsize == 1)]
    if portable and odd:
        return f"portable: the codec {odd[0]!r} is none of Zarr v3's own, and cannot be rewrapped without compressing anew"
    fill = array.fill if array.fill is not None else bytes(dtype.itemsize)
    if not fill_survives(fill.ljust(dtype.itemsize, b"\0"), dtype):
        return f"its unwritten chunks read as the bytes {fill.hex()}, which a Zarr fill_value does not keep"
    return None


def _placement_problem(array: CombinedArray, name: Names) -> str | None:
    p = array.placements
    for axis, (dim, n) in enumerate(zip(array.dims, array.shape, strict=True)):
        size = array.grid.dimensions[axis].regular_size or 1
        if axis == p.axis:
            src, count, dest = p.src_offset, p.count, p.dest
        elif p.tiles:
            src, count, dest = (np.array([getattr(t, k)[axis] for t in p.tiles]) for k in ("src_offset", "count", "dest"))
        else:
            continue
        end = dest + count
        bad = (src % size != 0) | (dest % size != 0) | ((end % size != 0) & (end != n))
        if bad.any():
            i = int(np.flatnonzero(bad)[0])
            row = i if axis == p.axis or not len(p.tile) else int(np.flatnonzero(p.tile == i)[0])
            return (
                f"{name(int(p.granule_id[row]))} lies from {dest[i]} to {end[i]} along {dim!r} (taken from {src[i]}), and "
                f"chunks have {size} elements: it starts or ends inside a chunk"
            )
    return None


def has_gaps(array: CombinedArray) -> bool:
    """Whether no granule holds some place."""
    p, whole = array.placements, math.prod(array.shape)
    held = 0
    for i in range(len(p)) if p.is_tiled else ():
        held += math.prod(p.box(i, array.shape).count)
    if not p.is_tiled:
        held = whole if p.axis is None and len(p) else int(p.count.sum()) * (whole // max(array.shape[p.axis or 0], 1))
    return held < whole


def _gap_problem(array: CombinedArray, portable: bool) -> str | None:
    if not has_gaps(array):
        return None
    try:
        size = array.stored_dtype.itemsize
        encode_bytes(bytes(size), copied_chain(array.codecs, portable), size)
    except UnsupportedError as error:
        return f"no granule holds some places, and the chunk that says so cannot be made: {error.message}"
    return None


def rows_problem(array: CombinedArray, batches: Iterable[RowBatch], name: Names) -> str | None:
    """The first chunk row that keeps an array's chunks from being copied; None: no row does.

    Parameters
    ----------
    batches
        The array's rows of the granules that are placed.
    """
    exact = None
    if not array.codecs.compressed:
        exact = math.prod(d.regular_size or 1 for d in array.grid.dimensions) * array.stored_dtype.itemsize
    for batch in batches:
        masked = next(((row, m) for row, m in sorted(batch.masks.items()) if m), None)
        if masked is not None:
            return f"{_where(batch, masked[0], name)} was stored with filters skipped (mask {masked[1]})"
        odd = (batch.state == State.LIBRARY) | (batch.state == State.HELD)
        if odd.any():
            row = int(np.flatnonzero(odd)[0])
            return f"{_where(batch, row, name)} can be decoded by its format's own library only"
        if exact is None:
            continue
        short = (batch.state == State.REFERENCED) & (batch.length != exact)
        if short.any():
            row = int(np.flatnonzero(short)[0])
            return f"{_where(batch, row, name)} has {int(batch.length[row])} bytes, and a whole chunk {exact}"
    return None


def _where(batch: RowBatch, row: int, name: Names) -> str:
    return f"{name(int(batch.granule_id[row]))}: chunk {tuple(batch.coords[:, row].tolist())}"


def repack_layout(array: CombinedArray, output: OutputOptions, memory: int, periods: Periods | None = None) -> TargetLayout:
    """The layout of an array whose chunks are copied: its own chunks and codecs, shards as wished or planned.

    Raises
    ------
    PlanError
        Shards that are no multiple of the granules' chunks.
    """
    chunks = {n: d.regular_size or 1 for n, d in zip(array.dims, array.grid.dimensions, strict=True)}
    plain: Mapping[str, int | str] = chunks
    layout = target_layout(array, replace(output, chunks=plain, codecs=()), memory, periods)
    size = array.stored_dtype.itemsize
    fill = (array.fill or b"").ljust(size, b"\0")
    return replace(layout, codecs=copied_chain(array.codecs, output.portable), fill=fill)


def plan_copies(
    array: CombinedArray, layout: TargetLayout, memory: int, encoded: int, *, threads: int, slots: int, whole: bool = False
) -> TaskPlan:
    """Tasks that copy: each owns neighbouring shards, about as many bytes as a task that rechunks.

    Parameters
    ----------
    memory
        Bytes of one task.
    encoded
        Bytes of all chunks of the array.
    whole
        True where the target takes a cell in one piece: then one is held as its parts and joined.

    Raises
    ------
    PlanError
        ``memory``: not even the buffers fit.
    """
    regions: tuple[DimensionGrid, ...] = layout.cells.dimensions
    raw = max(1, math.prod(layout.shape) * layout.dtype.itemsize)
    share = encoded / raw
    for axis in reversed(range(len(regions))):
        while regions[axis].n_chunks > 1:
            larger = (*regions[:axis], grouped(regions[axis], 2), *regions[axis + 1 :])
            n_tasks = math.prod(max(1, r.n_chunks) for r in larger)
            large = most(larger) * layout.dtype.itemsize * share > TASK_BYTES
            if large or _rows(larger, layout) * _ROW > memory // 4 or n_tasks < 4 * slots:
                break
            regions = larger
    held = 2 * encoded_bound(layout.cell_bytes) if whole else 0
    holding = f"to shards of {layout.cell_bytes}, two of which are held whole, " if whole else ""
    need = 2 * (_BUFFER + 2 * layout.chunk_bytes + held) + _rows(regions, layout) * _ROW
    if need > memory:
        raise PlanError(
            f"{layout.path}: a task may take {memory} bytes, and copying chunks of {layout.chunk_bytes} "
            f"{holding}takes {need}; give a task as much",
            kind="memory",
            array=layout.path,
            memory=memory,
            needed=need,
        )
    n = array.grid.n_chunks
    return TaskPlan(layout.path, layout.cells, ChunkGrid(regions), n, n, need, _BUFFER, threads, copies=True)


def _rows(regions: tuple[DimensionGrid, ...], layout: TargetLayout) -> int:
    return most(regions) // max(1, math.prod(layout.chunk)) + 1

"""Granules for tests of placing: scans built by hand, with values as a scanner would keep them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from drystone.codecs.chain import Codec, CodecChain
from drystone.model.array import ArraySpec
from drystone.model.attributes import Attributes
from drystone.model.chunk_rows import ChunkRows, ScannedArray, ScanResult
from drystone.model.options import AxisOptions, CombineOptions
from drystone.plan.members import from_scans
from drystone.plan.narrow import tell_missing
from drystone.plan.order import Order, order_axes

RAW = CodecChain.of(Codec.of("bytes", endian="little"))


def array(
    path: str,
    dims: Sequence[str],
    values: np.ndarray,
    unlimited: Sequence[str] = (),
    *,
    known: bool = True,
    **attributes: object,
) -> ScannedArray:
    """One array; ``known``: the scan kept its values."""
    shape = values.shape
    spec = ArraySpec(
        path,
        tuple(dims),
        shape,
        tuple(max(n, 1) for n in shape),
        values.dtype,
        None,
        RAW,
        Attributes.of(attributes),
        tuple(d in unlimited for d in dims),
        padded=False,
    )
    return ScannedArray(spec, ChunkRows.empty(len(shape)), coordinate=values if known else None)


def granule(*arrays: ScannedArray) -> ScanResult:
    """A granule of these arrays."""
    return ScanResult("hdf5", (), arrays)


def series(values: Sequence[float] | np.ndarray, dtype: str = "f8", name: str = "time", **attributes: object) -> ScanResult:
    """A granule with one coordinate and a variable along it."""
    coordinate = np.asarray(values, dtype)
    said = {"units": "days since 2000-01-01"} | attributes
    v = array("/v", (name, "x"), np.zeros((len(coordinate), 2), "i2"), (name,), known=False)
    return granule(array(f"/{name}", (name,), coordinate, (name,), **said), v)


def tile(
    y: Sequence[float] | np.ndarray, x: Sequence[float] | np.ndarray, time: Sequence[float] | None = None, **scalars: np.ndarray
) -> ScanResult:
    """A granule of a map with coordinates, and of times and scalars where given."""
    y, x = np.asarray(y, "f8"), np.asarray(x, "f8")
    arrays = [array("/y", ("y",), y), array("/x", ("x",), x)]
    dims, shape = ("y", "x"), (len(y), len(x))
    if time is not None:
        arrays.append(array("/time", ("time",), np.asarray(time, "f8"), ("time",), units="days since 2000-01-01"))
        dims, shape = ("time", *dims), (len(time), *shape)
    arrays += [array(f"/{name}", (), np.asarray(value)) for name, value in scalars.items()]
    return granule(*arrays, array("/v", dims, np.zeros(shape, "i2"), ("time",), known=False))


def order(
    scans: Mapping[str, ScanResult],
    *along: AxisOptions | str,
    attributes: Mapping[str, Mapping[str, object]] | None = None,
    ids: Sequence[int] | None = None,
    **options: object,
) -> Order:
    """Place granules by name, listed in order of the mapping; ids are their numbers in it unless given."""
    numbers = list(range(len(scans))) if ids is None else list(ids)
    names = dict(zip(numbers, scans, strict=True))
    axes = tuple(AxisOptions(a) if isinstance(a, str) else a for a in along)
    said = {g: Attributes.of((attributes or {}).get(n, {})) for g, n in names.items()}
    members = from_scans({g: scans[n] for g, n in names.items()})
    chosen = CombineOptions(along=axes, **options)  # type: ignore[arg-type]
    found = order_axes(members, chosen, np.array(sorted(numbers), np.int32), names, said)
    return replace(found, notes=(*found.notes, *tell_missing(found, {}, chosen.gaps)))


def rows(found: Order, names: Sequence[str]) -> list[tuple[str, list[int], list[int], list[int]]]:
    """Boxes as (name, source, count, place), for granules with ids in listed order."""
    return [
        (names[int(g)], s.tolist(), c.tolist(), d.tolist())
        for g, s, c, d in zip(found.granule_id, found.src_offset, found.count, found.dest, strict=True)
    ]

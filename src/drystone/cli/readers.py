"""Who can read each published form: what ``check`` tells before anybody has written anything.

Versions are those that were tried, or that the reader's own documentation names. What an output allows counts here (chunks of
different sizes, the crop codec: :mod:`drystone.emit.readers`), not whether an array will need it: that is for ``plan`` to say.
"""

from __future__ import annotations

from dataclasses import dataclass

from drystone.codecs.order import FILTERS, readers_of_codecs
from drystone.model.options import OutputOptions

__all__ = ["Readers", "readers_of"]


@dataclass(frozen=True, slots=True)
class Readers:
    """Readers that can open a form, and readers that cannot."""

    can: tuple[str, ...]
    cannot: tuple[str, ...]


_FORMS = {
    ("virtual", "icechunk"): Readers(
        (
            "icechunk 2 with zarr-python 3 or xarray, told which prefixes it may read: authorize_virtual_chunk_access",
            "GDAL from 3.14, arrays without HDF5's shuffle or deflate",
        ),
        ("readers of plain Zarr (zarr-python 2, netCDF-C, zarrita.js)", "GDAL before 3.14"),
    ),
    ("virtual", "kerchunk-parquet"): Readers(
        (
            "xarray and zarr-python through fsspec's reference file system",
            "GDAL from 3.11, where it is built with Parquet; use 3.12: earlier ones read a missing granule as zeros",
        ),
        ("readers without fsspec's reference file system (netCDF-C, zarrita.js)",),
    ),
    ("store", "zarr"): Readers(
        ("zarr-python 3, and xarray and Dask through it", "tensorstore", "other readers of Zarr v3 with shards"),
        ("readers of Zarr v2 only (zarr-python 2)",),
    ),
    ("store", "icechunk"): Readers(
        ("icechunk 2 with zarr-python 3, and xarray and Dask through it",),
        ("readers of plain Zarr (zarr-python 2, tensorstore, netCDF-C, zarrita.js)", "icechunk 1"),
    ),
}


def readers_of(output: OutputOptions) -> Readers:
    """The readers of an output; empty for a plugin's form that is not known here.

    Examples
    --------
    >>> readers_of(OutputOptions("store", "zarr", "out:x")).cannot
    ('readers of Zarr v2 only (zarr-python 2)',)
    >>> readers_of(OutputOptions("store", "zarr", "out:x", codecs=(("delta", {}), ("zstd", {})))).can[-1]
    'arrays with numcodecs.delta: zarr-python and xarray (with numcodecs)'
    >>> readers_of(OutputOptions("virtual", "icechunk", "out:x", crop=True)).can[-1][:40]
    'arrays with the codec drystone.crop: zar'
    """
    from drystone.emit.readers import form_readers  # not before it is needed: it knows codecs, and with them NumPy

    readers = _FORMS.get((output.kind, output.form), Readers((), ()))
    filters = [name for name, _ in output.codecs if name in FILTERS]
    if filters:
        which = f"arrays with {' and '.join(f'numcodecs.{n}' for n in filters)}"
        who, not_who = readers_of_codecs(filters)
        readers = Readers((*readers.can, f"{which}: {who}"), (*readers.cannot, f"{which}: {not_who}"))
    if output.grid == "regular" and not output.crop:
        return readers
    can, cannot = form_readers(output.form, {"grid": output.grid, "crop": output.crop})
    return Readers((*readers.can, *can), (*readers.cannot, *cannot))

"""Who can read each published form: what ``check`` tells before anybody has written anything.

Versions are those that were tried, or that the reader's own documentation names. What an output allows counts (chunks of
different sizes, the crop codec), not whether an array will need it: that is for ``plan`` to say.
"""

from __future__ import annotations

from dataclasses import dataclass

from drystone.model.options import OutputOptions

__all__ = ["Readers", "readers_of"]

_SETTING = "zarr.config.set({'array.rectilinear_chunks': True}), in workers ZARR_ARRAY__RECTILINEAR_CHUNKS=True"
_REGULAR_ONLY = "tensorstore, GDAL, zarrita.js, netCDF-C, VirtualiZarr: they know regular chunk grids only"


@dataclass(frozen=True, slots=True)
class Readers:
    """Readers that can open a form, and readers that cannot."""

    can: tuple[str, ...]
    cannot: tuple[str, ...]


_REGULAR = {
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
}
_RECTILINEAR = {
    ("virtual", "icechunk"): Readers(
        (
            "icechunk 2 (format 2) with zarr-python from 3.2 or xarray through it (3.4 was tried), told which prefixes to read",
            f"each of them after: {_SETTING}",
        ),
        (
            "zarr-python before 3.2, or without that setting: a group with such an array does not open",
            "dask.array.from_zarr, and xarray for writing or appending (opening is fine)",
            _REGULAR_ONLY,
            "readers of plain Zarr (zarr-python 2)",
        ),
    ),
    ("store", "zarr"): Readers(
        (
            f"zarr-python from 3.2 and xarray through it (3.4 was tried), after {_SETTING}",
            "zarrs from 0.23.8",
        ),
        (
            "zarr-python before 3.2, or without that setting: a group with such an array does not open",
            "dask.array.from_zarr, and xarray for writing or appending (opening is fine)",
            _REGULAR_ONLY,
            "readers of Zarr v2 only (zarr-python 2)",
        ),
    ),
}
_CROP = Readers(
    ("arrays with cropped chunks: only where drystone is installed, workers too (the codec drystone.crop, zarr-python 3)",),
    (
        "readers without drystone: zarr-python and xarray stop at the group that holds one, its other arrays too",
        "tensorstore, GDAL, zarrita.js, netCDF-C: they cannot be given the codec",
    ),
)


def readers_of(output: OutputOptions) -> Readers:
    """The readers of an output; empty for a plugin's form that is not known here.

    Examples
    --------
    >>> readers_of(OutputOptions("store", "zarr", "out:x")).cannot
    ('readers of Zarr v2 only (zarr-python 2)',)
    >>> readers_of(OutputOptions("virtual", "icechunk", "out:x", grid="rectilinear", crop=True)).can[-1][:27]
    'arrays with cropped chunks:'
    """
    forms = _RECTILINEAR if output.grid == "rectilinear" else _REGULAR
    readers = forms.get((output.kind, output.form), Readers((), ()))
    if not output.crop:
        return readers
    can, cannot = readers.can, readers.cannot
    return Readers((*(c for c in can if not c.startswith("GDAL")), *_CROP.can), tuple(dict.fromkeys((*cannot, *_CROP.cannot))))

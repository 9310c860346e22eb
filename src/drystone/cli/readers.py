"""Who can read each published form: what ``check`` tells before anybody has written anything.

Versions are those that were tried, or that the reader's own documentation names.
"""

from __future__ import annotations

from dataclasses import dataclass

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
}


def readers_of(kind: str, form: str) -> Readers:
    """The readers of a form; empty for a plugin's form that is not known here.

    Examples
    --------
    >>> readers_of("store", "zarr").cannot
    ('readers of Zarr v2 only (zarr-python 2)',)
    """
    return _FORMS.get((kind, form), Readers((), ()))

"""Who can open a published form because of its chunk grid and codecs: what ``check`` and ``plan`` tell of an output.

Versions are those that were tried, or that the reader's own documentation names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from drystone.codecs.chain import Codec
from drystone.emit.documents import layouts
from drystone.emit.layout import Layout
from drystone.model.placement import Combined

__all__ = ["form_readers", "layout_notes", "uneven_notes"]

_RECTILINEAR_CAN = (
    "arrays with a rectilinear grid: zarr-python from 3.2, xarray and Icechunk from 2.3 through it, with "
    "zarr.config.set({'array.rectilinear_chunks': True}) or ZARR_ARRAY__RECTILINEAR_CHUNKS=True, on every worker"
)
_RECTILINEAR_CANNOT = (
    "arrays with a rectilinear grid: tensorstore (0.1.86), VirtualiZarr (2.8), GDAL, zarrita.js, netCDF-C, "
    "dask.array.from_zarr; they read regular grids only, and zarr-python without that setting opens no data set that has one"
)
_CROP_CAN = "arrays with the codec drystone.crop: zarr-python from 3.4 where drystone is installed"
_CROP_CANNOT = (
    "any array of a data set in which one has the codec drystone.crop: zarr-python and xarray without drystone (they fail when "
    "the group is opened), tensorstore, GDAL, zarrita.js, netCDF-C"
)


def form_readers(form: str, options: Mapping[str, object]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Readers that can and cannot open what the options of an output allow it to hold, beyond those of the form itself.

    Parameters
    ----------
    form
        ``icechunk``, ``kerchunk-parquet`` or ``zarr``.
    options
        ``grid`` and ``crop``.

    Examples
    --------
    >>> can, cannot = form_readers("icechunk", {"grid": "rectilinear"})
    >>> can[0][:58], len(cannot)
    ('arrays with a rectilinear grid: zarr-python from 3.2, xarr', 1)
    >>> form_readers("kerchunk-parquet", {"crop": True})
    ((), ())
    """
    if form == "kerchunk-parquet":  # Zarr 2 knows neither
        return (), ()
    grid = options.get("grid") == "rectilinear"
    crop = bool(options.get("crop")) and form == "icechunk"
    can = (*[_RECTILINEAR_CAN] * grid, *[_CROP_CAN] * crop)
    return can, (*[_RECTILINEAR_CANNOT] * grid, *[_CROP_CANNOT] * crop)


def layout_notes(combined: Combined, options: Mapping[str, object]) -> tuple[str, ...]:
    """Lines for arrays of an Icechunk output that fewer readers can open than others, and what it costs them."""
    notes, uneven = [], []
    for path, layout in layouts(combined, 3, Codec.of("zstd"), options)[0].items():
        if not layout.native and layout.regular is None:
            uneven.append(path)
        if layout.block is not None:
            notes.append(
                f"{path}: its chunks are padded in the middle of {_cropped(layout)}, so it has the codec drystone.crop; nobody "
                "without drystone can open the data set, not even its other arrays"
            )
    return (*uneven_notes(uneven), *notes)


def uneven_notes(paths: Sequence[str]) -> tuple[str, ...]:
    """What a rectilinear grid costs the readers of some arrays: one line, or none."""
    if not paths:
        return ()
    what = f"{', '.join(paths)}: chunks of different sizes, so the grid is rectilinear"
    return (f"{what}; read by {_short(_RECTILINEAR_CAN)}",)


def _short(text: str) -> str:
    return text.partition(": ")[2]


def _cropped(layout: Layout) -> str:
    assert layout.block is not None
    axes = zip(layout.array.dims, layout.edges, layout.block, strict=True)
    return ", ".join(name for name, e, b in axes if (e if isinstance(e, int) else max(e)) != b or not isinstance(e, int))

"""In which order a store's codecs may stand, and who reads those that are none of Zarr v3's own; needs no library."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["FILTERS", "order_problem", "readers_of_codecs"]

FILTERS = ("delta", "shuffle")
"""What may stand before a compressor, in this order."""


def order_problem(names: Sequence[str]) -> str | None:
    """What is wrong with codecs in this order; None: nothing.

    Examples
    --------
    >>> order_problem(["gzip", "zstd"]), order_problem(["delta", "zstd"])
    ('one compressor a store, not 2 (gzip, zstd); keep one', None)
    """
    compressors = [n for n in names if n not in FILTERS]
    if len(compressors) > 1:
        return f"one compressor a store, not {len(compressors)} ({', '.join(compressors)}); keep one"
    if list(names) != sorted(set(names), key=lambda n: FILTERS.index(n) if n in FILTERS else len(FILTERS)):
        return f"codecs are listed as they encode, each once: delta, shuffle, then a compressor, not {', '.join(names)}"
    if "shuffle" in names and "blosc" in names:
        return "blosc shuffles by itself; take shuffle out"
    alone = next((n for n in ("none", "source") if n in names and len(names) > 1), None)
    return None if alone is None else f"{alone} stands alone; take it or the others out"


def readers_of_codecs(names: Sequence[str]) -> tuple[str, str]:
    """Who reads arrays with codecs of numcodecs, and who does not, as they were tried.

    Examples
    --------
    >>> readers_of_codecs(["shuffle"])[0], readers_of_codecs(["delta"])[0]
    ('zarr-python and xarray (with numcodecs) and zarrs', 'zarr-python and xarray (with numcodecs)')
    """
    python, rest = (
        "zarr-python and xarray (with numcodecs)",
        "tensorstore and other readers that know Zarr v3's own codecs alone",
    )
    return (python, f"zarrs, {rest}") if "delta" in names else (f"{python} and zarrs", rest)

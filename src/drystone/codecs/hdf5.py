"""HDF5 filter pipelines as codec chains.

HDF5 runs its pipeline from the first filter to the last when it writes, which is a chain's encoding order, so that bit i
of a chunk's filter mask is filter i of :attr:`CodecChain.filters`. A filter that no codec of ours can undo keeps its
place in the chain under the name ``hdf5-filter-<id>``: the chain stays a true description, and whoever needs values
goes through the HDF5 library.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from drystone.codecs.chain import Codec, CodecChain, Param

__all__ = ["FILTER_NAMES", "bytes_codec", "chain_from_filters", "foreign_codec"]

# registered at https://github.com/HDFGroup/hdf5_plugins/blob/master/docs/RegisteredFilterPlugins.md
FILTER_NAMES = {
    1: "deflate",
    2: "shuffle",
    3: "fletcher32",
    4: "szip",
    5: "nbit",
    6: "scaleoffset",
    305: "lzo",
    307: "bzip2",
    32000: "lzf",
    32001: "blosc",
    32002: "mafisc",
    32003: "snappy",
    32004: "lz4",
    32005: "apax",
    32006: "cbf",
    32007: "jpeg-xr",
    32008: "bitshuffle",
    32009: "spdp",
    32010: "lpc-rice",
    32011: "ccsds-123",
    32012: "jpeg-ls",
    32013: "zfp",
    32014: "fpzip",
    32015: "zstd",
    32016: "b3d",
    32017: "sz",
    32018: "fcidecomp",
    32019: "jpeg",
    32020: "vbz",
    32021: "fapec",
    32022: "bitgroom",
    32023: "granular-bitround",
    32024: "sz3",
    32025: "delta-rice",
    32026: "blosc2",
    32027: "flac",
    32028: "h5sz-gpu",
    32029: "htj2k",
}

_BLOSC_COMPRESSORS = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")


def bytes_codec(dtype: np.dtype[np.generic]) -> Codec:
    """The step from elements to bytes: a byte order where one byte order says it all, none for text, bytes and compounds.

    Examples
    --------
    >>> bytes_codec(np.dtype(">i2")).params, bytes_codec(np.dtype("S4")).params
    ((('endian', 'big'),), ())
    """
    if dtype.kind == "T":
        return Codec.of("vlen-utf8")
    endian = {"<": "little", ">": "big"}.get(dtype.str[0])
    if endian is None or dtype.kind not in "iufcmM":
        return Codec.of("bytes")
    return Codec.of("bytes", endian=endian)


def foreign_codec(filter_id: int, name: str | None = None) -> Codec:
    """A step that only the HDF5 library can undo. Id 0 stands for what is no filter: a virtual dataset, a foreign number.

    Examples
    --------
    >>> foreign_codec(6)
    Codec(name='hdf5-filter-6', params=(('name', 'scaleoffset'),))
    """
    return Codec.of(f"hdf5-filter-{filter_id}", name=name or FILTER_NAMES.get(filter_id, "unknown"))


def chain_from_filters(filters: Sequence[tuple[int, int, Sequence[int]]], dtype: np.dtype[np.generic]) -> CodecChain:
    """The codec chain of a dataset.

    Parameters
    ----------
    filters
        (id, flags, client data) of each filter in pipeline order, as ``H5Pget_filter2`` gives them.
    dtype
        As stored.

    Examples
    --------
    >>> chain = chain_from_filters([(2, 0, (4,)), (1, 0, (6,))], np.dtype("<f4"))
    >>> [c.name for c in chain.codecs], chain.needs_library
    (['bytes', 'shuffle', 'zlib'], False)
    """
    return CodecChain((bytes_codec(dtype), *(_codec(i, values, dtype) for i, _, values in filters)))


def _codec(filter_id: int, values: Sequence[int], dtype: np.dtype[np.generic]) -> Codec:
    if filter_id == 1:
        return Codec.of("zlib", level=int(values[0]) if len(values) else 6)
    if filter_id == 2:
        return Codec.of("shuffle", elementsize=int(values[0]) if len(values) else dtype.itemsize)
    if filter_id == 3:
        return Codec.of("fletcher32")
    if filter_id == 307:
        return Codec.of("bz2", level=int(values[0]) if len(values) else 9)
    if filter_id == 32000:
        return Codec.of("lzf")
    if filter_id == 32001:
        return _blosc(values, dtype)
    if filter_id == 32015:
        return Codec.of("zstd", level=_signed(values[0]) if len(values) else 3)
    return foreign_codec(filter_id)


def _blosc(values: Sequence[int], dtype: np.dtype[np.generic]) -> Codec:
    # client data: filter revision, blosc format, element size, chunk bytes, level, shuffle, compressor; the last three optional
    compressor = int(values[6]) if len(values) > 6 else 0
    params: dict[str, Param] = {
        "cname": _BLOSC_COMPRESSORS[compressor] if compressor < len(_BLOSC_COMPRESSORS) else "blosclz",
        "clevel": int(values[4]) if len(values) > 4 else 5,
        "shuffle": int(values[5]) if len(values) > 5 else 1,
        "typesize": int(values[2]) if len(values) > 2 else dtype.itemsize,
        "blocksize": 0,
    }
    return Codec.of("blosc", **params)


def _signed(value: int) -> int:
    """Client data are unsigned 32-bit words; a negative zstd level comes wrapped."""
    return value - (1 << 32) if value >= 1 << 31 else value

"""The codec chain of a target's inner chunks, from what a user wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numcodecs import blosc

from drystone.codecs.chain import Codec, CodecChain
from drystone.errors import ConfigError

__all__ = ["BLOSC_NAMES", "GZIP_LEVELS", "ZSTD_LEVELS", "target_codecs"]

BLOSC_NAMES = ("zstd", "lz4", "lz4hc", "zlib", "blosclz", "snappy")
GZIP_LEVELS = (0, 9)
ZSTD_LEVELS = (-131072, 22)  # of Zarr's specification; below 0 are fast ones
_SHUFFLES = {"noshuffle": "noshuffle", "none": "noshuffle", "shuffle": "shuffle", "bitshuffle": "bitshuffle"}
_PARAMETERS = {
    "blosc": {"cname", "level", "clevel", "shuffle", "blocksize"},
    "zstd": {"level", "checksum"},
    "gzip": {"level"},
}


def target_codecs(
    codecs: Sequence[tuple[str, Mapping[str, int | str | bool]]],
    dtype: np.dtype,
) -> CodecChain:
    """The chain of an inner chunk, from the config's codecs: one of ``blosc``, ``zstd``, ``gzip``, ``none``.

    Without any: blosc with zstd level 3. ``shuffle: auto`` is bit shuffle for one-byte elements, byte shuffle for others.

    Raises
    ------
    ConfigError
        Unknown codec or parameter.

    Examples
    --------
    >>> [c.name for c in target_codecs([("zstd", {"level": 1})], np.dtype("f4")).codecs]
    ['bytes', 'zstd']
    """
    first = Codec.of("vlen-utf8") if dtype.kind == "T" else _bytes_codec(dtype)
    # `source` wishes for what the granules have: an array that is not copied has the default
    wanted = list(codecs) if codecs and codecs[0][0] != "source" else [("blosc", {})]
    if len(wanted) > 1:
        names = ", ".join(n for n, _ in wanted)
        raise ConfigError(f"one compressor a store, not {len(wanted)} ({names}); keep one", kind="codec")
    name, params = wanted[0]
    if name == "none":
        return CodecChain.of(first)
    if name not in _PARAMETERS:
        raise ConfigError(
            f"there is no target codec {name!r}; known: {', '.join(sorted(_PARAMETERS))}, none", kind="codec", codec=name
        )
    odd = sorted(set(params) - _PARAMETERS[name])
    if odd:
        raise ConfigError(
            f"codec {name} has no parameter {odd[0]!r}; known: {', '.join(sorted(_PARAMETERS[name]))}", kind="codec", codec=name
        )
    if name == "blosc":
        return CodecChain.of(first, _blosc(params, 1 if dtype.kind == "T" else dtype.itemsize))
    if name == "zstd":
        level, checksum = _level(name, params.get("level", 3), ZSTD_LEVELS), bool(params.get("checksum", False))
        return CodecChain.of(first, Codec.of("zstd", level=level, checksum=checksum))
    return CodecChain.of(first, Codec.of("gzip", level=_level(name, params.get("level", 5), GZIP_LEVELS)))


def _level(name: str, level: int | str | bool, limits: tuple[int, int]) -> int:
    if not isinstance(level, int) or isinstance(level, bool) or not limits[0] <= level <= limits[1]:
        raise ConfigError(
            f"{name}'s level is a whole number from {limits[0]} to {limits[1]}, not {level!r}", kind="codec", codec=name
        )
    return level


def _bytes_codec(dtype: np.dtype) -> Codec:
    # a byte order is named only where there is one: bytes, bool and one-byte numbers have none
    ordered = dtype.names is not None or (dtype.itemsize > 1 and dtype.kind not in "SV")
    return Codec.of("bytes", endian="little") if ordered else Codec.of("bytes")


def _blosc(params: Mapping[str, int | str | bool], itemsize: int) -> Codec:
    shuffle = params.get("shuffle", "auto")
    if shuffle == "auto":
        shuffle = "bitshuffle" if itemsize == 1 else "shuffle"
    if shuffle not in _SHUFFLES:
        raise ConfigError(
            f"blosc's shuffle is auto, noshuffle (or none), shuffle or bitshuffle, not {shuffle!r}", kind="codec", codec="blosc"
        )
    cname = str(params.get("cname", "zstd"))
    if cname not in BLOSC_NAMES:
        raise ConfigError(f"blosc has no compressor {cname!r}; known: {', '.join(BLOSC_NAMES)}", kind="codec", codec="blosc")
    built = blosc.list_compressors()
    if cname not in built:
        raise ConfigError(
            f"the blosc that is installed with numcodecs was built without {cname!r}; it has {', '.join(built)}",
            kind="codec",
            codec="blosc",
        )
    level = _level("blosc", params.get("clevel", params.get("level", 3)), (0, 9))
    # blosc's header has one byte for the element size; larger elements are shuffled as single bytes
    typesize = itemsize if 1 <= itemsize <= 255 else 1
    return Codec.of(
        "blosc",
        cname=cname,
        clevel=level,
        shuffle=_SHUFFLES[str(shuffle)],
        typesize=typesize,
        blocksize=int(params.get("blocksize", 0)),
    )

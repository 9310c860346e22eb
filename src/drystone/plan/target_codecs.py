"""The codec chain of a target's inner chunks, from what a user wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numcodecs import blosc

from drystone.codecs.chain import Codec, CodecChain
from drystone.codecs.order import order_problem
from drystone.errors import ConfigError

__all__ = ["BLOSC_NAMES", "GZIP_LEVELS", "ZSTD_LEVELS", "target_codecs"]

BLOSC_NAMES = ("zstd", "lz4", "lz4hc", "zlib", "blosclz", "snappy")
GZIP_LEVELS = (0, 9)
ZSTD_LEVELS = (-131072, 22)  # of Zarr's specification; below 0 are fast ones
_SHUFFLES = {"noshuffle": "noshuffle", "none": "noshuffle", "shuffle": "shuffle", "bitshuffle": "bitshuffle"}
_PARAMETERS: Mapping[str, set[str]] = {
    "delta": set(),
    "shuffle": set(),
    "blosc": {"cname", "level", "clevel", "shuffle", "blocksize"},
    "zstd": {"level", "checksum"},
    "gzip": {"level"},
    "none": set(),
}


def target_codecs(
    codecs: Sequence[tuple[str, Mapping[str, int | str | bool]]],
    dtype: np.dtype,
) -> CodecChain:
    """The chain of an inner chunk, from the config's codecs.

    They are ``delta`` or ``shuffle`` or both, then one of ``blosc``, ``zstd``, ``gzip``; or ``none``. Without any: blosc with
    zstd level 3. ``delta`` is for whole numbers, and other arrays go without; ``shuffle: auto`` of blosc is bit shuffle for
    one-byte elements, byte shuffle for others.

    Raises
    ------
    ConfigError
        Unknown codec or parameter.

    Examples
    --------
    >>> [c.name for c in target_codecs([("zstd", {"level": 1})], np.dtype("f4")).codecs]
    ['bytes', 'zstd']
    >>> [c.name for c in target_codecs([("delta", {}), ("shuffle", {}), ("gzip", {})], np.dtype("i4")).codecs]
    ['bytes', 'delta', 'shuffle', 'gzip']
    """
    first = Codec.of("vlen-utf8") if dtype.kind == "T" else _bytes_codec(dtype)
    # `source` wishes for what the granules have: an array that is not copied has the default
    wanted = list(codecs) if codecs and codecs[0][0] != "source" else [("blosc", {})]
    problem = order_problem([name for name, _ in wanted])
    if problem is not None:
        raise ConfigError(problem, kind="codec")
    return CodecChain.of(first, *(c for name, params in wanted for c in _codec(name, params, dtype)))


def _codec(name: str, params: Mapping[str, int | str | bool], dtype: np.dtype) -> tuple[Codec, ...]:
    if name not in _PARAMETERS:
        raise ConfigError(f"there is no target codec {name!r}; known: {', '.join(_PARAMETERS)}", kind="codec", codec=name)
    odd = sorted(set(params) - _PARAMETERS[name])
    if odd:
        known = ", ".join(sorted(_PARAMETERS[name])) or "none"
        raise ConfigError(f"codec {name} has no parameter {odd[0]!r}; known: {known}", kind="codec", codec=name)
    itemsize = 1 if dtype.kind == "T" else dtype.itemsize
    if name == "none" or (name == "shuffle" and itemsize == 1) or (name == "delta" and dtype.kind not in "iu"):
        return ()
    if name == "delta":
        return (Codec.of("delta", dtype=dtype.newbyteorder("<").str),)
    if name == "shuffle":
        return (Codec.of("shuffle", elementsize=itemsize),)
    if name == "blosc":
        return (_blosc(params, itemsize),)
    if name == "zstd":
        level, checksum = _level(name, params.get("level", 3), ZSTD_LEVELS), bool(params.get("checksum", False))
        return (Codec.of("zstd", level=level, checksum=checksum),)
    return (Codec.of("gzip", level=_level(name, params.get("level", 5), GZIP_LEVELS)),)


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

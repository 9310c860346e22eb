"""Codec chains as Zarr metadata, version 3 and version 2, as plain JSON values; with the forms of the modules beside it.

No Zarr library is needed here; the tests read every form back with zarr and xarray. A thing that has no exact form is
an :class:`~drystone.errors.UnsupportedError` whose message says which bytes stand in the way; nothing is approximated.

Where the order of bytes is said differs: version 3 says it in the codec ``bytes``, version 2 in the dtype.
"""

from __future__ import annotations

import numpy as np

from drystone.codecs.chain import Codec, CodecChain
from drystone.codecs.zarr_attributes import attributes_v2, attributes_v3, unkept_attributes
from drystone.codecs.zarr_fills import fill_survives, fill_v2, fill_v3, mask_fill_v2
from drystone.codecs.zarr_types import Json, data_type_v2, data_type_v3, no_form, packed_dtype

__all__ = [
    "Json",
    "attributes_v2",
    "attributes_v3",
    "codecs_v2",
    "codecs_v3",
    "data_type_v2",
    "data_type_v3",
    "fill_survives",
    "fill_v2",
    "fill_v3",
    "mask_fill_v2",
    "packed_dtype",
    "unkept_attributes",
]

_COMPRESSORS = ("zlib", "gzip", "bz2", "zstd", "blosc")
_BLOSC_SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")


def _check_chain(chain: CodecChain, dtype: np.dtype) -> None:
    """Refuse steps that no Zarr codec undoes byte for byte."""
    extra = 0  # bytes that checksums before a shuffle have added to whole elements
    compressed = False
    for codec in chain.filters:
        if codec.needs_library:
            number, name = codec.name.rsplit("-", 1)[-1], codec.get("name", "unknown")
            how = f"its chunks went through the HDF5 filter {name} ({number}), whose bytes no registered Zarr codec undoes"
            if number == "0":  # no filter: a virtual dataset, a foreign number
                how = f"only the HDF5 library turns its bytes into values ({name})"
            raise no_form(f"{how}; rechunk this array, which reads it through the HDF5 library", codec=codec.name)
        if codec.name == "lzf":
            raise no_form(
                "its chunks are bare lzf streams; the registered codecs of that name want 4 bytes of length before each "
                "stream, and HDF5 does not write them; rechunk this array",
                codec="lzf",
            )
        if codec.name == "fletcher32":
            extra += 4
        elif codec.name == "shuffle":
            _check_shuffle(codec, dtype, extra, compressed)
        elif codec.name in _COMPRESSORS:
            compressed = True
        elif codec.name not in ("crc32c", "delta"):
            raise no_form(f"no Zarr codec is known for {codec.name!r}; rechunk this array", codec=codec.name)


def _check_shuffle(codec: Codec, dtype: np.dtype, extra: int, compressed: bool) -> None:
    size = codec.int_of("elementsize", dtype.itemsize)
    if size <= 1:
        return
    if compressed:
        raise no_form(
            f"shuffle stands after a compressor, whose output is seldom a multiple of {size} bytes; Zarr's shuffle takes whole "
            "elements only; rechunk this array",
            codec="shuffle",
        )
    if (dtype.itemsize % size) or extra % size:
        raise no_form(
            f"shuffle of {size}-byte elements runs over {dtype.itemsize}-byte values and {extra} bytes of checksum: HDF5 "
            f"leaves the last {(dtype.itemsize + extra) % size} bytes of a chunk unshuffled where Zarr's shuffle takes whole "
            "elements only; rechunk this array",
            codec="shuffle",
            elementsize=size,
            extra=extra,
        )


def _endians(dtype: np.dtype) -> set[str]:
    """Byte orders of the multi-byte parts."""
    if dtype.subdtype is not None:
        return _endians(dtype.subdtype[0])
    if dtype.fields is not None:
        return set().union(*(_endians(field[0]) for field in dtype.fields.values()))
    if dtype.itemsize == 1 or dtype.kind in "SVT":
        return set()
    return {"big" if dtype.str[0] == ">" else "little"}


def _endian(dtype: np.dtype) -> str | None:
    found = _endians(dtype)
    if len(found) > 1:
        raise no_form(
            f"the compound {dtype} mixes little- and big-endian fields, and Zarr 3 says one byte order for a whole element; "
            "rechunk this array"
        )
    return next(iter(found), None)


def codecs_v3(chain: CodecChain, dtype: np.dtype) -> list[dict[str, Json]]:
    """The ``codecs`` of a version 3 array.

    Parameters
    ----------
    dtype
        As stored, with byte order.

    Raises
    ------
    UnsupportedError
        Some step has no codec that undoes exactly these bytes.

    Examples
    --------
    >>> chain = CodecChain.of("bytes", Codec.of("shuffle", elementsize=4), Codec.of("zlib", level=4))
    >>> for codec in codecs_v3(chain, np.dtype("<f4")):
    ...     print(codec)
    {'name': 'bytes', 'configuration': {'endian': 'little'}}
    {'name': 'numcodecs.shuffle', 'configuration': {'elementsize': 4}}
    {'name': 'numcodecs.zlib', 'configuration': {'level': 4}}
    """
    _check_chain(chain, dtype)
    if chain.codecs[0].name == "vlen-utf8":
        first: dict[str, Json] = {"name": "vlen-utf8"}
    else:
        endian = _endian(dtype)
        first = {"name": "bytes"} if endian is None else {"name": "bytes", "configuration": {"endian": endian}}
    # what numcodecs does with elements, Zarr names before they become bytes
    before = [_codec_v3(codec, dtype) for codec in chain.filters if codec.name == "delta"]
    rest = [c for c in chain.filters if c.name != "delta" and not _is_identity(c, dtype)]
    return [*before, first, *(_codec_v3(codec, dtype) for codec in rest)]


def _is_identity(codec: Codec, dtype: np.dtype) -> bool:
    """Shuffling single bytes changes nothing."""
    return codec.name == "shuffle" and codec.int_of("elementsize", dtype.itemsize) <= 1


def _blosc_params(codec: Codec, dtype: np.dtype) -> tuple[str, int, int, int, int]:
    """Name, level, shuffle number, element size, block size; a reader takes all of it from the frame itself."""
    shuffle = codec.get("shuffle", 1)
    number = _BLOSC_SHUFFLES.index(shuffle) if isinstance(shuffle, str) else int(shuffle or 0)
    typesize = codec.int_of("typesize") or dtype.itemsize
    return str(codec.get("cname", "zstd")), codec.int_of("clevel", 5), number, typesize, codec.int_of("blocksize")


def _codec_v3(codec: Codec, dtype: np.dtype) -> dict[str, Json]:
    level = codec.int_of("level", 6)
    if codec.name == "delta":
        return {"name": "numcodecs.delta", "configuration": {"dtype": codec.get("dtype")}}
    if codec.name == "shuffle":
        return {"name": "numcodecs.shuffle", "configuration": {"elementsize": codec.int_of("elementsize", dtype.itemsize)}}
    if codec.name == "zlib":
        return {"name": "numcodecs.zlib", "configuration": {"level": level}}
    if codec.name == "bz2":
        return {"name": "numcodecs.bz2", "configuration": {"level": level}}
    if codec.name == "fletcher32":
        return {"name": "numcodecs.fletcher32", "configuration": {}}
    if codec.name == "gzip":
        return {"name": "gzip", "configuration": {"level": level}}
    if codec.name == "zstd":
        return {
            "name": "zstd",
            "configuration": {"level": codec.int_of("level", 3), "checksum": bool(codec.get("checksum", False))},
        }
    if codec.name == "blosc":
        cname, clevel, shuffle, typesize, blocksize = _blosc_params(codec, dtype)
        return {
            "name": "blosc",
            "configuration": {
                "cname": cname,
                "clevel": clevel,
                "shuffle": _BLOSC_SHUFFLES[shuffle],
                "typesize": typesize,
                "blocksize": blocksize,
            },
        }
    return {"name": codec.name}


def codecs_v2(chain: CodecChain, dtype: np.dtype) -> tuple[dict[str, Json] | None, list[dict[str, Json]] | None]:
    """The ``compressor`` and ``filters`` of a version 2 array.

    A compressor that comes last goes into ``compressor``, what stands before it into ``filters``: GDAL needs it so.

    Examples
    --------
    >>> chain = CodecChain.of("bytes", Codec.of("shuffle", elementsize=2), Codec.of("zlib", level=4))
    >>> codecs_v2(chain, np.dtype(">i2"))
    ({'id': 'zlib', 'level': 4}, [{'id': 'shuffle', 'elementsize': 2}])
    """
    _check_chain(chain, dtype)
    filters = [_codec_v2(codec, dtype) for codec in chain.filters if not _is_identity(codec, dtype)]
    compressor = filters.pop() if filters and filters[-1]["id"] in _COMPRESSORS else None
    if chain.codecs[0].name == "vlen-utf8":
        filters.insert(0, {"id": "vlen-utf8"})
    return compressor, filters or None


def _codec_v2(codec: Codec, dtype: np.dtype) -> dict[str, Json]:
    if codec.name == "delta":
        return {"id": "delta", "dtype": codec.get("dtype")}
    if codec.name == "shuffle":
        return {"id": "shuffle", "elementsize": codec.int_of("elementsize", dtype.itemsize)}
    if codec.name in ("zlib", "gzip", "bz2"):
        return {"id": codec.name, "level": codec.int_of("level", 6)}
    if codec.name == "zstd":
        return {"id": "zstd", "level": codec.int_of("level", 3)}
    if codec.name == "blosc":
        cname, clevel, shuffle, _, blocksize = _blosc_params(codec, dtype)
        return {"id": "blosc", "cname": cname, "clevel": clevel, "shuffle": shuffle, "blocksize": blocksize}
    return {"id": codec.name}

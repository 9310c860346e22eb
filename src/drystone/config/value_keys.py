"""The keys of a store that say how values are encoded and what may become of them: a part of the table of keys."""

from __future__ import annotations

from typing import Final

from drystone.config.combine_keys import DIMENSION
from drystone.config.kinds import INVALID, Choice, Either, Integer, Kind, Schema, Truth
from drystone.config.nodes import Node
from drystone.config.numbers import Real
from drystone.config.problem import Report
from drystone.config.sections import Key, MapOf, OneKey, Section

__all__ = ["CODEC", "VALUE_KEYS"]

LEVELS = (Integer(0, 9), Integer(-131072, 22))
_CNAME = Choice(
    ("zstd", "lz4", "lz4hc", "zlib", "blosclz"), refused={"snappy": "numcodecs builds its blosc without snappy; lz4 is like it"}
)
CODECS: Final = {
    "blosc": Section(
        "blosc's parameters",
        (
            Key("cname", _CNAME, "Compressor inside.", "zstd"),
            Key("level", LEVELS[0], "Effort.", "3"),
            Key("clevel", LEVELS[0], "Another word for level."),
            Key(
                "shuffle",
                Choice(("auto", "noshuffle", "none", "shuffle", "bitshuffle")),
                "auto: by the element's size; none: noshuffle.",
                "auto",
            ),
            Key("blocksize", Integer(0, (1 << 31) - 1), "Bytes of a block inside; 0: blosc chooses.", "0"),
        ),
        elsewhere={"typesize": "it is the size of each array's own elements"},
    ),
    "zstd": Section(
        "zstd's parameters",
        (
            Key("level", LEVELS[1], "Effort; below 0: less, and faster.", "3"),
            Key("checksum", Truth(), "Whether each chunk carries a checksum of its content.", "false"),
        ),
    ),
    "gzip": Section("gzip's parameters", (Key("level", LEVELS[0], "Effort.", "5"),)),
    "delta": Section("delta, which has no parameters", ()),
    "shuffle": Section("shuffle, which has no parameters", ()),
    "none": Section("none, which has no parameters", ()),
    "source": Section("source, which has no parameters", ()),
}
CODEC = OneKey("a codec", CODECS, later=("lz4", "zlib", "crc32c", "bz2", "lzma"))


class _Either(Section):
    """A section of which exactly one key is given."""

    __slots__ = ()

    def read(self, node: Node, where: str, report: Report) -> object:
        """The one key and its value."""
        values = Section.read(self, node, where, report)
        if node.kind == "mapping" and len(node.entries) != 1:
            found = " and ".join(e.key for e in node.entries) or "nothing"
            expected = "either " + " or ".join(k.name for k in self.keys)
            report.add(where, expected, found, "keepbits bounds the relative error, digits the absolute one", node.at)
            return INVALID
        return values

    def schema(self) -> Schema:
        """An object with one key."""
        return {**Section.schema(self), "minProperties": 1, "maxProperties": 1}


def _by_array(noun: str, kind: Kind) -> MapOf:
    return MapOf(noun, kind, "an array's name or path", DIMENSION, special={"*": kind})


_WHOLE = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
DTYPE = Choice((*_WHOLE, "float16", "float32", "float64"))
FILL = Either((Real(), Choice(("NaN",))))
PACKING = Section(
    "a packing",
    (
        Key("dtype", Choice(_WHOLE[:6]), "Type of the whole numbers.", required=True),
        Key("scale_factor", Real(nonzero=True), "What a step is worth; values are at most half of it off.", required=True),
        Key("add_offset", Real(), "Value of the number 0.", "0"),
    ),
)
ROUNDING = _Either(
    "a rounding",
    (
        Key("keepbits", Integer(0, 52), "Bits of the mantissa that are kept: with 7, values are at most 0.4 % off."),
        Key("digits", Integer(-30, 30), "Decimal digits behind the point that are kept: with 2, values are at most 0.005 off."),
    ),
)
VALUE_KEYS: Final = (
    Key(
        "round",
        _by_array("a mapping from an array to its rounding", ROUNDING),
        'Floating-point values are stored with less precision, which compresses them; by array, `"*"` for every one that is '
        "neither a coordinate nor bounds nor a time. Missing values, NaN and infinities stay exact.",
    ),
    Key(
        "dtype",
        _by_array("a mapping from an array to its type, such as {sst: float32}", DTYPE),
        "Numbers are stored in another type. Floating-point ones are rounded to a narrower one; all else is exact, or the "
        'number that is not is named; `"*"` as for round.',
    ),
    Key(
        "pack",
        _by_array("a mapping from an array to its packing", PACKING),
        "Floating-point values, or what packed numbers stand for, are stored as whole numbers of a scale and an offset. One "
        'that does not fit is named; `"*"` as for round.',
    ),
    Key(
        "fill_value",
        _by_array("a mapping from an array to a number", FILL),
        "The number that says missing, `_FillValue`: what the granules say is missing and places without a granule become it, "
        'and data that would read as missing is named. `"*"` as for round.',
        "the granules' own",
    ),
)

"""The keys of a store that say how values are encoded and what may become of them: a part of the table of keys."""

from __future__ import annotations

from typing import Final

from drystone.config.combine_keys import DIMENSION
from drystone.config.kinds import INVALID, Choice, Integer, Schema, Truth
from drystone.config.nodes import Node
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
    "none": Section("none, which has no parameters", ()),
    "source": Section("source, which has no parameters", ()),
}
CODEC = OneKey("a codec", CODECS, later=("lz4", "zlib", "crc32c", "shuffle", "bz2", "lzma"))


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


_ARRAY: Final = "an array's name or path"
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
        MapOf("a mapping from an array to its rounding", ROUNDING, _ARRAY, DIMENSION, special={"*": ROUNDING}),
        'Floating-point values are stored with less precision, which compresses them; by array, `"*"` for every one that is '
        "neither a coordinate nor bounds nor a time. Missing values, NaN and infinities stay exact.",
    ),
)

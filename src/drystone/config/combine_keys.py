"""The keys of ``combine`` and of ``archive.versions``: a part of the table in :mod:`drystone.config.keys`.

Python callers meet the same keys: :mod:`drystone.config.python` reads mappings through this table.
"""

from __future__ import annotations

import re
from typing import Final

from drystone.config.kinds import Choice, Either, Integer, Parsed, Text
from drystone.config.numbers import DURATION_PATTERN, TIME_PATTERN, Pair, Real, Value, parse_duration, parse_time
from drystone.config.sections import Key, ListOf, MapOf, Section

__all__ = ["COMBINE", "DIMENSION", "NAMES", "OVERLAP", "VERSIONS"]

DIMENSION: Final = r"^[^*\s]([^\n]*\S)?$"
OVERLAP: Final = "overlap"
"""The key of ``mosaic`` that names no dimension."""

NAME = Text("a name", numbers=True)
NAMES = ListOf("a list of names", NAME)
POSITIONS = Choice(("coordinate", "name", "attribute", "order"))
STEP = Either((Real(nonzero=True), Parsed("a duration such as 1D, 6h, 1M or 1Y", parse_duration, DURATION_PATTERN)))
PLACE_ON_AXIS = Either((Real(), Parsed("a time such as 1981-09-01", parse_time, TIME_PATTERN)))

AXIS = Section(
    "the combine axis",
    (
        Key(
            "position",
            POSITIONS,
            "What places a granule: its coordinate's values, its file name, a global attribute, or the listed order.",
            "coordinate",
        ),
        Key(
            "pattern",
            Text("a strptime pattern or a regular expression with one group"),
            "For `position: name`: `sst.%Y%m%d.nc`, or a regular expression whose one group is a number or, on a new axis, a "
            "label. For `position: attribute`: the same over the attribute's text; left out, the attribute as it is.",
        ),
        Key("attribute", Text("a global attribute's name", numbers=True), "For `position: attribute`: its name."),
        Key(
            "axis",
            Choice(("sequence", "slots")),
            "`sequence`: granules in order, without gaps. `slots`: a place for each value, (value - origin) / step.",
            "sequence",
        ),
        Key(
            "step",
            STEP,
            "For slots: a number in the coordinate's units (negative where it falls) or a duration in `s`, `min`, `h`, `D`, "
            "`M` (calendar months: the slot is the month that holds the value) or `Y`.",
        ),
        Key(
            "origin",
            PLACE_ON_AXIS,
            "For slots: the value of the first place.",
            "the first there is when the archive is first published, kept from then on",
        ),
        Key("stop", PLACE_ON_AXIS, "For slots: the value of the first place that is no more.", "after the last there is"),
    ),
)
ONE_AXIS = Either((POSITIONS, AXIS), deep=(("text", 0), ("mapping", 1)))
AXES = MapOf("{dimension: {position: …}}", ONE_AXIS, "a dimension", DIMENSION)
OVERLAPS = Choice(("error", "first", "last", "crop"))
MOSAIC = MapOf("{y: …, x: …, overlap: …}", ONE_AXIS, "a dimension", DIMENSION, special={OVERLAP: OVERLAPS})

DIFFERENCES = Section(
    "what to do where granules differ",
    (
        Key("codec", Choice(("era", "rechunk", "refuse")), "Codecs, byte order, chunk shape, storage fill.", "era"),
        Key(
            "packing",
            Choice(("rechunk", "era", "first", "refuse")),
            "`scale_factor`, `add_offset`, `_Unsigned`; `first`: all packed as the first granule, exactly or not at all.",
            "rechunk",
        ),
        Key(
            "fill",
            Choice(("rechunk", "widen", "era", "refuse")),
            "`_FillValue`, `missing_value`; `widen`: whole numbers take a wider type where that is needed for a number that is "
            "data in no granule.",
            "rechunk",
        ),
        Key(
            "dtype",
            Choice(("rechunk", "era", "first", "refuse")),
            "The element type; `rechunk`: one that holds all; `first`: the first granule's, exactly or not at all.",
            "rechunk",
        ),
        Key(
            "units",
            Choice(("refuse", "era", "first")),
            "`units` of variables that are no times; `first` where they are two spellings of one thing.",
            "refuse",
        ),
        Key(
            "time",
            Choice(("rechunk", "era", "refuse")),
            "Units and origin of times; different calendars are always refused.",
            "rechunk",
        ),
        Key(
            "attributes",
            Choice(("refuse", "era", "first")),
            "Other attributes that change what a number means: `flag_meanings`, `valid_range`…",
            "refuse",
        ),
        Key("missing_variable", Choice(("fill", "era", "refuse")), "A granule lacks a variable that others have.", "fill"),
        Key("static", Choice(("refuse", "first")), "Values of arrays without a joined axis.", "refuse"),
        Key(
            "coordinates",
            Section(
                "coordinates off the joined axes",
                (
                    Key(
                        "tolerance",
                        Real(0),
                        "Largest difference at which they still count as equal; the first granule's are published.",
                        "0",
                    ),
                ),
            ),
            "Coordinates off the joined axes.",
        ),
    ),
)

PLACES = ListOf("a list of places by number, counted from 0", Integer())
VALUES = ListOf("a list of coordinate values", Value())
STRIDE = Key("step", Integer(1), "Every which.", "1")
SLICE = Section(
    "places by number",
    (
        Key("start", Integer(), "Number of the first place.", "0"),
        Key("stop", Integer(), "Number of the first place that is no more.", "the end"),
        STRIDE,
    ),
)
POINTS = Section("points by number", (Key("index", PLACES, "Numbers of places, one for each point.", required=True),))
TAKE = Section(
    "what is taken",
    (
        Key("from", Value(), "Lowest coordinate value taken.", "open"),
        Key("to", Value(), "Highest coordinate value taken, itself included.", "open"),
        STRIDE,
        Key("values", VALUES, "The places that have these coordinate values."),
        Key(
            "index",
            Either((Integer(), PLACES, SLICE), deep=(("int", 0), ("list", 1), ("mapping", 2))),
            "By number, from 0, or from -1 backwards: one place (the dimension is dropped), a list, or start, stop, step.",
        ),
        Key(
            "points",
            Either((VALUES, POINTS), deep=(("list", 0), ("mapping", 1))),
            "One for each point; all dimensions with points are gathered into one new dimension `points`.",
        ),
    ),
)
ONE_TAKE = Either((Value(), Pair(), TAKE), deep=(("int", 0), ("float", 0), ("text", 0), ("list", 1), ("mapping", 2)))
SELECT = MapOf("{dimension: what is taken of it}", ONE_TAKE, "a dimension", DIMENSION)

COMBINE: Final = Section(
    "how granules combine",
    (
        Key(
            "along",
            Either(
                (Text("a dimension's name"), AXES, ListOf("a list of dimensions", Text("a dimension's name"))),
                deep=(("mapping", 1), ("list", 2)),
            ),
            "The dimensions that granules are joined along; one that no array has becomes a new one.",
            "the one dimension that is unlimited or whose coordinate differs between granules",
        ),
        Key("mosaic", MOSAIC, "Tiles: further dimensions as for `along`, and what to do where tiles overlap."),
        Key("variables", NAMES, "Variables wanted, by name or path; their coordinates come along.", "all"),
        Key("select", SELECT, "What is taken of each dimension, before anything is written.", "all"),
        Key("differences", DIFFERENCES, "What to do where granules differ; no default changes a value."),
        Key(
            "duplicates",
            Choice(("error", "first", "last", "newest")),
            "Two granules hold one place: `first` or `last` listed, or `newest`: by version, then by name.",
            "error",
        ),
        Key(
            "overlap", OVERLAPS, "The same for tiles that overlap off the first axis; `crop` cuts neighbours half way.", "error"
        ),
        Key("gaps", Choice(("fill", "error")), "Places that no granule holds read as missing, or are an error.", "fill"),
    ),
    later=("revisions",),
)


def _parse_of(text: str) -> tuple[bool, object]:
    """``{stem}`` once, ``{version}`` at most once, and something that tells versions apart."""
    marks = re.findall(r"\{(.*?)\}", text)
    if sorted(marks) not in (["stem"], ["stem", "version"]) or re.sub(r"\{(stem|version)\}", "", text).strip("{}") == "":
        return False, 'such as "{stem}_preliminary" or "{stem}_v{version}"'
    if "/" in text or re.search(r"[{}]", re.sub(r"\{(stem|version)\}", "", text)):
        return False, "a file's name without its folder and suffixes"
    return True, text


VERSIONS: Final = Section(
    "versions of granules",
    (
        Key(
            "of",
            Parsed("a name with {stem}", _parse_of, r"\{stem\}"),
            "File name without suffixes; `{stem}` is what versions share: `{stem}_preliminary` is the preliminary form of "
            "`{stem}`, `{stem}_v{version}` numbers them.",
            required=True,
        ),
        Key(
            "prefer",
            Choice(("final", "all")),
            "`final`: the one without the mark, or of the highest version, replaces the others. `all`: none is replaced.",
            "final",
        ),
    ),
)

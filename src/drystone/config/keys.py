"""Every key of a config: the one table from which validation, defaults, JSON schema and reference are made.

Read :data:`ROOT` from the bottom of the file upwards. What a later version will take is listed as ``later``, so that it
is refused as "not yet available" rather than as unknown, and never silently accepted.
"""

from __future__ import annotations

import re
from typing import Final

from drystone.config.addresses import CREDENTIAL_HINT, PLACE_PATTERN, has_credentials, parse_address, parse_url
from drystone.config.combine_keys import COMBINE, DIMENSION, NAMES, VERSIONS
from drystone.config.kinds import INVALID, Choice, Either, Integer, Kind, Parsed, Schema, Size, Text, Truth
from drystone.config.nodes import Node
from drystone.config.problem import Report
from drystone.config.sections import Key, ListOf, MapOf, Section, Variants
from drystone.config.units import SHARE_PATTERN, parse_share
from drystone.config.value_keys import CODEC, VALUE_KEYS
from drystone.model.sizes import parse_size

__all__ = ["ROOT", "UNBALANCED"]

UNBALANCED: Final = "*"
"""The key of ``chunks`` and ``shards`` that takes a byte size: the planner balances the dimensions not named."""


class _Url(Parsed):
    """A URL; what is inside one with credentials is never repeated."""

    __slots__ = ()

    def read(self, node: Node, where: str, report: Report) -> object:
        """The root without a trailing slash."""
        if isinstance(node.scalar, str) and has_credentials(node.scalar):
            report.add(where, "a URL without credentials", node.found(), CREDENTIAL_HINT, node.at)
            return INVALID
        return Parsed.read(self, node, where, report)


class _Public(Text):
    """The right side of a remap rule."""

    __slots__ = ()

    def read(self, node: Node, where: str, report: Report) -> object:
        """The text, unless it carries credentials: it would be published in every reference."""
        if isinstance(node.scalar, str) and has_credentials(node.scalar):
            report.add(where, "a URL without credentials", node.found(), CREDENTIAL_HINT, node.at)
            return INVALID
        return Text.read(self, node, where, report)


class _Share(Parsed):
    """A percentage, as a fraction."""

    __slots__ = ()

    def schema(self) -> Schema:
        """A string with a percent sign."""
        return {"type": "string", "pattern": SHARE_PATTERN}


class _Edge(Either):
    """Elements along one dimension; who writes a size there is told where sizes go."""

    __slots__ = ()

    def read(self, node: Node, where: str, report: Report) -> object:
        """A number or all."""
        if isinstance(node.scalar, str) and parse_size(node.scalar) is not None:
            report.add(where, self.expected, node.found(), f'a size is for the whole: "{UNBALANCED}": {node.scalar}', node.at)
            return INVALID
        return Either.read(self, node, where, report)


def _parse_share(text: str) -> tuple[bool, object]:
    share = parse_share(text)
    return (False, "write 1%") if share is None else (True, share)


def _parse_verify(text: str) -> tuple[bool, object]:
    words = text.split(maxsplit=1)
    if text in ("none", "full", "sample", "digest"):
        return True, (text, 0.01)
    if len(words) == 2 and words[0] == "sample":
        share = parse_share(words[1])
        return (True, ("sample", share)) if share else (False, "the share is more than 0% and at most 100%: sample 1%")
    return False, ""


def _parse_cluster(text: str) -> tuple[bool, object]:
    if text in ("local", "inline") or re.match(r"(tcp|tls|ucx|ws|wss|inproc)://[^@\s]+\Z", text):
        return True, text
    if text == "slurm":
        return False, "slurm is not yet available in this version of drystone: start workers there and give the address"
    return False, "an address looks like tcp://host:8786"


ADDRESS = Parsed("an address, place:relative/path, or a path relative to the config's folder", parse_address)
PATTERN = Parsed("a pattern, place:folder/*.nc, or one relative to the config's folder", parse_address)
URL = _Url("a folder or a URL", parse_url)
ENDPOINT = _Public("an http or https URL", r"^https?://\S+$")
AUTO_COUNT = Either((Choice(("auto",)), Integer(1)))

PLACE = Section(
    "a place",
    (
        Key(
            "url", URL, "Root: a folder (a relative one starts at the config's) or an s3, gs, az or http(s) URL.", required=True
        ),
        Key("endpoint", ENDPOINT, "Address of an S3-like service, where it is not the cloud's own."),
        Key("region", Text("a region"), "Region of the bucket."),
        Key("anonymous", Truth(), "Send no credentials; such a place can only be read.", "false"),
    ),
    later=("profile",),
)

GRANULES: Final = Variants(
    "a source of granules",
    {
        "glob": Section(
            "a glob",
            (Key("glob", PATTERN, "Over a place: `*` and `?` within a folder, `[..]`, `**` over folders.", required=True),),
        ),
        "list": Section(
            "a list",
            (Key("list", ADDRESS, "A text file with one address or path a line; `#` starts a comment.", required=True),),
        ),
    },
    later=("stac", "cmr", "thredds", "inventory", "members"),
)
ONE_SOURCE: Final = Either((PATTERN, GRANULES), deep=(("text", 0), ("mapping", 1)))
SOURCES: Final = Either(
    (PATTERN, GRANULES, ListOf("a list of patterns", ONE_SOURCE)), deep=(("text", 0), ("mapping", 1), ("list", 2))
)

ARCHIVE = Section(
    "the archive",
    (
        Key("granules", SOURCES, "Where granules are listed from: a pattern, or a list of patterns, `glob:` and `list:`."),
        Key("format", Text("auto or a scanner's name"), "A scanner's name, or auto: by content, not by suffix.", "auto"),
        Key("versions", VERSIONS, "Granules that replace others, such as final ones their preliminary forms."),
    ),
    later=("representations",),
)

EDGE = _Edge((Integer(1), Choice(("all",))))
STORE_EDGE = _Edge((Integer(1), Choice(("all", "months", "years"))))
BUDGET = Size(as_text=True)


def _edges(budget: Kind) -> Kind:
    free = MapOf("elements of each dimension", STORE_EDGE, "a dimension's name", DIMENSION, special={UNBALANCED: budget})
    return Either((budget, free), deep=(("mapping", 1),))


AT = Key("at", ADDRESS, "Where to publish it.", required=True)
ARRAYS = Key("arrays", NAMES, "Arrays to publish, by name or path.", "all")
_STORE_KEYS = (
    Key(
        "chunks",
        _edges(Either((BUDGET, Choice(("source",))))),
        'Edges by dimension: elements, `all`, `months` or `years` (with `grid: rectilinear`), or under `"*"` a size: 256 kB; '
        "`source`: as the granules have them.",
        "planned",
    ),
    Key(
        "shards",
        _edges(Either((BUDGET, Choice(("none",))))),
        "Edges of a stored object, multiples of the chunks'; `none`: each chunk is an object.",
        "planned",
    ),
    Key(
        "codecs",
        Either((CODEC, ListOf("a list of codecs", CODEC)), deep=(("text", 0), ("mapping", 0), ("list", 1))),
        "The compressor: a name, or one with parameters, or none; in a list before it `delta` (whole numbers) and `shuffle`, "
        "which fewer readers know; `source`: as the granules have it, where chunks are copied.",
        "blosc with zstd 3 and shuffle",
    ),
)
_CROP = Key(
    "crop",
    Truth(),
    "Hold chunks that are stored padded in the middle of an axis, through the codec `drystone.crop`, which only readers with "
    "drystone installed have; for icechunk.",
    "false",
)
_VALUES = Key(
    "values",
    Choice(("auto", "packed", "decoded")),
    "`auto`: packed numbers stay packed, and are unpacked to float64 where granules pack differently and no common packing is "
    "exact; `packed`: refuse instead; `decoded`: unpack all.",
    "auto",
)
_GRID = Key(
    "grid",
    Choice(("regular", "rectilinear")),
    "`rectilinear`: chunks of different sizes along an axis are allowed; `drystone check` says who cannot read them.",
    "regular",
)
_STORE_GRID = Key(
    "grid",
    Choice(("regular", "rectilinear")),
    "`rectilinear`: chunks or shards may follow the calendar; `drystone check` says who cannot read them.",
    "regular",
)
_MODE = Key(
    "mode",
    Choice(("auto", "repack", "rechunk")),
    "`repack`: the granules' encoded chunks are copied as they are, or the plan says what is in the way; `rechunk`: all is "
    "decoded and encoded anew; `auto`: copied where chunks and codecs are given and are the granules' own (`source`).",
    "auto",
)
_PORTABLE = Key(
    "portable",
    Truth(),
    "Copied chunks have only codecs that every reader of Zarr v3 knows: zlib's streams get the frame of gzip, which costs "
    "decoding them once; shuffled ones cannot be copied so.",
    "false",
)
_COVERAGE = Key("coverage", Truth(), "Publish an array that says which places of the joined axes had bytes.", "false")
_FORMS = Choice(("icechunk", "kerchunk-parquet"), later=("kerchunk-json", "parquet", "mdim-vrt", "mdim-refs"))
_REMAP = MapOf(
    "a mapping from prefix to public URL", _Public("a URL"), "a place with its colon, raw:", r"^[A-Za-z][A-Za-z0-9_-]*:.*$"
)
OUTPUTS: Final = Variants(
    "an output",
    {
        "virtual": Section(
            "a virtual output",
            (
                Key("virtual", _FORMS, "Form of the references.", required=True),
                AT,
                Key(
                    "public",
                    _REMAP,
                    "Rewrites the addresses that references record, longest prefix first.",
                    "the places' own URLs",
                ),
                ARRAYS,
                _GRID,
                _CROP,
                _COVERAGE,
            ),
            later=("mode",),
            elsewhere={
                k.name: f"{k.name} is for store outputs: a virtual one has the files' own"
                for k in (*_STORE_KEYS, _VALUES, *VALUE_KEYS)
            },
        ),
        "store": Section(
            "a store output",
            (
                Key("store", Choice(("zarr", "icechunk")), "Form of the store.", required=True),
                AT,
                *_STORE_KEYS,
                ARRAYS,
                _VALUES,
                *VALUE_KEYS,
                _STORE_GRID,
                _COVERAGE,
                _MODE,
                _PORTABLE,
            ),
            later=("append", "overviews"),
            elsewhere={
                "public": "public is for virtual outputs: a store refers to no files",
                "crop": "crop is for virtual outputs: a store has chunks of its own",
            },
        ),
    },
    later=("catalog",),
)

EXECUTION = Section(
    "execution",
    (
        Key("cluster", Parsed("local, inline or a scheduler's address", _parse_cluster), "Where tasks run.", "local"),
        Key("workers", AUTO_COUNT, "Processes; auto: one a core.", "auto"),
        Key("threads_per_worker", AUTO_COUNT, "Threads in each.", "auto"),
        Key("memory_per_worker", Either((Choice(("auto",)), Size())), "Of each; auto: what the host has, shared out.", "auto"),
        Key(
            "reread",
            Integer(1, 1000),
            "How often a source chunk may be read, on average, before a rechunk in two passes is weighed: as many readings as "
            "writing and reading a copy costs.",
            "3",
        ),
        Key(
            "scratch",
            ADDRESS,
            "Folder for what lies between two passes, which all workers reach; removed as it is used up.",
            "in `work:`",
        ),
    ),
)
FAILURES = Section(
    "failures",
    (
        Key(
            "granules",
            Either((Integer(0), _Share("a percentage such as 1%", _parse_share))),
            "How many granules may be set aside (named, and the release marked partial) before the run stops.",
            "0",
        ),
        Key("tries", Integer(1, 100), "Tries of a task that raises.", "3"),
    ),
)
VERIFY = Section(
    "verify",
    (
        Key(
            "values",
            Parsed(
                "none, sample, sample 1%, full or digest", _parse_verify, r"^(none|full|digest|sample( [0-9]+(\.[0-9]+)? ?%)?)$"
            ),
            "How much of each output is compared with the granules before it is published.",
            "sample 1%",
        ),
    ),
)
STORAGE = MapOf(
    "a mapping from a place's name to its url",
    Either((URL, PLACE), deep=(("text", 0), ("mapping", 1))),
    "a place's name (letters, digits, - and _, a letter first)",
    PLACE_PATTERN,
)
READS = MapOf(
    "a mapping from a name to what is read",
    MapOf(
        "elements by dimension",
        EDGE,
        "a dimension's name",
        DIMENSION,
        special={"at": MapOf("first elements by dimension, from 0", Integer(0), "a dimension's name", DIMENSION)},
    ),
    "a name",
)

ARCHIVE_NAME = Text("a name of letters, digits, . _ and -", r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")

ROOT: Final = Section(
    "the config",
    (
        Key("version", Integer(1, 1), "Of this format.", "1"),
        Key("name", ARCHIVE_NAME, "Of the archive; the folder in `work:` is called so.", required=True),
        Key("storage", STORAGE, "Named places; every address starts with one.", "work is file:./work, beside the config"),
        Key("granules", SOURCES, "Short for `archive: {granules: …}`."),
        Key("archive", ARCHIVE, "The granules."),
        Key("combine", COMBINE, "How they make one whole."),
        Key("outputs", ListOf("a list of outputs", OUTPUTS), "What to publish, at least one.", required=True),
        Key("reads", READS, "What users will ask of the store, at any place or `at:` one; the plan says what each costs."),
        Key("execution", EXECUTION, "Where tasks run, and how many at once."),
        Key("failures", FAILURES, "What may fail."),
        Key("verify", VERIFY, "What is proven before publishing."),
    ),
    elsewhere={
        "chunks": "chunks belong to an output",
        "shards": "shards belong to an output",
        "codecs": "codecs belong to an output",
        **{k.name: f"write combine: {{{k.name}: …}}" for k in COMBINE.keys},
        **{k: f"write archive: {{{k}: …}}" for k in ("format", "versions")},
        **{k: f"{k} belongs to an output" for k in ("values", "grid", "crop", "coverage", "public")},
        **{k.name: f"{k.name} belongs to a store output" for k in VALUE_KEYS},
        "cluster": "write execution: {cluster: …}",
        "workers": "write execution: {workers: …}",
        "output": "did you mean outputs? It takes a list",
    },
)

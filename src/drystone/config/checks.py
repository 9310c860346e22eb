"""Checks between keys: what no single key can know.

Each takes the values read so far and notes problems; values that are INVALID were told already and are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from drystone import registry
from drystone.codecs.order import order_problem
from drystone.config.addresses import HERE, SCHEMES, WORK
from drystone.config.combine_checks import check_combine
from drystone.config.keys import UNBALANCED
from drystone.config.kinds import INVALID, did_you_mean, nearest
from drystone.config.problem import Report, join
from drystone.config.sections import Chosen

__all__ = ["check", "chosen_of", "mapping_of"]

type Values = Mapping[str, object]


def mapping_of(value: object) -> Values:
    """A section's values; empty where there are none or they are invalid."""
    return value if isinstance(value, Mapping) else {}


def chosen_of(value: object) -> Iterator[tuple[int, str, Values]]:
    """Position, telling key and values of each valid choice: one, or those in a list."""
    for i, item in enumerate(value if isinstance(value, tuple) else (value,)):
        if isinstance(item, Chosen) and isinstance(item.values, Mapping):
            yield i, item.key, item.values


def check(values: Values, report: Report) -> None:
    """Run all checks."""
    storage = mapping_of(values.get("storage"))
    _places(storage, report)
    _granules(values, storage, report)
    _format(mapping_of(values.get("archive")), report)
    check_combine(mapping_of(values.get("combine")), "combine", report)
    outputs = list(chosen_of(values.get("outputs")))
    for i, _, output in outputs:
        where = join("outputs", i)
        _target(output.get("at"), storage, join(where, "at"), report)
        _shards(output, where, report)
        _calendar(output, where, report)
        _codecs(output.get("codecs"), join(where, "codecs"), report)
        _form(output, where, report)
        for prefix in mapping_of(output.get("public")):
            _known(prefix, storage, join(join(where, "public"), prefix), report)
    scratch = mapping_of(values.get("execution")).get("scratch")
    if isinstance(scratch, str) and _known(scratch, storage, "execution.scratch", report):
        place = scratch.partition(":")[0]
        _writable(place, storage.get(place), "execution.scratch", report)
    _apart(str(values.get("name")), outputs, report)


def _places(storage: Values, report: Report) -> None:
    for name, place in storage.items():
        where, url = join("storage", name), mapping_of(place).get("url", place)
        if isinstance(url, str) and not url.startswith(("s3:", "gs:", "az:", "abfs:")):
            for option in mapping_of(place):
                if option != "url":
                    report.add(join(where, option), f"no {option}, as {name} is no bucket", option, "take it out")
        if name == WORK:
            _writable(name, place, where, report)
        if name == HERE:
            report.add(join("storage", name), "another name", HERE, "here is the config's own folder")
        elif name in SCHEMES:
            report.add(join("storage", name), "another name", name, "it is a URL's scheme, and s3: would be read as a place")


def _known(address: str, storage: Values, where: str, report: Report) -> bool:
    place = address.partition(":")[0]
    known = [*storage, WORK, HERE]
    if place in known:
        return True
    report.add(where, "a place named in storage", f"{place}:", did_you_mean(place, dict.fromkeys(known)))
    return False


def _granules(values: Values, storage: Values, report: Report) -> None:
    short, archive = values.get("granules"), mapping_of(values.get("archive"))
    if short is None and "granules" not in archive and values.get("archive") is not INVALID:
        where = "archive.granules" if "archive" in values else "granules"
        report.add(where, "a pattern or a list of them", "nothing", "add the key granules")
    if short is not None and archive.get("granules") is not None:
        report.add("granules", "granules once", "granules and archive.granules", "keep one of them")
    for root, value in (("granules", short), ("archive.granules", archive.get("granules"))):
        for where, address in _sources(root, value):
            _known(address, storage, where, report)


def _sources(where: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, Chosen):
        address = mapping_of(value.values).get(value.key)
        if isinstance(address, str):
            yield join(where, value.key), address
    elif isinstance(value, tuple):
        for i, item in enumerate(value):
            yield from _sources(join(where, i), item)


def _format(archive: Values, report: Report) -> None:
    name = archive.get("format")
    if isinstance(name, str) and name != "auto" and name not in registry.names("scanners"):
        known = ["auto", *registry.names("scanners")]
        report.add("archive.format", "auto or a scanner's name", repr(name), did_you_mean(name, known))


def _target(at: object, storage: Values, where: str, report: Report) -> None:
    if not isinstance(at, str) or not _known(at, storage, where, report):
        return
    place, _, key = at.partition(":")
    if not key:
        report.add(where, "a name after the place", f"{place}:", f"such as {place}:archive.zarr")
    _writable(place, storage.get(place), where, report)


def _writable(name: str, place: object, where: str, report: Report) -> None:
    url = mapping_of(place).get("url", place)
    if mapping_of(place).get("anonymous") is True:
        report.add(where, "a place that can be written", f"{name}:, which is anonymous", "name another place for it")
    elif isinstance(url, str) and url.startswith(("http:", "https:")):
        found = f"{name}:, which is {url.partition(':')[0]}"
        report.add(where, "a place that can be written", found, "name another place for it")


def _shards(output: Values, where: str, report: Report) -> None:
    chunks, shards = mapping_of(output.get("chunks")), mapping_of(output.get("shards"))
    for name, shard in shards.items():
        chunk = chunks.get(name)
        if name == UNBALANCED or not isinstance(shard, int) or chunk is None:
            continue
        here = join(join(where, "shards"), name)
        if chunk == "all":
            report.add(here, f"all, as chunks.{name} is all", str(shard), "a shard holds whole chunks")
        elif isinstance(chunk, int) and shard % chunk:
            below, above = shard // chunk * chunk, -(-shard // chunk) * chunk
            hint = f"{above} would do" if not below else f"{below} or {above} would do"
            report.add(here, f"a multiple of chunks.{name}, which is {chunk}", str(shard), hint)
    for name in shards:
        close = nearest(name, [c for c in chunks if c not in shards]) if name not in chunks and chunks else None
        if close:
            report.add(join(join(where, "shards"), name), "a dimension of chunks", name, f"did you mean {close}?")


def _calendar(output: Values, where: str, report: Report) -> None:
    """Months and years make a grid of unequal chunks, which a store must opt into, and inner chunks of a shard are equal."""
    chunks, shards = mapping_of(output.get("chunks")), mapping_of(output.get("shards"))
    for key, edges in (("chunks", chunks), ("shards", shards)):
        for name, edge in edges.items():
            here = join(join(where, key), name)
            if edge not in ("months", "years"):
                continue
            if output.get("grid") != "rectilinear":
                hint = "write `grid: rectilinear` as well; zarr-python from 3.2 and what reads through it can open such a store"
                report.add(here, "a number of elements or all, as grid is regular", str(edge), hint)
            elif key == "chunks" and output.get("shards") not in (None, "none") and shards.get(UNBALANCED) != "none":
                hint = f"write `shards: none`, or `shards: {{{name}: {edge}}}` with chunks of a number that divides each"
                report.add(here, "a number of elements, as there are shards", str(edge), hint)


def _form(output: Values, where: str, report: Report) -> None:
    """What only some forms can say."""
    form = output.get("virtual")
    if not isinstance(form, str) or form == "icechunk":
        return
    if output.get("grid") == "rectilinear":
        hint = "its references are Zarr v2, which has regular grids only; icechunk has them"
        report.add(join(where, "grid"), f"regular, as virtual is {form}", "rectilinear", hint)
    if output.get("crop") is True:
        hint = "its references are Zarr v2, whose codecs do not know a chunk's shape; icechunk takes it"
        report.add(join(where, "crop"), f"false, as virtual is {form}", "true", hint)


def _codecs(codecs: object, where: str, report: Report) -> None:
    steps = list(chosen_of(codecs))
    names = [name for _, name, _ in steps]
    problem = order_problem(names)
    if problem is not None:
        report.add(where, "delta, shuffle, then one compressor", ", ".join(names), problem)
    for i, name, params in steps:
        if "level" in params and "clevel" in params:
            here = join(join(where, i) if isinstance(codecs, tuple) else where, name)
            report.add(here, "level once", "level and clevel", "they are the same: keep level")


def _apart(name: str, outputs: Sequence[tuple[int, str, Values]], report: Report) -> None:
    """No output inside another one, or around the table."""
    taken = {f"{WORK}:{name}": "the work folder"}
    for i, _, output in outputs:
        at = output.get("at")
        if not isinstance(at, str) or not at.partition(":")[2]:
            continue
        for other, what in taken.items():
            if at == other or at.startswith(f"{other}/") or other.startswith(f"{at}/"):
                report.add(join(join("outputs", i), "at"), "an address of its own", at, f"{what} is at {other}")
                break
        taken.setdefault(at, join("outputs", i))

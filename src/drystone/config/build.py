"""From values that passed every check to the frozen config, and the digest of its meaning."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Literal, cast

from drystone.config.addresses import HERE, WORK
from drystone.config.checks import chosen_of, mapping_of
from drystone.config.combine_build import build_combine, build_versions
from drystone.config.keys import UNBALANCED
from drystone.config.sections import Chosen
from drystone.model.options import (
    ArchiveConfig,
    ExecutionOptions,
    FailureOptions,
    GranuleSet,
    OutputOptions,
    ReadPattern,
    VerifyOptions,
)

__all__ = ["build", "digest_of"]

# Casts here restate what the table of keys has proven: a value of a key is what the key's kind reads.

_CODEC_DEFAULTS: Mapping[str, Mapping[str, int | str | bool]] = {
    "blosc": {"cname": "zstd", "clevel": 3, "shuffle": "auto"},
    "zstd": {"level": 3, "checksum": False},
    "gzip": {"level": 5},
    "delta": {},
    "shuffle": {},
    "none": {},
    "source": {},
}


def build(values: Mapping[str, object], base: str) -> ArchiveConfig:
    """The config; ``base`` is the absolute folder of its file."""
    archive = mapping_of(values.get("archive"))
    sources = values.get("granules") or archive["granules"]
    config = ArchiveConfig(
        name=cast(str, values["name"]),
        places=_places(mapping_of(values.get("storage"))),
        base=base,
        granules=_sources(sources),
        outputs=tuple(_output(kind, output) for _, kind, output in chosen_of(values["outputs"])),
        format=cast(str, archive.get("format", "auto")),
        work=f"{WORK}:",
        combine=build_combine(mapping_of(values.get("combine"))),
        reads=tuple(_read(name, mapping_of(sizes)) for name, sizes in mapping_of(values.get("reads")).items()),
        execution=_execution(mapping_of(values.get("execution"))),
        failures=_failures(mapping_of(values.get("failures"))),
        verify=_verify(mapping_of(values.get("verify"))),
        versions=build_versions(mapping_of(archive.get("versions"))),
    )
    return replace(config, digest=digest_of(config))


def digest_of(config: ArchiveConfig) -> str:
    """32 hex digits of what a config means: comments, layout, order of keys and the folder it lies in do not matter.

    Examples
    --------
    >>> a = ArchiveConfig("x", {}, "/a", (GranuleSet("glob", "here:*.nc"),), ())
    >>> digest_of(a) == digest_of(replace(a, base="/b")), digest_of(a) == digest_of(replace(a, name="y"))
    (True, False)
    """
    meaning = asdict(config)
    del meaning["base"], meaning["digest"]
    # a read at any place means what it meant before places could be given
    reads = [{k: v for k, v in r.items() if k != "at" or v} for r in meaning["reads"]]
    meaning["reads"] = sorted(reads, key=lambda r: str(r["name"]))
    text = json.dumps(meaning, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _places(storage: Mapping[str, object]) -> dict[str, tuple[str, Mapping[str, str | bool]]]:
    places: dict[str, tuple[str, Mapping[str, str | bool]]] = {HERE: ("file:.", {}), WORK: ("file:./work", {})}
    for name, place in storage.items():
        if isinstance(place, str):
            places[name] = (place, {})
        else:
            options = {k: cast("str | bool", v) for k, v in mapping_of(place).items() if k != "url"}
            places[name] = (cast(str, mapping_of(place)["url"]), options)
    return places


def _sources(value: object) -> tuple[GranuleSet, ...]:
    if isinstance(value, str):
        return (GranuleSet("glob", value),)
    if isinstance(value, Chosen):
        return (GranuleSet(value.key, cast(str, mapping_of(value.values)[value.key])),)
    return tuple(s for item in cast("tuple[object, ...]", value) for s in _sources(item))


def _names(value: object) -> tuple[str, ...] | None:
    return None if value is None else cast("tuple[str, ...]", value)


def _edges(value: object) -> dict[str, int | str]:
    if isinstance(value, str):
        return {UNBALANCED: value}
    return {k: cast("int | str", v) for k, v in mapping_of(value).items()}


def _codecs(value: object) -> tuple[tuple[str, Mapping[str, int | str | bool]], ...]:
    out = []
    for _, name, params in chosen_of(value):
        given = cast("Mapping[str, int | str | bool]", params)
        renamed = {"clevel" if (name, k) == ("blosc", "level") else k: v for k, v in given.items()}
        if renamed.get("shuffle") == "none":  # one spelling, so that a plan does not change with it
            renamed["shuffle"] = "noshuffle"
        out.append((name, {**_CODEC_DEFAULTS[name], **renamed}))
    return tuple(out)


def _output(kind: str, values: Mapping[str, object]) -> OutputOptions:
    public = {k: cast(str, v) for k, v in mapping_of(values.get("public")).items()}
    return OutputOptions(
        kind=cast(Literal["virtual", "store"], kind),
        form=cast(str, values[kind]),
        at=cast(str, values["at"]),
        public=tuple(sorted(public.items(), key=lambda rule: (-len(rule[0]), rule[0]))),
        chunks=_edges(values.get("chunks")),
        shards=_edges(values.get("shards")),
        codecs=_codecs(values.get("codecs")),
        arrays=_names(values.get("arrays")),
        values=cast(Literal["auto", "packed", "decoded"], values.get("values", "auto")),
        grid=cast(Literal["regular", "rectilinear"], values.get("grid", "regular")),
        crop=cast(bool, values.get("crop", False)),
        coverage=cast(bool, values.get("coverage", False)),
        mode=cast(Literal["auto", "repack", "rechunk"], values.get("mode", "auto")),
        portable=cast(bool, values.get("portable", False)),
        round={k: _rounding(v) for k, v in mapping_of(values.get("round")).items()},
        dtype=cast("Mapping[str, str]", mapping_of(values.get("dtype"))),
        pack=cast("Mapping[str, Mapping[str, float | str]]", mapping_of(values.get("pack"))),
        fill_value=cast("Mapping[str, float | str]", mapping_of(values.get("fill_value"))),
    )


def _rounding(value: object) -> tuple[Literal["keepbits", "digits"], int]:
    [(way, number)] = mapping_of(value).items()
    return cast(Literal["keepbits", "digits"], way), cast(int, number)


def _read(name: str, sizes: Mapping[str, object]) -> ReadPattern:
    at = {k: v for k, v in mapping_of(sizes.get("at")).items() if isinstance(v, int)}
    return ReadPattern(name, {k: v for k, v in sizes.items() if isinstance(v, int)}, at)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _execution(values: Mapping[str, object]) -> ExecutionOptions:
    return ExecutionOptions(
        cluster=cast(str, values.get("cluster", "local")),
        workers=_count(values.get("workers")),
        threads_per_worker=_count(values.get("threads_per_worker")),
        memory_per_worker=_count(values.get("memory_per_worker")),
        reread=cast(int, values.get("reread", 3)),
        scratch=cast("str | None", values.get("scratch")),
    )


def _failures(values: Mapping[str, object]) -> FailureOptions:
    return FailureOptions(cast("int | float", values.get("granules", 0)), cast(int, values.get("tries", 3)))


def _verify(values: Mapping[str, object]) -> VerifyOptions:
    if "values" not in values:
        return VerifyOptions()
    mode, share = cast("tuple[Literal['none', 'sample', 'full', 'digest'], float]", values["values"])
    return VerifyOptions(mode, share)

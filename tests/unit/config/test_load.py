"""Configs, good and bad: what they mean, and that every problem is told at once, at its line."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from drystone.config.load import check_config, load_config
from drystone.config.problem import Problem
from drystone.errors import ConfigError
from drystone.model.options import (
    ArchiveConfig,
    AxisOptions,
    CombineOptions,
    ExecutionOptions,
    FailureOptions,
    GranuleSet,
    OutputOptions,
    ReadPattern,
    VerifyOptions,
)

SHORTEST = """\
name: sst
granules: "raw/*.nc"
outputs:
  - virtual: icechunk
    at: sst.icechunk
"""

FULL = """\
version: 1
name: oisst-avhrr-v2.1
storage:
  noaa:    {url: "s3://noaa-cdr", anonymous: true, region: us-east-1}
  publish: {url: "s3://our-bucket/oisst/", endpoint: "http://127.0.0.1:8333"}
  scratch: /scratch/x
archive:
  granules:
    - glob: "noaa:data/v2.1/avhrr/*/oisst-avhrr-v02r01.*.nc"
    - list: granules.txt
    - ./raw//*.nc
  format: hdf5
combine:
  along: {time: {position: name, pattern: "sst.%Y%m%d.nc"}}
  variables: [sst, no, 500]
outputs:
  - virtual: icechunk
    at: "publish:oisst.icechunk"
    public: {"noaa:": "https://a/", "noaa:data/": "https://b/"}
  - virtual: kerchunk-parquet
    at: "publish:oisst.parq"
    arrays: [sst]
  - store: zarr
    at: "publish:oisst-series.zarr"
    chunks: {time: 128, lat: all, "*": 256 kB}
    shards: {time: 512}
    codecs: [{blosc: {cname: lz4, level: 5}}]
reads:
  point series: {lat: 1, lon: 1, time: all}
execution: {cluster: "tcp://host:8786", workers: 3, threads_per_worker: auto, memory_per_worker: 4 GiB}
failures: {granules: 0.5%, tries: 2}
verify: {values: sample 12.5%}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "archive.yaml"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def problems(folder: Path, text: str) -> list[Problem]:
    return check_config(write(folder, text))


def test_shortest_config_has_five_lines_and_sensible_defaults(tmp_path: Path) -> None:
    assert len(SHORTEST.splitlines()) == 5
    config = load_config(write(tmp_path, SHORTEST))
    assert config == ArchiveConfig(
        name="sst",
        places={"here": ("file:.", {}), "work": ("file:./work", {})},
        base=str(tmp_path),
        granules=(GranuleSet("glob", "here:raw/*.nc"),),
        outputs=(OutputOptions("virtual", "icechunk", "here:sst.icechunk"),),
        digest=config.digest,
    )
    assert len(config.digest) == 32


def test_everything_a_config_can_say(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, FULL))
    assert config.places == {
        "here": ("file:.", {}),
        "work": ("file:./work", {}),
        "noaa": ("s3://noaa-cdr", {"anonymous": True, "region": "us-east-1"}),
        "publish": ("s3://our-bucket/oisst", {"endpoint": "http://127.0.0.1:8333"}),
        "scratch": ("/scratch/x", {}),
    }
    assert config.granules == (
        GranuleSet("glob", "noaa:data/v2.1/avhrr/*/oisst-avhrr-v02r01.*.nc"),
        GranuleSet("list", "here:granules.txt"),
        GranuleSet("glob", "here:raw/*.nc"),
    )
    assert config.format == "hdf5"
    assert config.combine == CombineOptions((AxisOptions("time", "name", "sst.%Y%m%d.nc"),), ("sst", "no", "500"))
    icechunk, parquet, store = config.outputs
    assert icechunk.public == (("noaa:data/", "https://b/"), ("noaa:", "https://a/"))  # longest first
    assert (parquet.form, parquet.arrays) == ("kerchunk-parquet", ("sst",))
    assert (store.kind, store.form, dict(store.shards)) == ("store", "zarr", {"time": 512})
    assert dict(store.chunks) == {"time": 128, "lat": "all", "*": "256 kB"}
    assert store.codecs == (("blosc", {"cname": "lz4", "clevel": 5, "shuffle": "auto"}),)
    assert config.reads == (ReadPattern("point series", {"lat": 1, "lon": 1}),)
    assert config.execution == ExecutionOptions("tcp://host:8786", 3, None, 4 << 30)
    assert config.failures == FailureOptions(0.005, 2)
    assert config.verify == VerifyOptions("sample", 0.125)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("codecs: none", (("none", {}),)),
        ("codecs: zstd", (("zstd", {"level": 3, "checksum": False}),)),
        ("codecs: [gzip]", (("gzip", {"level": 5}),)),
        ("codecs: {zstd: {level: 19}}", (("zstd", {"level": 19, "checksum": False}),)),
        (
            "codecs: [{blosc: {clevel: 1, shuffle: bitshuffle}}]",
            (("blosc", {"cname": "zstd", "clevel": 1, "shuffle": "bitshuffle"}),),
        ),
        ("arrays: [x]", ()),
    ],
)
def test_codecs(tmp_path: Path, written: str, meant: tuple[object, ...]) -> None:
    text = SHORTEST.replace("virtual: icechunk", "store: zarr") + f"    {written}\n"
    assert load_config(write(tmp_path, text)).outputs[0].codecs == meant


@pytest.mark.parametrize(
    ("chunks", "shards", "meant"),
    [
        ("256 kB", "none", ({"*": "256 kB"}, {"*": "none"})),
        ('{time: 10, "*": 1 MiB}', '{time: 100, "*": 200 MB}', ({"time": 10, "*": "1 MiB"}, {"time": 100, "*": "200 MB"})),
        ("{time: all}", "{time: all}", ({"time": "all"}, {"time": "all"})),
    ],
)
def test_chunks_and_shards(tmp_path: Path, chunks: str, shards: str, meant: tuple[object, object]) -> None:
    text = SHORTEST.replace("virtual: icechunk", "store: zarr") + f"    chunks: {chunks}\n    shards: {shards}\n"
    output = load_config(write(tmp_path, text)).outputs[0]
    assert (dict(output.chunks), dict(output.shards)) == meant


@pytest.mark.parametrize(
    ("old", "new", "where", "expected", "found", "hint"),
    [
        ("name: sst", "nam: sst", "nam", "a key of the config", "nam", "did you mean name?"),
        ("name: sst", "", "name", "a name of", "nothing", "add the key name"),
        ("name: sst", "name: a/b", "name", "a name of", "'a/b'", ""),
        ("name: sst", "name: sst\nversion: 2", "version", "1", "2", ""),
        ("name: sst", "name: 12", "name", "a name of", "12", "quotes"),
        ('granules: "raw/*.nc"', "", "granules", "a pattern", "nothing", "add the key"),
        ('granules: "raw/*.nc"', "granules: []", "granules", "a list", "an empty list", ""),
        ('granules: "raw/*.nc"', "granules: [{stac: x}]", "granules[0]", "a source", "stac", "not yet available"),
        ('granules: "raw/*.nc"', "granules: [{globb: x}]", "granules[0]", "a source", "globb", "did you mean glob?"),
        ('granules: "raw/*.nc"', "granules: ['row:*.nc']", "granules[0]", "a place", "row:", "known: work, here"),
        ('granules: "raw/*.nc"', "granules: /data/*.nc", "granules", "relative", "/data", 'raw: {url: "file:/data"}'),
        ('granules: "raw/*.nc"', "granules: ../raw/*.nc", "granules", "relative", "../raw", "name a place"),
        ('granules: "raw/*.nc"', "granules: s3://b/raw/*.nc", "granules", "relative", "s3://b", 'raw: {url: "s3://b/raw"}'),
        ('granules: "raw/*.nc"', "granules: x\narchive: {granules: y}", "granules", "once", "granules and", "keep one"),
        ('granules: "raw/*.nc"', "archive: {granules: x, format: grib}", "archive.format", "auto", "'grib'", "known: auto"),
        ('granules: "raw/*.nc"', "archive: {granules: x, representations: {}}", "archive.representations", "this", "rep", ""),
        ("at: sst.icechunk", "att: x", "outputs[0].att", "a key of a virtual output", "att", "did you mean at?"),
        ("at: sst.icechunk", "at: 'work:'", "outputs[0].at", "a name after the place", "work:", "work:archive.zarr"),
        ("at: sst.icechunk", "at: 'work:sst'", "outputs[0].at", "an address of its own", "work:sst", "the work folder"),
        ("virtual: icechunk", "virtual: icechunks", "outputs[0].virtual", "icechunk or", "'icechunks'", "mean icechunk?"),
        ("virtual: icechunk", "virtual: mdim-vrt", "outputs[0].virtual", "icechunk or", "'mdim-vrt'", "not yet available"),
        ("virtual: icechunk", "catalog: stac", "outputs[0]", "an output", "catalog", "not yet available"),
        ("virtual: icechunk", "store: zarr\n    virtual: icechunk", "outputs[0]", "an output", "store and virtual", "make two"),
        ("virtual: icechunk", "virtual: icechunk\n    chunks: {a: 1}", "outputs[0].chunks", "a virtual", "chunks", "store"),
        ("virtual: icechunk", "store: zarr\n    append: tail", "outputs[0].append", "this version", "append", "not yet"),
        ("virtual: icechunk", "store: zarr\n    chunks: {a: 0}", "outputs[0].chunks.a", "at least 1", "0", ""),
        ("virtual: icechunk", "store: zarr\n    chunks: {a: months}", "outputs[0].chunks.a", "grid is regular", "", "grid"),
        ("virtual: icechunk", "store: zarr\n    chunks: {a: 1.5}", "outputs[0].chunks.a", "at least 1", "1.5", ""),
        ("virtual: icechunk", "store: zarr\n    chunks: {a: ALL}", "outputs[0].chunks.a", "at least 1", "'ALL'", "all?"),
        ("virtual: icechunk", "store: zarr\n    chunks: {a: 1 MB}", "outputs[0].chunks.a", "at least 1", "'1 MB'", '"*": 1 MB'),
        ("virtual: icechunk", "store: zarr\n    chunks: 256", "outputs[0].chunks", "a size", "256", "the unit"),
        ("virtual: icechunk", "store: zarr\n    codecs: szip", "outputs[0].codecs", "a codec", "szip", "gzip?"),
        ("virtual: icechunk", "store: zarr\n    codecs: [zstd, gzip]", "outputs[0].codecs", "one", "zstd, gzip", "keep"),
        ("outputs:", "executions: {}\noutputs:", "executions", "a key of", "executions", "did you mean execution?"),
        ("outputs:", "chunks: {a: 1}\noutputs:", "chunks", "a key of", "chunks", "belong to an output"),
        ("outputs:", "combine: {revisions: refuse}\noutputs:", "combine.revisions", "this version", "revisions", "not yet"),
        ("outputs:", "combine: {along: {a: {position: name}}}\noutputs:", "combine.along.a.pattern", "name", "nothing", "%"),
        ("outputs:", "combine: {along: {a: {pattern: x}}}\noutputs:", "combine.along.a.pattern", "no pattern", "'x'", "add"),
        (
            "outputs:",
            "combine: {along: {a: {position: name, pattern: 'x(.)(.)'}}}\noutputs:",
            "combine.along.a.pattern",
            "one group",
            "2 groups",
            "",
        ),
        (
            "outputs:",
            "combine: {along: {a: {position: name, pattern: 'x('}}}\noutputs:",
            "combine.along.a.pattern",
            "one group",
            "no regular expression",
            "",
        ),
        ("outputs:", "combine: {variables: [a, {}]}\noutputs:", "combine.variables[1]", "a name", "an empty mapping", ""),
        ("outputs:", "execution: {workers: 0}\noutputs:", "execution.workers", "auto or", "0", ""),
        ("outputs:", "execution: {memory_per_worker: 4}\noutputs:", "execution.memory_per_worker", "a size", "4", "4 GB"),
        ("outputs:", "execution: {cluster: slurm}\noutputs:", "execution.cluster", "local, inline", "'slurm'", "not yet"),
        ("outputs:", "failures: {granules: 0.1}\noutputs:", "failures.granules", "percentage", "0.1", ""),
        ("outputs:", "failures: {granules: 101%}\noutputs:", "failures.granules", "percentage", "'101%'", ""),
        ("outputs:", "verify: {values: crc}\noutputs:", "verify.values", "none, sample", "'crc'", ""),
        ("outputs:", "verify: {values: sample 0%}\noutputs:", "verify.values", "none, sample", "'sample 0%'", "more than 0%"),
        ("outputs:", "verify:\noutputs:", "verify", "verify (a mapping", "nothing", ""),
        ("outputs:", "storage: {here: 'file:x'}\noutputs:", "storage.here", "another name", "here", "own folder"),
        ("outputs:", "storage: {s3: 's3://x'}\noutputs:", "storage.s3", "another name", "s3", "scheme"),
        ("outputs:", "storage: {work: 'https://h/x'}\noutputs:", "storage.work", "can be written", "which is https", "another"),
        ("outputs:", "storage: {raw: {url: x, region: y}}\noutputs:", "storage.raw.region", "no region", "region", "out"),
        ("outputs:", "storage: {raw: {url: 's3://b', endpoint: h}}\noutputs:", "storage.raw.endpoint", "http", "'h'", ""),
        ("outputs:", "storage: {raw: 'ftp://x'}\noutputs:", "storage.raw", "a folder or a URL", "'ftp://x'", "known schemes"),
        ("outputs:", "storage: {raw: {url: x, regoin: y}}\noutputs:", "storage.raw.regoin", "a place", "regoin", "region?"),
        ("outputs:", "storage: {raw: {url: x, profile: y}}\noutputs:", "storage.raw.profile", "this version", "profile", "not"),
    ],
)  # fmt: skip
def test_one_problem(tmp_path: Path, old: str, new: str, where: str, expected: str, found: str, hint: str) -> None:
    text = SHORTEST.replace(old, new)
    assert text != SHORTEST
    (problem,) = problems(tmp_path, text)
    assert problem.where == where
    assert expected in problem.expected
    assert found in problem.found
    assert hint in problem.hint
    lines = text.splitlines()
    last = where.rsplit(".", 1)[-1].split("[")[0].split('"')[0]
    assert 1 <= problem.line <= len(lines)
    if found != "nothing":
        # the line that it points at is the one to change
        shown = found.split(" and ")[-1].strip("'").split(":")[0].split(",")[0].removeprefix("2 ")
        assert last in lines[problem.line - 1] or shown in lines[problem.line - 1]
    assert str(problem).startswith(f"{problem.file}:{problem.line}:{problem.column}: ")


def test_all_problems_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        """\
        versoin: 1
        storage:
          pub: {url: "s3://b", secret_access_key: hunter2}
          ro: {url: "https://host/x"}
        granules: ["raw:*.nc", "raw/*.nc"]
        outputs:
          - store: zarr
            at: "ro:x.zarr"
            chunks: {time: 128, lat: -1}
            shards: {time: 500}
        execution: {workers: many}
        """,
    )
    assert [(p.line, p.column, p.where) for p in found] == [
        (1, 1, "name"),
        (1, 1, "versoin"),
        (3, 24, "storage.pub.secret_access_key"),
        (5, 12, "granules[0]"),
        (8, 9, "outputs[0].at"),
        (9, 30, "outputs[0].chunks.lat"),
        (10, 20, "outputs[0].shards.time"),
        (11, 22, "execution.workers"),
    ]
    shards = next(p for p in found if p.where.endswith("shards.time"))
    assert "128" in shards.expected
    assert shards.hint == "384 or 512 would do"


def test_load_config_raises_them_all(tmp_path: Path) -> None:
    path = write(tmp_path, "granules: 1\noutputs: 2\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert caught.value.exit_code == 2
    assert caught.value.facts["problems"] == 3
    for line in ("archive.yaml:1:11: granules", "archive.yaml:2:10: outputs", "archive.yaml:1:1: name"):
        assert line in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        "raw: {url: x, secret_access_key: hunter2}",
        "raw: {url: x, accessKey: hunter2}",
        "raw: {url: x, session-token: hunter2}",
        "raw: {url: x, password: hunter2}",
        "raw: {url: x, account_key: {nested: hunter2}}",
        "raw: 'https://me:hunter2@host/x'",
        "raw: {url: 'https://me:hunter2@host/x'}",
        "raw: {url: 'https://host/x?sv=1&sig=hunter2'}",
        "raw: {url: x, endpoint: 'http://me:hunter2@host'}",
    ],
)
def test_credentials_are_refused_and_never_repeated(tmp_path: Path, line: str) -> None:
    (problem,) = [p for p in problems(tmp_path, f"storage:\n  {line}\n{SHORTEST}") if "no bucket" not in p.expected]
    assert "credential" in problem.expected
    assert "environment" in problem.hint
    assert "hunter2" not in str(problem)


def test_a_credential_in_a_granule_address_or_a_remap_rule_is_not_repeated(tmp_path: Path) -> None:
    text = (
        SHORTEST.replace('"raw/*.nc"', "https://me:hunter2@host/*.nc") + "    public: {'work:': 'https://me:hunter2@host/'}\n"
    )
    found = problems(tmp_path, text)
    assert len(found) == 2
    assert "hunter2" not in "".join(map(str, found))


def test_outputs_must_not_overlap(tmp_path: Path) -> None:
    text = SHORTEST + "  - store: zarr\n    at: sst.icechunk/inside\n"
    (problem,) = problems(tmp_path, text)
    assert problem.where == "outputs[1].at"
    assert "outputs[0]" in problem.hint


def test_digest_is_of_the_meaning(tmp_path: Path) -> None:
    one = load_config(write(tmp_path, SHORTEST)).digest
    shuffled = """\
        # a comment
        version: 1
        outputs: [{at: ./sst.icechunk, virtual: icechunk}]
        archive:
            granules: [glob: raw/*.nc]
        verify: {values: sample 1%}
        name: 'sst'
        """
    assert load_config(write(tmp_path, shuffled)).digest == one
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert load_config(write(elsewhere, SHORTEST)).digest == one
    for old, new in (
        ("raw/", "row/"),
        ("sst.icechunk", "other"),
        ("icechunk\n", "kerchunk-parquet\n"),
        ("name: sst", "name: s"),
    ):
        assert load_config(write(tmp_path, SHORTEST.replace(old, new, 1))).digest != one, new


def test_missing_file_folder_and_unreadable(tmp_path: Path) -> None:
    (missing,) = check_config(tmp_path / "no.yaml")
    assert "nothing under this name" in missing.found
    (folder,) = check_config(tmp_path)
    assert folder.found == "a folder"
    with pytest.raises(ConfigError, match="nothing under this name"):
        load_config(tmp_path / "no.yaml")


def test_a_config_is_read_with_little_more_than_yaml(tmp_path: Path) -> None:
    import subprocess
    import sys

    path = write(tmp_path, SHORTEST)
    program = (
        f"import sys; from drystone.config.load import load_config; load_config({str(path)!r}); "
        "print([m for m in ('numpy', 'pyarrow', 'obstore', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def test_codecs_are_checked_where_they_are_written(tmp_path: Path) -> None:
    text = """\
    name: sst
    granules: "raw/*.nc"
    outputs:
      - store: zarr
        at: a.zarr
        codecs: {blosc: {cname: snappy, typesize: 4, shuffle: bitshufle}}
      - store: zarr
        at: b.zarr
        codecs: {zstd: {level: 23}}
      - store: zarr
        at: c.zarr
        codecs: {gzip: {level: -1}}
      - store: zarr
        at: d.zarr
        codecs: [gzip, delta]
      - store: zarr
        at: e.zarr
        codecs: [shuffle, blosc]
    """
    found = {p.where: (p.line, p.hint or p.expected) for p in problems(tmp_path, text)}
    assert found == {
        "outputs[0].codecs.blosc.cname": (6, "numcodecs builds its blosc without snappy; lz4 is like it"),
        "outputs[0].codecs.blosc.typesize": (6, "it is the size of each array's own elements"),
        "outputs[0].codecs.blosc.shuffle": (6, "did you mean bitshuffle?"),
        "outputs[1].codecs.zstd.level": (9, "a whole number from -131072 to 22"),
        "outputs[2].codecs.gzip.level": (12, "a whole number from 0 to 9"),
        "outputs[3].codecs": (
            15,
            "codecs are listed as they encode, each once: delta, shuffle, then a compressor, not gzip, delta",
        ),
        "outputs[4].codecs": (18, "blosc shuffles by itself; take shuffle out"),
    }


def test_no_shuffle_has_one_meaning(tmp_path: Path) -> None:
    text = SHORTEST.replace("virtual: icechunk", "store: zarr\n    codecs: {blosc: {shuffle: none}}")
    assert load_config(write(tmp_path, text)).outputs[0].codecs[0][1]["shuffle"] == "noshuffle"


def test_rounding_is_checked_where_it_is_written(tmp_path: Path) -> None:
    text = """\
    name: sst
    granules: "raw/*.nc"
    outputs:
      - store: zarr
        at: a.zarr
        round:
          "*": {keepbits: 7}
          sst: {keepbits: 7, digits: 2}
          err: {}
          ice: {keepbits: 53}
          anom: {digit: 2}
      - virtual: icechunk
        at: b.icechunk
        round: {sst: {keepbits: 7}}
    """
    found = {p.where: (p.line, p.found, p.hint or p.expected) for p in problems(tmp_path, text)}
    words = "keepbits bounds the relative error, digits the absolute one"
    assert found == {
        "outputs[0].round.sst": (8, "keepbits and digits", words),
        "outputs[0].round.err": (9, "nothing", words),
        "outputs[0].round.ice.keepbits": (10, "53", "a whole number from 0 to 52"),
        "outputs[0].round.anom.digit": (11, "digit", "did you mean digits?"),
        "outputs[1].round": (14, "round", "round is for store outputs: a virtual one has the files' own"),
    }
    good = SHORTEST.replace("virtual: icechunk", 'store: zarr\n    round: {"*": {keepbits: 7}, sst: {digits: -1}}')
    assert load_config(write(tmp_path, good)).outputs[0].round == {"*": ("keepbits", 7), "sst": ("digits", -1)}


def test_types_packings_and_fills_are_checked_where_they_are_written(tmp_path: Path) -> None:
    text = """\
    name: sst
    granules: "raw/*.nc"
    outputs:
      - store: zarr
        at: a.zarr
        dtype: {sst: float23, ice: int16}
        fill_value: {sst: none}
        pack:
          a: {scale_factor: 0.1}
          b: {dtype: float32, scale_factor: 0}
      - store: zarr
        at: b.zarr
        dtype: float32
    """
    found = {p.where: (p.line, p.found, p.hint or p.expected) for p in problems(tmp_path, text)}
    assert found == {
        "outputs[0].dtype.sst": (6, "'float23'", "did you mean float32?"),
        "outputs[0].fill_value.sst": (7, "'none'", "a number or NaN"),
        "outputs[0].pack.a.dtype": (9, "nothing", "add the key dtype"),
        "outputs[0].pack.b.dtype": (10, "'float32'", "one of int8, uint8, int16, uint16, int32, uint32"),
        "outputs[0].pack.b.scale_factor": (10, "0", "a number but 0"),
        "outputs[1].dtype": (13, "'float32'", "a mapping from an array to its type, such as {sst: float32}"),
    }
    more = (
        "store: zarr\n    dtype: {a: int8}\n    fill_value: {a: NaN, b: -1}\n    pack: {c: {dtype: int16, scale_factor: 0.1}}"
    )
    output = load_config(write(tmp_path, SHORTEST.replace("virtual: icechunk", more))).outputs[0]
    assert (output.dtype, output.fill_value) == ({"a": "int8"}, {"a": "NaN", "b": -1})
    assert output.pack == {"c": {"dtype": "int16", "scale_factor": 0.1}}

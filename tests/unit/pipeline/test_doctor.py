"""Doctor's checks on places that behave badly, its measurements, and the file of rates."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from drystone.codecs.chain import Codec
from drystone.config.load import load_config
from drystone.errors import StorageError
from drystone.execute.resources import Resources
from drystone.model.rates import CodecRate, CodecUse, PlaceRates, Rates
from drystone.pipeline.archive import Archive
from drystone.pipeline.doctor import machine, run
from drystone.pipeline.doctor.checks import Verdict
from drystone.pipeline.doctor.codecs import field, measure_decoding, measure_encoding
from drystone.pipeline.doctor.machine import Cores, Installed, Memory, file_system
from drystone.pipeline.doctor.places import measure_place, probe_folder, read_granules, written_bytes
from drystone.pipeline.doctor.report import DoctorReport
from drystone.pipeline.doctor.stores import Sources, Target, nearest, targets_of
from drystone.pipeline.rates_file import load_rates, rates_path, save_rates
from drystone.storage.local import LocalStore
from drystone.storage.remote import RemoteStore
from drystone.storage.stamp import Stamp

PLACE = PlaceRates(1e9, 1e9, 1e-4, 1e8, 1e8, 1e-2, 0.0, 0.0, False)
RATES = Rates("h", "1", "", 2, (CodecRate(CodecUse("zlib"), ((0.5, 5e8),)),), (), *([1e-9] * 9), {"file:///": PLACE})


def by_check(verdicts: list[Verdict]) -> dict[str, Verdict]:
    return {v.check: v for v in verdicts}


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


def config(folder: Path, text: str = "") -> Archive:
    path = folder / "a.yaml"
    path.write_text(
        "name: a\nstorage: {raw: raw, out: out}\ngranules: 'raw:*.nc'\noutputs: [{store: zarr, at: 'out:deep/a.zarr'}]\n" + text
    )
    return Archive.of(load_config(path))


class Overwrites(LocalStore):
    """Creates what is there already, as servers do that ignore If-None-Match."""

    def create(self, key: str, data: bytes) -> bool:
        self.put(key, data)
        return True


class SwapsAnything(RemoteStore):
    """Updates whatever the tag, as servers do that ignore If-Match."""

    def swap(self, key: str, data: bytes, etag: str) -> bool:
        self.put(key, data)
        return True


class WholeObjects(LocalStore):
    """Answers every range from the start, as servers do that ignore Range."""

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self.get(key)[:length]


def test_a_good_folder_passes_and_is_left_as_it_was(tmp_path: Path) -> None:
    found = list(Target("output", LocalStore(tmp_path), "").look())
    assert {v.check for v in found} >= {"target room", "target write", "target create-only", "target delete"}
    assert all(v.status != "fail" for v in found), found
    assert files(tmp_path) == []


def test_a_good_object_store_passes() -> None:
    found = by_check(list(Target("output", RemoteStore("memory://"), "some/where").look()))
    assert {v.status for v in found.values()} == {"ok"}, found
    assert "refused" in found["target compare-and-swap"].text


def test_stores_that_ignore_preconditions_fail_by_name(tmp_path: Path) -> None:
    created = by_check(list(Target("output", Overwrites(tmp_path), "").look()))
    assert created["target create-only"].status == "fail"
    assert "If-None-Match" in created["target create-only"].text
    swapped = by_check(list(Target("output", SwapsAnything("memory://"), "").look()))
    assert swapped["target compare-and-swap"].status == "fail"
    assert swapped["target create-only"].status == "ok"


def test_a_server_that_ignores_ranges_fails(tmp_path: Path) -> None:
    assert by_check(list(Target("output", WholeObjects(tmp_path), "").look()))["target ranges"].status == "fail"


def test_what_cannot_be_written_is_a_verdict(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    broken = LocalStore(tmp_path / "file")
    found = list(Target("output", broken, "").look())
    assert found[-1].check == "target write"
    assert found[-1].status == "fail"
    assert "cannot write" in found[-1].text


def test_targets_are_probed_in_folders_that_are_there(tmp_path: Path) -> None:
    store, prefix = nearest(LocalStore(tmp_path / "not" / "yet"), "deep/a.zarr")
    assert (store.root, prefix) == (str(tmp_path), "")
    archive = config(tmp_path)
    assert len(targets_of(archive)) == 1  # the work folder and the output lie below one folder that is there
    (tmp_path / "out" / "deep").mkdir(parents=True)
    assert [t.what for t in targets_of(archive)] == ["work", "output"]


def test_sources_are_listed_and_read_in_ranges(tmp_path: Path) -> None:
    archive = config(tmp_path)
    none = list(Sources(archive, "glob", "raw:*.nc").look())
    assert (none[0].check, none[0].status) == ("source list", "fail")
    (tmp_path / "raw").mkdir()
    for name, size in (("a.nc", 5000), ("b.nc", 1), ("c.nc", 300)):
        (tmp_path / "raw" / name).write_bytes(os.urandom(size))
    good = by_check(list(Sources(archive, "glob", "raw:*.nc").look()))
    assert (good["source list"].status, good["source read"].status) == ("ok", "ok"), good
    assert good["source read"].facts["read"] == 3


def test_a_probe_leaves_nothing_when_it_fails(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)

    def fail() -> None:
        with probe_folder(store, "") as key:
            store.put(f"{key}/one", b"1")
            raise StorageError("no")

    with pytest.raises(StorageError, match="no"):
        fail()
    assert files(tmp_path) == []


def test_an_endpoint_that_nobody_answers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(RemoteStore):
        def put(self, key: str, data: object) -> None:
            raise StorageError(f"cannot write {self.url}/{key}: nobody answers", kind="io")

        def list(self, prefix: str = "") -> Iterator[tuple[str, Stamp]]:
            raise StorageError(f"cannot list {self.url}/{prefix}: nobody answers", kind="io")

    (found,) = Target("output", Silent("memory://"), "").look()
    assert (found.check, found.status) == ("target write", "fail")
    assert found.text.startswith("cannot write")


def test_a_place_is_measured_within_what_was_announced(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with probe_folder(store, "") as key:
        rates = measure_place(store, key, 2)
        assert sum(stamp.size for _, stamp in store.list()) <= written_bytes(2)
    assert rates.write is not None
    assert min(rates.read, rates.read_one, rates.write, rates.request) > 0
    assert files(tmp_path) == []


def test_granules_are_measured_without_writing(tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / f"{i}.nc").write_bytes(os.urandom(3 << 20))
    before = files(tmp_path)
    rates = read_granules(LocalStore(tmp_path), [(f"{i}.nc", 3 << 20) for i in range(3)], 2)
    assert rates.read > 0
    assert rates.write is None
    assert files(tmp_path) == before


def test_every_codec_of_the_engine_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drystone.pipeline.doctor.codecs._SECONDS", 0.0)
    monkeypatch.setattr("drystone.pipeline.doctor.codecs._LOOPS", 1)
    monkeypatch.setattr("drystone.pipeline.doctor.codecs._DECODED", 1 << 12)
    monkeypatch.setattr("drystone.pipeline.doctor.codecs._ENCODED", 1 << 12)
    decode = {r.use.name for r in measure_decoding(2)}
    assert decode >= {"zlib", "gzip", "zstd", "blosc-lz4-shuffle", "blosc-zstd-shuffle", "shuffle", "fletcher32", "crc32c"}
    assert decode >= {"recode-scaled", "recode-exact", "recode-packed", "recode-times"}
    asked = Codec.of("blosc", cname="lz4hc", clevel=9, shuffle="noshuffle", typesize=4)
    encode = list(measure_encoding(2, [asked]))
    assert "blosc-lz4hc-noshuffle 9, 4 bytes" in [str(rate.use) for rate in encode]
    assert {r.use.name for r in encode} >= {"round-bits", "round-digits", "zstd", "gzip", "shuffle", "delta"}
    for rate in encode:
        shares = [s for s, _ in rate.points]
        assert shares == sorted(shares)


@pytest.mark.parametrize("itemsize", [1, 2])
def test_samples_differ_in_how_well_they_compress(itemsize: int) -> None:
    import zlib

    shares = [len(zlib.compress(field(noise, itemsize, 1 << 12).tobytes())) for noise in (0, 24, 4000)]
    assert shares == sorted(shares)
    assert field(0, itemsize, 1 << 12).nbytes == itemsize << 12


def test_one_core_and_little_memory_are_odd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cpu_count", lambda: 1)
    (one,) = Cores().look()
    assert one.status == "warn"
    (little,) = Memory(Resources(False, 4, 1, 300_000_000)).look()
    assert little.status == "warn"
    assert "fewer workers" in little.text
    (much,) = Memory(Resources(False, 1000, 1, 64_000_000_000)).look()
    assert "more than there is" in much.text


def test_missing_libraries_fail_and_a_missing_extra_is_odd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "libraries", lambda: {"numpy": "2", "isal": None})
    monkeypatch.setattr(machine, "extras", lambda: {"codecs": machine.Extra("codecs", ("imagecodecs",))})
    needed, extra = Installed().look()
    assert (needed.status, extra.status) == ("fail", "warn")
    assert "isal" in needed.text
    assert "drystone[codecs]" in extra.text


def test_a_slow_flush_is_odd() -> None:
    assert run._speed("p", replace(PLACE, put=0.2)).status == "warn"
    assert run._speed("p", replace(PLACE, write=1e6)).status == "warn"
    assert run._speed("p", replace(PLACE, read=1e6)).status == "warn"
    assert run._speed("p", PLACE).status == "ok"
    assert "perhaps from memory" in run._speed("p", replace(PLACE, cached=True)).text


def test_the_file_system_of_a_folder_is_known() -> None:
    assert file_system("/proc") == "proc"
    assert file_system("/proc/self/task") == "proc"


def test_rates_are_kept_and_places_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert load_rates() == (None, "not predicted: run `drystone doctor`")
    assert save_rates(RATES) == rates_path()
    assert load_rates() == (RATES, "")
    save_rates(replace(RATES, places={"s3://b": PLACE}, cores=9))
    kept, _ = load_rates()
    assert kept is not None
    assert (set(kept.places), kept.cores) == ({"file:///", "s3://b"}, 9)
    assert rates_path().startswith(str(tmp_path / "drystone" / "rates"))
    save_rates(replace(RATES, places={"s3://b": replace(PLACE, read=5.0, write=None, write_one=None, put=None)}))
    kept, _ = load_rates()
    assert kept is not None
    assert kept.places["s3://b"] == replace(PLACE, read=5.0)


@pytest.mark.parametrize("text", ["", "[]", '{"host": "h"}', json.dumps({**RATES.to_json(), "decode": [{"use": {}}]})])
def test_a_file_that_holds_no_rates_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    os.makedirs(os.path.dirname(rates_path()))
    Path(rates_path()).write_text(text)
    found, why = load_rates()
    assert found is None
    assert rates_path() in why


def test_a_relative_cache_folder_does_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert rates_path().startswith(str(tmp_path / ".cache"))


def test_what_failed_decides_the_exit_code() -> None:
    def report(*status: str) -> DoctorReport:
        return DoctorReport(tuple(Verdict("c", "s", s, "t") for s in status), None, None, ())  # type: ignore[arg-type]

    assert report("ok", "warn").exit_code == 0
    assert report("ok", "fail", "warn").exit_code == 5
    assert report("ok", "warn").status == "warn"

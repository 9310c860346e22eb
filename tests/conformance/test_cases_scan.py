"""Cases from public bug reports: what a scan must find in each, by id. ``case.json`` says what is right."""

import json
import pathlib
import shutil

import numpy as np
import pytest
from scanned_values import by_path, digest, scan, source_of, values_of

from drystone.errors import ScanError
from drystone.model.chunk_rows import State
from drystone.scan.hdf5 import Hdf5Scanner

CASES = pathlib.Path(__file__).parent.parent / "data" / "cases"
IDS = ["S01", "S02", "S03", "S05", "S06", "S08", "S09", "S11", "S12", "S13", "S15", "S16", "S18", "S20"]


def load(case_id):
    folder = next(CASES.glob(f"{case_id}_*"))
    case = json.loads((folder / "case.json").read_text())
    with np.load(folder / "expected.npz") as values:
        return folder, case["expected"], dict(values)


@pytest.mark.parametrize("case_id", IDS)
def test_values(case_id):
    folder, expected, values = load(case_id)
    names = json.loads((folder / "case.json").read_text())["files"]
    main = folder / ("main.h5" if "main.h5" in names else names[0])
    result = scan(main)
    arrays = by_path(result)
    for name, said in expected["arrays"].items():
        if name.endswith("__decoded"):
            continue
        got = values_of(arrays[f"/{name}"], main)
        assert list(got.shape) == said["shape"]
        assert got.dtype == np.dtype(said["dtype"]).newbyteorder("=")
        assert digest(got) == said["sha256"], name
        assert got.tobytes() == values[name].astype(got.dtype).tobytes(), name
    for name, texts in expected.get("strings", {}).items():
        assert values_of(arrays[f"/{name}"], main).tolist() == texts
    # what is refused may be, and is named with its reason
    assert {r.path.lstrip("/") for r in result.refusals} <= set(expected.get("may_drop", ()))
    for refusal in result.refusals:
        assert all(word in refusal.reason for word in expected.get("message_if_dropped", ()))


def test_s01_chunk_offset_is_absolute():
    folder, expected, _ = load("S01")
    rows = by_path(scan(folder / "ub.h5"))
    assert rows["/chunked"].rows.offset[0] == expected["facts"]["chunk"]
    assert rows["/contig"].rows.offset.tolist() == [expected["facts"]["contig"]]


def test_s02_compact_is_inlined():
    folder, _, _ = load("S02")
    arrays = by_path(scan(folder / "compact.h5"))
    assert {n for n, a in arrays.items() if a.rows.state[0] == State.INLINE} == {"/c1d", "/c0d"}


def test_s06_needs_the_library_by_name():
    folder, expected, _ = load("S06")
    arrays = by_path(scan(folder / "so.h5"))
    assert [c.get("name") for c in arrays["/i"].spec.codecs.filters] == expected["message"]
    assert not arrays["/plain"].spec.codecs.needs_library


def test_s12_storage_fill_is_not_the_fill_attribute():
    folder, _, _ = load("S12")
    arrays = by_path(scan(folder / "sparse.h5"))
    assert np.frombuffer(arrays["/v"].spec.fill, "<i2").tolist() == [7]
    assert arrays["/v"].spec.attributes["_FillValue"].value == -999
    assert "_FillValue" not in arrays["/w"].spec.attributes


def test_s15_companions_and_missing_ones(tmp_path):
    folder, expected, _ = load("S15")
    assert [c.address for c in scan(folder / "main.h5").companions] == ["raw:data.raw", "raw:other.h5"]
    shutil.copy(folder / "main.h5", tmp_path)
    alone = scan(tmp_path / "main.h5")
    assert by_path(alone).keys() == {"/own"}
    reasons = {r.path: r for r in alone.refusals}
    assert reasons.keys() == {"/ext", "/linked"}
    assert all(word in reasons["/ext"].reason for word in expected["message"])
    assert all(r.kind == "missing" for r in reasons.values())


def test_s18_fill_value_bits():
    folder, expected, _ = load("S18")
    array = by_path(scan(folder / "f.nc"))["/v"]
    assert array.spec.attributes["_FillValue"].data.hex() == expected["facts"]["fill_hex"]
    assert array.spec.attributes["_FillValue"].shape is None


def test_s20_attributes():
    folder, expected, _ = load("S20")
    attributes = by_path(scan(folder / "attrs.h5"))["/v"].spec.attributes
    plain = attributes.values_plain()
    for name, value in expected["attrs"].items():
        if name != "deg":
            assert plain[name] == value, name
    assert attributes["deg"].value == b"\xb0C"
    assert plain["deg"] == "°C"
    json.dumps(plain, allow_nan=False)


def test_s48_each_bad_file_is_named_with_its_reason():
    folder, expected, _ = load("S48")
    for name, word in expected["failed_files"].items():
        with pytest.raises(ScanError, match=word) as caught:
            scan(folder / name)
        assert name in str(caught.value)
        assert caught.value.facts["granule"] == f"raw:{name}"
    good = folder / "a_good.nc"
    array = by_path(scan(good))["/sst"]
    assert digest(values_of(array, good)) == expected["arrays"]["sst"]["sha256"]


def test_s48_sniffing():
    folder, _, _ = load("S48")
    sniffed = {p.name: Hdf5Scanner().sniff(p.read_bytes()[:4096], source_of(p)) for p in sorted(folder.glob("*.nc"))}
    assert sniffed == {"a_good.nc": True, "b_truncated.nc": True, "c_empty.nc": False, "d_login.nc": False}

"""What is said of a file that is no HDF5 file, or only part of one, before the library sees it."""

import h5py
import numpy as np
import pytest

from drystone.errors import ScanError
from drystone.scan.hdf5.superblock import checked_superblock, find_signature


def reader(data):
    return lambda offset, length: data[offset : offset + length]


def check(data, size=None):
    return checked_superblock(reader(data), len(data) if size is None else size, "raw:x.nc")


@pytest.fixture(params=[("earliest", 0), ("v110", 0), ("latest", 0), ("earliest", 512), ("latest", 2048)])
def data(request, tmp_path):
    libver, block = request.param
    with h5py.File(tmp_path / "x.h5", "w", libver=libver, userblock_size=block) as f:
        f["v"] = np.arange(1000)
    return block, (tmp_path / "x.h5").read_bytes()


def test_whole_file(data):
    block, raw = data
    found = check(raw)
    assert (found.base, found.offset_size) == (block, 8)
    assert found.end == len(raw)


def test_every_truncation_is_named(data):
    block, raw = data
    for size in range(0, len(raw), 97):
        with pytest.raises(ScanError) as caught:
            check(raw[:size])
        assert caught.value.kind in ("empty", "not-hdf5", "truncated")
        if size > block + 128:
            assert caught.value.kind == "truncated"
            assert (caught.value.facts["size"], caught.value.facts["expected"]) == (size, len(raw))
            assert f"{len(raw) - size} bytes are missing" in str(caught.value)


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"CDF\x01", "netCDF-3"),
        (b"GRIB", "GRIB"),
        (b"\n <!DOCTYPE html>", "web page"),
        (b"PK\x03\x04", "zip"),
        (b"\x1f\x8b\x08", "decompress"),
        (b"anything", "starts with b'anything"),
    ],
)
def test_other_formats_are_named(head, words):
    with pytest.raises(ScanError, match="not netCDF/HDF5") as caught:
        check(head + bytes(3000))
    assert words in str(caught.value)
    assert caught.value.kind == "not-hdf5"


def test_a_length_is_not_believed(data):
    _, raw = data
    with pytest.raises(ScanError):
        check(b"\x89HDF\r\n\x1a\n")
    assert find_signature(reader(raw), 4) is None


def test_nonsense_superblock():
    for version in (9, 255):
        with pytest.raises(ScanError) as caught:
            check(b"\x89HDF\r\n\x1a\n" + bytes([version]) + bytes(200))
        assert caught.value.kind == "superblock"

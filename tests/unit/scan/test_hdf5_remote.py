"""A granule in a store without files: read by ranges, a small one in one request, values as from the file."""

import h5py
import numpy as np
import pytest
from scanned_values import scan

from drystone.errors import ScanError, StorageError
from drystone.model.chunk_rows import State
from drystone.protocols import ScanOptions, Source
from drystone.scan.hdf5 import Hdf5Scanner, opening
from drystone.scan.hdf5.opening import RangeFile
from drystone.storage.remote import RemoteStore


class Counting:
    """A store that counts ranged reads, and fails from the n-th on if asked to."""

    def __init__(self, store, fail_from=None):
        self.inner, self.fail_from, self.reads = store, fail_from, 0

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def get_range(self, key, start, length):
        self.reads += 1
        if self.fail_from is not None and self.reads > self.fail_from:
            raise StorageError(f"cannot read {key}: the line is cut", kind="io")
        return self.inner.get_range(key, start, length)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.nc"
    rng = np.random.default_rng(0)
    with h5py.File(path, "w", userblock_size=512) as f:
        f.create_dataset("v", data=rng.integers(0, 9, (300, 300)), chunks=(10, 10), compression="gzip")
        f["g/text"] = "é"
        f["c"] = np.arange(3)
    return path


def put(path, fail_from=None):
    store = RemoteStore("memory://")
    store.put("d/a.nc", path.read_bytes())
    counting = Counting(store, fail_from)
    return counting, Source(counting, "d/a.nc", "raw:d/a.nc", store.stat("d/a.nc"))


def test_same_as_from_a_file(file):
    store, source = put(file)
    remote, local = Hdf5Scanner().scan(source, ScanOptions()), scan(file)
    assert remote.digest() == local.digest()
    assert remote.refusals == local.refusals == ()
    assert store.reads == 1


def test_large_object_is_read_in_blocks(file, monkeypatch):
    monkeypatch.setattr(opening, "WHOLE", 1000)
    monkeypatch.setattr(opening, "BLOCK", 4096)
    monkeypatch.setattr(opening, "CACHED_BLOCKS", 3)
    store, source = put(file)
    assert Hdf5Scanner().scan(source, ScanOptions()).digest() == scan(file).digest()
    assert 1 < store.reads < 1000


@pytest.mark.parametrize("fail_from", range(12))
def test_a_failing_store_is_a_storage_error_never_a_refusal(file, monkeypatch, fail_from):
    monkeypatch.setattr(opening, "WHOLE", 1000)
    monkeypatch.setattr(opening, "BLOCK", 2048)
    _, source = put(file, fail_from)
    with pytest.raises(StorageError, match="the line is cut"):
        Hdf5Scanner().scan(source, ScanOptions())


def test_truncated_and_foreign_objects():
    store = RemoteStore("memory://")
    store.put("x", b"<html>no</html>" * 100)
    with pytest.raises(ScanError, match="web page") as caught:
        Hdf5Scanner().scan(Source(store, "x", "raw:x", store.stat("x")), ScanOptions())
    assert caught.value.kind == "not-hdf5"


def test_links_and_raw_files_beside_a_remote_granule(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as f:
        f["x"] = np.arange(4)
    (tmp_path / "a.raw").write_bytes(np.arange(6, dtype="<i2").tobytes())
    with h5py.File(tmp_path / "main.h5", "w") as f:
        f["link"] = h5py.ExternalLink("other.h5", "/x")
        f["climbs"] = h5py.ExternalLink("../../other.h5", "/x")
        f.create_dataset("raw", (6,), "<i2", external=[("a.raw", 0, 12)])
    store = RemoteStore("memory://")
    for name in ("main.h5", "other.h5", "a.raw"):
        store.put(f"d/{name}", (tmp_path / name).read_bytes())
    result = Hdf5Scanner().scan(Source(store, "d/main.h5", "raw:d/main.h5", store.stat("d/main.h5")), ScanOptions())
    arrays = {a.spec.path: a for a in result.arrays}
    assert np.frombuffer(arrays["/link"].inline[0], "<i8").tolist() == [0, 1, 2, 3]
    assert np.frombuffer(arrays["/raw"].inline[0], "<i2").tolist() == [0, 1, 2, 3, 4, 5]
    assert arrays["/raw"].rows.state.tolist() == [State.INLINE]
    assert [(r.path, r.kind) for r in result.refusals] == [("/climbs", "outside")]
    assert [c.address for c in result.companions] == ["raw:d/a.raw", "raw:d/other.h5"]


def test_range_file_reads_like_a_file(file):
    _, source = put(file)
    data = file.read_bytes()
    ranged = RangeFile(source.store, source.key, len(data))
    assert ranged.read(len(data) - 3, 10) == data[-3:]
    assert ranged.read(len(data), 10) == b""
    ranged.seek(-5, 2)
    buffer = bytearray(9)
    assert ranged.readinto(buffer) == 5
    assert bytes(buffer[:5]) == data[-5:]
    assert ranged.tell() == len(data)

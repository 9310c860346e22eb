"""The same reads from an object store."""

from dataclasses import replace

import numpy as np
import pytest
from unit.fetch.archive import Archive, combined, spec

from drystone.errors import GranuleChanged, GranuleMissing
from drystone.fetch.fetcher import Fetcher
from drystone.storage.address import Places
from drystone.storage.store import Place

pytestmark = pytest.mark.services


@pytest.mark.parametrize("threads", [1, 3])
def test_granules_in_a_bucket(s3, tmp_path, threads):
    archive = Archive(tmp_path)
    one = spec((1, 6, 7), (1, 4, 4))
    whole = np.arange(5 * 42, dtype="i2").reshape(5, 6, 7)
    places = Places.of([Place("here", f"{s3.url}/fetch{threads}", s3.options)])
    bucket = places.store("here")
    for g in range(5):
        archive.add(g, one, whole[g : g + 1])
        bucket.put(f"g{g}.bin", (tmp_path / f"g{g}.bin").read_bytes())
        archive.granules[g] = replace(archive.granules[g], stamp=bucket.stat(f"g{g}.bin"))
    array = combined([one], [(g, 0, 1, g, 0) for g in range(5)], whole.shape)
    fetcher = Fetcher(places, archive.rows(), threads=threads, bytes_in_flight=1 << 20)
    assert np.array_equal(fetcher.read_box(array, (0, 0, 0), whole.shape), whole)
    assert np.array_equal(fetcher.read(array, ([4, 0], slice(None, None, -3), 6)), whole[[4, 0]][:, ::-3, 6])
    bucket.put("g2.bin", (tmp_path / "g3.bin").read_bytes())
    with pytest.raises(GranuleChanged, match=r"here:g2\.bin changed since it was scanned"):
        fetcher.read_box(array, (0, 0, 0), whole.shape)
    bucket.delete("g2.bin")
    with pytest.raises(GranuleMissing, match=rf"{s3.url}/fetch{threads}/g2\.bin is not there"):
        fetcher.read_box(array, (0, 0, 0), whole.shape)
    assert np.array_equal(fetcher.read_box(array, (3, 0, 0), whole.shape), whole[3:])

"""Globs over a bucket behave as over a folder."""

from __future__ import annotations

import uuid

import pytest
from services.s3 import Bucket

from drystone.discover.glob import GlobLister
from drystone.errors import ConfigError
from drystone.storage.address import Places
from drystone.storage.store import Place

pytestmark = pytest.mark.services


def test_glob_over_a_bucket(s3: Bucket) -> None:
    places = Places.of([Place("raw", f"{s3.url}/{uuid.uuid4().hex}", s3.options)])
    for name in ("1981/b.nc", "1981/a.nc", "1981-x/a.nc", "1982/deep/c.nc", "a.nc", "1981/b.txt"):
        places.store("raw").put(name, name.encode())

    def listed(pattern: str) -> list[str]:
        return [g.address.removeprefix("raw:") for g in GlobLister().list(places, f"raw:{pattern}")]

    assert listed("1981*/*.nc") == ["1981-x/a.nc", "1981/a.nc", "1981/b.nc"]
    assert listed("**/[bc].nc") == ["1981/b.nc", "1982/deep/c.nc"]
    assert listed("a.nc") == ["a.nc"]
    (granule,) = GlobLister().list(places, "raw:1981/a.nc")
    assert granule.stamp.size == len("1981/a.nc")
    assert granule.stamp.etag
    with pytest.raises(ConfigError, match=r"no granule matches raw:1981/\*\.grib; .*1981 holds 3 files: 1981/a\.nc"):
        listed("1981/*.grib")
    with pytest.raises(ConfigError, match=r"no granule matches raw:b\.nc; .* holds 6 files"):
        listed("b.nc")

"""Granules that replace one another."""

from __future__ import annotations

import pytest

from drystone.errors import ConfigError
from drystone.model.options import VersionOptions
from drystone.plan.versions import newest_only

PRELIMINARY = VersionOptions("{stem}_preliminary")
NUMBERED = VersionOptions("{stem}_v{version}")


def test_a_final_granule_replaces_its_preliminary_one():
    """Exactly once; a day that has no final form keeps what it has."""
    names = [
        "raw:2024/oisst-avhrr-v02r01.20240102_preliminary.nc",
        "raw:2024/oisst-avhrr-v02r01.20240101.nc",
        "raw:2024/oisst-avhrr-v02r01.20240101_preliminary.nc",
    ]
    assert newest_only(names, PRELIMINARY) == ((0, 1), {2: 1})
    assert newest_only(names, VersionOptions("{stem}_preliminary", "all")) == ((0, 1, 2), {})


def test_numbers_are_numbers():
    """10 is newer than 9, 1.10 than 1.9; no number is the oldest."""
    assert newest_only(["a_v9.nc", "a_v10.nc", "b_v1.nc", "a.nc"], NUMBERED) == ((1, 2), {0: 1, 3: 1})
    assert newest_only(["a_v1.9", "a_v1.10"], NUMBERED) == ((1,), {0: 1})


def test_versions_in_folders_of_their_own():
    """One form each: folders do not matter."""
    assert newest_only(["v1/a_v1.nc", "v3/a_v3.nc", "v2/a_v2.nc"], NUMBERED) == ((1,), {0: 1, 2: 1})
    assert newest_only(["early/a_preliminary.nc.gz", "final/a.nc"], PRELIMINARY) == ((1,), {0: 1})


def test_equal_names_in_several_folders_are_apart():
    """A file named alike in another month replaces nothing there."""
    names = ["01/sst.nc", "02/sst.nc", "02/sst_preliminary.nc", "03/sst_preliminary.nc"]
    assert newest_only(names, PRELIMINARY) == ((0, 1, 3), {2: 1})
    assert newest_only(["01/sst.nc", "02/sst.nc"], PRELIMINARY) == ((0, 1), {})


def test_what_stands_in_place_is_always_kept():
    """No chain of replacements."""
    kept, superseded = newest_only([f"x_v{i}.nc" for i in (3, 1, 2)], NUMBERED)
    assert set(superseded.values()) <= set(kept)


@pytest.mark.parametrize("of", ["preliminary", "{stem}", "{stem}_{stem}", "{stem}_{kind}", "{version}"])
def test_patterns_that_mark_nothing(of):
    """Said with an example of one that does."""
    with pytest.raises(ConfigError, match=r"\{stem\}_preliminary"):
        newest_only(["a"], VersionOptions(of))

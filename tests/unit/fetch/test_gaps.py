"""What places without a granule read as, by ``drystone.open``: told from data where there is a way to."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

import drystone


def test_a_float_array_without_fill_value_reads_nan_where_a_granule_lacks_it(tmp_path: Path) -> None:
    for start, name in enumerate("ab"):
        with h5py.File(tmp_path / f"{name}.nc", "w") as f:
            f["time"] = np.array([start], "f8")
            f["time"].make_scale("time")
            for array in ("v", "w") if name == "b" else ("v",):
                f[array] = np.array([start + 1], "f4")
                f[array].dims[0].attach_scale(f["time"])
    dataset = drystone.open(tmp_path / "*.nc")
    assert dataset["v"].values.tolist() == [1, 2]
    np.testing.assert_array_equal(dataset["w"].values, np.array([np.nan, 2], "f4"))

"""An attribute that is an array of one text is text, as xarray and netCDF4 read it."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import drystone
from drystone.model.attributes import Attribute


def test_one_text_is_text_and_two_are_a_list() -> None:
    assert Attribute.of(np.array(["K"])) == Attribute.of("K")
    assert Attribute.of(np.array(["a", "b"])).value == ["a", "b"]


@pytest.mark.parametrize("arrays", [(True, False), (False, True), (True, True)])
def test_times_are_decoded_however_their_units_are_stored(tmp_path: Path, arrays: tuple[bool, bool]) -> None:
    for i, array in enumerate(arrays):
        with h5py.File(tmp_path / f"{i}.nc", "w") as file:
            file["time"] = np.arange(2.0) + 2 * i
            for name, text in (("units", "days since 2000-01-01"), ("calendar", "standard")):
                file["time"].attrs[name] = [text] if array else text
            file["time"].make_scale("time")
    wanted = np.concatenate([xr.open_dataset(tmp_path / f"{i}.nc")["time"].values for i in range(2)])
    config = tmp_path / "c.yaml"
    config.write_text(
        "name: c\nstorage: {raw: 'file:.', out: 'file:./out'}\ngranules: 'raw:*.nc'\nverify: {values: full}\n"
        "outputs: [{store: zarr, at: 'out:a.zarr'}, {virtual: icechunk, at: 'out:b'}]\n"
    )
    drystone.run(config)
    assert (drystone.open(str(tmp_path / "*.nc"), decode=True)["time"].values == wanted).all()
    assert (xr.open_zarr(tmp_path / "out" / "a.zarr")["time"].values == wanted).all()

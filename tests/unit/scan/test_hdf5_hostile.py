"""Damaged files: only drystone's own errors come out, in bounded time and memory."""

import json
import pathlib
import subprocess
import sys

import h5py
import netCDF4
import numpy as np

SCRIPT = pathlib.Path(__file__).parent.parent.parent / "services" / "fuzz_hdf5.py"
SEED, COUNT = 20261130, 300


def build(folder):
    for libver in ("earliest", "latest"):
        with h5py.File(folder / f"{libver}.h5", "w", libver=libver) as f:
            f.create_dataset("c", data=np.arange(600).reshape(20, 30), chunks=(1, 1), compression="gzip", maxshape=(None, 30))
            f["text"] = np.array(["a", "b" * 50], object)
            f.create_dataset("t2", data=np.array(["x"] * 20, object), chunks=(3,), compression="gzip")
            f["compound"] = np.zeros(3, [("a", "i1"), ("b", ">f8", (2,))])
            f["g/h/i"] = np.arange(5)
            f["g/up"] = f["/"]
            f["soft"], f["far"] = h5py.SoftLink("/c"), h5py.ExternalLink("nc.nc", "/v")
            f["c"].attrs["units"] = ["K", "m"]
            f["c"].attrs["n"] = np.arange(9.0)
    with netCDF4.Dataset(folder / "nc.nc", "w") as nc:
        nc.createDimension("t", None)
        nc.createDimension("x", 4)
        nc.createVariable("t", "f8", ("t",))[:] = [1, 2]
        v = nc.createVariable("v", "i2", ("t", "x"), zlib=True, shuffle=True, fletcher32=True)
        v[:] = np.ones((2, 4))
        v.units = "K"
        nc.createVariable("s", str, ("x",))[:] = np.array(["a", "b", "c", "d"], object)
    with h5py.File(folder / "scales.h5", "w") as f:
        f["x"] = np.arange(3)
        f["x"].make_scale()
        f["v"] = np.zeros((3, 3))
        f["v"].dims[0].attach_scale(f["x"])


def test_damaged_files(tmp_path):
    build(tmp_path)
    run = subprocess.run(
        [sys.executable, str(SCRIPT), str(SEED), str(COUNT), str(tmp_path)], capture_output=True, text=True, timeout=280
    )
    assert run.returncode == 0, run.stderr
    said = json.loads(run.stdout)
    assert sum(said["counts"].values()) == COUNT
    assert not [k for k in said["kept"] if not k[1].startswith("crash")], said["kept"]
    # the library itself may die of a damaged file; a worker process then dies with it, so it must stay rare
    assert len(said["kept"]) <= COUNT // 50, said["kept"]
    assert said["counts"]["scanned"] > 0
    assert said["counts"]["refused"] > 0
    assert said["counts"]["ScanError truncated"] > 0

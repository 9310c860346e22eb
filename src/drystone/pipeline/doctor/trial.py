"""A small archive scanned, written and compared here and now: does the engine work, and what does a task take by itself?"""

from __future__ import annotations

import os
import statistics
import time

import numpy as np

from drystone.errors import DrystoneError
from drystone.model.options import ArchiveConfig, ExecutionOptions, GranuleSet, OutputOptions, VerifyOptions
from drystone.model.progress import Silent
from drystone.pipeline.archive import Archive
from drystone.pipeline.doctor.checks import Verdict
from drystone.pipeline.running import run_archive
from drystone.rechunk.receipts import load_receipts

__all__ = ["TRIAL_BYTES", "trial"]

TRIAL_BYTES = 2_000_000  # that it takes of a folder, about
_STEPS, _SIDE = 24, 96


def trial(folder: str) -> tuple[Verdict, float | None]:
    """Run it in an empty folder.

    Returns
    -------
    What was found, and seconds of a task; None where it failed.
    """
    import h5py

    rng = np.random.default_rng(0)
    for step in range(_STEPS):
        with h5py.File(os.path.join(folder, f"{step:03}.nc"), "w") as f:
            f["time"] = [float(step)]
            f["time"].make_scale("time")
            f["time"].attrs["units"] = "days since 2000-01-01"
            data = rng.integers(-999, 999, (1, _SIDE, _SIDE), "i2")
            v = f.create_dataset("v", data=data, chunks=(1, _SIDE, _SIDE), maxshape=(None, _SIDE, _SIDE), compression=1)
            v.dims[0].attach_scale(f["time"])
            for axis, name in ((1, "y"), (2, "x")):
                f[name] = np.arange(float(_SIDE))
                f[name].make_scale(name)
                v.dims[axis].attach_scale(f[name])
    output = OutputOptions("store", "zarr", "here:v.zarr", chunks={"time": 1}, shards={"time": 3}, mode="rechunk")
    config = ArchiveConfig(
        "trial",
        {"here": (folder, {})},
        folder,
        (GranuleSet("glob", "here:*.nc"),),
        (output,),
        work="here:work",
        execution=ExecutionOptions("inline"),
        verify=VerifyOptions("full"),
    )
    archive, began = Archive.of(config), time.perf_counter()
    try:
        run_archive(archive, progress=Silent())
    except DrystoneError as error:
        return Verdict(
            "engine", folder, "fail", f"a small archive could not be written: {error.message}", {"kind": error.kind}
        ), None
    spent = time.perf_counter() - began
    seconds = [r.seconds for r in load_receipts(archive.store, archive.run_key(output))]
    text = f"{_STEPS} granules scanned, rechunked in {len(seconds)} tasks and compared in {spent:.1f} s"
    return Verdict("engine", folder, "ok", text, {"seconds": spent, "tasks": len(seconds)}), statistics.median(seconds)

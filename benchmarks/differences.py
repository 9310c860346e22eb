"""What becomes of two files that differ: VirtualiZarr, kerchunk and drystone on some twenty kinds of difference.

usage: differences.py [--only KIND,…] [--json FILE] [--markdown FILE]

Each kind (``kinds.py``) is joined along time by each tool with the call that its documentation gives, in a process of its
own, and read back through xarray: *right* (the values are the files'), *WRONG* (others, without a word), *refused* (an
error before anything was published), *unreadable* (it was published and does not open). Where no one answer is right, only a
refusal is right. VirtualiZarr is asked by both calls that it names, ``combine_by_coords`` and ``combine_nested``; drystone
three times, always by its defaults: ``drystone.open``, a virtual store (eras are read group by group), and a store.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from kinds import KINDS, Kind

TOOLS = ("VirtualiZarr by coords", "VirtualiZarr nested", "kerchunk", "drystone.open", "drystone icechunk", "drystone store")


def virtualizarr(folder: Path, files: list[str], nested: bool = False):
    import xarray as xr
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr import open_virtual_dataset
    from virtualizarr.parsers import HDFParser

    registry = ObjectStoreRegistry({"file://": LocalStore()})
    parts = [open_virtual_dataset(f"file://{f}", registry=registry, parser=HDFParser(), decode_times=True) for f in files]
    how = {"coords": "minimal", "compat": "override", "combine_attrs": "override", "data_vars": None}
    joined = xr.combine_nested(parts, concat_dim="time", **how) if nested else xr.combine_by_coords(parts, **how)
    joined.vz.to_kerchunk(str(folder / "out.json"), format="json")
    return lambda: xr.open_dataset(str(folder / "out.json"), engine="kerchunk")


def kerchunk(folder: Path, files: list[str]):
    import xarray as xr
    from kerchunk.combine import MultiZarrToZarr
    from kerchunk.hdf import SingleHdf5ToZarr

    parts = [SingleHdf5ToZarr(f, inline_threshold=0).translate() for f in files]
    out = MultiZarrToZarr(parts, concat_dims=["time"], coo_map={"time": "cf:time"}, identical_dims=["y", "x"]).translate()
    (folder / "out.json").write_text(json.dumps(out))
    return lambda: xr.open_dataset(str(folder / "out.json"), engine="kerchunk")


def drystone_open(_: Path, files: list[str]):
    import drystone

    dataset = drystone.open(files, decode=True)
    return lambda: dataset


def drystone_icechunk(folder: Path, _: list[str]):
    import icechunk
    import xarray as xr

    import drystone

    (folder / "d.yaml").write_text(
        "{name: d, granules: '*.nc', outputs: [{virtual: icechunk, at: out.icechunk}], verify: {values: full}}"
    )
    drystone.run(folder / "d.yaml")
    storage = icechunk.local_filesystem_storage(str(next(folder.rglob("out.icechunk"))))
    containers = icechunk.Repository.fetch_config(storage).virtual_chunk_containers or {}
    access = dict.fromkeys(containers, icechunk.credentials.LocalFileSystemAccess)
    store = icechunk.Repository.open(storage, authorize_virtual_chunk_access=access).readonly_session("main").store

    def read():
        tree = xr.open_datatree(store, engine="zarr", consolidated=False)
        eras = [tree[n].to_dataset(inherit=False) for n in sorted(tree.children) if n.startswith("era-")]
        root = tree.to_dataset()
        return root if "v" in root else xr.concat([e[["v"]] for e in eras], "time")

    return read


def drystone_store(folder: Path, _: list[str]):
    import xarray as xr

    import drystone

    (folder / "d.yaml").write_text(
        "{name: d, granules: '*.nc', outputs: [{store: zarr, at: out.zarr}], verify: {values: full}}"
    )
    drystone.run(folder / "d.yaml")
    return lambda: xr.open_zarr(folder / "out.zarr")


MAKERS = dict(
    zip(
        TOOLS,
        (virtualizarr, partial(virtualizarr, nested=True), kerchunk, drystone_open, drystone_icechunk, drystone_store),
        strict=True,
    )
)


def outcome(kind: Kind, tool: str, folder: Path) -> tuple[str, str]:
    """The verdict, and the reason in a line."""
    values, times = kind.write(folder)
    files = sorted(str(p) for p in folder.glob("*.nc"))
    try:
        read = MAKERS[tool](folder, files)
    except Exception as error:  # noqa: BLE001  whatever a tool raises is its refusal
        return "refused", f"{type(error).__name__}: {error}".splitlines()[0]
    try:
        dataset = read().load()
        got = dataset["v"].values.astype("f8")
    except Exception as error:  # noqa: BLE001  as above
        return "unreadable", f"{type(error).__name__}: {error}".splitlines()[0]
    if values is None:
        return "WRONG", "published, and no one answer is right"
    if got.shape != values.shape:
        return "WRONG", f"shape {got.shape}, not {values.shape}"
    same = np.isclose(got, values, rtol=1e-12, atol=0, equal_nan=True)
    if not same.all():
        at = tuple(int(i) for i in np.argwhere(~same)[0])
        return "WRONG", f"{int((~same).sum())} of {same.size} values, the first {got[at]:g} for {values[at]:g}"
    told = [np.datetime64(str(t).replace(" ", "T"), "s") for t in dataset["time"].values]
    wanted = [np.datetime64(t, "s") for t in times or []]
    return ("right", "") if told == wanted else ("WRONG", f"times {[str(t) for t in told]}")


def versions() -> str:
    """What was compared, in a line."""
    names = ("virtualizarr", "kerchunk", "xarray", "zarr", "icechunk", "drystone")
    return ", ".join(f"{n} {importlib.metadata.version(n)}" for n in names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--one", nargs=3, metavar=("KIND", "TOOL", "FOLDER"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        name, tool, folder = asked.one
        warnings.simplefilter("ignore")
        print(json.dumps(outcome(next(k for k in KINDS if k.name == name), tool, Path(folder))))
        return
    rows = []
    for kind in KINDS:
        if asked.only and kind.name not in asked.only.split(","):
            continue
        row = {"kind": kind.name, "what": kind.what}
        for tool in TOOLS:
            folder = Path(tempfile.mkdtemp(prefix="drystone-kind-"))
            command = [sys.executable, __file__, "--one", kind.name, tool, str(folder)]
            done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "TZ": "UTC"})
            verdict = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else ["died", done.stderr[-200:]]
            shutil.rmtree(folder, ignore_errors=True)
            row[tool], row[f"{tool}: why"] = verdict
        rows.append(row)
        print(f"{kind.name:18} " + "  ".join(f"{t}: {row[t]}" for t in TOOLS), flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1))
    if asked.markdown:
        lines = [versions(), "", f"| kind | what differs | {' | '.join(TOOLS)} |", "|---" * (len(TOOLS) + 2) + "|"]
        lines += [f"| {r['kind']} | {r['what']} | {' | '.join(r[t] for t in TOOLS)} |" for r in rows]
        asked.markdown.write_text("\n".join(lines) + "\n")
    if any(r[t] in ("WRONG", "unreadable", "died") for r in rows for t in TOOLS if t.startswith("drystone")):
        sys.exit(1)


if __name__ == "__main__":
    main()

"""Archives of files that differ, published in each form and read by readers that are not ours."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import fsspec
import icechunk
import numpy as np
import xarray as xr
import zarr

import drystone
from drystone.pipeline.running import RunReport

STORE, ICECHUNK, KERCHUNK = FORMS = ("store: zarr", "virtual: icechunk", "virtual: kerchunk-parquet")
VIRTUAL = (ICECHUNK, KERCHUNK)
AT = dict(zip(FORMS, ("out.zarr", "out.icechunk", "out.parq"), strict=True))


def write_config(
    folder: Path,
    form: str,
    combine: Mapping[str, object] | None = None,
    *,
    granules: str = "*.nc",
    more: str = "",
    **output: object,
) -> Path:
    """A config beside the files, for one form; each form has a table of its own, so that forms may be published in turn."""
    kind, name = form.split(": ")
    path = folder / f"{name}.yaml"
    said = {kind: name, "at": f"out:{AT[form]}", **output}
    path.write_text(
        f"name: {name}\nstorage: {{raw: 'file:.', out: 'file:./out'}}\ngranules: {json.dumps(f'raw:{granules}')}\n"
        f"combine: {json.dumps(combine or {})}\noutputs: [{json.dumps(said)}]\n"
        f"verify: {{values: full}}\nexecution: {{cluster: inline}}\n{more}"
    )
    return path


def publish(folder: Path, form: str, combine: Mapping[str, object] | None = None, **said: object) -> RunReport:
    """Run with every value compared before it is published; what a changed archive makes anew is made anew."""
    return drystone.run(write_config(folder, form, combine, **said), accept_changes=True)  # type: ignore[arg-type]


def store_of(folder: Path, form: str) -> zarr.abc.store.Store:
    """The published form as a store for readers without drystone."""
    path = folder / "out" / AT[form]
    if form == STORE:
        return zarr.storage.LocalStore(path, read_only=True)
    if form == ICECHUNK:
        access = {f"{folder.as_uri()}/": icechunk.credentials.LocalFileSystemAccess}
        repository = icechunk.Repository.open(
            icechunk.local_filesystem_storage(str(path)), authorize_virtual_chunk_access=access
        )
        return repository.readonly_session("main").store
    files = fsspec.filesystem("reference", fo=str(path), remote_protocol="file", lazy=True, asynchronous=True)
    return zarr.storage.FsspecStore(files, read_only=True, path="")


def tree_of(folder: Path, form: str, **options: object) -> xr.DataTree:
    """The published form as xarray opens it, every group."""
    formats = {"zarr_format": 2 if form == KERCHUNK else 3}
    return xr.open_datatree(store_of(folder, form), engine="zarr", consolidated=False, **formats, **options)  # type: ignore[arg-type]


def eras(tree: xr.DataTree) -> list[str]:
    """Names of the groups that hold eras, in their order."""
    return sorted((n for n in tree.children if n.startswith("era-")), key=lambda n: int(n.split("-")[1]))


def datasets_of(tree: xr.DataTree) -> Iterator[xr.Dataset]:
    """The root, then its eras in their order."""
    yield tree.to_dataset()
    for name in eras(tree):
        yield tree[name].to_dataset(inherit=False)


def joined(folder: Path, form: str, name: str, axis: str, **options: object) -> xr.DataArray:
    """One array of a published form; where it is in eras, these laid end to end."""
    parts = [d[name] for d in datasets_of(tree_of(folder, form, **options)) if name in d.data_vars]
    return parts[0] if len(parts) == 1 else xr.concat(parts, axis)


def same(got: np.ndarray, want: np.ndarray, where: object = "") -> None:
    """Type, shape and every bit."""
    want = want.astype(want.dtype.newbyteorder("="))
    assert (got.dtype, got.shape) == (want.dtype, want.shape), where
    assert got.tobytes() == want.tobytes(), where

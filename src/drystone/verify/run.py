"""Ask a witness: write the job down, start a process that cannot import drystone, read its report.

The job is JSON of plain numbers and names: where the published form is, which granule lies where, what cells without a
granule read as, and whether values are compared by their bits or by what they mean. Placements shared by several arrays
are written once.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drystone.codecs.zarr_forms import unkept_attributes
from drystone.errors import ConfigError, MissingExtra, VerifyError
from drystone.model.made import AxisRule
from drystone.model.options import DifferenceOptions
from drystone.model.placement import Combined, CombinedArray, Placements
from drystone.model.progress import Progress
from drystone.verify.report import VerifyReport

__all__ = ["SLAB_BYTES", "ZARR_V3_FORMS", "require_readers", "verify_output"]

SLAB_BYTES = 64 << 20
ZARR_V3_FORMS = ("zarr", "icechunk")
_READERS = ("numpy", "zarr", "h5py", "icechunk", "fsspec", "netCDF4", "obstore")


def verify_output(
    form: str,
    location: str,
    combined: Combined,
    granules: Mapping[int, str],
    *,
    mode: str = "sample",
    share: float = 0.01,
    seed: int = 0,
    arrays: Sequence[str] | None = None,
    progress: Progress | None = None,
    options: Mapping[str, Mapping[str, str | bool]] | None = None,
    version: str | None = None,
    slab_bytes: int = SLAB_BYTES,
    differences: DifferenceOptions | None = None,
    decoded: bool = False,
    written: Mapping[str, NDArray[np.uint64]] | None = None,
) -> VerifyReport:
    """Compare a published form with its granules by readers that are not ours.

    Bit for bit where an array's granules are coded alike. Where they are not (it has recodes), or the form holds decoded
    values, each side is decoded with its own attributes and what they mean is compared.

    Parameters
    ----------
    form
        ``zarr``, ``icechunk`` or ``kerchunk-parquet``.
    location
        Path or URL of the form.
    combined
        What the form should hold.
    granules
        Granule id to path or URL, for every granule of the placements.
    mode
        ``sample``: boxes whose cells add up to about ``share`` of each array, with the first cell, the last cell and some
        edges between granules always among them; ``full``: every cell; ``digest``: every cell too, but each side is read once
        and in its own order, and cells are compared where the digests of both differ.
    share
        0 to 1, for ``sample``.
    seed
        The same seed chooses the same boxes.
    arrays
        Paths to compare, None for all.
    progress
        Hears of the stage ``verify``, in cells.
    options
        URL prefix to what its object store needs (endpoint, region, anonymous); credentials come from the environment.
    version
        Icechunk snapshot to open; None for the tip of ``main``.
    slab_bytes
        Bytes of published values held at once, where one chunk allows it.
    differences
        The policies that granules were combined by: where ``units`` or ``attributes`` say ``first``, those of a granule may
        differ from what is published.
    decoded
        The form holds unpacked values of packed arrays (``values: decoded``).
    written
        For ``digest``: path to the digests, uint64 one a step, that the writer took of what it wrote.

    Returns
    -------
    VerifyReport
        Also where values differ: look at ``ok``.

    Raises
    ------
    ConfigError
        An unknown form, mode or array, or a share outside 0 to 1.
    VerifyError
        ``not-verified``: the form cannot be opened, or the witness died: nothing was proved either way.
    MissingExtra
        A reader's library is not installed.
    """
    _check(form, mode, share, combined, arrays)
    chosen = [combined.array(p) for p in arrays] if arrays is not None else list(combined.arrays)
    with tempfile.TemporaryDirectory(prefix="drystone-verify-") as folder:
        job: dict[str, object] = {
            "form": form,
            "location": location,
            "options": {k: dict(v) for k, v in (options or {}).items()},
            "version": version,
            "mode": mode,
            "share": share if mode == "sample" else 1.0,
            "seed": seed,
            "slab_bytes": slab_bytes,
            "result": str(Path(folder) / "result.json"),
            "paths": _reader_folders(),
            "accepted": list(_accepted(differences or DifferenceOptions())),
            **_columns(chosen, combined, granules, form, decoded, Path(folder), written or {}),
        }
        path = Path(folder) / "job.json"
        path.write_text(json.dumps(job), encoding="utf-8")
        result = _run(path, Path(folder), progress, sum(_expected(a, mode, share) for a in chosen), location)
    if "missing" in result:
        name = str(result["missing"])
        raise MissingExtra.of(name, "verify", f"verifying a {form} output")
    if "failed" in result:
        raise VerifyError(
            f"{location} was not verified: {result['failed']}; nothing is proved about its values",
            kind="not-verified",
            location=location,
        )
    return VerifyReport.from_json(result)


def require_readers(form: str) -> None:
    """See that the readers of a form are installed, before anything is written that they are to prove.

    Raises
    ------
    MissingExtra
        One is not; the message has the install line.

    Examples
    --------
    >>> require_readers("zarr")
    """
    for name in ("fsspec", "fastparquet") if form == "kerchunk-parquet" else ():
        if importlib.util.find_spec(name) is None:
            raise MissingExtra.of(name, "verify", f"verifying a {form} output")


def _check(form: str, mode: str, share: float, combined: Combined, arrays: Sequence[str] | None) -> None:
    if form not in ("zarr", "icechunk", "kerchunk-parquet"):
        raise ConfigError(f"no witness reads the form {form!r} (known: zarr, icechunk, kerchunk-parquet)", kind="form")
    if mode not in ("sample", "full", "digest"):
        raise ConfigError(f"verification is sample, full or digest, not {mode!r}", kind="mode")
    if not 0 <= share <= 1:
        raise ConfigError(f"the share of cells to verify is between 0 and 1, not {share}", kind="share", share=share)
    known = {a.path for a in combined.arrays}
    for path in arrays or ():
        if path not in known:
            raise ConfigError(
                f"there is no array {path} to verify (known: {', '.join(sorted(known))})", kind="array", array=path
            )


def _reader_folders() -> list[str]:
    """Where the readers are installed: ``-I`` hides user and PYTHONPATH folders, which clusters' modules use."""
    folders: list[str] = []
    for name in _READERS:
        spec = find_spec(name)
        if spec is not None and spec.origin is not None:
            folder = str(Path(spec.origin).parent.parent)
            if folder not in folders:
                folders.append(folder)
    return folders


def _accepted(policies: DifferenceOptions) -> Iterator[str]:
    """Attributes of which the user said that the first granule's count for all."""
    if policies.units == "first":
        yield "units"
    if policies.attributes == "first":
        yield from ("flag_values", "flag_masks", "flag_meanings", "valid_min", "valid_max", "valid_range")


def _columns(
    arrays: Sequence[CombinedArray],
    combined: Combined,
    granules: Mapping[int, str],
    form: str,
    decoded: bool,
    folder: Path,
    written: Mapping[str, NDArray[np.uint64]],
) -> dict[str, object]:
    """Arrays, placements and granules as plain lists."""
    known: dict[bytes, int] = {}
    placements: list[dict[str, object]] = []
    specs: list[dict[str, object]] = []
    made: list[dict[str, object]] = []
    used: set[int] = set()
    for a in arrays:
        rule = combined.rules.get(a.path)
        nowhere = a.made and not len(a.placements)
        if nowhere or (rule is not None and rule.origin is not None and rule.source == a.inner):
            made.append(_made_spec(a, rule, granules))
            used.update([] if rule is None else rule.granule_id.tolist())
        if nowhere:
            continue
        where = a.holder.placements
        key = _placements_key(where)
        if key not in known:
            known[key] = len(placements)
            placements.append(_placements_json(where))
            used.update(where.granule_id.tolist())
        specs.append({**_spec(a, form, decoded), "placements": known[key]})
        specs[-1]["parents"] = _parents(a, combined)
        specs[-1]["written"] = _kept(written.get(a.path), folder / f"{len(specs)}.npy")
    unknown = sorted(used - set(granules))
    if unknown:
        raise VerifyError(
            f"{len(unknown)} granules that values were placed from have no address (first: id {unknown[0]}); "
            "the table and the plan are of different times: plan again",
            kind="granule-unknown",
            granule_id=unknown[0],
        )
    names = {str(g): granules[g] for g in sorted(used)}
    return {"arrays": specs, "made": made, "placements": placements, "granules": names}


def _kept(values: NDArray[np.uint64] | None, path: Path) -> str | None:
    if values is None:
        return None
    np.save(path, values, allow_pickle=False)
    return str(path)


def _spec(a: CombinedArray, form: str, decoded: bool) -> dict[str, object]:
    """One array; ``firsts`` are the granules that show each of its variants first."""
    p = a.holder.placements
    used, rows = np.unique(p.variant, return_index=True)
    gap, missing = _gap(a)
    packed = decoded and any(n in a.attributes for n in ("scale_factor", "add_offset", "_Unsigned"))
    return {
        "path": a.path,
        "inner": a.inner,
        "new_axes": list(a.new_axes),
        "fixed": a.holder.fixed,
        "picked": None if a.picked is None else {n: getattr(a.picked, n) for n in ("places", "dropped", "points")},
        "dims": list(a.dims),
        "shape": list(a.shape),
        "fill": None if gap is None else gap.hex(),
        "dtype": a.dtype.str if a.dtype.kind in "biuf" else None,
        "gap_missing": missing,
        "loss": None if a.loss is None else a.loss.to_json(),
        "meaning": packed or any(a.recode(v) is not None for v in used.tolist()),
        "firsts": p.granule_id[np.sort(rows)].tolist(),
        "unkept": list(unkept_attributes(a.attributes, a.dtype)) if form in ZARR_V3_FORMS else [],
    }


def _gap(a: CombinedArray) -> tuple[bytes | None, bool]:
    """What places without a granule read as, and whether it says missing: ``_FillValue``, or NaN, else the storage fill."""
    attribute = a.attributes.get("_FillValue")
    value = None if attribute is None else attribute.value
    if isinstance(value, str) and a.dtype.kind == "T":
        return value.encode(), True
    if isinstance(value, str) and a.dtype.kind == "S":
        return np.asarray(value.encode("latin-1", "replace")).astype(a.dtype).tobytes(), True
    if value is not None and np.size(value) == 1 and np.asarray(value).dtype.kind in "biuf" and a.dtype.kind in "biufc":
        with np.errstate(invalid="ignore", over="ignore"):
            return np.asarray(value).reshape(()).astype(a.dtype).tobytes(), True
    if a.dtype.kind in "fc":
        return np.full((), np.nan, a.dtype).tobytes(), True
    return (None if a.dtype.kind == "T" else a.fill_scalar.tobytes()), False


def _parents(a: CombinedArray, combined: Combined) -> list[tuple[str, str]]:
    """Arrays whose bounds it may hold: path, and path within granules."""
    named = [o for o in combined.arrays if o.group == a.group and o.path != a.path]
    return [
        (o.path, o.inner)
        for o in named
        if any((b := o.attributes.get(n)) is not None and str(b.value).strip() == a.name for n in ("bounds", "climatology"))
    ]


def _made_spec(a: CombinedArray, rule: AxisRule | None, granules: Mapping[int, str]) -> dict[str, object]:
    """A coordinate that is made, or whose slots are counted again."""
    spec: dict[str, object] = {"path": a.path, "dims": list(a.dims), "shape": list(a.shape), "made": a.made, "rule": None}
    if rule is not None:
        spec |= {"rule": _rule_json(rule, granules), "inner": rule.source, "unkept": [], "meaning": True}
    return spec


def _rule_json(rule: AxisRule, granules: Mapping[int, str]) -> dict[str, object]:
    """What says the values of a coordinate, and which granules take its places."""
    options = rule.options
    return {
        "position": options.position,
        "pattern": options.pattern,
        "attribute": options.attribute,
        "step": options.step,
        "origin": rule.origin,
        "source": rule.source,
        "granule": rule.granule_id.tolist(),
        **{name: getattr(rule, name).tolist() for name in ("src", "count", "dest")},
        "places": None if rule.places is None else rule.places.tolist(),
        "listed": list(granules) if options.position == "order" else [],
    }


def _placements_key(p: Placements) -> bytes:
    columns = (p.granule_id, p.src_offset, p.count, p.dest, p.tile)
    return repr((p.axis, p.tiles)).encode() + b"".join(c.tobytes() for c in columns)


def _placements_json(p: Placements) -> dict[str, object]:
    return {
        "axis": p.axis,
        "granule": p.granule_id.tolist(),
        "src": p.src_offset.tolist(),
        "count": p.count.tolist(),
        "dest": p.dest.tolist(),
        "tiles": [[t.src_offset, t.count, t.dest] for t in p.tiles],
        "tile": p.tile.tolist(),
    }


def _expected(array: CombinedArray, mode: str, share: float) -> int:
    cells = 1
    for n in array.shape:
        cells *= n
    return int(cells * share) if mode == "sample" else cells


def _run(job: Path, folder: Path, progress: Progress | None, cells: int, location: str) -> dict[str, object]:
    """The witness's result; VerifyError where it has none."""
    if progress is not None:
        progress.start("verify", cells, "cells")
    log = folder / "stderr.txt"
    command = [sys.executable, "-I", str(Path(__file__).with_name("witness.py")), str(job)]
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, cwd=folder, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if progress is not None:
                    progress.advance("verify", _cells(line))
            process.wait()
        finally:
            process.kill()  # no effect on one that ended; else a driver's interrupt would leave it running
    if progress is not None:
        progress.finish("verify")
    result = folder / "result.json"
    if process.returncode != 0 or not result.exists():
        tail = " | ".join(log.read_text(errors="replace").strip().splitlines()[-3:]) or "no message"
        raise VerifyError(
            f"{location} was not verified: the witness ended with code {process.returncode} ({tail}); "
            "nothing is proved about its values",
            kind="not-verified",
            location=location,
            returncode=process.returncode,
        )
    value: dict[str, object] = json.loads(result.read_text(encoding="utf-8"))
    return value


def _cells(line: str) -> int:
    try:
        return int(json.loads(line)["cells"])
    except (ValueError, KeyError, TypeError):
        return 0  # a library that prints is no progress

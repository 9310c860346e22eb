"""Diagnose: look at everything in turn, measure, keep the rates. A new check joins the list in :func:`checks_of`."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress

from drystone import __version__
from drystone.codecs.chain import Codec
from drystone.errors import DrystoneError, StorageError
from drystone.execute.resources import cpu_count, resolve
from drystone.model.options import ExecutionOptions
from drystone.model.progress import Progress
from drystone.model.rates import PlaceRates, Rates
from drystone.model.sizes import duration_text, size_text
from drystone.pipeline.archive import Archive
from drystone.pipeline.doctor.checks import Check, Status, Verdict
from drystone.pipeline.doctor.codecs import measure_decoding, measure_encoding
from drystone.pipeline.doctor.engine import cluster_start, measure_handling
from drystone.pipeline.doctor.machine import Cores, Installed, Memory, Scratch
from drystone.pipeline.doctor.places import measure_place, probe_folder, read_granules, written_bytes
from drystone.pipeline.doctor.report import DoctorReport
from drystone.pipeline.doctor.stores import Sources, nearest, some_granules, targets_of
from drystone.pipeline.doctor.trial import TRIAL_BYTES, trial
from drystone.pipeline.rates_file import rates_path, save_rates
from drystone.plan.target_codecs import target_codecs
from drystone.storage.address import place_key
from drystone.storage.local import LocalStore
from drystone.storage.store import Store

__all__ = ["checks_of", "diagnose"]

_SLOW_PUT = 0.05  # seconds of a small flushed object: a task of a few would wait longer than it works
_SLOW_RATE = 20e6


def checks_of(archive: Archive | None) -> list[Check]:
    """What is looked at, in order; without a config, the machine alone."""
    execution = ExecutionOptions() if archive is None else archive.config.execution
    checks: list[Check] = [Cores(), Memory(resolve(execution)), Scratch(), Installed()]
    if archive is not None:
        checks += [Sources(archive, g.lister, g.pattern) for g in archive.config.granules]
        checks += targets_of(archive)
    return checks


def _written_places(archive: Archive | None) -> Mapping[str, tuple[Store, str]]:
    """Place to store and prefix, of all that is written: without a config, the folder one is in and the temporary one."""
    found: dict[str, tuple[Store, str]] = {}
    here: list[tuple[Store, str]] = []
    if archive is not None:
        here += [(t.store, t.prefix) for t in targets_of(archive)]
        here += [nearest(*archive.places.resolve(archive.scratch_of(o))) for o in archive.config.outputs if o.kind == "store"]
    if archive is None and os.access(os.getcwd(), os.W_OK):
        here.append((LocalStore(os.getcwd()), ""))
    for store, prefix in [*here, (LocalStore(tempfile.gettempdir()), "")]:
        found.setdefault(place_key(store), (store, prefix))
    return found


def diagnose(archive: Archive | None, progress: Progress, dry_run: bool = False) -> DoctorReport:
    """Look and measure.

    Parameters
    ----------
    dry_run
        Say what would be written, look at nothing.
    """
    checks, cpus = checks_of(archive), cpu_count()
    places = _written_places(archive)
    writes = [line for check in checks for line in check.writes()]
    writes += [f"{store.url}: {size_text(written_bytes(cpus))} to measure the place, removed" for store, _ in places.values()]
    writes += [
        f"{tempfile.gettempdir()}: {size_text(TRIAL_BYTES)} of a trial archive and folders of workers, removed",
        f"{rates_path()}: the rates",
    ]
    if dry_run:
        return DoctorReport((), None, None, tuple(writes))
    verdicts: list[Verdict] = []
    progress.start("doctor", len(checks) + len(places) + 4, "steps")
    for check in checks:
        verdicts += check.look()
        progress.advance("doctor")
    measured: dict[str, PlaceRates] = {}
    for key, (store, prefix) in places.items():
        verdicts.append(_measured(key, store, prefix, cpus, measured))
        progress.advance("doctor")
    verdicts += _read_places(archive, cpus, measured)
    rates = _rates(archive, cpus, measured, verdicts, progress)
    path = None
    if rates is not None:
        try:
            path = save_rates(rates)
        except StorageError as error:
            verdicts.append(Verdict("rates", rates_path(), "warn", f"{error.message}; plans predict no times"))
    progress.finish("doctor")
    return DoctorReport(tuple(verdicts), rates, path, tuple(writes))


def _measured(key: str, store: Store, prefix: str, cpus: int, found: dict[str, PlaceRates]) -> Verdict:
    try:
        with probe_folder(store, prefix) as probe:
            rates = measure_place(store, probe, cpus)
    except StorageError as error:
        return Verdict("speed", key, "fail", error.message, {"kind": error.kind})
    found[key] = rates
    return _speed(key, rates)


def _speed(key: str, rates: PlaceRates) -> Verdict:
    text = f"reads {size_text(rates.read)}/s{' (perhaps from memory)' if rates.cached else ''}"
    status: Status = "ok"
    if rates.write is not None and rates.put is not None:
        text += f", writes {size_text(rates.write)}/s, a small object takes {duration_text(rates.put)}"
        if rates.put > _SLOW_PUT:
            status, text = "warn", f"{text}; flushing is slow: few large objects, so shards, suit it"
        elif rates.write < _SLOW_RATE:
            status, text = "warn", f"{text}; writing is slow"
    if rates.read < _SLOW_RATE:
        status, text = "warn", f"{text}; reading is slow"
    return Verdict("speed", key, status, text)


def _read_places(archive: Archive | None, cpus: int, found: dict[str, PlaceRates]) -> Iterator[Verdict]:
    """Measure the places of granules that nothing is written to."""
    if archive is None:
        return
    for wanted in archive.config.granules:
        with suppress(DrystoneError):  # the check of the sources told it
            some: dict[str, list[tuple[Store, str, int]]] = {}
            for listed in some_granules(archive, wanted.lister, wanted.pattern):
                store, name = archive.places.resolve(listed.address)
                some.setdefault(place_key(store), []).append((store, name, listed.stamp.size))
            for key, granules in some.items():
                if key not in found:
                    found[key] = read_granules(granules[0][0], [(name, size) for _, name, size in granules], cpus)
                    yield _speed(key, found[key])


def _codecs(archive: Archive | None) -> list[Codec]:
    """Compressors that a config's outputs ask for, of elements of two and four bytes."""
    import numpy as np

    stores = [o for o in archive.config.outputs if o.kind == "store"] if archive is not None else []
    chains = [target_codecs(o.codecs, np.dtype(t)) for o in stores for t in ("i2", "f4")]
    return [codec for chain in chains for codec in chain.filters]


def _rates(
    archive: Archive | None, cpus: int, places: Mapping[str, PlaceRates], verdicts: list[Verdict], progress: Progress
) -> Rates | None:
    """Measure the machine; None where the engine does not work here."""
    folder = tempfile.mkdtemp(prefix="drystone-doctor-")
    try:
        verdict, task = trial(folder)
        verdicts.append(verdict)
        progress.advance("doctor")
        if task is None:
            return None
        handling = measure_handling(folder, cpus)
        progress.advance("doctor")
        decode, encode = tuple(measure_decoding(cpus)), tuple(measure_encoding(cpus, _codecs(archive)))
        progress.advance("doctor")
        start = cluster_start(min(cpus, 4)) if cpus > 1 else 0.0
        progress.advance("doctor")
    except StorageError as error:
        verdicts.append(Verdict("engine", folder, "fail", error.message, {"kind": error.kind}))
        return None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    temporary = places.get(place_key(LocalStore(tempfile.gettempdir())))
    waited = temporary.put if temporary is not None and temporary.put is not None else 0.0
    return Rates(
        socket.gethostname(),
        __version__,
        dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        cpus,
        decode,
        encode,
        handling.gather_byte,
        handling.gather_row,
        handling.fresh,
        handling.chunk_read,
        handling.chunk_write,
        handling.granule,
        max(0.0, task - waited),
        start,
        handling.checksum,
        places,
    )

"""What ``doctor`` tells, as JSON and as text."""

from __future__ import annotations

from dataclasses import dataclass

from drystone import __version__
from drystone.model.rates import CodecRate, Rates
from drystone.model.sizes import duration_text, size_text
from drystone.pipeline.doctor.checks import Status, Verdict, worst
from drystone.pipeline.doctor.machine import extras, libraries

__all__ = ["DoctorReport"]


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """Verdicts and rates.

    Parameters
    ----------
    verdicts
        In the order in which things were looked at.
    rates
        What was measured; None with ``dry_run``, or where the engine does not work.
    rates_file
        Where plans find it; None where it was not written.
    writes
        What was written, or would be: all but the file of rates is removed again.
    """

    verdicts: tuple[Verdict, ...]
    rates: Rates | None
    rates_file: str | None
    writes: tuple[str, ...]

    @property
    def status(self) -> Status:
        """The worst verdict."""
        return worst(list(self.verdicts))

    @property
    def exit_code(self) -> int:
        """0; 5 where something failed. What is merely odd does not count."""
        return 5 if self.status == "fail" else 0

    def to_json(self) -> dict[str, object]:
        """For ``--json``."""
        return {
            "version": __version__,
            "status": self.status,
            "checks": [v.to_json() for v in self.verdicts],
            "rates": None if self.rates is None else self.rates.to_json(),
            "rates_file": self.rates_file,
            "writes": list(self.writes),
            "libraries": dict(libraries()),
            "extras": {e.name: {"installed": not e.missing, "missing": list(e.missing)} for e in extras().values()},
        }

    def lines(self) -> list[str]:
        """For people."""
        if not self.verdicts:
            return ["would write", *(f"  {line}" for line in self.writes)]
        out = [f"  {v.status:<5} {v.check:<24} {v.subject}: {v.text}" for v in self.verdicts]
        if self.rates is not None:
            out += ["", *_rate_lines(self.rates)]
        out += ["", *_library_lines()]
        if self.rates_file is not None:
            out += ["", f"rates kept in {self.rates_file}: `drystone plan` predicts times from them"]
        bad = sum(v.status == "fail" for v in self.verdicts)
        odd = sum(v.status == "warn" for v in self.verdicts)
        return [*out, "", f"{len(self.verdicts)} checks: {bad} failed, {odd} odd"]


def _rate_lines(rates: Rates) -> list[str]:
    out = [f"raw MB/s of one CPU, {rates.cores} at work, where data encode to that share of their size", "  decodes"]
    out += [_codec_line(r) for r in rates.decode]
    out += ["  encodes", *(_codec_line(r) for r in rates.encode)]
    out += [
        f"  moves in memory {size_text(1 / max(rates.gather_byte, 1e-12))}/s, and {duration_text(rates.gather_row)} a row",
        (
            f"  a chunk read {duration_text(rates.chunk_read)}, written {duration_text(rates.chunk_write)}, "
            f"a granule {duration_text(rates.granule)}, a task {duration_text(rates.task)}, "
            f"a cluster's start {duration_text(rates.start)}"
        ),
        "places",
    ]
    for key, p in sorted(rates.places.items()):
        wrote = "not written" if p.write is None else f"writes {size_text(p.write)}/s, an object {duration_text(p.put or 0)}"
        cached = " (perhaps from memory)" if p.cached else ""
        out.append(f"  {key:<28} reads {size_text(p.read)}/s{cached}, a request {duration_text(p.request)}, {wrote}")
    return out


def _codec_line(rate: CodecRate) -> str:
    points = "".join(f"{f'{share:.2f}: {speed / 1e6:,.0f}':>14}" for share, speed in rate.points)
    return f"    {rate.use!s:<32}{points}"


def _library_lines() -> list[str]:
    known = [f"{name} {version or 'missing'}" for name, version in libraries().items()]
    out = [f"drystone {__version__}"]
    out += [f"  {', '.join(known[i : i + 6])}" for i in range(0, len(known), 6)]
    for extra in extras().values():
        out.append(f"  extra {extra.name}: {'installed' if not extra.missing else 'without ' + ', '.join(extra.missing)}")
    return out

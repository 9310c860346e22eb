"""Predicted times of one output's ways, from the rates of this machine and of the places that it reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drystone.execute.resources import Resources, cpu_count
from drystone.model.placement import CombinedArray
from drystone.model.rates import Rates
from drystone.pipeline.rates_file import load_rates
from drystone.plan.candidates import Candidate
from drystone.plan.layout import TargetLayout
from drystone.plan.predict import Crew, Prediction, Work, predict
from drystone.plan.shards import TaskPlan
from drystone.plan.work import Ends, copy_work, works_of
from drystone.storage.address import Places, place_key
from drystone.table.table import ReferenceTable

__all__ = ["Clock"]


@dataclass(frozen=True, slots=True)
class Clock:
    """Predicts for one output.

    Parameters
    ----------
    rates, why
        What was measured, or why nothing can be predicted.
    places, table
        Where granules lie.
    target
        Key of the place that is written.
    between
        Key of the place of what lies between two passes.
    """

    rates: Rates | None
    why: str
    places: Places
    table: ReferenceTable
    target: str
    between: str

    @classmethod
    def of(cls, places: Places, table: ReferenceTable, at: str, between: str) -> Clock:
        """Read the rates, if there are any."""
        rates, why = load_rates()
        return cls(rates, why, places, table, *(place_key(places.resolve(address)[0]) for address in (at, between)))

    def ends(self, array: CombinedArray, encoded: int, slots: int) -> Ends:
        """What is read and written, from where to where."""
        ids = array.holder.placements.granule_id
        if self.rates is None or not len(ids):
            return Ends(self.target, self.target, encoded, slots, self.between)
        source = place_key(self.places.resolve(self.table.granule(int(ids[0])).address)[0])
        return Ends(source, self.target, encoded, slots, self.between)

    def way(self, way: Candidate, array: CombinedArray, layout: TargetLayout, ends: Ends, host: Resources) -> Prediction:
        """Of a way that decodes and encodes."""
        return self._time(works_of(way, array, layout, ends) if self.rates is not None else (), host)

    def copies(self, tasks: TaskPlan, array: CombinedArray, layout: TargetLayout, ends: Ends, host: Resources) -> Prediction:
        """Of copying encoded chunks."""
        return self._time((copy_work(tasks, array, layout, ends),), host)

    def total(self, arrays: Sequence[tuple[Prediction, int]], host: Resources) -> Prediction | None:
        """Of all arrays of an output together, and the start of workers where there are any; None where no array has tasks.

        Parameters
        ----------
        arrays
            The time of each, and how many tasks it has: those of one array run beside another's.
        """
        known = [p for p, _ in arrays]
        missing = next((p for p in known if p.seconds is None), None)
        if missing is not None or not known:
            return missing
        start = 0.0 if host.inline or self.rates is None else self.rates.start
        parts: dict[str, float] = {"start": start} if start else {}
        for name, spent in (part for p in known for part in p.parts):
            parts[name] = parts.get(name, 0.0) + spent
        seconds = [(p.seconds or 0.0, min(host.workers, max(1, n))) for p, n in arrays]
        shared = sum(s * slots for s, slots in seconds) / host.workers
        return Prediction(start + max(shared, *(s for s, _ in seconds)), tuple(parts.items()))

    def _time(self, passes: tuple[Work, ...], host: Resources) -> Prediction:
        if self.rates is None:
            return Prediction(None, why=self.why)
        return predict(passes, self.rates, Crew(host.workers, host.threads, cpu_count()))

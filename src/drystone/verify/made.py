"""Coordinates that no granule holds as they are published: slots with gaps, labels of new axes, values of several axes.

The witness loads this file by its path, so it imports nothing of drystone's.

Nothing here knows how they were made. The places of a slot axis are counted again from its origin by its step, in days and
nanoseconds of the calendar, in calendar months or in exact fractions; and at each place that a granule takes stands what the
granule says itself: its own coordinate, read with its own units, or what a pattern finds in its name or attribute.
"""

from __future__ import annotations

import importlib
import math
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from drystone.verify import compare, granules, instants, labels, meaning, pieces, readers, subject
else:
    # the witness's copies beside this one, or the package's
    _here = __name__.removesuffix("made")
    compare, granules, instants, labels, meaning, pieces, readers, subject = (
        importlib.import_module(_here + n)
        for n in ("compare", "granules", "instants", "labels", "meaning", "pieces", "readers", "subject")
    )

__all__ = ["check"]

type Array = np.ndarray[Any, np.dtype[Any]]

_LEAST = 8  # granules that a sample opens
_DAY = 86_400 * 10**9
_DURATIONS = {
    "W": 7 * _DAY, "D": _DAY, "d": _DAY, "h": _DAY // 24, "H": _DAY // 24, "min": _DAY // 1440, "s": 10**9, "S": 10**9,
    "ms": 10**6, "us": 10**3, "ns": 1,
}  # fmt: skip
_MONTHS = {"M": 1, "Y": 12}
_STEP = re.compile(r"\s*([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)\s*")
_PLAIN = meaning.Coding.of({})
_NOWHERE: dict[str, Any] = {"axis": None, "granule": [], "src": [], "count": [], "dest": [], "tiles": [], "tile": []}


@dataclass
class _Made:
    """One coordinate.

    ``values`` are published, flat; ``places`` says for each at which place of its axis it stands.
    """

    rule: Mapping[str, Any]
    sources: granules.Sources
    codings: subject.Codings
    one: subject.Subject
    values: Array
    places: Array
    scalar: bool

    def __post_init__(self) -> None:
        self._order = np.argsort(self.places, kind="stable")
        self._sorted = self.places[self._order]
        self._wrong = np.zeros(len(self.values), bool)

    def where(self, dest: int, count: int) -> tuple[Array, Array]:
        """Which values stand at a run of places, and at which places of the run."""
        low, high = np.searchsorted(self._sorted, [dest, dest + count])
        at = self._order[low:high]
        return at, self.places[at] - dest

    @property
    def coding(self) -> meaning.Coding:
        """How published numbers are read."""
        return self.one.published.coding

    @property
    def step(self) -> tuple[Fraction, str] | None:
        """The step of slots, and its unit; None where the axis has none."""
        found = None if self.rule["origin"] is None else _STEP.fullmatch(str(self.rule["step"]))
        return None if found is None else (Fraction(found[1]), found[2])

    @property
    def months(self) -> int:
        """Calendar months that a slot is, 0 where it is none."""
        step = self.step
        return int(step[0] * _MONTHS[step[1]]) if step is not None and step[1] in _MONTHS else 0

    def found(
        self,
        wrong: Array,
        at: Array,
        theirs: Callable[[int], str] | str,
        granule: str | None = None,
        src: Array | None = None,
    ) -> None:
        """Note values that differ; ``theirs`` says what should be there, of each or of all."""
        if not wrong.any():
            return
        tally = self.one.tally
        self._wrong[at[wrong]] = True
        tally.mismatches = int(self._wrong.sum())
        i = int(np.argmin(np.where(wrong, at, len(self.values))))
        if tally.first is None or [int(at[i])] < tally.first["index"]:
            tally.first = {
                "index": [] if self.scalar else [int(at[i])],
                "published": _say(self.values[at[i]], self.coding),
                "source": theirs if isinstance(theirs, str) else theirs(i),
                "granule": granule,
                "source_index": None if granule is None else [] if src is None else [int(src[i])],
            }


def _say(value: object, coding: meaning.Coding) -> str:
    """A value, and the time that it is."""
    text = compare.show(value)
    when = None if coding.clock is None else instants.iso(np.asarray(value), coding.clock, coding.fractions)
    return text if when is None else f"{text}, {when}"


def check(
    root: Any,  # noqa: ANN401  zarr is not imported yet
    spec: dict[str, Any],
    job: Mapping[str, Any],
    sources: granules.Sources,
    codings: subject.Codings,
) -> subject.Tally:
    """Compare one coordinate with what its rule says."""
    tally = subject.Tally(total=math.prod(spec["shape"]))
    node = subject.node_of(root, spec)
    tally.problems.extend(subject.form_problems(node, spec))
    rule = spec["rule"]
    if tally.problems or rule is None:
        return tally
    side, _ = subject.published(root, node, {**spec, "parents": []})
    one = subject.Subject(spec, pieces.Placed(_NOWHERE, {}), tally, side, None)
    values = compare.native(readers.read_box(node, tuple(slice(0, n) for n in node.shape)))
    places = np.arange(values.size) if rule["places"] is None else np.array(rule["places"], np.int64)
    if len(places) != values.size:
        tally.problems.append(f"{values.size} values are published of {len(places)} places")
        return tally
    tally.cells, tally.boxes = values.size, 1
    made = _Made(rule, sources, codings, one, values.reshape(-1), places, not values.ndim)
    try:
        held = _held(made, job) if spec["made"] else np.ones(values.size, bool)
        if made.step is not None and (spec["made"] or not made.months):
            _grid(made, held, job)
        elif not held.all():
            one.problem(f"no granule takes place {int(places[int(np.argmin(held))])}")
    except (readers.Unreadable, compare.Incomparable, labels.Unclear) as error:
        one.problem(str(error))
    return tally


def _held(made: _Made, job: Mapping[str, Any]) -> Array:
    """Compare what granules say of the places that they take; which values stand at one."""
    rule = made.rule
    held = np.zeros(len(made.values), bool)
    opened = _opened(rule, job)
    for row, (number, src, count, dest) in enumerate(zip(*(rule[k] for k in ("granule", "src", "count", "dest")), strict=True)):
        at, inner = made.where(dest, count)
        if made.months:  # granules may say two times of one month, of which the first counts
            new = ~held[at]
            at, inner = at[new], inner[new]
        held[at] = True
        if not len(at) or row not in opened:
            continue
        granule = job["granules"][str(number)]
        if rule["position"] == "coordinate":
            _own(made, granule, at, inner + src)
            continue
        label = rule["listed"].index(number) if rule["position"] == "order" else labels.of(rule, granule, made.sources)
        made.found(labels.differs(made.values[at], made.coding, label), at, str(label), granule)
    return held


def _opened(rule: Mapping[str, Any], job: Mapping[str, Any]) -> set[int]:
    """Runs whose granules are asked: all, but for a sample where that opens files."""
    rows = len(rule["granule"])
    few = max(_LEAST, math.ceil(job["share"] * rows))
    if job["mode"] == "full" or rule["position"] in ("name", "order") or few >= rows:
        return set(range(rows))
    where = random.Random(f"{job['seed']}:{rule['source']}:{rows}")  # noqa: S311  no secret
    return {0, rows - 1, *where.sample(range(rows), few)}


def _own(made: _Made, granule: str, at: Array, src: Array) -> None:
    """Compare with a granule's own coordinate."""
    source = made.rule["source"]
    shape = tuple(made.sources.array(granule, source).shape or ())
    own = compare.native(made.sources.read(granule, source, (0,) * len(shape), shape)).reshape(-1)
    if int(src.max()) >= own.size:
        raise readers.Unreadable(f"{granule}, {source}: place {int(src.max())} of it was placed, its shape is {shape}")
    theirs, coding = own[src], made.codings.of(made.one, granule)
    wrong = _differ(made.values[at], made.coding, theirs, coding)
    made.found(wrong, at, lambda i: _say(theirs[i], coding), granule, src)


def _differ(ours: Array, mine: meaning.Coding, theirs: Array, their: meaning.Coding) -> Array:
    """Where two coordinates mean different things; in single precision where one side has no more."""
    if (mine.clock is None) != (their.clock is None):
        raise compare.Incomparable("one of the published coordinate and the granule's counts times, and the other does not")
    wrong = meaning.differs(ours, mine, theirs, their)
    singles = {ours.dtype.str[1:], theirs.dtype.str[1:]} == {"f4", "f8"}
    if singles and mine.clock is None and not mine.packed and not their.packed:
        wrong &= ours.astype(np.float32) != theirs.astype(np.float32)
    return wrong


def _grid(made: _Made, held: Array, job: Mapping[str, Any]) -> None:
    """Compare with the origin and so many steps; where slots are calendar months, what granules say lies in them."""
    clock = None
    if made.rule["position"] == "coordinate":
        clock = made.codings.of(made.one, job["granules"][str(made.rule["granule"][0])]).clock
    elif made.coding.clock is not None:
        clock = instants.Clock(_DAY, 0, 0, "proleptic_gregorian")
    every = np.arange(len(made.values))
    if clock is None:
        want = _numbers(made)
        made.found(
            _differ(made.values, made.coding, want, _PLAIN),
            every,
            lambda i: f"{want[i].item()}, origin and {made.places[i]} steps",
        )
        return
    if made.coding.clock is None:
        raise compare.Incomparable("granules tell times along this axis, and what is published are none")
    origin = instants.Clock.of({"units": f"days since {made.rule['origin']}", "calendar": clock.calendar})
    if origin is None:
        raise labels.Unclear(f"the origin {made.rule['origin']} is no time of the calendar {clock.calendar}")
    days = instants.Clock(_DAY, 0, 0, clock.calendar)
    packing = (made.coding.fractions, None)
    if made.months:
        first, after = (_starts(made, origin, k) for k in (0, made.months))
        wrong = instants.differs(made.values, made.coding.clock, first, days, packing)
        day = instants.day_of(made.values, made.coding.clock, made.coding.fractions)
        wrong &= ~held | (day < first) | (day >= after)
        made.found(wrong, every, lambda i: f"{instants.iso(first[i], days)}, the month of place {made.places[i]}")
        return
    count, tick = _ticks(made, clock)
    steps = instants.Clock(tick, origin.day, origin.within, clock.calendar)
    wrong = instants.differs(made.values, made.coding.clock, count, steps, packing)
    made.found(wrong, every, lambda i: f"{instants.iso(count[i], steps)}, origin and {made.places[i]} steps")


def _ticks(made: _Made, clock: instants.Clock) -> tuple[Array, int]:
    """How far each place is from the origin, int64, and in what: nanoseconds that make up a day."""
    assert made.step is not None
    size, unit = made.step
    step = size * (_DURATIONS[unit] if unit else clock.tick)
    if step.denominator != 1:
        raise labels.Unclear(f"a step of {made.rule['step']} is no whole number of nanoseconds")
    tick = math.gcd(int(step), _DAY)
    times = int(step) // tick
    if (int(np.abs(made.places).max(initial=0)) + 1) * abs(times) > 2**60:
        raise labels.Unclear(f"steps of {made.rule['step']} reach too far to be counted in {tick} ns")
    return made.places * times, tick


def _starts(made: _Made, origin: instants.Clock, more: int) -> Array:
    """The first day of the months of each place, or of ``more`` months later, as the calendar counts days."""
    year, month, _ = instants.civil(origin.day, origin.calendar)
    first = year * 12 + month - 1 + more
    months = [first + int(p) * made.months for p in made.places.tolist()]
    found = [instants.day_number(origin.calendar, m // 12, m % 12 + 1, 1) for m in months]
    if any(d is None for d in found):
        raise labels.Unclear(f"months from {made.rule['origin']} on are not all in the calendar {origin.calendar}")
    return np.array(found, np.int64)


def _numbers(made: _Made) -> Array:
    """The number of each place: whole where all are, else the nearest double of the exact one."""
    assert made.step is not None
    try:
        origin, step = Fraction(str(made.rule["origin"])), made.step[0]
    except ValueError as error:
        raise labels.Unclear(f"the origin {made.rule['origin']} is a time, and what granules say are numbers") from error
    bottom = math.lcm(origin.denominator, step.denominator)
    a, b = int(origin * bottom), int(step * bottom)
    exact = [a + b * int(p) for p in made.places.tolist()]
    return np.array(exact if bottom == 1 else [n / bottom for n in exact])

"""What a witness found: values that can be printed, kept beside a release, and tested."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from drystone.grid.digest import NAME

__all__ = ["ArrayReport", "Mismatch", "VerifyReport"]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first cell of an array that differs.

    Parameters
    ----------
    index
        In the published array.
    published, source
        Both values as text, with their bits where they are numbers.
    granule
        Path or URL of the granule; None in a gap, where the source is the fill value.
    source_index
        In the granule's array; None in a gap.
    """

    index: tuple[int, ...]
    published: str
    source: str
    granule: str | None
    source_index: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class ArrayReport:
    """One array.

    Parameters
    ----------
    path
        Of the whole.
    total, cells, boxes
        Elements of the array, elements compared, and boxes they were compared in.
    mismatches
        Compared elements that differ: in any bit, or, where ``by_meaning``, in what they mean.
    first
        The first of them, or None.
    problems
        What is wrong besides values: the array is not there, its shape, type, dimensions or coding attributes differ, a
        granule could not be read. Each is a failure.
    loss
        What the form was said to lose of values, and each was compared within; empty: nothing.
    digest
        Of the published array, as sixteen hexadecimal digits, where it was compared so (see :mod:`drystone.grid.digest`).
    by_meaning
        Granules pack, date or mark missing values in different ways, so that decoded values were compared; or it is a
        coordinate that no granule holds as it is, so that its values were found again from granules, names and steps.
    """

    path: str
    total: int
    cells: int
    boxes: int
    mismatches: int
    first: Mismatch | None = None
    problems: tuple[str, ...] = ()
    by_meaning: bool = False
    loss: str = ""
    digest: str = ""

    @property
    def ok(self) -> bool:
        """Whether all that was compared is equal."""
        return not self.mismatches and not self.problems

    def failure(self) -> str:
        """What is wrong, for people; empty where all is well."""
        texts = list(self.problems)
        if self.first is not None:
            f = self.first
            where = "no granule covers it" if f.granule is None else f"{f.granule} has it at {f.source_index}"
            texts.insert(
                0,
                f"{self.mismatches} of {self.cells} compared cells differ, first at {f.index}: published {f.published}, "
                f"source {f.source} ({where})",
            )
        return "; ".join(f"{self.path}: {t}" for t in texts)


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """One published form against its granules.

    Parameters
    ----------
    form, location
        What was opened.
    mode, share, seed
        ``sample`` or ``full``; the share of cells asked for; the seed that chooses the boxes again.
    seconds
        Wall time of the witness.
    libraries
        Name and version of the readers on both sides.
    arrays
        One an array that was asked for.
    unverified
        Arrays of the form that nobody asked for.
    made
        Arrays that no granule holds and nothing but drystone says, such as coverage: compared with nothing.

    Examples
    --------
    >>> a = ArrayReport("/sst", 100, 100, 1, 0)
    >>> r = VerifyReport("zarr", "/x", "full", 1.0, 1, 0.1, (("zarr", "3"),), (a,))
    >>> r.ok, VerifyReport.from_json(r.to_json()) == r
    (True, True)
    >>> r.lines()
    ['full: 100 of 100 cells of 1 array equal, bit for bit']
    """

    form: str
    location: str
    mode: str
    share: float
    seed: int
    seconds: float
    libraries: tuple[tuple[str, str], ...]
    arrays: tuple[ArrayReport, ...]
    unverified: tuple[str, ...] = ()
    made: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every array is."""
        return all(a.ok for a in self.arrays)

    @property
    def cells(self) -> int:
        """Elements compared."""
        return sum(a.cells for a in self.arrays)

    @property
    def total(self) -> int:
        """Elements of the arrays."""
        return sum(a.total for a in self.arrays)

    def first_problem(self) -> str:
        """The first failure, for an error's message; empty where all is well."""
        return next((a.failure() for a in self.arrays if not a.ok), "")

    def lines(self) -> list[str]:
        """For people: one line in all, one a failing array, one for arrays left out."""
        n = len(self.arrays)
        what = f"{self.cells} of {self.total} cells of {n} array{'' if n == 1 else 's'}"
        how = self.mode if self.mode != "sample" else f"sample (share {self.share:g}, seed {self.seed})"
        bad = [a for a in self.arrays if not a.ok]
        decoded = [a.path for a in self.arrays if a.by_meaning]
        exactly = (
            "bit for bit"
            if not decoded
            else f"bit for bit, or where granules are coded differently or hold parts by meaning ({', '.join(decoded)})"
        )
        by_digest = sum(bool(a.digest) for a in self.arrays)
        exactly += f"; {by_digest} of them by the digest {NAME} of each step" if by_digest else ""
        exactly += "".join(f"; {a.path} within what it says to lose ({a.loss})" for a in self.arrays if a.loss)
        head = f"{how}: {what} equal, {exactly}" if not bad else f"{how}: {len(bad)} of {n} arrays differ, {what} compared"
        tail = [f"in no granule, so compared with none: {', '.join(self.made)}"] if self.made else []
        tail += [f"not compared: {', '.join(self.unverified)}"] if self.unverified else []
        return [head, *(a.failure() for a in bad), *tail]

    def to_json(self) -> dict[str, object]:
        """Plain JSON values, with ``ok``."""
        out: dict[str, object] = json.loads(json.dumps(asdict(self)))
        return {"ok": self.ok, **out}

    @classmethod
    def from_json(cls, value: dict[str, object]) -> VerifyReport:
        """Read back what :meth:`to_json` wrote."""
        d = dict(value)
        d.pop("ok", None)
        libraries = tuple((str(k), str(v)) for k, v in _items(d.pop("libraries")))
        arrays = tuple(_array(a) for a in _items(d.pop("arrays")))
        unverified, made = (tuple(str(p) for p in _items(d.pop(key, ()))) for key in ("unverified", "made"))
        return cls(libraries=libraries, arrays=arrays, unverified=unverified, made=made, **d)  # type: ignore[arg-type]


def _items(value: object) -> Iterable[tuple[str, str]]:
    assert isinstance(value, list | tuple)
    return value


def _array(value: object) -> ArrayReport:
    assert isinstance(value, dict)
    d = dict(value)
    first = d.pop("first")
    problems = tuple(d.pop("problems"))
    return ArrayReport(first=None if first is None else _mismatch(first), problems=problems, **d)


def _mismatch(value: dict[str, object]) -> Mismatch:
    index, source_index = value["index"], value["source_index"]
    assert isinstance(index, list | tuple)
    at = None if source_index is None else tuple(int(i) for i in source_index)  # type: ignore[attr-defined]
    granule = value["granule"]
    text = None if granule is None else str(granule)
    return Mismatch(tuple(int(i) for i in index), str(value["published"]), str(value["source"]), text, at)

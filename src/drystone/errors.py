"""The error tree, shaped by what a handler would do, with kinds that never change.

::

    DrystoneError                      exit code
    ├── ConfigError                    2   the config or the call is wrong: fix it and start again
    │   └── ConsentNeeded              2   the run would have to ask: the message names the flag that says yes
    ├── GranuleError                   5   one granule cannot be used: set it aside or mend it
    │   ├── ScanError                      its bytes do not parse
    │   ├── GranuleChanged                 it is no longer what was scanned
    │   └── GranuleMissing                 it is not where the table says
    ├── CombineError                   5   granules do not fit together: the message names both and the ways out
    ├── UnsupportedError               5   no exact form exists for this array in this output
    ├── PlanError                      5   impossible within the limits given: the message has the number that would do
    ├── DecodeError                    5   bytes that do not decode to what the table promises
    ├── TableError                     5   the reference table is incoherent or was written by someone else
    ├── StorageError                   4   reading or writing failed: nothing is lost, run again
    ├── LeaseError                     3   another driver holds the lease
    ├── IncompleteRun                  4   some tasks are left: run again
    ├── Stopped                       75   a signal ended the run: what is done is kept, run again
    ├── VerifyError                    5   published values are not the granule's values
    └── MissingExtra                   2   an optional library is needed: the message has its install line

Each error carries ``kind``, a stable text that scripts may test, and ``facts``, the numbers of its message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

__all__ = [
    "CombineError",
    "ConfigError",
    "ConsentNeeded",
    "DecodeError",
    "DrystoneError",
    "GranuleChanged",
    "GranuleError",
    "GranuleMissing",
    "IncompleteRun",
    "LeaseError",
    "LeftOut",
    "MissingExtra",
    "PlanError",
    "ScanError",
    "Stopped",
    "StorageError",
    "TableError",
    "UnsupportedError",
    "VerifyError",
]

type Fact = str | int | float | bool | None


class DrystoneError(Exception):
    """The root of everything drystone raises on purpose.

    Parameters
    ----------
    message
        What, where, consequence and remedy, with numbers and units.
    kind
        Stable code for programs; each class has a default one.
    facts
        The values named in the message, for ``--json``.

    Examples
    --------
    >>> try:
    ...     raise ScanError("x.nc: truncated", kind="truncated", granule="x.nc")
    ... except DrystoneError as error:
    ...     (error.kind, error.exit_code, dict(error.facts))
    ('truncated', 5, {'granule': 'x.nc'})
    """

    exit_code: ClassVar[int] = 5
    default_kind: ClassVar[str] = "error"

    def __init__(self, message: str, *, kind: str | None = None, **facts: Fact) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind or self.default_kind
        self.facts: Mapping[str, Fact] = facts

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.kind, dict(self.facts))


def _rebuild(cls: type[DrystoneError], message: str, kind: str, facts: dict[str, Fact]) -> DrystoneError:
    """Pickle support: errors cross process borders with kind and facts intact."""
    error = cls(message, kind=kind)
    error.facts = facts
    return error


class ConfigError(DrystoneError):
    """The config or the call is wrong."""

    exit_code = 2
    default_kind = "config"


class ConsentNeeded(ConfigError):
    """The run would have to ask; the message names the flag that says yes."""

    default_kind = "consent-needed"


class GranuleError(DrystoneError):
    """One granule cannot be used."""

    default_kind = "granule"


class ScanError(GranuleError):
    """A granule's bytes do not parse as its format."""

    default_kind = "scan"


class GranuleChanged(GranuleError):
    """A granule is no longer what was scanned."""

    default_kind = "granule-changed"


class GranuleMissing(GranuleError):
    """A granule is not where the table says."""

    default_kind = "granule-missing"


class CombineError(DrystoneError):
    """Granules do not fit together."""

    default_kind = "combine"


class UnsupportedError(DrystoneError):
    """No exact form exists for this array in this output."""

    default_kind = "unsupported"


class PlanError(DrystoneError):
    """What is asked is impossible within the limits given."""

    default_kind = "plan"


class DecodeError(DrystoneError):
    """Stored bytes do not decode to what the table promises."""

    default_kind = "decode"


class TableError(DrystoneError):
    """The reference table is incoherent."""

    default_kind = "table"


class StorageError(DrystoneError):
    """Reading or writing storage failed; what was done so far is kept."""

    exit_code = 4
    default_kind = "storage"


class LeaseError(DrystoneError):
    """Another driver holds the lease."""

    exit_code = 3
    default_kind = "lease-held"


class IncompleteRun(DrystoneError):
    """Some tasks are left; running again does them and nothing else."""

    exit_code = 4
    default_kind = "incomplete"


class Stopped(DrystoneError):
    """A signal ended the run; what is done is kept."""

    exit_code = 75
    default_kind = "stopped"


class VerifyError(DrystoneError):
    """Published values are not the granule's values."""

    default_kind = "verify"


class MissingExtra(DrystoneError):
    """An optional library is needed."""

    exit_code = 2
    default_kind = "missing-extra"

    @classmethod
    def of(cls, library: str, extra: str, purpose: str) -> MissingExtra:
        """Build the message that names the install line."""
        return cls(
            f"{purpose} needs the library {library}, which is not installed; install it with: pip install 'drystone[{extra}]'",
            library=library,
            extra=extra,
        )


class LeftOut(UserWarning):
    """A warning: a thing in a granule has no exact reference and is not in the result; the message names it and why."""

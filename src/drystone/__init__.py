"""drystone: lay an archive's chunks edge to edge.

The public names, each imported on first use so that ``import drystone`` costs nothing:

``open``, ``scan``, ``plan``, ``run``; the options that ``open`` takes beside plain mappings, ``AxisOptions``,
``DifferenceOptions`` and ``Selection``; and the errors of :mod:`drystone.errors`.

``scan`` and ``plan`` are also packages of ours. Importing a package sets its name on the parent, which would hide the
functions from then on; so for these two names the parent keeps the function, and the packages are reached by import
statements alone (``from drystone.plan.combine import combine``).
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

__all__ = ["AxisOptions", "DifferenceOptions", "Selection", "__version__", "open", "plan", "run", "scan"]

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from drystone.model.options import AxisOptions, DifferenceOptions, Selection
    from drystone.pipeline.api import open, plan, run, scan  # noqa: A004 - users write drystone.open

_FUNCTIONS = frozenset({"open", "plan", "run", "scan"})
_OPTIONS = frozenset({"AxisOptions", "DifferenceOptions", "Selection"})


def __getattr__(name: str) -> object:
    home = "drystone.pipeline.api" if name in _FUNCTIONS else "drystone.model.options" if name in _OPTIONS else None
    if home is not None:
        from importlib import import_module

        return getattr(import_module(home), name)
    raise AttributeError(f"module 'drystone' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """A module whose public functions are not hidden by packages of the same name."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in _FUNCTIONS and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

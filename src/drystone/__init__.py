"""drystone: lay an archive's chunks edge to edge.

The public names, each imported on first use so that ``import drystone`` costs nothing:

``open``, ``scan``, ``plan``, ``run`` and the errors of :mod:`drystone.errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["__version__", "open", "plan", "run", "scan"]

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from drystone.pipeline.api import open, plan, run, scan  # noqa: A004 - users write drystone.open


def __getattr__(name: str) -> object:
    if name in {"open", "plan", "run", "scan"}:
        from importlib import import_module

        return getattr(import_module("drystone.pipeline.api"), name)
    raise AttributeError(f"module 'drystone' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

"""The step between written and visible: whoever emits may have the staged form proved by others first."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["proof"]


def proof(options: Mapping[str, object], location: str, version: str | None = None) -> None:
    """Call the ``proof`` option with where the staged form lies; an error that it raises keeps the form invisible.

    Parameters
    ----------
    options
        Of the emitter.
    location
        Path or URL of the staged form.
    version
        Icechunk snapshot.

    Examples
    --------
    >>> proof({"proof": lambda location, version: print(location)}, "/tmp/form")
    /tmp/form
    """
    call = options.get("proof")
    if callable(call):
        call(location, version)

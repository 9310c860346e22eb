"""A release: one publish."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

__all__ = ["OutputIdentity", "Release"]


@dataclass(frozen=True, slots=True)
class OutputIdentity:
    """What one output was at a release.

    ``identity`` is an Icechunk snapshot id, or the fingerprint of a store's metadata and receipts; ``verified`` names
    the verification done (``none``, ``sample 1%``, ``full``) and ``report`` where it lies.
    """

    form: str
    address: str
    identity: str
    verified: str = "none"
    report: str | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """One publish: the rows valid at it and the identities of its outputs.

    Parameters
    ----------
    release_id
        Counts from 1.
    created_ns
        Nanoseconds since 1970.
    config_digest
        Of the config as read.
    partial
        True where granules were set aside with the config's consent.
    software
        Library versions that decide bytes.
    outputs
        One an output.
    """

    release_id: int
    created_ns: int
    config_digest: str
    partial: bool
    software: tuple[tuple[str, str], ...]
    outputs: tuple[OutputIdentity, ...]

    def to_json(self) -> str:
        """Exact JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Release:
        """Read back what :meth:`to_json` wrote."""
        d = json.loads(text)
        d["software"] = tuple((str(k), str(v)) for k, v in d["software"])
        d["outputs"] = tuple(OutputIdentity(**o) for o in d["outputs"])
        return cls(**d)

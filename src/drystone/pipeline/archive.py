"""One config resolved: its places, its table, its run folders.

Layout below the work address, ``<work>/<name>/``::

    table/            the reference table
    runs/<output>/    plan, receipts and reports of one output
    shuffle/<output>/ what lies between two passes while a rechunk runs, unless the config has a place for it
    lease             held by the one driver
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass

from drystone.model.options import ArchiveConfig, OutputOptions
from drystone.storage.address import Places, split_address
from drystone.storage.store import Place, Store
from drystone.table.table import ReferenceTable

__all__ = ["Archive"]


@dataclass(frozen=True, slots=True)
class Archive:
    """A config with its places opened."""

    config: ArchiveConfig
    places: Places

    @classmethod
    def of(cls, config: ArchiveConfig) -> Archive:
        """Open the places of a config; nothing is read or written yet."""
        places = [Place(name, url, options) for name, (url, options) in config.places.items()]
        return cls(config, Places.of(places, config.base))

    @property
    def store(self) -> Store:
        """The store that holds the work folder."""
        return self.places.resolve(self.config.work)[0]

    def key(self, *parts: str) -> str:
        """A key below the work folder of this archive."""
        prefix = self.places.resolve(self.config.work)[1].strip("/")
        return "/".join(p for p in (prefix, self.config.name, *parts) if p)

    def has_table(self) -> bool:
        """Whether a scan has committed anything."""
        return any(True for _ in self.store.list(self.key("table/granules/_delta_log/")))

    def table(self, create: bool = False) -> ReferenceTable:
        """The reference table."""
        if create:
            return ReferenceTable.open_or_create(self.store, self.key("table"))
        return ReferenceTable.open(self.store, self.key("table"))

    def note_places(self) -> None:
        """Write the places beside the table, so that it can be opened without the config; no credential is in them."""
        known = {n: {"url": self.places.store(n).url, "options": dict(p.options)} for n, p in self.places.by_name.items()}
        data = json.dumps(known, indent=2, sort_keys=True).encode()
        key = self.key("places.json")
        if not self.store.exists(key) or self.store.get(key) != data:
            self.store.put(key, data)

    def run_key(self, output: OutputOptions) -> str:
        """The folder of one output's plan, receipts and reports: by its address, so that outputs may change places."""
        address = f"{output.form} {output.at}"
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", output.at.partition(":")[2])[:40]
        return self.key("runs", f"{name}-{hashlib.blake2b(address.encode(), digest_size=4).hexdigest()}")

    @property
    def work_scratch(self) -> str:
        """Address of the folder in the work place for what lies between two passes."""
        return f"{split_address(self.config.work)[0]}:{self.key('shuffle')}"

    @property
    def scratch(self) -> str:
        """Address of the folder for what lies between two passes; in a shared place, archives of one name are kept apart."""
        if self.config.scratch is None:
            return self.work_scratch
        whose = f"{self.store.url} {self.key()}"
        return f"{self.config.scratch}/{hashlib.blake2b(whose.encode(), digest_size=4).hexdigest()}"

    def scratch_of(self, output: OutputOptions) -> str:
        """The folder of one output in it."""
        return f"{self.scratch}/{self.run_key(output).rpartition('/')[2]}"

"""Compare chunk shapes before a rechunk campaign: tasks, their memory, and what the config's reads would cost.

usage: compare_chunks.py CONFIG AXIS=EDGE,… AXIS=EDGE,… …

    compare_chunks.py oisst.yaml time=64,lat=180,lon=180 time=512,lat=45,lon=45

Every shape replaces the chunks of the config's first store output, without shards. Granules that are
not in the table yet are scanned into it; nothing else is written.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import drystone
from drystone.config.load import load_config
from drystone.errors import PlanError
from drystone.model.options import ArchiveConfig, OutputOptions


def shape(text: str) -> dict[str, int]:
    """``time=64,lat=180`` to a mapping."""
    return {name: int(edge) for name, _, edge in (part.partition("=") for part in text.split(","))}


def with_chunks(config: ArchiveConfig, chunks: dict[str, int]) -> ArchiveConfig:
    store: OutputOptions = next(o for o in config.outputs if o.kind == "store")
    return replace(config, outputs=(replace(store, chunks=chunks, shards={}),))


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("chunks", nargs="+", type=shape, metavar="AXIS=EDGE,…")
    asked = parser.parse_args(words)
    config = load_config(asked.config)
    drystone.scan(config)
    for chunks in asked.chunks:
        print(f"== {', '.join(f'{name} {edge}' for name, edge in chunks.items())}")
        try:
            print("\n".join(drystone.plan(with_chunks(config, chunks)).lines()))
        except PlanError as error:
            print(f"impossible: {error}")
    return 0


if __name__ == "__main__":  # worker processes import this file
    raise SystemExit(main())

"""Backfill: run many archives, retry those that storage failed, and say at the end what is left.

usage: backfill.py CONFIG… [--tries N] [--pause SECONDS]

A second call does only what is left. The exit code is the worst of the archives' own.
"""

from __future__ import annotations

import argparse
import sys
import time

import drystone
from drystone.errors import DrystoneError

RESUMABLE = 4  # storage failed, or tasks are left: what is done is kept


def backfill(config: str, tries: int, pause: float) -> int:
    """Run one archive to its end; its exit code."""
    for attempt in range(1, tries + 1):
        try:
            report = drystone.run(config)
        except DrystoneError as error:
            print(f"{config}: {error.kind}: {error}", file=sys.stderr)
            if error.exit_code != RESUMABLE or attempt == tries:
                return error.exit_code
            time.sleep(pause * 2 ** (attempt - 1))
        else:
            state = "nothing changed" if report.release is None else f"release {report.release}"
            print(f"{config}: {report.scan.scanned} granules scanned, {report.scan.unchanged} unchanged, {state}")
            return 0
    raise AssertionError("tries is at least 1")


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="+", metavar="CONFIG")
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--pause", type=float, default=30.0, help="seconds before the second try; doubled for each further one")
    asked = parser.parse_args(words)
    codes = {config: backfill(config, asked.tries, asked.pause) for config in asked.configs}
    left = [config for config, code in codes.items() if code]
    print(f"{len(codes) - len(left)} of {len(codes)} archives done" + (f"; left: {', '.join(left)}" if left else ""))
    return max(codes.values())


if __name__ == "__main__":  # worker processes import this file
    raise SystemExit(main())
